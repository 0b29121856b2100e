#!/usr/bin/env python3
"""Compares our tokenizer with the Hugging Face `tokenizers` package: same ids on generated text, and MB/s of both in one run.

usage: compare.py [--binary build/release/bench/encode_documents] [--megabytes 24] [--rounds 5] [--speed-only] TOKENIZER...

TOKENIZER: a .gguf file with a byte-level vocabulary, or a tokenizer.json. Needs the packages tokenizers and gguf.
Speeds are in CPU time of the one thread, so that other work on the machine counts less. Every document is encoded by both without recognising added tokens; the first differences are shown. Exit code 1 if there is one.
The other side runs on one thread (encode_batch would use all; RAYON_NUM_THREADS=1), document by document, as ours does.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def from_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields

    def strings(key):
        field = fields["tokenizer.ggml." + key]
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]
    tokens, merges = strings("tokens"), [tuple(m.split(" ")) for m in strings("merges")]
    pre = strings("pre")[0]
    types = [int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data]
    vocab = {t: i for i, t in enumerate(tokens)}
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre == "llama-bpe"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre == "smollm")
    if pre == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True)]
    elif pre in ("qwen2", "deepseek-r1-qwen"):
        steps = [pre_tokenizers.Split(Regex(LLAMA3 % ""), "isolated")]
        t.normalizer = normalizers.NFC()
    elif pre == "llama-bpe":
        steps = [pre_tokenizers.Split(Regex(LLAMA3 % "{1,3}"), "isolated")]
    else:
        sys.exit("compare: pre-tokenizer %s" % pre)
    t.pre_tokenizer = pre_tokenizers.Sequence(steps + [byte_level])
    t.decoder = decoders.ByteLevel()
    # No added tokens: both sides encode bytes and merges only.
    return t


def from_json(path):
    with open(path, encoding="utf-8") as f:
        spec = json.load(f)
    spec["added_tokens"] = []
    spec["post_processor"] = None
    return Tokenizer.from_str(json.dumps(spec))


# --- text ---

WORDS = """the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were when we
there can an your which their said if do will each about how up out them then she many some so these would other into has more her two like
him see time could no make than first been its who now people my made over did down only way find use may water long little very after words
called just where most know tokenizer attention gradient transformer quantisation bandwidth scheduler prefix latency throughput""".split()
CODE = ["def ", "return", "    ", "\t", "\n", "self.", "(x, y)", " = ", "==", "!=", "{", "}", ";", "//", "/* ", " */", "0x1F", "std::vector<int>",
        "for (int i = 0; i < n; ++i) {\n", "if ", "else:\n", "\"\"\"", "'a'", "->", "=>", "&&", "||", "snake_case_name", "camelCaseName",
        "<div class=\"x\">", "</div>", "#include <x.h>\n", "lambda", "[i]", "%s", "\\n", "@property\n", "import os\n", "1e-5", "3.14159"]
SCRIPTS = {
    "latin": [(0xc0, 0x24f)], "greek": [(0x391, 0x3c9)], "cyrillic": [(0x410, 0x44f)], "hebrew": [(0x5d0, 0x5ea)], "arabic": [(0x621, 0x652)],
    "devanagari": [(0x904, 0x94d), (0x958, 0x96f)], "thai": [(0xe01, 0xe5b)], "hangul": [(0xac00, 0xd7a3)], "jamo": [(0x1100, 0x11ff)],
    "kana": [(0x3040, 0x30ff)], "han": [(0x4e00, 0x5fff), (0x4e00, 0x9fff), (0x3400, 0x4dbf)], "marks": [(0x300, 0x36f)],
    "punctuation": [(0x2000, 0x206f), (0x3000, 0x303f), (0xff00, 0xff20)], "symbols": [(0x20a0, 0x23ff), (0x2500, 0x27bf)],
    "emoji": [(0x1f300, 0x1f6ff), (0x1f900, 0x1f9ff), (0x200d, 0x200d), (0xfe0f, 0xfe0f)], "numbers": [(0x30, 0x39), (0x660, 0x669), (0xbc, 0xbe), (0x2160, 0x2188), (0x2460, 0x249b)],
    "spaces": [(0x20, 0x20), (0x9, 0xd), (0xa0, 0xa0), (0x2000, 0x200a), (0x2028, 0x2029), (0x3000, 0x3000), (0x85, 0x85), (0x1680, 0x1680)],
    "controls": [(0x0, 0x1f), (0x7f, 0x9f), (0x200b, 0x200f), (0xfeff, 0xfeff), (0xe000, 0xe010), (0xfffd, 0xfffd)],
    "compatibility": [(0xf900, 0xfaff), (0x1e00, 0x1fff), (0x2126, 0x212b), (0x340, 0x345), (0x17f, 0x17f)],
    "astral": [(0x10400, 0x1044f), (0x1d400, 0x1d7ff), (0x20000, 0x20100)],
}


def english(r):
    words = []
    for _ in range(r.randint(5, 25)):
        word = r.choice(WORDS)
        k = r.random()
        if k < 0.08:
            word = word.capitalize()
        elif k < 0.1:
            word = "".join(r.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(r.randint(3, 11)))
        elif k < 0.12:
            word = str(r.randint(0, 10 ** r.randint(1, 9)))
        elif k < 0.14:
            word += r.choice(["'s", "'t", "'re", "'LL", "'ve", "'d", "\u2019s"])
        words.append(word)
    return " ".join(words) + r.choice([". ", ", ", "! ", "?\n", ".\n\n", ": ", " \u2014 ", ".  "])


def run(r, name):
    low, high = r.choice(SCRIPTS[name])
    return "".join(chr(r.randint(low, high)) for _ in range(r.randint(1, 8 if name != "han" else 20)))


def mixed(r):
    parts = []
    for _ in range(r.randint(3, 30)):
        k = r.random()
        if k < 0.25:
            parts.append(r.choice(CODE))
        elif k < 0.4:
            parts.append(r.choice(WORDS))
        elif k < 0.5:
            parts.append(r.choice([" ", "  ", "\n", "\r\n", "\n\n", "   ", "\t"]))
        else:
            parts.append(run(r, r.choice(list(SCRIPTS))))
        if r.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


def cjk(r):
    return "".join(chr(r.choice([r.randint(0x4e00, 0x4fff), r.randint(0x4e00, 0x9fa5), r.randint(0x3041, 0x3096)])) for _ in range(r.randint(4, 24))) \
        + r.choice(["\uff0c", "\u3002", "\u3002\n", " "])


def script_words(name, longest=9):
    def make(r):
        ranges = SCRIPTS[name]
        return " ".join("".join(chr(r.randint(*r.choice(ranges))) for _ in range(r.randint(2, longest))) for _ in range(8)) + ". "
    return make


def base64(r):
    return "".join(r.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") for _ in range(76)) + "\n"


def digits(r):
    return " ".join(str(r.randint(0, 10 ** r.randint(1, 12))) for _ in range(10)) + "\n"


def code(r):
    return "".join(r.choice(CODE) + (" " if r.random() < 0.4 else "") for _ in range(20)) + "\n"


KINDS = {"english": english, "code": code, "mixed": mixed, "cjk": cjk, "cyrillic": script_words("cyrillic"), "devanagari": script_words("devanagari"),
         "hangul": script_words("hangul", 5), "arabic": script_words("arabic"), "base64": base64, "digits": digits}


def corpus(kind, megabytes, seed):
    r = random.Random("%s %d" % (kind, seed))
    documents, size = [], 0
    while size < megabytes * 1e6:
        document, target, n = [], r.choice([200, 2000, 20000]), 0
        while n < target:
            piece = KINDS[kind](r)
            document.append(piece)
            n += len(piece.encode())
        documents.append("".join(document))
        size += n
    return documents


def write_documents(path, documents):
    with open(path, "wb") as f:
        for d in documents:
            b = d.encode()
            f.write(struct.pack("<I", len(b)) + b)


def read_ids(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        n, = struct.unpack_from("<I", data, at)
        yield list(struct.unpack_from("<%di" % n, data, at + 4))
        at += 4 + 4 * n


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tokenizers", nargs="+")
    p.add_argument("--binary", default="build/release/bench/encode_documents")
    p.add_argument("--megabytes", type=float, default=24, help="of text in all, for the comparison of ids")
    p.add_argument("--speed-megabytes", type=float, default=4, help="of text of each kind, for the speeds")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--speed-only", action="store_true")
    p.add_argument("--ids-only", action="store_true")
    p.add_argument("--kinds", default=",".join(KINDS))
    a = p.parse_args()
    kinds = a.kinds.split(",")
    bad = 0
    print("tokenizers %s" % tokenizers.__version__)
    for path in a.tokenizers:
        other = from_gguf(path) if path.endswith(".gguf") else from_json(path)
        with tempfile.TemporaryDirectory() as folder:
            docs, ids = os.path.join(folder, "docs"), os.path.join(folder, "ids")
            if not a.speed_only:
                total = 0
                for kind in kinds:
                    documents = corpus(kind, a.megabytes / len(kinds), a.seed)
                    write_documents(docs, documents)
                    subprocess.run([a.binary, path, docs, "--ids", ids, "--rounds", "0"], check=True, stdout=subprocess.DEVNULL)
                    shown = 0
                    for d, ours in zip(documents, read_ids(ids)):
                        theirs = other.encode(d, add_special_tokens=False).ids
                        total += len(d.encode())
                        if ours != theirs:
                            bad += 1
                            if shown < 3:
                                k = next(i for i in range(min(len(ours), len(theirs)) + 1) if ours[i:i + 1] != theirs[i:i + 1])
                                print("  %s: differ at id %d: ours %s, theirs %s, after %r" % (
                                    kind, k, ours[k:k + 6], theirs[k:k + 6], other.decode(theirs[max(0, k - 5):k + 6])))
                            shown += 1
                print("%s: %.1f MB of text, %d documents differ" % (os.path.basename(path), total / 1e6, bad))
            if a.ids_only:
                continue
            print("%s: MB/s, one thread, median of %d rounds" % (os.path.basename(path), a.rounds))
            print("  %-12s %8s %8s %7s" % ("text", "ours", "theirs", "ratio"))
            for kind in kinds:
                documents = corpus(kind, a.speed_megabytes, a.seed + 1)
                write_documents(docs, documents)
                result = json.loads(subprocess.run([a.binary, path, docs, "--rounds", str(a.rounds)], check=True, stdout=subprocess.PIPE).stdout)
                ours = sorted(result["mb_s"])[a.rounds // 2]
                few = documents[:max(1, len(documents) // 4)]
                size = sum(len(d.encode()) for d in few) / 1e6
                rates = []
                for _ in range(3):
                    start = time.thread_time()
                    for d in few:
                        other.encode(d, add_special_tokens=False)
                    rates.append(size / (time.thread_time() - start))
                print("  %-12s %8.1f %8.1f %6.1fx   (load %.3f s)" % (kind, ours, sorted(rates)[1], ours / sorted(rates)[1], result["load_s"]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
