// What the tests of the store share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <everleaf/store.hpp>

#include "support.hpp"

namespace everleaf::test {

inline StoreOptions small_store(Durability durability, Mode mode = Mode::open_or_create) {
  StoreOptions options;
  options.pool = small_pool(mode);
  options.durability = durability;
  return options;
}

// For Store::anonymous().
inline StoreOptions in_memory(Durability durability) {
  StoreOptions options = small_store(durability);
  options.pool.domain.reset();
  return options;
}

// The value number n: of lengths from nothing to many chunks, each byte of its own.
inline std::string value_of(std::uint64_t n, std::size_t longest = 40000) {
  Random random(n);
  const std::uint64_t kind = random.below(64);
  const std::size_t length = kind == 0   ? random.below(longest)
                             : kind == 1 ? 0
                             : kind < 8  ? random.below(std::min<std::size_t>(longest, 3000))
                                         : random.below(120);
  std::string value(length, '\0');
  for (char& c : value) c = static_cast<char>(random.word());
  return value;
}

using Content = std::map<std::string, std::string>;

// The whole table by a cursor, upwards; and the reason why it ends.
template <class K>
std::map<typename OwnedKey<K>::type, std::string> content_of(const Table<K>& table,
                                                             std::string* wrong = nullptr) {
  std::map<typename OwnedKey<K>::type, std::string> all;
  Cursor<K> cursor = table.cursor();
  for (cursor.first(); cursor.valid(); cursor.next()) {
    all.emplace_hint(all.end(), cursor.key(), cursor.value());
  }
  if (wrong != nullptr) {
    *wrong = cursor.outcome() == Outcome::done ? "" : std::string(to_string(cursor.outcome()));
  }
  return all;
}

// The first problem that check() finds; empty: sound.
inline std::string unsound(const Store& store) {
  const auto report = store.check();
  if (!report) return report.error().message;
  return report->problems.empty() ? "" : report->problems.front();
}

// Of each durability.
class EveryStore : public ::testing::TestWithParam<Durability> {};

}  // namespace everleaf::test

#define EVERLEAF_EVERY_STORE(suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(                                                            \
      Stores, suite,                                                                   \
      ::testing::Values(everleaf::Durability::buffered, everleaf::Durability::strict), \
      [](const auto& one) { return std::string(everleaf::to_string(one.param)); })
