// Which keys the operations of a phase take, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.hpp"
#include "workloads/keys.hpp"

namespace everleaf::bench {

KeyOrder key_order(const Distribution& distribution);

// The key numbers of one phase, one for each operation. `live` are the records before the phase.
//   load, insert  new ids in order: `keys` makes of it a random, ascending or descending order
//   remove        the oldest ids, each once: shuffled, or in order if the keys are
//   find, update, scan
//     uniform                 any live record
//     zipf:T                  rank r goes to a shuffled id, so that hot keys lie far apart
//     latest:T                rank r is the r-th newest record
//     ascending, descending   the live records in order, again from the first at the end
std::vector<std::uint64_t> make_sequence(Phase phase, const Plan& plan, const KeySpace& keys,
                                         IdRange live, std::uint64_t seed);

// The live records after the phase.
IdRange live_after(Phase phase, const Plan& plan, IdRange live);

}  // namespace everleaf::bench
