#include "alloc/heap.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/thread_slot.hpp"

namespace everleaf::alloc {
namespace {

using pmem::kHeapAt;
using pmem::kSlabBytes;
using pmem::Offset;
using pmem::Word;

// Word 0 of a slab: kind (8 bits: class + 1; 0: free run, 255: large) | slabs << 8 | check << 32.
// The check binds the header to its place: what a block happens to hold, or a header that was
// damaged, is not taken for one.
constexpr Word kFreeRun = 0;
constexpr Word kLargeRun = 255;
constexpr Word kMostSlabs = pmem::kMaxPoolBytes / kSlabBytes;
static_assert(kMostSlabs <= (Word{1} << 24));
constexpr std::size_t kBitmapAt = 64;
constexpr std::size_t kLargeAt = kFirstBlockAt;  // of a large block, behind its header and its bit
constexpr std::uint64_t kFirstSlab = kHeapAt / kSlabBytes;
// Looked at before the heap grows instead, under the lock that others wait for: always the fewest
// slabs, each of which may be a page to read from a cold disk, and more while it takes no time.
constexpr std::uint64_t kFewestLooks = 64;
constexpr std::uint64_t kMostLooks = 4096;
constexpr std::uint64_t kLook_ns = 2'000'000;

Word make_header(Word kind, std::uint64_t slabs, std::uint64_t slab) {
  const Word body = kind | slabs << 8;
  Word mixed = (body + 0xE7AB) * 0x9E3779B97F4A7C15ULL ^ (slab + 1) * 0xC2B2AE3D27D4EB4FULL;
  mixed = (mixed ^ mixed >> 31) * 0xD6E8FEB86659FD93ULL;
  return body | mixed >> 32 << 32;
}

// Sizes, once for each Placement.
constexpr std::size_t kSizes = 36;
constexpr std::array kClasses = [] {
  std::array<std::uint32_t, 2 * kSizes> sizes{};
  std::size_t n = 0;
  for (std::uint32_t size = 16; size <= 128; size += 16) sizes[n++] = size;
  for (std::uint32_t power = 128; power < kLargestClassBytes; power *= 2) {
    for (std::uint32_t quarter = 1; quarter <= 4; ++quarter) {
      sizes[n++] = power + power / 4 * quarter;
    }
  }
  for (std::size_t i = 0; i < kSizes; ++i) sizes[kSizes + i] = sizes[i];
  return sizes;
}();
static_assert(kClasses.back() == kLargestClassBytes && kClasses.size() + 1 < kLargeRun);

std::size_t class_of(std::size_t bytes, Placement placement) {
  const auto sizes = std::span(kClasses).first(kSizes);
  const auto size =
      static_cast<std::size_t>(std::ranges::lower_bound(sizes, bytes) - sizes.begin());
  return placement == Placement::together ? kSizes + size : size;
}

// Blocks that a thread keeps for itself: enough to make the central lock rare, few enough that
// idle threads hold little.
std::size_t magazine_capacity(std::size_t size_class) {
  return kClasses[size_class] < 512 ? base::kMagazineBlocks : base::kMagazineBlocks / 4;
}

// Where the blocks of a class lie in a slab.
struct Geometry {
  std::uint64_t first;
  std::uint64_t count;
};

Geometry geometry(std::size_t size_class) {
  const std::uint64_t bytes = kClasses[size_class];
  const std::uint64_t bitmap_end = kBitmapAt + (kSlabBytes / bytes + 63) / 64 * 8;
  // Powers of two lie on their own size, so that a node never straddles a page.
  const std::uint64_t align = std::has_single_bit(bytes) && bytes >= 64 ? bytes : 64;
  const std::uint64_t first = (bitmap_end + align - 1) / align * align;
  return {first, (kSlabBytes - first) / bytes};
}

// One more fits without memory.
template <class T>
void make_room(std::vector<T>& list) {
  constexpr std::size_t kFew = 16;
  if (list.size() == list.capacity()) list.reserve(std::max(kFew, 2 * list.size()));
}

}  // namespace

struct Heap::Place {
  std::uint64_t slab = 0;
  std::uint64_t slabs = 1;  // of the run
  std::size_t size_class = 0;
  bool free_run = false;
  bool large = false;
  std::uint64_t bit = 0;
  std::size_t bytes = 0;
  Offset bitmap = 0;  // the word that holds the bit
};

struct Heap::SlabState {
  std::size_t size_class = 0;
  bool large = false;
  bool listed = false;  // in partial_
  std::uint64_t free = 0;
  Geometry shape{};
  std::vector<Word> free_bits;
};

struct Heap::Surplus {
  std::vector<Offset> blocks;
  Surplus* next = nullptr;
};

struct Heap::Magazines {
  std::array<std::vector<Offset>, kClasses.size()> of;
  std::vector<Offset> large;  // to be given back when this thread has central_
};

Heap::Heap(pmem::PoolFile& pool)
    : pool_(pool),
      medium_(pool.medium()),
      partial_(kClasses.size()),
      scan_next_(kFirstSlab),
      scan_end_(end_slab()),
      claimed_(scan_end_),
      states_(std::make_unique<std::array<std::atomic<StatePage*>, base::kSlabPages>>()),
      magazines_(std::make_unique<std::array<std::atomic<Magazines*>, kMaxThreads>>()),
      surplus_(std::make_unique<std::atomic<Surplus*>[]>(kClasses.size())) {
  if (pool.writable()) drop_early_header();
}

Heap::~Heap() {
  for (auto& magazines : *magazines_) delete magazines.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < kClasses.size(); ++i) {
    for (Surplus* one = surplus_of(i); one != nullptr;) delete std::exchange(one, one->next);
  }
  for (auto& cell : *states_) {
    StatePage* const page = cell.load(std::memory_order_acquire);
    if (page == nullptr) continue;
    for (auto& state : *page) delete state.load(std::memory_order_acquire);
    delete page;
  }
}

