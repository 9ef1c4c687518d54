// The story: fences of the `disk` domain set a flag when their sync failed, and the operation went
// on storing. A split whose redo record could not be written was applied all the same; the kernel
// then wrote back the old leaf's page alone, and half of the acknowledged keys were gone. Now a
// failed fence stops the operation before its next store, so what the kernel writes later is one of
// the images that a crash may leave.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>

#include <everleaf/store.hpp>

#include "hooks.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

// The sync after so many good ones fails, and all that follow; `durable` is what the good ones
// left.
void fail_after(int good, const std::filesystem::path& path, std::vector<std::byte>& durable) {
  hooks.fdatasync = [good, path, &durable](int) mutable -> Answer {
    if (good == 0) return EIO;
    --good;
    durable = read_bytes(path);
    return 0;
  };
}

class FailedWriteBack : public EveryTree {};
class FailedWriteBackOfAnOperation : public EveryTree {};
class FailedWriteBackOfAnEpoch : public EveryTree {};

// An operation ends at the n-th failed fence, for each n; then any subset of the pages that it
// dirtied reaches the file.
TEST_P(FailedWriteBack, AnyPagesThatReachTheFileLeaveASoundPool) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const Scratch scratch;
    const auto path = scratch / "pool";
    const auto crashed = scratch / "crashed";
    for (const std::uint64_t keys : {5U, 59U, 62U}) {
      for (int step = 0; step < 12; ++step) {
        std::filesystem::remove(path);
        Map<K> map;
        Outcome outcome = Outcome::done;
        std::vector<std::byte> durable;
        std::vector<std::byte> after;
        {
          Pool pool = Pool::open(path, on_disk_by_hand()).value();
          auto index = pool.index<K>("index", spec).value();
          for (std::uint64_t i = 0; i < keys; ++i) {
            ASSERT_EQ(index.insert(Keys<K>::nth(i * 2), i), Outcome::done);
            map.emplace(Keys<K>::nth(i * 2), i);
          }
          ASSERT_EQ(index.sync(), Outcome::done);
          durable = read_bytes(path);
          fail_after(step, path, durable);
          outcome =
              step % 3 == 2 ? index.remove(Keys<K>::nth(2)) : index.insert(Keys<K>::nth(3), 1);
          if (outcome == Outcome::done) outcome = index.sync();  // its fences in a buffered tree
          after = read_bytes(path);
          if (outcome != Outcome::done) {
            EXPECT_EQ(index.insert(Keys<K>::nth(5), 1), Outcome::io_error);
          }
          reset_hooks();
        }
        if (outcome == Outcome::done) continue;  // it has fewer fences than that
        ASSERT_EQ(outcome, Outcome::io_error);
        Map<K> changed = map;
        if (step % 3 == 2) {
          changed.erase(Keys<K>::nth(2));
        } else {
          changed.emplace(Keys<K>::nth(3), 1);
        }
        for (int image = 0; image < 8; ++image) {
          std::vector<std::byte> mixed = durable;
          for (std::size_t at = 0; at < mixed.size(); at += kPage) {
            if (random.one_in(2)) {
              std::copy_n(after.begin() + static_cast<std::ptrdiff_t>(at), kPage,
                          mixed.begin() + static_cast<std::ptrdiff_t>(at));
            }
          }
          write_bytes(crashed, mixed);
          Pool pool = Pool::open(crashed, on_disk_by_hand()).value();
          auto index = pool.index<K>("index", spec).value();
          if (difference<K>(index, changed) != "") {
            EXPECT_EQ(difference<K>(index, map), "") << "seed " << seed << ", fence " << step;
          }
          EXPECT_EQ(unsound(pool), "") << "seed " << seed << ", fence " << step;
        }
      }
    }
  });
}

// A reader may see the change whose fence failed (C2); sync() tells, and the next open decides.
TEST_P(FailedWriteBackOfAnOperation, ReadersMaySeeARefusedChange) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    const auto key = Keys<K>::nth(1);
    const auto one_of_both = [&](const Index<K>& index) {
      const Lookup hit = index.find(key);
      EXPECT_TRUE(hit && (*hit == 1 || *hit == 2)) << *hit;
    };
    {
      Pool pool = Pool::open(path, on_disk_by_hand()).value();
      auto index = pool.index<K>("index", spec).value();
      ASSERT_EQ(index.insert(key, 1), Outcome::done);
      ASSERT_EQ(index.sync(), Outcome::done);
      hooks.fdatasync = [](int) -> Answer { return EIO; };
      EXPECT_EQ(index.update(key, 2), Outcome::io_error);
      one_of_both(index);
      EXPECT_EQ(index.sync(), Outcome::io_error);
      EXPECT_EQ(unsound(pool), "");
      reset_hooks();
    }
    Pool pool = Pool::open(path, on_disk_by_hand()).value();
    one_of_both(pool.index<K>("index").value());
  });
}

