// What a tree's room implements and what it stands on. The public face is everleaf/index.hpp.
//
// A strict tree keeps three rules:
//   C1. An operation returns `done` only after the fence that makes it durable.
//   C2. Nobody sees a change before that fence: version locks are released after it. If the fence
//       fails (io_error), the change may be seen all the same: the lock goes, the store stands. It
//       was not acknowledged, and the next open decides whether it happened.
//   C3. A refusal (out_of_space, key_too_long, ...) leaves durable and visible state as it was.
// A buffered tree acknowledges by sync() and durable epochs (src/epoch/README.md): its memory comes
// from epoch::Space, its writers are in a Section, and what they store is noted there.
// A block (node, key record) is reserved, filled, flushed, and activated by the redo record that
// links it; the record that unlinks it releases it; it is retired after the commit. A later store
// whose values name blocks adds those blocks to the same record: that is the one place where intent
// and link become durable together.
#pragma once

#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

#include "alloc/grace.hpp"
#include "alloc/heap.hpp"
#include "alloc/redo_log.hpp"
#include "base/spec.hpp"
#include "base/version_lock.hpp"
#include "epoch/epochs.hpp"
#include "pmem/medium.hpp"

namespace everleaf::detail {

using Visit = std::function<void(pmem::Offset, std::size_t)>;

enum class Write : std::uint8_t { insert, update, upsert, remove };

// What a write answers at once, by whether the key is there; done: it has something to do.
[[nodiscard]] constexpr Outcome refusal(Write what, bool found) {
  if (found) return what == Write::insert ? Outcome::exists : Outcome::done;
  return what == Write::update || what == Write::remove ? Outcome::absent : Outcome::done;
}

// What a tree whose values are payloads implements besides.
template <class K>
class PayloadTree {
 public:
  PayloadTree() = default;
  PayloadTree(const PayloadTree&) = delete;
  PayloadTree& operator=(const PayloadTree&) = delete;

  virtual Outcome write_payload(K key, Bytes payload, Write what) = 0;  // remove: no payload
  virtual Outcome find_payload(K key, std::string& payload) const = 0;
  virtual Outcome scan_payloads(K from, std::optional<K> to, std::size_t limit,
                                std::vector<PayloadEntry<K>>& out) const = 0;
  virtual Outcome scan_payloads_back(std::optional<K> from, std::size_t limit,
                                     std::vector<PayloadEntry<K>>& out) const = 0;

 protected:
  ~PayloadTree() = default;  // it is a part of a Tree
};

template <class K>
class Tree {
 public:
  Tree() = default;
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  virtual ~Tree() = default;

  virtual Outcome write(K key, std::uint64_t value, Write what) = 0;  // remove: no value
  // The same, but for insert, and the value that was there before, if it is done. Nobody else may
  // write the key meanwhile. A tree that does not know it from its own search is asked before.
  virtual Outcome exchange(K key, std::uint64_t value, Write what,
                           std::optional<std::uint64_t>& old) {
    old.reset();
    if (what == Write::upsert) {
      const Outcome inserted = write(key, value, Write::insert);
      if (inserted != Outcome::exists) return inserted;
      what = Write::update;
    }
    const Lookup is = find(key);
    if (!is) return is.outcome;
    old = *is;
    return write(key, value, what);
  }
  // Strictly ascending; whole to other threads if TreeInfo::whole_batches says so.
  virtual Outcome insert_all(std::span<const Entry<K>> entries) {
    for (const Entry<K>& entry : entries) {
      const Outcome outcome = write(entry.key, entry.value, Write::insert);
      if (outcome != Outcome::done) return outcome;
    }
    return Outcome::done;
  }
  virtual Lookup find(K key) const = 0;
  // As many answers as keys; see trees/many.hpp.
  virtual void find_many(std::span<const K> keys, std::span<Lookup> answers) const {
    for (std::size_t i = 0; i < keys.size(); ++i) answers[i] = find(keys[i]);
  }
  virtual Outcome scan(K from, std::optional<K> to, std::size_t limit,
                       std::vector<Entry<K>>& out) const = 0;
  virtual Outcome scan_back(std::optional<K> from, std::size_t limit,
                            std::vector<Entry<K>>& out) const = 0;
  virtual Outcome bulk_load(std::span<const Entry<K>> entries, double fill) = 0;
  // Null: its values are numbers.
  virtual PayloadTree<K>* payloads() { return nullptr; }
  virtual Outcome sync() = 0;
  virtual CheckReport check() const = 0;
  virtual Stats stats() const = 0;
  // Every block that the tree owns, each once: nodes and key records. The pool compares them with
  // what is allocated.
  virtual void for_each_block(const Visit& visit) const = 0;
  // The pool is being closed: nobody else uses the tree, nor anybody afterwards, and a sync() went
  // before. Leaves in the pool what makes the next open quick. False: something waits for later
  // epochs, call it again after one more sync().
  virtual bool closing() { return true; }
};

}  // namespace everleaf::detail