// H4: an earlier release made the header first, and may have been killed behind that. It would
// count as soon as the frontier has passed it. One with blocks in use is another matter: damage.
void Heap::drop_early_header() noexcept {
  if (!medium_.contains(scan_end_ * kSlabBytes, kSlabBytes)) return;
  Word* const words = medium_.at<Word>(scan_end_ * kSlabBytes);
  const Word header = pmem::load(words);
  const std::uint64_t slabs = header >> 8 & 0xFFFFFF;
  if (header == 0 || header != make_header(header & 0xFF, slabs, scan_end_)) return;
  constexpr std::size_t kBitmapWords = 512 / sizeof(Word);
  if (base::first_used(words + kBitmapAt / sizeof(Word), 1, kBitmapWords) != kBitmapWords) return;
  std::atomic_ref<Word>(*words).store(0, std::memory_order_release);
  // If this fails nothing more is handed out.
  // crash: flush stays: no program makes a pool of an earlier release
  // crash: fence stays: likewise
  (void)medium_.persist(words, sizeof(Word));
}

std::uint64_t Heap::frontier_slab() const {
  return pmem::load(&pool_.state().frontier) / kSlabBytes;
}

// Behind the last slab there is. Frontier and size only grow; a frontier behind the size is damage.
std::uint64_t Heap::end_slab() const {
  return std::min(frontier_slab(), medium_.size() / kSlabBytes);
}

// --- Slab states ---------------------------------------------------------------------------------

Heap::SlabState* Heap::state_of(std::uint64_t slab) const {
  const StatePage* const page =
      (*states_)[slab / base::kSlabsPerPage].load(std::memory_order_acquire);
  return page == nullptr ? nullptr
                         : (*page)[slab % base::kSlabsPerPage].load(std::memory_order_acquire);
}

// False: another thread was first, and its state stays.
bool Heap::publish(std::uint64_t slab, std::unique_ptr<SlabState> state) {
  auto& cell = (*states_)[slab / base::kSlabsPerPage];
  StatePage* page = cell.load(std::memory_order_acquire);
  if (page == nullptr) {
    auto made = std::make_unique<StatePage>();
    if (cell.compare_exchange_strong(page, made.get(), std::memory_order_acq_rel)) {
      page = made.release();
    }
  }
  SlabState* none = nullptr;
  // H5, release: release() may clear bits as soon as it sees this.
  if (!(*page)[slab % base::kSlabsPerPage].compare_exchange_strong(none, state.get(),
                                                                   std::memory_order_acq_rel)) {
    return false;
  }
  (void)state.release();
  return true;
}

