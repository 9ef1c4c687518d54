// operator new and delete of everleaf-crash: lists of freed blocks by size, instead of malloc. An
// execution opens and closes a pool, and so makes and frees the same few dozens of objects, some
// 50,000 times a second.
//
// Thread safety: each thread has lists of its own; a block may be freed by another thread than the
// one that made it.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

constexpr std::size_t kGrain = 64;
constexpr std::size_t kLists = 256;  // blocks of up to 16 KiB

struct alignas(std::max_align_t) Block {
  std::size_t list;  // kLists: malloc's
  Block* next;
};
static_assert(sizeof(Block) == 16);

thread_local std::array<Block*, kLists> g_free{};

void* make(std::size_t bytes) noexcept {
  const std::size_t list = (bytes + sizeof(Block) - 1) / kGrain;
  if (list >= kLists) {
    auto* const block = static_cast<Block*>(std::malloc(bytes + sizeof(Block)));
    if (block == nullptr) return nullptr;
    block->list = kLists;
    return block + 1;
  }
  Block* block = g_free[list];
  if (block != nullptr) {
    g_free[list] = block->next;
    return block + 1;
  }
  block = static_cast<Block*>(std::malloc((list + 1) * kGrain));
  if (block == nullptr) return nullptr;
  block->list = list;
  return block + 1;
}

void free_block(void* memory) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  if (block->list == kLists) return std::free(block);
  if (block == g_free[block->list]) std::abort();  // freed twice
  block->next = g_free[block->list];
  g_free[block->list] = block;
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = make(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  free_block(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  free_block(memory);
}
