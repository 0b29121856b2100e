// Images that a request names by URL, for operators who allow it. What a client can make the server do with that is bounded: only hosts of
// the operator's list, only addresses of the public internet after the name was resolved, no redirect, a size and a time. Blocks its
// thread; any thread.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace deepinfer::api {

// False for every address that is not a host's on the public internet: loopback, private, link-local, shared, multicast, documentation and
// other reserved ranges of IPv4 and IPv6, and IPv6 addresses that carry such an IPv4 address inside.
bool is_public_address(const boost::asio::ip::address& address);

struct HostAddresses {
  std::vector<boost::asio::ip::address> found;
  std::string error;  // why there is none
};
// By the system's resolver, which takes as long as it likes. Nothing ends it early: whoever does not wait for it leaves it a thread of its own. It gives
// up within a minute or two, so there are few of those: each kept a fetch waiting for all its time, and fetches at once are bounded.
HostAddresses look_up_host(const std::string& host);

struct ImageFetchOptions {
  std::vector<std::string> hosts;  // "HOST" (on the scheme's own port) or "HOST:PORT"; compared without regard to case
  size_t max_bytes = size_t{20} << 20;
  std::chrono::milliseconds timeout{10'000};  // for all of it
  bool (*allows)(const boost::asio::ip::address&) = is_public_address;  // where a name may lead
  HostAddresses (*look_up)(const std::string& host) = look_up_host;
};

// The body of the answer. Errors: kInvalidArgument (no URL of an allowed host, an address that is not public, a status that is not 200 but
// no fault of the server, too many bytes), kIo (the network, a certificate, a status of 500 and above), kDeadlineExceeded.
Result<std::string> fetch_image(std::string_view url, const ImageFetchOptions& options);

}  // namespace deepinfer::api
