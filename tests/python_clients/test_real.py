"""All three protocols with a real model of dialect v4.1: whatever it says, clients understand it, and what was asked for holds."""
import base64
import json
import struct
import zlib

import anthropic
import pydantic
import pytest

USER = [{"role": "user", "content": "Tell me of the sea."}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"],
          "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Look up the weather", "parameters": SCHEMA, "strict": True}}
TOOL = {"type": "function", "name": "get_weather", "description": "Look up the weather", "parameters": SCHEMA, "strict": True}
CLAUDE_TOOL = {"name": "get_weather", "description": "Look up the weather", "input_schema": SCHEMA}
CHAT_OFF = {"thinking": {"type": "disabled"}}
OFF = {"type": "disabled"}

pytestmark = pytest.mark.usefixtures("real_dsml")


class Trip(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=20)
    days: int = pydantic.Field(ge=1, le=9)


def check_trip(arguments):
    trip = Trip(**arguments)
    assert set(arguments) == {"city", "days"} and trip.days > 0


def chat(client, model, **more):
    return client.chat.completions.create(model=model, messages=more.pop("messages", USER), **{"max_tokens": 60, "temperature": 0, "extra_body": CHAT_OFF, **more})


def png():
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + bytes([200, 30 * y % 256, 90]) * 32 for y in range(32))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")).decode()


def test_one_answer_in_three_protocols(client, claude, model):
    whole = chat(client, model)
    text = whole.choices[0].message.content
    assert text and whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    streamed = "".join(c.delta.content or "" for chunk in chat(client, model, stream=True) for c in chunk.choices)
    assert streamed == text
    answer = client.responses.create(model=model, input=USER, max_output_tokens=60, temperature=0, reasoning={"effort": "none"})
    assert answer.output_text == text and answer.usage.input_tokens == whole.usage.prompt_tokens
    with client.responses.stream(model=model, input=USER, max_output_tokens=60, temperature=0, reasoning={"effort": "none"}) as stream:
        assert "".join(e.delta for e in stream if e.type == "response.output_text.delta") == text
    asked = {"model": model, "messages": USER, "max_tokens": 60, "thinking": OFF, "extra_body": {"temperature": 0}}
    message = claude.messages.create(**asked)
    assert message.content[0].text == text
    with claude.messages.stream(**asked) as stream:
        assert "".join(stream.text_stream) == text
    count = claude.messages.count_tokens(model=model, messages=USER, thinking=OFF).input_tokens
    assert count == message.usage.input_tokens + message.usage.cache_read_input_tokens == whole.usage.prompt_tokens


