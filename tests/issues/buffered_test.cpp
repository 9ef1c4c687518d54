// Buffered trees: what reviews found.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "epoch/space.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/bdtree/leaf.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

PoolOptions by_hand() {
  PoolOptions options = small_pool();
  options.epoch_length = {};
  return options;
}

PoolOptions by_hand_in_memory() {
  PoolOptions options = by_hand();
  options.domain.reset();
  return options;
}

// The list of the first index, without leaves that were retired.
std::vector<pmem::Offset> leaves_of_the_first(Pool& pool) {
  namespace bd = tree::bdtree;
  const pmem::Medium& medium = PoolAccess::state(pool).medium();
  std::vector<pmem::Offset> leaves;
  pmem::Offset at = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
  while (at != 0) {
    const pmem::Word links = medium.at<bd::MetaLine>(at)->links;
    const pmem::Offset replacement = bd::Leaf::replacement_of(links);
    if (replacement == 0) leaves.push_back(at);
    at = replacement != 0 ? replacement : bd::Leaf::next_of(links);
  }
  return leaves;
}

// Structural damage is named with its offset.
TEST(Buffered, CheckNamesTheLeafThatTheListLacks) {
  namespace bd = tree::bdtree;
  Pool pool = Pool::anonymous(by_hand_in_memory()).value();
  auto index = pool.index<std::uint64_t>("i", "bdtree").value();
  for (std::uint64_t n = 0; n < 2000; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
  const auto links_at = [&pool](pmem::Offset at) -> pmem::Word& {
    return PoolAccess::state(pool).medium().at<bd::MetaLine>(at)->links;
  };
  const std::vector<pmem::Offset> leaves = leaves_of_the_first(pool);
  ASSERT_GT(leaves.size(), 3U);
  pmem::Word& links = links_at(leaves[leaves.size() - 2]);
  const pmem::Word whole = std::exchange(links, 0);
  const auto problems = index.check().problems;
  links = whole;
  EXPECT_EQ(problems, std::vector<std::string>{"node at offset " + std::to_string(leaves.back()) +
                                               ": the inner nodes name it, the list does not"});
}

// The background thread began with the first tree that was opened, and stepped the clock while the
// next one was still to be rolled back: two indexes of one pool came back at different epochs.
TEST(Buffered, TheClockStandsStillWhileTreesAreRolledBack) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  {
    Pool pool = Pool::open(path, by_hand()).value();
    auto large = pool.index<std::uint64_t>("a", "bdtree").value();
    auto small = pool.index<std::uint64_t>("b", "bdtree").value();
    for (std::uint64_t key = 0; key < 100000; ++key) {
      ASSERT_EQ(large.insert(key * 2, key), Outcome::done);
    }
    ASSERT_EQ(pool.sync(), Outcome::done);
    ASSERT_EQ(large.insert(5, 1), Outcome::done);
    ASSERT_EQ(small.insert(5, 1), Outcome::done);
    PoolAccess::state(pool).abandon();
  }
  PoolOptions quick = small_pool();
  quick.epoch_length = std::chrono::microseconds(1);
  Pool pool = Pool::open(path, quick).value();
  EXPECT_FALSE(pool.index<std::uint64_t>("a").value().find(5));
  EXPECT_FALSE(pool.index<std::uint64_t>("b").value().find(5));
}

// A large tree is recovered from all places where leaves can be. To read a hole of a file on tmpfs
// takes memory for it, and a file that is not opened for writing keeps its holes: there, and where
// a batch of such a store is ended in memory, the places of the list alone are looked at.
TEST(Buffered, ReadersLeaveHolesAlone) {
  constexpr std::uint64_t kKeys = 100000;
  constexpr std::size_t kLeaf = 1024;
  const Scratch scratch;
  const auto path = scratch / "pool";
  std::vector<bool> gone;  // bytes of leaves that are not in the list any more
  {
    Pool pool = Pool::open(path, by_hand()).value();
    auto index = pool.index<std::uint64_t>("i", "bdtree").value();
    for (std::uint64_t key = 0; key < kKeys; ++key)
      ASSERT_EQ(index.insert(key, key), Outcome::done);
    ASSERT_EQ(pool.sync(), Outcome::done);
    gone.resize(std::filesystem::file_size(path));
    const auto mark = [&](bool is_gone) {
      for (const pmem::Offset at : leaves_of_the_first(pool)) {
        std::fill_n(gone.begin() + static_cast<std::ptrdiff_t>(at), kLeaf, is_gone);
      }
    };
    mark(true);
    for (std::uint64_t key = 1000; key < kKeys; ++key) ASSERT_EQ(index.remove(key), Outcome::done);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(pool.sync(), Outcome::done);
    mark(false);
    PoolAccess::state(pool).abandon();
  }
  const int file = ::open(path.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  std::size_t holes = 0;
  for (std::size_t at = 0; at + kPage <= gone.size(); at += kPage) {
    const auto page = gone.begin() + static_cast<std::ptrdiff_t>(at);
    if (std::find(page, page + kPage, false) != page + kPage) continue;
    ASSERT_EQ(::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at),
                          kPage),
              0);
    ++holes;
  }
  ASSERT_GT(holes, 200U);
  const auto blocks = [file] {
    struct stat info {};
    EXPECT_EQ(::fstat(file, &info), 0);
    return info.st_blocks;
  };
  // Of the list's own chunks all places may be looked at.
  const auto most = blocks() + static_cast<blkcnt_t>(4 * epoch::kChunkBytes / 512);
  const auto look = [](Pool& pool) -> Result<void> {
    EXPECT_EQ(pool.index<std::uint64_t>("i").value().size(), 1000U);
    return {};
  };
  PoolOptions reader = by_hand();
  reader.mode = Mode::read_only;
  {
    Pool pool = Pool::open(path, reader).value();
    EXPECT_TRUE(look(pool));
  }
  EXPECT_LE(blocks(), most);
  EXPECT_TRUE(PoolAccess::recover_in_memory(Pool::open(path, reader).value(), look));
  EXPECT_LE(blocks(), most);
  ::close(file);
}

