// The LodgeTree (Du et al.). README.md has the scheme, the order of stores and the crash cases.
//
// Thread safety: all operations from any thread. Readers are optimistic and write nothing, but that
// stats() holds each node's latch for a moment (keys of 8 bytes: pairs may be unsure); a writer
// holds the latch of one last-level node, and so of all its leaves; splits of nodes lock the inner
// node above, too.
// Invariants (B1 to B5 of node.hpp, L1 to L5 of log.hpp)
//   I1. A leaf and the node above it change only under the node's latch, which is released after
//       the fence that makes the operation durable.
//   I2. Every log record of a leaf's range is at or below its stamp, live in the buffer above
//       it, or superseded by one that is; at the latest when a fence has made the stamp durable,
//       and no record dies before.
//   I3. A leaf that is reached has all that its stamp promises: word before stamp.
//   I4. Inner nodes lead to each last-level node once, nodes to each leaf of the list once, in its
//       order.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "base/instantiate.hpp"
#include "epoch/space.hpp"
#include "trees/contract.hpp"
#include "trees/inner.hpp"
#include "trees/lodgetree/layout.hpp"
#include "trees/lodgetree/leaf.hpp"
#include "trees/lodgetree/log.hpp"
#include "trees/lodgetree/node.hpp"
#include "trees/lodgetree/plan.hpp"
#include "trees/lodgetree/split.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree::lodgetree {

struct Options {
  Shape shape;
  unsigned slots;
  unsigned buffer;
  unsigned t_node;
  unsigned t_split;
  unsigned t;
  unsigned split;
  std::size_t log;
  std::size_t chunks;
  std::size_t partitions;
};
Result<Options> parse_options(const base::Spec& canonical);

template <class Keys>
class LodgeTree final : public detail::Tree<typename Keys::Key> {
 public:
  using Key = typename Keys::Key;
  using Owned = typename OwnedKey<Key>::type;
  using Out = std::vector<everleaf::Entry<Key>>;

  LodgeTree(const Context& context, const Options& options);
  ~LodgeTree() override;

  // Builds the nodes from the leaf list and replays the log. corrupt, io, out_of_space (memory).
  [[nodiscard]] Result<void> open();

  Outcome write(Key key, std::uint64_t value, Write what) override;
  Lookup find(Key key) const override;
  void find_many(std::span<const Key> keys, std::span<Lookup> answers) const override;
  Outcome scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const override;
  Outcome scan_back(std::optional<Key> from, std::size_t limit, Out& out) const override;
  Outcome bulk_load(std::span<const everleaf::Entry<Key>> entries, double fill) override;
  Outcome sync() override { return c_.medium.failed() ? Outcome::io_error : Outcome::done; }
  CheckReport check() const override;
  Stats stats() const override;
  void for_each_block(const detail::Visit& visit) const override;
  bool closing() override;

 private:
  using Probe = typename Keys::Probe;
  using Upper = Inner<Keys>;
  using Path = typename Upper::Path;
  using Node = lodgetree::Node<Keys>;
  using Fresh = typename Upper::Fresh;
  // What an attempt came to, if not to an outcome.
  enum class Next : std::uint8_t { done, again, divide, grow, log };
  struct Attempt {
    Next next;
    Outcome outcome = Outcome::done;  // of done
    std::size_t bytes = 0;            // of grow
    bool lonely = false;              // the node's only leaf is empty now
    bool late = false;                // of done: relieve_log() is due
    bool nothing = false;             // of force(): no buffer has the record
  };
  static Attempt answer(Outcome outcome) { return {Next::done, outcome}; }

  // A block of the space that goes back unless it is kept.
  class Block {
   public:
    explicit Block(epoch::Space& space) : space_(&space) {}
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() {
      if (at_ != 0) space_->free(at_);
    }
    [[nodiscard]] bool get(std::size_t bytes) {
      if (at_ == 0) at_ = space_->reserve(bytes);
      return at_ != 0;
    }
    [[nodiscard]] Offset at() const { return at_; }
    void keep() { at_ = 0; }

   private:
    epoch::Space* space_;
    Offset at_ = 0;
  };
  struct KeyRecord {  // of an insertion
    explicit KeyRecord(epoch::Space& space) : block(space) {}
    Block block;
    Word word = 0;
  };

