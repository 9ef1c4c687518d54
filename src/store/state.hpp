// An open store: what its tables and batches work with. README.md has the persist steps, the order
// of stores and the crash cases.
//
// Thread safety: all methods from any thread, but for those that open and close.
// Invariants
//   T1. A key is written under the latch of its stripe: what a write found is what it replaces.
//       Latches are taken before a Hold, several in ascending order, and no step of the clock is
//       waited for under a Hold.
//   T2. A record is whole and durable, or noted in an epoch that is not later than that of the
//   tree's
//       write, before a tree names it. It never changes until it is free.
//   T3. A record is free once no state that a recovery can restore names it, and no reader is left.
//   T4. No table is created or dropped, and no backup ends, without tables_mutex_.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <unordered_set>
#include <variant>

#include <everleaf/store.hpp>

#include "alloc/grace.hpp"
#include "base/instantiate.hpp"
#include "base/limits.hpp"
#include "base/seam.hpp"
#include "base/version_lock.hpp"
#include "epoch/limbo.hpp"
#include "epoch/space.hpp"
#include "store/record.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::store {

// Problems of a table that are named one by one.
inline constexpr std::size_t kNamed = 16;

// Of a stripe of keys. Unlocking is a plain store: it does not wait until the operation's stores,
// cache misses included, have left the core.
class alignas(pmem::kLine) Latch {
 public:
  void lock() noexcept {
    for (unsigned round = 0; !lock_.try_lock(lock_.begin()); ++round) base::wait_a_little(round);
  }
  void unlock() noexcept { lock_.unlock(); }

 private:
  base::VersionLock lock_;
};
using LatchGuard = std::lock_guard<Latch>;

using OwnedAny = std::variant<std::uint64_t, std::string>;
struct BatchItem;

class TableBase {
 public:
  TableBase(State& state, IndexInfo info);
  TableBase(const TableBase&) = delete;
  TableBase& operator=(const TableBase&) = delete;
  virtual ~TableBase() = default;

  // Value words of all keys, in key order; false from `visit` ends it. The caller keeps the tree.
  virtual Outcome for_each_word(const std::function<bool(Word)>& visit) const = 0;
  // As above, with whether the value fits its checksum. corrupt where `budget` is exceeded.
  virtual Outcome for_each_value(Budget& budget,
                                 const std::function<void(Word, bool)>& visit) const = 0;

  // --- Of one key, for batches and backups ---
  [[nodiscard]] virtual std::uint64_t hash(const OwnedAny& key) const = 0;
  [[nodiscard]] virtual bool too_long(const OwnedAny& key) const = 0;
  // Of each item, whose table this is.
  virtual void find_many(std::span<const BatchItem* const> items,
                         std::span<Lookup> answers) const = 0;
  virtual Outcome write(const OwnedAny& key, Word word, detail::Write what) = 0;

  State& state;
  const IndexInfo info;
  const std::uint64_t seed;  // of its keys' hashes
  // Seq_cst: who reads pins and then looks here, who drops stores and then waits for pins; neither
  // misses the other.
  std::atomic<bool> dropped{false};
};

// A record that no tree names yet: free again unless it is kept.
class Fresh {
 public:
  explicit Fresh(State& state) : state_(state) {}
  Fresh(Fresh&& other) noexcept : state_(other.state_), record_(std::exchange(other.record_, {})) {}
  Fresh& operator=(Fresh&&) = delete;
  ~Fresh();
  // S1. Not within a section, a hold, or a pin. `fence`: several may share one, see State::settle.
  [[nodiscard]] Outcome make(std::uint64_t hash, Bytes value, bool fence = true);
  // The same for memory that was reserved for a list.
  void adopt(Offset at) { record_ = {at, 0}; }
  [[nodiscard]] Word word() const { return record_.word(); }
  void keep() { record_ = {}; }
  // After the tree's answer: kept unless nothing can name it.
  Outcome settle(Outcome outcome) {
    if (outcome == Outcome::done || outcome == Outcome::io_error) keep();
    return outcome;
  }

 private:
  State& state_;
  Record record_{};
};

enum class Rule : std::uint8_t { put, insert, update };

template <class K>
class TableOf final : public TableBase {
 public:
  using Owned = typename OwnedKey<K>::type;
  TableOf(State& state, IndexInfo info, detail::Tree<K>* tree);

  Outcome put(K key, Bytes value, Rule rule);
  Outcome erase(K key);
  Outcome compare_and_set(K key, std::optional<Bytes> expected, std::optional<Bytes> desired);
  // Pinned: where the value lies. corrupt if it does not fit its checksum.
  Outcome look(K key, Bytes& value) const;
  Outcome read(Word word, K key, Bytes& value) const;
  // Whether `budget` is enough for a read(), and a hash of the key; takes them from it.
  [[nodiscard]] bool affords(Budget& budget, Word word, K key) const;
  [[nodiscard]] const detail::Tree<K>& tree() const { return *tree_; }

