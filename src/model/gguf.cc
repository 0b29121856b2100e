#include "model/gguf.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "model/gguf_types.h"

namespace deepinfer::model {
namespace {

using Type = GgufValueType;

// Names go into messages, so they hold nothing that a terminal would act on.
bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

// clang-format off
std::string_view type_name(uint32_t type) {
  switch (static_cast<Type>(type)) {
    case Type::kU8: case Type::kI8: case Type::kU16: case Type::kI16:
    case Type::kU32: case Type::kI32: case Type::kU64: case Type::kI64: return "an integer";
    case Type::kF32: case Type::kF64: return "a floating-point number";
    case Type::kBool: return "a bool";
    case Type::kString: return "a string";
    case Type::kArray: return "an array";
  }
  return "of an unknown type";
}
// clang-format on

template <class T>
T value_at(std::span<const std::byte> bytes) {
  return ByteReader(bytes).number<T>();
}

// A number of any integer type, if it fits.
std::optional<int64_t> integer_at(uint32_t type, std::span<const std::byte> bytes) {
  switch (static_cast<Type>(type)) {
    case Type::kU8: return value_at<uint8_t>(bytes);
    case Type::kI8: return value_at<int8_t>(bytes);
    case Type::kU16: return value_at<uint16_t>(bytes);
    case Type::kI16: return value_at<int16_t>(bytes);
    case Type::kU32: return value_at<uint32_t>(bytes);
    case Type::kI32: return value_at<int32_t>(bytes);
    case Type::kI64: return value_at<int64_t>(bytes);
    case Type::kU64: {
      const auto value = value_at<uint64_t>(bytes);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
  }
}

bool is_integer(uint32_t type) { return type_name(type) == "an integer"; }

}  // namespace

// Reads the file once from front to back. Holds what opening needs and the open file does not.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, GgufFile& file) : file_(file), bytes_(bytes), in_(bytes) {}

  Result<> run(GgufFile::UnsupportedTypes types) {
    DI_TRY(read_header());
    for (uint64_t i = 0; i < num_keys_; ++i) DI_TRY(read_key(i));
    DI_TRY(sort_keys());
    DI_TRY(read_alignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) DI_TRY(read_tensor(i));
    DI_TRY(place_tensors());
    if (types == GgufFile::UnsupportedTypes::kReject && !file_.unsupported_.empty()) {
      const auto& tensor = file_.unsupported_.front();
      return error(Code::kUnsupported,
                   "tensor " + std::string(tensor.name) + " has type " + std::string(tensor.type) + ", which is not supported");
    }
    return {};
  }

 private:
  // A line of the tensor table. `type` is in the format's table.
  struct Placed {
    std::string_view name;
    const GgufTensorType* type;
    std::vector<int64_t> shape;
    uint64_t offset, num_bytes;
  };

  Error error(Code code, const std::string& what) const { return Error{code, file_.path_ + ": " + what}; }
  Error corrupt(const std::string& what) const { return error(Code::kCorruption, what); }

  Result<> read_header() {
    if (bytes_.size() < 4) return corrupt("not a GGUF file (" + std::to_string(bytes_.size()) + " bytes long)");
    if (in_.u32() != kGgufMagic) return corrupt("not a GGUF file (it does not begin with \"GGUF\")");
    const uint32_t version = in_.u32();
    num_tensors_ = in_.u64();
    num_keys_ = in_.u64();
    if (!in_.ok()) return corrupt("the file ends inside the GGUF header");
    if (version != 0 && (version & 0xffff) == 0) return error(Code::kUnsupported, "a big-endian GGUF file");
    if (version != 2 && version != 3) {
      return error(Code::kUnsupported, "GGUF version " + std::to_string(version) + " (versions 2 and 3 are supported)");
    }
    file_.version_ = version;
    // The smallest key takes 8 + 1 + 4 + 1 bytes, the smallest line of the tensor table 8 + 1 + 4 + 8 + 4 + 8.
    if (num_keys_ > std::min(GgufFile::kMaxKeys, in_.remaining() / 14)) {
      return corrupt("the metadata count " + std::to_string(num_keys_) + " does not fit the file");
    }
    if (num_tensors_ > std::min(GgufFile::kMaxTensors, in_.remaining() / 33)) {
      return corrupt("the tensor count " + std::to_string(num_tensors_) + " does not fit the file");
    }
    file_.entries_.reserve(num_keys_);
    placed_.reserve(num_tensors_);
    return {};
  }

