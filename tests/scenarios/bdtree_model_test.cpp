// The space that old versions take (Du, Scott, 4.1): N keys of which half are there, M upserts and
// removals (as many of each) of uniformly drawn keys in an epoch. At its end a key has an instance
// for the state two epochs ago, with probability 1/2, and one for each of both epochs since if its
// last change in it, if any, was an upsert: together N (3/2 - ((N-1)/N)^M).
//
// In this tree that is what slots hold (D4 of its README): taken are those set in the word of this
// epoch, in the one of the epoch before, and in the newest older one. What the model does not know
// are splits and compactions: live entries get one instance in new leaves, and older versions stay
// behind in the retired leaf, with copies of the live ones, until no recovery reads it.
#include <cmath>
#include <cstdio>

#include "support.hpp"

namespace everleaf::test {
namespace {

constexpr std::uint64_t kN = 20000;

double model(std::uint64_t changes) {
  const auto n = static_cast<double>(kN);
  return n * (1.5 - std::pow((n - 1) / n, static_cast<double>(changes)));
}

struct Measured {
  double instances = 0;  // of leaves, at the ends of epochs, on average
  double retired = 0;    // likewise, of retired leaves that recovery may read
  double live = 0;
};

Measured measure(std::uint64_t changes, std::uint64_t seed) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<std::uint64_t>("index", "bdtree:node=512").value();  // the paper's leaf
  for (std::uint64_t n = 0; n < kN; n += 2) EXPECT_EQ(index.insert(n, n), Outcome::done);
  Random random(seed);
  Measured sum;
  constexpr int kFirst = 40;  // until leaves are as many as they will be
  constexpr int kEpochs = 10;
  for (int epoch = 0; epoch < kFirst + kEpochs; ++epoch) {
    for (std::uint64_t i = 0; i < changes; ++i) {
      const std::uint64_t key = random.below(kN);
      const Outcome is = random.one_in(2) ? index.upsert(key, i) : index.remove(key);
      EXPECT_TRUE(is == Outcome::done || is == Outcome::absent);
    }
    if (epoch >= kFirst) {
      const Stats stats = index.stats();
      sum.instances += static_cast<double>(figure(stats, "key_instances")) / kEpochs;
      sum.live += static_cast<double>(stats.keys) / kEpochs;
      sum.retired += static_cast<double>(figure(stats, "retired_instances")) / kEpochs;
    }
    EXPECT_EQ(pool.advance_epoch(), Outcome::done);
  }
  EXPECT_EQ(unsound(pool), "");
  return sum;
}

TEST(BdtreeModel, InstancesOfKeys) {
  for (const std::uint64_t changes : {kN / 100, kN / 10, kN / 2, kN, 2 * kN}) {
    const Measured is = measure(changes, 1);
    const std::string name = "M_" + std::to_string(changes);
    RecordProperty(name + "_model", static_cast<int>(model(changes)));
    RecordProperty(name + "_measured", static_cast<int>(is.instances));
    RecordProperty(name + "_retired", static_cast<int>(is.retired));
    std::printf("M = %5llu: model %.0f, in leaves %.0f, in retired ones %.0f more\n",
                static_cast<unsigned long long>(changes), model(changes), is.instances, is.retired);
    // Of 20000 keys as many are there as of coins fall heads: 70 more or less.
    EXPECT_NEAR(is.live, kN / 2.0, 300);
    if (changes <= kN / 10) {
      EXPECT_NEAR(is.instances / model(changes), 1, 0.02);
    }
    EXPECT_LT(is.instances / model(changes), 1.02);
    EXPECT_GT((is.instances + is.retired) / model(changes), 0.98);
    EXPECT_GT(is.instances / model(changes), 0.9);
  }
}

}  // namespace
}  // namespace everleaf::test
