#include "alloc/grace.hpp"

#include <vector>

namespace everleaf::alloc {
namespace {
constexpr unsigned kRetiresPerAdvance = 32;
constexpr unsigned kCollectRounds = 256;
}  // namespace

Grace::Grace(Recycle recycle)
    : recycle_(std::move(recycle)), slots_(std::make_unique<std::array<Slot, kMaxThreads>>()) {}

void Grace::enter(unsigned slot) noexcept {
  Slot& mine = (*slots_)[slot];
  if (mine.depth++ != 0) return;
  std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
  while (true) {
    // seq_cst: the announcement must be visible before this thread reads anything of the pool, or
    // try_advance could miss it (store-load order; the one full barrier of a read operation).
    mine.epoch.store(epoch, std::memory_order_seq_cst);
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
  const unsigned limit = base::slot_limit();
  for (unsigned i = 0; i < limit; ++i) {
    // seq_cst: pairs with enter.
    const std::uint64_t announced = (*slots_)[i].epoch.load(std::memory_order_seq_cst);
    if (announced != 0 && announced != epoch) return;  // G2
  }
  std::uint64_t expected = epoch;
  epoch_.compare_exchange_strong(expected, epoch + 1, std::memory_order_seq_cst);
}

void Grace::collect(Slot& slot) {
  std::vector<pmem::Offset> ready;
  {
    const base::MutexGuard guard(slot.mutex);
    const std::uint64_t epoch = epoch_.load(std::memory_order_acquire);
    while (!slot.limbo.empty() && slot.limbo.front().epoch + 2 <= epoch) {
      ready.push_back(slot.limbo.front().block);
      slot.limbo.pop_front();
    }
  }
  for (const pmem::Offset block : ready) recycle_(block);
}

void Grace::retire(pmem::Offset block) {
  Slot& mine = (*slots_)[base::thread_slot()];
  {
    const base::MutexGuard guard(mine.mutex);
    mine.limbo.push_back({block, epoch_.load(std::memory_order_seq_cst)});
  }
  if (++mine.since_advance < kRetiresPerAdvance) return;
  mine.since_advance = 0;
  try_advance();
  collect(mine);
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
