#include "threads/traces.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

namespace everleaf::crash {
namespace {

unsigned bit(unsigned thread) {
  return 1U << thread;
}

// Memory of the process lies elsewhere in the next schedule.
std::vector<Touch> lasting(std::vector<Touch> step) {
  std::erase_if(step, [](const Touch& one) { return (one.unit & Scheduler::kOutside) != 0; });
  return step;
}

// A word outside the pool that one thread stores to and another one touches.
bool meet_outside(const Trace& trace) {
  struct Use {
    unsigned by = 0;  // bit i: thread i
    unsigned stored_by = 0;
  };
  std::unordered_map<std::uint64_t, Use> uses;
  for (std::size_t i = 0; i < trace.touched.size(); ++i) {
    const unsigned who = bit(trace.choices[i] >> 8U);
    for (const Touch& one : trace.touched[i]) {
      if ((one.unit & Scheduler::kOutside) == 0) continue;
      Use& use = uses[one.unit];
      use.by |= who;
      use.stored_by |= one.stores ? who : 0;
    }
  }
  return std::ranges::any_of(uses, [](const auto& one) {
    return one.second.stored_by != 0 && std::popcount(one.second.by) > 1;
  });
}

}  // namespace

bool Traces::depend(const Step& a, const Step& b) {
  return std::ranges::any_of(a, [&b](const Touch& one) {
    return std::ranges::any_of(b, [&one](const Touch& other) {
      return one.unit == other.unit && (one.stores || other.stores);
    });
  });
}

// Goes on with the same thread where that brings something new.
Traces::Node Traces::behind(const Node& before, unsigned current, unsigned able) {
  Node node;
  node.able = able;
  for (unsigned thread = 0; thread < kMostFibers; ++thread) {
    if ((before.asleep & bit(thread)) == 0 || thread == before.chosen) continue;
    if (depend(before.sleeping[thread], before.step)) continue;
    node.asleep |= bit(thread);
    node.sleeping[thread] = before.sleeping[thread];
  }
  const unsigned awake = able & ~node.asleep;
  const bool goes_on = current < kMostFibers && (awake & bit(current)) != 0;
  node.chosen = goes_on ? current : static_cast<unsigned>(std::countr_zero(awake));
  node.wanted = awake != 0 ? bit(node.chosen) : 0;
  return node;
}

// False: it is not what the point did when it was last met.
bool Traces::note(std::size_t point, const Step& step) {
  if (point >= path_.size()) return true;
  if (point < given_ && !path_[point].step.empty() && path_[point].step != step) return false;
  path_[point].step = step;
  return true;
}

// Follows the path, then makes it longer.
class Traces::Way final : public Policy {
 public:
  explicit Way(Traces& all) : all_(all) {}

  unsigned choose(std::uint64_t point, unsigned current, unsigned able) override {
    const auto& touched = Scheduler::active()->so_far().touched;
    if (point != 0) all_.same_ = all_.note(point - 1, lasting(touched[point - 1])) && all_.same_;
    auto& path = all_.path_;
    if (point < path.size()) {
      all_.same_ = all_.same_ && path[point].able == able;
      if ((able & bit(path[point].chosen)) != 0) return path[point].chosen;
      return static_cast<unsigned>(std::countr_zero(able));  // then it is not the same
    }
    if (!all_.blocked_) {
      const Node none;
      Node node = behind(path.empty() ? none : path.back(), current, able);
      all_.blocked_ = (able & ~node.asleep) == 0;
      if (!all_.blocked_) {
        path.push_back(std::move(node));
        return path.back().chosen;
      }
    }
    return current < kMostFibers && (able & bit(current)) != 0
               ? current
               : static_cast<unsigned>(std::countr_zero(able));
  }

