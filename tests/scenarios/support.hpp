// What all scenarios share: the list of cases, keys, the model and temporary pools.
//
// A case is one option set of one tree with one kind of keys. The list comes from the registry, so
// a new tree runs everything here by being registered.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <everleaf/index.hpp>

#include <gtest/gtest.h>

namespace everleaf::test {

struct Case {
  std::string spec;
  KeyType keys;
};
std::ostream& operator<<(std::ostream& out, const Case& c);
// All, or those that a scenario is about: what does not concern a case is not instantiated for it.
std::vector<Case> every_case(bool (*wanted)(const Case&) = nullptr);
std::string name_of(const ::testing::TestParamInfo<Case>& info);

// EVERLEAF_TEST_SCALE (default 1) makes the long tests longer; sanitizers make them shorter.
double scale();
std::size_t scaled(std::size_t n);

// The same in every run of a test; EVERLEAF_TEST_SEED=random is a new one, and a number that one.
// Printed, so that a failure can be repeated.
std::uint64_t seed();

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t word() { return engine_(); }
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

// A directory in memory where there is one, gone at the end.
class Scratch {
 public:
  Scratch();
  explicit Scratch(const std::filesystem::path& parent);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const {
    return path_ / name;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<std::byte> read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes);

// A pool in the `process` domain that reserves little address space and cannot grow large.
inline constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
inline PoolOptions small_pool(Mode mode = Mode::open_or_create) {
  PoolOptions options;
  options.mode = mode;
  options.domain = Domain::process;
  options.max_bytes = kMostBytes;
  options.epoch_length = std::chrono::milliseconds(1);  // many epochs in a short test
  return options;
}
inline constexpr std::size_t kPage = 4096;  // of a page cache
// The same in the `disk` domain, wherever the file lies; a shared mapping.
inline PoolOptions on_disk() {
  PoolOptions options = small_pool();
  options.domain = Domain::disk;
  options.emulate = true;
  options.private_bytes = 0;
  return options;
}
// As it is by default: the file has what was written back, page by page.
inline PoolOptions in_copies(PoolOptions options) {
  options.private_bytes.reset();
  return options;
}
// Only one thread runs: hooks may be set.
inline PoolOptions on_disk_by_hand() {
  PoolOptions options = on_disk();
  options.epoch_length = {};
  return options;
}
inline PoolOptions quick_epochs() {
  PoolOptions options;
  options.epoch_length = std::chrono::microseconds(50);
  return options;
}

template <class K>
using Owned = typename OwnedKey<K>::type;
template <class K>
using Map = std::map<Owned<K>, std::uint64_t>;

// Keys for tests.
template <class K>
struct Keys {
  // The n-th key of an ascending sequence with gaps.
  static Owned<K> nth(std::uint64_t n);
  // Extremes and families with common prefixes: the same small set again and again.
  static Owned<K> odd(Random& random);
  // A key close to this one, above or below it.
  static Owned<K> near(const Owned<K>& key, Random& random);
  static KeyType type();
};
template <>
std::uint64_t Keys<std::uint64_t>::nth(std::uint64_t n);
template <>
std::uint64_t Keys<std::uint64_t>::odd(Random& random);
template <>
std::uint64_t Keys<std::uint64_t>::near(const std::uint64_t& key, Random& random);
template <>
KeyType Keys<std::uint64_t>::type();
template <>
std::string Keys<Bytes>::nth(std::uint64_t n);
template <>
std::string Keys<Bytes>::odd(Random& random);
template <>
std::string Keys<Bytes>::near(const std::string& key, Random& random);
template <>
KeyType Keys<Bytes>::type();

// 0, all ones, few repeated numbers, anything.
std::uint64_t odd_value(Random& random);

enum class Do : std::uint8_t { insert, update, upsert, remove };
std::string_view to_string(Do what);

template <class K>
struct Op {
  Do what = Do::insert;
  Owned<K> key{};
  std::uint64_t value = 0;
};

std::string show(std::uint64_t key);
std::string show(const std::string& key);
template <class K>
std::string show(const Op<K>& op) {
  return std::string(to_string(op.what)) + "(" + show(op.key) + ", " + show(op.value) + ")";
}

// What the operation answers on this map.
template <class K>
Outcome answer(const Map<K>& map, const Op<K>& op) {
  const bool there = map.contains(op.key);
  if (op.what == Do::insert) return there ? Outcome::exists : Outcome::done;
  if (op.what == Do::upsert) return Outcome::done;
  return there ? Outcome::done : Outcome::absent;
}

template <class K>
Outcome apply(Map<K>& map, const Op<K>& op) {
  const Outcome outcome = answer<K>(map, op);
  if (outcome != Outcome::done) return outcome;
  if (op.what == Do::remove) {
    map.erase(op.key);
  } else {
    map[op.key] = op.value;
  }
  return outcome;
}

template <class K>
Outcome apply(Index<K>& index, const Op<K>& op) {
  switch (op.what) {
    case Do::insert:
      return index.insert(op.key, op.value);
    case Do::update:
      return index.update(op.key, op.value);
    case Do::upsert:
      return index.upsert(op.key, op.value);
    case Do::remove:
      return index.remove(op.key);
  }
  return Outcome::corrupt;
}

inline constexpr std::size_t kAll = ~std::size_t{0};

template <class K>
std::vector<Entry<K>> entries_of(const Map<K>& map) {
  std::vector<Entry<K>> all;
  all.reserve(map.size());
  for (const auto& [key, value] : map) all.push_back({key, value});
  return all;
}

// How a scan differs from the map; empty: not at all.
template <class K>
std::string difference(const std::vector<Entry<K>>& seen, const Map<K>& map) {
  auto expected = map.begin();
  for (std::size_t i = 0; i < seen.size(); ++i, ++expected) {
    if (expected == map.end()) return "scan: " + show(seen[i].key) + " behind the last key";
    if (seen[i].key != expected->first) {
      return "scan: entry " + std::to_string(i) + " is " + show(seen[i].key) + ", not " +
             show(expected->first);
    }
    if (seen[i].value != expected->second) {
      return "scan: the value of " + show(seen[i].key) + " is " + show(seen[i].value) + ", not " +
             show(expected->second);
    }
  }
  return expected == map.end() ? "" : "scan: ends before " + show(expected->first);
}

// find_many() of every `step`-th key that is there, and of as many that may not be, against the
// map.
template <class K>
std::string compare_many(const Index<K>& index, const std::vector<Entry<K>>& there,
                         const Map<K>& map, std::size_t step) {
  Random random(there.size());
  std::vector<Owned<K>> asked;
  for (std::size_t i = 0; i < there.size(); i += step) {
    asked.push_back(there[i].key);
    asked.push_back(Keys<K>::near(there[i].key, random));
  }
  const std::vector<K> keys(asked.begin(), asked.end());
  std::vector<Lookup> answers;
  index.find_many(keys, answers);
  if (answers.size() != keys.size()) return "find_many: another number of answers";
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto expected = map.find(asked[i]);
    const bool same = expected == map.end() ? answers[i].outcome == Outcome::absent
                                            : answers[i] && *answers[i] == expected->second;
    if (!same) {
      return "find_many, key " + std::to_string(i) + ", " + show(asked[i]) + ": " +
             std::string(everleaf::to_string(answers[i].outcome));
    }
  }
  return {};
}

// Everything in the index against the map: both scans, size, and finds of every `step`-th key.
template <class K>
std::string difference(const Index<K>& index, const Map<K>& map, std::size_t step = 1) {
  std::vector<Entry<K>> seen;
  if (const Outcome outcome = index.scan(K{}, kAll, seen); outcome != Outcome::done) {
    return "scan: " + std::string(everleaf::to_string(outcome));
  }
  if (std::string wrong = difference<K>(seen, map); !wrong.empty()) return wrong;
  std::vector<Entry<K>> back;
  if (const Outcome outcome = index.scan_back(std::nullopt, kAll, back); outcome != Outcome::done) {
    return "scan_back: " + std::string(everleaf::to_string(outcome));
  }
  if (!std::equal(seen.begin(), seen.end(), back.rbegin(), back.rend())) {
    return "scan_back is not the reverse of scan";
  }
  if (index.size() != map.size()) return "size() is " + std::to_string(index.size());
  for (std::size_t i = 0; i < seen.size(); i += step) {
    const Lookup hit = index.find(seen[i].key);
    if (!hit || *hit != seen[i].value) {
      return "find(" + show(seen[i].key) + "): " + std::string(everleaf::to_string(hit.outcome));
    }
  }
  return compare_many(index, seen, map, step);
}

// One scan with these bounds, upwards and downwards, against the map.
template <class K>
std::string compare_scan(const Index<K>& index, const Map<K>& map, const Owned<K>& from,
                         const Owned<K>& to, std::size_t limit) {
  std::vector<Entry<K>> seen;
  std::vector<Entry<K>> expected;
  const auto enough = [&] { return expected.size() >= limit; };
  for (auto it = map.lower_bound(from); it != map.end() && !enough(); ++it) {
    expected.push_back({it->first, it->second});
  }
  Outcome outcome = index.scan(from, limit, seen);
  if (outcome != Outcome::done || seen != expected) return "scan from " + show(from);
  while (!expected.empty() && expected.back().key > to) expected.pop_back();
  outcome = index.scan(from, to, limit, seen);
  if (outcome != Outcome::done || seen != expected) {
    return "scan from " + show(from) + " to " + show(to);
  }
  expected.clear();
  for (auto it = map.upper_bound(from); it != map.begin() && !enough();) {
    --it;
    expected.push_back({it->first, it->second});
  }
  outcome = index.scan_back(K(from), limit, seen);
  if (outcome != Outcome::done || seen != expected) return "scan_back from " + show(from);
  return {};
}

// The first problem that check() finds, empty: sound.
std::string unsound(const Pool& pool);
// One of the figures that only this kind of tree has.
std::uint64_t figure(const Stats& stats, std::string_view name);

template <class K>
Op<K> random_op(Random& random, const Owned<K>& key) {
  // More growth than shrinkage.
  static constexpr Do kMix[] = {Do::insert, Do::insert, Do::insert, Do::upsert,
                                Do::update, Do::remove, Do::remove};
  return {kMix[random.below(std::size(kMix))], key, odd_value(random)};
}

// Acknowledged: what returned (strict trees), what a sync() covered (buffered ones).
inline const TreeInfo& tree_of(std::string_view spec) {
  return *std::ranges::find(trees(), spec.substr(0, spec.find(':')), &TreeInfo::name);
}
inline bool is_buffered(std::string_view spec) {
  return tree_of(spec).durability == Durability::buffered;
}
inline bool is_latch_free(std::string_view spec) {
  return tree_of(spec).latch_free;
}
inline bool has_own_log(std::string_view spec) {
  return tree_of(spec).recovery == Recovery::replay;
}
inline bool is_buffered_case(const Case& c) {
  return is_buffered(c.spec);
}
inline bool is_strict_case(const Case& c) {
  return !is_buffered(c.spec);
}
inline bool has_bytes_keys(const Case& c) {
  return c.keys == KeyType::bytes;
}

class EveryTree : public ::testing::TestWithParam<Case> {
 protected:
  // Calls body.operator()<K>(spec) with the case's kind of keys.
  template <class F>
  void with_keys(F&& body) {
    SCOPED_TRACE(GetParam().spec);
    if (GetParam().keys == KeyType::u64) {
      body.template operator()<std::uint64_t>(GetParam().spec);
    } else {
      body.template operator()<Bytes>(GetParam().spec);
    }
  }
};

}  // namespace everleaf::test

// Runs a suite over every tree, option set and kind of keys; _THAT: over those that are wanted.
#define EVERLEAF_EVERY_TREE(suite) EVERLEAF_EVERY_TREE_THAT(suite, nullptr)
#define EVERLEAF_EVERY_TREE_THAT(suite, wanted)                                                   \
  INSTANTIATE_TEST_SUITE_P(Trees, suite, ::testing::ValuesIn(everleaf::test::every_case(wanted)), \
                           everleaf::test::name_of)
