// What the trees' check() have in common.
#pragma once

#include <string>
#include <utility>

#include <everleaf/index.hpp>

#include "pmem/format.hpp"

namespace everleaf::tree {

// One bad word can make thousands of complaints.
inline constexpr std::size_t kMostProblems = 100;

// False: there are too many of them already.
inline bool add_problem(CheckReport& report, std::string text) {
  if (report.problems.size() >= kMostProblems) return false;
  report.problems.push_back(std::move(text));
  return true;
}

inline std::string at_node(pmem::Offset node, const std::string& what) {
  return "node at offset " + std::to_string(node) + ": " + what;
}

}  // namespace everleaf::tree
