#include "table.hpp"

#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "failure.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

Pool open(const TableArguments& arguments, Mode mode) {
  return value_or_fail(Pool::open(arguments.pool, pool_options(arguments, mode)));
}

// By name, not from the list: one damaged entry must not bar the way to the others.
std::optional<IndexInfo> find_index(Pool& pool, const std::string& name) {
  const auto bytes = pool.index<Bytes>(name, "");
  if (bytes) return bytes->info();
  if (bytes.error().code == Code::not_found) return std::nullopt;
  return value_or_fail(pool.index<std::uint64_t>(name, "")).info();
}

// The same index in memory that goes away: a wrong spec or name fails here, before a file is made.
void rehearse(const TableArguments& arguments) {
  const KeyType type = key_type_of(arguments).value_or(KeyType::bytes);
  Pool pool = value_or_fail(Pool::anonymous());
  const TableChoice choice = table_to_fill(pool, arguments);
  with_key_type(type, [&]<class K>() { (void)open_index<K>(pool, choice); });
}

}  // namespace

std::optional<KeyType> key_type_of(const TableArguments& arguments) {
  if (arguments.keys.empty()) return std::nullopt;
  if (arguments.keys == "u64") return KeyType::u64;
  if (arguments.keys == "bytes") return KeyType::bytes;
  throw Failure(kExitUsage, fmt::format("unknown key type {}: there are u64 and bytes",
                                        in_quotes(arguments.keys)));
}

PoolOptions pool_options(const TableArguments& arguments, Mode mode) {
  PoolOptions options;
  options.mode = mode;
  options.emulate = arguments.emulate;
  options.epoch_length = arguments.epoch;
  options.max_bytes = arguments.max_bytes;
  options.private_bytes = arguments.private_bytes;
  if (arguments.domain.empty()) return options;
  options.domain = parse_domain(arguments.domain);
  if (!options.domain) {
    throw Failure(kExitUsage, fmt::format("unknown domain {}: there are process, cache, memory and "
                                          "disk",
                                          in_quotes(arguments.domain)));
  }
  return options;
}

void add_pool(Command& command, TableArguments& arguments) {
  command.positional("POOL", arguments.pool, "The pool's file");
}

void add_table(Command& command, TableArguments& arguments) {
  command.option("--table", arguments.table, "Name of the index inside the pool");
}

void add_domain(Command& command, TableArguments& arguments) {
  command.option("--domain", arguments.domain,
                 "process, cache, memory or disk; default: what the device gives");
  command.flag("--emulate", arguments.emulate,
               "Allow a domain that the device does not give, to measure it");
  command.epoch("--epoch", arguments.epoch,
                "Buffered trees: length of an epoch, 1us to 10s, for example 5ms; 0: only sync "
                "steps; default: 50ms");
  command.size("--max-bytes", arguments.max_bytes,
               "Cap on the file's size, for example 512M; default: as far as the disk goes");
  command.size("--private-bytes", arguments.private_bytes,
               "On a disk: so much of the pool may be a private copy of its pages, written by "
               "system calls; 0: none; default: a quarter of the memory");
}

void add_creation(Command& command, TableArguments& arguments) {
  command.option("--keys", arguments.keys,
                 "u64 or bytes; default: the index's own, bytes for a new one");
  command.option("--index", arguments.index,
                 "The tree and its options, for example wbtree:node=1024 (see `everleaf list`); "
                 "default: the index's own, wbtree for a new one");
}

void add_escaped(Command& command, TableArguments& arguments) {
  command.flag("--escaped", arguments.escaped,
               "Keys of the command line are written with \\t, \\n, \\\\ and \\xHH");
}

Pool open_to_read(const TableArguments& arguments) {
  return open(arguments, Mode::read_only);
}

Pool open_to_write(const TableArguments& arguments) {
  return open(arguments, Mode::open);
}

Pool open_or_create(const TableArguments& arguments) {
  std::error_code ignored;
  if (!std::filesystem::exists(arguments.pool, ignored)) rehearse(arguments);
  return open(arguments, Mode::open_or_create);
}

bool names_payloads(std::string_view spec) {
  return (std::string(spec) + ":").find(":values=bytes:") != std::string::npos;
}

TableChoice existing_table(Pool& pool, const TableArguments& arguments) {
  if (const auto info = find_index(pool, arguments.table)) {
    return {info->name, std::string{}, info->key_type, names_payloads(info->spec)};
  }
  std::string known;
  for (const IndexInfo& info : value_or_fail(pool.indexes())) {
    known += fmt::format("{}{}", known.empty() ? "; it has " : ", ", in_quotes(info.name));
  }
  throw Failure(kExitUsage, fmt::format("no index {} in {}{}", in_quotes(arguments.table),
                                        arguments.pool, known.empty() ? "; it has none" : known));
}

TableChoice table_to_fill(Pool& pool, const TableArguments& arguments) {
  const auto keys = key_type_of(arguments);
  if (const auto info = find_index(pool, arguments.table)) {
    return {info->name, arguments.index, keys.value_or(info->key_type), names_payloads(info->spec)};
  }
  return {arguments.table, arguments.index.empty() ? "wbtree" : arguments.index,
          keys.value_or(KeyType::bytes), names_payloads(arguments.index)};
}

template <class K>
Index<K> open_index(Pool& pool, const TableChoice& choice) {
  return value_or_fail(pool.index<K>(choice.name, choice.spec));
}

template Index<std::uint64_t> open_index(Pool&, const TableChoice&);
template Index<Bytes> open_index(Pool&, const TableChoice&);

}  // namespace everleaf::cli
