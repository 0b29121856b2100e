"""The block store as an operator meets it: restarts, several processes, kill -9, a directory that goes away, the cache subcommands. Whatever
happens, answers are those of a server without a store. DEEPINFER_KILL_ROUNDS=200 kills as often as a release should survive."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.parse

import server as e2e

KILL_ROUNDS = int(os.environ.get("DEEPINFER_KILL_ROUNDS", "5"))
WORDS = "the quick brown fox jumps over the lazy dog while seven wizards count their boxes of liquor ".split()


def question(number, turns=1):
    text = " ".join(WORDS[(number + i * (number + 1)) % len(WORDS)] for i in range(120))
    messages = [{"role": "user", "content": "%d %s" % (number, text)}]
    return {"model": "tiny-qwen3-Q8_0", "messages": messages, "temperature": 1, "seed": 11, "max_tokens": 40 * turns, "logprobs": True}


def tiers_of(response):
    return {k: int(v) for k, v in re.findall(r"([a-z-]+)=(\d+)", response.getheader("x-deepinfer-cache", ""))}


def ask(server, body):
    """Choices, usage, and what x-deepinfer-cache says."""
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer["choices"], answer["usage"], tiers_of(response)


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

    def metric(self, server, name):
        return [float(v) for v in re.findall(r"^%s(?:\{[^}]*\})? ([0-9.e+]+)$" % name, server.get("/metrics")[1], re.M)]

    def start(self, *flags):
        server = e2e.Server(e2e.TINY, "--cache-dir", self.dir, "--cache-budget", "64MiB", *flags)
        self.servers.append(server)
        return server

    def wait_until(self, condition, what):
        end = time.monotonic() + e2e.PATIENCE_S
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        self.fail("not within %d s: %s" % (e2e.PATIENCE_S, what))

    def check(self, server, number, salt=None):
        choices, usage, tiers = ask(server, {**question(number), **({"cache_salt": salt} if salt else {})})
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
        seen = []
        for n in range(3):
            usage, tiers = self.check(server, n)
            seen.append((usage, tiers))
            self.assertGreater(tiers["disk"] + tiers["ram"], 100, tiers)
            self.assertEqual(tiers["ram"] + tiers["disk"] + tiers["shared"], usage["prompt_tokens_details"]["cached_tokens"])
            self.assertEqual(tiers["computed"], usage["prompt_cache_miss_tokens"])
        self.assertGreater(sum(self.metric(server, "deepinfer_cache_hit_blocks_total")), 3)
        self.check_ledger(server, seen)
        usage, tiers = self.check(server, 0)
        self.assertEqual(tiers["disk"], 0, "from memory the second time")

    def check_ledger(self, server, seen):
        """What requests were told adds up to what /metrics counts."""
        self.assertEqual(self.metric(server, "deepinfer_prompt_tokens_total"), [sum(usage["prompt_tokens"] for usage, _ in seen)])
        self.assertEqual(self.metric(server, "deepinfer_prefix_cache_hit_tokens_total"), [sum(usage["prompt_tokens_details"]["cached_tokens"] for usage, _ in seen)])
        block_tokens = self.metric(server, "deepinfer_kv_block_tokens")[0]
        self.assertEqual(sum(self.metric(server, "deepinfer_cache_hit_blocks_total")) * block_tokens, sum(tiers["disk"] + tiers["shared"] for _, tiers in seen))

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

    def test_flags_that_need_a_directory(self):
        for flags in (["--cache-index", "redis://127.0.0.1"], ["--cache-budget", "1GiB"], ["--cache-key-file", "/nowhere"]):
            told = e2e.run("serve", e2e.TINY, "--threads", "1", *flags)
            self.assertEqual((told.returncode, flags[0] in told.stderr, "--cache-dir" in told.stderr), (2, True, True), told.stderr)

    def test_classes_of_tenants_that_nobody_is(self):
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w") as f:
            f.write("acme:key-of-acme\n")
        for flags, what in ((["acem=agent"], "acem"), (["acme=agnet"], "agnet"), (["default=agent"], "default"), (["acme"], "TENANT=CLASS")):
            told = e2e.run("serve", e2e.TINY, "--threads", "1", "--cache-dir", self.dir, "--api-key-file", keys, "--tenant-retention", *flags)
            self.assertEqual((told.returncode, what in told.stderr), (2, True), told.stderr)

    def test_warm(self):
        path = os.path.join(self.folder, "text.txt")
        with open(path, "w") as f:
            f.write("a b c d e f g h " * 60)
        told = e2e.run("cache", "warm", e2e.TINY, path, "--cache-dir", self.dir, "--cache-budget", "64MiB", "--threads", "1", "--kv-memory", "64MiB", "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        again = e2e.run("cache", "warm", e2e.TINY, path, "--cache-dir", self.dir, "--cache-budget", "64MiB", "--threads", "1", "--kv-memory", "64MiB", "--json")
        self.assertGreater(json.loads(again.stdout)[0]["cached_tokens"], 100, again.stdout + again.stderr)


    def test_warm_for_chats_of_a_tenant(self):
        system, message = os.path.join(self.folder, "system.txt"), "Answer briefly. " + " ".join(WORDS * 12)
        with open(system, "w") as f:
            f.write(message)
        request, body = os.path.join(self.folder, "request.json"), question(3)
        with open(request, "w") as f:
            json.dump({**body, "metadata": {"retention": "agent"}}, f)
        keys = os.path.join(self.folder, "keys")
        with open(keys, "w") as f:
            f.write("acme:key-of-acme\nplain-key\n")
        common = ["--tenant", "acme", "--cache-dir", self.dir, "--cache-budget", "64MiB", "--threads", "1", "--kv-memory", "64MiB"]
        for flags in ([system, "--as", "system"], [request, "--as", "request"]):
            told = e2e.run("cache", "warm", e2e.TINY, *flags, *common)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertIn("100 % of", told.stderr)
        classes = sorted(group["class"] for group in json.loads(e2e.run("cache", "stat", self.dir, "--json").stdout)["groups"])
        self.assertEqual(classes, ["agent", "chat"])
        for flags, what in ((["--class", "none"], "none"), (["--as", "request"], "JSON")):
            told = e2e.run("cache", "warm", e2e.TINY, system, *flags, *common)
            self.assertEqual((told.returncode == 0, what in told.stderr), (False, True), told.stderr)
        server = self.start("--api-key-file", keys)

        def disk_tokens(key, body):
            with contextlib.closing(server.connect()) as connection:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", "authorization": "Bearer " + key})
                response = connection.getresponse()
                self.assertEqual(response.status, 200, response.read())
                response.read()
                return tiers_of(response)["disk"]

        chat = {**body, "messages": [{"role": "system", "content": message}, {"role": "user", "content": "Who jumps?"}]}
        self.assertEqual([disk_tokens("plain-key", one) for one in (chat, body)], [0, 0])
        self.assertGreater(min(disk_tokens("key-of-acme", one) for one in (chat, body)), 100)


class NanoCacheTest(CacheCase):
    """DeepSeek-V4.1: blocks of 128 tokens, and windows that no block holds, which are replayed after a hit from wherever it comes."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(e2e.NANO, "goldens.json")) as f:
            prompts = [case["prompt"] for case in json.load(f)["cases"]]
        cls.prompt = [token for prompt in prompts for token in prompt][:700]
        assert len(cls.prompt) == 700

    def complete(self, server):
        body = {"model": "nano", "prompt": self.prompt, "temperature": 0, "max_tokens": 24, "logprobs": 2}
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            self.assertEqual(response.status, 200, answer)
            return answer["choices"], tiers_of(response)

    def answers(self, flags):
        """Cold and from memory, and from disk after a restart, with what each found where."""
        def start():
            server = e2e.Server(None, "--cache-dir", self.dir, "--cache-budget", "64MiB", *flags)
            self.servers.append(server)
            return server

        server = start()
        cold, (memory, found) = self.complete(server)[0], self.complete(server)
        self.assertEqual((found["ram"], found["disk"]), (640, 0))
        self.assertEqual(server.end(), 0)
        disk, found = self.complete(start())
        self.assertEqual((found["ram"], found["disk"]), (0, 640))
        return cold, memory, disk

    def test_a_restart_goes_on_like_memory(self):
        _, memory, disk = self.answers([])
        self.assertEqual(disk, memory)

    def test_without_replay_a_restart_changes_nothing(self):
        cold, memory, disk = self.answers(["--no-replay"])
        self.assertEqual(memory, cold)
        self.assertEqual(disk, cold)


