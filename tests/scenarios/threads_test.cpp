// Many threads on one index: per-key linearizability of the recorded history, scans beside writers,
// threads that come and go.
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <latch>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "support.hpp"

namespace everleaf::test {
namespace {

// --- The checker ---------------------------------------------------------------------------------

enum class Kind : std::uint8_t { insert, update, upsert, remove, find };

struct Event {
  Kind kind = Kind::find;
  std::uint64_t value = 0;  // written, or found
  Outcome outcome = Outcome::done;
  std::int64_t invoked_ns = 0;
  std::int64_t returned_ns = 0;
};

// The value of one key, or none.
using Register = std::optional<std::uint64_t>;

// Whether the event's answer is right in this state; changes the state.
bool fits(const Event& event, Register& state) {
  const bool there = state.has_value();
  switch (event.kind) {
    case Kind::find:
      return there ? event.outcome == Outcome::done && event.value == *state
                   : event.outcome == Outcome::absent;
    case Kind::insert:
      if (there) return event.outcome == Outcome::exists;
      break;
    case Kind::update:
    case Kind::remove:
      if (!there) return event.outcome == Outcome::absent;
      break;
    case Kind::upsert:
      break;
  }
  if (event.outcome != Outcome::done) return false;
  state = event.kind == Kind::remove ? Register{} : Register{event.value};
  return true;
}

// Is there an order of the events, agreeing with real time, in which each answer is right?
// The search of Wing and Gong with Lowe's memory of configurations; at most 64 events of one key.
class Linearizer {
 public:
  explicit Linearizer(const std::vector<Event>& events) : events_(events) {}
  bool possible(const Register& start) { return search(0, start); }

 private:
  bool search(std::uint64_t done, const Register& state) {
    if (static_cast<std::size_t>(std::popcount(done)) == events_.size()) return true;
    if (!tried_.emplace(done, state).second) return false;
    std::int64_t first_return = INT64_MAX;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if ((done >> i & 1) == 0) first_return = std::min(first_return, events_[i].returned_ns);
    }
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if ((done >> i & 1) != 0 || events_[i].invoked_ns > first_return) continue;
      Register next = state;
      if (fits(events_[i], next) && search(done | std::uint64_t{1} << i, next)) return true;
    }
    return false;
  }
  const std::vector<Event>& events_;
  std::set<std::pair<std::uint64_t, Register>> tried_;
};

std::string history_of(std::vector<Event> events, const Register& start) {
  std::ranges::sort(events, {}, &Event::invoked_ns);
  std::string text = ", from " + (start ? std::to_string(*start) : "absent");
  for (const Event& event : events) {
    constexpr std::array<const char*, 5> kNames{"insert", "update", "upsert", "remove", "find"};
    text += std::string("\n  ") + kNames[static_cast<std::size_t>(event.kind)] + " " +
            std::to_string(event.value) + ": " + std::string(to_string(event.outcome)) + " [" +
            std::to_string(event.invoked_ns - events.front().invoked_ns) + ", " +
            std::to_string(event.returned_ns - events.front().invoked_ns) + "]";
  }
  return text;
}

