// everleaf info: what is in a pool.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <everleaf/store.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "commands.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct InfoArguments : TableArguments {
  bool json = false;
};

struct IndexRow {
  IndexInfo info;
  Stats stats;
  std::uint64_t value_bytes = 0;  // of a table
};

// What a store says of itself and its tables.
struct StoreRow {
  Durability durability = Durability::buffered;
  std::uint64_t record_bytes = 0;
  std::uint64_t record_bytes_used = 0;
  std::uint64_t records = 0;
};

struct Contents {
  std::vector<IndexRow> rows;
  std::optional<StoreRow> store;
  std::vector<std::string> problems;
};

// Damage to one index is no reason to hide the others.
template <class F>
void describe(Contents& all, IndexRow row, F&& figures) {
  try {
    figures(row);
    all.rows.push_back(std::move(row));
  } catch (const Failure& failure) {
    all.problems.push_back(fmt::format("{} {}: {}", row.info.table ? "table" : "index",
                                       in_quotes(row.info.name), failure.what()));
  }
}

void describe_store(Contents& all, const std::string& path) {
  StoreOptions options;
  options.pool.mode = Mode::read_only;
  Store store = value_or_fail(Store::open(path, options));
  const StoreInfo info = value_or_fail(store.info());
  all.store = StoreRow{info.durability, info.record_bytes, info.record_bytes_used, info.records};
  all.problems.insert(all.problems.end(), info.problems.begin(), info.problems.end());
  for (const IndexInfo& one : info.tables) {
    describe(all, {one, {}, 0}, [&store](IndexRow& row) {
      const TableStats stats = with_key_type(row.info.key_type, [&]<class K>() {
        return value_or_fail(store.table<K>(row.info.name)).stats();
      });
      row.stats = stats.tree;
      row.value_bytes = stats.value_bytes;
    });
  }
}

// Lets go of the pool: a file is open once at a time.
Contents contents_of(Pool pool, const std::string& path) {
  Contents all;
  std::vector<std::string> damaged;  // entries of the directory, which a store names itself
  bool tables = false;
  for (const IndexInfo& info : value_or_fail(pool.indexes(&damaged))) {
    tables = tables || info.table;
    if (info.table) continue;
    describe(all, {info, {}, 0}, [&pool](IndexRow& row) {
      const TableChoice choice{row.info.name, std::string{}, row.info.key_type};
      row.stats = with_key_type(row.info.key_type,
                                [&]<class K>() { return open_index<K>(pool, choice).stats(); });
    });
  }
  if (!tables) {
    all.problems.insert(all.problems.end(), damaged.begin(), damaged.end());
    return all;
  }
  (void)pool.close();
  describe_store(all, path);
  return all;
}

Json to_json(const IndexRow& row) {
  Json more = Json::object();
  for (const auto& [name, value] : row.stats.more) more[name] = value;
  return Json{{"name", row.info.name},
              {"spec", row.info.spec},
              {"key_type", to_string(row.info.key_type)},
              {"keys", row.stats.keys},
              {"height", row.stats.height},
              {"inner_nodes", row.stats.inner_nodes},
              {"leaf_nodes", row.stats.leaf_nodes},
              {"pool_bytes", row.stats.pool_bytes},
              {"dram_bytes", row.stats.dram_bytes},
              {"more", std::move(more)},
              {"table", row.info.table},
              {"value_bytes", row.value_bytes}};
}

Json to_json(const PoolInfo& info, const EpochInfo& epochs, const Contents& contents) {
  Json indexes = Json::array();
  for (const IndexRow& row : contents.rows) indexes.push_back(to_json(row));
  Json store = nullptr;
  if (contents.store) {
    store = Json{{"durability", to_string(contents.store->durability)},
                 {"records", contents.store->records},
                 {"record_bytes", contents.store->record_bytes},
                 {"record_bytes_used", contents.store->record_bytes_used}};
  }
  return Json{{"path", info.path},
              {"uuid", info.uuid},
              {"version", info.version},
              {"domain", to_string(info.domain.domain)},
              {"domain_emulated", info.domain.emulated},
              {"domain_reason", info.domain.reason},
              {"clean", info.clean},
              {"replayed_records", info.replayed},
              {"header_copy_damaged", info.header_copy_damaged},
              {"file_bytes", info.file_bytes},
              {"heap_bytes", info.heap_bytes},
              {"block_bytes", info.block_bytes},
              {"lost_blocks", info.lost_blocks},
              {"open_ns", info.open_ns},
              {"epoch", epochs.now},
              {"durable_epoch", epochs.durable},
              {"store", std::move(store)},
              {"problems", contents.problems},
              {"indexes", std::move(indexes)}};
}

