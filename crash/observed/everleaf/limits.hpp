// include/everleaf/limits.hpp for the crash checker: few threads and indexes, so that opening a
// pool is quick.
#pragma once

#include <cstddef>

namespace everleaf {

inline constexpr std::size_t kMaxKeyBytes = 65536;
inline constexpr std::size_t kMaxPayloadBytes = 65536;
inline constexpr std::size_t kMaxValueBytes = (std::size_t{1} << 28) - 1;
inline constexpr std::size_t kMaxBatchOperations = 65536;
inline constexpr std::size_t kMaxBatchBytes = std::size_t{64} << 20;
inline constexpr std::size_t kMaxThreads = 10;  // 8 that are simulated, and those that prepare them
inline constexpr std::size_t kMaxIndexes = 12;  // per pool
inline constexpr std::size_t kMaxNameBytes = 63;  // of an index

}  // namespace everleaf
