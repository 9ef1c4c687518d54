// The wB+-Tree (Chen, Jin, PVLDB 8(7), 2015). README.md has the persist steps and crash cases.
//
// Thread safety: all operations from any thread. Readers are optimistic and write nothing; writers
// hold version locks (in DRAM) of the nodes that they change, and never wait for one while they
// hold another.
// Invariants
//   I1. A node's content changes only under its lock, and the lock is released after the fence that
//       makes the change durable: what a reader returns cannot vanish in a crash.
//   I2. Keys of a child lie in [separator before it, separator behind it). Separators own their
//       copy of a bytes key.
//   I3. leaf.link is the next leaf; no reachable leaf is empty but a root leaf.
//   I4. In a slot+bitmap node whose bit 0 is set, the slot array names exactly the entries of the
//       bitmap, in key order. While bit 0 is clear, the bitmap alone counts.
//   I5. A node that was unlinked is reused only after its grace period; its lock's version has
//       changed, so nobody who saw it before can act on it.
// What spans nodes goes through one redo record: torn (A4), whole (A5), or met again by a crash in
// recovery (A6), it changes everything or nothing.
#pragma once

#include <array>

#include "trees/contract.hpp"
#include "trees/scan.hpp"
#include "trees/wbtree/keys.hpp"
#include "trees/wbtree/layout.hpp"
#include "trees/wbtree/node.hpp"

namespace everleaf::tree::wbtree {

struct Options {
  Shape leaf;
  Shape inner;
};
Result<Options> parse_options(const base::Spec& canonical);

template <class Keys>
class WbTree final : public detail::Tree<typename Keys::Key> {
 public:
  using Key = typename Keys::Key;
  using Out = std::vector<everleaf::Entry<Key>>;

  WbTree(const Context& context, const Options& options)
      : c_(context), leaf_(options.leaf), inner_(options.inner), keys_(context.medium) {}

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

 private:
  using Probe = typename Keys::Probe;
  enum class Walk : std::uint8_t { there, retry, corrupt };

  struct Place {  // a node and the version under which it was reached
    Offset node;
    base::VersionLock* lock;
    std::uint64_t version;
    bool is_root;
  };
  struct Way {  // down to it: a node that nobody has looked at, and what names it
    const base::VersionLock* above;
    std::uint64_t version;  // of what is above
    Offset node;            // 0: what names it names an impossible one
    unsigned height;
  };
  static constexpr unsigned kFetched = 1;  // up to this height; what is above is cached
  struct Step {
    Offset node;
    std::uint64_t version;
    unsigned position;  // separators before the child that was taken
  };
  struct Path {
    std::uint64_t root_version;
    unsigned depth;  // steps[depth] is the leaf
    std::array<Step, kMaxHeight + 1> steps;
    bool has_low;
    Word low;  // the largest separator at or below the leaf's keys
  };
  struct Hit {
    bool found;
    unsigned entry;
    Word control;
    Slots slots;        // valid unless the leaf is bitmap-only
    unsigned position;  // slots with smaller keys
  };
  // --- tree.cpp: ways down ---
  [[nodiscard]] base::VersionLock& lock_of(Offset node) const { return locks_.of(node); }
  [[nodiscard]] Word* root_word() const { return c_.medium.template at<Word>(c_.root_word); }
  [[nodiscard]] bool possible(Offset node) const {
    return node % kNodeAlign == 0 && alloc::fits_slab(node, leaf_.bytes) &&
           c_.medium.contains(node, leaf_.bytes);
  }
  [[nodiscard]] Node leaf(Offset node) const { return {c_.medium.at(node), leaf_}; }
  [[nodiscard]] Node inner(Offset node) const { return {c_.medium.at(node), inner_}; }
  [[nodiscard]] Node node_of(const Way& way) const {
    return way.height == 0 ? leaf(way.node) : inner(way.node);
  }
  class Search;
  [[nodiscard]] Way begin(const Probe& probe) const;
  void prefetch(const Way& way) const;
  // nullopt: on the way. step() takes a node, and is enter(), a search in it, and leave().
  [[nodiscard]] std::optional<Walk> enter(const Way& way, Place& place) const;
  [[nodiscard]] std::optional<Walk> leave(Way& way, const Place& place, Offset child) const;
  [[nodiscard]] std::optional<Walk> step(const Probe& probe, Way& way, Place& place) const;
  [[nodiscard]] bool look(const Probe& probe, const Place& place, Lookup& answer) const;
  [[nodiscard]] Walk descend(const Probe& probe, Place& place) const;
  [[nodiscard]] Walk descend(const Probe& probe, Aim aim, Path& path) const;
  [[nodiscard]] Offset child_for(const Place& place, const Probe& probe) const;
  void search_leaf(Offset node, const Probe& probe, const base::VersionLock& lock,
                   std::uint64_t version, Hit& hit) const;

