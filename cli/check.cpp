// everleaf check: the structure of every index and the accounts of the heap.
#include <memory>

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

int check(const CheckArguments& arguments) {
  const Pool pool = open_to_read(arguments);
  const CheckReport report = value_or_fail(pool.check());
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
