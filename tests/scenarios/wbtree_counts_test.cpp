// N_w, N_clf and N_mf of the wB+-Tree against Table 3 of its paper: 8-byte keys, single operations
// without splits (steps P1, P2, P3 and P6 of the room wbtree).
//
// The paper's N_w of slot+bitmap nodes, 0.125m + 4.25 (insert) and 0.125m + 2 (remove), counts the
// slots before the position, which Figure 10 copies onto themselves; we do not write them, so each
// count here plus pos - 1 bytes is the paper's.
#include <cstdio>
#include <set>

#include "support.hpp"

namespace everleaf::test {
namespace {

enum class Structure : std::uint8_t { slot_only, slot_bitmap, bitmap_leaf };

class WbtreeCounts : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr std::uint64_t kGap = 10;

  WbtreeCounts() {
    // Emulated in anonymous memory: counts do not depend on where the bytes are.
    PoolOptions options;
    options.domain = Domain::memory;
    options.emulate = true;
    pool_.emplace(Pool::anonymous(options).value());
    index_.emplace(pool_->index<std::uint64_t>("index", GetParam()).value());
    const std::string spec = index_->info().spec;
    if (spec.find("slot-only") != std::string::npos) structure_ = Structure::slot_only;
    if (spec.find("slot-bitmap") != std::string::npos) structure_ = Structure::slot_bitmap;
    while (index_->stats().leaf_nodes == 1) fill(++capacity_);
    fill(0);
    --capacity_;
  }

  // The tree becomes one leaf with keys kGap, 2 kGap, ..., in entries in no order.
  void fill(std::uint64_t entries) {
    std::vector<Entry<std::uint64_t>> all;
    ASSERT_EQ(index_->scan(0, kAll, all), Outcome::done);
    for (const auto& entry : all) ASSERT_EQ(index_->remove(entry.key), Outcome::done);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t i = 1; i <= entries; ++i) keys.push_back(i * kGap);
    for (std::size_t i = keys.size(); i > 1; --i) std::swap(keys[i - 1], keys[random_.below(i)]);
    for (const std::uint64_t key : keys) ASSERT_EQ(index_->insert(key, key), Outcome::done);
  }

  template <class F>
  Counters count(F&& operation) {
    const Counters before = pool_->counters();
    EXPECT_EQ(operation(), Outcome::done);
    Counters after = pool_->counters();
    after.bytes_written -= before.bytes_written;
    after.heap_bytes_written -= before.heap_bytes_written;
    after.flushes -= before.flushes;
    after.fences -= before.fences;
    EXPECT_EQ(after.heap_bytes_written, 0U);
    return after;
  }

  // Numbers of entries before the operation that are looked at.
  [[nodiscard]] std::set<std::uint64_t> fillings() const {
    return {2, capacity_ / 2, capacity_ * 7 / 10, capacity_ - 1};
  }

  void print(const char* operation, std::uint64_t m, double words, double self_copy, double paper_w,
             double lines, double paper_lines) const {
    std::printf(
        "[ Table 3  ] %s m=%2llu  N_w %.2f, with self-copy %.2f, paper %.2f  N_clf %.2f, paper"
        " %.2f\n",
        operation, static_cast<unsigned long long>(m), words, self_copy, paper_w, lines,
        paper_lines);
  }

  Random random_{17};
  std::optional<Pool> pool_;
  std::optional<Index<std::uint64_t>> index_;
  Structure structure_ = Structure::bitmap_leaf;
  std::uint64_t capacity_ = 0;
};

