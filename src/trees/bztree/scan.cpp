// Scans in both directions, leaf by leaf (paper, 4.2.6).
#include <utility>

#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {
namespace {

// Entries: a scan that wants no more hardly needs the next leaf.
constexpr std::size_t kFew = 16;

// What was copied out whole; a scan that stops early may have copied more keys than payloads.
template <class Key>
void move_keys(std::vector<Entry<Key>>& from, std::vector<PayloadEntry<Key>>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].key = std::move(from[i].key);
}

}  // namespace

// What the leaf held at one moment: its status is the same before and afterwards, and every change
// of what is visible changes it. Where writers change it during each of some looks they are asked
// to leave it alone: each may still finish one attempt, which changes the status three times at
// most, and somebody may freeze it. False: the leaf is damaged.
template <class Keys>
bool BzTree<Keys>::snapshot(const LeafOf& leaf, Pairs& pairs) const {
  constexpr std::uint64_t kPatience = 8;
  constexpr std::uint64_t kMost = kPatience + 4 * kMaxThreads;
  for (std::uint64_t look = 1; look <= kMost; ++look) {
    base::reads_discarded();
    const Status before = status(leaf);
    if (!gather(leaf, before, pairs)) return false;
    if (status(leaf).word == before.word) return true;
    if (look != kPatience) continue;
    base::reached("a scan asks writers to leave a leaf alone");
    leaf.ask();
  }
  return false;
}

template <class Keys>
template <class Read>
Outcome BzTree<Keys>::scan_leaves(Key from, std::optional<Key> to, std::size_t limit, Out& out,
                                  Read read) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  Ascent<Keys> ascent(keys_, from, to, limit, out);
  Owned next = Keys::own(from);
  bool is_separator = false;  // next
  // Leaves in a row of which nothing was copied out: empty ones, and those behind separators that
  // merges took away. Of many more than there can be some are met again and again, by damage.
  std::uint64_t barren = 0;
  const auto too_many = [&] {
    return barren > 1000 && barren > 4 * (c_.medium.size() / options_.page);
  };
  Pairs pairs;
  while (true) {
    // One pin per leaf: memory comes back while a long scan goes on.
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Path path;
    if (!descend(Keys::probe(next), Aim::at, path)) return Outcome::corrupt;
    if (limit - out.size() > kFew) expect_neighbour(path, true);
    if (!snapshot(leaf(path.leaf), pairs)) return Outcome::corrupt;
    const std::optional<Owned> low = bound(path, false);
    std::optional<Owned> high = bound(path, true);
    // A leaf has no keys but those between its separators.
    if (!pairs.empty() &&
        ((low && pairs.front().key < Key(*low)) || (high && !(pairs.back().key < Key(*high))))) {
      return Outcome::corrupt;
    }
    // A merge took the separator away: on from where the scan is. Or it is another one, by damage,
    // and leaves are passed over.
    if (std::exchange(is_separator, false) && !(low && Key(*low) == Key(next))) {
      ++barren;
      if (too_many()) return Outcome::corrupt;
      next = Keys::own(ascent.bound());
      continue;
    }
    const std::size_t before = out.size();
    const Taken taken = ascent.take(std::span<const Pair<Key>>(pairs), true);
    const Outcome was_read = read(before);
    if (taken != Taken::on && taken != Taken::complete) return Outcome::corrupt;
    if (taken == Taken::complete || was_read != Outcome::done) return was_read;
    barren = out.size() == before ? barren + 1 : 0;
    if (too_many()) return Outcome::corrupt;
    if (!high || (to && *to < Key(*high))) return Outcome::done;
    if (!(Key(next) < Key(*high))) return Outcome::corrupt;  // would not end
    next = std::move(*high);
    is_separator = true;
  }
}

template <class Keys>
template <class Read>
Outcome BzTree<Keys>::scan_leaves_back(std::optional<Key> from, std::size_t limit, Out& out,
                                       Read read) const {
  out.clear();
  if (limit == 0) return Outcome::done;
  Owned bound_key = Keys::own(from.value_or(Key{}));
  Aim aim = from ? Aim::at : Aim::last;
  Pairs pairs;
  while (true) {
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    Path path;
    if (!descend(Keys::probe(bound_key), aim, path)) return Outcome::corrupt;
    if (limit - out.size() > kFew) expect_neighbour(path, false);
    if (!snapshot(leaf(path.leaf), pairs)) return Outcome::corrupt;
    const std::span<const Pair<Key>> all(pairs);
    const std::size_t before = out.size();
    const Taken taken = take_back(keys_, all, aim, Key(bound_key), limit, out);
    const Outcome was_read = read(before);
    if (taken == Taken::damaged) return Outcome::corrupt;
    if (taken == Taken::complete || was_read != Outcome::done) return was_read;
    std::optional<Owned> low = bound(path, false);
    if (!low) return Outcome::done;
    if (aim == Aim::below && !(Key(*low) < Key(bound_key))) return Outcome::corrupt;
    bound_key = std::move(*low);
    aim = Aim::below;
  }
}

template <class Keys>
Outcome BzTree<Keys>::scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const {
  return scan_leaves(from, to, limit, out,
                     [&](std::size_t first) { return to_numbers(out, first); });
}

template <class Keys>
Outcome BzTree<Keys>::scan_back(std::optional<Key> from, std::size_t limit, Out& out) const {
  return scan_leaves_back(from, limit, out,
                          [&](std::size_t first) { return to_numbers(out, first); });
}

template <class Keys>
Outcome BzTree<Keys>::scan_payloads(Key from, std::optional<Key> to, std::size_t limit,
                                    PayloadsOut& out) const {
  out.clear();
  Out pairs;
  std::uint64_t left = most_copied();
  const Outcome outcome = scan_leaves(from, to, limit, pairs, [&](std::size_t first) {
    return copy_payloads(pairs, first, out, left);
  });
  move_keys(pairs, out);
  return outcome;
}

template <class Keys>
Outcome BzTree<Keys>::scan_payloads_back(std::optional<Key> from, std::size_t limit,
                                         PayloadsOut& out) const {
  out.clear();
  Out pairs;
  std::uint64_t left = most_copied();
  const Outcome outcome = scan_leaves_back(from, limit, pairs, [&](std::size_t first) {
    return copy_payloads(pairs, first, out, left);
  });
  move_keys(pairs, out);
  return outcome;
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
