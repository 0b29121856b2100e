#!/usr/bin/env python3
"""Runs deepinfer and llama.cpp in turns on the same model file and compares the medians.

usage: bench/peers/compare.py MODEL.gguf [--threads 2] [--rounds 5] [--cases NAME,NAME…] [--json FILE]
       bench/peers/compare.py --build        only builds llama.cpp

llama.cpp comes as the source package `llama-cpp-python` (pip download), is built natively in a cache folder (DEEPINFER_PEERS, default
~/.cache/deepinfer/peers) and never enters the repository. Each round runs every case once with either program, in alternating order, so a slow
minute of a shared machine falls on both. Both use default settings: 8-bit activations, llama.cpp with F16 KV and flash attention auto, deepinfer
with bf16 KV. Print a Markdown table; medians of rounds, the ratio of medians, and the smallest and largest ratio of a round.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tarfile

PACKAGE = "llama-cpp-python==0.3.36"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEEPINFER = os.path.join(ROOT, "build/release/deepinfer")
CACHE = os.environ.get("DEEPINFER_PEERS", os.path.expanduser("~/.cache/deepinfer/peers"))

# deepinfer's name of a case -> (llama.cpp's program, its arguments, timed tokens)
CASES = {
    "prefill 512": ("llama-bench", ["-p", "512", "-n", "0"], 512),
    "prefill 2048": ("llama-bench", ["-p", "2048", "-n", "0"], 2048),
    "decode at 0": ("llama-bench", ["-p", "0", "-n", "64"], 64),
    "decode at 4096": ("llama-bench", ["-p", "0", "-n", "32", "-d", "4096"], 32),
}
for n in (2, 4, 8, 16):
    CASES["decode of %d" % n] = ("llama-batched-bench", ["-npp", "128", "-ntg", "32", "-npl", str(n), "-c", str(256 * n)], 32 * n)


def note(text):
    print("compare: " + text, file=sys.stderr, flush=True)


def build():
    """The folder with llama.cpp's programs, built if they are not there."""
    folder = os.path.join(CACHE, PACKAGE.replace("==", "-"))
    programs = os.path.join(folder, "build/bin")
    if all(os.path.exists(os.path.join(programs, p)) for p in ("llama-bench", "llama-batched-bench")):
        return programs
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(folder, "source")
    if not os.path.isdir(source):
        note("downloading " + PACKAGE)
        # The package's own build steps are not wanted, only its archive; pip has no way to skip asking for its metadata.
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, PACKAGE], check=True)
        (archive,) = glob.glob(os.path.join(glob.escape(folder), "*.tar.gz"))
        with tarfile.open(archive) as tar:
            top = tar.getmembers()[0].name.split("/")[0]
            tar.extractall(folder)
        os.rename(os.path.join(folder, top), source)
        os.remove(archive)
    vendored = os.path.join(source, "vendor/llama.cpp")
    keep_tile_config(os.path.join(vendored, "ggml/src/ggml-cpu/amx/mmq.cpp"))
    note("building llama.cpp (minutes)")
    out = os.path.join(folder, "build")
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_SERVER=OFF"]
    subprocess.run(["cmake", "-S", vendored, "-B", out, "-G", "Ninja", *options], check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", out, "--target", "llama-bench", "llama-batched-bench"], check=True, stdout=sys.stderr)
    return programs


def keep_tile_config(path):
    """g++ 12 drops stores to a tile configuration before _tile_loadconfig (it claims to read 8 bytes of 64), and llama.cpp's AMX path then
    crashes. An empty asm that touches the whole keeps them; nothing else changes."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    call = "    _tile_loadconfig(&tc);"
    if text.count(call) == 1 and "+m" not in text:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(call, '    __asm__ volatile("" : "+m"(tc));\n' + call))


def ours(model, threads, case):
    out = subprocess.run([DEEPINFER, "bench", model, "--threads", str(threads), "--rounds", "1", "--only", case, "--json"], check=True, stdout=subprocess.PIPE)
    report = json.loads(out.stdout)
    return report["cases"][0]["tokens_per_s"], report


def theirs(programs, model, threads, case):
    program, arguments, tokens = CASES[case]
    command = [os.path.join(programs, program), "-m", model, "-t", str(threads), *arguments]
    if program == "llama-bench":
        out = subprocess.run([*command, "-r", "1", "-o", "json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(out.stdout)[0]["avg_ts"]
    out = subprocess.run([*command, "-tb", str(threads), "--output-format", "jsonl"], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    (line,) = [json.loads(text) for text in out.stdout.decode().splitlines() if text.startswith("{")]
    return tokens / line["t_tg"]


def compare(programs, model, threads, rounds, cases):
    rates = {case: {"deepinfer": [], "llama.cpp": []} for case in cases}
    roofs = []
    for turn in range(rounds):
        for case in cases:
            order = ["deepinfer", "llama.cpp"] if turn % 2 == 0 else ["llama.cpp", "deepinfer"]
            for who in order:
                if who == "deepinfer":
                    rate, report = ours(model, threads, case)
                    roofs.append(report["roof"])
                else:
                    rate = theirs(programs, model, threads, case)
                rates[case][who].append(rate)
        note("round %d of %d" % (turn + 1, rounds))
    return rates, roofs, report


def table(model, threads, rates, roofs, report):
    median = lambda key: statistics.median(r[key] for r in roofs)
    lines = ["`%s`, %d threads, %s kernels, deepinfer %s; llama.cpp of %s, native build." % (os.path.basename(model), threads, report["isa"], report["version"], PACKAGE),
             "Roof, median of the same minutes: memory %.1f GB/s, %.1f GB/s over as many bytes as the weights, int8 %.0f Gop/s, bf16 %.0f Gop/s." % (
                 median("read_bytes_per_s") / 1e9, median("read_model_bytes_per_s") / 1e9, median("int8_ops_per_s") / 1e9, median("bf16_ops_per_s") / 1e9), "",
             "| tokens/s | deepinfer | llama.cpp | ratio | ratios of rounds |", "|---|---|---|---|---|"]
    for case, who in rates.items():
        a, b = who["deepinfer"], who["llama.cpp"]
        each = sorted(x / y for x, y in zip(a, b))
        lines.append("| %s | %.1f | %.1f | **%.2f** | %.2f–%.2f |" % (case, statistics.median(a), statistics.median(b), statistics.median(a) / statistics.median(b), each[0], each[-1]))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--build", action="store_true")
    arguments = parser.parse_args()
    programs = build()
    if arguments.build:
        return
    if not arguments.model:
        parser.error("name a model file")
    cases = arguments.cases.split(",")
    for case in cases:
        if case not in CASES:
            parser.error("no case '%s'; there are: %s" % (case, ", ".join(CASES)))
    rates, roofs, report = compare(programs, arguments.model, arguments.threads, arguments.rounds, cases)
    print(table(arguments.model, arguments.threads, rates, roofs, report))
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"model": os.path.basename(arguments.model), "threads": arguments.threads, "rates": rates, "roofs": roofs, "version": report["version"], "isa": report["isa"]}, f, indent=1)


if __name__ == "__main__":
    main()
