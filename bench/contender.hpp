// One index under test, whatever it is: a tree in its own pool, a rival in memory or in files.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <everleaf/index.hpp>

#include "histogram.hpp"
#include "plan.hpp"
#include "scratch.hpp"
#include "workloads/audit.hpp"
#include "workloads/keys.hpp"
#include "workloads/timed.hpp"

namespace everleaf::bench {

// What the clock of a buffered tree's pool did; zero for everything else.
struct EpochShare {
  std::uint64_t steps = 0;     // while the threads worked
  double seconds = 0;          // that they worked
  std::uint64_t worst_ns = 0;  // longest epoch since the pool was opened
  std::uint64_t lines = 0;     // written back in the phase, the sync() at its end included

  void add(const EpochShare& other) {
    steps += other.steps;
    seconds += other.seconds;
    worst_ns = std::max(worst_ns, other.worst_ns);
    lines += other.lines;
  }
};

// Of what a tree counts itself (Stats::more).
struct Figure {
  std::string name;
  std::uint64_t now = 0;    // after the phase
  std::int64_t change = 0;  // in the phase
};

// What one run of one phase gave.
struct Measured {
  double seconds = 0;    // wall time, the sync() at the end of a phase that writes included
  double cpu_share = 1;  // processor time over wall time of the threads, without sync()
  Histogram latency;
  std::uint64_t mistakes = 0;
  Mistake first_mistake;
  bool refused = false;
  Counters counters;           // the phase's share; zero for rivals
  std::optional<Split> split;  // of all threads, without sync()
  EpochShare epochs;
  std::int64_t resident = 0;       // growth of the process' resident memory, in bytes
  std::int64_t resident_huge = 0;  // and of its part in huge pages
  std::uint64_t pool_bytes = 0;    // of the index after the phase, allocated
  std::uint64_t file_bytes = 0;    // of the whole file or files, on the device
  std::uint64_t dram_bytes = 0;
  std::vector<Figure> figures;
  OverTime over_time;
  double work_seconds = 0;            // `seconds` without the sync()
  std::vector<std::uint8_t> answers;  // of phases with whole_space: operation i was done
  bool stopped = false;               // by an interrupt: not all operations were done
};

struct Identity {
  std::string name;  // as asked for
  std::string spec;  // every option written out; a rival's name
  DomainChoice domain;
  bool persistent = false;  // a tree: the counters mean something
  bool buffered = false;    // a tree with epochs
  bool in_dram = false;     // a rival that is nowhere else
};

class Contender {
 public:
  virtual ~Contender() = default;
  virtual const Identity& identity() const = 0;
  virtual Measured run(const Job& job) = 0;
  virtual Audit audit(const KeySpace& keys, const Live& live) = 0;
  virtual std::string audit_updates(const Job& job) = 0;
};

// Makes an empty index. `scratch` may be null if no index of the plan needs a file. Throws Failure.
std::unique_ptr<Contender> make_contender(const IndexChoice& choice, const Plan& plan,
                                          Scratch* scratch);

// Tries every spec on a pool in memory. Throws Failure (kExitUsage) for what the registry refuses.
void check_specs(const Plan& plan);

inline bool needs_file(const Plan& plan, const IndexChoice& choice) {
  if (choice.rival) return info_of(*choice.rival).stored;
  return plan.domain != Domain::volatile_;
}

}  // namespace everleaf::bench