  Result<> read_key(uint64_t index) {
    const std::string where = "metadata key number " + std::to_string(index);
    const uint64_t length = in_.u64();
    if (length > GgufFile::kMaxKeyBytes) return corrupt(where + ": a name of " + std::to_string(length) + " bytes");
    const std::string_view key = in_.text(length);
    const uint32_t type = in_.u32();
    if (!in_.ok()) return corrupt("the file ends inside " + where);
    if (!is_name(key)) return corrupt(where + ": its name is empty or not printable");
    GgufFile::Entry entry{.key = key, .type = type};
    const std::string named = "metadata key " + std::string(key);
    if (type == static_cast<uint32_t>(Type::kArray)) {
      DI_TRY(read_array(named, entry));
    } else if (type == static_cast<uint32_t>(Type::kString)) {
      entry.payload = in_.take(in_.u64());
    } else if (const uint64_t size = gguf_value_bytes(type); size != 0) {
      entry.payload = in_.take(size);
    } else {
      return corrupt(named + ": unknown value type " + std::to_string(type));
    }
    if (!in_.ok()) return corrupt(named + ": its value reaches past the end of the file");
    if (type == static_cast<uint32_t>(Type::kBool) && value_at<uint8_t>(entry.payload) > 1) {
      return corrupt(named + ": a bool that is neither 0 nor 1");
    }
    file_.entries_.push_back(entry);
    return {};
  }

  // Leaves in_ behind the elements; a read past the end leaves in_.ok() false.
  Result<> read_array(const std::string& named, GgufFile::Entry& entry) {
    entry.element_type = in_.u32();
    entry.count = in_.u64();
    if (!in_.ok()) return {};
    if (entry.element_type == static_cast<uint32_t>(Type::kArray))
      return error(Code::kUnsupported, named + ": an array of arrays");
    const bool strings = entry.element_type == static_cast<uint32_t>(Type::kString);
    const uint64_t element = strings ? 8 : gguf_value_bytes(entry.element_type);
    if (element == 0) return corrupt(named + ": unknown element type " + std::to_string(entry.element_type));
    if (entry.count > std::min(GgufFile::kMaxArrayElements, in_.remaining() / element)) {
      return corrupt(named + ": an array of " + std::to_string(entry.count) + " elements does not fit the file");
    }
    const size_t begin = in_.position();
    if (strings) {
      for (uint64_t i = 0; i < entry.count && in_.ok(); ++i) in_.take(in_.u64());
    } else {
      in_.take(entry.count * element);
    }
    entry.payload = bytes_.subspan(begin, in_.position() - begin);
    return {};
  }

  Result<> sort_keys() {
    auto& entries = file_.entries_;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    const auto twice =
        std::adjacent_find(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.key == b.key; });
    if (twice != entries.end()) return corrupt("metadata key " + std::string(twice->key) + " appears twice");
    return {};
  }

  Result<> read_alignment() {
    DI_TRY(const auto alignment, file_.find_integer("general.alignment"));
    if (alignment) {
      const int64_t a = *alignment;
      if (a <= 0 || a > static_cast<int64_t>(GgufFile::kMaxAlignment) || (a & (a - 1)) != 0) {
        return corrupt("metadata key general.alignment: " + std::to_string(a) + " is not a power of two up to " +
                       std::to_string(GgufFile::kMaxAlignment));
      }
      alignment_ = static_cast<uint64_t>(a);
    }
    DI_TRY(const auto parts, file_.find_integer("split.count"));
    if (parts && *parts > 1) {
      return error(Code::kUnsupported,
                   "one of " + std::to_string(*parts) + " parts of a split model; join them with gguf-split --merge");
    }
    return {};
  }

