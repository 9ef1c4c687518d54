// The PB+tree (Yoo et al., IEEE Access 10, 2022). README.md has the persist steps and crash cases.
//
// Thread safety: all operations from any thread. Readers write nothing: they pass inner nodes
// without any check of versions (paper, III-D), and look at the version of a leaf only. Writers
// hold version locks (in DRAM) of the nodes that they change, and never wait for one while they
// hold another.
// Invariants
//   I1. A leaf changes only under its lock, and the lock is released after the fence that makes the
//       change durable.
//   I2. The nodes of a level form a list by their right siblings, from the leftmost one; left
//       siblings mirror it. A node's keys lie in [split key, split key of its right sibling).
//   I3. A node's right link, its right sibling's left link and split key change only under the
//       node's lock.
//   I4. A child that an inner node names lies on the level below, and its split key is the entry's
//       key; the leftmost child of a level's first node may have a larger one. An inner node may
//       lack an entry for a node of the level below: it is reached by its sibling, and the next
//       writer who passes there adds the entry.
//   I5. A node that was unlinked is marked dead, and reused only after its grace period.
//   I6. While gate_ is locked an insert_all() runs: no operation begins, and those that had begun
//       either see nothing of it or start again; who had its leaf's lock before comes before it.
//   I7. A node of an unfinished split says so (kSplitting, kCopy); who wants to change it finishes
//       the split first.
#pragma once

#include <array>
#include <atomic>
#include <initializer_list>
#include <new>

#include "trees/contract.hpp"
#include "trees/pbtree/edit.hpp"
#include "trees/pbtree/keys.hpp"
#include "trees/pbtree/layout.hpp"
#include "trees/pbtree/node.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree::pbtree {

struct Options {
  std::uint32_t node_bytes;
};
Result<Options> parse_options(const base::Spec& canonical);

template <class Keys>
class PbTree final : public detail::Tree<typename Keys::Key> {
 public:
  using Key = typename Keys::Key;
  using Out = std::vector<everleaf::Entry<Key>>;
  using Entries = std::span<const everleaf::Entry<Key>>;

  PbTree(const Context& context, const Options& options)
      : c_(context),
        bytes_(options.node_bytes),
        capacity_(capacity_of(options.node_bytes)),
        keys_(context.medium) {}

  Outcome write(Key key, std::uint64_t value, Write what) override;
  Outcome insert_all(Entries entries) override;
  Lookup find(Key key) const override;
  void find_many(std::span<const Key> keys, std::span<Lookup> answers) const override;
  Outcome scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const override;
  Outcome scan_back(std::optional<Key> from, std::size_t limit, Out& out) const override;
  Outcome bulk_load(Entries entries, double fill) override;
  Outcome sync() override { return c_.medium.failed() ? Outcome::io_error : Outcome::done; }
  CheckReport check() const override;
  Stats stats() const override;
  void for_each_block(const detail::Visit& visit) const override;

 private:
  using NodeOf = Node<Keys>;
  using Probe = typename Keys::Probe;
  using Owned = decltype(Keys::own(Key{}));
  enum class Walk : std::uint8_t { there, no_such_level, corrupt };

  struct Seen {  // a node, or the root word, and the version under which it was looked at
    Offset node;
    std::uint64_t version;
  };
  struct Found : Seen {  // a node of the wanted level
    Place place;         // of the probe, in a leaf
    Offset stray = 0;    // a node that was reached by its left sibling alone
    unsigned stray_level = 0;
    bool search = true;  // for an operation's key: steps sideways count as wrong child visits
  };

