// For the tests of this folder: audits logs with the byte tokenizer in DeepSeek's layout.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "recipe/dialect.h"
#include "temp_folder.h"
#include "trace/report.h"
#include "trace/request_body.h"
#include "trace_log.h"

namespace deepinfer::trace {

class AuditFixture : public testing::Test {
 protected:
  AuditFixture() {
    auto made = recipe::make_dialect_renderer(recipe::Dialect::kV4, tokenizer_);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    renderer_ = std::move(made).value();
    folder_ = temp_folder() + "audit_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~AuditFixture() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  std::unique_ptr<Audit> audit(const std::vector<std::string>& paths, AuditOptions options = {}) const {
    auto out = std::make_unique<Audit>(options, &tokenizer_, renderer_.get());
    out->read(paths);
    return out;
  }

  json::object report(const Audit& audit, ReportOptions options = {}) const {
    options.tokenizer_name = "bytes";
    auto made = make_report(audit, options);
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : json::object();
  }

  json::object report_of(const std::string& path, AuditOptions options = {}) const { return report(*audit({path}, options)); }

  // The tokens of a Chat Completions body as the audit counts them, by the recipe layer alone.
  std::vector<TokenId> tokens(const json::object& body) const {
    const std::string text = json::serialize(body);
    simdjson::dom::parser parser;
    LogRecord record;
    Json value;
    EXPECT_EQ(parser.parse(text).get(value), simdjson::SUCCESS);
    EXPECT_TRUE(read_body(value, LogFormat::kChat, record));
    recipe::Conversation& conversation = std::get<recipe::Conversation>(record.prompt);
    conversation.effort = recipe::Effort::kLow;
    const auto prompt = renderer_->render(conversation);
    EXPECT_TRUE(prompt);
    return prompt ? recipe::prompt_tokens(*prompt, tokenizer_) : std::vector<TokenId>();
  }

  recipe::FakeTokenizer tokenizer_ = byte_tokenizer();
  std::unique_ptr<recipe::PromptRenderer> renderer_;
  std::string folder_;
};

// 2026-11-01T00:00:00Z.
constexpr int64_t kNovemberMs = 1'793'491'200'000;

inline std::string iso(int64_t unix_ms) {
  const int64_t ms = unix_ms - kNovemberMs, s = ms / 1000;
  return fmt::format("2026-11-{:02}T{:02}:{:02}:{:02}.{:03}Z", 1 + s / 86400, s / 3600 % 24, s / 60 % 60, s % 60, ms % 1000);
}

}  // namespace deepinfer::trace
