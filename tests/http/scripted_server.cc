// The real HTTP server over a scripted model, for client suites that must see exact answers. Ends with its standard input.
//
// usage: scripted_server [--port N] [--dialect template|v4.1] [--key KEY] [--keep] [--context TOKENS]
//
// template: bytes are tokens, and tools are text. v4.1: the nano model's vocabulary, DeepSeek V4.1's prompts and tool calls.
// --key: an API key that every request needs. --keep: responses are kept, in memory. --context: of the model; agents want more than 20,000.
// The last line of a user's that says so decides what the model does: "say TEXT" answers TEXT, "think TEXT" thinks before it, "long"
// never ends, "run NAME" plays the script NAME of scripts.json, one round for each tool result that is there.
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "api/server.h"
#include "http/fake_model.h"
#include "read_file.h"
#include "recipe/dialect.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::testing_support;

struct Flags {
  uint16_t port = 0;
  std::string dialect = "template", key;
  bool keep = false;
  int32_t context = 20'000;
};

Flags flags_of(int argc, char** argv) {
  Flags out;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--keep") {
      out.keep = true;
    } else if (i + 1 == argc) {
      std::fprintf(stderr, "scripted_server: %s needs a value\n", argv[i]);
      std::exit(2);
    } else if (flag == "--port") {
      out.port = static_cast<uint16_t>(std::atoi(argv[++i]));
    } else if (flag == "--dialect") {
      out.dialect = argv[++i];
    } else if (flag == "--key") {
      out.key = argv[++i];
    } else if (flag == "--context") {
      out.context = std::atoi(argv[++i]);
    }
  }
  return out;
}

// The prompt as lines of what users and tools said, and nothing else.
std::string spoken_text(const std::vector<TokenId>& prompt, const tokenizer::Tokenizer& tokenizer) {
  const std::optional<TokenId> user = tokenizer.special_id("<｜User｜>");
  std::string out, current;
  bool inside = !user;
  for (const TokenId token : prompt) {
    if (!tokenizer.is_special(token) && !tokenizer.token_bytes(token).starts_with("<｜") && token != tokenizer.special_id("</think>")) {
      if (inside) current += tokenizer.token_bytes(token);
      continue;
    }
    if (inside && (user || current.starts_with("user\n") || current.starts_with("tool\n"))) out += current + "\n";
    current.clear();
    inside = !user || token == *user;
  }
  return out;
}

size_t count(std::string_view text, std::string_view part) {
  size_t out = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++out;
  return out;
}

class Scripts {
 public:
  Scripts(const tokenizer::Tokenizer& tokenizer, TokenId end)
      : tokenizer_(tokenizer), end_(end), scripts_(boost::json::parse(read_file(DI_SOURCE_DIR "/tests/http/scripts.json"))) {}

  std::vector<TokenId> answer(const Request& request, int32_t choice) const {
    const std::string spoken = spoken_text(request.prompt, tokenizer_);
    std::string text = "Hello from choice " + std::to_string(choice) + ", naïve café.";
    bool ends = true;
    for (size_t begin = 0; begin < spoken.size();) {
      const size_t line_end = std::min(spoken.find('\n', begin), spoken.size());
      const std::string line = spoken.substr(begin, line_end - begin);
      // The rest of the text belongs to it, for texts of several lines.
      const std::string rest = spoken.substr(begin, spoken.size() - 1 - begin);
      if (line.starts_with("say ")) text = rest.substr(4);
      if (line.starts_with("think ")) text = "<think>Let me see.</think>" + rest.substr(6);
      if (line == "long") ends = false, text = "x";
      if (line.starts_with("run ")) text = round(line.substr(4), count(spoken, "</tool_result>"));
      begin = line_end + 1;
    }
    return tokens(text, ends, request.prompt.back());
  }

 private:
  std::string round(const std::string& name, size_t number) const {
    const boost::json::value* script = scripts_.as_object().if_contains(name);
    if (script == nullptr) return "there is no script " + name;
    for (const boost::json::value& item : script->as_array()) {
      if (item.at("results").as_int64() == static_cast<int64_t>(number)) return std::string(item.at("text").as_string());
    }
    return "the script " + name + " has no round for " + std::to_string(number) + " results";
  }

  // A prompt that ends inside or behind the thinking has its part of it already.
  std::vector<TokenId> tokens(std::string text, bool ends, TokenId last) const {
    constexpr std::string_view kOpen = "<think>", kClose = "</think>";
    if (last == tokenizer_.special_id(kOpen)) {
      if (text.starts_with(kOpen)) text = text.substr(kOpen.size());
      if (text.find(kClose) == std::string::npos) text = std::string(kClose) + text;
    }
    if (last == tokenizer_.special_id(kClose) && text.find(kClose) != std::string::npos) text = text.substr(text.find(kClose) + kClose.size());
    std::vector<TokenId> out;
    tokenizer_.encode(text, tokenizer::Recognize::kAll, out);
    if (ends) out.push_back(end_);
    return out;
  }

  const tokenizer::Tokenizer& tokenizer_;
  const TokenId end_;
  const boost::json::value scripts_;
};

int fail(const std::string& message) {
  std::fprintf(stderr, "scripted_server: %s\n", message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const Flags flags = flags_of(argc, argv);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer = std::make_unique<FakeTokenizer>();
  std::unique_ptr<recipe::PromptRenderer> renderer = std::make_unique<FakeRenderer>();
  api::ServerOptions options;
  options.port = flags.port;
  FakeInference::Options engine{.step = std::chrono::microseconds(200), .max_context = flags.context};
  if (flags.dialect == "v4.1") {
    auto nano = tokenizer::Tokenizer::from_json(read_file(DI_SOURCE_DIR "/models/nano/tokenizer.json"), "", "nano");
    if (!nano) return fail(nano.error().message);
    tokenizer = std::move(*nano);
    auto made = recipe::make_dialect_renderer(recipe::Dialect::kV41, *tokenizer);
    if (!made) return fail(made.error().message);
    renderer = std::move(*made);
    options.dialect = recipe::Dialect::kV41;
    engine.name = "scripted-v4.1";
    engine.vocab_size = tokenizer->vocab_size();
    engine.end_token = *tokenizer->special_id("<｜end▁of▁sentence｜>");
  }
  const Scripts scripts(*tokenizer, engine.end_token);
  engine.script = [&scripts](const Request& request, int32_t choice) { return scripts.answer(request, choice); };
  FakeInference inference(std::move(engine));
  if (!flags.key.empty()) {
    auto keys = api::ApiKeys::parse(flags.key, "--key");
    if (!keys) return fail(keys.error().message);
    options.keys = std::move(*keys);
  }
  if (flags.keep) options.response_store = api::ResponseStoreOptions{.path = ":memory:"};
  Result<std::unique_ptr<api::Server>> server =
      api::Server::start(std::move(options), {.inference = inference, .tokenizer = *tokenizer, .renderer = renderer.get()});
  if (!server) return fail(server.error().message);
  std::printf("http://127.0.0.1:%d\n", (*server)->port());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
