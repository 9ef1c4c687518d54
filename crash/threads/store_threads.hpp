// Two or three threads on one store under the deterministic scheduler, and every crash in their
// schedules: what they were told and what is left must fit one order of the calls, in which a batch
// and a drop are one call each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "store_run.hpp"
#include "threads/explore.hpp"

namespace everleaf::crash {

struct StoreProgram {
  std::string spec;
  Domain domain = Domain::memory;
  std::vector<Put> before;  // durable; to tables "a" and "b", both with keys of bytes
  // Kinds write, batch, drop, tick and sync alone; few, as all orders are tried.
  std::vector<std::vector<StoreStep>> threads;
  unsigned preemptions = 1;
  unsigned random_runs = 20;
  std::uint64_t most = 24;  // executions of a crash point, then the rest of its choices is left
  Deadline deadline = {};
  std::optional<SiteId> dropped = std::nullopt;
};

// Of each table what its keys hold.
using StoreContent = std::map<std::string, std::map<std::string, std::string>>;

// A call in a history.
struct StoreCall {
  static constexpr std::uint64_t kPending = ~std::uint64_t{0};
  const StoreStep* step = nullptr;
  std::uint64_t invoked = 0;
  std::uint64_t returned = kPending;  // a crash came first
  Outcome outcome = Outcome::done;
  // Of a buffered store: the epochs in which it began and had ended, and whether it survives by
  // another rule than the clock's.
  std::uint64_t first_epoch = 0;
  std::uint64_t last_epoch = kPending;
  bool durable = false;
};

// Whether the calls have an order that respects time, begins with `before`, explains every answer
// and passes through `is`: after every change that had ended in epochs up to `durable`, before
// every one that began later. kPending: strict, and it passes through `is` when all that returned
// has happened.
bool passes_through(const std::vector<StoreCall>& calls, const StoreContent& before,
                    const StoreContent& is, std::uint64_t durable);

struct StoreThreadsReport : Tally {
  std::uint64_t schedules = 0;
  std::string failure;
  std::vector<Switch> switches;  // of the failing schedule
};

StoreThreadsReport run_store_threads(const StoreProgram& program);

}  // namespace everleaf::crash
