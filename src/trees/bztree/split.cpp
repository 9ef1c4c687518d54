// Structure changes by whole nodes (paper, 4.3, 5.1, 5.2): P5, P6.
#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

using pmwcas::Descriptor;
using pmwcas::Durability;

namespace {

Word next_version(Word status) {
  return (status + 1) & (kFrozen - 1);
}

}  // namespace

template <class Keys>
bool BzTree<Keys>::is_long(Key key) const {
  if constexpr (Keys::kInlineBytes) {
    return key.size() > options_.page / kLongKeys;
  } else {
    static_cast<void>(key);
    return false;
  }
}

// --- Fresh nodes ---------------------------------------------------------------------------------

template <class Keys>
std::uint32_t BzTree<Keys>::bytes_for(std::span<const Item<Key>> items) const {
  auto bytes =
      LeafOf::metas_at(options_.page) + static_cast<std::uint32_t>(items.size() * sizeof(Word));
  for (const auto& item : items) bytes += item.record_bytes();
  return bytes;
}

// One of each placement is put aside while there is space: a full pool could neither replace a
// frozen leaf nor merge leaves that its removals have emptied.
template <class Keys>
void BzTree<Keys>::keep_spares() {
  for (const auto placement : {alloc::Placement::anywhere, alloc::Placement::together}) {
    auto& spare = spares_[static_cast<std::size_t>(placement)];
    if (spare.load(std::memory_order_relaxed) != 0) continue;
    Reserved block(c_.heap);
    Offset none = 0;
    if (block.get(options_.page, placement) &&
        spare.compare_exchange_strong(none, block.block(), std::memory_order_acq_rel)) {
      block.keep();
    }
  }
}

// All nodes have a page's size: any one that is freed serves for any other.
template <class Keys>
bool BzTree<Keys>::get_page(Reserved& block, alloc::Placement placement, Need need) {
  if (block.get(options_.page, placement)) return true;
  if (need == Need::growth) return false;
  auto& spare = spares_[static_cast<std::size_t>(placement)];
  block.adopt(spare.exchange(0, std::memory_order_acq_rel));
  return block.block() != 0;
}

// All that lies between the head and the metadata (I6).
template <class Keys>
void BzTree<Keys>::put_fingerprints(std::byte* base, std::span<const Item<Key>> items,
                                    bool has_tops) {
  Word tops = 0;
  for (std::uint32_t i = 0; has_tops && i < items.size(); ++i) {
    tops |= items[i].meta.top() ? LeafOf::top_of(i) : 0;
  }
  const std::uint32_t bytes = options_.page;
  std::size_t i = 0;
  for (std::size_t at = kHeadBytes; at < LeafOf::metas_at(bytes); at += sizeof(Word)) {
    Word some = at == LeafOf::tops_at(bytes) ? tops : 0;
    for (unsigned k = 0; k < sizeof(Word) && i < items.size(); ++k, ++i) {
      some |= Word{LeafOf::fingerprint_of(items[i].meta.tag())} << 8 * k;
    }
    c_.medium.store(reinterpret_cast<Word*>(base + at), some, 0);
  }
}

