// Where, when and how results were made: the head of each file of results.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace everleaf::bench {

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

struct Run {
  Machine machine;
  std::string date;                  // UTC, of the start: 2026-01-31T12:00:00Z
  std::vector<std::string> command;  // the program's name and its arguments
};
Run describe_run(std::string_view program, int argc, const char* const* argv);
// program, schema, version, date, command, machine.
nlohmann::ordered_json head_json(const Run& run);

}  // namespace everleaf::bench
