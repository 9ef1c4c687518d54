// The crash cases of src/trees/pbtree/README.md, one by one: workloads that surely meet them, every
// crash in them, and proof from the tree's own counters that they were met.
#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>

#include <gtest/gtest.h>

#include "cases.hpp"
#include "pmem/format.hpp"
#include "threads/concurrent.hpp"
#include "trees/pbtree/layout.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kSpec = "pbtree:node=256";  // 12 entries and the pivot's
constexpr std::uint64_t kFull = 13;

std::map<std::string, std::uint64_t> figures(const Ops& ops) {
  auto all = figures_of<std::uint64_t>(kSpec, ops);
  EXPECT_EQ(all["nodes_without_parent_entry"], 0U);
  EXPECT_EQ(all["unfinished_halves"], 0U);
  return all;
}

void explore(const Ops& ops, unsigned nested = 1, std::uint64_t most = 60,
             std::initializer_list<Domain> domains = {Domain::memory, Domain::disk,
                                                      Domain::cache}) {
  explore_all(kSpec, ops, nested, most, domains);
}

// P10, A8, A9.
TEST(Pbtree, Creation) {
  Ops ops;
  each(ops, Do::insert, 0, 1);
  explore(ops, 2);
}

// P10, A8.
TEST(Pbtree, BulkLoad) {
  Ops ops;
  ops.push_back({Do::bulk_load, 4 * kFull, 1});
  explore(ops);
}

// P1, P2, P3, P4, A1, A3: both regions, over several lines, from the middle and from the ends, and
// the pivot itself.
TEST(Pbtree, ShiftsInOneLeaf) {
  Ops ops;
  each(ops, Do::insert, 0, 2 * kFull, 2);
  each(ops, Do::insert, 11, 12);  // a split: two leaves with a pivot in their middle
  EXPECT_EQ(figures(ops).at("splits"), 1U);
  each(ops, Do::insert, 3, 10, 2);
  each(ops, Do::remove, 2, 8);
  each(ops, Do::insert, 2, 8);
  each(ops, Do::update, 2, 8);
  explore(ops);
}

// A2: pairs of equal keys are left by the first crash; the checker's second workload and its
// crashes work on them.
TEST(Pbtree, PairsOfEqualKeys) {
  Ops ops;
  each(ops, Do::insert, 0, 16, 2);
  each(ops, Do::insert, 3, 6, 2);
  each(ops, Do::remove, 2, 4, 2);
  explore(ops, 2);
}

// P1, P1b, P2, P5 to P7: what one thread pays. An edit has one fence for each record that it needs,
// whether or not a late record names its node; a split has two, and one for the parent's entry.
TEST(Pbtree, FencesOfEdits) {
  PoolOptions options;
  options.domain = Domain::memory;
  options.emulate = true;
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<std::uint64_t>("index", "pbtree").value();
  constexpr std::uint64_t kEntries = 61;
  for (std::uint64_t i = 1; i <= kEntries; ++i) {
    ASSERT_EQ(index.insert(1000 * i, i), Outcome::done);
  }
  // The first leaf's pivot is key 0 and waits for it: the 61st key made a second leaf.
  ASSERT_EQ(index.stats().leaf_nodes, 2U);
  ASSERT_EQ(index.remove(60000), Outcome::done);
  ASSERT_EQ(index.remove(59000), Outcome::done);
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(1500, 1); }), 2U)
      << "58 entries: two records";
  EXPECT_EQ(fences_of(pool, [&] { return index.remove(1500); }), 2U);
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(40500, 1); }), 1U) << "five lines";
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(57500, 1); }), 1U) << "one line, named";
  EXPECT_EQ(fences_of(pool, [&] { return index.update(2000, 1); }), 1U) << "named";
  EXPECT_EQ(fences_of(pool, [&] { return index.remove(40500); }), 1U);
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(40500, 1); }), 1U);
  // Full. Who splits it settles what names it first: words, older record, newer record.
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(2500, 1); }), 3U + 2U + 1U + 1U);
  EXPECT_EQ(index.stats().leaf_nodes, 3U);
  EXPECT_TRUE(pool.check()->problems.empty());
}

