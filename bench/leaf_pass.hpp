// What a recovery from the list of leaves is compared with: one pass over the list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace everleaf::bench {

struct LeafPass {
  std::uint64_t ns = 0;
  std::uint64_t leaves = 0;  // 0: the tree is not a BD+Tree
};

// Follows the list of leaves of a BD+Tree and reads each one's first line, in a process that has
// the file's pages mapped. Nobody may have the pool open, but its writer may have been killed.
// Throws Failure where the list leads out of the file. To be called before any thread is started.
LeafPass pass_over_leaves(const std::filesystem::path& pool, const std::string& index);

}  // namespace everleaf::bench
