// Every schedule of a program, but for the order of steps that do not depend on each other: dynamic
// partial order reduction with source sets (Abdulla and others, POPL 2014) and sleep sets
// (Godefroid, LNCS 1032).
//
// A step is what a thread does between two of its points. Two steps depend on each other if both
// touch a word and one stores to it; schedules that differ in the order of independent steps alone
// are one trace, and one of them is run. Answers and final values are the same in all of them.
// Flushes and fences touch nothing: crashes are looked at where the schedules that are run come by.
// Threads may meet in the pool only, as operations without blocks do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "deadline.hpp"
#include "threads/scheduler.hpp"

namespace everleaf::crash {

class Traces {
 public:
  // Runs one schedule with the steps' touches in its trace; false: a failure, no more of them.
  using Run = std::function<bool(Policy& policy, Trace& trace)>;

  // False: the run failed, there was no time for all, threads met outside the pool, or a schedule
  // did not do the same again.
  bool all(const Run& run, const Deadline& deadline);

  [[nodiscard]] std::uint64_t schedules() const { return schedules_; }
  // Of those, ones that have nothing new from some point on. They are run to their end.
  [[nodiscard]] std::uint64_t redundant() const { return redundant_; }

 private:
  using Step = std::vector<Touch>;
  using Clock = std::array<std::size_t, kMostFibers>;  // of each thread, its last step before
  // A state on the way, and what is to be tried in it.
  struct Node {
    unsigned able = 0;
    unsigned chosen = 0;
    unsigned wanted = 0;  // bit i: thread i must run here, too
    unsigned asleep = 0;  // bit i: what begins with thread i was tried, here or further up
    Step step;            // of the chosen one
    std::array<Step, kMostFibers> sleeping;
  };
  class Way;

  [[nodiscard]] static bool depend(const Step& a, const Step& b);
  [[nodiscard]] static Node behind(const Node& before, unsigned current, unsigned able);
  [[nodiscard]] bool note(std::size_t point, const Step& step);
  void find_races(const Trace& trace);
  [[nodiscard]] static unsigned beginnings(const std::vector<Clock>& clocks,
                                           const std::vector<unsigned>& who, std::size_t race,
                                           std::size_t last);
  [[nodiscard]] bool turn_back();

  std::vector<Node> path_;
  std::size_t given_ = 0;  // points of the path that are played again
  bool same_ = true;       // so far they did the same as before
  bool blocked_ = false;   // the rest of this schedule has nothing new
  std::uint64_t schedules_ = 0;
  std::uint64_t redundant_ = 0;
};

}  // namespace everleaf::crash