  Result<> read_tensor(uint64_t index) {
    const std::string where = "tensor number " + std::to_string(index);
    const uint64_t length = in_.u64();
    if (length > GgufFile::kMaxTensorNameBytes) return corrupt(where + ": a name of " + std::to_string(length) + " bytes");
    const std::string_view name = in_.text(length);
    const uint32_t num_dims = in_.u32();
    if (!in_.ok()) return corrupt("the file ends inside the table of tensors");
    if (!is_name(name)) return corrupt(where + ": its name is empty or not printable");
    const std::string named = "tensor " + std::string(name);
    if (num_dims < 1 || num_dims > GgufFile::kMaxDims) return corrupt(named + ": " + std::to_string(num_dims) + " dimensions");
    Placed placed{.name = name, .shape = std::vector<int64_t>(num_dims)};
    int64_t num_elements = 1;
    for (uint32_t d = 0; d < num_dims; ++d) {
      const auto dim = static_cast<int64_t>(in_.u64());
      if (!in_.ok()) return corrupt("the file ends inside the table of tensors");
      if (dim <= 0) return corrupt(named + ": dimension " + std::to_string(dim));
      if (__builtin_mul_overflow(num_elements, dim, &num_elements)) return corrupt(named + ": its dimensions are too large");
      placed.shape[num_dims - 1 - d] = dim;
    }
    const uint32_t type = in_.u32();
    placed.offset = in_.u64();
    if (!in_.ok()) return corrupt("the file ends inside the table of tensors");
    placed.type = find_gguf_tensor_type(type);
    if (placed.type == nullptr) return corrupt(named + ": unknown type " + std::to_string(type));
    const auto& info = *placed.type;
    if (info.block_size == 0) {
      return error(Code::kUnsupported, named + " has type " + std::string(info.name) + ", which was removed from GGUF");
    }
    if (placed.shape.back() % info.block_size != 0) {
      return corrupt(named + ": a row of " + std::to_string(placed.shape.back()) + " numbers is no whole number of " +
                     std::string(info.name) + " blocks of " + std::to_string(info.block_size));
    }
    int64_t num_bytes = 0;
    if (__builtin_mul_overflow(num_elements / info.block_size, int64_t{info.block_bytes}, &num_bytes)) {
      return corrupt(named + ": its dimensions are too large");
    }
    placed.num_bytes = static_cast<uint64_t>(num_bytes);
    placed_.push_back(std::move(placed));
    return {};
  }

  Result<> place_tensors() {
    if (placed_.empty()) return {};
    // Both are far below 2^64: the position is in the file, the alignment bounded.
    const uint64_t begin = (in_.position() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t size = begin <= bytes_.size() ? bytes_.size() - begin : 0;
    for (const Placed& p : placed_) {
      const std::string named = "tensor " + std::string(p.name);
      if (p.offset % alignment_ != 0) {
        return corrupt(named + ": offset " + std::to_string(p.offset) + " is not a multiple of the alignment " +
                       std::to_string(alignment_));
      }
      if (p.offset > size || p.num_bytes > size - p.offset) {
        return corrupt(named + ": " + std::to_string(p.num_bytes) + " bytes at offset " + std::to_string(p.offset) +
                       " reach past the end of the file (truncated?)");
      }
    }
    DI_TRY(reject_overlap());
    for (Placed& p : placed_) {
      if (p.type->dtype) {
        file_.tensors_.push_back({p.name, *p.type->dtype, std::move(p.shape), bytes_.subspan(begin + p.offset, p.num_bytes)});
      } else {
        file_.unsupported_.push_back({p.name, p.type->name, std::move(p.shape), p.num_bytes});
      }
    }
    std::sort(file_.tensors_.begin(), file_.tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return {};
  }

  Result<> reject_overlap() const {
    std::vector<const Placed*> order;
    order.reserve(placed_.size());
    for (const Placed& p : placed_) order.push_back(&p);
    std::sort(order.begin(), order.end(), [](const Placed* a, const Placed* b) { return a->name < b->name; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->name == order[i]->name) return corrupt("tensor " + std::string(order[i]->name) + " appears twice");
    }
    std::sort(order.begin(), order.end(), [](const Placed* a, const Placed* b) { return a->offset < b->offset; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->offset + order[i - 1]->num_bytes > order[i]->offset) {
        return corrupt("tensor " + std::string(order[i]->name) + " overlaps tensor " + std::string(order[i - 1]->name));
      }
    }
    return {};
  }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  ByteReader in_;
  uint64_t num_keys_ = 0, num_tensors_ = 0, alignment_ = kGgufDefaultAlignment;
  std::vector<Placed> placed_;
};

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path, UnsupportedTypes types) {
  DI_TRY(auto mapping, io::MappedFile::open(path));
  DI_TRY(auto file, parse(mapping.bytes(), path, types));
  file->mapping_ = std::move(mapping);
  return file;
}

Result<std::unique_ptr<GgufFile>> GgufFile::parse(std::span<const std::byte> bytes, const std::string& path,
                                                  UnsupportedTypes types) {
  std::unique_ptr<GgufFile> file(new GgufFile);
  file->path_ = path;
  DI_TRY(GgufParser(bytes, *file).run(types));
  return file;
}

const io::MappedFile* GgufFile::mapping_of(const TensorView&) const { return mapping_ ? &*mapping_ : nullptr; }

std::span<io::MappedFile> GgufFile::mappings() { return mapping_ ? std::span(&*mapping_, 1) : std::span<io::MappedFile>(); }

const GgufFile::Entry* GgufFile::entry(std::string_view key) const {
  const auto it =
      std::lower_bound(entries_.begin(), entries_.end(), key, [](const Entry& e, std::string_view k) { return e.key < k; });
  return it != entries_.end() && it->key == key ? &*it : nullptr;
}

Error GgufFile::wrong(std::string_view key, std::string_view what) const {
  return Error{Code::kCorruption, path_ + ": metadata key " + std::string(key) + " " + std::string(what)};
}

template <class T>
Result<T> GgufFile::required(std::string_view key, Result<std::optional<T>> found) const {
  if (!found) return std::move(found).error();
  if (!*found) return wrong(key, "is absent");
  return **found;
}

Result<std::optional<int64_t>> GgufFile::find_integer(std::string_view key) const {
  const Entry* e = entry(key);
  if (e == nullptr) return std::optional<int64_t>();
  if (!is_integer(e->type)) return wrong(key, "is " + std::string(type_name(e->type)) + ", not an integer");
  const auto value = integer_at(e->type, e->payload);
  if (!value) return wrong(key, "is too large");
  return value;
}

Result<std::optional<double>> GgufFile::find_number(std::string_view key) const {
  const Entry* e = entry(key);
  if (e == nullptr) return std::optional<double>();
  if (e->type == static_cast<uint32_t>(Type::kF32)) return std::optional<double>(value_at<float>(e->payload));
  if (e->type == static_cast<uint32_t>(Type::kF64)) return std::optional<double>(value_at<double>(e->payload));
  const auto value = integer_at(e->type, e->payload);
  if (!value) return wrong(key, "is " + std::string(type_name(e->type)) + ", not a usable number");
  return std::optional<double>(static_cast<double>(*value));
}

Result<std::optional<bool>> GgufFile::find_bool(std::string_view key) const {
  const Entry* e = entry(key);
  if (e == nullptr) return std::optional<bool>();
  if (e->type != static_cast<uint32_t>(Type::kBool)) return wrong(key, "is " + std::string(type_name(e->type)) + ", not a bool");
  return std::optional<bool>(value_at<uint8_t>(e->payload) != 0);
}

Result<std::optional<std::string_view>> GgufFile::find_text(std::string_view key) const {
  const Entry* e = entry(key);
  if (e == nullptr) return std::optional<std::string_view>();
  if (e->type != static_cast<uint32_t>(Type::kString))
    return wrong(key, "is " + std::string(type_name(e->type)) + ", not a string");
  return std::optional<std::string_view>({reinterpret_cast<const char*>(e->payload.data()), e->payload.size()});
}

Result<int64_t> GgufFile::integer(std::string_view key) const { return required(key, find_integer(key)); }
Result<double> GgufFile::number(std::string_view key) const { return required(key, find_number(key)); }
Result<std::string_view> GgufFile::text(std::string_view key) const { return required(key, find_text(key)); }

Result<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  std::vector<std::string_view> out;
  const Entry* e = entry(key);
  if (e == nullptr) return out;
  if (e->type != static_cast<uint32_t>(Type::kArray) || e->element_type != static_cast<uint32_t>(Type::kString)) {
    return wrong(key, "is not an array of strings");
  }
  out.reserve(e->count);
  ByteReader in(e->payload);
  for (uint64_t i = 0; i < e->count; ++i) out.push_back(in.text(in.u64()));
  CHECK(in.ok());  // bounds were checked on opening
  return out;
}

