#include "pmem/pool_file.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pmem/domain.hpp"

namespace everleaf::pmem {
namespace {

// Behind the file's bytes, for what a recovery needs in a private mapping: address space.
constexpr std::uint64_t kRecoveryRoom = std::uint64_t{64} << 20;
constexpr std::uint64_t kGrowLeast = 4096;  // pages
constexpr std::uint64_t kGrowUnit = std::uint64_t{1} << 20;
constexpr std::uint64_t kGrowMost = std::uint64_t{256} << 20;
// Where the system clears pages as the file grows: 0.4 to 7 ms for 2 MiB, measured.
constexpr std::uint64_t kGrowMostCleared = std::uint64_t{32} << 20;
// Smaller pools grow by a huge page or less: it does not pay to have a thread for them.
constexpr std::uint64_t kAheadFrom = 8 * kHugePage;

Result<std::uint64_t> cap_of(const PoolOptions& options) {
  if (options.max_bytes == 0) return kMaxPoolBytes;
  if (options.max_bytes < kMinPoolBytes) {
    return std::unexpected(Error{
        Code::bad_argument, "a pool needs max_bytes of at least " + std::to_string(kMinPoolBytes)});
  }
  return std::min(options.max_bytes, kMaxPoolBytes);
}

// Read past the mapping, which does not exist yet.
bool says_clean(const Descriptor& file, std::uint64_t bytes) {
  std::array<std::byte, kHeaderB + sizeof(Header)> start{};
  if (::pread(file.get(), start.data(), start.size(), 0) != static_cast<ssize_t>(start.size())) {
    return false;
  }
  const auto reading = read_headers(start.data(), bytes, false);
  return reading && reading->header.clean == 1 && !reading->other_damaged;
}

// What this process reads it builds on, so it must be on the medium. A process that died leaves
// stores in caches that nobody has flushed.
Result<void> settle(const Descriptor& file, std::uint64_t bytes, const DomainChoice& domain,
                    const std::filesystem::path& path) {
  const auto sync = [&]() -> Result<void> {
    if (::fsync(file.get()) == 0) return {};
    return std::unexpected(Error{Code::io, "cannot write back what an earlier process left of " +
                                               path.string() + ": " + std::strerror(errno)});
  };
  if (domain.domain == Domain::memory && !domain.emulated) {
    // DAX: the kernel flushes the CPU caches over each page that was written since its last fsync.
    return says_clean(file, bytes) ? Result<void>{} : sync();
  }
  if (domain.domain != Domain::disk) return {};
  // After a proper close, too: it may have been one of the domain `process`.
  if (auto synced = sync(); !synced) return synced;
  // Pages whose write-back failed pass for clean, and no sync writes them: judge the disk instead.
  const auto drop_cache = [&](std::uint64_t most) {
    (void)::posix_fadvise(file.get(), 0, static_cast<off_t>(most), POSIX_FADV_DONTNEED);
  };
  // First what says whether the rest must go, and the lanes; in a piece that no page is larger
  // than.
  drop_cache(kHugePage);
  if (!says_clean(file, bytes)) drop_cache(0);
  return {};
}

std::optional<Error> impossible_frontier(Word frontier, std::uint64_t bytes,
                                         const std::filesystem::path& path) {
  if (frontier >= kHeapAt && frontier <= bytes && frontier % kSlabBytes == 0) return std::nullopt;
  if (frontier > bytes && frontier <= kMaxPoolBytes && frontier % kSlabBytes == 0) {
    return Error{Code::truncated, path.string() + " has " + std::to_string(bytes) +
                                      " bytes, its heap reaches to " + std::to_string(frontier) +
                                      ": it was cut off, restore it from a copy"};
  }
  return Error{Code::corrupt, path.string() + ": the heap's frontier " + std::to_string(frontier) +
                                  " is impossible: restore it from a copy"};
}

}  // namespace

Result<std::unique_ptr<PoolFile>> PoolFile::open(const std::filesystem::path& path,
                                                 const PoolOptions& options, Observer* observer) {
  if (options.mode == Mode::create) return create(path, options, observer);
  auto pool = open_existing(path, options, observer);
  if (!pool && pool.error().code == Code::not_found && options.mode == Mode::open_or_create) {
    pool = create(path, options, observer);
    // Another process was faster: its pool is as good.
    if (!pool && pool.error().code == Code::exists) return open_existing(path, options, observer);
  }
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::open_existing(const std::filesystem::path& path,
                                                          const PoolOptions& options,
                                                          Observer* observer) {
  auto cap = cap_of(options);
  if (!cap) return std::unexpected(cap.error());
  std::unique_ptr<PoolFile> pool(new PoolFile);
  pool->path_ = path;
  pool->cap_ = *cap;
  pool->read_only_ = options.mode == Mode::read_only;
  auto file = Descriptor::open(path, pool->read_only_ ? O_RDONLY : O_RDWR);
  if (!file) return std::unexpected(file.error());
  struct stat info {};
  if (::fstat(file->get(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return std::unexpected(Error{Code::not_a_pool, path.string() + " is not a regular file"});
  }
  pool->file_ = std::move(*file);
  if (auto locked = pool->file_.lock(!pool->read_only_, path); !locked) {
    return std::unexpected(locked.error());
  }
  auto bytes = size_of(pool->file_);
  if (!bytes) return std::unexpected(bytes.error());
  if (*bytes == 0) {
    return std::unexpected(
        Error{Code::empty_file, path.string() + " is empty: delete it to create a pool there"});
  }
  if (*bytes > kMaxPoolBytes) {
    return std::unexpected(Error{Code::corrupt, path.string() + " has " + std::to_string(*bytes) +
                                                    " bytes, more than a pool can have"});
  }
  if (*bytes < kHeaderB + sizeof(Header)) {
    std::array<std::byte, sizeof(Word)> first{};
    const bool magic = ::pread(pool->file_.get(), first.data(), first.size(), 0) == 8 &&
                       std::bit_cast<Word>(first) == kMagic;
    return std::unexpected(
        magic
            ? Error{Code::truncated, path.string() + " is cut off after " + std::to_string(*bytes) +
                                         " bytes: restore it from a copy"}
            : Error{Code::not_a_pool, path.string() + " is not an Everleaf pool"});
  }
  auto domain = choose(pool->file_.get(), options);
  if (!domain) return std::unexpected(domain.error());
  pool->domain_ = *domain;
  if (!pool->read_only_) {
    if (auto settled = settle(pool->file_, *bytes, pool->domain_, path); !settled) {
      return std::unexpected(settled.error());
    }
  }
  if (auto mapped = pool->map(options, *bytes, observer); !mapped) {
    return std::unexpected(mapped.error());
  }
  if (auto read = pool->read_header(*bytes); !read) return std::unexpected(read.error());
  if (!pool->read_only_) {
    pool->drop_unborn(*bytes);
    // A copied file may have holes, and touching one on a full disk is a SIGBUS.
    const bool in_memory = pool->domain_.domain == Domain::process || pool->domain_.emulated;
    if (auto filled = fill_holes(pool->file_, pool->medium_->size(), in_memory); !filled) {
      filled.error().message = path.string() + " has holes: " + filled.error().message;
      return std::unexpected(filled.error());
    }
  }
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::create(const std::filesystem::path& path,
                                                   const PoolOptions& options, Observer* observer) {
  Unborn unborn(path);
  auto pool = create_unnamed(unborn, options, observer);
  if (!pool) return pool;
  if (auto named = unborn.name((*pool)->file_); !named) return std::unexpected(named.error());
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::create_unnamed(Unborn& unborn,
                                                           const PoolOptions& options,
                                                           Observer* observer) {
  const std::filesystem::path& path = unborn.path();
  auto cap = cap_of(options);
  if (!cap) return std::unexpected(cap.error());
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    return std::unexpected(Error{Code::exists, path.string() + " is there already"});
  }
  std::unique_ptr<PoolFile> pool(new PoolFile);
  pool->path_ = path;
  pool->cap_ = *cap;
  auto file = unborn.open();
  if (!file) {
    file.error().message = "cannot create " + path.string() + ": " + file.error().message;
    return std::unexpected(file.error());
  }
  pool->file_ = std::move(*file);
  if (auto locked = pool->file_.lock(true, path); !locked) return std::unexpected(locked.error());
  if (auto backed = allocate(pool->file_, 0, kMinPoolBytes); !backed) {
    backed.error().message = "cannot create " + path.string() + ": " + backed.error().message;
    return std::unexpected(backed.error());
  }
  auto domain = choose(pool->file_.get(), options);
  if (!domain) return std::unexpected(domain.error());
  pool->domain_ = *domain;
  if (auto mapped = pool->map(options, kMinPoolBytes, observer); !mapped) {
    return std::unexpected(mapped.error());
  }
  if (auto formatted = pool->format(); !formatted) return std::unexpected(formatted.error());
  if (pool->domain_.domain != Domain::process && ::fsync(pool->file_.get()) != 0) {
    return std::unexpected(system_error("cannot write " + path.string(), errno));
  }
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::anonymous(const PoolOptions& options,
                                                      Observer* observer) {
  auto cap = cap_of(options);
  if (!cap) return std::unexpected(cap.error());
  if (options.domain && *options.domain != Domain::volatile_ && !options.emulate) {
    return std::unexpected(
        Error{Code::domain_too_strong,
              "anonymous memory survives nothing: open a file, or measure a domain "
              "with emulate (--emulate)"});
  }
  std::unique_ptr<PoolFile> pool(new PoolFile);
  pool->cap_ = *cap;
  const Domain domain = options.domain.value_or(Domain::volatile_);
  pool->domain_ = {domain, domain != Domain::volatile_, "anonymous memory"};
  if (auto mapped = pool->map(options, kMinPoolBytes, observer); !mapped) {
    return std::unexpected(mapped.error());
  }
  if (auto formatted = pool->format(); !formatted) return std::unexpected(formatted.error());
  return pool;
}

std::unique_ptr<PoolFile> PoolFile::in_memory(std::byte* memory, std::uint64_t bytes,
                                              std::uint64_t capacity, const PoolOptions& options,
                                              Observer* observer) {
  std::unique_ptr<PoolFile> pool(new PoolFile);
  pool->cap_ = std::min(capacity, kMaxPoolBytes);
  pool->domain_ = {options.domain.value_or(Domain::volatile_), true, "memory of the caller"};
  pool->read_only_ = options.mode == Mode::read_only;
  pool->make_medium(memory, bytes, observer, nullptr);
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::attach(std::byte* memory, std::uint64_t bytes,
                                                   std::uint64_t capacity,
                                                   const PoolOptions& options, Observer* observer) {
  auto pool = in_memory(memory, bytes, capacity, options, observer);
  if (auto read = pool->read_header(bytes); !read) return std::unexpected(read.error());
  return pool;
}

Result<std::unique_ptr<PoolFile>> PoolFile::format(std::byte* memory, std::uint64_t bytes,
                                                   std::uint64_t capacity,
                                                   const PoolOptions& options, Observer* observer) {
  auto pool = in_memory(memory, bytes, capacity, options, observer);
  if (auto formatted = pool->format(); !formatted) return std::unexpected(formatted.error());
  return pool;
}

Result<void> PoolFile::read_header(std::uint64_t file_bytes) {
  auto reading = read_headers(medium_->base(), file_bytes, read_only_);
  if (!reading) {
    reading.error().message = path_.string() + ": " + reading.error().message;
    return std::unexpected(reading.error());
  }
  header_ = reading->header;
  header_copy_damaged_ = reading->other_damaged;
  other_header_ = reading->other;
  was_clean_ = reading->header.clean == 1;
  if (auto error = impossible_frontier(load(&state().frontier), file_bytes, path_)) {
    return std::unexpected(std::move(*error));
  }
  return {};
}

// Whoever was killed while the pool grew may have left a hole behind all that was ever used, and
// before the hole what another thread was about to make part of the heap. The frontier alone is not
// believed: it may be damaged, and what it hides worth a repair.
void PoolFile::drop_unborn(std::uint64_t file_bytes) {
  const std::uint64_t used = std::max(header_.file_bytes, load(&state().frontier));
  if (used >= file_bytes || !has_holes(file_)) return;
  const std::uint64_t end = only_zeros_from(file_, used) ? used : first_hole(file_, used);
  if (end >= file_bytes || !only_zeros_from(file_, end)) return;
  if (cut(file_, end)) medium_->cut(end);
}

Result<Mapping> PoolFile::map_bytes(const PoolOptions& options, std::uint64_t file_bytes,
                                    std::uint64_t reserve) const {
  const bool synchronous = domain_.domain == Domain::memory || domain_.domain == Domain::cache;
  if (recovering_) {
    auto mapping = Mapping::anonymous(reserve, false);
    if (mapping && !mapping->copy(file_, 0, file_bytes)) {
      return std::unexpected(Error{Code::io, "cannot map the pool to recover it in memory"});
    }
    return mapping;
  }
  if (read_only_) return Mapping::copy(file_, reserve);
  if (!file_.valid()) return Mapping::anonymous(reserve, options.huge_pages);
  return Mapping::shared(file_, reserve, synchronous && !domain_.emulated);
}

Result<void> PoolFile::map(const PoolOptions& options, std::uint64_t file_bytes,
                           Observer* observer) {
  std::uint64_t reserve = std::max(file_bytes, options.max_bytes == 0 ? kMaxPoolBytes : cap_);
  if (read_only_) reserve = recovering_ ? 2 * file_bytes + kRecoveryRoom : file_bytes;
  Result<Mapping> mapping;
  while (true) {
    mapping = map_bytes(options, file_bytes, reserve);
    // Address space may be limited: take the largest range that there is.
    if (mapping || reserve <= std::max(file_bytes, kMinPoolBytes) * 2) break;
    reserve /= 2;
  }
  if (!mapping) return std::unexpected(mapping.error());
  mapping_ = std::move(*mapping);
  if (read_only_) cap_ = reserve;
  // An observer sees what is flushed, and writes nothing.
  const bool writes_back =
      domain_.domain == Domain::disk && file_.valid() && !read_only_ && observer == nullptr;
  const std::uint64_t budget = options.private_bytes ? WriteBack::kNoBudget : memory_limit() / 4;
  std::uint64_t copies =
      writes_back ? most_copies(options.private_bytes.value_or(budget)) : std::uint64_t{0};
  // Where the system refuses them (memory may be locked) it does without.
  if (copies != 0 && !mapping_.copy(file_, 0, copies, true)) copies = 0;
  std::unique_ptr<WriteBack> write_back;
  if (writes_back) {
    write_back = std::make_unique<WriteBack>(file_, mapping_.base(), copies, budget);
  }
  huge_pages_ =
      options.huge_pages && !read_only_ && file_.valid() && copies == 0 && on_tmpfs(file_.get());
  // An observer wants to see the same at each run.
  cleared_ = file_.valid() && !read_only_ && observer == nullptr &&
             (on_tmpfs(file_.get()) || on_hugetlbfs(file_.get()));
  const std::uint64_t unit = copies != 0 ? WriteBack::kPage : kLine;
  cap_ = std::min({std::max(cap_, file_bytes), reserve, kMaxPoolBytes}) / unit * unit;
  make_medium(mapping_.base(), file_bytes, observer, std::move(write_back));
  if (!extend_copies(file_bytes)) {
    return std::unexpected(system_error("cannot map the pool", errno));
  }
  return {};
}

// A private copy is nobody's durable state, and an observer sees nothing of it.
void PoolFile::make_medium(std::byte* memory, std::uint64_t bytes, Observer* observer,
                           std::unique_ptr<WriteBack> write_back) {
  if (read_only_) read_bytes_ = bytes;
  medium_ = std::make_unique<Medium>(memory, bytes, read_only_ ? Domain::volatile_ : domain_.domain,
                                     read_only_ ? nullptr : observer, std::move(write_back));
}

std::uint64_t PoolFile::most_copies(std::uint64_t wanted) const {
  // hugetlbfs has no write; and a write beyond that limit is a signal.
  const std::uint64_t most = on_hugetlbfs(file_.get()) ? 0 : largest_written_file();
  return std::min({most, mapping_.bytes(), wanted}) / WriteBack::kPage * WriteBack::kPage;
}

// What of the first `to` bytes is none yet becomes copies, as far as it may; once refused, all that
// follows is shared. Who makes the pool longer does all of it, also what another thread has begun
// (G1). False: nothing of it may be used.
bool PoolFile::extend_copies(std::uint64_t to) noexcept {
  WriteBack* const write_back = medium_->write_back();
  if (write_back == nullptr) return true;
  to = std::min(to, write_back->most());
  const std::uint64_t whole = to / WriteBack::kPage * WriteBack::kPage;
  WriteBack::Copies now = write_back->copies();  // a growth that was killed is cut off, they stay
  while (!now.closed && now.bytes < to) {
    // Of a page that the file has in part none is made: to write it would make the file longer.
    const std::uint64_t more = whole - now.bytes;
    const bool taken = more != 0 && write_back->take(more);
    const bool is_open = taken && mapping_.open(now.bytes, whole);
    const bool done = is_open ? write_back->extend(now, whole) : write_back->close(now);
    if (taken && !(is_open && done)) write_back->give_back(more);
    now = write_back->copies();
  }
  if (!now.closed || rest_is_shared_.load(std::memory_order_acquire)) return true;
  // Over what others store to, too: it is the file's already.
  if (!mapping_.share(file_, now.bytes, write_back->most())) return false;
  rest_is_shared_.store(true, std::memory_order_release);
  return true;
}

Result<void> PoolFile::begin_recovery() {
  recovering_ = true;
  if (!file_.valid()) return {};
  // Not beside the new one: address space may be limited.
  medium_.reset();
  mapping_ = Mapping();
  auto mapped = map({}, read_bytes_, nullptr);
  if (!mapped) recovering_ = false;
  return mapped;
}

Error PoolFile::write_back_failed() const {
  return {Code::io, path_.string() +
                        ": a write-back failed; operations acknowledged after the failure are not "
                        "in the file"};
}

Result<void> PoolFile::format() {
  std::atomic_ref<Word>(state().frontier).store(kHeapAt, std::memory_order_relaxed);
  // The state before a magic vouches for it.
  // crash: fence stays: create_headers() fences before its magic, too, but need not know of this
  if (!medium_->persist(&state(), sizeof(PoolState)) || !create_headers(*medium_)) {
    return std::unexpected(write_back_failed());
  }
  header_ = *medium_->at<Header>(kHeaderA);
  was_clean_ = true;
  return {};
}

bool PoolFile::grow_if_needed(std::uint64_t bytes) {
  if (bytes <= medium_->size()) return true;
  // G1: it is one store, and nobody waits
  if (!file_.valid()) return grow_now(bytes, nullptr) == Grown::done;
  if (bytes > cap_) return false;
  bytes = std::min((bytes + kGrowLeast - 1) / kGrowLeast * kGrowLeast, cap_);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  Grown grown = Grown::turn_lost;
  while (grown == Grown::turn_lost) grown = grow_in_turn(bytes);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return grown == Grown::done;
}

PoolFile::Grown PoolFile::grow_in_turn(std::uint64_t bytes) noexcept {
  auto turn = turns_.begin(bytes);
  medium_->grow(turns_.bytes());  // G1: who published it may have been stopped since
  const bool there = bytes <= medium_->size();
  if (!turn) return there ? Grown::done : Grown::refused;
  const Grown grown = there ? Grown::done : grow_now(bytes, &*turn);
  turns_.end(*turn);
  return grown;
}

bool PoolFile::grow(std::uint64_t bytes) {
  const bool grown = grow_if_needed(bytes);
  if (grown && cleared_) keep_ahead(bytes);
  return grown;
}

// As far as one can know: an attempt would take what others need, or be a signal.
bool PoolFile::fits(std::uint64_t bytes) const {
  const std::uint64_t now = medium_->size();
  if (bytes <= now || bytes > cap_) return bytes <= now;
  return !file_.valid() || (bytes <= largest_written_file() && bytes - now <= space_left(file_));
}

bool PoolFile::make_room(std::uint64_t bytes) {
  const std::uint64_t from = medium_->size();
  if (!fits(bytes)) return false;
  for (std::uint64_t at = from; at < bytes; at = medium_->size()) {
    if (!grow_if_needed(std::min(bytes, at + kGrowMostCleared))) return false;
  }
  const bool memory = cleared_ || !file_.valid();
  if (bytes > from && memory && mapping_.base() != nullptr) {
    // Where huge pages were refused, and without a file, it is not cleared yet.
    mapping_.touch(from, bytes);
  }
  return true;
}

// With a turn, where there is a file.
PoolFile::Grown PoolFile::grow_now(std::uint64_t bytes, Turn* turn) noexcept {
  const std::uint64_t now = medium_->size();
  if (!writable() || bytes > cap_ || medium_->failed()) return Grown::refused;
  // What the thread is there for it does; here only the least.
  const std::uint64_t step = ahead_runs_.load(std::memory_order_relaxed) ? 0 : room_at(now);
  const std::uint64_t target = target_of(std::max(bytes, now + step));
  const Grown grown = back(target, turn);
  if (grown != Grown::turn_lost) {
    refused_.store(grown == Grown::refused, std::memory_order_relaxed);
  }
  // The disk is nearly full: take only what is needed now.
  if (grown == Grown::refused && target > bytes && !medium_->failed()) return back(bytes, turn);
  return grown;
}

// What is taken beyond what was asked for: few calls for large pools, little waste for small ones.
std::uint64_t PoolFile::room_at(std::uint64_t size) const noexcept {
  return std::clamp(size / 8, kGrowUnit, cleared_ ? kGrowMostCleared : kGrowMost);
}

// The size that the file gets when it is to have `bytes` at least.
std::uint64_t PoolFile::target_of(std::uint64_t bytes) const noexcept {
  const std::uint64_t unit = medium_->size() % kHugePage == 0 ? kHugePage : kGrowUnit;
  return std::min((bytes + unit - 1) / unit * unit, cap_);
}

// Backs everything below `target`. Unless it is done nothing has changed, but that a file whose
// sync failed stays longer.
PoolFile::Grown PoolFile::back(std::uint64_t target, Turn* turn) noexcept {
  if (turn == nullptr || read_only_) {
    medium_->grow(target);
    return Grown::done;
  }
  const Grown grown = back_file(target, *turn);
  if (grown != Grown::done) return grown;
  if (!turns_.publish(*turn, target)) return Grown::turn_lost;
  medium_->grow(target);
  return Grown::done;
}

PoolFile::Grown PoolFile::back_file(std::uint64_t target, Turn& turn) noexcept {
  using Phase = GrowthTurns::Phase;
  const std::uint64_t now = medium_->size();
  // Who is stopped after it was told of a failure may have been told alone (write_back.hpp, W4).
  const bool on_disk = medium_->write_back() != nullptr;
  if (on_disk) medium_->prepare_sync();
  const Descriptor mine =
      on_disk || domain_.domain == Domain::process ? Descriptor() : file_.another();
  take_huge_pages(now, target, turn);
  int error = reserve_blocks(file_, now, target);
  if (error == EOPNOTSUPP) error = append_zeros(file_, target);
  if (error == 0) {
    if (!sync_size(mine)) {
      medium_->fail();
      return Grown::refused;
    }
    if (extend_copies(target)) return Grown::done;
  }
  // What a refused growth has taken goes back: others need it, and a hole that it left could not be
  // filled at the next open.
  if (!turns_.enter(turn, Phase::giving_back)) return Grown::turn_lost;
  (void)cut(file_, now);
  turns_.leave_giving_back(turn);
  return Grown::refused;
}

// The new size must survive before anything in the new part is acknowledged.
bool PoolFile::sync_size(const Descriptor& mine) noexcept {
  if (domain_.domain == Domain::process) return true;
  if (medium_->write_back() != nullptr) return medium_->sync();
  return ::fdatasync((mine.valid() ? mine : file_).get()) == 0;
}

// --- Growth ahead --------------------------------------------------------------------------------

// `bytes` are in use. Wakes the thread when a quarter of the room behind them is gone; a block may
// need most of the rest at once.
void PoolFile::keep_ahead(std::uint64_t bytes) {
  wanted_.store(bytes, std::memory_order_relaxed);
  const std::uint64_t now = medium_->size();
  if (now < kAheadFrom || now - std::min(bytes, now) >= room_at(now) / 4 * 3) return;
  start_ahead();
  // Release: the thread sees what is wanted.
  asked_.fetch_add(1, std::memory_order_release);
  asked_.notify_one();
}

void PoolFile::start_ahead() {
  // Who has it starts the thread, or stops it.
  const std::unique_lock guard(starting_, std::try_to_lock);
  if (!guard.owns_lock() || stopping_.load(std::memory_order_relaxed)) return;
  if (!ahead_runs_.load(std::memory_order_relaxed)) {
    // Signals are for the threads of the program, and the one that a limit on file sizes sends
    // would end it: blocked, the limit is an error.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
    try {
      ahead_ = std::thread([this] { run_ahead(); });
      ahead_runs_.store(true, std::memory_order_relaxed);
    } catch (const std::exception&) {                    // system_error, or no memory
      stopping_.store(true, std::memory_order_relaxed);  // it is not tried again
    }
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
}

void PoolFile::run_ahead() {
  std::uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    asked_.wait(seen, std::memory_order_acquire);
    seen = asked_.load(std::memory_order_acquire);
    while (!stopping_.load(std::memory_order_relaxed) && step_ahead()) {
    }
  }
}

// One huge page more. False: there is room enough, or no more to be had.
bool PoolFile::step_ahead() {
  // Who waits goes first, unless it was stopped.
  constexpr unsigned kRounds = 10'000;
  for (unsigned round = 0; waiting_.load(std::memory_order_relaxed) != 0 && round < kRounds;
       ++round) {
    if (stopping_.load(std::memory_order_relaxed)) return false;
    base::wait_a_little(round);
  }
  auto turn = turns_.begin();
  if (!turn) return false;
  medium_->grow(turns_.bytes());
  const std::uint64_t now = medium_->size();
  const std::uint64_t enough =
      std::min(wanted_.load(std::memory_order_relaxed) + room_at(now), cap_);
  const bool wanted =
      now < enough && !refused_.load(std::memory_order_relaxed) && !medium_->failed();
  const Grown grown = wanted ? back(target_of(now + 1), &*turn) : Grown::refused;
  // No error: whoever needs the space finds out what is left.
  if (wanted && grown != Grown::turn_lost) {
    refused_.store(grown == Grown::refused, std::memory_order_relaxed);
  }
  turns_.end(*turn);
  return grown != Grown::refused;
}

void PoolFile::stop_ahead() {
  {
    const std::lock_guard guard(starting_);
    stopping_.store(true, std::memory_order_relaxed);
  }
  asked_.fetch_add(1, std::memory_order_release);
  asked_.notify_all();
  if (ahead_.joinable()) ahead_.join();
  ahead_runs_.store(false, std::memory_order_relaxed);
}

// Of what is new; allocate() does the rest, or finds that there is no room.
void PoolFile::take_huge_pages(std::uint64_t from, std::uint64_t to, const Turn& turn) {
  std::uint64_t at = (from + kHugePage - 1) / kHugePage * kHugePage;
  for (; huge_pages_.load(std::memory_order_relaxed) && at + kHugePage <= to; at += kHugePage) {
    if (mapping_.back_with_huge_page(file_, at)) continue;
    if (!turns_.holds(turn)) return;  // others cut the file meanwhile
    // What was refused once is not asked for again: each attempt may look for a page for long.
    huge_pages_.store(false, std::memory_order_relaxed);
  }
}

Result<void> PoolFile::mark_open() {
  if (read_only_) return {};
  header_.clean = 0;
  header_.ro_compatible |= kImages;       // before there are any
  header_.incompatible &= ~kLateRecords;  // those of a crash are applied
  // The same; RedoLog::late().
  if (medium_->fences_wait()) header_.incompatible |= kLateRecords;
  header_.file_bytes = medium_->size();
  // A second time, so that the other copy is mended and says the same: it counts where this one is
  // damaged.
  const bool both = header_copy_damaged_ || medium_->fences_wait();
  if (!update_header(*medium_, header_) || (both && !update_header(*medium_, header_))) {
    return std::unexpected(write_back_failed());
  }
  return {};
}

Result<void> PoolFile::mark_store() {
  if (is_store()) return {};
  header_.incompatible |= kStore;
  // In both copies: the other one counts where this one is damaged.
  if (!update_header(*medium_, header_) || !update_header(*medium_, header_)) {
    return std::unexpected(write_back_failed());
  }
  return {};
}

Result<void> PoolFile::mark_clean() {
  stop_ahead();  // the header has the file's size
  if (read_only_) return {};
  header_.clean = 1;
  header_.incompatible &= ~kLateRecords;
  header_.file_bytes = medium_->size();
  if (medium_->failed() || !update_header(*medium_, header_)) {
    return std::unexpected(write_back_failed());
  }
  return {};
}

}  // namespace everleaf::pmem
