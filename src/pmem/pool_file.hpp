// An open pool file (or anonymous memory): descriptor, lock, mapping, medium, header.
//
// Where growth takes long, a thread of the pool keeps room beyond what was asked for (decision 71):
// on tmpfs and hugetlbfs, where the system clears each page before the file has it. The thread is
// started when a pool of 16 MiB or more first has less than three quarters of that room left: an
// eighth of the pool, 32 MiB at most. It takes one huge page at a time, so that whoever needs more
// than there is waits for one step, and ends before the pool is marked clean.
//
// Thread safety: grow() and make_room() from any thread; the rest belongs to the thread that opens
// and closes.
// Invariants
//   G1. Who makes the file longer has the turn (growth_turns.hpp), and keeps it until the new size
//       is published; the medium's follows. All that comes before that leaves what others may
//       already use as it is: storage that is there is allocated again, huge pages keep what they
//       hold, zeros are written behind the end alone, what is to be a private copy becomes usable
//       and nothing more, and what is shared is mapped as what it is. So a turn can be taken over
//       from who was stopped in it. Not so giving back what a refused step took: who is stopped
//       there is waited for, and given up. Without a file any thread moves the medium's size.
//   G2. The room is never part of the heap: it is zeros behind the frontier, like any space that a
//       killed growth leaves. What is killed within a step, too, is dropped or filled at open.
//   G3. Growth ahead that is refused gives back what it took and is no error: it rests until a
//       caller of grow() got a whole step.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include <everleaf/pool.hpp>

#include "base/seam.hpp"
#include "pmem/file.hpp"
#include "pmem/growth_turns.hpp"
#include "pmem/header.hpp"
#include "pmem/medium.hpp"
#include "pmem/unborn.hpp"

namespace everleaf::pmem {

class PoolFile {
 public:
  static Result<std::unique_ptr<PoolFile>> open(const std::filesystem::path& path,
                                                const PoolOptions& options, Observer* observer);
  static Result<std::unique_ptr<PoolFile>> anonymous(const PoolOptions& options,
                                                     Observer* observer);
  // A new pool that gets its name later, from `unborn`, or never.
  static Result<std::unique_ptr<PoolFile>> create_unnamed(Unborn& unborn,
                                                          const PoolOptions& options,
                                                          Observer* observer);

  // The pool that lies in the first `bytes` of the caller's memory (no file, no lock), which
  // outlives it and lets it grow to `capacity`; format() makes a new one there. Read-only: the
  // memory is a private copy of the pool, as a mapping of a file would be, and recovery may store
  // to it.
  static Result<std::unique_ptr<PoolFile>> attach(std::byte* memory, std::uint64_t bytes,
                                                  std::uint64_t capacity,
                                                  const PoolOptions& options, Observer* observer);
  static Result<std::unique_ptr<PoolFile>> format(std::byte* memory, std::uint64_t bytes,
                                                  std::uint64_t capacity,
                                                  const PoolOptions& options, Observer* observer);

