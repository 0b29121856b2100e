// Figures that a report makes of its counts, by hand: money by policy, own hardware, and what one second more of retention is worth.
#include "audit_fixture.h"

namespace deepinfer::trace {
namespace {

class Reports : public AuditFixture {
 protected:
  // Two tenants ask the same of one model, 128 * 10 tokens each: a second time after `gap_ms`, the other one an hour later.
  json::object made(int64_t gap_ms, ReportOptions options) const {
    std::vector<std::string> lines;
    const auto ask = [&](const char* user, int64_t ms) {
      json::array ids;
      for (int i = 0; i < 1280; ++i) ids.push_back(i);
      lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + ms)}, {"user", user}, {"model", "m-1"}, {"prompt", std::move(ids)},
                                                   {"usage", json::object{{"prompt_tokens", 2560}, {"completion_tokens", 100}, {"prompt_tokens_details", json::object{{"cached_tokens", 0}}}}}}));
    };
    ask("a", 0);
    ask("a", gap_ms);
    ask("b", gap_ms + 3'600'000);
    write_lines(file("log.jsonl"), lines);
    const auto done = audit({file("log.jsonl")});
    return report(*done, options);
  }

  static int64_t hit(const json::object& report, const char* retention) { return report.at("reuse").at("by_retention").at(retention).at("hit_tokens").to_number<int64_t>(); }
};

TEST_F(Reports, ARetentionIncludesItsLastInstant) {
  const json::object at = made(300'000, {}), behind = made(300'001, {});
  EXPECT_EQ(hit(at, "5m"), 1280);
  EXPECT_EQ(hit(behind, "5m"), 0);
  EXPECT_EQ(hit(at, "1h"), 2 * 1280);
}

TEST_F(Reports, RetentionsAreAsLongAsTheirNames) {
  const json::object report = made(1000, {});
  std::string found;
  for (const auto& [name, hits] : report.at("reuse").at("by_retention").as_object()) found += fmt::format("{} {} ", std::string_view(name), hits.at("seconds").to_number<int64_t>());
  EXPECT_EQ(found, "5m 300 1h 3600 12h 43200 24h 86400 72h 259200 7d 604800 ");
}

// The second line's clock goes back: by time, each comes 301 s after the one before it. Another model has a cache of its own.
TEST_F(Reports, RequestsComeInTheOrderOfTheirTimesAndModelsShareNothing) {
  Rng rng(2);
  const std::string prompt = words(rng, 1280);
  std::vector<std::string> lines;
  for (const auto& [seconds, model] : {std::pair{301, "m"}, {0, "m"}, {602, "m"}, {602, "other"}}) {
    lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + seconds * 1000)}, {"model", model}, {"prompt", prompt}}));
  }
  write_lines(file("log.jsonl"), lines);
  const json::object found = report_of(file("log.jsonl"));
  EXPECT_EQ(hit(found, "5m"), 0);
  EXPECT_EQ(hit(found, "1h"), 2 * 1280);
  EXPECT_EQ(found.at("input").at("backward_clock").to_number<int64_t>(), 1);
}

TEST_F(Reports, TheEndOfToolsAndSystemIsMarkedForARuleWithBreakpoints) {
  Rng rng(3);
  const std::string system = words(rng, 2000);
  std::vector<json::object> bodies;
  std::vector<std::string> lines;
  for (const char* user : {"first", "another"}) {
    bodies.push_back({{"model", "m-1"}, {"messages", json::array{json::object{{"role", "system"}, {"content", system}}, json::object{{"role", "user"}, {"content", user + words(rng, 500)}}}}});
    lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs)}, {"body", bodies.back()}}));
  }
  write_lines(file("log.jsonl"), lines);
  PriceTable prices;
  prices.entries = {{.name = "mine", .models = {"m-*"}, .input = 1, .cached = 1, .output = 1, .written = 1, .written_1h = 1}};
  prices.rules = {{.name = "marks", .min_tokens = 1024, .step_tokens = 1, .retention_us = 1, .breakpoints = true}};
  ReportOptions options;
  options.prices = &prices;
  const json::object found = report(*audit({file("log.jsonl")}), options);
  const std::vector<TokenId> a = tokens(bodies[0]), b = tokens(bodies[1]);
  const int64_t turn = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin() - 1;  // where the token that begins it stands
  const json::object& policy = found.at("money").at("policies").as_array().back().as_object();
  EXPECT_EQ(text_of(policy.at("policy")), "rule_marks");
  EXPECT_EQ(policy.at("read_tokens").to_number<int64_t>(), turn / 64 * 64);
}

