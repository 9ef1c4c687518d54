// Full stores: refusals that change nothing, and room again after what gives room.
#include <atomic>
#include <thread>

#include "stores.hpp"

namespace everleaf::test {
namespace {

class Full : public EveryStore {
 protected:
  StoreOptions options(std::uint64_t bytes) const {
    StoreOptions options = small_store(GetParam());
    options.pool.max_bytes = bytes;
    return options;
  }
  Scratch scratch_;
};
EVERLEAF_EVERY_STORE(Full);

TEST_P(Full, RefusesAndServes) {
  auto store = Store::open(scratch_ / "s", options(std::uint64_t{3} << 20)).value();
  auto table = store.table("t").value();
  Content all;
  Outcome is = Outcome::done;
  for (std::uint64_t i = 0; is == Outcome::done; ++i) {
    const std::string key = std::to_string(i);
    is = table.put(key, value_of(i, 3000));
    if (is == Outcome::done) all[key] = value_of(i, 3000);
    ASSERT_LT(i, 100000U);
  }
  EXPECT_EQ(is, Outcome::out_of_space);
  EXPECT_GT(all.size(), 1000U);
  EXPECT_EQ(content_of(table), all);
  EXPECT_EQ(unsound(store), "");
  // A batch that does not fit leaves nothing.
  Batch large;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    large.put<Bytes>(table, "large" + std::to_string(i), std::string(2000, 'l'));
    large.put<Bytes>(table, std::to_string(i), "replaced");
  }
  EXPECT_EQ(store.apply(large), Outcome::out_of_space);
  EXPECT_EQ(content_of(table), all);
  EXPECT_EQ(unsound(store), "");
  for (std::uint64_t i = 0; i < 600; ++i) {
    if (all.erase(std::to_string(i)) != 0) {
      ASSERT_EQ(table.erase(std::to_string(i)), Outcome::done);
    }
  }
  // As much again as was erased, of the same kinds.
  for (std::uint64_t i = 0; i < 400; ++i) {
    all[std::to_string(i)] = value_of(i, 3000);
    ASSERT_EQ(table.put(std::to_string(i), value_of(i, 3000)), Outcome::done) << i;
  }
  EXPECT_EQ(content_of(table), all);
  table = Store::anonymous()->table("x").value();
  store = Store::open(scratch_ / "other", options(0)).value();
  store = Store::open(scratch_ / "s", options(0)).value();
  EXPECT_EQ(content_of(store.table("t").value()), all);
}

// What a batch that is refused in the middle shows for a moment is not in a backup.
TEST_P(Full, BackupsHaveNothingThatWasTakenBack) {
  auto store = Store::open(scratch_ / "s", options(std::uint64_t{8} << 20)).value();
  auto table = store.table("t").value();
  const std::string longest(60000, 'k');
  const auto named = [](std::string name, int i) { return name.append(std::to_string(i)); };
  Batch batch;
  for (int i = 0; i < 2000; ++i) batch.put<Bytes>(table, named("a", i), "dirty");
  for (int i = 0; i < 200; ++i) batch.put<Bytes>(table, named(longest, i), "dirty");
  std::atomic<bool> stop{false};
  std::atomic<bool> refused{true};
  std::thread writer([&] {
    while (!stop) {
      if (store.apply(batch) != Outcome::out_of_space) refused = false;
    }
  });
  for (int round = 0; round < 40; ++round) {
    const auto path = scratch_ / named("copy", round);
    EXPECT_TRUE(store.backup(path));
    auto copy = Store::open(path, small_store(GetParam(), Mode::read_only));
    EXPECT_EQ(copy ? copy->table("t")->count() : 1, 0U);
  }
  stop = true;
  writer.join();
  EXPECT_TRUE(refused);
}

// Overwrites for ever, in a store that cannot grow: what is given up is used again.
TEST_P(Full, OverwritesReuseMemory) {
  auto store = Store::open(scratch_ / "s", options(std::uint64_t{2} << 20)).value();
  auto table = store.table("t").value();
  for (std::uint64_t i = 0; i < scaled(20000); ++i) {
    ASSERT_EQ(table.put(std::to_string(i % 50), std::string(1000 + i % 64, 'v')), Outcome::done);
  }
  EXPECT_EQ(unsound(store), "");
  EXPECT_EQ(table.count(), 50U);
}

TEST_P(Full, LargeValues) {
  auto store = Store::open(scratch_ / "s", options(std::uint64_t{48} << 20)).value();
  auto table = store.table<std::uint64_t>("t").value();
  const std::string large(std::size_t{5} << 20, 'l');
  for (int round = 0; round < 40; ++round) {
    ASSERT_EQ(table.put(0, large), Outcome::done);
    ASSERT_EQ(table.put(static_cast<std::uint64_t>(round) + 1, "small"), Outcome::done);
  }
  const View view = table.get_view(0);
  ASSERT_TRUE(view);
  EXPECT_TRUE(*view == large);
  EXPECT_EQ(table.put(1, std::string(std::size_t{100} << 20, 'x')), Outcome::out_of_space);
  EXPECT_EQ(table.get(1).value(), "small");
  EXPECT_EQ(unsound(store), "");
}

// What is given up waits, then is free, and a value takes its block as long as it is there.
TEST_P(Full, FiguresSayWhatIsFree) {
  StoreOptions by_hand = options(0);
  by_hand.pool.epoch_length = {};
  auto store = Store::open(scratch_ / "s", by_hand).value();
  auto table = store.table("t").value();
  EXPECT_EQ(store.info()->record_bytes_used, 0U);
  ASSERT_EQ(table.put("a", std::string(100, 'a')), Outcome::done);
  StoreInfo info = store.info().value();
  EXPECT_EQ(info.records, 1U);
  EXPECT_EQ(info.records_waiting, 0U);
  EXPECT_GE(info.record_bytes_used, 108U);
  EXPECT_LE(info.record_bytes_used, 135U);
  ASSERT_EQ(table.put("a", std::string(100000, 'b')), Outcome::done);
  info = store.info().value();
  if (GetParam() == Durability::buffered) {
    // Until two epochs have passed a crash may bring it back.
    EXPECT_EQ(info.records, 2U);
    EXPECT_EQ(info.records_waiting, 1U);
  }
  EXPECT_GE(info.record_bytes_used, 100008U);
  EXPECT_LE(info.record_bytes_used, info.record_bytes);
  ASSERT_EQ(store.sync(), Outcome::done);
  store = Store::open(scratch_ / "other", by_hand).value();
  table = store.table("t").value();
  store = Store::open(scratch_ / "s", by_hand).value();
  info = store.info().value();
  EXPECT_EQ(info.records, 1U);
  EXPECT_EQ(info.records_waiting, 0U);
  EXPECT_EQ(info.record_bytes_used, (100008 + 16127) / 16128 * 16128U);
}

}  // namespace
}  // namespace everleaf::test
