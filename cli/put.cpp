// everleaf put: one key and its value, new or replaced.
#include <filesystem>
#include <memory>
#include <system_error>

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

std::uint64_t number_of(const PutArguments& arguments) {
  if (const auto value = parse_number(arguments.value)) return *value;
  throw Failure(kExitUsage,
                fmt::format("value {} is not {}", in_quotes(arguments.value), kNumberRange));
}

template <class K>
void put(const PutArguments& arguments, Pool& pool, const TableChoice& choice) {
  const auto key = key_of_argument<K>(arguments.key, arguments.escaped);
  // A wrong value must not leave a new index behind.
  const std::uint64_t number = choice.payloads ? 0 : number_of(arguments);
  Index<K> index = open_index<K>(pool, choice);
  Outcome outcome = choice.payloads ? value_or_fail(index.payloads()).upsert(key, arguments.value)
                                    : index.upsert(key, number);
  if (outcome == Outcome::done) outcome = index.sync();
  if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
}

int put(const PutArguments& arguments) {
  // Nor may a wrong value or key leave a new pool behind.
  std::error_code ignored;
  const bool is_new = !std::filesystem::exists(arguments.pool, ignored);
  if (is_new && !names_payloads(arguments.index)) (void)number_of(arguments);
  if (arguments.value.size() > kMaxPayloadBytes) {
    throw Failure(kExitUsage,
                  fmt::format("the value has {} bytes, the limit is {}",
                              grouped(arguments.value.size()), grouped(kMaxPayloadBytes)));
  }
  if (arguments.keys == "u64") (void)key_of_argument<std::uint64_t>(arguments.key, false);
  Pool pool = open_or_create(arguments);
  const TableChoice choice = table_to_fill(pool, arguments);
  with_key_type(choice.key_type, [&]<class K>() { put<K>(arguments, pool, choice); });
  value_or_fail(pool.close());
  return 0;
}

}  // namespace

void add_put(CLI::App& app, int& status) {
  auto arguments = std::make_shared<PutArguments>();
  Command command(app, "put", "Set the value of a key");
  add_pool(command, *arguments);
  command.positional("KEY", arguments->key, "A number or the bytes of the key");
  command.positional("VALUE", arguments->value,
                     "A number from 0 to 2^64 - 1; bytes, where the index has `values=bytes`");
  add_table(command, *arguments);
  add_creation(command, *arguments);
  add_domain(command, *arguments);
  add_escaped(command, *arguments);
  command.run([arguments, &status] { status = put(*arguments); });
}

}  // namespace everleaf::cli
