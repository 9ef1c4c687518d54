// everleaf check: the structure of every index, the accounts of the heap, the values of a store.
#include <algorithm>
#include <memory>

#include <everleaf/store.hpp>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct CheckArguments : TableArguments {
  bool json = false;
};

// Of a store, its values, too.
CheckReport check_of(const CheckArguments& arguments) {
  {
    const Pool pool = open_to_read(arguments);
    const auto indexes = pool.indexes();
    if (!indexes || std::ranges::none_of(*indexes, &IndexInfo::table)) {
      return value_or_fail(pool.check());
    }
  }  // a file is open once at a time
  StoreOptions options;
  options.pool.mode = Mode::read_only;
  const auto store = Store::open(arguments.pool, options);
  if (store) return value_or_fail(store->check());
  // The trees can be read, what a Store needs beside them cannot.
  CheckReport report = value_or_fail(open_to_read(arguments).check());
  report.problems.push_back(store.error().message);
  return report;
}

int check(const CheckArguments& arguments) {
  const CheckReport report = check_of(arguments);
  const bool sound = report.problems.empty();
  if (arguments.json) {
    print(Json{{"path", arguments.pool},
               {"sound", sound},
               {"keys", report.keys},
               {"blocks_allocated", report.blocks_allocated},
               {"blocks_reachable", report.blocks_reachable},
               {"problems", report.problems}});
  } else {
    for (const std::string& problem : report.problems) fmt::print("problem: {}\n", problem);
    fmt::print("{}: {}, {} allocated, {} reachable\n", sound ? "sound" : "damaged",
               counted(report.keys, "key"), counted(report.blocks_allocated, "block"),
               grouped(report.blocks_reachable));
  }
  if (sound) return 0;
  throw Failure(kExitNo, fmt::format("{} is damaged: {} found", arguments.pool,
                                     counted(report.problems.size(), "problem")));
}

}  // namespace

void add_check(CLI::App& app, int& status) {
  auto arguments = std::make_shared<CheckArguments>();
  Command command(app, "check", "Look for damage in a pool");
  add_pool(command, *arguments);
  command.flag("--json", arguments->json, "For programs");
  command.run([arguments, &status] { status = check(*arguments); });
}

}  // namespace everleaf::cli
