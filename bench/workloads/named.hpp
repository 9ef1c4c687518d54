// The workloads of papers by name: operations, distribution and keys as their authors state them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan.hpp"

namespace everleaf::bench {

struct NamedWorkload {
  Phase phase;
  std::uint64_t records = 0;  // loaded before it, if the workload is defined by that; 0: any number
};

// In the order of the README's table. Each is a mix, also of one operation.
const std::vector<NamedWorkload>& named_workloads();

// Null: no such name.
const NamedWorkload* find_workload(std::string_view name);

}  // namespace everleaf::bench
