// What phases with whole_space leave behind, and whether their answers can be true.
//
// Such phases look for, insert and remove keys that may be there or not. What each must answer
// depends on the order of the threads, so it is judged afterwards, from all answers of the phase:
//   a record that no thread wrote        every answer is known
//   that one thread alone wrote          every answer of that thread is known
//   that several threads wrote           insertions and removals that were done take turns, so
//                                        their difference tells whether the record is there
// Then the audit (audit.hpp) compares the index with the records that must be there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "workloads/keys.hpp"
#include "workloads/sequence.hpp"

namespace everleaf::bench {

// Brings `live` from before the phase to after it. answers[i]: operation i of the sequence was
// done. Returns what is wrong; empty: nothing.
inline std::string settle(Live& live, const KeySpace& keys, std::span<const std::uint64_t> sequence,
                          std::span<const Phase::Kind> kinds, unsigned threads,
                          std::span<const std::uint8_t> answers) {
  using Kind = Phase::Kind;
  constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
  constexpr std::uint32_t kSeveral = kNobody - 1;
  if (live.present.empty()) {
    const IdRange loaded = std::exchange(live.ids, space_of(live.ids));
    live.present.resize(live.ids.size());
    std::fill_n(live.present.begin(), loaded.size(), std::uint8_t{1});
  }
  std::vector<std::uint32_t> writer(live.present.size(), kNobody);
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    if (kinds[i] == Kind::find) continue;
    std::uint32_t& by = writer[keys.id_of(sequence[i]) - live.ids.first];
    const auto thread = static_cast<std::uint32_t>(i % threads);
    by = by == kNobody || by == thread ? thread : kSeveral;
  }
  std::vector<std::int64_t> balance(live.present.begin(), live.present.end());
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const std::uint64_t at = keys.id_of(sequence[i]) - live.ids.first;
    const bool done = answers[i] == 1;
    const bool is_find = kinds[i] == Kind::find;
    const bool is_known = writer[at] == i % threads || (is_find && writer[at] == kNobody);
    const bool right =
        kinds[i] == Kind::upsert || done == (balance[at] == (kinds[i] != Kind::insert));
    if (is_known && !right) {
      return fmt::format("operation {}, {} of the key number {}, answered that it is {}", i,
                         Phase::kNames[static_cast<std::size_t>(kinds[i])], sequence[i],
                         done == (kinds[i] == Kind::insert) ? "absent" : "there");
    }
    if (!done || is_find) continue;
    if (kinds[i] == Kind::upsert) {
      balance[at] = 1;
    } else {
      balance[at] += kinds[i] == Kind::insert ? 1 : -1;
    }
  }
  for (std::size_t at = 0; at < balance.size(); ++at) {
    if (balance[at] != 0 && balance[at] != 1) {
      return fmt::format("the key number {} was inserted {} times more than removed",
                         keys.key_of(live.ids.first + at), balance[at] - live.present[at]);
    }
    live.present[at] = static_cast<std::uint8_t>(balance[at]);
  }
  return {};
}

}  // namespace everleaf::bench
