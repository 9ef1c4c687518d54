// What the tests of the trees' crash cases share: operations, what a tree counts after them, and
// every crash in them.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "run.hpp"

namespace everleaf::crash {

using Ops = std::vector<Op>;

// Number 1 stands for the largest key (make_key).
inline void each(Ops& ops, Do what, std::uint64_t first, std::uint64_t last,
                 std::uint64_t step = 1) {
  for (std::uint64_t key = first; key < last; key += step) ops.push_back({what, key, key + 1});
}

// Fences of one operation on an index in `pool`.
inline std::uint64_t fences_of(Pool& pool, const std::function<Outcome()>& operation) {
  const std::uint64_t before = pool.counters().fences;
  EXPECT_EQ(operation(), Outcome::done);
  return pool.counters().fences - before;
}

// What the tree counts after the same operations.
template <class K>
std::map<std::string, std::uint64_t> figures_of(const char* spec, const Ops& ops) {
  PoolOptions options;
  options.epoch_length = {};
  Pool pool = Pool::anonymous(options).value();
  auto index = pool.index<K>("index", spec).value();
  for (const Op& op : ops) {
    const auto key = make_key<K>(op.key);
    Outcome outcome = Outcome::done;
    if (op.what == Do::tick) outcome = pool.advance_epoch();
    if (op.what == Do::insert) outcome = index.insert(key, op.value);
    if (op.what == Do::update) outcome = index.update(key, op.value);
    if (op.what == Do::upsert) outcome = index.upsert(key, op.value);
    if (op.what == Do::remove) outcome = index.remove(key);
    EXPECT_EQ(outcome, Outcome::done) << to_string(op);
  }
  EXPECT_TRUE(index.check().problems.empty());
  const Stats stats = index.stats();
  std::map<std::string, std::uint64_t> all(stats.more.begin(), stats.more.end());
  all["leaves"] = stats.leaf_nodes;
  all["height"] = stats.height;
  all["pool_bytes"] = stats.pool_bytes;
  all["fences"] = pool.counters().fences;
  return all;
}

inline void explore_in(std::initializer_list<Domain> domains, Config config) {
  for (const Domain domain : domains) {
    config.domain = domain;
    const Report report = run(config);
    ASSERT_FALSE(report.failure) << report.failure->operation << ": " << report.failure->what;
    EXPECT_GT(report.executions, report.operations);
  }
}

// With both kinds of keys. Deep ones would take long with all crash points.
inline void explore_all(const std::string& spec, const Ops& ops, unsigned nested,
                        std::uint64_t most, std::initializer_list<Domain> domains) {
  Config config;
  config.spec = spec;
  config.ops = ops;
  config.nested = nested;
  config.most = nested > 1 ? std::min<std::uint64_t>(most, 6) : most;
  config.crash_on_every = nested > 1 ? 8 : 16;
  for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
    config.keys = keys;
    explore_in(domains, config);
  }
}

}  // namespace everleaf::crash
