#!/usr/bin/env python3
"""Checks what a compiler does not: the include table of docs/style.md, file names, header comments, white space, stray words,
end-to-end tests that nobody runs.

usage: tidy.py              checks every file that git would commit; one line a finding; exit code 1 if there is one
       tidy.py --self-test  shows that each rule can fail

The table is read from docs/style.md, so that the document and the rule cannot differ.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# How an angle include names the library that the table speaks of.
LIBRARIES = [
    (r"fmt/", "fmt"), (r"spdlog/", "spdlog"), (r"sodium\.h", "libsodium"), (r"xxhash\.h", "xxhash"),
    (r"liburing\.h", "liburing"), (r"boost/asio", "asio"), (r"boost/beast", "beast"), (r"boost/json", "boost.json"),
    (r"boost/", "boost"), (r"openssl/", "openssl"), (r"unicode/", "icu"), (r"simdjson\.h", "simdjson"),
    (r"prometheus/", "prometheus"), (r"CLI/", "cli11"), (r"toml\+\+/", "toml++"), (r"(gtest|gmock)/", "gtest"),
    (r"benchmark/", "benchmark"), (r"google/protobuf|grpc", "grpc"), (r"sqlite3\.h", "sqlite"),
    (r"turbojpeg\.h", "libturbojpeg"), (r"png\.h", "libpng"), (r"webp/", "libwebp"), (r"gif_lib\.h", "giflib"),
    (r"zlib\.h", "zlib"), (r"zstd\.h", "zstd"), (r"hiredis/", "hiredis"), (r"curl/", "curl"), (r"pugixml\.hpp", "pugixml"),
]
# Pieces of Boost that come with the libraries named in the table and need no name of their own.
BOOST_SMALL = re.compile(r"boost/(system|core|url|endian|container|optional|version|utility|config|intrusive|smart_ptr)\b")

TEXT_EXTENSIONS = {".h", ".cc", ".c", ".py", ".sh", ".md", ".txt", ".cmake", ".rs", ".toml", ".json", ".in", ".service", ""}
# Spelt in parts, so that this file does not find itself.
FORBIDDEN = [
    ("/" + "work/", "a path of one machine"), ("/" + "root/", "a path of one machine"), ("/" + "home/", "a path of one machine"),
    ("pypi" + ".org", "a registry host"), ("deb." + "debian.org", "a registry host"), ("static." + "crates.io", "a registry host"),
]
UNCHECKED = re.compile(r"^(models/nano/|models/deepseek/tokenizer|tests/golden/|fuzz/corpus/|rust/Cargo\.lock$|LICENSE$)")


def read_table(style):
    """folder -> (folders it may include, libraries it may use), closed over what those include."""
    rows = re.findall(r"^src/(\w+)/ .*?<-\s*(.*)$", style, re.M)
    names = [folder for folder, _ in rows]
    table = {}
    for at, (folder, text) in enumerate(rows):
        folders, libraries = {folder}, set()
        if text.startswith("all above"):
            folders |= set(names[:at])
            text = text[len("all above"):]
        for word in text.split():
            (folders if word in names else libraries).add(word)
        for other in sorted(folders - {folder}):
            if other in table:  # a folder further down is a mistake that the caller reports
                folders |= table[other][0]
                libraries |= table[other][1]
        table[folder] = (folders, libraries)
    return table


def library_of(include):
    if BOOST_SMALL.match(include):
        return None
    for pattern, name in LIBRARIES:
        if re.match(pattern, include):
            return name
    return None


def check_includes(path, text, table):
    folder = path.split("/")[1]
    if folder not in table:
        yield 1, "src/%s is not in the table of docs/style.md" % folder
        return
    folders, libraries = table[folder]
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        kind, name = match.groups()
        library = library_of(name)
        if library == "gtest" and path.endswith("_test.cc"):
            continue
        if library and library not in libraries:
            yield number, "src/%s may not include <%s> (%s)" % (folder, name, library)
        if kind == '"' and not library:
            other = name.split("/")[0]
            if other == "generated" or "/" not in name:
                continue
            if other in table and other not in folders:
                yield number, "src/%s may not include \"%s\"" % (folder, name)


def check_name(path):
    base = os.path.basename(path)
    if path.startswith("src/") and base not in ("CMakeLists.txt", "README.md"):
        if not re.fullmatch(r"[a-z][a-z0-9_]*\.(h|cc|inc)", base):
            yield 1, "a source is named like block_pool.cc"


def check_text(path, text):
    if path.endswith(".h"):
        if not text.startswith("//"):
            yield 1, "a header opens with a comment that says what it owns"
        if path.startswith("src/") and "#pragma once" not in text:
            yield 1, "#pragma once is missing"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end"
    if text.endswith("\n\n"):
        yield text.count("\n"), "empty lines at the end"
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "trailing white space"
        if "\t" in line and path.endswith((".h", ".cc", ".py")):
            yield number, "a tab"
        for word, why in FORBIDDEN:
            if word in line:
                yield number, "%s (%s)" % (why, word)


def check_temporary(path, text):
    """Tests run side by side as processes, so that a fixed name in a folder of all is another test's too."""
    word = "testing::" + "TempDir"
    if path != "tests/temp_folder.h" and word in text:
        yield text.count("\n", 0, text.index(word)) + 1, "%s is a folder that tests share: temp_folder.h" % word


