"""The block store as an operator meets it: restarts, several processes, kill -9, a directory that goes away, the cache subcommands. Whatever
happens, answers are those of a server without a store. DEEPINFER_KILL_ROUNDS=200 kills as often as a release should survive."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import stat
import tempfile
import threading
import time
import unittest

import server as e2e

KILL_ROUNDS = int(os.environ.get("DEEPINFER_KILL_ROUNDS", "5"))
WORDS = "the quick brown fox jumps over the lazy dog while seven wizards count their boxes of liquor ".split()


def question(number, turns=1):
    text = " ".join(WORDS[(number + i * (number + 1)) % len(WORDS)] for i in range(120))
    messages = [{"role": "user", "content": "%d %s" % (number, text)}]
    return {"model": "tiny-qwen3-Q8_0", "messages": messages, "temperature": 1, "seed": 11, "max_tokens": 40 * turns, "logprobs": True}


def ask(server, body):
    """Choices, usage, and what x-deepinfer-cache says."""
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        tiers = {k: int(v) for k, v in re.findall(r"([a-z-]+)=(\d+)", response.getheader("x-deepinfer-cache", ""))}
        return answer["choices"], answer["usage"], tiers


class CacheCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        plain = e2e.Server()
        cls.cold = [ask(plain, question(n))[0] for n in range(6)]
        assert plain.end() == 0

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="deepinfer-cache-")
        self.dir = os.path.join(self.folder, "cache")
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *flags):
        server = e2e.Server(e2e.TINY, "--cache-dir", self.dir, "--cache-budget", "64MiB", *flags)
        self.servers.append(server)
        return server

    def wait_until(self, condition, what, timeout=30):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        self.fail("not within %d s: %s" % (timeout, what))

    def check(self, server, number):
        choices, usage, tiers = ask(server, question(number))
        self.assertEqual(choices, self.cold[number], "another answer than the cold one")
        return usage, tiers


class CacheTest(CacheCase):
    def test_a_restart_finds_what_was_computed(self):
        server = self.start()
        for n in range(3):
            usage, tiers = self.check(server, n)
            self.assertEqual(tiers["disk"], 0)
        self.assertEqual(server.end(), 0)
        server = self.start()
        for n in range(3):
            usage, tiers = self.check(server, n)
            self.assertGreater(tiers["disk"] + tiers["ram"], 100, tiers)
            self.assertEqual(tiers["ram"] + tiers["disk"] + tiers["shared"], usage["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(tiers["computed"], usage["prompt_cache_miss_tokens"])
        self.assertGreater(sum(self.metric(server, "deepinfer_cache_hit_blocks_total")), 3)
        usage, tiers = self.check(server, 0)
        self.assertEqual(tiers["disk"], 0, "from memory the second time")

    def metric(self, server, name):
        return [float(v) for v in re.findall(r"^%s(?:\{[^}]*\})? ([0-9.e+]+)$" % name, server.get("/metrics")[1], re.M)]

    def test_two_servers_share_a_directory(self):
        first, second = self.start(), self.start()
        self.check(first, 0)

        def shared():
            second_usage, tiers = self.check(second, 0)
            return tiers["shared"] > 100

        # The second looks at the directory every two seconds; what it computed itself meanwhile is no hit on the first's.
        self.wait_until(lambda: self.metric(first, "deepinfer_cache_written_blocks_total")[0] > 3, "the first writes")
        self.wait_until(lambda: self.metric(second, "deepinfer_cache_blocks")[0] > 3, "the second sees it")
        self.assertTrue(shared())

    def test_files_are_the_owners_alone(self):
        server = self.start()
        self.check(server, 0)
        server.end()
        for folder, _, files in os.walk(self.dir):
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700, folder)
            for name in files:
                self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600, name)

    def test_the_directory_removed_while_serving(self):
        server = self.start()
        self.check(server, 0)
        gone = self.dir + ".gone"  # at once: the server may be writing
        os.rename(self.dir, gone)
        shutil.rmtree(gone)
        for n in range(4):
            self.check(server, n)
        self.wait_until(lambda: os.path.exists(os.path.join(self.dir, "secret")), "the directory is made again")
        server.end()
        server = self.start()
        self.assertGreater(sum(self.check(server, n)[1]["disk"] for n in range(1, 4)), 100)

    def test_a_wrong_key_is_a_miss(self):
        keys = []
        for n in range(2):
            keys.append(os.path.join(self.folder, "key%d" % n))
            with open(os.open(keys[n], os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(("%02x" % (n + 1)) * 32)
        self.check(self.start("--cache-key-file", keys[0]), 0)
        self.servers.pop().end()
        self.assertGreater(self.check(self.start("--cache-key-file", keys[0]), 0)[1]["disk"], 100)
        self.servers.pop().end()
        self.assertEqual(self.check(self.start("--cache-key-file", keys[1]), 0)[1]["disk"], 0)

    def test_subcommands(self):
        server = self.start()
        for n in range(3):
            self.check(server, n)
        self.wait_until(lambda: json.loads(e2e.run("cache", "stat", self.dir, "--json").stdout)["blocks"] > 10, "stat sees blocks")
        told = e2e.run("cache", "verify", self.dir, "--json")
        self.assertEqual((told.returncode, json.loads(told.stdout)["bad_blocks"]), (0, 0), told.stderr)
        self.assertEqual(e2e.run("cache", "purge", self.dir).returncode, 2, "nothing is removed without being named")
        told = e2e.run("cache", "purge", self.dir, "--all", "--json")
        self.assertGreater(json.loads(told.stdout)["segments"], 0, told.stderr)
        self.check(server, 3)
        server.end()
        text = e2e.run("cache", "stat", self.dir)
        self.assertIn("blocks in", text.stdout)
        self.assertNotIn("\r", text.stderr, "plain lines in a pipe")
        self.assertEqual(e2e.run("cache", "stat", self.folder).returncode, 1)

    def test_warm(self):
        path = os.path.join(self.folder, "text.txt")
        with open(path, "w") as f:
            f.write("a b c d e f g h " * 60)
        told = e2e.run("cache", "warm", e2e.TINY, path, "--cache-dir", self.dir, "--cache-budget", "64MiB", "--threads", "1", "--kv-memory", "64MiB", "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        again = e2e.run("cache", "warm", e2e.TINY, path, "--cache-dir", self.dir, "--cache-budget", "64MiB", "--threads", "1", "--kv-memory", "64MiB", "--json")
        self.assertGreater(json.loads(again.stdout)[0]["cached_tokens"], 100, again.stdout + again.stderr)


class KillTest(CacheCase):
    def test_kill_at_random_points_during_load(self):
        """What was acknowledged stays, and nothing wrong is ever served."""
        rng = random.Random(5)
        hits = 0
        for _ in range(KILL_ROUNDS):
            server = self.start()
            hits += self.check(server, rng.randrange(6))[1]["disk"]

            def load(number):
                with contextlib.suppress(OSError, Exception):
                    ask(server, question(number, turns=3))

            threads = [threading.Thread(target=load, args=(n,)) for n in range(6)]
            for thread in threads:
                thread.start()
            time.sleep(rng.random() * 0.5)
            os.kill(server.process.pid, signal.SIGKILL)
            server.end()
            for thread in threads:
                thread.join()
            self.servers.remove(server)
        server = self.start()
        for n in range(6):
            hits += self.check(server, n)[1]["disk"]
        self.assertGreater(hits, 100)
        told = e2e.run("cache", "verify", self.dir, "--json")
        self.assertEqual(json.loads(told.stdout)["bad_blocks"], 0, told.stdout)


if __name__ == "__main__":
    unittest.main()
