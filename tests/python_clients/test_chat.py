"""What applications do with Chat Completions and completions and the official client. True of any model; the scripted one also answers exactly as told."""
import asyncio
import math

import openai
import pytest

@pytest.fixture(autouse=True)
def any_template_model(model):
    """Dialect v4.1 thinks by default and gives one choice; its tests are in the other files."""
    if model in ("scripted-v4.1", "nano"):
        pytest.skip("for models with a chat template")


USER = [{"role": "user", "content": "Say something about the sea."}]


def ask(client, model, **more):
    return client.chat.completions.create(model=model, messages=more.pop("messages", USER), **{"max_tokens": 24, "temperature": 0, **more})


def text_of(stream, index=0):
    return "".join(c.delta.content or "" for chunk in stream for c in chunk.choices if c.index == index)


def test_models(client, model):
    listed = client.models.list()
    assert listed.object == "list"
    one = client.models.retrieve(model)
    assert one.id == model and one.object == "model" and one.created > 0
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no-such-model")


def test_chat(client, model):
    answer = ask(client, model)
    assert answer.object == "chat.completion" and answer.model == model and answer.id.startswith("chatcmpl-")
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and isinstance(choice.message.content, str)
    assert choice.finish_reason in ("stop", "length") and choice.logprobs is None
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 24 and usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    assert answer._request_id


def test_greedy_repeats_itself_streamed_or_not(client, model):
    whole = ask(client, model).choices[0].message.content
    assert ask(client, model).choices[0].message.content == whole
    assert text_of(ask(client, model, stream=True)) == whole


def test_a_seed_repeats_and_others_differ(client, model):
    first = ask(client, model, temperature=1, seed=7).choices[0].message.content
    assert ask(client, model, temperature=1, seed=7).choices[0].message.content == first


def test_stream_chunks(client, model):
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert len({c.id for c in chunks}) == 1 and {c.object for c in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(c.usage is None for c in chunks[:-1])
    reasons = [c.choices[0].finish_reason for c in chunks[:-1]]
    assert reasons[-1] in ("stop", "length") and set(reasons[:-1]) == {None}
    assert all(c.usage is None for c in ask(client, model, stream=True))


def test_stream_can_be_left(client, model):
    stream = ask(client, model, stream=True, max_tokens=1000)
    next(iter(stream))
    stream.close()
    assert ask(client, model).choices


def test_max_tokens(client, model):
    answer = ask(client, model, max_tokens=None, max_completion_tokens=1)
    assert answer.usage.completion_tokens == 1 and answer.choices[0].finish_reason in ("stop", "length")


def test_logprobs(client, model):
    answer = ask(client, model, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    assert b"".join(bytes(t.bytes) for t in content).decode("utf-8", "replace") == answer.choices[0].message.content
    for token in content:
        assert token.logprob <= 0 and math.isfinite(token.logprob) and len(token.top_logprobs) == 3
        likely = [t.logprob for t in token.top_logprobs]
        assert likely == sorted(likely, reverse=True) and likely[0] >= token.logprob - 1e-6
    streamed = [t for c in ask(client, model, logprobs=True, top_logprobs=3, stream=True) for ch in c.choices if ch.logprobs for t in ch.logprobs.content]
    assert [t.token for t in streamed] == [t.token for t in content]
    assert [t.logprob for t in streamed] == [t.logprob for t in content]


def test_n(client, model):
    answer = ask(client, model, n=3, temperature=1, seed=1)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    chunks = list(ask(client, model, n=3, temperature=1, seed=1, stream=True))
    for choice in answer.choices:
        assert text_of(chunks, choice.index) == choice.message.content
    assert sum(1 for c in chunks for ch in c.choices if ch.finish_reason) == 3


def test_stop(client, model):
    whole = ask(client, model).choices[0].message.content
    if len(whole) < 4:
        pytest.skip("the answer is too short to be cut")
    mark = whole[2:4]
    answer = ask(client, model, stop=[mark])
    assert answer.choices[0].message.content == whole[: whole.index(mark)]
    assert answer.choices[0].finish_reason == "stop"


def test_system_and_turns(client, model):
    answer = ask(client, model, messages=[
        {"role": "system", "content": "Answer briefly."}, {"role": "user", "content": [{"type": "text", "text": "One?"}]},
        {"role": "assistant", "content": "One."}, {"role": "user", "content": "Two?"}])
    assert isinstance(answer.choices[0].message.content, str)


def test_completions(client, model):
    answer = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2)
    assert answer.object == "text_completion" and isinstance(answer.choices[0].text, str)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset) == len(logprobs.top_logprobs)
    chunks = list(client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text
    assert client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=2).usage.prompt_tokens == 3


@pytest.mark.parametrize("more, param", [
    ({"temperature": 9}, "temperature"), ({"n": 9}, "n"), ({"top_logprobs": 3}, "top_logprobs"), ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"), ({"tool_choice": "required"}, "tool_choice"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}]}]}, "messages[0].content[0]"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
])
def test_bad_requests(client, model, more, param):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, **more)
    assert caught.value.param == param and caught.value.code == "invalid_request_error" and caught.value.type == "invalid_request_error"


def test_other_errors(client, model):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "no-such-model")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, max_tokens=2_000_000_000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=model, input="x")


def test_async_clients_in_parallel(server, model):
    async def run():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0, timeout=600) as client:
            answers = await asyncio.gather(*[
                client.chat.completions.create(model=model, messages=USER, max_tokens=16, temperature=0) for _ in range(8)])
        return {a.choices[0].message.content for a in answers}

    assert len(asyncio.run(run())) == 1  # a batch changes nothing


def test_exact_words(client, model, scripted):
    for text in ("one", 'quotes " and \\ and\nlines', "naïve 你好 👩‍💻", "<|end|>"):
        messages = [{"role": "user", "content": "say " + text}]
        want = text.replace("<|end|>", "")  # the script turns the spelling into the token; the server shows no special tokens
        assert ask(client, model, messages=messages, max_tokens=100).choices[0].message.content == want
        assert text_of(ask(client, model, messages=messages, max_tokens=100, stream=True)) == want


def test_reasoning(client, model, scripted):
    messages = [{"role": "user", "content": "think Yes."}]
    message = ask(client, model, messages=messages, max_tokens=100).choices[0].message
    assert message.content == "Yes." and message.reasoning_content == "Let me see."
    reasoning = "".join(getattr(ch.delta, "reasoning_content", None) or "" for c in ask(client, model, messages=messages, max_tokens=100, stream=True)
                        for ch in c.choices)
    assert reasoning == "Let me see."
