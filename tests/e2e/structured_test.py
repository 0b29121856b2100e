"""Structured output from a real model at a temperature at which it would write anything."""
import json
import re
import unittest

import server as e2e

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", None]}, "minItems": 1, "maxItems": 3},
        "home": {"$ref": "#/$defs/place"},
    },
    "required": ["name", "age", "tags", "home"],
    "additionalProperties": False,
    "$defs": {"place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
                                                     "required": ["zip"], "additionalProperties": False}]}},
}


def satisfies(value):
    home = value["home"]
    return (list(value) == ["name", "age", "tags", "home"] and isinstance(value["name"], str) and len(value["name"]) <= 12
            and type(value["age"]) is int and 0 <= value["age"] <= 150
            and 1 <= len(value["tags"]) <= 3 and all(tag in ("red", "green", None) for tag in value["tags"])
            and (home is None or (list(home) == ["zip"] and re.fullmatch("[0-9]{5}", home["zip"]) is not None)))


class StructuredCases:
    """Needs self.server and self.more, what the model's requests say besides."""

    def chat(self, seed, **more):
        body = {"messages": [{"role": "user", "content": "json please"}], "temperature": 1.5, "top_p": 1, "seed": seed, "max_tokens": 300, **self.more, **more}
        body.setdefault("model", self.model)
        return self.server.post("/v1/chat/completions", body)

    def test_json_follows_its_schema(self):
        finished = 0
        for seed in range(15):
            status, answer = self.chat(seed, response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}})
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            if choice["finish_reason"] == "length":
                continue
            finished += 1
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertTrue(satisfies(json.loads(choice["message"]["content"])), choice)
        self.assertGreater(finished, 10)

    def test_the_same_seed_says_the_same(self):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
        first, second = (self.chat(7, response_format=form)[1]["choices"] for _ in range(2))
        self.assertEqual(first, second)

    def test_choices_and_patterns(self):
        for seed in range(5):
            _, answer = self.chat(seed, structured_outputs={"choice": ["yes", "no"]})
            self.assertIn(answer["choices"][0]["message"]["content"], ("yes", "no"))
            _, answer = self.chat(seed, regex="[a-f]{3}-[0-9]{2}")
            self.assertRegex(answer["choices"][0]["message"]["content"], "^[a-f]{3}-[0-9]{2}$")

    def test_a_stream_is_the_whole_answer(self):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
        _, whole = self.chat(3, response_format=form)
        body = {"model": self.model, "messages": [{"role": "user", "content": "json please"}], "temperature": 1.5, "top_p": 1, "seed": 3, "max_tokens": 300,
                "response_format": form, **self.more}
        pieces = [json.loads(p) for p in self.server.stream(body) if p != "[DONE]"]
        text = "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces if p["choices"])
        self.assertEqual(text, whole["choices"][0]["message"]["content"])

    def test_what_cannot_be_honoured_is_refused(self):
        status, answer = self.chat(1, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"not": {}}}}}})
        self.assertEqual(status, 400)
        self.assertEqual(answer["error"]["param"], "response_format")
        self.assertIn('keyword "not" at "/properties/a"', answer["error"]["message"])
        status, answer = self.chat(1, structured_outputs={"regex": "(a"})
        self.assertEqual((status, answer["error"]["param"]), (400, "structured_outputs.regex"))


class StructuredTinyTest(StructuredCases, unittest.TestCase):
    """A model with a chat template of its own."""
    model = "tiny-qwen3-Q8_0"
    more = {}

    @classmethod
    def setUpClass(cls):
        cls.server = e2e.Server()

    @classmethod
    def tearDownClass(cls):
        cls.server.end()


@e2e.needs(e2e.NANO)
class StructuredNanoTest(StructuredCases, unittest.TestCase):
    """A model that speaks a dialect of DeepSeek's. Its windows are recomputed in full after a hit: the same request says the same, cached or not."""
    model = "nano"
    more = {"thinking": {"type": "disabled"}}

    @classmethod
    def setUpClass(cls):
        cls.server = e2e.Server(e2e.NANO, "--no-replay")

    @classmethod
    def tearDownClass(cls):
        cls.server.end()

    def test_a_forced_call_follows_its_tool(self):
        tool = {"type": "function", "function": {"name": "add", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "note": {"type": "string", "maxLength": 8}},
            "required": ["a", "note"], "additionalProperties": False}}}
        finished = 0
        for seed in range(8):
            status, answer = self.chat(seed, tools=[tool], tool_choice="required", parallel_tool_calls=False)
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            if choice["finish_reason"] == "length":
                continue
            finished += 1
            self.assertEqual(choice["finish_reason"], "tool_calls")
            (call,) = choice["message"]["tool_calls"]
            arguments = json.loads(call["function"]["arguments"])
            self.assertEqual((call["function"]["name"], list(arguments)), ("add", ["a", "note"]))
            self.assertTrue(0 <= arguments["a"] <= 99 and isinstance(arguments["note"], str) and len(arguments["note"]) <= 8, arguments)
        self.assertGreater(finished, 5)

    def test_a_forced_call_of_a_tool_that_is_not_strict_follows_it_where_it_can(self):
        def arguments(seed, parameters):
            status, answer = self.chat(seed, tools=[{"type": "function", "function": {"name": "add", "parameters": parameters}}], tool_choice="required",
                                       parallel_tool_calls=False)
            self.assertEqual(status, 200, answer)
            choice = answer["choices"][0]
            return json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) if choice["finish_reason"] == "tool_calls" else None

        number = {"type": "integer", "minimum": 0, "maximum": 99}
        seen = [arguments(seed, {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}) for seed in range(4)]
        self.assertTrue(any(seen))
        for given in filter(None, seen):
            self.assertTrue(list(given) == ["a", "b"] and all(0 <= value <= 99 for value in given.values()), given)
        arguments(1, {"type": "object", "properties": {"a": {"not": number}}})  # cannot be honoured: answered all the same

    def test_it_begins_behind_the_reasoning(self):
        status, answer = self.chat(2, thinking={"type": "enabled", "budget_tokens": 20}, structured_outputs={"choice": ["yes", "no"]})
        self.assertEqual(status, 200, answer)
        self.assertIn(answer["choices"][0]["message"]["content"], ("yes", "no"))
