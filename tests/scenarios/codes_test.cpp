// Codes of separators against std::upper_bound: any spread of separators, the ends of the key
// space, neighbours that have one code, edits in any place. And ranks of a leaf's entries against
// std::sort.
#include "trees/codes.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trees/scan.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();

class Node {
 public:
  void insert(std::uint64_t key) {
    if (keys_.size() == tree::Codes::kMost) return;
    const auto at = std::ranges::upper_bound(keys_, key);
    const auto position = static_cast<unsigned>(at - keys_.begin());
    keys_.insert(at, key);
    codes_.insert(position, count(), whole());
  }
  void erase(std::size_t i) {
    if (keys_.empty()) return;
    i %= keys_.size();
    codes_.erase(static_cast<unsigned>(i), count());
    keys_.erase(keys_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void keep_half() {
    keys_.resize(keys_.size() / 2);
    codes_.rebuild(count(), whole());
  }
  [[nodiscard]] bool right(std::uint64_t key) const {
    const auto expected = std::ranges::upper_bound(keys_, key) - keys_.begin();
    return codes_.upper_bound(key, count(), whole()) == static_cast<unsigned>(expected);
  }
  [[nodiscard]] bool right_around() const {
    const bool near = std::ranges::all_of(keys_, [this](std::uint64_t key) {
      return right(key - 1) && right(key) && right(key + 1);
    });
    return near && right(0) && right(kTop / 2) && right(kTop);
  }

 private:
  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(keys_.size()); }
  [[nodiscard]] std::function<std::uint64_t(unsigned)> whole() const {
    return [this](unsigned i) { return keys_[i]; };
  }
  std::vector<std::uint64_t> keys_;
  tree::Codes codes_;
};

RC_GTEST_PROP(Codes, RankIsThatOfTheSeparators, ()) {
  const auto width = *rc::gen::inRange(0, 65);
  const auto base = *rc::gen::arbitrary<std::uint64_t>();
  const auto key = [&] {
    const auto any = *rc::gen::resize(
        1000, rc::gen::oneOf(rc::gen::arbitrary<std::uint64_t>(),
                             rc::gen::map(rc::gen::arbitrary<std::uint64_t>(),
                                          [](std::uint64_t low) { return low << 48; })));
    return width == 0 ? base : base + (any >> (64 - width));
  };
  Node node;
  const auto steps = *rc::gen::inRange(0, 150);
  for (int i = 0; i < steps; ++i) {
    const auto what = *rc::gen::inRange(0, 20);
    if (what < 14) {
      node.insert(key());
    } else if (what < 19) {
      node.erase(*rc::gen::arbitrary<std::size_t>());
    } else {
      node.keep_half();
    }
    RC_ASSERT(node.right(key()));
    RC_ASSERT(node.right(*rc::gen::arbitrary<std::uint64_t>()));
  }
  RC_ASSERT(node.right_around());
}

TEST(Codes, EndsOfTheKeySpace) {
  Node node;
  for (const std::uint64_t key : {kTop, std::uint64_t{0}, kTop - 1, std::uint64_t{1}, kTop / 2}) {
    node.insert(key);
    EXPECT_TRUE(node.right_around());
  }
}

TEST(Codes, AFullNodeOfNeighbours) {
  Node node;
  for (unsigned i = 0; i < tree::Codes::kMost / 2; ++i) {
    node.insert(std::uint64_t{1} << 60 | i);
    node.insert(i);
    EXPECT_TRUE(node.right_around());
  }
}

constexpr std::size_t kMostRanked = 122;

// Whether each number was given its place; that none was is right only where it `may` be.
bool ranked(std::vector<std::uint64_t> numbers, bool may_be_refused) {
  tree::Ranks<kMostRanked> ranks;
  if (!ranks.count(numbers)) return may_be_refused;
  std::vector<std::uint64_t> placed(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) placed[ranks[i]] = numbers[i];
  std::ranges::sort(numbers);
  return placed == numbers;
}

TEST(Ranks, SortAnySpread) {
  std::mt19937_64 random(11);
  unsigned sorted = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::size_t n = random() % (kMostRanked + 1);
    const unsigned bits = 1 + static_cast<unsigned>(random() % 64);
    const std::uint64_t base = bits == 64 ? 0 : random() >> 1;
    std::vector<std::uint64_t> numbers(n);
    for (auto& number : numbers) number = base + (random() >> (64 - bits) >> 1);
    tree::Ranks<kMostRanked> ranks;
    sorted += ranks.count(numbers) ? 1 : 0;
    ASSERT_TRUE(ranked(numbers, true)) << round;
  }
  EXPECT_GT(sorted, 10'000U);
}

// Distances of up to 15 bits are told apart, whatever they are from: so are these.
TEST(Ranks, AreFound) {
  for (std::size_t n = 0; n <= kMostRanked; ++n) {
    for (const std::uint64_t base : {std::uint64_t{0}, kTop - 32'767, std::uint64_t{1} << 63}) {
      for (const std::uint64_t factor : {1U, 7U, 268U}) {
        std::vector<std::uint64_t> numbers;
        for (std::uint64_t i = 0; i < n; ++i) numbers.push_back(base + (i * 37 % n) * factor);
        EXPECT_TRUE(ranked(numbers, n % 37 == 0)) << n << ' ' << base << ' ' << factor;
      }
    }
  }
  EXPECT_TRUE(ranked({0, kTop, kTop / 2}, false));
  tree::Ranks<kMostRanked> ranks;
  EXPECT_FALSE(ranks.count(std::vector<std::uint64_t>{5, 9, 5}));
  EXPECT_FALSE(ranks.count(std::vector<std::uint64_t>{0, kTop, kTop - 1}));
}

}  // namespace
}  // namespace everleaf::test
