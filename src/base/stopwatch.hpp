// Where the time of an operation goes. Here this is nothing, not one instruction: the program that
// measures it (everleaf-bench-split) replaces this header by include path.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace everleaf::base {

// traversal: down the tree, and in the leaf where a tree has no stopwatch of its own there; words:
// multi-word compare-and-swap; update: what the others leave.
enum class Part : std::uint8_t { traversal, leaf, words, flush, fence, update };
using Ticks = std::array<std::uint64_t, 6>;  // of a thread, by part

// From here to the end of the block the time is the part's, but for that of stopwatches inside.
class [[maybe_unused]] Stopwatch {
 public:
  explicit Stopwatch(Part) noexcept {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Of the calling thread since its start; nullopt: nobody measures.
  static std::optional<Ticks> so_far() noexcept { return std::nullopt; }
};

}  // namespace everleaf::base
