// D9: what a crash left, rolled back to the end of the durable epoch (again if it is met by another
// crash, A12, A13), and the inner nodes.
#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "base/parallel.hpp"
#include "pmem/prefetch.hpp"
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
bool BdTree<Keys>::key_range(const Leaf& leaf, Content& content) {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if ((leaf.newest(cell) & kBitmap & ~options_.shape.slot_bits()) != 0) return false;
  }
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
  });
  if (low) content.least = Keys::own(*low);
  if (high) content.largest = Keys::own(*high);
  content.live = low.has_value();
  return sound;
}

// --- The list

// What recovery needs to know of a leaf, as it will be rolled back: the number of the leaf that
// follows (in the survey that of its place), and these.
constexpr Word kNumber = (Word{1} << 40) - 1;
constexpr Word kEnd = kNumber;
constexpr Word kNowhere = kNumber - 1;
constexpr Word kGone = Word{1} << 40;      // retired: what follows is the replacement
constexpr Word kNameless = Word{1} << 41;  // of no durable epoch
constexpr Word kOfTheFuture = Word{1} << 42;
constexpr Word kTaken = Word{1} << 43;  // somebody came from there
constexpr Word kStale = Word{1} << 44;  // has words that go or are made young
// Of 8-byte keys:
constexpr Word kLive = Word{1} << 45;
constexpr Word kUnsound = Word{1} << 46;  // live slots that are not there
// Of a survey of all places:
constexpr Word kMilestone = Word{1} << 47;

template <class Keys>
typename BdTree<Keys>::Seen BdTree<Keys>::look_at(const Leaf& leaf, Epoch durable) const {
  Seen seen{};
  bool retired = false;
  Word flags = 0;
  std::array<Word, kMaxCells> live{};
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    Word newest = 0;
    for (const Word& word : leaf.line(cell)->w) {
      const Word w = pmem::load(&word);
      if (after(w, durable)) {
        flags |= kStale | (after(w, c_.epochs->now()) ? kOfTheFuture : 0);
        continue;
      }
      if (is_old(w, durable)) flags |= kStale;
      if (newer(w, newest)) newest = w;
    }
    if (!present(newest)) flags |= kNameless;
    retired = retired || (cell == 0 && (newest & kRetired) != 0);
    live[cell] = newest & kBitmap;
  }
  const Word links = leaf.links();
  if (retired) {
    seen.step = Leaf::replacement_of(links) / kLeafAlign | flags | kGone;
    return seen;
  }
  if constexpr (!Keys::kRecords) flags |= look_at_keys(leaf, live, seen.range);
  seen.step = Leaf::next_of(links) / kLeafAlign | flags;
  return seen;
}

template <class Keys>
Word BdTree<Keys>::look_at_keys(const Leaf& leaf, const std::array<Word, kMaxCells>& live,
                                Range& range) const {
  Word all = 0;
  Word least = ~Word{0};
  Word largest = 0;
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    all |= live[cell];
    for (Word bits = live[cell] & options_.shape.slot_bits(); bits != 0; bits &= bits - 1) {
      const std::size_t slot = Leaf::slot_of(cell, bits);
      const Word key = pmem::load(&leaf.slot(slot)->key);
      least = std::min(least, key);
      largest = std::max(largest, key);
    }
  }
  range = {least, largest};
  return (all != 0 ? kLive : 0) | ((all & ~options_.shape.slot_bits()) != 0 ? kUnsound : 0);
}

