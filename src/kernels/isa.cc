// Which kernels this machine can run: what the processor says (CPUID) and what the operating system saves for us (XCR0, which
// __builtin_cpu_supports looks at; for matrix tiles the kernel must also be asked).
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/linear_kernels.h"
#include "kernels/linear.h"

namespace deepinfer {
namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}
bool has_avxvnni() { return has_avx2() && __builtin_cpu_supports("avxvnni"); }
bool has_avx512f() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
bool has_avx512() {
  return has_avx512f() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
}
bool has_amx() {
#if defined(__linux__)
  if (!has_avx512() || !__builtin_cpu_supports("amx-tile") || !__builtin_cpu_supports("amx-int8") ||
      !__builtin_cpu_supports("amx-bf16")) {
    return false;
  }
  // Tile data is 8 KiB a thread, so Linux grants it on request only, to the whole process (arch_prctl(2)).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

struct Found {
  std::array<Isa, 6> isas{Isa::kPortable};
  size_t count = 1;
};

Found find() {
  Found found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (has_avx2() && cpu::avx2_kernels() != nullptr) found.isas[found.count++] = Isa::kAvx2;
  if (has_avxvnni() && cpu::avxvnni_kernels() != nullptr) found.isas[found.count++] = Isa::kAvxVnni;
  if (has_avx512f() && cpu::avx2_kernels() != nullptr) found.isas[found.count++] = Isa::kAvx512f;
  if (has_avx512() && cpu::avx512_kernels() != nullptr) found.isas[found.count++] = Isa::kAvx512;
  if (has_amx() && cpu::amx_kernels() != nullptr) found.isas[found.count++] = Isa::kAmx;
#endif
  return found;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvxVnni: return "avxvnni";
    case Isa::kAvx512f: return "avx512f";
    case Isa::kAvx512: return "avx512";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

std::span<const Isa> available_isas() {
  static const Found found = find();
  return {found.isas.data(), found.count};
}

bool has_slow_bf16_pairs() {
#if defined(__x86_64__)
  static const bool slow = __builtin_cpu_is("intel");
  return slow;
#else
  return true;
#endif
}

Isa default_isa() {
  const std::span<const Isa> isas = available_isas();
  const char* const wanted = std::getenv("DEEPINFER_ISA");
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  for (Isa isa : isas)
    if (isa_name(isa) == wanted) return isa;
  std::fprintf(stderr, "DEEPINFER_ISA is \"%s\", which this machine does not have; it has", wanted);
  for (Isa isa : isas) std::fprintf(stderr, " %s", std::string(isa_name(isa)).c_str());
  std::fprintf(stderr, "\n");
  std::abort();
}

}  // namespace deepinfer
