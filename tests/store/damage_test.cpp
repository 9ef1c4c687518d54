// A damaged file: an error, or answers of which no value is wrong. Never a crash, never a hang.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>
#include <thread>

#include "pmem/format.hpp"
#include "store/state.hpp"
#include "stores.hpp"

namespace everleaf::test {
namespace {

class Damaged : public EveryStore {
 protected:
  void make(bool clean) {
    auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
    auto table = store.table("t").value();
    auto numbers = store.table<std::uint64_t>("n").value();
    for (std::uint64_t i = 0; i < 700; ++i) {
      all_[Keys<Bytes>::nth(i)] = value_of(i, 2000);
      ASSERT_EQ(table.put(Keys<Bytes>::nth(i), value_of(i, 2000)), Outcome::done);
      ASSERT_EQ(numbers.put(i, value_of(i, 2000)), Outcome::done);
    }
    ASSERT_EQ(store.sync(), Outcome::done);
    if (!clean) whole_ = read_bytes(scratch_ / "s");
  }

  // What can be read is right.
  void read(Store& store) {
    if (auto table = store.table("t")) {
      for (const auto& [key, value] : content_of(*table)) {
        const auto at = all_.find(key);
        ASSERT_TRUE(at != all_.end() && at->second == value) << show(key);
      }
      for (const auto& [key, value] : all_) {
        if (const View view = table->get_view(key)) {
          ASSERT_EQ(*view, value);
        }
      }
      auto cursor = table->cursor();
      std::size_t steps = 0;
      for (cursor.last(); cursor.valid() && steps < 10000; cursor.prev()) ++steps;
    }
    if (auto numbers = store.table<std::uint64_t>("n")) {
      for (const auto& [key, value] : content_of(*numbers)) {
        ASSERT_LT(key, 700U);
        ASSERT_EQ(value, value_of(key, 2000));
      }
    }
  }

  void write(Store& store, Random& random) {
    auto table = store.table("t");
    if (!table) return;
    Batch batch;
    for (int i = 0; i < 60; ++i) {
      const std::string key = Keys<Bytes>::nth(random.below(800));
      const std::string value = value_of(random.word(), 3000);
      if (i % 3 == 0) batch.put<Bytes>(*table, key, value);
      if (i % 3 == 1 && table->put(key, value) == Outcome::done) {
        ASSERT_EQ(table->get(key).value_or(""), value);
      }
      if (i % 3 == 2) (void)table->erase(key);
    }
    (void)store.apply(batch);
    if (random.one_in(4)) (void)store.drop_table("t");
  }

  // `damage` is done to a copy of the whole file; then everything that a user does.
  template <class F>
  void rounds(std::size_t count, F&& damage) {
    Random random(seed());
    const auto path = scratch_ / "damaged";
    for (std::size_t round = 0; round < count && !HasFatalFailure(); ++round) {
      std::vector<std::byte> bytes = whole_;
      damage(bytes, random);
      write_bytes(path, bytes);
      if (auto store = Store::open(path, small_store(GetParam(), Mode::read_only))) {
        read(*store);
        (void)store->check();
      }
      auto store = Store::open(path, small_store(GetParam()));
      opened_ += store ? 1 : 0;
      if (!store) continue;
      read(*store);
      (void)store->check();
      write(*store, random);
    }
  }