  Outcome for_each_word(const std::function<bool(Word)>& visit) const override;
  Outcome for_each_value(Budget& budget,
                         const std::function<void(Word, bool)>& visit) const override;
  [[nodiscard]] std::uint64_t hash(const OwnedAny& key) const override {
    return hash_of(seed, K(std::get<Owned>(key)));
  }
  [[nodiscard]] bool too_long(const OwnedAny& key) const override;
  void find_many(std::span<const BatchItem* const> items, std::span<Lookup> answers) const override;
  Outcome write(const OwnedAny& key, Word word, detail::Write what) override {
    try {
      return tree_->write(K(std::get<Owned>(key)), word, what);
    } catch (const std::bad_alloc&) {
      return Outcome::out_of_space;  // a batch is taken back, not left as it is
    }
  }

 private:
  friend class State;
  template <class F>
  Outcome for_each_entry(Budget& budget, F&& visit) const;
  // Under the key's latch.
  Outcome put_latched(K key, Fresh& fresh, Rule rule);
  Outcome erase_latched(K key);
  detail::Tree<K>* const tree_;  // while it is not dropped, and for its readers a while after that
};

struct BatchItem {
  std::shared_ptr<TableBase> table;
  OwnedAny key;
  std::optional<std::string> value;  // none: erase
};

// Of an outcome that is an error.
[[nodiscard]] Code code_of(Outcome outcome);

class State : public std::enable_shared_from_this<State> {
 public:
  // Opens the pool's store or makes one.
  static Result<std::shared_ptr<State>> start(Pool pool, std::optional<Durability> durability);
  // See repair.cpp. Of a damaged pool, read-only: its tables, as far as they open.
  static Result<RepairReport> repair(const std::filesystem::path& from,
                                     const std::filesystem::path& to, const RepairOptions& options);
  static Result<std::shared_ptr<State>> start_to_salvage(const std::filesystem::path& path,
                                                         std::vector<std::string>& problems);
  [[nodiscard]] std::shared_ptr<TableBase> table_to_salvage(std::string_view name) const;
  [[nodiscard]] bool has_root() const { return pmem::load(medium().at<Word>(pmem::kStoreAt)) != 0; }
  explicit State(Pool pool);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();
  [[nodiscard]] Result<void> of_this_process() const;
  // What the death of the process does: nothing is written any more.
  void abandon();

  template <class K>
  Result<std::shared_ptr<TableOf<K>>> table(std::string_view name, std::string_view spec);
  Result<void> drop_table(std::string_view name);
  [[nodiscard]] Result<std::vector<IndexInfo>> tables() const;
  Outcome apply(const std::vector<BatchItem>& items);
  Outcome sync() { return buffered() && epochs() != nullptr ? epochs()->sync() : Outcome::done; }
  Result<void> backup(const std::filesystem::path& path);
  Result<CheckReport> check();
  Result<StoreInfo> info() const;

  [[nodiscard]] const Pool& pool() const { return pool_; }
  [[nodiscard]] bool buffered() const { return durability_ == Durability::buffered; }
  [[nodiscard]] bool read_only() const { return base_.read_only(); }
  [[nodiscard]] pmem::Medium& medium() const { return base_.medium(); }
  [[nodiscard]] epoch::Space& space() { return *space_; }
  [[nodiscard]] alloc::Grace& grace() const { return grace_; }
  // Of a buffered store that has a table.
  [[nodiscard]] epoch::Epochs* epochs() const { return epochs_.load(std::memory_order_acquire); }

  // Why no write may begin; done: it may.
  [[nodiscard]] Outcome admit() const;
  [[nodiscard]] Latch& latch(std::uint64_t hash) {
    return latches_[hash >> (64 - base::kKeyStripeBits)];
  }
  // Memory for a record; waits for what is about to be free, once. Not within a hold or a pin.
  // `next`: as Space::reserve().
  Outcome reserve(std::size_t bytes, Offset& at, Offset* next = nullptr);
  // T2. False: out of memory.
  [[nodiscard]] bool note(Offset at, std::size_t bytes);
  // No state after this moment's epoch names it (T3).
  void retire(Word word) noexcept;
  // Under the key's latch, after it was written: a backup takes it once more.
  template <class K>
  void wrote(TableBase& table, K key) noexcept {
    if (watching_.load(std::memory_order_relaxed)) watch(table, key);
  }

 private:
  class AllLatches;  // all writers are out while it lives
  class Applying;
  class Copy;
  class Listed;

