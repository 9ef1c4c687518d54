// Permutations, distributions and sequences. All seeds are fixed: no luck involved.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "plan.hpp"
#include "progress.hpp"
#include "workloads/keys.hpp"
#include "workloads/over_time.hpp"
#include "workloads/random.hpp"
#include "workloads/sequence.hpp"
#include "workloads/space.hpp"
#include "workloads/timed.hpp"
#include "workloads/values.hpp"
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

// Of every length, and each byte counts.
TEST(ValueCodec, NoticesEveryByte) {
  Random random(5);
  for (std::size_t bytes = ValueCodec::kLeast; bytes < 50; ++bytes) {
    ValueCodec codec(bytes);
    const std::uint64_t number = random.next();
    std::string value(codec(number));
    ASSERT_EQ(value.size(), bytes);
    EXPECT_EQ(codec.number_of(value), number);
    for (char& byte : value) {
      byte = static_cast<char>(byte ^ 1);
      EXPECT_NE(codec.number_of(value), number);
      byte = static_cast<char>(byte ^ 1);
    }
    EXPECT_FALSE(codec.number_of(value + '.'));
    EXPECT_FALSE(codec.number_of(std::string_view(value).substr(1)));
    EXPECT_FALSE(codec.number_of(""));
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
    ASSERT_EQ(codec.number_of(left_key), left);
  }
  EXPECT_EQ(codec(0xfedcba9876543210), "userfedcba9876543210");
  EXPECT_EQ(codec.number_of("user"), std::nullopt);
  EXPECT_EQ(codec.number_of("userfedcba987654321x"), std::nullopt);
  EXPECT_EQ(codec.number_of("User0000000000000000"), std::nullopt);
  EXPECT_EQ(codec.number_of("user0000000000000000."), std::nullopt);
}

TEST(KeyCodec, EveryLengthKeepsTheOrderAndComesBack) {
  for (std::size_t bytes = KeyCodec<Bytes>::kLeast; bytes <= KeyCodec<Bytes>::kMost; ++bytes) {
    KeyCodec<Bytes> codec(bytes);
    Random random(bytes);
    for (int i = 0; i < 1000; ++i) {
      const std::uint64_t left = random.next();
      // Also numbers that differ late.
      const std::uint64_t right = i % 2 == 0 ? random.next() : left ^ random.below(256);
      const std::string left_key(codec(left));
      const std::string right_key(codec(right));
      ASSERT_EQ(left_key.size(), bytes);
      ASSERT_EQ(left < right, left_key < right_key);
      ASSERT_EQ(codec.number_of(left_key), left);
      ASSERT_EQ(codec.number_of(left_key + '.'), std::nullopt);
      ASSERT_EQ(codec.number_of(left_key.substr(1)), std::nullopt);
    }
    std::string other(codec(1));
    if (bytes == KeyCodec<Bytes>::kLeast || bytes == KeyCodec<Bytes>::kReadable) continue;
    other.back() = ',';
    EXPECT_EQ(codec.number_of(other), std::nullopt);
  }
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
  const Phase mix("mix", {0, 20, 10, 25, 15, 10, 12, 8});
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
        // With latest also what was inserted before: there is one thread.
        ASSERT_TRUE(throughout.contains(id) ||
                    (plan_.distribution.kind == Distribution::Kind::latest && live.contains(id)))
            << id;
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
                                         "descending", "hotspot:20:80"));

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

