// deepinfer run: one answer, or a chat when stdin is a terminal. Reading a pipe it prints just the answer, so that it can stand in one.
#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <fstream>
#include <map>
#include <random>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/generate.h"
#include "apps/served_model.h"
#include "apps/terminal.h"
#include "apps/text_input.h"
#include "io/mapped_file.h"
#include "recipe/encode_request.h"
#include "recipe/request_parts.h"

namespace deepinfer::apps {
namespace {

struct RunFlags {
  ModelFlags model;
  EngineFlags engine;
  std::string prompt, system;
  std::vector<std::string> images;
  float temperature = -1, top_p = -1, min_p = -1;
  int32_t max_tokens = 0, top_k = -1;
  std::optional<uint64_t> seed;
  bool raw = false;

  void add_to(Flags& flags) {
    model.add_to(flags);
    flags.text("PROMPT", prompt, "TEXT", "one question; - reads it from stdin", "a chat in the terminal");
    flags.text("--system", system, "TEXT", "system message");
    flags.list("--image", images, "FILE", "picture before the question (the first, in a chat); repeatable");
    flags.number("-n,--max-tokens", max_tokens, 1, 1 << 28, "N", "longest answer", "what the context holds");
    flags.real("--temperature", temperature, 0, 100, "0 always takes the likeliest token")->default_str("the model's, else 0.7");
    flags.real("--top-p", top_p, 0, 1, "samples from the likeliest tokens that together have this probability")->default_str("the model's, else 1");
    flags.number("--top-k", top_k, 0, 1 << 24, "N", "samples from this many of the likeliest; 0 is all", "the model's, else 0");
    flags.real("--min-p", min_p, 0, 1, "drops tokens below this share of the likeliest's probability")->default_str("the model's, else 0");
    flags.seed("--seed", seed, "the same seed gives the same answer", "random");
    engine.renderer.add_to(flags);
    flags.size("--kv-memory", engine.kv_memory, "memory of the KV cache", "half of what is free");
    engine.add_replay_to(flags);
    flags.toggle("--raw", raw, "continues the prompt as plain text, without the chat template");
  }
};

// Set by Ctrl-C while an answer runs.
std::atomic<bool> interrupted = false;
extern "C" void on_interrupt(int) { interrupted = true; }

class Run {
 public:
  Run(const RunFlags& flags, ServedModel& served) : flags_(flags), served_(served) { reset(); }

  // The conversation begins anew, with the system message if there is one.
  void reset() {
    conversation_ = {};
    pictures_.clear();
    if (!flags_.system.empty()) conversation_.messages.push_back({.role = recipe::Role::kSystem, .content = flags_.system});
  }

  // A picture of the next question. Errors: the file cannot be read, or not as an image; a model that reads text only.
  Result<> show(const std::string& path) {
    DI_TRY(const std::string file, io::read_small_file(path, kMaxInputBytes));
    Result<std::shared_ptr<const InputImage>> picture = served_.engine->read_image(std::as_bytes(std::span(file)));
    if (!picture) return Error{picture.error().code, fmt::format("{}: {}", path, picture.error().message)};
    next_.add_image({.url = path});
    pictures_[path] = std::move(*picture);
    return {};
  }

  // One turn: appends the question, prints the answer as it comes, appends it.
  Result<Generated> ask(const std::string& text) {
    next_.add_text(text);
    recipe::Message question{.role = recipe::Role::kUser};
    next_.move_to(question);
    conversation_.messages.push_back(std::move(question));
    Result<Generated> answer = answer_conversation();
    if (!answer) {
      conversation_.messages.pop_back();
      return answer;
    }
    // What Ctrl-C cut off stays: the chat goes on from what was read.
    recipe::Message message{.role = recipe::Role::kAssistant, .content = answer->content};
    if (!answer->reasoning.empty()) message.reasoning = answer->reasoning;
    conversation_.messages.push_back(std::move(message));
    return answer;
  }

