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
constexpr std::uint64_t kFull = 42;

TEST_F(Table1, RecordOperations) {
  open("bztree");
  EXPECT_EQ(of([&] { (void)index().insert(1, 1); }), (Words{{"pmwcas_2_words", 2}}));
  EXPECT_EQ(of([&] { (void)index().update(1, 2); }), (Words{{"pmwcas_3_words", 1}}));
  EXPECT_EQ(of([&] { (void)index().upsert(1, 3); }), (Words{{"pmwcas_3_words", 1}}));
  EXPECT_EQ(of([&] { (void)index().insert(1, 4); }), Words{});
  EXPECT_EQ(of([&] { (void)index().find(1); }), Words{});
  EXPECT_EQ(of([&] { (void)index().remove(1); }), (Words{{"pmwcas_2_words", 1}}));
}

TEST_F(Table1, InlineUpdates) {
  open("bztree:update=inline");
  (void)index().insert(1, 1);
  EXPECT_EQ(of([&] { (void)index().update(1, 2); }),
            (Words{{"pmwcas_1_words", 1}, {"pmwcas_2_words", 1}}));
}

TEST_F(Table1, StructureChanges) {
  open("bztree");
  // The root's leaf: consolidated, split (the root block has no status of a parent to freeze).
  for (std::uint64_t key = 0; key < kFull; ++key) (void)index().insert(key * 100, 0);
  for (std::uint64_t key = 2; key < 17; ++key) (void)index().remove(key * 100);
  EXPECT_EQ(of([&] { (void)index().insert(1, 0); }),
            (Words{{"consolidations", 1}, {"pmwcas_1_words", 1}, {"pmwcas_2_words", 3}}));
  // Leaves below a root.
  std::uint64_t key = kFull;
  while (index().stats().leaf_nodes < 2) (void)index().insert(key++ * 100, 0);
  bool split = false;
  while (!split) {
    const Words words = of([&] { (void)index().insert(key++ * 100, 0); });
    split = words.contains("splits");
    if (split) {
      EXPECT_EQ(
          words,
          (Words{
              {"splits", 1}, {"pmwcas_1_words", 1}, {"pmwcas_2_words", 2}, {"pmwcas_3_words", 1}}));
    }
  }
  ASSERT_GE(index().stats().leaf_nodes, 3U);
  bool merged = false;
  for (std::uint64_t gone = 0; !merged && gone < key; ++gone) {
    const Words words = of([&] { (void)index().remove(gone * 100); });
    merged = words.contains("merges");
    if (merged) {
      EXPECT_EQ(words, (Words{{"merges", 1}, {"pmwcas_2_words", 2}, {"pmwcas_3_words", 1}}));
    }
  }
  EXPECT_TRUE(merged);
}

}  // namespace
}  // namespace everleaf::test
