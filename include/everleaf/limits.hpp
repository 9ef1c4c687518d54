// The library's limits.
#pragma once

#include <cstddef>

namespace everleaf {

inline constexpr std::size_t kMaxKeyBytes = 65536;
inline constexpr std::size_t kMaxPayloadBytes = 65536;                     // of Payloads
inline constexpr std::size_t kMaxValueBytes = (std::size_t{1} << 28) - 1;  // of a Store: 256 MiB
inline constexpr std::size_t kMaxBatchOperations = 65536;                  // of a Store
inline constexpr std::size_t kMaxBatchBytes = std::size_t{64} << 20;       // its keys and values
inline constexpr std::size_t kMaxThreads = 1024;  // at once, in one process
inline constexpr std::size_t kMaxIndexes = 63;    // per pool
inline constexpr std::size_t kMaxNameBytes = 63;  // of an index

}  // namespace everleaf
