// Sizes of tables in DRAM that every open pool or index has. The crash checker, which opens pools
// thousands of times a second, has its own values.
#pragma once

#include <cstddef>

namespace everleaf::base {

inline constexpr unsigned kLockStripeBits = 15;  // 256 KiB: stays in L2
inline constexpr std::size_t kNodeChunkBytes = std::size_t{2} << 20;
inline constexpr unsigned kRetiresPerAdvance = 1024;  // of a thread; an advance takes microseconds

// The heap's table of slab states, in two levels: 4096 x 4096 slabs are 1 TiB.
inline constexpr std::size_t kSlabPages = 4096;
inline constexpr std::size_t kSlabsPerPage = 4096;

}  // namespace everleaf::base
