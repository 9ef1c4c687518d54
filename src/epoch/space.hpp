// Memory without durable state of its own, for structures on epochs (README.md, "Space").
//
// Thread safety: all methods from any thread, but for open() and load(); claim(), claim_all(),
// place_of(), chunks() and chunk_at() are for threads that open the structure.
// Invariants
//   S1. A block is handed out at most once until free().
//   S2. Extents are durable and owned by the structure before anything of them is handed out.
//   S3. A block that a thread's magazine has is nobody's, though its bit says that it is in use:
//       reserve() hands it out, and where nothing else is left all magazines are emptied.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <everleaf/result.hpp>

#include "alloc/heap.hpp"
#include "alloc/redo_log.hpp"
#include "base/limits.hpp"
#include "base/seam.hpp"
#include "base/thread_slot.hpp"
#include "pmem/medium.hpp"

namespace everleaf::epoch {

// In the structure's root block. A free entry is zero; both words are set by one redo record.
struct Extent {
  pmem::Word at;
  pmem::Word bytes;
};

// A problem that check() reports (table_is_whole()).
inline constexpr const char* kHoleInTable = "its table of extents goes on behind a free entry";

inline constexpr std::size_t kChunkBytes = 16128;
inline constexpr std::size_t kBlockAlign =
    256;  // of blocks whose size is a power of two from here on

class Space {
 public:
  Space(pmem::Medium& medium, alloc::Heap& heap, alloc::RedoLog& redo, pmem::Offset table,
        std::size_t entries);
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;
  ~Space();

  // The first extent of a structure that is being created: one heap block.
  static constexpr std::size_t kFirstExtentBytes = alloc::kLargestClassBytes;
  [[nodiscard]] static pmem::Offset first_block(pmem::Offset extent) {
    return (extent + kBlockAlign - 1) / kBlockAlign * kBlockAlign;
  }

  // Reads the table; everything is free, again if it was called before. corrupt if an extent is no
  // allocated block.
  [[nodiscard]] Outcome open();
  // False: entries lie behind a free one, which damage made, and their extents are out of sight.
  [[nodiscard]] bool table_is_whole() const;
  // This block is in use. False: it is not inside an extent, not where a block of its size can be,
  // or in use already.
  [[nodiscard]] bool claim(pmem::Offset at, std::size_t bytes);

  // Of blocks of a power of two of which a chunk has several, at most 64: where they can be.
  struct Place {
    std::size_t chunk = 0;  // below chunks()
    std::size_t block = 0;  // below blocks_of(bytes): at chunk_at(chunk) + block * bytes
  };
  // False: none can be there.
  [[nodiscard]] bool place_of(pmem::Offset at, std::size_t bytes, Place& place) const;
  [[nodiscard]] std::size_t chunks() const { return chunks_.size(); }
  [[nodiscard]] pmem::Offset chunk_at(std::size_t chunk) const { return chunks_[chunk].at; }
  [[nodiscard]] static std::size_t blocks_of(std::size_t bytes);
  // claim() of blocks of a chunk of which none was claimed yet, a bit each. False: some were.
  [[nodiscard]] bool claim_all(std::size_t chunk, std::size_t bytes, std::uint64_t blocks);

  // What is in use but for `known`, for load() after a later open(): of each chunk its offset and
  // class in one word, then its bits. May throw bad_alloc.
  [[nodiscard]] std::vector<pmem::Word> save(std::vector<pmem::Offset> known);
  // After open(), before any claim: these are in use. False: impossible; call open() again. May
  // throw bad_alloc.
  [[nodiscard]] bool load(std::span<const pmem::Word> saved);
  // Whether a block of this size at this place is in use.
  [[nodiscard]] bool in_use(pmem::Offset at, std::size_t bytes) const;

  // A block of at least `bytes`, aligned to 16, or kBlockAlign if `bytes` is a multiple of it and a
  // power of two; 0: none is left, call grow() and try again.
  // `next`: the block that would follow, for who wants to prefetch it; 0: not known.
  [[nodiscard]] pmem::Offset reserve(std::size_t bytes, pmem::Offset* next = nullptr);
  // What is no block that was handed out is left alone: a damaged pool may name anything.
  void free(pmem::Offset at) noexcept;
  // One more extent that has room for `bytes`. Fences, so not within a Section. out_of_space,
  // io_error, corrupt.
  [[nodiscard]] Outcome grow(std::size_t bytes);

