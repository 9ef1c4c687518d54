// everleaf del: takes a key out.
#include <memory>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct DelArguments : TableArguments {
  std::string key;
};

template <class K>
void del(const DelArguments& arguments, Pool& pool, const TableChoice& choice) {
  const auto key = key_of_argument<K>(arguments.key, arguments.escaped);
  Index<K> index = open_index<K>(pool, choice);
  Outcome outcome = index.remove(key);
  if (outcome == Outcome::absent) {
    throw Failure(kExitNo, fmt::format("no key {} in {}", in_quotes(key), in_quotes(choice.name)));
  }
  if (outcome == Outcome::done) outcome = index.sync();
  if (outcome != Outcome::done) throw Failure(exit_code_of(outcome), describe(outcome));
}

int del(const DelArguments& arguments) {
  Pool pool = open_to_write(arguments);
  const TableChoice choice = existing_table(pool, arguments);
  with_key_type(choice.key_type, [&]<class K>() { del<K>(arguments, pool, choice); });
  value_or_fail(pool.close());
  return 0;
}

}  // namespace

void add_del(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DelArguments>();
  Command command(app, "del", "Remove a key");
  add_pool(command, *arguments);
  command.positional("KEY", arguments->key, "A number or the bytes of the key");
  add_table(command, *arguments);
  add_domain(command, *arguments);
  add_escaped(command, *arguments);
  command.run([arguments, &status] { status = del(*arguments); });
}

}  // namespace everleaf::cli