  Scratch scratch_;
  Content all_;
  std::vector<std::byte> whole_;
  std::size_t opened_ = 0;
};
EVERLEAF_EVERY_STORE(Damaged);

void overwrite(std::vector<std::byte>& bytes, std::size_t at, Random& random) {
  switch (random.below(4)) {
    case 0:
      bytes[at] ^= static_cast<std::byte>(1U << random.below(8));
      break;
    case 1:
      bytes[at] = static_cast<std::byte>(random.word());
      break;
    default: {
      // A word: nothing, everything, a small number, a place in the file.
      const std::uint64_t words[] = {0, ~std::uint64_t{0}, random.below(64),
                                     random.below(bytes.size()) / 16 * 16, random.word()};
      const std::uint64_t word = words[random.below(5)];
      std::memcpy(bytes.data() + at / 8 * 8, &word, 8);
    }
  }
}

TEST_P(Damaged, Anywhere) {
  make(true);
  whole_ = read_bytes(scratch_ / "s");
  rounds(scaled(150), [](std::vector<std::byte>& bytes, Random& random) {
    for (std::uint64_t n = 1 + random.below(8); n != 0; --n) {
      overwrite(bytes, random.below(bytes.size() - 8), random);
    }
  });
  EXPECT_GT(opened_, 0U);
}

TEST_P(Damaged, AnywhereAfterACrash) {
  make(false);
  rounds(scaled(100), [](std::vector<std::byte>& bytes, Random& random) {
    for (std::uint64_t n = 1 + random.below(4); n != 0; --n) {
      overwrite(bytes, random.below(bytes.size() - 8), random);
    }
  });
  EXPECT_GT(opened_, 0U);
}

// Root block, directory entries, the image: all of them words that lead somewhere.
TEST_P(Damaged, WhereItHurts) {
  make(true);
  whole_ = read_bytes(scratch_ / "s");
  pmem::Word root = 0;
  std::memcpy(&root, whole_.data() + pmem::kStoreAt, sizeof root);
  pmem::Word image = 0;
  std::memcpy(&image, whole_.data() + root + offsetof(pmem::StoreRoot, image), sizeof image);
  ASSERT_NE(image, 0U);
  rounds(scaled(300), [=](std::vector<std::byte>& bytes, Random& random) {
    const std::size_t places[] = {root + random.below(128), root + random.below(40),
                                  image + random.below(256), pmem::kStoreAt,
                                  pmem::kDirectoryAt + random.below(512)};
    overwrite(bytes, places[random.below(5)], random);
  });
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b, std::size_t from,
          std::size_t to) {
  return std::memcmp(a.data() + from, b.data() + from, to - from) == 0;
}

// The word that names the root block is zero: a new store would take the tables' memory for free.
TEST_P(Damaged, WithoutItsRoot) {
  make(true);
  const auto path = scratch_ / "s";
  std::vector<std::byte> bytes = read_bytes(path);
  std::memset(bytes.data() + pmem::kStoreAt, 0, sizeof(pmem::Word));
  for (const Mode mode : {Mode::read_only, Mode::open, Mode::open_or_create}) {
    for (const bool named : {false, true}) {
      write_bytes(path, bytes);
      StoreOptions options = small_store(GetParam(), mode);
      if (!named) options.durability.reset();
      const auto store = Store::open(path, options);
      ASSERT_FALSE(store);
      EXPECT_EQ(store.error().code, Code::corrupt);
      EXPECT_NE(store.error().message.find(std::to_string(pmem::kStoreAt)), std::string::npos);
      EXPECT_NE(store.error().message.find("repair"), std::string::npos);
      const std::vector<std::byte> then = read_bytes(path);
      // Of an open and a close of the pool the headers tell, and what the trees have of their own.
      EXPECT_TRUE(same(then, bytes, pmem::kDirectoryAt, pmem::kLanesAt));
    }
  }
  const RepairReport report = Store::repair(path, scratch_ / "new").value();
  EXPECT_FALSE(report.sound());
  auto store = Store::open(scratch_ / "new", small_store(GetParam())).value();
  EXPECT_EQ(content_of(store.table("t").value()), all_);
}

// An entry that cannot be believed may be a table's.
TEST_P(Damaged, NoNewStoreBesideADamagedEntry) {
  const auto path = scratch_ / "s";
  {
    Pool pool = Pool::open(path, small_pool()).value();
    ASSERT_EQ(pool.index<Bytes>("i").value().insert("key", 1), Outcome::done);
  }
  std::vector<std::byte> bytes = read_bytes(path);
  bytes[pmem::kDirectoryAt + offsetof(pmem::DirectoryEntry, spec)] ^= std::byte{1};
  write_bytes(path, bytes);
  EXPECT_EQ(Store::open(path, small_store(GetParam())).error().code, Code::corrupt);
  const std::vector<std::byte> then = read_bytes(path);
  EXPECT_TRUE(same(then, bytes, pmem::kDirectoryAt, pmem::kLanesAt));
  EXPECT_TRUE(same(then, bytes, pmem::kHeapAt, bytes.size()));
}

// Where a store does not fit, the pool stays one of indexes alone.
TEST_P(Damaged, NoMarkWithoutSpace) {
  const auto path = scratch_ / "s";
  StoreOptions options = small_store(GetParam());
  options.pool.max_bytes = std::uint64_t{1} << 20;
  {
    Pool pool = Pool::open(path, options.pool).value();
    auto index = pool.index<Bytes>("i").value();
    while (index.insert(std::string(3000, 'k') + std::to_string(index.size()), 1) ==
           Outcome::done) {
    }
  }
  ASSERT_EQ(Store::open(path, options).error().code, Code::out_of_space);
  Pool pool = Pool::open(path, options.pool).value();
  EXPECT_FALSE(PoolAccess::state(pool).file().is_store());
}

// The list of a dropped table's blocks has one that is free, or one twice: none is freed.
TEST_P(Damaged, AListOfFreeBlocks) {
  make(true);
  const auto path = scratch_ / "s";
  std::vector<pmem::Word> list;  // as pmem::StoreList
  {
    auto store = Store::open(path, small_store(GetParam())).value();
    Pool pool = store.pool();
    auto index = pool.index<Bytes>("i").value();
    for (std::uint64_t i = 0; i < 200; ++i) {
      ASSERT_EQ(index.insert(Keys<Bytes>::nth(i), i), Outcome::done);
    }
    list = PoolAccess::state(pool).blocks_of("i").value();
  }
  std::vector<std::byte> bytes = read_bytes(path);
  ASSERT_GT(list.size(), 150U);
  const std::vector<pmem::Word> blocks = list;
  const std::size_t at = bytes.size() - (std::size_t{64} << 10);  // nobody has been there
  ASSERT_EQ(bytes[at], std::byte{0});
  for (const pmem::Word bad : {bytes.size() - pmem::kLine, blocks[100]}) {
    list = blocks;
    list.push_back(bad);
    list.insert(list.begin(), {0, list.size()});
    list[0] = XXH3_64bits(list.data() + 1, (list.size() - 1) * sizeof(pmem::Word));
    std::memcpy(bytes.data() + at, list.data(), list.size() * sizeof(pmem::Word));
    pmem::Word root = 0;
    std::memcpy(&root, bytes.data() + pmem::kStoreAt, sizeof root);
    const pmem::Word word = at;
    std::memcpy(bytes.data() + root + offsetof(pmem::StoreRoot, dropping), &word, sizeof word);
    write_bytes(path, bytes);
    const auto store = Store::open(path, small_store(GetParam()));
    ASSERT_FALSE(store);
    EXPECT_EQ(store.error().code, Code::corrupt);
    Pool pool = Pool::open(path, small_pool(Mode::read_only)).value();
    for (const pmem::Word block : blocks) {
      EXPECT_NE(PoolAccess::state(pool).heap().allocated_bytes(block), 0U) << block;
    }
  }
}

// A read-only store may open without it; a backup is of all tables or none.
TEST_P(Damaged, NoBackupWithoutATable) {
  make(true);
  whole_ = read_bytes(scratch_ / "s");
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    pmem::DirectoryEntry entry;
    std::byte* const at = whole_.data() + pmem::kDirectoryAt + i * sizeof entry;
    std::memcpy(&entry, at, sizeof entry);
    entry.root = pmem::kLine;  // no block is there
    if (std::string_view(entry.name.data()) == "n") std::memcpy(at, &entry, sizeof entry);
  }
  write_bytes(scratch_ / "damaged", whole_);
  auto store = Store::open(scratch_ / "damaged", small_store(GetParam(), Mode::read_only)).value();
  EXPECT_EQ(content_of(store.table("t").value()), all_);
  EXPECT_EQ(store.backup(scratch_ / "copy").error().code, Code::corrupt);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "copy"));
}

