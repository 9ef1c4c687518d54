#include "base/node_arena.hpp"

#include <cstdint>
#include <new>

#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

namespace everleaf::base {
namespace {

constexpr std::size_t kLine = 64;
// To its size: a block finds its arena in the chunk's first line.
constexpr std::align_val_t kChunkAlign{kNodeChunkBytes};

}  // namespace

NodeArena::NodeArena(std::size_t block_bytes) noexcept
    : block_bytes_((block_bytes + kLine - 1) / kLine * kLine) {}

NodeArena::~NodeArena() {
  for (void* const chunk : chunks_) {
    ASAN_UNPOISON_MEMORY_REGION(chunk, kNodeChunkBytes);
    ::operator delete(chunk, kNodeChunkBytes, kChunkAlign);
  }
}

void* NodeArena::allocate() {
  const MutexGuard guard(mutex_);
  if (free_ != nullptr) {
    Free* const block = free_;
    ASAN_UNPOISON_MEMORY_REGION(block, block_bytes_);
    free_ = block->next;
    return block;
  }
  if (used_ + block_bytes_ > kNodeChunkBytes) {
    chunks_.reserve(chunks_.size() + 1);
    void* const chunk = ::operator new(kNodeChunkBytes, kChunkAlign);
    // Not the first one: a small index shall not take a whole huge page.
    if (!chunks_.empty()) (void)::madvise(chunk, kNodeChunkBytes, MADV_HUGEPAGE);
    chunks_.push_back(chunk);
    new (chunk) NodeArena*(this);
    used_ = kLine;
  }
  void* const block = static_cast<std::byte*>(chunks_.back()) + used_;
  used_ += block_bytes_;
  return block;
}

void NodeArena::free(void* block) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(block);
  NodeArena& arena = **reinterpret_cast<NodeArena**>(at / kNodeChunkBytes * kNodeChunkBytes);
  const MutexGuard guard(arena.mutex_);
  arena.free_ = new (block) Free{arena.free_};
  ASAN_POISON_MEMORY_REGION(block, arena.block_bytes_);
}

std::size_t NodeArena::bytes() const {
  const MutexGuard guard(mutex_);
  return chunks_.empty() ? 0 : (chunks_.size() - 1) * kNodeChunkBytes + used_;
}

}  // namespace everleaf::base
