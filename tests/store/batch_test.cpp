// A strict store whose process died in a batch, opened read-only: all of the batch is there or
// nothing, and the file stays as it is. The images are of fences of the batch.
#include <cstring>
#include <optional>
#include <set>

#include "pmem/format.hpp"
#include "shadow.hpp"
#include "store/state.hpp"
#include "stores.hpp"

namespace everleaf::test {
namespace {

// Of both tables.
using Whole = std::pair<Content, std::map<std::uint64_t, std::string>>;

Whole all_of(Store& store) {
  std::string wrong;
  Whole whole;
  whole.first = content_of(store.table("t").value(), &wrong);
  EXPECT_EQ(wrong, "");
  whole.second = content_of(store.table<std::uint64_t>("n").value(), &wrong);
  EXPECT_EQ(wrong, "");
  return whole;
}

Whole all_of(const std::filesystem::path& path) {
  auto store = Store::open(path, small_store(Durability::strict, Mode::read_only)).value();
  return all_of(store);
}

class DiedInABatch : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kKeys = 300;
  static constexpr std::size_t kMostImages = 24;
  using Bytes_ = std::vector<std::byte>;

  void make() {
    auto store = Store::open(path(), small_store(Durability::strict)).value();
    auto table = store.table("t", GetParam()).value();
    auto numbers = store.table<std::uint64_t>("n", GetParam()).value();
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(table.put(Keys<Bytes>::nth(i), value_of(i, 300)), Outcome::done);
      ASSERT_EQ(numbers.put(i * 7, value_of(i, 300)), Outcome::done);
    }
  }

  // No more memory for records, but for those of the batch; and none of the heap.
  static void fill(Store& store) {
    auto filler = store.pool().index<Bytes>("filler", "wbtree").value();
    auto table = store.table("t").value();
    std::uint64_t n = 0;
    while (table.put("filler" + std::to_string(n), std::string(1000, 'f')) == Outcome::done) ++n;
    ASSERT_GT(n, 100U);
    for (std::uint64_t i = 0; i < 60; ++i) {
      ASSERT_EQ(table.erase("filler" + std::to_string(i)), Outcome::done);
    }
    for (const std::size_t bytes : {16000, 3000, 1000, 400, 100, 20}) {
      n = 0;
      while (filler.insert(std::to_string(n) + std::string(bytes, 'k'), n) == Outcome::done) ++n;
    }
  }

  // Applies a batch of all kinds of changes, and keeps what a crash could leave meanwhile.
  void apply(bool full = false) {
    PoolOptions options = small_pool(Mode::open);
    options.domain = Domain::memory;
    options.emulate = true;
    if (full) options.max_bytes = std::uint64_t{3} << 20;
    bool watching = false;
    std::uint64_t fences = 0;
    Random random(seed());
    Shadow* seen = nullptr;
    Shadow shadow(path(), [&] {
      if (!watching || ++fences % 3 != 0) return;
      for (const auto kind : {Shadow::Image::live, Shadow::Image::durable}) {
        Bytes_ image;
        seen->make(kind, random, image);
        if (batch_of(image) != 0) images_.push_back(std::move(image));
      }
    });
    seen = &shadow;
    auto store = StoreAccess::over(PoolAccess::open(path(), options, &shadow).value()).value();
    if (full) fill(store);
    before_ = all_of(store);
    auto table = store.table("t").value();
    auto numbers = store.table<std::uint64_t>("n").value();
    Batch batch;
    for (std::uint64_t i = 0; i < 20; ++i) {
      batch.put<Bytes>(table, "fresh" + std::to_string(i), value_of(i, 200));
      batch.put<Bytes>(table, Keys<Bytes>::nth(i * 3), value_of(i + 1000, 200));
      batch.erase<Bytes>(table, Keys<Bytes>::nth(i * 3 + 1));
      batch.put<std::uint64_t>(numbers, i * 7 + 1, value_of(i, 200));
      batch.erase<std::uint64_t>(numbers, i * 14);
    }
    watching = true;
    const Outcome applied = store.apply(batch);
    watching = false;
    ASSERT_TRUE(applied == Outcome::done || full) << to_string(applied);
    after_ = all_of(store);
  }

  static pmem::Word word_at(const Bytes_& image, std::size_t at) {
    pmem::Word word = 0;
    std::memcpy(&word, image.data() + at, sizeof word);
    return word;
  }
  static std::size_t batch_at(const Bytes_& image) {
    return word_at(image, pmem::kStoreAt) + offsetof(pmem::StoreRoot, batch);
  }
  static pmem::Word batch_of(const Bytes_& image) { return word_at(image, batch_at(image)); }

  void judge(const Bytes_& image) {
    const auto crashed = scratch_ / "crashed";
    write_bytes(crashed, image);
    Whole is;
    {
      auto opened = Store::open(crashed, small_store(Durability::strict, Mode::read_only));
      ASSERT_TRUE(opened) << opened.error().message;
      Store& store = *opened;
      is = all_of(store);
      ASSERT_TRUE(is == before_ || is == after_) << "a part of the batch";
      EXPECT_EQ(unsound(store), "");
      const StoreInfo info = store.info().value();
      EXPECT_TRUE(info.problems.empty());
      EXPECT_EQ(info.records, is.first.size() + is.second.size());
      EXPECT_EQ(info.pool.file_bytes, image.size());
      EXPECT_FALSE(info.pool.clean);
      EXPECT_EQ(store.table("t")->put("key", "value"), Outcome::read_only);
      const auto copy = scratch_ / "copy";
      std::filesystem::remove(copy);
      ASSERT_TRUE(store.backup(copy));
      EXPECT_TRUE(all_of(copy) == is);
    }
    const auto repaired = scratch_ / "repaired";
    std::filesystem::remove(repaired);
    const auto report = Store::repair(crashed, repaired);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_TRUE(report->sound());
    EXPECT_TRUE(all_of(repaired) == is);
    ASSERT_TRUE(read_bytes(crashed) == image) << "the file was written to";
    // Who writes finds the same.
    auto store = Store::open(crashed, small_store(Durability::strict)).value();
    EXPECT_TRUE(all_of(store) == is);
  }