  // --- tree.cpp ---
  [[nodiscard]] Leaf leaf(std::byte* base) const { return {base, options_.shape}; }
  [[nodiscard]] RootLine* root() const { return c_.medium.template at<RootLine>(root_block()); }
  [[nodiscard]] Offset root_block() const {
    return pmem::load(c_.medium.template at<Word>(c_.root_word));
  }
  [[nodiscard]] bool possible(Offset at) const {
    return at >= pmem::kHeapAt && at % kLeafAlign == 0 &&
           c_.medium.contains(at, options_.shape.bytes);
  }
  static constexpr std::size_t kNoSlot = ~std::size_t{0};
  [[nodiscard]] std::size_t search(const Leaf& leaf, const Probe& probe) const;
  struct Hit {
    unsigned pair = Node::kNoSlot;  // in the buffer
    unsigned leaf = 0;              // the key's, in the node
    std::size_t slot = kNoSlot;     // in the leaf; not looked for if the key is in the buffer
    Word key = 0;                   // its word, if it is there
    std::uint64_t value = 0;
    bool found = false;
    bool excluded = false;  // the filter says that the leaf does not have the key
  };
  struct Place {
    Node* node;
    std::uint64_t version;
  };
  // False: start again. What look() found holds if the latch is unchanged still.
  [[nodiscard]] bool locate(const Probe& probe, Place& place, bool writes = false) const;
  [[nodiscard]] bool look_in_node(const Place& place, const Probe& probe, Hit& hit,
                                  std::byte*& base, bool writes = false) const;
  void look_in_leaf(const Leaf& here, const Probe& probe, Hit& hit) const;
  [[nodiscard]] Lookup answer_of(const Hit& hit) const;
  class Search;
  [[nodiscard]] Node* make_node();
  static void free_separators(const Node& node) {
    if constexpr (Keys::kRecords) {
      for (unsigned i = 1; i < node.leaves(); ++i) delete node.separator(i);
    }
  }
  static std::uint64_t tagged(Node* node) { return reinterpret_cast<std::uint64_t>(node) | kTag; }
  static constexpr std::uint64_t kTag = 3;  // of a node in the grace list
  static constexpr Offset kRecordAlign = 16;
  static_assert(kTag < kRecordAlign);

  // A read-only pool keeps what recovery changes in memory: nothing is written back.
  void flush(const void* at, std::size_t bytes, pmem::Site site = pmem::Site::current()) const {
    if (!c_.read_only) c_.medium.flush(at, bytes, site);
  }
  [[nodiscard]] bool fence(unsigned slot, pmem::Site site = pmem::Site::current()) {
    return c_.read_only || log_.fence(slot, site);
  }

  // --- write.cpp ---
  struct Op {
    Probe probe;
    std::uint64_t value;
    bool removal;
    bool direct;    // there is no space
    unsigned slot;  // of the thread
    Hit hit;
    Word word = 0;        // of the key
    bool unsure = false;  // nobody has looked whether the leaf has the key
    bool late = false;    // its record: Log::is_late()
  };
  Attempt attempt(Key key, std::uint64_t value, Write what, KeyRecord& record, bool direct);
  Attempt attempt_in_place(Key key, std::uint64_t value, Write what, KeyRecord& record);
  [[nodiscard]] Attempt add(Node& node, Op& op, KeyRecord& record);
  [[nodiscard]] Attempt supersede(Node& node, Op& op);
  [[nodiscard]] Attempt change_leaf(Node& node, const Op& op);
  [[nodiscard]] Attempt tidied(Node& node, const Op& op, bool emptied);
  [[nodiscard]] Ref append(Node& node, Op& op, Log::Begun& begun);
  void put(Node& node, const Op& op, Ref ref);
  [[nodiscard]] bool has_room(const Node& node) const {
    return has_room(node.leaves(), node.buffered());
  }
  [[nodiscard]] bool has_room(unsigned leaves, unsigned buffered) const {
    return leaves + buffered + 2 <= options_.slots && buffered < options_.buffer;
  }
  Outcome more_space(std::size_t bytes, bool& tried);
  Outcome log_room(unsigned slot);
  Outcome add_chunk(std::size_t place);
  Outcome empty_chunk(const Log::Closed& closed);
  void relieve_log() noexcept;
  [[nodiscard]] Attempt force(const Log::Closed& closed, std::size_t index);

