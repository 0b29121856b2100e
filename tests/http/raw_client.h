// A client for tests that sends exactly the bytes it is given and shows exactly what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "eventually.h"

namespace deepinfer::testing_support {

struct Answer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without chunk framing
  std::string raw;
};

class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::send(fd_, data.data(), data.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      data.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Appends what is there to pending(); false: closed, or nothing came in time.
  bool receive(int timeout_ms = kPatienceMs) {
    pollfd poll{.fd = fd_, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, timeout_ms) <= 0) return false;
    char chunk[65536];
    const ssize_t size = ::recv(fd_, chunk, sizeof(chunk), 0);
    if (size <= 0) {
      closed_ = true;
      return false;
    }
    pending_.append(chunk, static_cast<size_t>(size));
    return true;
  }
  bool receive_until(std::string_view mark) {
    while (pending_.find(mark) == std::string::npos) {
      if (!receive()) return false;
    }
    return true;
  }
  // True: the server closed the connection (and sent nothing more).
  bool wait_closed() {
    while (receive()) {
    }
    return closed_;
  }
  const std::string& pending() const { return pending_; }

  // One whole answer; nullopt: the connection ended or went silent before its end. head_only: the request was HEAD.
  std::optional<Answer> answer(bool head_only = false) {
    if (!receive_until("\r\n\r\n")) return std::nullopt;
    Answer out;
    const size_t head_end = pending_.find("\r\n\r\n") + 4;
    parse_head(std::string_view(pending_).substr(0, head_end), out);
    size_t end = head_end;
    const auto need = [&](size_t size) {
      while (pending_.size() < size) {
        if (!receive()) return false;
      }
      return true;
    };
    if (head_only || out.status == 204) {
    } else if (const auto length = out.headers.find("content-length"); length != out.headers.end()) {
      end = head_end + std::strtoull(length->second.c_str(), nullptr, 10);
      if (!need(end)) return std::nullopt;
      out.body = pending_.substr(head_end, end - head_end);
    } else if (out.headers.contains("transfer-encoding")) {
      for (size_t size = 1; size != 0;) {
        size_t line;
        while ((line = pending_.find("\r\n", end)) == std::string::npos) {
          if (!receive()) return std::nullopt;
        }
        size = std::strtoull(pending_.c_str() + end, nullptr, 16);
        if (!need(line + 2 + size + 2)) return std::nullopt;
        out.body += pending_.substr(line + 2, size);
        end = line + 2 + size + 2;
      }
    } else {
      while (receive()) {
      }
      end = pending_.size();
      out.body = pending_.substr(head_end);
    }
    out.raw = pending_.substr(0, end);
    pending_.erase(0, end);
    return out;
  }

  std::optional<Answer> request(std::string_view bytes) {
    if (!send(bytes)) return std::nullopt;
    return answer();
  }

 private:
  static void parse_head(std::string_view head, Answer& out) {
    out.status = head.size() > 12 ? std::atoi(std::string(head.substr(9, 3)).c_str()) : 0;
    size_t at = head.find("\r\n") + 2;
    while (at + 2 < head.size()) {
      const size_t end = head.find("\r\n", at), colon = head.find(':', at);
      std::string name(head.substr(at, colon - at));
      for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      out.headers[name] = std::string(head.substr(colon + 2, end - colon - 2));
      at = end + 2;
    }
  }

  int fd_;
  bool connected_ = false, closed_ = false;
  std::string pending_;
};

inline std::string post(std::string_view path, std::string_view body, std::string_view headers = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) + "Content-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + std::string(body);
}
inline std::string get(std::string_view path, std::string_view headers = "") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(headers) + "\r\n";
}

}  // namespace deepinfer::testing_support
