// src/base/limits.hpp for the crash checker: small tables, so that opening a pool is quick. Few
// stripes make nodes share locks, which is a test by itself.
#pragma once

#include <cstddef>

namespace everleaf::base {

inline constexpr unsigned kLockStripeBits = 6;
inline constexpr std::size_t kSlabPages = 16;
inline constexpr std::size_t kSlabsPerPage = 64;

}  // namespace everleaf::base