// The same with bytes keys: entry and key record together.
TEST(Pbtree, FencesOfEditsWithBytesKeys) {
  PoolOptions options;
  options.domain = Domain::memory;
  options.emulate = true;
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<Bytes>("index", "pbtree").value();
  const auto key = [](unsigned i) { return "key" + std::to_string(1000 + i); };
  for (unsigned i = 0; i < 40; i += 2) ASSERT_EQ(index.insert(key(i), i), Outcome::done);
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(key(3), 1); }), 1U);
  EXPECT_EQ(fences_of(pool, [&] { return index.insert(key(37), 1); }), 1U);
  EXPECT_EQ(fences_of(pool, [&] { return index.update(key(4), 1); }), 1U);
}

// P1, P11: keys in their order, rising or falling. Nothing moves: an insertion stores a value and a
// key, with one fence, but for the first one of each leaf.
TEST(Pbtree, FencesAndStoresOfKeysInOrder) {
  for (const bool rising : {true, false}) {
    PoolOptions options;
    options.domain = Domain::memory;
    options.emulate = true;
    Pool pool = Pool::anonymous(options).value();
    auto index = pool.index<std::uint64_t>("index", "pbtree").value();
    // The first leaf, whose pivot is key 0: all larger ones lie to its right.
    constexpr std::uint64_t kFrom = 10'000;
    constexpr std::uint64_t kFirst = 60;
    for (std::uint64_t i = 1; i <= kFirst; ++i) {
      ASSERT_EQ(index.insert(kFrom + i, i), Outcome::done);
    }
    constexpr std::uint64_t kKeys = 2000;
    std::uint64_t new_leaves = 0;
    const std::uint64_t at_first = pool.counters().fences;
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      const Counters before = pool.counters();
      const std::uint64_t key = rising ? kFrom + kFirst + 1 + i : kFrom - i;
      ASSERT_EQ(index.insert(key, i), Outcome::done);
      const Counters after = pool.counters();
      if (after.heap_bytes_written != before.heap_bytes_written) {  // a redo record
        ++new_leaves;
        continue;
      }
      ASSERT_EQ(after.fences - before.fences, 1U) << "key " << key;
      ASSERT_EQ(after.bytes_written - before.bytes_written, 16U) << "key " << key;
    }
    EXPECT_EQ(new_leaves + 1, index.stats().leaf_nodes);
    EXPECT_LT(static_cast<double>(pool.counters().fences - at_first) / kKeys, 1.1);
  }
}

// P1b, A4, L1 to L4 of the redo log: late records one after the other on the same leaf, on two
// leaves by turns, then what is no late record on a leaf that one names, and splits and merges of
// such leaves.
TEST(Pbtree, LateRecords) {
  Ops ops;
  each(ops, Do::insert, 2, 2 * kFull);
  // Both ends of two leaves by turns, and twice in a row.
  for (const std::uint64_t at : {3, 16, 4, 17}) ops.push_back({Do::remove, at, 0});
  for (const std::uint64_t at : {3, 16, 17, 4}) ops.push_back({Do::insert, at, at});
  each(ops, Do::update, 3, 5);
  for (const std::uint64_t at : {2, 13, 24, 3, 15, 4}) ops.push_back({Do::remove, at, 1});
  explore(ops);
  ops.erase(ops.begin() + 2 * kFull, ops.end() - 6);  // removals alone
  explore(ops, 2, 2, {Domain::memory});
}

// P1b with a split and with merges: what late records name is rewritten and goes.
TEST(Pbtree, LateRecordsOfNodesThatSplitAndGo) {
  Ops ops;
  each(ops, Do::insert, 0, 2 * kFull, 2);
  for (const std::uint64_t at : {3, 5, 7, 9}) ops.push_back({Do::insert, at, at});
  EXPECT_GT(figures(ops).at("splits"), 0U);
  for (const std::uint64_t at : {2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16}) {
    ops.push_back({Do::remove, at, 1});
  }
  EXPECT_GT(figures(ops).at("merges") + figures(ops).at("borrows"), 0U);
  explore(ops);
}

// Late records of two trees by turns, in one slot's two lanes.
TEST(Pbtree, LateRecordsOfTwoTrees) {
  Ops ops;
  each(ops, Do::insert, 2, kFull);
  ops.push_back({Do::other_index, 0, 0});
  for (std::uint64_t key = 0; key < kFull + 4; ++key) {
    ops.push_back({Do::other_write, key * 7 % 32, key});
    ops.push_back({key % 3 == 0 ? Do::remove : Do::upsert, 2 + key % (kFull - 2), key});
  }
  explore(ops, 1, 40, {Domain::memory, Domain::disk});
}

