// The one seam for waiting, mutexes and time: a deterministic scheduler replaces this header by
// include path and then steps every wait of the library.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>

namespace everleaf::base {

using Mutex = std::mutex;
using MutexGuard = std::lock_guard<std::mutex>;

// Called in every spin loop with the number of rounds waited so far.
inline void wait_a_little(unsigned round) noexcept {
  if (round < 64) {
    __builtin_ia32_pause();
  } else {
    std::this_thread::yield();  // more threads than cores: let the holder run
  }
}

inline std::uint64_t now_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace everleaf::base
