// Writes the code-point class tables of src/tokenizer/unicode.h as C++ source to standard output, from the Unicode data of the ICU
// that this machine has. Run by the build. A static table costs nothing at start and keeps the hot path free of ICU calls.
#include <unicode/uchar.h>
#include <unicode/unorm2.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <vector>

namespace {

// The bits of tokenizer::CharClass; unicode_test.cc compares the two through ICU itself.
enum : uint8_t { kLetter = 1, kMark = 2, kNumber = 4, kPunctuation = 8, kSymbol = 16, kSpace = 32, kCjkRange = 64, kNfcCare = 128 };

uint8_t class_of(UChar32 c) {
  uint8_t bits = 0;
  const uint32_t mask = U_MASK(u_charType(c));
  if (mask & U_GC_L_MASK) bits |= kLetter;
  if (mask & U_GC_M_MASK) bits |= kMark;
  if (mask & U_GC_N_MASK) bits |= kNumber;
  if (mask & U_GC_P_MASK) bits |= kPunctuation;
  if (mask & U_GC_S_MASK) bits |= kSymbol;
  if (u_hasBinaryProperty(c, UCHAR_WHITE_SPACE)) bits |= kSpace;
  if ((c >= 0x4e00 && c <= 0x9fa5) || (c >= 0x3040 && c <= 0x30ff)) bits |= kCjkRange;
  // A text without such code points is in NFC: every one passes the quick check and none can be reordered.
  if (u_getIntPropertyValue(c, UCHAR_NFC_QUICK_CHECK) != UNORM_YES || u_getCombiningClass(c) != 0) bits |= kNfcCare;
  return bits;
}

void print_bytes(const char* declaration, const std::vector<uint8_t>& bytes) {
  std::printf("%s = {", declaration);
  for (size_t i = 0; i < bytes.size(); ++i) std::printf("%s%u,", i % 32 == 0 ? "\n" : "", bytes[i]);
  std::printf("\n};\n");
}

}  // namespace

int main() {
  constexpr UChar32 kBlock = 256;
  std::map<std::vector<uint8_t>, uint8_t> index_of;
  std::vector<uint8_t> index, blocks;
  for (UChar32 start = 0; start < 0x110000; start += kBlock) {
    std::vector<uint8_t> block;
    for (UChar32 c = start; c < start + kBlock; ++c) block.push_back(class_of(c));
    const auto [at, is_new] = index_of.try_emplace(block, static_cast<uint8_t>(index_of.size()));
    if (index_of.size() > 256) {
      std::fprintf(stderr, "generate: more than 256 different blocks; the index needs wider entries\n");
      return 1;
    }
    if (is_new) blocks.insert(blocks.end(), block.begin(), block.end());
    index.push_back(at->second);
  }
  std::printf("// Written by tools/unicode_tables/generate.cc from Unicode %s. Do not edit.\n", U_UNICODE_VERSION);
  std::printf("#include \"tokenizer/unicode.h\"\n\nnamespace deepinfer::tokenizer {\n");
  std::printf("const char kUnicodeVersion[] = \"%s\";\n", U_UNICODE_VERSION);
  print_bytes("const uint8_t kClassIndex[0x1100]", index);
  print_bytes("const uint8_t kClassBlocks[]", blocks);
  std::printf("}  // namespace deepinfer::tokenizer\n");
  return 0;
}
