// xxHash itself, behind observed/xxhash.h.
#define XXH_INLINE_ALL
#include "hash.hpp"

#include <xxhash.h>

namespace everleaf::crash {

std::uint64_t xxh3(const void* from, std::size_t bytes, std::uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(from, bytes, seed);
}

}  // namespace everleaf::crash
