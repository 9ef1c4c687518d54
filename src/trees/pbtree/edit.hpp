// Failure-atomic edits: a sequence of stores to a node of which any prefix is a valid node (rule E,
// A1).
//
// Where a line keeps the order of its stores (Medium::orders_lines) an edit of one line is executed
// in place, flushed and fenced (P1). All others go into a late redo record, which takes one fence,
// whatever it changes; so does every edit on `disk`, which keeps no order, and of a node that a
// late record names (P1b). Where fences do not wait every edit is in place, with a fence for each
// line that it leaves.
//
// The caller holds the locks of the nodes that the edit names.
#pragma once

#include "trees/contract.hpp"
#include "trees/pbtree/layout.hpp"

namespace everleaf::tree::pbtree {

class Edit {
 public:
  // Of `lines` lines of the node `owner`; `other`: a second node of which it changes words.
  Edit(const Context& context, Offset owner, unsigned lines, Offset other = 0)
      : c_(context),
        owner_(owner),
        other_(other),
        in_place_(context.medium.orders_lines() && (lines == 1 || !context.medium.fences_wait())) {
    for (const Offset node : {owner, other}) {
      using enum alloc::RedoLog::Named;
      const auto named = node == 0 ? nobody : c_.redo.named(node);
      // L2 of the redo log: what a late record of this slot names takes another one.
      if (named == this_slot) in_place_ = false;
      if (named == others && !c_.redo.settle(node)) outcome_ = Outcome::io_error;
    }
  }
  // Of more than one, or with words of the allocator.
  static constexpr unsigned kManyLines = ~0U;
  Edit(const Edit&) = delete;
  Edit& operator=(const Edit&) = delete;

  // After a failure nothing more is stored, and the outcome tells.
  void store(Word* word, Word value) {
    if (outcome_ != Outcome::done) return;
    if (!in_place_) {
      record_.store(c_.medium.offset_of(word), value);
      return;
    }
    const auto line = reinterpret_cast<std::uintptr_t>(word) / pmem::kLine;
    if (line != line_) leave_line();
    if (outcome_ != Outcome::done) return;
    line_ = line;
    c_.medium.store(word, value);
  }

  // The edit counts only with these bytes, which were stored and flushed before, and which nobody
  // changes before the next edit of the owner. Before the first store(). An edit of several lines
  // in place needs nothing for it: where fences do not wait, stores survive in their order.
  void cover(const void* from, std::size_t bytes) {
    if (!in_place_) record_.cover(c_.medium.offset_of(from), bytes);
  }

  // Between two entries: what was stored so far is a valid node. A long edit takes several
  // records; room for the last stores and the allocator's words stays free.
  void step() {
    if (record_.entries().size() + kLast <= alloc::Redo::kMax) return;
    outcome_ = commit();
    record_ = alloc::Redo();
  }

  // The record that takes the last stores, if they must become durable together with the
  // allocator's words. Everything before is durable, or in the same record. Then commit().
  [[nodiscard]] alloc::Redo& record() {
    leave_line();
    return record_;
  }
  [[nodiscard]] Outcome commit() {
    return outcome_ == Outcome::done ? c_.redo.commit_late(record_, owner_, other_) : outcome_;
  }
  // Without such a record: makes the last stores durable.
  [[nodiscard]] Outcome finish() {
    leave_line();
    if (!record_.entries().empty()) outcome_ = commit();
    return outcome_;
  }

 private:
  static constexpr std::size_t kLast = 16;

  void leave_line() {
    if (line_ == 0) return;
    // P1: this line before the next one changes, and before anybody sees it
    const bool fenced =
        c_.medium.persist(reinterpret_cast<const void*>(line_ * pmem::kLine), pmem::kLine);
    if (!fenced) outcome_ = Outcome::io_error;
    line_ = 0;
  }

  const Context& c_;
  const Offset owner_;
  const Offset other_;
  bool in_place_;
  alloc::Redo record_;
  std::uintptr_t line_ = 0;  // address / 64 of the line with stores that are not flushed
  Outcome outcome_ = Outcome::done;
};

}  // namespace everleaf::tree::pbtree
