// engine/rate_meter.h: how fast steps have been lately, and from that how long a queue will take. A value type without a clock: the
// engine feeds it durations.
#pragma once

#include <algorithm>
#include <cstdint>

namespace deepinfer::engine {

class RateMeter {
 public:
  void record_step(double seconds, int32_t num_decode_rows, int32_t num_prefill_rows) {
    if (num_prefill_rows == 0) {
      blend(decode_step_s_, seconds);
    } else {  // what the step took beyond its decodes
      const double decodes = num_decode_rows > 0 ? decode_step_s_ : 0;
      blend(prefill_row_s_, std::max(0.0, seconds - decodes) / num_prefill_rows);
    }
  }
  double prefill_seconds_per_token() const { return prefill_row_s_; }  // 0: nothing measured yet
  void record_sequence(int32_t num_output_tokens) { blend(output_tokens_, num_output_tokens); }

  struct Queue {
    int64_t num_prefill_tokens;  // still to compute, of all that is running or waiting
    int32_t num_sequences;       // running or waiting
    int32_t max_num_sequences;   // that may run at a time
  };
  // When a request submitted now could begin: the prompts ahead of it are computed, and as many sequences have ended as stand between
  // it and a place. Each place is taken, on average, half the mean length longer for the first round and all of it for further ones.
  double queue_seconds(const Queue& queue) const {
    const double prompts = static_cast<double>(queue.num_prefill_tokens) * prefill_row_s_;
    const int32_t num_ahead = queue.num_sequences + 1 - queue.max_num_sequences;
    if (num_ahead <= 0) return prompts;
    const double sequence_s = output_tokens_ * decode_step_s_;
    return prompts + sequence_s * std::max(0.5, static_cast<double>(num_ahead) / queue.max_num_sequences);
  }

 private:
  // An exponential mean over about the last 16 values; the first value stands for itself.
  static void blend(double& mean, double value) { mean += (value - mean) * (mean == 0 ? 1 : 1.0 / 16); }

  double decode_step_s_ = 0, prefill_row_s_ = 0, output_tokens_ = 0;
};

}  // namespace deepinfer::engine
