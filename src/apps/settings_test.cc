#include "apps/settings.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "apps/flags.h"

namespace deepinfer::apps {
namespace {

// A tree with one subcommand `serve` and another, `bench`, and what one parse of it gave.
struct Fixture {
  CLI::App root{"", "deepinfer"};
  CLI::App* serve = root.add_subcommand("serve", "");
  CLI::App* bench = root.add_subcommand("bench", "");
  int32_t port = 8080, rounds = 5;
  bool quiet = false;
  std::optional<uint64_t> kv_memory;
  std::string config, model;
  std::map<std::string, std::string> variables;

  Fixture() {
    Flags flags(*serve);
    flags.number("-p,--port", port, 0, 65535, "PORT", "");
    flags.size("--kv-memory", kv_memory, "", "half");
    flags.toggle("--quiet", quiet, "");
    flags.text("--config", config, "FILE", "");
    flags.text("MODEL", model, "MODEL", "");
    Flags(*bench).number("--rounds", rounds, 1, 99, "N", "");
  }
  Result<> parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    root.parse(arguments);
    return apply_settings(root, *serve, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  }
};

class File {
 public:
  explicit File(const std::string& text) : path_(std::filesystem::temp_directory_path() / ("settings_test_" + std::to_string(getpid()) + ".toml")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(Settings, CommandLineBeforeEnvironmentBeforeFileBeforeDefault) {
  const File file("model = \"m.gguf\"\nport = 1\nkv-memory = \"1KiB\"\nrounds = 7\n[serve]\nport = 2\nquiet = true\n");
  {
    Fixture f;
    ASSERT_TRUE(f.parse({"serve"}));
    EXPECT_EQ(f.port, 8080);
    EXPECT_FALSE(f.kv_memory);
  }
  {
    Fixture f;
    const Result<> got = f.parse({"serve", "--config", file.path()});
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(f.port, 2) << "the subcommand's table goes before the top";
    EXPECT_EQ(f.kv_memory, 1024u);
    EXPECT_TRUE(f.quiet);
    EXPECT_EQ(f.model, "m.gguf");
  }
  {
    Fixture f;
    f.variables = {{"DEEPINFER_PORT", "3"}, {"DEEPINFER_KV_MEMORY", "2KiB"}, {"DEEPINFER_CONFIG", file.path()}, {"DEEPINFER_QUIET", "false"}};
    ASSERT_TRUE(f.parse({"serve", "-p", "4"}));
    EXPECT_EQ(f.port, 4);
    EXPECT_EQ(f.kv_memory, 2048u);
    EXPECT_FALSE(f.quiet);
  }
}

TEST(Settings, WhatIsNotAFlagIsAnErrorThatNamesIt) {
  const auto message = [](const std::string& text) {
    const File file(text);
    Fixture f;
    const Result<> got = f.parse({"serve", "--config", file.path()});
    return got ? std::string("accepted") : got.error().message;
  };
  EXPECT_THAT(message("prot = 1\n"), testing::HasSubstr("prot is not a flag"));
  EXPECT_THAT(message("[serve]\nrounds = 1\n"), testing::HasSubstr("serve.rounds is not a flag"));
  EXPECT_THAT(message("[sreve]\nport = 1\n"), testing::HasSubstr("[sreve] is not a subcommand"));
  EXPECT_THAT(message("port = 70000\n"), testing::HasSubstr("port"));
  EXPECT_THAT(message("port = {a = 1}\n"), testing::HasSubstr("[port] is not a subcommand"));
  EXPECT_THAT(message("port = \n"), testing::HasSubstr("line 1"));
  Fixture f;
  f.variables = {{"DEEPINFER_PORT", "many"}};
  const Result<> got = f.parse({"serve"});
  ASSERT_FALSE(got);
  EXPECT_THAT(got.error().message, testing::HasSubstr("DEEPINFER_PORT"));
}

TEST(Settings, AFileThatIsNotThereIsTheWorldsFault) {
  Fixture f;
  const Result<> got = f.parse({"serve", "--config", "/nonexistent/x.toml"});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, Code::kIo);
  EXPECT_THAT(got.error().message, testing::HasSubstr("/nonexistent/x.toml"));
}

}  // namespace
}  // namespace deepinfer::apps
