// everleaf scan: the entries of a range, upwards or downwards.
#include <limits>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "records.hpp"
#include "table.hpp"
#include "text.hpp"
#include "walk.hpp"

namespace everleaf::cli {
namespace {

struct ScanArguments : TableArguments {
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<std::string> prefix;
  std::uint64_t limit = std::numeric_limits<std::uint64_t>::max();
  bool reverse = false;
  bool json = false;
};

// The least key above all keys with that prefix; nullopt: there is none.
std::optional<std::string> above(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xFF') prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(static_cast<unsigned char>(prefix.back()) + 1);
  return prefix;
}

template <class K>
Range<K> range_of(const ScanArguments& arguments, std::string& prefix) {
  Range<K> range;
  range.limit = arguments.limit;
  if (arguments.from) range.from = key_of_argument<K>(*arguments.from, arguments.escaped);
  if (arguments.to) range.to = key_of_argument<K>(*arguments.to, arguments.escaped);
  if (!arguments.prefix) return range;
  if constexpr (std::is_same_v<K, Bytes>) {
    prefix = key_of_argument<Bytes>(*arguments.prefix, arguments.escaped);
    range.from = prefix;
    range.to = above(prefix);
    return range;
  }
  throw Failure(kExitUsage, "--prefix is for bytes keys, and the index has u64 keys");
}

template <class Key>
bool has_prefix(const Key& key, const std::string& prefix) {
  if constexpr (std::is_same_v<Key, std::string>) return key.starts_with(prefix);
  return prefix.empty();
}

template <class K>
Json json_value(const Entry<K>& entry) {
  return entry.value;
}
template <class K>
Json json_value(const PayloadEntry<K>& entry) {
  return escape(entry.payload);
}

template <class K>
void scan(const ScanArguments& arguments, Pool& pool, const TableChoice& choice) {
  std::string prefix;
  Range<K> range = range_of<K>(arguments, prefix);
  const Index<K> index = open_index<K>(pool, choice);
  Output output;
  if (arguments.json) {
    output << fmt::format("{{\"table\": {}, \"key_type\": \"{}\", \"entries\": [",
                          to_text(choice.name), to_string(choice.key_type));
  }
  std::uint64_t left = range.limit;
  // The upper end of a prefix lies outside; it comes first or last and is not counted.
  if (arguments.prefix && left != std::numeric_limits<std::uint64_t>::max()) ++range.limit;
  bool first = true;
  const auto visit = [&](const auto& entry) {
    if (!has_prefix(entry.key, prefix)) return true;
    if (left-- == 0) return false;
    if (arguments.json) {
      const Json line{{"key", json_key(entry.key)}, {"value", json_value<K>(entry)}};
      output << (first ? "\n  " : ",\n  ") << to_text(line, -1);
    } else {
      write_record(output, Format::tsv, entry);
    }
    first = false;
    return true;
  };
  with_values<K>(index, [&](const auto& source) {
    arguments.reverse ? walk_back<K>(source, range, visit) : walk<K>(source, range, visit);
  });
  if (arguments.json) output << (first ? "]}\n" : "\n]}\n");
  output.finish();
}

}  // namespace

void add_scan(CLI::App& app, int& status) {
  auto arguments = std::make_shared<ScanArguments>();
  Command command(app, "scan", "Print the entries of a range, in order");
  add_pool(command, *arguments);
  add_table(command, *arguments);
  command.option("--from", arguments->from, "Least key; default: the first");
  command.option("--to", arguments->to, "Largest key, included; default: the last");
  command.option("--prefix", arguments->prefix, "Only keys that start so (bytes keys)");
  command.excludes("--prefix", {"--from", "--to"});
  command.number("--limit", arguments->limit, "At most that many entries");
  command.flag("--reverse", arguments->reverse, "From the largest key down");
  add_escaped(command, *arguments);
  command.flag("--json", arguments->json, "For programs");
  command.run([arguments, &status] {
    Pool pool = open_to_read(*arguments);
    const TableChoice choice = existing_table(pool, *arguments);
    with_key_type(choice.key_type, [&]<class K>() { scan<K>(*arguments, pool, choice); });
    status = 0;
  });
}

}  // namespace everleaf::cli
