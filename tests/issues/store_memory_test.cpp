// Where memory is out, a call on a store answers so and has changed nothing; and nothing is lost
// for the next session. Each call here fails at its first allocation, then at its second, and so
// on.
#include <new>

#include <everleaf/store.hpp>

#include "fails_at.hpp"
#include "hooks.hpp"
#include "support.hpp"

namespace everleaf::test {
namespace {

using Content = std::map<std::string, std::string>;

class StoreShortOfMemory : public ::testing::TestWithParam<Durability> {
 protected:
  StoreOptions options() const {
    StoreOptions options;
    options.pool = small_pool();
    options.pool.epoch_length = {};
    options.durability = GetParam();
    return options;
  }

  // Until it is not refused for lack of memory; the content is as it was after each refusal.
  template <class Call>
  Outcome insist(Call call) {
    for (int allocation = 1;; ++allocation) {
      Outcome is = Outcome::done;
      {
        const FailsAt fails(allocation);
        is = call();
      }
      if (is != Outcome::out_of_space) return is;
      EXPECT_TRUE(failed);
      ++refusals_;
      if (allocation % 4 == 1) expect_content();
      if (::testing::Test::HasFailure()) return is;
    }
  }

  void expect_content() {
    Content is;
    auto cursor = store_->table("t")->cursor();
    for (cursor.first(); cursor.valid(); cursor.next()) is.emplace(cursor.key(), cursor.value());
    EXPECT_EQ(cursor.outcome(), Outcome::done);
    EXPECT_EQ(is, map_);
  }

  Scratch scratch_;
  std::optional<Store> store_;
  Content map_;
  std::uint64_t refusals_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Stores, StoreShortOfMemory,
                         ::testing::Values(Durability::buffered, Durability::strict),
                         [](const auto& one) { return std::string(to_string(one.param)); });

TEST_P(StoreShortOfMemory, NothingIsHalfDone) {
  Random random(seed());
  store_.emplace(Store::open(scratch_ / "s", options()).value());
  {
    auto table = store_->table("t").value();
    for (int i = 0; i < 250 && !HasFailure(); ++i) {
      const std::string key = Keys<Bytes>::nth(random.below(120));
      const std::string other = Keys<Bytes>::nth(random.below(120));
      const std::string value(random.below(300), 'v');
      if (i % 3 == 0) {
        Batch batch;
        batch.put<Bytes>(table, key, value);
        batch.erase<Bytes>(table, other);
        ASSERT_EQ(insist([&] { return store_->apply(batch); }), Outcome::done);
        map_[key] = value;
        map_.erase(other);
      } else if (i % 3 == 1) {
        ASSERT_EQ(insist([&] { return table.put(key, value); }), Outcome::done);
        map_[key] = value;
      } else {
        const Outcome is = insist([&] { return table.erase(key); });
        ASSERT_EQ(is, map_.erase(key) != 0 ? Outcome::done : Outcome::absent);
      }
      std::string read;
      const Outcome got = insist([&] { return table.get(key, read); });
      ASSERT_EQ(got, map_.contains(key) ? Outcome::done : Outcome::absent);
      auto cursor = table.cursor();
      for (int allocation = 1;; ++allocation) {
        const FailsAt fails(allocation);
        if (cursor.seek(key)) break;
        if (cursor.outcome() == Outcome::done) break;
        ASSERT_EQ(cursor.outcome(), Outcome::out_of_space);
      }
      if (i % 7 == 0) {
        const FailsAt fails(1 + i % 3);
        ASSERT_EQ(store_->pool().advance_epoch(), Outcome::done);
      }
    }
  }
  EXPECT_GT(refusals_, 50U);
  expect_content();
  store_.reset();
  store_.emplace(Store::open(scratch_ / "s", options()).value());
  expect_content();
  EXPECT_EQ(store_->info()->records, map_.size());
  EXPECT_TRUE(store_->check()->problems.empty());
}

// A drop is refused, or happens; in either case all blocks belong to somebody, at the latest after
// the next open.
TEST_P(StoreShortOfMemory, Drops) {
  int allocation = 1;
  for (bool over = false; !over && !HasFailure(); ++allocation) {
    store_.emplace(Store::open(scratch_ / "s", options()).value());
    {
      auto table = store_->table("t").value();
      for (std::uint64_t i = 0; i < 200; ++i) {
        ASSERT_EQ(table.put(Keys<Bytes>::nth(i), std::string(i, 'v')), Outcome::done);
      }
    }
    bool there = true;
    {
      const FailsAt fails(allocation);
      const auto dropped = store_->drop_table("t");
      over = !failed;
      if (!dropped) {
        EXPECT_EQ(dropped.error().code, Code::out_of_space);
      }
    }
    there = !store_->tables()->empty();
    EXPECT_TRUE(store_->check()->problems.empty());
    if (there) {
      EXPECT_EQ(store_->table("t")->count(), 200U);
    }
    store_.reset();
    store_.emplace(Store::open(scratch_ / "s", options()).value());
    EXPECT_EQ(store_->info()->records, there ? 200U : 0U);
    EXPECT_EQ(store_->check()->problems, std::vector<std::string>());
    store_.reset();
  }
  EXPECT_GT(allocation, 3);
}

}  // namespace
}  // namespace everleaf::test
