// everleaf store: the tables of a store, whose values are bytes.
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/store.hpp>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "stream.hpp"
#include "table.hpp"
#include "table_records.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct StoreArguments : TableArguments {
  std::string durability;
  std::string key;
  std::string value;
  std::string prefix;
  std::string file;
  std::string format;
  std::string to;
  std::vector<std::string> named;
};

std::optional<Durability> durability_of(const StoreArguments& arguments) {
  if (arguments.durability.empty()) return std::nullopt;
  for (const Durability one : {Durability::buffered, Durability::strict}) {
    if (arguments.durability == to_string(one)) return one;
  }
  throw Failure(kExitUsage, fmt::format("--durability is buffered or strict, not {}",
                                        in_quotes(arguments.durability)));
}

// The same table in memory that goes away: a wrong tree or name fails here, before a file is made.
void rehearse(const StoreArguments& arguments) {
  StoreOptions options;
  options.durability = durability_of(arguments);
  Store store = value_or_fail(Store::anonymous(options));
  with_key_type(key_type_of(arguments).value_or(KeyType::bytes), [&]<class K>() {
    value_or_fail(store.table<K>(arguments.table, arguments.index));
  });
}

// Whether opening it makes one: there is no file, or a pool of indexes alone.
bool makes_store(const StoreArguments& arguments) {
  std::error_code ignored;
  if (!std::filesystem::exists(arguments.pool, ignored)) return true;
  StoreOptions options;
  options.pool.mode = Mode::read_only;
  const auto store = Store::open(arguments.pool, options);
  return !store && store.error().code == Code::not_found;
}

Store open_store(const StoreArguments& arguments, Mode mode) {
  if (mode == Mode::open_or_create && makes_store(arguments)) rehearse(arguments);
  StoreOptions options;
  options.pool = pool_options(arguments, mode);
  options.durability = durability_of(arguments);
  return value_or_fail(Store::open(arguments.pool, options));
}

// The type of the table's keys; nullopt: there is no such table.
std::optional<KeyType> type_of(const Store& store, const std::string& name) {
  for (const IndexInfo& one : value_or_fail(store.tables())) {
    if (one.name == name) return one.key_type;
  }
  return std::nullopt;
}

KeyType type_or_fail(const Store& store, const StoreArguments& arguments) {
  const auto type = type_of(store, arguments.table);
  if (type) return *type;
  throw Failure(kExitUsage, fmt::format("no table {} in {}; see everleaf info",
                                        in_quotes(arguments.table), arguments.pool));
}

// Calls `f` with the table, which must be there.
template <class F>
void with_table(Store& store, const StoreArguments& arguments, F&& f) {
  with_key_type(type_or_fail(store, arguments),
                [&]<class K>() { f(value_or_fail(store.table<K>(arguments.table, {}))); });
}

// Of the table's keys; it is made if it is not there.
KeyType type_to_fill(const Store& store, const StoreArguments& arguments) {
  const auto there = type_of(store, arguments.table);
  return key_type_of(arguments).value_or(there.value_or(KeyType::bytes));
}

template <class K>
Table<K> table_to_fill(Store& store, const StoreArguments& arguments) {
  return value_or_fail(store.table<K>(arguments.table, arguments.index));
}

void expect_done(Outcome outcome) {
  if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
}

void close(Store& store) {
  expect_done(store.sync());
  value_or_fail(store.close());
}

template <class K>
auto key_argument(const StoreArguments& arguments) {
  return key_of_argument<K>(arguments.key, arguments.escaped);
}

[[noreturn]] void no_key(const StoreArguments& arguments) {
  throw Failure(kExitNo, fmt::format("no key {} in {}", in_quotes(arguments.key),
                                     in_quotes(arguments.table)));
}

int get(const StoreArguments& arguments) {
  Store store = open_store(arguments, Mode::read_only);
  with_table(store, arguments, [&]<class K>(const Table<K>& table) {
    std::string value;
    const Outcome outcome = table.get(key_argument<K>(arguments), value);
    if (outcome == Outcome::absent) no_key(arguments);
    expect_done(outcome);
    Output output;
    output << value << "\n";
    output.finish();
  });
  return 0;
}

int put(const StoreArguments& arguments) {
  // A wrong key must not leave a new store behind.
  if (arguments.keys == "u64") {
    (void)key_argument<std::uint64_t>(arguments);
  } else {
    (void)key_argument<Bytes>(arguments);
  }
  Store store = open_store(arguments, Mode::open_or_create);
  with_key_type(type_to_fill(store, arguments), [&]<class K>() {
    const auto key = key_argument<K>(arguments);
    expect_done(table_to_fill<K>(store, arguments).put(key, arguments.value));
  });
  close(store);
  return 0;
}

int del(const StoreArguments& arguments) {
  Store store = open_store(arguments, Mode::open);
  with_table(store, arguments, [&]<class K>(Table<K> table) {
    const Outcome outcome = table.erase(key_argument<K>(arguments));
    if (outcome == Outcome::absent) no_key(arguments);
    expect_done(outcome);
  });
  close(store);
  return 0;
}

