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

template <class Keys>
void BdTree<Keys>::search(const Leaf& leaf, const Probe& probe, Hit& hit) const {
  const base::Stopwatch watch(base::Part::traversal);
  const Word slots = options_.shape.slot_bits();
  for (std::size_t cell = 0; cell < options_.shape.cells; ++cell) {
    Word bits = leaf.newest(cell) & leaf.match(cell, probe.fingerprint) & slots;
    for (; bits != 0; bits &= bits - 1) {
      const std::size_t slot = cell * kCellSlots + static_cast<std::size_t>(std::countr_zero(bits));
      const Word key = pmem::load(&leaf.slot(slot)->key);
      if (!keys_.equal(key, probe)) continue;
      hit = {true, slot, key, pmem::load(&leaf.slot(slot)->value)};
      return;
    }
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
  answer = hit.found ? Lookup{Outcome::done, hit.value} : Lookup{Outcome::absent, 0};
  return lock.unchanged(version);
}

template <class Keys>
class BdTree<Keys>::Search {
 public:
  Search(const BdTree& tree, Key key)
      : tree_(tree), probe_(Keys::probe(key)), walk_(tree.nodes_.begin()) {}
  Progress step(Lookup& answer) {
    if (there_) return tree_.look(probe_, place_, answer) ? Progress::answered : Progress::alone;
    const auto came = tree_.nodes_.step(probe_, walk_, place_);
    if (came == Nodes::Came::changed) return Progress::alone;
    there_ = came == Nodes::Came::there;
    if (there_) tree_.leaf(place_.leaf).prefetch();
    return Progress::on;
  }

 private:
  const BdTree& tree_;
  const Probe probe_;
  typename Nodes::Walk walk_;
  typename Nodes::Place place_{};
  bool there_ = false;
};

template <class Keys>
void BdTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search>(*this, grace_, keys, answers);
}

template class BdTree<U64Keys>;
template class BdTree<BytesKeys>;

}  // namespace everleaf::tree::bdtree
