// Permutations, distributions and sequences. All seeds are fixed: no luck involved.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "plan.hpp"
#include "workloads/keys.hpp"
#include "workloads/random.hpp"
#include "workloads/sequence.hpp"
#include "workloads/timed.hpp"
#include "workloads/zipf.hpp"

namespace everleaf::bench {
namespace {

TEST(Mix, UnmixTurnsItBack) {
  Random random(3);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t x = random.next();
    ASSERT_EQ(unmix(mix(x)), x);
    ASSERT_EQ(mix(unmix(x)), x);
  }
  for (const std::uint64_t x : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    EXPECT_EQ(unmix(mix(x)), x);
  }
}

TEST(Shuffle, IsABijectionForEverySize) {
  std::vector<std::uint64_t> sizes(300);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const std::uint64_t size : {1023, 1024, 1025, 65'535, 65'536, 65'537, 100'000}) {
    sizes.push_back(size);
  }
  for (const std::uint64_t size : sizes) {
    const Shuffle shuffle(size, size * 31 + 5);
    std::vector<bool> seen(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t image = shuffle(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << "size " << size << ", " << image << " comes twice";
      seen[image] = true;
    }
  }
}

// Neighbours must not stay neighbours: about 1 in `size` of them does by chance.
TEST(Shuffle, ScattersNeighbours) {
  constexpr std::uint64_t kSize = 100'000;
  const Shuffle shuffle(kSize, 1);
  int close = 0;
  for (std::uint64_t i = 0; i + 1 < kSize; ++i) {
    const auto distance =
        static_cast<std::int64_t>(shuffle(i)) - static_cast<std::int64_t>(shuffle(i + 1));
    close += std::abs(distance) <= 10 ? 1 : 0;
  }
  EXPECT_LT(close, 100);
}

// Counts against the exact probabilities: within five standard deviations for each of the first
// ranks and for the tail.
void expect_zipf(std::uint64_t size, double exponent) {
  constexpr std::uint64_t kDraws = 400'000;
  const Zipf zipf(size, exponent);
  Random random(17);
  std::vector<double> counts(size);
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const std::uint64_t rank = zipf(random);
    ASSERT_LT(rank, size);
    counts[rank] += 1;
  }
  double norm = 0;
  for (std::uint64_t rank = 0; rank < size; ++rank) {
    norm += std::pow(static_cast<double>(rank + 1), -exponent);
  }
  const std::uint64_t heads = std::min<std::uint64_t>(size, 20);
  double tail_expected = static_cast<double>(kDraws);
  double tail_count = static_cast<double>(kDraws);
  const auto expect_close = [](double count, double expected) {
    EXPECT_NEAR(count, expected, 5 * std::sqrt(expected) + 1);
  };
  for (std::uint64_t rank = 0; rank < heads; ++rank) {
    const double share = std::pow(static_cast<double>(rank + 1), -exponent) / norm;
    const double expected = share * static_cast<double>(kDraws);
    SCOPED_TRACE("exponent " + std::to_string(exponent) + ", rank " + std::to_string(rank));
    expect_close(counts[rank], expected);
    tail_expected -= expected;
    tail_count -= counts[rank];
  }
  if (heads < size) expect_close(tail_count, tail_expected);
}

TEST(Zipf, HasTheRightFrequencies) {
  for (const double exponent : {0.5, 0.8, 0.99, 1.0, 1.2, 2.0}) expect_zipf(1000, exponent);
}

TEST(Zipf, SmallSizes) {
  for (const std::uint64_t size : {1, 2, 3}) expect_zipf(size, 0.99);
}

