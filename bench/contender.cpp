#include "contender.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <linux/magic.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "compare/lsm_map.hpp"
#include "compare/ordered_map.hpp"
#include "compare/store_map.hpp"
#include "failure.hpp"

#ifdef EVERLEAF_BENCH_LMDB
#include "compare/lmdb_map.hpp"
#endif

namespace everleaf::bench {
namespace {

struct Resident {
  std::int64_t bytes = 0;
  std::int64_t huge_bytes = 0;
};

// Of the whole process, from the kernel's sums over all mappings.
Resident resident_memory() {
  Resident resident;
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::string name;
  for (std::string line; std::getline(rollup, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || !line.ends_with(" kB")) continue;
    const std::string_view field = std::string_view(line).substr(0, colon);
    const std::int64_t bytes = std::stoll(line.substr(colon + 1)) * 1024;
    if (field == "Rss") resident.bytes += bytes;
    if (field == "AnonHugePages" || field == "ShmemPmdMapped" || field == "FilePmdMapped") {
      resident.huge_bytes += bytes;
    }
  }
  return resident;
}

std::int64_t malloc_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

Counters difference(const Counters& after, const Counters& before) {
  return {after.bytes_written - before.bytes_written,
          after.heap_bytes_written - before.heap_bytes_written, after.flushes - before.flushes,
          after.fences - before.fences};
}

// What an index leaves in the scratch directory.
struct File {
  std::filesystem::path path;  // empty: anonymous
  File(std::filesystem::path p) : path(std::move(p)) {}
  File(File&& other) noexcept : path(std::exchange(other.path, {})) {}
  ~File() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

// Blocks of a file; 0: it is gone.
std::uint64_t disk_bytes_of(const std::filesystem::path& file) {
  constexpr std::uint64_t kBlock = 512;  // of st_blocks, whatever the file system's are
  struct stat info {};
  return ::stat(file.c_str(), &info) == 0 ? kBlock * static_cast<std::uint64_t>(info.st_blocks) : 0;
}
// Of all files in a directory. They come and go while a rival works in the background.
std::uint64_t disk_bytes(const std::filesystem::path& dir) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    bytes += disk_bytes_of(entry.path());
  }
  return bytes;
}

// A tree and its pool. Members in this order: the index goes first, then the pool, then the file.
template <class K>
class TreeStore {
 public:
  TreeStore(std::filesystem::path file, Pool pool, Index<K> index)
      : file_{std::move(file)}, pool_(std::move(pool)), index_(std::move(index)) {}

  Index<K>& face() { return index_; }
  Counters counters() const { return pool_.counters(); }
  EpochInfo epochs() const { return pool_.epochs(); }

  void memory_into(Measured& measured) {
    const Stats stats = index_.stats();
    measured.pool_bytes = stats.pool_bytes;
    measured.dram_bytes = stats.dram_bytes;
    measured.file_bytes = file_.path.empty() ? pool_.info().file_bytes : disk_bytes_of(file_.path);
    for (const auto& [name, now] : stats.more) {
      std::uint64_t& before = before_[name];
      measured.figures.push_back({name, now, static_cast<std::int64_t>(now - before)});
      before = now;
    }
  }

 private:
  File file_;
  Pool pool_;
  Index<K> index_;
  std::map<std::string, std::uint64_t> before_;  // figures after the last phase
};

template <class K, class Map>
class RivalStore {
 public:
  OrderedMap<K, Map>& face() { return map_; }
  Counters counters() const { return {}; }
  EpochInfo epochs() const { return {}; }

  // Nothing else allocates while a rival runs, so what malloc gave out meanwhile is the rival's.
  void memory_into(Measured& measured) const {
    measured.dram_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(grown_, 0));
  }
  void note_growth(std::int64_t bytes) { grown_ += bytes; }

 private:
  OrderedMap<K, Map> map_;
  std::int64_t grown_ = 0;
};

// everleaf::Store in its file, or in memory.
template <class K>
class TableStore {
 public:
  TableStore(std::filesystem::path file, StoreMap<K> map)
      : file_{std::move(file)}, map_(std::make_unique<StoreMap<K>>(std::move(map))) {}

