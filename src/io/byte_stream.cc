#include "io/byte_stream.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace deepinfer::io {
namespace {

constexpr size_t kInputBytes = 1 << 18;

// The file itself, with a look ahead at its first bytes.
class RawFile {
 public:
  RawFile(int fd, std::string path) : fd_(fd), path_(std::move(path)), buffer_(kInputBytes) {}
  RawFile(RawFile&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), buffer_(std::move(other.buffer_)), begin_(other.begin_),
        end_(other.end_), consumed_(other.consumed_) {}
  RawFile& operator=(RawFile&&) = delete;
  ~RawFile() {
    if (fd_ > 0) ::close(fd_);
  }

  // What is buffered; refilled when empty. Empty at the end of the file.
  Result<std::span<const char>> available() {
    if (begin_ == end_) {
      begin_ = end_ = 0;
      DI_TRY(const size_t got, read_some({buffer_.data(), buffer_.size()}));
      end_ = got;
    }
    return std::span<const char>(buffer_.data() + begin_, end_ - begin_);
  }
  void consume(size_t bytes) {
    begin_ += bytes;
    consumed_ += bytes;
  }
  // Into `out` itself if nothing is buffered and `out` is no smaller than the buffer.
  Result<size_t> read_into(std::span<char> out) {
    if (begin_ == end_ && out.size() >= buffer_.size()) {
      DI_TRY(const size_t got, read_some(out));
      consumed_ += got;
      return got;
    }
    DI_TRY(const std::span<const char> in, available());
    const size_t n = std::min(in.size(), out.size());
    std::memcpy(out.data(), in.data(), n);
    consume(n);
    return n;
  }
  uint64_t consumed() const { return consumed_; }
  const std::string& path() const { return path_; }

 private:
  Result<size_t> read_some(std::span<char> out) {
    while (true) {
      const ssize_t got = ::read(fd_, out.data(), out.size());
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) return Error{Code::kIo, path_ + ": " + std::strerror(errno)};
    }
  }

  int fd_;
  std::string path_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint64_t consumed_ = 0;
};

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(RawFile file) : file_(std::move(file)) {}
  Result<size_t> read(std::span<char> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      DI_TRY(const size_t got, file_.read_into(out.subspan(filled)));
      if (got == 0) break;
      filled += got;
    }
    return filled;
  }
  uint64_t position() const override { return file_.consumed(); }

 private:
  RawFile file_;
};

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(RawFile file) : file_(std::move(file)) { CHECK(inflateInit2(&zlib_, 15 + 16) == Z_OK); }
  ~GzipStream() override { inflateEnd(&zlib_); }

  Result<size_t> read(std::span<char> out) override {
    size_t filled = 0;
    while (filled < out.size()) {
      DI_TRY(const std::span<const char> in, file_.available());
      if (in.empty()) {
        if (in_member_) return truncated(filled);
        break;
      }
      if (!in_member_) {
        if (static_cast<unsigned char>(in[0]) != 0x1f) break;  // padding after the last member
        inflateReset(&zlib_);
        in_member_ = true;
      }
      zlib_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
      zlib_.avail_in = static_cast<uInt>(in.size());
      zlib_.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
      zlib_.avail_out = static_cast<uInt>(std::min<size_t>(out.size() - filled, 1u << 30));
      const size_t offered = zlib_.avail_out;
      const int status = inflate(&zlib_, Z_NO_FLUSH);
      filled += offered - zlib_.avail_out;
      file_.consume(in.size() - zlib_.avail_in);
      if (status == Z_STREAM_END) in_member_ = false;
      else if (status != Z_OK && status != Z_BUF_ERROR) return broken(filled);
    }
    return filled;
  }
  uint64_t position() const override { return file_.consumed(); }

 private:
  // What was decompressed before the damage is delivered first; the error comes with the next call.
  Result<size_t> truncated(size_t filled) {
    if (filled > 0) return filled;
    return Error{Code::kCorruption, file_.path() + ": the gzip stream stops in the middle"};
  }
  Result<size_t> broken(size_t filled) {
    if (filled > 0) return filled;
    return Error{Code::kCorruption, file_.path() + ": the gzip stream is damaged"};
  }

  RawFile file_;
  z_stream zlib_{};
  bool in_member_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(RawFile file) : file_(std::move(file)), zstd_(ZSTD_createDStream()) {
    CHECK(zstd_ != nullptr);
    ZSTD_DCtx_setParameter(zstd_, ZSTD_d_windowLogMax, 27);  // 128 MiB: what `zstd --long` writes; more is refused
  }
  ~ZstdStream() override { ZSTD_freeDStream(zstd_); }

  Result<size_t> read(std::span<char> out) override {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      DI_TRY(const std::span<const char> bytes, file_.available());
      ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
      const size_t before = to.pos;
      const size_t status = ZSTD_decompressStream(zstd_, &to, &from);
      file_.consume(from.pos);
      if (ZSTD_isError(status)) {
        if (to.pos > 0) return to.pos;
        return Error{Code::kCorruption, file_.path() + ": the Zstandard stream is damaged: " + ZSTD_getErrorName(status)};
      }
      if (bytes.empty() && to.pos == before) {
        if (to.pos == 0 && in_frame_) return Error{Code::kCorruption, file_.path() + ": the Zstandard stream stops in the middle"};
        break;
      }
      in_frame_ = status != 0;
    }
    return to.pos;
  }
  uint64_t position() const override { return file_.consumed(); }

 private:
  RawFile file_;
  ZSTD_DStream* zstd_;
  bool in_frame_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteStream>> ByteStream::open(const std::string& path) {
  int fd = STDIN_FILENO;
  if (path != "-") {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Error{errno == ENOENT ? Code::kNotFound : Code::kIo, path + ": " + std::strerror(errno)};
  }
  RawFile file(fd, path == "-" ? "stdin" : path);
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) return Error{Code::kIo, path + " is a folder"};
  DI_TRY(const std::span<const char> head, file.available());
  const auto starts_with = [&](std::string_view magic) { return head.size() >= magic.size() && std::memcmp(head.data(), magic.data(), magic.size()) == 0; };
  if (starts_with("\x1f\x8b")) return std::unique_ptr<ByteStream>(new GzipStream(std::move(file)));
  if (starts_with("\x28\xb5\x2f\xfd")) return std::unique_ptr<ByteStream>(new ZstdStream(std::move(file)));
  return std::unique_ptr<ByteStream>(new PlainStream(std::move(file)));
}

}  // namespace deepinfer::io