// A state that calls every block taken: for a slab whose bitmap is not read now, or whose blocks
// all go to this thread.
std::unique_ptr<Heap::SlabState> Heap::taken_state(const Place& place) {
  auto state = std::make_unique<SlabState>();
  state->large = place.large;
  if (!place.large) {
    state->size_class = place.size_class;
    state->shape = geometry(place.size_class);
    state->free_bits.resize((state->shape.count + 63) / 64);
  }
  return state;
}

void Heap::forget(std::uint64_t slab) {
  SlabState* const state = state_of(slab);
  if (state == nullptr) return;
  unlist(slab, *state);
  (*(*states_)[slab / base::kSlabsPerPage].load(
      std::memory_order_relaxed))[slab % base::kSlabsPerPage]
      .store(nullptr, std::memory_order_release);
  delete state;
}

void Heap::unlist(std::uint64_t slab, SlabState& state) {
  if (!state.listed) return;
  state.listed = false;
  auto& list = partial_[state.size_class];
  list.erase(std::ranges::find(list.rbegin(), list.rend(), slab).base() - 1);
}

// Reads a slab's header into `place`; false if it is no header. Trusts nothing.
bool Heap::parse_header(std::uint64_t slab, Place& place) const {
  const std::uint64_t end = end_slab();
  if (slab < kFirstSlab || slab >= end) return false;
  const Word header = pmem::load(medium_.at<Word>(slab * kSlabBytes));
  const Word kind = header & 0xFF;
  const std::uint64_t slabs = header >> 8 & 0xFFFFFF;
  const bool run = kind == kFreeRun || kind == kLargeRun;
  place.slab = slab;
  place.slabs = slabs;
  place.free_run = kind == kFreeRun;
  place.large = kind == kLargeRun;
  if (header != make_header(kind, slabs, slab) || slabs == 0 || slabs > end - slab) return false;
  if (run) return true;
  place.size_class = kind - 1;
  return kind <= kClasses.size() && slabs == 1;
}

bool Heap::locate(Offset block, Place& place) const {
  if (!parse_header(block / kSlabBytes, place) || place.free_run) return false;
  const std::uint64_t start = place.slab * kSlabBytes;
  const std::uint64_t within = block - start;
  place.bit = 0;
  if (place.large) {
    if (within != kLargeAt) return false;
    place.bytes = place.slabs * kSlabBytes - kLargeAt;
  } else {
    const Geometry shape = geometry(place.size_class);
    place.bytes = kClasses[place.size_class];
    if (within < shape.first || (within - shape.first) % place.bytes != 0) return false;
    place.bit = (within - shape.first) / place.bytes;
    if (place.bit >= shape.count) return false;
  }
  place.bitmap = start + kBitmapAt + place.bit / 64 * sizeof(Word);
  return true;
}

// --- The fast path -------------------------------------------------------------------------------