  // --- flush.cpp ---
  struct Part {  // a leaf that a step changes
    unsigned leaf;
    std::byte* base;
    Word w;
    std::size_t count;
    bool stamped;
    Word gained;  // slots, if no key goes
    bool loses;   // keys
  };
  struct Step {
    explicit Step(epoch::Space& space) : right(space), low(space) {}
    std::array<Part, kMaxNodeSlots> parts;
    unsigned count = 0;
    std::uint64_t pairs = 0;                  // leave the buffer
    std::uint64_t loners = 0;                 // become fresh: their keys leave the leaf, they stay
    bool at_once = false;                     // needs a fence of its own behind the commit (P4, P5)
    bool room = false;                        // there is room in the buffer afterwards
    std::array<Offset, kMaxNodeSlots> freed;  // key records, one of a pair at most
    unsigned freed_count = 0;
    // Of a split:
    bool splits = false;
    Block right;
    Block low;
    std::byte* right_base = nullptr;
    Fresh separator;
  };
  template <class Adds>
  [[nodiscard]] Plan plan_of(const Node& node, Adds&& adds) const;
  void settle_pairs(Node& node, unsigned i) const;
  void expect_flush(const Place& place) const;
  [[nodiscard]] Attempt prepare(Node& node, Step& step);
  [[nodiscard]] Attempt prepare(Node& node, Plan plan, Step& step);
  [[nodiscard]] std::byte* new_overlay_leaf();
  [[nodiscard]] std::byte* copy_of(const std::byte* base);
  void own_leaf(Node& node, unsigned i);
  [[nodiscard]] bool prepare_leaf(Node& node, unsigned i, std::uint64_t pairs, Step& step);
  void store_slot(const Leaf& leaf, std::size_t slot, Word key, std::uint64_t value,
                  std::uint8_t fingerprint);
  void store_print(const Leaf& leaf, std::size_t slot, std::uint8_t fingerprint);
  void flush_slots(const Leaf& leaf, Word slots) const;
  void flush_prints(const Leaf& leaf);
  [[nodiscard]] bool commit(Node& node, Step& step, unsigned slot);
  [[nodiscard]] static bool empties(const Step& step) {
    for (unsigned i = 0; i < step.count; ++i) {
      if (step.parts[i].count == 0) return true;
    }
    return false;
  }
  [[nodiscard]] bool take_records(Node& node, const Step& step, unsigned slot);
  // Of a key's record. What damage names instead of one must not be taken for one of the tagged
  // pointers in the grace list; other places that are none the space ignores.
  void retire_record(Offset at) {
    if (at % kRecordAlign == 0) (void)grace_.retire(at);
  }
  [[nodiscard]] bool release_keys(unsigned slot, std::span<const Offset> more);
  [[nodiscard]] bool release_all_keys();
  void free_record(Step& step, Word key) const;
  [[nodiscard]] Probe probe_of(Word key) const { return Keys::probe(keys_.key_of(key)); }
  // One step with a fence of its own.
  [[nodiscard]] Attempt run_step(Node& node, Plan plan, unsigned slot);
  // Until no pair is left for the leaf.
  [[nodiscard]] Attempt flush_leaf(Node& node, unsigned i, unsigned slot);
  [[nodiscard]] Attempt flush_node(Node& node, unsigned slot);
  [[nodiscard]] bool flush_all() { return flush_range(Owned{}, nullptr); }
  [[nodiscard]] bool flush_range(Owned from, const Node* end);
  [[nodiscard]] static Owned separator_key(const Node& node, unsigned i) {
    if constexpr (Keys::kRecords) {
      const Separator* const whole = node.separator(i);
      return whole == nullptr ? Owned{} : whole->key;  // torn: the caller validates
    } else {
      return node.separator_prefix(i);
    }
  }
  // The lower bound of the node's range.
  [[nodiscard]] Owned first_key(const Node& node) const {
    return Keys::own(keys_.key_of(leaf(node.leaf(0)).low()));
  }

