// From a failure to a short workload that still fails, and the line that replays it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "run.hpp"

namespace everleaf::crash {

// What the workload of a run was made from.
struct Origin {
  WorkloadOptions workload;
  std::vector<std::size_t> kept;  // indices of its operations
};

// Delta debugging: leaves out operations for as long as some crash in the last one fails, for so
// many seconds of processor time. Updates config.ops, origin.kept and failure.
void shrink(Config& config, Origin& origin, Failure& failure, double seconds);

// spec=... keys=... domain=... seed=... ops=... keep=0-3,5 crash=12/0of2.1of3
std::string replay_line(const Config& config, const Origin& origin, const Failure& failure);
// False: the line makes no sense.
bool parse_replay(std::string_view line, Config& config, Origin& origin);

}  // namespace everleaf::crash
