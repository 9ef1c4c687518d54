// src/base/limits.hpp for the crash checker: small tables, so that opening a pool is quick. Few
// stripes make nodes share locks, which is a test by itself; memory is used again soon; tags of
// epochs come round within a workload.
#pragma once

#include <cstddef>
#include <cstdint>

namespace everleaf::base {

inline constexpr unsigned kLockStripeBits = 6;
inline constexpr unsigned kKeyStripeBits = 2;  // of a Store's latches
inline constexpr std::size_t kNodeChunkBytes = std::size_t{32} << 10;
inline constexpr std::size_t kMostWorkers = 1;
inline constexpr unsigned kRetiresPerAdvance = 4;
inline constexpr std::size_t kMagazineBlocks = 8;
inline constexpr std::size_t kFreedBlocks = 1;
inline constexpr std::size_t kKeptKeys = 2;
inline constexpr std::size_t kLimboParts = 1;
inline constexpr std::size_t kSlabPages = 16;
inline constexpr std::size_t kSlabsPerPage = 64;
inline constexpr unsigned kTagBits = 7;
inline constexpr std::uint64_t kOldTag = 16;
inline constexpr std::uint64_t kTagRound = 8;
inline constexpr std::uint64_t kTagLeaves = 64;

inline constexpr bool kAllCodes = false;

}  // namespace everleaf::base