  // --- split.cpp ---
  struct Item {
    Word key;
    std::uint64_t value;
    std::size_t slot;  // in the leaf, or kNoSlot
    unsigned pair;     // in the buffer, or Node::kNoSlot
  };
  struct Merged {
    std::array<Item, kMaxSlots + kMaxNodeSlots> items;
    std::size_t count = 0;
    Word removed = 0;  // slots of the leaf
  };
  [[nodiscard]] bool merge_pairs(const Node& node, unsigned i, Merged& all) const;
  [[nodiscard]] Attempt prepare_split(Node& node, unsigned i, Step& step);
  [[nodiscard]] bool splittable(const Node& node, unsigned i, const Merged& all,
                                std::size_t keep) const;
  void prepare_clear(Node& node, unsigned i, const Merged& all, Step& step);
  void fill_right(const Node& node, const Leaf& left, const Merged& all, std::size_t keep,
                  const Owned& low, Step& step);
  void settle_left(Node& node, unsigned i, const Merged& all, std::size_t keep, const Owned& low,
                   Step& step);
  [[nodiscard]] bool new_leaf(Step& step);
  Attempt divide(Key key);
  void divide_node(const Path& path, Node& node, std::span<Node* const> fresh, unsigned ways);

  // --- unlink.cpp ---
  [[nodiscard]] bool absorb(const Leaf& left, const Leaf& right, Word sequence, unsigned slot);
  void unlink_empty(Node& node, unsigned slot);
  [[nodiscard]] Attempt unlink_node(Key key, Owned& full);
  [[nodiscard]] Attempt take_leaf(Node& left, Node& node);
  [[nodiscard]] Attempt give_leaf(Node& node, Node& right);
  void unlink_lonely(Key key);
  [[nodiscard]] static bool is_lonely(const Node& node) {
    return node.leaves() == 1 && node.count(0) == 0 && node.buffered() == 0;
  }

  // --- bulk.cpp ---
  using Entries = std::span<const everleaf::Entry<Key>>;
  struct Chain;
  [[nodiscard]] bool fill(const Leaf& leaf, Entries entries, Chain& chain);
  [[nodiscard]] bool add_link(Entries entries, Key before, Word stamp, Chain& chain);
  [[nodiscard]] Outcome link(const Leaf& last, std::size_t first, Chain& chain, unsigned slot);
  [[nodiscard]] Outcome append_node(Entries entries, std::size_t each, std::size_t& done,
                                    std::size_t& missing);
  [[nodiscard]] Outcome load(Entries entries, std::size_t each);

  // --- recover.cpp ---
  struct Found {  // a record that is needed
    Ref ref;
    Record record;  // `order` without its lowest bit
    bool removal;
    std::size_t leaf = 0;  // its number
    Key key{};             // for choose() alone: memory of records that it leaves out is free
  };
  struct Listed {  // a leaf, from the left
    std::byte* base;
    Owned low;
    unsigned pairs = 0;  // that the log has for it
    Node* node = nullptr;
    bool reused = false;  // slots that it has may have been cleared and used again
    bool twice = false;   // two of them have the same word
  };
  struct Share {  // of recovery
    std::vector<Found> found;
    Owned from{};         // where its nodes begin
    Node* end = nullptr;  // behind the last one
    Outcome outcome = Outcome::done;
    bool flushed = false;
  };
  [[nodiscard]] Result<void> walk(std::vector<Listed>& leaves);
  [[nodiscard]] static bool has_word(const Leaf& here, std::size_t slot);
  [[nodiscard]] Result<void> walk_leaf(Offset at, std::vector<Listed>& leaves);
  [[nodiscard]] Result<void> read_log(std::vector<Found>& found, bool& torn);
  [[nodiscard]] bool wipe_dead(std::size_t chunks);
  [[nodiscard]] Outcome begin_session();
  struct Hashes {  // of long keys, by the offset of their records
    struct Known {
      std::uint64_t hash = 0;
      std::size_t bytes = 0;  // if it is counted
    };
    std::unordered_map<Offset, Known> known;
    std::uint64_t bytes = 0;  // of those that are counted
  };
  struct Seen {  // in some chunks of the log
    std::vector<Found> found;
    Hashes hashes;
    Word last_order = 0;
    bool torn = false;
  };
  [[nodiscard]] Result<void> read_chunk(std::size_t chunk, Offset base, Seen& seen) const;
  [[nodiscard]] bool is_whole(const Record& record, Offset at, Word key, Hashes& hashes) const;
  [[nodiscard]] std::uint64_t named_hash(Word word, Hashes& hashes) const;
  [[nodiscard]] bool within_bounds(Word word, Hashes& hashes) const;
  [[nodiscard]] bool is_within_bounds(const Hashes& hashes) const;
  static void last_of_each_record(std::vector<Found>& found);
  void choose(std::vector<Listed>& leaves, std::vector<Found>& found) const;
  using Spare = std::vector<Offset>;  // key records that nobody needs when the session has ended
  [[nodiscard]] bool mend(std::vector<Listed>& leaves, Spare& spare);
  [[nodiscard]] bool mend_leaf(const Leaf& here, Spare& spare);
  [[nodiscard]] bool claim_keys(const std::vector<Listed>& leaves, std::vector<Found>& found,
                                Spare& spare);
  void build(std::vector<Listed>& leaves);
  [[nodiscard]] Outcome replay(const std::vector<Found>& found);
  [[nodiscard]] Attempt replay(const Found& found, bool full);
  [[nodiscard]] Attempt flush_what_fits(Node& node, unsigned slot);
  [[nodiscard]] std::vector<Share> make_shares(const std::vector<Listed>& leaves,
                                               const std::vector<Found>& found) const;
  void recover(Share& share);
  void recover(std::vector<Share>& shares);
  [[nodiscard]] Result<void> rebuild();
  [[nodiscard]] Result<void> end_recovery(const std::vector<Share>& shares, bool logged,
                                          const Spare& spare);