class TwoStoresTest(CacheCase):
    """Machines with a disk of their own in front of a directory that they share."""

    def start(self, machine, *flags):
        local = os.path.join(self.folder, machine)
        server = e2e.Server(e2e.TINY, "--cache-dir", local, "--cache-budget", "16MiB", "--cache-shared", self.dir, "--cache-shared-budget", "64MiB", *flags)
        self.servers.append(server)
        return server

    def stored(self, server, store, name):
        return dict(re.findall(r'^deepinfer_cache_%s\{[^}]*store="(\w+)"\} ([0-9.e+]+)$' % name, server.get("/metrics")[1], re.M)).get(store, "0")

    def test_what_one_machine_computed_another_keeps_nearby(self):
        first = self.start("first")
        for n in range(3):
            self.check(first, n)
        self.assertEqual(first.end(), 0)
        second = self.start("second")
        seen = [self.check(second, n)[1] for n in range(3)]
        self.assertGreater(min(tiers["shared"] + tiers["ram"] for tiers in seen), 100, seen)
        self.assertGreater(sum(tiers["shared"] for tiers in seen), 200, seen)
        self.assertEqual(second.end(), 0)
        second = self.start("second")
        seen = [self.check(second, n)[1] for n in range(3)]
        self.assertGreater(min(tiers["disk"] + tiers["ram"] for tiers in seen), 100, seen)
        self.assertEqual([tiers["shared"] for tiers in seen], [0, 0, 0])
        for directory in (os.path.join(self.folder, "first"), os.path.join(self.folder, "second"), self.dir):
            told = json.loads(e2e.run("cache", "verify", directory, "--json").stdout)
            self.assertEqual((told["blocks"] > 6, told["bad_blocks"]), (True, 0), told)

    def test_the_shared_directory_gone_and_back(self):
        server = self.start("first")
        self.check(server, 0)
        self.assertEqual(server.end(), 0)
        os.rename(self.dir, self.dir + ".gone")
        open(self.dir, "w").close()  # what cannot be made anew
        self.assertNotEqual(e2e.run("serve", e2e.TINY, "--threads", "1", "--cache-dir", os.path.join(self.folder, "new"), "--cache-shared", self.dir).returncode, 0)
        server = self.start("first")
        self.assertGreater(self.check(server, 0)[1]["disk"], 100)
        for n in range(1, 4):
            self.check(server, n)
        self.assertEqual(float(self.stored(server, "dir", "write_errors_total")), 0)
        os.remove(self.dir)
        os.rename(self.dir + ".gone", self.dir)
        self.wait_until(lambda: float(self.stored(server, "shared", "blocks")) > 2, "it is seen again")

        def written():
            self.check(server, 4, str(time.monotonic()))
            return float(self.stored(server, "shared", "written_blocks_total")) > 2

        self.wait_until(written, "it is written again")
        self.assertEqual(server.end(), 0)

    def test_directories_that_cannot_stand_together(self):
        first, second = os.path.join(self.folder, "first"), os.path.join(self.folder, "second")
        for directory in (first, second):
            told = e2e.run("cache", "warm", e2e.TINY, __file__, "--context", "200", "--cache-dir", directory, "--cache-budget", "16MiB", "--threads", "1", "--kv-memory", "64MiB")
            self.assertEqual(told.returncode, 0, told.stderr)
        for flags, code, what in ((["--cache-shared", first], 2, "--cache-dir"), (["--cache-dir", first, "--cache-shared", first], 2, "same directory"),
                                  (["--cache-dir", first, "--cache-shared-budget", "1GiB"], 2, "--cache-shared"), (["--cache-dir", first, "--cache-shared", second], 1, "another directory"),
                                  (["--cache-dir", "s3://b/p", "--cache-shared", first], 2, "object storage")):
            told = e2e.run("serve", e2e.TINY, "--threads", "1", *flags)
            self.assertEqual((told.returncode, what in told.stderr), (code, True), told.stderr)