TEST(Zipf, HugeSizesStayInRange) {
  const std::uint64_t size = std::uint64_t{1} << 40;
  const Zipf zipf(size, 0.99);
  Random random(5);
  for (int i = 0; i < 100'000; ++i) ASSERT_LT(zipf(random), size);
}

TEST(KeySpace, IdsComeBack) {
  for (const KeyOrder order : {KeyOrder::scattered, KeyOrder::ascending, KeyOrder::descending}) {
    const KeySpace keys(order, 9);
    for (std::uint64_t id = 0; id < 10'000; ++id) ASSERT_EQ(keys.id_of(keys.key_of(id)), id);
  }
}

TEST(KeySpace, OrdersAreWhatTheySay) {
  const KeySpace up(KeyOrder::ascending, 1);
  const KeySpace down(KeyOrder::descending, 1);
  for (std::uint64_t id = 0; id < 1000; ++id) {
    EXPECT_LT(up.key_of(id), up.key_of(id + 1));
    EXPECT_GT(down.key_of(id), down.key_of(id + 1));
  }
}

TEST(KeyCodec, BytesKeepTheOrderAndComeBack) {
  Random random(2);
  KeyCodec<Bytes> codec;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t left = random.next();
    const std::uint64_t right = random.next();
    const std::string left_key(codec(left));
    const std::string right_key(codec(right));
    ASSERT_EQ(left < right, left_key < right_key);
    ASSERT_EQ(KeyCodec<Bytes>::number_of(left_key), left);
  }
  EXPECT_EQ(codec(0xfedcba9876543210), "userfedcba9876543210");
  EXPECT_EQ(KeyCodec<Bytes>::number_of("user"), std::nullopt);
  EXPECT_EQ(KeyCodec<Bytes>::number_of("userfedcba987654321x"), std::nullopt);
  EXPECT_EQ(KeyCodec<Bytes>::number_of("User0000000000000000"), std::nullopt);
}

TEST(Value, BelongsToItsKeyAlone) {
  EXPECT_TRUE(value_belongs(value_of(42, 0), 42));
  EXPECT_TRUE(value_belongs(value_of(42, 1), 42));
  EXPECT_FALSE(value_belongs(value_of(43, 0), 42));
  EXPECT_NE(value_of(42, 0), value_of(42, 1));
}

class Sequences : public testing::TestWithParam<const char*> {
 protected:
  Sequences() : keys_(KeyOrder::scattered, 0) {
    plan_.distribution = parse_distribution(GetParam());
    plan_.records = 1000;
    plan_.ops = 300;
    keys_ = KeySpace(key_order(plan_.distribution), 4);
  }

  std::vector<std::uint64_t> ids(const Phase& phase) const {
    std::vector<std::uint64_t> ids = make_sequence(phase, plan_, keys_, kLive, 8).keys;
    for (std::uint64_t& id : ids) id = keys_.id_of(id);
    return ids;
  }

  static constexpr IdRange kLive{100, 1100};
  Plan plan_;
  KeySpace keys_;
};

TEST_P(Sequences, InsertTakesNewRecordsOnce) {
  const std::vector<std::uint64_t> inserted = ids(Phase::Kind::insert);
  const std::set<std::uint64_t> unique(inserted.begin(), inserted.end());
  EXPECT_EQ(unique.size(), 300U);
  EXPECT_EQ(*unique.begin(), 1100U);
  EXPECT_EQ(*unique.rbegin(), 1399U);
  EXPECT_EQ(live_after(Phase::Kind::insert, plan_, kLive).end, 1400U);
}

TEST_P(Sequences, RemoveTakesOldRecordsOnce) {
  const std::vector<std::uint64_t> removed = ids(Phase::Kind::remove);
  const std::set<std::uint64_t> unique(removed.begin(), removed.end());
  EXPECT_EQ(unique.size(), 300U);
  EXPECT_EQ(*unique.begin(), 100U);
  EXPECT_EQ(*unique.rbegin(), 399U);
  EXPECT_EQ(live_after(Phase::Kind::remove, plan_, kLive).first, 400U);
}

TEST_P(Sequences, RemoveTakesNoMoreThanThereIs) {
  plan_.ops = 5000;
  EXPECT_EQ(ids(Phase::Kind::remove).size(), 1000U);
  EXPECT_EQ(live_after(Phase::Kind::remove, plan_, kLive).size(), 0U);
}

TEST_P(Sequences, ReadersTakeLiveRecords) {
  for (const Phase::Kind phase : {Phase::Kind::find, Phase::Kind::update, Phase::Kind::scan}) {
    const std::vector<std::uint64_t> chosen = ids(phase);
    EXPECT_EQ(chosen.size(), 300U);
    EXPECT_TRUE(std::ranges::all_of(chosen, [](std::uint64_t id) { return kLive.contains(id); }));
    const IdRange after = live_after(phase, plan_, kLive);
    EXPECT_EQ(after.first, kLive.first);
    EXPECT_EQ(after.end, kLive.end);
  }
}

TEST_P(Sequences, AMixKeepsItsSharesAndItsPromises) {
  plan_.ops = 997;  // no share of it is a whole number
  const Phase mix("mix", {0, 30, 20, 25, 15, 10});
  const Sequence sequence = make_sequence(mix, plan_, keys_, kLive, 8);
  const IdRange throughout = live_throughout(mix, plan_, kLive);
  const IdRange after = live_after(mix, plan_, kLive);
  const Counts counts = counts_of(plan_, mix, kLive.size());
  ASSERT_EQ(sequence.keys.size(), 997U);
  ASSERT_EQ(sequence.kinds.size(), 997U);
  Counts seen{};
  IdRange live = kLive;
  for (std::size_t i = 0; i < sequence.keys.size(); ++i) {
    const std::uint64_t id = keys_.id_of(sequence.keys[i]);
    ++seen[static_cast<std::size_t>(sequence.kinds[i])];
    switch (sequence.kinds[i]) {
      case Phase::Kind::insert:
        ASSERT_EQ(id, live.end++);
        break;
      case Phase::Kind::remove:
        ASSERT_EQ(id, live.first++);
        break;
      default:
        ASSERT_TRUE(throughout.contains(id)) << id;
    }
  }
  EXPECT_EQ(seen, counts);
  for (std::size_t kind = 0; kind < seen.size(); ++kind) {
    EXPECT_NEAR(static_cast<double>(seen[kind]), 9.97 * mix.percent[kind], 1);
  }
  EXPECT_EQ(live.first, after.first);
  EXPECT_EQ(live.end, after.end);
  EXPECT_EQ(throughout.first, after.first);
  EXPECT_EQ(throughout.end, kLive.end);
  EXPECT_EQ(make_sequence(mix, plan_, keys_, kLive, 8).kinds, sequence.kinds);
  EXPECT_NE(make_sequence(mix, plan_, keys_, kLive, 9).kinds, sequence.kinds);
}

TEST_P(Sequences, TheLargestKeyIsThatOfARecord) {
  const std::uint64_t largest = largest_key(keys_, kLive);
  EXPECT_TRUE(kLive.contains(keys_.id_of(largest)));
  for (std::uint64_t id = kLive.first; id < kLive.end; ++id) {
    ASSERT_LE(keys_.key_of(id), largest);
  }
}

TEST_P(Sequences, SameSeedSameSequence) {
  EXPECT_EQ(ids(Phase::Kind::find), ids(Phase::Kind::find));
  EXPECT_EQ(ids(Phase::Kind::remove), ids(Phase::Kind::remove));
}

INSTANTIATE_TEST_SUITE_P(Distributions, Sequences,
                         testing::Values("uniform", "zipf:0.99", "latest:0.99", "ascending",
                                         "descending"));

std::vector<double> hits_of(const char* distribution, IdRange live, std::uint64_t ops) {
  Plan plan;
  plan.distribution = parse_distribution(distribution);
  plan.ops = ops;
  const KeySpace keys(KeyOrder::scattered, 4);
  std::vector<double> hits(live.size());
  for (const std::uint64_t key : make_sequence(Phase::Kind::find, plan, keys, live, 8).keys) {
    hits[keys.id_of(key) - live.first] += 1;
  }
  return hits;
}

// Kinds must not come in blocks: each tenth of the sequence has its share of each, within five
// standard deviations.
TEST(Kinds, OfAMixAreSpreadEvenly) {
  Plan plan;
  plan.ops = 100'000;
  const KeySpace keys(KeyOrder::scattered, 4);
  const Phase mix("mix", {0, 76, 0, 19, 0, 5});
  const Sequence sequence = make_sequence(mix, plan, keys, {0, 100'000}, 8);
  for (std::size_t part = 0; part < 10; ++part) {
    std::array<double, Phase::kKinds> counts{};
    for (std::size_t i = 0; i < 10'000; ++i) {
      counts[static_cast<std::size_t>(sequence.kinds[10'000 * part + i])] += 1;
    }
    for (std::size_t kind = 0; kind < counts.size(); ++kind) {
      const double share = mix.percent[kind] / 100.0;
      EXPECT_NEAR(counts[kind], 10'000 * share, 5 * std::sqrt(10'000 * share * (1 - share)));
    }
  }
}

// 1000 bins, 1,000,000 draws: chi-square has mean 999 and deviation 45.
TEST(Distribution, UniformIsUniform) {
  double chi_square = 0;
  for (const double count : hits_of("uniform", {50, 1050}, 1'000'000)) {
    chi_square += (count - 1000) * (count - 1000) / 1000;
  }
  EXPECT_GT(chi_square, 999 - 5 * 45);
  EXPECT_LT(chi_square, 999 + 5 * 45);
}

TEST(Distribution, LatestPrefersTheNewest) {
  const std::vector<double> hits = hits_of("latest:0.99", {50, 1050}, 100'000);
  EXPECT_EQ(std::ranges::max_element(hits), hits.end() - 1);
  EXPECT_GT(hits[999], 5 * hits[989]);
}

TEST(Distribution, ZipfScattersTheHotRecords) {
  const std::vector<double> hits = hits_of("zipf:0.99", {50, 1050}, 100'000);
  std::vector<std::size_t> order(hits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater<>{}, [&](std::size_t id) { return hits[id]; });
  EXPECT_GT(hits[order[0]], 1.5 * hits[order[1]]);
  const auto [low, high] = std::minmax_element(order.begin(), order.begin() + 10);
  EXPECT_GT(*high - *low, 200U);
}

TEST(Sampler, MeetsItsRate) {
  Sampler sampler(32, 1);
  int due = 0;
  for (int i = 0; i < 320'000; ++i) due += sampler.due() ? 1 : 0;
  EXPECT_NEAR(due, 10'000, 300);
  Sampler every(1, 1);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(every.due());
}

}  // namespace
}  // namespace everleaf::bench
