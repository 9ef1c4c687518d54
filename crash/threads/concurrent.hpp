// Tiny concurrent programs under the deterministic scheduler: every schedule with few preemptions,
// then random ones; every crash in them; and each history must have an order that explains it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run.hpp"
#include "threads/explore.hpp"
#include "threads/history.hpp"

namespace everleaf::crash {

struct Program {
  std::vector<std::uint32_t> preload;  // numbers of keys that are inserted before, value 1000 + key
  std::vector<std::uint32_t> removed;  // and then removed again: leaves with few keys
  std::vector<std::vector<Call>> threads;  // kind, key and value of each call

  [[nodiscard]] bool begins_with(std::uint32_t key) const;
  [[nodiscard]] std::vector<std::uint32_t> keys() const;  // rising, each once
};
// "4,5,6,!5/i7=1,r4/f7": preloaded keys, those that go again, then the calls of each thread.
std::string to_string(const Program& program);
// Empty: it is none, or more than can be run and judged.
std::optional<Program> parse_program(std::string_view text);
// Threads that meet in one leaf or in neighbours, some of them full or nearly empty.
// `ticks`: with steps of the clock, for a buffered tree.
Program make_program(std::uint64_t seed, unsigned threads, bool ticks);

struct ConcurrentConfig {
  std::string spec = "wbtree:node=128";
  KeyType keys = KeyType::u64;
  Domain domain = Domain::memory;
  Program program;
  // Schedules with so many are all tried, as far as the time allows; who begins is not one of them.
  unsigned preemptions = 2;
  unsigned random_runs = 100;  // and then so many with random priorities
  std::uint64_t seed = 1;
  bool crashes = true;
  std::uint64_t most = 2000;  // executions of a crash point, then the rest of its choices is left
  std::optional<SiteId> dropped;
  std::optional<std::vector<Switch>> replay;
  Deadline deadline;
};

struct ConcurrentReport : Tally {  // complete: all schedules up to the preemption bound were run
  std::uint64_t schedules = 0;
  std::string failure;
  std::vector<Switch> switches;  // of the failing schedule
  std::string where;             // the last flush or fence before it was noticed
  std::vector<std::string> history;
  std::map<std::string, std::uint64_t, std::less<>> reached;  // base::reached
};

ConcurrentReport run_concurrent(const ConcurrentConfig& config);
// "spec=... keys=... domain=... program=... switches=..."
std::string replay_line(const ConcurrentConfig& config, const std::vector<Switch>& switches);

}  // namespace everleaf::crash
