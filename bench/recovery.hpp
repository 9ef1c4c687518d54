// How long a pool takes to open after its writers were killed: --recovery.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leaf_pass.hpp"
#include "plan.hpp"
#include "report.hpp"

namespace everleaf::bench {

// One kill, and the open that followed it.
struct Reopened {
  std::uint64_t open_ns = 0;   // PoolInfo::open_ns: mapped, headers checked, redo records applied
  std::uint64_t index_ns = 0;  // Pool::index(): what the tree recovers or rebuilds
  std::uint64_t find_ns = 0;   // the first find
  // Of the two: processor time over time; below 1 the opening waited, or others ran.
  double cpu_share = 0;
  std::uint64_t keys = 0;        // that are there
  std::uint64_t replayed = 0;    // redo records
  std::uint64_t dram_bytes = 0;  // of the index
  // BD+Tree: of the open, what the inner nodes took; and what that is compared with.
  std::uint64_t rebuild_ns = 0;
  LeafPass pass;
};

struct RecoveryRow {
  std::string name;
  std::string spec;
  std::string domain;
  unsigned threads = 0;
  std::uint64_t records = 0;  // that the first child loaded
  std::uint64_t keys = 0;     // after the last open
  std::vector<Reopened> opened;
};

// For each number of records, tree and number of threads: a child process loads the records and
// writes on; it is killed with SIGKILL, the pool is opened and looked at, a child opens it and
// writes on, as often as --repeat says. Throws Failure. To be called before any thread is started.
std::vector<RecoveryRow> measure_recovery(const Plan& plan);
std::string recovery_table(const Plan& plan, const std::vector<RecoveryRow>& rows);
std::string recovery_json(const Plan& plan, const Run& run, const std::vector<RecoveryRow>& rows);

}  // namespace everleaf::bench
