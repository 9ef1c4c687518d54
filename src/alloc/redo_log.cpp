#include "alloc/redo_log.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

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

std::size_t RedoLog::claim_lane(Waits waits) {
  constexpr std::uint64_t kPatience = 2'000'000'000;  // nanoseconds
  // Threads start at their own lane, so that they rarely meet.
  const std::size_t home = base::thread_slot() % kFirstLate;
  std::uint64_t since = 0;
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
    if (waits == Waits::two_seconds) {
      const std::uint64_t now = base::now_ns();
      if (round == 0) since = now;
      if (now - since > kPatience) break;
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

// R1, but for its fence. Plain stores: the lane is this thread's alone. Whatever of them a crash
// keeps, word 0 included, does not fit the checksum before all are there.
void RedoLog::write(Word* words, const Redo& record) {
  const auto entries = record.entries();
  words[0] = static_cast<Word>(entries.size()) << kCountShift |
             sequence_.fetch_add(1, std::memory_order_relaxed);
  words[kContentWord] = content_of(entries);
  std::memcpy(words + kEntriesWord, entries.data(), entries.size_bytes());
  words[1] = checksum_of(words, entries.size());
  const std::size_t bytes = bytes_of(entries.size());
  medium_.count_heap_written(bytes + 16);
  medium_.count_written(record.tree_bytes());
  medium_.flush(words, bytes);
}

// The checksum too: or what stands behind word 0 would fit the word 0 of a record that another
// process writes, whose sequence begins anew.
void RedoLog::truncate(Word* words) {
  words[0] = 0;
  words[1] = 0;
}

Outcome RedoLog::commit(const Redo& record, Waits waits) {
  if (record.overflowed() || !legal(record.entries())) return Outcome::corrupt;
  const std::size_t index = claim_lane(waits);
  if (index == pmem::kLanes) return medium_.failed() ? Outcome::io_error : Outcome::out_of_space;
  Word* const words = lane(index);
  write(words, record);
  if (!medium_.fence()) return Outcome::io_error;  // R1: whole before the first word changes
  apply(record.entries());
  if (!medium_.fence()) return Outcome::io_error;  // R2: durable before the record goes
  truncate(words);
  // R3: no record may outlive the locks of its words
  if (!medium_.persist(words, 2 * sizeof(Word))) return Outcome::io_error;
  busy_.fetch_and(~(std::uint64_t{1} << index), std::memory_order_release);
  return Outcome::done;
}

// --- Late records --------------------------------------------------------------------------------

// A slot's two lanes.
class RedoLog::Holding {
 public:
  explicit Holding(Late& late) noexcept : late_(late) {
    // Acquire: the lanes as the last holder left them.
    for (unsigned round = 0; late_.held.exchange(true, std::memory_order_acquire); ++round) {
      base::wait_a_little(round);
    }
  }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { late_.held.store(false, std::memory_order_release); }

 private:
  Late& late_;
};

Outcome RedoLog::commit_late(const Redo& record, Offset owner, Offset other) {
  if (!late()) return commit(record);
  const auto clears = [](const Redo::Entry& entry) { return op_of(entry) == Redo::Op::clear_bits; };
  if (std::ranges::any_of(record.entries(), clears)) {
    if (!settle(owner) || (other != 0 && !settle(other))) return Outcome::io_error;
    return commit(record);
  }
  if (record.overflowed() || !legal(record.entries())) return Outcome::corrupt;
  if (medium_.failed()) return Outcome::io_error;
  const unsigned slot = base::thread_slot();
  Late& mine = (*late_)[slot];
  const Holding holding(mine);
  const unsigned which = mine.turn;
  write(late_lane(slot, which), record);
  write_back_late(slot, 1 - which);  // L1
  // R1, and L1: what the next late record of this slot overwrites has its words durable
  if (!medium_.fence()) return Outcome::io_error;
  store(record.entries());
  mine.entries[which] = static_cast<std::uint8_t>(record.entries().size());
  mine.turn = static_cast<std::uint8_t>(1 - which);
  mine.name(which, owner, other);
  return Outcome::done;
}

// What the slot's other record stored, or a former one: then its words are durable anyway.
void RedoLog::write_back_late(unsigned slot, unsigned which) {
  const auto* const entries =
      reinterpret_cast<const Redo::Entry*>(late_lane(slot, which) + kEntriesWord);
  write_back({entries, (*late_)[slot].entries[which]});
}

RedoLog::Named RedoLog::named(Offset owner) const noexcept {
  const unsigned limit = std::min(base::slot_limit(), kLateSlots);
  Named is = Named::nobody;
  for (unsigned slot = 0; slot < limit; ++slot) {
    const Late& late = (*late_)[slot];
    if (!late.names(0, owner) && !late.names(1, owner)) continue;
    is = slot == base::thread_slot() ? Named::this_slot : Named::others;
  }
  return is;
}

bool RedoLog::settle(Offset owner) noexcept {
  const unsigned limit = std::min(base::slot_limit(), kLateSlots);
  for (unsigned slot = 0; slot < limit; ++slot) {
    Late& late = (*late_)[slot];
    if (!late.names(0, owner) && !late.names(1, owner)) continue;
    const Holding holding(late);
    const bool newer = late.names(1 - late.turn, owner);
    if ((newer || late.names(late.turn, owner)) && !settle(slot, newer)) return false;
  }
  return true;
}

bool RedoLog::settle_all() noexcept {
  for (unsigned slot = 0; slot < kLateSlots; ++slot) {
    const Holding holding((*late_)[slot]);
    if (!settle(slot, true)) return false;
  }
  return true;
}

// The slot is held. Its older record goes, and then the newer one.
bool RedoLog::settle(unsigned slot, bool newer_too) noexcept {
  Late& late = (*late_)[slot];
  if (late.entries[0] == 0 && late.entries[1] == 0) return true;
  const std::array<unsigned, 2> by_age{late.turn, 1U - late.turn};
  const auto ages = std::span(by_age).first(newer_too ? 2 : 1);
  for (const unsigned which : ages) write_back_late(slot, which);
  if (!medium_.fence()) return false;  // L2: the words before the records go
  for (const unsigned which : ages) {
    Word* const words = late_lane(slot, which);
    if (words[0] != 0) {
      truncate(words);
      // L4, and before other stores (L2)
      if (!medium_.persist(words, 2 * sizeof(Word))) return false;
    }
    late.entries[which] = 0;
    late.name(which, 0, 0);
  }
  return true;
}

void RedoLog::apply(Entries entries) {
  store(entries);
  write_back(entries);
}

void RedoLog::store(Entries entries) {
  const base::Durable durable;  // R1: whoever reads these words can rely on them
  for (const Redo::Entry& entry : entries) {
    const std::atomic_ref<Word> target(*medium_.at<Word>(offset_of(entry)));
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
}

void RedoLog::write_back(Entries entries) {
  Offset last_line = ~Offset{0};
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

void RedoLog::flush_covered(std::span<const Redo::Entry> entries) {
  for (const Redo::Entry& entry : entries) {
    if (op_of(entry) != Redo::Op::cover) continue;
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
  struct Held {
    Word sequence;
    std::size_t lane;
    auto operator<=>(const Held&) const = default;
  };
  std::array<Held, pmem::kLanes> all;
  std::size_t held = 0;
  for (std::size_t index = 0; index < pmem::kLanes; ++index) {
    const Word* const words = lane(index);
    if (words[0] == 0 && words[1] == 0) continue;
    all[held++] = {words[0] << (64 - kCountShift), index};
  }
  const auto order = std::span(all).first(held);
  std::ranges::sort(order);  // L3
  for (const auto& [sequence, index] : order) {
    Word* const words = lane(index);
    const Word head = words[0];
    const std::size_t count = head >> kCountShift;
    const std::size_t fits = head != 0 && count <= Redo::kMax ? count : 0;
    const std::span entries(reinterpret_cast<const Redo::Entry*>(words + kEntriesWord), fits);
    if (fits != 0 && whole(words, entries)) {
      apply(entries);
      ++applied;
      flush_covered(entries);
      // As R2: a crash in recovery finds the record again; and L3.
      if (!medium_.fence()) return failed();
    }
    truncate(words);
    medium_.flush(words, 2 * sizeof(Word));
    wiped = true;
  }
  // As R3.
  // crash: fence stays: mark_open() fences next, but recover() promises it by itself
  if (wiped && !medium_.fence()) return failed();
  return applied;
}

}  // namespace everleaf::alloc
