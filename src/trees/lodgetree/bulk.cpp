// Bulk load: the leaves of a new last-level node are a chain, which one word links (P13, A15).
#include <algorithm>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

// Leaves of one chain, and the blocks that they are made of.
template <class Keys>
struct LodgeTree<Keys>::Chain {
  explicit Chain(epoch::Space& space) : space_(space) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain() {
    for (const Offset block : blocks_) space_.free(block);
  }
  // 0: out of space.
  [[nodiscard]] Offset get(std::size_t bytes) {
    blocks_.reserve(blocks_.size() + 1);
    const Offset at = space_.reserve(bytes);
    if (at != 0) blocks_.push_back(at);
    return at;
  }
  void keep() { blocks_.clear(); }

  struct Link {
    Offset leaf;
    Fresh separator;
  };
  std::vector<Link> links;
  std::size_t missing = 0;  // bytes, where space ended

 private:
  epoch::Space& space_;
  std::vector<Offset> blocks_;
};

// Fills free slots from the first one on; false: out of space. P13: nobody reaches them.
template <class Keys>
bool LodgeTree<Keys>::fill(const Leaf& leaf, Entries entries, Chain& chain) {
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Key key = entries[i].key;
    Word word = 0;
    if constexpr (Keys::kRecords) {
      const Offset block = chain.get(Keys::record_bytes(key));
      chain.missing = Keys::record_bytes(key);
      if (block == 0) return false;
      word = keys_.write_record(block, key);
      flush(c_.medium.at(block), Keys::record_bytes(key));  // P13
    } else {
      word = key;
    }
    store_slot(leaf, i, word, entries[i].value, Keys::fingerprint_of(key));
  }
  flush_slots(leaf, (Word{1} << entries.size()) - 1);
  return true;
}

// One more leaf of the chain. `before`: the largest key on its left.
template <class Keys>
bool LodgeTree<Keys>::add_link(Entries entries, Key before, Word stamp, Chain& chain) {
  const Owned low = Keys::own(Keys::separator(before, Key(entries.front().key)));
  const Offset at = chain.get(options_.shape.bytes);
  chain.missing = options_.shape.bytes;
  if (at == 0) return false;
  Word low_word = 0;
  if constexpr (Keys::kRecords) {
    const Offset block = chain.get(Keys::record_bytes(Key(low)));
    chain.missing = Keys::record_bytes(Key(low));
    if (block == 0) return false;
    low_word = keys_.write_record(block, Key(low));
    flush(c_.medium.at(block), Keys::record_bytes(Key(low)));  // P13
  } else {
    low_word = low;
  }
  const Leaf here = leaf(c_.medium.at(at));
  for (std::size_t i = 0; i < options_.shape.slots_at; i += sizeof(Word)) {
    c_.medium.store(c_.medium.template at<Word>(at + i), 0, 0);
  }
  if (!fill(here, entries, chain)) return false;
  c_.medium.store(&here.line()->w, (Word{1} << entries.size()) - 1);
  c_.medium.store(&here.line()->stamp, stamp);
  c_.medium.store(&here.line()->low, low_word);
  chain.links.push_back({at, Upper::fresh(low)});
  return true;
}

// P13: the chain is durable before the word of the last leaf turns to it. `first`: pairs that the
// leaf itself gets with that.
template <class Keys>
Outcome LodgeTree<Keys>::link(const Leaf& last, std::size_t first, Chain& chain, unsigned slot) {
  for (std::size_t i = 0; i < chain.links.size(); ++i) {
    const Leaf here = leaf(c_.medium.at(chain.links[i].leaf));
    const Offset next = i + 1 < chain.links.size() ? chain.links[i + 1].leaf : 0;
    c_.medium.store(&here.line()->links, next / kLeafAlign);
    flush(here.base(), options_.shape.slots_at);  // P13
  }
  if (first != 0) flush_prints(last);
  const Offset head = chain.links.empty() ? 0 : chain.links.front().leaf;
  c_.medium.store(&last.line()->links, last.with_spare(head), 4);
  // crash: flush stays: only a disk that keeps the word alone, over an old link, would show it
  flush(last.line(), sizeof(LeafLine));
  if (!fence(slot)) return Outcome::io_error;  // P13
  {
    const base::Durable durable;
    c_.medium.store(&last.line()->w, (last.w() | ((Word{1} << first) - 1)) ^ kUse);
  }
  flush(last.line(), sizeof(LeafLine));
  return fence(slot) ? Outcome::done : Outcome::io_error;  // P13
}

