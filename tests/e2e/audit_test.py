"""deepinfer audit from the outside: known answers, merging, hostile logs, and the HTML report in a real browser."""
import base64
import gzip
import json
import os
import pty
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import server as e2e

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TRACE = os.path.join(e2e.SOURCE, "tests/golden/traces/mooncake_conversation_300.jsonl")


def agent_log(path, conversations=6, turns=6, seed=1, first=0, stamped=True):
    """Conversations of agents; stamped: their system prompt holds the time, a break with every request."""
    rng = random.Random(seed)
    words = lambda n: " ".join("".join(rng.choice("abcdefgh") for _ in range(rng.randint(2, 7))) for _ in range(n))
    rules = random.Random(7).choices(["Read first.", "Change little.", "Test all.", "Say what is left.", "Ask when in doubt."], k=200)
    clock = 1793491200 + first
    with open(path, "w") as f:
        for c in range(conversations):
            messages = []
            for turn in range(turns):
                clock += 40
                messages.append({"role": "user", "content": words(60)})
                stamp = "Now: 2026-11-01T%02d:%02d:%02dZ" % (clock // 3600 % 24, clock // 60 % 60, clock % 60)
                body = {"model": "deepseek-v4-flash", "messages": [{"role": "system", "content": (stamp + "\n" if stamped else "") + " ".join(rules)}] + messages}
                f.write(json.dumps({"timestamp": clock, "session_id": "s%d-%d" % (seed, c), "request": body,
                                    "usage": {"prompt_tokens": 900, "completion_tokens": 80, "prompt_tokens_details": {"cached_tokens": 0}}}) + "\n")
                messages.append({"role": "assistant", "content": words(80)})


class AuditTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.log = os.path.join(cls.folder, "agents.jsonl")
        agent_log(cls.log)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def audit(self, *words, code=0):
        result = e2e.run("audit", *words)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def report(self, *words):
        return json.loads(self.audit("--json", *words).stdout)

    def test_the_ceiling_of_a_trace(self):
        reuse = self.report(TRACE)["reuse"]
        self.assertEqual(reuse["block_tokens"], 512)
        self.assertEqual(reuse["unlimited"]["hit_tokens"], 345966)
        self.assertAlmostEqual(reuse["unlimited"]["hit_rate"], 345966 / 4269971, places=12)
        text = self.audit(TRACE).stdout
        self.assertIn("(counted by the log)", text)  # no tokenizer was asked
        self.assertIn("requests that name no model", text)

    def test_the_same_input_gives_the_same_bytes(self):
        one = self.audit("--json", "--threads", "1", self.log).stdout
        self.assertEqual(one, self.audit("--json", "--threads", "3", self.log).stdout)
        self.audit("--html", self.path("one.html"), self.log)
        self.audit("--html", self.path("two.html"), "--threads", "2", self.log)
        with open(self.path("one.html")) as a, open(self.path("two.html")) as b:
            self.assertEqual(a.read(), b.read())
        with open(self.log, "rb") as f, gzip.open(self.path("same.jsonl.gz"), "wb") as packed:
            packed.write(f.read())
        with open(self.log) as f:
            piped = subprocess.run([e2e.BINARY, "audit", "--json", "-"], stdin=f, capture_output=True, text=True, check=True).stdout
        for other in (json.loads(self.audit("--json", self.path("same.jsonl.gz")).stdout), json.loads(piped)):
            for key in ("reuse", "money", "breakers", "routing", "timeline"):
                self.assertEqual(other[key], json.loads(one)[key])

    def test_progress_is_shown_to_people_only(self):
        self.assertEqual(self.audit(self.log).stderr, "")
        log = self.path("progress.jsonl")
        with open(self.log) as f, open(log, "w") as out:
            out.write(f.read() * 60)
        terminal, other_end = pty.openpty()
        process = subprocess.Popen([e2e.BINARY, "audit", log], stdout=subprocess.DEVNULL, stderr=other_end)
        os.close(other_end)
        shown = b""
        try:
            while chunk := os.read(terminal, 4096):
                shown += chunk
        except OSError:  # how a terminal says that the other end is closed
            pass
        os.close(terminal)
        self.assertEqual(process.wait(), 0)
        self.assertRegex(shown.decode(), r"\[#*\.*\] +\d+ %, .* done, .*/s, \d+ s left")

    def test_redaction_leaves_no_text_anywhere(self):
        log, words = self.path("secret.jsonl"), ["Wolfram", "Quartz", "Zephyr", "Kestrel", "Juniper"]
        with open(log, "w") as f:
            for i in range(6):
                f.write(json.dumps({"timestamp": 1793491200 + 40 * i, "user": "Kestrel", "session_id": "Zephyr", "request": {
                    "model": "deepseek-flash", "tools": [{"type": "function", "function": {"name": "Quartz", "description": "Wolfram %d" % i, "parameters": {}}}],
                    "messages": [{"role": "system", "content": "Wolfram %d. " % i + "Wolfram Quartz. " * 100}, {"role": "user", "content": "Juniper " * (i + 1)}]}}) + "\n")
            f.write('{"Juniper": [Wolfram\n{"Kestrel": 1}\nQuartz \0\n')
        page, side = self.path("secret.html"), self.path("secret_skipped.jsonl")
        said = self.audit("--redact", "--json", "--shard", "--html", page, "--skipped", side, log)
        texts = [said.stdout, said.stderr, self.audit("--redact", log).stdout, base64.b64decode(json.loads(said.stdout)["shard"]["trace"]).decode("latin1")]
        for name in (page, side):
            with open(name) as f:
                texts.append(f.read())
        self.assertTrue(json.loads(said.stdout)["breakers"])
        self.assertEqual(texts[5].count("\n"), 3)
        for text in texts:
            for word in words:
                self.assertNotIn(word, text)
        self.assertIn("Wolfram", self.audit("--json", log).stdout)

    def test_every_field_is_documented(self):
        with open(os.path.join(e2e.SOURCE, "docs/audit.md")) as f:
            documented = set(re.findall(r"\w+", f.read()))
        lengths = self.path("few.csv")
        with open(lengths, "w") as f:
            f.write("TIMESTAMP,model,ContextTokens,GeneratedTokens\n2026-11-16 18:17:03,gpt-5,4808,10\n2026-11-16 18:27:03,none,4808,10\nno number\n")
        hardware = ["--accelerator-hour", "8", "--prefill-rate", "10000", "--decode-rate", "1000"]
        reports = [self.report(*words, *hardware) for words in ([self.log], [self.log, "--sample", "50%"], [lengths], [TRACE])]
        for report in reports:
            report["input"]["skipped"] = report["input"]["by_format"] = {}  # reasons and formats are texts of their own
            for breaker in report["breakers"] or []:
                breaker["lost_by_model"] = {}

        def names(value):
            if isinstance(value, dict):
                for name, inner in value.items():
                    yield name
                    yield from names(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from names(inner)

        self.assertGreater(len(set(names(reports))), 100)
        self.assertEqual(set(names(reports)) - documented - {"retention_5m", "retention_1h", "retention_12h", "retention_24h", "retention_72h", "retention_7d"}, set())

    def test_what_breaks_is_named_and_priced(self):
        report = self.report(self.log)
        first = report["breakers"][0]
        self.assertEqual((first["kind"], first["segment"], first["count"]), ("timestamp", "system", 35))
        cost = first["lost_tokens"] * 36 * 900 / report["tokens"]["input"] * (0.15 - 0.003) / 1e6  # what a cache would have read is paid as new
        self.assertAlmostEqual(first["cost"], cost, places=12)
        self.assertAlmostEqual(first["cost_per_month"], cost * 30 * 86400 / (35 * 40), places=9)
        text = self.audit(self.log).stdout
        self.assertIn("timestamp in system: 35 times", text)
        self.assertLessEqual(text.count("\n"), 40)
        self.assertNotIn("\x1b", text)

    def test_money_by_hand(self):
        money = self.report(self.log)["money"]
        self.assertAlmostEqual(money["input_cost_today"], 36 * 900 * 0.15 / 1e6, places=9)
        self.assertAlmostEqual(money["output_cost_today"], 36 * 80 * 0.6 / 1e6, places=9)
        report = self.report(self.log, "--accelerator-hour", "8", "--prefill-rate", "10000", "--decode-rate", "1000")
        own, tokens = report["money"]["own_hardware"], report["tokens"]
        self.assertAlmostEqual(own["new_input_per_million"], 8 / 3600 / 10000 * 1e6, places=9)
        self.assertAlmostEqual(own["without_cache"]["cost"], 8 / 3600 * (tokens["input"] / 10000 + tokens["output"] / 1000), places=9)

    def test_cache_writes_for_an_hour_cost_more(self):
        log, text = self.path("hour.jsonl"), "Rules of the house. " * 2000
        with open(log, "w") as f:
            for i, (five_minutes, hour) in enumerate(((4000, 6000), (0, 200), (300, 0))):
                f.write(json.dumps({"timestamp": 1793491200 + 60 * i, "request": {"model": "claude-opus-5", "system": text, "max_tokens": 9, "messages": [{"role": "user", "content": text * (i + 1)}]},
                                    "usage": {"input_tokens": 7, "cache_read_input_tokens": 9000 * (i > 0), "cache_creation_input_tokens": five_minutes + hour, "output_tokens": 11,
                                              "cache_creation": {"ephemeral_5m_input_tokens": five_minutes, "ephemeral_1h_input_tokens": hour}}}) + "\n")
        money = self.report(log)["money"]
        self.assertAlmostEqual(money["input_cost_today"], (3 * 7 * 5 + 2 * 9000 * 0.5 + (4000 + 300) * 6.25 + (6000 + 200) * 10) / 1e6, places=9)
        policies = {p["policy"]: p for p in money["policies"]}
        short, long = policies["rule_anthropic-5m"], policies["rule_anthropic-1h"]
        self.assertEqual((short["read_tokens"], short["written_tokens"]), (long["read_tokens"], long["written_tokens"]))
        scale = (7 * 3 + 18000 + 10500) / self.report(log)["tokens"]["input"]
        self.assertAlmostEqual(long["input_cost"] - short["input_cost"], scale * long["written_tokens"] * (10 - 6.25) / 1e6, places=9)

    def test_own_prices(self):
        own = self.path("own.toml")
        with open(own, "w") as f:
            f.write('[[price]]\nname = "mine"\nmodels = ["deepseek*"]\ninput = 2.0\noutput = 4\ndate = "2026-11-30"\nsource = "contract"\n')
        money = self.report(self.log, "--prices", own)["money"]
        self.assertEqual(money["prices"][0]["name"], "mine")
        self.assertAlmostEqual(money["input_cost_today"], 36 * 900 * 2 / 1e6, places=9)
        with open(own, "a") as f:
            f.write("inptu = 3\n")
        self.assertIn("inptu", self.audit("--prices", own, self.log, code=2).stderr)
        with open(own, "w") as f:
            f.write('[[price]]\nname = "mine"\nmodels = ["m"]\ninput = 2.0\noutput = 4\ndate = "2026-11-30"\nsource = "contract"\ncache_rule = "opneai"\n')
        self.assertIn("there is no rule opneai", self.audit("--prices", own, self.log, code=2).stderr)

    def test_merged_shards_are_one_run(self):
        other = self.path("other.jsonl")
        agent_log(other, seed=2, first=100000)
        silent = self.path("silent.jsonl")  # a partition of a fleet's logs may hold no request
        with open(silent, "w") as f:
            f.write("started\n")
        for name, log in (("a", silent), ("b", self.log), ("c", other)):
            with open(self.path(name + ".json"), "w") as f:
                f.write(self.audit("--json", "--shard", log).stdout)
        merged, whole = self.report("--merge", self.path("[abc].json")), self.report(self.log, other)
        for key in ("tokens", "reuse", "block_sizes", "per_tenant", "routing", "timeline", "money"):
            self.assertEqual(merged[key], whole[key], key)
        self.assertEqual(merged["input"]["requests"], 72)
        with open(self.path("all-000"), "w") as out:  # as a cluster's tools put them: one file, a report a line
            for name in "abc":
                with open(self.path(name + ".json")) as f:
                    out.write(f.read())
        self.assertEqual(self.report("--merge", self.path("all-000")), merged)
        with open(self.path("all-000")) as f, open(self.path("cut"), "w") as out:
            out.write(f.read()[:-100])
        self.assertIn("ends too early", self.audit("--merge", self.path("cut"), code=1).stderr)
        lengths = self.path("lengths.csv")
        with open(lengths, "w") as f:
            f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n")
        with open(self.path("lengths.json"), "w") as f:
            f.write(self.audit("--json", "--shard", lengths).stdout)
        with_lengths = self.report("--merge", self.path("lengths.json"), self.path("b.json"), self.path("c.json"))
        self.assertEqual(with_lengths["tokens"], whole["tokens"])
        self.assertEqual(with_lengths["input"]["lengths_only"]["input_tokens"], 4808)
        mixed = self.path("mixed.json")  # shards told with different kinds of tokens, or of kinds that cannot be joined
        with open(mixed, "w") as f:
            f.write(self.audit("--json", "--shard", TRACE).stdout)
        self.assertIn("cannot be joined", self.audit("--merge", mixed, self.path("b.json"), code=2).stderr)
        self.assertEqual(merged["input"]["skipped"], {"not JSON": 1})
        self.assertIn("1 not JSON", self.audit("--merge", self.path("a.json"), code=1).stderr)
        apart = [self.report(log)["breakers"][0] for log in (self.log, other)]
        for key in ("count", "lost_tokens"):
            self.assertEqual(merged["breakers"][0][key], apart[0][key] + apart[1][key])
        plain = self.path("plain.json")
        with open(plain, "w") as f:
            f.write(self.audit("--json", self.log).stdout)
        self.assertIn("--shard", self.audit("--merge", plain, code=2).stderr)
        self.assertIn("--json", self.audit("--shard", self.log, code=2).stderr)
        for flag in (["--sample", "1%"], ["--one-model"], ["--format", "chat"], ["--skipped", plain]):
            self.assertIn(flag[0], self.audit("--merge", self.path("b.json"), *flag, code=2).stderr)
        page = self.path("joined.html")
        closed = self.audit("--merge", self.path("b.json"), "--redact", "--json", "--html", page).stdout
        with open(page) as f:
            for text in (closed, f.read(), self.audit("--merge", self.path("b.json"), "--redact").stdout):
                self.assertNotIn("2026-11-01T", text)  # what breaks the prefixes of this log
        self.assertIn("2026-11-01T", self.audit("--merge", self.path("b.json"), "--json").stdout)

    def test_nothing_found_says_why(self):
        noise, archive, empty = self.path("noise.jsonl"), self.path("noise.gz"), self.path("empty.jsonl")
        with open(noise, "wb") as f:
            f.write(b"\0\0\0\nnot json\n")
        with open(archive, "wb") as f:
            f.write(b"\x1f\x8b\x08garbage")
        open(empty, "w").close()
        self.assertIn("2 not JSON", self.audit(noise, code=1).stderr)
        self.assertIn("noise.gz", self.audit(archive, code=1).stderr)
        self.assertNotIn("noise.gz", self.audit(archive, "--redact", code=1).stderr)
        self.assertIn("no request was found in the logs\n", self.audit(empty, code=1).stderr)

    def test_hostile_logs(self):
        hostile = self.path("hostile.jsonl")
        with open(self.log) as f:
            lines = f.readlines()
        with open(hostile, "wb") as f:
            for line in lines[:10]:
                f.write(line.encode())
            f.write(b"\x00\x00\x00\n\xff\xfe broken\n{\"messages\": [\n" + b"[" * 100000 + b"\n" + b"{\"a\":" * 5000 + b"\n")
            f.write(b"{\"timestamp\": 99999999999999999999, \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n")
            f.write(b"{\"timestamp\": \"1970-01-01T00:00:01Z\", \"messages\": [{\"role\": 7, \"content\": {\"x\": 1}}, null, 3]}\n")
            f.write(b"{\"timestamp\": \"2350-01-01T00:00:01Z\", \"messages\": [{\"role\": \"tool\", \"content\": [[], {}]}]}\n")
            f.write(b"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{}, 1], \"content\": null}]}\n")
            f.write(b"{\"x\": \"" + b"y" * (3 << 20) + b"\"}\n")
            f.write(b"42\nnull\n\"text\"\n{}\n[]\n")
            for line in lines[10:]:
                f.write(line.encode())
        report = self.report(hostile, "--max-line", "2MiB", "--skipped", self.path("skipped.jsonl"))
        self.assertEqual(report["input"]["by_format"]["body-log"], 36)
        self.assertGreaterEqual(report["input"]["wrong_clock"], 2)
        skipped = report["input"]["skipped"]
        self.assertEqual(skipped["longer than a line may be"], 1)
        self.assertGreaterEqual(skipped["not JSON"], 3)
        with open(self.path("skipped.jsonl")) as f:
            self.assertTrue(all(json.loads(line)["reason"] for line in f))
        self.assertIn("skipped:", self.audit(hostile).stdout)

    def test_a_line_far_longer_than_memory_is_passed_over(self):
        long = self.path("long.jsonl")
        with open(self.log) as f:
            lines = f.read()
        with open(long, "wb") as f:
            f.write(lines.encode() + b'{"messages": "')
            f.seek(1 << 30, os.SEEK_CUR)  # a hole: a GiB of zeros that takes no disk
            f.write(b'"}\n' + lines.encode())
        result = subprocess.run(["/usr/bin/env", "python3", "-c", "import resource, subprocess, sys\n"
                                 "p = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)\n"
                                 "sys.stdout.buffer.write(p.stdout)\n"
                                 "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)",
                                 e2e.BINARY, "audit", "--json", "--memory", "256MiB", "--threads", "1", long], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(result.stdout)["input"]["requests"], 72)
        self.assertLess(int(result.stderr.split()[-1]), 400 * 1024, "KiB of memory")

    def test_a_sample_says_its_error(self):
        log = self.path("many.jsonl")
        agent_log(log, conversations=60, stamped=False)
        exact, sample = self.report(log), self.report(log, "--sample", "50%")
        hits = sample["reuse"]["unlimited"]
        self.assertLessEqual(hits["hit_rate_error"], 0.1)
        self.assertLessEqual(abs(hits["hit_rate"] - exact["reuse"]["unlimited"]["hit_rate"]), hits["hit_rate_error"] + 0.02)
        self.assertAlmostEqual(sample["sampling"]["rate"], 0.5)
        self.assertIn("%.2f %% ±%.2f" % (100 * hits["hit_rate"], 100 * hits["hit_rate_error"]), self.audit("--sample", "50%", log).stdout)

    def test_a_sample_too_small_is_refused_with_advice(self):
        text = self.audit("--sample", "1%", self.log).stdout
        self.assertIn("Repeated prefixes: not known", text)
        self.assertRegex(text, r"Leave --sample out|Take a larger one: --sample \d+%")
        self.assertNotIn("±0.00", text)
        report = self.report("--sample", "1%", self.log)
        self.assertIsNone(report["reuse"]["unlimited"]["hit_rate"])
        self.assertNotIn("best", report["money"])

    def test_a_format_and_fields_that_are_named(self):
        log, whole = self.path("named.jsonl"), self.path("whole.jsonl")
        agent_log(whole, stamped=False)
        with open(whole) as f, open(log, "w") as out:
            for i, line in enumerate(f):  # by detection a spend log of a gateway, an hour apart instead of 40 s, all of one user
                record = json.loads(line)["request"]
                record.update(call_type="acompletion", timestamp=1793491200 + 40 * i, sent={"at": 1793491200 + 3601 * i}, user="all", org={"name": "ab"[i % 2]})
                out.write(json.dumps(record) + "\n")
        plain, named = self.report(log), self.report("--format", "chat", "--time-field", "sent.at", "--tenant-field", "org.name", log)
        self.assertEqual((plain["input"]["by_format"], named["input"]["by_format"]), ({"litellm": 36}, {"chat": 36}))
        self.assertEqual((plain["input"]["span_seconds"], named["input"]["span_seconds"]), (35 * 40, 35 * 3601))
        self.assertEqual((plain["per_tenant"]["tenants"], named["per_tenant"]["tenants"]), (1, 2))
        self.assertGreater(plain["reuse"]["by_retention"]["1h"]["hit_tokens"], 0)
        self.assertEqual(named["reuse"]["by_retention"]["1h"]["hit_tokens"], 0)
        self.assertEqual(plain["reuse"]["unlimited"], named["reuse"]["unlimited"])
        for wrong in ("har", "hash-trace", "codex", "completions", "envoy-tap"):
            self.assertIn("36 not in the format that was asked for", self.audit("--format", wrong, log, code=1).stderr)
        self.assertIn("36 requests have no time", self.audit("--time-field", "sent.when", log).stdout)

    def test_lengths_alone_are_a_report(self):
        log = self.path("azure.csv")
        with open(log, "w") as f:
            f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:47:03.9799600,3192,8\n")
        text = self.audit(log).stdout
        self.assertIn("2 requests from 1 file, 8.00 k input tokens over 30 min", text)
        self.assertIn("Repeated prefixes: not known", text)
        self.assertIn("No price for requests that name no model (100.00 % of the input)", text)
        self.assertIn("Input costs $1.73 a month, all of it as new", self.audit("--price", "deepseek-flash", log).stdout)
        report = self.report(log, "--html", self.path("azure.html"))
        self.assertIsNone(report["reuse"]["unlimited"]["hit_rate"])
        self.assertEqual(report["tokens"]["output"], 18)
        self.assertTrue(os.path.getsize(self.path("azure.html")) > 50000)

    def test_wrong_usage(self):
        self.assertIn("no log there", self.audit("/nonexistent/x.jsonl", code=1).stderr)
        self.assertIn("--sample", self.audit("--sample", "200%", self.log, code=2).stderr)
        self.assertIn("no price entry", self.audit("--price", "gold", self.log, code=2).stderr)
        self.assertIn("langfuse", self.audit("--format", "nonsense", self.log, code=2).stderr)
        self.assertIn("--capacity", self.audit("--capacity", "16M,lots", self.log, code=2).stderr)
        self.assertIn("together", self.audit("--accelerator-hour", "8", self.log, code=2).stderr)


@unittest.skipUnless(BROWSER, "no Chromium is installed")
class AuditPageTest(unittest.TestCase):
    """The HTML report, looked at by a browser: drawn without a console error, as wide as its window, in both colours."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        log = os.path.join(cls.folder, "agents.jsonl")
        agent_log(log)
        with open(log) as f:
            lines = f.read()
        agent_log(log, conversations=20, turns=10, seed=3, first=50000, stamped=False)
        with open(log) as f:
            lines += f.read()
        with open(log, "w") as f:  # text that would be markup if it were not kept as text
            f.write(lines.replace("Read first.", "</script><img src=x onerror=alert(1)><!-- Read first."))
        cls.page = os.path.join(cls.folder, "report.html")
        result = e2e.run("audit", log, "--html", cls.page)
        assert result.returncode == 0, result.stderr

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def browse(self, width, *flags):
        result = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + os.path.join(self.folder, "profile"),
                                 "--enable-logging=stderr", "--window-size=%d,1200" % width, "--virtual-time-budget=5000", *flags, "file://" + self.page],
                                capture_output=True, text=True, timeout=240)
        self.assertNotIn("CONSOLE", result.stderr)
        return result.stdout

    def test_charts_are_drawn_without_an_error(self):
        dom = self.browse(1400, "--dump-dom")
        html = re.search(r"<html[^>]*>", dom).group(0)
        self.assertGreaterEqual(int(re.search(r'data-charts="(\d+)"', html).group(1)), 5)
        self.assertIn('data-overflow="false"', html)
        self.assertIn("timestamp in system", dom)
        self.assertNotIn("<img src", dom)

    def test_what_is_not_known_is_not_drawn(self):
        lengths = os.path.join(self.folder, "lengths.csv")
        with open(lengths, "w") as f:
            f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:47:03.9799600,3192,8\n")
        page = self.page
        try:
            for name, args, charts, said in (("lengths", [lengths], 1, ["not known", "No price, and so in no sum", "<td>lengths</td>"]),
                                             ("hashes", [TRACE], 4, ["8.10 %"]),
                                             ("sample", [os.path.join(self.folder, "agents.jsonl"), "--sample", "0.1%"], 1, ["the sample is too small"])):
                self.page = os.path.join(self.folder, name + ".html")
                result = e2e.run("audit", *args, "--html", self.page)
                self.assertEqual(result.returncode, 0, result.stderr)
                dom = self.browse(1400, "--dump-dom")
                self.assertGreaterEqual(int(re.search(r'data-charts="(\d+)"', dom).group(1)), charts, name)
                self.assertIn('data-overflow="false"', dom)
                shown = dom[dom.index("<main"):dom.index('<script type="application/json"')]
                for text in said:
                    self.assertIn(text, shown, name)
                for text in ("NaN", "null", "undefined"):
                    self.assertNotIn(text, shown, name)
        finally:
            self.page = page

    def test_a_narrow_window_and_dark_colours(self):
        # A headless window is 500 pixels wide at least: the page stands in a frame of 400.
        frame = os.path.join(self.folder, "frame.html")
        with open(self.page) as f:
            page = f.read()
        with open(os.path.join(self.folder, "narrow.html"), "w") as f:
            f.write(page)
        with open(frame, "w") as f:
            f.write('<iframe src="narrow.html" style="width:400px;height:900px;border:0"></iframe><script>addEventListener("load", () => { const d = frames[0].document.documentElement;'
                    'document.body.dataset.found = d.dataset.charts + " " + d.dataset.overflow + " " + frames[0].innerWidth + " " + frames[0].getComputedStyle(frames[0].document.body).backgroundColor; });</script>')
        self.page, page = frame, self.page
        try:
            for flags, colour in (((), "rgb(246, 247, 249)"), (("--blink-settings=preferredColorScheme=0",), "rgb(18, 22, 29)")):
                dom = self.browse(1400, "--dump-dom", "--allow-file-access-from-files", *flags)
                found = re.search(r'data-found="(\d+) (\w+) (\d+) ([^"]+)"', dom)
                self.assertIsNotNone(found, dom[-2000:])
                self.assertGreaterEqual(int(found.group(1)), 5)
                self.assertEqual((found.group(2), found.group(3), found.group(4)), ("false", "400", colour))
        finally:
            self.page = page


if __name__ == "__main__":
    unittest.main()
