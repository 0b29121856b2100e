// deepinfer tokenize: the ids of a text, or the text of ids, by a model's own vocabulary.
#include <boost/json.hpp>
#include <cstdio>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/commands.h"
#include "apps/default_model.h"
#include "apps/flags.h"
#include "apps/text_input.h"
#include "apps/token_ids.h"
#include "engine/loaded_model.h"

namespace deepinfer::apps {
namespace {

struct TokenizeFlags {
  std::string model, text = "-";
  bool special = false, decode = false, pieces = false, json = false;
};

// One line a token: id, and its bytes as a JSON string (bytes that are no UTF-8 as U+FFFD).
void print_pieces(const tokenizer::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    const std::string text = tokenizer.decode({&id, 1}, true);
    fmt::print("{:>8}  {}{}\n", id, boost::json::serialize(boost::json::string(text)), tokenizer.is_special(id) ? "  control" : "");
  }
}

Result<> run_tokenize(const TokenizeFlags& flags) {
  DI_TRY(const std::string path, find_model(flags.model));
  DI_TRY(const engine::ModelText text, engine::open_text(path));
  DI_TRY(const std::string input, text_or_stdin(flags.text));
  std::vector<TokenId> ids;
  if (flags.decode) {
    DI_TRY(ids, parse_token_ids(input, text.tokenizer->vocab_size()));
    std::fputs(text.tokenizer->decode(ids, true).c_str(), stdout);
    return {};
  }
  text.tokenizer->encode(input, flags.special ? tokenizer::Recognize::kAll : tokenizer::Recognize::kNothing, ids);
  if (flags.pieces) print_pieces(*text.tokenizer, ids);
  else if (flags.json) fmt::print("[{}]\n", fmt::join(ids, ","));
  else fmt::print("{}\n", fmt::join(ids, " "));
  return {};
}

}  // namespace

Command add_tokenize(CLI::App& root) {
  CLI::App* app = root.add_subcommand("tokenize", "Prints the token ids of a text, or the text of ids.");
  app->footer("Example:\n  deepinfer tokenize model.gguf 'Hello, world' --pieces\n  echo 1 2 3 | deepinfer tokenize model.gguf --decode");
  auto flags = std::make_shared<TokenizeFlags>();
  Flags add(*app);
  add.text("MODEL", flags->model, "MODEL", "a .gguf file or a safetensors folder; \"\": the default model")->required();
  add.text("TEXT", flags->text, "TEXT", "the text; - reads stdin");
  add.toggle("--special", flags->special, "control tokens in the text are recognised; without it they are ordinary text");
  add.toggle("--decode", flags->decode, "TEXT holds ids; prints what they stand for");
  add.toggle("--pieces", flags->pieces, "one line a token, with its text");
  add.toggle("--json", flags->json, "prints a JSON array");
  return {app, [flags] {
            const Result<> done = run_tokenize(*flags);
            return done ? kExitDone : report(done.error());
          }};
}

}  // namespace deepinfer::apps
