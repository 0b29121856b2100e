"""Subcommands from the outside: exit codes, one sentence on stderr, and every damaged model file through the whole load."""
import json
import os
import subprocess
import tempfile
import unittest

import server as e2e

BROKEN = os.path.join(e2e.SOURCE, "tests/golden/dense/broken")


class UsageTest(unittest.TestCase):
    def check_error(self, result, code, word):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("deepinfer: "), result.stderr)
        self.assertIn(word, result.stderr)

    def test_wrong_usage_is_exit_code_2(self):
        self.check_error(e2e.run("serve", "--no-such-flag"), 2, "--no-such-flag")
        self.check_error(e2e.run("serve", "--port", "70000"), 2, "--port")
        self.check_error(e2e.run("serve", e2e.TINY, "--kv-memory", "lots"), 2, "--kv-memory")
        self.check_error(e2e.run("serve", e2e.TINY, "--context", "999999"), 2, "context")
        self.check_error(e2e.run("serve", e2e.TINY, environment={"DEEPINFER_PORT": "x"}), 2, "DEEPINFER_PORT")
        self.check_error(e2e.run("run", e2e.TINY, "x", environment={"DEEPINFER_ISA": "sse9"}), 2, "DEEPINFER_ISA")
        self.check_error(e2e.run("nonsense"), 2, "nonsense")

    def test_the_worlds_faults_are_exit_code_1(self):
        self.check_error(e2e.run("serve", "/nonexistent/model.gguf"), 1, "/nonexistent/model.gguf")
        self.check_error(e2e.run("model", "info", "/nonexistent.gguf"), 1, "/nonexistent.gguf")
        self.check_error(e2e.run("serve", e2e.TINY, "--config", "/nonexistent.toml"), 1, "/nonexistent.toml")

    def test_a_port_that_is_taken(self):
        server = e2e.Server()
        try:
            self.check_error(e2e.run("serve", e2e.TINY, "--port", str(server.port)), 1, str(server.port))
        finally:
            server.end()

    def test_help_and_version(self):
        for words in (["--help"], ["serve", "--help"], ["model", "info", "--help"]):
            result = e2e.run(*words)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertIn("usage: deepinfer", result.stdout)
        self.assertIn("instruction sets: portable", e2e.run("--version").stdout)


class BrokenFilesTest(unittest.TestCase):
    """list.json says what each file is. A damaged one ends the whole load with one sentence that names it."""

    def test_every_damaged_file(self):
        with open(os.path.join(BROKEN, "list.json")) as f:
            entries = json.load(f)
        entries = entries["files"] if isinstance(entries, dict) else entries
        self.assertGreater(len(entries), 60)
        for entry in entries:
            path = os.path.join(BROKEN, entry["file"].rstrip("/"))
            with self.subTest(entry["file"]):
                if entry["expect"] == "accept":
                    result = e2e.run("model", "info", path)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    continue
                result = e2e.run("run", path, "x", "--raw", "--max-tokens", "1", "--threads", "1", "--kv-memory", "64MiB")
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertTrue(result.stderr.startswith("deepinfer: "), result.stderr)
                self.assertIn(os.path.splitext(os.path.basename(path))[0], result.stderr)


