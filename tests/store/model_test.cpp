// Random work on several tables against maps: single writes, batches, cursors, drops, reopening
// after a close and after a crash of the process, in every tree.
#include "store/state.hpp"
#include "stores.hpp"

namespace everleaf::test {
namespace {

struct Setting {
  Durability durability;
  std::string spec;
};

class Model : public ::testing::TestWithParam<Setting> {
 protected:
  static constexpr std::size_t kTables = 3;
  using Numbers = std::map<std::uint64_t, std::string>;

  void open() {
    store_.emplace(Store::open(scratch_ / "s", small_store(GetParam().durability)).value());
    for (std::size_t i = 0; i < kTables; ++i) open_table(i);
    numbers_.emplace(store_->table<std::uint64_t>("numbers", GetParam().spec).value());
  }
  void open_table(std::size_t i) {
    tables_[i].emplace(store_->table(names_[i], GetParam().spec).value());
  }
  void close() {
    for (auto& table : tables_) table.reset();
    numbers_.reset();
    store_.reset();
  }

  std::string key() {
    return random_.one_in(4) ? Keys<Bytes>::odd(random_) : Keys<Bytes>::nth(random_.below(300));
  }

  // A look-up after it tells what happened.
  void write_one() {
    const std::size_t t = random_.below(kTables);
    const std::string k = key();
    const std::string v = value_of(random_.word(), 9000);
    Content& map = maps_[t];
    const bool there = map.contains(k);
    Outcome expected = Outcome::done;
    Outcome is = Outcome::done;
    switch (random_.below(6)) {
      case 0:
        expected = there ? Outcome::exists : Outcome::done;
        is = tables_[t]->insert(k, v);
        if (!there) map[k] = v;
        break;
      case 1:
        expected = there ? Outcome::done : Outcome::absent;
        is = tables_[t]->update(k, v);
        if (there) map[k] = v;
        break;
      case 2:
        expected = there ? Outcome::done : Outcome::absent;
        is = tables_[t]->erase(k);
        map.erase(k);
        break;
      case 3:
        is = tables_[t]->compare_and_set(k, there ? std::optional<Bytes>(map[k]) : std::nullopt, v);
        map[k] = v;
        break;
      default:
        is = tables_[t]->put(k, v);
        map[k] = v;
    }
    ASSERT_EQ(is, expected);
    ASSERT_EQ(tables_[t]->contains(k), map.contains(k));
  }

  void write_batch() {
    Batch batch;
    auto maps = maps_;
    auto numbers = number_map_;
    for (std::uint64_t n = random_.below(40); n != 0; --n) {
      const std::string v = value_of(random_.word(), 3000);
      const std::size_t t = random_.below(kTables + 1);
      const std::string k = key();
      const std::uint64_t number = random_.below(200);
      const bool erase = random_.one_in(3);
      if (t == kTables) {
        erase ? batch.erase<std::uint64_t>(*numbers_, number)
              : batch.put<std::uint64_t>(*numbers_, number, v);
        erase ? (void)numbers.erase(number) : (void)(numbers[number] = v);
      } else {
        erase ? batch.erase<Bytes>(*tables_[t], k) : batch.put<Bytes>(*tables_[t], k, v);
        erase ? (void)maps[t].erase(k) : (void)(maps[t][k] = v);
      }
    }
    ASSERT_EQ(store_->apply(batch), Outcome::done);
    maps_ = std::move(maps);
    number_map_ = std::move(numbers);
  }

  void compare() {
    for (std::size_t t = 0; t < kTables; ++t) {
      std::string wrong;
      ASSERT_EQ(content_of(*tables_[t], &wrong), maps_[t]);
      ASSERT_EQ(wrong, "");
      ASSERT_EQ(tables_[t]->count(), maps_[t].size());
      const std::string from = key();
      auto cursor = tables_[t]->cursor();
      auto expected = maps_[t].upper_bound(from);
      for (cursor.seek_for_prev(from); cursor.valid(); cursor.prev()) {
        ASSERT_NE(expected, maps_[t].begin());
        --expected;
        ASSERT_EQ(cursor.key(), expected->first);
        ASSERT_EQ(cursor.value(), expected->second);
      }
      ASSERT_EQ(expected, maps_[t].begin());
    }
    ASSERT_EQ(content_of(*numbers_), number_map_);
    ASSERT_EQ(unsound(*store_), "");
  }

  void reopen() {
    if (random_.one_in(2)) {
      // What the death of the process does, after everything is durable.
      ASSERT_EQ(store_->sync(), Outcome::done);
      auto pool = store_->pool();
      StoreAccess::state(*store_).abandon();
      PoolAccess::state(pool).abandon();
    }
    close();
    open();
    std::uint64_t records = number_map_.size();
    for (const Content& map : maps_) records += map.size();
    ASSERT_EQ(store_->info()->records, records);
  }

  Random random_{seed()};
  Scratch scratch_;
  const std::array<std::string, kTables> names_{"a", "b", "c"};
  std::optional<Store> store_;
  std::array<std::optional<Table<Bytes>>, kTables> tables_;
  std::optional<Table<std::uint64_t>> numbers_;
  std::array<Content, kTables> maps_;
  Numbers number_map_;
};

TEST_P(Model, RandomWork) {
  open();
  const std::size_t rounds = scaled(6000);
  for (std::size_t i = 0; i < rounds && !HasFatalFailure(); ++i) {
    const std::uint64_t what = random_.below(1000);
    if (what < 60) {
      write_batch();
    } else if (what < 63) {
      const std::size_t t = random_.below(kTables);
      ASSERT_TRUE(store_->drop_table(names_[t]));
      maps_[t].clear();
      open_table(t);
    } else if (what < 67) {
      reopen();
    } else if (what < 75) {
      compare();
    } else {
      write_one();
    }
  }
  compare();
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const TreeInfo& tree : trees()) all.push_back({tree.durability, std::string(tree.name)});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Trees, Model, ::testing::ValuesIn(settings()),
                         [](const auto& one) { return one.param.spec; });

}  // namespace
}  // namespace everleaf::test
