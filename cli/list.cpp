// everleaf list: the trees that there are.
#include <memory>

#include <everleaf/index.hpp>

#include <fmt/format.h>

#include "commands.hpp"
#include "json.hpp"
#include "options.hpp"

namespace everleaf::cli {
namespace {

Json to_json(const TreeInfo& tree) {
  Json options = Json::array();
  for (const OptionInfo& option : tree.options) {
    options.push_back(Json{{"name", option.name},
                           {"default", option.default_value},
                           {"values", option.values},
                           {"help", option.help}});
  }
  return Json{{"name", tree.name},
              {"summary", tree.summary},
              {"paper", tree.paper},
              {"durability", to_string(tree.durability)},
              {"inner_nodes", to_string(tree.inner_nodes)},
              {"recovery", to_string(tree.recovery)},
              {"latch_free", tree.latch_free},
              {"whole_batches", tree.whole_batches},
              {"options", std::move(options)}};
}

void print_text() {
  constexpr std::string_view kRow = "{:<10} {:<11} {:<12} {:<9} {:<11} {}\n";
  fmt::print(kRow, "tree", "durability", "inner nodes", "recovery", "latch-free", "paper");
  for (const TreeInfo& tree : trees()) {
    fmt::print(kRow, tree.name, to_string(tree.durability), to_string(tree.inner_nodes),
               to_string(tree.recovery), tree.latch_free ? "yes" : "no", tree.paper);
  }
  for (const TreeInfo& tree : trees()) {
    fmt::print("\n{}: {}\n", tree.name, tree.summary);
    for (const OptionInfo& option : tree.options) {
      fmt::print("  {:<28} {}\n  {:<28} values: {}\n",
                 fmt::format("{}={}", option.name, option.default_value), option.help, "",
                 option.values);
    }
  }
}

}  // namespace

void add_list(CLI::App& app, int& status) {
  auto json = std::make_shared<bool>(false);
  Command command(app, "list", "Show the trees and their options");
  command.flag("--json", *json, "For programs");
  command.run([json, &status] {
    if (*json) {
      Json all = Json::array();
      for (const TreeInfo& tree : trees()) all.push_back(to_json(tree));
      print(Json{{"trees", std::move(all)}});
    } else {
      print_text();
    }
    status = 0;
  });
}

}  // namespace everleaf::cli
