// A log-linear histogram of latencies, by HdrHistogram's scheme.
//
// Values 0..255 have a bucket each. From there on every power of two [2^k, 2^(k+1)) is cut into 128
// buckets of equal width, up to 2^64 - 1: nothing saturates. A bucket is at most 1/128 of its
// values wide, so a quantile is never below the exact one and at most 0.79 % (1/127) above it. The
// kSlowest greatest values are kept themselves. Not thread-safe: one histogram for each thread,
// merged afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace everleaf::bench {

class Histogram {
 public:
  static constexpr unsigned kSubBucketBits = 7;
  static constexpr std::size_t kSubBuckets = std::size_t{1} << kSubBucketBits;
  static constexpr std::size_t kSlowest = 100;
  static constexpr std::size_t kBuckets = (64 - kSubBucketBits + 1) * kSubBuckets;

  static constexpr std::size_t bucket_of(std::uint64_t value) {
    const unsigned shift = shift_of(value);
    return shift * kSubBuckets + static_cast<std::size_t>(value >> shift);
  }

  // Largest value of a bucket.
  static constexpr std::uint64_t upper_bound(std::size_t bucket) {
    if (bucket < 2 * kSubBuckets) return bucket;
    const std::size_t shift = bucket / kSubBuckets - 1;
    const std::uint64_t lowest = static_cast<std::uint64_t>(bucket - shift * kSubBuckets) << shift;
    return lowest + ((std::uint64_t{1} << shift) - 1);
  }

  void record(std::uint64_t value) {
    ++counts_[bucket_of(value)];
    ++count_;
    max_ = std::max(max_, value);
    if (value > slowest_[0]) keep(value);
  }

  void merge(const Histogram& other) {
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      counts_[bucket] += other.counts_[bucket];
    }
    count_ += other.count_;
    max_ = std::max(max_, other.max_);
    for (const std::uint64_t value : other.slowest_) {
      if (value > slowest_[0]) keep(value);
    }
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t max() const { return max_; }  // exact; 0 when empty

  // Mean of the kSlowest greatest values, or of all if they are fewer. 0 when empty.
  [[nodiscard]] double slowest_mean() const {
    if (count_ == 0) return 0;
    const double sum = std::accumulate(slowest_.begin(), slowest_.end(), 0.0);
    return sum / static_cast<double>(std::min<std::uint64_t>(count_, kSlowest));
  }

  // The smallest value with at least `fraction` of all records at or below it, rounded up to the
  // end of its bucket but never beyond max(). 0 when empty.
  [[nodiscard]] std::uint64_t quantile(double fraction) const {
    const double exact_rank =
        std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_));
    const auto rank = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact_rank), 1,
                                                std::max<std::uint64_t>(count_, 1));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      seen += counts_[bucket];
      if (seen >= rank) return std::min(upper_bound(bucket), max_);
    }
    return max_;
  }

 private:
  // Instead of the least of the slowest.
  void keep(std::uint64_t value) {
    std::ranges::pop_heap(slowest_, std::greater<>());
    slowest_.back() = value;
    std::ranges::push_heap(slowest_, std::greater<>());
  }

  static constexpr unsigned shift_of(std::uint64_t value) {
    const auto width = static_cast<unsigned>(std::bit_width(value));
    return width <= kSubBucketBits + 1 ? 0 : width - (kSubBucketBits + 1);
  }

  std::vector<std::uint64_t> counts_ = std::vector<std::uint64_t>(kBuckets);
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  std::array<std::uint64_t, kSlowest> slowest_{};  // a heap, the least first; 0: none yet
};

static_assert(Histogram::bucket_of(~std::uint64_t{0}) == Histogram::kBuckets - 1);
static_assert(Histogram::upper_bound(Histogram::kBuckets - 1) == ~std::uint64_t{0});

}  // namespace everleaf::bench
