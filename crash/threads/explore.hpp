// Which schedules of a program are run: all with few preemptions, breadth first, then random ones.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deadline.hpp"
#include "last_words.hpp"
#include "threads/scheduler.hpp"

namespace everleaf::crash {

struct Schedules {
  unsigned threads = 2;
  // Schedules with so many are all tried, as far as the time allows; who begins is not one of them.
  unsigned preemptions = 2;
  unsigned random_runs = 100;  // and then so many with random priorities
  std::uint64_t seed = 1;
  Deadline deadline;
  unsigned sleeper = kNobody;  // schedules that stop this thread come first
};

class Explorer {
 public:
  // Runs one schedule; false: a failure, no more of them.
  using Run = std::function<bool(Policy& policy, Trace& trace)>;
  explicit Explorer(const Schedules& what) : what_(what) {}

  void all(const Run& run);

  // The schedule that failed.
  [[nodiscard]] const std::vector<Switch>& failing() const { return failing_; }
  // All schedules up to the preemption bound were run.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  [[nodiscard]] bool bounded(const Run& run);
  void at_random(const Run& run);

  const Schedules what_;
  std::uint64_t length_ = 1;  // of the longest schedule, in points
  std::vector<Switch> failing_;
  bool complete_ = true;
};

// A crash at this point of a schedule: `recover` on the next level, with each image that it tells
// apart, until it answers false.
struct Recoveries {
  std::uint64_t executions = 0;
  bool all = true;  // false: `most` were not enough
};
Recoveries crash_here(Recorder& recorder, std::uint64_t most, const std::function<bool()>& recover);

// The switches that make a schedule again.
std::vector<Switch> switches_of(const Trace& trace);
std::string to_string(const std::vector<Switch>& switches);
// The same text, without memory.
void add_switches(LastWords& words, const Trace& trace) noexcept;
std::optional<std::vector<Switch>> parse_switches(std::string_view text);

// The first threads of a process take steps that later ones do not: a replay would count others.
void take_slots(std::size_t threads);

}  // namespace everleaf::crash