  [[nodiscard]] std::uint64_t bytes_owned() const;  // of extents
  struct Use {
    std::uint64_t blocks = 0;
    std::uint64_t bytes = 0;  // of these blocks
  };
  [[nodiscard]] Use in_use() const;  // O(chunks)
  template <class F>
  void for_each_extent(F&& visit) const {
    for (const Run& run : runs()) visit(run.at, run.bytes);
  }
  [[nodiscard]] std::uint64_t dram_bytes() const;

 private:
  static constexpr std::uint8_t kFree = 0xFF;
  static constexpr std::uint8_t kHead = 0xFE;  // of a block of several chunks
  static constexpr std::uint8_t kTail = 0xFD;
  struct Chunk {
    pmem::Offset at = 0;
    std::uint8_t size_class = kFree;
    bool listed = false;                    // in partial_
    bool queued = false;                    // in free_chunks_
    std::uint32_t used = 0;                 // blocks; kHead: chunks
    std::unique_ptr<std::uint64_t[]> bits;  // set: in use
  };
  struct Run {  // an extent
    pmem::Offset at;
    std::uint64_t bytes;
    pmem::Offset first;  // chunk
    std::size_t chunk;   // its number
    std::size_t chunks;
  };
  struct Found {
    std::size_t chunk;
    std::size_t offset;  // inside
  };
  // Blocks next to each other, so that threads neither meet at mutex_ nor write to the same lines.
  struct Some {
    pmem::Offset first = 0;
    std::uint64_t blocks = 0;  // a bit each
  };
  static constexpr std::size_t kMagazineClasses = 8;  // of up to 128 bytes: key records
  struct Magazine {                                   // of a thread slot
    base::Mutex mutex;                                // before mutex_
    std::array<Some, kMagazineClasses> of;
    std::size_t freed_count = 0;
    std::array<pmem::Offset, base::kFreedBlocks> freed;  // not yet free, of any class
  };
  [[nodiscard]] std::vector<Run> runs() const;
  [[nodiscard]] Magazine* magazine() noexcept;
  template <class F>
  void for_each_magazine(F&& visit) const;
  [[nodiscard]] pmem::Offset reserve_once(std::size_t bytes, pmem::Offset* next);
  bool empty_magazines() noexcept;
  void free_all(Magazine& of) noexcept;
  // All below: mutex_ held.
  [[nodiscard]] std::size_t find_chunk(std::size_t size_class);
  [[nodiscard]] Some take(std::size_t chunk, std::size_t most);
  void make_room(std::uint64_t bytes);
  void free_locked(pmem::Offset at) noexcept;
  void give_back(Found found);
  void add_run(pmem::Offset at, std::uint64_t bytes);
  [[nodiscard]] bool find(pmem::Offset at, Found& found) const;
  [[nodiscard]] bool is_block(pmem::Offset at, Found& found) const;
  [[nodiscard]] pmem::Offset first_free(const Chunk& c) const;
  [[nodiscard]] bool free_run(pmem::Offset at, std::size_t n, Found& first) const;
  void take_run(std::size_t first, std::size_t n);
  [[nodiscard]] bool load_chunk(std::span<const pmem::Word> saved, std::size_t& used);
  [[nodiscard]] static bool block_in_use(const Chunk& c, std::size_t offset);
  void format(std::size_t chunk, std::uint8_t size_class);
  void queue(std::size_t chunk);
  void list(std::size_t chunk);
  [[nodiscard]] std::size_t take_chunks(std::size_t n);
  void release_chunk(std::size_t chunk);

  pmem::Medium& medium_;
  alloc::Heap& heap_;
  alloc::RedoLog& redo_;
  const pmem::Offset table_;
  const std::size_t entries_;
  mutable base::Mutex growing_;  // before mutex_
  mutable base::Mutex mutex_;
  std::vector<Run> runs_;  // by address
  std::vector<Chunk> chunks_;
  std::vector<std::vector<std::uint32_t>> partial_;  // per class, chunks with free blocks
  // Each at most once; may hold chunks that are in use by now.
  std::vector<std::uint32_t> free_chunks_;
  std::uint64_t in_use_ = 0;
  std::unique_ptr<std::array<std::atomic<Magazine*>, kMaxThreads>> magazines_;
};

}  // namespace everleaf::epoch