// Writers of the one would need a clock, which no tree of the other has.
TEST_P(Damaged, OfTheOtherDurability) {
  make(true);
  whole_ = read_bytes(scratch_ / "s");
  pmem::Word root = 0;
  std::memcpy(&root, whole_.data() + pmem::kStoreAt, sizeof root);
  whole_[root] ^= std::byte{3};
  write_bytes(scratch_ / "damaged", whole_);
  StoreOptions options = small_store(GetParam());
  options.durability.reset();
  EXPECT_EQ(Store::open(scratch_ / "damaged", options).error().code, Code::corrupt);
  options.pool.mode = Mode::read_only;
  auto store = Store::open(scratch_ / "damaged", options).value();
  EXPECT_EQ(content_of(store.table("t").value()), all_);
}

TEST_P(Damaged, CheckNamesTheValue) {
  make(true);
  whole_ = read_bytes(scratch_ / "s");
  std::uint64_t n = 0;
  while (value_of(n, 2000).size() < 40) ++n;
  const std::string key = Keys<Bytes>::nth(n);
  const std::string& value = all_.at(key);
  const auto* const text = reinterpret_cast<const char*>(whole_.data());
  std::size_t found = 0;
  for (Bytes file(text, whole_.size()); found < file.size(); ++found) {
    found = file.find(value, found);
    if (found == Bytes::npos) break;
    whole_[found] ^= std::byte{1};
  }
  write_bytes(scratch_ / "damaged", whole_);
  auto store = Store::open(scratch_ / "damaged", small_store(GetParam())).value();
  EXPECT_EQ(store.table("t")->get(key).error(), Outcome::corrupt);
  EXPECT_NE(unsound(store).find("does not fit its checksum at offset"), std::string::npos);
  // It can be replaced.
  EXPECT_EQ(store.table("t")->put(key, "new"), Outcome::done);
  EXPECT_EQ(store.table("t")->get(key).value(), "new");
}

