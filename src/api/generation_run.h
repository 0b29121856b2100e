// Submits one generation and carries its tokens to the client: as a stream of frames or as one answer. Lives inside the coroutine of
// its connection. Whatever happens, the engine's request is ended: when the client goes away or reads too slowly it is cancelled at
// once, and the destructor cancels what is still open.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <vector>

#include "api/connection.h"
#include "api/mailbox.h"
#include "api/prepare.h"

namespace deepinfer::api {

class GenerationRun {
 public:
  // record: filled in along the way. arrived: when the request's first byte was there.
  GenerationRun(Connection& connection, Generation generation, Framing framing, Headers headers, ErrorShape shape, Connection::Time arrived,
                RequestRecord& record);
  ~GenerationRun();
  GenerationRun(const GenerationRun&) = delete;
  GenerationRun& operator=(const GenerationRun&) = delete;

  // True: everything was sent and the connection can take another request.
  asio::awaitable<bool> run();

 private:
  struct Choice {
    recipe::OutputParser parser;
    bool ended = false;       // the engine's end event came
    int64_t last_token_ns = 0;
  };

  bool all_ended() const { return num_ended_ == static_cast<int32_t>(choices_.size()); }
  void collect();
  void on_event(const TimedEvent& timed);
  void note_token(Choice& choice, int64_t at_ns);
  void cancel();
  void abandon(std::string_view reason);  // the client gets nothing more
  asio::awaitable<bool> refuse(const ApiError& error);
  asio::awaitable<void> report_failure();
  asio::awaitable<bool> send_frames(bool last);  // last: ends the stream
  asio::awaitable<bool> finish();
  asio::awaitable<void> keep();          // the finished answer, if it is to be kept
  Connection::Time next_deadline() const;
  void finish_record();

  Connection& connection_;
  Service& service_;
  Generation generation_;
  const Framing framing_;
  const Headers headers_;
  const ErrorShape shape_;
  const Connection::Time arrived_;
  RequestRecord& record_;

  std::shared_ptr<Mailbox> mailbox_;
  std::unique_ptr<recipe::Answer> answer_;
  LiveResponses::Entry live_;            // Responses only
  std::vector<Choice> choices_;
  RequestId id_ = 0;
  int32_t num_ended_ = 0;
  Usage first_usage_;  // of the first choice, as of its latest event: what was cached is known with the first token
  bool begun_ = false, cancelled_ = false, discarding_ = false, head_sent_ = false;
  Connection::Time last_sent_;
  std::string frames_;  // made, not yet written
  std::vector<TimedEvent> events_;              // scratch
  std::vector<recipe::OutputEvent> outputs_;    // scratch
  int64_t first_token_ns_ = 0;
  int64_t num_intervals_ = 0;
  double interval_sum_s_ = 0;
};

}  // namespace deepinfer::api
