// What was unlinked in an epoch and is free when that is durable and no reader is left (README.md,
// "Space"): first here, then in a Grace.
//
// Thread safety: all methods from any thread.
#pragma once

#include <array>
#include <deque>

#include "alloc/grace.hpp"
#include "base/seam.hpp"
#include "epoch/epochs.hpp"

namespace everleaf::epoch {

class Limbo {
 public:
  // `epoch`: that of the unlinking, or a later one. May throw bad_alloc: then it is not taken.
  void add(pmem::Offset at, Epoch epoch) {
    const base::MutexGuard guard(mutex_);
    items_.push_back({at, epoch});
  }
  // Retires what is durable. The caller is pinned. In portions: who adds does not wait for what
  // becomes of them.
  void release(Epoch durable, alloc::Grace& grace) {
    std::array<pmem::Offset, 64> ready;
    std::size_t count = ready.size();
    while (count == ready.size()) {
      count = 0;
      {
        const base::MutexGuard guard(mutex_);
        while (count < ready.size() && !items_.empty() && items_.front().epoch <= durable) {
          ready[count++] = items_.front().at;
          items_.pop_front();
        }
      }
      for (std::size_t i = 0; i < count; ++i) grace.retire(ready[i]);
    }
  }
  [[nodiscard]] bool empty() const {
    const base::MutexGuard guard(mutex_);
    return items_.empty();
  }

 private:
  struct Item {
    pmem::Offset at;
    Epoch epoch;
  };
  mutable base::Mutex mutex_;
  std::deque<Item> items_;  // by epoch, nearly: one behind a later one waits a little longer
};

}  // namespace everleaf::epoch