TEST_P(WbtreeCounts, Insert) {
  const bool slot_bitmap = structure_ == Structure::slot_bitmap;
  for (const std::uint64_t m : fillings()) {
    double bytes = 0;
    double lines = 0;
    for (std::uint64_t pos = 1; pos <= m + 1; ++pos) {
      SCOPED_TRACE("m " + std::to_string(m) + ", pos " + std::to_string(pos));
      fill(m);
      const Counters n = count([&] { return index_->insert((pos - 1) * kGap + 5, pos); });
      EXPECT_EQ(n.fences, slot_bitmap ? 3U : 2U);
      if (slot_bitmap) {
        // Entry, bitmap twice, shifted slots, the new slot, the count. A slot that has by chance
        // what is stored there counts for nothing.
        const std::uint64_t expected = 32 + (m - pos + 1) + 1 + 1;
        EXPECT_LE(n.bytes_written, expected);
        EXPECT_GE(n.bytes_written + 1, expected);
        EXPECT_GE(n.flushes, 3U);
      } else {
        EXPECT_EQ(n.bytes_written, 24U);
        EXPECT_EQ(n.flushes, 2U);
      }
      bytes += static_cast<double>(n.bytes_written);
      lines += static_cast<double>(n.flushes);
    }
    const auto rounds = static_cast<double>(m + 1);
    const auto entries = static_cast<double>(m);
    const double words = bytes / 8 / rounds;
    const double self_copy = slot_bitmap ? words + entries / 2 / 8 : words;
    const double paper = slot_bitmap ? 0.125 * entries + 4.25 : 3;
    print("insert", m, words, self_copy, paper, lines / rounds,
          slot_bitmap ? entries / 64 + 3 + 1.0 / 32 : 2);
    EXPECT_NEAR(self_copy, paper, 0.125);
  }
}

TEST_P(WbtreeCounts, Remove) {
  const bool slot_bitmap = structure_ == Structure::slot_bitmap;
  for (const std::uint64_t m : fillings()) {
    double bytes = 0;
    double lines = 0;
    for (std::uint64_t pos = 1; pos <= m; ++pos) {
      SCOPED_TRACE("m " + std::to_string(m) + ", pos " + std::to_string(pos));
      fill(m);
      const Counters n = count([&] { return index_->remove(pos * kGap); });
      EXPECT_EQ(n.fences, slot_bitmap ? 3U : 1U);
      EXPECT_EQ(n.bytes_written, slot_bitmap ? 16 + (m - pos) + 1 : 8U);
      EXPECT_GE(n.flushes, slot_bitmap ? 2U : 1U);
      bytes += static_cast<double>(n.bytes_written);
      lines += static_cast<double>(n.flushes);
    }
    const auto entries = static_cast<double>(m);
    const double words = bytes / 8 / entries;
    const double self_copy = slot_bitmap ? words + (entries - 1) / 2 / 8 : words;
    const double paper = slot_bitmap ? 0.125 * entries + 2 : 1;
    print("remove", m, words, self_copy, paper, lines / entries,
          slot_bitmap ? entries / 64 + 2 : 1);
    EXPECT_NEAR(self_copy, paper, 0.001);
  }
}

TEST_P(WbtreeCounts, Update) {
  fill(capacity_ / 2);
  const Counters n = count([&] { return index_->update(kGap, 77); });
  EXPECT_EQ(n.bytes_written, 8U);
  EXPECT_EQ(n.flushes, 1U);
  EXPECT_EQ(n.fences, 1U);
}

TEST_P(WbtreeCounts, ReadsWriteNothing) {
  fill(capacity_ / 2);
  std::vector<Entry<std::uint64_t>> out;
  const Counters n = count([&] {
    (void)index_->find(kGap);
    (void)index_->scan_back(std::nullopt, 5, out);
    return index_->scan(0, 100, out);
  });
  EXPECT_EQ(n.bytes_written + n.flushes + n.fences, 0U);
}

std::vector<std::string> specs() {
  std::vector<std::string> all;
  for (const TreeInfo& tree : trees()) {
    if (tree.name == "wbtree") all.assign(tree.test_specs.begin(), tree.test_specs.end());
  }
  return all;
}

std::string name_of_spec(const ::testing::TestParamInfo<std::string>& spec) {
  return name_of({Case{spec.param, KeyType::u64}, spec.index});
}

INSTANTIATE_TEST_SUITE_P(Structures, WbtreeCounts, ::testing::ValuesIn(specs()), name_of_spec);

}  // namespace
}  // namespace everleaf::test
