// Failure-atomic shifts: a sequence of stores of which any prefix is a valid node (rule E,
// A1).
//
// Where a line keeps the order of its stores (Medium::orders_lines), they are executed in place,
// and before the first store into another line the line just left is flushed and fenced (P1). On
// `disk`, which keeps no order, they go into a redo record that is applied as a whole (P1, too).
#pragma once

#include "trees/contract.hpp"
#include "trees/pbtree/layout.hpp"

namespace everleaf::tree::pbtree {

class Edit {
 public:
  // Of so many entries in a row: a redo record takes three fences, whatever it changes.
  explicit Edit(const Context& context, unsigned entries = 1)
      : c_(context), in_place_(context.medium.orders_lines() && entries <= kMostInPlace) {}
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

  // Between two entries: what was stored so far is a valid node. A long shift takes several
  // records; room for the last stores and the allocator's words stays free.
  void step() {
    if (record_.entries().size() + kLast <= alloc::Redo::kMax) return;
    if (outcome_ == Outcome::done) outcome_ = c_.redo.commit(record_);
    record_ = alloc::Redo();
  }

  // The record that takes the last stores, if they must become durable together with the
  // allocator's words. Everything before is durable, or in the same record. Then commit().
  [[nodiscard]] alloc::Redo& record() {
    leave_line();
    return record_;
  }
  [[nodiscard]] Outcome commit() {
    return outcome_ == Outcome::done ? c_.redo.commit(record_) : outcome_;
  }
  // Without such a record: makes the last stores durable.
  [[nodiscard]] Outcome finish() {
    leave_line();
    if (outcome_ == Outcome::done && !record_.entries().empty()) outcome_ = c_.redo.commit(record_);
    return outcome_;
  }

 private:
  static constexpr std::size_t kLast = 16;
  static constexpr unsigned kMostInPlace = 16;  // four or five lines

  void leave_line() {
    if (line_ == 0) return;
    // P1: this line before the next one changes
    const bool fenced =
        c_.medium.persist(reinterpret_cast<const void*>(line_ * pmem::kLine), pmem::kLine);
    if (!fenced) outcome_ = Outcome::io_error;
    line_ = 0;
  }

  const Context& c_;
  const bool in_place_;
  alloc::Redo record_;
  std::uintptr_t line_ = 0;  // address / 64 of the line with stores that are not flushed
  Outcome outcome_ = Outcome::done;
};

}  // namespace everleaf::tree::pbtree