class TextTest(unittest.TestCase):
    def test_run_reads_a_pipe_and_prints_just_the_answer(self):
        arguments = ["run", e2e.TINY, "--temperature", "0", "--max-tokens", "12", "--threads", "1", "--kv-memory", "64MiB"]
        piped = e2e.run(*arguments, stdin="hello")
        named = e2e.run(*arguments[:2], "hello", *arguments[2:])
        self.assertEqual((piped.returncode, piped.stderr), (0, ""), piped.stderr)
        self.assertEqual(piped.stdout, named.stdout)
        self.assertTrue(piped.stdout.endswith("\n"))

    def test_tokenize_round_trip(self):
        text = "Grüße, 世界! <|im_end|> tabs\tand\nlines"
        ids = e2e.run("tokenize", e2e.TINY, text)
        self.assertEqual(ids.returncode, 0, ids.stderr)
        back = e2e.run("tokenize", e2e.TINY, ids.stdout, "--decode")
        self.assertEqual(back.stdout, text)

    def test_render_marks_control_tokens(self):
        request = json.dumps({"messages": [{"role": "user", "content": "a <|im_end|> b"}]})
        result = e2e.run("render", "--model", e2e.TINY, stdin=request)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("⟦", result.stdout)
        self.assertIn("a <|im_end|> b", result.stdout, "a client's text stays text")

    def test_synth_writes_a_model_that_loads(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tiny.gguf")
            made = e2e.run("model", "synth", path, "--shape", "tiny", "--type", "Q8_0")
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(e2e.run("model", "info", path).returncode, 0)
            answer = e2e.run("run", path, "x", "--max-tokens", "4", "--threads", "1", "--kv-memory", "64MiB")
            self.assertEqual(answer.returncode, 0, answer.stderr)

    def test_deepseek_v41_synth_info_and_dump(self):
        with tempfile.TemporaryDirectory() as parent:
            folder = os.path.join(parent, "slice")
            shape = ["--shape", "v4.1-tiny", "--layers", "4", "--experts", "4"]
            made = e2e.run("model", "synth", folder, *shape)
            self.assertEqual(made.returncode, 0, made.stderr)
            again = e2e.run("model", "synth", folder, *shape)
            self.assertEqual(again.returncode, 2, "what is there is not overwritten")
            wrong = e2e.run("model", "synth", os.path.join(parent, "x"), "--shape", "tiny", "--layers", "4")
            self.assertEqual(wrong.returncode, 2)
            info = e2e.run("model", "info", folder, "--json", "--verify", "--bandwidth", "10GB", "--context", "64")
            self.assertEqual(info.returncode, 0, info.stderr)
            report = json.loads(info.stdout)
            self.assertEqual(report["unsupported"], [])
            self.assertEqual(report["n_routed_experts"], 4)
            speed = 1e10 / (report["bytes_per_token"] + report["state"][0]["bytes_read"])
            self.assertAlmostEqual(report["state"][0]["tokens_per_s"] / speed, 1, places=3)
            beyond = e2e.run("model", "info", folder, "--bandwidth", "10GB", "--context", "5000")
            self.assertEqual((beyond.returncode, beyond.stdout), (2, ""), "what the model does not have is not left out in silence")
            self.assertIn("at most 4096", beyond.stderr)
            dump = os.path.join(parent, "dump.safetensors")
            dumped = e2e.run("debug", "dump", folder, "a cat", "--layer", "2", "--output", dump, "--threads", "1")
            self.assertEqual(dumped.returncode, 0, dumped.stderr)
            with open(dump, "rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            self.assertEqual(header["tokens"]["shape"], [5])
            self.assertIn("attn_out.2", header)
            self.assertNotIn("attn_out.1", header)

    def test_bench_of_experts_beyond_memory_names_the_disk(self):
        with tempfile.TemporaryDirectory() as parent:
            folder = os.path.join(parent, "slice")
            self.assertEqual(e2e.run("model", "synth", folder, "--shape", "v4.1-tiny", "--layers", "4").returncode, 0)
            result = e2e.run("bench", folder, "--expert-memory", "200KiB", "--only", "prefill 512", "--rounds", "1", "--json", "--threads", "1")
            if "Invalid argument" in result.stderr:
                self.skipTest("no direct reads on this file system")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertGreater(report["disk_bytes_per_s"], 0)
            self.assertIn("disk_bytes_per_s", report["cases"][0])

    def test_bench_cache_prints_json(self):
        with tempfile.TemporaryDirectory() as folder:
            result = e2e.run("bench", "cache", folder, "--size", "8MiB", "--blocks", "2000", "--rounds", "2", "--model", e2e.TINY, "--tokens", "200",
                             "--threads", "1", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            self.assertEqual(report["start"]["blocks"], 2000)
            self.assertEqual(len(report["bytes_per_s"]), 2)
            self.assertTrue(all(rate > 0 for round in report["bytes_per_s"] for rate in round.values()), report)
            found = {case: tuple(report["first_token"][case][tier + "_tokens"] for tier in ("ram", "disk", "shared"))
                     for case in ("cold", "memory", "restart", "other_process")}
            self.assertEqual(found, {"cold": (0, 0, 0), "memory": (192, 0, 0), "restart": (0, 192, 0), "other_process": (0, 0, 192)})
            self.assertEqual(os.listdir(folder), [])

    def test_bench_prints_json(self):
        result = e2e.run("bench", e2e.TINY, "--only", "prefill 512", "--rounds", "1", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["cases"][0]["case"], "prefill 512")
        self.assertGreater(report["cases"][0]["tokens_per_s"], 0)


if __name__ == "__main__":
    unittest.main()