  Result<Generated> continue_text(const std::string& text) {
    const tokenizer::Tokenizer& tokenizer = *served_.text.tokenizer;
    std::vector<TokenId> ids;
    if (tokenizer.add_bos() && tokenizer.bos_id()) ids.push_back(*tokenizer.bos_id());
    tokenizer.encode(text, tokenizer::Recognize::kNothing, ids);
    return answer_tokens({.ids = std::move(ids), .images = {}, .prompt = {}}, {.split_reasoning = false});
  }

  Result<> save(const std::string& path) const {
    if (!pictures_.empty()) return Error{Code::kUnsupported, "a chat with pictures cannot be saved"};
    boost::json::array messages;
    for (const recipe::Message& m : conversation_.messages) {
      const char* role = m.role == recipe::Role::kSystem ? "system" : m.role == recipe::Role::kUser ? "user" : "assistant";
      boost::json::object one{{"role", role}, {"content", m.content}};
      if (m.reasoning) one["reasoning_content"] = *m.reasoning;
      messages.push_back(std::move(one));
    }
    std::ofstream file(path, std::ios::binary);
    file << boost::json::serialize(boost::json::object{{"model", served_.engine->model().name}, {"messages", std::move(messages)}}) << "\n";
    file.close();
    if (!file) return Error{Code::kIo, fmt::format("{} cannot be written", path)};
    return {};
  }

 private:
  Result<Generated> answer_conversation() {
    if (served_.renderer.prompts == nullptr) return Error{Code::kUnsupported, "this model has no chat template; use --raw or --chat-template FILE"};
    DI_TRY(recipe::EncodedRequest prompt,
           recipe::encode_request({.prompt = conversation_}, {.tokenizer = *served_.text.tokenizer, .renderer = served_.renderer.prompts.get(),
                                                              .read_image = [this](const recipe::Image& image) -> Result<std::shared_ptr<const InputImage>> {
                                                                return pictures_.find(image.url)->second;
                                                              }}));
    recipe::OutputOptions output{.syntax = std::move(prompt.prompt.syntax)};
    return answer_tokens(std::move(prompt), std::move(output));
  }