  StoreMap<K>& face() { return *map_; }
  Counters counters() const { return map_->store().pool().counters(); }
  EpochInfo epochs() const { return map_->store().pool().epochs(); }

  void memory_into(Measured& measured) const {
    measured.pool_bytes =
        file_.path.empty() ? map_->store().pool().info().file_bytes : disk_bytes_of(file_.path);
    measured.file_bytes = measured.pool_bytes;
    measured.dram_bytes = map_->table().stats().tree.dram_bytes;
  }

 private:
  File file_;
  std::unique_ptr<StoreMap<K>> map_;
};

// A rival in files. What it keeps in DRAM is not told from the page cache and its threads' buffers.
template <class Map>
class FileStore {
 public:
  FileStore(const std::filesystem::path& dir, bool syncs, std::size_t value_bytes)
      : file_{dir}, map_(std::make_unique<Map>(dir, syncs, value_bytes)) {}

  Map& face() { return *map_; }
  Counters counters() const { return {}; }
  EpochInfo epochs() const { return {}; }
  void memory_into(Measured& measured) const {
    measured.pool_bytes = measured.file_bytes = disk_bytes(file_.path);
  }

 private:
  File file_;
  std::unique_ptr<Map> map_;
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Wall time from the first start to the last end, histograms and mistakes of all threads.
void merge_into(Measured& measured, const Job& job, std::span<const WorkerResult> results) {
  Clock::time_point begin = results[0].begin;
  Clock::time_point end = results[0].end;
  double wall_seconds = 0;
  double cpu_seconds = 0;
  for (const WorkerResult& result : results) {
    wall_seconds += seconds_between(result.begin, result.end);
    cpu_seconds += result.cpu_seconds;
    begin = std::min(begin, result.begin);
    end = std::max(end, result.end);
    measured.latency.merge(result.latency);
    if (result.split) measured.split = measured.split.value_or(Split{}) += *result.split;
    // A refusal explains the run better than what followed from it.
    if (result.mistakes > 0 && (measured.mistakes == 0 || (result.refused && !measured.refused))) {
      measured.first_mistake = result.first_mistake;
    }
    measured.mistakes += result.mistakes;
    measured.refused = measured.refused || result.refused;
    measured.stopped = measured.stopped || result.stopped;
    measured.over_time.merge(result.over_time);
  }
  if (job.phase.whole_space) {
    for (std::size_t i = 0; i < job.sequence.size(); ++i) {
      measured.answers.push_back(results[i % job.threads].answers[i / job.threads]);
    }
  }
  measured.work_seconds = seconds_between(begin, end);
  measured.cpu_share = std::min(cpu_seconds / wall_seconds, 1.0);
}

template <class K, class Store>
class ContenderOf final : public Contender {
 public:
  ContenderOf(Identity identity, std::size_t key_bytes, Store store)
      : identity_(std::move(identity)), codec_(key_bytes), store_(std::move(store)) {}

  const Identity& identity() const override { return identity_; }

