// eventually.h: waiting in a test for what another thread or process is to bring about. Machines differ in speed, and a sanitizer slows one
// tenfold; patience takes time from failing tests alone.
#pragma once

#include <chrono>
#include <thread>

namespace deepinfer {

constexpr int kPatienceMs = 600'000;

// Whether the condition came true.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace deepinfer