int dump(const StoreArguments& arguments) {
  const TableFormat format = table_format_of(arguments.format);
  Store store = open_store(arguments, Mode::read_only);
  Output output;
  std::error_code unknown;
  const std::uintmax_t file_bytes = std::filesystem::file_size(arguments.pool, unknown);
  TableWriter writer(output, format, unknown ? 0 : file_bytes);
  with_table(store, arguments, [&]<class K>(const Table<K>& table) {
    auto cursor = [&] {
      if constexpr (std::same_as<K, Bytes>) {
        return table.prefix(arguments.prefix);
      } else {
        if (!arguments.prefix.empty()) throw Failure(kExitUsage, "--prefix is of bytes keys");
        return table.cursor();
      }
    }();
    for (bool there = cursor.first(); there; there = cursor.next()) {
      writer.write(cursor.key(), cursor.value());
    }
    expect_done(cursor.outcome());
  });
  writer.finish();
  return 0;
}

// Puts records of a file into a table. What ends it early says how many were put.
class TableLoader {
 public:
  TableLoader(const StoreArguments& arguments, TableFormat format)
      : input_(arguments.file, &interrupts_), reader_(input_, format) {}

  // Before anything is made: a bad first record leaves neither a new store behind nor a new table.
  void read_first() {
    saying_how_many([this] { there_ = reader_.next(record_); });
  }
  template <class K>
  void expect_key() {
    saying_how_many([this] {
      if (there_) static_cast<void>(reader_.key_of<K>(record_));
    });
  }
  // In batches: what was loaded stays, whatever happens next.
  template <class K>
  void load(Store& store, Table<K> table) {
    saying_how_many([&] { load_all<K>(store, table); });
  }
  [[nodiscard]] std::uint64_t loaded() const { return loaded_; }

 private:
  template <class F>
  void saying_how_many(F&& f) {
    try {
      f();
    } catch (const Interrupted& stop) {
      throw Failure(128 + stop.signal,
                    fmt::format("stopped; {} loaded and kept", counted(loaded_, "record")));
    } catch (const Failure& failure) {
      throw Failure(failure.exit_code(), fmt::format("{}: {} ({} loaded and kept)", input_.name(),
                                                     failure.what(), counted(loaded_, "record")));
    }
  }
  template <class K>
  void load_all(Store& store, Table<K>& table) {
    constexpr std::size_t kBatch = 1024;
    constexpr std::size_t kBatchBytes = std::size_t{16} << 20;
    Batch batch;
    std::size_t bytes = 0;
    const auto apply = [&] {
      expect_done(store.apply(batch));
      loaded_ += batch.size();
      batch.clear();
      bytes = 0;
      interrupts_.check();
    };
    for (; there_; there_ = reader_.next(record_)) {
      const auto key = reader_.key_of<K>(record_);
      // One that fits into no batch goes alone.
      if (record_.value.size() > kBatchBytes) {
        apply();
        expect_done(table.put(K(key), record_.value));
        ++loaded_;
        continue;
      }
      batch.put<K>(table, K(key), record_.value);
      bytes += record_.value.size() + record_.key.size();
      if (batch.size() == kBatch || bytes > kBatchBytes) apply();
    }
    apply();
  }

  Interrupts interrupts_;
  Input input_;
  TableReader reader_;
  TableRecord record_;
  bool there_ = false;  // a record that was not put yet
  std::uint64_t loaded_ = 0;
};

int load(const StoreArguments& arguments) {
  TableLoader loader(arguments, table_format_of(arguments.format, arguments.file));
  const auto expect_key = [&loader](KeyType type) {
    with_key_type(type, [&loader]<class K>() { loader.expect_key<K>(); });
  };
  loader.read_first();
  if (!arguments.keys.empty() || makes_store(arguments)) {
    expect_key(key_type_of(arguments).value_or(KeyType::bytes));
  }
  Store store = open_store(arguments, Mode::open_or_create);
  const KeyType type = type_to_fill(store, arguments);
  expect_key(type);
  with_key_type(type,
                [&]<class K>() { loader.load<K>(store, table_to_fill<K>(store, arguments)); });
  close(store);
  fmt::print("{} loaded\n", counted(loader.loaded(), "record"));
  return 0;
}

int drop(const StoreArguments& arguments) {
  Store store = open_store(arguments, Mode::open);
  static_cast<void>(type_or_fail(store, arguments));
  value_or_fail(store.drop_table(arguments.table));
  close(store);
  return 0;
}

int backup(const StoreArguments& arguments) {
  Store store = open_store(arguments, Mode::read_only);
  value_or_fail(store.backup(arguments.to));
  return 0;
}

