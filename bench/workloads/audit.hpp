// Whether an index holds exactly the live records. Runs between the timed phases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <everleaf/index.hpp>

#include <fmt/format.h>

#include "compare/session.hpp"
#include "plan.hpp"
#include "workloads/keys.hpp"

namespace everleaf::bench {

struct Audit {
  std::string problem;         // empty: all is well
  std::uint64_t last_key = 0;  // largest key number
};

// The smallest key above `key`, or nothing above the largest.
inline std::optional<std::uint64_t> successor(std::uint64_t key) {
  return key == ~std::uint64_t{0} ? std::nullopt : std::optional(key + 1);
}
inline std::optional<std::string> successor(const std::string& key) {
  return key + '\0';
}

// Walks the whole index in batches: keys ascending, every key that of a live record with its value,
// as many as there are live records. So nothing is missing, foreign, or there twice.
template <class K, class Store>
Audit audit_contents(Store& index, const KeyCodec<K>& codec, const KeySpace& keys,
                     const Live& live) {
  constexpr std::size_t kBatch = 1000;
  auto&& store = session_of(index, false);
  Audit audit;
  std::vector<Entry<K>> batch;
  std::uint64_t seen = 0;
  for (std::optional<typename OwnedKey<K>::type> from{std::in_place}; from;) {
    const Outcome outcome = store.scan(*from, kBatch, batch);
    if (outcome != Outcome::done) {
      audit.problem = fmt::format("a scan answered '{}'", to_string(outcome));
      return audit;
    }
    for (const auto& [key, value] : batch) {
      const auto number = codec.number_of(key);
      if (!number || !live.contains(keys.id_of(*number)) || !value_belongs(value, *number)) {
        audit.problem =
            fmt::format("it holds the key {} with value {}, which is not so", key, value);
        return audit;
      }
      if (seen++ > 0 && *number <= audit.last_key) {
        audit.problem = fmt::format("a scan gave the key {} out of order", key);
        return audit;
      }
      audit.last_key = *number;
    }
    if (batch.empty()) break;
    from = successor(batch.back().key);
  }
  if (const std::uint64_t expected = live.size(); seen != expected) {
    audit.problem = fmt::format("it holds {} keys instead of {}", seen, expected);
  }
  return audit;
}

// After updates: the first keys of the sequence that were updated have the new value, not only a
// right one, but for those that the phase also removes. `kinds` as in Sequence.
template <class K, class Store>
std::string audit_updates(Store& index, KeyCodec<K> key, std::span<const std::uint64_t> sequence,
                          std::span<const Phase::Kind> kinds) {
  constexpr std::size_t kMost = 100'000;
  auto&& store = session_of(index, false);
  std::unordered_set<std::uint64_t> removed;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == Phase::Kind::remove) removed.insert(sequence[i]);
  }
  std::size_t seen = 0;
  for (std::size_t i = 0; i < sequence.size() && seen < kMost; ++i) {
    if (!kinds.empty() && !Phase::overwrites(kinds[i])) continue;
    const std::uint64_t number = sequence[i];
    if (removed.contains(number)) continue;
    ++seen;
    const Lookup hit = store.find(key(number));
    if (hit.outcome != Outcome::done || hit.value != value_of(number, 1)) {
      return fmt::format("the key {} lost its update", key(number));
    }
  }
  return {};
}

}  // namespace everleaf::bench