// The same of private copies: the file does not take them, or cannot say that it kept them.
TEST_P(FailedWriteBackOfAnOperation, OfCopies) {
  with_keys([]<class K>(const std::string& spec) {
    for (const bool refused : {true, false}) {
      const Scratch scratch;
      const auto path = scratch / "pool";
      const auto key = Keys<K>::nth(1);
      {
        Pool pool = Pool::open(path, in_copies(on_disk_by_hand())).value();
        auto index = pool.index<K>("index", spec).value();
        ASSERT_EQ(index.insert(key, 1), Outcome::done);
        (refused ? hooks.pwrite : hooks.fdatasync) = [](int) -> Answer { return EIO; };
        EXPECT_EQ(index.update(key, 2), Outcome::io_error);
        reset_hooks();
        EXPECT_EQ(index.update(key, 3), Outcome::io_error);
        EXPECT_EQ(index.sync(), Outcome::io_error);
        EXPECT_EQ(unsound(pool), "");
      }
      Pool pool = Pool::open(path, in_copies(on_disk_by_hand())).value();
      const auto found = pool.index<K>("index").value().find(key);
      EXPECT_TRUE(*found == 1U || (!refused && *found == 2U)) << *found;
      EXPECT_EQ(unsound(pool), "");
    }
  });
}

// A buffered operation has no fence that could fail: sync() tells, and the next open goes back to
// what an earlier one acknowledged.
TEST_P(FailedWriteBackOfAnEpoch, SyncTellsAndTheNextOpenGoesBack) {
  with_keys([]<class K>(const std::string& spec) {
    const Scratch scratch;
    const auto path = scratch / "pool";
    const auto key = Keys<K>::nth(1);
    {
      Pool pool = Pool::open(path, on_disk_by_hand()).value();
      auto index = pool.index<K>("index", spec).value();
      ASSERT_EQ(index.insert(key, 1), Outcome::done);
      ASSERT_EQ(index.sync(), Outcome::done);
      hooks.fdatasync = [](int) -> Answer { return EIO; };
      EXPECT_EQ(index.update(key, 2), Outcome::done);
      EXPECT_EQ(index.sync(), Outcome::io_error);
      EXPECT_EQ(*index.find(key), 2U);
      EXPECT_EQ(index.update(key, 3), Outcome::io_error);
      EXPECT_EQ(index.sync(), Outcome::io_error);
      EXPECT_EQ(unsound(pool), "");
      reset_hooks();
    }
    Pool pool = Pool::open(path, on_disk_by_hand()).value();
    EXPECT_EQ(*pool.index<K>("index").value().find(key), 1U);
    EXPECT_EQ(unsound(pool), "");
  });
}

EVERLEAF_EVERY_TREE(FailedWriteBack);
EVERLEAF_EVERY_TREE_THAT(FailedWriteBackOfAnOperation, is_strict_case);
EVERLEAF_EVERY_TREE_THAT(FailedWriteBackOfAnEpoch, is_buffered_case);

// Of threads that let go of the last handles together each took another one for the last, and
// nobody was told that the close had failed.
TEST(LastHandle, OneOfTwoThreadsHearsOfTheClose) {
  for (int round = 0; round < 60; ++round) {
    const Scratch scratch;
    const auto path = scratch / "s";
    StoreOptions options;
    options.pool = on_disk_by_hand();
    Store one = Store::open(path, options).value();
    Store other = one;
    ASSERT_EQ(one.table("t")->put("key", "value"), Outcome::done);
    hooks.fdatasync = [](int) -> Answer { return EIO; };
    std::atomic<int> ready{0};
    std::atomic<int> errors{0};
    const auto close = [&](Store& mine) {
      ready.fetch_add(1);
      while (ready.load() != 2) std::this_thread::yield();
      if (const auto closed = mine.close(); !closed) {
        EXPECT_EQ(closed.error().code, Code::io);
        errors.fetch_add(1);
      }
    };
    std::thread helper([&] { close(other); });
    close(one);
    helper.join();
    reset_hooks();
    ASSERT_EQ(errors.load(), 1);
  }
}

}  // namespace
}  // namespace everleaf::test
