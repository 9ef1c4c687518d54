#include "workloads/sequence.hpp"

#include <algorithm>
#include <numeric>

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

// Draws ids of existing records as the distribution says.
class Chooser {
 public:
  Chooser(const Distribution& distribution, IdRange ids, std::uint64_t seed)
      : kind_(distribution.kind),
        ids_(ids),
        random_(seed),
        shuffle_(ids.size(), seed),
        zipf_(ids.size(), distribution.exponent) {}

  std::uint64_t next() {
    switch (kind_) {
      case Kind::uniform:
        return ids_.first + random_.below(ids_.size());
      case Kind::zipf:
        return ids_.first + shuffle_(zipf_(random_));
      case Kind::latest:
        return ids_.end - 1 - zipf_(random_);
      case Kind::ascending:
      case Kind::descending:
        break;
    }
    return ids_.first + turn_++ % ids_.size();
  }

 private:
  Kind kind_;
  IdRange ids_;
  Random random_;
  Shuffle shuffle_;
  Zipf zipf_;
  std::uint64_t turn_ = 0;
};

// Every order of that many operations of each kind is equally likely.
std::vector<Phase::Kind> shuffled_kinds(Counts left, std::uint64_t seed) {
  Random random(seed);
  std::vector<Phase::Kind> kinds(std::accumulate(left.begin(), left.end(), std::uint64_t{0}));
  for (std::uint64_t i = 0; i < kinds.size(); ++i) {
    std::uint64_t draw = random.below(kinds.size() - i);
    std::size_t kind = 0;
    while (draw >= left[kind]) draw -= left[kind++];
    --left[kind];
    kinds[i] = static_cast<Phase::Kind>(kind);
  }
  return kinds;
}

Sequence make_mix(const Phase& phase, const Plan& plan, const KeySpace& keys, IdRange live,
                  std::uint64_t seed) {
  Sequence sequence;
  sequence.kinds = shuffled_kinds(counts_of(plan, phase, live.size()), mix(seed));
  sequence.keys.resize(sequence.kinds.size());
  Chooser chooser(plan.distribution, live_throughout(phase, plan, live), seed);
  fill(sequence.keys, keys, [&](std::uint64_t i) {
    if (sequence.kinds[i] == Phase::Kind::insert) return live.end++;
    if (sequence.kinds[i] == Phase::Kind::remove) return live.first++;
    return chooser.next();
  });
  return sequence;
}

}  // namespace

KeyOrder key_order(const Distribution& distribution) {
  if (distribution.kind == Kind::ascending) return KeyOrder::ascending;
  return distribution.kind == Kind::descending ? KeyOrder::descending : KeyOrder::scattered;
}

Sequence make_sequence(const Phase& phase, const Plan& plan, const KeySpace& keys, IdRange live,
                       std::uint64_t seed) {
  if (phase.kind == Phase::Kind::mix) return make_mix(phase, plan, keys, live, seed);
  const std::uint64_t ops = count_of(counts_of(plan, phase, live.size()), phase.kind);
  Sequence sequence{std::vector<std::uint64_t>(ops), {}};
  if (phase.kind == Phase::Kind::load || phase.kind == Phase::Kind::insert) {
    fill(sequence.keys, keys, [&](std::uint64_t i) { return live.end + i; });
  } else if (phase.kind != Phase::Kind::remove) {
    Chooser chooser(plan.distribution, live, seed);
    fill(sequence.keys, keys, [&](std::uint64_t) { return chooser.next(); });
  } else if (in_key_order(plan.distribution)) {
    fill(sequence.keys, keys, [&](std::uint64_t i) { return live.first + i; });
  } else {
    const Shuffle shuffle(ops, seed);
    fill(sequence.keys, keys, [&](std::uint64_t i) { return live.first + shuffle(i); });
  }
  return sequence;
}

IdRange live_after(const Phase& phase, const Plan& plan, IdRange live) {
  const Counts counts = counts_of(plan, phase, live.size());
  return {live.first + count_of(counts, Phase::Kind::remove),
          live.end + count_of(counts, Phase::Kind::load) + count_of(counts, Phase::Kind::insert)};
}

IdRange live_throughout(const Phase& phase, const Plan& plan, IdRange live) {
  return {live_after(phase, plan, live).first, live.end};
}

std::uint64_t largest_key(const KeySpace& keys, IdRange ids) {
  std::uint64_t largest = 0;
  for (std::uint64_t id = ids.first; id < ids.end; ++id) {
    largest = std::max(largest, keys.key_of(id));
  }
  return largest;
}

}  // namespace everleaf::bench