// P6 and A5 where the finish takes several records; the pivot, key 0, did not count before.
TEST(Pbtree, SplitOfALargeNode) {
  constexpr std::uint64_t kEntries = 252;  // of 4 KiB, without the pivot
  constexpr const char* kLarge = "pbtree:node=4096";
  Ops ops;
  each(ops, Do::insert, 2, 2 * (kEntries + 2), 2);
  ops.push_back({Do::insert, 251, 1});
  EXPECT_EQ(figures_of<std::uint64_t>(kLarge, ops).at("splits"), 1U);
  Config config;
  config.spec = kLarge;
  config.ops = ops;
  config.only_op = ops.size() - 1;
  config.most = 2000;
  explore_in({Domain::memory, Domain::process}, config);
}

// P5, P6, P7, A4, A5, A6, with crashes of the writer that finishes the split.
TEST(Pbtree, Split) {
  Ops ops;
  each(ops, Do::insert, 0, 2 * kFull, 2);
  each(ops, Do::insert, 9, 10);
  EXPECT_EQ(figures(ops).at("splits"), 1U);
  explore(ops, 2);
}

// P6 and A5 in inner nodes: keys from the middle, so that inner nodes split in their middle, too.
TEST(Pbtree, SplitOfInnerNodes) {
  Ops ops;
  for (std::uint64_t i = 0; i < 220; ++i) ops.push_back({Do::insert, i * 89 % 220, i});
  EXPECT_EQ(figures(ops).at("height"), 2U);
  explore(ops, 1, 3, {Domain::memory});
}

// P11, A6, and P7's first fence: rising and falling keys fill their nodes and copy nothing.
TEST(Pbtree, Appends) {
  Ops rising;
  // The first leaf's pivot is key 0, and has an entry that waits for it.
  each(rising, Do::insert, 2, 1 + 26 * kFull);
  auto figure = figures(rising);
  EXPECT_EQ(figure.at("splits"), 0U);
  EXPECT_EQ(figure.at("leaves"), 26U);
  EXPECT_EQ(figure.at("height"), 2U);
  rising.resize(4 * kFull);
  explore(rising);
  Ops falling;
  for (std::uint64_t key = 4 * kFull; key > 1; --key) falling.push_back({Do::insert, key, key});
  figure = figures(falling);
  EXPECT_EQ(figure.at("splits"), 0U);
  EXPECT_EQ(figure.at("leaves"), 4U);
  explore(falling);
}

// P11 in inner nodes: a root with 14 children is full, and gets a neighbour on either side.
TEST(Pbtree, AppendedInnerNodes) {
  constexpr std::uint64_t kKeys = 16 * kFull;
  Ops rising;
  each(rising, Do::insert, 2, kKeys);
  Ops falling;
  for (std::uint64_t key = kKeys; key > 1; --key) falling.push_back({Do::insert, key, key});
  for (const Ops& ops : {rising, falling}) {
    auto figure = figures(ops);
    EXPECT_EQ(figure.at("splits"), 0U);
    EXPECT_EQ(figure.at("height"), 2U);
    // All leaves but the first one, and an inner node.
    EXPECT_EQ(figure.at("appended_nodes"), figure.at("leaves"));
    explore(ops, 1, 3, {Domain::memory});
  }
}

// P8, P9, A7: merges, borrowing, and a root that gives way.
TEST(Pbtree, MergesAndBorrowing) {
  Ops ops;
  each(ops, Do::insert, 2, 3 * kFull);
  each(ops, Do::remove, 2, kFull);
  EXPECT_GT(figures(ops).at("borrows"), 0U);
  each(ops, Do::remove, kFull, 3 * kFull - 1);
  const auto figure = figures(ops);
  EXPECT_GT(figure.at("merges"), 0U);
  EXPECT_EQ(figure.at("height"), 0U);
  explore(ops);
}

// P8 and P9: the parent's entry of the right node goes out of a left region of two lines, by a late
// record that names the parent and stores the left node's offset, which P9 then replaces.
TEST(Pbtree, BorrowingUnderAFallingParent) {
  constexpr std::uint64_t kLast = 8 * kFull;
  Ops ops;
  for (std::uint64_t key = kLast; key > 1; --key) ops.push_back({Do::insert, key, key});
  // From the right: 12 keys (the pivot, key 0, waits), the second leaf, and the one that borrows.
  const std::uint64_t first = kLast - (kFull - 1) - 2 * kFull + 1;
  each(ops, Do::remove, first, first + kFull - 1);
  auto figure = figures(ops);
  EXPECT_EQ(figure.at("splits"), 0U);
  EXPECT_EQ(figure.at("borrows"), 1U);
  ops.pop_back();
  EXPECT_EQ(figures(ops).at("borrows"), 0U);
  ops.push_back({Do::remove, first + kFull - 2, 0});
  Config config;
  config.spec = kSpec;
  config.ops = ops;
  config.only_op = ops.size() - 1;
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    config.keys = keys;
    explore_in({Domain::memory, Domain::disk}, config);
  }
}

