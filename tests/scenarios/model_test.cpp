// Any operations in any order do what they do on a std::map, across reopens.
#include <tuple>

#include <rapidcheck.h>

#include "support.hpp"

namespace everleaf::test {
namespace {

// An index beside its model.
template <class K>
class Pair {
 public:
  explicit Pair(std::string spec) : spec_(std::move(spec)) { reopen(); }

  void reopen() {
    index_.reset();
    pool_.reset();
    pool_.emplace(Pool::open(scratch_ / "pool", small_pool()).value());
    index_.emplace(pool_->index<K>("index", spec_).value());
  }

  // What went wrong; empty: nothing.
  std::string step(std::uint64_t kind, const Owned<K>& key, std::uint64_t value, Random& random) {
    static constexpr std::size_t kLimits[] = {0, 1, 2, 7, 100, kAll};
    switch (kind % 16) {
      case 12: {
        const Lookup hit = index_->find(key);
        const auto it = map_.find(key);
        const bool same = it == map_.end() ? hit.outcome == Outcome::absent
                                           : hit.outcome == Outcome::done && *hit == it->second;
        return same ? "" : "find " + show(key);
      }
      case 13:
        return compare_scan<K>(*index_, map_, key, Keys<K>::odd(random), kLimits[value % 6]);
      case 14:
        return index_->size() == map_.size() ? "" : "size";
      case 15:
        if (value % 4 == 0) reopen();
        return {};
      default:
        break;
    }
    static constexpr Do kMix[] = {Do::insert, Do::insert, Do::insert, Do::insert,
                                  Do::insert, Do::upsert, Do::upsert, Do::update,
                                  Do::update, Do::remove, Do::remove, Do::remove};
    const Op<K> op{kMix[kind % 16], key, value};
    const Outcome should = apply<K>(map_, op);
    const Outcome is = apply<K>(*index_, op);
    if (is == should) return {};
    return show<K>(op) + " is '" + std::string(everleaf::to_string(is)) + "'";
  }

  std::string finish() {
    if (std::string wrong = difference<K>(*index_, map_); !wrong.empty()) return wrong;
    reopen();
    if (std::string wrong = difference<K>(*index_, map_); !wrong.empty())
      return "reopened: " + wrong;
    return unsound(*pool_);
  }

  Index<K>& index() { return *index_; }
  Map<K>& map() { return map_; }
  Pool& pool() { return *pool_; }

 private:
  Scratch scratch_;
  std::string spec_;
  std::optional<Pool> pool_;
  std::optional<Index<K>> index_;
  Map<K> map_;
};

class Model : public EveryTree {};
class ModelOfBytes : public EveryTree {};

// rapidcheck shrinks a failure to few steps. It takes its seed from the first test of a process.
TEST_P(Model, AnyShortSequence) {
  ::setenv("RC_PARAMS", ("seed=" + std::to_string(seed())).c_str(), 0);
  with_keys([]<class K>(const std::string& spec) {
    Random palette_of(3);
    std::vector<Owned<K>> palette;
    for (int i = 0; i < 40; ++i) palette.push_back(Keys<K>::odd(palette_of));
    for (std::uint64_t i = 0; i < 40; ++i) palette.push_back(Keys<K>::nth(i));
    const bool ok = rc::check(spec, [&] {
      using Step = std::tuple<std::uint8_t, std::uint8_t, std::uint64_t>;
      const auto steps = *rc::gen::scale(4.0, rc::gen::arbitrary<std::vector<Step>>());
      Pair<K> pair(spec);
      Random random(1);
      for (const auto& [kind, key, value] : steps) {
        const std::string wrong = pair.step(kind, palette[key % palette.size()], value, random);
        if (!wrong.empty()) RC_FAIL(wrong);
      }
      const std::string wrong = pair.finish();
      if (!wrong.empty()) RC_FAIL(wrong);
    });
    EXPECT_TRUE(ok);
  });
}

TEST_P(Model, OneLongSequence) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    Random random(seed);
    Pair<K> pair(spec);
    const std::size_t steps = scaled(30000);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::uint64_t n = random.below(i % 10000 < 7000 ? 3000 : 200);
      const Owned<K> key = random.one_in(4) ? Keys<K>::odd(random) : Keys<K>::nth(n);
      // Reopens and whole sizes cost much: few of them.
      std::uint64_t kind = random.below(14);
      if (random.one_in(3000)) kind = 14 + random.below(2);
      ASSERT_EQ(pair.step(kind, key, odd_value(random), random), "") << "step " << i;
    }
    EXPECT_EQ(pair.finish(), "") << "seed " << seed;
  });
}

TEST_P(ModelOfBytes, KeysOfEveryLength) {
  Pair<Bytes> pair(GetParam().spec);
  Random random(5);
  for (std::size_t length = 0; length <= 300; ++length) {
    for (const char c : {'\0', 'k', '\xFF'}) {
      const std::string wrong = pair.step(0, std::string(length, c), length, random);
      ASSERT_EQ(wrong, "") << length;
    }
  }
  const std::string longest(kMaxKeyBytes, 'q');
  const std::string too_long(kMaxKeyBytes + 1, 'q');
  ASSERT_EQ(pair.step(0, longest, 1, random), "");
  Index<Bytes>& index = pair.index();
  EXPECT_EQ(index.insert(too_long, 1), Outcome::key_too_long);
  EXPECT_EQ(index.upsert(too_long, 1), Outcome::key_too_long);
  EXPECT_EQ(index.update(too_long, 1), Outcome::absent);
  EXPECT_EQ(index.remove(too_long), Outcome::absent);
  EXPECT_FALSE(index.find(too_long));
  EXPECT_EQ(pair.finish(), "");
}

// A Bytes without an address is the empty key.
TEST_P(ModelOfBytes, NullViewIsTheEmptyKey) {
  Pair<Bytes> pair(GetParam().spec);
  EXPECT_EQ(pair.index().insert(Bytes{}, 9), Outcome::done);
  EXPECT_EQ(pair.index().insert("", 9), Outcome::exists);
  EXPECT_EQ(pair.index().insert("x", 9), Outcome::done);
  EXPECT_EQ(*pair.index().find(Bytes{}), 9U);
  EXPECT_EQ(pair.index().remove(Bytes{}), Outcome::done);
  EXPECT_EQ(pair.index().size(), 1U);
}

EVERLEAF_EVERY_TREE(Model);
EVERLEAF_EVERY_TREE_THAT(ModelOfBytes, has_bytes_keys);

}  // namespace
}  // namespace everleaf::test
