// The persistent heap: blocks of size classes in slabs of 64 KiB, and large blocks in runs of
// slabs. src/alloc/README.md tells the protocol and its crash cases.
//
// A block is reserved (a promise in DRAM), filled, and then activated by the redo record that links
// it: its bit in the slab's bitmap is set in the same commit. Freeing is the reverse: the record
// that unlinks it clears the bit, and the block is handed out again after its grace period.
//
// Thread safety: all methods from any thread. reserve() and recycle() take no lock but when the
// thread's own magazine is empty or full, and do without it when its holder was stopped.
// Invariants
//   H1. A block's bit is set in the pool exactly while a durable structure reaches it.
//   H2. A block is in at most one place in DRAM: a magazine, its slab's free bits, or a grace list.
//   H3. No slab's bitmap is adopted into DRAM while a block of it is in a magazine or grace list
//       without being marked taken there.
//   H4. A slab below the frontier has a durable header, or holds nothing but zeros: it was claimed
//       and not formatted. Blocks are handed out when header and frontier are durable.
//   H5. A slab's state is published after its bitmap was read, and only if it has none. Who sees a
//       state may clear bits without central_: nobody will read them and take the block for free a
//       second time.
//   H6. A slab at the frontier belongs to the thread that moved claimed_ over it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "alloc/redo_log.hpp"
#include "base/limits.hpp"
#include "base/seam.hpp"
#include "pmem/pool_file.hpp"

namespace everleaf::alloc {

// Sizes of blocks: multiples of 16 up to 128, then steps of a quarter of the power of two.
inline constexpr std::size_t kLargestClassBytes = 16384;
// No block starts before this place in its slab.
inline constexpr std::size_t kFirstBlockAt = 128;
// Whether a block of up to kLargestClassBytes may lie there at all, for who follows a damaged
// offset: within one slab, behind its header. The pool may be shorter.
[[nodiscard]] constexpr bool fits_slab(pmem::Offset at, std::size_t bytes) {
  constexpr std::size_t kRoom = pmem::kSlabBytes - kFirstBlockAt;
  return at >= pmem::kHeapAt && at % pmem::kSlabBytes - kFirstBlockAt <= kRoom - bytes;
}

// Blocks that every operation passes through (inner nodes) lie together in slabs of their own:
// spread among the leaves they would take one page, and one TLB entry, each.
enum class Placement : std::uint8_t { anywhere, together };

class Heap {
 public:
  explicit Heap(pmem::PoolFile& pool);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // A block of at least `bytes`, aligned to 16, and to 64 if `bytes` is a multiple of 64. 0: out of
  // space. Durably free until a record with activate() commits.
  [[nodiscard]] pmem::Offset reserve(std::size_t bytes, Placement placement = Placement::anywhere);
  // Gives back a reserved block that was not activated, or a freed one after its grace period.
  // Where memory is out the block may be lost() until the pool is opened again.
  void recycle(pmem::Offset block) noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

  // Adds "this reserved block is in use" to the record that links it. False: its slab's header was
  // overwritten meanwhile, the pool is damaged.
  [[nodiscard]] bool activate(Redo& record, pmem::Offset block) const;
  // Adds "this block is free" to the record that unlinks it; recycle() it after its grace period.
  // False: there is no such allocated block, the pool is damaged.
  [[nodiscard]] bool release(Redo& record, pmem::Offset block);

  // The same two for who changes the bit himself (src/pmwcas). mask 0: damaged, as above.
  struct Bit {
    pmem::Offset word;
    std::uint64_t mask;
  };
  [[nodiscard]] Bit to_activate(pmem::Offset block) const;
  [[nodiscard]] Bit to_release(pmem::Offset block);

  // Size of the allocated block that starts here; 0 if there is none. Safe on any offset.
  [[nodiscard]] std::size_t allocated_bytes(pmem::Offset block) const;
  // Every allocated block; appends what is wrong with slab headers to `problems`.
  void for_each_allocated(const std::function<void(pmem::Offset, std::size_t)>& visit,
                          std::vector<std::string>* problems) const;

  // Tests: the n-th reserve() from now fails, and all after it, until called with ~0.
  void fail_after(std::uint64_t n) noexcept { fail_after_.store(n, std::memory_order_relaxed); }

