// D9: what a crash left, rolled back to the end of the durable epoch (again if it is met by another
// crash, A12, A13), and the inner nodes.
#include <algorithm>
#include <span>

#include "base/parallel.hpp"
#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

std::unexpected<Error> corrupt(const char* what, Offset at) {
  return std::unexpected(
      Error{Code::corrupt, std::string(what) + " at offset " + std::to_string(at)});
}

constexpr std::size_t kFewLeaves = 1024;              // fewer are not worth a thread
constexpr std::size_t kBatch = std::size_t{1} << 16;  // leaves whose content is remembered at once

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

// Words of epochs that are not durable go; how many.
template <class Keys>
std::uint64_t BdTree<Keys>::roll_back(const Leaf& leaf, Epoch durable) {
  std::uint64_t words = 0;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    MetaLine* const line = leaf.line(cell);
    const std::uint64_t before = words;
    for (Word& word : line->w) {
      if (!after(pmem::load(&word), durable)) continue;
      c_.medium.store(&word, 0);
      ++words;
    }
    if (words != before) c_.medium.flush(line, sizeof(MetaLine));
  }
  return words;
}

// Of the live entries, whose records become ours. False: a record is impossible.
template <class Keys>
bool BdTree<Keys>::key_range(const Leaf& leaf, Owned& least, Owned& largest, std::size_t& live) {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if ((leaf.newest(cell) & kBitmap & ~options_.shape.slot_bits()) != 0) return false;
  }
  if constexpr (Keys::kRecords) {
    bool sound = true;
    std::optional<Key> low;
    std::optional<Key> high;
    leaf.for_each([&](std::size_t slot) {
      const Word word = pmem::load(&leaf.slot(slot)->key);
      if (!sound || !keys_.readable(word)) {
        sound = false;
        return;
      }
      const Key key = keys_.key_of(word);
      sound = space_.claim(Keys::record_of(word), Keys::record_bytes(key));
      if (!low || key < *low) low = key;
      if (!high || *high < key) high = key;
      ++live;
    });
    if (low) least = Keys::own(*low);
    if (high) largest = Keys::own(*high);
    return sound;
  } else {
    least = ~Word{0};
    largest = 0;
    leaf.for_each([&](std::size_t slot) {
      const Word key = pmem::load(&leaf.slot(slot)->key);
      least = std::min(least, key);
      largest = std::max(largest, key);
      ++live;
    });
    return true;
  }
}

// --- The list

// What the list needs to know of a leaf, as it will be rolled back: the number of the leaf that
// follows, and these.
constexpr Word kGone = Word{1} << 32;      // retired: what follows is the replacement
constexpr Word kNameless = Word{1} << 33;  // of no durable epoch
constexpr Word kOfTheFuture = Word{1} << 34;
constexpr Word kTaken = Word{1} << 35;  // somebody came from there

template <class Keys>
Word BdTree<Keys>::step_from(const Leaf& leaf, Epoch durable) const {
  bool retired = false;
  bool nameless = false;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    Word newest = 0;
    for (const Word& word : leaf.line(cell)->w) {
      const Word w = pmem::load(&word);
      if (!after(w, durable) && newer(w, newest)) newest = w;
    }
    nameless = nameless || !present(newest);
    retired = retired || (cell == 0 && (newest & kRetired) != 0);
  }
  const Word links = leaf.links();
  return (retired ? Leaf::replacement_of(links) : Leaf::next_of(links)) / kLeafAlign |
         (retired ? kGone : 0) | (nameless ? kNameless : 0) |
         (of_the_future(leaf) ? kOfTheFuture : 0);
}

