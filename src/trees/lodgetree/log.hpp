// The partitioned version log: what makes an operation durable while its pair waits in a buffer.
//
// A partition is a current chunk, to which its threads append. A full chunk is closed and knows
// which of its records are dead: superseded, or flushed to their leaf durably. When all are, the
// chunk is free and is written again from its start, in the paper's words with the next version.
//
// Thread safety: all methods from any thread, but for adopt() and open().
// Invariants
//   L1. A record dies only after a fence behind which recovery does not need it: another record of
//       its key with a larger order, or the stamp of its leaf, is durable.
//   L2. A chunk is in the directory, durably and zeroed before that, when a record is appended.
//   L3. A chunk is free exactly if all its records are dead; no chunk that is current is free.
//   L4. The stamps of flushed leaves are durable after the next fence() of the slot that stored
//       them; until then it keeps their records alive. settle() does the same for all slots.
//   L5. The last record of a chunk is not written before the chunk is closed; from then on it is
//       one of the holes, of which the last one is for records that replace others. So those
//       always find one, whichever partition's chunk has what they replace: full ones are closed
//       before holes are looked for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "base/seam.hpp"
#include "trees/lodgetree/layout.hpp"
#include "trees/lodgetree/owner_lock.hpp"

namespace everleaf::tree::lodgetree {

// Chunk * records + index + 1; 0: none.
using Ref = std::uint32_t;
static_assert(kMaxChunks * (kMaxChunkBytes / sizeof(Record)) <= ~Ref{0});

class Log {
  struct Partition;

 public:
  // `directory` has kMaxChunks words.
  Log(pmem::Medium& medium, std::size_t chunk_bytes, std::size_t most_chunks,
      std::size_t partitions);
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log();

  [[nodiscard]] std::size_t chunk_bytes() const { return records_ * sizeof(Record); }
  [[nodiscard]] std::size_t records() const { return records_; }

  // --- Opening ---
  // Chunks that the directory names, in its order; all their records count as dead.
  void open(std::span<const Offset> chunks);
  // This record is needed.
  void adopt(Ref ref);
  // After the last adopt().
  void opened();

  // --- Appending ---
  // Before a slot's operation: memory that it needs (may throw bad_alloc), and what the one before
  // left to be done behind its fence.
  void ready(unsigned slot);
  // A place for a record, which goes back, or dies, unless the record is written.
  class Begun {
   public:
    // Not ok(): this slot's partition has no room, call room().
    Begun(Log& log, unsigned slot) : log_(log), ref_(log.begin(slot, of_)) {}
    Begun(const Begun&) = delete;
    Begun& operator=(const Begun&) = delete;
    ~Begun() {
      if (ref_ != 0) log_.give_back(*of_, ref_);
    }
    [[nodiscard]] bool ok() const { return ref_ != 0; }
    // Starts its write-back, too. Executes no locked instruction: behind the flushes of leaves that
    // would wait for them.
    [[nodiscard]] Ref write(const Record& record, std::uint64_t key_hash) {
      log_.write(ref_, record, key_hash);
      return std::exchange(ref_, 0);
    }

   private:
    Log& log_;
    Partition* of_ = nullptr;
    Ref ref_;
  };
  // Without room: a whole record over a dead one of a closed chunk; full ones of all partitions are
  // closed. One is left to those that `replace` a living record, which will die; they come one at a
  // time (L5). 0: there is none.
  [[nodiscard]] Ref append_to_hole(const Record& record, std::uint64_t key_hash, bool replaces);
  [[nodiscard]] static Word sum_of(const Record& record, Offset at, std::uint64_t key_hash);
  // Takes a free chunk; false: there is none, add() one or empty the oldest().
  [[nodiscard]] bool room(unsigned slot);
  // Now and then in the second half of a chunk: is_tight() may be asked.
  [[nodiscard]] bool is_late(Ref ref) const;
  // Whether the next chunk has to be emptied first.
  [[nodiscard]] bool is_tight() const;
  // The place in the directory for one more chunk; kMaxChunks: no more are allowed.
  [[nodiscard]] std::size_t next_place() const;
  // A chunk, in two steps of one thread at a time: the first may throw bad_alloc, the second, when
  // the directory names it, does not.
  void prepare(Offset chunk);
  void add();
  struct Closed {
    std::size_t chunk;
    std::uint64_t version;  // of the chunk: another one, and it is in use again
  };
  // The closed chunk that waits longest, to be emptied; false: there is none. Full ones of idle
  // partitions are closed if there is no other.
  [[nodiscard]] bool oldest(Closed& closed);