// In `memory`: what was flushed and fenced is on the medium.
class Shadow final : public pmem::Observer {
 public:
  void flushed(pmem::Offset at, std::size_t bytes, pmem::Site) override {
    for (std::size_t line = at / pmem::kLine; line <= (at + bytes - 1) / pmem::kLine; ++line) {
      Line one{line * pmem::kLine, {}};
      std::memcpy(one.content.data(), &live[one.at], pmem::kLine);
      noted_.push_back(one);
    }
  }
  void fencing(pmem::Site) override {
    for (const Line& one : noted_) std::memcpy(&medium[one.at], one.content.data(), pmem::kLine);
    noted_.clear();
  }
  static constexpr std::size_t kBytes = std::size_t{16} << 20;
  // A pool begins at a page.
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory zeros() {
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, kBytes));
    std::memset(memory, 0, kBytes);
    return Memory(memory);
  }
  Memory live = zeros();
  Memory medium = zeros();

 private:
  struct Line {
    std::size_t at;
    std::array<std::byte, pmem::kLine> content;
  };
  std::vector<Line> noted_;
};

// The reclaimer worked after the last step of the clock: its stores were in the caches only, the
// pool was marked clean, the next session used the leaves again, and a power loss lost synced keys.
TEST(Buffered, ACloseLeavesNothingToWriteBack) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    Shadow shadow;
    PoolOptions options;
    options.domain = Domain::memory;
    options.emulate = true;
    options.epoch_length = {};
    Map<std::uint64_t> map;
    std::uint64_t bytes = Shadow::kBytes / 4;
    const auto put = [&](Index<std::uint64_t>& index, std::uint64_t n) {
      for (std::uint64_t i = 0; i < n; ++i) {
        const std::uint64_t key = random.below(100000);
        ASSERT_EQ(index.upsert(key, i), Outcome::done);
        map[key] = i;
      }
    };
    {
      Pool pool =
          PoolAccess::format(shadow.live.get(), bytes, Shadow::kBytes, options, &shadow).value();
      auto index = pool.index<std::uint64_t>("index", "bdtree:node=256").value();
      put(index, 2000);
      for (int i = 0; i < 4; ++i) ASSERT_EQ(pool.sync(), Outcome::done);
      put(index, 300);
      bytes = PoolAccess::state(pool).medium().size();
    }
    {
      Pool pool =
          PoolAccess::attach(shadow.live.get(), bytes, Shadow::kBytes, options, &shadow).value();
      EXPECT_TRUE(pool.info().clean);
      auto index = pool.index<std::uint64_t>("index").value();
      put(index, 3000);
      ASSERT_EQ(pool.sync(), Outcome::done);
      bytes = PoolAccess::state(pool).medium().size();
      PoolAccess::state(pool).abandon();
    }
    Pool pool =
        PoolAccess::attach(shadow.medium.get(), bytes, Shadow::kBytes, options, nullptr).value();
    auto index = pool.index<std::uint64_t>("index").value();
    EXPECT_EQ(difference<std::uint64_t>(index, map), "") << "seed " << seed;
    EXPECT_EQ(unsound(pool), "");
    PoolAccess::state(pool).abandon();
  }
}