// One table that is damaged hides neither the others nor the store's figures.
TEST_P(Damaged, InfoNamesWhatIsDamaged) {
  make(true);
  std::vector<std::byte> bytes = read_bytes(scratch_ / "s");
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    const std::size_t at = pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry) +
                           offsetof(pmem::DirectoryEntry, name);
    if (bytes[at] == std::byte{'n'}) bytes[at] = std::byte{'m'};
  }
  write_bytes(scratch_ / "s", bytes);
  auto store = Store::open(scratch_ / "s", small_store(GetParam(), Mode::read_only)).value();
  const StoreInfo info = store.info().value();
  ASSERT_EQ(info.tables.size(), 1U);
  EXPECT_EQ(info.tables.front().name, "t");
  EXPECT_EQ(info.problems.size(), 1U);
  EXPECT_EQ(info.records, all_.size());
  EXPECT_GT(info.record_bytes_used, 0U);
  EXPECT_LE(info.record_bytes_used, info.record_bytes);
}

// A walk that damage ends names where it came to, and the tree's own check the node.
TEST_P(Damaged, CheckNamesWhereTheWalkEnds) {
  make(true);
  constexpr pmem::Word kOffset = (pmem::Word{1} << 40) - 1;  // of a key word: trees/keys.hpp
  auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
  pmem::Medium& medium = StoreAccess::state(store).medium();
  const std::string key = Keys<Bytes>::nth(400);
  const Bytes all(medium.at<char>(0), medium.size());
  std::vector<pmem::Word*> words;  // that name its records
  for (std::size_t at = all.find(key); at != Bytes::npos; at = all.find(key, at + 1)) {
    for (std::size_t word = pmem::kHeapAt; word < all.size(); word += sizeof(pmem::Word)) {
      auto* const here = medium.at<pmem::Word>(word);
      if ((*here & kOffset) == at - 4 && *here != at - 4) words.push_back(here);
    }
  }
  std::vector<pmem::Word> whole;
  for (pmem::Word* const word : words) whole.push_back(std::exchange(*word, *word | kOffset));
  const auto report = store.check().value();
  for (std::size_t i = 0; i < words.size(); ++i) *words[i] = whole[i];
  const auto walk = std::ranges::find_if(report.problems, [](const std::string& problem) {
    return problem.find("cannot all be walked") != std::string::npos;
  });
  ASSERT_NE(walk, report.problems.end()) << words.size();
  EXPECT_NE(walk->find("of the value at offset"), std::string::npos) << *walk;
}

// A damaged value is one problem: its memory is named all the same. A damaged length counts for
// nothing in the figures.
TEST_P(Damaged, OneProblemForOneValue) {
  make(true);
  const std::vector<std::byte> good = read_bytes(scratch_ / "s");
  std::string longest;
  for (const auto& [key, value] : all_)
    longest = std::max(longest, value, [](auto& a, auto& b) { return a.size() < b.size(); });
  ASSERT_GT(longest.size(), 8U);
  std::vector<std::byte> bytes = good;
  const auto at = std::ranges::search(
      bytes, std::as_bytes(std::span<const char>(longest.data(), longest.size())));
  ASSERT_FALSE(at.empty());
  const auto place = static_cast<std::size_t>(at.begin() - bytes.begin());
  bytes[place] ^= std::byte{1};
  write_bytes(scratch_ / "s", bytes);
  {
    auto store = Store::open(scratch_ / "s", small_store(GetParam())).value();
    const auto report = store.check().value();
    ASSERT_EQ(report.problems.size(), 1U) << report.problems.back();
    EXPECT_NE(report.problems.front().find("checksum"), std::string::npos);
  }
  bytes = good;
  const std::size_t record = place - 8;
  const pmem::Word word = store::Record{record, longest.size()}.word();
  const auto of_word = std::as_bytes(std::span(&word, 1));
  std::size_t names = 0;  // also in leaves that were split
  for (std::span<std::byte> rest = bytes;; ++names) {
    const auto named = std::ranges::search(rest, of_word);
    if (named.empty()) break;
    named[3] ^= std::byte{8};  // of the length: 128 MiB more
    rest = rest.subspan(static_cast<std::size_t>(named.end() - rest.begin()));
  }
  ASSERT_NE(names, 0U);
  write_bytes(scratch_ / "s", bytes);
  auto store = Store::open(scratch_ / "s", small_store(GetParam(), Mode::read_only)).value();
  const StoreInfo info = store.info().value();
  EXPECT_EQ(info.problems.size(), 1U);
  EXPECT_LE(info.record_bytes_used, info.record_bytes);
}

