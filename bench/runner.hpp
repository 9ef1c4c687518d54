// Runs the plan and gathers the figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "contender.hpp"
#include "histogram.hpp"
#include "plan.hpp"

namespace everleaf::bench {

// One index, phase and number of threads, over all repeats.
struct Row {
  std::size_t column = 0;  // in Plan::indexes
  Identity identity;
  Phase phase{Phase::Kind::load};
  unsigned threads = 1;
  std::uint64_t ops = 0;     // of one repeat
  std::vector<double> mops;  // of each repeat, in order
  double cpu_share = 1;      // least of the repeats
  Histogram latency;         // of all repeats
  std::vector<std::pair<std::vector<std::uint64_t>, double>>
      over_time;  // of each repeat: operations in each second, and how long it took
  std::uint64_t latency_every = 1;  // one operation in so many was timed
  Counters counters;                // sums over all repeats
  EpochShare epochs;                // likewise; the worst of all
  std::optional<Split> split;       // sums, too; none of rivals and in the ordinary program
  double pool_bytes_per_key = 0;    // after the phase, in the last repeat
  double file_bytes_per_key = 0;
  double dram_bytes_per_key = 0;
  std::vector<Figure> figures;     // of the last repeat
  std::int64_t resident = 0;       // what the loads added to the resident memory, in bytes
  std::int64_t resident_huge = 0;  // and its part in huge pages
};

// Rows in the order of --threads, then --workload, then --index. After Interrupt::asked() without
// the measurement that it ended, nor rows that have no other. Throws Failure: kExitIo when an
// index refuses to go on, kExitWrongAnswer when it answers wrongly.
std::vector<Row> run(const Plan& plan);

}  // namespace everleaf::bench
