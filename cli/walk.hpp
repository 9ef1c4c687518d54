// Walking through an index, or its payloads, in batches, in both directions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include <everleaf/index.hpp>

#include "failure.hpp"

namespace everleaf::cli {

template <class K>
struct Range {
  typename OwnedKey<K>::type from{};
  std::optional<typename OwnedKey<K>::type> to;  // nullopt: up to the end
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
};

// What scans of `Source`, an Index<K> or its Payloads<K>, copy out.
template <class K, class Source>
using EntryOf = std::conditional_t<std::is_same_v<Source, Payloads<K>>, PayloadEntry<K>, Entry<K>>;
// At once: payloads may be long.
template <class K, class Source>
inline constexpr std::size_t kBatch = std::is_same_v<Source, Payloads<K>> ? 256 : 4096;

// Calls visit(entry) upwards until it answers false. A batch starts at the last key that was seen,
// so that no successor of a key has to be made up.
template <class K, class Source, class Visit>
void walk(const Source& source, const Range<K>& range, Visit visit) {
  std::vector<EntryOf<K, Source>> batch;
  std::optional<typename OwnedKey<K>::type> last;
  std::uint64_t left = range.limit;
  while (left > 0) {
    const K from = last ? K(*last) : K(range.from);
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(left, kBatch<K, Source>)) + 1;
    const Outcome outcome = range.to ? source.scan(from, K(*range.to), wanted, batch)
                                     : source.scan(from, wanted, batch);
    if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
    const bool seen = last && !batch.empty() && batch.front().key == *last;
    for (std::size_t i = seen ? 1 : 0; i < batch.size() && left > 0; ++i, --left) {
      if (!visit(batch[i])) return;
    }
    if (batch.size() < wanted) return;
    last = batch.back().key;
    // With nothing skipped the batch's last entry has been visited only if the limit allowed it;
    // the limit has then ended the loop.
  }
}

// The same downwards from range.to to range.from.
template <class K, class Source, class Visit>
void walk_back(const Source& source, const Range<K>& range, Visit visit) {
  std::vector<EntryOf<K, Source>> batch;
  std::optional<typename OwnedKey<K>::type> last;
  std::uint64_t left = range.limit;
  while (left > 0) {
    std::optional<K> from;
    if (last) {
      from = K(*last);
    } else if (range.to) {
      from = K(*range.to);
    }
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(left, kBatch<K, Source>)) + 1;
    const Outcome outcome = source.scan_back(from, wanted, batch);
    if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
    const bool seen = last && !batch.empty() && batch.front().key == *last;
    for (std::size_t i = seen ? 1 : 0; i < batch.size() && left > 0; ++i, --left) {
      if (batch[i].key < range.from || !visit(batch[i])) return;
    }
    if (batch.size() < wanted) return;
    last = batch.back().key;
  }
}

}  // namespace everleaf::cli
