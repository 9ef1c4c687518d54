// The story: tags of epochs in leaves have 34 bits and compare modulo 2^34, and nothing renewed
// those of a leaf that stayed as it was. After 2^33 epochs its words seemed to be of the future:
// the pool did not open any more, and writers of an open one waited for ever. Now old tags are made
// young (D10 of src/trees/bdtree). A file's clock is set forward here as if so much time had
// passed; rounds inside a session are met by tests/crash, where tags have 7 bits.
#include <cstring>

#include "base/limits.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kHalf = std::uint64_t{1} << (base::kTagBits - 1);
constexpr std::uint64_t kKeys = 200;

PoolOptions by_hand() {
  PoolOptions options = small_pool();
  options.epoch_length = {};
  return options;
}

std::uint64_t clock_of(const std::vector<std::byte>& bytes) {
  std::uint64_t clock = 0;
  std::memcpy(&clock, &bytes[pmem::kStateAt + offsetof(pmem::PoolState, clock)], sizeof clock);
  return clock;
}

void set_clock(const std::filesystem::path& path, std::uint64_t clock) {
  auto bytes = read_bytes(path);
  std::memcpy(&bytes[pmem::kStateAt + offsetof(pmem::PoolState, clock)], &clock, sizeof clock);
  write_bytes(path, bytes);
}

void pass(const std::filesystem::path& path, std::uint64_t epochs) {
  set_clock(path, clock_of(read_bytes(path)) + epochs);
}

std::uint64_t restamped(const Stats& stats) {
  return figure(stats, "words_restamped");
}

class Tags : public EveryTree {
 protected:
  // Keys that were updated in two epochs more: all three words of cells are in use.
  template <class K>
  static Map<K> make(const std::filesystem::path& path, const char* name, const std::string& spec) {
    Pool pool = Pool::open(path, by_hand()).value();
    auto index = pool.index<K>(name, spec).value();
    Map<K> map;
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      for (std::uint64_t n = 0; n < kKeys; n += 1 + epoch) {
        EXPECT_EQ(index.upsert(Keys<K>::nth(n), n + epoch), Outcome::done);
        map[Keys<K>::nth(n)] = n + epoch;
      }
      EXPECT_EQ(pool.advance_epoch(), Outcome::done);
    }
    EXPECT_TRUE(pool.close());
    return map;
  }
};

// What there would be: nobody looked at the leaves while half of all tags passed.
TEST_P(Tags, OfHalfARoundAgoAreTakenForTheFuture) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    make<K>(path, "index", spec);
    pass(path, kHalf + 16);
    Pool pool = Pool::open(path, by_hand()).value();
    const auto index = pool.index<K>("index");
    ASSERT_FALSE(index);
    EXPECT_EQ(index.error().code, Code::corrupt);
  });
}

// Sessions that are far apart, with nothing but an open in them; then all tags have passed.
TEST_P(Tags, StayYoungInSessionsThatOnlyOpen) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    Map<K> map = make<K>(path, "index", spec);
    for (std::uint64_t passed = 0; passed < 3 * kHalf; passed += base::kOldTag + 5) {
      pass(path, base::kOldTag + 5);
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index").value();
      EXPECT_GT(restamped(index.stats()), 0U);
      ASSERT_EQ(difference<K>(index, map), "");
      ASSERT_EQ(unsound(pool), "");
      ASSERT_TRUE(pool.close());
    }
    {
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index").value();
      for (std::uint64_t n = 0; n < kKeys; n += 3) {
        ASSERT_EQ(index.upsert(Keys<K>::nth(n), n), Outcome::done);
        map[Keys<K>::nth(n)] = n;
      }
      ASSERT_EQ(pool.sync(), Outcome::done);
      PoolAccess::state(pool).abandon();
    }
    Pool pool = Pool::open(path, by_hand()).value();
    EXPECT_EQ(difference<K>(pool.index<K>("index").value(), map), "");
    EXPECT_EQ(unsound(pool), "");
  });
}

// A session that was killed while it made tags young: any of its stores may be missing.
TEST_P(Tags, AKilledSessionIsNoGap) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const Scratch scratch;
    const auto path = scratch / "pool";
    const Map<K> map = make<K>(path, "index", spec);
    for (std::uint64_t passed = 0; passed < 2 * kHalf; passed += base::kOldTag) {
      pass(path, base::kOldTag);
      const auto before = read_bytes(path);
      {
        Pool pool = Pool::open(path, by_hand()).value();
        ASSERT_TRUE(pool.index<K>("index"));
        PoolAccess::state(pool).abandon();
      }
      const auto after = read_bytes(path);
      std::vector<std::byte> mixed = after;
      for (std::size_t at = pmem::kHeapAt; at < mixed.size(); at += 8) {
        if (random.one_in(2)) std::memcpy(&mixed[at], &before[at], 8);
      }
      EXPECT_NE(mixed, after);
      write_bytes(path, mixed);
      Pool pool = Pool::open(path, by_hand()).value();
      ASSERT_EQ(difference<K>(pool.index<K>("index").value(), map), "") << "seed " << seed;
      ASSERT_EQ(unsound(pool), "") << "seed " << seed;
    }
  });
}

// The clock runs for one index; nobody asks for the other.
TEST_P(Tags, OfAnIndexThatNobodyAsksForStayYoung) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    const Map<K> map = make<K>(path, "asleep", spec);
    make<K>(path, "awake", spec);
    for (std::uint64_t passed = 0; passed < 3 * kHalf; passed += base::kOldTag) {
      pass(path, base::kOldTag);
      Pool pool = Pool::open(path, by_hand()).value();
      auto awake = pool.index<K>("awake").value();
      ASSERT_EQ(awake.upsert(Keys<K>::nth(1), passed), Outcome::done);
      ASSERT_EQ(pool.advance_epoch(), Outcome::done);
    }
    Pool pool = Pool::open(path, by_hand()).value();
    auto asleep = pool.index<K>("asleep");
    ASSERT_TRUE(asleep) << asleep.error().message;
    EXPECT_EQ(difference<K>(*asleep, map), "");
  });
}

// The clock goes through the point where tags, or their comparison, come round.
TEST_P(Tags, ComeRound) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    for (const std::uint64_t point : {kHalf, 2 * kHalf}) {
      const Scratch scratch;
      const auto path = scratch / "pool";
      { Pool pool = Pool::open(path, by_hand()).value(); }
      set_clock(path, point - 12);
      Map<K> map;
      for (int session = 0; session < 6; ++session) {
        Pool pool = Pool::open(path, by_hand()).value();
        auto index = pool.index<K>("index", spec).value();
        ASSERT_EQ(difference<K>(index, map), "") << "seed " << seed;
        for (int epoch = 0; epoch < 3; ++epoch) {
          for (int i = 0; i < 60; ++i) {
            const auto op = random_op<K>(random, Keys<K>::nth(random.below(kKeys)));
            ASSERT_EQ(apply<K>(index, op), apply<K>(map, op)) << "seed " << seed;
          }
          ASSERT_EQ(pool.advance_epoch(), Outcome::done);
        }
        ASSERT_EQ(pool.sync(), Outcome::done);
        // Not durable: gone in the next session.
        for (std::uint64_t n = 0; n < 20; ++n) {
          ASSERT_EQ(index.upsert(Keys<K>::nth(n), n), Outcome::done);
        }
        PoolAccess::state(pool).abandon();
      }
      EXPECT_GT(clock_of(read_bytes(path)), point + 6);
    }
  });
}

EVERLEAF_EVERY_TREE_THAT(Tags, is_buffered_case);

}  // namespace
}  // namespace everleaf::test
