// The redo log: several words of the pool change together or not at all (wB+-Tree paper, Figure 6).
//
// A record goes to a lane, a fixed piece of the pool that one operation holds while it commits.
//   R1  write the record (absolute values; bits are set and cleared idempotently), flush; FENCE.
//       What the caller wrote and flushed before (a new node, a key record) may reach the medium
//       later than the record. So a record covers it: its bytes go into the checksum, and a record
//       whose covered bytes are not all there is as good as torn. It saves a fence before R1.
//   R2  apply it in place, flush; FENCE
//   R3  truncate the lane, flush; FENCE
// A crash before R1's fence leaves a record whose checksum fails (nothing happened) or a whole one;
// after it, recovery applies the record again: R2 is idempotent. It also stores and flushes the
// covered bytes again: after the death of a process they may be whole in a cache only. R3 is
// durable before the caller unlocks, so no record is ever older than a later change of the words
// that it names.
//
// Lane: word 0: 0, or count << 56 | sequence; word 1: XXH3 of word 0 and all that follows; word 2:
// XXH3 of the covered bytes; then entries {offset | op, value}. Word 0 and the checksum must both
// fit the entries, so torn and reordered write-backs (the `disk` domain) are noticed, before any
// entry is followed. What an old record leaves behind
// word 0 cannot come back under a new word 0: sequences are unique while the pool is open, and
// recover() wipes the checksums of earlier times.
//
// A fence that fails (M1) stops the commit where it is: before R2 nothing was stored, after it the
// record stays, in a lane that nobody gets again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include <everleaf/index.hpp>
#include <everleaf/result.hpp>

#include "pmem/format.hpp"
#include "pmem/medium.hpp"

namespace everleaf::alloc {

// A record in the making, on the stack.
class Redo {
 public:
  enum class Op : std::uint8_t { store = 0, set_bits = 1, clear_bits = 2, cover = 3 };
  struct Entry {
    std::uint64_t where;  // offset of an aligned word, its low bits the Op
    std::uint64_t value;
  };
  static constexpr std::size_t kMax = (pmem::kLaneBytes - 24) / sizeof(Entry);

  // `bytes`: how many bytes of the word the algorithm changes (for N_w).
  void store(pmem::Offset word, std::uint64_t value, unsigned bytes = 8) {
    tree_bytes_ += bytes;
    push(word, Op::store, value);
  }
  // Words of the allocator, counted apart.
  void set_bits(pmem::Offset word, std::uint64_t bits) { push(word, Op::set_bits, bits); }
  void clear_bits(pmem::Offset word, std::uint64_t bits) { push(word, Op::clear_bits, bits); }

  // The record counts only if these bytes are as they are now. The caller has flushed them, they
  // are aligned to 8, and nobody (nor this record) changes them before commit() returns.
  void cover(pmem::Offset at, std::size_t bytes) { push(at, Op::cover, bytes); }

  [[nodiscard]] std::span<const Entry> entries() const { return {entries_.data(), count_}; }
  // More entries than a lane holds: only a damaged tree can need that.
  [[nodiscard]] bool overflowed() const { return overflowed_; }
  [[nodiscard]] std::uint64_t tree_bytes() const { return tree_bytes_; }

 private:
  void push(pmem::Offset word, Op op, std::uint64_t value) {
    if (count_ == kMax) {
      overflowed_ = true;
      return;
    }
    entries_[count_++] = {word | static_cast<std::uint64_t>(op), value};
  }
  std::array<Entry, kMax> entries_;
  std::size_t count_ = 0;
  std::uint64_t tree_bytes_ = 0;
  bool overflowed_ = false;
};

// Thread safety: commit() from any thread; waits while all lanes are busy.
class RedoLog {
 public:
  // Of a lane, see above.
  static constexpr unsigned kCountShift = 56;
  static constexpr std::size_t kContentWord = 2;
  static constexpr std::size_t kEntriesWord = 3;

  explicit RedoLog(pmem::Medium& medium) : medium_(medium) {}

  // R1 to R3. The caller holds the locks of every word it stores; allocator bits need none.
  // corrupt, and nothing changed: the record overflowed or names a word outside the pool.
  // io_error: a write-back failed; all of it or nothing is there after the next recovery, so the
  // record's blocks must neither be used nor be given back.
  [[nodiscard]] Outcome commit(const Redo& record);

  // Applies what a crash left; the number of records applied. io if a write-back failed. Costs one
  // line per lane when there is nothing to do, and then writes nothing.
  Result<std::uint32_t> recover();

 private:
  void apply(std::span<const Redo::Entry> entries);
  void store_covered(std::span<const Redo::Entry> entries);
  [[nodiscard]] std::uint64_t content_of(std::span<const Redo::Entry> entries) const;
  [[nodiscard]] static std::uint64_t checksum_of(const pmem::Word* words, std::size_t count);
  [[nodiscard]] bool whole(const pmem::Word* words, std::span<const Redo::Entry> entries) const;
  [[nodiscard]] bool legal(std::span<const Redo::Entry> entries) const;
  [[nodiscard]] static constexpr std::size_t bytes_of(std::size_t entries) {
    return kEntriesWord * sizeof(pmem::Word) + entries * sizeof(Redo::Entry);
  }
  [[nodiscard]] pmem::Word* lane(std::size_t index) const {
    return medium_.at<pmem::Word>(pmem::kLanesAt + index * pmem::kLaneBytes);
  }
  // kLanes: a write-back failed, no more records.
  std::size_t claim_lane();

  pmem::Medium& medium_;
  std::atomic<std::uint64_t> busy_{0};  // a bit per lane
  std::atomic<std::uint64_t> sequence_{1};
};

static_assert(pmem::kLanes == 64, "busy_ has a bit for each lane");

}  // namespace everleaf::alloc
