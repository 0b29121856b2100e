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

}  // namespace
}  // namespace deepinfer::trace
