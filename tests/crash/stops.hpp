// What the tests with stopped threads share: two simulated threads, the first of which is stopped
// at one of its points, and the pool's memory that they work on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "arena.hpp"
#include "base/thread_slot.hpp"
#include "recorder.hpp"
#include "threads/scheduler.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::crash {

// While it lives the hooks tell this recorder.
class Watch {
 public:
  explicit Watch(Recorder& recorder) { Recorder::watch(&recorder); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { Recorder::watch(nullptr); }
};

inline PoolOptions emulated(Domain domain = Domain::memory) {
  PoolOptions options;
  options.domain = domain;
  options.emulate = true;
  options.epoch_length = {};
  return options;
}

// Of the pools of these tests.
inline constexpr std::size_t kCapacity = std::size_t{2} << 20;

// What simulated threads work on.
template <class K>
class SharedIndex {
 public:
  explicit SharedIndex(const char* spec, Domain domain = Domain::memory)
      : domain_(domain), index_(pool_.index<K>("index", spec).value()) {}
  [[nodiscard]] Index<K>& index() { return index_; }
  [[nodiscard]] const Pool& pool() const { return pool_; }
  // Nobody has looked at its slabs then.
  void open_again() {
    ASSERT_TRUE(pool_.close());
    pool_ = PoolAccess::attach(arena_.base(0), kCapacity, kCapacity, emulated(domain_), &recorder_)
                .value();
    index_ = pool_.template index<K>("index", {}).value();
  }
  [[nodiscard]] bool has_reached(const char* path) const {
    return recorder_.reached.contains(path);
  }

 private:
  const Domain domain_;
  Arena arena_{kCapacity, 2, {}};
  Recorder recorder_{arena_};  // finds the scheduler its points
  Watch watch_{recorder_};
  Pool pool_ = PoolAccess::format(arena_.base(0), pmem::kMinPoolBytes, kCapacity, emulated(domain_),
                                  &recorder_)
                   .value();
  Index<K> index_;
};

// Both threads get ready; then the first goes on as long as it can, and the second after it.
class OneAfterTheOther final : public Policy {
 public:
  unsigned choose(std::uint64_t point, unsigned, unsigned able) override {
    const unsigned wanted = ready[0] && !ready[1] ? 1 : 0;
    if (ready[0] && ready[1] && began_at == 0) began_at = point;
    return (able >> wanted & 1) != 0 ? wanted : 1 - wanted;
  }

  bool ready[2] = {};
  std::uint64_t began_at = 0;  // point from which both are ready
};

struct Thread {
  std::function<void()> prepare;
  std::function<void()> act;
};

struct Stop {
  std::uint64_t began_at = 0;
  bool stopped = false;  // the first one in the middle of act(); then there are more points
  bool ended = false;    // the first one's act(), sooner or later
};

using Stops = Scheduler::Stops;

// Stops the first one at the first of its points from `at` on: for ever, or until the second one
// has ended, which it must.
inline Stop stop_first(std::optional<std::uint64_t> at, Stops stops, const Thread& first,
                       const Thread& second) {
  OneAfterTheOther policy;
  bool ended[2] = {};
  bool stopped = false;
  const auto body = [&](unsigned thread, const Thread& what) {
    return [&, thread] {
      (void)base::thread_slot();
      if (what.prepare) what.prepare();
      policy.ready[thread] = true;
      what.act();
      if (thread == 1) stopped = !ended[0];
      ended[thread] = true;
      // Nobody is to be stopped here: a thread that ends gives its slot back.
      const Scheduler::Pause pause;
      base::detail::give_back_slot();
    };
  };
  const std::vector<Scheduler::Body> bodies{body(0, first), body(1, second)};
  std::optional<Switch> parked;
  if (at) parked = Switch{*at, 0};
  Scheduler scheduler;
  EXPECT_EQ(scheduler.run(bodies, policy, 10'000'000, parked, stops).stuck, "");
  EXPECT_TRUE(ended[1]);
  EXPECT_EQ(ended[0], !stopped || stops == Stops::for_long);
  return {policy.began_at, stopped, ended[0]};
}

// `once(at, stops)` sets the threads up and stops the first; here at every point of its act(), and
// at each fourth one also for so long that the other one has ended. Returns their number.
template <class Once>
std::uint64_t stop_everywhere(Once once) {
  constexpr std::uint64_t kLongStops = 4;
  const std::uint64_t from = once(std::nullopt, Stops::for_ever).began_at;
  std::uint64_t point = from;
  for (Stop stop{.stopped = true}; stop.stopped; ++point) {
    for (const Stops stops : {Stops::for_long, Stops::for_ever}) {
      if (stops == Stops::for_long && (point - from) % kLongStops != 0) continue;
      stop = once(point, stops);
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "point " << point - from
                      << (stops == Stops::for_ever ? ", for ever" : ", for long");
        return point - from;
      }
    }
  }
  return point - from;
}

}  // namespace everleaf::crash
