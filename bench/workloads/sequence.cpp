#include "workloads/sequence.hpp"

#include "workloads/random.hpp"
#include "workloads/zipf.hpp"

namespace everleaf::bench {
namespace {

using Kind = Distribution::Kind;

bool in_key_order(const Distribution& distribution) {
  return distribution.kind == Kind::ascending || distribution.kind == Kind::descending;
}

// Fills `out` with id_at(i) for each operation i, as key numbers.
template <class IdAt>
void fill(std::vector<std::uint64_t>& out, const KeySpace& keys, IdAt id_at) {
  for (std::uint64_t i = 0; i < out.size(); ++i) out[i] = keys.key_of(id_at(i));
}

void fill_existing(std::vector<std::uint64_t>& out, const Distribution& distribution,
                   const KeySpace& keys, IdRange live, std::uint64_t seed) {
  Random random(seed);
  const std::uint64_t size = live.size();
  switch (distribution.kind) {
    case Kind::uniform:
      return fill(out, keys, [&](std::uint64_t) { return live.first + random.below(size); });
    case Kind::zipf: {
      const Zipf zipf(size, distribution.exponent);
      const Shuffle shuffle(size, seed);
      return fill(out, keys, [&](std::uint64_t) { return live.first + shuffle(zipf(random)); });
    }
    case Kind::latest: {
      const Zipf zipf(size, distribution.exponent);
      return fill(out, keys, [&](std::uint64_t) { return live.end - 1 - zipf(random); });
    }
    case Kind::ascending:
    case Kind::descending:
      return fill(out, keys, [&](std::uint64_t i) { return live.first + i % size; });
  }
}

}  // namespace

KeyOrder key_order(const Distribution& distribution) {
  if (distribution.kind == Kind::ascending) return KeyOrder::ascending;
  return distribution.kind == Kind::descending ? KeyOrder::descending : KeyOrder::scattered;
}

std::vector<std::uint64_t> make_sequence(Phase phase, const Plan& plan, const KeySpace& keys,
                                         IdRange live, std::uint64_t seed) {
  const std::uint64_t ops = ops_of(plan, phase, live.size());
  std::vector<std::uint64_t> sequence(ops);
  if (phase == Phase::load || phase == Phase::insert) {
    fill(sequence, keys, [&](std::uint64_t i) { return live.end + i; });
  } else if (phase != Phase::remove) {
    fill_existing(sequence, plan.distribution, keys, live, seed);
  } else if (in_key_order(plan.distribution)) {
    fill(sequence, keys, [&](std::uint64_t i) { return live.first + i; });
  } else {
    const Shuffle shuffle(ops, seed);
    fill(sequence, keys, [&](std::uint64_t i) { return live.first + shuffle(i); });
  }
  return sequence;
}

IdRange live_after(Phase phase, const Plan& plan, IdRange live) {
  const std::uint64_t ops = ops_of(plan, phase, live.size());
  if (phase == Phase::load || phase == Phase::insert) live.end += ops;
  if (phase == Phase::remove) live.first += ops;
  return live;
}

}  // namespace everleaf::bench
