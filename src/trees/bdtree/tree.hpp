// The BD+Tree (Du, Scott, SIGMOD 2024) with versioned cells. README.md has the scheme, the order of
// stores and the crash cases.
//
// Thread safety: all operations from any thread. Readers are optimistic and write nothing; writers
// are in an epoch's section and hold the version locks of what they change.
// Invariants
//   I1. A leaf changes only under its lock, by a writer of epoch e that found the clock at e after
//   it
//       took the lock, and no word of the leaf newer than e.
//   I2. The value of a cell at epoch v is its word with the largest tag at or below v. A slot that
//   is
//       set in the words for e, e - 1 or e - 2 keeps its key and value, but for slots that epoch e
//       itself set.
//   I3. `next` of a leaf that was not born in this epoch changes only when the reclaimer unlinks
//   its
//       retired successor. A retired leaf never changes again, but for its tags (D10).
//   I4. Everything stored in the pool in epoch e is noted in e.
//   I5. Inner nodes lead to each leaf that is not retired, exactly once, in the order of the list.
#pragma once

#include <array>
#include <deque>
#include <type_traits>
#include <unordered_set>

#include "base/instantiate.hpp"
#include "epoch/epochs.hpp"
#include "epoch/limbo.hpp"
#include "trees/bdtree/layout.hpp"
#include "trees/bdtree/leaf.hpp"
#include "trees/contract.hpp"
#include "trees/fingerprint_keys.hpp"
#include "trees/inner.hpp"

namespace everleaf::tree::bdtree {

struct Options {
  Shape shape;
};
Result<Options> parse_options(const base::Spec& canonical);

template <class Keys>
class BdTree final : public detail::Tree<typename Keys::Key> {
 public:
  using Key = typename Keys::Key;
  using Owned = typename OwnedKey<Key>::type;
  using Out = std::vector<everleaf::Entry<Key>>;

  BdTree(const Context& context, const Options& options);
  ~BdTree() override;

  // Builds the inner nodes: from the image that the last close left, or from the leaf list, rolling
  // back what is newer than the durable epoch. corrupt, io, out_of_space (memory).
  [[nodiscard]] Result<void> open();

  Outcome write(Key key, std::uint64_t value, Write what) override;
  Outcome exchange(Key key, std::uint64_t value, Write what,
                   std::optional<std::uint64_t>& old) override;
  Lookup find(Key key) const override;
  void find_many(std::span<const Key> keys, std::span<Lookup> answers) const override;
  Outcome scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const override;
  Outcome scan_back(std::optional<Key> from, std::size_t limit, Out& out) const override;
  Outcome bulk_load(std::span<const everleaf::Entry<Key>> entries, double fill) override;
  Outcome sync() override { return c_.read_only ? Outcome::done : c_.epochs->sync(); }
  CheckReport check() const override;
  Stats stats() const override;
  void for_each_block(const detail::Visit& visit) const override;
  bool closing() override;

 private:
  using Probe = typename Keys::Probe;
  using Nodes = Inner<Keys, LeafNumbers>;
  using Path = typename Nodes::Path;
  using Section = epoch::Epochs::Section;
  // What an attempt came to, if not to an outcome.
  enum class Next : std::uint8_t { done, again, split, unlink, grow };
  struct Attempt {
    Next next;
    Outcome outcome = Outcome::done;  // of done, split (again afterwards) and unlink
    std::size_t bytes = 0;            // of grow
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
  struct Insertion {
    Insertion(epoch::Space& space, std::size_t limit) : block(space), most(limit) {}
    Block block;  // the key record
    Word word = 0;
    const std::size_t most;                 // entries that a leaf takes
    std::optional<std::uint64_t> old = {};  // the value that was replaced or removed
  };