def test_thinking(client, claude, model):
    budget = {"max_tokens": 400, "seed": 3, "extra_body": {"thinking": {"type": "enabled", "budget_tokens": 20}}}
    whole = chat(client, model, **budget)
    assert isinstance(whole.choices[0].message.reasoning_content, str)
    assert whole.usage.completion_tokens_details.reasoning_tokens <= 21
    reasoning = "".join(getattr(c.delta, "reasoning_content", None) or "" for chunk in chat(client, model, stream=True, **budget) for c in chunk.choices)
    assert reasoning == whole.choices[0].message.reasoning_content
    message = claude.messages.create(model=model, messages=USER, max_tokens=400, thinking={"type": "enabled", "budget_tokens": 20})
    assert message.content[0].type == "thinking" and message.content[0].signature
    turns = [*USER, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And then?"}]
    assert claude.messages.create(model=model, messages=turns, max_tokens=20).usage.output_tokens > 0
    answer = client.responses.create(model=model, input=USER, max_output_tokens=60)
    assert answer.output[0].type == "reasoning" and answer.status in ("completed", "incomplete")


def test_demanded_calls(client, claude, model):
    """The schema holds however the model samples, and what came goes back."""
    for seed in range(3):
        first = chat(client, model, tools=[CHAT_TOOL], tool_choice="required", temperature=1, seed=seed, max_tokens=400).choices[0]
        assert first.finish_reason == "tool_calls" and first.message.content is None
        for call in first.message.tool_calls:
            check_trip(json.loads(call.function.arguments))
        messages = [*USER, first.message, *[{"role": "tool", "tool_call_id": c.id, "content": "sun"} for c in first.message.tool_calls]]
        assert chat(client, model, messages=messages, tools=[CHAT_TOOL], max_tokens=20).usage.completion_tokens > 0

    chunks = chat(client, model, tools=[CHAT_TOOL], tool_choice="required", stream=True, max_tokens=400, parallel_tool_calls=False)
    check_trip(json.loads("".join(t.function.arguments for chunk in chunks for c in chunk.choices for t in c.delta.tool_calls or [])))

    asked = {"model": model, "input": USER, "tools": [TOOL], "tool_choice": "required", "reasoning": {"effort": "none"}, "max_output_tokens": 400}
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        calls = [item for item in stream.get_final_response().output if item.type == "function_call"]
    assert calls and "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == "".join(c.arguments for c in calls)
    for call in calls:
        check_trip(json.loads(call.arguments))
    items = [*USER, *[c.model_dump(exclude_none=True) for c in calls], *[{"type": "function_call_output", "call_id": c.call_id, "output": "sun"} for c in calls]]
    assert client.responses.create(model=model, input=items, tools=[TOOL], max_output_tokens=20).usage.output_tokens > 0

    asked = {"model": model, "messages": USER, "max_tokens": 400, "thinking": OFF, "tools": [CLAUDE_TOOL], "tool_choice": {"type": "tool", "name": "get_weather"}}
    message = claude.messages.create(**asked)
    assert message.stop_reason == "tool_use"
    for call in message.content:
        check_trip(call.input)
    with claude.messages.stream(**asked) as stream:
        for call in stream.get_final_message().content:
            check_trip(call.input)


def test_schemas(client, claude, model):
    answer = client.responses.parse(model=model, input=USER, text_format=Trip, reasoning={"effort": "none"}, max_output_tokens=200)
    assert isinstance(answer.output_parsed, Trip)
    parsed = client.chat.completions.parse(model=model, messages=USER, response_format=Trip, extra_body=CHAT_OFF, max_tokens=200)
    assert isinstance(parsed.choices[0].message.parsed, Trip)
    message = claude.messages.create(model=model, messages=USER, max_tokens=200, thinking=OFF, extra_body={"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    check_trip(json.loads(message.content[0].text))
    # Behind thinking, too.
    thought = chat(client, model, max_tokens=400, response_format={"type": "json_schema", "json_schema": {"name": "trip", "schema": SCHEMA, "strict": True}},
                   extra_body={"thinking": {"type": "enabled", "budget_tokens": 20}})
    check_trip(json.loads(thought.choices[0].message.content))


def test_images(client, claude, model):
    url = "data:image/png;base64," + png()
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    seen = chat(client, model, messages=[{"role": "user", "content": content}])
    plain = chat(client, model, messages=[{"role": "user", "content": content[:1]}])
    assert seen.usage.prompt_tokens > plain.usage.prompt_tokens + 2
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    answer = client.responses.create(model=model, input=[{"role": "user", "content": parts}], temperature=0, reasoning={"effort": "none"}, max_output_tokens=60)
    assert (answer.output_text, answer.usage.input_tokens) == (seen.choices[0].message.content, seen.usage.prompt_tokens)
    blocks = [content[0], {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png()}}]
    message = claude.messages.create(model=model, messages=[{"role": "user", "content": blocks}], max_tokens=60, thinking=OFF, extra_body={"temperature": 0})
    assert message.content[0].text == seen.choices[0].message.content
    with pytest.raises(anthropic.BadRequestError):
        blocks[1]["source"]["data"] = "AAAA"
        claude.messages.create(model=model, messages=[{"role": "user", "content": blocks}], max_tokens=60)


def test_langchain(server, model):
    from langchain_anthropic import ChatAnthropic
    from langchain_openai import ChatOpenAI

    for responses in (False, True):
        off = {"reasoning": {"effort": "none"}} if responses else {"extra_body": CHAT_OFF}
        llm = ChatOpenAI(base_url=server.url + "/v1", api_key="unused", model=model, max_retries=0, max_tokens=300, use_responses_api=responses, **off)
        assert isinstance(llm.with_structured_output(Trip).invoke("Plan a trip."), Trip)
        calls = llm.bind_tools([CHAT_TOOL], tool_choice="required").invoke("Plan a trip.").tool_calls
        assert calls
        for call in calls:
            check_trip(call["args"])
        assert "".join(str(chunk.text) for chunk in llm.stream("Tell me of the sea."))
    llm = ChatAnthropic(base_url=server.url, api_key="unused", model_name=model, max_tokens=300, max_retries=0, thinking=OFF)
    for call in llm.bind_tools([CLAUDE_TOOL], tool_choice="get_weather").invoke("Plan a trip.").tool_calls:
        check_trip(call["args"])
    assert "".join(str(chunk.text) for chunk in llm.stream("Tell me of the sea."))
