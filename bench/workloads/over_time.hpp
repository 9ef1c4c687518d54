// How many operations were done in each second of a phase. Not thread-safe: one for each thread,
// merged afterwards.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace everleaf::bench {

class OverTime {
 public:
  OverTime() { ops_.reserve(kReserved); }

  // `done` operations since the beginning, of which those since the last call count in the second
  // that now is: right to the operations between two calls.
  void note(std::chrono::nanoseconds since_begin, std::uint64_t done) {
    const auto second = static_cast<std::size_t>(since_begin / std::chrono::seconds(1));
    if (second >= ops_.size()) ops_.resize(second + 1);
    ops_[second] += done - done_;
    done_ = done;
  }

  void merge(const OverTime& other) {
    ops_.resize(std::max(ops_.size(), other.ops_.size()));
    std::ranges::transform(other.ops_, ops_, ops_.begin(), std::plus<>());
    done_ += other.done_;
  }

  [[nodiscard]] const std::vector<std::uint64_t>& ops() const { return ops_; }

 private:
  static constexpr std::size_t kReserved = 600;  // no allocation while a phase runs that long

  std::vector<std::uint64_t> ops_;
  std::uint64_t done_ = 0;
};

}  // namespace everleaf::bench