// The list jumps through memory, a miss after the other; so of a large tree all places where leaves
// can be are looked at in their order, leaves or not, by several threads, and the list is followed
// from what they saw: most places are leaves. Not so with keys of bytes, and a file that is open
// for reading may have holes, a hostile one a terabyte of them: there only the chunks that the list
// comes to are looked at.
//
// What was seen is more than a processor's cache holds, so the list is a miss after the other
// there, too. From milestones on, places at equal distances in memory, many stretches of it are
// followed at once, each to the next milestone. Some are of leaves that are free and not of the
// list at all: they only tell what to prefetch when the list comes by.
template <class Keys>
class BdTree<Keys>::Survey {
 public:
  Survey(BdTree& tree, Epoch durable)
      : tree_(tree),
        durable_(durable),
        blocks_(epoch::Space::blocks_of(tree.options_.shape.bytes)),
        many_(tree.space_.chunks() >= kManyChunks),
        all_(many_ && !Keys::kRecords && !tree.c_.sparse),
        chunks_(tree.space_.chunks()) {
    if (!all_) return;
    base::in_parallel(chunks_.size(), kManyChunks, [this](std::size_t chunk, std::size_t end) {
      for (; chunk < end; ++chunk) look_at_chunk(chunk);
    });
    stretches_.resize((chunks_.size() + kMilestoneChunks - 1) / kMilestoneChunks);
    for (std::size_t i = 0; i < stretches_.size(); ++i) seen_at(milestone(i)).step |= kMilestone;
    base::in_parallel(stretches_.size(), kAtOnce,
                      [this](std::size_t first, std::size_t end) { foresee(first, end); });
  }
  // Of the place of a leaf; kEnd for 0.
  [[nodiscard]] Word number_of(Offset at) const {
    if (at == 0) return kEnd;
    epoch::Space::Place place;
    if (!tree_.space_.place_of(at, tree_.options_.shape.bytes, place)) return kNowhere;
    return place.chunk << shift_ | place.block;
  }
  [[nodiscard]] Offset at(std::size_t number) const {
    return tree_.space_.chunk_at(number >> shift_) + block_of(number) * tree_.options_.shape.bytes;
  }
  // What recovery needs to know, with the number of the leaf that follows. None: there is no leaf,
  // or it was asked before: a circle.
  [[nodiscard]] std::optional<Seen> come_to(Word number) {
    if (number == kNowhere) return std::nullopt;
    auto& places = chunks_[number >> shift_];
    if (places == nullptr && many_) look_at_chunk(number >> shift_);
    if (places == nullptr) places = std::make_unique<Seen[]>(blocks_);
    Seen& seen = places[block_of(number)];
    if ((seen.step & kTaken) != 0) return std::nullopt;
    if (!many_) look(number);
    seen.step |= kTaken;
    if ((seen.step & kMilestone) != 0) ahead_ = stretches_[(number >> shift_) / kMilestoneChunks];
    if (!ahead_.empty()) {
      if (ahead_.size() > kPrefetched) prefetch(ahead_[kPrefetched]);
      ahead_ = ahead_.subspan(1);
    }
    return seen;
  }
  // Leaves, if all were looked at.
  [[nodiscard]] std::size_t most() const { return all_ ? chunks_.size() * blocks_ : 0; }
  // Of all leaves that were asked. False: a block is somebody else's.
  [[nodiscard]] bool claim() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      if (chunks_[chunk] == nullptr) continue;
      std::uint64_t taken = 0;
      for (std::size_t i = 0; i < blocks_; ++i) {
        taken |= std::uint64_t{(chunks_[chunk][i].step & kTaken) != 0} << i;
      }
      if (taken != 0 && !tree_.space_.claim_all(chunk, tree_.options_.shape.bytes, taken)) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kManyChunks = 64;  // fewer are in a cache
  static_assert(epoch::kChunkBytes / kLeafAlign < 64);
  static constexpr std::size_t kMilestoneChunks = 64;
  static constexpr std::size_t kAtOnce = 16;  // stretches
  static constexpr std::size_t kPrefetched = 16;

  [[nodiscard]] std::size_t block_of(std::size_t number) const {
    return number & ((std::size_t{1} << shift_) - 1);
  }
  [[nodiscard]] Seen& seen_at(Word number) const {
    return chunks_[number >> shift_][block_of(number)];
  }
  void prefetch(Word number) const { pmem::prefetch(&seen_at(number)); }
  [[nodiscard]] Word milestone(std::size_t i) const { return i * kMilestoneChunks << shift_; }
  // Stretches from these milestones on.
  void foresee(std::size_t first, std::size_t end) {
    struct Walker {
      std::vector<Word>* to = nullptr;
      Word at = 0;
    };
    // A circle of free leaves has no end.
    const std::size_t most = 4 * kMilestoneChunks * blocks_;
    std::array<Walker, kAtOnce> walkers;
    std::size_t n = 0;
    while (first < end || n != 0) {
      for (; first < end && n < kAtOnce; ++first) {
        walkers[n++] = {&stretches_[first], milestone(first)};
        prefetch(milestone(first));
      }
      for (std::size_t i = 0; i < n;) {
        Walker& walker = walkers[i];
        const Word step = seen_at(walker.at).step;
        const Word next = step & kNumber;
        const bool met = (step & kMilestone) != 0 && !walker.to->empty();
        if (met || next >= kNowhere || walker.to->size() == most) {
          walker = walkers[--n];
          continue;
        }
        walker.to->push_back(next);
        walker.at = next;
        prefetch(next);
        ++i;
      }
    }
  }
  void look_at_chunk(std::size_t chunk) {
    chunks_[chunk] = std::make_unique<Seen[]>(blocks_);
    for (std::size_t block = 0; block < blocks_; ++block) look(chunk << shift_ | block);
  }
  void look(std::size_t number) {
    constexpr std::size_t kAhead = 2;
    const Offset here = at(number);
    // Somewhere else at a chunk's end, or nowhere: it only costs time.
    if (all_) tree_.leaf(here + kAhead * tree_.options_.shape.bytes).prefetch();
    Seen seen = tree_.look_at(tree_.leaf(here), durable_);
    seen.step = (seen.step & ~kNumber) | number_of((seen.step & kNumber) * kLeafAlign);
    chunks_[number >> shift_][block_of(number)] = seen;
  }

  BdTree& tree_;
  const Epoch durable_;
  const std::size_t blocks_;  // of a chunk
  // A number is that of the chunk, and below it, in so many bits, that of the block.
  const unsigned shift_ = static_cast<unsigned>(std::bit_width(blocks_));
  const bool many_;
  const bool all_;
  std::vector<std::unique_ptr<Seen[]>> chunks_;  // of a chunk, by block
  std::vector<std::vector<Word>> stretches_;     // by milestone: the places that follow it
  std::span<const Word> ahead_;                  // what is left of the one where the list is
};