  Measured run(const Job& job) override {
    Measured measured;
    std::vector<WorkerResult> results(job.threads);
    if (job.phase.whole_space) {  // before memory is looked at: it is not the index's
      for (WorkerResult& one : results) one.answers.resize(job.sequence.size() / job.threads + 1);
    }
    const Resident resident_before = resident_memory();
    const std::int64_t malloc_before = malloc_bytes();
    const Counters before = store_.counters();
    const EpochInfo epochs_before = store_.epochs();
    const Clock::time_point work_begin = Clock::now();
    run_threads<K>(store_.face(), codec_, job, results);
    const Clock::time_point sync_begin = Clock::now();
    const EpochInfo epochs_worked = store_.epochs();  // sync() steps the clock by itself
    // After a refusal there is nothing to measure, and RocksDB's sync would abort the program.
    const bool sync_due =
        job.phase.writes() && std::ranges::none_of(results, &WorkerResult::refused);
    const Outcome synced = sync_due ? store_.face().sync() : Outcome::done;
    const double sync_seconds = seconds_between(sync_begin, Clock::now());
    measured.counters = difference(store_.counters(), before);
    const EpochInfo epochs_after = store_.epochs();
    measured.epochs = {epochs_worked.now - epochs_before.now,
                       seconds_between(work_begin, sync_begin), epochs_after.worst_ns,
                       epochs_after.lines - epochs_before.lines};
    if constexpr (requires { store_.note_growth(0); }) {
      store_.note_growth(malloc_bytes() - malloc_before);
    }
    const Resident resident_after = resident_memory();
    merge_into(measured, job, results);
    measured.seconds = measured.work_seconds + sync_seconds;
    measured.resident = resident_after.bytes - resident_before.bytes;
    measured.resident_huge = resident_after.huge_bytes - resident_before.huge_bytes;
    if (synced != Outcome::done && !measured.refused) {
      ++measured.mistakes;
      measured.refused = true;
      measured.first_mistake = {job.sequence.size(), synced};
    }
    store_.memory_into(measured);
    return measured;
  }

  Audit audit(const KeySpace& keys, const Live& live) override {
    return audit_contents<K>(store_.face(), codec_, keys, live);
  }

  std::string audit_updates(const Job& job) override {
    return bench::audit_updates<K>(store_.face(), codec_, job.sequence, job.kinds);
  }