TEST_P(Damaged, CheckNoticesMemoryThatNoKeyNames) {
  StoreOptions by_hand = small_store(GetParam());
  by_hand.pool.epoch_length = {};  // a block that is freed during a check may hide the lost one
  auto store = Store::open(scratch_ / "s", by_hand).value();
  auto table = store.table("t").value();
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(table.put(Keys<Bytes>::nth(i % 20), value_of(i)), Outcome::done);
    EXPECT_EQ(unsound(store), "");
  }
  pmem::Offset lost = 0;
  ASSERT_EQ(StoreAccess::state(store).reserve(100, lost), Outcome::done);
  EXPECT_NE(unsound(store).find("no key names"), std::string::npos) << unsound(store);
  StoreAccess::state(store).space().free(lost);
  EXPECT_EQ(unsound(store), "");
}

// Words that all name the bytes of one long value: to read them all, as often as there are keys,
// took a check, a backup and a repair hours.
TEST_P(Damaged, ManyWordsForTheSameBytes) {
  const auto path = scratch_ / "s";
  constexpr std::uint64_t kKeys = 2000;
  const std::string large(std::size_t{1} << 20, 'v');
  const auto names = [](const std::vector<std::string>& problems, std::string_view what) {
    return std::ranges::any_of(
        problems, [&](const std::string& one) { return one.find(what) != std::string::npos; });
  };
  {
    auto store = Store::open(path, small_store(GetParam())).value();
    auto table = store.table<std::uint64_t>("n").value();
    ASSERT_EQ(table.put(0, large), Outcome::done);
    for (std::uint64_t i = 1; i < kKeys; ++i) ASSERT_EQ(table.put(i, "small"), Outcome::done);
    ASSERT_EQ(store.sync(), Outcome::done);
    ASSERT_EQ(unsound(store), "");
    // In the tree itself: its words are not covered.
    auto& state = StoreAccess::state(store);
    auto index = state.table_to_salvage("n");
    ASSERT_NE(index, nullptr);
    auto& numbers = static_cast<store::TableOf<std::uint64_t>&>(*index);
    store::Record longest{};
    ASSERT_EQ(numbers.for_each_word([&](pmem::Word word) {
      const auto record = store::Record::of(word);
      if (record.length == large.size()) longest = record;
      return true;
    }),
              Outcome::done);
    ASSERT_NE(longest.at, 0U);
    // Each begins within the one before it and ends where that ends, and fits its checksum.
    for (std::uint64_t i = kKeys; i-- > 0;) {
      const store::Record one{longest.at + 16 * i, longest.length - 16 * i};
      const auto* const value = state.medium().at<char>(one.at + sizeof(pmem::Word));
      *state.medium().at<pmem::Word>(one.at) =
          store::checksum_of(store::hash_of(numbers.seed, i), Bytes(value, one.length));
      ASSERT_EQ(numbers.write(i, one.word(), detail::Write::update), Outcome::done);
    }
    ASSERT_EQ(store.sync(), Outcome::done);
    EXPECT_TRUE(table.get(kKeys - 1));
    EXPECT_TRUE(names(store.check()->problems, "many times the bytes of the pool"));
    // What others write makes no damage sound.
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      for (std::uint64_t i = kKeys; !stop && i < 200'000; ++i) (void)table.put(i, "new");
    });
    const auto copied = store.backup(scratch_ / "copy");
    stop = true;
    writer.join();
    ASSERT_FALSE(copied);
    EXPECT_EQ(copied.error().code, Code::corrupt);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "copy"));
    state.abandon();
  }
  const auto report = Store::repair(path, scratch_ / "new").value();
  ASSERT_EQ(report.tables.size(), 1U);
  EXPECT_TRUE(names(report.tables.front().problems, "many times the bytes of the file"));
  EXPECT_LT(report.tables.front().damaged_values, kKeys - 1);
}

}  // namespace
}  // namespace everleaf::test