class Redis:
    """A real redis-server on a free port; also killed, stopped and fed."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = "redis://127.0.0.1:%d/2" % self.port
        self.start()

    def start(self):
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL)
        end = time.monotonic() + e2e.PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if self.run("PING").startswith(b"+PONG"):
                    return
            time.sleep(0.05)
        raise AssertionError("redis-server did not start")

    def run(self, *words):
        """The beginning of the answer to one command, in Redis' own form."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=e2e.PATIENCE_S) as connection:
            for command in ("SELECT", "2"), words:
                message = b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(w.encode()), w.encode()) for w in command)
                connection.sendall(message)
                answer = connection.recv(4096)
        return answer

    def fill_with_rubbish(self):
        """Every key gets another value: of another key, of another type, none at all, too long, cut."""
        self.run("EVAL", """
            local keys = redis.call('keys', 'deepinfer:2:*')
            for i, key in ipairs(keys) do
              local value = redis.call('get', keys[#keys + 1 - i])
              redis.call('del', key)
              if i % 5 == 0 then redis.call('lpush', key, 'x')
              elseif i % 5 == 1 and value then redis.call('set', key, value)
              elseif i % 5 == 2 then redis.call('set', key, string.rep('y', 1000000))
              elseif i % 5 == 3 and value then redis.call('set', key, string.sub(value, 1, -7))
              else redis.call('set', key, '../../x ../x.seg 1 1 1') end
            end""", "0")

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        self.process.kill()
        self.process.wait()


