// Options, construction, reading one key.
#include "trees/lodgetree/tree.hpp"

#include <bit>
#include <string>

#include "trees/many.hpp"

namespace everleaf::tree::lodgetree {
namespace {

constexpr std::size_t kRun = epoch::kChunkBytes;

// Blocks of these sizes lie on whole cache lines.
bool is_chunk_size(std::uint64_t bytes) {
  return (bytes >= 256 && bytes <= 4096 && std::has_single_bit(bytes)) ||
         (bytes >= kRun && bytes <= kMaxChunkBytes && bytes % kRun == 0);
}

std::string chunk_sizes() {
  return "a power of two from 256 to 4096, or a multiple of " + std::to_string(kRun) + " up to " +
         std::to_string(kMaxChunkBytes / kRun * kRun);
}

std::unexpected<Error> bad(const base::Spec& canonical, std::string_view name,
                           const std::string& want) {
  return std::unexpected(Error{Code::bad_option, "lodgetree: " + std::string(name) + "=" +
                                                     std::string(base::option_of(canonical, name)) +
                                                     " is not " + want});
}

}  // namespace

Result<Options> parse_options(const base::Spec& canonical) {
  struct Range {
    std::string_view name;
    std::uint64_t least;
    std::uint64_t most;
    std::uint64_t value = 0;
  };
  // In the order of kOptions, which a canonical spec has.
  std::array<Range, 10> ranges{{{"node", 256, 1024},
                                {"slots", 6, kMaxNodeSlots - 1},
                                {"buffer", 1, kMaxNodeSlots},
                                {"t_node", 1, kMaxNodeSlots},
                                {"t_split", 0, kMaxSlots},
                                {"t", 1, 1000},
                                {"split", 2, 16},
                                {"log", 256, kMaxChunkBytes},
                                {"chunks", 3, kMaxChunks},
                                {"partitions", 1, kMaxChunks}}};
  for (std::size_t place = 0; place < ranges.size(); ++place) {
    Range& range = ranges[place];
    const auto value = base::number_of(canonical, range.name, place);
    range.value = value.value_or(0);
    if (value && *value >= range.least && *value <= range.most) continue;
    if (range.name == "log") return bad(canonical, range.name, chunk_sizes());
    return bad(
        canonical, range.name,
        "a number from " + std::to_string(range.least) + " to " + std::to_string(range.most));
  }
  if (!std::has_single_bit(ranges[0].value)) return bad(canonical, "node", "256, 512 or 1024");
  const Shape shape = make_shape(ranges[0].value);
  const std::uint64_t t_split = ranges[4].value == 0 ? shape.slots - 2 : ranges[4].value;
  if (t_split < 2 || t_split >= shape.slots) {
    return bad(canonical, "t_split", "less than the slots of a leaf, and 2 at least");
  }
  if (!is_chunk_size(ranges[7].value)) {
    return bad(canonical, "log", chunk_sizes());
  }
  if (ranges[8].value < 2 * ranges[9].value + 1) {
    return bad(canonical, "chunks", "more than twice as many as partitions");
  }
  const auto narrow = [&ranges](std::size_t i) { return static_cast<unsigned>(ranges[i].value); };
  return Options{
      shape,     narrow(1), narrow(2),       narrow(3),       static_cast<unsigned>(t_split),
      narrow(5), narrow(6), ranges[7].value, ranges[8].value, ranges[9].value};
}

template <class Keys>
LodgeTree<Keys>::LodgeTree(const Context& context, const Options& options)
    : c_(context),
      options_(options),
      keys_(context.medium),
      grace_([this](std::uint64_t item) {
        if ((item & kTag) == kTag) {
          base::NodeArena::free(reinterpret_cast<Node*>(item - kTag));
        } else if (Upper::is_ours(item)) {
          Upper::free_item(item);
        } else {
          space_.free(item);
        }
      }),
      arena_(Node::bytes_of(options.slots)),
      space_(context.medium, context.heap, context.redo, root_block() + kExtentsAt, kExtents),
      log_(context.medium, options.log, options.chunks, options.partitions),
      upper_(grace_) {}

template <class Keys>
LodgeTree<Keys>::~LodgeTree() {
  if constexpr (Keys::kRecords) {
    if (upper_.built()) {
      for_each_node([](Node& node, const Owned*) { free_separators(node); });
    }
  }
  grace_.collect_all();
}

template <class Keys>
typename LodgeTree<Keys>::Node* LodgeTree<Keys>::make_node() {
  return new (arena_.allocate()) Node(options_.slots);
}

template <class Keys>
std::size_t LodgeTree<Keys>::search(const Leaf& leaf, const Probe& probe) const {
  Word bits = leaf.used() & leaf.match(probe.fingerprint);
  for (; bits != 0; bits &= bits - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
    if (keys_.equal(pmem::load(&leaf.slot(slot)->key), probe)) return slot;
  }
  return kNoSlot;
}

template <class Keys>
bool LodgeTree<Keys>::locate(const Probe& probe, Place& place, bool writes) const {
  typename Upper::Place above;
  if (!upper_.locate(probe, above)) return false;
  place.node = reinterpret_cast<Node*>(above.leaf);
  if (writes) {
    place.node->prefetch_to_write(options_.slots);
  } else {
    place.node->prefetch(options_.slots);
  }
  place.version = place.node->latch.begin();
  return above.lock->unchanged(above.version);
}

// The pair of the buffer, or else the leaf to look in (B2). False: start again.
template <class Keys>
bool LodgeTree<Keys>::look_in_node(const Place& place, const Probe& probe, Hit& hit,
                                   std::byte*& base, bool writes) const {
  const base::Stopwatch watch(base::Part::traversal);
  const Node& node = *place.node;
  hit.leaf = node.rank(probe, Aim::at);
  base = node.leaf(hit.leaf);
  // A slot of the index may have become one of the buffer: no pointer.
  if (!node.latch.unchanged(place.version)) return false;
  // Readers do not ask the filter: most of it lies in lines that they need for nothing else.
  hit.excluded = writes && !node.may_have(hit.leaf, probe.fingerprint);
  if (!hit.excluded) leaf(base).prefetch_line();
  hit.pair = node.search(keys_, probe);
  if (hit.pair != Node::kNoSlot) {
    hit.found = !node.is_removal(hit.pair);
    hit.key = node.key(hit.pair);
    hit.value = node.value(hit.pair);
  }
  return true;
}

template <class Keys>
void LodgeTree<Keys>::look_in_leaf(const Leaf& here, const Probe& probe, Hit& hit) const {
  const base::Stopwatch watch(base::Part::traversal);
  hit.slot = search(here, probe);
  if (hit.slot == kNoSlot) return;
  hit.found = true;
  hit.key = pmem::load(&here.slot(hit.slot)->key);
  hit.value = pmem::load(&here.slot(hit.slot)->value);
}

template <class Keys>
Lookup LodgeTree<Keys>::find(Key key) const {
  if (Keys::too_long(key)) return {Outcome::absent, 0};
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return {Outcome::too_many_threads, 0};
  const Probe probe = Keys::probe(key);
  while (true) {
    Place place;
    if (!locate(probe, place)) continue;
    Hit hit;
    std::byte* base = nullptr;
    if (!look_in_node(place, probe, hit, base)) continue;
    if (hit.pair == Node::kNoSlot) {
      leaf(base).prefetch();
      look_in_leaf(leaf(base), probe, hit);
    }
    if (place.node->latch.unchanged(place.version)) return answer_of(hit);
  }
}

template <class Keys>
Lookup LodgeTree<Keys>::answer_of(const Hit& hit) const {
  if (hit.pair != Node::kNoSlot) {
    add((*counts_)[base::thread_slot()].hits, 1);
  }
  return hit.found ? Lookup{Outcome::done, hit.value} : Lookup{Outcome::absent, 0};
}

template <class Keys>
class LodgeTree<Keys>::Search {
 public:
  Search(const LodgeTree& tree, Key key)
      : tree_(tree), probe_(Keys::probe(key)), walk_(tree.upper_.begin()) {}
  Progress step(Lookup& answer) {
    switch (at_) {
      case At::upper: {
        const auto came = tree_.upper_.step(probe_, walk_, above_);
        if (came == Upper::Came::changed) return Progress::alone;
        if (came == Upper::Came::down) return Progress::on;
        place_.node = reinterpret_cast<Node*>(above_.leaf);
        place_.node->prefetch(tree_.options_.slots);
        at_ = At::node;
        return Progress::on;
      }
      case At::node:
        place_.version = place_.node->latch.begin();
        if (!above_.lock->unchanged(above_.version) ||
            !tree_.look_in_node(place_, probe_, hit_, base_))
          return Progress::alone;
        if (hit_.pair == Node::kNoSlot) tree_.leaf(base_).prefetch();
        at_ = At::leaf;
        return Progress::on;
      case At::leaf:
        break;
    }
    if (hit_.pair == Node::kNoSlot) tree_.look_in_leaf(tree_.leaf(base_), probe_, hit_);
    if (!place_.node->latch.unchanged(place_.version)) return Progress::alone;
    answer = tree_.answer_of(hit_);
    return Progress::answered;
  }

 private:
  enum class At : std::uint8_t { upper, node, leaf };
  const LodgeTree& tree_;
  const Probe probe_;
  typename Upper::Walk walk_;
  typename Upper::Place above_;
  Place place_{};
  Hit hit_{};
  std::byte* base_ = nullptr;
  At at_ = At::upper;
};

template <class Keys>
void LodgeTree<Keys>::find_many(std::span<const Key> keys, std::span<Lookup> answers) const {
  search_together<Search>(*this, grace_, keys, answers);
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
