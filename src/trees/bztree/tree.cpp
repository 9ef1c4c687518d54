// Options, opening, ways down, look-ups.
#include "trees/bztree/tree.hpp"

#include <string>

#include "base/stopwatch.hpp"
#include "pmem/prefetch.hpp"
#include "trees/many.hpp"

namespace everleaf::tree::bztree {
Result<Options> parse_options(const base::Spec& canonical) {
  const auto bad = [&canonical](std::string_view name, const char* what) {
    return std::unexpected(
        Error{Code::bad_option, "bztree: " + std::string(name) + "=" +
                                    std::string(base::option_of(canonical, name)) + " is " + what});
  };
  const auto page = base::number_of(canonical, "page");
  if (!page || *page < kMinPageBytes || *page > kMaxPageBytes || *page % pmem::kLine != 0) {
    return bad("page", "not a multiple of 64 from 256 to 4096");
  }
  const auto free = base::number_of(canonical, "free");
  if (!free || *free < kMinFreeBytes || *free > *page / 2) {
    return bad("free", "not a number of bytes from 32 to half a page");
  }
  const auto merge = base::number_of(canonical, "merge");
  if (!merge || *merge > 45) return bad("merge", "not a percentage from 0 to 45");
  const auto split = base::number_of(canonical, "split");
  if (!split || *split < 75 || *split > 100) return bad("split", "not a percentage from 75 to 100");
  const auto dead = base::number_of(canonical, "dead");
  if (!dead || *dead < 10 || *dead > 100) return bad("dead", "not a percentage from 10 to 100");
  const std::string_view update = base::option_of(canonical, "update");
  if (update != "pointer" && update != "inline") return bad("update", "none of pointer, inline");
  const std::string_view reserve = base::option_of(canonical, "reserve");
  if (reserve != "status" && reserve != "entry") return bad("reserve", "none of status, entry");
  const std::string_view values = base::option_of(canonical, "values");
  if (values != "numbers" && values != "bytes") return bad("values", "none of numbers, bytes");
  const bool payloads = values == "bytes";
  const auto within = base::number_of(canonical, "inline");
  if (!within || *within > kMaxPageBytes / kLongKeys) {
    return bad("inline", "not a number of bytes from 0 to 512");
  }
  const auto part = [&page](std::uint64_t percent) {
    return static_cast<std::uint32_t>(*page * percent / 100);
  };
  return Options{.page = static_cast<std::uint32_t>(*page),
                 .free = static_cast<std::uint32_t>(*free),
                 .split = part(*split),
                 .merge = part(*merge),
                 .dead = part(*dead),
                 .in_place = update == "pointer",
                 .reserve_entry = reserve == "entry",
                 .payloads = payloads,
                 .within = payloads
                               ? static_cast<std::uint32_t>(std::min(*within, *page / kLongKeys))
                               : std::uint32_t{0}};
}

template <class Keys>
BzTree<Keys>::BzTree(const Context& context, const Options& options)
    : c_(context),
      options_(options),
      keys_(context.medium),
      root_(pmem::load(context.medium.at<Word>(context.root_word))) {}

template <class Keys>
Result<void> BzTree<Keys>::open() {
  if (c_.heap.allocated_bytes(root_) < sizeof(RootAt) || root_ % pmem::kLine != 0) {
    return std::unexpected(Error{Code::corrupt, "the root block is damaged"});
  }
  const Word known = options_.payloads ? kPayloadLayout : kLayout;
  if (const Word layout = pmem::load(&root()->layout); layout != known) {
    return std::unexpected(
        Error{Code::newer_version, "its nodes have layout " + std::to_string(layout) +
                                       ", this release knows " + std::to_string(known) +
                                       " alone: dump it with the release that wrote it"});
  }
  words_ = std::make_unique<Words>(c_.medium, c_.heap, c_.redo, c_.grace, root()->table);
  if (auto recovered = words_->recover(); !recovered) return recovered;  // A9
  // P8, A8: what was reserved before is never taken for a reservation of now (A2).
  const Word epoch = pmem::load(&root()->epoch);
  epoch_.store(epoch + epoch % 2, std::memory_order_release);
  return {};
}

template <class Keys>
bool BzTree<Keys>::closing() {
  (void)words_->settle_all();  // else the next open recovers
  return true;
}

// The first writer of a session makes the epoch odd. Only that is ever written: the next session
// goes on from the next even number, whether this one is closed or not.
template <class Keys>
Outcome BzTree<Keys>::begin_epoch() {
  Word epoch = epoch_.load(std::memory_order_acquire);
  if (epoch % 2 != 0) return Outcome::done;
  c_.medium.store(&root()->epoch, epoch + 1);
  // Before any reservation is durable.
  if (!c_.medium.persist(&root()->epoch, sizeof(Word))) return Outcome::io_error;
  epoch_.compare_exchange_strong(epoch, epoch + 1, std::memory_order_acq_rel);
  return Outcome::done;
}

template <class Keys>
Outcome BzTree<Keys>::outcome_of(Answer answer) {
  switch (answer) {
    case Answer::succeeded:
    case Answer::failed:
      return Outcome::done;
    case Answer::io_error:
      return Outcome::io_error;
    case Answer::out_of_space:
      return Outcome::out_of_space;
    case Answer::corrupt:
      break;
  }
  return Outcome::corrupt;
}

// --- Ways down -----------------------------------------------------------------------------------

// Bytes of the pool from a node on; 0 of none.
template <class Keys>
std::uint64_t BzTree<Keys>::room(Offset node) const {
  const std::uint64_t size = c_.medium.size();
  const bool possible = node >= pmem::kHeapAt && node % pmem::kLine == 0 && node < size;
  return possible ? size - node : 0;
}

template <class Keys>
typename BzTree<Keys>::Way BzTree<Keys>::begin() const {
  return {words_->read(&root()->child), kMaxHeight + 1};
}

// One node; pass(node, position) hears of it and the child that is taken, if it is an inner one.
template <class Keys>
template <class Pass>
typename BzTree<Keys>::Walk BzTree<Keys>::step(const Probe& probe, Aim aim, To to, Way& way,
                                               Pass pass) const {
  // Places in a node follow from its size: of the usual one they are constants.
  if (options_.page == kUsualPageBytes) [[likely]] {
    return step(kUsualPageBytes, probe, aim, to, way, pass);
  }
  return step(options_.page, probe, aim, to, way, pass);
}

template <class Keys>
template <class Pass>
[[gnu::always_inline]] inline typename BzTree<Keys>::Walk BzTree<Keys>::step(
    std::uint32_t page, const Probe& probe, Aim aim, To to, Way& way, Pass& pass) const {
  const std::uint64_t room = this->room(way.node);
  if (room < pmem::kLine) return Walk::damaged;
  InnerOf node = unread(way.node);
  if (node.header().level() >= way.level || !readable(node, page, room)) return Walk::damaged;
  way.level = node.header().level();
  if (way.level == 0) return Walk::there;
  const std::uint32_t position = node.rank(keys_, probe, aim);
  pass(way.node, position);
  way.node = words_->read(node.child(position));
  // At once: the next line would be a miss after the one before.
  const std::byte* const child = c_.medium.at(way.node);
  if (way.level == 1 && to == To::find) {
    LeafOf::prefetch_to_find(child);
  } else if (way.level == 1) {
    pmem::prefetch_lines(child, kUsualPageBytes);
  } else {
    pmem::prefetch_lines(child, InnerOf::searched_bytes(kUsualPageBytes));
  }
  return Walk::on;
}

// From the root on. False: the tree is damaged.
template <class Keys>
template <class Pass>
bool BzTree<Keys>::go_down(const Probe& probe, Aim aim, To to, Offset& leaf, Pass pass) const {
  const base::Stopwatch watch(base::Part::traversal);
  Way way = begin();
  Walk walk = Walk::on;
  while (walk == Walk::on) walk = step(probe, aim, to, way, pass);
  leaf = way.node;
  return walk == Walk::there;
}

template <class Keys>
bool BzTree<Keys>::locate(const Probe& probe, Offset& leaf) const {
  return go_down(probe, Aim::at, To::find, leaf, [](Offset, std::uint32_t) {});
}

template <class Keys>
bool BzTree<Keys>::descend(const Probe& probe, Aim aim, Path& path) const {
  path.depth = 0;
  return go_down(probe, aim, To::all, path.leaf, [&path](Offset node, std::uint32_t position) {
    path.steps[path.depth++] = {node, position};
  });
}

template <class Keys>
typename BzTree<Keys>::Parent BzTree<Keys>::parent_of(const Path& path, unsigned depth) const {
  if (depth == 0) return {&root()->status, &root()->child};
  const Step& step = path.steps[depth - 1];
  const InnerOf node = inner(step.node);
  return {node.status(), node.child(step.position)};
}

// The separator before or behind the path's leaf; none at the ends.
template <class Keys>
std::optional<typename BzTree<Keys>::Owned> BzTree<Keys>::bound(const Path& path, bool high) const {
  for (unsigned depth = path.depth; depth-- > 0;) {
    const Step& step = path.steps[depth];
    const InnerOf node = inner(step.node);
    if (high && step.position < node.separators()) {
      return Keys::own(node.separator(keys_, step.position).key);
    }
    if (!high && step.position > 0) {
      return Keys::own(node.separator(keys_, step.position - 1).key);
    }
  }
  return std::nullopt;
}

template <class Keys>
void BzTree<Keys>::expect_neighbour(const Path& path, bool high) const {
  if (path.depth == 0) return;
  const Step& step = path.steps[path.depth - 1];
  const InnerOf node = inner(step.node);
  if (high ? step.position >= node.separators() : step.position == 0) return;
  const Offset at = words_->read(node.child(high ? step.position + 1 : step.position - 1));
  pmem::prefetch_lines(c_.medium.at(at), kUsualPageBytes);
}

template <class Keys>
Lookup BzTree<Keys>::find(Key key) const {
  const alloc::Grace::Pin pin(c_.grace);
  if (!pin.ok()) return {Outcome::too_many_threads, 0};
  if (keys_.too_long(key)) return {Outcome::absent, 0};
  const Probe probe = Keys::probe(key);
  Offset at = 0;
  if (!locate(probe, at)) return {Outcome::corrupt, 0};
  return number_of(look(probe, at));
}

template <class Keys>
class BzTree<Keys>::Search {
 public:
  Search(const BzTree& tree, Key key) : tree_(tree), probe_(Keys::probe(key)), way_(tree.begin()) {}
  Progress step(Lookup& answer) {
    const Walk walk = tree_.step(probe_, Aim::at, To::find, way_, [](Offset, std::uint32_t) {});
    if (walk == Walk::on) return Progress::on;
    answer = walk == Walk::there ? tree_.number_of(tree_.look(probe_, way_.node))
                                 : Lookup{Outcome::corrupt, 0};
    return Progress::answered;
  }

 private:
  const BzTree& tree_;
  const Probe probe_;
  Way way_;
};

template <class Keys>
void BzTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search>(*this, c_.grace, keys, answers);
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