// P10: a late record names the empty leaf that a bulk load replaces. No late record follows; the
// block is a leaf again as soon as space is asked for.
TEST(Pbtree, BulkLoadIntoAnEmptiedTree) {
  Ops ops;
  each(ops, Do::insert, 3, 8);
  ops.push_back({Do::insert, 2, 2});  // five entries move, over two lines
  each(ops, Do::remove, 2, 8);
  ops.push_back({Do::bulk_load, 1, 1});
  each(ops, Do::insert, 2, 2 + kFull - 1);  // in their order: none moves
  ops.push_back({Do::no_space, 2 + kFull, 1});
  each(ops, Do::insert, 2 + kFull, 2 + kFull + 4);
  explore(ops, 1, 60, {Domain::memory});
}

// A7, crashes of the writer after that.
TEST(Pbtree, CrashesAfterACrashInAMerge) {
  Ops ops;
  each(ops, Do::insert, 2, kFull + 5);
  each(ops, Do::remove, 4, kFull + 3);
  EXPECT_GT(figures(ops).at("merges"), 0U);
  explore(ops, 2, 3, {Domain::memory, Domain::disk});
}

// Schedules of small programs: what is wrong is wrong without a crash. Where stores stay and edits
// are in place, and where fences wait and edits are late records.
std::string found_in(const std::string& program, unsigned preemptions,
                     KeyType keys = KeyType::u64) {
  ConcurrentConfig config;
  config.spec = kSpec;
  config.keys = keys;
  config.program = *parse_program(program);
  config.preemptions = preemptions;
  config.random_runs = 0;
  config.crashes = false;
  for (const Domain domain : {Domain::process, Domain::memory}) {
    config.domain = domain;
    const ConcurrentReport report = run_concurrent(config);
    EXPECT_TRUE(report.complete);
    EXPECT_GT(report.schedules, 20U);
    if (report.failure.empty()) continue;
    return std::string(to_string(domain)) + ": " + report.failure + ", switches " +
           to_string(report.switches);
  }
  return {};
}

// Even keys from 2 on.
std::string evens(unsigned last) {
  std::string text;
  for (unsigned key = 2; key <= last; key += 2) {
    if (key != 2) text += ',';
    text += std::to_string(key);
  }
  return text;
}

// P1b: a node that another thread's late record names. Crashes in the middle of schedules.
TEST(Pbtree, LateRecordsOfTwoThreads) {
  const std::string eleven = "2,4,6,8,10,12,14,16,18,20,22";
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    for (const char* const calls : {"/i3=1/i5=2,r4", "/i3=1/u22=2", "/i3=1,i5=2/i19=3", "/r2/r4"}) {
      ConcurrentConfig config;
      config.spec = kSpec;
      config.keys = keys;
      config.program = *parse_program(eleven + calls);
      config.preemptions = 1;
      config.random_runs = 5;
      config.most = 60;
      const ConcurrentReport report = run_concurrent(config);
      EXPECT_EQ(report.failure, "") << calls << ", switches " << to_string(report.switches);
      EXPECT_GT(report.executions, 100U);
    }
  }
}

// I3: a node is rewritten by its split while its left sibling gets a new right neighbour. The left
// link that the rewriting stored back left that neighbour out.
TEST(Pbtree, NeighboursSplitSideBySide) {
  EXPECT_EQ(found_in(evens(60) + "/i3=1/i27=2", 1), "");
}

// A reader in an inner node, whose last entry of the left region a merge takes away: its key was
// read twice, became the mark, and the reader went through the free entries to one that names
// nothing.
TEST(Pbtree, ReaderBesideTheLastEntryOfALeftRegion) {
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    for (const char* const call : {"f18", "i19", "r18", "s14"}) {
      EXPECT_EQ(found_in(evens(34) + ",3/r24,r3,r4,r6,r8/" + call, 1, keys), "") << call;
    }
  }
}