  // --- tree.cpp ---
  [[nodiscard]] base::VersionLock& lock_of(Offset leaf) const { return locks_.of(leaf); }
  [[nodiscard]] Leaf leaf(Offset at) const { return {c_.medium.at(at), options_.shape}; }
  [[nodiscard]] Offset head() const {
    return pmem::load(c_.medium.template at<Word>(c_.root_word));
  }
  [[nodiscard]] bool possible(Offset at) const {
    return at >= pmem::kHeapAt && at % kLeafAlign == 0 &&
           c_.medium.contains(at, options_.shape.bytes);
  }
  struct Hit {
    bool found = false;
    std::size_t slot = 0;
    Word key = 0;
    std::uint64_t value = 0;
  };
  static Lookup answer_of(const Hit& hit) {
    return hit.found ? Lookup{Outcome::done, hit.value} : Lookup{Outcome::absent, 0};
  }
  [[nodiscard]] Word candidates(const Leaf& leaf, std::size_t cell, const Probe& probe) const;
  [[nodiscard]] bool search(const Leaf& leaf, std::size_t cell, Word candidates, const Probe& probe,
                            Hit& hit) const;
  void search(const Leaf& leaf, const Probe& probe, Hit& hit) const;
  [[nodiscard]] bool look(const Probe& probe, const typename Nodes::Place& place,
                          Lookup& answer) const;
  class Search;

  // --- write.cpp ---
  Outcome put(Key key, std::uint64_t value, Write what, Insertion& insertion);
  Attempt attempt(Key key, std::uint64_t value, Write what, Insertion& insertion);
  Attempt change(Section& section, const Leaf& leaf, const Hit& hit, const Probe& probe,
                 std::uint64_t value, Write what, Insertion& insertion);
  [[nodiscard]] bool writable(const Section& section, const Leaf& leaf) const;
  [[nodiscard]] bool damaged(const Leaf& leaf) const;
  Versions begin_cell(Section& section, const Leaf& leaf, std::size_t cell);
  void note_slot(Section& section, const Leaf& leaf, std::size_t slot);
  void put_slot(Section& section, const Leaf& leaf, std::size_t slot, Word key, std::uint64_t value,
                std::uint8_t fingerprint);
  void store_fingerprint(const Leaf& leaf, std::size_t slot, std::uint8_t fingerprint);
  static constexpr std::size_t kNoSlot = ~std::size_t{0};
  [[nodiscard]] std::size_t free_slot(const Leaf& leaf, Epoch e) const;
  Outcome more_space(std::size_t bytes, bool& tried);
  Attempt unlink_or_leave(Key key);

  // --- split.cpp ---
  Attempt split(Key key, std::size_t most);
  Attempt split_leaf(Section& section, const Path& path, std::uint64_t version, const Probe& probe,
                     std::size_t most);
  Attempt unlink(Key key);
  struct Live {
    std::array<std::size_t, kMaxSlots> slots;
    std::size_t count = 0;
  };
  [[nodiscard]] Key key_at(const Leaf& leaf, std::size_t slot) const {
    return keys_.key_of(pmem::load(&leaf.slot(slot)->key));
  }
  [[nodiscard]] bool collect(const Leaf& leaf, Live& live) const;
  using SlotNumbers = std::span<const std::size_t>;  // of live slots, in key order
  [[nodiscard]] static Owned low_of(const Path& path);
  [[nodiscard]] bool in_range(const Path& path, const Leaf& leaf, SlotNumbers slots) const;
  void compact(Section& section, const Path& path, SlotNumbers slots, Block& left);
  void halve(Section& section, const Path& path, SlotNumbers slots, const Probe& probe, Block* left,
             Block& right);
  void replace(Section& section, const Path& path, SlotNumbers slots, Block& left, Offset next);
  void move_right(Section& section, const Leaf& from, SlotNumbers slots, Offset right, Offset next);
  void fill(Section& section, Offset at, const Leaf& from, SlotNumbers slots, Offset next);
  void retire(Section& section, Offset at, Offset replacement);
  [[nodiscard]] bool born_in(const Leaf& leaf, Epoch e) const;

  // --- reclaim.cpp ---
  void reclaim();
  void free_what_is_durable(Epoch durable);
  void unlink_retired(Epoch durable);
  struct Retired {
    Offset leaf;
    Epoch epoch;
    Owned key;  // the first of its range
  };
  void retired_later(Offset leaf, Epoch epoch, Owned key);
  void note_gone(Offset next, Offset leaf, Epoch epoch);
  bool unlink_from_list(Offset leaf, const Owned& key);
  bool unlink_behind(Section& section, Offset before, Offset leaf, bool& found);

  // --- restamp.cpp ---
  [[nodiscard]] bool has_old_tags(const Leaf& leaf, Epoch base) const;
  template <class Changed>
  void restamp(const Leaf& leaf, Epoch base, Changed&& changed);
  bool restamp_alone(const Leaf& leaf, Epoch durable);
  void look_for_old_tags();
  [[nodiscard]] bool look_at_tags(Section& section, Offset& at);
  [[nodiscard]] bool some_key(Offset at, Owned& key) const;

