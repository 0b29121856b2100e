// engine/collect.h: a sink that keeps what comes and checks the contract of core/inference.h as it comes.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/inference.h"
#include "eventually.h"

namespace deepinfer::engine {

struct ChoiceResult {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;  // the token's and the top ones, in order of arrival
  std::optional<FinishReason> finished;
  Usage usage;
  std::string message;

  // Same bits; how much was cached, and how it ended, may differ.
  bool same_output(const ChoiceResult& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           (logprobs.empty() || std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0);
  }
};

class Collect final : public EventSink {
 public:
  explicit Collect(int32_t n = 1) : choices(static_cast<size_t>(n)) {}

  void on_event(const TokenEvent& event) override {
    std::lock_guard lock(mu_);
    ASSERT_LT(static_cast<size_t>(event.choice), choices.size());
    ChoiceResult& choice = choices[static_cast<size_t>(event.choice)];
    ASSERT_FALSE(choice.finished) << "an event after the end";
    if (event.has_token) {
      choice.tokens.push_back(event.token);
      if (event.num_top > 0) choice.logprobs.push_back(event.logprob);
      for (int32_t i = 0; i < event.num_top; ++i) choice.logprobs.push_back(event.top[static_cast<size_t>(i)].logprob);
    } else {
      ASSERT_TRUE(event.finished);
    }
    ASSERT_EQ(event.usage.completion_tokens, static_cast<int32_t>(choice.tokens.size()));
    choice.usage = event.usage;
    choice.finished = event.finished;
    choice.message = event.message;
    num_events += 1;
    changed_.notify_all();
  }

  bool done() {
    std::lock_guard lock(mu_);
    return all_finished();
  }
  // False after a minute: a test then fails instead of hanging.
  bool wait() {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return all_finished(); });
  }
  bool wait_for_end(size_t choice) {
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return choices[choice].finished.has_value(); });
  }
  int64_t count() {
    std::lock_guard lock(mu_);
    return num_events;
  }
  bool wait_for_events(int64_t count) {  // or the end
    std::unique_lock lock(mu_);
    return changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return num_events >= count || all_finished(); });
  }

  std::vector<ChoiceResult> choices;
  int64_t num_events = 0;

 private:
  bool all_finished() const {
    for (const ChoiceResult& choice : choices) {
      if (!choice.finished) return false;
    }
    return true;
  }
  std::mutex mu_;
  std::condition_variable changed_;
};

}  // namespace deepinfer::engine
