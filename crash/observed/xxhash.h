// Stands in for xxHash in the observed build: what is hashed is read as one range, and the hash is
// made without hooks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace everleaf::crash::seam {
std::uint64_t xxh3(const void* from, std::size_t bytes, std::uint64_t seed) noexcept;
}

inline std::uint64_t XXH3_64bits_withSeed(const void* from, std::size_t bytes, std::uint64_t seed) {
  return everleaf::crash::seam::xxh3(from, bytes, seed);
}
inline std::uint64_t XXH3_64bits(const void* from, std::size_t bytes) {
  return XXH3_64bits_withSeed(from, bytes, 0);
}
