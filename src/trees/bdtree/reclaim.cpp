// D7: retired leaves leave the list when their end is durable (A8), and are free when that is, too
// (A9, and A10 for key records). Runs after each step of the clock (P4).
#include "trees/bdtree/tree.hpp"

namespace everleaf::tree::bdtree {
namespace {

constexpr unsigned kUnlinks = 64;  // of one search
constexpr unsigned kHops = 4096;   // leaves between where it begins and the retired one
constexpr unsigned kTries = 100;

}  // namespace

template <class Keys>
void BdTree<Keys>::retired_later(Offset leaf, Epoch epoch, Owned key) {
  const base::MutexGuard guard(queue_);
  retired_.push_back({leaf, epoch, std::move(key)});
}

// After each step of the clock. Never twice at once.
template <class Keys>
void BdTree<Keys>::reclaim() {
  const Epoch durable = c_.epochs->durable();
  try {
    free_what_is_durable(durable);
    unlink_retired(durable);
    look_for_old_tags();
  } catch (const std::bad_alloc&) {
    // The rest comes with the next step.
  }
  grace_.tidy();  // what threads left that are idle now
}

template <class Keys>
void BdTree<Keys>::free_what_is_durable(Epoch durable) {
  const alloc::Grace::Pin pin(grace_);
  if (pin.ok()) limbo_.release(durable, grace_);
}

// One that cannot go now moves to the end. None is lost when memory is out: it stays where it is
// until it is unlinked, or has its new place.
template <class Keys>
void BdTree<Keys>::unlink_retired(Epoch durable) {
  std::size_t left = 0;
  {
    const base::MutexGuard guard(queue_);
    left = retired_.size();
  }
  for (; left != 0; --left) {
    const Retired* one = nullptr;
    {
      const base::MutexGuard guard(queue_);
      one = &retired_.front();  // the others add at the end only
    }
    if (one->epoch > durable) return;
    const bool gone = gone_.erase(one->leaf) != 0 || unlink_from_list(one->leaf, one->key);
    const base::MutexGuard guard(queue_);
    if (!gone) retired_.push_back(std::move(retired_.front()));
    retired_.pop_front();
  }
}

// False: not now.
template <class Keys>
bool BdTree<Keys>::unlink_from_list(Offset leaf, const Owned& key) {
  for (unsigned i = 0; i < kTries; ++i) {
    const alloc::Grace::Pin pin(grace_);
    if (!pin.ok()) return false;
    Section section(*c_.epochs);
    if (!section.make_room(kUnlinks)) return false;
    Path path;
    if (!nodes_.descend(Keys::probe(key), Aim::at, path)) continue;
    Offset before = head();
    if (path.has_low) {
      const Owned low = Nodes::low_key(path);
      Path left;
      if (!nodes_.descend(Keys::probe(low), Aim::below, left)) continue;
      before = left.leaf;
    }
    bool found = false;
    if (unlink_behind(section, before, leaf, found) || found) return found;
  }
  return false;
}

// Of what is about to be unlinked on the way to `leaf`: both notes or, without memory, none.
template <class Keys>
void BdTree<Keys>::note_gone(Offset next, Offset leaf, Epoch epoch) {
  if (next != leaf) gone_.insert(next);
  try {
    limbo_.add(next, epoch);
  } catch (...) {
    gone_.erase(next);
    throw;
  }
}

// Unlinks what can be from `before` on, as far as `leaf` is. False: something changed meanwhile.
template <class Keys>
bool BdTree<Keys>::unlink_behind(Section& section, Offset before, Offset leaf, bool& found) {
  const Epoch durable = c_.epochs->durable();
  unsigned hops = 0;
  unsigned unlinks = 0;
  while (hops < kHops && unlinks < kUnlinks) {
    const Leaf here = this->leaf(before);
    const bool is_head = before == head();
    base::VersionLock& lock = lock_of(before);
    const std::uint64_t version = lock.begin();
    if (!is_head && here.retired()) return false;
    const Offset next = Leaf::next_of(here.links());
    if (!lock.unchanged(version)) return false;
    if (next == 0 || !possible(next)) return true;
    const Leaf behind = this->leaf(next);
    const Word newest = behind.newest(0);
    if ((newest & kRetired) == 0) {
      if (found) return true;
      before = next;
      ++hops;
      continue;
    }
    // A retired leaf never changes; one that recovery may need blocks those behind it.
    if (after(newest, durable)) return true;
    const Offset replacement = Leaf::replacement_of(behind.links());
    {
      if (!lock.try_lock(version)) return false;
      const base::Unlock unlock(lock);
      if (!section.is_current() || (!is_head && !writable(section, here))) return false;
      note_gone(next, leaf, section.epoch());
      c_.medium.store(&here.line(0)->links, Leaf::make_links(replacement, 0));
      section.note(here.line(0));
    }
    found = found || next == leaf;
    ++unlinks;
  }
  return true;
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
