// Planted edits are found, named, placed and counted exactly.
#include "trace/breakers.h"

#include "audit_fixture.h"
#include "base/base64.h"

namespace deepinfer::trace {
namespace {

// A log in which each request but the first holds one planted break.
struct Planted {
  const char* kind;
  const char* segment;
  // Changes the i-th request (from 0) of a conversation that grows by one turn each.
  void (*edit)(json::object& body, int i);
};

json::object& message(json::object& body, size_t k) { return body["messages"].as_array()[k].as_object(); }

void set_system(json::object& body, const std::string& front, const std::string& back) {
  message(body, 0)["content"] = front + back + text_of(message(body, 0)["content"]);
}

std::string hex_id(int i) {
  Rng rng(static_cast<uint64_t>(i) + 100);
  std::string out = "id-";
  out.clear();
  for (const int length : {8, 4, 4, 4, 12}) {
    if (!out.empty()) out += '-';
    for (int k = 0; k < length; ++k) out += "0123456789abcdef"[rng.below(16)];
  }
  return out;
}

const Planted kPlanted[] = {
    {"timestamp", "system", [](json::object& body, int i) { set_system(body, fmt::format("Current time: 2026-11-30T10:{:02}:31Z\n", 59 - i), ""); }},
    {"timestamp", "system", [](json::object& body, int i) { set_system(body, fmt::format("Today is Nov {}, 2026.\n", 10 + i), ""); }},
    {"random_id", "system", [](json::object& body, int i) { set_system(body, "Request " + hex_id(i), "\n"); }},
    {"counter", "system", [](json::object& body, int i) { set_system(body, fmt::format("Turn number {} of the game.\n", 91 - i), ""); }},
    {"path", "system", [](json::object& body, int i) { set_system(body, fmt::format("Logs: /tmp/session-{}/out.log\n", 91 - i), ""); }},
    {"billing_header", "system", [](json::object& body, int i) { set_system(body, fmt::format("x-anthropic-billing-header: cc_version=2.1.{}; cch=a{}b;\n", 90 - i, i), ""); }},
    {"system_edit", "system", [](json::object& body, int i) { set_system(body, std::string(i % 2 == 0 ? "Be brief and kind.\n" : "Answer with care, at length.\n"), ""); }},
    {"tool_order", "tool 1 ", [](json::object& body, int i) {
       json::array& tools = body["tools"].as_array();
       // Six orders of three tools: no two requests share one.
       static constexpr int kOrders[6][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1}, {1, 2, 0}, {2, 0, 1}};
       const json::array old = tools;
       for (size_t k = 0; k < 3; ++k) tools[k] = old[static_cast<size_t>(kOrders[i % 6][k])];
     }},
    {"tool_set", "tool 1 ", [](json::object& body, int i) {
       json::array& tools = body["tools"].as_array();
       tools.insert(tools.begin(), tool("extra_" + std::string(1, static_cast<char>('a' + i)), "one more tool"));
     }},
    {"tool_edit", "tool 1 ", [](json::object& body, int i) {
       static constexpr const char* kTexts[] = {"finds files", "looks for files", "searches", "lists what there is", "globs", "walks folders"};
       body["tools"].as_array()[0] = tool("read_file", kTexts[i % 6]);
     }},
    {"serialisation", "tool 1 ", [](json::object& body, int i) {
       json::object first = tool("read_file", "reads a file");
       const char* schemas[] = {R"({"type":"object","title":"x"})", R"({"title":"x","type":"object"})"};
       first["function"].as_object()["parameters"] = json::parse(schemas[i % 2]);
       body["tools"].as_array()[0] = first;
     }},
    {"timestamp", "tool 1 ", [](json::object& body, int i) { body["tools"].as_array()[0] = tool("read_file", fmt::format("reads files; index of 10:{:02}:00", 59 - i)); }},
};

class Breakers : public AuditFixture {
 protected:
  // What a conversation of six turns looks like before the edits.
  static Talk talk() {
    Rng rng(9);
    Talk out;
    out.system = words(rng, 900);
    out.tools = {tool("read_file", "reads a file"), tool("search", "finds text"), tool("write_file", "writes a file")};
    for (int t = 0; t < 6; ++t) out.turns.push_back({words(rng, 300), words(rng, 300), words(rng, 200), "", "", ""});
    return out;
  }