@unittest.skipUnless(shutil.which("redis-server"), "absent: redis-server")
class IndexTest(CacheCase):
    def setUp(self):
        super().setUp()
        self.redis = Redis()
        self.addCleanup(lambda: self.redis.end())

    def start(self, *flags):
        return super().start("--cache-index", self.redis.url, *flags)

    def wait_told(self, server):
        def told():
            written, told, dropped = (self.metric(server, "deepinfer_cache_%s_total" % name)[0] for name in ("written_blocks", "index_told_blocks", "index_dropped_blocks"))
            return written > 0 and told + dropped >= written and self.metric(server, "deepinfer_cache_backlog_bytes")[0] == 0

        self.wait_until(told, "all that is written is told")

    def test_what_one_computed_another_finds(self):
        first, second = self.start(), self.start()
        for n in range(6):  # the directory is looked at every two seconds: some come sooner
            for salt in "abcde":  # an answer of the index that comes late, on a busy machine, is not waited for
                self.check(first, n, salt)
                self.wait_told(first)
                found = self.check(second, n, salt)[1]["shared"]
                if found > 100:
                    break
            self.assertGreater(found, 100)
        self.assertGreater(self.metric(second, "deepinfer_cache_index_found_blocks_total")[0], 3)
        self.assertEqual(self.metric(second, "deepinfer_cache_index_wrong_places_total")[0], 0)
        found = re.search(rb":(\d+)", self.redis.run("DBSIZE"))
        self.assertGreater(int(found.group(1)), 10)

    def test_redis_killed_restarted_stopped_flushed_and_full_of_rubbish_during_load(self):
        first, second = self.start(), self.start()
        stop, wrong = threading.Event(), []

        def load(server, name):
            for i in range(10_000):
                if stop.is_set():
                    return
                try:
                    self.check(server, i % 6, "%s %d" % (name, i // 6))  # both ask the same: one of them first
                except AssertionError as error:
                    wrong.append(error)
                    return

        threads = [threading.Thread(target=load, args=(server, "load")) for server in (first, second)]
        for thread in threads:
            thread.start()
        faults = [("killed", self.redis.end), ("restarted", self.redis.start), ("full of rubbish", self.redis.fill_with_rubbish),
                  ("stopped", lambda: self.redis.signal(signal.SIGSTOP)), ("continued", lambda: self.redis.signal(signal.SIGCONT)),
                  ("flushed", lambda: self.redis.run("FLUSHALL")), ("full of rubbish again", self.redis.fill_with_rubbish),
                  ("read-only", lambda: self.redis.run("REPLICAOF", "127.0.0.1", "1")), ("writable", lambda: self.redis.run("REPLICAOF", "NO", "ONE"))]
        try:
            for name, fault in faults:
                fault()
                for n in range(3):
                    self.check(first, n, name)
                    self.check(second, n, name)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])
        self.assertGreater(sum(self.metric(server, "deepinfer_cache_index_errors_total")[0] for server in (first, second)), 0)
        self.wait_until(lambda: self.metric(second, "deepinfer_cache_index_off")[0] == 0, "it is asked again")
        found = self.metric(second, "deepinfer_cache_index_found_blocks_total")[0]

        def finds():
            salt = str(time.monotonic())
            self.check(first, 0, salt)
            self.wait_told(first)
            self.check(second, 0, salt)
            return self.metric(second, "deepinfer_cache_index_found_blocks_total")[0] > found

        self.wait_until(finds, "the index is of use again")
        self.assertEqual(json.loads(e2e.run("cache", "verify", self.dir, "--json").stdout)["bad_blocks"], 0)

    def test_wrong_usage(self):
        told = e2e.run("serve", e2e.TINY, "--threads", "1", "--cache-dir", self.dir, "--cache-index", "rediss://h")
        self.assertEqual((told.returncode, "redis://HOST" in told.stderr), (2, True), told.stderr)