// Flushed; durable with the fence that comes before it can be seen. A6: until then it is nobody's.
template <class Keys>
Outcome BzTree<Keys>::make_leaf(std::span<const Item<Key>> items, Need need,
                                std::vector<Reserved>& fresh) {
  const std::uint32_t bytes = options_.page;
  // Entries of a damaged leaf may have a record in common.
  if (bytes_for(items) > bytes || items.size() > fingerprints_of(bytes)) return Outcome::corrupt;
  Reserved block(c_.heap);
  if (!get_page(block, alloc::Placement::anywhere, need)) return Outcome::out_of_space;
  std::byte* const base = c_.medium.at(block.block());
  const auto put = [&](std::size_t at, Word word) {
    c_.medium.store(reinterpret_cast<Word*>(base + at), word, 0);
  };
  const bool has_tops = !Keys::kInlineBytes && bytes <= kUsualPageBytes;
  put_fingerprints(base, items, has_tops);
  std::size_t at = LeafOf::metas_at(bytes);
  std::uint32_t end = bytes;
  for (const auto& item : items) {
    const Meta m = item.meta;
    const std::uint32_t total = item.record_bytes();
    end -= total;
    put(at,
        Meta::entry(end, total, m.key_bytes(), m.tag(), m.word & (Meta::kLong | Meta::kTop)).word);
    at += sizeof(Word);
    put(end, item.value & ~pmwcas::kControl);
    if (m.is_long()) {
      put(end + sizeof(Word), item.stored);
    } else {
      Keys::copy_to(base + end + sizeof(Word), item.key);
    }
    if (!item.payload.empty()) {
      std::byte* const to = base + end + record_bytes(m.key_bytes(), m.is_long());
      std::memmove(to, item.payload.data(), item.payload.size());  // as copy_to()
    }
  }
  for (; at < end; at += sizeof(Word)) put(at, 0);
  const auto count = static_cast<std::uint32_t>(items.size());
  put(0, Header::of(bytes, count, 0, has_tops ? LeafOf::kHasTops : 0).word);
  put(sizeof(Word), Status{0}.reserve(count, bytes - end));
  c_.medium.count_written(bytes);
  c_.medium.flush(base, bytes);
  fresh.push_back(std::move(block));
  return Outcome::done;
}

template <class Keys>
Outcome BzTree<Keys>::make_inner(std::uint32_t level, const Content& content, Need need,
                                 std::vector<Reserved>& fresh) {
  if (InnerOf::bytes_for(options_.page, content.separators) > options_.page)
    return Outcome::corrupt;
  Reserved block(c_.heap);
  if (!get_page(block, alloc::Placement::together, need)) return Outcome::out_of_space;
  InnerOf::fill(c_.medium, block.block(), options_.page, level, content.separators,
                content.children);
  fresh.push_back(std::move(block));
  return Outcome::done;
}

template <class Keys>
typename BzTree<Keys>::Content BzTree<Keys>::content_of(const InnerOf& node) const {
  Content content;
  content.children.reserve(node.header().count() + 1);  // a split adds one
  content.separators.reserve(node.header().count());
  for (std::uint32_t i = 0; i < node.header().count(); ++i) {
    content.children.push_back(words_->read(node.child(i)));
    if (i < node.separators()) content.separators.push_back(node.separator(keys_, i));
  }
  return content;
}

// A separator owns its copy of a long key.
template <class Keys>
Outcome BzTree<Keys>::own_separator(Key key, Sep& separator, std::vector<Reserved>& fresh) {
  separator = {Keys::prefix_of(key), key, 0};
  if constexpr (Keys::kRecords) {
    if (!is_long(key)) return Outcome::done;
    Reserved block(c_.heap);
    if (!block.get(Keys::record_bytes(key))) return Outcome::out_of_space;
    keys_.store_record(block.block(), key);
    c_.medium.flush(c_.medium.at(block.block()), Keys::record_bytes(key));
    separator.record = block.block();
    fresh.push_back(std::move(block));
  } else {
    static_cast<void>(fresh);
  }
  return Outcome::done;
}

// --- Installing ----------------------------------------------------------------------------------

// Need not be durable: a frozen node that is reachable is a legal state, and so is one that is not
// frozen any more (A5).
template <class Keys>
Outcome BzTree<Keys>::freeze(Word* status, bool& frozen) {
  const Word seen = words_->read(status);
  if ((seen & kFrozen) == 0) {
    Descriptor change = words_->allocate();
    if (!change.ok()) return Outcome::out_of_space;
    change.add_word(status, seen, seen | kFrozen);
    const Outcome outcome = outcome_of(change.execute(Durability::later));
    if (outcome != Outcome::done) return outcome;
  } else {
    base::reached("A5: a node is frozen already");
  }
  frozen = (words_->read(status) & kFrozen) != 0;
  return Outcome::done;
}

