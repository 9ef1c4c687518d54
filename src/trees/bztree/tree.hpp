// The BzTree (Arulraj et al., PVLDB 11(5), 2018). README.md has the persist steps and crash cases.
//
// Thread safety: all operations from any thread, without latches: a thread that stops anywhere
// holds nobody up (limits: src/pmwcas/README.md). Readers wait for nobody, and write nothing but
// the bit by which a scan has writers leave a leaf alone.
// Invariants
//   I1. A key has at most one visible entry in the tree.
//   I2. A node that is not frozen is reachable. A frozen one changes no more, and while it is
//       reachable anybody may replace it by a copy.
//   I3. Inner nodes change in their child words only, and with each the version in their status.
//   I4. Visible entries, nodes, key records and payloads are durable before anybody can see them,
//       and of what is visible words alone change, by operations (and the bit that scans set).
//   I5. Keys below separator i of an inner node lie under children 0..i, the others behind.
//   I6. In a leaf of 8-byte keys without deleted bytes sorted entries are as the leaf was made, but
//       for bits 0 to 62 of their values.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "base/instantiate.hpp"
#include "trees/bztree/node.hpp"
#include "trees/contract.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree::bztree {

struct Options {
  std::uint32_t page;    // most bytes of a node
  std::uint32_t free;    // at least, of a fresh leaf
  std::uint32_t split;   // most bytes of a leaf's entries and free space
  std::uint32_t merge;   // bytes below which a node is merged
  std::uint32_t dead;    // deleted bytes above which a leaf is consolidated
  bool in_place;         // updates change the value's word
  bool reserve_entry;    // a reservation has two words
  bool payloads;         // values are payloads
  std::uint32_t within;  // most bytes of one that lies in its leaf
};
Result<Options> parse_options(const base::Spec& canonical);

