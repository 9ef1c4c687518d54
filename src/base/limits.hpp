// Sizes of tables in DRAM that every open pool or index has, and distances between epochs. The
// crash checker, which opens pools thousands of times a second and steps the clock by hand, has its
// own values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace everleaf::base {

inline constexpr unsigned kLockStripeBits = 15;  // 256 KiB: stays in L2
inline constexpr unsigned kKeyStripeBits = 10;   // of a Store's latches
inline constexpr std::size_t kNodeChunkBytes = std::size_t{2} << 20;
inline constexpr std::size_t kMostWorkers = 16;       // threads of a recovery
inline constexpr unsigned kRetiresPerAdvance = 1024;  // of a thread; an advance takes microseconds

// Blocks of a size class that a thread keeps for itself; of large ones a quarter.
inline constexpr std::size_t kMagazineBlocks = 64;
// Blocks of src/epoch that a thread gave back and that are not free yet.
inline constexpr std::size_t kFreedBlocks = 64;
inline constexpr std::size_t kKeptKeys =
    128;  // key records that wait for a fence (src/trees/lodgetree)
inline constexpr std::size_t kLimboParts = 16;  // lists of what waits for an epoch

// The heap's table of slab states, in two levels: 4096 x 4096 slabs are 1 TiB.
inline constexpr std::size_t kSlabPages = 4096;
inline constexpr std::size_t kSlabsPerPage = 4096;

// Tags of epochs (src/trees/bdtree): of so many bits. Those of this age are made young again by
// rounds, which begin so many epochs apart and look at so many leaves in each.
inline constexpr unsigned kTagBits = 34;
inline constexpr std::uint64_t kOldTag = std::uint64_t{1} << 31;
inline constexpr std::uint64_t kTagRound = std::uint64_t{1} << 30;
inline constexpr std::uint64_t kTagLeaves = 4;

// A search looks at all places for codes of a node (trees/codes.hpp), not only at those in use: a
// number of steps that depends on the node is hardly ever predicted. To the checker each is a point
// where threads may be switched.
inline constexpr bool kAllCodes = true;

}  // namespace everleaf::base
