// Repair: what a damaged file still has comes into a new store, nothing else, and the file stays as
// it is.
#include <cstring>
#include <random>

#include "pmem/format.hpp"
#include "stores.hpp"

namespace everleaf::test {
namespace {

class Repair : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kKeys = 700;

  // Tables "t" (bytes) and "n" (numbers) in the tree, and their file.
  void make() {
    for (const TreeInfo& one : trees()) {
      if (GetParam() == one.name) durability_ = one.durability;
    }
    {
      auto store = Store::open(path(), small_store(durability_)).value();
      auto table = store.table("t", GetParam()).value();
      auto numbers = store.table<std::uint64_t>("n", GetParam()).value();
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        // Keys that no BzTree keeps in place, too.
        std::string key = Keys<Bytes>::nth(i);
        if (i % 10 == 0) key += std::string(600, 'k');
        bytes_[key] = value_of(i, 300);
        numbers_[i * 7] = value_of(i, 300);
        ASSERT_EQ(table.put(key, value_of(i, 300)), Outcome::done);
        ASSERT_EQ(numbers.put(i * 7, value_of(i, 300)), Outcome::done);
      }
      // Some that are gone, and some that have another value.
      for (std::uint64_t i = 0; i < kKeys; i += 5) {
        if (i % 10 == 0) continue;
        const std::string key = Keys<Bytes>::nth(i);
        old_[key] = bytes_[key];
        ASSERT_EQ(table.erase(key), Outcome::done);
        bytes_.erase(key);
      }
    }
    file_ = read_bytes(path());
  }

  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "s"; }

  std::size_t entry_of(std::string_view name) {
    for (std::size_t i = 0; i < kMaxIndexes; ++i) {
      const std::size_t at = pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry);
      const auto* const text = reinterpret_cast<const char*>(file_.data() + at);
      if (text[0] != 0 && name == text + offsetof(pmem::DirectoryEntry, name)) return at;
    }
    ADD_FAILURE() << name;
    return 0;
  }
  void flip(std::size_t at) { file_[at] ^= std::byte{0x10}; }

  RepairReport repair(const RepairOptions& options = {}) {
    write_bytes(path(), file_);
    std::filesystem::remove(scratch_ / "new");
    auto report = Store::repair(path(), scratch_ / "new", options);
    EXPECT_TRUE(report) << report.error().message;
    EXPECT_TRUE(read_bytes(path()) == file_) << "the damaged file was written to";
    if (!report) return {};
    store_.emplace(Store::open(scratch_ / "new", small_store(durability_)).value());
    EXPECT_EQ(unsound(*store_), "");
    return *report;
  }
  const RepairReport::Table& of(const RepairReport& report, std::string_view name) {
    for (const auto& one : report.tables) {
      if (one.name == name) return one;
    }
    ADD_FAILURE() << "no table " << name;
    static const RepairReport::Table none;
    return none;
  }
  // Every entry has a value that was once put there; how many of those that were lost are missing.
  std::size_t missing(const Content& is) {
    for (const auto& [key, value] : is) {
      const auto now = bytes_.find(key);
      const auto before = old_.find(key);
      EXPECT_TRUE((now != bytes_.end() && now->second == value) ||
                  (before != old_.end() && before->second == value))
          << show(key);
    }
    std::size_t count = 0;
    for (const auto& [key, value] : bytes_) count += is.contains(key) ? 0 : 1;
    return count;
  }

  Scratch scratch_;
  Durability durability_ = Durability::buffered;
  Content bytes_;
  Content old_;  // of keys that were removed
  std::map<std::uint64_t, std::string> numbers_;
  std::vector<std::byte> file_;
  std::optional<Store> store_;
};
INSTANTIATE_TEST_SUITE_P(Trees, Repair, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TreeInfo& one : trees()) names.emplace_back(one.name);
                           return names;
                         }()),
                         [](const auto& one) { return one.param; });

TEST_P(Repair, WithoutDamage) {
  make();
  const RepairReport report = repair();
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(content_of(*store_->table("t")), bytes_);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
  EXPECT_EQ(of(report, "t").read, bytes_.size());
  EXPECT_EQ(of(report, "t").spec, store_->table("t")->stats().spec);
  EXPECT_EQ(Store::repair(path(), scratch_ / "new").error().code, Code::exists);
  const auto open = Store::open(path(), small_store(durability_)).value();
  EXPECT_EQ(Store::repair(path(), scratch_ / "other").error().code, Code::locked_here);
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "other"));
}

