// Ranges that several threads work on, for recoveries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>

#include "base/limits.hpp"

namespace everleaf::base {

// As many as there are processors for the calling thread (taskset, a container's share), within
// bounds.
inline std::size_t workers() {
  if constexpr (kMostWorkers == 1) return 1;
  cpu_set_t set;
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  const std::size_t cores =
      known ? static_cast<std::size_t>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
  return std::clamp<std::size_t>(cores, 1, kMostWorkers);
}

// part(begin, end) for pieces of [0, n) of at least `least`, one of them by the calling thread; the
// rest by threads that end before this returns, or by the caller where the system gives none. What
// a part throws is thrown again, when all have ended. How many pieces there were.
template <class F>
std::size_t in_parallel(std::size_t n, std::size_t least, F&& part) {
  const std::size_t pieces = std::clamp<std::size_t>(n / least, 1, workers());
  std::mutex mutex;
  std::exception_ptr failure;
  const auto run = [&](std::size_t piece) {
    try {
      part(n * piece / pieces, n * (piece + 1) / pieces);
    } catch (...) {  // whatever it is: an exception must not leave a thread, and is thrown below
      const std::lock_guard guard(mutex);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(pieces - 1);
  for (std::size_t piece = 1; piece < pieces; ++piece) {
    try {
      threads.emplace_back(run, piece);
    } catch (const std::system_error&) {
      run(piece);
    }
  }
  run(0);
  threads.clear();
  if (failure) std::rethrow_exception(failure);
  return pieces;
}

}  // namespace everleaf::base
