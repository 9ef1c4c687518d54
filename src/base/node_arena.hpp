// Blocks of one size in DRAM for the nodes of an index: packed into chunks of huge pages where the
// kernel gives them, so that a descent of a large tree misses the TLB in the leaf
// alone.
//
// Thread safety: allocate() and free() from any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "base/limits.hpp"
#include "base/seam.hpp"

namespace everleaf::base {

class NodeArena {
 public:
  explicit NodeArena(std::size_t block_bytes) noexcept;
  NodeArena(const NodeArena&) = delete;
  NodeArena& operator=(const NodeArena&) = delete;
  ~NodeArena();  // with all blocks

  // Aligned to a cache line. Throws bad_alloc.
  [[nodiscard]] void* allocate();
  // Of whichever arena the block is.
  static void free(void* block) noexcept;

  [[nodiscard]] std::size_t bytes() const;  // of chunks, as far as they were used

 private:
  struct Free {
    Free* next;
  };
  const std::size_t block_bytes_;
  mutable Mutex mutex_;
  std::vector<void*> chunks_;
  std::size_t used_ = kNodeChunkBytes;  // of the last chunk
  Free* free_ = nullptr;
};

}  // namespace everleaf::base
