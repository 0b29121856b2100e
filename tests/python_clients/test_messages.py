"""The Messages API with the official client."""
import anthropic
import pytest

OFF = {"type": "disabled"}
ON = {"type": "enabled", "budget_tokens": 2000}
WEATHER = {"name": "get_weather", "description": "Look up the weather",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}


def ask(claude, model, text, **more):
    return claude.messages.create(model=model, messages=more.pop("messages", [{"role": "user", "content": text}]), **{"max_tokens": 4000, "thinking": OFF, **more})


def test_text(claude, model, scripted_any):
    message = ask(claude, model, "say Hi, é!", system="Be brief.")
    assert message.content[0].text == "Hi, é!" and message.stop_reason == "end_turn" and message.type == "message"
    assert message.usage.output_tokens > 0 and message._request_id.startswith("req_")
    count = claude.messages.count_tokens(model=model, messages=[{"role": "user", "content": "say Hi, é!"}], system="Be brief.", thinking=OFF)
    assert count.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_stream(claude, model, scripted_any):
    with claude.messages.stream(model=model, max_tokens=4000, messages=[{"role": "user", "content": "say one two"}], thinking=OFF) as stream:
        assert "".join(stream.text_stream) == "one two"
        final = stream.get_final_message()
    assert final.content[0].text == "one two" and final.usage.output_tokens > 0 and final.stop_reason == "end_turn"
    events = [e.type for e in ask(claude, model, "say x", stream=True)]
    assert events[0] == "message_start" and events[-2:] == ["message_delta", "message_stop"]


def test_thinking(claude, model, scripted_any):
    message = ask(claude, model, "think Yes.", thinking=ON)
    assert [b.type for b in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Let me see." and message.content[0].signature and message.content[1].text == "Yes."
    with claude.messages.stream(model=model, max_tokens=4000, messages=[{"role": "user", "content": "think Yes."}], thinking=ON) as stream:
        final = stream.get_final_message()
    assert final.content[0].thinking == "Let me see." and final.content[0].signature
    # What came can be sent back as it is.
    turns = [{"role": "user", "content": "think Yes."}, {"role": "assistant", "content": message.content}, {"role": "user", "content": "say more"}]
    assert ask(claude, model, "", messages=turns).content[0].text == "more"


def test_stops(claude, model, scripted_any):
    message = ask(claude, model, "say one STOP two", stop_sequences=["STOP"])
    assert message.content[0].text == "one " and message.stop_reason == "stop_sequence" and message.stop_sequence == "STOP"
    message = ask(claude, model, "long", max_tokens=7)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 7


def test_models(claude, model, scripted_any):
    assert [m.id for m in claude.models.list()] == [model]
    assert claude.models.retrieve(model).display_name == model
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("no-such-model")


def test_prefix(server, model, scripted_any):
    with anthropic.Anthropic(base_url=server.url + "/anthropic", auth_token="unused", max_retries=0) as client:
        assert ask(client, model, "say x").content[0].text == "x"


@pytest.mark.parametrize("more, part", [
    ({"extra_body": {"temperature": 9}}, "temperature"), ({"messages": []}, "messages"), ({"stop_sequences": [""]}, "stop_sequences"), ({"max_tokens": 10**7}, "prompt is too long"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}]}, "images are not supported"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}]}, "tool_use"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "another provider"),
])
def test_bad_requests(claude, model, scripted_any, more, part):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, model, "say x", **more)
    assert caught.value.body["error"]["type"] == "invalid_request_error" and part in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, "no-such-model", "x")


def test_agent_loop(claude, model, speaks_dsml):
    turns = [{"role": "user", "content": "run weather"}]
    first = ask(claude, model, "", messages=turns, tools=[WEATHER], thinking=ON)
    assert [b.type for b in first.content] == ["thinking", "text", "tool_use", "tool_use"] and first.stop_reason == "tool_use"
    calls = [b for b in first.content if b.type == "tool_use"]
    assert [c.input for c in calls] == [{"city": "Paris", "days": 2}, {"city": "Rome"}]
    turns.append({"role": "assistant", "content": first.content})
    turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": c.id, "content": "sun"} for c in reversed(calls)]})
    second = ask(claude, model, "", messages=turns, tools=[WEATHER], thinking=ON)
    assert second.content[-1].text == "It is sunny in Paris and rainy in Rome." and second.stop_reason == "end_turn"


def test_streamed_call(claude, model, speaks_dsml):
    with claude.messages.stream(model=model, max_tokens=4000, messages=[{"role": "user", "content": "run one"}], tools=[WEATHER], thinking=OFF) as stream:
        pieces = "".join(e.partial_json for e in stream if e.type == "input_json")
        final = stream.get_final_message()
    assert final.content[-1].input == {"city": 'Paris "the city"\nof light'} and pieces.startswith("{")


def test_tool_runner(claude, model, speaks_dsml):
    @anthropic.beta_tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        sums.append(a + b)
        return str(a + b)

    sums = []
    runner = claude.beta.messages.tool_runner(model=model, max_tokens=4000, tools=[add], messages=[{"role": "user", "content": "run three_rounds"}])
    assert runner.until_done().content[-1].text == "All added." and sums == [10, 11, 12]


def test_choices(claude, model, speaks_dsml):
    forced = ask(claude, model, "run one", tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"})
    assert forced.content[0].type == "tool_use"
    single = ask(claude, model, "run weather", tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [b.type for b in single.content] == ["text", "tool_use"] and single.stop_reason == "tool_use"
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, model, "run one", tools=[WEATHER], tool_choice={"type": "tool", "name": "get_weather"}, thinking=ON)
    assert "Thinking mode does not support" in str(caught.value)


def test_budget(claude, model, speaks_dsml):
    free = ask(claude, model, "run budget", thinking=ON)
    cut = ask(claude, model, "run budget", thinking={"type": "enabled", "budget_tokens": 4})
    assert free.content[0].thinking.startswith(cut.content[0].thinking) and len(cut.content[0].thinking) < len(free.content[0].thinking)
    assert cut.content[1].text == free.content[1].text == "Short."
    assert cut.usage.output_tokens_details.thinking_tokens == 5


def test_prefill(claude, model, speaks_dsml):
    turns = [{"role": "user", "content": "say B"}, {"role": "assistant", "content": "A"}]
    assert ask(claude, model, "", messages=turns).content[0].text == "B"
