#include "api/image_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <charconv>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "api/transport.h"

namespace deepinfer::api {
namespace {

namespace http = boost::beast::http;
constexpr uint32_t kMaxHeaderBytes = 16u << 10;

struct Url {
  bool tls = false;
  std::string host, port, target;
};

using Addresses = std::vector<asio::ip::address>;

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Error too_late(const ImageFetchOptions& options) {
  return {Code::kDeadlineExceeded, fmt::format("the image could not be fetched within {} ms", options.timeout.count())};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

bool is_host_char(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_'; }
// What goes into the request line as it is: no blank, no line end, nothing that is not ASCII.
bool is_target_char(char c) { return c > 0x20 && c < 0x7f; }

// scheme://host[:port][/target]; no user, no address in brackets: such hosts cannot be on the list.
std::optional<Url> parse_url(std::string_view text) {
  Url out;
  if (text.starts_with("https://")) {
    out.tls = true;
  } else if (!text.starts_with("http://")) {
    return std::nullopt;
  }
  text.remove_prefix(out.tls ? 8 : 7);
  text = text.substr(0, text.find('#'));
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  out.target = text.substr(end);
  if (!out.target.starts_with('/')) out.target.insert(0, "/");
  const size_t colon = authority.find(':');
  out.port = out.tls ? "443" : "80";
  if (colon != std::string_view::npos) {
    out.port = authority.substr(colon + 1);
    uint16_t number = 0;
    const auto [stop, error] = std::from_chars(out.port.data(), out.port.data() + out.port.size(), number);
    if (error != std::errc() || stop != out.port.data() + out.port.size() || number == 0) return std::nullopt;
    out.port = std::to_string(number);
  }
  out.host = lower(authority.substr(0, colon));
  if (out.host.empty() || !std::all_of(out.host.begin(), out.host.end(), is_host_char)) return std::nullopt;
  if (!std::all_of(out.target.begin(), out.target.end(), is_target_char)) return std::nullopt;
  return out;
}

bool is_listed(const Url& url, const std::vector<std::string>& hosts) {
  const std::string usual = url.tls ? "443" : "80", with_port = url.host + ":" + url.port;
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return lower(host) == with_port || (url.port == usual && lower(host) == url.host); });
}

Result<std::string> body_of(http::response_parser<http::string_body>& parser, error_code error, const ImageFetchOptions& options) {
  if (error == http::error::body_limit) return invalid(fmt::format("the image has more than {} bytes", options.max_bytes));
  if (error) return Error{Code::kIo, fmt::format("the image could not be fetched: {}", error.message())};
  const unsigned status = parser.get().result_int();
  if (status >= 500) return Error{Code::kIo, fmt::format("the image could not be fetched: its server answered with status {}", status)};
  if (status >= 300 && status < 400) return invalid(fmt::format("the image could not be fetched: its server redirects (status {}), which is not followed", status));
  if (status != 200) return invalid(fmt::format("the image could not be fetched: its server answered with status {}", status));
  return std::move(parser.get().body());
}

template <class Stream>
asio::awaitable<Result<std::string>> exchange(Stream& stream, const Url& url, const ImageFetchOptions& options) {
  http::request<http::empty_body> request(http::verb::get, url.target, 11);
  const bool usual_port = url.port == (url.tls ? "443" : "80");
  request.set(http::field::host, usual_port ? url.host : url.host + ":" + url.port);
  request.set(http::field::user_agent, "deepinfer");
  request.set(http::field::accept, "image/*");
  request.set(http::field::connection, "close");
  auto [write_error, written] = co_await http::async_write(stream, request, kAwait);
  if (write_error) co_return Error{Code::kIo, fmt::format("the image could not be fetched: {}", write_error.message())};
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(options.max_bytes);
  auto [read_error, num_read] = co_await http::async_read(stream, buffer, parser, kAwait);
  co_return body_of(parser, read_error, options);
}

// Where a name leads, of what is allowed.
Result<Addresses> find_addresses(const Url& url, const ImageFetchOptions& options, std::chrono::steady_clock::time_point deadline) {
  auto promise = std::make_shared<std::promise<HostAddresses>>();
  std::future<HostAddresses> answer = promise->get_future();
  try {
    std::thread([promise = std::move(promise), look_up = options.look_up, host = url.host] { promise->set_value(look_up(host)); }).detach();
  } catch (const std::system_error&) {
    return Error{Code::kUnavailable, "there is no thread to look a host up"};
  }
  if (answer.wait_until(deadline) != std::future_status::ready) return too_late(options);
  HostAddresses host = answer.get();
  if (host.found.empty()) return Error{Code::kIo, fmt::format("the image could not be fetched: {}: {}", url.host, host.error)};
  std::erase_if(host.found, [&](const asio::ip::address& address) { return !options.allows(address); });
  if (host.found.empty()) return invalid(fmt::format("the image could not be fetched: {} has no public address", url.host));
  return std::move(host.found);
}

// Connects to the addresses that were checked, not to the name again: a second look-up could lead elsewhere.
asio::awaitable<Result<Tcp::socket>> connect(const Url& url, const Addresses& addresses) {
  const auto executor = co_await asio::this_coro::executor;
  uint16_t port = 0;
  std::from_chars(url.port.data(), url.port.data() + url.port.size(), port);
  error_code last;
  for (const asio::ip::address& address : addresses) {
    Tcp::socket socket(executor);
    auto [connect_error] = co_await socket.async_connect(Tcp::endpoint(address, port), kAwait);
    if (!connect_error) co_return std::move(socket);
    last = connect_error;
  }
  co_return Error{Code::kIo, fmt::format("the image could not be fetched: {}: {}", url.host, last.message())};
}

asio::awaitable<Result<std::string>> fetch(const Url& url, const Addresses& addresses, const ImageFetchOptions& options) {
  Result<Tcp::socket> connected = co_await connect(url, addresses);
  if (!connected) co_return connected.error();
  if (!url.tls) co_return co_await exchange(*connected, url, options);
  asio::ssl::context tls(asio::ssl::context::tls_client);
  error_code error;
  tls.set_default_verify_paths(error);
  asio::ssl::stream<Tcp::socket> stream(std::move(*connected), tls);
  stream.set_verify_mode(asio::ssl::verify_peer, error);
  stream.set_verify_callback(asio::ssl::host_name_verification(url.host), error);
  SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
  auto [handshake_error] = co_await stream.async_handshake(asio::ssl::stream_base::client, kAwait);
  if (handshake_error) co_return Error{Code::kIo, fmt::format("the image could not be fetched: {}: {}", url.host, handshake_error.message())};
  co_return co_await exchange(stream, url, options);
}

asio::awaitable<void> fetch_into(const Url& url, const Addresses& addresses, const ImageFetchOptions& options, Result<std::string>& out) {
  Result<std::string> got = co_await fetch(url, addresses, options);
  out = std::move(got);
}

// Reserved ranges of the IANA registries of special-purpose addresses.
bool is_public_v4(const asio::ip::address_v4& address) {
  static constexpr std::pair<uint32_t, int> kReserved[] = {
      {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16}, {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24},
      {0xc0586300, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 4},  {0xf0000000, 4}};
  const uint32_t bits = address.to_uint();
  return std::none_of(std::begin(kReserved), std::end(kReserved), [&](const auto& range) { return (bits ^ range.first) >> (32 - range.second) == 0; });
}

uint32_t u32_at(const asio::ip::address_v6::bytes_type& bytes, size_t at) {
  return uint32_t{bytes[at]} << 24 | uint32_t{bytes[at + 1]} << 16 | uint32_t{bytes[at + 2]} << 8 | bytes[at + 3];
}

// Global unicast is 2000::/3; parts of it are reserved or carry IPv4 addresses.
bool is_public_v6(const asio::ip::address_v6& address) {
  const auto bytes = address.to_bytes();
  if (address.is_v4_mapped()) return is_public_v4(asio::ip::make_address_v4(asio::ip::v4_mapped, address));
  const uint32_t first = u32_at(bytes, 0);
  if (first >> 29 != 1) return false;
  if (first >> 9 == 0x20010000 >> 9) return false;                     // 2001::/23, of protocols: Teredo, benchmarks, ORCHID
  if (first == 0x20010db8 || first >> 12 == 0x3fff0) return false;     // documentation
  if (first >> 16 == 0x2002) return is_public_v4(asio::ip::address_v4(u32_at(bytes, 2)));  // 6to4
  return true;
}

}  // namespace

bool is_public_address(const asio::ip::address& address) { return address.is_v4() ? is_public_v4(address.to_v4()) : is_public_v6(address.to_v6()); }

HostAddresses look_up_host(const std::string& host) {
  asio::io_context context(1);
  Tcp::resolver resolver(context);
  error_code error;
  HostAddresses out;
  for (const auto& entry : resolver.resolve(host, "", error)) out.found.push_back(entry.endpoint().address());
  if (error) out.error = error.message();
  return out;
}

Result<std::string> fetch_image(std::string_view text, const ImageFetchOptions& options) {
  const std::optional<Url> url = parse_url(text);
  if (!url) return invalid("the image's URL is not http://HOST/… or https://HOST/…");
  if (!is_listed(*url, options.hosts)) return invalid(fmt::format("images of {} are not fetched here", url->host));
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  DI_TRY(const Addresses addresses, find_addresses(*url, options, deadline));
  Result<std::string> out = too_late(options);
  asio::io_context context(1);
  asio::co_spawn(context, fetch_into(*url, addresses, options, out), [&out](const std::exception_ptr& thrown) {
    if (thrown) out = Error{Code::kInternal, "the image could not be fetched"};
  });
  context.run_until(deadline);  // what has not ended by then is destroyed with the context
  return out;
}

}  // namespace deepinfer::api
