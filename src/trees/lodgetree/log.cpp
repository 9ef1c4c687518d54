#include "trees/lodgetree/log.hpp"

#include <algorithm>
#include <bit>

#include "pmem/prefetch.hpp"
#include "trees/keys.hpp"

namespace everleaf::tree::lodgetree {
namespace {

constexpr std::size_t kWordBits = 64;
// Records of a chunk that are called late are half as many, or fewer.
constexpr std::size_t kMostLate = 64;

}  // namespace

Log::Log(pmem::Medium& medium, std::size_t chunk_bytes, std::size_t most_chunks,
         std::size_t partitions)
    : medium_(medium),
      records_(chunk_bytes / sizeof(Record)),
      late_every_(std::bit_floor(std::max<std::size_t>(1, records_ / kMostLate))),
      most_(most_chunks),
      count_(partitions),
      partitions_(std::make_unique<Partition[]>(partitions)),
      chunks_(std::make_unique<std::array<std::atomic<Chunk*>, kMaxChunks>>()),
      deferred_(std::make_unique<std::atomic<Deferred*>[]>(kMaxThreads)) {
  // Neither frees a chunk nor closes one may need memory.
  free_.reserve(most_chunks);  // all memory is taken before records are
  closed_.reserve(most_chunks);
}

Log::~Log() {
  for (const auto& chunk : std::span(*chunks_).first(chunk_count_)) {
    delete chunk.load(std::memory_order_relaxed);
  }
  for (const auto& one : std::span(deferred_.get(), kMaxThreads)) {
    delete one.load(std::memory_order_relaxed);
  }
}

void Log::open(std::span<const Offset> chunks) {
  for (const Offset at : chunks) {
    const std::size_t words = (records_ + kWordBits - 1) / kWordBits;
    auto chunk = std::make_unique<Chunk>(at, words);
    for (std::size_t i = 0; i < words; ++i) chunk->dead_bits[i] = ~std::uint64_t{0};
    chunk->dead = static_cast<std::uint32_t>(records_);
    (*chunks_)[chunk_count_++] = chunk.release();
  }
}

void Log::adopt(Ref ref) {
  Chunk& chunk = *(*chunks_)[(ref - 1) / records_].load(std::memory_order_relaxed);
  const std::size_t index = (ref - 1) % records_;
  chunk.dead_bits[index / kWordBits] &= ~(std::uint64_t{1} << index % kWordBits);
  --chunk.dead;
}

void Log::opened() {
  const base::MutexGuard guard(mutex_);
  for (std::size_t i = 0; i < chunk_count_; ++i) {
    if (is_free(i)) {
      free_.push_back(i);
    } else {
      closed_.push_back(i);
    }
  }
}

Word Log::sum_of(const Record& record, Offset at, std::uint64_t key_hash) {
  return XXH3_64bits_withSeed(&record, offsetof(Record, sum), at ^ key_hash);
}

// Without space for a chunk of their own, threads share another partition's.
Ref Log::begin(unsigned slot, Partition*& of) {
  for (std::size_t i = 0; i < count_; ++i) {
    bool none = false;
    of = &partitions_[(slot + i) % count_];
    const Ref ref = begin_in(*of, none);
    if (ref != 0) return ref;
    // room() closes it, or is the first to take one. Relaxed, a hint: who does not see another's
    // chunk takes one of its own.
    if (i == 0 && (!none || with_chunk_.load(std::memory_order_relaxed) == 0)) return 0;
  }
  return 0;
}

Ref Log::begin_in(Partition& to, bool& none) {
  const base::MutexGuard guard(to.mutex);
  none = to.current == nullptr;
  if (none || to.next + 1 >= records_) return 0;  // L5
  const Ref ref = ref_of(to.chunk, to.next++);
  medium_.store(&record(ref)->order, 0, 0);
  return ref;
}

// The last place is taken again; any other one dies.
void Log::give_back(Partition& of, Ref ref) {
  {
    const base::MutexGuard guard(of.mutex);
    if (of.current != nullptr && of.next != 0 && ref_of(of.chunk, of.next - 1) == ref) {
      --of.next;
      return;
    }
  }
  die(ref);
}

Ref Log::append_to_hole(const Record& record, std::uint64_t key_hash, bool replaces) {
  for (std::size_t i = 0; i < count_; ++i) close_full(partitions_[i]);
  const base::MutexGuard guard(mutex_);
  unsigned spare = replaces ? 0 : 1;  // L5
  for (const std::size_t number : closed_) {
    Chunk& chunk = *(*chunks_)[number].load(std::memory_order_relaxed);
    for (std::size_t first = 0; first < records_; first += kWordBits) {
      std::uint64_t holes = dead_from(chunk, first);
      for (; holes != 0 && spare != 0; --spare) holes &= holes - 1;
      if (holes == 0) continue;
      const std::size_t index = first + static_cast<std::size_t>(std::countr_zero(holes));
      const Ref ref = ref_of(number, index);
      medium_.store(&this->record(ref)->order, 0, 0);
      // Who killed it may not have counted that yet: for a moment there are fewer dead than there
      // are, never more, so nobody frees the chunk.
      chunk.dead_bits[first / kWordBits].fetch_and(~(holes & -holes));
      chunk.dead.fetch_sub(1);
      write(ref, record, key_hash);  // P6
      return ref;
    }
  }
  return 0;
}

std::uint64_t Log::dead_from(const Chunk& chunk, std::size_t first) const {
  const std::uint64_t bits = chunk.dead_bits[first / kWordBits].load();
  const std::size_t left = records_ - first;
  return left >= kWordBits ? bits : bits & ((std::uint64_t{1} << left) - 1);
}

void Log::write(Ref ref, const Record& record, std::uint64_t key_hash) {
  Record* const target = this->record(ref);
  medium_.store(&target->key, record.key);
  medium_.store(&target->value, record.value);
  medium_.store(&target->sum, sum_of(record, medium_.offset_of(target), key_hash));
  medium_.store(&target->order, record.order);  // last: whoever reads it reads the key, too
  medium_.flush(target, sizeof(Record));        // P2
  pmem::prefetch_to_write(target + 2 * pmem::kLine / sizeof(Record));  // those that follow
}

bool Log::room(unsigned slot) {
  Partition& mine = partition(slot);
  const base::MutexGuard partition_guard(mine.mutex);
  if (mine.current != nullptr && mine.next + 1 < records_) return true;
  const base::MutexGuard guard(mutex_);
  if (mine.current != nullptr) close(mine);
  if (free_.empty()) return false;
  mine.chunk = free_.back();
  free_.pop_back();
  mine.current = (*chunks_)[mine.chunk].load(std::memory_order_relaxed);
  with_chunk_.fetch_add(1, std::memory_order_relaxed);
  mine.next = 0;
  mine.current->version.fetch_add(1);  // before places are alive again: see is_empty()
  // P8, A9: what stands there still is dead; each new record replaces one of them.
  for (std::size_t i = 0; i < (records_ + kWordBits - 1) / kWordBits; ++i) {
    mine.current->dead_bits[i].store(0, std::memory_order_release);
  }
  mine.current->dead.store(0, std::memory_order_release);
  return true;
}

void Log::close(Partition& of) {
  closed_.push_back(of.chunk);
  const std::size_t chunk = of.chunk;
  const std::size_t first = of.next;
  Chunk& closing = *of.current;
  of.current = nullptr;
  with_chunk_.fetch_sub(1, std::memory_order_relaxed);
  for (std::size_t i = first; i < records_; ++i) {  // never written
    closing.dead_bits[i / kWordBits].fetch_or(std::uint64_t{1} << i % kWordBits);
    closing.dead.fetch_add(1);
  }
  if (is_free(chunk)) {
    std::erase(closed_, chunk);
    free_.push_back(chunk);
  }
}

void Log::close_full(Partition& of) {
  const base::MutexGuard partition_guard(of.mutex);
  if (of.current == nullptr || of.next + 1 < records_) return;
  const base::MutexGuard guard(mutex_);
  close(of);
}

bool Log::is_late(Ref ref) const {
  const auto records = static_cast<std::uint32_t>(records_);
  const std::uint32_t index = (ref - 1) % records;
  return index > records / 2 && index % late_every_ == 0;
}

bool Log::is_tight() const {
  if (next_place() != kMaxChunks) return false;
  const base::MutexGuard guard(mutex_);
  return free_.empty();
}

std::size_t Log::next_place() const {
  const std::size_t count = chunk_count_.load(std::memory_order_acquire);
  return count < most_ ? count : kMaxChunks;
}

void Log::prepare(Offset at) {
  const std::size_t words = (records_ + kWordBits - 1) / kWordBits;
  prepared_ = std::make_unique<Chunk>(at, words);
  for (std::size_t i = 0; i < words; ++i) prepared_->dead_bits[i] = ~std::uint64_t{0};
  prepared_->dead = static_cast<std::uint32_t>(records_);
}

void Log::add() {
  const base::MutexGuard guard(mutex_);
  const std::size_t number = chunk_count_.load(std::memory_order_relaxed);
  (*chunks_)[number].store(prepared_.release(), std::memory_order_release);
  chunk_count_.store(number + 1, std::memory_order_release);
  free_.push_back(number);
}

bool Log::oldest(Closed& closed) {
  for (std::size_t i = 0; i <= count_; ++i) {
    if (i != 0) close_full(partitions_[i - 1]);
    const base::MutexGuard guard(mutex_);
    if (closed_.empty()) continue;
    closed.chunk = closed_.front();
    closed.version = (*chunks_)[closed.chunk].load(std::memory_order_relaxed)->version.load();
    return true;
  }
  return false;
}

void Log::kill(std::size_t number, std::size_t index) {
  Chunk& chunk = *(*chunks_)[number].load(std::memory_order_acquire);
  const std::uint64_t bit = std::uint64_t{1} << index % kWordBits;
  if ((chunk.dead_bits[index / kWordBits].fetch_or(bit) & bit) != 0) return;
  if (chunk.dead.fetch_add(1) + 1 != records_) return;
  // The last one. A current chunk is full: close() frees it. Whoever closes it may have done so by
  // now, and it may be closed again, with other records: so all dead still, under the mutex.
  const base::MutexGuard guard(mutex_);
  const auto at = std::ranges::find(closed_, number);
  if (at == closed_.end() || !is_free(number)) return;
  closed_.erase(at);
  free_.push_back(number);
}

void Log::die(Ref ref) {
  if (ref != 0) kill((ref - 1) / records_, (ref - 1) % records_);
}

bool Log::is_live(Ref ref) const {
  const std::size_t index = (ref - 1) % records_;
  const Chunk& chunk = *(*chunks_)[(ref - 1) / records_].load(std::memory_order_acquire);
  return (chunk.dead_bits[index / kWordBits].load() >> index % kWordBits & 1) == 0;
}

// Hardly any record of a chunk that is emptied lives: a word of bits at a time.
std::size_t Log::next_live(std::size_t number, std::size_t index) const {
  const Chunk& chunk = *(*chunks_)[number].load(std::memory_order_acquire);
  while (index < records_) {
    const std::uint64_t live = ~chunk.dead_bits[index / kWordBits].load() >> index % kWordBits;
    if (live != 0) {
      return std::min(records_, index + static_cast<std::size_t>(std::countr_zero(live)));
    }
    index += kWordBits - index % kWordBits;
  }
  return records_;
}

bool Log::is_free(std::size_t number) const {
  const Chunk& chunk = *(*chunks_)[number].load(std::memory_order_acquire);
  return chunk.dead.load() == records_;
}

bool Log::is_empty(const Closed& closed) const {
  const Chunk& chunk = *(*chunks_)[closed.chunk].load(std::memory_order_acquire);
  return is_free(closed.chunk) || chunk.version.load() != closed.version;
}

Record* Log::record(Ref ref) const {
  const Chunk& chunk = *(*chunks_)[(ref - 1) / records_].load(std::memory_order_acquire);
  return medium_.at<Record>(chunk.at) + (ref - 1) % records_;
}

Log::Deferred& Log::deferred(unsigned slot) {
  std::atomic<Deferred*>& place = deferred_[slot];
  if (place.load(std::memory_order_acquire) == nullptr) {
    place.store(new Deferred, std::memory_order_release);  // its slot's thread alone
  }
  return *place.load(std::memory_order_relaxed);
}

bool Log::defer(unsigned slot, std::span<const Ref> refs, std::span<std::byte* const> lines,
                std::span<const Offset> keys) {
  Deferred& mine = deferred(slot);
  for (const Ref ref : refs) {  // they have been written long ago
    if (ref == 0) continue;
    const Chunk& chunk = *(*chunks_)[(ref - 1) / records_].load(std::memory_order_acquire);
    pmem::prefetch_to_write(&chunk.dead_bits[(ref - 1) % records_ / kWordBits]);
  }
  const OwnerLock::Owner guard(mine.lock);
  std::ranges::copy(refs, mine.refs.begin());
  std::ranges::copy(lines, mine.lines.begin());
  mine.refs_count = refs.size();
  mine.lines_count = lines.size();
  mine.waits.store(true, std::memory_order_release);
  if (mine.keys_count + keys.size() > kMostKeys) return false;
  std::ranges::copy(keys, mine.keys.begin() + static_cast<std::ptrdiff_t>(mine.keys_count));
  mine.keys_count += keys.size();
  return true;
}

std::size_t Log::take_keys(Deferred& of, Kept& keys) {
  std::copy_n(of.keys.begin(), of.keys_count, keys.begin());
  return std::exchange(of.keys_count, 0);
}

std::size_t Log::take_keys(unsigned slot, Kept& keys) {
  Deferred& mine = deferred(slot);
  const OwnerLock::Owner guard(mine.lock);
  return take_keys(mine, keys);
}

bool Log::take_keys_of(unsigned slot, Kept& keys, std::size_t& count) {
  count = 0;
  Deferred* const one = deferred_[slot].load(std::memory_order_acquire);
  if (one == nullptr) return true;
  const OwnerLock::Other guard(one->lock);
  // crash: fence stays: `buffer=1:log=256` catches it, rows of the registry late or never
  if (one->waits.load(std::memory_order_acquire) && !fence(*one, pmem::Site::current())) {
    return false;
  }
  reap(*one);
  count = take_keys(*one, keys);
  return true;
}

bool Log::fence(unsigned slot, pmem::Site site) {
  Deferred& mine = deferred(slot);
  if (!mine.waits.load(std::memory_order_acquire)) return medium_.fence(site);
  // Until the fence: the slot's own thread must not go on while another one settles its lines.
  const OwnerLock::Owner guard(mine.lock);
  return fence(mine, site);
}

// Its lock is held.
bool Log::fence(Deferred& of, pmem::Site site) {
  reap(of);
  for (std::size_t i = 0; i < of.lines_count; ++i) {
    medium_.flush(of.lines[i], sizeof(LeafLine));  // P3: words and stamps
  }
  if (!medium_.fence(site)) return false;
  std::copy_n(of.refs.begin(), of.refs_count, of.ripe_refs.begin());
  of.ripe_count = std::exchange(of.refs_count, 0);
  of.lines_count = 0;
  of.ripe.store(true, std::memory_order_release);
  of.waits.store(false, std::memory_order_release);
  return true;
}

// Its lock is held.
void Log::reap(Deferred& of) {
  for (std::size_t i = 0; i < of.ripe_count; ++i) die(of.ripe_refs[i]);
  of.ripe_count = 0;
  of.ripe.store(false, std::memory_order_release);
}

void Log::ready(unsigned slot) {
  Deferred& mine = deferred(slot);
  if (!mine.ripe.load(std::memory_order_acquire)) return;
  const OwnerLock::Owner guard(mine.lock);
  reap(mine);
}

bool Log::settle() {
  const unsigned limit = base::slot_limit();
  for (unsigned slot = 0; slot < limit; ++slot) {
    Deferred* const one = deferred_[slot].load(std::memory_order_acquire);
    // In this order: what waits is ripe before it waits no more.
    if (one == nullptr || (!one->waits.load(std::memory_order_acquire) &&
                           !one->ripe.load(std::memory_order_acquire))) {
      continue;
    }
    const OwnerLock::Other guard(one->lock);
    if (one->waits.load(std::memory_order_acquire) && !fence(*one, pmem::Site::current())) {
      return false;
    }
    reap(*one);
  }
  return true;
}

Log::Figures Log::figures() const {
  Figures all;
  std::uint64_t unwritten = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    Partition& one = partitions_[i];
    const base::MutexGuard guard(one.mutex);
    if (one.current != nullptr) unwritten += records_ - one.next;
  }
  const base::MutexGuard guard(mutex_);
  all.chunks = chunk_count_.load(std::memory_order_relaxed);
  all.free = free_.size();
  for (std::size_t i = 0; i < all.chunks; ++i) {
    const Chunk& chunk = *(*chunks_)[i].load(std::memory_order_relaxed);
    all.live += records_;
    for (std::size_t first = 0; first < records_; first += kWordBits) {
      all.live -= static_cast<std::size_t>(std::popcount(dead_from(chunk, first)));
    }
  }
  all.live -= std::min(all.live, unwritten);
  all.dram_bytes = all.chunks * (sizeof(Chunk) + records_ / 8) + count_ * sizeof(Partition) +
                   sizeof(*chunks_) + kMaxThreads * sizeof(void*);
  for (std::size_t slot = 0; slot < kMaxThreads; ++slot) {
    all.dram_bytes +=
        deferred_[slot].load(std::memory_order_relaxed) == nullptr ? 0 : sizeof(Deferred);
  }
  return all;
}

}  // namespace everleaf::tree::lodgetree
