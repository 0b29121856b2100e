#include "apps/generate.h"

#include <chrono>
#include <vector>

#include "base/check.h"

namespace deepinfer::apps {

void EventQueue::on_event(const TokenEvent& event) {
  {
    const MutexLock lock(mu_);
    events_.push_back(event);
  }
  arrived_.notify_one();
}

std::optional<TokenEvent> EventQueue::pop(int32_t timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(mu_);
  while (events_.empty())
    if (arrived_.wait_until(mu_, deadline) == std::cv_status::timeout) break;
  if (events_.empty()) return std::nullopt;
  TokenEvent event = events_.front();
  events_.pop_front();
  return event;
}

double Generated::decode_tokens_per_s() const {
  return end.usage.completion_tokens > 1 && total_s > ttft_s ? (end.usage.completion_tokens - 1) / (total_s - ttft_s) : 0;
}

Result<Generated> generate(Inference& inference, const tokenizer::Tokenizer& tokenizer, Request request, recipe::OutputOptions output,
                           const GenerateHooks& hooks, const Clock& clock) {
  constexpr int32_t kPollMs = 50;
  CHECK(request.n == 1);
  const auto queue = std::make_shared<EventQueue>();
  const int64_t begin = clock.now_ns();
  const auto since_begin = [&] { return static_cast<double>(clock.now_ns() - begin) / 1e9; };
  DI_TRY(const RequestId id, inference.submit(std::move(request), queue));

  recipe::OutputParser parser(tokenizer, std::move(output));
  Generated out;
  std::vector<recipe::OutputEvent> visible;
  for (bool finished = false, cancelled = false; !finished;) {
    if (!cancelled && parser.stopped()) {
      inference.cancel_choice(id, 0);  // an answer that met its stop string is finished, not cancelled
      cancelled = true;
    } else if (!cancelled && hooks.cancelled && hooks.cancelled()) {
      inference.cancel(id);
      cancelled = true;
    }
    const std::optional<TokenEvent> event = queue->pop(kPollMs);
    if (!event) continue;
    if (event->has_token && out.ttft_s == 0) out.ttft_s = since_begin();
    visible.clear();
    parser.push(*event, visible);
    for (recipe::OutputEvent& v : visible) {
      if (v.kind == recipe::OutputEvent::Kind::kFinished) {
        finished = true;
        out.end = std::move(v);
        continue;
      }
      const bool reasoning = v.kind == recipe::OutputEvent::Kind::kReasoning;
      (reasoning ? out.reasoning : out.content) += v.text;
      if (hooks.on_text) hooks.on_text(v.text, reasoning);
    }
  }
  out.total_s = since_begin();
  if (out.end.reason == FinishReason::kError) return Error{Code::kInternal, out.end.error};
  return out;
}

}  // namespace deepinfer::apps
