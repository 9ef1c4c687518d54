// Table 1 of the BzTree paper: words of the multi-word compare-and-swaps of each operation.
#include "support.hpp"

namespace everleaf::test {
namespace {

using Words = std::map<std::string, std::uint64_t>;

class Table1 : public testing::Test {
 protected:
  void open(const char* spec) {
    pool_.emplace(Pool::anonymous(by_hand()).value());
    index_.emplace(pool_->index<std::uint64_t>("index", spec).value());
  }
  static PoolOptions by_hand() {
    PoolOptions options;
    options.epoch_length = {};
    return options;
  }
  // Executed with so many words, and nothing else, by `work`.
  template <class Work>
  Words of(Work work) {
    const Words before = counted();
    work();
    Words words;
    for (const auto& [name, count] : counted()) {
      if (count != before.at(name)) words[name] = count - before.at(name);
    }
    return words;
  }
  // Of the first `work` on a key from `key` to `end` that counts `what`; none: none does.
  template <class Work>
  Words first(const char* what, std::uint64_t& key, std::uint64_t end, Work work) {
    while (key < end) {
      const Words words = of([&] { work(100 * key++); });
      if (words.contains(what)) return words;
    }
    return Words{};
  }
  Index<std::uint64_t>& index() { return *index_; }

 private:
  Words counted() {
    Words words;
    for (const auto& [name, count] : index_->stats().more) words[name] = count;
    return words;
  }
  std::optional<Pool> pool_;
  std::optional<Index<std::uint64_t>> index_;
};

// Entries of 24 bytes in a page of 1 KiB.
constexpr std::uint64_t kFull = 40;

TEST_F(Table1, RecordOperations) {
  open("bztree:reserve=entry");
  EXPECT_EQ(of([&] { (void)index().insert(1, 1); }), (Words{{"pmwcas_2_words", 2}}));
  EXPECT_EQ(of([&] { (void)index().update(1, 2); }), (Words{{"pmwcas_3_words", 1}}));
  EXPECT_EQ(of([&] { (void)index().upsert(1, 3); }), (Words{{"pmwcas_3_words", 1}}));
  EXPECT_EQ(of([&] { (void)index().insert(1, 4); }), Words{});
  EXPECT_EQ(of([&] { (void)index().find(1); }), Words{});
  EXPECT_EQ(of([&] { (void)index().remove(1); }), (Words{{"pmwcas_2_words", 1}}));
}

// The default: a reservation leaves the metadata alone.
TEST_F(Table1, ReservationsByTheStatusAlone) {
  open("bztree");
  EXPECT_EQ(of([&] { (void)index().insert(1, 1); }),
            (Words{{"pmwcas_1_words", 1}, {"pmwcas_2_words", 1}}));
  EXPECT_EQ(of([&] { (void)index().insert(1, 2); }), Words{});
}

TEST_F(Table1, InlineUpdates) {
  open("bztree:update=inline");
  (void)index().insert(1, 1);
  EXPECT_EQ(of([&] { (void)index().update(1, 2); }),
            (Words{{"pmwcas_1_words", 1}, {"pmwcas_2_words", 1}}));
}

// Not in the table: where a block of a payload goes, the word that names it is expected, too. In
// brackets the words of a reservation.
TEST_F(Table1, PayloadsInBlocks) {
  open("bztree:values=bytes:inline=8");
  Payloads<std::uint64_t> payloads = index().payloads().value();
  const std::string few(8, 'f');
  const std::string many(100, 'm');
  const std::string more(1000, 'n');
  const Words two{{"pmwcas_1_words", 1}, {"pmwcas_2_words", 1}};    // (1) + 2
  const Words three{{"pmwcas_1_words", 1}, {"pmwcas_3_words", 1}};  // (1) + 3
  EXPECT_EQ(of([&] { (void)payloads.insert(1, few); }), two);
  EXPECT_EQ(of([&] { (void)payloads.insert(2, many); }), two);
  EXPECT_EQ(of([&] { (void)payloads.update(1, "other"); }), two);
  EXPECT_EQ(of([&] { (void)payloads.update(1, many); }), two);
  EXPECT_EQ(of([&] { (void)payloads.update(1, more); }), (Words{{"pmwcas_3_words", 1}}));
  EXPECT_EQ(of([&] { (void)payloads.update(1, few); }), three);
  EXPECT_EQ(of([&] { (void)payloads.remove(1); }), (Words{{"pmwcas_2_words", 1}}));
  EXPECT_EQ(of([&] { (void)payloads.remove(2); }), (Words{{"pmwcas_3_words", 1}}));
}

TEST_F(Table1, StructureChanges) {
  open("bztree:reserve=entry");
  // The root's leaf: consolidated, split (the root block has no status of a parent to freeze).
  for (std::uint64_t key = 0; key < kFull; ++key) (void)index().insert(key * 100, 0);
  for (std::uint64_t key = 2; key < 17; ++key) (void)index().remove(key * 100);
  EXPECT_EQ(of([&] { (void)index().insert(1, 0); }),
            (Words{{"consolidations", 1}, {"pmwcas_1_words", 1}, {"pmwcas_2_words", 3}}));
  // Leaves below a root.
  std::uint64_t key = kFull;
  while (index().stats().leaf_nodes < 2) (void)index().insert(key++ * 100, 0);
  const auto insert = [this](std::uint64_t k) { (void)index().insert(k, 0); };
  EXPECT_EQ(
      first("splits", key, 10 * kFull, insert),
      (Words{{"splits", 1}, {"pmwcas_1_words", 1}, {"pmwcas_2_words", 2}, {"pmwcas_3_words", 1}}));
  ASSERT_GE(index().stats().leaf_nodes, 3U);
  std::uint64_t gone = 0;
  EXPECT_EQ(first("merges", gone, key, [this](std::uint64_t k) { (void)index().remove(k); }),
            (Words{{"merges", 1}, {"pmwcas_2_words", 2}, {"pmwcas_3_words", 1}}));
}

// Small pages have several levels soon. An inner node splits and is merged as a leaf is: the same
// words once more for each level.
TEST_F(Table1, InnerStructureChanges) {
  open("bztree:page=256:free=96:reserve=entry");
  std::uint64_t key = 0;
  const auto next = [&](const char* what) {
    return first(what, key, 10'000, [this](std::uint64_t k) { (void)index().insert(k, 0); });
  };
  // The root first: the root block has no status of a parent to freeze (2 words to install). Who
  // then goes on splits the leaf below, and inserts.
  const Words root = next("inner_splits");
  EXPECT_EQ(root, (Words{{"splits", 1},
                         {"inner_splits", 1},
                         {"pmwcas_1_words", 2},
                         {"pmwcas_2_words", 3},
                         {"pmwcas_3_words", 1}}));
  const Words inner = next("inner_splits");
  EXPECT_EQ(inner, (Words{{"splits", 1},
                          {"inner_splits", 1},
                          {"pmwcas_1_words", 2},
                          {"pmwcas_2_words", 2},
                          {"pmwcas_3_words", 2}}));
  ASSERT_GE(index().stats().height, 2U);
  // One removal that merges leaves and, above them, inner nodes: each merge freezes two nodes and
  // installs with three words.
  std::uint64_t several = 0;
  for (std::uint64_t gone = 0; gone < key; ++gone) {
    const Words words = of([&] { (void)index().remove(gone * 100); });
    const auto merges = words.find("merges");
    if (merges == words.end() || words.contains("consolidations")) continue;
    const std::uint64_t n = merges->second;
    several += n > 1 ? 1 : 0;
    const auto count = [&](const char* name) {
      const auto found = words.find(name);
      return found == words.end() ? 0 : found->second;
    };
    // One of two words is the removal's; a root of one child gives way with two words, not three.
    EXPECT_EQ(count("pmwcas_1_words"), 0U);
    EXPECT_EQ(count("pmwcas_2_words") + count("pmwcas_3_words"), 1 + 2 * n);
    EXPECT_GE(count("pmwcas_2_words"), 1 + n);
    EXPECT_GE(count("pmwcas_3_words") + 1, n);
  }
  EXPECT_GT(several, 0U);
}

// With less of a page a leaf splits that would be consolidated; with less dead space a removal has
// it done.
TEST_F(Table1, ThresholdsAreOptions) {
  using Changes = std::pair<std::uint64_t, std::uint64_t>;  // consolidations, splits
  const auto after = [&](const char* spec, std::uint64_t removed) {
    open(spec);
    for (std::uint64_t key = 0; key < kFull; ++key) (void)index().insert(key * 100, 0);
    Words words = of([&] {
      for (std::uint64_t key = 1; key <= removed; ++key) (void)index().remove(key * 100);
      (void)index().insert(1, 0);
    });
    return Changes(words["consolidations"], words["splits"]);
  };
  // 23 entries and 256 free bytes are more than three quarters of a page, and less than one.
  EXPECT_EQ(after("bztree:merge=0", 17), Changes(1, 0));
  EXPECT_EQ(after("bztree:merge=0:split=75", 17), Changes(0, 1));
  // 13 removals leave 312 deleted bytes; with 27 entries a copy is not full.
  EXPECT_EQ(after("bztree:merge=0:dead=30", 13), Changes(1, 0));
  EXPECT_EQ(after("bztree:merge=0:dead=30", 26), Changes(2, 0));
  EXPECT_EQ(after("bztree:merge=0:dead=100", 26), Changes(1, 0));  // by the insertion
  for (const char* const bad : {"bztree:split=74", "bztree:split=101", "bztree:dead=9",
                                "bztree:dead=101", "bztree:dead=x"}) {
    Pool pool = Pool::anonymous().value();
    EXPECT_EQ(pool.index<std::uint64_t>("index", bad).error().code, Code::bad_option) << bad;
  }
}

}  // namespace
}  // namespace everleaf::test