 private:
  struct Place;      // a block's slab, bit and size
  struct SlabState;  // a slab's free bits in DRAM
  struct Magazines;  // a thread's reserved blocks
  struct Surplus;    // blocks that a thread could not give back

  [[nodiscard]] SlabState* state_of(std::uint64_t slab) const;
  [[nodiscard]] bool locate(pmem::Offset block, Place& place) const;
  [[nodiscard]] bool parse_header(std::uint64_t slab, Place& place) const;
  Magazines* magazines();
  bool refill(Magazines& mine, std::size_t size_class);
  bool refill_beside(Magazines& mine, std::size_t size_class);
  void drain(Magazines& mine, std::size_t size_class);
  Surplus* surplus_of(std::size_t size_class) noexcept;
  static void push(std::atomic<Surplus*>& stack, Surplus& one) noexcept;
  void drain_large(Magazines& mine);
  pmem::Offset reserve_large(std::size_t bytes);
  [[nodiscard]] bool injected_failure() noexcept;
  std::uint64_t claim(std::uint64_t slabs);
  bool format(std::uint64_t slab, std::uint64_t kind, std::uint64_t slabs);
  [[nodiscard]] static std::unique_ptr<SlabState> taken_state(const Place& place);
  bool publish(std::uint64_t slab, std::unique_ptr<SlabState> state);
  [[nodiscard]] bool unformatted(std::uint64_t slab) const;
  void drop_early_header() noexcept;
  [[nodiscard]] std::uint64_t frontier_slab() const;
  [[nodiscard]] std::uint64_t end_slab() const;

  // All below: central_ held.
  std::size_t take_from_slabs(std::size_t size_class, pmem::Offset* out, std::size_t most);
  bool find_slab(std::size_t size_class);
  SlabState* adopt(std::uint64_t slab);
  void look_at(std::uint64_t slab, const Place& place);
  template <class Enough>
  bool scan_some(bool all, Enough enough);
  [[nodiscard]] bool has_free_run(std::uint64_t slabs) const { return longest_run_ >= slabs; }
  void find_longest_run();
  std::uint64_t take_free_run(std::uint64_t slabs);
  void give_back(pmem::Offset block) noexcept;
  void give_back_large(Magazines& mine) noexcept;
  void read_bits(std::uint64_t slab, SlabState& state) const;
  SlabState* publish_read(std::uint64_t slab, std::unique_ptr<SlabState> state);
  void give_back_small(const Place& place);
  [[nodiscard]] bool meets_others(std::uint64_t slab, std::uint64_t slabs) const;
  void put_free_run(std::uint64_t slab, std::uint64_t slabs);
  void skip_scanned(std::uint64_t slab, std::uint64_t slabs);
  void forget(std::uint64_t slab);
  void unlist(std::uint64_t slab, SlabState& state);

  pmem::PoolFile& pool_;
  pmem::Medium& medium_;
  base::ImpatientMutex central_;
  std::vector<std::vector<std::uint64_t>> partial_;  // per class: slabs with free bits
  std::vector<std::pair<std::uint64_t, std::uint64_t>> free_runs_;  // {first slab, slabs}, sorted
  std::uint64_t longest_run_ = 0;                                   // of free_runs_, in slabs
  std::uint64_t scan_next_;                                         // slabs below it are adopted
  const std::uint64_t scan_end_;        // those from here on are new since the open
  bool scan_astray_ = false;            // behind a damaged header
  std::atomic<std::uint64_t> claimed_;  // H6, in slabs
  // Slab number -> state, in two levels. Any thread asks whether there is one and adds what is
  // missing; a state's content, and its end, are for holders of central_.
  using StatePage = std::array<std::atomic<SlabState*>, base::kSlabsPerPage>;
  std::unique_ptr<std::array<std::atomic<StatePage*>, base::kSlabPages>> states_;
  std::unique_ptr<std::array<std::atomic<Magazines*>, kMaxThreads>> magazines_;
  std::unique_ptr<std::atomic<Surplus*>[]> surplus_;  // stacks, one for each class
  std::atomic<std::uint64_t> lost_{0};
  std::atomic<std::uint64_t> fail_after_{~std::uint64_t{0}};
};

}  // namespace everleaf::alloc
