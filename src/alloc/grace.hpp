// Grace periods: memory that a reader may still see is reused only after that reader has gone.
// Epoch-based reclamation (Fraser 2004, section 5.2.3). Nothing here is persistent: a retired block
// is free in the pool's durable state already, and after a crash there are no readers.
//
// No thread waits for another one: who works on a list of retired blocks has taken it out of its
// slot, and the slot's thread begins another one. What a thread is stopped with stays where it is.
//
// Invariants
//   G1. A pinned thread's announced epoch is the global one or the one before.
//   G2. The global epoch advances only when every pinned thread has announced it. So a block that
//       was unlinked and then retired in epoch e is seen by nobody once the epoch is e + 2.
//   G3. A list has one owner: its slot, or the thread that took it from there. Its epochs rise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <everleaf/pool.hpp>

#include "base/seam.hpp"
#include "base/thread_slot.hpp"
#include "pmem/medium.hpp"

namespace everleaf::alloc {

class Grace {
 public:
  // Called with each block whose grace period is over; must not call back into Grace.
  using Recycle = std::function<void(pmem::Offset)>;
  explicit Grace(Recycle recycle);
  ~Grace();
  Grace(const Grace&) = delete;
  Grace& operator=(const Grace&) = delete;

  // While it lives, nothing that could be reached when it was made is reused. ok() is false when
  // all thread slots are taken. Nests.
  class Pin {
   public:
    explicit Pin(Grace& grace) noexcept : grace_(grace), slot_(base::thread_slot()) {
      if (ok()) grace_.enter(slot_);
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() {
      if (ok()) grace_.leave(slot_);
    }
    [[nodiscard]] bool ok() const noexcept { return slot_ != base::kNoSlot; }

   private:
    Grace& grace_;
    const unsigned slot_;
  };

  // Takes a block that was unlinked; needs a Pin of this thread.
  // False: out of memory, the block is lost until the pool is opened again.
  bool retire(pmem::Offset block) noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

  // Recycles everything that can be, of all threads: the last resort when space is out. Not from
  // within a Pin, which would hold back what was retired since.
  void collect_all();

  // One try of the same, which costs little if nothing waits: for whoever comes by from time to
  // time, on behalf of threads that have gone idle and retire nothing more. Not from within a Pin.
  void tidy() noexcept;

  // One try to begin another epoch; the one that it is. Whoever was pinned when it was e has gone
  // when it is e + 2 (G2). From within a Pin it does not get there.
  std::uint64_t advance() noexcept {
    try_advance();
    return epoch_.load(std::memory_order_seq_cst);
  }

 private:
  struct Retired {
    pmem::Offset block;
    std::uint64_t epoch;
  };
  struct Limbo {
    std::vector<Retired> blocks;  // the oldest first,
    std::size_t recycled = 0;     // of which so many are not waiting any more
    Limbo* next = nullptr;        // in its slot
  };
  struct alignas(pmem::kLine) Slot {
    std::atomic<std::uint64_t> epoch{0};  // 0: not pinned
    // A stack; more than one if its thread retired something while another one had the first.
    std::atomic<Limbo*> limbo{nullptr};
    // Blocks, ever: retired by the slot's threads, and of them those that wait no more.
    std::atomic<std::uint64_t> retired{0};
    std::atomic<std::uint64_t> recycled{0};
    unsigned depth = 0;  // of nested pins; the slot's thread only
    unsigned since_advance = 0;

    [[nodiscard]] bool waiting() const noexcept {
      return retired.load(std::memory_order_relaxed) != recycled.load(std::memory_order_relaxed);
    }
  };

  void enter(unsigned slot) noexcept;
  void leave(unsigned slot) noexcept;
  void try_advance() noexcept;
  void collect(Slot& slot) noexcept;
  void collect(Slot& slot, Limbo& limbo) noexcept;
  static void put_back(Slot& slot, Limbo* limbo) noexcept;
  void recycle(pmem::Offset block) noexcept;

  Recycle recycle_;
  std::atomic<std::uint64_t> epoch_{1};
  std::atomic<std::uint64_t> lost_{0};
  std::unique_ptr<std::array<Slot, kMaxThreads>> slots_;
};

}  // namespace everleaf::alloc
