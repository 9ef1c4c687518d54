#include "alloc/grace.hpp"

#include <new>

#include "base/announce.hpp"
#include "base/limits.hpp"

namespace everleaf::alloc {
namespace {
constexpr unsigned kCollectRounds = 256;
constexpr std::size_t kKept = 4096;  // entries of an empty list's memory
}  // namespace

Grace::Grace(Recycle recycle)
    : recycle_(std::move(recycle)), slots_(std::make_unique<std::array<Slot, kMaxThreads>>()) {}

void Grace::enter(unsigned slot) noexcept {
  Slot& mine = (*slots_)[slot];
  if (mine.depth++ != 0) return;
  std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
  while (true) {
    // Before this thread reads anything of the pool: try_advance must not miss it.
    base::announce(mine.epoch, epoch);
    const std::uint64_t now = epoch_.load(std::memory_order_seq_cst);
    if (now == epoch) return;  // G1
    epoch = now;
  }
}

void Grace::leave(unsigned slot) noexcept {
  Slot& mine = (*slots_)[slot];
  // Release: everything read under the pin was read before the block is reused.
  if (--mine.depth == 0) mine.epoch.store(0, std::memory_order_release);
}

void Grace::try_advance() noexcept {
  const std::uint64_t epoch = epoch_.load(std::memory_order_seq_cst);
  // Who is missed below sees what was unlinked before, and an epoch that is not older.
  base::see_announcements();
  const unsigned limit = base::slot_limit();
  for (unsigned i = 0; i < limit; ++i) {
    // seq_cst: pairs with enter, where announcements are seq_cst stores. Acquire: with leave.
    const std::uint64_t announced = (*slots_)[i].epoch.load(std::memory_order_seq_cst);
    if (announced != 0 && announced != epoch) return;  // G2
  }
  std::uint64_t expected = epoch;
  epoch_.compare_exchange_strong(expected, epoch + 1, std::memory_order_seq_cst);
}

// Out of memory: the block is lost until the pool is opened again.
void Grace::recycle(pmem::Offset block) noexcept {
  try {
    recycle_(block);
  } catch (const std::bad_alloc&) {
    lost_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Grace::collect(Slot& slot) noexcept {
  // In portions, without memory of its own: it runs where there may be none left.
  std::array<pmem::Offset, 64> ready;
  std::size_t count = ready.size();
  while (count == ready.size()) {
    count = 0;
    {
      const base::MutexGuard guard(slot.mutex);
      const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
      while (count < ready.size() && slot.waiting() &&
             slot.limbo[slot.recycled].epoch + 2 <= epoch) {
        ready[count++] = slot.limbo[slot.recycled++].block;
      }
      // Half of it at once: each entry is moved once on average.
      if (2 * slot.recycled >= slot.limbo.size()) {
        slot.limbo.erase(slot.limbo.begin(),
                         slot.limbo.begin() + static_cast<std::ptrdiff_t>(slot.recycled));
        slot.recycled = 0;
      }
      if (slot.limbo.empty() && slot.limbo.capacity() > kKept) {
        std::vector<Retired>().swap(slot.limbo);
      }
    }
    for (std::size_t i = 0; i < count; ++i) recycle(ready[i]);
  }
}

bool Grace::retire(pmem::Offset block) noexcept {
  Slot& mine = (*slots_)[base::thread_slot()];
  try {
    const base::MutexGuard guard(mine.mutex);
    mine.limbo.push_back({block, epoch_.load(std::memory_order_seq_cst)});
  } catch (const std::bad_alloc&) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  if (++mine.since_advance < base::kRetiresPerAdvance) return true;
  mine.since_advance = 0;
  try_advance();
  collect(mine);
  return true;
}

void Grace::tidy() noexcept {
  const unsigned limit = base::slot_limit();
  bool waiting = false;
  for (unsigned i = 0; i < limit && !waiting; ++i) {
    Slot& slot = (*slots_)[i];
    const base::MutexGuard guard(slot.mutex);
    waiting = slot.waiting();
  }
  if (!waiting) return;
  try_advance();
  for (unsigned i = 0; i < limit; ++i) collect((*slots_)[i]);
}

void Grace::collect_all() {
  // Twice, so that blocks retired just now get through; a few times more for readers that are on
  // their way out.
  const std::uint64_t wanted = epoch_.load(std::memory_order_seq_cst) + 2;
  for (unsigned round = 0; round < kCollectRounds; ++round) {
    try_advance();
    if (epoch_.load(std::memory_order_seq_cst) >= wanted) break;
    base::wait_a_little(round);
  }
  const unsigned limit = base::slot_limit();
  for (unsigned i = 0; i < limit; ++i) collect((*slots_)[i]);
}

}  // namespace everleaf::alloc
