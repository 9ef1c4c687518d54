// The rows as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan.hpp"
#include "runner.hpp"

namespace everleaf::bench {

// Where and how the run took place.
struct Machine {
  std::string cpu;
  unsigned cores = 0;
  std::string kernel;
  std::string thp;             // transparent huge pages of anonymous memory
  std::string thp_shmem;       // and of tmpfs
  double load_average = 0;     // over one minute, before the run
  std::uint64_t clock_ns = 0;  // cost of one clock read, part of every latency
  bool optimized = false;      // assertions are off
};

// What a file of results says of its making.
struct Run {
  Machine machine;
  std::string date;                  // UTC, of the start: 2026-01-31T12:00:00Z
  std::vector<std::string> command;  // "everleaf-bench" and its arguments
};
Run describe_run(int argc, const char* const* argv);
nlohmann::ordered_json head_json(const Run& run);

// Figures of a row that need other rows of the same run.
struct Ratios {
  std::string rival;                   // the first rival of --index; empty: none with these threads
  std::optional<double> to_rival;      // of the medians
  std::optional<double> to_rival_min;  // of the repeats, pairwise
  std::optional<double> to_rival_max;
  std::optional<double> to_one_thread;  // of the medians, same index and phase
};
Ratios ratios_of(const Row& row, const std::vector<Row>& rows, const Plan& plan);

// To one rival; nullopt: it has no row of this phase with so many threads.
struct Ratio {
  double of_medians = 0;
  double min = 0;  // of the repeats, pairwise
  double max = 0;
};
std::optional<Ratio> ratio_to(const Row& row, const std::vector<Row>& rows, std::size_t column);

double median(std::vector<double> values);

std::string to_json(const Plan& plan, const Run& run, const std::vector<Row>& rows);
std::string to_table(const Plan& plan, const Machine& machine, const std::vector<Row>& rows);

}  // namespace everleaf::bench
