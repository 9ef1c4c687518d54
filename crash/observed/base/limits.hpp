// src/base/limits.hpp for the crash checker: small tables, so that opening a pool is quick. Few
// stripes make nodes share locks, which is a test by itself; memory is used again soon.
#pragma once

#include <cstddef>

namespace everleaf::base {

inline constexpr unsigned kLockStripeBits = 6;
inline constexpr std::size_t kNodeChunkBytes = std::size_t{32} << 10;
inline constexpr unsigned kRetiresPerAdvance = 4;
inline constexpr std::size_t kSlabPages = 16;
inline constexpr std::size_t kSlabsPerPage = 64;

}  // namespace everleaf::base
