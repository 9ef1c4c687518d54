// Codes of separators against std::upper_bound: any spread of separators, the ends of the key
// space, neighbours that have one code, edits in any place.
#include "trees/codes.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

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

}  // namespace
}  // namespace everleaf::test
