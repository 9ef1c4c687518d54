#include "epoch/space.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace everleaf::epoch {
namespace {

using pmem::Offset;

constexpr std::size_t kNone = ~std::size_t{0};

// Multiples of 16 up to 128, then quarters of powers of two, as long as two blocks fit a chunk.
constexpr auto kClasses = [] {
  std::array<std::uint32_t, 48> classes{};
  std::size_t n = 0;
  for (std::uint32_t bytes = 16; bytes <= 128; bytes += 16) classes[n++] = bytes;
  for (std::uint32_t power = 128; power < 8192; power *= 2) {
    for (std::uint32_t i = 1; i <= 4; ++i) {
      const std::uint32_t bytes = power + i * power / 4;
      if (2 * bytes <= kChunkBytes) classes[n++] = bytes;
    }
  }
  return classes;
}();
constexpr std::size_t kClassCount = [] {
  std::size_t n = 0;
  while (n < kClasses.size() && kClasses[n] != 0) ++n;
  return n;
}();

std::size_t class_of(std::size_t bytes) {
  if (bytes <= 128) return bytes == 0 ? 0 : (bytes - 1) / 16;  // key records, mostly
  const auto end = kClasses.begin() + kClassCount;
  const auto at = std::lower_bound(kClasses.begin(), end, bytes);
  return at == end ? kNone : static_cast<std::size_t>(at - kClasses.begin());
}

std::size_t chunks_for(std::size_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

std::uint32_t blocks_of_class(std::size_t size_class) {
  return static_cast<std::uint32_t>(kChunkBytes / kClasses[size_class]);
}

std::size_t bit_words(std::size_t size_class) {
  return (blocks_of_class(size_class) + 63) / 64;
}

}  // namespace

Space::Space(pmem::Medium& medium, alloc::Heap& heap, alloc::RedoLog& redo, Offset table,
             std::size_t entries)
    : medium_(medium),
      heap_(heap),
      redo_(redo),
      table_(table),
      entries_(entries),
      partial_(kClassCount),
      magazines_(std::make_unique<std::array<std::atomic<Magazine*>, kMaxThreads>>()) {}

Space::~Space() {
  for (const auto& one : *magazines_) delete one.load(std::memory_order_relaxed);
}

// Of this thread; nullptr: it has none.
Space::Magazine* Space::magazine() noexcept {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return nullptr;
  std::atomic<Magazine*>& place = (*magazines_)[slot];
  if (place.load(std::memory_order_acquire) == nullptr) {
    place.store(new (std::nothrow) Magazine, std::memory_order_release);  // its thread alone
  }
  return place.load(std::memory_order_relaxed);
}

// Under its lock.
template <class F>
void Space::for_each_magazine(F&& visit) const {
  const unsigned limit = base::slot_limit();
  for (unsigned slot = 0; slot < limit; ++slot) {
    Magazine* const one = (*magazines_)[slot].load(std::memory_order_acquire);
    if (one == nullptr) continue;
    const base::MutexGuard guard(one->mutex);
    visit(*one);
  }
}

// Whether there was anything in them.
bool Space::empty_magazines() noexcept {
  bool any = false;
  for_each_magazine([this, &any](Magazine& one) {
    any = any || one.freed_count != 0;
    free_all(one);
    const base::MutexGuard guard(mutex_);
    for (std::size_t size_class = 0; size_class < kMagazineClasses; ++size_class) {
      Some& some = one.of[size_class];
      for (; some.blocks != 0; some.blocks &= some.blocks - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(some.blocks));
        free_locked(some.first + i * kClasses[size_class]);
        any = true;
      }
    }
  });
  return any;
}

std::vector<Space::Run> Space::runs() const {
  const base::MutexGuard guard(mutex_);
  return runs_;
}

// Memory for one more extent, before it is durable.
void Space::make_room(std::uint64_t bytes) {
  const base::MutexGuard guard(mutex_);
  runs_.reserve(runs_.size() + 1);
  chunks_.reserve(chunks_.size() + bytes / kChunkBytes);
  // Each chunk is in it at most once, so queue() never needs memory.
  free_chunks_.reserve(chunks_.size() + bytes / kChunkBytes);
}