 private:
  Traces& all_;
};

// A race: two steps of different threads that depend on each other, with none in between that would
// keep their order. Before the first of them somebody must have his turn with whom a schedule can
// begin that has them in the other order.
void Traces::find_races(const Trace& trace) {
  struct Unit {
    std::array<std::size_t, kMostFibers> stored{};  // the last step of each thread, from 1
    std::array<std::size_t, kMostFibers> loaded{};
  };
  std::unordered_map<std::uint64_t, Unit> units;
  std::array<Clock, kMostFibers> now{};
  std::vector<Clock> clocks(trace.touched.size() + 1);
  std::vector<unsigned> who(trace.touched.size() + 1);
  for (std::size_t i = 1; i < clocks.size(); ++i) {
    const unsigned mine = who[i] = trace.choices[i - 1] >> 8U;
    const Step step = lasting(trace.touched[i - 1]);
    Clock before{};  // of each other thread, its last step that this one depends on
    for (const Touch& one : step) {
      const Unit& unit = units[one.unit];
      for (unsigned other = 0; other < kMostFibers; ++other) {
        const std::size_t last = std::max(unit.stored[other], one.stores ? unit.loaded[other] : 0);
        if (other != mine) before[other] = std::max(before[other], last);
      }
    }
    Clock clock = now[mine];
    for (const std::size_t last : before) {
      for (unsigned k = 0; k < kMostFibers; ++k) clock[k] = std::max(clock[k], clocks[last][k]);
    }
    clock[mine] = i;
    clocks[i] = clock;
    for (unsigned other = 0; other < kMostFibers; ++other) {
      const std::size_t race = before[other];
      const bool kept = std::ranges::any_of(
          before, [&](std::size_t last) { return last != race && clocks[last][other] >= race; });
      if (race == 0 || race <= now[mine][other] || kept || race > path_.size()) continue;
      const unsigned first = beginnings(clocks, who, race, i);
      Node& node = path_[race - 1];
      if ((node.wanted & first) == 0) node.wanted |= first & ~(first - 1);
    }
    now[mine] = clock;
    for (const Touch& one : step) {
      Unit& unit = units[one.unit];
      (one.stores ? unit.stored : unit.loaded)[mine] = i;
    }
  }
}

// Of the steps behind `race` that need not come after it, and then step `last`: the threads with
// whom they can begin.
unsigned Traces::beginnings(const std::vector<Clock>& clocks, const std::vector<unsigned>& who,
                            std::size_t race, std::size_t last) {
  Clock first{};  // of each thread, from 1
  unsigned found = 0;
  for (std::size_t i = race + 1; i <= last; ++i) {
    if ((i != last && clocks[i][who[race]] >= race) || first[who[i]] != 0) continue;
    bool begins = true;
    for (unsigned other = 0; other < kMostFibers; ++other) {
      if (first[other] != 0 && clocks[i][other] >= first[other]) begins = false;
    }
    first[who[i]] = i;
    if (begins) found |= bit(who[i]);
  }
  return found;
}

// To the last state in which something is left to try. False: there is none.
bool Traces::turn_back() {
  for (; !path_.empty(); path_.pop_back()) {
    Node& node = path_.back();
    node.asleep |= bit(node.chosen);
    node.sleeping[node.chosen] = std::move(node.step);
    node.step.clear();
    const unsigned left = node.wanted & node.able & ~node.asleep;
    if (left == 0) continue;
    node.chosen = static_cast<unsigned>(std::countr_zero(left));
    return true;
  }
  return false;
}

bool Traces::all(const Run& run, const Deadline& deadline) {
  do {
    if (is_late(deadline)) return false;
    given_ = path_.size();
    blocked_ = false;
    Way way(*this);
    Trace trace;
    if (!run(way, trace)) return false;
    ++schedules_;
    redundant_ += blocked_ ? 1 : 0;
    if (!trace.touched.empty()) {
      same_ = note(trace.touched.size() - 1, lasting(trace.touched.back())) && same_;
    }
    if (!same_ || meet_outside(trace)) return false;
    find_races(trace);
  } while (turn_back());
  return true;
}

}  // namespace everleaf::crash
