#include "trace/request_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace deepinfer::trace {
namespace {

constexpr std::string_view kMagic = "DIRT0003";

class Writer {
 public:
  void raw(const void* bytes, size_t size) { out_.append(static_cast<const char*>(bytes), size); }
  template <class T>
  void value(T value) {
    raw(&value, sizeof(value));
  }
  void text(const std::string& text) {
    value(static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void names(const NameTable& names) {
    value(names.size());
    for (uint32_t id = 0; id < names.size(); ++id) text(names.name(id));
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

// Sticky: a read past the end gives 0, and ok() is false from then on.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T value() {
    T out{};
    if (bytes_.size() - at_ < sizeof(T)) ok_ = false;
    if (!ok_) return out;
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return out;
  }
  std::string_view text() {
    const uint32_t size = value<uint32_t>();
    if (bytes_.size() - at_ < size) ok_ = false;
    if (!ok_) return {};
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  void names(NameTable& names) {
    const uint32_t count = value<uint32_t>();
    for (uint32_t id = 0; id < count && ok_; ++id) ok_ &= names.id(text()) == id;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

uint32_t NameTable::id(std::string_view name) {
  const auto [at, fresh] = ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
  if (fresh) {
    names_.emplace_back(name);
    bytes_ += kBytesOfEach + 2 * name.size();
  }
  return at->second;
}

uint32_t RequestTrace::add(TracedRequest request, std::span<const PrefixKey> keys) {
  const PrefixTree::Inserted inserted = tree.insert(keys);
  request.leaf = inserted.leaf;
  request.num_blocks = static_cast<uint32_t>(keys.size());
  requests.push_back(request);
  if (tree.full()) {
    const std::vector<uint32_t> now = tree.shrink();
    for (TracedRequest& r : requests) r.leaf = now[r.leaf];
  }
  return inserted.num_known;
}

std::vector<uint32_t> RequestTrace::by_time() const {
  std::vector<uint32_t> order(requests.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return requests[a].time_us < requests[b].time_us; });
  return order;
}

Result<> RequestTrace::append(const RequestTrace& other) {
  if (other.partial_blocks != partial_blocks) return Error{Code::kInvalidArgument, "a trace of block hashes and one of prompts cannot be joined"};
  if (other.block_tokens != block_tokens) {
    return Error{Code::kInvalidArgument, fmt::format("traces with blocks of {} and of {} tokens cannot be joined", block_tokens, other.block_tokens)};
  }
  if (other.tree.seed() != tree.seed()) return Error{Code::kInvalidArgument, "traces that were sampled with different seeds cannot be joined"};
  if (other.tree.threshold() < tree.threshold()) {
    const std::vector<uint32_t> now = tree.lower_threshold(other.tree.threshold());
    for (TracedRequest& r : requests) r.leaf = now[r.leaf];
  }
  std::vector<uint32_t> to(other.tree.nodes().size(), PrefixTree::kRoot);
  for (uint32_t id = 1; id < to.size(); ++id) {
    const PrefixTree::Node& node = other.tree.nodes()[id];
    to[id] = tree.kept(node.key) ? tree.add(node.key, to[node.parent], node.depth) : to[node.parent];
  }
  for (TracedRequest r : other.requests) {
    r.leaf = to[r.leaf];
    r.tenant = tenants.id(other.tenants.name(r.tenant));
    r.model = models.id(other.models.name(r.model));
    requests.push_back(r);
  }
  if (tree.full()) {
    const std::vector<uint32_t> now = tree.shrink();
    for (TracedRequest& r : requests) r.leaf = now[r.leaf];
  }
  return {};
}

void RequestTrace::rename_tenants(const std::function<std::string(const std::string&)>& name_of) {
  NameTable renamed;
  std::vector<uint32_t> to;
  for (uint32_t id = 0; id < tenants.size(); ++id) to.push_back(renamed.id(name_of(tenants.name(id))));
  for (TracedRequest& r : requests) r.tenant = to[r.tenant];
  tenants = std::move(renamed);
}

std::string RequestTrace::encode() const {
  Writer out;
  out.raw(kMagic.data(), kMagic.size());
  out.value(block_tokens);
  out.value(static_cast<uint32_t>(partial_blocks));
  out.value(tree.threshold());
  out.value(tree.seed());
  out.value(static_cast<uint64_t>(tree.nodes().size() - 1));
  for (const PrefixTree::Node& node : tree.nodes().subspan(1)) {
    out.value(node.key.low);
    out.value(node.key.high);
    out.value(node.parent);
    out.value(node.depth);
  }
  out.names(tenants);
  out.names(models);
  out.value(static_cast<uint64_t>(requests.size()));
  for (const TracedRequest& r : requests) {
    out.value(r.time_us);
    out.value(r.session);
    for (const uint32_t field : {r.leaf, r.num_blocks, r.head_blocks, r.tenant, r.model}) out.value(field);
    for (const int32_t field : {r.input_tokens, r.logged_input, r.logged_cached, r.logged_written, r.logged_written_1h, r.output_tokens}) out.value(field);
  }
  return out.take();
}

Result<RequestTrace> RequestTrace::decode(std::string_view bytes, uint64_t max_blocks) {
  const Error broken{Code::kCorruption, "the request trace is damaged"};
  if (!bytes.starts_with(kMagic)) return Error{Code::kCorruption, "not a request trace of this version"};
  Reader in(bytes.substr(kMagic.size()));
  const int32_t block_tokens = in.value<int32_t>();
  const bool partial_blocks = in.value<uint32_t>() != 0;
  const uint64_t threshold = in.value<uint64_t>(), seed = in.value<uint64_t>(), num_nodes = in.value<uint64_t>();
  if (!in.ok() || block_tokens < 1 || num_nodes >= UINT32_MAX) return broken;
  RequestTrace out(block_tokens, max_blocks, 1, seed);
  out.partial_blocks = partial_blocks;
  out.tree.lower_threshold(threshold);
  for (uint64_t id = 1; id <= num_nodes; ++id) {
    const PrefixKey key{in.value<uint64_t>(), in.value<uint64_t>()};
    const uint32_t parent = in.value<uint32_t>(), depth = in.value<uint32_t>();
    if (!in.ok() || parent >= id || depth <= out.tree.nodes()[parent].depth) return broken;
    if (out.tree.add(key, parent, depth) != id) return broken;
  }
  in.names(out.tenants);
  in.names(out.models);
  const uint64_t num_requests = in.value<uint64_t>();
  for (uint64_t i = 0; i < num_requests && in.ok(); ++i) {
    TracedRequest r;
    r.time_us = in.value<int64_t>();
    r.session = in.value<uint64_t>();
    for (uint32_t* field : {&r.leaf, &r.num_blocks, &r.head_blocks, &r.tenant, &r.model}) *field = in.value<uint32_t>();
    for (int32_t* field : {&r.input_tokens, &r.logged_input, &r.logged_cached, &r.logged_written, &r.logged_written_1h, &r.output_tokens}) *field = in.value<int32_t>();
    if (r.leaf > num_nodes || r.tenant >= out.tenants.size() || r.model >= out.models.size()) return broken;
    if (out.tree.nodes()[r.leaf].depth > r.num_blocks || r.input_tokens < 0) return broken;
    out.requests.push_back(r);
  }
  if (!in.ok() || !in.at_end()) return broken;
  if (out.tree.full()) {
    const std::vector<uint32_t> now = out.tree.shrink();
    for (TracedRequest& r : out.requests) r.leaf = now[r.leaf];
  }
  return out;
}

}  // namespace deepinfer::trace
