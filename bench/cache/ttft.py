#!/usr/bin/env python3
"""First token of a long prompt over HTTP: cold, from memory, from disk after a restart, and from another process's segment.

usage: bench/cache/ttft.py MODEL [--tokens 4000] [--rounds 5] [--threads N] [--binary build/release/deepinfer]
Medians of the rounds; each round has a prompt of its own. A line of Markdown a case, with its ratio to cold."""
import argparse
import http.client
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time


class Server:
    def __init__(self, options, folder):
        command = [options.binary, "serve", options.model, "--port", "0", "--log", "off", "--model-name", "m", "--cache-dir", folder, "--cache-budget", "8GiB"]
        if options.threads:
            command += ["--threads", str(options.threads)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"on http://[^ ]*:(\d+) after", line)
            if found:
                self.port = int(found.group(1))
                return
        raise SystemExit("the server did not start")

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        begin = time.perf_counter()
        connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        took = time.perf_counter() - begin
        connection.close()
        assert response.status == 200, text
        return text, took, response.getheader("x-deepinfer-cache", "")

    def first_token(self, prompt):
        _, took, header = self.call("POST", "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0})
        return took, {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", header)}

    def wait_written(self):
        """Until nothing waits to be written."""
        last = None
        for _ in range(600):
            metrics = self.call("GET", "/metrics")[0]
            now = re.findall(r"^deepinfer_cache_(?:backlog_bytes|written_blocks_total)\{[^}]*\} ([0-9.e+]+)", metrics, re.M)
            if now == last and float(now[0]) == 0:
                return
            last = now
            time.sleep(0.2)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stderr.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--binary", default="build/release/deepinfer")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="deepinfer-ttft-")
    cases = {"cold": [], "memory": [], "disk after a restart": [], "another process's segment": []}
    try:
        prompts = [[1000 + (i * (n + 3) * 7 + i // 13) % 4000 for i in range(options.tokens)] for n in range(options.rounds)]
        first = Server(options, os.path.join(folder, "cache"))
        first.first_token([5] * 600)  # so that pages and threads are warm
        for prompt in prompts:
            cases["cold"].append(first.first_token(prompt))
            cases["memory"].append(first.first_token(prompt))
            first.wait_written()
        second = Server(options, os.path.join(folder, "cache"))  # while the first lives: its segments are another process's
        second.first_token([6] * 600)
        for prompt in prompts:
            cases["another process's segment"].append(second.first_token(prompt))
        second.end()
        first.end()
        third = Server(options, os.path.join(folder, "cache"))
        third.first_token([7] * 600)
        for prompt in prompts:
            cases["disk after a restart"].append(third.first_token(prompt))
        third.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cold = statistics.median(t for t, _ in cases["cold"])
    print("first token of %d tokens, median of %d rounds\n\n| | ms | x cold | cached tokens: memory, disk, shared |\n|---|---|---|---|" % (options.tokens, options.rounds))
    for name, results in cases.items():
        middle = statistics.median(t for t, _ in results)
        tiers = [statistics.median(r.get(k, 0) for _, r in results) for k in ("ram", "disk", "shared")]
        print("| %s | %.1f | %.1f | %d, %d, %d |" % (name, middle * 1e3, cold / middle, *tiers))


if __name__ == "__main__":
    main()
