// Bulk load: chains of new leaves, each chain linked by one word (P13, A15).
#include <algorithm>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

// An ascending load leaves full leaves behind it, and nothing in the buffers.
template <class Keys>
Outcome LodgeTree<Keys>::bulk_load(std::span<const everleaf::Entry<Key>> entries, double) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  Out one;
  if (const Outcome outcome = scan(Key{}, std::nullopt, 1, one); outcome != Outcome::done) {
    return outcome;
  }
  if (!one.empty()) return Outcome::not_empty;
  if (const Outcome refused = loadable<Keys>(entries); refused != Outcome::done) return refused;
  for (const auto& entry : entries) {
    const Outcome outcome = write(entry.key, entry.value, Write::insert);
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

template class LodgeTree<U64Keys>;
template class LodgeTree<BytesKeys>;

}  // namespace everleaf::tree::lodgetree
