#include "histogram.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "workloads/random.hpp"

namespace everleaf::bench {
namespace {

constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();

TEST(Histogram, BucketsAreContiguousAndCoverEverything) {
  ASSERT_EQ(Histogram::bucket_of(0), 0U);
  for (std::size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    const std::uint64_t last = Histogram::upper_bound(bucket);
    ASSERT_EQ(Histogram::bucket_of(last), bucket);
    ASSERT_EQ(Histogram::bucket_of(last + 1), bucket + 1);
  }
  EXPECT_EQ(Histogram::upper_bound(Histogram::kBuckets - 1), kLargest);
}

TEST(Histogram, SmallValuesAreExact) {
  for (std::uint64_t value = 0; value < 256; ++value) {
    EXPECT_EQ(Histogram::upper_bound(Histogram::bucket_of(value)), value);
  }
}

TEST(Histogram, ABucketIsAtMostA128thOfItsValuesWide) {
  for (std::size_t bucket = 1; bucket < Histogram::kBuckets; ++bucket) {
    const std::uint64_t lowest = Histogram::upper_bound(bucket - 1) + 1;
    ASSERT_LE(Histogram::upper_bound(bucket) - lowest, lowest / 128);
  }
}

// Against the exact quantiles of values that span twelve powers of ten.
TEST(Histogram, QuantilesAreWithinTheirBound) {
  Random random(7);
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<std::uint64_t>(std::exp(random.unit() * 27.6)));
    histogram.record(values.back());
  }
  std::ranges::sort(values);
  for (const double fraction : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    const double exact_rank = std::ceil(fraction * static_cast<double>(values.size()));
    const auto rank = static_cast<std::size_t>(std::max(exact_rank, 1.0));
    const std::uint64_t exact = values[rank - 1];
    const std::uint64_t answer = histogram.quantile(fraction);
    EXPECT_GE(answer, exact) << fraction;
    EXPECT_LE(answer, exact + exact / 127) << fraction;
  }
  EXPECT_EQ(histogram.quantile(1.0), values.back());
  EXPECT_EQ(histogram.max(), values.back());
}

TEST(Histogram, EmptyAnswersZero) {
  const Histogram histogram;
  EXPECT_EQ(histogram.count(), 0U);
  EXPECT_EQ(histogram.max(), 0U);
  EXPECT_EQ(histogram.quantile(0.5), 0U);
}

TEST(Histogram, OneValueIsEveryQuantile) {
  Histogram histogram;
  histogram.record(1'000'003);
  for (const double fraction : {0.0, 0.5, 0.99999, 1.0}) {
    EXPECT_EQ(histogram.quantile(fraction), 1'000'003U);
  }
}

TEST(Histogram, ExtremesAreKept) {
  Histogram histogram;
  histogram.record(0);
  histogram.record(kLargest);
  EXPECT_EQ(histogram.quantile(0.5), 0U);
  EXPECT_EQ(histogram.quantile(1.0), kLargest);
}

// Against the mean of the hundred greatest of all values, merged from three parts.
TEST(Histogram, TheSlowestAreKept) {
  Random random(13);
  std::vector<std::uint64_t> values;
  std::array<Histogram, 3> parts;
  for (std::size_t i = 0; i < 50; ++i) {
    values.push_back(1 + random.below(1'000'000));
    parts[i % 3].record(values.back());
  }
  const auto exact = [&](std::size_t most) {
    std::ranges::sort(values, std::greater<>());
    const std::size_t count = std::min(values.size(), most);
    return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count),
                           0.0) /
           static_cast<double>(count);
  };
  const auto merged = [&] {
    Histogram all;
    for (const Histogram& part : parts) all.merge(part);
    return all.slowest_mean();
  };
  EXPECT_DOUBLE_EQ(merged(), exact(100));  // all of them
  for (std::size_t i = 0; i < 20'000; ++i) {
    values.push_back(1 + random.below(1'000'000));
    parts[i % 3].record(values.back());
  }
  EXPECT_DOUBLE_EQ(merged(), exact(100));
  EXPECT_EQ(Histogram().slowest_mean(), 0);
}

TEST(Histogram, MergedIsAsIfRecordedInOne) {
  Random random(11);
  Histogram whole;
  Histogram left;
  Histogram right;
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t value = random.below(1'000'000);
    whole.record(value);
    (i % 3 == 0 ? left : right).record(value);
  }
  left.merge(right);
  EXPECT_EQ(left.count(), whole.count());
  EXPECT_EQ(left.max(), whole.max());
  for (double fraction = 0; fraction <= 1; fraction += 0.01) {
    EXPECT_EQ(left.quantile(fraction), whole.quantile(fraction));
  }
}

}  // namespace
}  // namespace everleaf::bench