  // --- open.cpp ---
  // io if a write-back failed.
  Result<void> finish();
  Result<void> create(Durability durability);
  Result<void> open(std::optional<Durability> durability);
  Result<void> open_tables();
  Result<void> open_table(const IndexInfo& info);
  void start_reclaiming();
  void stop_reclaiming();
  // A crash came in a batch or a drop, and what it left is ended.
  Result<void> recover();
  // Whether there may be a store without a root block: one that is to be made.
  [[nodiscard]] Result<void> may_be_new() const;
  Result<void> find_records();
  [[nodiscard]] bool load_image();
  Result<void> drop_image();
  void write_image();
  void reclaim();
  void wait_for_space();
  void count_named(StoreInfo& info) const;
  // corrupt: there is none.
  [[nodiscard]] static Result<pmem::StoreRoot*> root_of(detail::PoolState& base);
  void add_unnamed(std::vector<Offset> named, std::vector<std::string>& problems) const;
  [[nodiscard]] std::unique_ptr<epoch::Space> new_space() const;
  [[nodiscard]] pmem::StoreRoot& root() const {
    return *medium().at<pmem::StoreRoot>(pmem::load(medium().at<Word>(pmem::kStoreAt)));
  }
  // A list in memory for records, whole on the medium; 0: no space, or a write-back failed.
  Offset write_list(std::span<const Word> words);
  // Of at most so many words.
  [[nodiscard]] bool read_list(Offset at, std::vector<Word>& words,
                               std::size_t most = ~std::size_t{0}) const;
  [[nodiscard]] bool set_root(Word& word, Word value);

  // --- tables.cpp ---
  template <class K>
  Result<std::shared_ptr<TableOf<K>>> load(const std::string& name, std::string_view spec);
  bool free_some(std::span<const Word> blocks);
  Outcome free_blocks(std::span<const Word> blocks);
  [[nodiscard]] Result<std::vector<Word>> blocks_to_free() const;
  Result<void> finish_drop(bool recycle);
  void bury(bool all);
  void recycle(std::uint64_t item);

  // --- batch.cpp ---
  Outcome apply_once(const std::vector<const BatchItem*>& items);
  // None: no batch was under way.
  [[nodiscard]] Result<std::vector<Word>> batch_words() const;
  [[nodiscard]] Error damaged_batch(std::string_view how) const;
  Result<void> read_batch(Listed& listed) const;
  // What recover_batch() would refuse.
  [[nodiscard]] Result<void> check_batch() const;
  [[nodiscard]] Result<void> walk_listed() const;
  Result<void> recover_batch();
  // The pool; of one that is open read-only what a crash in a batch left is ended in memory.
  static Result<Pool> without_batch(Pool pool);

  // --- backup.cpp ---
  template <class K>
  [[nodiscard]] Table<K> handle(const std::shared_ptr<TableBase>& table) {
    return Table<K>(shared_from_this(), std::static_pointer_cast<TableOf<K>>(table));
  }
  template <class K>
  void watch(TableBase& table, K key) noexcept;

  Pool pool_;
  detail::PoolState& base_;
  Durability durability_ = Durability::buffered;
  mutable alloc::Grace grace_;
  epoch::Limbo limbo_;
  std::unique_ptr<epoch::Space> space_;
  std::unique_ptr<Latch[]> latches_;
  std::atomic<epoch::Epochs*> epochs_{nullptr};
  std::uint64_t listener_ = 0;
  // Records that were given up and are not free yet: they are unknown to an image.
  std::atomic<std::uint64_t> pending_{0};
  // Value words of a damaged table: their memory is not theirs.
  std::unordered_set<Word> damaged_;
  // Of a read-only store: its damaged tables, and what is wrong with them.
  std::map<std::string, std::string, std::less<>> unopened_;
  bool from_image_ = false;
  bool finished_ = true;  // nothing to close; false while the store serves
  std::uint64_t open_ns_ = 0;

  mutable base::Mutex tables_mutex_;  // guards the next two
  std::map<std::string, std::shared_ptr<TableBase>, std::less<>> tables_;
  // Dropped tables whose readers may not be gone: their trees and blocks.
  struct Grave {
    std::uint64_t number;
    detail::PoolState::Dropped trees;
    std::vector<Offset> blocks;
  };
  std::vector<Grave> graves_;
  std::uint64_t next_grave_ = 0;
  base::Mutex burying_;                // guards the next one
  std::vector<std::uint64_t> buried_;  // graves that nobody visits any more

  base::Mutex batches_;  // of strict stores: one has the root's word

  std::atomic<bool> watching_{false};
  base::Mutex watch_mutex_;  // guards the next two
  std::set<std::pair<TableBase*, OwnedAny>> written_;
  bool watch_failed_ = false;
};

}  // namespace everleaf::store

namespace everleaf {

// Not part of the public interface.
struct StoreAccess {
  static Result<Store> over(Pool pool, std::optional<Durability> durability = {});
  static store::State& state(Store& store) { return *store.state_; }
};

}  // namespace everleaf
