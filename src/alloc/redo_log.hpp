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
// truncation wipes the checksum, too.
//
// A fence that fails (M1) stops the commit where it is: before R2 nothing was stored, after it the
// record stays, in a lane that nobody gets again.
//
// Late records: one fence. commit_late() ends after R1 and stores the words; that they become
// durable is left to the fence of the thread slot's next late record. The record stays valid:
//   L1  A thread slot has two lanes of its own and fills them in turn. Whoever writes into one
//       flushes the words of the other one's record (the thread may have changed) before its fence
//       of R1. So a record is overwritten only when its words are durable.
//   L2  A record names the owners of its words, say nodes. As long as it is valid a recovery would
//       undo what else is stored to them. So the holder of an owner's lock who wants to store
//       something calls settle() first, which makes the words durable, and then truncates the
//       record, durably; or he commits a late record himself, if those that there are are of his
//       own slot.
//   L3  Recovery applies records in the order of their sequence numbers, and its fence before it
//       wipes one covers the wiping of the one before: of two that name one owner the later one
//       counts.
//   L4  Of two records of a slot the older one goes first: settle() truncates it, durably, before
//       the newer one.
// No late record clears bits: their blocks could be in use again while it is valid. commit_late()
// settles its owners and goes the long way.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <everleaf/index.hpp>
#include <everleaf/result.hpp>

#include "base/thread_slot.hpp"
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

// Thread safety: commit() from any thread; waits while all 32 lanes are busy.
class RedoLog {
 public:
  // Of a lane, see above.
  static constexpr unsigned kCountShift = 56;
  static constexpr std::size_t kContentWord = 2;
  static constexpr std::size_t kEntriesWord = 3;

  enum class Waits : std::uint8_t {
    always,
    two_seconds,  // for who holds no lock that others wait for; then out_of_space, nothing changed
  };

  explicit RedoLog(pmem::Medium& medium)
      : medium_(medium), late_(std::make_unique<std::array<Late, kLateSlots>>()) {}

  // R1 to R3. The caller holds the locks of every word it stores; allocator bits need none.
  // corrupt, and nothing changed: the record overflowed or names a word outside the pool.
  // io_error: a write-back failed; all of it or nothing is there after the next recovery, so the
  // record's blocks must neither be used nor be given back.
  [[nodiscard]] Outcome commit(const Redo& record, Waits waits = Waits::always);

  // The same with one fence; the caller holds the locks of both owners (the second may be 0), which
  // are no other record's but this thread slot's (L2). As commit() where it saves nothing: fences
  // do not wait, this thread's slot has no lanes, or the record clears bits.
  [[nodiscard]] Outcome commit_late(const Redo& record, pmem::Offset owner, pmem::Offset other = 0);
  // Whether commit_late() has one fence here.
  [[nodiscard]] bool late() const noexcept {
    return medium_.fences_wait() && base::thread_slot() < kLateSlots;
  }
  // Who has a late record that names the owner, whose lock the caller holds.
  enum class Named : std::uint8_t { nobody, this_slot, others };
  [[nodiscard]] Named named(pmem::Offset owner) const noexcept;
  // L2: no late record names the owner any more. Its lock is held. False: a write-back failed.
  [[nodiscard]] bool settle(pmem::Offset owner) noexcept;
  // The same for all owners; nobody has an operation under way on those that are to go.
  [[nodiscard]] bool settle_all() noexcept;

  // Applies what a crash left; the number of records applied. io if a write-back failed. Costs one
  // line per lane when there is nothing to do, and then writes nothing.
  Result<std::uint32_t> recover();

 private:
  // Of late records: the lanes from kFirstLate on, two for each slot.
  static constexpr unsigned kLateSlots = 16;
  static constexpr std::size_t kFirstLate = pmem::kLanes - std::size_t{2} * kLateSlots;
  struct alignas(pmem::kLine) Late {  // of a slot
    // Two of each lane's record; 0: nobody. Release: who finds another owner than the one that he
    // looks for relies on the fences before it (L1).
    std::array<std::atomic<pmem::Offset>, 4> owners{};
    std::atomic<bool> held{false};  // guards the lanes; the slot's thread holds it in a commit
    std::uint8_t turn = 0;          // the lane that is written next: the older record's
    std::array<std::uint8_t, 2> entries{};
    [[nodiscard]] bool names(unsigned which, pmem::Offset owner) const noexcept {
      return owners[std::size_t{2} * which].load(std::memory_order_acquire) == owner ||
             owners[std::size_t{2} * which + 1].load(std::memory_order_acquire) == owner;
    }
    void name(unsigned which, pmem::Offset owner, pmem::Offset other) noexcept {
      owners[std::size_t{2} * which].store(owner, std::memory_order_release);
      owners[std::size_t{2} * which + 1].store(other, std::memory_order_release);
    }
  };
  static_assert(sizeof(Late) == pmem::kLine);
  class Holding;
  using Entries = std::span<const Redo::Entry>;

  void write(pmem::Word* words, const Redo& record);
  static void truncate(pmem::Word* words);
  void store(Entries entries);
  void write_back(Entries entries);
  void apply(Entries entries);
  [[nodiscard]] pmem::Word* late_lane(unsigned slot, unsigned which) const {
    return lane(kFirstLate + std::size_t{2} * slot + which);
  }
  void write_back_late(unsigned slot, unsigned which);
  [[nodiscard]] bool settle(unsigned slot, bool newer_too) noexcept;
  void flush_covered(std::span<const Redo::Entry> entries);
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
  // kLanes: a write-back failed, no more records; or all lanes were busy for so long.
  std::size_t claim_lane(Waits waits);

  pmem::Medium& medium_;
  std::atomic<std::uint64_t> busy_{~std::uint64_t{0} << kFirstLate};  // a bit per lane
  std::atomic<std::uint64_t> sequence_{1};
  std::unique_ptr<std::array<Late, kLateSlots>> late_;
};

static_assert(pmem::kLanes == 64, "busy_ has a bit for each lane");

}  // namespace everleaf::alloc