bool Heap::injected_failure() noexcept {
  if (fail_after_.load(std::memory_order_relaxed) == ~std::uint64_t{0}) return false;
  std::uint64_t left = fail_after_.load(std::memory_order_relaxed);
  while (left != 0 && left != ~std::uint64_t{0}) {
    if (fail_after_.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return false;
  }
  return left == 0;
}

Heap::Magazines* Heap::magazines() {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return nullptr;
  auto& cell = (*magazines_)[slot];
  Magazines* mine = cell.load(std::memory_order_acquire);
  if (mine == nullptr) {
    mine = new Magazines;
    cell.store(mine, std::memory_order_release);
  }
  return mine;
}

Offset Heap::reserve(std::size_t bytes, Placement placement) {
  if (!pool_.writable() || medium_.failed() || injected_failure()) return 0;
  if (bytes > kLargestClassBytes) return reserve_large(bytes);
  Magazines* const mine = magazines();
  if (mine == nullptr) return 0;
  const std::size_t size_class = class_of(bytes, placement);
  auto& blocks = mine->of[size_class];
  if (blocks.empty() && !refill(*mine, size_class)) return 0;
  const Offset block = blocks.back();
  blocks.pop_back();
  return block;
}

void Heap::recycle(Offset block) noexcept {
  Place place;
  if (!locate(block, place)) return;  // a damaged pool: losing the block is the least harm
  try {
    if (Magazines* const mine = magazines()) {
      if (place.large) {
        mine->large.push_back(block);
        drain_large(*mine);
        return;
      }
      auto& blocks = mine->of[place.size_class];
      blocks.reserve(magazine_capacity(place.size_class));  // all, but those of a slab of its own
      if (blocks.size() >= magazine_capacity(place.size_class)) drain(*mine, place.size_class);
      blocks.push_back(block);
      return;
    }
  } catch (const std::bad_alloc&) {
    // No magazine.
  }
  if (!central_.lock()) {
    lost_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  const std::lock_guard guard(central_, std::adopt_lock);
  give_back(block);
}

bool Heap::refill(Magazines& mine, std::size_t size_class) {
  std::array<Offset, base::kMagazineBlocks / 2> batch;
  const std::size_t most = magazine_capacity(size_class) / 2;
  mine.of[size_class].reserve(magazine_capacity(size_class));  // before a block is taken
  if (!central_.lock()) {
    if (refill_beside(mine, size_class)) return true;
    // The pool is full, but for what the lock's holder has.
    if (medium_.failed() || !central_.lock_at_last()) return false;
  }
  const std::lock_guard guard(central_, std::adopt_lock);
  give_back_large(mine);
  for (Surplus* one = surplus_of(size_class); one != nullptr;) {
    for (const Offset block : one->blocks) give_back(block);
    delete std::exchange(one, one->next);
  }
  std::size_t got = take_from_slabs(size_class, batch.data(), most);
  if (got == 0 && find_slab(size_class)) got = take_from_slabs(size_class, batch.data(), most);
  // In falling order, so that blocks are handed out by rising address.
  for (std::size_t i = got; i-- > 0;) mine.of[size_class].push_back(batch[i]);
  return got != 0;
}

// Without central_: what others could not give back, or a slab for this thread alone. False: the
// pool is full.
bool Heap::refill_beside(Magazines& mine, std::size_t size_class) {
  const Geometry shape = geometry(size_class);
  auto& blocks = mine.of[size_class];
  if (Surplus* one = surplus_of(size_class); one != nullptr) {
    // Blocks of one are enough; its own vector needs no memory.
    blocks.swap(one->blocks);
    Surplus* others = one->next;
    delete one;
    while (others != nullptr) push(surplus_[size_class], *std::exchange(others, others->next));
    return true;
  }
  blocks.reserve(shape.count);
  auto state = taken_state({.size_class = size_class});  // before a slab is taken
  const std::uint64_t slab = claim(1);
  if (slab == 0 || !format(slab, size_class + 1, 1)) return false;
  (void)publish(slab, std::move(state));
  for (std::uint64_t bit = shape.count; bit-- > 0;) {
    blocks.push_back(slab * kSlabBytes + shape.first + bit * kClasses[size_class]);
  }
  return true;
}

void Heap::drain(Magazines& mine, std::size_t size_class) {
  auto& blocks = mine.of[size_class];
  // The older ones: what was freed last is likely still cached.
  const auto end = blocks.end() - static_cast<std::ptrdiff_t>(magazine_capacity(size_class) / 2);
  if (central_.lock()) {
    const std::lock_guard guard(central_, std::adopt_lock);
    for (auto block = blocks.begin(); block != end; ++block) give_back(*block);
  } else {
    push(surplus_[size_class], *new Surplus{{blocks.begin(), end}, nullptr});
  }
  blocks.erase(blocks.begin(), end);
}

Heap::Surplus* Heap::surplus_of(std::size_t size_class) noexcept {
  // Mostly there is none, and to look is cheaper than a locked exchange.
  if (surplus_[size_class].load(std::memory_order_relaxed) == nullptr) return nullptr;
  // Acquire: pairs with push().
  return surplus_[size_class].exchange(nullptr, std::memory_order_acquire);
}

void Heap::push(std::atomic<Surplus*>& stack, Surplus& one) noexcept {
  one.next = stack.load(std::memory_order_relaxed);
  while (!stack.compare_exchange_weak(one.next, &one, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

void Heap::drain_large(Magazines& mine) {
  if (mine.large.empty() || !central_.lock()) return;
  const std::lock_guard guard(central_, std::adopt_lock);
  give_back_large(mine);
}

Heap::Bit Heap::to_activate(Offset block) const {
  Place place;
  if (!locate(block, place)) return {};
  return {place.bitmap, Word{1} << (place.bit % 64)};
}

bool Heap::activate(Redo& record, Offset block) const {
  const Bit bit = to_activate(block);
  if (bit.mask != 0) record.set_bits(bit.word, bit.mask);
  return bit.mask != 0;
}

Heap::Bit Heap::to_release(Offset block) {
  Place place;
  if (!locate(block, place)) return {};
  const Word mask = Word{1} << (place.bit % 64);
  if ((pmem::load(medium_.at<Word>(place.bitmap)) & mask) == 0) return {};
  if (state_of(place.slab) == nullptr) {
    // H3: while the bit still stands, so that nobody adopts the slab and finds the block free.
    if (central_.lock()) {
      const std::lock_guard guard(central_, std::adopt_lock);
      if (state_of(place.slab) == nullptr) adopt(place.slab);
    } else {
      // What else is free in the slab is found after the next open.
      (void)publish(place.slab, taken_state(place));
    }
  }
  return {place.bitmap, mask};
}

bool Heap::release(Redo& record, Offset block) {
  const Bit bit = to_release(block);
  // Named twice, in a damaged pool: it would be given away twice.
  const bool twice = std::ranges::any_of(record.entries(), [&bit](const Redo::Entry& entry) {
    return entry.where == (bit.word | static_cast<Word>(Redo::Op::clear_bits)) &&
           (entry.value & bit.mask) != 0;
  });
  if (bit.mask == 0 || twice) return false;
  record.clear_bits(bit.word, bit.mask);
  return true;
}

std::size_t Heap::allocated_bytes(Offset block) const {
  Place place;
  if (!locate(block, place)) return 0;
  const Word word = pmem::load(medium_.at<Word>(place.bitmap));
  return (word >> (place.bit % 64) & 1) != 0 ? place.bytes : 0;
}

// --- Central: slabs and runs (central_ held)
// ------------------------------------------------------

std::size_t Heap::take_from_slabs(std::size_t size_class, Offset* out, std::size_t most) {
  std::size_t got = 0;
  auto& list = partial_[size_class];
  while (got < most && !list.empty()) {
    const std::uint64_t slab = list.back();
    SlabState& state = *state_of(slab);
    for (std::size_t word = 0; word < state.free_bits.size() && got < most; ++word) {
      Word& bits = state.free_bits[word];
      while (bits != 0 && got < most) {
        const auto bit = static_cast<std::uint64_t>(std::countr_zero(bits));
        bits &= bits - 1;
        --state.free;
        out[got++] =
            slab * kSlabBytes + state.shape.first + (word * 64 + bit) * kClasses[size_class];
      }
    }
    if (state.free == 0 || got < most) unlist(slab, state);  // nothing left in it
  }
  return got;
}

// Finds or makes a slab of the class with free blocks: a free run, a few slabs not looked at since
// the open, new space, and at last every slab not looked at.
bool Heap::find_slab(std::size_t size_class) {
  const auto enough = [&] { return !partial_[size_class].empty() || has_free_run(1); };
  if (!has_free_run(1)) scan_some(false, enough);
  if (!partial_[size_class].empty()) return true;
  auto state = taken_state({.size_class = size_class});  // before a slab is taken
  make_room(partial_[size_class]);
  std::uint64_t slab = has_free_run(1) ? take_free_run(1) : claim(1);
  if (slab == 0) {
    scan_some(true, enough);
    if (!partial_[size_class].empty()) return true;
    slab = take_free_run(1);
  }
  if (slab == 0 || !format(slab, size_class + 1, 1)) return false;
  skip_scanned(slab, 1);
  return publish_read(slab, std::move(state)) != nullptr;
}

// Looks at slabs that nobody has looked at since the open until there is enough: at all of them, or
// as long as others can wait.
template <class Enough>
bool Heap::scan_some(bool all, Enough enough) {
  const std::uint64_t started_ns = base::now_ns();
  for (std::uint64_t looks = 0; scan_next_ < scan_end_ && !enough(); ++looks) {
    if (!all && looks >= kFewestLooks &&
        (looks == kMostLooks || base::now_ns() - started_ns > kLook_ns)) {
      break;
    }
    const auto behind = std::ranges::upper_bound(free_runs_, std::pair{scan_next_, ~Word{0}});
    if (behind != free_runs_.begin()) {
      const auto& run = *std::prev(behind);
      if (scan_next_ < run.first + run.second) {
        scan_next_ = run.first + run.second;
        scan_astray_ = false;
        continue;
      }
    }
    Place place;
    const std::uint64_t slab = scan_next_;
    if (!parse_header(slab, place)) {
      // Of the last session; what lies behind damage may be the inside of a large block.
      if (!scan_astray_ && scan_end_ - slab <= kMaxThreads && unformatted(slab)) {
        put_free_run(slab, 1);
      } else {
        scan_astray_ = true;
        ++scan_next_;  // damaged: check() tells; the slab is never used
      }
      continue;
    }
    scan_astray_ = false;
    scan_next_ = slab + place.slabs;
    look_at(slab, place);
  }
  return enough();
}

void Heap::look_at(std::uint64_t slab, const Place& place) {
  if (!place.free_run) {
    if (state_of(slab) == nullptr) adopt(slab);
    return;
  }
  if (state_of(slab) == nullptr) put_free_run(slab, place.slabs);
}

void Heap::skip_scanned(std::uint64_t slab, std::uint64_t slabs) {
  // A run that covers the scan's next slab: what stands inside it is no header.
  if (slab <= scan_next_ && scan_next_ < slab + slabs) scan_next_ = slab + slabs;
}

// Takes a slab's durable bitmap into DRAM.
Heap::SlabState* Heap::adopt(std::uint64_t slab) {
  Place place;
  if (!parse_header(slab, place) || place.free_run) return nullptr;
  const Word* const bitmap = medium_.at<Word>(slab * kSlabBytes + kBitmapAt);
  auto made = taken_state(place);
  make_room(partial_[made->size_class]);
  make_room(free_runs_);
  if (place.large && (pmem::load(bitmap) & 1) == 0) {
    if (!publish(slab, std::move(made))) return state_of(slab);
    // Nobody has freed it before, so it is free for good.
    put_free_run(slab, place.slabs);
    return nullptr;
  }
  return publish_read(slab, std::move(made));
}

void Heap::read_bits(std::uint64_t slab, SlabState& state) const {
  std::uint64_t blocks = state.shape.count;
  const Word* from = medium_.at<Word>(slab * kSlabBytes + kBitmapAt);
  for (Word& bits : state.free_bits) {
    const Word mask = blocks >= 64 ? ~Word{0} : (Word{1} << blocks) - 1;
    bits = ~pmem::load(from++) & mask;
    state.free += static_cast<std::uint64_t>(std::popcount(bits));
    blocks -= std::min<std::uint64_t>(64, blocks);
  }
}

// There is room in partial_.
Heap::SlabState* Heap::publish_read(std::uint64_t slab, std::unique_ptr<SlabState> made) {
  SlabState& state = *made;
  read_bits(slab, state);
  // Nobody has freed a block of the slab before, so what the bits say is so for good.
  if (!publish(slab, std::move(made))) return state_of(slab);
  if (state.free != 0) {
    state.listed = true;
    partial_[state.size_class].push_back(slab);
  }
  return &state;
}

void Heap::give_back(Offset block) noexcept {
  Place place;
  if (!locate(block, place)) return;
  try {
    place.large ? put_free_run(place.slab, place.slabs) : give_back_small(place);
  } catch (const std::bad_alloc&) {
    lost_.fetch_add(1, std::memory_order_relaxed);
  }
}

void Heap::give_back_large(Magazines& mine) noexcept {
  for (const Offset block : mine.large) give_back(block);
  mine.large.clear();
}

// If it throws, the block waits for the next one of its slab.
void Heap::give_back_small(const Place& place) {
  SlabState* const state = state_of(place.slab);
  // H3 rules out the first; the rest happens only in a damaged pool, where the slab's header is no
  // longer that of its state, or one block is named twice.
  const Word mask = Word{1} << (place.bit % 64);
  if (state == nullptr || state->large || state->size_class != place.size_class ||
      (state->free_bits[place.bit / 64] & mask) != 0) {
    return;
  }
  state->free_bits[place.bit / 64] |= mask;
  ++state->free;
  auto& list = partial_[place.size_class];
  if (!state->listed) {
    list.push_back(place.slab);
    state->listed = true;
  }
  // A slab that is wholly free may serve another class; one is kept, or the class would bounce.
  if (state->free == state->shape.count && list.size() > 1) put_free_run(place.slab, 1);
}

// Whether a free run of these slabs would reach over slabs that somebody uses in this session, or
// another run. What nobody has looked at since the open is not known here.
bool Heap::meets_others(std::uint64_t slab, std::uint64_t slabs) const {
  const auto next = std::ranges::lower_bound(free_runs_, std::pair{slab, std::uint64_t{0}});
  if (next != free_runs_.end() && next->first < slab + slabs) return true;
  if (next != free_runs_.begin() && std::prev(next)->first + std::prev(next)->second > slab) {
    return true;
  }
  for (std::uint64_t i = 1; i < slabs; ++i) {  // the first one's is that of what becomes free
    if (state_of(slab + i) != nullptr) return true;
  }
  return false;
}

// The slabs become a free run, joined with its neighbours. One word commits it: the header of the
// lowest slab; headers inside a run are never read.
void Heap::put_free_run(std::uint64_t slab, std::uint64_t slabs) {
  make_room(free_runs_);  // may throw, before anything has happened
  if (meets_others(slab, slabs)) return skip_scanned(slab, 1);  // a forged length
  for (std::uint64_t i = 0; i < slabs; ++i) forget(slab + i);
  auto next = std::ranges::lower_bound(free_runs_, std::pair{slab, std::uint64_t{0}});
  if (next != free_runs_.end() && next->first == slab + slabs) {
    slabs += next->second;
    next = free_runs_.erase(next);
  }
  if (next != free_runs_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == slab) {
      slab = before->first;
      slabs += before->second;
      next = free_runs_.erase(before);
    }
  }
  free_runs_.insert(next, {slab, slabs});
  longest_run_ = std::max(longest_run_, slabs);
  skip_scanned(slab, slabs);
  const Word header = make_header(kFreeRun, slabs, slab);
  Word* const word = medium_.at<Word>(slab * kSlabBytes);
  if (pmem::load(word) == header) return;  // found by the scan: nothing to write
  std::atomic_ref<Word>(*word).store(header, std::memory_order_release);
  medium_.count_heap_written(sizeof(Word));
  // Before any slab of the run gets another use. If this fails, reserve() gives out nothing more.
  // crash: flush stays: each slab's old header says free, too; one run is one look after an open
  // crash: fence stays: as the flush
  (void)medium_.persist(word, sizeof(Word));
}

// After a run of the longest was cut: most often there is another one.
void Heap::find_longest_run() {
  std::uint64_t most = 0;
  for (const auto& [slab, slabs] : free_runs_) {
    most = std::max(most, slabs);
    if (most == longest_run_) return;
  }
  longest_run_ = most;
}

// Cuts `slabs` off the front of a free run; 0 if there is none so long or a write-back failed.
std::uint64_t Heap::take_free_run(std::uint64_t slabs) {
  if (!has_free_run(slabs)) return 0;
  const auto run =
      std::ranges::find_if(free_runs_, [slabs](const auto& r) { return r.second >= slabs; });
  const std::uint64_t slab = run->first;
  const bool whole = run->second == slabs;
  const bool longest = run->second == longest_run_;
  if (whole) {
    free_runs_.erase(run);
  } else {
    run->first += slabs;
    run->second -= slabs;
  }
  if (longest) find_longest_run();
  if (whole) return slab;
  Word* const rest = medium_.at<Word>(run->first * kSlabBytes);
  std::atomic_ref<Word>(*rest).store(make_header(kFreeRun, run->second, run->first),
                                     std::memory_order_release);
  medium_.count_heap_written(sizeof(Word));
  // The rest is a run of its own before the front shrinks.
  // crash: fence stays: format() fences before the front's new header, but need not know of this
  return medium_.persist(rest, sizeof(Word)) ? slab : 0;
}

// --- Without central_ ----------------------------------------------------------------------------

// New slabs at the frontier, which format() moves; 0: no space.
std::uint64_t Heap::claim(std::uint64_t slabs) {
  std::uint64_t slab = claimed_.load(std::memory_order_relaxed);
  do {
    if (!pool_.grow((slab + slabs) * kSlabBytes)) return 0;
  } while (!claimed_.compare_exchange_weak(slab, slab + slabs, std::memory_order_relaxed));
  return slab;
}

// A slab of the caller alone. False: a write-back failed.
bool Heap::format(std::uint64_t slab, Word kind, std::uint64_t slabs) {
  auto* const words = medium_.at<Word>(slab * kSlabBytes);
  // The bitmap first: the slab may have held anything. The longest bitmap is 512 bytes.
  for (std::size_t i = 1; i < (kBitmapAt + 512) / sizeof(Word); ++i) {
    std::atomic_ref<Word>(words[i]).store(0, std::memory_order_relaxed);
  }
  medium_.count_heap_written(kBitmapAt + 512);
  medium_.flush(words, kBitmapAt + 512);
  // H4: slabs of other threads may lie below it, not formatted yet.
  Word* const frontier = &pool_.state().frontier;
  const Word end = (slab + slabs) * kSlabBytes;
  Word now = pmem::load(frontier);
  while (now < end && !std::atomic_ref<Word>(*frontier).compare_exchange_weak(
                          now, end, std::memory_order_acq_rel)) {
  }
  if (slab + slabs > scan_end_) {
    medium_.count_heap_written(sizeof(Word));
    // Whoever moved it: that thread may not have flushed it yet.
    medium_.flush(frontier, sizeof(Word));
  }
  // All blocks are free before the header gives a class.
  if (!medium_.fence()) return false;
  std::atomic_ref<Word>(words[0]).store(make_header(kind, slabs, slab), std::memory_order_release);
  return medium_.persist(words, sizeof(Word));
}

// Claimed before a crash, and no more: a header alone may have been lost by damage, and what lies
// behind it be worth a repair.
bool Heap::unformatted(std::uint64_t slab) const {
  constexpr std::size_t kWords = kSlabBytes / sizeof(Word);
  return base::first_used(medium_.at<Word>(slab * kSlabBytes), 1, kWords) == kWords;
}

Offset Heap::reserve_large(std::size_t bytes) {
  const std::uint64_t slabs = (bytes + kLargeAt + kSlabBytes - 1) / kSlabBytes;
  auto state = taken_state({.large = true});  // before a slab is taken
  const auto formatted = [&](std::uint64_t slab) -> Offset {
    if (slab == 0 || !format(slab, kLargeRun, slabs)) return 0;
    (void)publish(slab, std::move(state));
    return slab * kSlabBytes + kLargeAt;
  };
  Magazines* const mine = magazines();
  if (!central_.lock()) {
    if (const std::uint64_t slab = claim(slabs); slab != 0) return formatted(slab);
    if (medium_.failed() || !central_.lock_at_last()) return 0;
  }
  const std::lock_guard guard(central_, std::adopt_lock);
  if (mine != nullptr) give_back_large(*mine);
  const auto enough = [&] { return has_free_run(slabs); };
  std::uint64_t slab = scan_some(false, enough) ? take_free_run(slabs) : claim(slabs);
  if (slab == 0 && scan_some(true, enough)) slab = take_free_run(slabs);
  if (slab != 0) skip_scanned(slab, slabs);
  return formatted(slab);
}

void Heap::for_each_allocated(const std::function<void(Offset, std::size_t)>& visit,
                              std::vector<std::string>* problems) const {
  const std::uint64_t end = end_slab();
  if (problems != nullptr && frontier_slab() > medium_.size() / kSlabBytes) {
    problems->push_back("the heap's frontier lies behind the end of the pool");
  }
  for (std::uint64_t slab = kFirstSlab; slab < end;) {
    Place place;
    if (!parse_header(slab, place)) {
      if (problems != nullptr && !unformatted(slab)) {
        problems->push_back("slab at offset " + std::to_string(slab * kSlabBytes) +
                            " has an impossible header");
      }
      ++slab;
      continue;
    }
    const std::uint64_t start = slab * kSlabBytes;
    const Word* const bitmap = medium_.at<Word>(start + kBitmapAt);
    if (place.large) {
      if ((pmem::load(bitmap) & 1) != 0) {
        visit(start + kLargeAt, place.slabs * kSlabBytes - kLargeAt);
      }
    } else if (!place.free_run) {
      const Geometry shape = geometry(place.size_class);
      const std::size_t bytes = kClasses[place.size_class];
      for (std::uint64_t first = 0; first < shape.count; first += 64) {
        for (Word bits = pmem::load(bitmap + first / 64); bits != 0; bits &= bits - 1) {
          const std::uint64_t bit = first + static_cast<std::uint64_t>(std::countr_zero(bits));
          if (bit < shape.count) visit(start + shape.first + bit * bytes, bytes);
        }
      }
    }
    slab += place.slabs;
  }
}

}  // namespace everleaf::alloc