template <class Keys>
class BzTree final : public detail::Tree<typename Keys::Key>,
                     private detail::PayloadTree<typename Keys::Key> {
 public:
  using Key = typename Keys::Key;
  using Out = std::vector<Entry<Key>>;
  using PayloadsOut = std::vector<PayloadEntry<Key>>;

  BzTree(const Context& context, const Options& options);

  // Recovers what a crash interrupted.
  Result<void> open();

  Outcome write(Key key, std::uint64_t value, Write what) override;
  Lookup find(Key key) const override;
  void find_many(std::span<const Key> keys, std::span<Lookup> answers) const override;
  Outcome scan(Key from, std::optional<Key> to, std::size_t limit, Out& out) const override;
  Outcome scan_back(std::optional<Key> from, std::size_t limit, Out& out) const override;
  Outcome bulk_load(std::span<const Entry<Key>> entries, double fill) override;
  detail::PayloadTree<Key>* payloads() override { return options_.payloads ? this : nullptr; }
  Outcome sync() override { return c_.medium.failed() ? Outcome::io_error : Outcome::done; }
  CheckReport check() const override;
  Stats stats() const override;
  void for_each_block(const detail::Visit& visit) const override;
  bool closing() override;

 private:
  // payload.cpp
  Outcome write_payload(Key key, Bytes payload, Write what) override;
  Outcome find_payload(Key key, std::string& payload) const override;
  Outcome scan_payloads(Key from, std::optional<Key> to, std::size_t limit,
                        PayloadsOut& out) const override;
  Outcome scan_payloads_back(std::optional<Key> from, std::size_t limit,
                             PayloadsOut& out) const override;

  using LeafOf = Leaf<Keys>;
  using InnerOf = Inner<Keys>;
  using Probe = typename Keys::Probe;
  using Owned = decltype(Keys::own(Key{}));
  using Items = std::vector<Item<Key>>;
  using Pairs = std::vector<Pair<Key>>;
  using Sep = Separator<Key>;
  using Answer = pmwcas::Answer;
  using Descriptor = pmwcas::Descriptor;

  struct Step {
    Offset node;
    std::uint32_t position;  // of the child that was taken
  };
  struct Path {
    unsigned depth = 0;  // steps are inner nodes from the root on
    std::array<Step, kMaxHeight> steps;
    Offset leaf = 0;
  };
  // What names a node: a word of its parent or of the root block.
  struct Parent {
    Word* status;
    Word* child;
  };
  // The content of an inner node that is to be written.
  struct Content {
    std::vector<Sep> separators;
    std::vector<Offset> children;

    // Separators [first, last) and what lies beside them.
    [[nodiscard]] Content part(std::size_t first, std::size_t last) const {
      const auto sep = separators.begin() + static_cast<std::ptrdiff_t>(first);
      const auto child = children.begin() + static_cast<std::ptrdiff_t>(first);
      const auto n = static_cast<std::ptrdiff_t>(last - first);
      return {{sep, sep + n}, {child, child + n + 1}};
    }
  };
  // What a split changes above its node: the parent's content, with a separator more. Of the root
  // node the content of a parent that is to be.
  struct Above {
    Word parent_status = 0;
    Word status = 0;             // of what names the parent
    std::uint32_t position = 0;  // of the node in the parent
    Content content;

    void insert(const Sep& one) {
      content.separators.insert(content.separators.begin() + position, one);
    }
  };
  struct Value {    // that is written
    Word word = 0;  // a number
    Bytes payload;  // or that
  };
  // Blocks beside the leaf of an entry that is written; 0 each of what lies in the leaf.
  struct Beside {
    Reserved key;
    Reserved payload;
    explicit Beside(alloc::Heap& heap) : key(heap), payload(heap) {}
  };
  struct Attempt {  // of an operation: over, or to be tried again
    bool over;
    Outcome outcome = Outcome::done;
  };
  static Attempt again() { return {false}; }
  static Attempt answer(Outcome outcome) { return {true, outcome}; }
  // What came of a structure change: try again, or an error.
  static Attempt retried(Outcome outcome) {
    return outcome == Outcome::done ? again() : answer(outcome);
  }
  [[nodiscard]] static Outcome outcome_of(Answer answer);

  [[nodiscard]] std::uint64_t room(Offset node) const;
  [[nodiscard]] bool possible(Offset node) const { return room(node) >= pmem::kLine; }
  // Of a possible one, whatever lies there: who reads it stays inside the pool. `page` is that of
  // the options, and a constant where it is the usual one.
  [[nodiscard]] static bool readable(const InnerOf& node, std::uint32_t page, std::uint64_t room) {
    return node.header().bytes() == page && page <= room &&
           (node.header().level() == 0 || node.plausible(page));
  }
  [[nodiscard]] bool readable(Offset at) const {
    return possible(at) && readable(unread(at), options_.page, room(at));
  }
  [[nodiscard]] InnerOf unread(Offset at) const { return InnerOf(c_.medium.at(at)); }
  // Of a readable one.
  template <class NodeOf>
  [[nodiscard]] NodeOf confined(Offset at) const {
    NodeOf node(c_.medium.at(at));
    node.confine(options_.page);
    return node;
  }
  [[nodiscard]] LeafOf leaf(Offset at) const { return confined<LeafOf>(at); }
  [[nodiscard]] InnerOf inner(Offset at) const { return confined<InnerOf>(at); }
  [[nodiscard]] RootAt* root() const { return c_.medium.at<RootAt>(root_); }
  [[nodiscard]] Status status(const LeafOf& of) const { return {words_->read(of.status())}; }
  struct Way {  // down: a node that nobody has looked at, and a level above its own
    Offset node;
    unsigned level;
  };
  enum class Walk : std::uint8_t { on, there, damaged };
  [[nodiscard]] Way begin() const;
  enum class To : std::uint8_t { find, all };  // what of a leaf is wanted
  template <class Pass>
  [[nodiscard]] Walk step(const Probe& probe, Aim aim, To to, Way& way, Pass pass) const;
  template <class Pass>
  [[nodiscard]] Walk step(std::uint32_t page, const Probe& probe, Aim aim, To to, Way& way,
                          Pass& pass) const;
  // A leaf that was replaced meanwhile still shows what it held until then. Of a payload: where it
  // lies.
  [[gnu::always_inline]] Lookup look(const Probe& probe, Offset at) const {
    const LeafOf here = leaf(at);
    const auto hit = here.find(*words_, keys_, probe, status(here));
    if (hit.damaged) return {Outcome::corrupt, 0};
    if (!hit.found) return {Outcome::absent, 0};
    return {Outcome::done, value_of(here, hit.meta)};
  }
  class Search;
  template <class Pass>
  [[nodiscard]] bool go_down(const Probe& probe, Aim aim, To to, Offset& leaf, Pass pass) const;
  // False: the tree is damaged.
  [[nodiscard]] bool descend(const Probe& probe, Aim aim, Path& path) const;
  [[nodiscard]] bool locate(const Probe& probe, Offset& leaf) const;
  // Of the node at this depth; 0: of the root node.
  [[nodiscard]] Parent parent_of(const Path& path, unsigned depth) const;
  [[nodiscard]] std::optional<Owned> bound(const Path& path, bool high) const;
  // A scan goes on to the leaf behind or before the path's, if they have a parent in common.
  void expect_neighbour(const Path& path, bool high) const;

  // write.cpp
  [[nodiscard]] Outcome change(Key key, const Value& value, Write what);
  [[nodiscard]] Attempt attempt(const Probe& probe, const Value& value, Write what, bool& shrinks);
  [[nodiscard]] Attempt remove(const LeafOf& leaf, Status s, const typename LeafOf::Hit& hit,
                               bool& shrinks);
  [[nodiscard]] Attempt update(const Path& path, const LeafOf& leaf, Status s,
                               const typename LeafOf::Hit& hit, const Value& value);
  [[nodiscard]] Attempt update_inline(const Path& path, const LeafOf& leaf, Status s,
                                      const typename LeafOf::Hit& hit, const Value& value);
  [[nodiscard]] Attempt insert(const Path& path, const LeafOf& leaf, Status s, const Probe& probe,
                               const Value& value);
  [[nodiscard]] Attempt complete(const LeafOf& leaf, const Probe& probe, const Value& value,
                                 Status seen, std::uint32_t position, Meta reserved, Meta final,
                                 Beside& beside);
  [[nodiscard]] bool write_key(Reserved& record, Key key);
  [[nodiscard]] bool write_block(Reserved& record, const Value& value);
  [[nodiscard]] bool lies_within(const Value& value) const {
    return value.payload.size() <= options_.within;
  }
  // Behind the key.
  [[nodiscard]] Bytes within(const Value& value) const {
    return lies_within(value) ? value.payload : Bytes{};
  }
  [[nodiscard]] Word word_of(const Value& value, const Beside& beside) const;
  // The payload's block of a value that is there.
  [[nodiscard]] Offset block_of(Word word) const {
    return options_.payloads ? PayloadAt::of(word).at : 0;
  }
  [[nodiscard]] static bool allocates(Descriptor& change, Beside& beside);
  // Of what cannot be in a leaf of that status: another one has changed it since, or it is damaged.
  [[nodiscard]] Attempt again_if_changed(const LeafOf& leaf, Status seen) const {
    return status(leaf).word == seen.word ? answer(Outcome::corrupt) : again();
  }
  [[nodiscard]] bool is_blank(const Word* meta) const;
  [[nodiscard]] Outcome give_up(const LeafOf& leaf, std::uint32_t position, Meta reserved,
                                std::uint32_t total);
  void write_record(const LeafOf& leaf, Meta entry, Word value, Key key, Word long_record,
                    Bytes payload);
  [[nodiscard]] Outcome begin_epoch();

  // payload.cpp
  // Of an entry: its number, or where its payload lies (PayloadAt), for payload_of().
  [[nodiscard]] Word value_of(LeafOf leaf, Meta m) const {
    const Word value = leaf.value_of(*words_, m);
    return options_.payloads ? locate_payload(leaf, m, PayloadAt::of(value)) : value;
  }
  [[nodiscard]] Word locate_payload(LeafOf leaf, Meta m, PayloadAt payload) const;
  [[nodiscard]] std::optional<Bytes> payload_of(Word value) const;
  [[nodiscard]] Lookup number_of(Lookup found) const {
    return options_.payloads && found ? number_in(*found) : found;
  }
  [[nodiscard]] Lookup number_in(Word value) const;
  [[nodiscard]] Outcome to_numbers(Out& out, std::size_t first) const;
  [[nodiscard]] Outcome copy_payloads(const Out& from, std::size_t first, PayloadsOut& to,
                                      std::uint64_t& left) const;
  // Of one scan; a sound pool has less than its size, and writers beside it add to that.
  [[nodiscard]] std::uint64_t most_copied() const { return 64 * c_.medium.size(); }

  // gather.cpp
  [[nodiscard]] bool gather(const LeafOf& leaf, Status s, Items& items) const;
  [[nodiscard]] bool gather(const LeafOf& leaf, Status s, Pairs& pairs) const;
  [[nodiscard]] bool gather(const LeafOf& leaf, Items& items) const {
    return gather(leaf, status(leaf), items);
  }

  // split.cpp
  [[nodiscard]] Outcome restructure(const Path& path, bool append);
  [[nodiscard]] Outcome replace_leaf(const Path& path, bool append);
  [[nodiscard]] Outcome consolidate(const Path& path, const Items& live);
  [[nodiscard]] bool look_above(const Path& path, unsigned depth, Above& above, Outcome& outcome);
  [[nodiscard]] Outcome install_pair(const Path& path, unsigned depth, Above& above,
                                     std::vector<Reserved>& fresh, bool& installed);
  [[nodiscard]] Outcome split_leaf(const Path& path, const Items& live, bool append);
  [[nodiscard]] Outcome split_inner(const Path& path, unsigned depth, bool append);
  [[nodiscard]] Outcome refresh_above(const Path& path, unsigned child);
  [[nodiscard]] std::uint32_t bytes_for(std::span<const Item<Key>> items) const;
  // Of changes that free no less than they take: the spare blocks are for them.
  enum class Need : std::uint8_t { growth, replacement };
  [[nodiscard]] bool get_page(Reserved& block, alloc::Placement placement, Need need);
  void keep_spares();
  void put_fingerprints(std::byte* base, std::span<const Item<Key>> items, bool has_tops);
  [[nodiscard]] Outcome make_leaf(std::span<const Item<Key>> items, Need need,
                                  std::vector<Reserved>& fresh);
  [[nodiscard]] Outcome make_inner(std::uint32_t level, const Content& content, Need need,
                                   std::vector<Reserved>& fresh);
  [[nodiscard]] Outcome own_separator(Key key, Sep& separator, std::vector<Reserved>& fresh);
  [[nodiscard]] Content content_of(const InnerOf& node) const;
  // Whether the node above `depth` with one more separator is to be split first.
  [[nodiscard]] bool overflows(const Content& content, unsigned depth) const {
    return depth != 0 && content.separators.size() > 3 &&
           InnerOf::bytes_for(options_.page, content.separators) > options_.page;
  }
  [[nodiscard]] bool is_long(Key key) const;
  // Of a fresh leaf: any one entry fits.
  [[nodiscard]] std::uint32_t free_bytes() const {
    constexpr std::uint32_t kBeside = 2 * sizeof(Word);  // its metadata and value
    return std::max(options_.free, kBeside + padded(options_.within) +
                                       (Keys::kInlineBytes ? padded(options_.page / kLongKeys)
                                                           : std::uint32_t{sizeof(Word)}));
  }
  // Whether it is frozen afterwards; else somebody changed the word meanwhile, or it failed.
  [[nodiscard]] Outcome freeze(Word* status, bool& frozen);
  struct Freeze {
    Word* status = nullptr;
    Word seen = 0;
  };
  // The node at `depth` of the path gives way to `to`; `parent_status`: as it was before anything
  // was copied. `also`: frozen with it.
  [[nodiscard]] Outcome install(const Path& path, unsigned depth, Word parent_status, Offset to,
                                Freeze also, std::vector<Reserved>& fresh,
                                std::span<const Offset> gone, bool& installed);
  [[nodiscard]] Offset node_at(const Path& path, unsigned depth) const {
    return depth == path.depth ? path.leaf : path.steps[depth].node;
  }

  // bulk.cpp
  [[nodiscard]] Outcome collapse();
  [[nodiscard]] Outcome collapse_at(std::optional<Owned>& key, bool& changed);
  [[nodiscard]] std::size_t size_of_root_leaf() const;
  [[nodiscard]] Outcome append(const Items& items, const Entry<Key>* before);
  [[nodiscard]] Outcome append_leaf(const Items& items, const Entry<Key>* before, bool& installed);

  // merge.cpp
  void shrink(Key key);
  [[nodiscard]] bool shrink_once(const Probe& probe);
  [[nodiscard]] Outcome merge(const Path& path, unsigned depth, bool& merged);
  [[nodiscard]] bool is_small(const Path& path, unsigned depth) const;
  [[nodiscard]] Outcome join(Offset left, const Sep& between, Offset right,
                             std::vector<Reserved>& fresh);

  // scan.cpp
  [[nodiscard]] bool snapshot(const LeafOf& leaf, Pairs& pairs) const;
  // read(first): of what was copied out from there on, while it cannot be freed.
  template <class Read>
  Outcome scan_leaves(Key from, std::optional<Key> to, std::size_t limit, Out& out,
                      Read read) const;
  template <class Read>
  Outcome scan_leaves_back(std::optional<Key> from, std::size_t limit, Out& out, Read read) const;

  struct Survey;  // check.cpp
  void survey(Survey& s, Offset at, unsigned level, const std::optional<Owned>& low,
              const std::optional<Owned>& high) const;
  void survey_leaf(Survey& s, Offset at, const std::optional<Owned>& low,
                   const std::optional<Owned>& high) const;
  [[nodiscard]] const char* survey_record(Survey& s, Offset record) const;
  [[nodiscard]] const char* survey_payload(Survey& s, const Item<Key>& item) const;
  void survey_all(Survey& s) const;

  Context c_;
  const Options options_;
  const Keys keys_;
  const Offset root_;
  std::unique_ptr<Words> words_;  // since open()
  std::atomic<Word> epoch_{0};
  std::array<std::atomic<Offset>, 2> spares_{};  // reserved blocks by Placement; 0: none
  std::atomic<std::uint64_t> consolidations_{0};
  std::atomic<std::uint64_t> splits_{0};
  std::atomic<std::uint64_t> inner_splits_{0};
  std::atomic<std::uint64_t> merges_{0};
};

}  // namespace everleaf::tree::bztree
