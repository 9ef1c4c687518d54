// everleaf put: one key and its value, new or replaced.
#include <memory>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct PutArguments : TableArguments {
  std::string key;
  std::string value;
};

template <class K>
void put(const PutArguments& arguments, Pool& pool, const TableChoice& choice,
         std::uint64_t value) {
  const auto key = key_of_argument<K>(arguments.key, arguments.escaped);
  Index<K> index = open_index<K>(pool, choice);
  Outcome outcome = index.upsert(key, value);
  if (outcome == Outcome::done) outcome = index.sync();
  if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
}

int put(const PutArguments& arguments) {
  const auto value = parse_number(arguments.value);
  if (!value) {
    throw Failure(kExitUsage,
                  fmt::format("value {} is not {}", in_quotes(arguments.value), kNumberRange));
  }
  // A wrong key must not leave a new pool behind.
  if (arguments.keys == "u64") (void)key_of_argument<std::uint64_t>(arguments.key, false);
  Pool pool = open_or_create(arguments);
  const TableChoice choice = table_to_fill(pool, arguments);
  with_key_type(choice.key_type, [&]<class K>() { put<K>(arguments, pool, choice, *value); });
  value_or_fail(pool.close());
  return 0;
}

}  // namespace

void add_put(CLI::App& app, int& status) {
  auto arguments = std::make_shared<PutArguments>();
  Command command(app, "put", "Set the value of a key");
  add_pool(command, *arguments);
  command.positional("KEY", arguments->key, "A number or the bytes of the key");
  command.positional("VALUE", arguments->value, "A number from 0 to 2^64 - 1");
  add_table(command, *arguments);
  add_creation(command, *arguments);
  add_domain(command, *arguments);
  add_escaped(command, *arguments);
  command.run([arguments, &status] { status = put(*arguments); });
}

}  // namespace everleaf::cli