  json::array breakers_of(const std::vector<json::object>& bodies, std::string session = "one") const {
    std::vector<std::string> lines;
    for (size_t i = 0; i < bodies.size(); ++i) {
      lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + static_cast<int64_t>(i) * 60'000)}, {"session_id", session}, {"body", bodies[i]}}));
    }
    write_lines(file("log.jsonl"), lines);
    return report_of(file("log.jsonl")).at("breakers").as_array();
  }
};

TEST_F(Breakers, EachKindIsNamedPlacedAndCounted) {
  for (const Planted& planted : kPlanted) {
    std::vector<json::object> bodies;
    for (int i = 0; i < 6; ++i) {
      bodies.push_back(chat_body(talk(), static_cast<size_t>(i), false));
      planted.edit(bodies.back(), i);
    }
    const json::array found = breakers_of(bodies);
    int64_t count = 0;
    for (const json::value& one : found) {
      EXPECT_EQ(text_of(one.at("kind")), planted.kind) << text_of(one.at("segment")) << " in " << planted.kind;
      EXPECT_TRUE(text_of(one.at("segment")).starts_with(planted.segment)) << text_of(one.at("segment")) << " for " << planted.kind;
      count += one.at("count").to_number<int64_t>();
    }
    EXPECT_EQ(count, 5) << planted.kind;
    // The first divergent token, from the prompts themselves.
    const std::vector<TokenId> a = tokens(bodies[0]), b = tokens(bodies[1]);
    const int64_t position = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
    ASSERT_FALSE(found.empty()) << planted.kind;
    EXPECT_LE(found[0].at("first_position_min").to_number<int64_t>(), position);
    EXPECT_GE(found[0].at("first_position_max").to_number<int64_t>(), position);
  }
}

TEST_F(Breakers, LostTokensAreExactlyWhatTheEditHides) {
  // Two requests of one conversation that differ in one digit near the front of the system prompt.
  std::vector<json::object> bodies{chat_body(talk(), 2, false), chat_body(talk(), 2, false)};
  set_system(bodies[0], "Turn 7.\n", "");
  set_system(bodies[1], "Turn 8.\n", "");
  const std::vector<TokenId> a = tokens(bodies[0]), b = tokens(bodies[1]);
  const int64_t position = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  int64_t text_behind = 0;  // control tokens are no text of anybody's
  for (size_t i = static_cast<size_t>(position) + 1; i < b.size(); ++i) text_behind += b[i] >= recipe::FakeTokenizer::kFirstByte;
  const json::array found = breakers_of(bodies);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].at("lost_tokens").to_number<int64_t>(), text_behind);
  EXPECT_EQ(found[0].at("first_position_min").to_number<int64_t>(), position);
  EXPECT_EQ(text_of(found[0].at("example").at("old")), "7");
  EXPECT_EQ(text_of(found[0].at("example").at("new")), "8");
  EXPECT_TRUE(text_of(found[0].at("example").at("before")).ends_with("Turn "));
  EXPECT_TRUE(text_of(found[0].at("example").at("after")).starts_with(".\n"));
}

TEST_F(Breakers, HistoryThatIsRewrittenDroppedOrGrownInside) {
  const auto two = [&](void (*edit)(json::object&)) {
    std::vector<json::object> bodies{chat_body(talk(), 4, false), chat_body(talk(), 5, false)};
    edit(bodies[1]);
    const json::array found = breakers_of(bodies);
    EXPECT_LE(found.size(), 1u);
    return found.empty() ? std::string("none") : text_of(found[0].at("kind")) + " in " + text_of(found[0].at("segment"));
  };
  EXPECT_EQ(two([](json::object&) {}), "none") << "a conversation that only grows breaks nothing";
  EXPECT_EQ(two([](json::object& body) { message(body, 1)["content"] = "Summary of what was said"; }), "rewritten_history in message 2 (user)");
  EXPECT_EQ(two([](json::object& body) { body["messages"].as_array().erase(body["messages"].as_array().begin() + 3); }), "dropped_messages in message 4 (assistant)");
  EXPECT_EQ(two([](json::object& body) {
              json::array& messages = body["messages"].as_array();
              messages.insert(messages.begin() + 3, json::object{{"role", "user"}, {"content", "By the way, remember the rules."}});
            }),
            "inserted_messages in message 4 (user)");
  EXPECT_EQ(two([](json::object& body) { message(body, 2).erase("reasoning_content"); }), "dropped_reasoning in message 3 (assistant)");
}

TEST_F(Breakers, CallsWrittenWithAnotherOrderOfKeys) {
  Talk t = talk();
  t.turns[1].tool = "read_file";
  t.turns[1].arguments = R"({"path":"a.cc","first":1})";
  t.turns[1].result = "text";
  std::vector<json::object> bodies{chat_body(t, 3, false)};
  t.turns[1].arguments = R"({"first":1,"path":"a.cc"})";
  bodies.push_back(chat_body(t, 4, false));
  const json::array found = breakers_of(bodies);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(text_of(found[0].at("kind")), "serialisation");
}

