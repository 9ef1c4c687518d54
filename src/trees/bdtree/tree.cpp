// Construction, reading one key.
#include "trees/bdtree/tree.hpp"

#include <bit>
#include <string>

#include "trees/many.hpp"

namespace everleaf::tree::bdtree {

Result<Options> parse_options(const base::Spec& canonical) {
  const std::string_view node = base::option_of(canonical, "node");
  const auto bytes = base::number_of(canonical, "node");
  if (!bytes || *bytes < 256 || *bytes > 2048 || !std::has_single_bit(*bytes)) {
    return std::unexpected(Error{Code::bad_option, "bdtree: node=" + std::string(node) +
                                                       " is none of 256, 512, 1024 and 2048"});
  }
  return Options{make_shape(*bytes)};
}

template <class Keys>
BdTree<Keys>::BdTree(const Context& context, const Options& options)
    : c_(context),
      options_(options),
      keys_(context.medium),
      grace_([this](std::uint64_t item) {
        if (Nodes::is_ours(item)) {
          Nodes::free_item(item);
        } else {
          space_.free(item);
        }
      }),
      space_(context.medium, context.heap, context.redo,
             pmem::load(context.medium.template at<Word>(context.root_word)) + kExtentsAt,
             kExtents),
      nodes_(grace_) {}

template <class Keys>
BdTree<Keys>::~BdTree() {
  if (listener_ != 0) c_.epochs->forget(listener_);
  grace_.collect_all();
}

// Live slots of the cell that have the probe's fingerprint.
template <class Keys>
Word BdTree<Keys>::candidates(const Leaf& leaf, std::size_t cell, const Probe& probe) const {
  return leaf.newest(cell) & leaf.match(cell, probe.fingerprint) & options_.shape.slot_bits();
}

template <class Keys>
bool BdTree<Keys>::search(const Leaf& leaf, std::size_t cell, Word candidates, const Probe& probe,
                          Hit& hit) const {
  for (Word bits = candidates; bits != 0; bits &= bits - 1) {
    const std::size_t slot = Leaf::slot_of(cell, bits);
    const Word key = pmem::load(&leaf.slot(slot)->key);
    if (!keys_.equal(key, probe)) continue;
    hit = {true, slot, key, pmem::load(&leaf.slot(slot)->value)};
    return true;
  }
  return false;
}

template <class Keys>
void BdTree<Keys>::search(const Leaf& leaf, const Probe& probe, Hit& hit) const {
  const base::Stopwatch watch(base::Part::traversal);
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    if (search(leaf, cell, candidates(leaf, cell, probe), probe, hit)) return;
  }
}

template <class Keys>
Lookup BdTree<Keys>::find(Key key) const {
  if (Keys::too_long(key)) return {Outcome::absent, 0};
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return {Outcome::too_many_threads, 0};
  const Probe probe = Keys::probe(key);
  while (true) {
    typename Nodes::Place place;
    if (!nodes_.locate(probe, place)) continue;
    leaf(place.leaf).prefetch();
    Lookup answer;
    if (look(probe, place, answer)) return answer;
  }
}

// False: something changed.
template <class Keys>
bool BdTree<Keys>::look(const Probe& probe, const typename Nodes::Place& place,
                        Lookup& answer) const {
  const base::VersionLock& lock = lock_of(place.leaf);
  const std::uint64_t version = lock.begin();
  if (!place.lock->unchanged(place.version)) return false;
  Hit hit;
  search(leaf(place.leaf), probe, hit);
  answer = answer_of(hit);
  return lock.unchanged(version);
}

template <class Keys>
class BdTree<Keys>::Search {
 public:
  Search(const BdTree& tree, Key key)
      : tree_(tree), probe_(Keys::probe(key)), walk_(tree.nodes_.begin()) {}
  Progress step(Lookup& answer) {
    switch (awaited_) {
      case Awaited::down:
        return go_down();
      case Awaited::leaf:
        return meet(answer);
      case Awaited::slots:
        if constexpr (Keys::kRecords) {
          for_each([this](const Leaf& leaf, std::size_t slot) {
            tree_.keys_.prefetch(pmem::load(&leaf.slot(slot)->key));
          });
          awaited_ = Awaited::keys;
          return Progress::on;
        }
        [[fallthrough]];
      case Awaited::keys:
        break;
    }
    return compare(answer);
  }

 private:
  enum class Awaited : std::uint8_t { down, leaf, slots, keys };
  Progress go_down() {
    const auto came = tree_.nodes_.step(probe_, walk_, place_);
    if (came == Nodes::Came::changed) return Progress::alone;
    if (came == Nodes::Came::there) {
      tree_.leaf(place_.leaf).prefetch_lines();
      pmem::prefetch(&tree_.lock_of(place_.leaf));
      awaited_ = Awaited::leaf;
    }
    return Progress::on;
  }
  // Of the leaf only the slots that may have the key.
  Progress meet(Lookup& answer) {
    version_ = tree_.lock_of(place_.leaf).begin();
    if (!place_.lock->unchanged(place_.version)) return Progress::alone;
    const Leaf leaf = tree_.leaf(place_.leaf);
    std::uint32_t any = 0;
    for (std::size_t cell = 0; cell < tree_.options_.shape.cells; ++cell) {
      candidates_[cell] = static_cast<std::uint32_t>(tree_.candidates(leaf, cell, probe_));
      any |= candidates_[cell];
    }
    if (any == 0) return compare(answer);
    for_each([](const Leaf& of, std::size_t slot) { pmem::prefetch(of.slot(slot)); });
    awaited_ = Awaited::slots;
    return Progress::on;
  }
  Progress compare(Lookup& answer) {
    const Leaf leaf = tree_.leaf(place_.leaf);
    Hit hit;
    for (std::size_t cell = 0; cell < tree_.options_.shape.cells; ++cell) {
      if (tree_.search(leaf, cell, candidates_[cell], probe_, hit)) break;
    }
    answer = answer_of(hit);
    return tree_.lock_of(place_.leaf).unchanged(version_) ? Progress::answered : Progress::alone;
  }
  template <class F>
  void for_each(F&& visit) const {
    const Leaf leaf = tree_.leaf(place_.leaf);
    for (std::size_t cell = 0; cell < tree_.options_.shape.cells; ++cell) {
      for (Word bits = candidates_[cell]; bits != 0; bits &= bits - 1)
        visit(leaf, Leaf::slot_of(cell, bits));
    }
  }

  const BdTree& tree_;
  const Probe probe_;
  typename Nodes::Walk walk_;
  typename Nodes::Place place_{};
  std::uint64_t version_ = 0;  // of the leaf
  std::array<std::uint32_t, kMaxCells> candidates_{};
  Awaited awaited_ = Awaited::down;
};

template <class Keys>
void BdTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search>(*this, grace_, keys, answers);
}

EVERLEAF_INSTANTIATE(BdTree<U64Keys>);
EVERLEAF_INSTANTIATE(BdTree<BytesKeys>);

}  // namespace everleaf::tree::bdtree
