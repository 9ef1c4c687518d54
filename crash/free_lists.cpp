// operator new and delete of everleaf-crash: lists of freed blocks by size, instead of malloc. An
// execution opens and closes a pool, and so makes and frees the same few dozens of objects, some
// 50,000 times a second.
//
// Thread safety: each thread has lists of its own; a block may be freed by another thread than the
// one that made it.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

constexpr std::size_t kGrain = 64;
constexpr std::size_t kLists = 1025;  // blocks of up to 64 KiB

struct alignas(std::max_align_t) Block {
  std::size_t list;  // kLists: malloc's
  Block* next;
};
static_assert(sizeof(Block) == 16);

struct Lists {
  std::array<Block*, kLists> free{};
};
thread_local Lists g_plain;
thread_local Lists g_lines;  // objects that begin at a cache line

// A block of so many bytes and the Block before them.
Block* fresh(std::size_t list, std::size_t bytes, bool line) noexcept {
  std::byte* const memory = static_cast<std::byte*>(
      line ? std::aligned_alloc(kGrain, (bytes + 2 * kGrain - 1) / kGrain * kGrain)
           : std::malloc(bytes + sizeof(Block)));
  if (memory == nullptr) return nullptr;
  auto* const block = reinterpret_cast<Block*>(line ? memory + kGrain - sizeof(Block) : memory);
  block->list = list;
  return block;
}

void* make(Lists& lists, std::size_t bytes, bool line) noexcept {
  const std::size_t list = (bytes + sizeof(Block) - 1) / kGrain;
  Block* block = nullptr;
  if (list >= kLists) {
    block = fresh(kLists, bytes, line);
  } else if (block = lists.free[list]; block != nullptr) {
    lists.free[list] = block->next;
  } else {
    block = fresh(list, (list + 1) * kGrain - sizeof(Block), line);
  }
  return block == nullptr ? nullptr : block + 1;
}

void free_block(Lists& lists, void* memory, bool line) noexcept {
  if (memory == nullptr) return;
  Block* const block = static_cast<Block*>(memory) - 1;
  if (block->list == kLists) {
    return std::free(line ? static_cast<void*>(static_cast<std::byte*>(memory) - kGrain) : block);
  }
  if (block == lists.free[block->list]) std::abort();  // freed twice
  block->next = lists.free[block->list];
  lists.free[block->list] = block;
}

struct Chunk {
  Chunk* next;
};
thread_local Chunk* g_chunks = nullptr;
thread_local std::size_t g_chunk_bytes = 0;

void* make_chunk(std::size_t bytes, std::align_val_t align) {
  if (g_chunk_bytes != 0 && g_chunk_bytes != bytes) {
    std::fputs("everleaf-crash: chunks of two sizes\n", stderr);
    std::abort();
  }
  g_chunk_bytes = bytes;
  if (g_chunks != nullptr) return std::exchange(g_chunks, g_chunks->next);
  void* const memory = std::aligned_alloc(static_cast<std::size_t>(align), bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void free_chunk(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (bytes != g_chunk_bytes || memory == g_chunks) std::abort();  // another size, or freed twice
  g_chunks = new (memory) Chunk{g_chunks};
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = make(g_plain, bytes, false);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept {
  free_block(g_plain, memory, false);
}
void operator delete(void* memory, std::size_t) noexcept {
  free_block(g_plain, memory, false);
}

// An object of a line, or a chunk of base::NodeArena, which all have one size.
void* operator new(std::size_t bytes, std::align_val_t align) {
  if (static_cast<std::size_t>(align) > kGrain) return make_chunk(bytes, align);
  void* const memory = make(g_lines, bytes, true);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory, std::align_val_t align) noexcept {
  if (static_cast<std::size_t>(align) > kGrain) std::abort();  // of which size?
  free_block(g_lines, memory, true);
}
void operator delete(void* memory, std::size_t bytes, std::align_val_t align) noexcept {
  if (static_cast<std::size_t>(align) > kGrain) return free_chunk(memory, bytes);
  free_block(g_lines, memory, true);
}
