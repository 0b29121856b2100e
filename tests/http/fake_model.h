// A model that a test can predict: bytes are tokens, the template is four lines, and the engine says what a script tells it to say,
// one token of every choice a step, on a thread of its own as the real one does.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/inference.h"
#include "recipe/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer::testing_support {

constexpr TokenId kStart = 256, kEnd = 257, kThink = 258, kEndThink = 259;
constexpr int32_t kFakeVocabSize = 260;
constexpr TokenId kImage = 255;  // a byte that no text has

class FakeTokenizer final : public tokenizer::Tokenizer {
 public:
  FakeTokenizer() {
    for (int i = 0; i < 256; ++i) bytes_.push_back(std::string(1, static_cast<char>(i)));
    for (const char* name : {"<|start|>", "<|end|>", "<think>", "</think>"}) {
      added_.push_back({.id = static_cast<TokenId>(bytes_.size()), .spelling = name, .special = true});
      bytes_.push_back(name);
    }
  }

  void encode(std::string_view text, tokenizer::Recognize recognize, std::vector<TokenId>& out) const override {
    num_encoded_bytes += text.size();
    while (!text.empty()) {
      const AddedToken* found = nullptr;
      for (const AddedToken& token : added_) {
        if (recognize == tokenizer::Recognize::kAll && text.substr(0, token.spelling.size()) == token.spelling) found = &token;
      }
      out.push_back(found != nullptr ? found->id : static_cast<unsigned char>(text.front()));
      text.remove_prefix(found != nullptr ? found->spelling.size() : 1);
    }
  }
  int32_t vocab_size() const override { return kFakeVocabSize; }
  mutable std::atomic<size_t> num_encoded_bytes = 0;

  std::optional<TokenId> special_id(std::string_view spelling) const override {
    for (const AddedToken& token : added_) {
      if (token.spelling == spelling) return token.id;
    }
    return std::nullopt;
  }
  std::span<const AddedToken> added_tokens() const override { return added_; }
  std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < kFakeVocabSize ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
  }
  bool is_special(TokenId id) const override { return id >= kStart; }
  std::optional<TokenId> bos_id() const override { return kStart; }
  std::optional<TokenId> eos_id() const override { return kEnd; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> stop_ids() const override { return stop_ids_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<AddedToken> added_;
  std::vector<TokenId> stop_ids_ = {kEnd};
};

// <|start|>ROLE\nCONTENT<|end|> for each message, then <|start|>assistant\n, and <think> when thinking was asked for.
class FakeRenderer final : public recipe::PromptRenderer {
 public:
  Result<recipe::Prompt> render(const recipe::Conversation& conversation) const override {
    constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "latest_reminder"};
    recipe::Prompt out;
    const auto special = [&](TokenId id, const char* text) {
      out.segments.push_back({.kind = recipe::Segment::Kind::kSpecial, .id = id, .text = text});
    };
    for (const recipe::Message& message : conversation.messages) {
      if (message.content == "REFUSE") return Error{Code::kInvalidArgument, "the template refused: no such word"};
      special(kStart, "<|start|>");
      out.segments.push_back({.text = std::string(kRoles[static_cast<size_t>(message.role)]) + "\n"});
      size_t done = 0;
      for (const recipe::PlacedImage& placed : message.images) {
        out.segments.push_back({.text = message.content.substr(done, placed.offset - done)});
        out.segments.push_back({.kind = recipe::Segment::Kind::kImage, .id = kImage, .text = "<|image|>", .image = static_cast<uint32_t>(out.images.size())});
        out.images.push_back(conversation.images[placed.image]);
        done = placed.offset;
      }
      out.segments.push_back({.text = message.content.substr(done)});
      if (!message.prefix) special(kEnd, "<|end|>");
    }
    if (!conversation.messages.back().prefix) {
      special(kStart, "<|start|>");
      out.segments.push_back({.text = "assistant\n"});
    }
    if (conversation.thinking.value_or(false)) {
      special(kThink, "<think>");
      out.syntax.start = recipe::AnswerSyntax::Start::kReasoning;
    }
    return out;
  }
};

// What the model will say. Without kEnd at the end it goes on until max_tokens with the last token repeated.
using Script = std::function<std::vector<TokenId>(const Request& request, int32_t choice)>;

inline std::vector<TokenId> tokens_of(std::string_view text, bool end = true) {
  std::vector<TokenId> out;
  static const FakeTokenizer tokenizer;
  tokenizer.encode(text, tokenizer::Recognize::kAll, out);
  if (end) out.push_back(kEnd);
  return out;
}