  // Some of them, the first and the last of each way among them.
  void judge_images() {
    std::set<pmem::Word> ways;
    const std::size_t step = images_.size() / scaled(kMostImages) + 1;
    for (std::size_t i = 0; i < images_.size() && !HasFatalFailure(); ++i) {
      const bool edge = i == 0 || i + 1 == images_.size() ||
                        batch_of(images_[i]) != batch_of(images_[i - 1]) ||
                        batch_of(images_[i]) != batch_of(images_[i + 1]);
      if (!edge && i % step != 0) continue;
      ways.insert(batch_of(images_[i]) & 15);
      judge(images_[i]);
    }
    if (before_ == after_) return;
    EXPECT_EQ(ways.size(), 2U) << "not both undo and redo";
  }

  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "s"; }

  Scratch scratch_;
  Whole before_;
  Whole after_;
  std::vector<Bytes_> images_;
};
INSTANTIATE_TEST_SUITE_P(Trees, DiedInABatch, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const TreeInfo& one : trees()) {
                             if (one.durability == Durability::strict) names.emplace_back(one.name);
                           }
                           return names;
                         }()),
                         [](const auto& one) { return one.param; });

TEST_P(DiedInABatch, ReadersFindItWholeOrNotAtAll) {
  make();
  apply();
  EXPECT_NE(before_, after_);
  judge_images();
}

// What ends the batch in memory may need more than the pool has.
TEST_P(DiedInABatch, InAFullPool) {
  make();
  apply(true);
  judge_images();
}

// A list that cannot be believed is named, and nothing is written, by whoever opens the store.
TEST_P(DiedInABatch, DamagedList) {
  make();
  apply();
  ASSERT_FALSE(images_.empty());
  const Bytes_ whole = images_[images_.size() / 2];
  const std::size_t list = batch_of(whole) & ~pmem::Word{15};
  for (const std::size_t at : {list + sizeof(pmem::StoreList) + 8, batch_at(whole)}) {
    Bytes_ image = whole;
    image[at] ^= std::byte{7};  // neither undo nor redo; or of a name
    const auto crashed = scratch_ / "crashed";
    write_bytes(crashed, image);
    for (const Mode mode : {Mode::read_only, Mode::open}) {
      const auto store = Store::open(crashed, small_store(Durability::strict, mode));
      ASSERT_FALSE(store);
      EXPECT_EQ(store.error().code, Code::corrupt);
      EXPECT_NE(store.error().message.find("offset " + std::to_string(list)), std::string::npos);
      EXPECT_TRUE(mode == Mode::open || read_bytes(crashed) == image);
    }
    write_bytes(crashed, image);
    std::filesystem::remove(scratch_ / "repaired");
    const auto report = Store::repair(crashed, scratch_ / "repaired").value();
    EXPECT_FALSE(report.sound());
    ASSERT_FALSE(report.problems.empty());
    EXPECT_NE(report.problems.front().find("a part of it may be there"), std::string::npos);
    EXPECT_TRUE(read_bytes(crashed) == image);
  }
}

// In memory there is room where the file has none.
TEST(RecoveryInMemory, GrowsBesideTheFile) {
  const Scratch scratch;
  const auto path = scratch / "s";
  {
    Pool pool = Pool::open(path, small_pool()).value();
    ASSERT_EQ(pool.index<Bytes>("i").value().insert("key", 1), Outcome::done);
  }
  const std::vector<std::byte> file = read_bytes(path);
  constexpr std::uint64_t kKeys = 1000;
  Pool pool = PoolAccess::recover_in_memory(Pool::open(path, small_pool(Mode::read_only)).value(),
                                            [](Pool& writable) -> Result<void> {
                                              auto index = writable.index<Bytes>("i").value();
                                              for (std::uint64_t n = 0; n < kKeys; ++n) {
                                                const std::string key =
                                                    std::to_string(n) + std::string(5000, 'k');
                                                EXPECT_EQ(index.insert(key, n), Outcome::done);
                                              }
                                              return {};
                                            })
                  .value();
  auto index = pool.index<Bytes>("i").value();
  EXPECT_EQ(index.size(), kKeys + 1);
  EXPECT_EQ(index.insert("other", 1), Outcome::read_only);
  EXPECT_TRUE(pool.check()->problems.empty());
  EXPECT_TRUE(pool.info().read_only);
  EXPECT_EQ(pool.info().file_bytes, file.size());
  EXPECT_GT(pool.info().heap_bytes, file.size());
  EXPECT_TRUE(read_bytes(path) == file);
  // Others have it still.
  const Pool again = pool;
  const auto refused =
      PoolAccess::recover_in_memory(std::move(pool), [](Pool&) { return Result<void>(); });
  EXPECT_EQ(refused.error().code, Code::bad_argument);
}

}  // namespace
}  // namespace everleaf::test
