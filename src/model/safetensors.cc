#include "model/safetensors.h"

#include <fmt/format.h>
#include <simdjson.h>
#include <algorithm>
#include <filesystem>
#include <map>

#include "base/bytes.h"

namespace deepinfer::model {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";

// The dtypes of the format. Those without one of ours are well formed but not computed with here; adding one is a line.
struct FileDType {
  std::string_view name;
  std::optional<DType> dtype;
};
// clang-format off
constexpr FileDType kDTypes[] = {
    {"F32", DType::kF32}, {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"F8_E4M3", DType::kF8_E4M3}, {"F8_E8M0", DType::kF8_E8M0}, {"I8", DType::kI8},
    {"BOOL", {}}, {"U8", {}}, {"F4", {}}, {"F6_E2M3", {}}, {"F6_E3M2", {}}, {"F8_E5M2", {}},
    {"I16", {}}, {"U16", {}}, {"I32", {}}, {"U32", {}}, {"F64", {}}, {"I64", {}}, {"U64", {}}, {"C64", {}},
};
// clang-format on

bool is_name(std::string_view text, size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7f; });
}

// What one entry of a header says, before it is checked against the data.
struct Entry {
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

// Reads {"dtype": …, "shape": [...], "data_offsets": [begin, end]}. `where` names file and tensor.
class EntryReader {
 public:
  explicit EntryReader(std::string where) : where_(std::move(where)) {}

  Result<Entry> read(simdjson::dom::element element) const {
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS) return corrupt("its entry is not an object");
    bool dtype_seen = false, shape_seen = false, offsets_seen = false;
    Entry entry{};
    for (const auto& [key, value] : object) {
      if (key == "dtype") {
        DI_TRY(once(key, dtype_seen));
        DI_TRY(entry.dtype, read_dtype(value));
      } else if (key == "shape") {
        DI_TRY(once(key, shape_seen));
        DI_TRY(entry.shape, read_shape(value));
      } else if (key == "data_offsets") {
        DI_TRY(once(key, offsets_seen));
        DI_TRY(read_offsets(value, entry));
      } else {
        return corrupt("its entry has a field other than dtype, shape and data_offsets");
      }
    }
    if (!dtype_seen) return corrupt("it has no dtype");
    if (!shape_seen) return corrupt("it has no shape");
    if (!offsets_seen) return corrupt("it has no data_offsets");
    return entry;
  }

  Error corrupt(const std::string& what) const { return Error{Code::kCorruption, where_ + ": " + what}; }

 private:
  Result<> once(std::string_view field, bool& seen) const {
    if (seen) return corrupt(std::string(field) + " is given twice");
    seen = true;
    return {};
  }

  Result<DType> read_dtype(simdjson::dom::element value) const {
    std::string_view name;
    if (value.get(name) != simdjson::SUCCESS) return corrupt("its dtype is not a string");
    for (const FileDType& known : kDTypes) {
      if (known.name != name) continue;
      if (known.dtype) return *known.dtype;
      return Error{Code::kUnsupported,
                   fmt::format("{}: dtype {} is not supported (F32, F16, BF16, F8_E4M3, F8_E8M0 and I8 are)", where_, name)};
    }
    return corrupt(fmt::format("unknown dtype {:?}", name.substr(0, 64)));
  }

  Result<std::vector<int64_t>> read_shape(simdjson::dom::element value) const {
    simdjson::dom::array array;
    if (value.get(array) != simdjson::SUCCESS) return corrupt("its shape is not an array");
    std::vector<int64_t> shape;
    for (const simdjson::dom::element element : array) {
      int64_t dim = 0;
      if (shape.size() == Safetensors::kMaxDims) return corrupt(fmt::format("more than {} dimensions", Safetensors::kMaxDims));
      if (element.get(dim) != simdjson::SUCCESS || dim < 0) return corrupt("a dimension is not a whole number below 2^63");
      shape.push_back(dim);
    }
    return shape;
  }

  Result<> read_offsets(simdjson::dom::element value, Entry& entry) const {
    simdjson::dom::array array;
    if (value.get(array) != simdjson::SUCCESS || array.size() != 2) return corrupt("its data_offsets are not two numbers");
    if (array.at(0).get(entry.begin) != simdjson::SUCCESS || array.at(1).get(entry.end) != simdjson::SUCCESS) {
      return corrupt("its data_offsets are not two whole numbers");
    }
    return {};
  }

  std::string where_;
};