  // --- write.cpp: one leaf ---
  Outcome put(Key key, std::uint64_t value, Write what);
  Outcome remove(Key key);
  Outcome insert_entry(Node node, Hit& hit, Key key, Reserved& record, std::uint64_t value);
  Outcome remove_entry(Node node, Hit& hit);
  Outcome store_value(Node node, const Hit& hit, std::uint64_t value);
  Outcome commit_in_place(Node node, const Slots& slots, Word before, Word after);
  [[nodiscard]] bool invalidate_slots(Node node, Word control);
  [[nodiscard]] bool repair_slots(Node node);
  void write_slots(Node node, const Slots& slots);
  void log_slots(alloc::Redo& record, Node node, const Slots& slots) const;
  [[nodiscard]] bool release_record(alloc::Redo& record, Word key, Offset& block);

  // --- split.cpp ---
  Outcome make_room(const Probe& probe);
  Walk split(const Path& path, unsigned level, const Probe& probe, Outcome& outcome);
  struct Halves {  // what a split of one node comes to
    Slots left;
    Word left_control;
    Word separator;     // a key word of the split node
    Word last_of_left;  // leaves: the largest key that stays
  };
  void fill_right(alloc::Redo& record, Node node, Node right, const Slots& slots, unsigned keep,
                  Halves& halves);
  Outcome own_separator(Halves& halves, Reserved& block, alloc::Redo& record, bool is_leaf);
  void link_child(alloc::Redo& record, Node parent, unsigned position, Word separator,
                  Offset child);
  void log_slots_and_control(alloc::Redo& record, Node node, const Halves& halves) const;
  void fill_root(alloc::Redo& record, Node root, Offset left, Word separator, Offset right);

  // --- unlink.cpp ---
  Walk unlink(const Probe& probe, Outcome& outcome);
  struct Unlinking;
  [[nodiscard]] Walk find_left_leaf(const Path& path, Unlinking& u) const;
  [[nodiscard]] bool lock_for_unlink(const Path& path, const Unlinking& u,
                                     base::LockSet& locks) const;
  [[nodiscard]] bool drop_child(const Path& path, Unlinking& u, alloc::Redo& record);
  [[nodiscard]] bool free_block(Unlinking& u, alloc::Redo& record, Offset block);

  // --- scan.cpp ---
  struct Batch;  // a leaf's entries
  [[nodiscard]] Walk read_leaf(Offset node, std::uint64_t version, Batch& batch) const;
  [[nodiscard]] bool sort_batch(Batch& batch) const;

  // --- bulk.cpp ---
  using Entries = std::span<const everleaf::Entry<Key>>;
  class Blocks;  // reserved blocks of one step
  [[nodiscard]] bool fill_leaf(Node node, Entries entries, alloc::Redo& record, Blocks& blocks);
  [[nodiscard]] Outcome expect_empty() const;
  Walk append_leaf(Entries entries, const everleaf::Entry<Key>* before, Outcome& outcome);
  [[nodiscard]] bool link_last(const Path& path, Offset fresh, Word separator, alloc::Redo& record,
                               Blocks& blocks);

  // --- check.cpp ---
  struct Survey;
  void survey(Survey& survey) const;
  void survey_node(Survey& survey, Offset node, unsigned height) const;
  void survey_leaf(Survey& survey, Offset offset, Node node, const Slots& slots,
                   bool is_root) const;
  [[nodiscard]] bool survey_keys(Survey& survey, Offset offset, Node node,
                                 const Slots& slots) const;

  const Context c_;
  const Shape leaf_;
  const Shape inner_;
  const Keys keys_;
  base::LockTable locks_;
};

}  // namespace everleaf::tree::wbtree
