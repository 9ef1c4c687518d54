// everleaf info: what is in a pool.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

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
};

std::vector<IndexRow> rows_of(Pool& pool) {
  std::vector<IndexRow> rows;
  for (IndexInfo& info : value_or_fail(pool.indexes())) {
    const TableChoice choice{info.name, std::string{}, info.key_type};
    Stats stats = with_key_type(info.key_type,
                                [&]<class K>() { return open_index<K>(pool, choice).stats(); });
    rows.push_back({std::move(info), std::move(stats)});
  }
  return rows;
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
              {"more", std::move(more)}};
}

Json to_json(const PoolInfo& info, const EpochInfo& epochs, const std::vector<IndexRow>& rows) {
  Json indexes = Json::array();
  for (const IndexRow& row : rows) indexes.push_back(to_json(row));
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
              {"open_ns", info.open_ns},
              {"epoch", epochs.now},
              {"durable_epoch", epochs.durable},
              {"indexes", std::move(indexes)}};
}

void print_text(const PoolInfo& info, const EpochInfo& epochs, const std::vector<IndexRow>& rows) {
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
  if (rows.empty()) fmt::print("no indexes\n");
  for (const auto& [index, stats] : rows) {
    fmt::print("\nindex {}: {} ({})\n", in_quotes(index.name), counted(stats.keys, "key"),
               to_string(index.key_type));
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
    const std::vector<IndexRow> rows = rows_of(pool);
    const EpochInfo epochs = pool.epochs();
    arguments->json ? print(to_json(info, epochs, rows)) : print_text(info, epochs, rows);
    status = 0;
  });
}

}  // namespace everleaf::cli
