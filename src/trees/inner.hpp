// The inner nodes: a B+-tree in DRAM from keys to leaves (offsets), with optimistic version locks.
//
// Thread safety: descend() from any thread, pinned; the edits under the locks that they name.
// Invariants
//   N1. A node changes only under its lock; children in [separator before, separator behind).
//   N2. A node that was unlinked is freed after its grace period; separators likewise.
//   N3. The root is an inner node; every node has a child.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "alloc/grace.hpp"
#include "base/node_arena.hpp"
#include "base/stopwatch.hpp"
#include "base/version_lock.hpp"
#include "epoch/space.hpp"
#include "pmem/prefetch.hpp"
#include "trees/codes.hpp"
#include "trees/fingerprint_keys.hpp"
#include "trees/scan.hpp"

namespace everleaf::tree {

inline constexpr unsigned kMaxHeight = 16;

// Sorted prefixes, searched by halves; without branches that depend on them.
struct Halving {
  const std::atomic<std::uint64_t>* prefix;
  [[nodiscard]] unsigned upper_bound(std::uint64_t key, unsigned count) const {
    unsigned first = 0;
    unsigned n = count;
    while (n > 1) {
      const unsigned half = n / 2;
      const bool is_at = prefix[first + half - 1].load(std::memory_order_acquire) <= key;
      first += half & (0U - static_cast<unsigned>(is_at));  // decision 88
      n -= half;
    }
    return n == 0 ? 0 : first + (prefix[first].load(std::memory_order_acquire) <= key ? 1U : 0U);
  }
};
// By their codes.
struct Coded {
  const Codes* codes;
  const std::atomic<std::uint64_t>* prefix;
  [[nodiscard]] unsigned upper_bound(std::uint64_t key, unsigned count) const {
    return codes->upper_bound(
        key, count, [this](unsigned i) { return prefix[i].load(std::memory_order_acquire); });
  }
};

// Sorted separators of a node, which may change meanwhile: the caller validates.
template <class Keys, class Prefixes>
struct Separators {
  using Probe = typename Keys::Probe;
  Prefixes prefixes;
  const std::atomic<Separator*>* whole;  // of bytes keys
  unsigned count;

  // How many are at or below the probe, or below it; or all.
  [[nodiscard]] unsigned rank(const Probe& probe, Aim aim) const {
    if (aim == Aim::last) return count;
    if constexpr (Keys::kRecords) {
      return rank_whole(probe, aim);
    } else {
      // One more turns "below" into "at or below", but for the smallest key, which nothing is
      // below.
      if (aim == Aim::below && probe.prefix == 0) return 0;
      return upper_bound(probe.prefix - (aim == Aim::below ? 1 : 0));
    }
  }

