#include "alloc/redo_log.hpp"

#include <bit>
#include <cstring>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/seam.hpp"
#include "base/thread_slot.hpp"

namespace everleaf::alloc {
namespace {

using pmem::Offset;
using pmem::Word;

constexpr std::uint64_t kOpMask = 7;
// Of one record, more than the largest key record and the nodes of a split: hostile records must
// not make recovery hash for hours.
// The records of a key and of a separator, and nodes.
constexpr std::uint64_t kMostCovered = 2 * (kMaxKeyBytes + 64) + 16384;
static_assert(Redo::kMax < 256);

Offset offset_of(const Redo::Entry& entry) {
  return entry.where & ~kOpMask;
}

Redo::Op op_of(const Redo::Entry& entry) {
  return static_cast<Redo::Op>(entry.where & kOpMask);
}

}  // namespace

// The entries are legal: covered bytes lie in the pool.
std::uint64_t RedoLog::content_of(std::span<const Redo::Entry> entries) const {
  std::uint64_t sum = 0;
  for (const Redo::Entry& entry : entries) {
    if (op_of(entry) != Redo::Op::cover) continue;
    sum = XXH3_64bits_withSeed(medium_.at(offset_of(entry)), entry.value, sum);
  }
  return sum;
}

std::uint64_t RedoLog::checksum_of(const Word* words, std::size_t count) {
  return XXH3_64bits_withSeed(words + kContentWord, bytes_of(count) - kContentWord * sizeof(Word),
                              words[0]);
}

std::size_t RedoLog::claim_lane() {
  // Threads start at their own lane, so that they rarely meet.
  const std::size_t home = base::thread_slot() % pmem::kLanes;
  for (unsigned round = 0; !medium_.failed(); ++round) {
    std::uint64_t busy = busy_.load(std::memory_order_relaxed);
    while (busy != ~std::uint64_t{0}) {
      const std::uint64_t rotated = std::rotr(busy, static_cast<int>(home));
      const std::size_t index =
          (home + static_cast<std::size_t>(std::countr_one(rotated))) % pmem::kLanes;
      // Acquire: the former holder's truncation comes before our record.
      if (busy_.compare_exchange_weak(busy, busy | std::uint64_t{1} << index,
                                      std::memory_order_acquire)) {
        return index;
      }
    }
    base::wait_a_little(round);
  }
  return pmem::kLanes;
}

bool RedoLog::legal(std::span<const Redo::Entry> entries) const {
  std::uint64_t covered = 0;
  for (const Redo::Entry& entry : entries) {
    const Offset at = offset_of(entry);
    const bool cover = op_of(entry) == Redo::Op::cover;
    if ((entry.where & kOpMask) > static_cast<std::uint64_t>(Redo::Op::cover) ||
        at < pmem::kDirectoryAt || !medium_.contains(at, cover ? entry.value : sizeof(Word)) ||
        (cover && entry.value > kMostCovered - covered) ||
        (at >= pmem::kLanesAt && at < pmem::kHeapAt)) {
      return false;
    }
    if (cover) covered += entry.value;
  }
  return true;
}

Outcome RedoLog::commit(const Redo& record) {
  const auto entries = record.entries();
  if (record.overflowed() || !legal(entries)) return Outcome::corrupt;
  const std::size_t index = claim_lane();
  if (index == pmem::kLanes) return Outcome::io_error;
  Word* const words = lane(index);
  const Word head = static_cast<Word>(entries.size()) << kCountShift |
                    sequence_.fetch_add(1, std::memory_order_relaxed);
  // R1. Plain stores: the lane is this thread's alone. Whatever of them a crash keeps, word 0
  // included, does not fit the checksum before all are there.
  words[0] = head;
  words[kContentWord] = content_of(entries);
  std::memcpy(words + kEntriesWord, entries.data(), entries.size_bytes());
  words[1] = checksum_of(words, entries.size());
  const std::size_t bytes = bytes_of(entries.size());
  medium_.count_heap_written(bytes + 8);
  medium_.count_written(record.tree_bytes());
  medium_.flush(words, bytes);
  if (!medium_.fence()) return Outcome::io_error;  // R1: whole before the first word changes
  apply(entries);
  if (!medium_.fence()) return Outcome::io_error;  // R2: durable before the record goes
  words[0] = 0;
  // R3: no record may outlive the locks of its words
  if (!medium_.persist(words, sizeof(Word))) return Outcome::io_error;
  busy_.fetch_and(~(std::uint64_t{1} << index), std::memory_order_release);
  return Outcome::done;
}

void RedoLog::apply(std::span<const Redo::Entry> entries) {
  const base::Durable durable;  // R1: whoever reads these words can rely on them
  Offset last_line = ~Offset{0};
  for (const Redo::Entry& entry : entries) {
    Word* const word = medium_.at<Word>(offset_of(entry));
    const std::atomic_ref<Word> target(*word);
    // Release: optimistic readers, see base/version_lock.hpp.
    switch (op_of(entry)) {
      case Redo::Op::store:
        target.store(entry.value, std::memory_order_release);
        break;
      case Redo::Op::set_bits:
        target.fetch_or(entry.value, std::memory_order_release);
        break;
      case Redo::Op::clear_bits:
        target.fetch_and(~entry.value, std::memory_order_release);
        break;
      case Redo::Op::cover:
        break;
    }
  }
  for (const Redo::Entry& entry : entries) {
    // Neighbouring entries share lines: flush each run of them once.
    const Offset line = offset_of(entry) / pmem::kLine;
    if (op_of(entry) == Redo::Op::cover) continue;
    if (line != last_line) medium_.flush(medium_.at(offset_of(entry)), sizeof(Word));
    last_line = line;
  }
}

bool RedoLog::whole(const Word* words, std::span<const Redo::Entry> entries) const {
  base::Verification record;
  record.over(words, bytes_of(entries.size()));
  record.begin();
  if (!record.end(words[1] == checksum_of(words, entries.size()))) return false;
  // A hostile record fits its checksum, and may name anything.
  if (!legal(entries)) return false;
  base::Verification covered;
  for (const Redo::Entry& entry : entries) {
    if (op_of(entry) == Redo::Op::cover) covered.over(medium_.at(offset_of(entry)), entry.value);
  }
  covered.begin();
  return covered.end(words[kContentWord] == content_of(entries));
}

void RedoLog::store_covered(std::span<const Redo::Entry> entries) {
  for (const Redo::Entry& entry : entries) {
    if (op_of(entry) != Redo::Op::cover) continue;
    const Offset end = offset_of(entry) + entry.value;
    // One byte of each line: a store makes the page of a shared mapping dirty, whatever it changes.
    for (Offset at = offset_of(entry); at < end; at = (at / pmem::kLine + 1) * pmem::kLine) {
      const std::atomic_ref<std::uint8_t> byte(*medium_.at<std::uint8_t>(at));
      byte.store(byte.load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    // crash: flush stays: an image of the checker is all on the medium, it has no caches left over
    medium_.flush(medium_.at(offset_of(entry)), entry.value);
  }
}

Result<std::uint32_t> RedoLog::recover() {
  const auto failed = [] {
    return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
  };
  std::uint32_t applied = 0;
  bool wiped = false;
  for (std::size_t index = 0; index < pmem::kLanes; ++index) {
    Word* const words = lane(index);
    const Word head = words[0];
    if (head == 0 && words[1] == 0) continue;
    const std::size_t count = head >> kCountShift;
    const std::size_t fits = head != 0 && count <= Redo::kMax ? count : 0;
    const std::span entries(reinterpret_cast<const Redo::Entry*>(words + kEntriesWord), fits);
    if (fits != 0 && whole(words, entries)) {
      apply(entries);
      ++applied;
      store_covered(entries);
      if (!medium_.fence()) return failed();  // as R2: a crash in recovery finds the record again
    }
    // The checksum too: or what stands behind word 0 would fit a later record's word 0.
    words[0] = 0;
    words[1] = 0;
    medium_.flush(words, 2 * sizeof(Word));
    wiped = true;
  }
  // As R3.
  // crash: fence stays: mark_open() fences next, but recover() promises it by itself
  if (wiped && !medium_.fence()) return failed();
  return applied;
}

}  // namespace everleaf::alloc