  [[nodiscard]] Medium& medium() noexcept { return *medium_; }
  [[nodiscard]] PoolState& state() noexcept { return *medium_->at<PoolState>(kStateAt); }
  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] bool header_copy_damaged() const noexcept { return header_copy_damaged_; }
  [[nodiscard]] Offset damaged_header() const noexcept { return other_header_; }
  [[nodiscard]] bool was_clean() const noexcept { return was_clean_; }
  [[nodiscard]] bool read_only() const noexcept { return read_only_; }
  // Whether trees may write: also in the private mapping of a read-only pool that recovers there.
  [[nodiscard]] bool writable() const noexcept { return !read_only_ || recovering_; }
  // What the file has; a recovery in the private mapping may have grown beyond it.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept {
    return read_only_ ? read_bytes_ : medium_->size();
  }
  [[nodiscard]] const Descriptor& descriptor() const noexcept { return file_; }
  [[nodiscard]] const DomainChoice& domain() const noexcept { return domain_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;
  ~PoolFile() { stop_ahead(); }

  // Backs at least `bytes` of the pool with storage. False: the disk, the cap or the address range
  // is full, and nothing changed.
  bool grow(std::uint64_t bytes);
  // The same for bytes that nobody needs yet, in steps between which others may grow it: nothing is
  // kept ahead of them, and memory is cleared. False: as above, but that steps that were made stay.
  bool make_room(std::uint64_t bytes);
  // Of a read-only pool that nobody uses: maps the file's bytes again, with room behind them
  // (memory of the caller stays as it is), and lets trees write there until end_recovery().
  Result<void> begin_recovery();
  void end_recovery() noexcept { recovering_ = false; }
  // From now on the pool grows when it must; waits for a step that is under way.
  void stop_ahead();
  // Turns to grow that were taken from threads that were stopped in them.
  [[nodiscard]] std::uint64_t turns_taken_over() const noexcept { return turns_.taken_over(); }

  // Marks the pool as in use: called once recovery is done. io if that was not written.
  Result<void> mark_open();
  // From now on programs that do not know the Store refuse the pool. io if that was not written.
  Result<void> mark_store();
  [[nodiscard]] bool is_store() const { return (header_.incompatible & kStore) != 0; }
  // Marks the pool as closed properly; io if anything was not written.
  Result<void> mark_clean();

 private:
  PoolFile() = default;
  static Result<std::unique_ptr<PoolFile>> create(const std::filesystem::path& path,
                                                  const PoolOptions& options, Observer* observer);
  static Result<std::unique_ptr<PoolFile>> open_existing(const std::filesystem::path& path,
                                                         const PoolOptions& options,
                                                         Observer* observer);
  static std::unique_ptr<PoolFile> in_memory(std::byte* memory, std::uint64_t bytes,
                                             std::uint64_t capacity, const PoolOptions& options,
                                             Observer* observer);
  Result<void> read_header(std::uint64_t file_bytes);
  Result<void> map(const PoolOptions& options, std::uint64_t file_bytes, Observer* observer);
  void make_medium(std::byte* memory, std::uint64_t bytes, Observer* observer,
                   std::unique_ptr<WriteBack> write_back);
  [[nodiscard]] Result<Mapping> map_bytes(const PoolOptions& options, std::uint64_t file_bytes,
                                          std::uint64_t reserve) const;
  [[nodiscard]] std::uint64_t most_copies(std::uint64_t wanted) const;
  enum class Grown : std::uint8_t { done, refused, turn_lost };
  using Turn = GrowthTurns::Turn;
  // No memory: neither the thread nor who waits for it may end otherwise than by an answer.
  Grown grow_in_turn(std::uint64_t bytes) noexcept;
  Grown grow_now(std::uint64_t bytes, Turn* turn) noexcept;
  bool grow_if_needed(std::uint64_t bytes);
  [[nodiscard]] bool fits(std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t room_at(std::uint64_t size) const noexcept;
  [[nodiscard]] std::uint64_t target_of(std::uint64_t bytes) const noexcept;
  Grown back(std::uint64_t target, Turn* turn) noexcept;
  Grown back_file(std::uint64_t target, Turn& turn) noexcept;
  void keep_ahead(std::uint64_t bytes);
  void start_ahead();
  void run_ahead();
  bool step_ahead();
  [[nodiscard]] bool sync_size(const Descriptor& mine) noexcept;
  [[nodiscard]] bool extend_copies(std::uint64_t to) noexcept;
  void drop_unborn(std::uint64_t file_bytes);
  void take_huge_pages(std::uint64_t from, std::uint64_t to, const Turn& turn);
  [[nodiscard]] Result<void> format();
  [[nodiscard]] Error write_back_failed() const;

  std::filesystem::path path_;
  Descriptor file_;
  Mapping mapping_;
  std::unique_ptr<Medium> medium_;
  Header header_{};
  DomainChoice domain_;
  std::uint64_t cap_ = kMaxPoolBytes;
  bool read_only_ = false;
  bool recovering_ = false;              // in the private mapping of a read-only pool
  std::uint64_t read_bytes_ = 0;         // of the file, where it is read-only
  std::atomic<bool> huge_pages_{false};  // worth an attempt
  bool was_clean_ = false;
  bool header_copy_damaged_ = false;
  Offset other_header_ = 0;                  // the copy that was not taken
  bool cleared_ = false;                     // by the system, as the file grows; worth the thread
  std::atomic<bool> rest_is_shared_{false};  // behind the copies, which are closed
  GrowthTurns turns_;
  std::atomic<bool> refused_{false};      // G3; a hint
  std::atomic<unsigned> waiting_{0};      // in grow() or make_room()
  std::atomic<std::uint64_t> wanted_{0};  // asked for last
  std::atomic<std::uint32_t> asked_{0};   // how often; the thread waits for more
  std::mutex starting_;                   // guards the start of the thread, and its stop
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ahead_runs_{false};
  std::thread ahead_;
};

}  // namespace everleaf::pmem
