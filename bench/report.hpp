// The rows as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "head.hpp"
#include "plan.hpp"
#include "runner.hpp"

namespace everleaf::bench {

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
