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

void Grace::put_back(Slot& slot, Limbo* limbo) noexcept {
  limbo->next = slot.limbo.load(std::memory_order_relaxed);
  // Release: pairs with who takes it next.
  while (!slot.limbo.compare_exchange_weak(limbo->next, limbo, std::memory_order_release,
                                           std::memory_order_relaxed)) {
  }
}

void Grace::collect(Slot& slot) noexcept {
  Limbo* limbo = slot.limbo.exchange(nullptr, std::memory_order_acquire);  // G3
  while (limbo != nullptr) {
    Limbo* const next = limbo->next;
    collect(slot, *limbo);
    // The last one stays for what comes.
    if (limbo->blocks.empty() && next != nullptr) {
      delete limbo;
    } else {
      put_back(slot, limbo);
    }
    limbo = next;
  }
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
  // All of them: the slot had a stack.
  while (limbo != nullptr) {
    Limbo* const next = limbo->next;
    put_back(mine, limbo);
    limbo = next;
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
    const Slot& slot = (*slots_)[i];
    waiting = slot.retired.load(std::memory_order_relaxed) !=
              slot.recycled.load(std::memory_order_relaxed);
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