// A clock that is behind the words of the leaves: recovery erased them as if they were not durable.
// Or one that would wrap: who waited for an epoch to be durable would have waited for ever.
TEST(Buffered, ADamagedClockErasesNothing) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  {
    Pool pool = Pool::open(path, by_hand()).value();
    auto index = pool.index<std::uint64_t>("index", "bdtree").value();
    for (int i = 0; i < 8; ++i) ASSERT_EQ(pool.advance_epoch(), Outcome::done);
    ASSERT_EQ(index.insert(1, 2), Outcome::done);
    ASSERT_EQ(pool.sync(), Outcome::done);
    PoolAccess::state(pool).abandon();
  }
  const auto good = read_bytes(path);
  const auto with_clock = [&](std::vector<std::byte> image, std::uint64_t clock) {
    std::memcpy(&image[pmem::kStateAt + offsetof(pmem::PoolState, clock)], &clock, sizeof clock);
    write_bytes(path, image);
  };
  constexpr std::uint64_t kWraps = std::uint64_t{1} << 62;
  for (const std::uint64_t bad : {std::uint64_t{5}, kWraps, ~std::uint64_t{0}}) {
    with_clock(good, bad);
    const auto opened = Pool::open(path, by_hand());
    ASSERT_FALSE(opened) << bad;
    EXPECT_EQ(opened.error().code, Code::corrupt);
  }
  write_bytes(path, good);
  {
    Pool pool = Pool::open(path, by_hand()).value();
    EXPECT_TRUE(pool.index<std::uint64_t>("index").value().find(1));
  }
  with_clock(read_bytes(path), kWraps);  // closed
  Pool pool = Pool::open(path, by_hand()).value();
  const auto index = pool.index<std::uint64_t>("index");
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code, Code::corrupt);
}

// It waited for ever.
TEST(Buffered, NobodyWaitsForAnEpochThatHasNotBegun) {
  Pool pool = Pool::anonymous(quick_epochs()).value();
  auto index = pool.index<std::uint64_t>("index", "bdtree").value();
  EXPECT_EQ(pool.wait_durable(pool.epochs().now + (std::uint64_t{1} << 40)), Outcome::absent);
  ASSERT_EQ(index.insert(1, 2), Outcome::done);
  const std::uint64_t epoch = pool.epochs().now;
  EXPECT_EQ(pool.wait_durable(epoch), Outcome::done);
  EXPECT_GE(pool.epochs().durable, epoch);
}

// Leaves that were emptied, and then lay behind many new ones, stayed in the list for ever.
TEST(Buffered, RetiredLeavesLeaveTheList) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<std::uint64_t>("index", "bdtree:node=256").value();
  for (std::uint64_t key = 0; key < 20000; ++key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  ASSERT_EQ(pool.sync(), Outcome::done);
  for (std::uint64_t key = 1; key < 20000; ++key) ASSERT_EQ(index.remove(key), Outcome::done);
  for (std::uint64_t key = 1; key < 20000; ++key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  for (int i = 0; i < 12; ++i) ASSERT_EQ(pool.advance_epoch(), Outcome::done);
  EXPECT_EQ(figure(index.stats(), "retired_leaves"), 0U);
  EXPECT_EQ(unsound(pool), "");
}

// Each time that a key of more than 7 KiB came and went, its chunks were listed as free once more:
// the list grew for as long as the pool was open.
TEST(Buffered, ChunksAreListedOnce) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<Bytes>("index", "bdtree").value();
  const std::string key(20000, 'k');
  const auto come_and_go = [&](int times) {
    for (int i = 0; i < times; ++i) {
      ASSERT_EQ(index.insert(key, 1), Outcome::done);
      ASSERT_EQ(index.remove(key), Outcome::done);
      for (int k = 0; k < 4; ++k) ASSERT_EQ(pool.advance_epoch(), Outcome::done);
    }
  };
  come_and_go(2500);  // blocks are used again a thousand at a time
  const std::uint64_t before = index.stats().dram_bytes;
  come_and_go(5000);
  EXPECT_EQ(index.stats().dram_bytes, before);
  EXPECT_EQ(unsound(pool), "");
}

// A retired leaf was looked for by a key in the middle of its range. Once smaller keys had split
// that range, the search began behind the leaf, and did not find it until the pool was opened
// again.
TEST(Buffered, RetiredLeavesAreFoundInASplitRange) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<std::uint64_t>("index", "bdtree:node=256").value();
  for (std::uint64_t key = 2000; key > 0; --key) ASSERT_EQ(index.insert(key, key), Outcome::done);
  for (int i = 0; i < 12; ++i) ASSERT_EQ(pool.advance_epoch(), Outcome::done);
  EXPECT_EQ(figure(index.stats(), "retired_leaves"), 0U);
  EXPECT_EQ(unsound(pool), "");
}

