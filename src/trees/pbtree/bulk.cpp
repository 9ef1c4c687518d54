// Bulk load: leaves are appended at the right end, one redo record each, so that a crash leaves a
// valid tree with a prefix of the entries. P10 and A8 of README.md.
#include <algorithm>

#include "trees/pbtree/tree.hpp"

namespace everleaf::tree::pbtree {

// The entries with their key records, written and activated by the redo record.
template <class Keys>
Outcome PbTree<Keys>::write_entries(Entries entries, alloc::Redo& record,
                                    std::vector<Reserved>& blocks, Sorted& sorted) {
  for (const auto& entry : entries) {
    if constexpr (Keys::kRecords) {
      Reserved& block = blocks.emplace_back(c_.heap);
      if (!block.get(Keys::record_bytes(entry.key))) return Outcome::out_of_space;
      if (!c_.heap.activate(record, block.block())) return Outcome::corrupt;
      sorted.push(keys_.write_record(block.block(), entry.key), entry.value);
    } else {
      sorted.push(entry.key, entry.value);
    }
  }
  return Outcome::done;
}

// One leaf behind the last one; `before` is the last entry so far, or null for the first leaf,
// which takes the place of the empty root.
template <class Keys>
Outcome PbTree<Keys>::append_leaf(Entries entries, const everleaf::Entry<Key>* before,
                                  bool& appended) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  const Key first = entries.front().key;
  Found found;
  if (descend(Keys::probe(first), 0, found) != Walk::there) return Outcome::corrupt;
  Reserved block(c_.heap);
  Reserved separator_block(c_.heap);
  std::vector<Reserved> records;
  Seen fresh;
  if (!reserve_node(block, 0, fresh)) return Outcome::out_of_space;
  alloc::Redo record;
  Sorted sorted;
  if (const Outcome written = write_entries(entries, record, records, sorted);
      written != Outcome::done) {
    return written;
  }
  Word split_key = 0;
  if (before != nullptr) {
    const Outcome owned =
        own_key(Keys::separator(before->key, first), separator_block, record, split_key);
    if (owned != Outcome::done) return owned;
  }
  const NodeOf last = at(found.node);
  base::LockSet locks;
  if (!lock_all(locks, {found, fresh, see(c_.root_word)})) return Outcome::done;
  if (!c_.redo.settle(found.node)) return Outcome::io_error;
  const bool alone = last.left() == 0 && last.right() == 0 && last.used() == 0;
  if (before == nullptr && (!alone || root() != Root{found.node, 0})) return Outcome::not_empty;
  fill(at(fresh.node),
       {.split_key = split_key,
        .left = before == nullptr ? 0 : found.node,
        .next_split_key = split_key},
       sorted.all(), sorted.count / 2);
  Offset freed = 0;
  bool sound = c_.heap.activate(record, fresh.node);
  if (before != nullptr) {
    record.store(c_.medium.offset_of(&last.header()->right), fresh.node);
  } else {
    record.store(c_.root_word, fresh.node);
    sound = sound && c_.heap.release(record, found.node) && release_pivot(last, record, freed);
  }
  // P10: leaf and key records before the record: too many to cover one by one.
  Outcome outcome = Outcome::corrupt;
  if (sound) outcome = c_.medium.fence() ? c_.redo.commit(record) : Outcome::io_error;
  block.settle(outcome);
  separator_block.settle(outcome);
  for (Reserved& key : records) key.settle(outcome);
  if (outcome == Outcome::done && before == nullptr) {
    mark_dead(last);
    c_.grace.retire(found.node);
    if (freed != 0) c_.grace.retire(freed);
  }
  locks.release(true);
  appended = outcome == Outcome::done;
  return appended && before != nullptr ? post(0, Keys::own(keys_.key_of(split_key))) : outcome;
}

template <class Keys>
Outcome PbTree<Keys>::expect_empty() const {
  const auto [node, level] = root();
  if (!possible(node)) return Outcome::corrupt;
  // A tree that was emptied may keep empty leaves. Not pinned: a scan may wait for batches.
  Out first;
  const Outcome scanned = scan(Key{}, std::nullopt, 1, first);
  if (scanned != Outcome::done) return scanned;
  return first.empty() && level == 0 ? Outcome::done : Outcome::not_empty;
}

template <class Keys>
Outcome PbTree<Keys>::bulk_load(Entries entries, double fill) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  if (const Outcome refusal = loadable<Keys>(entries); refusal != Outcome::done) return refusal;
  if (const Outcome refusal = expect_empty(); refusal != Outcome::done) return refusal;
  const double wanted = std::clamp(fill, 0.1, 1.0) * (capacity_ + 1);
  auto each = std::max<std::size_t>(1, static_cast<std::size_t>(wanted));
  // A redo record has room for so many key records.
  if (Keys::kRecords) each = std::min<std::size_t>(each, alloc::Redo::kMax - 16);
  for (std::size_t done = 0; done < entries.size();) {
    const Entries chunk = entries.subspan(done, std::min(each, entries.size() - done));
    bool appended = false;
    const Outcome outcome = c_.with_space([&] {
      return appended ? Outcome::done
                      : append_leaf(chunk, done == 0 ? nullptr : &entries[done - 1], appended);
    });
    if (appended) done += chunk.size();
    if (outcome != Outcome::done && !appended) return outcome;
  }
  return Outcome::done;
}

template Outcome PbTree<U64Keys>::bulk_load(Entries, double);
template Outcome PbTree<BytesKeys>::bulk_load(Entries, double);

}  // namespace everleaf::tree::pbtree