template <class Keys>
Outcome BzTree<Keys>::install(const Path& path, unsigned depth, Word parent_status, Offset to,
                              Freeze also, std::vector<Reserved>& fresh,
                              std::span<const Offset> gone, bool& installed) {
  const Parent parent = parent_of(path, depth);
  Descriptor change = words_->allocate();
  if (!change.ok()) return Outcome::out_of_space;
  change.add_word(parent.child, node_at(path, depth), to);
  change.add_word(parent.status, parent_status, next_version(parent_status));
  if (also.status != nullptr) change.add_word(also.status, also.seen, also.seen | kFrozen);
  for (Reserved& one : fresh) {
    const Offset block = one.block();
    one.keep();  // one in use must not go back
    if (!change.allocates(block)) return Outcome::corrupt;
  }
  for (const Offset block : gone) {
    if (change.frees(block)) continue;
    // Named twice: what was read is of two moments, or the pool is damaged.
    const bool unchanged = words_->read(parent.status) == parent_status &&
                           words_->read(parent.child) == node_at(path, depth) &&
                           (also.status == nullptr || words_->read(also.status) == also.seen);
    return unchanged ? Outcome::corrupt : Outcome::done;
  }
  const Answer answer = change.execute();  // A7
  installed = answer == Answer::succeeded;
  return outcome_of(answer);
}

// Where a leaf has no room, or is frozen: a new one, or two. Anybody may do it; one gets through.
template <class Keys>
Outcome BzTree<Keys>::restructure(const Path& path, bool append) {
  bool frozen = false;
  const Outcome outcome = freeze(leaf(path.leaf).status(), frozen);
  return frozen ? replace_leaf(path, append) : outcome;
}

// Of a frozen leaf.
template <class Keys>
Outcome BzTree<Keys>::replace_leaf(const Path& path, bool append) {
  Items live;
  if (!gather(leaf(path.leaf), live)) return Outcome::corrupt;
  const bool full = bytes_for(live) + free_bytes() > options_.split ||
                    live.size() >= fingerprints_of(options_.page);
  if (!full || live.size() < 2) return consolidate(path, live);
  const Outcome split = split_leaf(path, live, append);
  if (split != Outcome::out_of_space) return split;
  // Not for this change, but for removals: they find no frozen leaf.
  const Outcome copied = consolidate(path, live);
  return copied == Outcome::done ? Outcome::out_of_space : copied;
}

template <class Keys>
Outcome BzTree<Keys>::consolidate(const Path& path, const Items& live) {
  const Word parent_status = words_->read(parent_of(path, path.depth).status);
  if ((parent_status & kFrozen) != 0) return refresh_above(path, path.depth);
  std::vector<Reserved> fresh;
  if (const Outcome made = make_leaf(live, Need::replacement, fresh); made != Outcome::done)
    return made;
  bool installed = false;
  const std::array<Offset, 1> gone{path.leaf};
  const Outcome outcome =
      install(path, path.depth, parent_status, fresh[0].block(), {}, fresh, gone, installed);
  if (installed) consolidations_.fetch_add(1, std::memory_order_relaxed);
  return outcome;
}

// The parent of the node at depth `child` is frozen and reachable: whoever froze it does not go on.
template <class Keys>
Outcome BzTree<Keys>::refresh_above(const Path& path, unsigned child) {
  if (child == 0) return Outcome::corrupt;  // nobody freezes the root block
  const unsigned depth = child - 1;
  const Word parent_status = words_->read(parent_of(path, depth).status);
  if ((parent_status & kFrozen) != 0) return refresh_above(path, depth);
  const InnerOf old = inner(path.steps[depth].node);
  std::vector<Reserved> fresh;
  const Outcome made = make_inner(old.header().level(), content_of(old), Need::replacement, fresh);
  if (made != Outcome::done) return made;
  bool installed = false;
  const std::array<Offset, 1> gone{path.steps[depth].node};
  return install(path, depth, parent_status, fresh[0].block(), {}, fresh, gone, installed);
}