class FakeInference final : public Inference {
 public:
  struct Options {
    Script script = [](const Request&, int32_t) { return tokens_of("Hello world."); };
    std::chrono::microseconds step{0};
    int32_t max_running = 1000;
    int32_t max_waiting = 1000;
    int32_t max_context = 1000;
    int32_t fail_after = -1;        // tokens of a choice, then kError
    double queue_seconds = 0;
    bool paused = false;            // no steps until resume()
    std::string name = "fake";
    int32_t vocab_size = kFakeVocabSize;
    TokenId end_token = kEnd;
    Usage found = {.cached_tokens = 1, .match = {.tokens = 1}};  // of a first choice's prompt
    bool vision = false;            // reads images whose file says how many positions they take: "image 12"
  };

  FakeInference() : FakeInference(Options()) {}
  explicit FakeInference(Options options) : options_(std::move(options)), paused_(options_.paused) {
    card_ = {.name = options_.name, .architecture = "fake", .vocab_size = options_.vocab_size, .max_context = options_.max_context,
             .created_unix_s = 1700000000, .stop_token_ids = {options_.end_token}};
    if (options_.vision) card_.image_token_id = kImage;
    thread_ = std::thread([this] { loop(); });
  }
  ~FakeInference() override {
    {
      const std::lock_guard lock(mu_);
      quit_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  Result<> prepare(const Constraint& constraint) override {
    if (constraint.spec.find("IMPOSSIBLE") != std::string::npos) return Error{Code::kInvalidArgument, "the schema: keyword \"IMPOSSIBLE\""};
    return {};
  }
  Result<RequestId> submit(Request request, std::shared_ptr<EventSink> sink) override {
    const std::lock_guard lock(mu_);
    if (draining_) return Error{Code::kUnavailable, "draining"};
    if (static_cast<int32_t>(waiting_.size()) >= options_.max_waiting) return Error{Code::kResourceExhausted, "the queue is full"};
    auto live = std::make_unique<Live>();
    live->id = ++last_id_;
    live->sink = std::move(sink);
    for (int32_t i = 0; i < request.n; ++i) {
      Usage usage = i == 0 ? options_.found : Usage();
      usage.prompt_tokens = static_cast<int32_t>(request.prompt.size());
      live->choices.push_back({.script = options_.script(request, i), .usage = usage});
    }
    live->request = std::move(request);
    requests_.push_back(live->request);
    stats_.requests_total += 1;
    waiting_.push_back(std::move(live));
    changed_.notify_all();
    return last_id_;
  }
  Result<std::shared_ptr<const InputImage>> read_image(std::span<const std::byte> file) const override {
    num_images_read_ += 1;
    const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    if (text == "large") return Error{Code::kResourceExhausted, "the image has too many pixels"};
    if (!text.starts_with("image ")) return Error{Code::kUnsupported, "the image is not a JPEG, PNG, WebP or GIF file"};
    auto image = std::make_shared<InputImage>();
    image->num_tokens = std::atoi(text.c_str() + 6);
    image->digest = blake2b_256(file);
    return std::shared_ptr<const InputImage>(std::move(image));
  }
  void cancel(RequestId id) override {
    const std::lock_guard lock(mu_);
    cancel_calls_[id] += 1;
    changed_.notify_all();
  }
  void cancel_choice(RequestId id, int32_t choice) override {
    const std::lock_guard lock(mu_);
    choice_cancel_calls_[{id, choice}] += 1;
    changed_.notify_all();
  }
  InferenceStats stats() const override {
    const std::lock_guard lock(mu_);
    InferenceStats out = stats_;
    out.num_running = static_cast<int32_t>(running_.size());
    out.num_waiting = static_cast<int32_t>(waiting_.size());
    out.num_blocks_total = 100;
    out.block_tokens = 32;
    out.estimated_queue_seconds = options_.queue_seconds;
    return out;
  }
  const ModelCard& model() const override { return card_; }
  void drain() override {
    const std::lock_guard lock(mu_);
    draining_ = true;
  }

  // --- for tests
  int num_images_read() const { return num_images_read_; }
  void resume() {
    const std::lock_guard lock(mu_);
    paused_ = false;
    changed_.notify_all();
  }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mu_);
    return requests_;
  }
  std::map<RequestId, int> cancel_calls() const {
    const std::lock_guard lock(mu_);
    return cancel_calls_;
  }
  std::map<std::pair<RequestId, int32_t>, int> choice_cancel_calls() const {
    const std::lock_guard lock(mu_);
    return choice_cancel_calls_;
  }
  int64_t num_live() const {
    const std::lock_guard lock(mu_);
    return static_cast<int64_t>(waiting_.size() + running_.size());
  }

