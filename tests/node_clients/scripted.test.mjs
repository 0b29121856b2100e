// What applications do with the official Node clients and the AI SDK, on all three protocols, with the scripted model of dialect v4.1.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { start, stop } from "./server.mjs";

const MODEL = "scripted-v4.1";
const SCHEMA = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] };
const CHAT_TOOL = { type: "function", function: { name: "get_weather", description: "Look up the weather", parameters: SCHEMA } };
const FINAL = "It is sunny in Paris and rainy in Rome.";
const CITIES = [{ city: "Paris", days: 2 }, { city: "Rome" }];

let url, forgetful;  // of a server that keeps responses, and of one that keeps none
before(async () => {
  url = await start("--keep");
  forgetful = await start();
});
after(stop);

const openai = () => new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const claude = () => new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });

test("openai: a chat with parallel calls", async () => {
  const messages = [{ role: "user", content: "run weather" }];
  const first = (await openai().chat.completions.create({ model: MODEL, messages, tools: [CHAT_TOOL] })).choices[0];
  assert.equal(first.finish_reason, "tool_calls");
  assert.deepEqual(first.message.tool_calls.map((c) => JSON.parse(c.function.arguments)), CITIES);
  messages.push(first.message, ...first.message.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "sun" })));
  const second = await openai().chat.completions.create({ model: MODEL, messages, tools: [CHAT_TOOL] });
  assert.equal(second.choices[0].message.content, FINAL);
});

test("openai: a chat stream", async () => {
  const stream = openai().chat.completions.stream({ model: MODEL, messages: [{ role: "user", content: "run weather" }], tools: [CHAT_TOOL], stream_options: { include_usage: true } });
  const final = await stream.finalChatCompletion();
  assert.deepEqual(final.choices[0].message.tool_calls.map((c) => JSON.parse(c.function.arguments)), CITIES);
  assert.ok(final.usage.total_tokens > 0);
});

test("openai: responses, streamed and errors", async () => {
  const stream = openai().responses.stream({ model: MODEL, input: "run weather", tools: [{ type: "function", name: "get_weather", parameters: SCHEMA, strict: false }] });
  const types = [];
  for await (const event of stream) types.push(event.type);
  assert.equal(types[0], "response.created");
  assert.equal(types.at(-1), "response.completed");
  const final = await stream.finalResponse();
  assert.deepEqual(final.output.map((item) => item.type), ["reasoning", "message", "function_call", "function_call"]);
  await assert.rejects(openai().responses.create({ model: MODEL, input: [] }), (error) => error instanceof OpenAI.BadRequestError && error.param === "input");
  await assert.rejects(openai().responses.retrieve("resp_0"), OpenAI.NotFoundError);
});

test("anthropic: an agent loop", async () => {
  const messages = [{ role: "user", content: "run weather" }];
  const ask = () => claude().messages.create({ model: MODEL, max_tokens: 4000, messages, tools: [{ name: "get_weather", input_schema: SCHEMA }] });
  const first = await ask();
  assert.deepEqual(first.content.map((b) => b.type), ["thinking", "text", "tool_use", "tool_use"]);
  messages.push({ role: "assistant", content: first.content });
  messages.push({ role: "user", content: first.content.filter((b) => b.type === "tool_use").map((b) => ({ type: "tool_result", tool_use_id: b.id, content: "sun" })) });
  assert.equal((await ask()).content.at(-1).text, FINAL);
});

test("anthropic: a stream, counts and errors", async () => {
  const body = { model: MODEL, max_tokens: 4000, messages: [{ role: "user", content: "think Yes." }] };
  const stream = claude().messages.stream(body);
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const final = await stream.finalMessage();
  assert.equal(text, "Yes.");
  assert.equal(final.content[0].thinking, "Let me see.");
  const count = await claude().messages.countTokens({ model: MODEL, messages: body.messages });
  assert.equal(count.input_tokens, final.usage.input_tokens + final.usage.cache_read_input_tokens);
  await assert.rejects(claude().messages.create({ ...body, messages: [] }), Anthropic.BadRequestError);
});

const weather = (calls) => ({
  get_weather: tool({
    description: "Look up the weather",
    inputSchema: z.object({ city: z.string(), days: z.number().int().optional() }),
    execute: async (input) => (calls.push(input), "sun"),
  }),
});

// The AI SDK runs the tools and asks again by itself.
const providers = {
  "openai-compatible": () => createOpenAICompatible({ name: "local", baseURL: `${url}/v1`, apiKey: "unused" })(MODEL),
  "openai responses": () => createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" }).responses(MODEL),
  anthropic: () => createAnthropic({ baseURL: `${url}/v1`, apiKey: "unused" })(MODEL),
};
for (const [name, provider] of Object.entries(providers)) {
  test(`ai sdk, ${name}: tools`, async () => {
    const calls = [];
    const result = await generateText({ model: provider(), prompt: "run weather", tools: weather(calls), stopWhen: stepCountIs(4), maxRetries: 0 });
    assert.deepEqual(calls, CITIES);
    assert.equal(result.text, FINAL);
    assert.equal(result.steps.length, 2);
  });
  test(`ai sdk, ${name}: a stream`, async () => {
    const calls = [];
    const result = streamText({ model: provider(), prompt: "run weather", tools: weather(calls), stopWhen: stepCountIs(4), maxRetries: 0 });
    let text = "";
    for await (const delta of result.textStream) text += delta;
    assert.ok(text.endsWith(FINAL), text);
    assert.deepEqual(calls, CITIES);
  });
  test(`ai sdk, ${name}: objects`, async () => {
    const ask = { model: provider(), prompt: "run json", schema: z.object({ city: z.string(), days: z.number().int() }), maxRetries: 0 };
    assert.deepEqual((await generateObject(ask)).object, CITIES[0]);
    let last;
    for await (const partial of streamObject(ask).partialObjectStream) last = partial;
    assert.deepEqual(last, CITIES[0]);
  });
  test(`ai sdk, ${name}: reasoning and calls go back, then no tool is allowed`, async () => {
    const ask = (messages, toolChoice) => generateText({ model: provider(), messages, tools: weather([]), toolChoice, stopWhen: stepCountIs(4), maxRetries: 0 });
    const messages = [{ role: "user", content: "run weather" }];
    messages.push(...(await ask(messages)).response.messages, { role: "user", content: "think More." });
    const second = await ask(messages, "none");
    assert.equal(second.text, "More.");
    // Of Responses the SDK shows the summaries that OpenAI's own models give, and no reasoning.
    if (name !== "openai responses") assert.equal(second.reasoningText, "Let me see.");
  });
}

// By itself the SDK's OpenAI provider names items that the server keeps, so it needs one that does, or this option.
test("ai sdk, openai responses: a server that keeps nothing", async () => {
  const model = createOpenAI({ baseURL: `${forgetful}/v1`, apiKey: "unused" }).responses(MODEL);
  const ask = (openai) => generateText({ model, prompt: "run weather", tools: weather([]), stopWhen: stepCountIs(4), maxRetries: 0, providerOptions: { openai } });
  assert.equal((await ask({ store: false })).text, FINAL);
  assert.equal((await ask({ store: false, include: ["reasoning.encrypted_content"] })).text, FINAL);
  await assert.rejects(ask({}), /keeps no responses/);
});
