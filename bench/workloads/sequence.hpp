// Which keys the operations of a phase take, in order.
#pragma once

#include <cstdint>
#include <vector>

#include "plan.hpp"
#include "workloads/keys.hpp"

namespace everleaf::bench {

KeyOrder key_order(const Distribution& distribution);

// One element for each operation of a phase.
struct Sequence {
  std::vector<std::uint64_t> keys;  // key numbers
  std::vector<Phase::Kind> kinds;   // of a mix; empty: all are of the phase's kind
};

// `live` are the records before the phase.
//   load, insert  new ids in order: `keys` makes of it a random, ascending or descending order;
//                 of a bulk load ascending
//   remove        the oldest ids, each once: shuffled, or in order if the keys are
//   find, update, scan
//     uniform                 any live record
//     zipf:T                  rank r goes to a shuffled id, so that hot keys lie far apart
//     latest:T                rank r is the r-th newest record
//     ascending, descending   the live records in order, again from the first at the end
//   mix           kinds in random order. Inserts take new ids and removes the oldest ones, both in
//                 order; the others take records that live throughout the phase: threads run at
//                 their own pace, so what one inserts or removes, another must not ask for. With
//                 latest:T the newest ones are first those that the operation's own thread, of
//                 `threads`, inserted before it
//   whole_space   ids of space_of(live), whether they live or not; there rank r of latest:T is the
//                 r-th from the end
//   trace         its requests on space_of(live), in their order
Sequence make_sequence(const Phase& phase, const Plan& plan, const KeySpace& keys, IdRange live,
                       std::uint64_t seed, unsigned threads = 1);

// What phases with whole_space draw from: the live records, and as many new ones.
inline IdRange space_of(IdRange live) {
  return {live.first, live.end + live.size()};
}

// The live records after the phase; phases with whole_space change them in ways that only their
// answers tell (workloads/space.hpp).
IdRange live_after(const Phase& phase, const Plan& plan, IdRange live);

// The records that live before, after and all through the phase.
IdRange live_throughout(const Phase& phase, const Plan& plan, IdRange live);

// Of the records `ids`, at least one.
std::uint64_t largest_key(const KeySpace& keys, IdRange ids);

}  // namespace everleaf::bench
