// Words that damage could make, with their checks made right.
#pragma once

#include "pmem/format.hpp"

namespace everleaf::test {

// The header of a large block of so many slabs, as the heap makes it (src/alloc/heap.cpp).
inline pmem::Word large_header(pmem::Offset slab_at, pmem::Word slabs) {
  const pmem::Word body = 255 | slabs << 8;
  const pmem::Word slab = slab_at / pmem::kSlabBytes;
  pmem::Word mixed = (body + 0xE7AB) * 0x9E3779B97F4A7C15ULL ^ (slab + 1) * 0xC2B2AE3D27D4EB4FULL;
  mixed = (mixed ^ mixed >> 31) * 0xD6E8FEB86659FD93ULL;
  return body | mixed >> 32 << 32;
}

}  // namespace everleaf::test
