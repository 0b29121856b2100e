#include "apps/version.h"

#include <fmt/format.h>

#include "git_description.h"
#include "kernels/linear.h"

namespace deepinfer::apps {
namespace {

#ifdef __clang__
constexpr std::string_view kCompiler = "clang " __clang_version__;
#else
constexpr std::string_view kCompiler = "g++ " __VERSION__;
#endif

}  // namespace

std::string_view version() { return DI_GIT_DESCRIPTION; }

std::string version_text() {
  std::string isas;
  for (const Isa isa : available_isas()) isas += fmt::format("{}{}", isas.empty() ? "" : " ", isa_name(isa));
  return fmt::format("deepinfer {}\ncompiler: {}\ninstruction sets: {}\n", version(), kCompiler, isas);
}

}  // namespace deepinfer::apps