// As much as one node takes, behind the last leaf. `done`: entries that are loaded.
template <class Keys>
Outcome LodgeTree<Keys>::append_node(Entries entries, std::size_t each, std::size_t& done,
                                     std::size_t& missing) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return Outcome::too_many_threads;
  const unsigned slot = base::thread_slot();
  Path path;
  while (!upper_.descend(Keys::probe(Key{}), Aim::last, path) || !upper_.make_room(path)) {
  }
  Node& node = *reinterpret_cast<Node*>(path.leaf);
  const Leaf last = leaf(node.leaf(node.leaves() - 1));
  Chain chain(space_);
  const std::size_t most = std::max(1U, (options_.slots - 2) * 2 / 3);
  const std::size_t in_last = done == 0 ? std::min(each, entries.size()) : 0;
  if (in_last != 0 && !fill(last, entries.first(in_last), chain)) {
    missing = chain.missing;
    return Outcome::out_of_space;
  }
  std::size_t now = done + in_last;
  while (now < entries.size() && chain.links.size() < most) {
    const Entries some = entries.subspan(now, std::min(each, entries.size() - now));
    if (!add_link(some, Key(entries[now - 1].key), node.sequence, chain)) break;
    now += some.size();
  }
  missing = chain.missing;
  if (now == done) return Outcome::out_of_space;
  Node* const fresh = make_node();
  fresh->sequence = node.sequence;
  base::LockSet locks;
  auto& above = path.parent();
  if (!locks.try_lock(above.node->lock, above.version) ||
      !locks.try_lock(node.latch, node.latch.begin())) {
    locks.release(false);
    base::NodeArena::free(fresh);
    return Outcome::done;  // again
  }
  const Outcome linked = link(last, in_last, chain, slot);
  if (linked != Outcome::done) return linked;
  if (in_last != 0) node.enter(node.leaves() - 1, last);
  if (chain.links.empty()) {
    base::NodeArena::free(fresh);
  } else {
    Fresh up = std::move(chain.links.front().separator);
    for (std::size_t i = 0; i < chain.links.size(); ++i) {
      auto& one = chain.links[i];
      fresh->append_leaf(i == 0 ? Fresh{} : std::move(one.separator), leaf(c_.medium.at(one.leaf)));
    }
    node.right.store(fresh, std::memory_order_release);
    Upper::insert_after(*above.node, above.position, std::move(up),
                        reinterpret_cast<std::uint64_t>(fresh));
  }
  chain.keep();
  done = now;
  return Outcome::done;
}

// Of a tree that is one empty leaf; any other empty tree takes the entries one by one.
template <class Keys>
Outcome LodgeTree<Keys>::load(Entries entries, std::size_t each) {
  bool tried = false;
  for (std::size_t done = 0; done < entries.size();) {
    std::size_t missing = 0;
    Outcome outcome = append_node(entries, each, done, missing);
    if (outcome == Outcome::out_of_space) outcome = more_space(missing, tried);
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

template <class Keys>
Outcome LodgeTree<Keys>::bulk_load(Entries entries, double fill) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  Out one;
  if (const Outcome outcome = scan(Key{}, std::nullopt, 1, one); outcome != Outcome::done) {
    return outcome;
  }
  if (!one.empty()) return Outcome::not_empty;
  if (const Outcome refused = loadable<Keys>(entries); refused != Outcome::done) return refused;
  if (!begun_.load(std::memory_order_acquire)) {
    if (const Outcome begun = begin_session(); begun != Outcome::done) return begun;
  }
  try {
    bool blank = flush_all();
    std::size_t leaves = 0;
    for_each_node([&](const Node& node, const Owned*) {
      leaves += node.leaves();
      blank = blank && node.buffered() == 0;
    });
    const double wanted = std::clamp(fill, 0.1, 1.0) * options_.t_split;
    if (blank && leaves == 1)
      return load(entries, std::max<std::size_t>(1, static_cast<std::size_t>(wanted)));
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
  for (const auto& entry : entries) {
    const Outcome outcome = write(entry.key, entry.value, Write::insert);
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
