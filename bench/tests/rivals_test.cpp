// The rivals in files answer as an index does. What is not built is not tested.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "compare/lsm_map.hpp"
#include "compare/store_map.hpp"
#include "failure.hpp"
#include "plan.hpp"
#include "scratch.hpp"
#include "workloads/keys.hpp"

#ifdef EVERLEAF_BENCH_LMDB
#include "compare/lmdb_map.hpp"
#endif

namespace everleaf::bench {
namespace {

// Against what a map would say, key by key.
template <class K, class Map>
void expect_the_contract(Map& map) {
  auto session = map.session(true);
  KeyCodec<K> key;
  std::vector<Entry<K>> entries;
  EXPECT_EQ(session.scan(key(0), 10, entries), Outcome::done);
  EXPECT_TRUE(entries.empty());
  EXPECT_EQ(session.find(key(7)).outcome, Outcome::absent);
  EXPECT_EQ(session.update(key(7), 1), Outcome::absent);
  EXPECT_EQ(session.remove(key(7)), Outcome::absent);
  EXPECT_EQ(session.insert(key(7), 1), Outcome::done);
  EXPECT_EQ(session.insert(key(7), 2), Outcome::exists);
  EXPECT_EQ(session.find(key(7)).value, 1U);
  EXPECT_EQ(session.update(key(7), 3), Outcome::done);
  EXPECT_EQ(session.find(key(7)).value, 3U);
  EXPECT_EQ(session.upsert(key(7), 4), Outcome::done);
  EXPECT_EQ(session.upsert(key(9), 5), Outcome::done);
  // In the order of the numbers, also where their bytes in memory are in another.
  for (const std::uint64_t number : {std::uint64_t{0x1'00}, ~std::uint64_t{0}, std::uint64_t{0}}) {
    EXPECT_EQ(session.insert(key(number), number), Outcome::done);
  }
  EXPECT_EQ(session.remove(key(9)), Outcome::done);
  EXPECT_EQ(map.session(false).scan(key(1), 2, entries), Outcome::done);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(key.number_of(entries[0].key), 7U);
  EXPECT_EQ(entries[0].value, 4U);
  EXPECT_EQ(key.number_of(entries[1].key), 0x100U);
  EXPECT_EQ(session.scan({}, 10, entries), Outcome::done);
  EXPECT_EQ(entries.size(), 4U);
  EXPECT_EQ(key.number_of(entries[3].key), ~std::uint64_t{0});
  const std::vector<std::uint64_t> numbers = {7, 500, 0x100, 500};  // the last one counts
  std::vector<typename OwnedKey<K>::type> names;
  for (const std::uint64_t number : numbers) names.emplace_back(key(number));
  const std::vector<K> all(names.begin(), names.end());
  EXPECT_EQ(session.upsert_all(all, numbers), Outcome::done);
  EXPECT_EQ(session.upsert_all(all, std::vector<std::uint64_t>{70, 1, 71, 72}), Outcome::done);
  EXPECT_EQ(session.find(key(7)).value, 70U);
  EXPECT_EQ(session.find(key(500)).value, 72U);
  EXPECT_EQ(session.scan({}, 10, entries), Outcome::done);
  EXPECT_EQ(entries.size(), 5U);
  EXPECT_EQ(map.sync(), Outcome::done);
}

template <class K, class Map>
void expect_the_contract(bool syncs) {
  Scratch scratch(std::filesystem::temp_directory_path());
  const auto dir = scratch.new_file();
  Map map(dir, syncs, 100);
  EXPECT_THROW(Map(dir / "no" / "such", syncs, 8), Failure);
  expect_the_contract<K>(map);
}

template <class K>
void expect_the_contract_of_a_store(std::string_view spec, Durability durability) {
  Store store = Store::anonymous({{}, durability}).value();
  StoreMap<K> map(store, store.table<K>("t", spec).value(), 100);
  expect_the_contract<K>(map);
  // A value of another length is not one that was written.
  KeyCodec<K> key;
  ASSERT_EQ(map.table().put(key(7), "short"), Outcome::done);
  EXPECT_EQ(map.session(false).find(key(7)).outcome, Outcome::corrupt);
}

TEST(Rivals, StoresKeepTheContract) {
  expect_the_contract_of_a_store<std::uint64_t>("bdtree", Durability::buffered);
  expect_the_contract_of_a_store<Bytes>("bdtree", Durability::buffered);
  expect_the_contract_of_a_store<std::uint64_t>("wbtree", Durability::strict);
  expect_the_contract_of_a_store<Bytes>("pbtree", Durability::strict);
}

template <template <class> class Map>
void expect_the_contract_of_both() {
  for (const bool syncs : {true, false}) {
    expect_the_contract<std::uint64_t, Map<std::uint64_t>>(syncs);
    expect_the_contract<Bytes, Map<Bytes>>(syncs);
  }
}

TEST(Rivals, AreDescribedInTheirOrder) {
  EXPECT_EQ(info_of(Rival::std_map).name, "std-map");
  EXPECT_EQ(info_of(Rival::lmdb_nosync).name, "lmdb-nosync");
  EXPECT_EQ(info_of(Rival::leveldb_nosync).name, "leveldb-nosync");
  for (const RivalInfo& info : kRivals) {
    EXPECT_EQ(info.stored, !info.durability.empty()) << info.name;
    EXPECT_EQ(info.stored && info.syncs, info.name.ends_with("-sync")) << info.name;
  }
}

// What this program lacks is refused by name and with the package that has it.
TEST(Rivals, AreThereOrRefused) {
  for (const RivalInfo& info : kRivals) {
    Arguments arguments;
    arguments.index = info.name;
    arguments.threads = "1,2";
    if (info.built) {
      EXPECT_EQ(make_plan(arguments).indexes[0].name, info.name);
      EXPECT_EQ(takes_part(make_plan(arguments).indexes[0], 2), info.stored);
      continue;
    }
    try {
      make_plan(arguments);
      ADD_FAILURE() << info.name << " was accepted";
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.exit_code(), kExitUsage);
      EXPECT_NE(std::string(failure.what()).find(info.package), std::string::npos);
    }
  }
}

#ifdef EVERLEAF_BENCH_LMDB
TEST(Rivals, LmdbKeepsTheContract) {
  expect_the_contract_of_both<LmdbMap>();
}
#endif

#ifdef EVERLEAF_BENCH_ROCKSDB
template <class K>
using RocksDbMap = LsmMap<K, RocksDb>;
TEST(Rivals, RocksDbKeepsTheContract) {
  expect_the_contract_of_both<RocksDbMap>();
}
#endif

#ifdef EVERLEAF_BENCH_LEVELDB
template <class K>
using LevelDbMap = LsmMap<K, LevelDb>;
TEST(Rivals, LevelDbKeepsTheContract) {
  expect_the_contract_of_both<LevelDbMap>();
}
#endif

}  // namespace
}  // namespace everleaf::bench
