// Loads and deletes in every order, scans across splits, bulk loads.
#include <algorithm>
#include <numeric>

#include "support.hpp"

namespace everleaf::test {
namespace {

enum class Order : std::uint8_t { ascending, descending, random };
constexpr Order kOrders[] = {Order::ascending, Order::descending, Order::random};

std::vector<std::uint64_t> ordered(std::uint64_t n, Order order, Random& random) {
  std::vector<std::uint64_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  if (order == Order::descending) std::ranges::reverse(all);
  if (order == Order::random) {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.below(i)]);
  }
  return all;
}

template <class K>
struct Tree {
  Pool pool = Pool::anonymous().value();
  Index<K> index;
  Map<K> map;
  explicit Tree(const std::string& spec) : index(pool.index<K>("index", spec).value()) {}
  void insert(std::uint64_t n) {
    ASSERT_EQ(index.insert(Keys<K>::nth(n), n), Outcome::done);
    map.emplace(Keys<K>::nth(n), n);
  }
  void remove(std::uint64_t n) {
    ASSERT_EQ(index.remove(Keys<K>::nth(n)), Outcome::done);
    map.erase(Keys<K>::nth(n));
  }
  void expect_same() {
    EXPECT_EQ(difference<K>(index, map), "");
    EXPECT_EQ(unsound(pool), "");
  }
};

class Orders : public EveryTree {};

TEST_P(Orders, FillEmptyAndRefill) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    const std::uint64_t n = scaled(2500);
    for (const Order in : kOrders) {
      for (const Order out : kOrders) {
        Tree<K> tree(spec);
        for (const auto i : ordered(n, in, random)) tree.insert(i);
        tree.expect_same();
        const auto doomed = ordered(n, out, random);
        for (std::size_t i = 0; i < doomed.size(); ++i) {
          tree.remove(doomed[i]);
          if (i == n / 2 || i == n - 2) tree.expect_same();
        }
        tree.expect_same();
        EXPECT_LE(tree.index.stats().height, 1U) << "an empty tree is one leaf";
        for (const auto i : ordered(n / 4, out, random)) tree.insert(i);
        tree.expect_same();
      }
    }
  });
}

TEST_P(Orders, ScansAcrossSplits) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Tree<K> tree(spec);
    for (const auto i : ordered(400, Order::random, random)) tree.insert(i);
    // From every key, and from beside every key.
    for (const auto& [key, value] : tree.map) {
      for (const std::size_t limit :
           {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{100}, kAll}) {
        ASSERT_EQ(
            compare_scan<K>(tree.index, tree.map, key, Keys<K>::nth(random.below(400)), limit), "");
      }
      const Owned<K> near = Keys<K>::near(key, random);
      ASSERT_EQ(compare_scan<K>(tree.index, tree.map, near, near, 100), "");
    }
  });
}

TEST_P(Orders, EmptyAndOneElement) {
  with_keys([]<class K>(const std::string& spec) {
    Tree<K> tree(spec);
    Random random(1);
    tree.expect_same();
    EXPECT_EQ(tree.index.find(Keys<K>::nth(1)).outcome, Outcome::absent);
    EXPECT_EQ(tree.index.update(Keys<K>::nth(1), 1), Outcome::absent);
    EXPECT_EQ(tree.index.remove(Keys<K>::nth(1)), Outcome::absent);
    EXPECT_EQ(compare_scan<K>(tree.index, tree.map, Owned<K>{}, Keys<K>::nth(9), kAll), "");
    for (int i = 0; i < 200; ++i) {
      const Owned<K> key = Keys<K>::odd(random);
      const std::uint64_t value = odd_value(random);
      ASSERT_EQ(tree.index.insert(key, value), Outcome::done);
      ASSERT_EQ(tree.index.insert(key, ~value), Outcome::exists);
      tree.map = {{key, value}};
      ASSERT_EQ(difference<K>(tree.index, tree.map), "");
      const Owned<K> other = Keys<K>::odd(random);
      ASSERT_EQ(compare_scan<K>(tree.index, tree.map, other, key, kAll), "");
      ASSERT_EQ(tree.index.remove(key), Outcome::done);
      ASSERT_EQ(tree.index.remove(key), Outcome::absent);
      tree.map.clear();
      ASSERT_EQ(difference<K>(tree.index, tree.map), "");
    }
    EXPECT_EQ(unsound(tree.pool), "");
  });
}

TEST_P(Orders, BulkLoadAndCarryOn) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    for (const std::uint64_t n : {0, 1, 2, 5, 6, 7, 8, 63, 64, 500, 3000}) {
      for (const double fill : {0.1, 0.5, 0.7, 1.0}) {
        SCOPED_TRACE(std::to_string(n) + " entries at " + std::to_string(fill));
        Tree<K> tree(spec);
        std::vector<Entry<K>> entries;
        for (std::uint64_t i = 0; i < n; ++i) entries.push_back({Keys<K>::nth(i), i});
        ASSERT_EQ(tree.index.bulk_load(entries, fill), Outcome::done);
        for (const auto& entry : entries) tree.map.emplace(entry.key, entry.value);
        tree.expect_same();
        for (int i = 0; i < 300; ++i) {
          const auto op =
              random_op<K>(random, Keys<K>::near(Keys<K>::nth(random.below(n + 5)), random));
          ASSERT_EQ(apply<K>(tree.index, op), apply<K>(tree.map, op)) << show<K>(op);
        }
        tree.expect_same();
      }
    }
  });
}

// Nodes that hold a handful of entries are not asked for half of one.
TEST_P(Orders, BulkLoadLeavesRoom) {
  with_keys([]<class K>(const std::string& spec) {
    std::vector<Entry<K>> entries;
    for (std::uint64_t i = 0; i < 3000; ++i) entries.push_back({Keys<K>::nth(i), i});
    const auto leaves = [&](double fill) {
      Tree<K> tree(spec);
      EXPECT_EQ(tree.index.bulk_load(entries, fill), Outcome::done);
      return static_cast<double>(tree.index.stats().leaf_nodes);
    };
    EXPECT_GT(leaves(0.5), 1.4 * leaves(1.0));
  });
}

TEST_P(Orders, BulkLoadRefusals) {
  with_keys([]<class K>(const std::string& spec) {
    std::vector<Entry<K>> entries;
    for (std::uint64_t i = 0; i < 100; ++i) entries.push_back({Keys<K>::nth(i), i});
    Tree<K> full(spec);
    full.insert(200);
    EXPECT_EQ(full.index.bulk_load(entries), Outcome::not_empty);
    full.expect_same();
    for (const std::size_t where : {std::size_t{1}, std::size_t{50}, std::size_t{99}}) {
      for (const bool equal : {false, true}) {
        Tree<K> tree(spec);
        auto wrong = entries;
        wrong[where].key = equal ? wrong[where - 1].key : Keys<K>::nth(where - 1);
        if (!equal) wrong[where - 1].key = Keys<K>::nth(where);
        EXPECT_EQ(tree.index.bulk_load(wrong), Outcome::not_ascending);
        tree.expect_same();
      }
    }
  });
}

EVERLEAF_EVERY_TREE(Orders);

}  // namespace
}  // namespace everleaf::test
