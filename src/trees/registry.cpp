// The one list of trees: tests, command line, benchmarks and the crash checker iterate over it. It
// is the only file that includes from more than one room.
#include <array>
#include <string>

#include "trees/bdtree/register.hpp"
#include "trees/bztree/register.hpp"
#include "trees/contract.hpp"
#include "trees/lodgetree/register.hpp"
#include "trees/pbtree/register.hpp"
#include "trees/wbtree/register.hpp"

namespace everleaf {
namespace tree {
namespace {

constexpr std::array kRegistry{wbtree::kRegistration, bdtree::kRegistration, pbtree::kRegistration,
                               bztree::kRegistration, lodgetree::kRegistration};

constexpr auto kInfos = [] {
  std::array<TreeInfo, kRegistry.size()> infos{};
  for (std::size_t i = 0; i < infos.size(); ++i) infos[i] = kRegistry[i].info;
  return infos;
}();

}  // namespace

std::span<const Registration> registry() noexcept {
  return kRegistry;
}

Result<const Registration*> find_tree(std::string_view name) {
  for (const Registration& row : kRegistry) {
    if (row.info.name == name) return &row;
  }
  std::string known;
  for (const Registration& row : kRegistry) {
    known += (known.empty() ? "" : ", ") + std::string(row.info.name);
  }
  return std::unexpected(Error{
      Code::unknown_tree, "there is no tree '" + std::string(name) + "'; there are: " + known});
}

}  // namespace tree

std::span<const TreeInfo> trees() noexcept {
  return tree::kInfos;
}

}  // namespace everleaf
