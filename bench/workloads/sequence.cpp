#include "workloads/sequence.hpp"

#include <algorithm>
#include <numeric>

#include "workloads/random.hpp"
#include "workloads/trace.hpp"
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
        zipf_(ids.size(), distribution.exponent),
        hot_(std::max<std::uint64_t>(1, ids.size() * distribution.hot_records / 100)),
        hot_ops_(distribution.hot_ops) {}

  std::uint64_t next() {
    switch (kind_) {
      case Kind::uniform:
        return ids_.first + random_.below(ids_.size());
      case Kind::zipf:
        return ids_.first + shuffle_(zipf_(random_));
      case Kind::latest:
        return ids_.end - 1 - zipf_(random_);
      case Kind::hotspot: {
        const bool is_hot = random_.below(100) < hot_ops_ || hot_ == ids_.size();
        return ids_.first +
               shuffle_(is_hot ? random_.below(hot_) : hot_ + random_.below(ids_.size() - hot_));
      }
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
  std::uint64_t hot_;  // ranks below it are hotspot's
  unsigned hot_ops_;
  std::uint64_t turn_ = 0;
};

// latest:T while records are inserted: each thread's own ones become the newest that it asks for.
class LatestChooser {
 public:
  LatestChooser(double exponent, IdRange before, std::uint64_t seed, unsigned threads)
      : exponent_(exponent), before_(before), random_(seed), inserted_(threads) {
    zipf_.assign(threads, Zipf(before.size(), exponent));
  }

  void inserted(unsigned thread, std::uint64_t id) {
    inserted_[thread].push_back(id);
    zipf_[thread] = Zipf(before_.size() + inserted_[thread].size(), exponent_);
  }

  std::uint64_t next(unsigned thread) {
    const std::vector<std::uint64_t>& own = inserted_[thread];
    const std::uint64_t rank = zipf_[thread](random_);
    return rank < own.size() ? own[own.size() - 1 - rank] : before_.end - 1 - (rank - own.size());
  }

 private:
  double exponent_;
  IdRange before_;
  Random random_;
  std::vector<std::vector<std::uint64_t>> inserted_;  // of each thread, in its order
  std::vector<Zipf> zipf_;
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

// Numbers of a trace become ids at random, so that the half that is loaded is any half.
Sequence make_trace(const Trace& trace, const KeySpace& keys, IdRange space, std::uint64_t seed) {
  const Shuffle shuffle(space.size(), seed);
  Sequence sequence{std::vector<std::uint64_t>(trace.keys.size()), trace.kinds};
  fill(sequence.keys, keys, [&](std::uint64_t i) { return space.first + shuffle(trace.keys[i]); });
  return sequence;
}

Sequence make_mix(const Phase& phase, const Plan& plan, const KeySpace& keys, IdRange live,
                  std::uint64_t seed, unsigned threads) {
  Sequence sequence;
  sequence.kinds = shuffled_kinds(counts_of(plan, phase, live.size()), mix(seed));
  sequence.keys.resize(sequence.kinds.size());
  const Distribution& distribution = distribution_of(plan, phase);
  const IdRange throughout =
      phase.whole_space ? space_of(live) : live_throughout(phase, plan, live);
  Chooser chooser(distribution, throughout, seed);
  if (phase.whole_space) {
    fill(sequence.keys, keys, [&](std::uint64_t) { return chooser.next(); });
    return sequence;
  }
  const bool is_latest = distribution.kind == Kind::latest;
  LatestChooser latest(distribution.exponent, throughout, seed, is_latest ? threads : 0);
  fill(sequence.keys, keys, [&](std::uint64_t i) {
    const auto thread = static_cast<unsigned>(i % threads);
    if (sequence.kinds[i] == Phase::Kind::remove) return live.first++;
    if (sequence.kinds[i] != Phase::Kind::insert) {
      return is_latest ? latest.next(thread) : chooser.next();
    }
    if (is_latest) latest.inserted(thread, live.end);
    return live.end++;
  });
  return sequence;
}

}  // namespace

KeyOrder key_order(const Distribution& distribution) {
  if (distribution.kind == Kind::ascending) return KeyOrder::ascending;
  return distribution.kind == Kind::descending ? KeyOrder::descending : KeyOrder::scattered;
}

Sequence make_sequence(const Phase& phase, const Plan& plan, const KeySpace& keys, IdRange live,
                       std::uint64_t seed, unsigned threads) {
  if (phase.trace) return make_trace(*phase.trace, keys, space_of(live), seed);
  if (phase.kind == Phase::Kind::mix) return make_mix(phase, plan, keys, live, seed, threads);
  const std::uint64_t ops = count_of(counts_of(plan, phase, live.size()), phase.kind);
  Sequence sequence{std::vector<std::uint64_t>(ops), {}};
  if (phase.kind == Phase::Kind::load || phase.kind == Phase::Kind::insert) {
    fill(sequence.keys, keys, [&](std::uint64_t i) { return live.end + i; });
    if (phase.fill != 0) std::ranges::sort(sequence.keys);
  } else if (phase.kind != Phase::Kind::remove) {
    Chooser chooser(distribution_of(plan, phase), live, seed);
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
  if (phase.whole_space) return live;
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