TEST_F(Reports, EachModelIsInItsOwnProvidersCache) {
  Rng rng(4);
  const std::string text = words(rng, 2000);
  std::vector<std::string> lines;
  for (const int minute : {0, 30}) {
    for (const char* model : {"m-1", "n-1", "o-1"}) {
      json::object body{{"model", model}, {"messages", json::array{json::object{{"role", "user"}, {"content", text}}}}};
      lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + minute * 60'000)}, {"body", std::move(body)}}));
    }
  }
  write_lines(file("log.jsonl"), lines);
  PriceTable prices;
  for (const auto& [name, rule] : {std::pair("m", "short"), std::pair("n", "long"), std::pair("o", "")})
    prices.entries.push_back({.name = name, .models = {std::string(name) + "-*"}, .input = 1, .cached = 0.1, .output = 1, .written = 1, .written_1h = 1, .cache_rule = rule});
  prices.rules = {{.name = "short", .min_tokens = 1, .step_tokens = 1, .retention_us = 60'000'000}, {.name = "long", .min_tokens = 1, .step_tokens = 1, .retention_us = kHourUs}};
  ReportOptions options;
  options.prices = &prices;
  const json::object found = report(*audit({file("log.jsonl")}), options);
  std::map<std::string, json::object> policies;
  for (const json::value& one : found.at("money").at("policies").as_array()) policies[std::string(text_of(one.at("policy")))] = one.as_object();
  const auto number = [&](const char* policy, const char* field) { return policies.at(policy).at(field).to_number<double>(); };
  EXPECT_EQ(number("rule_short", "read_tokens"), 0);
  EXPECT_GT(number("rule_long", "read_tokens"), 3 * 1500);
  EXPECT_EQ(number("providers", "read_tokens"), number("rule_long", "read_tokens") / 3);
  EXPECT_NEAR(number("providers", "saved"), number("rule_long", "saved") / 3, 1e-12);
  for (PriceEntry& entry : prices.entries) entry.cache_rule.clear();
  EXPECT_EQ(text_of(report(*audit({file("log.jsonl")}), options).at("money").at("policies").as_array().back().at("policy")), "rule_long");
}