  // --- tree.cpp: the way down ---
  [[nodiscard]] base::VersionLock& lock_of(Offset node) const { return locks_.of(node); }
  [[nodiscard]] Seen see(Offset node) const { return {node, lock_of(node).begin()}; }
  // All of them, or none: one has changed.
  [[nodiscard]] bool lock_all(base::LockSet& locks, std::initializer_list<Seen> nodes) const {
    for (const Seen& seen : nodes) {
      if (locks.try_lock(lock_of(seen.node), seen.version)) continue;
      locks.release(false);
      return false;
    }
    return true;
  }
  struct Root {
    Offset node;
    unsigned level;
    bool operator==(const Root&) const = default;
  };
  [[nodiscard]] Root root() const {
    const Word word = pmem::load(c_.medium.template at<Word>(c_.root_word));
    return {word & ~Word{kNodeAlign - 1}, static_cast<unsigned>(word & (kNodeAlign - 1))};
  }
  [[nodiscard]] bool possible(Offset node) const {
    return node % kNodeAlign == 0 && alloc::fits_slab(node, bytes_) &&
           c_.medium.contains(node, bytes_);
  }
  [[nodiscard]] NodeOf at(Offset node) const { return {c_.medium.at(node), capacity_, keys_}; }
  [[nodiscard]] Offset offset_of(NodeOf node) const { return c_.medium.offset_of(node.base()); }
  struct Way {  // down: a node that nobody has looked at
    Offset node;
    unsigned level;
    std::uint64_t moves;  // left
  };
  [[nodiscard]] Way begin(const Probe& probe, Found& found) const;
  void begin_again(Way& way, Found& found) const;
  // nullopt: on the way.
  [[nodiscard]] std::optional<Walk> step(const Probe& probe, unsigned wanted, Way& way,
                                         Found& found) const;
  [[nodiscard]] Walk descend(const Probe& probe, unsigned level, Found& found) const;
  [[nodiscard]] bool look(const Probe& probe, const Found& found, Lookup& answer) const;
  template <bool kAlone>
  class Search;
  [[nodiscard]] Offset sibling_for(NodeOf node, Word meta, bool below, bool above,
                                   const Probe& probe, Found& found) const;
  [[nodiscard]] bool wholly_right(NodeOf node, Word meta, const Probe& probe, Offset& right) const;
  // Splits that an operation finishes on its way. A crash leaves one for each thread; nodes that
  // overlap in a damaged pool can make each other unfinished, for ever.
  static constexpr unsigned kMostFinished = 4096;
  // More steps than a sound tree can have nodes: in a damaged one links may form a circle.
  [[nodiscard]] std::uint64_t most_moves() const { return c_.medium.size() / bytes_ + 4096; }
  [[nodiscard]] Offset first_of_level(Offset node) const;

  // --- write.cpp: one leaf ---
  // Whether the operation is part of an insert_all().
  enum class Batch : std::uint8_t { none, own };
  Outcome put(Key key, std::uint64_t value, Write what, Batch batch);
  Outcome remove(Key key);
  Outcome take_out(Key key, bool& underflow);
  // The way of an operation past the batches. Not pinned while it waits: that would hold back what
  // a batch needs.
  class Turn {
   public:
    explicit Turn(const PbTree& tree) : tree_(tree) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (alone_) tree_.batches_.unlock();
    }
    // The gate's version for the next round. Who lost two to batches keeps the third waiting.
    [[nodiscard]] std::uint64_t begin() {
      if (begun_ && !tree_.gate_.unchanged(gate_)) ++lost_;
      if (!alone_ && lost_ == kMostLost) {
        const Late late(tree_);
        tree_.batches_.lock();
        alone_ = true;
      }
      begun_ = true;
      return gate_ = tree_.pass_gate();
    }