 private:
  // Prefixes not above `key`.
  [[nodiscard]] unsigned upper_bound(std::uint64_t key) const {
    return prefixes.upper_bound(key, count);
  }
  [[nodiscard]] unsigned rank_whole(const Probe& probe, Aim aim) const {
    unsigned first = probe.prefix == 0 ? 0 : upper_bound(probe.prefix - 1);  // prefixes below
    unsigned last = std::max(first, upper_bound(probe.prefix));
    while (first < last) {  // among equal prefixes
      const unsigned middle = (first + last) / 2;
      const Separator* const one = whole[middle].load(std::memory_order_acquire);
      if (one == nullptr) return 0;  // torn: the caller validates
      const int order = Bytes(one->key).compare(probe.key);
      if (order < 0 || (order == 0 && aim == Aim::at)) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
};

// What inner nodes keep of a leaf: all 64 bits, or the number of a block.
struct LeafWords {
  using Word = std::uint64_t;
  static constexpr std::uint64_t kUnit = 1;
};
struct LeafNumbers {
  using Word = std::uint32_t;
  static constexpr std::uint64_t kUnit = epoch::kBlockAlign;
};

template <class Keys, class Leaves = LeafWords>
class Inner {
 public:
  using Probe = typename Keys::Probe;
  using Key = typename Keys::Key;
  using Owned = typename OwnedKey<Key>::type;
  static constexpr unsigned kFanout = 62;  // separators

  // What a search reads comes first: of 8-byte keys above numbered leaves 7 lines of 15.
  struct alignas(pmem::kLine) Node {
    explicit Node(unsigned above_leaves) : level(above_leaves) {}
    base::VersionLock lock;
    std::atomic<std::uint32_t> count{0};  // separators; children are one more
    const std::uint32_t level;            // 0: its children are leaves
    Codes codes;
  };
  struct Step {
    Node* node;
    std::uint64_t version;
    unsigned position;
  };
  struct Path {
    std::uint64_t root_version = 0;
    unsigned depth = 0;  // steps[depth - 1] is above the leaf
    std::array<Step, kMaxHeight> steps;
    std::uint64_t leaf = 0;  // what the lowest node names
    bool has_low = false;    // a separator at or below the leaf's keys
    std::uint64_t low_prefix = 0;
    const Separator* low = nullptr;

    [[nodiscard]] Step& parent() { return steps[depth - 1]; }
    [[nodiscard]] const Step& parent() const { return steps[depth - 1]; }
  };
  // A separator on its way into a node.
  struct Fresh {
    std::uint64_t prefix = 0;
    std::unique_ptr<Separator> whole;
  };

  explicit Inner(alloc::Grace& grace) : grace_(grace) {}
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  ~Inner() {
    if (Node* const root = root_.load(std::memory_order_relaxed)) free_all(root);
    for (Separator* one = leftover_.load(std::memory_order_relaxed); one != nullptr;) {
      delete std::exchange(one, one->next);
    }
  }

  [[nodiscard]] bool built() const { return root_.load(std::memory_order_relaxed) != nullptr; }
  [[nodiscard]] static Fresh fresh(const Owned& key) {
    Fresh separator{Keys::prefix_of(key), nullptr};
    if constexpr (Keys::kRecords) separator.whole = std::make_unique<Separator>(Separator{key});
    return separator;
  }
  [[nodiscard]] static Owned low_key(const Path& path) {
    if constexpr (Keys::kRecords) {
      return path.low->key;
    } else {
      return path.low_prefix;
    }
  }

  // False: something changed meanwhile, start again. Otherwise the leaf is the right one as long as
  // the parent is unchanged.
  [[nodiscard]] bool descend(const Probe& probe, Aim aim, Path& path) const {
    const base::Stopwatch watch(base::Part::traversal);
    base::reads_discarded();
    path.depth = 0;
    path.has_low = false;
    path.root_version = root_lock_.begin();
    Node* node = root_.load(std::memory_order_acquire);
    std::uint64_t version = node->lock.begin();
    if (!root_lock_.unchanged(path.root_version)) return false;
    while (true) {
      const unsigned position = rank(*node, probe, aim);
      const std::uint64_t child = child_at(*node, position);
      if (position > 0) {
        path.has_low = true;
        path.low_prefix = prefix_at(*node, position - 1);
        if constexpr (Keys::kRecords)
          path.low = wholes(*node)[position - 1].load(std::memory_order_acquire);
      }
      path.steps[path.depth++] = {node, version, position};
      if (!node->lock.unchanged(version)) return false;
      if (node->level == 0) {
        path.leaf = child;
        return true;
      }
      Node* const next = reinterpret_cast<Node*>(child);
      const std::uint64_t next_version = next->lock.begin();
      if (!node->lock.unchanged(version)) return false;
      node = next;
      version = next_version;
    }
  }

  // The short way: the leaf, and what to validate it by.
  struct Place {
    std::uint64_t leaf = 0;
    const base::VersionLock* lock = nullptr;
    std::uint64_t version = 0;
  };
  // On the way down to it: a node that nobody has looked at, and what names it.
  struct Walk {
    const base::VersionLock* above;
    std::uint64_t version;  // of what is above
    const Node* node;
  };
  enum class Came : std::uint8_t { down, there, changed };
  [[nodiscard]] Walk begin() const {
    base::reads_discarded();
    const std::uint64_t version = root_lock_.begin();
    return {&root_lock_, version, root_.load(std::memory_order_acquire)};
  }
  [[nodiscard]] Came step(const Probe& probe, Walk& walk, Place& place) const {
    const Node* const node = walk.node;
    const std::uint64_t version = node->lock.begin();
    if (!walk.above->unchanged(walk.version)) return Came::changed;
    const std::uint64_t child = child_at(*node, rank(*node, probe, Aim::at));
    if (!node->lock.unchanged(version)) return Came::changed;
    if (node->level == 0) {
      place = {child, &node->lock, version};
      return Came::there;
    }
    walk = {&node->lock, version, reinterpret_cast<const Node*>(child)};
    prefetch(*walk.node, node->level - 1);
    return Came::down;
  }
  [[nodiscard]] bool locate(const Probe& probe, Place& place) const {
    const base::Stopwatch watch(base::Part::traversal);
    Walk walk = begin();
    Came came = Came::down;
    while (came == Came::down) came = step(probe, walk, place);
    return came == Came::there;
  }

  // --- Edits: the node is locked ---
  static void replace_child(Node& node, unsigned position, std::uint64_t leaf) {
    set_child(node, position, leaf);
  }
  // A separator and the child behind it; neither codes nor count.
  static void set_behind(Node& node, unsigned position, Fresh separator, std::uint64_t child) {
    prefixes(node)[position].store(separator.prefix, std::memory_order_release);
    if constexpr (Keys::kRecords)
      wholes(node)[position].store(separator.whole.release(), std::memory_order_release);
    set_child(node, position + 1, child);
  }
  // Room for one more: the caller looked.
  static void insert_after(Node& node, unsigned position, Fresh separator, std::uint64_t child) {
    const unsigned n = node.count.load(std::memory_order_relaxed);
    for (unsigned i = n; i > position; --i) {
      move(node, i - 1, node, i);
      set_child(node, i + 1, child_at(node, i));
    }
    set_behind(node, position, std::move(separator), child);
    node.codes.insert(position, n + 1, prefix_of(node));
    node.count.store(n + 1, std::memory_order_release);
  }
  [[nodiscard]] static bool full(const Node& node) {
    return node.count.load(std::memory_order_acquire) == kFanout;
  }
  [[nodiscard]] static bool leads_to(const Node& node, const Probe& probe, unsigned position) {
    return rank(node, probe, Aim::at) == position;
  }
  [[nodiscard]] static std::uint64_t child_at(const Node& node, unsigned position) {
    if (node.level > 0) return high(node).child[position].load(std::memory_order_acquire);
    return low(node).child[position].load(std::memory_order_acquire) * Leaves::kUnit;
  }
  [[nodiscard]] static unsigned separators(const Node& node) {
    return node.count.load(std::memory_order_acquire);
  }
  // The range of the child passes to the one before it, or behind it if it is the first; there are
  // at least two.
  void remove_child(Node& node, unsigned position) {
    const unsigned n = node.count.load(std::memory_order_relaxed);
    const unsigned gone = position == 0 ? 0 : position - 1;
    Separator* separator = nullptr;
    if constexpr (Keys::kRecords) separator = wholes(node)[gone].load(std::memory_order_relaxed);
    for (unsigned i = gone; i + 1 < n; ++i) move(node, i + 1, node, i);
    for (unsigned i = position; i < n; ++i) set_child(node, i, child_at(node, i + 1));
    node.codes.erase(gone, n);
    node.count.store(n - 1, std::memory_order_release);
    if (separator != nullptr) retire(separator);  // G2: nobody who comes later finds it
  }

  // Splits the lowest node of the path whose parent has room, or adds a root; false: start again.
  // May throw bad_alloc, before anything changed. The caller starts again in any case.
  bool make_room(const Path& path) {
    unsigned level = path.depth - 1;
    if (!full(*path.steps[level].node)) return true;
    while (level > 0 && full(*path.steps[level - 1].node)) --level;
    const Step& step = path.steps[level];
    auto right = make_node(step.node->level);
    Owner root;
    if (level == 0) root = make_node(step.node->level + 1);
    if (level == 0 && path.depth == kMaxHeight) return false;  // 62^16 leaves
    base::LockSet locks;
    const bool locked = (level == 0 ? locks.try_lock(root_lock_, path.root_version)
                                    : locks.try_lock(path.steps[level - 1].node->lock,
                                                     path.steps[level - 1].version)) &&
                        locks.try_lock(step.node->lock, step.version);
    if (!locked) {
      locks.release(false);
      return false;
    }
    Node& left = *step.node;
    constexpr unsigned kHalf = kFanout / 2;
    for (unsigned i = kHalf + 1; i < kFanout; ++i) move(left, i, *right, i - kHalf - 1);
    for (unsigned i = kHalf + 1; i <= kFanout; ++i) {
      set_child(*right, i - kHalf - 1, child_at(left, i));
    }
    right->codes.rebuild(kFanout - kHalf - 1, prefix_of(*right));
    right->count.store(kFanout - kHalf - 1, std::memory_order_release);
    Fresh up{prefix_at(left, kHalf), nullptr};
    if constexpr (Keys::kRecords)
      up.whole.reset(wholes(left)[kHalf].load(std::memory_order_relaxed));
    left.codes.rebuild(kHalf, prefix_of(left));
    left.count.store(kHalf, std::memory_order_release);
    const auto child = reinterpret_cast<std::uint64_t>(right.release());
    if (level == 0) {
      set_child(*root, 0, reinterpret_cast<std::uint64_t>(&left));
      insert_after(*root, 0, std::move(up), child);
      root_.store(root.release(), std::memory_order_release);
    } else {
      const Step& above = path.steps[level - 1];
      insert_after(*above.node, above.position, std::move(up), child);
    }
    return false;
  }

  // Locks what removing the path's leaf changes: from the lowest node with two children on down.
  // False: something changed, or (only_child) the leaf is the only one.
  [[nodiscard]] bool lock_for_removal(const Path& path, base::LockSet& locks,
                                      bool& only_child) const {
    unsigned level = path.depth;
    while (level > 0 && separators(*path.steps[level - 1].node) == 0) --level;
    only_child = level == 0;
    if (only_child) return false;
    for (unsigned i = level - 1; i < path.depth; ++i) {
      auto& step = path.steps[i];
      if (!locks.try_lock(step.node->lock, step.version)) return false;
    }
    return true;
  }
  // The place of what remove_leaf() takes out of its inner node; its range goes to what is before
  // it, or, if it is the first, behind it.
  [[nodiscard]] static unsigned removed_position(const Path& path) {
    unsigned level = path.depth;
    while (separators(*path.steps[level - 1].node) == 0) --level;
    return path.steps[level - 1].position;
  }
  // Under those locks. Nodes of a single child go with it.
  void remove_leaf(const Path& path) {
    unsigned level = path.depth;
    while (separators(*path.steps[level - 1].node) == 0) --level;
    const Step& step = path.steps[level - 1];
    remove_child(*step.node, step.position);
    for (unsigned i = level; i < path.depth; ++i) grace_.retire(tagged(path.steps[i].node));
  }
  // A root of one inner child gives way to it. Needs a pin.
  void shrink_root() {
    const std::uint64_t version = root_lock_.begin();
    Node* const root = root_.load(std::memory_order_acquire);
    const std::uint64_t root_version = root->lock.begin();
    if (root->level == 0 || separators(*root) != 0) return;
    base::LockSet locks;
    if (!locks.try_lock(root_lock_, version) || !locks.try_lock(root->lock, root_version)) {
      locks.release(false);
      return;
    }
    root_.store(reinterpret_cast<Node*>(child_at(*root, 0)), std::memory_order_release);
    grace_.retire(tagged(root));
  }

  // --- Building: nobody else is here ---
  // Leaves from left to right, each but the first with the separator before it.
  struct Child {
    Fresh separator;
    std::uint64_t child;
  };
  void build(std::vector<Child> children) {
    constexpr std::size_t kFill = 48;  // separators of a built node
    struct Built {                     // goes again when memory ends
      std::vector<Node*> nodes;
      ~Built() {
        for (Node* const node : nodes) {
          if (node != nullptr) discard(node);
        }
      }
    } built;
    unsigned level = 0;
    while (true) {
      std::vector<Child> above;
      for (std::size_t i = 0; i < children.size();) {
        Node*& node = built.nodes.emplace_back(nullptr);
        above.push_back({std::move(children[i].separator), 0});
        node = make_node(level).release();
        set_child(*node, 0, children[i++].child);
        unsigned separators = 0;
        for (; separators < kFill && i < children.size(); ++separators, ++i) {
          set_behind(*node, separators, std::move(children[i].separator), children[i].child);
        }
        node->codes.rebuild(separators, prefix_of(*node));
        node->count.store(separators, std::memory_order_release);
        above.back().child = reinterpret_cast<std::uint64_t>(node);
      }
      if (above.size() == 1) {
        root_.store(reinterpret_cast<Node*>(above.front().child), std::memory_order_release);
        built.nodes.clear();
        return;
      }
      children = std::move(above);
      ++level;
    }
  }

  // --- Looking through: no writer runs ---
  // visit(leaf, low): every leaf from left to right with the separator before it, null for none.
  template <class F>
  void for_each_leaf(F&& visit) const {
    walk(*root_.load(std::memory_order_acquire), nullptr, visit);
  }
  struct Size {
    std::uint64_t nodes = 0;
    std::uint64_t height = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Size size() const {
    Size size;
    const Node& root = *root_.load(std::memory_order_acquire);
    size.height = root.level + 1;
    measure(root, size);
    return size;
  }

  // For the grace period's callback: what retire() was given is not a leaf's offset.
  static bool is_ours(std::uint64_t item) { return (item & kTags) != 0; }
  static void free_item(std::uint64_t item) {
    if ((item & kTags) == kNodeTag) {
      base::NodeArena::free(reinterpret_cast<Node*>(item & ~kTags));
    } else {
      delete reinterpret_cast<Separator*>(item & ~kTags);
    }
  }

  // Readers may still compare with it. Without memory to note it, it stays until the tree goes; a
  // node does so anyway, with its arena.
  void retire(Separator* separator) {
    if (grace_.retire(tagged(separator))) return;
    separator->next = leftover_.load(std::memory_order_relaxed);
    while (!leftover_.compare_exchange_weak(separator->next, separator, std::memory_order_release,
                                            std::memory_order_relaxed)) {
    }
  }

 private:
  static constexpr std::uint64_t kTags = 3;
  static constexpr std::uint64_t kNodeTag = 1;
  static constexpr std::uint64_t kSeparatorTag = 2;
  static std::uint64_t tagged(Node* node) {
    return reinterpret_cast<std::uint64_t>(node) | kNodeTag;
  }
  static std::uint64_t tagged(Separator* separator) {
    return reinterpret_cast<std::uint64_t>(separator) | kSeparatorTag;
  }

  template <class Child>
  struct NodeOf : Node {
    using Node::Node;
    std::array<std::atomic<Child>, kFanout + 1> child{};
    std::array<std::atomic<std::uint64_t>, kFanout> prefix{};
    // Of bytes keys: the separators themselves.
    std::array<std::atomic<Separator*>, Keys::kRecords ? kFanout : 0> whole{};
  };
  using Low = NodeOf<typename Leaves::Word>;  // above leaves
  using High = NodeOf<std::uint64_t>;         // pointers to nodes
  static const Low& low(const Node& node) { return static_cast<const Low&>(node); }
  static Low& low(Node& node) { return static_cast<Low&>(node); }
  static const High& high(const Node& node) { return static_cast<const High&>(node); }
  static High& high(Node& node) { return static_cast<High&>(node); }
  // Of either kind of node, constant or not.
  template <class N>
  static auto* prefixes(N& node) {
    return node.level > 0 ? high(node).prefix.data() : low(node).prefix.data();
  }
  template <class N>
  static auto* wholes(N& node) {
    return node.level > 0 ? high(node).whole.data() : low(node).whole.data();
  }
  static std::uint64_t prefix_at(const Node& node, unsigned i) {
    return prefixes(node)[i].load(std::memory_order_acquire);
  }
  static auto prefix_of(const Node& node) {
    return [&node](unsigned i) { return prefix_at(node, i); };
  }
  static void set_child(Node& node, unsigned position, std::uint64_t child) {
    if (node.level > 0) {
      high(node).child[position].store(child, std::memory_order_release);
    } else {
      low(node).child[position].store(static_cast<typename Leaves::Word>(child / Leaves::kUnit),
                                      std::memory_order_release);
    }
  }

  struct Free {
    void operator()(Node* node) const { base::NodeArena::free(node); }
  };
  using Owner = std::unique_ptr<Node, Free>;
  Owner make_node(unsigned level) {
    Node* node = nullptr;
    if (level > 0) {
      node = new (high_nodes_.allocate()) High(level);
    } else {
      node = new (low_nodes_.allocate()) Low(level);
    }
    return Owner(node);
  }
  // Both of one level.
  static void move(Node& from, unsigned i, Node& to, unsigned k) {
    prefixes(to)[k].store(prefix_at(from, i), std::memory_order_release);
    if constexpr (Keys::kRecords)
      wholes(to)[k].store(wholes(from)[i].load(std::memory_order_relaxed),
                          std::memory_order_release);
  }
  // Codes and children: the child's line would be a second miss after the first. The level is the
  // caller's knowledge: to ask the node would be to wait for it.
  static void prefetch(const Node& node, unsigned level) {
    pmem::prefetch_lines(&node,
                         sizeof(Node) + (level > 0 ? sizeof(High::child) : sizeof(Low::child)));
  }

  // Separators before the child to take.
  static unsigned rank(const Node& node, const Probe& probe, Aim aim) {
    const unsigned n = std::min(node.count.load(std::memory_order_acquire), kFanout);
    return Separators<Keys, Coded>{{&node.codes, prefixes(node)}, wholes(node), n}.rank(probe, aim);
  }

  void free_all(Node* node) {
    const unsigned n = node->count.load(std::memory_order_relaxed);
    for (unsigned i = 0; node->level > 0 && i <= n; ++i) {
      free_all(reinterpret_cast<Node*>(child_at(*node, i)));
    }
    discard(node);
  }
  // With its separators.
  static void discard(Node* node) {
    if constexpr (Keys::kRecords) {
      const unsigned n = node->count.load(std::memory_order_relaxed);
      for (unsigned i = 0; i < n; ++i) delete wholes(*node)[i].load(std::memory_order_relaxed);
    }
    base::NodeArena::free(node);
  }
  template <class F>
  static void walk(const Node& node, const Owned* low, F& visit) {
    const unsigned n = separators(node);
    for (unsigned i = 0; i <= n; ++i) {
      // Without memory: destructors walk, too.
      [[maybe_unused]] Owned number{};
      const Owned* from = low;
      if (i > 0) {
        if constexpr (Keys::kRecords) {
          from = &wholes(node)[i - 1].load(std::memory_order_acquire)->key;
        } else {
          number = prefix_at(node, i - 1);
          from = &number;
        }
      }
      const std::uint64_t child = child_at(node, i);
      if (node.level == 0) {
        visit(child, from);
      } else {
        walk(*reinterpret_cast<const Node*>(child), from, visit);
      }
    }
  }
  static void measure(const Node& node, Size& size) {
    ++size.nodes;
    size.bytes += node.level > 0 ? sizeof(High) : sizeof(Low);
    const unsigned n = separators(node);
    if constexpr (Keys::kRecords) {
      for (unsigned i = 0; i < n; ++i) {
        size.bytes += wholes(node)[i].load(std::memory_order_acquire)->bytes();
      }
    }
    for (unsigned i = 0; node.level > 0 && i <= n; ++i) {
      measure(*reinterpret_cast<const Node*>(child_at(node, i)), size);
    }
  }

  alloc::Grace& grace_;
  base::NodeArena low_nodes_{sizeof(Low)};
  base::NodeArena high_nodes_{sizeof(High)};
  mutable base::VersionLock root_lock_;
  std::atomic<Node*> root_{nullptr};
  std::atomic<Separator*> leftover_{nullptr};
};

}  // namespace everleaf::tree
