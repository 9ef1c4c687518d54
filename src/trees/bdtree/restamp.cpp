// D10: tags that are old are made young before they compare wrongly. After steps of the clock, as a
// writer like others, and when a tree is opened; a crash in it changes nothing (A15).
#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

constexpr unsigned kRestampTries = 100;

// Old when it is met, and then two rounds: one that has just passed it and one that meets it last.
// A round takes no longer than its distance from the next, with a leaf number of 32 bits.
constexpr std::uint64_t kOldest = base::kOldTag + 2 * base::kTagRound;
static_assert(kOldest < std::uint64_t{1} << (base::kTagBits - 1));
static_assert(base::kTagBits < 34 || base::kTagRound * base::kTagLeaves >= std::uint64_t{1} << 32);

}  // namespace

template <class Keys>
bool BdTree<Keys>::has_old_tags(const Leaf& leaf, Epoch base) const {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    for (const Word& word : leaf.line(cell)->w) {
      if (is_old(pmem::load(&word), base)) return true;
    }
  }
  return false;
}

// The leaf is ours. Recovery asks for `base` or later: of the words up to it the newest one says
// the same as of `base`, and the others are the answer to nothing. `changed` is told of each line.
template <class Keys>
template <class Changed>
void BdTree<Keys>::restamp(const Leaf& leaf, Epoch base, Changed&& changed) {
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    const Versions v = leaf.versions(cell);
    MetaLine* const line = leaf.line(cell);
    bool here = false;
    for (std::size_t i = 0; i < v.w.size(); ++i) {
      if (!is_old(v.w[i], base)) continue;
      const bool read = i == 0 || after(v.w[i - 1], base);
      const Word young = read ? tag_word(base) | (v.w[i] & (kBitmap | kRetired)) : 0;
      c_.medium.store(&line->w[v.at[i]], young);
      restamped_.fetch_add(1, std::memory_order_relaxed);
      here = true;
    }
    if (here) changed(line);
  }
}

// When nobody else is here; true if something is flushed, and wants a fence.
template <class Keys>
bool BdTree<Keys>::restamp_alone(const Leaf& leaf, Epoch durable) {
  bool wrote = false;
  restamp(leaf, durable, [&](const MetaLine* line) {
    c_.medium.flush(line, sizeof(MetaLine));  // durable before the clock moves far
    wrote = true;
  });
  return wrote;
}

// After each step of the clock.
template <class Keys>
void BdTree<Keys>::look_for_old_tags() {
  const Epoch now = c_.epochs->now();
  if (!in_round_ && now < next_round_) return;
  if (!in_round_) {
    next_round_ = now + base::kTagRound;
    in_round_ = true;
    round_at_ = Owned{};  // no key is smaller
  }
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return;
  Section section(*c_.epochs);
  if (!section.make_room(base::kTagLeaves * options_.shape.cells)) return;
  typename Nodes::Place place;
  unsigned tries = 0;
  while (!nodes_.locate(Keys::probe(round_at_), place)) {
    if (++tries == kRestampTries) return;
  }
  Offset at = place.leaf;
  // A list that no walk has seen may be a circle.
  const std::uint64_t leaves = c_.medium.size() / options_.shape.bytes;
  // Beyond the last leaf of this step to one with a key, which says where the next step begins.
  for (std::uint64_t n = 0; at != 0 && n < leaves; ++n) {
    if (n >= base::kTagLeaves) {
      if (some_key(at, round_at_)) return;
      if (!section.make_room(options_.shape.cells)) return;
    }
    if (!look_at_tags(section, at)) return;
  }
  in_round_ = false;
}

// Goes on to the leaf behind. False: not now.
template <class Keys>
bool BdTree<Keys>::look_at_tags(Section& section, Offset& at) {
  const Epoch base = section.epoch() - 2;
  for (unsigned i = 0; i < kRestampTries && possible(at); ++i) {
    const Leaf here = leaf(at);
    base::VersionLock& lock = lock_of(at);
    const std::uint64_t version = lock.begin();
    // A retired leaf is out of the list long before it is old.
    const bool retired = here.retired();
    const Word links = here.links();
    const bool old = !retired && has_old_tags(here, base);
    if (!lock.unchanged(version)) continue;
    if (old) {
      if (!lock.try_lock(version)) continue;
      const base::Unlock unlock(lock);
      if (!writable(section, here)) return false;
      restamped_in_ = section.epoch();
      restamp(here, base, [&section](const MetaLine* line) { section.note(line); });
    }
    at = retired ? Leaf::replacement_of(links) : Leaf::next_of(links);
    return true;
  }
  return false;
}

// False: the leaf has none, or changes.
template <class Keys>
bool BdTree<Keys>::some_key(Offset at, Owned& key) const {
  if (!possible(at)) return false;
  const Leaf here = leaf(at);
  const base::VersionLock& lock = lock_of(at);
  const std::uint64_t version = lock.begin();
  Word word = 0;
  bool found = false;
  if (!here.retired()) {
    here.for_each([&](std::size_t slot) {
      if (!found) word = pmem::load(&here.slot(slot)->key);
      found = true;
    });
  }
  if (!found || !lock.unchanged(version) || !keys_.readable(word)) return false;
  key = Keys::own(keys_.key_of(word));
  return true;
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
