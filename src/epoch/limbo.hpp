// What was unlinked in an epoch and is free when that is durable and no reader is left (README.md,
// "Space"): first here, then in a Grace.
//
// Thread safety: all methods from any thread.
#pragma once

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
  // Retires what is durable. The caller is pinned.
  void release(Epoch durable, alloc::Grace& grace) {
    const base::MutexGuard guard(mutex_);
    while (!items_.empty() && items_.front().epoch <= durable) {
      const pmem::Offset at = items_.front().at;
      items_.pop_front();
      grace.retire(at);
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
