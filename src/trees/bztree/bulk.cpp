// Bulk load: whole leaves behind the last one, each of them one operation (P6).
#include <new>

#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

template <class Keys>
Outcome BzTree<Keys>::bulk_load(std::span<const Entry<Key>> entries, double fill) {
  if (const Outcome admitted = c_.admit(); admitted != Outcome::done) return admitted;
  if (const Outcome refusal = loadable<Keys>(entries); refusal != Outcome::done) return refusal;
  if (const Outcome outcome = collapse(); outcome != Outcome::done) return outcome;
  if (size_of_root_leaf() != 0) return Outcome::not_empty;
  const double wanted = std::clamp(fill, 0.1, 1.0) *
                        (options_.split - free_bytes() - LeafOf::metas_at(options_.page));
  for (std::size_t done = 0; done < entries.size();) {
    Items items;
    std::uint32_t bytes = 0;
    for (std::size_t i = done; i < entries.size() && !is_long(entries[i].key); ++i) {
      const Key key = entries[i].key;
      const Bytes payload = options_.payloads ? payload_of_number(entries[i].value) : Bytes{};
      if (payload.size() > options_.within) break;
      const std::uint32_t total = record_bytes(Keys::bytes_of(key), false, payload.size());
      bytes += total + static_cast<std::uint32_t>(sizeof(Word));
      if (!items.empty() && bytes > wanted) break;
      const Word value = options_.payloads
                             ? PayloadAt{0, static_cast<std::uint32_t>(payload.size())}.word()
                             : entries[i].value;
      const Word top = (value & pmwcas::kControl) != 0 ? Meta::kTop : 0;
      items.push_back({key, value,
                       Meta::entry(0, total, Keys::bytes_of(key), Keys::probe(key).hash, top), 0,
                       payload});
    }
    // Blocks beside the leaf: one by one, a descriptor does not hold so many.
    const bool one = items.empty();
    const Outcome outcome = one ? write(entries[done].key, entries[done].value, Write::insert)
                                : append(items, done == 0 ? nullptr : &entries[done - 1]);
    if (outcome != Outcome::done) return outcome;
    done += one ? 1 : items.size();
  }
  return Outcome::done;
}

// Merges empty leaves that no removal has merged, until the root is one. not_empty: there are keys.
template <class Keys>
Outcome BzTree<Keys>::collapse() {
  Outcome outcome = Outcome::done;
  try {
    Out first;
    outcome = scan(Key{}, std::nullopt, 1, first);
    if (outcome == Outcome::done && !first.empty()) return Outcome::not_empty;
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
  // Once along all leaves, and again: inner nodes of one child have siblings then that fit.
  for (bool changed = true; changed && outcome == Outcome::done;) {
    changed = false;
    std::optional<Owned> key = Keys::own(Key{});
    while (key && outcome == Outcome::done) {
      outcome = c_.with_space([&] { return collapse_at(key, changed); });
    }
  }
  return outcome;
}

// One change on the key's way; where there is none, on to the key of the next leaf.
template <class Keys>
Outcome BzTree<Keys>::collapse_at(std::optional<Owned>& key, bool& changed) {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return Outcome::too_many_threads;
  try {
    keep_spares();
    Path path;
    if (!descend(Keys::probe(*key), Aim::at, path)) return Outcome::corrupt;
    bool merged = path.depth != 0 && status(leaf(path.leaf)).frozen();  // A5
    Outcome outcome = merged ? replace_leaf(path, false) : Outcome::done;
    for (unsigned depth = path.depth; depth > 0 && !merged && outcome == Outcome::done; --depth) {
      merged = (words_->read(parent_of(path, depth).status) & kFrozen) != 0;  // A5
      outcome = merged ? refresh_above(path, depth) : merge(path, depth, merged);
    }
    if (outcome == Outcome::out_of_space) words_->settle();
    changed = changed || merged;
    if (merged || outcome != Outcome::done) return outcome;
    std::optional<Owned> high = bound(path, true);
    if (high && !(Key(*key) < Key(*high))) return Outcome::corrupt;  // would not end
    key = std::move(high);
    return outcome;
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
}

// Of a tree that is one leaf; ~0 of others.
template <class Keys>
std::size_t BzTree<Keys>::size_of_root_leaf() const {
  const alloc::Grace::Pin pin(c_.grace);
  const Offset at = words_->read(&root()->child);
  Items items;
  const bool is_leaf = readable(at) && inner(at).header().level() == 0 && gather(leaf(at), items);
  return is_leaf ? items.size() : ~std::size_t{0};
}

// `before`: the last entry so far; none: the leaf takes the place of the empty one.
template <class Keys>
Outcome BzTree<Keys>::append(const Items& items, const Entry<Key>* before) {
  return c_.with_space([&] {
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    try {
      bool installed = false;
      Outcome outcome = append_leaf(items, before, installed);
      pmwcas::Retries retries(*words_);
      while (outcome == Outcome::done && !installed) {
        outcome = retries.again() ? append_leaf(items, before, installed) : Outcome::corrupt;
      }
      if (outcome == Outcome::out_of_space) words_->settle();
      return outcome;
    } catch (const std::bad_alloc&) {
      return Outcome::out_of_space;
    }
  });
}

template <class Keys>
Outcome BzTree<Keys>::append_leaf(const Items& items, const Entry<Key>* before, bool& installed) {
  Path path;
  if (!descend(Keys::probe(items.front().key), Aim::last, path)) return Outcome::corrupt;
  const unsigned depth = path.depth;
  std::vector<Reserved> fresh;
  fresh.reserve(3);
  const Word parent_status = words_->read(parent_of(path, depth).status);
  if ((parent_status & kFrozen) != 0) return refresh_above(path, depth);
  if (before == nullptr) {
    // Its words may hold references of another thread's last operation still, which is so durably
    // decided before the block is used again.
    bool frozen = false;
    const Outcome outcome = freeze(leaf(path.leaf).status(), frozen);
    if (outcome != Outcome::done || !frozen) return outcome;
    if (const Outcome made = make_leaf(items, Need::growth, fresh); made != Outcome::done)
      return made;
    const std::array<Offset, 1> gone{path.leaf};
    return install(path, depth, parent_status, fresh[0].block(), {}, fresh, gone, installed);
  }
  Content content;
  Word above_status = 0;
  if (depth == 0) {
    content.children.push_back(path.leaf);
  } else {
    above_status = words_->read(parent_of(path, depth - 1).status);
    if ((above_status & kFrozen) != 0) return refresh_above(path, depth - 1);
    content = content_of(inner(path.steps[depth - 1].node));
  }
  Sep separator;
  const Key between = Keys::separator(Key(before->key), items.front().key);
  if (const Outcome owned = own_separator(between, separator, fresh); owned != Outcome::done) {
    return owned;
  }
  content.separators.push_back(separator);
  if (overflows(content, depth)) return split_inner(path, depth - 1, true);
  if (const Outcome made = make_leaf(items, Need::growth, fresh); made != Outcome::done)
    return made;
  content.children.push_back(fresh.back().block());
  if (const Outcome made = make_inner(1, content, Need::growth, fresh); made != Outcome::done)
    return made;
  if (depth == 0) {
    return install(path, 0, parent_status, fresh.back().block(), {}, fresh, {}, installed);
  }
  const Offset parent = path.steps[depth - 1].node;
  const std::array<Offset, 1> gone{parent};
  return install(path, depth - 1, above_status, fresh.back().block(),
                 {inner(parent).status(), parent_status}, fresh, gone, installed);
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
