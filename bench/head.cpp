#include "head.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include <everleaf/pool.hpp>
#include <everleaf/version.h>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

namespace everleaf::bench {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// "always [madvise] never" -> "madvise"
std::string chosen_of(const std::string& line) {
  const std::size_t open = line.find('[');
  const std::size_t close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) return "unknown";
  return line.substr(open + 1, close - open - 1);
}

std::uint64_t clock_cost_ns() {
  using Clock = std::chrono::steady_clock;
  std::array<double, 1001> costs{};
  for (double& cost : costs) {
    const Clock::time_point before = Clock::now();
    cost = static_cast<double>((Clock::now() - before).count());
  }
  std::ranges::nth_element(costs, costs.begin() + costs.size() / 2);
  return static_cast<std::uint64_t>(costs[costs.size() / 2]);
}

Machine describe_machine() {
  Machine machine;
  machine.cpu = cpu_model();
  machine.cores = std::thread::hardware_concurrency();
  if (struct utsname name{}; ::uname(&name) == 0) machine.kernel = name.release;
  const std::string thp = "/sys/kernel/mm/transparent_hugepage/";
  machine.thp = chosen_of(first_line(thp + "enabled"));
  machine.thp_shmem = chosen_of(first_line(thp + "shmem_enabled"));
  if (::getloadavg(&machine.load_average, 1) != 1) machine.load_average = -1;
  machine.clock_ns = clock_cost_ns();
#ifdef NDEBUG
  machine.optimized = true;
#endif
  return machine;
}

}  // namespace

Run describe_run(std::string_view program, int argc, const char* const* argv) {
  Run run;
  run.machine = describe_machine();
  const auto now =
      std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  run.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  run.command.emplace_back(program);
  for (int i = 1; i < argc; ++i) run.command.emplace_back(argv[i]);
  return run;
}

nlohmann::ordered_json head_json(const Run& run) {
  const Machine& machine = run.machine;
  return {{"program", run.command.front()},
          {"schema", 1},
          {"version", EVERLEAF_VERSION},
          {"date", run.date},
          {"command", run.command},
          {"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"kernel", machine.kernel},
            {"thp", machine.thp},
            {"thp_shmem", machine.thp_shmem},
            {"flush_instruction", flush_instruction()},
            {"load_average", machine.load_average},
            {"clock_ns", machine.clock_ns},
            {"optimized", machine.optimized}}}};
}

}  // namespace everleaf::bench