void Space::add_run(Offset at, std::uint64_t bytes) {
  Run run{at, bytes, first_block(at), chunks_.size(), 0};
  run.chunks = (at + bytes - run.first) / kChunkBytes;
  runs_.insert(std::ranges::upper_bound(runs_, at, {}, &Run::at), run);
  chunks_.resize(run.chunk + run.chunks);
  for (std::size_t i = run.chunks; i-- > 0;) {
    chunks_[run.chunk + i].at = run.first + i * kChunkBytes;
    queue(run.chunk + i);
  }
}

void Space::queue(std::size_t chunk) {
  if (chunks_[chunk].queued) return;
  free_chunks_.push_back(static_cast<std::uint32_t>(chunk));
  chunks_[chunk].queued = true;
}

Outcome Space::open() {
  for_each_magazine([](Magazine& one) {
    one.of.fill({});
    one.freed_count = 0;
  });
  const base::MutexGuard guard(mutex_);
  runs_.clear();
  chunks_.clear();
  free_chunks_.clear();
  for (auto& partial : partial_) partial.clear();
  in_use_ = 0;
  const auto* entry = medium_.at<Extent>(table_);
  for (const auto* const end = entry + entries_; entry != end; ++entry) {
    const std::uint64_t at = pmem::load(&entry->at);
    if (at == 0) break;  // extents are never given back: the first free entry is the end
    const std::uint64_t bytes = pmem::load(&entry->bytes);
    if (bytes < kFirstExtentBytes || bytes > heap_.allocated_bytes(at)) return Outcome::corrupt;
    // Nor twice the same, nor one within another, which slab headers that damage made may say.
    const auto shares = [&](const Run& run) {
      return at < run.at + run.bytes && run.at < at + bytes;
    };
    if (std::ranges::any_of(runs_, shares)) return Outcome::corrupt;
    add_run(at, bytes);
  }
  return runs_.empty() ? Outcome::corrupt : Outcome::done;
}

bool Space::table_is_whole() const {
  const base::MutexGuard growing(growing_);
  constexpr std::size_t kWords = sizeof(Extent) / sizeof(pmem::Word);
  const std::size_t behind = (entries_ - runs().size()) * kWords;
  const auto* const words = medium_.at<pmem::Word>(table_) + entries_ * kWords - behind;
  return base::first_used(words, 1, behind) == behind;
}

bool Space::find(Offset at, Found& found) const {
  auto run = std::ranges::upper_bound(runs_, at, {}, &Run::first);
  if (run == runs_.begin()) return false;
  --run;
  const std::uint64_t inside = at - run->first;
  if (inside >= run->chunks * kChunkBytes) return false;
  found = {run->chunk + inside / kChunkBytes, inside % kChunkBytes};
  return true;
}

void Space::format(std::size_t chunk, std::uint8_t size_class) {
  Chunk& c = chunks_[chunk];
  const std::size_t words = bit_words(size_class);
  c.bits = std::make_unique<std::uint64_t[]>(words);
  c.size_class = size_class;
  c.used = 0;
  // Bits that are no blocks are taken.
  if (const std::uint32_t rest = blocks_of_class(size_class) % 64; rest != 0) {
    c.bits[words - 1] = ~std::uint64_t{0} << rest;
  }
}

void Space::list(std::size_t chunk) {
  Chunk& c = chunks_[chunk];
  if (c.listed || c.used == blocks_of_class(c.size_class)) return;
  partial_[c.size_class].push_back(static_cast<std::uint32_t>(chunk));
  c.listed = true;
}

// Whether n chunks from `at` on are free; `first` is the first.
bool Space::free_run(Offset at, std::size_t n, Found& first) const {
  Found last{};
  if (n == 0 || n > chunks_.size() || !find(at, first) || first.offset != 0 ||
      !find(at + n * kChunkBytes - 1, last) || last.chunk != first.chunk + n - 1) {
    return false;
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (chunks_[first.chunk + i].size_class != kFree) return false;
  }
  return true;
}

