// The stories: when memory was out, the reclaimer of bdtree dropped the leaf that it was about to
// unlink, which then stayed in the list for ever, with all that it named; a leaf could be unlinked
// without the note that it was. A block that could not be noted as free was lost until the leaves
// were read, and with an image for ever. Memory of threads that went idle waited for them. And a
// clock whose thread could not start was taken for a running one, which who stopped it tried to
// join.
#include <cerrno>
#include <new>
#include <thread>

#include "fails_at.hpp"
#include "hooks.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

PoolOptions by_hand() {
  PoolOptions options = small_pool();
  options.epoch_length = {};
  return options;
}

class ShortOfMemory : public EveryTree {};

// Every operation and every step of the clock first fails at its first allocation, or its second,
// and so on.
TEST_P(ShortOfMemory, NothingIsHalfDone) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const Scratch scratch;
    const auto path = scratch / "pool";
    Map<K> map;
    std::uint64_t failures = 0;
    std::uint64_t refused = 0;
    {
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index", spec).value();
      const auto change = [&](const Op<K>& op) {
        for (int allocation = 1;; ++allocation) {
          Outcome is = Outcome::done;
          {
            const FailsAt fails(allocation);
            is = apply<K>(index, op);
          }
          failures += failed ? 1 : 0;
          refused += is == Outcome::out_of_space ? 1 : 0;
          if (is == Outcome::out_of_space) {
            ASSERT_TRUE(failed);
            continue;  // as if it had not been asked for
          }
          ASSERT_EQ(is, apply<K>(map, op)) << show<K>(op) << ", seed " << seed;
          return;
        }
      };
      const auto step = [&](int allocation) {
        const FailsAt fails(allocation);
        ASSERT_EQ(pool.advance_epoch(), Outcome::done);
        failures += failed ? 1 : 0;
      };
      // Up and down: inner nodes and roots come and go.
      constexpr std::uint64_t keys = 4000;
      for (int round = 0; round < 2; ++round) {
        for (std::uint64_t i = 0; i < keys; ++i) {
          change({Do::insert, Keys<K>::nth((i * 7919) % keys), i});
          if (i % 50 == 0) step(static_cast<int>(random.below(8)));
        }
        ASSERT_EQ(unsound(pool), "") << "seed " << seed;
        for (std::uint64_t i = 1; i < keys; ++i) {
          change({Do::remove, Keys<K>::nth(round == 0 ? i : keys - i), 0});
          if (i % 20 == 0) step(static_cast<int>(random.below(12)));
          if (i % 500 == 0) {
            ASSERT_EQ(unsound(pool), "") << "seed " << seed;
          }
        }
      }
      for (int i = 0; i < 12; ++i) step(0);
      EXPECT_EQ(figure(index.stats(), "retired_leaves"), 0U) << "seed " << seed;
      EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed;
      EXPECT_EQ(unsound(pool), "");
    }
    EXPECT_GT(failures, 50U);
    EXPECT_GT(refused, 10U);
    // After the close, and after a crash, where all leaves are read: the same memory is in use.
    std::vector<std::uint64_t> in_use;
    for (int i = 0; i < 2; ++i) {
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index").value();
      EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed;
      EXPECT_EQ(unsound(pool), "");
      in_use.push_back(figure(index.stats(), "blocks_in_use"));
      PoolAccess::state(pool).abandon();
    }
    EXPECT_EQ(in_use[0], in_use[1]) << "seed " << seed;
  });
}

// What a thread removed before it ended.
TEST_P(ShortOfMemory, NobodyNeedsToComeBackForWhatHeRemoved) {
  with_keys([]<class K>(const std::string& spec) {
    PoolOptions options;
    options.epoch_length = {};
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<K>("index", spec).value();
    const std::uint64_t empty = figure(index.stats(), "blocks_in_use");
    std::thread([&] {
      for (std::uint64_t n = 0; n < 500; ++n) {
        ASSERT_EQ(index.insert(Keys<K>::nth(n), n), Outcome::done);
      }
      for (std::uint64_t n = 0; n < 500; ++n) {
        ASSERT_EQ(index.remove(Keys<K>::nth(n)), Outcome::done);
      }
    }).join();
    EXPECT_GT(figure(index.stats(), "blocks_in_use"), empty + 8);
    for (int i = 0; i < 12; ++i) ASSERT_EQ(pool.advance_epoch(), Outcome::done);
    EXPECT_EQ(figure(index.stats(), "blocks_in_use"), empty);
  });
}

EVERLEAF_EVERY_TREE_THAT(ShortOfMemory, is_buffered_case);

// A lock that was held when an allocation failed stayed taken, and the next one who came waited for
// ever.
class NoMemory : public EveryTree {};

TEST_P(NoMemory, LeavesNoLockTaken) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    std::uint64_t next = 0;
    {
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index", spec).value();
      for (; next < 600; ++next) ASSERT_EQ(index.insert(Keys<K>::nth(next), 1), Outcome::done);
    }
    std::uint64_t failures = 0;
    for (int allocation = 1; allocation <= 6; ++allocation) {
      // Opened anew: the heap has no memory of its slabs.
      Pool pool = Pool::open(path, by_hand()).value();
      auto index = pool.index<K>("index").value();
      const auto attempt = [&](auto change) {
        try {
          const FailsAt fails(allocation);
          static_cast<void>(change());
        } catch (const std::bad_alloc&) {
        }
        failures += failed ? 1 : 0;
      };
      for (std::uint64_t i = 0; i < 40; ++i) {
        const std::uint64_t n = static_cast<std::uint64_t>(allocation) * 60 + i;
        attempt([&] { return index.remove(Keys<K>::nth(n)); });
        static_cast<void>(index.remove(Keys<K>::nth(n)));
        ASSERT_FALSE(index.find(Keys<K>::nth(n)));
      }
      for (int i = 0; i < 60; ++i) {  // enough for a node of buffers to be full
        std::vector<Entry<K>> entries;
        for (int each = 0; each < 5; ++each) entries.push_back({Keys<K>::nth(next++), 2});
        attempt([&] { return index.insert_all(entries); });
        for (const auto& entry : entries) ASSERT_EQ(index.upsert(entry.key, 3), Outcome::done);
      }
      EXPECT_EQ(unsound(pool), "");
    }
    EXPECT_GT(failures, 0U);
  });
}

EVERLEAF_EVERY_TREE(NoMemory);

// No thread for the clock: said so, and the pool can be closed and asked again.
TEST(Clock, WithoutAThread) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  {
    Pool pool = Pool::open(path, small_pool()).value();
    hooks.new_thread = []() -> Answer { return EAGAIN; };
    const auto refused = pool.index<std::uint64_t>("index", "bdtree");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::io);
    reset_hooks();
    auto index = pool.index<std::uint64_t>("index", "bdtree").value();
    ASSERT_EQ(index.insert(1, 2), Outcome::done);
    EXPECT_EQ(pool.wait_durable(pool.epochs().now), Outcome::done);
    PoolAccess::state(pool).abandon();
  }
  hooks.new_thread = []() -> Answer { return EAGAIN; };
  const auto refused = Pool::open(path, small_pool());  // rolls back, then starts the clock
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::io);
  reset_hooks();
  Pool pool = Pool::open(path, small_pool()).value();
  EXPECT_EQ(*pool.index<std::uint64_t>("index").value().find(1), 2U);
}

}  // namespace
}  // namespace everleaf::test
