// engine/mask_worker.h: the masks of a step's constrained rows, computed while the model runs. What may come next depends on accepted
// tokens alone, so a mask can be computed as soon as it is known which rows a step samples.
//
// One thread for all of them; it sleeps where no row is constrained. What it has not begun when a row is sampled is computed by the thread that
// samples it, so nobody waits for more than one mask in progress. Where the forward pass leaves it no processor, there is no such thread: it
// would interrupt one of the pass's, for which all others wait, and the threads that sample share the masks as they share the rows.
// Which thread computes a mask changes none of its bits. After construction nothing here allocates (the grammar engine does).
//
// A row is offered once and taken once a step, and its matcher is left alone in between.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "grammar/grammar.h"

namespace deepinfer::engine {

class MaskWorker {
 public:
  // beside: whether there is a processor for a thread beside those that run the model.
  MaskWorker(int32_t max_rows, int32_t vocab_size, bool beside);
  ~MaskWorker();
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // Asks for a row's mask. The thread that runs the steps; start() once behind the last of a step.
  void offer(int32_t row, grammar::Matcher& matcher);
  void start();
  // A row that was offered. Any thread. Nothing: the matcher gave up. Valid until the row is offered again.
  std::optional<std::span<const uint32_t>> take(int32_t row);

 private:
  enum class State : int32_t { kIdle, kOffered, kRunning, kReady, kFailed };
  struct Row {
    std::atomic<State> state{State::kIdle};
    grammar::Matcher* matcher = nullptr;  // while offered or running
  };

  std::span<uint32_t> bits(size_t row) const { return {bits_.get() + row * num_words_, num_words_}; }
  bool compute(size_t row);  // false: not offered, or another thread has it
  void run();

  const size_t num_words_;
  std::vector<Row> rows_;
  const std::unique_ptr<uint32_t[]> bits_;  // [rows, num_words]; pages are touched only as far as rows are constrained
  std::atomic<uint32_t> epoch_{0};          // one more for each start()
  std::atomic<bool> stop_{false};
  std::thread thread_;                      // none where there is no processor for it
};

}  // namespace deepinfer::engine