// Makes one block of them.
void Space::take_run(std::size_t first, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) chunks_[first + i].size_class = kTail;
  chunks_[first].size_class = kHead;
  chunks_[first].used = static_cast<std::uint32_t>(n);
  ++in_use_;
}

bool Space::claim(Offset at, std::size_t bytes) {
  const base::MutexGuard guard(mutex_);
  Found found{};
  const std::size_t size_class = class_of(bytes);
  if (size_class == kNone) {
    const std::size_t n = chunks_for(bytes);
    if (!free_run(at, n, found)) return false;
    take_run(found.chunk, n);
    return true;
  }
  if (!find(at, found)) return false;
  Chunk& c = chunks_[found.chunk];
  const std::size_t block = found.offset / kClasses[size_class];
  if (found.offset % kClasses[size_class] != 0 || block >= blocks_of_class(size_class))
    return false;
  if (c.size_class == kFree) format(found.chunk, static_cast<std::uint8_t>(size_class));
  if (c.size_class != size_class) return false;
  const std::uint64_t bit = std::uint64_t{1} << block % 64;
  if ((c.bits[block / 64] & bit) != 0) return false;
  c.bits[block / 64] |= bit;
  ++c.used;
  ++in_use_;
  list(found.chunk);
  return true;
}

bool Space::claim_all(std::size_t chunk, std::size_t bytes, std::uint64_t blocks) {
  const base::MutexGuard guard(mutex_);
  Chunk& c = chunks_[chunk];
  if (c.size_class != kFree) return false;
  format(chunk, static_cast<std::uint8_t>(class_of(bytes)));
  c.bits[0] |= blocks;
  c.used = static_cast<std::uint32_t>(std::popcount(blocks));
  in_use_ += c.used;
  list(chunk);
  return true;
}

std::size_t Space::blocks_of(std::size_t bytes) {
  return blocks_of_class(class_of(bytes));
}

bool Space::place_of(Offset at, std::size_t bytes, Place& place) const {
  Found found{};
  if (!find(at, found)) return false;
  const auto shift = static_cast<unsigned>(std::countr_zero(bytes));
  place = {found.chunk, found.offset >> shift};
  return place.block << shift == found.offset && place.block < kChunkBytes >> shift;
}

bool Space::in_use(Offset at, std::size_t bytes) const {
  const base::MutexGuard guard(mutex_);
  Found found{};
  if (!find(at, found)) return false;
  const Chunk& c = chunks_[found.chunk];
  const std::size_t size_class = class_of(bytes);
  if (size_class == kNone) {
    return found.offset == 0 && c.size_class == kHead && c.used == chunks_for(bytes);
  }
  return c.size_class == size_class && block_in_use(c, found.offset);
}

// Of a chunk that has a class: whether a block begins there and is in use.
bool Space::block_in_use(const Chunk& c, std::size_t offset) {
  const std::size_t block = offset / kClasses[c.size_class];
  return offset % kClasses[c.size_class] == 0 && block < blocks_of_class(c.size_class) &&
         (c.bits[block / 64] >> block % 64 & 1) != 0;
}

// Offsets of chunks have their low eight bits for the class: they are multiples of kBlockAlign.
std::vector<pmem::Word> Space::save(std::vector<Offset> known) {
  (void)empty_magazines();
  const base::MutexGuard guard(mutex_);
  std::ranges::sort(known);
  auto next = known.begin();
  std::vector<pmem::Word> saved;
  for (const Run& run : runs_) {
    for (std::size_t i = 0; i < run.chunks; ++i) {
      const Chunk& c = chunks_[run.chunk + i];
      if (c.size_class == kHead) {
        saved.insert(saved.end(), {c.at | c.size_class, c.used});
        continue;
      }
      if (c.size_class >= kClassCount) continue;
      const std::size_t words = bit_words(c.size_class);
      const std::size_t begin = saved.size();
      saved.push_back(c.at | c.size_class);
      saved.insert(saved.end(), c.bits.get(), c.bits.get() + words);
      std::uint32_t left = c.used;
      while (next != known.end() && *next < c.at) ++next;
      for (; next != known.end() && *next < c.at + kChunkBytes; ++next, --left) {
        const std::size_t block = (*next - c.at) / kClasses[c.size_class];
        saved[begin + 1 + block / 64] &= ~(pmem::Word{1} << block % 64);
      }
      if (left == 0) saved.resize(begin);
    }
  }
  return saved;
}