// The list jumps through memory, a miss after the other. Whoever comes to one leaf of a chunk reads
// the steps from all places in it where leaves can be, leaves or not: misses that do not wait for
// each other, and most of them are needed. Blocks are claimed chunk by chunk in the end, likewise.
template <class Keys>
class BdTree<Keys>::Steps {
 public:
  Steps(BdTree& tree, Epoch durable) : tree_(tree), durable_(durable) {
    if (tree.space_.chunks() >= kManyChunks) chunks_.resize(tree.space_.chunks());
  }
  // None: there is no leaf, or it was asked before: a circle.
  [[nodiscard]] std::optional<Word> from(Offset at) {
    const std::size_t bytes = tree_.options_.shape.bytes;
    if (chunks_.empty()) {
      if (!tree_.space_.claim(at, bytes)) return std::nullopt;
      return tree_.step_from(tree_.leaf(at), durable_);
    }
    const auto place = tree_.space_.place_of(at, bytes);
    if (place.block >= place.blocks || place.first + place.block * bytes != at) {
      return std::nullopt;
    }
    Chunk& chunk = chunks_[place.chunk];
    if (chunk.steps == nullptr) {
      chunk = {place.first, place.blocks, std::make_unique<Word[]>(place.blocks)};
      for (std::size_t i = 0; i < place.blocks; ++i)
        chunk.steps[i] = tree_.step_from(tree_.leaf(place.first + i * bytes), durable_);
    }
    Word& step = chunk.steps[place.block];
    if ((step & kTaken) != 0) return std::nullopt;
    step |= kTaken;
    return step;
  }
  // Of all leaves that were asked. False: a block is somebody else's.
  [[nodiscard]] bool claim() {
    const std::size_t bytes = tree_.options_.shape.bytes;
    for (const Chunk& chunk : chunks_) {
      for (std::size_t i = 0; chunk.steps != nullptr && i < chunk.blocks; ++i) {
        const bool taken = (chunk.steps[i] & kTaken) != 0;
        if (taken && !tree_.space_.claim(chunk.first + i * bytes, bytes)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kManyChunks = 64;  // fewer are in a cache
  struct Chunk {
    Offset first = 0;
    std::size_t blocks = 0;
    std::unique_ptr<Word[]> steps;
  };
  BdTree& tree_;
  const Epoch durable_;
  std::vector<Chunk> chunks_;
};

// The leaf list from its head on, retired leaves included.
template <class Keys>
Result<void> BdTree<Keys>::follow_list(Epoch durable, std::vector<Listed>& list) {
  Steps steps(*this, durable);
  for (Offset at = Leaf::next_of(leaf(head()).links()); at != 0;) {
    const auto step = possible(at) ? steps.from(at) : std::nullopt;
    if (!step) return corrupt("the leaf list leads to no leaf", at);
    if ((*step & kOfTheFuture) != 0) return corrupt("a leaf of an epoch that has not begun", at);
    if ((*step & kNameless) != 0) return corrupt("a leaf without a durable epoch", at);
    list.push_back({at, (*step & kGone) != 0});
    at = (*step & 0xFFFFFFFF) * kLeafAlign;
  }
  if (list.empty()) return corrupt("the leaf list is empty", head());
  if (!steps.claim()) return corrupt("the leaf list leads to no leaf", head());
  return {};
}

// Rolls leaves back and learns their keys. False: a write-back failed.
template <class Keys>
bool BdTree<Keys>::restore(std::span<const Listed> list, Epoch durable,
                           std::span<Content> contents) {
  constexpr std::size_t kAhead = 4;
  bool wrote = false;
  std::uint64_t words = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + kAhead < list.size()) leaf(list[i + kAhead].leaf).prefetch();
    const Leaf here = leaf(list[i].leaf);
    const std::uint64_t here_back = roll_back(here, durable);
    words += here_back;
    wrote = wrote || here_back != 0;
    if (!c_.read_only) wrote = restamp_alone(here, durable) || wrote;
    Content& content = contents[i];
    content.live = 0;
    content.sound =
        list[i].retired || key_range(here, content.least, content.largest, content.live);
  }
  rolled_back_.fetch_add(words, std::memory_order_relaxed);
  // P5: durable before epoch numbers that were rolled back are used again
  // crash: fence stays: mark_open() fences next, too, but need not know of this
  return !wrote || c_.medium.fence();
}

// The leaf list, rolled back.
template <class Keys>
Result<void> BdTree<Keys>::walk(Children& children) {
  const Epoch durable = c_.epochs->durable();
  std::vector<Listed> list;
  if (auto followed = follow_list(durable, list); !followed) return followed;
  std::vector<Offset> waiting;  // retired leaves that are in the list still
  Owned left{};                 // nothing further right is at or below it
  bool has_left = false;
  std::vector<Content> contents(std::min(list.size(), kBatch));
  for (std::size_t begin = 0; begin < list.size(); begin += kBatch) {
    const auto batch = std::span(list).subspan(begin, std::min(list.size() - begin, kBatch));
    std::atomic<bool> failed{false};
    const std::size_t workers =
        base::in_parallel(batch.size(), kFewLeaves, [&](std::size_t first, std::size_t end) {
          if (!restore(batch.subspan(first, end - first), durable,
                       std::span(contents).subspan(first, end - first)))
            failed.store(true, std::memory_order_relaxed);  // joined before it is read
        });
    workers_ = std::max(workers_, workers);
    if (failed.load(std::memory_order_relaxed))
      return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const auto [at, retired] = batch[i];
      Content& content = contents[i];
      if (retired) {
        waiting.push_back(at);
        continue;
      }
      if (!content.sound) return corrupt("an impossible key in a leaf", at);
      const bool live = content.live != 0;
      if (live && has_left && !(left < content.least)) return corrupt("a leaf out of order", at);
      const bool first = children.empty();
      // An empty leaf gets the room between its neighbours.
      Owned separator = first   ? Owned{}
                        : !live ? Keys::own(Keys::successor(left))
                                : Keys::own(Keys::separator(left, Key(content.least)));
      children.push_back({first ? typename Nodes::Fresh{} : Nodes::fresh(separator), at});
      for (const Offset gone : waiting) retired_later(gone, durable, left);
      waiting.clear();
      if (live) left = std::move(content.largest);
      if (!live && !first) left = std::move(separator);
      has_left = has_left || live || !first;
    }
  }
  if (children.empty()) return corrupt("the leaf list is empty", head());
  for (const Offset gone : waiting) retired_later(gone, durable, left);
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