def check_registered(path, text, registered):
    """unittest classes of tests/e2e run only if a CMakeLists.txt names them."""
    module = re.fullmatch(r"tests/e2e/(\w+_test)\.py", path)
    for case in re.finditer(r"^class (\w+Test)\b", text, re.M) if module else ():
        name = "%s.%s" % (module[1], case[1])
        if not re.search(re.escape(name) + r"\b", registered):
            yield text.count("\n", 0, case.start()) + 1, "%s is in no CMakeLists.txt, so it never runs" % name


def check_file(path, text, table, registered):
    yield from check_name(path)
    yield from check_text(path, text)
    yield from check_temporary(path, text)
    yield from check_registered(path, text, registered)
    if path.startswith("src/") and path.endswith((".h", ".cc", ".inc")):
        yield from check_includes(path, text, table)


def committed_files():
    listing = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"],
                             cwd=ROOT, check=True, stdout=subprocess.PIPE)
    for path in listing.stdout.decode().split("\0"):
        full = os.path.join(ROOT, path)
        if path and os.path.isfile(full) and not os.path.islink(full) and not UNCHECKED.match(path):
            if os.path.splitext(path)[1] in TEXT_EXTENSIONS:
                yield path, full


def main():
    with open(os.path.join(ROOT, "docs/style.md"), encoding="utf-8") as f:
        table = read_table(f.read())
    if "base" not in table or "apps" not in table:
        sys.exit("tidy: no layout table found in docs/style.md")
    registered = ""
    for name in ("tests/CMakeLists.txt", "tests/e2e/CMakeLists.txt"):
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            registered += f.read()
    found = files = 0
    for path, full in sorted(committed_files()):
        files += 1
        try:
            with open(full, encoding="utf-8") as f:
                text = f.read()
        except UnicodeDecodeError:
            print("%s:1: not UTF-8" % path)
            found += 1
            continue
        for line, message in check_file(path, text, table, registered):
            print("%s:%d: %s" % (path, line, message))
            found += 1
    print("tidy: %d files, %d findings" % (files, found))
    return 1 if found else 0


def self_test():
    table = read_table("src/base/  x <- fmt\nsrc/core/  y <- base\nsrc/kernels/ z <- base\nsrc/apps/ w <- all above cli11\n")
    good = "// Says what it owns.\n#pragma once\n#include <fmt/format.h>\n#include \"base/a.h\"\n"
    assert table["core"] == ({"core", "base"}, {"fmt"}), table
    assert table["apps"][0] == {"apps", "base", "core", "kernels"} and table["apps"][1] == {"fmt", "cli11"}
    bad = [
        ("src/core/a.h", good.replace("base/a.h", "kernels/a.h"), "may not include"),
        ("src/core/a.h", good.replace("fmt/format.h", "CLI/CLI.hpp"), "cli11"),
        ("src/core/a.h", good + "#include <gtest/gtest.h>\n", "gtest"),
        ("src/odd/a.h", good, "not in the table"),
        ("src/core/ACamel.h", good, "named like"),
        ("src/core/a.h", good[3:], "opens with a comment"),
        ("src/core/a.h", good.replace("#pragma once\n", ""), "pragma"),
        ("src/core/a.h", good + "int x; \n", "trailing"),
        ("src/core/a.h", good + "\tint x;\n", "tab"),
        ("src/core/a.h", good + "// see /" + "work/x\n", "one machine"),
        ("src/core/a_test.cc", good + "auto x = testing::" + "TempDir();\n", "temp_folder.h"),
        ("README.md", "no newline", "newline"),
        ("README.md", "text\n\n", "empty lines"),
        ("tests/e2e/a_test.py", "class OtherTest(unittest.TestCase):\n", "never runs"),
    ]
    registered = "foreach(case a_test.OneTest)"
    for path, text in (("src/core/a.h", good), ("src/core/a_test.cc", good + "#include <gtest/gtest.h>\n"),
                       ("tests/e2e/a_test.py", "class OneTest(unittest.TestCase):\n")):
        assert not list(check_file(path, text, table, registered)), path
    for path, text, expected in bad:
        messages = [m for _, m in check_file(path, text, table, registered)]
        assert len(messages) == 1 and expected in messages[0], (path, text, messages)
    print("tidy: self-test passed, %d rules fail when they must" % len(bad))
    return 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else main())
