// What a program in C++ makes of the installed library: a conversation's prompt, marked.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "recipe/dialect.h"

int main(int argc, char** argv) {
  using namespace deepinfer;
  if (argc != 2) return 2;
  std::ifstream in(argv[1], std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(in), {}};
  const auto tokenizer = tokenizer::Tokenizer::from_json(json, "", argv[1]);
  if (!tokenizer) return 1;
  const auto renderer = recipe::make_dialect_renderer(recipe::pick_dialect("", **tokenizer), **tokenizer);
  if (!renderer) return 1;
  recipe::Conversation conversation;
  conversation.thinking = false;
  conversation.messages.push_back({.role = recipe::Role::kUser, .content = "Hello"});
  const auto prompt = (*renderer)->render(conversation);
  if (!prompt) return 1;
  std::puts(recipe::prompt_text_marked(*prompt).c_str());
  return 0;
}