// A pool with an index of the even keys from 2 on, on which two threads meet again and again: what
// they do is taken back.
class Stage final : Crasher {
 public:
  explicit Stage(std::uint64_t last) {
    options_.domain = Domain::memory;
    options_.emulate = true;
    Recorder::watch(&recorder_);
    take_slots(2);
    load(last);
    recorder_.settle();
    recorder_.crasher = this;
    arena_.enter();
    recorder_.switch_level();
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  ~Stage() {
    arena_.leave();
    Recorder::watch(nullptr);
  }

  using Body = std::function<void(Index<std::uint64_t>&)>;
  void meet(const Body& first, const Body& second, Policy& policy) {
    arena_.begin({});
    {
      auto pool =
          PoolAccess::attach(arena_.base(1), bytes_, kCapacity, options_, &recorder_).value();
      auto index = pool.index<std::uint64_t>("index").value();
      const std::vector<Scheduler::Body> bodies{[&] { first(index); }, [&] { second(index); }};
      EXPECT_EQ(scheduler_.run(bodies, policy, 1'000'000).stuck, "");
      PoolAccess::state(pool).abandon();
    }
    recorder_.settle();
    arena_.end();
    recorder_.switch_level();
  }

  [[nodiscard]] const tree::pbtree::Header& root() const {
    const auto* const directory =
        reinterpret_cast<const pmem::DirectoryEntry*>(arena_.base(1) + pmem::kDirectoryAt);
    const std::uint64_t level = directory->root % tree::pbtree::kNodeAlign;
    return *reinterpret_cast<const tree::pbtree::Header*>(arena_.base(1) + directory->root - level);
  }

 private:
  static constexpr std::size_t kCapacity = std::size_t{2} << 20;

  void load(std::uint64_t last) {
    auto pool =
        PoolAccess::format(arena_.base(0), pmem::kMinPoolBytes, kCapacity, options_, &recorder_)
            .value();
    auto index = pool.index<std::uint64_t>("index", kSpec).value();
    for (std::uint64_t key = 2; key <= last; key += 2) {
      EXPECT_EQ(index.insert(key, key), Outcome::done);
    }
    EXPECT_EQ(pool.sync(), Outcome::done);
    bytes_ = PoolAccess::state(pool).medium().size();
  }
  void crash_point() override {}
  void escaped(const std::string& what) override { ADD_FAILURE() << what; }

  Arena arena_{kCapacity, 2, {64, true}};
  Recorder recorder_{arena_};
  Scheduler scheduler_;
  PoolOptions options_;
  std::uint64_t bytes_ = 0;
};

unsigned if_able(unsigned wanted, unsigned able) {
  return (able >> wanted & 1) != 0 ? wanted : 1 - wanted;
}

// A writer splits the root, an inner node that is full; when its meta word says so a reader comes
// in for some steps, then the writer goes on for some, then the reader goes on to its end.
class ReaderBesideRootSplit final : public Policy {
 public:
  ReaderBesideRootSplit(const Stage& stage, unsigned reader_steps, unsigned writer_steps)
      : root_(stage.root()), steps_{reader_steps, writer_steps} {}
  [[nodiscard]] bool met() const { return phase_ != 0; }
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    if (phase_ == 0 && (root_.meta & tree::pbtree::kSplitting) != 0) phase_ = 1;
    while (phase_ != 0 && phase_ < 3 && steps_[phase_ - 1] == 0) ++phase_;
    if (phase_ != 0 && phase_ < 3) --steps_[phase_ - 1];
    return if_able(phase_ % 2, able);
  }

 private:
  const tree::pbtree::Header& root_;
  unsigned phase_ = 0;  // 0, 2: the writer's turn, 1, 3: the reader's
  std::array<unsigned, 2> steps_{};
};

// P5: the meta word said that the node was splitting before the node named its sibling, and a
// reader between them searched a node that was then rewritten under it.
TEST(Pbtree, ReaderBesideTheSplitOfAnInnerNode) {
  // 14 full leaves; the pivot of the first one is key 0, and waits for it.
  constexpr std::uint64_t kLast = 2 * (14 * kFull - 1);
  constexpr std::uint64_t kNew = 2 * 5 * kFull + 5;  // into a leaf in the middle
  Stage stage(kLast);
  ASSERT_EQ(stage.root().meta & tree::pbtree::kLevelMask, 1U) << "the root's level";
  for (const std::uint64_t key : {std::uint64_t{2}, 20 * kFull, kLast}) {
    for (unsigned reader = 0; reader < 36; ++reader) {
      for (unsigned writer = 2; writer < 150; writer += 3) {
        ReaderBesideRootSplit policy(stage, reader, writer);
        Lookup found{};
        stage.meet([](auto& index) { EXPECT_EQ(index.insert(kNew, 3), Outcome::done); },
                   [&](auto& index) { found = index.find(key); }, policy);
        ASSERT_TRUE(policy.met()) << "the root is not split";
        ASSERT_EQ(found.outcome, Outcome::done) << key << ", steps " << reader << ", " << writer;
        ASSERT_EQ(*found, key);
      }
    }
  }
}