 private:
  Identity identity_;
  KeyCodec<K> codec_;
  Store store_;
};

[[noreturn]] void fail_to_create(const Plan& plan, const Error& error) {
  throw Failure(kExitIo,
                fmt::format("cannot create a pool in {}: {}", plan.dir.string(), error.message));
}

bool is_bad_spec(Code code) {
  return code == Code::unknown_tree || code == Code::unknown_option || code == Code::bad_option ||
         code == Code::bad_argument;
}

template <class K>
Index<K> make_index(Pool& pool, const std::string& spec) {
  auto index = pool.index<K>("bench", spec);
  if (index) return *std::move(index);
  throw Failure(is_bad_spec(index.error().code) ? kExitUsage : kExitIo,
                fmt::format("index '{}': {}", spec, index.error().message));
}

void make_room(Pool pool, const Plan& plan) {
  const Outcome made = plan.room == 0 ? Outcome::done : pool.make_room(plan.room);
  if (made == Outcome::done) return;
  throw Failure(kExitIo, fmt::format("--room {}: {}", plan.room, describe(made)));
}

template <class K>
std::unique_ptr<Contender> make_tree(const IndexChoice& choice, const Plan& plan,
                                     Scratch* scratch) {
  const std::filesystem::path file =
      needs_file(plan, choice) ? scratch->new_file() : std::filesystem::path{};
  const PoolOptions options = pool_options(plan, Mode::create);
  auto pool = file.empty() ? Pool::anonymous(options) : Pool::open(file, options);
  if (!pool) fail_to_create(plan, pool.error());
  make_room(*pool, plan);
  Index<K> index = make_index<K>(*pool, choice.name);
  const std::string spec = index.info().spec;
  Identity identity{choice.name, spec, pool->info().domain, true, is_buffered(spec)};
  return std::make_unique<ContenderOf<K, TreeStore<K>>>(
      std::move(identity), plan.key_bytes, TreeStore<K>(file, *std::move(pool), std::move(index)));
}

template <class K>
std::unique_ptr<Contender> make_store(const IndexChoice& choice, const Plan& plan,
                                      Scratch* scratch) {
  const std::filesystem::path file =
      needs_file(plan, choice) ? scratch->new_file() : std::filesystem::path{};
  const bool buffered = is_buffered(choice.name);
  const StoreOptions options{pool_options(plan, Mode::create),
                             buffered ? Durability::buffered : Durability::strict};
  auto store = file.empty() ? Store::anonymous(options) : Store::open(file, options);
  if (!store) fail_to_create(plan, store.error());
  make_room(store->pool(), plan);
  auto table = store->table<K>("bench", choice.name);
  if (!table) fail_to_create(plan, table.error());
  Identity identity{choice.name, table->stats().spec, store->pool().info().domain, true, buffered};
  return std::make_unique<ContenderOf<K, TableStore<K>>>(
      std::move(identity), plan.key_bytes,
      TableStore<K>(file, StoreMap<K>(*std::move(store), *std::move(table), plan.value_bytes)));
}

template <class K, class Map>
std::unique_ptr<Contender> make_rival(const IndexChoice& choice, const Plan& plan) {
  const DomainChoice domain{Domain::volatile_, false, "ordinary memory"};
  return std::make_unique<ContenderOf<K, RivalStore<K, Map>>>(
      Identity{choice.name, choice.name, domain, false, false, true}, plan.key_bytes,
      RivalStore<K, Map>());
}

#if defined(EVERLEAF_BENCH_LMDB) || defined(EVERLEAF_BENCH_ROCKSDB) || \
    defined(EVERLEAF_BENCH_LEVELDB)
// What an acknowledged write of the rival survives in `dir`.
DomainChoice domain_of(const RivalInfo& rival, const std::filesystem::path& dir) {
  struct statfs info {};
  const bool is_memory = ::statfs(dir.c_str(), &info) == 0 && info.f_type == TMPFS_MAGIC;
  return {rival.syncs && !is_memory ? Domain::disk : Domain::process, false,
          fmt::format("{}{}", rival.durability, is_memory ? "; tmpfs: gone with the power" : "")};
}

template <class K, class Map>
std::unique_ptr<Contender> make_stored(const IndexChoice& choice, const Plan& plan,
                                       Scratch* scratch) {
  const RivalInfo& rival = info_of(*choice.rival);
  return std::make_unique<ContenderOf<K, FileStore<Map>>>(
      Identity{choice.name, choice.name, domain_of(rival, plan.dir)}, plan.key_bytes,
      FileStore<Map>(scratch->new_file(), rival.syncs, plan.value_bytes));
}
#endif

template <class K>
std::unique_ptr<Contender> make(const IndexChoice& choice, const Plan& plan, Scratch* scratch) {
  if (!choice.rival && plan.store) return make_store<K>(choice, plan, scratch);
  if (!choice.rival) return make_tree<K>(choice, plan, scratch);
  switch (*choice.rival) {
    case Rival::absl_btree:
      return make_rival<K, AbslBtree<K>>(choice, plan);
    case Rival::std_map:
      return make_rival<K, StdMap<K>>(choice, plan);
#ifdef EVERLEAF_BENCH_LMDB
    case Rival::lmdb_sync:
    case Rival::lmdb_nosync:
      return make_stored<K, LmdbMap<K>>(choice, plan, scratch);
#endif
#ifdef EVERLEAF_BENCH_ROCKSDB
    case Rival::rocksdb_sync:
    case Rival::rocksdb_nosync:
      return make_stored<K, LsmMap<K, RocksDb>>(choice, plan, scratch);
#endif
#ifdef EVERLEAF_BENCH_LEVELDB
    case Rival::leveldb_sync:
    case Rival::leveldb_nosync:
      return make_stored<K, LsmMap<K, LevelDb>>(choice, plan, scratch);
#endif
    default:
      throw std::logic_error("a rival that is not built is refused with the command line");
  }
}

}  // namespace

std::unique_ptr<Contender> make_contender(const IndexChoice& choice, const Plan& plan,
                                          Scratch* scratch) {
  return plan.keys == KeyType::u64 ? make<std::uint64_t>(choice, plan, scratch)
                                   : make<Bytes>(choice, plan, scratch);
}

void check_specs(const Plan& plan) {
  for (const IndexChoice& choice : plan.indexes) {
    if (choice.rival) continue;
    auto pool = Pool::anonymous();
    if (!pool) throw Failure(kExitIo, pool.error().message);
    if (plan.keys == KeyType::u64) {
      make_index<std::uint64_t>(*pool, choice.name);
    } else {
      make_index<Bytes>(*pool, choice.name);
    }
  }
}

}  // namespace everleaf::bench
