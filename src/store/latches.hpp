// All latches of a store: no writer is between its first look and its last store.
#pragma once

#include "store/state.hpp"

namespace everleaf::store {

class State::AllLatches {
 public:
  explicit AllLatches(State& state) : state_(state) {
    for (std::size_t i = 0; i < kCount; ++i) state_.latches_[i].lock();
  }
  AllLatches(const AllLatches&) = delete;
  AllLatches& operator=(const AllLatches&) = delete;
  ~AllLatches() {
    for (std::size_t i = kCount; i-- > 0;) state_.latches_[i].unlock();
  }

 private:
  static constexpr std::size_t kCount = std::size_t{1} << base::kKeyStripeBits;
  State& state_;
};

}  // namespace everleaf::store