TEST_P(Repair, DamagedValues) {
  make();
  std::size_t damaged = 0;
  const auto* const text = reinterpret_cast<const char*>(file_.data());
  for (const auto& [key, value] : bytes_) {
    if (value.size() < 100 || damaged == 20) continue;
    const Bytes file(text, file_.size());
    ++damaged;
    for (std::size_t at = file.find(value); at != Bytes::npos; at = file.find(value, at + 1)) {
      flip(at + 50);
    }
  }
  ASSERT_EQ(damaged, 20U);
  const RepairReport report = repair();
  EXPECT_FALSE(report.sound());
  const auto& table = of(report, "t");
  EXPECT_EQ(table.damaged_values, damaged);
  EXPECT_EQ(table.read, bytes_.size() - damaged);
  EXPECT_EQ(table.found, 0U);
  ASSERT_FALSE(table.problems.empty());
  EXPECT_NE(table.problems[0].find("checksum at offset"), std::string::npos);
  EXPECT_EQ(missing(content_of(*store_->table("t"))), damaged);
}

// The root of the tree, and the name's neighbours: nothing is lost, as slots and records are there.
TEST_P(Repair, DamagedDirectory) {
  make();
  const std::vector<std::byte> whole = file_;
  for (const std::size_t within :
       {offsetof(pmem::DirectoryEntry, root), offsetof(pmem::DirectoryEntry, spec),
        offsetof(pmem::DirectoryEntry, checksum), offsetof(pmem::DirectoryEntry, state)}) {
    file_ = whole;
    flip(entry_of("t") + within);
    const RepairReport report = repair();
    EXPECT_FALSE(report.sound());
    EXPECT_EQ(missing(content_of(*store_->table("t"))), 0U);
    EXPECT_GE(of(report, "t").found, bytes_.size());
    EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
  }
  // Without its name the table cannot be found, but be named.
  file_ = whole;
  std::memset(file_.data() + entry_of("n"), 0, sizeof(pmem::DirectoryEntry));
  RepairOptions options;
  options.tables = {{"n", KeyType::u64}};
  RepairReport report = repair(options);
  EXPECT_EQ(of(report, "n").found, numbers_.size());
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
  EXPECT_EQ(of(report, "t").read, bytes_.size());
}

// What damage leaves of a name may be no table's, or another one's.
TEST_P(Repair, DamagedName) {
  make();
  const std::vector<std::byte> whole = file_;
  const auto rename = [this](char to) {
    file_[entry_of("t") + offsetof(pmem::DirectoryEntry, name)] = static_cast<std::byte>(to);
  };
  rename('x');
  RepairReport report = repair();
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(report.damaged_entries, 1U);
  EXPECT_NE(report.problems.back().find("nothing was found of a table 'x'"), std::string::npos);
  ASSERT_EQ(report.tables.size(), 1U);
  ASSERT_EQ(store_->tables()->size(), 1U);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
  RepairOptions options;
  options.tables = {{"t", KeyType::bytes}};
  report = repair(options);
  EXPECT_EQ(missing(content_of(*store_->table("t"))), 0U);
  EXPECT_EQ(store_->tables()->size(), 2U);
  // Who asks for a name gets a table, be it empty.
  options.tables = {{"x", KeyType::bytes}};
  report = repair(options);
  EXPECT_EQ(of(report, "x").found, 0U);
  EXPECT_EQ(store_->tables()->size(), 2U);
  file_ = whole;
  rename('n');
  report = repair();
  ASSERT_EQ(report.tables.size(), 1U);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
}

// Nothing is searched for under 64 bytes that are no name.
TEST_P(Repair, NoiseInTheDirectory) {
  make();
  const std::size_t free = pmem::kDirectoryAt + 40 * sizeof(pmem::DirectoryEntry);
  Random random(seed());
  for (std::size_t i = 0; i < sizeof(pmem::DirectoryEntry); ++i) {
    file_[free + i] = static_cast<std::byte>(random.word() | 1);
  }
  const RepairReport report = repair();
  EXPECT_EQ(report.damaged_entries, 1U);
  EXPECT_FALSE(std::ranges::any_of(report.problems, [](const std::string& problem) {
    return problem.starts_with("nothing was found of a table");
  }));
  EXPECT_EQ(content_of(*store_->table("t")), bytes_);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
}

// What is left of an entry is believed, whichever of its lines is gone but for the name's.
TEST_P(Repair, NoiseInALineOfAnEntry) {
  make();
  const std::vector<std::byte> whole = file_;
  const std::size_t entry = entry_of("t");
  Random random(seed());
  for (std::size_t line = 1; line < sizeof(pmem::DirectoryEntry) / pmem::kLine; ++line) {
    file_ = whole;
    for (std::size_t i = 0; i < pmem::kLine; ++i) {
      const std::size_t at = line * pmem::kLine + i;
      if (at <= offsetof(pmem::DirectoryEntry, name) + sizeof("t")) continue;
      file_[entry + at] = static_cast<std::byte>(random.word() | 1);
    }
    const RepairReport report = repair();
    EXPECT_EQ(report.damaged_entries, 1U) << line;
    EXPECT_EQ(missing(content_of(*store_->table("t"))), 0U) << line;
  }
}