// Status words first, then what they guard. False: the node does not split now, and `outcome` tells
// what became of the attempt.
template <class Keys>
bool BzTree<Keys>::look_above(const Path& path, unsigned depth, Above& above, Outcome& outcome) {
  const Offset node = node_at(path, depth);
  above.parent_status = words_->read(parent_of(path, depth).status);
  if ((above.parent_status & kFrozen) != 0) {
    outcome = refresh_above(path, depth);
    return false;
  }
  if (depth == 0) {
    above.content.children.push_back(node);
    return true;
  }
  const Step& step = path.steps[depth - 1];
  above.position = step.position;
  above.status = words_->read(parent_of(path, depth - 1).status);
  if ((above.status & kFrozen) != 0) {
    outcome = refresh_above(path, depth - 1);
    return false;
  }
  above.content = content_of(inner(step.node));
  if (step.position >= above.content.children.size()) {
    outcome = Outcome::corrupt;  // it was another node on the way down
    return false;
  }
  return above.content.children[step.position] == node;
}

// The node's parent, or a root above it, with two children instead of it. `fresh` ends with them.
template <class Keys>
Outcome BzTree<Keys>::install_pair(const Path& path, unsigned depth, Above& above,
                                   std::vector<Reserved>& fresh, bool& installed) {
  const Offset right = fresh.back().block();
  auto& children = above.content.children;
  children[above.position] = fresh[fresh.size() - 2].block();
  children.insert(children.begin() + above.position + 1, right);
  const std::uint32_t level = inner(right).header().level() + 1;
  if (const Outcome made = make_inner(level, above.content, Need::growth, fresh);
      made != Outcome::done) {
    return made;
  }
  const Offset to = fresh.back().block();
  const Offset node = node_at(path, depth);
  if (depth == 0) {
    return install(path, 0, above.parent_status, to, {}, fresh, std::array{node}, installed);
  }
  const Offset parent = path.steps[depth - 1].node;
  return install(path, depth - 1, above.status, to, {inner(parent).status(), above.parent_status},
                 fresh, std::array{node, parent}, installed);
}

template <class Keys>
Outcome BzTree<Keys>::split_leaf(const Path& path, const Items& live, bool append) {
  Above above;
  Outcome outcome = Outcome::done;
  if (!look_above(path, path.depth, above, outcome)) return outcome;
  const std::size_t keep = append ? live.size() - 1 : live.size() / 2;
  std::vector<Reserved> fresh;
  fresh.reserve(4);
  Sep separator;
  outcome = own_separator(Keys::separator(live[keep - 1].key, live[keep].key), separator, fresh);
  if (outcome != Outcome::done) return outcome;
  above.insert(separator);
  if (overflows(above.content, path.depth)) return split_inner(path, path.depth - 1, append);
  const auto items = std::span(live);
  for (const auto part : {items.first(keep), items.subspan(keep)}) {
    outcome = make_leaf(part, Need::growth, fresh);
    if (outcome != Outcome::done) return outcome;
  }
  bool installed = false;
  outcome = install_pair(path, path.depth, above, fresh, installed);
  if (installed) splits_.fetch_add(1, std::memory_order_relaxed);
  return outcome;
}

// The same for an inner node, whose middle separator moves up.
template <class Keys>
Outcome BzTree<Keys>::split_inner(const Path& path, unsigned depth, bool append) {
  const InnerOf old = inner(path.steps[depth].node);
  const std::uint32_t separators = old.separators();
  if (separators < 3) return Outcome::corrupt;  // it holds more than a page does
  Above above;
  Outcome outcome = Outcome::done;
  if (!look_above(path, depth, above, outcome)) return outcome;
  const std::uint32_t middle = append ? separators - 2 : separators / 2;
  above.insert(old.separator(keys_, middle));
  if (overflows(above.content, depth)) return split_inner(path, depth - 1, append);
  bool frozen = false;
  outcome = freeze(old.status(), frozen);
  if (!frozen) return outcome;
  std::vector<Reserved> fresh;
  fresh.reserve(3);
  const Content all = content_of(old);  // its children change no more
  for (const Content& part : {all.part(0, middle), all.part(middle + 1, separators)}) {
    outcome = make_inner(old.header().level(), part, Need::growth, fresh);
    if (outcome != Outcome::done) return outcome;
  }
  bool installed = false;
  outcome = install_pair(path, depth, above, fresh, installed);
  if (installed) inner_splits_.fetch_add(1, std::memory_order_relaxed);
  return outcome;
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