Result<std::vector<float>> GgufFile::floats(std::string_view key) const {
  std::vector<float> out;
  const Entry* e = entry(key);
  if (e == nullptr) return out;
  if (e->type != static_cast<uint32_t>(Type::kArray) || e->element_type != static_cast<uint32_t>(Type::kF32)) {
    return wrong(key, "is not an array of 32-bit floats");
  }
  out.resize(e->count);
  if (e->count > 0) std::memcpy(out.data(), e->payload.data(), e->payload.size());
  return out;
}

Result<std::vector<int32_t>> GgufFile::int32s(std::string_view key) const {
  std::vector<int32_t> out;
  const Entry* e = entry(key);
  if (e == nullptr) return out;
  if (e->type != static_cast<uint32_t>(Type::kArray) || !is_integer(e->element_type))
    return wrong(key, "is not an array of integers");
  out.reserve(e->count);
  const uint64_t size = gguf_value_bytes(e->element_type);
  for (uint64_t i = 0; i < e->count; ++i) {
    const auto value = integer_at(e->element_type, e->payload.subspan(i * size, size));
    if (!value || *value != static_cast<int32_t>(*value)) return wrong(key, "holds a number that does not fit 32 bits");
    out.push_back(static_cast<int32_t>(*value));
  }
  return out;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> out;
  for (const Entry& e : entries_) out.push_back(e.key);
  return out;
}

}  // namespace deepinfer::model
