#include "alloc/grace.hpp"

#include <new>
#include <utility>

#include "base/announce.hpp"
#include "base/limits.hpp"

namespace everleaf::alloc {
namespace {
constexpr unsigned kCollectRounds = 256;
constexpr std::size_t kKept = 4096;  // entries of an empty list's memory
}  // namespace

Grace::Grace(Recycle recycle)
    : recycle_(std::move(recycle)), slots_(std::make_unique<std::array<Slot, kMaxThreads>>()) {}

Grace::~Grace() {
  const unsigned limit = base::slot_limit();
  for (unsigned i = 0; i < limit; ++i) {
    Limbo* limbo = (*slots_)[i].limbo.load(std::memory_order_acquire);
    while (limbo != nullptr) delete std::exchange(limbo, limbo->next);
  }
}

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

void Grace::collect(Slot& slot, Limbo& limbo) noexcept {
  const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
  const std::size_t before = limbo.recycled;
  while (limbo.recycled < limbo.blocks.size() && limbo.blocks[limbo.recycled].epoch + 2 <= epoch) {
    recycle(limbo.blocks[limbo.recycled++].block);
  }
  slot.recycled.fetch_add(limbo.recycled - before, std::memory_order_relaxed);
  // Half of it at once: each entry is moved once on average.
  if (2 * limbo.recycled >= limbo.blocks.size()) {
    limbo.blocks.erase(limbo.blocks.begin(),
                       limbo.blocks.begin() + static_cast<std::ptrdiff_t>(limbo.recycled));
    limbo.recycled = 0;
  }
  if (limbo.blocks.empty() && limbo.blocks.capacity() > kKept) {
    std::vector<Retired>().swap(limbo.blocks);
  }
}

// One after the other: the last one will be the first.
void Grace::put_back(Slot& slot, Limbo* limbo) noexcept {
  while (limbo != nullptr) {
    Limbo* const next = limbo->next;
    limbo->next = slot.limbo.load(std::memory_order_relaxed);
    // Release: pairs with who takes it next.
    while (!slot.limbo.compare_exchange_weak(limbo->next, limbo, std::memory_order_release,
                                             std::memory_order_relaxed)) {
    }
    limbo = next;
  }
}

void Grace::collect(Slot& slot) noexcept {
  Limbo* limbo = slot.limbo.exchange(nullptr, std::memory_order_acquire);  // G3
  Limbo* kept = nullptr;                                                   // the last one first
  while (limbo != nullptr) {
    Limbo* const next = limbo->next;
    collect(slot, *limbo);
    if (limbo->blocks.empty() && (kept != nullptr || next != nullptr)) {
      delete limbo;
    } else {
      limbo->next = std::exchange(kept, limbo);
    }
    limbo = next;
  }
  put_back(slot, kept);
}

bool Grace::retire(pmem::Offset block) noexcept {
  Slot& mine = (*slots_)[base::thread_slot()];
  Limbo* limbo = mine.limbo.exchange(nullptr, std::memory_order_acquire);  // G3
  bool kept = true;
  try {
    if (limbo == nullptr) limbo = new Limbo;
    limbo->blocks.push_back({block, epoch_.load(std::memory_order_seq_cst)});
  } catch (const std::bad_alloc&) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    kept = false;
  }
  if (limbo != nullptr) {
    // The others first: they are emptied while this one gets what comes.
    put_back(mine, std::exchange(limbo->next, nullptr));
    put_back(mine, limbo);
  }
  if (!kept) return false;
  mine.retired.store(mine.retired.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
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
    waiting = (*slots_)[i].waiting();
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
  // Another thread that works on a list has it in hand; it is waited for, but not for long.
  for (unsigned round = 0; round < kCollectRounds; ++round) {
    bool taken = false;
    for (unsigned i = 0; i < limit; ++i) {
      Slot& slot = (*slots_)[i];
      const bool has_list = slot.limbo.load(std::memory_order_relaxed) != nullptr;
      taken = taken || (!has_list && slot.waiting());
      if (has_list) collect(slot);
    }
    if (!taken) break;
    base::wait_a_little(round);
  }
}

}  // namespace everleaf::alloc
