"""A real `deepinfer serve` on a free port of loopback, for the end-to-end tests. Needs Python's standard library only."""
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import threading
import unittest

BINARY = os.environ["DEEPINFER_BINARY"]
SOURCE = os.environ["DEEPINFER_SOURCE"]
TINY = os.path.join(SOURCE, "tests/golden/dense/tiny-qwen3/tiny-qwen3-Q8_0.gguf")
NANO = os.path.join(SOURCE, "models/nano")
SMOLLM2 = os.path.join(os.environ.get("DEEPINFER_TEST_MODELS", os.path.expanduser("~/.cache/deepinfer/models")), "smollm2-135m-instruct-q4_1.gguf")
PATIENCE_S = 600  # only what hangs takes so long, on however slow a machine


def needs(path):
    return unittest.skipUnless(os.path.exists(path), "absent: " + os.path.basename(path))


def run(*arguments, stdin="", environment=None):
    """Runs a subcommand to its end."""
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S,
                          env={**os.environ, **(environment or {})})


class Server:
    def __init__(self, model=TINY, *flags):
        command = [BINARY, "serve", *([model] if model else []), "--port", "0", "--threads", "1", "--kv-memory", "64MiB", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = []
        self.port = None
        ready = threading.Event()
        self.reader = threading.Thread(target=self._read, args=(ready,), daemon=True)
        self.reader.start()
        if not ready.wait(PATIENCE_S) or self.port is None:
            self.process.kill()
            raise AssertionError("the server did not start: " + "".join(self.lines))

    def _read(self, ready):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"serving .* on https?://[^ ]*:(\d+) after", line)
            if found:
                self.port = int(found.group(1))
                ready.set()
        ready.set()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def get(self, path):
        with contextlib.closing(self.connect()) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def post(self, path, body):
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def stream(self, body):
        """The data lines of a streamed chat completion, as they come."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "stream": True}), {"content-type": "application/json"})
            with connection.getresponse() as response:
                if response.status != 200:
                    raise AssertionError("status %d: %s" % (response.status, response.read()))
                for line in response:
                    line = line.decode().strip()
                    if line.startswith("data: "):
                        yield line[len("data: "):]

    def cpu_ticks(self):
        """User and system time of all threads, in clock ticks."""
        with open("/proc/%d/stat" % self.process.pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def resident_bytes(self):
        with open("/proc/%d/status" % self.process.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024

    def end(self):
        """SIGTERM, and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.reader.join(5)
            self.process.stderr.close()
            self.process.stdout.close()
