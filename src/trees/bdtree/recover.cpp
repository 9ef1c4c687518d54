// D9: what a crash left, rolled back to the end of the durable epoch (again if it is met by another
// crash, A12, A13), and the inner nodes.
#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

std::unexpected<Error> corrupt(const char* what, Offset at) {
  return std::unexpected(
      Error{Code::corrupt, std::string(what) + " at offset " + std::to_string(at)});
}

}  // namespace

// The clock is durable before anything is stored in its epoch: a later word means a damaged clock,
// and erasing would make it worse.
template <class Keys>
bool BdTree<Keys>::of_the_future(const Leaf& leaf) const {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if (after(leaf.newest(cell), c_.epochs->now())) return true;
  }
  return false;
}

// Words of epochs that are not durable go; true if there were any.
template <class Keys>
bool BdTree<Keys>::roll_back(const Leaf& leaf, Epoch durable) {
  bool wrote = false;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    MetaLine* const line = leaf.line(cell);
    bool here = false;
    for (Word& word : line->w) {
      if (!after(pmem::load(&word), durable)) continue;
      c_.medium.store(&word, 0);
      ++rolled_back_;
      here = true;
    }
    if (here) c_.medium.flush(line, sizeof(MetaLine));
    wrote = wrote || here;
  }
  return wrote;
}

// Of the live entries, whose records become ours. False: a record is impossible.
template <class Keys>
bool BdTree<Keys>::key_range(const Leaf& leaf, Owned& least, Owned& largest, std::size_t& live) {
  bool sound = true;
  std::optional<Key> low;
  std::optional<Key> high;
  live = 0;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if ((leaf.newest(cell) & kBitmap & ~options_.shape.slot_bits()) != 0) return false;
  }
  leaf.for_each([&](std::size_t slot) {
    const Word word = pmem::load(&leaf.slot(slot)->key);
    if (!sound || !keys_.readable(word)) {
      sound = false;
      return;
    }
    const Key key = keys_.key_of(word);
    if constexpr (Keys::kRecords) {
      sound = space_.claim(Keys::record_of(word), Keys::record_bytes(key));
    }
    if (!low || key < *low) low = key;
    if (!high || *high < key) high = key;
    ++live;
  });
  if (low) least = Keys::own(*low);
  if (high) largest = Keys::own(*high);
  return sound;
}

// The leaf list from its head, rolled back.
template <class Keys>
Result<void> BdTree<Keys>::walk(Children& children) {
  const Epoch durable = c_.epochs->durable();
  std::vector<Offset> waiting;  // retired leaves that are in the list still
  Owned left{};                 // nothing further right is at or below it
  bool has_left = false;
  bool wrote = false;
  for (Offset at = Leaf::next_of(leaf(head()).links()); at != 0;) {
    // A leaf that is claimed twice is a circle.
    if (!possible(at) || !space_.claim(at, options_.shape.bytes)) {
      return corrupt("the leaf list leads to no leaf", at);
    }
    const Leaf here = leaf(at);
    here.prefetch();
    if (of_the_future(here)) return corrupt("a leaf of an epoch that has not begun", at);
    wrote = roll_back(here, durable) || wrote;
    if (!c_.read_only) wrote = restamp_alone(here, durable) || wrote;
    if (!present(here.newest(0))) return corrupt("a leaf without a durable epoch", at);
    if (here.retired()) {
      waiting.push_back(at);
      at = Leaf::replacement_of(here.links());
      continue;
    }
    Owned least{};
    Owned largest{};
    std::size_t live = 0;
    if (!key_range(here, least, largest, live)) return corrupt("an impossible key in a leaf", at);
    if (live != 0 && has_left && !(left < least)) return corrupt("a leaf out of order", at);
    const bool first = children.empty();
    // An empty leaf gets the room between its neighbours.
    Owned separator = first       ? Owned{}
                      : live == 0 ? Keys::own(Keys::successor(left))
                                  : Keys::own(Keys::separator(left, Key(least)));
    children.push_back({first ? typename Nodes::Fresh{} : Nodes::fresh(separator), at});
    for (const Offset retired : waiting) retired_later(retired, durable, left);
    waiting.clear();
    if (live != 0) left = std::move(largest);
    if (live == 0 && !first) left = std::move(separator);
    has_left = has_left || live != 0 || !first;
    at = Leaf::next_of(here.links());
  }
  if (children.empty()) return corrupt("the leaf list is empty", head());
  for (const Offset retired : waiting) retired_later(retired, durable, left);
  // P5: durable before epoch numbers that were rolled back are used again
  // crash: fence stays: mark_open() fences next, too, but need not know of this
  if (wrote && !c_.medium.fence()) {
    return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
  }
  return {};
}

template <class Keys>
Result<void> BdTree<Keys>::open() {
  const std::uint64_t started = base::now_ns();
  if (head() < pmem::kHeapAt || head() % pmem::kLine != 0 ||
      c_.heap.allocated_bytes(head()) < kRootBytes) {
    return corrupt("there is no root block", head());
  }
  if (space_.open() != Outcome::done)
    return corrupt("impossible extents in the root block", head());
  try {
    Children children;
    from_image_ = load_image(children);
    if (auto dropped = drop_image(); !dropped) return dropped;
    if (!from_image_) {
      if (auto walked = walk(children); !walked) return walked;
    }
    nodes_.build(std::move(children));
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory for the inner nodes"});
  }
  rebuild_ns_ = base::now_ns() - started;
  if (!c_.read_only) {
    if (!from_image_) next_round_ = c_.epochs->now() + base::kTagRound;
    // The last step: who holds the listeners' lock may be opening this tree.
    listener_ = c_.epochs->listen([this] { reclaim(); });
  }
  return {};
}

template class BdTree<U64Keys>;
template class BdTree<BytesKeys>;

}  // namespace everleaf::tree::bdtree
