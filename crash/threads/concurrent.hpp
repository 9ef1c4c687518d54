// Tiny concurrent programs under the deterministic scheduler: every schedule with few preemptions,
// then random ones; every crash in them; and each history must have an order that explains it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run.hpp"
#include "threads/history.hpp"
#include "threads/scheduler.hpp"

namespace everleaf::crash {

struct Program {
  std::vector<std::uint32_t> preload;  // numbers of keys that are there before, value 1000 + key
  std::vector<std::vector<Call>> threads;  // kind, key and value of each call
};
// "4,5,6/i7=1,r4/f7": preloaded keys, then the calls of each thread.
std::string to_string(const Program& program);
std::optional<Program> parse_program(std::string_view text);
// Threads that meet in one leaf or in neighbours, some of them full or nearly empty.
// `ticks`: with steps of the clock, for a buffered tree.
Program make_program(std::uint64_t seed, unsigned threads, bool ticks);

struct ConcurrentConfig {
  std::string spec = "wbtree:node=128";
  KeyType keys = KeyType::u64;
  Domain domain = Domain::memory;
  Program program;
  unsigned preemptions = 2;    // schedules with so many are all tried, as far as the time allows
  unsigned random_runs = 100;  // and then so many with random priorities
  std::uint64_t seed = 1;
  bool crashes = true;
  std::optional<SiteId> dropped;
  std::optional<std::vector<Switch>> replay;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

struct ConcurrentReport {
  std::uint64_t schedules = 0;
  std::uint64_t crash_points = 0;  // that were not met in the same state before
  std::uint64_t executions = 0;
  std::uint64_t sampled = 0;  // crash points that were not followed to their end
  bool complete = true;       // all schedules up to the preemption bound were run
  std::string failure;
  std::vector<Switch> switches;  // of the failing schedule
  std::string where;             // the last flush or fence before it was noticed
  std::vector<std::string> history;
};

ConcurrentReport run_concurrent(const ConcurrentConfig& config);

std::string to_string(const std::vector<Switch>& switches);
std::optional<std::vector<Switch>> parse_switches(std::string_view text);

}  // namespace everleaf::crash