TEST_F(Breakers, WhatTheModelsOwnFormatChangesIsNobodysEdit) {
  // Without tools V4 leaves out the reasoning of all turns that somebody answered: a request that ends with an answer has it, the next lacks it.
  Talk t = talk();
  t.tools = {};
  json::object ends_with_answer = chat_body(t, 1, false);
  ends_with_answer["messages"].as_array().push_back(json::object{{"role", "assistant"}, {"content", t.turns[1].answer}, {"reasoning_content", t.turns[1].reasoning}});
  const json::array found = breakers_of({ends_with_answer, chat_body(t, 2, false)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(text_of(found[0].at("kind")), "rendering");
  EXPECT_EQ(found[0].at("lost_tokens").to_number<int64_t>(), 300) << "the answer behind the reasoning";
}

TEST_F(Breakers, TemplatesThatOnlyShareTheirSystemPromptAreHeldTogether) {
  // Other conversations, another id in the same system prompt: no session and no turn in common.
  Rng rng(4);
  const std::string rules = words(rng, 1500);
  std::vector<std::string> lines;
  for (int i = 0; i < 10; ++i) {
    json::object body{{"model", "m"}, {"messages", json::array{json::object{{"role", "system"}, {"content", "Session " + hex_id(i) + "\n" + rules}},
                                                               json::object{{"role", "user"}, {"content", words(rng, 200)}}}}};
    lines.push_back(json::serialize(body));
  }
  write_lines(file("log.jsonl"), lines);
  const json::object found = report_of(file("log.jsonl"));
  const json::array& breakers = found.at("breakers").as_array();
  ASSERT_EQ(breakers.size(), 1u);
  EXPECT_EQ(text_of(breakers[0].at("kind")), "random_id");
  EXPECT_EQ(breakers[0].at("count").to_number<int64_t>(), 9);
  EXPECT_GE(breakers[0].at("lost_tokens").to_number<int64_t>(), 9 * 1500);
  EXPECT_LE(breakers[0].at("lost_tokens").to_number<int64_t>(), 9 * 1501 + 9 * 2);
}

TEST_F(Breakers, RedactionLeavesNoText) {
  std::vector<json::object> bodies{chat_body(talk(), 2, false), chat_body(talk(), 2, false)};
  set_system(bodies[0], "Secret 7.\n", "");
  set_system(bodies[1], "Secret 8.\n", "");
  std::vector<std::string> lines;
  for (const json::object& body : bodies) {
    json::object line = body;
    line["user"] = "Secret Service";
    line["session_id"] = "secretive";
    lines.push_back(json::serialize(line));
  }
  lines.push_back("{\"secret\": ");
  write_lines(file("log.jsonl"), lines);
  AuditOptions options;
  options.redact = true;
  const auto done = audit({file("log.jsonl")}, options);
  ReportOptions reporting;
  reporting.redact = true;
  reporting.shard = true;
  const json::object made = report(*done, reporting);
  const std::string text = json::serialize(made), trace = decode_base64(text_of(made.at("shard").at("trace"))).value_or("");
  EXPECT_EQ(text.find("ecret"), std::string::npos);
  EXPECT_FALSE(trace.empty());
  EXPECT_EQ(trace.find("ecret"), std::string::npos) << "names of tenants and sessions are a log's text too";
  EXPECT_NE(text.find("bytes, "), std::string::npos);
  ASSERT_EQ(done->input().samples.size(), 1u);
  EXPECT_EQ(done->input().samples[0].beginning.find("secret"), std::string::npos);
  EXPECT_EQ(done->input().samples[0].path.find("log.jsonl"), std::string::npos) << "folders and files bear names of projects and people";
}

// Reports of shards that were not redacted join to one that is; those that were stay as they are.
TEST_F(Breakers, JoiningRedactsToo) {
  std::vector<json::object> bodies{chat_body(talk(), 2, false), chat_body(talk(), 2, false)};
  set_system(bodies[0], "Secret 7.\n", "");
  set_system(bodies[1], "Secret 8.\n", "");
  std::vector<json::object> tools = bodies;
  for (int i = 0; i < 2; ++i) {
    set_system(tools[static_cast<size_t>(i)], "Secret.\n", "");
    tools[static_cast<size_t>(i)]["tools"] = json::array{tool("secret_tool", i == 0 ? "a secret" : "another secret")};
  }
  bodies.insert(bodies.end(), tools.begin(), tools.end());
  std::vector<std::string> lines;
  for (json::object& body : bodies) {
    body["user"] = "Secret Service";
    lines.push_back(json::serialize(body));
  }
  write_lines(file("log.jsonl"), lines);
  ReportOptions reporting;
  reporting.shard = true;
  AuditOptions redacting;
  redacting.redact = true;
  const json::object open = report(*audit({file("log.jsonl")}), reporting), closed = report(*audit({file("log.jsonl")}, redacting), reporting);
  ASSERT_NE(json::serialize(open).find("Secret"), std::string::npos);
  ASSERT_GE(open.at("breakers").as_array().size(), 2u);
  const auto joined = [&](const json::object& shard) {
    Audit out(redacting, nullptr, nullptr);
    EXPECT_TRUE(add_shard(shard, out));
    return report(out, reporting);
  };
  const json::object from_open = joined(open), from_closed = joined(closed);
  const std::string text = json::serialize(from_open), trace = decode_base64(text_of(from_open.at("shard").at("trace"))).value();
  EXPECT_EQ(text.find("ecret"), std::string::npos) << text;
  EXPECT_EQ(trace.find("ecret"), std::string::npos);
  EXPECT_EQ(json::serialize(from_closed.at("breakers")), json::serialize(closed.at("breakers")));
  for (const char* key : {"reuse", "per_tenant", "tokens"}) EXPECT_EQ(json::serialize(from_open.at(key)), json::serialize(open.at(key))) << key;
}

}  // namespace
}  // namespace deepinfer::trace