Error corrupt(const std::string& path, const std::string& what) { return Error{Code::kCorruption, path + ": " + what}; }

// A view of tensors that lie in [begin, end) of the data of one file; sorted by begin, they must cover it without hole or
// overlap.
struct Span {
  uint64_t begin, end;
  std::string_view name;
};
Result<> check_cover(std::vector<Span> spans, uint64_t data_bytes, const std::string& path) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t at = 0;
  std::string_view previous;
  for (const Span& span : spans) {
    if (span.begin < at) return corrupt(path, fmt::format("tensor {} overlaps tensor {}", span.name, previous));
    if (span.begin > at) return corrupt(path, fmt::format("{} unused bytes before tensor {}", span.begin - at, span.name));
    at = span.end;
    previous = span.name;
  }
  if (at != data_bytes) return corrupt(path, fmt::format("{} bytes after the last tensor", data_bytes - at));
  return {};
}

// A shard's name from an index: a plain file name, so that an index cannot make us read elsewhere.
bool is_file_name(std::string_view name) {
  return is_name(name, 255) && name.find('/') == std::string_view::npos && name != "." && name != "..";
}

}  // namespace

Result<std::unique_ptr<Safetensors>> Safetensors::parse(std::span<const std::byte> bytes, const std::string& path) {
  std::unique_ptr<Safetensors> out(new Safetensors);
  out->path_ = path;
  DI_TRY(out->add_file(bytes, path));
  DI_TRY(out->finish());
  return out;
}

Result<std::unique_ptr<Safetensors>> Safetensors::parse_shards(std::string_view index, const FindShard& shard, const std::string& folder) {
  std::unique_ptr<Safetensors> out(new Safetensors);
  out->path_ = folder;
  DI_TRY(out->add_shards(index, shard, folder));
  DI_TRY(out->finish());
  return out;
}

Result<std::unique_ptr<Safetensors>> Safetensors::open(const std::string& path) {
  std::unique_ptr<Safetensors> out(new Safetensors);
  out->path_ = path;
  std::error_code ignored;
  std::string file = path;
  if (std::filesystem::is_directory(path, ignored)) {
    const auto index = io::read_small_file(path + "/" + kIndexName, kMaxIndexBytes);
    if (index) {
      const auto map_shard = [&](const std::string& name) -> Result<std::span<const std::byte>> {
        DI_TRY(auto mapping, io::MappedFile::open(path + "/" + name));
        out->mappings_.push_back(std::move(mapping));
        return out->mappings_.back().bytes();
      };
      DI_TRY(out->add_shards(*index, map_shard, path));
      DI_TRY(out->finish());
      return out;
    }
    if (index.error().code != Code::kNotFound) return index.error();
    file = path + "/model.safetensors";
    if (!std::filesystem::exists(file, ignored)) {
      return Error{Code::kNotFound, path + ": neither model.safetensors nor " + kIndexName + " is in this folder"};
    }
  }
  DI_TRY(auto mapping, io::MappedFile::open(file));
  out->mappings_.push_back(std::move(mapping));
  DI_TRY(out->add_file(out->mappings_.back().bytes(), file));
  DI_TRY(out->finish());
  return out;
}

