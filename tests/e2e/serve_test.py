"""The server as a client and an operator meet it."""
import json
import os
import signal
import time
import unittest

import server as e2e

QUESTION = {"model": "tiny-qwen3-Q8_0", "messages": [{"role": "user", "content": "hello there"}], "temperature": 0, "max_tokens": 16}


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = e2e.Server()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.end()
        assert code == 0, "exit code %d after SIGTERM: %s" % (code, "".join(cls.server.lines))

    def test_health_models_metrics(self):
        self.assertEqual(self.server.get("/health")[0], 200)
        self.assertEqual(self.server.get("/ready")[0], 200)
        status, models = self.server.get("/v1/models")
        self.assertEqual((status, json.loads(models)["data"][0]["id"]), (200, "tiny-qwen3-Q8_0"))
        status, metrics = self.server.get("/metrics")
        self.assertEqual(status, 200)
        self.assertIn("# TYPE", metrics)

    def test_stream_and_whole_answer_are_the_same(self):
        status, whole = self.server.post("/v1/chat/completions", QUESTION)
        self.assertEqual(status, 200, whole)
        self.assertEqual(whole["usage"]["completion_tokens"], 16)
        self.assertEqual(whole["choices"][0]["finish_reason"], "length")
        pieces = list(self.server.stream(QUESTION))
        self.assertEqual(pieces[-1], "[DONE]")
        deltas = [json.loads(p)["choices"][0] for p in pieces[:-1] if json.loads(p)["choices"]]
        self.assertEqual("".join(d["delta"].get("content") or "" for d in deltas), whole["choices"][0]["message"]["content"])
        self.assertEqual(deltas[-1]["finish_reason"], "length")

    def test_warm_answer_is_the_cold_answer(self):
        body = {"model": "tiny-qwen3-Q8_0", "messages": [{"role": "user", "content": "one two three " * 40}], "temperature": 1, "seed": 7, "max_tokens": 24, "logprobs": True}
        _, cold = self.server.post("/v1/chat/completions", body)
        _, warm = self.server.post("/v1/chat/completions", body)
        self.assertEqual(cold["choices"], warm["choices"])

    def test_tokenize_is_what_the_command_says(self):
        status, answer = self.server.post("/tokenize", {"model": "tiny-qwen3-Q8_0", "prompt": "a b c", "add_special_tokens": False})
        self.assertEqual(status, 200, answer)
        told = e2e.run("tokenize", e2e.TINY, "a b c", "--json")
        self.assertEqual(answer["tokens"], json.loads(told.stdout))

    def test_bad_requests_name_the_field(self):
        status, answer = self.server.post("/v1/chat/completions", {**QUESTION, "temperature": -1})
        self.assertEqual((status, answer["error"]["param"]), (400, "temperature"))

    def test_an_idle_server_uses_no_cpu(self):
        self.server.post("/v1/chat/completions", QUESTION)
        time.sleep(0.5)
        before = self.server.cpu_ticks()
        time.sleep(2)
        used = (self.server.cpu_ticks() - before) / os.sysconf("SC_CLK_TCK")
        self.assertLess(used, 0.1, "seconds of CPU in two seconds of idleness")

    def test_a_client_that_leaves_frees_its_blocks(self):
        stream = self.server.stream({**QUESTION, "max_tokens": 2000, "ignore_eos": True})
        next(stream)
        stream.close()
        deadline = time.time() + 20
        while time.time() < deadline:
            running = [line for line in self.server.get("/metrics")[1].splitlines() if "running" in line and not line.startswith("#")]
            if running and all(float(line.split()[-1]) == 0 for line in running):
                return
            time.sleep(0.1)
        self.fail("the request still runs: %s" % running)


class SignalTest(unittest.TestCase):
    LONG = {**QUESTION, "max_tokens": 3000, "ignore_eos": True}

    def test_sigterm_lets_a_running_answer_finish(self):
        server = e2e.Server()
        try:
            stream = server.stream({**QUESTION, "max_tokens": 200, "ignore_eos": True})
            first = next(stream)
            server.process.send_signal(signal.SIGTERM)
            rest = [first, *stream]
            self.assertEqual(rest[-1], "[DONE]")
            self.assertEqual(json.loads([p for p in rest if p != "[DONE]" and json.loads(p)["choices"]][-1])["choices"][0]["finish_reason"], "length")
            self.assertEqual(server.process.wait(20), 0)
        finally:
            server.end()

    def test_the_second_signal_ends_at_once(self):
        server = e2e.Server(e2e.TINY, "--drain-timeout", "10m")
        try:
            stream = server.stream(self.LONG)
            next(stream)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(20), 0)
        finally:
            server.end()

    def test_the_drain_timeout_ends_a_drain(self):
        server = e2e.Server(e2e.TINY, "--drain-timeout", "200ms")
        try:
            next(server.stream(self.LONG))
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(20), 0)
        finally:
            server.end()


UNSURE_GAP = 0.3  # between the two best logits: a rounding may turn such a choice, and all that follows


