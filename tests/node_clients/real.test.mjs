// The official Node clients and the AI SDK with a real model of dialect v4.1: whatever it says, they understand it, and what was asked for holds.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText, tool } from "ai";
import OpenAI from "openai";
import { z } from "zod";
import { start, stop } from "./server.mjs";

const USER = [{ role: "user", content: "Tell me of the sea." }];
const TRIP = z.object({ city: z.string().max(20), days: z.number().int().min(1).max(9) }).strict();
const SCHEMA = z.toJSONSchema(TRIP);
const OFF = { type: "disabled" };

let url, model;
before(async () => {
  url = await start();
  model = (await openai().models.list()).data[0].id;
});
after(stop);

const openai = () => new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0 });
const claude = () => new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });

test("one answer in three protocols, whole and streamed", async () => {
  const ask = { model, messages: USER, max_tokens: 60, temperature: 0, thinking: OFF };
  const text = (await openai().chat.completions.create(ask)).choices[0].message.content;
  assert.ok(text);
  const chat = await openai().chat.completions.stream(ask).finalChatCompletion();
  assert.equal(chat.choices[0].message.content, text);
  const response = { model, input: USER, max_output_tokens: 60, temperature: 0, reasoning: { effort: "none" } };
  assert.equal((await openai().responses.create(response)).output_text, text);
  assert.equal((await openai().responses.stream(response).finalResponse()).output_text, text);
  assert.equal((await claude().messages.create(ask)).content[0].text, text);
  assert.equal((await claude().messages.stream(ask).finalMessage()).content[0].text, text);
});

test("demanded calls follow their schema, and their results go back", async () => {
  const tools = [{ type: "function", function: { name: "get_weather", parameters: SCHEMA, strict: true } }];
  const ask = { model, messages: USER, tools, tool_choice: "required", thinking: OFF, max_tokens: 400, seed: 1 };
  const first = (await openai().chat.completions.stream(ask).finalChatCompletion()).choices[0];
  assert.equal(first.finish_reason, "tool_calls");
  for (const call of first.message.tool_calls) TRIP.parse(JSON.parse(call.function.arguments));
  const messages = [...USER, first.message, ...first.message.tool_calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: "sun" }))];
  const second = await openai().chat.completions.create({ model, messages, tools, thinking: OFF, max_tokens: 20 });
  assert.ok(second.usage.completion_tokens > 0);

  const named = { type: "tool", name: "get_weather" };
  const message = await claude().messages.stream({ model, messages: USER, tools: [{ name: "get_weather", input_schema: SCHEMA }], tool_choice: named, thinking: OFF, max_tokens: 400 }).finalMessage();
  assert.equal(message.stop_reason, "tool_use");
  for (const call of message.content) TRIP.parse(call.input);
});

test("anthropic: thinking within a budget, and back", async () => {
  const ask = (messages) => claude().messages.create({ model, messages, max_tokens: 400, thinking: { type: "enabled", budget_tokens: 20 } });
  const first = await ask(USER);
  assert.equal(first.content[0].type, "thinking");
  const again = [...USER, { role: "assistant", content: first.content }, { role: "user", content: "And then?" }];
  assert.ok((await ask(again)).usage.output_tokens > 0);
});

// Thinking off, as each provider spells it.
const providers = {
  "openai-compatible": [() => createOpenAICompatible({ name: "local", baseURL: `${url}/v1`, apiKey: "unused", supportsStructuredOutputs: true })(model), { local: { reasoningEffort: "none" } }],
  "openai responses": [() => createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" }).responses(model), { openai: { store: false, reasoningEffort: "none", forceReasoning: true } }],
  anthropic: [() => createAnthropic({ baseURL: `${url}/v1`, apiKey: "unused" })(model), { anthropic: { thinking: OFF } }],
};
for (const [name, [provider, providerOptions]] of Object.entries(providers)) {
  test(`ai sdk, ${name}: text, objects and tools`, async () => {
    const ask = () => ({ model: provider(), prompt: "Plan a trip.", maxOutputTokens: 400, maxRetries: 0, providerOptions });
    assert.ok((await generateText(ask())).text);
    let text = "";
    for await (const delta of streamText(ask()).textStream) text += delta;
    assert.ok(text);
    TRIP.parse((await generateObject({ ...ask(), schema: TRIP })).object);
    const { toolCalls } = await generateText({ ...ask(), tools: { get_weather: tool({ inputSchema: TRIP }) }, toolChoice: "required" });
    assert.ok(toolCalls.length > 0);
    for (const call of toolCalls) TRIP.parse(call.input);
  });
}
