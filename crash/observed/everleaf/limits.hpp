// include/everleaf/limits.hpp for the crash checker: few threads and indexes, so that opening a
// pool is quick.
#pragma once

#include <cstddef>

namespace everleaf {

inline constexpr std::size_t kMaxKeyBytes = 65536;
inline constexpr std::size_t kMaxThreads = 16;    // at once, in one process
inline constexpr std::size_t kMaxIndexes = 12;    // per pool
inline constexpr std::size_t kMaxNameBytes = 63;  // of an index

}  // namespace everleaf