TEST(Linearizability, CanaryTheCheckerSeesWrongHistories) {
  const Event insert{Kind::insert, 1, Outcome::done, 0, 10};
  const Event remove{Kind::remove, 0, Outcome::done, 20, 30};
  const Event early{Kind::find, 1, Outcome::done, 5, 25};
  const Event stale{Kind::find, 1, Outcome::done, 35, 40};
  const Event twice{Kind::insert, 2, Outcome::done, 11, 15};
  EXPECT_TRUE(Linearizer({insert, remove, early}).possible({}));
  EXPECT_FALSE(Linearizer({insert, remove, stale}).possible({}));
  EXPECT_FALSE(Linearizer({insert, twice}).possible({}));
  EXPECT_TRUE(Linearizer({insert, twice, {Kind::remove, 0, Outcome::done, 9, 14}}).possible({}));
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// --- Threads on the same keys --------------------------------------------------------------------

constexpr std::size_t kContested = 3;
constexpr std::size_t kThreads = 4;
constexpr std::uint64_t kStepsPerRound = 12;

template <class K>
Event perform(Index<K>& index, const Owned<K>& key, Kind kind, std::uint64_t value) {
  Event event{kind, value, Outcome::done, now_ns(), 0};
  switch (kind) {
    case Kind::insert:
      event.outcome = index.insert(key, value);
      break;
    case Kind::update:
      event.outcome = index.update(key, value);
      break;
    case Kind::upsert:
      event.outcome = index.upsert(key, value);
      break;
    case Kind::remove:
      event.outcome = index.remove(key);
      break;
    case Kind::find: {
      const Lookup hit = index.find(key);
      event.outcome = hit.outcome;
      event.value = hit.value;
    }
  }
  event.returned_ns = now_ns();
  return event;
}

// Anonymous pools write nothing back by default, and what costs a fence elsewhere goes another way
// in them. So strict trees run in those where fences wait, too, as in persistent memory.
class EachPool : public EveryTree {
 protected:
  // Calls body.operator()<K>(spec, options) for each of these pools.
  template <class F>
  void with_pools(F&& body) {
    with_keys([&]<class K>(const std::string& spec) {
      PoolOptions options = quick_epochs();
      body.template operator()<K>(spec, options);
      if (is_buffered(spec) || HasFailure()) return;
      SCOPED_TRACE("fences wait");
      options.domain = Domain::memory;
      options.emulate = true;
      body.template operator()<K>(spec, options);
    });
  }
};
class Threads : public EachPool {};

template <class K>
struct Contest {
  Index<K> index;
  std::array<Owned<K>, kContested> keys;
  std::array<std::array<std::vector<Event>, kContested>, kThreads> history;

  void work(std::size_t thread, std::uint64_t round, Random& random) {
    for (std::uint64_t step = 0; step < kStepsPerRound; ++step) {
      const std::size_t which = random.below(kContested);
      const auto kind = static_cast<Kind>(random.below(5));
      const std::uint64_t value = round * 1000 + thread * 100 + step;
      history[thread][which].push_back(perform<K>(index, keys[which], kind, value));
    }
    // Neighbours come and go, so that the leaf splits, empties and is unlinked meanwhile.
    for (std::uint64_t i = 0; i < 12; ++i) {
      const Owned<K> key = Keys<K>::nth(2 * (random.below(40) * kThreads + thread));
      (void)(random.one_in(2) ? index.insert(key, 0) : index.remove(key));
    }
  }
};

TEST_P(Threads, HistoriesAreLinearizable) {
  with_pools([]<class K>(const std::string& spec, const PoolOptions& options) {
    const std::uint64_t seed = test::seed();
    const std::uint64_t rounds = scaled(3000);
    Pool pool = Pool::anonymous(options).value();
    // Among the neighbours, which have even numbers.
    Contest<K> contest{pool.index<K>("index", spec).value(),
                       {Keys<K>::nth(81), Keys<K>::nth(163), Keys<K>::nth(165)},
                       {}};
    std::array<Register, kContested> state;
    std::atomic<std::uint64_t> round{0};
    const auto judge = [&]() noexcept {
      for (std::size_t which = 0; which < kContested; ++which) {
        std::vector<Event> events;
        for (auto& of_thread : contest.history) {
          events.insert(events.end(), of_thread[which].begin(), of_thread[which].end());
          of_thread[which].clear();
        }
        events.push_back(perform<K>(contest.index, contest.keys[which], Kind::find, 0));
        EXPECT_LE(events.size(), 64U);
        EXPECT_TRUE(Linearizer(events).possible(state[which]))
            << "seed " << seed << ", round " << round << ", key " << which
            << history_of(events, state[which]);
        state[which] =
            events.back().outcome == Outcome::done ? Register{events.back().value} : Register{};
      }
      round.fetch_add(1);
    };
    std::barrier barrier(static_cast<std::ptrdiff_t>(kThreads), judge);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        Random random(seed + t + 1);
        for (std::uint64_t r = 0; r < rounds; ++r) {
          contest.work(t, r, random);
          barrier.arrive_and_wait();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(unsound(pool), "") << "seed " << seed;
  });
}

// --- Writers on their own keys, scanners over all ------------------------------------------------

constexpr std::uint64_t kStable = 4;  // every fourth key stays throughout

template <class K>
void write_own_keys(Index<K>& index, std::uint64_t writer, std::uint64_t steps, Random random,
                    Map<K>& map) {
  for (std::uint64_t i = 0; i < steps; ++i) {
    // Phases of growth and of decay.
    const std::uint64_t n = random.below(400) * kStable + writer;
    Op<K> op = random_op<K>(random, Keys<K>::nth(n));
    if (i / 512 % 2 == 1 && op.what == Do::insert) op.what = Do::remove;
    op.value = n;
    ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << show<K>(op);
  }
}

// Ascending, and no stable key is missing between its ends.
template <class K>
void look_through(const Index<K>& index, const Map<K>& stable, Random& random) {
  std::vector<Entry<K>> seen;
  const Owned<K> from = Keys<K>::nth(random.below(1600));
  const std::size_t limit = 1 + random.below(500);
  const bool up = random.one_in(2);
  ASSERT_EQ(up ? index.scan(from, limit, seen) : index.scan_back(K(from), limit, seen),
            Outcome::done);
  if (!up) std::ranges::reverse(seen);
  for (std::size_t i = 1; i < seen.size(); ++i) ASSERT_LT(seen[i - 1].key, seen[i].key);
  const bool whole = seen.size() < limit;
  if (seen.empty() && !whole) return;
  auto first = up ? stable.lower_bound(from)
                  : (whole ? stable.begin() : stable.lower_bound(seen.front().key));
  auto last =
      up ? (whole ? stable.end() : stable.upper_bound(seen.back().key)) : stable.upper_bound(from);
  auto entry = seen.begin();
  for (; first != last; ++first) {
    while (entry != seen.end() && entry->key < first->first) ++entry;
    ASSERT_TRUE(entry != seen.end() && entry->key == first->first)
        << "a scan misses " << show(first->first);
    ASSERT_EQ(entry->value, first->second);
  }
}

// Keys that stay are there, with their value; others are there or not.
template <class K>
void look_up_many(const Index<K>& index, Random& random) {
  std::vector<std::uint64_t> numbers(1 + random.below(300));
  for (auto& n : numbers) n = random.below(1600);
  std::vector<Owned<K>> asked;
  for (const std::uint64_t n : numbers) asked.push_back(Keys<K>::nth(n));
  const std::vector<K> keys(asked.begin(), asked.end());
  std::vector<Lookup> answers;
  index.find_many(keys, answers);
  ASSERT_EQ(answers.size(), keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (numbers[i] % kStable == 0 || answers[i].outcome != Outcome::absent) {
      ASSERT_EQ(answers[i].outcome, Outcome::done) << show(asked[i]);
      ASSERT_EQ(*answers[i], numbers[i]);
    }
  }
}

TEST_P(Threads, LookUpsBesideWriters) {
  with_pools([]<class K>(const std::string& spec, const PoolOptions& options) {
    const std::uint64_t seed = test::seed();
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<K>("index", spec).value();
    Map<K> stable;
    for (std::uint64_t n = 0; n < 1600; n += kStable) {
      stable.emplace(Keys<K>::nth(n), n);
      ASSERT_EQ(index.insert(Keys<K>::nth(n), n), Outcome::done);
    }
    std::array<Map<K>, kStable> own;
    std::atomic<unsigned> writing{3};
    std::vector<std::thread> threads;
    for (std::uint64_t w = 1; w < kStable; ++w) {
      threads.emplace_back([&, w] {
        write_own_keys<K>(index, w, scaled(60000), Random(seed + w), own[w]);
        writing.fetch_sub(1);
      });
    }
    for (std::uint64_t s = 0; s < 2; ++s) {
      threads.emplace_back([&, s] {
        Random random(seed + 100 + s);
        while (writing.load() != 0 && !::testing::Test::HasFatalFailure()) {
          look_through<K>(index, stable, random);
          look_up_many<K>(index, random);
          if (s == 0) {
            ASSERT_LT(index.size(), 1U << 20);  // exact when no writer runs
          }
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& map : own) stable.insert(map.begin(), map.end());
    EXPECT_EQ(difference<K>(index, stable), "") << "seed " << seed;
    EXPECT_EQ(unsound(pool), "") << "seed " << seed;
  });
}

// Leaves before those that a scan reads next are emptied and filled again: ranges pass to
// neighbours, on either side.
TEST_P(Threads, ScansBesideLeavesThatEmpty) {
  with_pools([]<class K>(const std::string& spec, const PoolOptions& options) {
    constexpr std::uint64_t kComes = 120;
    constexpr std::uint64_t kStays = 400;
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<K>("index", spec).value();
    Map<K> stable;
    for (std::uint64_t n = 0; n < kComes + kStays; ++n) {
      ASSERT_EQ(index.insert(Keys<K>::nth(n), n), Outcome::done);
      if (n >= kComes) stable.emplace(Keys<K>::nth(n), n);
    }
    std::atomic<bool> over{false};
    std::thread writer([&, writing = index]() mutable {
      for (std::uint64_t round = 0; !over.load(); ++round) {
        for (std::uint64_t n = 0; n < kComes; ++n) (void)writing.remove(Keys<K>::nth(n));
        for (std::uint64_t n = 0; n < kComes; n += 1 + round % 7) {
          (void)writing.insert(Keys<K>::nth(n), n);
        }
      }
    });
    std::vector<Entry<K>> seen;
    const std::uint64_t scans = scaled(3000);
    for (std::uint64_t scan = 0; scan < scans && !::testing::Test::HasFailure(); ++scan) {
      constexpr std::size_t kAll = ~std::size_t{0};
      const bool up = scan % 2 == 0;
      EXPECT_EQ(up ? index.scan(K{}, kAll, seen) : index.scan_back(std::nullopt, kAll, seen),
                Outcome::done);
      if (!up) std::ranges::reverse(seen);
      for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_LT(seen[i - 1].key, seen[i].key);
      EXPECT_GE(seen.size(), stable.size());
    }
    over.store(true);
    writer.join();
    for (std::uint64_t n = 0; n < kComes; ++n) (void)index.remove(Keys<K>::nth(n));
    EXPECT_EQ(difference<K>(index, stable), "");
    EXPECT_EQ(unsound(pool), "");
  });
}

// --- Batches -------------------------------------------------------------------------------------

// Batch number n: entries far apart, with those of other batches between them.
constexpr std::uint64_t kBatch = 16;
constexpr std::uint64_t kBatches = 300;

template <class K>
std::vector<Entry<K>> batch(std::uint64_t n) {
  std::vector<Entry<K>> entries;
  for (std::uint64_t i = 0; i < kBatch; ++i) {
    entries.push_back({Keys<K>::nth(i * (2 * kBatches) + n), n});
  }
  return entries;
}

TEST_P(Threads, BatchesAnswerLikeInsertions) {
  with_keys([]<class K>(const std::string& spec) {
    Pool pool = Pool::anonymous(quick_epochs()).value();
    auto index = pool.index<K>("index", spec).value();
    auto entries = batch<K>(7);
    EXPECT_EQ(index.insert_all({}), Outcome::done);
    ASSERT_EQ(index.insert_all(entries), Outcome::done);
    EXPECT_EQ(index.size(), kBatch);
    EXPECT_EQ(index.insert_all(entries), Outcome::exists);
    // A prefix stays.
    ASSERT_EQ(index.remove(entries[0].key), Outcome::done);
    EXPECT_EQ(index.insert_all(entries), Outcome::exists);
    EXPECT_TRUE(index.find(entries[0].key));
    EXPECT_EQ(index.size(), kBatch);
    std::swap(entries[3], entries[4]);
    EXPECT_EQ(index.insert_all(entries), Outcome::not_ascending);
    EXPECT_EQ(index.size(), kBatch);
    EXPECT_EQ(unsound(pool), "");
  });
}

// In trees that promise it: scans, and two look-ups in a row, see all of a batch or nothing of it.
class WholeBatches : public EachPool {};

bool has_whole_batches(const Case& c) {
  const auto row = std::ranges::find(trees(), c.spec.substr(0, c.spec.find(':')), &TreeInfo::name);
  return row->whole_batches;
}

TEST_P(WholeBatches, AreSeenWhollyOrNotAtAll) {
  with_pools([]<class K>(const std::string& spec, const PoolOptions& options) {
    const std::uint64_t seed = test::seed();
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<K>("index", spec).value();
    std::atomic<std::uint64_t> next{0};  // the batch that comes or runs
    std::thread batches([&] {
      Random random(seed);
      for (; next.load() < kBatches; next.fetch_add(1)) {
        ASSERT_EQ(index.insert_all(batch<K>(next.load())), Outcome::done);
        // Others, so that leaves split and merge.
        const std::uint64_t n = kBatches + random.below(kBatches);
        const auto entries = batch<K>(n);
        for (const auto& entry : entries) index.upsert(entry.key, n);
        for (const auto& entry : entries) index.remove(entry.key);
      }
    });
    Random random(seed + 1);
    std::vector<Entry<K>> seen;
    while (next.load() < kBatches && !::testing::Test::HasFatalFailure()) {
      if (random.one_in(4)) {
        const bool up = random.one_in(2);
        ASSERT_EQ(up ? index.scan(K{}, kAll, seen) : index.scan_back(std::nullopt, kAll, seen),
                  Outcome::done);
        std::map<std::uint64_t, std::uint64_t> count;
        for (const auto& entry : seen) ++count[entry.value];
        for (const auto& [n, entries] : count) {
          if (n >= kBatches) continue;
          ASSERT_EQ(entries, kBatch) << "batch " << n << ", seed " << seed;
        }
        continue;
      }
      const auto entries = batch<K>(next.load());
      const std::uint64_t one = random.below(kBatch);
      const std::uint64_t other = random.below(kBatch);
      if (index.find(entries[one].key)) {
        ASSERT_TRUE(index.find(entries[other].key)) << "seed " << seed;
      }
    }
    batches.join();
    EXPECT_EQ(unsound(pool), "");
  });
}

EVERLEAF_EVERY_TREE_THAT(WholeBatches, has_whole_batches);

// --- Threads that come and go --------------------------------------------------------------------

TEST_P(Threads, AHundredComeAndGo) {
  with_pools([]<class K>(const std::string& spec, const PoolOptions& options) {
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<K>("index", spec).value();
    constexpr std::uint64_t kCount = 100;
    constexpr std::uint64_t kEach = 12;
    for (std::uint64_t wave = 0; wave < 4; ++wave) {
      std::vector<std::thread> threads;
      for (std::uint64_t t = 0; t < kCount; ++t) {
        threads.emplace_back([&, t] {
          for (std::uint64_t i = 0; i < kEach; ++i) {
            const Owned<K> key = Keys<K>::nth(i * kCount + t);
            const Outcome outcome = wave % 2 == 0 ? index.insert(key, t) : index.remove(key);
            EXPECT_EQ(outcome, Outcome::done);
            EXPECT_EQ(static_cast<bool>(index.find(key)), wave % 2 == 0);
          }
        });
      }
      for (auto& thread : threads) thread.join();
      EXPECT_EQ(index.size(), wave % 2 == 0 ? kCount * kEach : 0);
      EXPECT_EQ(unsound(pool), "");
    }
  });
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they cannot have so many
TEST(ThreadLimit, OneTooManyIsRefused) {
  Pool pool = Pool::anonymous(quick_epochs()).value();
  auto index = pool.index<std::uint64_t>("index", trees().front().name).value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);  // this thread has a slot now
  constexpr std::size_t kExtra = 16;
  std::latch all_tried(static_cast<std::ptrdiff_t>(kMaxThreads - 1 + kExtra));
  std::atomic<std::size_t> refused{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kMaxThreads - 1 + kExtra; ++t) {
    threads.emplace_back([&] {
      const Lookup hit = index.find(1);
      if (!hit) {
        EXPECT_EQ(hit.outcome, Outcome::too_many_threads);
        EXPECT_EQ(index.insert(2, 2), Outcome::too_many_threads);
        refused.fetch_add(1);
      }
      all_tried.arrive_and_wait();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused.load(), kExtra);
  std::thread([&] { EXPECT_EQ(index.insert(3, 3), Outcome::done); }).join();
  EXPECT_EQ(index.size(), 2U);
}
#endif

// Late redo records (src/alloc/redo_log.hpp) are for the first 16 slots. What threads pay that
// write to one leaf by turns, and one that has no lanes of its own: fences of insertions that move
// entries over several lines.
TEST(LateRecords, OfSeveralThreadsAndWithoutLanes) {
  constexpr std::size_t kSlotsWithLanes = 16;
  PoolOptions options = quick_epochs();
  options.domain = Domain::memory;
  options.emulate = true;
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<std::uint64_t>("index", "pbtree").value();
  for (std::uint64_t i = 1; i <= 40; ++i) ASSERT_EQ(index.insert(1000 * i, i), Outcome::done);
  const auto fences_of = [&](std::uint64_t key) {
    const std::uint64_t before = pool.counters().fences;
    EXPECT_EQ(index.insert(key, 1), Outcome::done);
    return pool.counters().fences - before;
  };
  // This thread has the first slot; each one that follows takes the next one.
  const auto in_a_new_thread = [](const auto& body) { std::thread(body).join(); };
  constexpr std::uint64_t kSettled = 2;   // the words, the record
  constexpr std::uint64_t kOrdinary = 3;  // a redo record
  EXPECT_EQ(fences_of(500), 1U) << "late";
  in_a_new_thread([&] { EXPECT_EQ(fences_of(1500), kSettled + 1) << "another's record"; });
  EXPECT_EQ(fences_of(2500), kSettled + 1);

  std::latch taken(static_cast<std::ptrdiff_t>(kSlotsWithLanes));
  std::latch over(1);
  std::vector<std::thread> others;
  for (std::size_t i = 0; i + 1 < kSlotsWithLanes; ++i) {
    others.emplace_back([&] {
      EXPECT_TRUE(index.find(1000));
      taken.count_down();
      over.wait();
    });
  }
  taken.arrive_and_wait();
  in_a_new_thread([&] {
    EXPECT_EQ(fences_of(3500), kSettled + kOrdinary) << "no lanes, another's record";
    EXPECT_EQ(fences_of(4500), kOrdinary) << "nobody names the leaf";
    EXPECT_EQ(fences_of(40500), 1U) << "one line";
  });
  EXPECT_EQ(fences_of(5500), 1U);
  in_a_new_thread([&] { EXPECT_EQ(fences_of(41500), kSettled + 1) << "one line, named"; });
  over.count_down();
  for (auto& thread : others) thread.join();
  EXPECT_EQ(index.size(), 48U);
  EXPECT_EQ(unsound(pool), "");
}

EVERLEAF_EVERY_TREE(Threads);

}  // namespace
}  // namespace everleaf::test