// Appends one file's tensors to names_ and tensors_.
Result<> Safetensors::add_file(std::span<const std::byte> bytes, const std::string& path) {
  ByteReader in(bytes);
  const uint64_t header_bytes = in.u64();
  if (!in.ok()) return corrupt(path, fmt::format("not a safetensors file ({} bytes long)", bytes.size()));
  if (header_bytes > kMaxHeaderBytes)
    return corrupt(path, fmt::format("not a safetensors file (a header of {} bytes)", header_bytes));
  const std::string_view header = in.text(header_bytes);
  if (!in.ok()) return corrupt(path, fmt::format("its header of {} bytes reaches past the end of the file", header_bytes));
  const auto data = bytes.subspan(in.position());

  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const auto error = parser.parse(header.data(), header.size()).get(object);
  if (error != simdjson::SUCCESS) {
    return corrupt(path, fmt::format("its header is not a JSON object ({})", simdjson::error_message(error)));
  }
  std::vector<Span> spans;
  for (const auto& [key, value] : object) {
    if (key == "__metadata__") {
      if (!value.is_object()) return corrupt(path, "__metadata__ is not an object");
      continue;
    }
    if (!is_name(key, kMaxNameBytes)) return corrupt(path, "a tensor's name is empty, too long or not printable");
    if (tensors_.size() == kMaxTensors) return corrupt(path, fmt::format("more than {} tensors", kMaxTensors));
    const EntryReader reader(fmt::format("{}: tensor {}", path, key));
    DI_TRY(Entry entry, reader.read(value));
    if (entry.begin > entry.end) return reader.corrupt("its data end before they begin");
    if (entry.end > data.size()) {
      return reader.corrupt(fmt::format("its data end at {}, the file has {} (truncated?)", entry.end, data.size()));
    }
    int64_t num_bytes = dtype_info(entry.dtype).block_bytes;
    for (const int64_t dim : entry.shape) {
      if (dim == 0) return reader.corrupt("a dimension is 0");
      if (__builtin_mul_overflow(num_bytes, dim, &num_bytes)) return reader.corrupt("its dimensions are too large");
    }
    if (static_cast<uint64_t>(num_bytes) != entry.end - entry.begin) {
      return reader.corrupt(fmt::format("its shape needs {} bytes, its data are {}", num_bytes, entry.end - entry.begin));
    }
    names_.emplace_back(key);
    spans.push_back({entry.begin, entry.end, names_.back()});
    tensors_.push_back({names_.back(), entry.dtype, std::move(entry.shape), data.subspan(entry.begin, entry.end - entry.begin)});
  }
  return check_cover(std::move(spans), data.size(), path);
}

Result<> Safetensors::add_shards(std::string_view index, const FindShard& shard_bytes, const std::string& folder) {
  const std::string index_path = folder + "/" + kIndexName;
  simdjson::dom::parser parser;
  simdjson::dom::object object, weight_map;
  const auto error = parser.parse(index.data(), index.size()).get(object);
  if (error != simdjson::SUCCESS)
    return corrupt(index_path, fmt::format("not a JSON object ({})", simdjson::error_message(error)));
  if (object["weight_map"].get(weight_map) != simdjson::SUCCESS) return corrupt(index_path, "it has no object weight_map");
  std::map<std::string, std::map<std::string, bool>> shards;  // shard -> the tensors that it should hold -> found
  for (const auto& [key, value] : weight_map) {
    std::string_view shard;
    if (!is_name(key, kMaxNameBytes)) return corrupt(index_path, "a tensor's name is empty, too long or not printable");
    if (value.get(shard) != simdjson::SUCCESS)
      return corrupt(index_path, fmt::format("tensor {}: its shard is not a string", key));
    if (!is_file_name(shard)) {
      return corrupt(index_path, fmt::format("tensor {}: its shard {:?} is not the name of a file in this folder", key,
                                             shard.substr(0, 255)));
    }
    if (!shards[std::string(shard)].emplace(key, false).second)
      return corrupt(index_path, fmt::format("tensor {} appears twice", key));
    if (shards.size() > kMaxShards) return corrupt(index_path, fmt::format("more than {} shards", kMaxShards));
  }
  if (shards.empty()) return corrupt(index_path, "weight_map is empty");
  for (auto& [shard, expected] : shards) {
    const std::string path = fmt::format("{}/{}", folder, shard);
    const auto bytes = shard_bytes(shard);
    if (!bytes) return Error{bytes.error().code, fmt::format("{}, named in {}", bytes.error().message, index_path)};
    const size_t first = tensors_.size();
    DI_TRY(add_file(*bytes, path));
    for (size_t i = first; i < tensors_.size(); ++i) {
      const auto it = expected.find(std::string(tensors_[i].name));
      if (it == expected.end())
        return corrupt(path, fmt::format("tensor {} is not listed for this shard in {}", tensors_[i].name, index_path));
      it->second = true;
    }
    for (const auto& [name, found] : expected) {
      if (!found) return corrupt(path, fmt::format("tensor {} is not in this shard, where {} puts it", name, index_path));
    }
  }
  return {};
}

Result<> Safetensors::finish() {
  std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors_.size(); ++i) {
    if (tensors_[i - 1].name == tensors_[i].name) return corrupt(path_, fmt::format("tensor {} appears twice", tensors_[i].name));
  }
  return {};
}

const io::MappedFile* Safetensors::mapping_of(const TensorView& tensor) const {
  const auto holds = [&](const io::MappedFile& file) {
    return tensor.data.data() >= file.bytes().data() && tensor.data.data() < file.bytes().data() + file.bytes().size();
  };
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), holds);
  return found == mappings_.end() ? nullptr : &*found;
}

}  // namespace deepinfer::model