void print_text(const PoolInfo& info, const EpochInfo& epochs, const Contents& contents) {
  fmt::print("pool      {}\n", info.path);
  fmt::print("uuid      {}, format version {}\n", info.uuid, info.version);
  fmt::print("domain    {}{}: {}\n", to_string(info.domain.domain),
             info.domain.emulated ? " (emulated)" : "", info.domain.reason);
  fmt::print("state     {}{}\n",
             info.clean ? "closed properly"
                        : fmt::format("not closed properly; {} replayed in memory",
                                      counted(info.replayed, "redo record")),
             info.header_copy_damaged ? "; one of the two header copies is damaged" : "");
  fmt::print("size      {} file, {} in slabs, {} in blocks\n", human_bytes(info.file_bytes),
             human_bytes(info.heap_bytes), human_bytes(info.block_bytes));
  fmt::print("opened in {}\n", human_time(static_cast<double>(info.open_ns) * 1e-9));
  if (epochs.now != 0) {
    fmt::print("epochs    now {}, durable up to {}\n", grouped(epochs.now),
               grouped(epochs.durable));
  }
  if (contents.store) {
    fmt::print("store     {}; {} in {}, {} more free for values\n",
               to_string(contents.store->durability), counted(contents.store->records, "value"),
               human_bytes(contents.store->record_bytes_used),
               human_bytes(contents.store->record_bytes - contents.store->record_bytes_used));
  }
  for (const std::string& problem : contents.problems) fmt::print("problem: {}\n", problem);
  if (contents.rows.empty() && contents.problems.empty()) fmt::print("no indexes\n");
  for (const auto& [index, stats, value_bytes] : contents.rows) {
    fmt::print("\n{} {}: {} ({})\n", index.table ? "table" : "index", in_quotes(index.name),
               counted(stats.keys, "key"), to_string(index.key_type));
    if (index.table) fmt::print("  values  {}\n", human_bytes(value_bytes));
    fmt::print("  tree    {}\n", index.spec);
    fmt::print("  nodes   leaves {}, inner nodes {} in {}\n", grouped(stats.leaf_nodes),
               grouped(stats.inner_nodes), counted(stats.height, "level"));
    const double per_key =
        stats.keys == 0 ? 0
                        : static_cast<double>(stats.pool_bytes) / static_cast<double>(stats.keys);
    fmt::print("  size    {} in the pool ({:.1f} bytes a key), {} in DRAM\n",
               human_bytes(stats.pool_bytes), per_key, human_bytes(stats.dram_bytes));
    for (const auto& [name, value] : stats.more) fmt::print("  {}: {}\n", name, grouped(value));
  }
}

}  // namespace

void add_info(CLI::App& app, int& status) {
  auto arguments = std::make_shared<InfoArguments>();
  Command command(app, "info", "Describe a pool and its indexes");
  add_pool(command, *arguments);
  command.flag("--json", arguments->json, "For programs");
  command.run([arguments, &status] {
    Pool pool = open_to_read(*arguments);
    const PoolInfo info = pool.info();
    const EpochInfo epochs = pool.epochs();
    const Contents contents = contents_of(std::move(pool), info.path);
    arguments->json ? print(to_json(info, epochs, contents)) : print_text(info, epochs, contents);
    if (!contents.problems.empty()) {
      throw Failure(
          kExitNo, fmt::format("{} is damaged: {}", info.path, fmt::join(contents.problems, "; ")));
    }
    status = 0;
  });
}

}  // namespace everleaf::cli