   private:
    static constexpr unsigned kMostLost = 2;
    const PbTree& tree_;
    std::uint64_t gate_ = 0;
    unsigned lost_ = 0;
    bool begun_ = false;
    bool alone_ = false;  // batches_ is held
  };
  // While it lives no further insert_all() begins. Its thread holds nothing that one needs.
  // Relaxed: who is first depends on it, nothing else.
  class Late {
   public:
    explicit Late(const PbTree& tree) : tree_(tree) {
      tree_.late_.fetch_add(1, std::memory_order_relaxed);
    }
    Late(const Late&) = delete;
    Late& operator=(const Late&) = delete;
    ~Late() { tree_.late_.fetch_sub(1, std::memory_order_relaxed); }

   private:
    const PbTree& tree_;
  };
  [[nodiscard]] std::uint64_t pass_gate() const {
    // One look: whoever waits is counted.
    std::uint64_t version = 0;
    if (gate_.try_begin(version)) return version;
    const Late late(*this);
    return gate_.begin();
  }
  [[nodiscard]] bool gate_moved(std::uint64_t version, Batch batch) const {
    return batch == Batch::none && !gate_.unchanged(version);
  }
  Outcome change(const Found& found, Key key, std::uint64_t value, Reserved& record);
  void make_gap(Edit& edit, NodeOf node, Ends ends, Place& place) const;
  Outcome drop_losers(NodeOf node, Side side, unsigned from);
  Outcome drop_losers(NodeOf node);
  Outcome add(NodeOf node, Place place, Word key, Word value, Reserved& record);
  Outcome drop(NodeOf node, Place place, Offset& freed);
  void close_gap(Edit& edit, NodeOf node, unsigned last, const Place& place,
                 bool first_is_stored) const;
  Outcome set_pivot(NodeOf node, bool live, Word value);
  Outcome own_pivot(NodeOf node, Key key, Word value, Reserved& record);
  [[nodiscard]] static bool borrowed_pivot(NodeOf node) {
    return Keys::kRecords && node.pivot() == node.split_key();
  }
  void mend(const Found& found);
  // What follows an operation that has happened, and can be left to the next one: it must not
  // throw.
  template <class Rest>
  static void if_memory(Rest rest) noexcept {
    try {
      rest();
    } catch (const std::bad_alloc&) {
    }
  }
  [[nodiscard]] static bool unfinished(NodeOf node) {
    return (node.meta() & (kSplitting | kCopy)) != 0;
  }

  // --- split.cpp ---
  static constexpr Offset kLeftStays = ~Offset{0};
  struct Content {  // what a node is written from
    Word meta = 0;
    Word split_key = 0;
    Word leftmost = 0;
    Word pivot = 0;   // if no entry is the pivot
    Offset left = 0;  // kLeftStays: not stored
    Offset right = 0;
    Word next_split_key = 0;
  };
  void fill(NodeOf node, Content content, std::span<const Entry> entries, unsigned pivot_at);
  [[nodiscard]] bool fill_fresh(alloc::Redo& record, Offset fresh, Content content,
                                std::span<const Entry> entries, unsigned pivot_at);
  [[nodiscard]] Outcome commit(const alloc::Redo& record, std::initializer_list<Reserved*> blocks);
  Outcome split(Seen node, unsigned level);
  Outcome split_off(Seen seen, unsigned level, Owned& separator, bool& linked);
  [[nodiscard]] bool reserve_node(Reserved& block, unsigned level, Seen& fresh) const;
  Outcome finish_split(Offset offset);
  Outcome finish_halves(NodeOf node, NodeOf right);
  void trim(Edit& edit, NodeOf right, Word split_key);
  Outcome append(const Found& found, Side side, Key key, std::uint64_t value, Reserved& record,
                 bool& appended);
  Outcome fill_appended(alloc::Redo& record, const Found& found, Side side, Offset fresh,
                        Entry entry, Reserved& separator_block, Word& separator);
  void link_appended(alloc::Redo& record, NodeOf node, Side side, Offset fresh, Word separator);
  [[nodiscard]] Outcome own_key(Key key, Reserved& block, alloc::Redo& record, Word& word);
  [[nodiscard]] bool release_pivot(NodeOf node, alloc::Redo& record, Offset& freed);

  // --- parent.cpp ---
  Outcome post(unsigned level, Key split_key);
  Outcome post_into(const Found& child, const Found& parent, const Place& place, Key split_key);
  Outcome append_inner(const Found& child, const Found& parent, Side side, Key split_key);
  Outcome grow_root(unsigned level, const Found& child, Key split_key);

  // --- merge.cpp ---
  // False: done, or it cannot be done, but for space that may come back after a grace period.
  [[nodiscard]] bool rebalance(Key key);
  enum class Balance : std::uint8_t { done, retry, go_up, found, no_space };
  Balance rebalance(unsigned level, const Probe& probe);
  struct Pair;  // two neighbours under one parent
  [[nodiscard]] Balance find_pair(unsigned level, const Probe& probe, Pair& pair);
  [[nodiscard]] bool lock_pair(const Pair& pair, base::LockSet& locks) const;
  [[nodiscard]] Outcome settle_pair(const Pair& pair) const;
  struct Replacement;
  Outcome replace_pair(const Pair& pair, const Sorted& sorted, unsigned keep, Owned& separator);
  Outcome absorb(const Pair& pair, bool left_goes);
  // Worth a look at the neighbours, once on the way down: merging, borrowing, unlinking.
  [[nodiscard]] bool sparse(unsigned used) const {
    return used == capacity_ / 4 || used == capacity_ / 8 || used == 0;
  }
  Outcome release_pair(const Pair& pair, Replacement& replacement);
  Outcome forget_right(const Pair& pair);
  [[nodiscard]] bool in_use(std::span<const Offset> blocks) const;
  Outcome link_replacement(const Pair& pair, Replacement& replacement);
  // I5, for threads on their way to it: in a block that is free, so there is nothing to flush (A9).
  void mark_dead(NodeOf node) const {
    c_.medium.store(&node.header()->meta, node.meta() | kDead, 0);
  }
  void join(const Pair& pair, Sorted& sorted) const;
  void shrink_root();

  // --- scan.cpp ---
  [[nodiscard]] Outcome scan_once(Key from, std::optional<Key> to, std::size_t limit,
                                  Out& out) const;
  [[nodiscard]] Outcome scan_back_once(std::optional<Key> from, std::size_t limit, Out& out) const;
  template <class Scan>
  [[nodiscard]] Outcome beside_batches(Scan scan) const;
  [[nodiscard]] bool read_leaf(Offset node, std::uint64_t version, Sorted& sorted,
                               Offset& next) const;
  [[nodiscard]] bool readable(const Sorted& sorted) const;
  [[nodiscard]] bool last_leaf(Found& found) const;

  // --- bulk.cpp ---
  Outcome write_entries(Entries entries, alloc::Redo& record, std::vector<Reserved>& blocks,
                        Sorted& sorted);
  Outcome append_leaf(Entries entries, const everleaf::Entry<Key>* before, bool& appended);
  [[nodiscard]] Outcome expect_empty() const;

  // --- check.cpp ---
  struct Survey;
  void survey(Survey& survey) const;
  void survey_level(Survey& survey, unsigned level, Offset first) const;
  [[nodiscard]] bool survey_node(Survey& survey, Offset offset, unsigned level) const;
  void survey_entries(Survey& survey, Offset offset, NodeOf node) const;
  [[nodiscard]] bool survey_key(Survey& survey, Offset offset, Word word, bool owned) const;
  [[nodiscard]] bool survey_regions(Survey& survey, Offset offset, NodeOf node) const;
  void survey_children(Survey& survey, Offset offset, Offset leftmost, const Sorted& sorted) const;

  // What happened since the index was opened (stats). Rare events: one line for all threads.
  enum class Count : std::uint8_t {
    wrong_child_visits,
    splits,
    finished_splits,
    appended_nodes,
    merges,
    borrows,
    late_parent_entries
  };
  static constexpr std::array<const char*, 7> kCountNames{
      "wrong_child_visits", "splits", "finished_splits", "appended_nodes", "merges", "borrows",
      "late_parent_entries"};
  void count(Count what) const {
    counts_[static_cast<std::size_t>(what)].fetch_add(1, std::memory_order_relaxed);
  }

  const Context c_;
  const std::uint32_t bytes_;
  const unsigned capacity_;
  const Keys keys_;
  base::LockTable locks_;
  base::VersionLock gate_;
  mutable base::Mutex batches_;            // held by an insert_all(), and by who lost to too many
  mutable std::atomic<unsigned> late_{0};  // of those who wait for one of these two
  mutable std::array<std::atomic<std::uint64_t>, kCountNames.size()> counts_{};
};

}  // namespace everleaf::tree::pbtree
