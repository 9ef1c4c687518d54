// What to measure: the command line, checked and turned into values.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf::bench {

struct Trace;  // workloads/trace.hpp

struct Distribution {
  enum class Kind : std::uint8_t { uniform, zipf, latest, ascending, descending, hotspot };
  Kind kind = Kind::uniform;
  double exponent = 0;  // of zipf and latest
  std::string text = "uniform";
  unsigned hot_records = 0;  // of hotspot, in percent: so many of the records
  unsigned hot_ops = 0;      // take so many of the operations
  bool operator==(const Distribution&) const = default;
};

// Operations of one kind, or a mix of them.
struct Phase {
  enum class Kind : std::uint8_t {
    load,
    find,
    update,
    insert,
    scan,
    remove,
    upsert,
    modify,  // find, and then update
    mix
  };
  static constexpr std::size_t kKinds = 8;  // of operations
  static constexpr std::array<std::string_view, kKinds> kNames = {
      "load", "find", "update", "insert", "scan", "remove", "upsert", "modify"};

  Kind kind;
  std::string text;                           // as it is asked for
  std::array<unsigned, kKinds> percent = {};  // of the operations, by kind
  // What only named workloads have (workloads/named.cpp):
  std::optional<Distribution> distribution = {};  // nullopt: --distribution
  bool varied_scans = false;                      // 1 to --scan-length entries, each equally likely
  bool whole_space = false;  // keys that may be there or not: the live records and as many others

  // Of one kind: --batch operations are one call. Of stores writes, which are one batch, or one
  // transaction; of indexes find-many.
  bool batched = false;

  // Of a load: bulk_load() with nodes so full, in percent. 0: key by key.
  unsigned fill = 0;

  // Its requests, in their order; null but for the workload `trace`.
  std::shared_ptr<const Trace> trace = nullptr;

  // All operations of one kind, not mix.
  Phase(Kind k) : kind(k), text(kNames[static_cast<std::size_t>(k)]) {
    percent[static_cast<std::size_t>(k)] = 100;
  }
  // "mix:find=80:update=20" after it was parsed, or a named workload.
  Phase(std::string mix_text, const std::array<unsigned, kKinds>& shares)
      : kind(Kind::mix), text(std::move(mix_text)), percent(shares) {}

  [[nodiscard]] bool has(Kind k) const { return percent[static_cast<std::size_t>(k)] > 0; }
  static bool overwrites(Kind k) {
    return k == Kind::update || k == Kind::upsert || k == Kind::modify;
  }
  [[nodiscard]] bool overwrites() const {
    return has(Kind::update) || has(Kind::upsert) || has(Kind::modify);
  }
  [[nodiscard]] bool writes() const {
    return has(Kind::load) || has(Kind::insert) || has(Kind::remove) || overwrites();
  }
  bool operator==(const Phase&) const = default;
};

// What runs beside the trees: maps in memory, and stores in files.
enum class Rival : std::uint8_t {
  absl_btree,
  std_map,
  lmdb_sync,
  lmdb_nosync,
  rocksdb_sync,
  rocksdb_nosync,
  leveldb_sync,
  leveldb_nosync,
};

#ifdef EVERLEAF_BENCH_LMDB
inline constexpr bool kHasLmdb = true;
#else
inline constexpr bool kHasLmdb = false;
#endif
#ifdef EVERLEAF_BENCH_ROCKSDB
inline constexpr bool kHasRocksdb = true;
#else
inline constexpr bool kHasRocksdb = false;
#endif
#ifdef EVERLEAF_BENCH_LEVELDB
inline constexpr bool kHasLeveldb = true;
#else
inline constexpr bool kHasLeveldb = false;
#endif

struct RivalInfo {
  std::string_view name;
  std::string_view package;  // Debian's, that this program must have been built with
  bool built = true;         // it was
  bool stored = false;       // in files, and thread-safe; otherwise volatile and not thread-safe
  bool syncs = false;        // a write returns when it is on the device
  std::string_view durability = {};  // of a stored one
};

// In the order of Rival.
inline constexpr std::array<RivalInfo, 8> kRivals = {{
    {"absl-btree", "libabsl-dev"},
    {"std-map", ""},
    {"lmdb-sync", "liblmdb-dev", kHasLmdb, true, true, "each write is a transaction and fdatasync"},
    {"lmdb-nosync", "liblmdb-dev", kHasLmdb, true, false,
     "MDB_NOSYNC: each write is a transaction in the page cache, a power loss may break the file"},
    {"rocksdb-sync", "librocksdb-dev", kHasRocksdb, true, true, "the log is synced at each write"},
    {"rocksdb-nosync", "librocksdb-dev", kHasRocksdb, true, false,
     "the log is left to the page cache, a power loss takes the latest writes"},
    {"leveldb-sync", "libleveldb-dev", kHasLeveldb, true, true, "the log is synced at each write"},
    {"leveldb-nosync", "libleveldb-dev", kHasLeveldb, true, false,
     "the log is left to the page cache, a power loss takes the latest writes"},
}};
inline constexpr const RivalInfo& info_of(Rival rival) {
  return kRivals[static_cast<std::size_t>(rival)];
}

