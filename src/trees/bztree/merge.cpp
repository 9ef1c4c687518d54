// Merges of small nodes with a sibling under the same parent (paper, 5.3): P7.
#include <new>

#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

using pmwcas::Descriptor;
using pmwcas::Durability;

// After a removal: as long as a node on the key's way is small and has a sibling for it. Where
// there is no space, once more when grace periods are over.
template <class Keys>
void BzTree<Keys>::shrink(Key key) {
  const Probe probe = Keys::probe(key);
  if (shrink_once(probe)) return;
  c_.grace.collect_all();
  (void)shrink_once(probe);
}

// False: no space.
template <class Keys>
bool BzTree<Keys>::shrink_once(const Probe& probe) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return true;
  try {
    Outcome outcome = Outcome::done;
    bool merged = true;
    for (unsigned round = 0; merged && outcome == Outcome::done && round < kMaxHeight; ++round) {
      Path path;
      if (!descend(probe, Aim::at, path)) return true;
      merged = false;
      for (unsigned depth = path.depth; depth > 0 && !merged; --depth) {
        if (is_small(path, depth)) outcome = merge(path, depth, merged);
      }
      const LeafOf here = leaf(path.leaf);
      const Status s = status(here);
      if (!merged && outcome == Outcome::done && !s.frozen() && s.deleted() > options_.dead) {
        outcome = restructure(path, false);
      }
    }
    if (outcome != Outcome::out_of_space) return true;
    words_->settle();
    return false;
  } catch (const std::bad_alloc&) {
    return true;  // it stays small
  }
}

template <class Keys>
bool BzTree<Keys>::is_small(const Path& path, unsigned depth) const {
  if (depth < path.depth) {
    const InnerOf node = inner(path.steps[depth].node);
    const std::uint32_t bytes = InnerOf::bytes_for(options_.page, content_of(node).separators) -
                                InnerOf::fixed_bytes(options_.page, 0);
    return bytes < options_.merge || node.separators() == 0;
  }
  const LeafOf node = leaf(path.leaf);
  const Status s = status(node);
  return !s.frozen() && s.block() + s.count() * sizeof(Word) < options_.merge + s.deleted();
}

// One node of both. no_room: they do not fit.
template <class Keys>
Outcome BzTree<Keys>::join(Offset left, const Sep& between, Offset right,
                           std::vector<Reserved>& fresh) {
  if (!readable(left) || !readable(right)) return Outcome::corrupt;
  const InnerOf one = inner(left);
  if (one.header().level() != inner(right).header().level()) return Outcome::corrupt;
  if (one.header().level() == 0) {
    Items items;
    Items more;
    if (!gather(leaf(left), items) || !gather(leaf(right), more)) return Outcome::corrupt;
    items.insert(items.end(), more.begin(), more.end());
    if (bytes_for(items) + free_bytes() > options_.split) return Outcome::exists;
    return make_leaf(items, Need::replacement, fresh);
  }
  Content all = content_of(one);
  const Content more = content_of(inner(right));
  all.separators.push_back(between);
  all.separators.insert(all.separators.end(), more.separators.begin(), more.separators.end());
  all.children.insert(all.children.end(), more.children.begin(), more.children.end());
  if (InnerOf::bytes_for(options_.page, all.separators) > options_.page * kMergedInner / 100)
    return Outcome::exists;
  return make_inner(one.header().level(), all, Need::replacement, fresh);
}

// With the left sibling, else the right one.
template <class Keys>
Outcome BzTree<Keys>::merge(const Path& path, unsigned depth, bool& merged) {
  const Step& step = path.steps[depth - 1];
  const InnerOf parent = inner(step.node);
  const Word parent_status = words_->read(parent.status());
  const Word above_status = words_->read(parent_of(path, depth - 1).status);
  if (((parent_status | above_status) & kFrozen) != 0) return Outcome::done;
  Content content = content_of(parent);
  if (step.position >= content.children.size()) return Outcome::corrupt;  // as in look_above()
  if (content.children[step.position] != node_at(path, depth)) return Outcome::done;
  for (const bool with_left : {true, false}) {
    if (with_left ? step.position == 0 : step.position == content.separators.size()) continue;
    const auto left = static_cast<std::ptrdiff_t>(step.position - (with_left ? 1 : 0));
    const auto at = content.children.begin() + left;
    const Sep between = content.separators[static_cast<std::size_t>(left)];
    std::vector<Reserved> fresh;
    fresh.reserve(2);
    // A look before anything is frozen: they may not fit.
    const Outcome fits = join(at[0], between, at[1], fresh);
    if (fits == Outcome::exists) continue;
    if (fits != Outcome::done) return fits;
    Word* const one = inner(at[0]).status();
    Word* const other = inner(at[1]).status();
    const Word seen = words_->read(one);
    const Word seen_other = words_->read(other);
    if (((seen | seen_other) & kFrozen) != 0) continue;  // serialized behind what goes on there
    fresh.clear();
    Descriptor both = words_->allocate();
    if (!both.ok()) return Outcome::out_of_space;
    both.add_word(one, seen, seen | kFrozen);
    both.add_word(other, seen_other, seen_other | kFrozen);
    if (const Answer frozen = both.execute(Durability::later); frozen != Answer::succeeded) {
      return outcome_of(frozen);
    }
    // What they hold may have grown since.
    if (const Outcome made = join(at[0], between, at[1], fresh); made != Outcome::done) {
      return made == Outcome::exists ? Outcome::done : made;
    }
    std::vector<Offset> gone{at[0], at[1], step.node};
    if (between.record != 0 && inner(at[0]).header().level() == 0) gone.push_back(between.record);
    Offset instead = fresh[0].block();
    *at = instead;
    content.children.erase(at + 1);
    content.separators.erase(content.separators.begin() + left);
    // The root gives way to its only child.
    if (depth != 1 || content.children.size() != 1) {
      const Outcome made = make_inner(parent.header().level(), content, Need::replacement, fresh);
      if (made != Outcome::done) return made;
      instead = fresh.back().block();
    }
    const Outcome outcome = install(path, depth - 1, above_status, instead,
                                    {parent.status(), parent_status}, fresh, gone, merged);
    if (merged) merges_.fetch_add(1, std::memory_order_relaxed);
    return outcome;
  }
  return Outcome::done;
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