  // --- Dying ---
  void die(Ref ref);
  [[nodiscard]] bool is_live(Ref ref) const;
  // The first living record of the chunk from `index` on; records(): there is none.
  [[nodiscard]] std::size_t next_live(std::size_t chunk, std::size_t index) const;
  // Whether all records that it had are dead.
  [[nodiscard]] bool is_empty(const Closed& closed) const;
  [[nodiscard]] Ref ref_of(std::size_t chunk, std::size_t index) const {
    return static_cast<Ref>(chunk * records_ + index + 1);
  }
  // The order is 0 from when its place is taken until it is written.
  [[nodiscard]] Record* record(Ref ref) const;

  // Flushed records, dead after this slot's next fence(), which writes these lines back (L4); and
  // key records that nobody needs then, to be taken by take_keys(). False: these have no room.
  static constexpr std::size_t kMostDeferred = 64;
  static constexpr std::size_t kMostKeys = base::kKeptKeys;
  [[nodiscard]] bool defer(unsigned slot, std::span<const Ref> refs,
                           std::span<std::byte* const> lines, std::span<const Offset> keys);
  using Kept = std::array<Offset, kMostKeys>;
  // Of this slot's thread, right behind a fence(): how many there are. No living record names them
  // after a settle().
  [[nodiscard]] std::size_t take_keys(unsigned slot, Kept& keys);
  // Of any slot, with a fence for it if it waits for one. False: that failed.
  [[nodiscard]] bool take_keys_of(unsigned slot, Kept& keys, std::size_t& count);
  // A fence of the operation, and what it settles.
  [[nodiscard]] bool fence(unsigned slot, pmem::Site site = pmem::Site::current());
  // What waits for fences of slots, whose threads may sleep or be gone.
  [[nodiscard]] bool settle();

  struct Figures {
    std::uint64_t chunks = 0;
    std::uint64_t free = 0;
    std::uint64_t live = 0;  // records
    std::uint64_t dram_bytes = 0;
  };
  [[nodiscard]] Figures figures() const;

 private:
  struct Chunk {
    explicit Chunk(Offset where, std::size_t words)
        : at(where), dead_bits(std::make_unique<std::atomic<std::uint64_t>[]>(words)) {}
    Offset at;
    std::atomic<std::uint64_t> version{0};
    std::atomic<std::uint32_t> dead{0};  // records; all of them: the chunk is free
    std::unique_ptr<std::atomic<std::uint64_t>[]> dead_bits;
  };
  struct alignas(pmem::kLine) Partition {
    base::Mutex mutex;
    Chunk* current = nullptr;
    std::size_t chunk = 0;  // its number
    std::size_t next = 0;   // its first place that was not taken
  };
  struct Deferred {
    std::atomic<bool> waits{false};  // for a fence
    std::atomic<bool> ripe{false};   // there was one
    OwnerLock lock;                  // of the slot's thread; guards the rest
    std::size_t refs_count = 0;
    std::size_t lines_count = 0;
    std::size_t ripe_count = 0;
    std::size_t keys_count = 0;
    std::array<Ref, kMostDeferred> refs;
    std::array<std::byte*, kMostDeferred> lines;
    std::array<Ref, kMostDeferred> ripe_refs;
    Kept keys;  // ripe unless something waits
  };
  [[nodiscard]] bool fence(Deferred& of, pmem::Site site);
  void reap(Deferred& of);
  [[nodiscard]] static std::size_t take_keys(Deferred& of, Kept& keys);
  [[nodiscard]] Partition& partition(unsigned slot) { return partitions_[slot % count_]; }
  [[nodiscard]] Ref begin(unsigned slot, Partition*& of);
  [[nodiscard]] Ref begin_in(Partition& to, bool& none);
  void give_back(Partition& of, Ref ref);
  void write(Ref ref, const Record& record, std::uint64_t key_hash);
  [[nodiscard]] Deferred& deferred(unsigned slot);
  void close(Partition& of);  // its mutex and mutex_ held
  void kill(std::size_t chunk, std::size_t index);
  [[nodiscard]] bool is_free(std::size_t chunk) const;
  // The dead ones of 64 records, from this one on.
  [[nodiscard]] std::uint64_t dead_from(const Chunk& chunk, std::size_t first) const;
  void close_full(Partition& of);

  pmem::Medium& medium_;
  const std::size_t records_;  // of a chunk
  const std::size_t late_every_;
  const std::size_t most_;
  const std::size_t count_;  // of partitions
  std::unique_ptr<Partition[]> partitions_;
  std::atomic<std::size_t> with_chunk_{0};  // partitions that have one
  std::unique_ptr<std::array<std::atomic<Chunk*>, kMaxChunks>> chunks_;
  std::atomic<std::size_t> chunk_count_{0};
  std::unique_ptr<std::atomic<Deferred*>[]> deferred_;  // by slot
  mutable base::Mutex mutex_;                           // guards the next two; after a partition's
  std::unique_ptr<Chunk> prepared_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> closed_;
};

}  // namespace everleaf::tree::lodgetree