  Result<Generated> answer_tokens(recipe::EncodedRequest prompt, recipe::OutputOptions output) {
    Request request;
    std::vector<TokenId>& ids = prompt.ids;
    const int32_t room = served_.engine->model().max_context - static_cast<int32_t>(ids.size());
    if (ids.empty()) return Error{Code::kInvalidArgument, "the prompt is empty"};
    if (room < 1) return Error{Code::kInvalidArgument, fmt::format("the prompt has {} tokens; the context is {}; /reset begins anew", ids.size(), served_.engine->model().max_context)};
    request.prompt = std::move(ids);
    request.images = std::move(prompt.images);
    request.sampling = sampling();
    request.sampling.max_tokens = flags_.max_tokens > 0 ? std::min(flags_.max_tokens, room) : room;
    bool in_reasoning = false;
    GenerateHooks hooks;
    hooks.cancelled = [] { return interrupted.load(); };
    hooks.on_text = [&](std::string_view text, bool reasoning) {
      if (reasoning != in_reasoning) std::fputs(reasoning ? "<think>\n" : "\n</think>\n", stdout);
      in_reasoning = reasoning;
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    Result<Generated> answer = generate(*served_.engine, *served_.text.tokenizer, std::move(request), std::move(output), hooks, served_.clock);
    if (!answer && answer.error().code == Code::kInternal) answer.error().message = served_.engine->model().name + ": " + answer.error().message;
    return answer;
  }

  SamplingParams sampling() const {
    const engine::ModelText& text = served_.text;
    SamplingParams s;
    s.temperature = flags_.temperature >= 0 ? flags_.temperature : text.temperature.value_or(0.7f);
    s.top_p = flags_.top_p >= 0 ? flags_.top_p : text.top_p.value_or(1);
    s.top_k = flags_.top_k >= 0 ? flags_.top_k : text.top_k.value_or(0);
    s.min_p = flags_.min_p >= 0 ? flags_.min_p : text.min_p.value_or(0);
    s.repetition_penalty = text.repetition_penalty.value_or(1);
    s.seed = flags_.seed ? *flags_.seed : std::random_device()() | uint64_t{std::random_device()()} << 32;
    return s;
  }

  const RunFlags& flags_;
  ServedModel& served_;
  recipe::Conversation conversation_;
  recipe::ContentBuilder next_{conversation_};  // the question that will be asked
  std::map<std::string, std::shared_ptr<const InputImage>> pictures_;  // of the conversation, by file
};

void print_figures(const Generated& g) {
  fmt::print(stderr, "\n[{} tokens, {:.1f} tokens/s; prompt {} tokens ({} cached), first token after {:.0f} ms{}]\n", g.end.usage.completion_tokens, g.decode_tokens_per_s(),
             g.end.usage.prompt_tokens, g.end.usage.cached_tokens, g.ttft_s * 1e3, g.end.reason == FinishReason::kCancelled ? "; stopped" : "");
}

// A line that begins with / is for us. False: the chat is over.
bool run_command(Run& run, const std::string& line) {
  if (line == "/reset") {
    run.reset();
    fmt::print(stderr, "the conversation begins anew\n");
  } else if (line.rfind("/save ", 0) == 0) {
    const Result<> saved = run.save(line.substr(6));
    fmt::print(stderr, "{}\n", saved ? "saved" : saved.error().message);
  } else if (line == "/exit" || line == "/quit") {
    return false;
  } else {
    fmt::print(stderr, "/reset begins anew, /save FILE writes the chat as JSON, /exit ends; Ctrl-C stops an answer\n");
  }
  return true;
}

Result<> chat(Run& run, Terminal& terminal, const ModelCard& card) {
  fmt::print(stderr, "{} ({}, context {}). /help lists commands; Ctrl-C stops an answer, Ctrl-D ends.\n", card.name, card.architecture, card.max_context);
  while (const std::optional<std::string> entry = terminal.read_entry("> ")) {
    if (entry->empty()) continue;
    if (entry->front() == '/') {
      if (!run_command(run, *entry)) break;
      continue;
    }
    interrupted = false;
    std::signal(SIGINT, on_interrupt);
    const Result<Generated> answer = run.ask(*entry);
    std::signal(SIGINT, SIG_DFL);
    if (answer) print_figures(*answer);
    else fmt::print(stderr, "deepinfer: {}\n", answer.error().message);
  }
  return {};
}

Result<> run_run(RunFlags flags) {
  std::optional<Terminal> terminal = flags.prompt.empty() ? Terminal::open() : std::nullopt;
  if (flags.prompt.empty() && !terminal) flags.prompt = "-";  // a pipe: the prompt is what it holds
  if (flags.prompt == "-") {
    DI_TRY(flags.prompt, read_stdin());
    if (!flags.prompt.empty() && flags.prompt.back() == '\n') flags.prompt.pop_back();  // of `echo`, not of the question
  }
  flags.engine.max_num_seqs = 1;
  DI_TRY(const std::unique_ptr<ServedModel> served, start_model(flags.model, flags.engine));
  Run run(flags, *served);
  if (flags.raw && !flags.images.empty()) return Error{Code::kInvalidArgument, "--raw continues a text; --image needs a conversation"};
  for (const std::string& path : flags.images) {
    DI_TRY(run.show(path));
  }
  if (terminal) return chat(run, *terminal, served->engine->model());

  std::signal(SIGINT, on_interrupt);
  const Result<Generated> answer = flags.raw ? run.continue_text(flags.prompt) : run.ask(flags.prompt);
  if (!answer) return answer.error();
  std::fputc('\n', stdout);
  if (::isatty(STDOUT_FILENO)) print_figures(*answer);
  return {};
}

}  // namespace

Command add_run(CLI::App& root) {
  CLI::App* app = root.add_subcommand("run", "Answers one prompt, or chats in the terminal.");
  app->footer("Example:\n  deepinfer run model.gguf\n  deepinfer run model.gguf 'Why is the sky blue?' --temperature 0\n  git diff | deepinfer run model.gguf - --system 'Review this change.'");
  auto flags = std::make_shared<RunFlags>();
  Flags add(*app);
  flags->add_to(add);
  return {app, [flags] {
            const Result<> done = run_run(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
