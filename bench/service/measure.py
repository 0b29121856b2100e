#!/usr/bin/env python3
"""What serving costs beyond the bare model: time per output token (TPOT) of parallel streams over HTTP, start, resident memory.

usage: bench/service/measure.py MODEL [--streams 8] [--tokens 128] [--rounds 5] [--threads 2] [--json FILE]

Each round takes the bare step (`deepinfer bench --only 'decode of N'`) and the served one in turns, so that a slow minute of a shared machine falls
on both. TPOT is the median over all gaps between the tokens of all streams, once all of them run. Start is from exec to the first token of a short
answer, model file in the page cache. Resident memory is anonymous and locked memory (the mapped file can be dropped by the kernel at any time) after
the streams, beyond the packed weights and the blocks of the KV arena that were ever in use.
"""
import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEEPINFER = os.path.join(ROOT, "build/release/deepinfer")


def bare(model, threads, streams):
    """Seconds of a bare step, bytes of the packed weights."""
    out = subprocess.run([DEEPINFER, "bench", model, "--threads", str(threads), "--rounds", "1", "--only", "decode of %d" % streams, "--json"], check=True, stdout=subprocess.PIPE)
    report = json.loads(out.stdout)
    return streams / report["cases"][0]["tokens_per_s"], report["weight_bytes"]


class Server:
    def __init__(self, model, threads):
        self.begin = time.monotonic()
        self.process = subprocess.Popen([DEEPINFER, "serve", model, "--port", "0", "--threads", str(threads)], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"serving (\S+) .*on https?://[^ ]*:(\d+) after", line)
            if found:
                self.model, self.port = found.group(1), int(found.group(2))
                break
        else:
            raise SystemExit("the server did not start")
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def stream(self, text, tokens, times):
        """Appends the arrival of each token of one streamed answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        body = {"model": self.model, "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200, response.read()
        for line in response:
            if line.startswith(b'data: {"id"'):
                times.append(time.monotonic())
        connection.close()

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return float(re.search(r"^%s(?:{[^}]*})? (\S+)$" % name, text, re.M).group(1))

    def anonymous_bytes(self):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as f:
            return int(re.search(r"RssAnon:\s+(\d+) kB", f.read()).group(1)) * 1024

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def served(model, threads, streams, tokens):
    server = Server(model, threads)
    first = []
    server.stream("The", 1, first)
    start_s = first[0] - server.begin
    times = [[] for _ in range(streams)]
    workers = [threading.Thread(target=server.stream, args=("Stream number %d says: " % i + "word " * 100, tokens, times[i])) for i in range(streams)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    all_run = max(t[0] for t in times)
    until = min(t[-1] for t in times)
    gaps = [b - a for t in times for a, b in zip(t, t[1:]) if a >= all_run and b <= until]
    blocks = server.metric("deepinfer_kv_blocks_cached") + server.metric("deepinfer_kv_blocks_in_use")
    result = {"start_s": start_s, "tpot_s": statistics.median(gaps), "tpot_p99_s": sorted(gaps)[int(len(gaps) * 0.99)], "anonymous_bytes": server.anonymous_bytes(), "kv_tokens": blocks * server.metric("deepinfer_kv_block_tokens")}
    server.end()
    return result


def kv_bytes_per_token(model):
    out = subprocess.run([DEEPINFER, "model", "info", model, "--json"], check=True, stdout=subprocess.PIPE)
    return json.loads(out.stdout)["kv_bytes_per_token"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", metavar="FILE")
    a = parser.parse_args()
    rounds = []
    for _ in range(a.rounds):
        step_s, weight_bytes = bare(a.model, a.threads, a.streams)
        rounds.append({"bare_s": step_s, "weight_bytes": weight_bytes, **served(a.model, a.threads, a.streams, a.tokens)})
    median = lambda key: statistics.median(r[key] for r in rounds)
    beyond = median("anonymous_bytes") - median("weight_bytes") - median("kv_tokens") * kv_bytes_per_token(a.model)
    print("| `%s`, %d threads, %d streams, %d rounds | median | smallest–largest |\n|---|---|---|" % (os.path.basename(a.model), a.threads, a.streams, a.rounds))
    for label, key in (("bare step, ms", "bare_s"), ("TPOT over HTTP, ms", "tpot_s"), ("TPOT, 99th percentile of gaps, ms", "tpot_p99_s"), ("start to first token, ms", "start_s")):
        values = sorted(r[key] * 1000 for r in rounds)
        print("| %s | %.2f | %.2f–%.2f |" % (label, statistics.median(values), values[0], values[-1]))
    print("| memory beyond weights and used KV blocks, MiB | %.0f | |" % (beyond / 2**20))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"model": os.path.basename(a.model), "threads": a.threads, "streams": a.streams, "rounds": rounds}, f, indent=1)


if __name__ == "__main__":
    main()