// A fifth of the records takes four fifths of the operations, evenly within both: chi-square with
// 999 degrees of freedom has mean 999 and deviation 45.
TEST(Distribution, HotspotHasItsShares) {
  std::vector<double> hits = hits_of("hotspot:20:80", {50, 1050}, 1'000'000);
  std::vector<std::size_t> hot;
  for (std::size_t id = 0; id < hits.size(); ++id) {
    if (hits[id] > 2000) hot.push_back(id);  // expected: 4000 or 250
  }
  ASSERT_EQ(hot.size(), 200U);
  EXPECT_GT(hot.back() - hot.front(), 900U);  // they are scattered
  double chi_square = 0;
  for (const double count : hits) {
    const double expected = count > 2000 ? 4000 : 250;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_GT(chi_square, 999 - 5 * 45);
  EXPECT_LT(chi_square, 999 + 5 * 45);
}

Plan plan_with(const std::string& workload, std::uint64_t records, std::uint64_t ops) {
  Arguments arguments;
  arguments.workload = workload;
  arguments.records = {records};
  arguments.ops = ops;
  return make_plan(arguments);
}

// YCSB's latest: rank r is the r-th newest of what the thread can know to be there. The share of
// each of the first ranks, within five standard deviations.
TEST(Named, YcsbDReadsWhatWasJustInserted) {
  constexpr std::uint64_t kRecords = 10'000;
  const Plan plan = plan_with("ycsb-d", kRecords, 400'000);
  const KeySpace keys(KeyOrder::scattered, 4);
  for (const unsigned threads : {1U, 3U}) {
    const Sequence sequence = make_sequence(plan.phases[0], plan, keys, {0, kRecords}, 8, threads);
    std::vector<std::vector<std::uint64_t>> inserted(threads);
    std::array<double, 5> expected{};
    std::array<double, 5> seen{};
    std::uint64_t end = kRecords;
    std::map<std::uint64_t, double> norms;  // by size, in steps of a hundred
    for (std::size_t i = 0; i < sequence.keys.size(); ++i) {
      const std::uint64_t id = keys.id_of(sequence.keys[i]);
      std::vector<std::uint64_t>& own = inserted[i % threads];
      if (sequence.kinds[i] == Phase::Kind::insert) {
        ASSERT_EQ(id, end++);
        own.push_back(id);
        continue;
      }
      ASSERT_TRUE(id < kRecords || std::ranges::binary_search(own, id)) << i;
      double& norm = norms[own.size() / 100];
      const std::uint64_t size = norm == 0 ? kRecords + own.size() : 0;
      for (std::uint64_t rank = 1; rank <= size; ++rank) {
        norm += std::pow(static_cast<double>(rank), -0.99);
      }
      for (std::size_t rank = 0; rank < seen.size(); ++rank) {
        expected[rank] += std::pow(static_cast<double>(rank + 1), -0.99) / norm;
        const std::uint64_t wanted =
            rank < own.size() ? own[own.size() - 1 - rank] : kRecords - 1 - (rank - own.size());
        if (id == wanted) seen[rank] += 1;
      }
    }
    for (std::size_t rank = 0; rank < seen.size(); ++rank) {
      EXPECT_NEAR(seen[rank], expected[rank], 5 * std::sqrt(expected[rank])) << rank;
    }
  }
}

// Lengths 1 to 100, each as often: chi-square with 99 degrees of freedom, deviation 14.
TEST(Named, YcsbEScansEveryLengthAsOften) {
  Job job;
  job.phase = plan_with("ycsb-e", 1000, 1000).phases[0];
  job.scan_length = 100;
  std::array<double, 101> counts{};
  for (std::size_t i = 0; i < 100'000; ++i) counts.at(scan_length_of(job, i)) += 1;
  EXPECT_EQ(counts[0], 0);
  double chi_square = 0;
  for (std::size_t length = 1; length <= 100; ++length) {
    chi_square += (counts[length] - 1000) * (counts[length] - 1000) / 1000;
  }
  EXPECT_LT(chi_square, 99 + 5 * 14);
  EXPECT_GT(chi_square, 99 - 5 * 14);
  job.phase = Phase::Kind::scan;
  EXPECT_EQ(scan_length_of(job, 7), 100U);
}

// Reads, insertions and removals all draw from the whole space, half of which is loaded.
TEST(Named, TheWholeSpaceIsDrawnFromAlike) {
  const Plan plan = plan_with("u1-write-heavy", 500, 1'000'000);
  const KeySpace keys(KeyOrder::scattered, 4);
  const IdRange live{100, 600};
  const Sequence sequence = make_sequence(plan.phases[0], plan, keys, live, 8);
  std::array<std::vector<double>, Phase::kKinds> hits;
  hits.fill(std::vector<double>(1000));
  for (std::size_t i = 0; i < sequence.keys.size(); ++i) {
    const std::uint64_t at = keys.id_of(sequence.keys[i]) - live.first;
    ASSERT_LT(at, 1000U);
    hits[static_cast<std::size_t>(sequence.kinds[i])][at] += 1;
  }
  for (const Phase::Kind kind : {Phase::Kind::find, Phase::Kind::insert, Phase::Kind::remove}) {
    const std::vector<double>& of_kind = hits[static_cast<std::size_t>(kind)];
    const double expected = std::accumulate(of_kind.begin(), of_kind.end(), 0.0) / 1000;
    EXPECT_EQ(expected, kind == Phase::Kind::find ? 200 : 400);
    double chi_square = 0;
    for (const double count : of_kind) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_NEAR(chi_square, 999, 5 * 45);
  }
  const IdRange after = live_after(plan.phases[0], plan, live);
  EXPECT_EQ(after.first, live.first);
  EXPECT_EQ(after.end, live.end);
}

// settle(): which answers can be true.
class Settle : public testing::Test {
 protected:
  using Kind = Phase::Kind;

  // Records 0 and 1 live, 2 and 3 may come.
  std::string settled(const std::vector<std::pair<Kind, std::uint64_t>>& ops, unsigned threads,
                      const std::vector<std::uint8_t>& answers) {
    const KeySpace keys(KeyOrder::ascending, 1);
    std::vector<std::uint64_t> sequence;
    std::vector<Kind> kinds;
    for (const auto& [kind, id] : ops) {
      kinds.push_back(kind);
      sequence.push_back(keys.key_of(id));
    }
    live_ = {IdRange{0, 2}};
    return settle(live_, keys, sequence, kinds, threads, answers);
  }

  Live live_;
};

TEST_F(Settle, OneThreadIsReplayed) {
  EXPECT_EQ(settled({{Kind::find, 0},
                     {Kind::find, 2},
                     {Kind::insert, 0},
                     {Kind::insert, 2},
                     {Kind::remove, 1},
                     {Kind::remove, 1},
                     {Kind::find, 2},
                     {Kind::upsert, 3}},
                    1, {1, 0, 0, 1, 1, 0, 1, 1}),
            "");
  EXPECT_EQ(live_.present, (std::vector<std::uint8_t>{1, 0, 1, 1}));
  EXPECT_EQ(live_.size(), 3U);
  EXPECT_TRUE(live_.contains(2));
  EXPECT_FALSE(live_.contains(1));
  EXPECT_FALSE(live_.contains(4));
  for (const auto& [kind, id, answer] : {std::tuple{Kind::find, 0, 0},
                                         {Kind::find, 2, 1},
                                         {Kind::insert, 0, 1},
                                         {Kind::insert, 2, 0},
                                         {Kind::remove, 1, 0},
                                         {Kind::remove, 3, 1}}) {
    EXPECT_NE(
        settled({{kind, static_cast<std::uint64_t>(id)}}, 1, {static_cast<std::uint8_t>(answer)}),
        "");
  }
}

TEST_F(Settle, RacesMayEndEitherWay) {
  // Threads 0 and 1 take turns in the sequence, not in time.
  const std::vector<std::pair<Kind, std::uint64_t>> race = {
      {Kind::insert, 2}, {Kind::remove, 2}, {Kind::find, 2}, {Kind::find, 2}};
  EXPECT_EQ(settled(race, 2, {1, 1, 0, 1}), "");
  EXPECT_FALSE(live_.contains(2));
  EXPECT_EQ(settled(race, 2, {1, 0, 1, 1}), "");
  EXPECT_TRUE(live_.contains(2));
  EXPECT_NE(settled(race, 2, {0, 1, 0, 0}), "");  // removed without having been there
  EXPECT_NE(settled({{Kind::insert, 2}, {Kind::insert, 2}}, 2, {1, 1}), "");
  // Written by one thread only: known to it, not to the other.
  EXPECT_EQ(settled({{Kind::insert, 2}, {Kind::find, 2}, {Kind::find, 2}}, 2, {1, 0, 1}), "");
  EXPECT_NE(settled({{Kind::insert, 2}, {Kind::find, 2}, {Kind::find, 2}}, 2, {1, 0, 0}), "");
  // Written by nobody: known to all.
  EXPECT_NE(settled({{Kind::find, 1}, {Kind::find, 1}}, 2, {1, 0}), "");
}

TEST(OverTime, CountsBySecond) {
  using std::chrono::milliseconds;
  OverTime one;
  one.note(milliseconds(10), 5);
  one.note(milliseconds(999), 12);
  one.note(milliseconds(3500), 20);
  EXPECT_EQ(one.ops(), (std::vector<std::uint64_t>{12, 0, 0, 8}));
  OverTime other;
  other.note(milliseconds(1000), 3);
  one.merge(other);
  EXPECT_EQ(one.ops(), (std::vector<std::uint64_t>{12, 3, 0, 8}));
  other.merge(one);
  EXPECT_EQ(other.ops(), (std::vector<std::uint64_t>{12, 6, 0, 8}));
}

TEST(Progress, ABarIsAsFullAsItsShare) {
  EXPECT_EQ(bar(0, 10), "[----------]");
  EXPECT_EQ(bar(0.59, 10), "[#####-----]");
  EXPECT_EQ(bar(1, 10), "[##########]");
  EXPECT_EQ(bar(-1, 4), "[----]");
  EXPECT_EQ(bar(2, 4), "[####]");
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