// Who holds the clock waited for it for ever, if the background thread runs.
TEST(Buffered, NobodyWaitsForTheClockThatHeHolds) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bdtree").value();
  epoch::Epochs& epochs = *PoolAccess::state(pool).epochs();
  {
    const epoch::Epochs::Hold hold(epochs);
    EXPECT_EQ(index.insert(1, 1), Outcome::done);
    EXPECT_EQ(pool.wait_durable(pool.epochs().durable), Outcome::done);
    EXPECT_EQ(pool.wait_durable(pool.epochs().now), Outcome::out_of_space);
  }
  EXPECT_EQ(pool.wait_durable(pool.epochs().now), Outcome::done);
}

// All leaves of a large tree are looked at before the list is followed: what their words say must
// be what they are rolled back to, of leaves that changed, split and emptied since.
TEST(Buffered, LongListsAreRolledBack) {
  const auto run = []<class K>(const char* spec) {
    const Scratch scratch;
    Map<K> map;
    {
      Pool pool = Pool::open(scratch / "pool", by_hand()).value();
      auto index = pool.index<K>("index", spec).value();
      for (std::uint64_t n = 0; n < 60'000; ++n) {
        const Owned<K> key = Keys<K>::nth(n * 7919 % 1'000'003);
        ASSERT_EQ(index.insert(key, n), Outcome::done);
        map.emplace(key, n);
      }
      ASSERT_EQ(pool.sync(), Outcome::done);
      ASSERT_GT(index.stats().pool_bytes, 70 * epoch::kChunkBytes);
      for (std::uint64_t n = 0; n < 30'000; ++n) {
        const Owned<K> old = Keys<K>::nth(n * 7919 % 1'000'003);
        const Outcome changed = n < 5000 ? index.remove(old) : index.update(old, 1);
        ASSERT_EQ(changed, Outcome::done);
        ASSERT_EQ(index.upsert(Keys<K>::nth(2'000'000 + n / 3), n), Outcome::done);
      }
      PoolAccess::state(pool).abandon();
    }
    PoolOptions reader = by_hand();
    reader.mode = Mode::read_only;
    for (const PoolOptions& options : {reader, by_hand(), by_hand()}) {
      Pool pool = Pool::open(scratch / "pool", options).value();
      auto index = pool.index<K>("index").value();
      EXPECT_EQ(difference<K>(index, map), "");
      EXPECT_EQ(unsound(pool), "");
      PoolAccess::state(pool).abandon();
    }
  };
  for (const char* const spec :
       {"bdtree:node=256", "bdtree:node=512", "bdtree", "bdtree:node=2048"}) {
    run.operator()<std::uint64_t>(spec);
    run.operator()<Bytes>(spec);
  }
}

// A long list is claimed when its end is known: until then its own marks have to tell that it goes
// in a circle, or into the midst of a leaf. And the second metadata line of a leaf was believed
// whatever it held.
TEST(Buffered, LongListsThatLeadAstray) {
  using tree::bdtree::Leaf;
  using tree::bdtree::MetaLine;
  enum class Forged { nothing, circle, midst, outside, second_line };
  for (const Forged forged :
       {Forged::nothing, Forged::circle, Forged::midst, Forged::outside, Forged::second_line}) {
    const Scratch scratch;
    {
      Pool pool = Pool::open(scratch / "pool", by_hand()).value();
      auto index = pool.index<std::uint64_t>("index", "bdtree").value();
      for (std::uint64_t key = 0; key < 100'000; ++key) {
        ASSERT_EQ(index.insert(key * 0x9E3779B97F4A7C15U, key), Outcome::done);
      }
      ASSERT_EQ(pool.sync(), Outcome::done);
      ASSERT_GT(index.stats().leaf_nodes, 2000U);
      pmem::Medium& medium = PoolAccess::state(pool).medium();
      const auto root = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt)->root;
      const auto next = [&](pmem::Offset at) {
        return Leaf::next_of(medium.at<MetaLine>(at)->links);
      };
      const pmem::Offset first = next(root);
      pmem::Offset late = first;
      for (int i = 0; i < 1000; ++i) late = next(late);
      MetaLine* const line = medium.at<MetaLine>(late);
      if (forged == Forged::circle) line->links = Leaf::make_links(first, 0);
      if (forged == Forged::midst) line->links = Leaf::make_links(next(late) + 256, 0);
      if (forged == Forged::outside) line->links = Leaf::make_links(medium.size() - 512, 0);
      if (forged == Forged::second_line) line[1] = MetaLine{};
      PoolAccess::state(pool).abandon();
    }
    PoolOptions reader = by_hand();
    reader.mode = Mode::read_only;
    for (const PoolOptions& options : {reader, by_hand()}) {
      auto pool = Pool::open(scratch / "pool", options);
      const bool opened = pool && pool->index<std::uint64_t>("index");
      EXPECT_EQ(opened, forged == Forged::nothing) << static_cast<int>(forged);
      if (opened) {
        EXPECT_EQ(unsound(*pool), "");
      }
    }
  }
}

}  // namespace
}  // namespace everleaf::test
