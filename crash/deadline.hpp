// When the time is up: at a moment, or when this process has had so much processor time, which
// hardly depends on what else the machine does. An interrupt ends everything.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

#include "interrupt.hpp"

namespace everleaf::crash {

// Processor time of this process so far, in seconds.
[[nodiscard]] inline double processor_seconds() noexcept {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Deadline {
  using Clock = std::chrono::steady_clock;
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  Clock::time_point at = Clock::time_point::max();
  double processor_s = kNever;

  // So many seconds of processor time from now on, but not longer than `outer`.
  [[nodiscard]] static Deadline within(double seconds, const Deadline& outer) noexcept {
    return {outer.at, std::min(outer.processor_s, crash::processor_seconds() + seconds)};
  }
  [[nodiscard]] static Deadline within(double seconds) noexcept {
    return {Clock::time_point::max(), crash::processor_seconds() + seconds};
  }
  // That part of what is left.
  [[nodiscard]] Deadline part(double share) const noexcept {
    Deadline sooner = *this;
    if (const auto now = Clock::now(); at != Clock::time_point::max()) {
      sooner.at = now + std::chrono::duration_cast<Clock::duration>((at - now) * share);
    }
    if (processor_s != kNever) {
      const double spent = crash::processor_seconds();
      sooner.processor_s = spent + (processor_s - spent) * share;
    }
    return sooner;
  }
};

// The time is up, whoever says so.
[[nodiscard]] inline bool is_late(const Deadline& deadline) noexcept {
  return interrupted() || Deadline::Clock::now() > deadline.at ||
         (deadline.processor_s != Deadline::kNever && processor_seconds() > deadline.processor_s);
}

}  // namespace everleaf::crash