  // --- scan.cpp ---
  struct Batch;
  [[nodiscard]] bool read_leaf(Offset at, Batch& batch) const;

  // --- image.cpp ---
  using Children = std::vector<typename Nodes::Child>;
  [[nodiscard]] RootLine* root_line() const { return c_.medium.template at<RootLine>(head()); }
  [[nodiscard]] std::vector<Word> make_image();
  void write_image(const std::vector<Word>& words);
  [[nodiscard]] bool read_image(std::vector<Word>& words);
  [[nodiscard]] bool load_image(Children& children);
  [[nodiscard]] Result<void> drop_image();

  // --- recover.cpp and check.cpp ---
  [[nodiscard]] Result<void> walk(Children& children);
  [[nodiscard]] bool of_the_future(const Leaf& leaf) const;
  struct Range {
    Word least = 0;
    Word largest = 0;
  };
  // Of a place where a leaf can be; `step` is explained in recover.cpp.
  struct SeenOfRecords {
    Word step = 0;
  };
  struct SeenOfNumbers {
    Word step = 0;
    Range range;  // of the living keys
  };
  using Seen = std::conditional_t<Keys::kRecords, SeenOfRecords, SeenOfNumbers>;
  [[nodiscard]] Seen look_at(const Leaf& leaf, Epoch durable) const;
  [[nodiscard]] Word look_at_keys(const Leaf& leaf, const std::array<Word, kMaxCells>& live,
                                  Range& range) const;
  class Survey;
  struct Listed {
    Offset leaf;
    Seen seen;
  };
  [[nodiscard]] Result<void> follow_list(Survey& survey, std::vector<Listed>& list);
  struct Content {
    Owned least{};
    Owned largest{};
    bool live = false;
    bool sound = false;
  };
  [[nodiscard]] static Content content_of(const Seen& seen);
  [[nodiscard]] bool restore(std::span<const Listed> list, Epoch durable,
                             std::span<Content> contents);
  std::uint64_t roll_back(const Leaf& leaf, Epoch durable);
  [[nodiscard]] bool key_range(const Leaf& leaf, Content& content);
  [[nodiscard]] std::string inspect(Offset at, const Owned* low, const Owned* high) const;
  // Leaves of the list, from the left; false from `visit` ends it.
  template <class F>
  void for_each_linked(F&& visit) const {
    std::uint64_t left = c_.medium.size() / options_.shape.bytes;
    for (Offset at = Leaf::next_of(leaf(head()).links()); at != 0 && left != 0; --left) {
      if (!possible(at)) return;
      const Leaf here = leaf(at);
      if (!visit(at, here)) return;
      at = here.retired() ? Leaf::replacement_of(here.links()) : Leaf::next_of(here.links());
    }
  }

  const Context c_;
  const Options options_;
  const Keys keys_;
  base::LockTable locks_;
  // Frees inner nodes, separators, leaves and key records; used pinned, as c_.grace of strict
  // trees.
  mutable alloc::Grace grace_;
  epoch::Space space_;
  Nodes nodes_;
  base::Mutex queue_;            // guards the next
  std::deque<Retired> retired_;  // by epoch, nearly
  epoch::Limbo limbo_;
  // Of retired_, what went with another one. The reclaimer's alone.
  std::unordered_set<Offset> gone_;
  // The round that looks at all tags (D10), likewise: when the next one begins, and a key of the
  // leaf where this one goes on.
  Epoch next_round_ = 0;
  Epoch restamped_in_ = 0;  // the last time
  bool in_round_ = false;
  Owned round_at_{};
  std::uint64_t listener_ = 0;
  bool from_image_ = false;
  std::uint64_t rebuild_ns_ = 0;
  std::size_t workers_ = 1;                    // that rebuilt
  std::atomic<std::uint64_t> rolled_back_{0};  // words
  std::atomic<std::uint64_t> splits_{0};
  std::atomic<std::uint64_t> splits_in_place_{0};
  std::atomic<std::uint64_t> compactions_{0};
  std::atomic<std::uint64_t> restamped_{0};  // words
};

}  // namespace everleaf::tree::bdtree
