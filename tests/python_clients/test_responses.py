"""The Responses API with the official client."""
import json

import openai
import pydantic
import pytest

OFF = {"effort": "none"}
WEATHER = {"type": "function", "name": "get_weather", "description": "Look up the weather", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}


def test_text(client, model, scripted_any):
    answer = client.responses.create(model=model, input="say Hi, é!", reasoning=OFF)
    assert answer.output_text == "Hi, é!" and answer.status == "completed" and answer.error is None
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.output[-1].content[0].type == "output_text"
    assert answer._request_id
    assert client.responses.input_tokens.count(model=model, input="say Hi, é!", reasoning=OFF).input_tokens == answer.usage.input_tokens


def test_stream(client, model, scripted_any):
    events = list(client.responses.create(model=model, input="think Yes.", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.reasoning_text.delta") == "Let me see."
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Yes."
    assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]
    with client.responses.stream(model=model, input="say Hi", reasoning=OFF) as stream:
        final = stream.get_final_response()
    assert final.output_text == "Hi"


def test_length(client, model, scripted_any):
    answer = client.responses.create(model=model, input="long", reasoning=OFF, max_output_tokens=5)
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens" and answer.usage.output_tokens == 5


def test_logprobs(client, model, scripted_any):
    answer = client.responses.create(model=model, input="say Hi", reasoning=OFF, include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = answer.output[-1].content[0].logprobs
    assert "".join(t.token for t in logprobs) == "Hi" and all(len(t.top_logprobs) == 2 for t in logprobs)


@pytest.mark.parametrize("more, param", [
    ({"temperature": 9}, "temperature"), ({"input": []}, "input"), ({"background": True}, "background"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]}, "input[0].content[0]"),
    ({"previous_response_id": "resp_0"}, "previous_response_id"),
])
def test_bad_requests(client, model, scripted_any, more, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=model, **{"input": "say x", **more})
    assert caught.value.param == param and caught.value.code == "invalid_request_error"


def test_agent_loop(client, model, speaks_dsml):
    items = [{"role": "user", "content": "run weather"}]
    first = client.responses.create(model=model, input=items, tools=[WEATHER])
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
    calls = [item for item in first.output if item.type == "function_call"]
    assert [json.loads(c.arguments) for c in calls] == [{"city": "Paris", "days": 2}, {"city": "Rome"}]
    assert first.output[1].phase == "commentary"
    items += [item.model_dump(exclude_none=True) for item in first.output]
    items += [{"type": "function_call_output", "call_id": c.call_id, "output": "sun"} for c in reversed(calls)]
    second = client.responses.create(model=model, input=items, tools=[WEATHER])
    assert second.output_text == "It is sunny in Paris and rainy in Rome."


def test_streamed_call(client, model, speaks_dsml):
    with client.responses.stream(model=model, input="run one", tools=[WEATHER]) as stream:
        events = list(stream)
        final = stream.get_final_response()
    pieces = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert pieces == final.output[-1].arguments and json.loads(pieces) == {"city": 'Paris "the city"\nof light'}


def test_custom_tool(client, model, speaks_dsml):
    answer = client.responses.create(model=model, input="run patch", tools=[{"type": "custom", "name": "apply_patch"}])
    call = answer.output[-1]
    assert call.type == "custom_tool_call" and call.input == '*** Begin Patch\n*** Add File: a.txt\n+"hi"\n*** End Patch'
    items = [{"role": "user", "content": "run patch"}, *[item.model_dump(exclude_none=True) for item in answer.output],
             {"type": "custom_tool_call_output", "call_id": call.call_id, "output": "ok"}]
    assert client.responses.create(model=model, input=items, tools=[{"type": "custom", "name": "apply_patch"}]).output_text == "Patched."


def test_one_call_at_a_time(client, model, speaks_dsml):
    answer = client.responses.create(model=model, input="run weather", tools=[WEATHER], parallel_tool_calls=False)
    assert [item.type for item in answer.output] == ["reasoning", "message", "function_call"] and answer.status == "completed"


def test_sealed_reasoning(client, model, speaks_dsml):
    first = client.responses.create(model=model, input="run weather", tools=[WEATHER], store=False, include=["reasoning.encrypted_content"])
    reasoning = first.output[0]
    assert reasoning.encrypted_content
    items = [{"role": "user", "content": "run weather"}, {"type": "reasoning", "id": reasoning.id, "summary": [], "encrypted_content": reasoning.encrypted_content}]
    items += [item.model_dump(exclude_none=True) for item in first.output[1:]]
    items += [{"type": "function_call_output", "call_id": item.call_id, "output": "sun"} for item in first.output if item.type == "function_call"]
    assert client.responses.create(model=model, input=items, tools=[WEATHER]).output_text.startswith("It is sunny")
    items[1]["encrypted_content"] = reasoning.encrypted_content[:-4] + "AAAA"
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=model, input=items, tools=[WEATHER])
    assert caught.value.param == "input[1].encrypted_content"


def test_parsed_output(client, model, speaks_dsml):
    class Trip(pydantic.BaseModel):
        city: str
        days: int

    answer = client.responses.parse(model=model, input="run json", text_format=Trip)
    assert answer.output_parsed == Trip(city="Paris", days=2)
    chat = client.chat.completions.parse(model=model, messages=[{"role": "user", "content": "run json"}], response_format=Trip)
    assert chat.choices[0].message.parsed == Trip(city="Paris", days=2)


def test_kept_responses(scripted_any, keeper, model):
    first = keeper.responses.create(model=model, input="say one", reasoning=OFF, metadata={"k": "v"})
    assert first.store and keeper.responses.retrieve(first.id).output_text == "one"
    items = keeper.responses.input_items.list(first.id)
    assert items.data[0].content[0].text == "say one" and not items.has_more
    second = keeper.responses.create(model=model, input="say two", reasoning=OFF, previous_response_id=first.id)
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    keeper.responses.delete(first.id)
    for gone in (lambda: keeper.responses.retrieve(first.id), lambda: keeper.responses.delete(first.id)):
        with pytest.raises(openai.NotFoundError):
            gone()
    with pytest.raises(openai.BadRequestError):
        keeper.responses.create(model=model, input="say three", previous_response_id=second.id)
    with pytest.raises(openai.NotFoundError):
        keeper.responses.create(model="no-such-model", input="x")