struct IndexChoice {
  std::string name;            // as it was asked for
  std::optional<Rival> rival;  // otherwise `name` is the spec of a tree
};

// A spec, of which the name is enough, of a tree with epochs.
bool is_buffered(std::string_view spec);

// Volatile rivals are not thread-safe: they take part with one thread only.
inline bool takes_part(const IndexChoice& choice, unsigned threads) {
  return !choice.rival || info_of(*choice.rival).stored || threads == 1;
}

// The command line as text. Empty lists stand for their defaults.
struct Arguments {
  std::string index;
  std::optional<std::string> workload;  // nullopt: kWorkload, or kStoreWorkload
  // Empty: what a named workload has, else the default. With --recovery more than one: each in
  // turn.
  std::vector<std::uint64_t> records;
  std::optional<std::uint64_t> ops;  // nullopt: as many as records
  std::string threads = "1";
  std::string distribution = "uniform";
  std::string domain;
  bool emulate = false;
  std::string pages = "small";  // huge; own
  std::uint64_t room = 0;       // bytes
  std::string epoch;
  std::string dir;
  std::uint64_t repeat = 3;
  std::string json;
  std::string trace;
  std::optional<std::string> keys;  // u64, bytes:N, bytes; nullopt: u64, or bytes:16
  bool store = false;
  std::optional<std::uint64_t> values;
  std::uint64_t scan_length = 100;
  std::optional<std::uint64_t> batch;
  std::uint64_t latency_every = 64;
  std::uint64_t seed = 1;
  bool split = false;
  bool recovery = false;
};

// Look-ups of find-many, unless --batch says otherwise.
inline constexpr std::size_t kManyLookUps = 1000;

struct Plan {
  std::vector<IndexChoice> indexes;
  std::vector<Phase> phases;
  std::uint64_t records = 0;
  std::vector<std::uint64_t> sizes;  // of --recovery, `records` in turn
  std::uint64_t ops = 0;
  std::vector<unsigned> threads;
  Distribution distribution;
  std::optional<Domain> domain;  // nullopt: what the library detects
  bool emulate = false;
  std::string pages = "small";
  std::uint64_t room = 0;  // bytes that pools have before the first phase
  std::chrono::nanoseconds epoch = PoolOptions{}.epoch_length;  // of buffered trees
  std::filesystem::path dir;
  unsigned repeat = 1;
  std::string json;  // empty: no file
  KeyType keys = KeyType::u64;
  std::string keys_text = "u64";  // as it is asked for
  std::size_t key_bytes = 8;
  bool store = false;           // stores of bytes, everleaf::Store over the trees
  std::size_t value_bytes = 8;  // of trees always
  std::size_t scan_length = 100;
  std::size_t batch = 1;            // of trees: look-ups at once; of stores: batched writes
  std::size_t many = kManyLookUps;  // look-ups of find-many
  unsigned latency_every = 64;      // one operation in so many is timed by itself
  std::uint64_t seed = 1;
};

inline constexpr std::string_view kWorkload = "load,find,update,insert,scan,remove";
inline constexpr std::string_view kStoreWorkload =
    "load,find,mix:find=50:upsert=50,scan,upsert,batch-upsert,batch-insert";
inline constexpr std::size_t kStoreBatch = 1000;

// Operations that are one call. Beside find-many, find is one by one.
inline std::size_t batch_of(const Plan& plan, const Phase& phase) {
  if (phase.fill != 0) return static_cast<std::size_t>(plan.records);
  if (plan.store) return phase.batched ? plan.batch : 1;
  if (phase.kind != Phase::Kind::find) return 1;
  if (phase.batched) return plan.many;
  return std::ranges::any_of(plan.phases, &Phase::batched) ? 1 : plan.batch;
}
// Of a mix. Where keys may be there or not, each answer is of its own time.
inline std::size_t look_ups_of(const Plan& plan, const Phase& phase) {
  return plan.store || phase.kind != Phase::Kind::mix || phase.whole_space ? 1 : plan.batch;
}

// A phase of so few calls is not made for throughput, or each is long: each is timed.
inline constexpr std::uint64_t kTimeAllUpTo = 10'000;

// Throws Failure with kExitUsage and a sentence that names what is wrong and what there is.
Plan make_plan(const Arguments& arguments);

[[nodiscard]] PoolOptions pool_options(const Plan& plan, Mode mode);

Distribution parse_distribution(std::string_view text);

// Of --records: numbers, comma-separated.
std::vector<std::uint64_t> parse_sizes(std::string_view text);

inline const Distribution& distribution_of(const Plan& plan, const Phase& phase) {
  return phase.distribution ? *phase.distribution : plan.distribution;
}

// Operations of a phase that meets `live` records, by kind. Unique keys limit `remove`; those of a
// mix add up to --ops, each within one of its percentage.
using Counts = std::array<std::uint64_t, Phase::kKinds>;
Counts counts_of(const Plan& plan, const Phase& phase, std::uint64_t live);
inline std::uint64_t count_of(const Counts& counts, Phase::Kind kind) {
  return counts[static_cast<std::size_t>(kind)];
}

}  // namespace everleaf::bench