// Whatever happens to a call, a whole batch runs after every few steps of it.
class BatchesBetween final : public Policy {
 public:
  BatchesBetween(const unsigned& batches, unsigned steps) : batches_(batches), steps_(steps) {}
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    if (batches_ != seen_) {
      seen_ = batches_;
      left_ = steps_;
    }
    if (left_ == 0) return if_able(0, able);
    --left_;
    return if_able(1, able);
  }

 private:
  const unsigned& batches_;
  const unsigned steps_;
  unsigned seen_ = 0;
  unsigned left_ = 0;
};

// A call gets a few steps in the middle of each batch only, when the gate is closed.
class InsideBatches final : public Policy {
 public:
  InsideBatches(const unsigned& batches, unsigned steps) : batches_(batches), steps_(steps) {}
  unsigned choose(std::uint64_t, unsigned, unsigned able) override {
    if (batches_ != seen_) {
      seen_ = batches_;
      at_ = 0;
    }
    const bool inside = at_ >= steps_ && at_ < steps_ + kSteps;
    ++at_;
    return if_able(inside ? 1 : 0, able);
  }

 private:
  static constexpr unsigned kSteps = 24;
  const unsigned& batches_;
  const unsigned steps_;
  unsigned seen_ = 0;
  unsigned at_ = 0;
};

constexpr unsigned kBatches = 60;

// Batches one after the other, beside one call: how many had run when the call ended, at worst.
template <class P>
unsigned batches_beside(const Stage::Body& call, unsigned least_steps) {
  Stage stage(20 * kFull);
  unsigned most = 0;
  for (unsigned steps = least_steps; steps < 80; ++steps) {
    unsigned batches = 0;
    unsigned at_the_end = 0;
    P policy(batches, steps);
    stage.meet(
        [&](auto& index) {
          for (; batches < kBatches; ++batches) {
            const std::uint64_t key = 1001 + 2 * batches;
            const std::vector<Entry<std::uint64_t>> entries{{key, 1}, {key + 4000, 2}};
            EXPECT_EQ(index.insert_all(entries), Outcome::done);
          }
        },
        [&](auto& index) {
          call(index);
          at_the_end = batches;
        },
        policy);
    most = std::max(most, at_the_end);
  }
  return most;
}

// Threads: who lost two rounds to insert_all(), or waits for one, keeps the next one waiting. A
// find lost for ever.
TEST(Pbtree, CallsBesideBatchesEnd) {
  const std::vector<std::pair<const char*, Stage::Body>> calls{
      {"find", [](auto& index) { EXPECT_EQ(*index.find(8), 8U); }},
      {"insert", [](auto& index) { EXPECT_EQ(index.insert(7, 1), Outcome::done); }},
      {"update", [](auto& index) { EXPECT_EQ(index.update(8, 1), Outcome::done); }},
      {"remove", [](auto& index) { EXPECT_EQ(index.remove(8), Outcome::done); }},
      {"scan",
       [](auto& index) {
         std::vector<Entry<std::uint64_t>> out;
         EXPECT_EQ(index.scan(8, 20, out), Outcome::done);
       }},
      {"scan_back", [](auto& index) {
         std::vector<Entry<std::uint64_t>> out;
         EXPECT_EQ(index.scan_back(80, 20, out), Outcome::done);
       }}};
  for (const auto& [name, call] : calls) {
    // A round of a scan has more steps.
    const unsigned least = std::string_view(name).starts_with("scan") ? 24 : 8;
    const unsigned between = batches_beside<BatchesBetween>(call, least);
    EXPECT_LT(between, kBatches / 2) << name;
    EXPECT_GT(between, 1U) << name << " met no batch";
    EXPECT_LT(batches_beside<InsideBatches>(call, 4), kBatches / 2) << name << " waits";
  }
}

}  // namespace
}  // namespace everleaf::crash
