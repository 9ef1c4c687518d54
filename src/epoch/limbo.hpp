// What was unlinked in an epoch and is free when that is durable and no reader is left (README.md,
// "Space"): first here, then in a Grace.
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <deque>

#include "alloc/grace.hpp"
#include "base/limits.hpp"
#include "base/seam.hpp"
#include "epoch/epochs.hpp"

namespace everleaf::epoch {

class Limbo {
 public:
  // `epoch`: that of the unlinking, or a later one. May throw bad_alloc: then it is not taken.
  void add(pmem::Offset at, Epoch epoch) {
    Part& mine = parts_[base::thread_slot() % parts_.size()];
    const base::MutexGuard guard(mine.mutex);
    mine.items.push_back({at, epoch});
  }
  // Retires what is durable. The caller is pinned. In portions: who adds does not wait for what
  // becomes of them.
  void release(Epoch durable, alloc::Grace& grace) {
    for (Part& part : parts_) release(part, durable, grace);
  }
  [[nodiscard]] bool empty() const {
    for (const Part& part : parts_) {
      const base::MutexGuard guard(part.mutex);
      if (!part.items.empty()) return false;
    }
    return true;
  }

 private:
  struct Item {
    pmem::Offset at;
    Epoch epoch;
  };
  // Of some threads, so that those that remove do not meet.
  struct alignas(pmem::kLine) Part {
    mutable base::Mutex mutex;
    std::deque<Item> items;  // by epoch, nearly: one behind a later one waits a little longer
  };
  static void release(Part& part, Epoch durable, alloc::Grace& grace) {
    std::array<pmem::Offset, 64> ready;
    std::size_t count = ready.size();
    while (count == ready.size()) {
      count = 0;
      {
        const base::MutexGuard guard(part.mutex);
        while (count < ready.size() && !part.items.empty() && part.items.front().epoch <= durable) {
          ready[count++] = part.items.front().at;
          part.items.pop_front();
        }
      }
      for (std::size_t i = 0; i < count; ++i) grace.retire(ready[i]);
    }
  }

  std::array<Part, base::kLimboParts> parts_;
};

}  // namespace everleaf::epoch