  // --- scan.cpp ---
  struct Batch;
  void read_leaf(const Node& node, unsigned i, std::byte* base, Batch& batch) const;

  // --- check.cpp ---
  // Every node, from the left.
  template <class F>
  void for_each_node(F&& visit) const {
    upper_.for_each_leaf([&visit](std::uint64_t node, const Owned* low) {
      visit(*reinterpret_cast<Node*>(node), low);
    });
  }
  [[nodiscard]] std::string inspect_leaf(const Node& node, unsigned i, const Owned* low,
                                         const Owned* high) const;
  [[nodiscard]] std::string inspect_pair(const Node& node, unsigned pair) const;
  [[nodiscard]] bool in_leaf(const Node& node, unsigned pair) const;
  [[nodiscard]] std::size_t keys_in(const Node& node) const;
  [[nodiscard]] bool has_keys(const Node& node) const;

  const Context c_;
  const Options options_;
  const Keys keys_;
  // Frees nodes, separators, leaves and key records; used pinned.
  mutable alloc::Grace grace_;
  base::NodeArena arena_;
  epoch::Space space_;
  Log log_;
  Upper upper_;
  base::Mutex growing_log_;
  struct alignas(pmem::kLine) LeafCopy {
    std::array<std::byte, kLeafAlign> bytes;
  };
  std::vector<std::unique_ptr<LeafCopy[]>> overlay_;  // leaves of a read-only pool
  Word session_ = 0;
  std::atomic<bool> begun_{false};  // the session is this tree's
  Word last_order_ = 0;             // that recovery met
  std::uint64_t replayed_ = 0;
  std::uint64_t shares_ = 0;  // in which they were
  std::uint64_t rebuild_ns_ = 0;
  std::atomic<std::uint64_t> leaf_splits_{0};                // the clock of the multiple split, too
  std::array<std::atomic<std::uint64_t>, 3> node_splits_{};  // by SplitKind
  std::atomic<std::uint64_t> forced_{0};
  std::atomic<std::uint64_t> unlinked_{0};
  // Of a thread slot, whose thread alone writes them: no locked instruction, and no line that all
  // fight for.
  struct alignas(pmem::kLine) Counts {
    std::atomic<std::uint64_t> hits{0};
    std::atomic<std::uint64_t> flushes{0};
    std::atomic<std::uint64_t> flushed_leaves{0};
    std::atomic<std::uint64_t> flushed_pairs{0};
  };
  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) {
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t sum_of(std::atomic<std::uint64_t> Counts::*counter) const {
    std::uint64_t sum = 0;
    for (const Counts& one : *counts_) sum += (one.*counter).load(std::memory_order_relaxed);
    return sum;
  }
  std::unique_ptr<std::array<Counts, kMaxThreads>> counts_ =
      std::make_unique<std::array<Counts, kMaxThreads>>();
};

}  // namespace everleaf::tree::lodgetree