// An entry that is damaged is no reason to search for what the other tables' trees have: that would
// bring back what was removed.
TEST_P(Repair, DamagedEntryOfAnotherTable) {
  make();
  flip(entry_of("n") + offsetof(pmem::DirectoryEntry, spec));
  const RepairReport report = repair();
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(of(report, "t").read, bytes_.size());
  EXPECT_EQ(of(report, "t").found, 0U);
  EXPECT_EQ(content_of(*store_->table("t")), bytes_);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
}

// One word is zero, a link perhaps, and a scan that ends early says nothing. The LodgeTree, the
// BzTree and the PB+tree have words that no check misses: docs/store.md.
TEST_P(Repair, AZeroedWordIsNotTakenForSound) {
  make();
  const std::vector<std::byte> whole = file_;
  const bool all_known = GetParam() == "wbtree" || GetParam() == "bdtree";
  std::mt19937_64 random(5);
  std::size_t silent = 0;
  for (int i = 0; i < 60;) {
    const std::size_t at = pmem::kHeapAt + random() % ((whole.size() - pmem::kHeapAt) / 8) * 8;
    pmem::Word word = 0;
    std::memcpy(&word, whole.data() + at, sizeof word);
    // Text of keys and values has high bytes; links and bitmaps have not.
    if (word == 0 || word >> 56 != 0) continue;
    ++i;
    file_ = whole;
    std::memset(file_.data() + at, 0, sizeof word);
    const RepairReport report = repair();
    const bool lost = content_of(*store_->table<std::uint64_t>("n")).size() < numbers_.size() ||
                      missing(content_of(*store_->table("t"))) != 0;
    silent += report.sound() && lost ? 1 : 0;
    store_.reset();
  }
  if (all_known) {
    EXPECT_EQ(silent, 0U);
  } else {
    EXPECT_LE(silent, 6U);
  }
}

TEST_P(Repair, DamagedRootBlock) {
  make();
  pmem::Word root = 0;
  std::memcpy(&root, file_.data() + pmem::kStoreAt, sizeof root);
  std::memset(file_.data() + root, 0xFF, sizeof(pmem::StoreRoot));
  (void)repair();
  EXPECT_EQ(missing(content_of(*store_->table("t"))), 0U);
  EXPECT_EQ(content_of(*store_->table<std::uint64_t>("n")), numbers_);
}

TEST_P(Repair, DamagedHeaders) {
  make();
  std::memset(file_.data(), 0, 8192);
  const RepairReport report = repair();
  EXPECT_FALSE(report.sound());
  EXPECT_EQ(missing(content_of(*store_->table("t"))), 0U);
  EXPECT_GE(of(report, "n").found, numbers_.size());
}

TEST_P(Repair, CutOff) {
  make();
  file_.resize(file_.size() / 2);
  (void)repair();
  (void)missing(content_of(*store_->table("t")));
}

// Bytes anywhere: no crash, no wrong value, and little is lost.
TEST_P(Repair, DamagedAnywhere) {
  make();
  const std::vector<std::byte> whole = file_;
  Random random(seed());
  std::size_t lost = 0;
  const std::size_t rounds = scaled(20);
  for (std::size_t round = 0; round < rounds && !HasFatalFailure(); ++round) {
    file_ = whole;
    for (int n = 0; n < 12; ++n) {
      const std::size_t at = pmem::kHeapAt + random.below(file_.size() - pmem::kHeapAt);
      file_[at] = static_cast<std::byte>(random.word());
    }
    (void)repair();
    if (!store_) continue;
    lost += missing(content_of(*store_->table("t")));
    store_.reset();
  }
  // A byte hits a value, a slot or a key record, so one key each; seldom a leaf's word that counts.
  EXPECT_LT(lost, rounds * 12);
}

TEST(RepairOf, WhatIsNoStore) {
  const Scratch scratch;
  EXPECT_EQ(Store::repair(scratch / "none", scratch / "new").error().code, Code::not_found);
  write_bytes(scratch / "zeros", std::vector<std::byte>(1 << 20));
  std::vector<std::byte> noise(1 << 20);
  std::mt19937_64 random(7);
  for (std::byte& one : noise) one = static_cast<std::byte>(random());
  write_bytes(scratch / "noise", noise);
  for (const char* const name : {"zeros", "noise"}) {
    EXPECT_EQ(Store::repair(scratch / name, scratch / "new").error().code, Code::not_found);
    RepairOptions options;
    options.tables = {{"t", KeyType::bytes}};
    EXPECT_EQ(Store::repair(scratch / name, scratch / "new", options).error().code,
              Code::not_found);
  }
  write_bytes(scratch / "short", std::vector<std::byte>(100));
  EXPECT_EQ(Store::repair(scratch / "short", scratch / "new").error().code, Code::truncated);
  EXPECT_FALSE(std::filesystem::exists(scratch / "new"));
}

}  // namespace
}  // namespace everleaf::test