 private:
  struct Choice {
    std::vector<TokenId> script;
    Usage usage;
    size_t at = 0;  // in the script
    bool ended = false, thinking_ended = false;
  };
  struct Live {
    RequestId id = 0;
    Request request;
    std::shared_ptr<EventSink> sink;
    std::vector<Choice> choices;
  };

  void loop() {
    std::unique_lock lock(mu_);
    while (!quit_) {
      const bool work = !running_.empty() || (!waiting_.empty() && options_.max_running > 0) || any_cancelled();
      if (!work || (paused_ && !any_cancelled())) {
        changed_.wait(lock);
        continue;
      }
      while (!paused_ && !waiting_.empty() && static_cast<int32_t>(running_.size()) < options_.max_running) {
        running_.push_back(std::move(waiting_.front()));
        waiting_.pop_front();
      }
      step();
      if (options_.step.count() > 0) {
        lock.unlock();
        std::this_thread::sleep_for(options_.step);
        lock.lock();
      }
    }
  }
  bool any_cancelled() const {
    const auto cancelled = [&](const std::unique_ptr<Live>& live) { return cancel_calls_.contains(live->id); };
    return std::any_of(waiting_.begin(), waiting_.end(), cancelled) || std::any_of(running_.begin(), running_.end(), cancelled);
  }
  void step() {
    const auto ended = [&](const std::unique_ptr<Live>& live) {
      bool all = true;
      for (size_t i = 0; i < live->choices.size(); ++i) all = advance(*live, static_cast<int32_t>(i)) && all;
      return all;
    };
    if (!paused_) std::erase_if(running_, ended);
    const auto cancelled_early = [&](const std::unique_ptr<Live>& live) { return cancel_calls_.contains(live->id) && ended(live); };
    std::erase_if(waiting_, cancelled_early);
    if (paused_) std::erase_if(running_, cancelled_early);
    stats_.steps_total += 1;
  }
  // One token of a choice; true: it has ended.
  bool advance(Live& live, int32_t index) {
    Choice& choice = live.choices[static_cast<size_t>(index)];
    if (choice.ended) return true;
    TokenEvent event{.request = live.id, .choice = index};
    const SamplingParams& sampling = live.request.sampling;
    if (cancel_calls_.contains(live.id) || choice_cancel_calls_.contains({live.id, index})) {
      event.finished = FinishReason::kCancelled;
    } else if (choice.usage.completion_tokens == options_.fail_after) {
      event.finished = FinishReason::kError;
      event.message = "a scripted fault";
    } else {
      event.has_token = true;
      event.token = next_token(choice, sampling);
      choice.usage.completion_tokens += 1;
      stats_.generation_tokens_total += 1;
      if (sampling.top_logprobs >= 0) add_logprobs(event, sampling.top_logprobs, choice.usage.completion_tokens, options_.vocab_size);
      if (event.token == options_.end_token) {
        event.finished = FinishReason::kStop;
      } else if (choice.usage.completion_tokens == sampling.max_tokens) {
        event.finished = FinishReason::kLength;
      }
    }
    event.usage = choice.usage;
    choice.ended = event.finished.has_value();
    live.sink->on_event(event);
    return choice.ended;
  }
  // The script's next token; a thinking budget that is used up skips the rest of the thinking.
  static TokenId next_token(Choice& choice, const SamplingParams& sampling) {
    if (sampling.thinking_budget >= 0 && !choice.thinking_ended && choice.usage.completion_tokens >= sampling.thinking_budget) {
      const auto end = std::find(choice.script.begin(), choice.script.end(), sampling.thinking_end);
      if (end != choice.script.end()) choice.at = static_cast<size_t>(end - choice.script.begin());
    }
    const TokenId token = choice.script[std::min(choice.at++, choice.script.size() - 1)];
    if (token == sampling.thinking_end) choice.thinking_ended = true;
    return token;
  }
  static void add_logprobs(TokenEvent& event, int32_t num_top, int32_t position, int32_t vocab_size) {
    event.logprob = -0.25f * static_cast<float>(position);
    event.num_top = num_top;
    for (int32_t i = 0; i < num_top; ++i) {
      event.top[static_cast<size_t>(i)] = {.token = (event.token + i) % vocab_size, .logprob = event.logprob - static_cast<float>(i)};
    }
  }

  const Options options_;
  ModelCard card_;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Live>> waiting_;
  std::vector<std::unique_ptr<Live>> running_;
  std::map<RequestId, int> cancel_calls_;
  std::map<std::pair<RequestId, int32_t>, int> choice_cancel_calls_;
  std::vector<Request> requests_;
  InferenceStats stats_;
  RequestId last_id_ = 0;
  mutable std::atomic<int> num_images_read_ = 0;
  bool draining_ = false, quit_ = false, paused_;
  std::thread thread_;
};

}  // namespace deepinfer::testing_support
