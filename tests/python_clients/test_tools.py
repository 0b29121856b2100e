"""Agents on Chat Completions: the official client and LangChain, over all three protocols."""
import json

import openai
import pytest

OFF = {"thinking": {"type": "disabled"}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Look up the weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}


def ask(client, model, messages, **more):
    return client.chat.completions.create(model=model, messages=messages, **more)


def test_agent_loop(client, model, speaks_dsml):
    messages = [{"role": "user", "content": "run weather"}]
    first = ask(client, model, messages, tools=[WEATHER]).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content == "Checking." and first.message.reasoning_content == "Both cities at once."
    calls = first.message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [{"city": "Paris", "days": 2}, {"city": "Rome"}]
    messages.append(first.message)
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "sun"} for c in calls]
    second = ask(client, model, messages, tools=[WEATHER]).choices[0]
    assert second.message.content == "It is sunny in Paris and rainy in Rome." and second.finish_reason == "stop"


def test_streamed_calls(client, model, speaks_dsml):
    with client.chat.completions.stream(model=model, messages=[{"role": "user", "content": "run weather"}], tools=[WEATHER]) as stream:
        final = stream.get_final_completion().choices[0]
    assert [json.loads(c.function.arguments)["city"] for c in final.message.tool_calls] == ["Paris", "Rome"]
    ids = [c.id for chunk in ask(client, model, [{"role": "user", "content": "run weather"}], tools=[WEATHER], stream=True)
           for ch in chunk.choices for c in ch.delta.tool_calls or [] if c.id]
    assert len(ids) == len(set(ids)) == 2


def test_choices(client, model, speaks_dsml):
    user = [{"role": "user", "content": "run one"}]
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        forced = ask(client, model, user, tools=[WEATHER], tool_choice=choice, extra_body=OFF).choices[0]
        assert forced.finish_reason == "tool_calls" and forced.message.content is None
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, model, user, tools=[WEATHER], tool_choice=choice)
        assert caught.value.param == "tool_choice" and "Thinking mode does not support" in caught.value.message
    one = ask(client, model, [{"role": "user", "content": "run weather"}], tools=[WEATHER], parallel_tool_calls=False).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls"


def test_fill_in_the_middle(client, model, speaks_dsml):
    answer = client.completions.create(model=model, prompt="def f(a):\n", suffix="    return b\n", max_tokens=50)
    plain = client.completions.create(model=model, prompt="def f(a):\n", max_tokens=50)
    assert answer.usage.prompt_tokens > plain.usage.prompt_tokens + 4


def test_langchain_chat(server, model, speaks_dsml):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    for responses in (False, True):
        llm = ChatOpenAI(base_url=server.url + "/v1", api_key="unused", model=model, max_retries=0, use_responses_api=responses).bind_tools([WEATHER])
        messages = [HumanMessage("run weather")]
        first = llm.invoke(messages)
        assert [c["args"] for c in first.tool_calls] == [{"city": "Paris", "days": 2}, {"city": "Rome"}]
        messages += [first, *[ToolMessage("sun", tool_call_id=c["id"]) for c in first.tool_calls]]
        assert "sunny in Paris" in str(llm.invoke(messages).content)
        streamed = None
        for chunk in llm.stream([HumanMessage("run weather")]):
            streamed = chunk if streamed is None else streamed + chunk
        assert [c["args"]["city"] for c in streamed.tool_calls] == ["Paris", "Rome"]


def test_langchain_messages(server, model, speaks_dsml):
    from langchain_anthropic import ChatAnthropic
    from langchain_core.messages import HumanMessage, ToolMessage

    llm = ChatAnthropic(base_url=server.url, api_key="unused", model_name=model, max_tokens=4000, max_retries=0).bind_tools([WEATHER])
    messages = [HumanMessage("run weather")]
    first = llm.invoke(messages)
    assert [c["args"] for c in first.tool_calls] == [{"city": "Paris", "days": 2}, {"city": "Rome"}]
    messages += [first, *[ToolMessage("sun", tool_call_id=c["id"]) for c in first.tool_calls]]
    assert "sunny in Paris" in str(llm.invoke(messages).content)
