// One answer from an Inference, on the caller's thread: text as it comes, the end with its figures. For `run` and tools; the server
// has its own, which does not block.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "core/inference.h"
#include "recipe/output.h"

namespace deepinfer::apps {

// Events from the engine's thread to the one that waits. It holds what the engine made and the reader did not take yet: at most
// max_tokens events of the one request.
class EventQueue final : public EventSink {
 public:
  void on_event(const TokenEvent& event) override;
  // The next event; nothing after `timeout_ms` without one.
  std::optional<TokenEvent> pop(int32_t timeout_ms);

 private:
  Mutex mu_;
  std::condition_variable_any arrived_;
  std::deque<TokenEvent> events_ GUARDED_BY(mu_);
};

struct Generated {
  std::string reasoning, content;
  recipe::OutputEvent end;      // kFinished
  double ttft_s = 0, total_s = 0;
  double decode_tokens_per_s() const;  // 0 for fewer than two tokens
};

struct GenerateHooks {
  std::function<void(std::string_view text, bool reasoning)> on_text;
  std::function<bool()> cancelled;  // asked some 20 times a second
};

// `request` has one choice. Errors: those of submit(); kInternal (the request failed in the engine).
Result<Generated> generate(Inference& inference, const tokenizer::Tokenizer& tokenizer, Request request, recipe::OutputOptions output,
                           const GenerateHooks& hooks, const Clock& clock);

}  // namespace deepinfer::apps
