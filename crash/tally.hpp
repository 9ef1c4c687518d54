// What every run of the checker counts, whatever it runs.
#pragma once

#include <cstdint>

namespace everleaf::crash {

struct Tally {
  std::uint64_t crash_points = 0;  // with threads: that were not met in the same state before
  std::uint64_t nested_points = 0;
  std::uint64_t executions = 0;
  std::uint64_t sampled_points = 0;  // too many choices to follow all
  std::uint64_t sampled_nested_points = 0;
  std::uint64_t merged = 0;  // stores that were not told apart
  bool complete = true;      // false: the time was up, or a bound was met

  void add(const Tally& other) {
    crash_points += other.crash_points;
    nested_points += other.nested_points;
    executions += other.executions;
    sampled_points += other.sampled_points;
    sampled_nested_points += other.sampled_nested_points;
    merged += other.merged;
    complete = complete && other.complete;
  }
};

}  // namespace everleaf::crash
