// What an open pool is made of, and the door that tests and the crash checker use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <everleaf/index.hpp>

#include "alloc/ground.hpp"
#include "base/process.hpp"
#include "pmem/pool_file.hpp"
#include "trees/contract.hpp"
#include "trees/directory.hpp"

namespace everleaf::detail {

class PoolState {
 public:
  // Recovers: replays redo records, rolls buffered trees back, then marks the pool open.
  static Result<std::shared_ptr<PoolState>> start(std::unique_ptr<pmem::PoolFile> file,
                                                  const PoolOptions& options,
                                                  std::uint64_t started_ns);
  PoolState(std::unique_ptr<pmem::PoolFile> file, std::chrono::nanoseconds epoch_length);
  PoolState(const PoolState&) = delete;
  PoolState& operator=(const PoolState&) = delete;
  ~PoolState();

  // What a name stands for: an index, or a table of the Store.
  enum class Kind : bool { index, table };
  template <class K>
  Result<Tree<K>*> index(std::string_view name, std::string_view spec, Kind kind = Kind::index);

  // A table that nobody can open any more, and its heap blocks: durably allocated, the caller's.
  struct Dropped {
    std::unique_ptr<Tree<std::uint64_t>> u64;
    std::unique_ptr<Tree<Bytes>> bytes;
    tree::Directory::Held place;  // its readers look there
  };
  [[nodiscard]] Result<std::vector<pmem::Offset>> blocks_of(std::string_view name);
  // In one redo record with what `record` has: the entry is free. done: `dropped` is filled.
  Outcome drop(std::string_view name, alloc::Redo& record, Dropped& dropped);

  // Without damaged entries.
  // As Pool::indexes().
  [[nodiscard]] Result<std::vector<IndexInfo>> indexes(
      std::vector<std::string>* problems = nullptr) const;
  [[nodiscard]] IndexInfo info_of(const void* tree) const;
  [[nodiscard]] PoolInfo info() const;
  [[nodiscard]] std::uint32_t replayed() const { return replayed_; }
  // Of an open before this one, in the same mapping.
  void add_replayed(std::uint32_t records) { replayed_ += records; }
  [[nodiscard]] Counters counters() const { return file_->medium().counters(); }
  Outcome make_room(std::uint64_t bytes);
  Result<CheckReport> check();
  // What the death of the process does: nothing is written any more.
  void abandon();
  // The same, and the file is the caller's: the state goes before it.
  [[nodiscard]] std::unique_ptr<pmem::PoolFile> release();

  // Null: there is no buffered tree, or nothing may be written.
  [[nodiscard]] epoch::Epochs* epochs() {
    const base::MutexGuard guard(mutex_);
    return file_->read_only() ? nullptr : epochs_.get();
  }
  [[nodiscard]] EpochInfo epoch_info() const;
  [[nodiscard]] std::chrono::nanoseconds epoch_length() const { return epoch_length_; }

  [[nodiscard]] pmem::PoolFile& file() { return *file_; }
  [[nodiscard]] alloc::RedoLog& redo() { return ground_.redo; }
  [[nodiscard]] pmem::Medium& medium() { return file_->medium(); }
  [[nodiscard]] alloc::Heap& heap() { return ground_.heap; }
  [[nodiscard]] bool read_only() const { return file_->read_only(); }
  [[nodiscard]] const base::Process& process() const { return process_; }

 private:
  struct Open {
    IndexInfo info;
    std::unique_ptr<Tree<std::uint64_t>> u64;
    std::unique_ptr<Tree<Bytes>> bytes;
  };
  tree::Context context(pmem::Offset root_word) {
    return {file_->medium(), ground_.heap,       ground_.redo,       ground_.grace,
            epochs_.get(),   !file_->writable(), file_->read_only(), root_word};
  }
  Result<void> finish();
  void close_trees();
  Result<void> need_epochs(const tree::Registration& row);
  Result<void> start_clock();
  Result<void> roll_back();
  void open_what_ages();
  Result<Open*> open_index(std::string_view name, std::string_view spec, KeyType key_type,
                           Kind kind);
  Result<tree::Directory::Found> create_index(std::string_view name, std::string_view spec,
                                              KeyType key_type, Kind kind);
  void reach_store(std::vector<pmem::Offset>& reachable, std::vector<std::string>& problems);
  Result<Open*> open_found(const tree::Directory::Found& found);
  // The row and the canonical form of what the caller wrote.
  struct Resolved;
  [[nodiscard]] static Result<Resolved> resolve(std::string_view spec_text);
  Result<Open*> load(const tree::Directory::Found& found);
  Result<Open*> load(const tree::Directory::Found& found, const Resolved& resolved);

  const base::Process process_;
  std::unique_ptr<pmem::PoolFile> file_;
  alloc::Ground ground_;
  tree::Directory directory_;
  const std::chrono::nanoseconds epoch_length_;
  std::unique_ptr<epoch::Epochs> epochs_;  // with the first buffered tree
  std::uint64_t aging_ = 0;                // the listener of open_what_ages()
  bool all_opened_ = false;                // it ran, and did
  std::uint32_t replayed_ = 0;
  std::uint64_t open_ns_ = 0;
  bool serving_ = false;  // opened and recovered
  bool finished_ = false;
  mutable base::Mutex mutex_;  // guards open_ and the directory; taken in a step of the clock, too
  std::map<std::string, Open, std::less<>> open_;
};

}  // namespace everleaf::detail

namespace everleaf {

// Not part of the public interface.
struct PoolAccess {
  static Result<Pool> open(const std::filesystem::path& path, const PoolOptions& options,
                           pmem::Observer* observer);
  static Result<Pool> create_unnamed(pmem::Unborn& unborn, const PoolOptions& options);
  static Result<Pool> anonymous(const PoolOptions& options, pmem::Observer* observer);
  // In memory of the caller: see PoolFile::attach and format.
  static Result<Pool> attach(std::byte* memory, std::uint64_t bytes, std::uint64_t capacity,
                             const PoolOptions& options, pmem::Observer* observer);
  static Result<Pool> format(std::byte* memory, std::uint64_t bytes, std::uint64_t capacity,
                             const PoolOptions& options, pmem::Observer* observer);
  static detail::PoolState& state(Pool& pool) { return *pool.state_; }
  // The pool was opened read-only, and this is its only handle. `recover` writes to it as to one
  // that is open for writing, in a private mapping that the pool has from then on.
  static Result<Pool> recover_in_memory(Pool pool,
                                        const std::function<Result<void>(Pool&)>& recover);
};

}  // namespace everleaf