bool Space::load(std::span<const pmem::Word> saved) {
  const base::MutexGuard guard(mutex_);
  while (!saved.empty()) {
    std::size_t used = 0;
    if (!load_chunk(saved, used)) return false;
    saved = saved.subspan(used);
  }
  return true;
}

// The first chunk of what is saved; `used`: its words.
bool Space::load_chunk(std::span<const pmem::Word> saved, std::size_t& used) {
  const auto size_class = static_cast<std::uint8_t>(saved[0]);
  const Offset at = saved[0] - size_class;
  Found found{};
  if (size_class == kHead) {
    used = 2;
    if (saved.size() < used || !free_run(at, saved[1], found)) return false;
    take_run(found.chunk, saved[1]);
    return true;
  }
  if (size_class >= kClassCount || !free_run(at, 1, found)) return false;
  used = 1 + bit_words(size_class);
  if (saved.size() < used) return false;
  format(found.chunk, size_class);
  Chunk& c = chunks_[found.chunk];
  std::uint32_t set = 0;
  for (std::size_t i = 0; i + 1 < used; ++i) {
    if ((c.bits[i] & ~saved[i + 1]) != 0) return false;  // no blocks, and yet not taken
    set += static_cast<std::uint32_t>(std::popcount(saved[i + 1] & ~c.bits[i]));
    c.bits[i] = saved[i + 1];
  }
  c.used = set;
  in_use_ += set;
  list(found.chunk);
  return set != 0;
}

// The first of n free chunks in a row, marked as one block; kNone: there are none.
std::size_t Space::take_chunks(std::size_t n) {
  for (const Run& run : runs_) {
    std::size_t free = 0;
    for (std::size_t i = 0; i < run.chunks; ++i) {
      free = chunks_[run.chunk + i].size_class == kFree ? free + 1 : 0;
      if (free < n) continue;
      const std::size_t first = run.chunk + i + 1 - n;
      take_run(first, n);
      return first;
    }
  }
  return kNone;
}

// 0: none.
Offset Space::first_free(const Chunk& c) const {
  if (c.used == blocks_of_class(c.size_class)) return 0;
  std::size_t word = 0;
  while (c.bits[word] == ~std::uint64_t{0}) ++word;
  const auto bit = static_cast<std::size_t>(std::countr_one(c.bits[word]));
  return c.at + (word * 64 + bit) * kClasses[c.size_class];
}

Offset Space::reserve(std::size_t bytes, Offset* next) {
  const Offset at = reserve_once(bytes, next);
  return at == 0 && empty_magazines() ? reserve_once(bytes, next) : at;
}

Offset Space::reserve_once(std::size_t bytes, Offset* next) {
  if (next != nullptr) *next = 0;
  const std::size_t size_class = class_of(bytes);
  if (Magazine* const mine = size_class < kMagazineClasses ? magazine() : nullptr) {
    const base::MutexGuard magazine_guard(mine->mutex);
    Some& some = mine->of[size_class];
    if (some.blocks == 0) {
      const base::MutexGuard guard(mutex_);
      const std::size_t chunk = find_chunk(size_class);
      if (chunk == kNone) return 0;
      some = take(chunk, base::kMagazineBlocks);
    }
    const auto i = static_cast<std::size_t>(std::countr_zero(some.blocks));
    some.blocks &= some.blocks - 1;
    return some.first + i * kClasses[size_class];
  }
  const base::MutexGuard guard(mutex_);
  if (size_class == kNone) {
    const std::size_t chunk = take_chunks(chunks_for(bytes));
    return chunk == kNone ? 0 : chunks_[chunk].at;
  }
  const std::size_t chunk = find_chunk(size_class);
  if (chunk == kNone) return 0;
  const Some one = take(chunk, 1);
  const auto& partial = partial_[size_class];
  if (next != nullptr && !partial.empty()) *next = first_free(chunks_[partial.back()]);
  return one.first + static_cast<std::size_t>(std::countr_zero(one.blocks)) * kClasses[size_class];
}