// NAME, NAME:u64 or NAME:bytes. Another type is no part of the name: a table would be made of it.
std::pair<std::string, KeyType> named_table(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, KeyType::bytes};
  const std::string_view type = std::string_view(text).substr(colon + 1);
  if (type == "u64") return {text.substr(0, colon), KeyType::u64};
  if (type == "bytes") return {text.substr(0, colon), KeyType::bytes};
  throw Failure(
      kExitUsage,
      fmt::format("--table {}: '{}' is no type of keys, u64 or bytes (a name with a colon "
                  "needs one behind it)",
                  escape(text), escape(type)));
}

void print_repair(const RepairReport& report) {
  // Escaped: names that damage made have bytes of any kind.
  for (const std::string& problem : report.problems) fmt::print("problem: {}\n", escape(problem));
  for (const auto& table : report.tables) {
    fmt::print("table {}: {} read", in_quotes(table.name), counted(table.read, "record"));
    if (table.damaged_values != 0) {
      fmt::print(", {} lost with a damaged value", counted(table.damaged_values, "key"));
    }
    if (table.found != 0) {
      fmt::print(", {} found without the tree (they may be older, or deleted{})",
                 grouped(table.found),
                 table.unclear == 0 ? "" : fmt::format("; {} had several values", table.unclear));
    }
    fmt::print("\n");
    for (const std::string& problem : table.problems) fmt::print("  problem: {}\n", problem);
  }
}

int repair(const StoreArguments& arguments) {
  if (arguments.to.empty()) throw Failure(kExitUsage, "repair writes to a new file: -o NEW");
  RepairOptions options;
  for (const std::string& one : arguments.named) options.tables.push_back(named_table(one));
  const RepairReport report = value_or_fail(Store::repair(arguments.pool, arguments.to, options));
  print_repair(report);
  if (report.sound()) return 0;
  if (report.damaged_entries != 0) {
    fmt::print("if the name in a damaged directory entry was another: --table NAME, or NAME:u64\n");
  }
  throw Failure(kExitNo, fmt::format("{} is damaged; what could be read is in {}", arguments.pool,
                                     arguments.to));
}

void add_name(Command& command, StoreArguments& arguments) {
  add_pool(command, arguments);
  command.positional("TABLE", arguments.table, "Name of the table");
}

void add_key(Command& command, StoreArguments& arguments) {
  command.positional("KEY", arguments.key, "A number or the bytes of the key");
  add_escaped(command, arguments);
}

void add_making(Command& command, StoreArguments& arguments) {
  command.option("--keys", arguments.keys, "u64 or bytes; default: the table's own, or bytes");
  command.option("--index", arguments.index,
                 "The tree and its options; default: the table's own, bdtree or (strict) wbtree");
  command.option("--durability", arguments.durability,
                 "buffered or strict; default: the store's own, buffered for a new one");
  add_domain(command, arguments);
}

constexpr const char* kFormats =
    "tsv, csv, jsonl (JSON lines) or mdb (that of LMDB's mdb_dump and mdb_load); default: tsv";
constexpr const char* kFormatsOfFiles =
    "tsv, csv, jsonl (JSON lines) or mdb (what LMDB's mdb_dump writes); default: that of the "
    "file's extension (.csv, .jsonl, .ndjson, .mdb), or tsv";

}  // namespace

void add_store(CLI::App& app, int& status) {
  Command group(app, "store",
                "Tables whose values are bytes: get, put, del, dump, load, drop, "
                "backup, repair");
  const auto add = [&](const char* name, const char* help, int (*run)(const StoreArguments&),
                       auto declare) {
    auto arguments = std::make_shared<StoreArguments>();
    Command command = group.within(name, help);
    declare(command, *arguments);
    command.run([arguments, run, &status] { status = run(*arguments); });
  };
  add("get", "Print the value of a key", get, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    add_key(c, a);
  });
  add("put", "Set the value of a key", put, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    add_key(c, a);
    c.positional("VALUE", a.value, "Its bytes");
    add_making(c, a);
  });
  add("del", "Remove a key", del, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    add_key(c, a);
    add_domain(c, a);
  });
  add("dump", "Write a table to standard output", dump, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    c.option("--prefix", a.prefix, "Only keys that begin so");
    c.option("--format", a.format, kFormats);
  });
  add("load", "Put the records of a file into a table", load, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    c.positional("FILE", a.file, "What dump writes; - for standard input");
    c.option("--format", a.format, kFormatsOfFiles);
    add_making(c, a);
  });
  add("drop", "Remove a table and all that is in it", drop, [](Command& c, StoreArguments& a) {
    add_name(c, a);
    add_domain(c, a);
  });
  add("backup", "Copy a store to a new file", backup, [](Command& c, StoreArguments& a) {
    add_pool(c, a);
    c.positional("TO", a.to, "The new file");
  });
  add("repair", "Copy what can be read of a damaged store to a new file", repair,
      [](Command& c, StoreArguments& a) {
        add_pool(c, a);
        c.option("-o,--output", a.to, "The new file");
        c.options("--table", a.named,
                  "NAME, NAME:u64 or NAME:bytes of a table that the file no longer names, or not "
                  "rightly");
      });
}

}  // namespace everleaf::cli