class NanoTest(unittest.TestCase):
    """The DeepSeek-V4.1 model that comes with the project. Its values are in goldens.json beside its weights and nowhere else."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(e2e.NANO, "goldens.json")) as f:
            cls.cases = json.load(f)["cases"]

    def complete(self, server, prompt, num_tokens, **more):
        status, answer = server.post("/v1/completions", {"model": "nano", "prompt": prompt, "temperature": 0, "max_tokens": num_tokens, **more})
        self.assertEqual(status, 200, answer)
        return answer

    def check_goldens(self, server, longest_prompt):
        same = 0
        for case in self.cases:
            expected = case["output_text"].removesuffix("<｜end▁of▁sentence｜>")
            if len(case["prompt"]) > longest_prompt or "｜" in expected or "</think>" in expected:  # text shows no control tokens
                continue
            answer = self.complete(server, case["prompt"], len(case["output"]))
            text = answer["choices"][0]["text"]
            unsure = min(case["gap"]) < UNSURE_GAP
            with self.subTest(case["name"]):
                if not unsure:
                    self.assertEqual(text, expected)
            same += text == expected
        self.assertGreater(same, 0)

    def test_greedy_answers_of_the_official_code(self):
        server = e2e.Server(None)
        try:
            self.check_goldens(server, 128)  # a window: longer prompts are narrowed, which the goldens are not
        finally:
            self.assertEqual(server.end(), 0)

    def test_without_replay_long_prompts_too_and_hits_change_nothing(self):
        server = e2e.Server(None, "--no-replay")
        try:
            self.check_goldens(server, 1 << 20)
            prompt = max((case["prompt"] for case in self.cases), key=len)
            cold = self.complete(server, prompt[:-3], 24, logprobs=2)
            warm = self.complete(server, prompt[:-3], 24, logprobs=2)
            self.assertGreater(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 128)
            self.assertEqual(cold["choices"], warm["choices"])
        finally:
            self.assertEqual(server.end(), 0)

    def test_chat_in_the_models_own_dialect(self):
        server = e2e.Server(None)
        try:
            for name, messages in (("hello", [{"role": "user", "content": "Hello!"}]),
                                   ("capital", [{"role": "user", "content": "What is the capital of France?"}]),
                                   ("system", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])):
                case = next(case for case in self.cases if case["name"] == name)
                body = {"model": "nano", "messages": messages, "temperature": 0, "max_tokens": len(case["output"]), "thinking": {"type": "disabled"}}
                with self.subTest(name):
                    status, whole = server.post("/v1/chat/completions", body)
                    self.assertEqual(status, 200, whole)
                    self.assertEqual(whole["usage"]["prompt_tokens"], len(case["prompt"]))
                    text = whole["choices"][0]["message"]["content"]
                    if min(case["gap"]) > UNSURE_GAP:
                        self.assertEqual(text, case["output_text"].removesuffix("<｜end▁of▁sentence｜>"))
                    pieces = [json.loads(p) for p in server.stream(body) if p != "[DONE]"]
                    self.assertEqual("".join(p["choices"][0]["delta"].get("content") or "" for p in pieces if p["choices"]), text)
        finally:
            self.assertEqual(server.end(), 0)

    def test_requests_may_set_the_temperature_of_thinking_where_the_operator_lets_them(self):
        server = e2e.Server(None, "--thinking-sampling", "request", "--model-alias", "claude-*")
        try:
            body = {"model": "claude-sonnet", "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 40}
            answers = [server.post("/v1/chat/completions", body)[1] for _ in range(2)]
            self.assertEqual(answers[0]["choices"], answers[1]["choices"])
            self.assertEqual(answers[0]["model"], "claude-sonnet")
        finally:
            self.assertEqual(server.end(), 0)

    def test_a_hit_replays_a_window_and_goes_on_alike_each_time(self):
        prompt = max((case["prompt"] for case in self.cases), key=len)
        answers = []
        for _ in range(2):
            server = e2e.Server(None)
            try:
                self.complete(server, prompt, 1)
                answers.append(self.complete(server, prompt, 24, logprobs=2))
                self.assertGreaterEqual(answers[-1]["usage"]["prompt_tokens_details"]["cached_tokens"], len(prompt) // 128 * 128 - 128)
            finally:
                self.assertEqual(server.end(), 0)
        self.assertEqual(answers[0]["choices"], answers[1]["choices"])


class MemoryTest(unittest.TestCase):
    @e2e.needs(e2e.SMOLLM2)
    def test_resident_memory_is_weights_and_cache_and_little_else(self):
        server = e2e.Server(e2e.SMOLLM2, "--max-num-seqs", "8")
        try:
            status, answer = server.post("/v1/chat/completions", {"model": "smollm2-135m-instruct-q4_1", "messages": [{"role": "user", "content": "word " * 1000}], "max_tokens": 8, "temperature": 0})
            self.assertEqual(status, 200, answer)
            weights, kv = 97 << 20, 64 << 20
            self.assertLess(server.resident_bytes(), weights + kv + (150 << 20))
        finally:
            self.assertEqual(server.end(), 0)

    @e2e.needs(e2e.SMOLLM2)
    def test_a_real_model_says_something_sensible(self):
        server = e2e.Server(e2e.SMOLLM2)
        try:
            status, answer = server.post("/v1/chat/completions", {"model": "smollm2-135m-instruct-q4_1", "messages": [{"role": "user", "content": "Name the capital city of France."}], "max_tokens": 24, "temperature": 0})
            self.assertEqual(status, 200, answer)
            self.assertIn("Paris", answer["choices"][0]["message"]["content"])
        finally:
            self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    unittest.main()
