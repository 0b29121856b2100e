// The real HTTP server over a scripted model, for client suites that must see exact answers. Ends with its standard input.
//
// usage: fake_server [--port N]
// The last user message says what the model does: "say TEXT" answers TEXT, "think TEXT" thinks before it, "long" never ends.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "api/server.h"
#include "http/fake_model.h"

namespace {

using namespace deepinfer;
using namespace deepinfer::testing_support;

// What the last message asks for: the text between its role line and its end.
std::string last_message(const Request& request) {
  std::string text, current;
  for (const TokenId token : request.prompt) {
    if (token == kStart || token == kEnd) {
      if (current.substr(0, 5) == "user\n") text = current.substr(5);
      current.clear();
    } else if (token < 256) {
      current += static_cast<char>(token);
    }
  }
  return text.empty() ? current : text;
}

std::vector<TokenId> answer(const Request& request, int32_t choice) {
  const std::string text = last_message(request);
  if (text == "long") return tokens_of("x", false);
  if (text.substr(0, 4) == "say ") return tokens_of(text.substr(4));
  if (text.substr(0, 6) == "think ") return tokens_of("<think>Let me see.</think>" + text.substr(6));
  return tokens_of("Hello from choice " + std::to_string(choice) + ", naïve café.");
}

}  // namespace

int main(int argc, char** argv) {
  api::ServerOptions options;
  options.port = argc == 3 && std::strcmp(argv[1], "--port") == 0 ? static_cast<uint16_t>(std::atoi(argv[2])) : uint16_t{0};
  const FakeTokenizer tokenizer;
  const FakeRenderer renderer;
  FakeInference inference({.script = answer, .step = std::chrono::microseconds(500), .max_context = 4096});
  Result<std::unique_ptr<api::Server>> server =
      api::Server::start(std::move(options), {.inference = inference, .tokenizer = tokenizer, .renderer = &renderer});
  if (!server) {
    std::fprintf(stderr, "fake_server: %s\n", server.error().message.c_str());
    return 1;
  }
  std::printf("http://127.0.0.1:%d\n", (*server)->port());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}
