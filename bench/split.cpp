// Compiled for each program with its own base/stopwatch.hpp.
#include "split.hpp"

#include "base/stopwatch.hpp"

namespace everleaf::bench {

std::optional<Split> split_so_far() {
  const auto ticks = base::Stopwatch::so_far();
  if (!ticks) return std::nullopt;
  const auto of = [&](base::Part part) { return (*ticks)[static_cast<std::size_t>(part)]; };
  return Split{of(base::Part::traversal), of(base::Part::leaf), of(base::Part::words),
               of(base::Part::flush) + of(base::Part::fence), of(base::Part::update)};
}

}  // namespace everleaf::bench