namespace everleaf::tree {

using detail::Write;

// The parts of an open pool that a tree works with; they outlive it.
struct Context {
  pmem::Medium& medium;
  alloc::Heap& heap;
  alloc::RedoLog& redo;
  alloc::Grace& grace;
  epoch::Epochs* epochs;  // of buffered trees
  bool read_only;
  bool sparse;  // the file may have holes, as much as it claims: it was not opened for writing
  pmem::Offset root_word;  // the tree's word in the directory; 0 before the tree was created

  // Why no write may begin; done: it may.
  [[nodiscard]] Outcome admit() const {
    if (read_only) return Outcome::read_only;
    return medium.failed() ? Outcome::io_error : Outcome::done;
  }
  // Of one key. What cannot be there is not there: no reason to refuse its removal or update.
  [[nodiscard]] Outcome admit(Write what, bool too_long) const {
    const Outcome admitted = admit();
    if (admitted != Outcome::done || !too_long) return admitted;
    const bool of_existing = what == Write::remove || what == Write::update;
    return of_existing ? Outcome::absent : Outcome::key_too_long;
  }

  // Runs an operation that pins by itself; where it ends for lack of space, waits out grace periods
  // and runs it once more. Not from within a pin: that would hold back the very blocks.
  template <class Operation>
  Outcome with_space(Operation operation) const {
    Outcome outcome = operation();
    if (outcome == Outcome::out_of_space && !medium.failed()) {
      grace.collect_all();
      outcome = operation();
    }
    // The heap gives nothing out once a write-back has failed.
    return outcome == Outcome::out_of_space && medium.failed() ? Outcome::io_error : outcome;
  }
};

// A block that goes back to the heap unless it is kept. A crash needs no undo: its bit was not set.
class Reserved {
 public:
  explicit Reserved(alloc::Heap& heap) : heap_(&heap) {}
  Reserved(Reserved&& other) noexcept
      : heap_(other.heap_), block_(std::exchange(other.block_, 0)) {}
  Reserved& operator=(Reserved&&) = delete;
  ~Reserved() {
    if (block_ != 0) heap_->recycle(block_);
  }
  // False: out of space.
  [[nodiscard]] bool get(std::size_t bytes,
                         alloc::Placement placement = alloc::Placement::anywhere) {
    if (block_ == 0) block_ = heap_->reserve(bytes, placement);
    return block_ != 0;
  }
  // One that somebody had reserved before.
  void adopt(pmem::Offset block) { block_ = block; }
  [[nodiscard]] pmem::Offset block() const { return block_; }
  void keep() { block_ = 0; }
  // After the commit of the record that activates it. io_error: neither used nor given back.
  void settle(Outcome committed) {
    if (committed == Outcome::done || committed == Outcome::io_error) keep();
  }

 private:
  alloc::Heap* heap_;
  pmem::Offset block_ = 0;
};

// How the registry makes trees. A room's own is factory_of() of trees/factory.hpp.
struct Factory {
  // Adds what an empty tree needs to `record`, which also creates the directory entry, and its
  // blocks to `blocks`. A refusal adds nothing.
  Outcome (*create)(Context context, const base::Spec& canonical, KeyType key_type,
                    alloc::Redo& record, std::vector<Reserved>& blocks);
  Result<std::unique_ptr<detail::Tree<std::uint64_t>>> (*open_u64)(Context context,
                                                                   const base::Spec& canonical);
  Result<std::unique_ptr<detail::Tree<Bytes>>> (*open_bytes)(Context context,
                                                             const base::Spec& canonical);
  // bad_option if an option's value is not allowed.
  Result<void> (*validate)(const base::Spec& canonical);
};

struct Registration {
  TreeInfo info;
  const Factory& factory;
  // Opening it changes which blocks are in use: after a crash it comes before any allocation.
  bool recovers_blocks = false;
};

// The one list; see registry.cpp.
[[nodiscard]] std::span<const Registration> registry() noexcept;
// unknown_tree names what there is.
[[nodiscard]] Result<const Registration*> find_tree(std::string_view name);

}  // namespace everleaf::tree