// The leaf list from its head on, retired leaves included.
template <class Keys>
Result<void> BdTree<Keys>::follow_list(Survey& survey, std::vector<Listed>& list) {
  Offset before = head();
  for (Word number = survey.number_of(Leaf::next_of(leaf(before).links())); number != kEnd;) {
    const auto seen = survey.come_to(number);
    if (!seen) return corrupt("the leaf list leads to no leaf", before);
    const Offset at = survey.at(number);
    const Word step = seen->step;
    if ((step & kOfTheFuture) != 0) return corrupt("a leaf of an epoch that has not begun", at);
    if ((step & kNameless) != 0) return corrupt("a leaf without a durable epoch", at);
    list.push_back({at, *seen});
    before = at;
    number = step & kNumber;
  }
  if (list.empty()) return corrupt("the leaf list is empty", head());
  if (!survey.claim()) return corrupt("the leaf list leads to no leaf", head());
  return {};
}

// Rolls leaves back; of bytes keys it learns them. False: a write-back failed.
template <class Keys>
bool BdTree<Keys>::restore(std::span<const Listed> list, Epoch durable,
                           std::span<Content> contents) {
  constexpr std::size_t kAhead = Keys::kRecords ? 4 : 16;
  bool wrote = false;
  std::uint64_t words = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i + kAhead < list.size()) {
      const Listed& ahead = list[i + kAhead];
      if (Keys::kRecords) leaf(ahead.leaf).prefetch();
      if (!Keys::kRecords && (ahead.seen.step & kStale) != 0) leaf(ahead.leaf).prefetch_lines();
    }
    const Leaf here = leaf(list[i].leaf);
    if ((list[i].seen.step & kStale) != 0) {
      const std::uint64_t here_back = roll_back(here, durable);
      words += here_back;
      wrote = wrote || here_back != 0;
      if (!c_.read_only) wrote = restamp_alone(here, durable) || wrote;
    }
    if constexpr (Keys::kRecords) {
      contents[i] = {};
      contents[i].sound = (list[i].seen.step & kGone) != 0 || key_range(here, contents[i]);
    }
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
  Survey survey(*this, durable);
  std::vector<Listed> list;
  list.reserve(survey.most());
  if (auto followed = follow_list(survey, list); !followed) return followed;
  children.reserve(list.size());
  std::vector<Offset> waiting;  // retired leaves that are in the list still
  Owned left{};                 // nothing further right is at or below it
  bool has_left = false;
  std::vector<Content> contents(Keys::kRecords ? std::min(list.size(), kBatch) : 0);
  for (std::size_t begin = 0; begin < list.size(); begin += kBatch) {
    const auto batch = std::span(list).subspan(begin, std::min(list.size() - begin, kBatch));
    std::atomic<bool> failed{false};
    const std::size_t workers =
        base::in_parallel(batch.size(), kFewLeaves, [&](std::size_t first, std::size_t end) {
          const std::span<Content> some = Keys::kRecords
                                              ? std::span(contents).subspan(first, end - first)
                                              : std::span(contents);
          if (!restore(batch.subspan(first, end - first), durable, some))
            failed.store(true, std::memory_order_relaxed);  // joined before it is read
        });
    workers_ = std::max(workers_, workers);
    if (failed.load(std::memory_order_relaxed))
      return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Offset at = batch[i].leaf;
      if ((batch[i].seen.step & kGone) != 0) {
        waiting.push_back(at);
        continue;
      }
      Content content = Keys::kRecords ? std::move(contents[i]) : content_of(batch[i].seen);
      if (!content.sound) return corrupt("an impossible key in a leaf", at);
      if (content.live && has_left && !(left < content.least)) {
        return corrupt("a leaf out of order", at);
      }
      const bool first = children.empty();
      // An empty leaf gets the room between its neighbours.
      if (!content.live && !first && !(Key(left) < Key(Keys::successor(left)))) {
        return corrupt("a leaf behind the largest key", at);
      }
      Owned separator = first           ? Owned{}
                        : !content.live ? Keys::own(Keys::successor(left))
                                        : Keys::own(Keys::separator(left, Key(content.least)));
      children.push_back({first ? typename Nodes::Fresh{} : Nodes::fresh(separator), at});
      for (const Offset gone : waiting) retired_later(gone, durable, left);
      waiting.clear();
      if (content.live) left = std::move(content.largest);
      if (!content.live && !first) left = std::move(separator);
      has_left = has_left || content.live || !first;
    }
  }
  if (children.empty()) return corrupt("the leaf list is empty", head());
  for (const Offset gone : waiting) retired_later(gone, durable, left);
  return {};
}

// Of 8-byte keys.
template <class Keys>
typename BdTree<Keys>::Content BdTree<Keys>::content_of(const Seen& seen) {
  Content content;
  if constexpr (!Keys::kRecords) {
    content = {seen.range.least, seen.range.largest, (seen.step & kLive) != 0,
               (seen.step & kUnsound) == 0};
  }
  return content;
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

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
