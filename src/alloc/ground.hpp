// What whoever owns a pool's blocks needs, in the order in which it lives.
#pragma once

#include "alloc/grace.hpp"
#include "alloc/heap.hpp"
#include "alloc/redo_log.hpp"
#include "pmem/pool_file.hpp"

namespace everleaf::alloc {

// Recovery begins with redo.recover(). The file outlives it.
struct Ground {
  explicit Ground(pmem::PoolFile& file)
      : heap(file),
        redo(file.medium()),
        grace([this](pmem::Offset block) { heap.recycle(block); }) {}
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;

  Heap heap;
  RedoLog redo;
  Grace grace;  // retired blocks go back to the heap
};

}  // namespace everleaf::alloc