TEST_F(Reports, TheTimelineHasEachRequestInItsBucket) {
  const json::array timeline = made(300'000, {}).at("timeline").as_array();
  ASSERT_EQ(timeline.size(), 48u);
  for (size_t b = 0; b < timeline.size(); ++b) {  // of 81.25 s each: the requests come at 0, 300 and 3,900 s
    EXPECT_EQ(timeline[b].at("time_ms").to_number<int64_t>(), kNovemberMs + static_cast<int64_t>(b) * 81'250);
    EXPECT_EQ(timeline[b].at("input_tokens").to_number<int64_t>(), b == 0 || b == 3 || b == 47 ? 1280 : 0) << b;
    EXPECT_EQ(timeline[b].at("hit_tokens").to_number<int64_t>(), b == 3 || b == 47 ? 1280 : 0) << b;
  }
}

TEST_F(Reports, ShardsWithAndWithoutTimesJoinToOneRun) {
  Rng rng(6);
  const std::string shared = words(rng, 1000);
  const auto log = [&](const std::string& name, int64_t first_ms) {
    std::vector<std::string> lines;
    for (int i = 0; i < 4; ++i) {
      json::object line{{"model", "m"}, {"prompt", shared + words(rng, 200)}};
      if (first_ms >= 0) line["time"] = iso(kNovemberMs + first_ms + i * 200'000);
      lines.push_back(json::serialize(line));
    }
    write_lines(file(name), lines);
    return file(name);
  };
  const std::string early = log("early.jsonl", 0), late = log("late.jsonl", 7'200'000), none = log("none.jsonl", -1);
  ReportOptions options;
  options.shard = true;
  for (const std::vector<std::string>& logs : {std::vector{none, early, late}, std::vector{early, none, late}, std::vector{early, late, none}}) {
    const auto whole = audit(logs);
    Audit joined({}, nullptr, nullptr);
    for (const std::string& one : logs) ASSERT_TRUE(add_shard(report(*audit({one}), options), joined));
    const json::object expected = report(*whole), found = report(joined);
    for (const char* key : {"tokens", "reuse", "routing", "timeline"}) EXPECT_EQ(json::serialize(found.at(key)), json::serialize(expected.at(key))) << key;
    EXPECT_EQ(found.at("input").at("span_seconds"), expected.at("input").at("span_seconds"));
  }
}

TEST_F(Reports, MoneyOfPoliciesByHand) {
  PriceTable prices;
  prices.entries = {{.name = "mine", .models = {"m-*"}, .input = 10, .cached = 1, .output = 50, .written = 12, .written_1h = 20}};
  ReportOptions options;
  options.prices = &prices;
  options.hardware = OwnHardware{36, 1000, 10};
  const json::object found = made(300'000, options);
  const json::object& money = found.at("money").as_object();
  const auto number = [](const json::value& value) { return value.to_number<double>(); };
  // The provider counted two tokens for each of ours: 3 * 2,560 in, all new; 300 out.
  EXPECT_DOUBLE_EQ(number(money.at("input_cost_today")), 7680 * 10 / 1e6);
  EXPECT_DOUBLE_EQ(number(money.at("output_cost_today")), 300 * 50 / 1e6);
  const double months = 3900.0 / (30 * 86400);
  EXPECT_NEAR(number(money.at("input_cost_today_per_month")), 0.0768 / months, 1e-9);
  std::map<std::string, json::object> policies;
  for (const json::value& one : money.at("policies").as_array()) policies[text_of(one.at("policy"))] = one.as_object();
  EXPECT_NEAR(number(policies["no_cache"].at("saved")), 0, 1e-12);
  EXPECT_NEAR(number(policies["retention_5m"].at("input_cost")), (5120 * 10 + 2560 * 1) / 1e6, 1e-12);
  EXPECT_NEAR(number(policies["retention_1h"].at("input_cost")), (2560 * 10 + 5120 * 1) / 1e6, 1e-12);
  EXPECT_NEAR(number(policies["retention_1h"].at("saved_share")), 5120.0 * 9 / 76800, 1e-12);
  // The best: the shortest that has all; with tenants apart one of two hits is left.
  const json::object& best = money.at("best").as_object();
  EXPECT_EQ(text_of(best.at("policy")), "retention_1h");
  EXPECT_NEAR(number(best.at("saved")), 5120 * 9 / 1e6, 1e-12);
  EXPECT_NEAR(number(best.at("saved_low")), 2560 * 9 / 1e6, 1e-12);
  EXPECT_NEAR(number(best.at("saved_high")), 5120 * 9 / 1e6, 1e-12);
  // Own hardware: a cent a second, 1,000 tokens in and 10 out a second, in our own tokens.
  const json::object& own = money.at("own_hardware").as_object();
  const json::object &without = own.at("without_cache").as_object(), &with = own.at("retention_1h").as_object();
  EXPECT_NEAR(number(without.at("cost")), 0.01 * (3.84 + 30), 1e-12);
  EXPECT_NEAR(number(with.at("cost")), 0.01 * (1.28 + 30), 1e-12);
  EXPECT_NEAR(number(with.at("cost_per_million_input_tokens")), 0.01 * 1.28 / 3840 * 1e6, 1e-9);
  EXPECT_NEAR(number(without.at("cost_per_million_output_tokens")), 0.01 * 30 / 300 * 1e6, 1e-9);
  EXPECT_NEAR(number(with.at("margin_per_accelerator_hour")), ((1280 * 10 + 2560 * 1 + 300 * 50) / 1e6 - 0.01 * 31.28) / (31.28 / 3600), 1e-6);
}

// --- what cannot be known is null, never 0

class LengthReports : public Reports {
 protected:
  // Azure's form: an hour, 7,000 tokens in, and two of three requests whose output is told.
  std::string azure() const {
    std::ofstream(file("azure.csv")) << "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-11-01 00:00:00.0000000,4000,10\n2026-11-01 00:10:00.0000000,2000,8\n"
                                        "2026-11-01 01:00:00.0000000,1000,\nbroken,row,\n";
    return file("azure.csv");
  }
};

TEST_F(LengthReports, TellRequestsTokensTimeAndMoneyWithoutACache) {
  PriceTable prices;
  prices.entries = {{.name = "mine", .models = {"m-*"}, .input = 10, .cached = 1, .output = 50, .written = 12, .written_1h = 20}};
  ReportOptions options;
  options.prices = &prices;
  options.price = "mine";
  options.hardware = OwnHardware{36, 1000, 10};
  const json::object found = report(*audit({azure()}), options);
  const json::object &input = found.at("input").as_object(), &tokens = found.at("tokens").as_object();
  EXPECT_EQ(input.at("requests").to_number<int>(), 3);
  EXPECT_EQ(json::serialize(input.at("lengths_only")), R"({"requests":3,"input_tokens":7000,"output_tokens":18,"without_time":0,"wrong_clock":0})");
  EXPECT_EQ(json::serialize(input.at("by_format")), R"({"lengths":3})");
  EXPECT_EQ(input.at("skipped").at("a CSV row that does not fit its header").to_number<int>(), 1);
  EXPECT_EQ(input.at("first_time_ms").to_number<int64_t>(), kNovemberMs);
  EXPECT_EQ(input.at("last_time_ms").to_number<int64_t>(), kNovemberMs + 3'600'000);
  EXPECT_EQ(input.at("span_seconds").to_number<double>(), 3600);
  EXPECT_EQ(tokens.at("input").to_number<int64_t>(), 7000);
  EXPECT_EQ(tokens.at("output").to_number<int64_t>(), 18);
  for (const char* key : {"in_blocks", "distinct"}) EXPECT_TRUE(tokens.at(key).is_null()) << key;
  EXPECT_EQ(json::serialize(tokens.at("logged")), R"({"requests":3,"input":7000,"cached":null,"hit_rate":null})");
  EXPECT_EQ(json::serialize(found.at("reuse").at("unlimited")), R"({"hit_tokens":null,"hit_rate":null})");
  EXPECT_TRUE(found.at("reuse").at("by_retention").as_object().empty());
  EXPECT_TRUE(found.at("repetition").at("other_share").is_null());
  for (const char* key : {"breakers", "per_tenant"}) EXPECT_TRUE(found.at(key).is_null()) << key;
  int64_t sum = 0;
  const json::array& timeline = found.at("timeline").as_array();
  EXPECT_GE(timeline.size(), 24u);
  EXPECT_LE(timeline.size(), 48u);
  for (const json::value& bucket : timeline) {
    sum += bucket.at("input_tokens").to_number<int64_t>();
    EXPECT_TRUE(bucket.at("hit_tokens").is_null());
  }
  EXPECT_EQ(sum, 7000);
  const json::object& money = found.at("money").as_object();
  EXPECT_DOUBLE_EQ(money.at("input_cost_today").to_number<double>(), 7000 * 10 / 1e6);
  EXPECT_DOUBLE_EQ(money.at("output_cost_today").to_number<double>(), 18 * 50 / 1e6);
  EXPECT_NEAR(money.at("input_cost_today_per_month").to_number<double>(), 0.07 * 30 * 24, 1e-9);
  ASSERT_EQ(money.at("policies").as_array().size(), 1u);
  EXPECT_EQ(text_of(money.at("policies").at(0).at("policy")), "no_cache");
  EXPECT_FALSE(money.contains("best"));
  EXPECT_NEAR(money.at("own_hardware").at("without_cache").at("cost").to_number<double>(), 0.01 * (7 + 1.8), 1e-12);
  EXPECT_FALSE(money.at("own_hardware").as_object().contains("retention_unlimited"));
  const std::string text = summary_text(found);
  EXPECT_NE(text.find("3 requests from 1 file, 7.00 k input tokens over 60 min (counted by the log)"), std::string::npos) << text;
  EXPECT_NE(text.find("Repeated prefixes: not known. The log tells lengths only"), std::string::npos) << text;
  EXPECT_NE(text.find("Input costs $50.40 a month, all of it as new"), std::string::npos) << text;
  EXPECT_EQ(text.find("0.00 %"), std::string::npos) << text;
}

// What caches found is known from token counts alone, where the log has them: gateways that keep no prompts.
TEST_F(LengthReports, GatewaysWithoutPromptsTellWhatCachesFound) {
  const json::object usage{{"prompt_tokens", 1000}, {"completion_tokens", 5}, {"prompt_tokens_details", json::object{{"cached_tokens", 400}}}};
  write_lines(file("gateways.jsonl"),
              {json::serialize(json::object{{"call_type", "acompletion"}, {"startTime", iso(kNovemberMs)}, {"model", "m-1"}, {"messages", json::object()}, {"spend", 0.1}, {"usage", usage}}),
               json::serialize(json::object{{"endpoint", "chat"}, {"e2e_ms", 3}, {"time", iso(kNovemberMs)}, {"model", "m-2"}, {"prompt_tokens", 500}, {"cached_tokens", 100}}),
               R"({"spans":[{"startTimeUnixNano":"1793491200000000000","attributes":[{"key":"gen_ai.request.model","value":{"stringValue":"m-1"}},{"key":"gen_ai.usage.input_tokens","value":{"intValue":"500"}}]}]})",
               json::serialize(json::object{{"call_type", "acompletion"}, {"startTime", iso(kNovemberMs)}, {"model", "m-1"}, {"messages", json::object()}})});
  const json::object found = report_of(file("gateways.jsonl"));
  EXPECT_EQ(json::serialize(found.at("input").at("by_format")), R"({"litellm":1,"otel":1,"deepinfer":1})");
  EXPECT_EQ(json::serialize(found.at("input").at("skipped")), R"({"a request whose prompt was not logged":1})");
  EXPECT_EQ(json::serialize(found.at("tokens").at("logged")), R"({"requests":3,"input":2000,"cached":500,"hit_rate":2.5E-1})");
  EXPECT_EQ(json::serialize(found.at("tokens").at("by_model")), R"([{"model":"m-1","input":1500,"hit_tokens":null},{"model":"m-2","input":500,"hit_tokens":null}])");
}

TEST_F(LengthReports, ShardsOfLengthsAndPromptsJoinToOneRun) {
  std::vector<std::string> lines;
  for (int i = 0; i < 5; ++i) lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + i * 100'000)}, {"model", "m"}, {"prompt", std::string(500, 'x')}}));
  write_lines(file("prompts.jsonl"), lines);
  write_lines(file("more.jsonl"), {R"({"timestamp":"2026-10-01T00:00:00Z","model":"m","input_tokens":70,"output_tokens":3})", R"({"model":"n","input_tokens":30})",
                                   R"({"timestamp":"1970-01-02T00:00:00Z","model":"n","input_tokens":5})", R"({"timestamp":"2300-01-02T00:00:00Z","model":"n","input_tokens":6})"});
  ReportOptions options;
  options.shard = true;
  const auto joined = [&](const std::vector<std::string>& logs) {
    Audit out({}, nullptr, nullptr);
    for (const std::string& one : logs) EXPECT_TRUE(add_shard(report(*audit({one}), options), out));
    return json::serialize(report(out));
  };
  const std::string lengths[] = {azure(), file("more.jsonl")};
  EXPECT_EQ(joined({lengths[0], lengths[1]}), json::serialize(report(*audit({lengths[0], lengths[1]}))));
  const auto both = audit({lengths[0], lengths[1]});
  EXPECT_EQ(both->lengths().num_wrong_clock(), 2);
  EXPECT_EQ(both->lengths().num_without_time(), 1);
  EXPECT_EQ(both->lengths().times().first_us(), 1'790'812'800'000'000);
  const json::object mixed = report(*audit({lengths[0], file("prompts.jsonl"), lengths[1]}));
  EXPECT_EQ(mixed.at("input").at("requests").to_number<int>(), 5);
  EXPECT_EQ(mixed.at("input").at("lengths_only").at("input_tokens").to_number<int>(), 7111);
  EXPECT_EQ(mixed.at("tokens").at("input").to_number<int>(), 2500) << "of prompts alone: lengths in it would make the hit rate too small";
  for (const std::vector<std::string>& order : {std::vector{lengths[0], file("prompts.jsonl"), lengths[1]}, std::vector{file("prompts.jsonl"), lengths[1], lengths[0]}}) {
    json::object found = json::parse(joined(order)).as_object();
    EXPECT_EQ(json::serialize(found.at("input").at("lengths_only")), json::serialize(mixed.at("input").at("lengths_only")));
    EXPECT_EQ(json::serialize(found.at("tokens")), json::serialize(mixed.at("tokens")));
  }
}

// Times since a trace's own beginning are times; beside clocks they are wrong ones.
TEST_F(LengthReports, ATraceMayCountFromItsOwnBeginning) {
  std::ofstream(file("burst.csv")) << "Timestamp,Model,input_tokens,output_tokens\n5,gpt-5,100,1\n65,gpt-5,300,1\n";
  const json::object found = report_of(file("burst.csv"));
  EXPECT_EQ(found.at("input").at("span_seconds").to_number<double>(), 60);
  EXPECT_EQ(text_of(found.at("tokens").at("by_model").at(0).at("model")), "gpt-5");
  std::ofstream(file("named.csv")) << "when,time,input_tokens,output_tokens\n2026-11-01T00:00:00Z,5,100,1\n2026-11-01T00:02:00Z,5,300,1\n";
  AuditOptions options;
  options.parser.time_field = "when";
  EXPECT_EQ(report_of(file("named.csv"), options).at("input").at("span_seconds").to_number<double>(), 120);
}

// A comma in quotes parts no cells: the next column's number is not the count.
TEST_F(LengthReports, ACellInQuotesMayHoldCommasAndQuotes) {
  std::ofstream(file("quoted.csv")) << "\"name\",model,\"prompt_tokens\",TIMESTAMP,completion_tokens\r\n"
                                    << "\"a,17\",gpt-5,\"100\",\"2026-11-01T00:00:00Z\",1\r\n"
                                    << "\"say \"\"hi, 5\"\", 7\",gpt-5,300,2026-11-01T00:01:00Z,2\n"
                                    << "\"\",gpt-5 , 500 ,2026-11-01T00:02:00Z,3\n"
                                    << "\"not closed,gpt-5,700,2026-11-01T00:03:00Z,4\n";
  const json::object found = report_of(file("quoted.csv"));
  EXPECT_EQ(found.at("tokens").at("input").to_number<int>(), 900);
  EXPECT_EQ(found.at("tokens").at("output").to_number<int>(), 6);
  EXPECT_EQ(found.at("tokens").at("by_model").as_array().size(), 1u);
  EXPECT_EQ(found.at("input").at("skipped").at(skip_reason(Skip::kBadCsv)).to_number<int>(), 1);
  EXPECT_EQ(found.at("input").at("span_seconds").to_number<double>(), 120);
}

TEST(TimeBuckets, DependOnTheTimesAloneAndAreFew) {
  Rng rng(12);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<int64_t, int64_t>> all;
    const int64_t span = int64_t{1} << (1 + rng.below(50));
    for (uint64_t n = 1 + rng.below(200); n > 0; --n) all.emplace_back(kNovemberMs * 1000 + static_cast<int64_t>(rng.below(static_cast<uint64_t>(span))), static_cast<int64_t>(rng.below(1000)));
    TimeBuckets forward, backward, halves[2], joined;
    int64_t sum = 0, expected = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      forward.add(all[i].first, all[i].second);
      backward.add(all[all.size() - 1 - i].first, all[all.size() - 1 - i].second);
      halves[i % 2].add(all[i].first, all[i].second);
      expected += all[i].second;
    }
    for (const TimeBuckets& half : halves) joined.append(half);
    for (const auto& [bucket, tokens] : forward.tokens()) sum += tokens;
    EXPECT_EQ(sum, expected);
    EXPECT_LE(forward.last_us() / forward.width_us() - forward.first_us() / forward.width_us(), 47);
    const std::string written = json::serialize(forward.encode());
    EXPECT_EQ(json::serialize(backward.encode()), written);
    EXPECT_EQ(json::serialize(joined.encode()), written);
    const auto decoded = TimeBuckets::decode(forward.encode());
    ASSERT_TRUE(decoded);
    EXPECT_EQ(json::serialize(decoded->encode()), written);
  }
}

// A sample that may be wrong by more than the stated limit gives no rate, nor what is made of rates, and says which sample would.
TEST_F(Reports, ASampleTooSmallGivesNoRate) {
  Rng rng(13);
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i) lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + i * 60'000)}, {"model", "m-1"}, {"prompt", words(rng, 2000)}}));
  write_lines(file("log.jsonl"), lines);
  PriceTable prices;
  prices.entries = {{.name = "mine", .models = {"m-*"}, .input = 10, .cached = 1, .output = 50, .written = 10, .written_1h = 10}};
  prices.rules = {{.name = "any", .retention_us = 1}};
  ReportOptions reporting;
  reporting.prices = &prices;
  const auto at_rate = [&](double rate) {
    AuditOptions options;
    options.sample_rate = rate;
    return report(*audit({file("log.jsonl")}, options), reporting);
  };
  const json::object wide = at_rate(0.01);  // some 62 of 6,200 blocks: three standard errors are 38 points
  const json::object& hits = wide.at("reuse").at("unlimited").as_object();
  EXPECT_TRUE(hits.at("hit_rate").is_null());
  EXPECT_TRUE(hits.at("hit_tokens").is_null());
  EXPECT_GT(hits.at("hit_rate_error").to_number<double>(), 0.1);
  EXPECT_TRUE(wide.at("reuse").at("by_retention").at("1h").at("hit_rate").is_null());
  EXPECT_TRUE(wide.at("reuse").at("distance").as_array().empty());
  EXPECT_TRUE(wide.at("repetition").at("prefix_share").is_null());
  EXPECT_TRUE(wide.at("tokens").at("distinct").is_null());
  EXPECT_EQ(wide.at("money").at("policies").as_array().size(), 1u);
  EXPECT_FALSE(wide.at("money").as_object().contains("best"));
  EXPECT_TRUE(wide.at("timeline").at(0).at("hit_tokens").is_null());
  const double suggested = wide.at("sampling").at("suggested_rate").to_number<double>();
  EXPECT_GT(suggested, 0.08);
  EXPECT_LT(suggested, 0.5);
  const std::string text = summary_text(wide);
  EXPECT_NE(text.find("more than the 10 up to which a rate is given"), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format("--sample {:.0f}%", suggested * 100)), std::string::npos) << text;

  const json::object few = at_rate(0.001);  // of six blocks not even the error is known
  EXPECT_TRUE(few.at("reuse").at("unlimited").at("hit_rate").is_null());
  EXPECT_TRUE(few.at("reuse").at("unlimited").at("hit_rate_error").is_null());
  EXPECT_NE(summary_text(few).find("Leave --sample out"), std::string::npos);

  const json::object enough = at_rate(1.3 * suggested);
  EXPECT_LE(enough.at("reuse").at("unlimited").at("hit_rate_error").to_number<double>(), 0.1);
  EXPECT_NEAR(enough.at("reuse").at("unlimited").at("hit_rate").to_number<double>(), 0.03, 0.1);
  EXPECT_TRUE(enough.at("sampling").at("suggested_rate").is_null());
  EXPECT_TRUE(enough.at("money").as_object().contains("best"));
}

// What edits cost and what is repeated elsewhere is counted from the texts: a sample of the prefixes must not change it.
TEST_F(Reports, ASampleLeavesBreakersAndRepetitionAsTheyAre) {
  Rng rng(14);
  const std::string document = words(rng, 4000), rules = words(rng, 1500);
  std::vector<std::string> lines;
  for (int i = 0; i < 60; ++i) {
    json::array messages{json::object{{"role", "system"}, {"content", fmt::format("{}{}", i % 10 == 9 ? "Call 7. " : "Call 8. ", rules)}}};
    for (int turn = 0; turn <= i % 5; ++turn) {
      Rng of_turn(static_cast<uint64_t>(i / 5 * 100 + turn));
      if (turn > 0) messages.push_back(json::object{{"role", "assistant"}, {"content", words(of_turn, 700)}});
      messages.push_back(json::object{{"role", "user"}, {"content", words(of_turn, 300) + (turn == 1 ? document : "")}});
    }
    lines.push_back(json::serialize(json::object{{"time", iso(kNovemberMs + i * 60'000)}, {"session_id", fmt::format("s{}", i / 5)}, {"body", json::object{{"model", "m"}, {"messages", std::move(messages)}}}}));
  }
  write_lines(file("log.jsonl"), lines);
  const json::object exact = report_of(file("log.jsonl"));
  EXPECT_GT(exact.at("repetition").at("other_tokens").to_number<int64_t>(), 4000);
  EXPECT_FALSE(exact.at("breakers").as_array().empty());
  for (const double rate : {0.5, 0.1, 0.01}) {
    AuditOptions options;
    options.sample_rate = rate;
    const json::object sample = report_of(file("log.jsonl"), options);
    EXPECT_EQ(sample.at("repetition").at("other_tokens"), exact.at("repetition").at("other_tokens")) << rate;
    EXPECT_EQ(json::serialize(sample.at("breakers")), json::serialize(exact.at("breakers"))) << rate;
  }
}

// What is kept of a request is small, but logs are long: beyond the memory requests are counted and said to be left out, and prefixes make
// room for those before.
TEST_F(Reports, RequestsTakeTheirMemoryFromPrefixes) {
  constexpr size_t kLines = 50'000;
  std::vector<std::string> lines;
  Rng rng(15);
  for (size_t i = 0; i < kLines; ++i) {
    lines.push_back(json::serialize(json::object{{"model", "m"}, {"session_id", std::to_string(i)}, {"prompt", i % 2 == 0 ? "short" : words(rng, 64 * (1 + i % 3))}}));
  }
  write_lines(file("log.jsonl"), lines);
  AuditOptions options;
  options.memory_bytes = 8 << 20;  // of which an eighth of three eighths stays for prefixes: 8,192 blocks of 48 bytes
  const auto found = audit({file("log.jsonl")}, options);
  const size_t most = options.memory_bytes * 3 / 8 * 7 / 8 / sizeof(TracedRequest);
  EXPECT_LE(found->trace()->requests.size(), most);
  EXPECT_GE(found->trace()->requests.size(), most - 10);
  EXPECT_EQ(found->trace()->requests.size() + found->input().skipped[static_cast<size_t>(Skip::kBeyondMemory)], kLines);
  EXPECT_LE(found->trace()->tree.nodes().size(), 8200u);
  EXPECT_TRUE(found->trace()->tree.sampled());
  EXPECT_NE(summary_text(report(*found)).find("more requests than the memory holds"), std::string::npos);
}

TEST(BreakerMemory, TheLeastCostlyOfManyAreForgotten) {
  BreakFinder finder({});
  for (int64_t i = 0; i < 20'000; ++i) {
    Breaker one;
    one.segment = fmt::format("s{}", i);
    one.lost_tokens = i * 7919 % 20'000;
    finder.append(one);
  }
  const std::vector<Breaker> ranked = finder.ranked();
  EXPECT_LE(ranked.size(), 4096u);
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(ranked[static_cast<size_t>(i)].lost_tokens, 19'999 - i);
}

// --- prices

TEST_F(Reports, ModelsWithoutAPriceAreNamedWithTheirShare) {
  const auto line = [](const char* model, size_t tokens) { return json::serialize(json::object{{"model", model}, {"prompt", std::string(tokens, 'x')}}); };
  write_lines(file("log.jsonl"), {line("m-1", 700), line("gpt-unheard-of", 200), line("other", 100)});
  PriceTable prices;
  prices.entries = {{.name = "mine", .models = {"m-*"}, .input = 10, .cached = 1, .output = 50, .written = 10, .written_1h = 10}};
  ReportOptions options;
  options.prices = &prices;
  const json::object found = report(*audit({file("log.jsonl")}), options);
  EXPECT_EQ(json::serialize(found.at("money").at("unpriced_models")), R"(["gpt-unheard-of","other"])");
  EXPECT_NEAR(found.at("money").at("input_cost_today").to_number<double>(), 700 * 10 / 1e6, 1e-12);
  EXPECT_NE(summary_text(found).find("No price for gpt-unheard-of, other (30.00 % of the input), which no sum counts"), std::string::npos) << summary_text(found);
}

TEST(PriceTable, ASnapshotIsPricedAsItsModelUnlessItHasAnEntry) {
  PriceTable prices;
  prices.entries = {{.name = "old", .models = {"gpt-5-2025-01-01"}}, {.name = "five", .models = {"*gpt-5"}}, {.name = "pro", .models = {"*gpt-5-pro*"}}, {.name = "opus", .models = {"*claude-opus-5"}}};
  const auto name = [&](const char* model) { return prices.find(model) != nullptr ? prices.find(model)->name : "none"; };
  EXPECT_EQ(name("gpt-5"), "five");
  EXPECT_EQ(name("openai/gpt-5-2025-08-07"), "five");
  EXPECT_EQ(name("gpt-5-2025-01-01"), "old");
  EXPECT_EQ(name("gpt-5-pro-2025-10-06"), "pro");
  EXPECT_EQ(name("gpt-5-mini"), "none");
  EXPECT_EQ(name("claude-opus-5-20260801"), "opus");
  EXPECT_EQ(name("claude-opus-5@20260801"), "opus");
  EXPECT_EQ(name("anthropic.claude-opus-5-20260801-v1:0"), "opus");
  EXPECT_EQ(name("claude-opus-5-5"), "none");
  EXPECT_EQ(name("-20260801"), "none");
}

}  // namespace
}  // namespace deepinfer::trace
