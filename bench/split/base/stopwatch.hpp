// Stands in for src/base/stopwatch.hpp in everleaf-bench-split. A thread is in one part at a time;
// each change of it reads the clock once and gives the time since the last one to the part that
// ends. So the parts add up to the thread's time, what the readings themselves take included.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace everleaf::base {

enum class Part : std::uint8_t { traversal, leaf, words, flush, fence, update };
using Ticks = std::array<std::uint64_t, 6>;

class Stopwatch {
 public:
  explicit Stopwatch(Part part) noexcept : outer_(enter(part)) {}
  ~Stopwatch() { enter(outer_); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  static std::optional<Ticks> so_far() noexcept {
    enter(clock.part);
    return clock.ticks;
  }

 private:
  struct Clock {
    Part part;
    std::uint64_t since;
    Ticks ticks;
  };
  static constinit inline thread_local Clock clock{Part::update, 0, {}};

  // The part that ends.
  static Part enter(Part part) noexcept {
    // The processor goes on behind an sfence, until it needs a line that is being written back: the
    // wait would be the next part's.
    if (clock.part == Part::fence) __builtin_ia32_mfence();
    __builtin_ia32_lfence();  // likewise loads that have not arrived
    const std::uint64_t now = __builtin_ia32_rdtsc();
    clock.ticks[static_cast<std::size_t>(clock.part)] += now - clock.since;
    clock.since = now;
    return std::exchange(clock.part, part);
  }

  const Part outer_;
};

}  // namespace everleaf::base