// One that has a free block of the class, the last one of its list; kNone: there is none.
std::size_t Space::find_chunk(std::size_t size_class) {
  auto& partial = partial_[size_class];
  // Claims may have filled them.
  while (!partial.empty() && chunks_[partial.back()].used == blocks_of_class(size_class)) {
    chunks_[partial.back()].listed = false;
    partial.pop_back();
  }
  if (partial.empty()) {
    std::uint32_t chunk = 0;
    do {
      if (free_chunks_.empty()) return kNone;
      chunk = free_chunks_.back();
      free_chunks_.pop_back();
      chunks_[chunk].queued = false;
    } while (chunks_[chunk].size_class != kFree);
    format(chunk, static_cast<std::uint8_t>(size_class));
    list(chunk);
  }
  return partial.back();
}

// Free blocks of its first word that has any; find_chunk() found it.
Space::Some Space::take(std::size_t chunk, std::size_t most) {
  Chunk& c = chunks_[chunk];
  std::size_t word = 0;
  while (c.bits[word] == ~std::uint64_t{0}) ++word;
  std::uint64_t left = ~c.bits[word];
  Some some{c.at + word * 64 * kClasses[c.size_class], 0};
  for (std::size_t n = 0; n < most && left != 0; ++n, left &= left - 1) {
    some.blocks |= left & -left;
  }
  c.bits[word] |= some.blocks;
  const auto taken = static_cast<std::uint32_t>(std::popcount(some.blocks));
  in_use_ += taken;
  c.used += taken;
  if (c.used == blocks_of_class(c.size_class)) {
    partial_[c.size_class].pop_back();
    c.listed = false;
  }
  return some;
}

void Space::release_chunk(std::size_t chunk) {
  chunks_[chunk].size_class = kFree;
  chunks_[chunk].used = 0;
  chunks_[chunk].bits.reset();
  queue(chunk);
}

// Many at once: mutex_ is taken once for them.
void Space::free(Offset at) noexcept {
  if (Magazine* const mine = magazine()) {
    const base::MutexGuard magazine_guard(mine->mutex);
    mine->freed[mine->freed_count++] = at;
    if (mine->freed_count == mine->freed.size()) free_all(*mine);
    return;
  }
  const base::MutexGuard guard(mutex_);
  free_locked(at);
}

// Its lock is held.
void Space::free_all(Magazine& of) noexcept {
  const base::MutexGuard guard(mutex_);
  for (const Offset at : std::span(of.freed).first(of.freed_count)) free_locked(at);
  of.freed_count = 0;
}

void Space::free_locked(Offset at) noexcept {
  Found found{};
  if (!is_block(at, found)) return;
  try {
    give_back(found);
  } catch (const std::bad_alloc&) {
    // Its chunk is on no list: it is found again at the next open.
  }
}

// Whether a block that is in use begins there.
bool Space::is_block(Offset at, Found& found) const {
  if (!find(at, found)) return false;
  const Chunk& c = chunks_[found.chunk];
  if (c.size_class == kHead) return found.offset == 0;
  return c.size_class < kClassCount && block_in_use(c, found.offset);
}

void Space::give_back(Found found) {
  Chunk& c = chunks_[found.chunk];
  --in_use_;
  if (c.size_class == kHead) {
    for (std::size_t n = c.used; n-- > 0;) release_chunk(found.chunk + n);
    return;
  }
  const std::size_t block = found.offset / kClasses[c.size_class];
  c.bits[block / 64] &= ~(std::uint64_t{1} << block % 64);
  --c.used;
  if (c.used == 0 && c.listed) {
    // An empty chunk serves any class again.
    std::erase(partial_[c.size_class], static_cast<std::uint32_t>(found.chunk));
    c.listed = false;
    release_chunk(found.chunk);
    return;
  }
  list(found.chunk);
}

namespace {

// Few extents, and never much too large. Of what is more than kSoon the caller waits for the rest,
// since pools grow ahead by little more (pmem/pool_file.hpp). So steps of an eighth end there, and
// those of an eighteenth take over where they are larger: 230 extents make a tebibyte.
std::uint64_t step_at(std::uint64_t total) {
  constexpr std::uint64_t kSoon = std::uint64_t{16} << 20;
  return std::max(std::min(total / 8, kSoon), total / 18);
}

}  // namespace