class Proxy:
    """Between a server and its object storage; passes bytes on, or does what networks do."""

    def __init__(self, host, port):
        self.target, self.mode = (host, port), "pass"
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            if self.mode == "refuse":
                return
            with socket.create_connection(self.target) as upstream:
                threading.Thread(target=self.pump, args=(client, upstream, False), daemon=True).start()
                self.pump(upstream, client, True)

    def pump(self, source, sink, answers):
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(1 << 16)
                while self.mode == "hang":
                    time.sleep(0.05)
                if not data or self.mode == "refuse":
                    break
                if answers and self.mode == "cut":  # in the middle of an answer
                    sink.sendall(data[:len(data) // 2])
                    break
                if answers and self.mode == "rot" and len(data) > 2000:  # wrong bytes behind right headers
                    data = data[:-1000] + bytes(b ^ 0x55 for b in data[-1000:])
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def end(self):
        self.listener.close()


@unittest.skipUnless("DEEPINFER_TEST_BUCKET" in os.environ, "no object storage; tests/object_store/run starts one")
class ObjectStoreTest(CacheCase):
    def setUp(self):
        super().setUp()
        self.dir = "s3://%s/%s" % (os.environ["DEEPINFER_TEST_BUCKET"], os.path.basename(self.folder))
        url = urllib.parse.urlsplit(os.environ["AWS_ENDPOINT_URL"])
        proxy = Proxy(url.hostname, url.port)
        self.addCleanup(proxy.end)
        self.proxy = proxy
        before = os.environ["AWS_ENDPOINT_URL"]
        os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:%d" % proxy.port
        self.addCleanup(lambda: os.environ.__setitem__("AWS_ENDPOINT_URL", before))

    def test_a_restart_and_another_server_find_what_was_computed(self):
        server = self.start()
        for n in range(3):
            self.check(server, n)
        self.wait_until(lambda: self.metric(server, "deepinfer_cache_written_blocks_total")[0] > 6, "it is written")
        other = self.start()
        self.assertGreater(self.check(other, 0)[1]["shared"], 100)
        for one in (server, other):
            self.assertEqual(one.end(), 0)
        server = self.start()
        for n in range(3):
            self.assertGreater(sum(self.check(server, n)[1][tier] for tier in ("shared", "ram")), 100)

    def test_subcommands(self):
        server = self.start()
        self.check(server, 0)
        server.end()
        self.assertGreater(json.loads(e2e.run("cache", "stat", self.dir, "--json").stdout)["blocks"], 3)
        self.assertEqual(json.loads(e2e.run("cache", "verify", self.dir, "--json").stdout)["bad_blocks"], 0)
        told = e2e.run("cache", "purge", self.dir, "--all", "--json")
        self.assertGreater(json.loads(told.stdout)["segments"], 0, told.stderr)
        self.assertEqual(json.loads(e2e.run("cache", "stat", self.dir, "--json").stdout)["blocks"], 0)
        told = e2e.run("serve", e2e.TINY, "--threads", "1", "--cache-dir", self.dir)
        self.assertEqual((told.returncode, "--cache-budget" in told.stderr), (2, True), told.stderr)

    def test_a_local_directory_in_front(self):
        local = os.path.join(self.folder, "local")

        def start():
            server = e2e.Server(e2e.TINY, "--cache-dir", local, "--cache-budget", "16MiB", "--cache-shared", self.dir, "--cache-shared-budget", "64MiB")
            self.servers.append(server)
            return server

        server = start()
        for n in range(3):
            self.check(server, n)
        server.end()
        shutil.rmtree(local)
        server = start()
        self.assertGreater(self.check(server, 0)[1]["shared"], 100)
        server.end()
        for mode in ("refuse", "hang"):
            server = start()
            self.proxy.mode = mode
            self.assertGreater(self.check(server, 0)[1]["disk"], 100)
            self.check(server, 1)
            self.check(server, 2, mode)
            self.proxy.mode = "pass"
            server.end()
        self.proxy.mode = "refuse"
        self.assertGreater(self.check(start(), 0)[1]["disk"], 100)

    def test_a_network_that_fails_changes_no_token(self):
        server = self.start()
        for n in range(6):
            self.check(server, n)
        server.end()
        for mode in ("refuse", "cut", "rot", "hang"):
            server = self.start()
            self.proxy.mode = mode
            for n in range(6):
                self.check(server, n)
                self.check(server, n, mode)  # blocks that are new, and cannot be written
            self.proxy.mode = "pass"
            server.end()
        server = self.start()
        self.assertGreater(sum(self.check(server, n)[1]["shared"] for n in range(6)), 100)
        self.assertEqual(json.loads(e2e.run("cache", "verify", self.dir, "--json").stdout)["bad_blocks"], 0)


class KillTest(CacheCase):
    def test_kill_at_random_points_during_load(self):
        """What was acknowledged stays, and nothing wrong is ever served."""
        rng = random.Random(5)
        hits = 0
        for _ in range(KILL_ROUNDS):
            server = self.start()
            hits += self.hits(server, rng.randrange(6))

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
            hits += self.hits(server, n)
        self.assertGreater(hits, 100)
        for directory in self.directories():
            told = e2e.run("cache", "verify", directory, "--json")
            self.assertEqual(json.loads(told.stdout)["bad_blocks"], 0, told.stdout)

    def hits(self, server, number):
        tiers = self.check(server, number)[1]
        return tiers["disk"] + tiers["shared"]

    def directories(self):
        return [self.dir]


class TwoStoresKillTest(KillTest):
    """The same with a shared directory behind; every second machine is new, and finds what its predecessors computed there."""

    def start(self, *flags):
        if self.num_starts % 2 == 1:
            shutil.rmtree(self.dir, ignore_errors=True)
        self.num_starts += 1
        return super().start("--cache-shared", self.directories()[1], "--cache-shared-budget", "64MiB", *flags)

    def setUp(self):
        super().setUp()
        self.num_starts = 0

    def directories(self):
        return [self.dir, os.path.join(self.folder, "shared")]


if __name__ == "__main__":
    unittest.main()
