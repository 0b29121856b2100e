// Golden transcripts: each file of tests/http/*.http holds a request as it goes over the wire and the whole answer. What differs from
// run to run is replaced by $NAMES. With DEEPINFER_UPDATE_GOLDEN=1 the answers are written anew; read the difference before committing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>

#include "api/server.h"
#include "http/fake_model.h"
#include "http/raw_client.h"
#include "read_file.h"

namespace deepinfer::api {
namespace {

using namespace testing_support;

constexpr std::string_view kDivider = "\n==== answer ====\n";

std::vector<std::string> transcript_files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(DI_SOURCE_DIR "/tests/http")) {
    if (entry.path().extension() == ".http") out.push_back(entry.path().stem().string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string path_of(const std::string& name) { return DI_SOURCE_DIR "/tests/http/" + name + ".http"; }

// Line ends of the head become CRLF, and $LENGTH the length of what follows the head.
std::string to_wire(const std::string& text) {
  const size_t split = text.find("\n\n");
  const std::string body = split == std::string::npos ? "" : text.substr(split + 2);
  std::string head = std::regex_replace(text.substr(0, split), std::regex("\n"), "\r\n");
  head = std::regex_replace(head, std::regex("\\$LENGTH"), std::to_string(body.size()));
  return head + "\r\n\r\n" + body;
}

std::string normalised(const Answer& answer) {
  std::string head = answer.raw.substr(0, answer.raw.find("\r\n\r\n"));
  std::string out = std::regex_replace(head, std::regex("\r\n"), "\n") + "\n\n" + answer.body;
  const std::pair<const char*, const char*> rules[] = {
      {"Date: [^\n]*", "Date: $$DATE"},
      {"req_[0-9a-f]{24}", "$$REQUEST_ID"},
      {"(chatcmpl-|cmpl-|resp_|msg_|rs_)[0-9a-f]{24}", "$1$$ID"},
      {"\"(created|completed)_at\":[0-9]+", "\"$1_at\":$$TIME"},
      {"\"created\":[0-9]+,\"model\":\"fake\"", "\"created\":$$CREATED,\"model\":\"fake\""},
      {"fp_[0-9a-f]{12}", "$$FINGERPRINT"},
      {"Content-Length: [0-9]+", "Content-Length: $$LENGTH"},
  };
  for (const auto& [pattern, replacement] : rules) out = std::regex_replace(out, std::regex(pattern), replacement);
  return out;
}

class Transcripts : public testing::TestWithParam<std::string> {};

TEST_P(Transcripts, Match) {
  FakeTokenizer tokenizer;
  FakeRenderer renderer;
  // The prompt's last message says what comes out.
  FakeInference inference({.script = [](const Request& request, int32_t choice) {
    const std::string prompt = FakeTokenizer().decode(request.prompt, false);
    if (prompt.find("think") != std::string::npos) return tokens_of("Hm.</think>Yes.");
    return tokens_of(choice == 0 ? "Hi é!" : "Ho");
  }});
  ServerOptions options;
  options.port = 0;
  options.cors_origins = {"https://app.example"};
  const Result<std::unique_ptr<Server>> server = Server::start(std::move(options), {.inference = inference, .tokenizer = tokenizer, .renderer = &renderer});
  ASSERT_TRUE(server);
  const std::string text = read_file(path_of(GetParam()));
  const size_t divider = text.find(kDivider);
  const std::string request = text.substr(0, divider);
  RawClient client((*server)->port());
  ASSERT_TRUE(client.send(to_wire(request)));
  const std::optional<Answer> answer = client.answer(request.substr(0, 4) == "HEAD");
  ASSERT_TRUE(answer);
  const std::string got = normalised(*answer) + "\n";
  if (std::getenv("DEEPINFER_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path_of(GetParam()), std::ios::binary) << request << kDivider << got;
    return;
  }
  ASSERT_NE(divider, std::string::npos);
  EXPECT_EQ(got, text.substr(divider + kDivider.size()));
}

INSTANTIATE_TEST_SUITE_P(Http, Transcripts, testing::ValuesIn(transcript_files()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace deepinfer::api
