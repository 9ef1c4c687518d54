// Two or three threads on one store under the deterministic scheduler, and every crash in their
// schedules: what they were told and what is left must fit one order of the calls, in which a batch
// and a drop are one call each.
#pragma once

#include <string>
#include <vector>

#include "store_run.hpp"
#include "threads/explore.hpp"

namespace everleaf::crash {

struct StoreProgram {
  std::string spec;
  Domain domain = Domain::memory;
  std::vector<Put> before;  // durable; to tables "a" and "b", both with keys of bytes
  // Kinds write, batch, drop and tick alone; few, as all orders are tried.
  std::vector<std::vector<StoreStep>> threads;
  unsigned preemptions = 1;
  unsigned random_runs = 20;
  std::uint64_t most = 24;  // executions of a crash point, then the rest of its choices is left
  Deadline deadline = {};
  std::optional<SiteId> dropped = std::nullopt;
};

struct StoreThreadsReport : Tally {
  std::uint64_t schedules = 0;
  std::string failure;
  std::vector<Switch> switches;  // of the failing schedule
};

StoreThreadsReport run_store_threads(const StoreProgram& program);

}  // namespace everleaf::crash