Outcome Space::grow(std::size_t bytes) {
  const base::MutexGuard growing(growing_);
  std::uint64_t total = 0;
  std::size_t count = 0;
  for (const Run& run : runs()) {
    total += run.bytes;
    ++count;
  }
  if (count == entries_) return Outcome::out_of_space;
  Extent* entry = medium_.at<Extent>(table_);
  Extent* const end = entry + entries_;
  while (entry != end && pmem::load(&entry->at) != 0) ++entry;
  if (entry == end) return Outcome::corrupt;
  const std::uint64_t least = chunks_for(bytes) * kChunkBytes + kBlockAlign;
  const std::uint64_t wanted = std::max<std::uint64_t>(least, step_at(total));
  for (const std::uint64_t ask : {wanted, least}) {
    // As much as the heap's block has.
    constexpr std::uint64_t kSlab = pmem::kSlabBytes;
    const std::uint64_t size =
        ask <= kFirstExtentBytes
            ? kFirstExtentBytes
            : (ask + alloc::kFirstBlockAt + kSlab - 1) / kSlab * kSlab - alloc::kFirstBlockAt;
    make_room(size);
    const Offset block = heap_.reserve(size);
    if (block == 0) continue;
    alloc::Redo record;
    if (!heap_.activate(record, block)) return Outcome::corrupt;
    record.store(medium_.offset_of(&entry->at), block);
    record.store(medium_.offset_of(&entry->bytes), size);
    const Outcome outcome = redo_.commit(record);
    if (outcome == Outcome::done) {
      const base::MutexGuard guard(mutex_);
      add_run(block, size);
    } else if (outcome != Outcome::io_error) {
      heap_.recycle(block);
    }
    return outcome;
  }
  return medium_.failed() ? Outcome::io_error : Outcome::out_of_space;
}

std::uint64_t Space::bytes_owned() const {
  std::uint64_t total = 0;
  for (const Run& run : runs()) total += run.bytes;
  return total;
}

Space::Use Space::in_use() const {
  Use kept;
  for_each_magazine([this, &kept](const Magazine& one) {
    const base::MutexGuard guard(mutex_);
    for (const Offset at : std::span(one.freed).first(one.freed_count)) {
      Found found{};
      if (!is_block(at, found)) continue;
      const Chunk& c = chunks_[found.chunk];
      ++kept.blocks;
      kept.bytes += c.size_class == kHead ? c.used * kChunkBytes : kClasses[c.size_class];
    }
    for (std::size_t size_class = 0; size_class < kMagazineClasses; ++size_class) {
      const auto n = static_cast<std::uint64_t>(std::popcount(one.of[size_class].blocks));
      kept.blocks += n;
      kept.bytes += n * kClasses[size_class];
    }
  });
  const base::MutexGuard guard(mutex_);
  Use use{in_use_, 0};
  for (const Chunk& c : chunks_) {
    if (c.size_class == kHead) use.bytes += c.used * kChunkBytes;
    if (c.size_class < kClassCount) use.bytes += std::uint64_t{c.used} * kClasses[c.size_class];
  }
  use.blocks -= std::min(use.blocks, kept.blocks);  // what others do meanwhile is not counted
  use.bytes -= std::min(use.bytes, kept.bytes);
  return use;
}

std::uint64_t Space::dram_bytes() const {
  std::uint64_t magazines = sizeof *magazines_;
  for_each_magazine([&magazines](const Magazine&) { magazines += sizeof(Magazine); });
  const base::MutexGuard guard(mutex_);
  std::uint64_t total = magazines + chunks_.capacity() * sizeof(Chunk);
  total += free_chunks_.capacity() * sizeof(free_chunks_[0]);
  for (const auto& partial : partial_) total += partial.capacity() * sizeof(partial[0]);
  for (const Chunk& c : chunks_) {
    if (c.bits) total += bit_words(c.size_class) * 8;
  }
  return total;
}

}  // namespace everleaf::epoch
