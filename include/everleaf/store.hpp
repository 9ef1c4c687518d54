// The store: named tables from keys to values of any bytes, in one file.
//
//   auto store = everleaf::Store::open("data.pool").value();
//   auto users = store.table("users").value();
//   users.put("ada", "Countess of Lovelace");
//   std::string name;
//   if (users.get("ada", name) == everleaf::Outcome::done) use(name);
//   store.sync();
//
// Keys: Bytes (0 to kMaxKeyBytes bytes, memcmp order) or std::uint64_t. Values: up to
// kMaxValueBytes bytes, kept with a checksum over table, key and value: a value that is returned
// is the one that was put, or the answer is `corrupt`.
//
// Durability, chosen when a store is created:
//   buffered  a call returns at memory speed; a crash leaves all tables as they were at one moment,
//             at most two epochs ago (PoolOptions::epoch_length). sync() makes durable what
//             returned before.
//   strict    durable when it returns.
//
// Every call is thread-safe, with any number of threads up to kMaxThreads. Reads of keys take no
// lock.
// everleaf/throwing.hpp has the same with exceptions. Here nothing throws but bad_alloc, and only
// where there is nothing to answer with: making handles, cursors, batches, lists and figures.
// Elsewhere out_of_space stands for memory, too, and nothing has changed. One process at a time has
// a store open for writing; the next one is told so (Code::locked).
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/index.hpp>

namespace everleaf {

namespace store {  // not part of the interface
class State;
class TableBase;
template <class K>
class TableOf;
template <class K>
struct Page;
struct BatchItem;
}  // namespace store

struct StoreOptions {
  PoolOptions pool;
  // Of a store that is created (default: buffered); an existing one must be of that kind.
  std::optional<Durability> durability;
};

// The bytes of a value where they lie, without a copy; they do not change, whatever happens to the
// key meanwhile. Destroyed by the thread that made it, soon: until then no memory of the store that
// was freed since is used again. The table must outlive it.
class View {
 public:
  View(const View&) = delete;
  View& operator=(const View&) = delete;
  ~View();
  [[nodiscard]] Outcome outcome() const noexcept { return outcome_; }  // of get()
  explicit operator bool() const noexcept { return outcome_ == Outcome::done; }
  [[nodiscard]] Bytes operator*() const noexcept { return value_; }

 private:
  template <class K>
  friend class Table;
  template <class K>
  View(const store::State& state, const store::TableOf<K>& table, K key);
  alignas(8) std::array<std::byte, 16> pin_;
  Outcome outcome_;
  Bytes value_;
};

// A place in a table. It holds copies of some entries around it and fetches more by key, so it
// stays valid whatever is written meanwhile. Of keys that are there all the time it misses none and
// shows none twice; a value is that of some moment after the last move that fetched. Not
// thread-safe; as many as you like. One step: O(1), O(log n) each time it fetches.
template <class K>
class Cursor {
 public:
  // Each leaves the cursor on an entry inside its bounds, or invalid: then outcome() says why, done
  // for "there is none".
  bool first();
  bool last();
  bool seek(K key);           // the smallest at `key` or above
  bool seek_for_prev(K key);  // the largest at `key` or below
  bool next();                // only if valid()
  bool prev();

  [[nodiscard]] bool valid() const noexcept;
  [[nodiscard]] Outcome outcome() const noexcept;  // corrupt: a value or the table is damaged
  // If valid(); until the next move.
  [[nodiscard]] K key() const noexcept;
  [[nodiscard]] Bytes value() const noexcept;

  Cursor(Cursor&&) noexcept;
  Cursor& operator=(Cursor&&) noexcept;
  ~Cursor();

 private:
  template <class>
  friend class Table;
  explicit Cursor(std::unique_ptr<store::Page<K>> page);
  std::unique_ptr<store::Page<K>> page_;
};

struct TableStats {
  std::string name;
  std::string spec;
  KeyType key_type = KeyType::bytes;
  Stats tree;                     // of the keys
  std::uint64_t value_bytes = 0;  // sum of the values' lengths
};

// A handle; copies share the table, and keep the store open. After drop_table() every call that has
// an outcome answers Outcome::dropped; to the others the table is empty.
template <class K>
class Table {
 public:
  // Writes: O(log n), under a latch of the key. done, or a refusal that changed nothing:
  // out_of_space, key_too_long, value_too_long, read_only, too_many_threads, dropped. io_error: a
  // write-back failed, the store takes no more writes.
  Outcome put(K key, Bytes value);
  Outcome insert(K key, Bytes value);  // exists: the key is there
  Outcome update(K key, Bytes value);  // absent: it is not
  Outcome erase(K key);                // absent
  // Puts `desired` (nullopt: erases) if the key has the value `expected` (nullopt: is not there).
  // differs: it has not.
  Outcome compare_and_set(K key, std::optional<Bytes> expected, std::optional<Bytes> desired);

  // Replaces `value`. done, absent, corrupt, too_many_threads, dropped, out_of_space (memory).
  Outcome get(K key, std::string& value) const;
  [[nodiscard]] std::expected<std::string, Outcome> get(K key) const;
  [[nodiscard]] View get_view(K key) const;
  [[nodiscard]] bool contains(K key) const;
  // Walks the leaves, O(n / leaf); exact when no writer runs.
  [[nodiscard]] std::uint64_t count() const;
  // done, dropped, too_many_threads; then it is not replaced.
  Outcome count(std::uint64_t& keys) const;

  // Over from <= key < to; nullopt: no bound.
  [[nodiscard]] Cursor<K> cursor(std::optional<K> from = {}, std::optional<K> to = {}) const;
  // Over the keys that begin with these bytes.
  [[nodiscard]] Cursor<K> prefix(K bytes) const requires std::same_as<K, Bytes>;

  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] const std::string& spec() const noexcept;
  [[nodiscard]] TableStats stats() const;  // O(n)
  // done, dropped, too_many_threads, or what ended the walk; then only name, spec and key type
  // count.
  Outcome stats(TableStats& stats) const;

 private:
  friend class Store;
  friend class Batch;
  friend class store::State;
  Table(std::shared_ptr<store::State> state, std::shared_ptr<store::TableOf<K>> table);
  // The table goes first: it stands on the state.
  std::shared_ptr<store::State> state_;
  std::shared_ptr<store::TableOf<K>> table_;
};

// Writes that happen together: see Store::apply(). The last one of a key counts. Not thread-safe.
class Batch {
 public:
  Batch();
  Batch(Batch&&) noexcept;
  Batch& operator=(Batch&&) noexcept;
  ~Batch();
  template <class K>
  void put(const Table<K>& table, K key, Bytes value);
  template <class K>
  void erase(const Table<K>& table, K key);
  void clear();
  [[nodiscard]] std::size_t size() const noexcept;

 private:
  friend class Store;
  std::vector<store::BatchItem> items_;
};

struct StoreInfo {
  Durability durability = Durability::buffered;
  PoolInfo pool;
  std::vector<IndexInfo> tables;
  std::uint64_t record_bytes = 0;  // memory for values, all of it
  // In use: values with their checksums, rounded up to their blocks, those that wait to be free
  // included. Of a read-only store what its tables name, which walks all keys. The rest of
  // record_bytes is free for values of any table.
  std::uint64_t record_bytes_used = 0;
  std::uint64_t records = 0;  // likewise
  // Of them: given up, and free when the epoch is durable and no reader is left.
  std::uint64_t records_waiting = 0;
  bool opened_from_image = false;  // what is in use was known; otherwise all keys were walked
  std::uint64_t open_ns = 0;       // without the pool's own
  // What is damaged: tables that are not among `tables`, or that could not be walked.
  std::vector<std::string> problems;
};

struct RepairOptions {
  // Tables whose directory entries are gone: the name is part of each value's checksum.
  std::vector<std::pair<std::string, KeyType>> tables;
};

struct RepairReport {
  struct Table {
    std::string name;
    std::string spec;
    KeyType key_type = KeyType::bytes;
    std::uint64_t read = 0;            // entries that its tree has, as good as before the damage
    std::uint64_t damaged_values = 0;  // keys of the tree whose value is lost
    // Entries that were found without the tree, which is damaged: each was put once, but may be
    // older than the last value of its key, or of a key that was removed since.
    std::uint64_t found = 0;
    std::uint64_t unclear = 0;  // of them: with several values, of which one was taken
    std::vector<std::string> problems;
  };
  std::vector<Table> tables;
  std::vector<std::string> problems;  // of the whole store
  // Of the directory. What is left of a name may not be the table's: then it has to be given.
  std::uint64_t damaged_entries = 0;
  // Everything was read, and there was no damage.
  [[nodiscard]] bool sound() const;
};

// A handle; copies share the store. It is closed when the last Store and the last Table are gone.
class Store {
 public:
  // Opens or creates. After a crash, and after sessions that ended without close, all keys are
  // walked: O(keys). Errors: those of Pool::open; wrong_tree: of the other durability.
  [[nodiscard]] static Result<Store> open(const std::filesystem::path& path,
                                          const StoreOptions& options = {});
  // In memory, gone with the last handle.
  [[nodiscard]] static Result<Store> anonymous(const StoreOptions& options = {});

  // Opens the table, or creates it in the tree of `spec` (empty: bdtree, or wbtree if strict).
  // Errors: wrong_key_type, wrong_tree, out_of_space (kMaxIndexes tables), ...
  template <class K = Bytes>
  [[nodiscard]] Result<Table<K>> table(std::string_view name, std::string_view spec = {});
  // The table with its entries goes. A crash leaves it whole or gone; where it is gone, everything
  // that returned before is durable, too, and so it is when this returns. All writers wait.
  // corrupt: the table is damaged, and the memory that it names may be another's. O(n).
  Result<void> drop_table(std::string_view name);
  [[nodiscard]] Result<std::vector<IndexInfo>> tables() const;

  // All writes of the batch, or none: a crash at any instruction keeps it whole. In buffered stores
  // the batch is durable with its epoch, in strict ones when this returns. A refusal (out_of_space,
  // batch_too_large, ...) leaves nothing of it. Other writers of its keys wait. Readers do not:
  // they may see a part of it, and for a moment what a refusal takes back. dropped: of a table that
  // is gone, or of another store. io_error: the store takes no more writes, and the next open finds
  // all of it or nothing.
  Outcome apply(const Batch& batch);

  // Everything that returned before is durable afterwards. Strict stores: nothing to do.
  Outcome sync();

  // Copies all tables into a new store at `path`, while others write: it shows the instant at which
  // writers were held for a moment at the end. Tables are neither made nor dropped meanwhile. A
  // file at `path` is never replaced, and none appears before it is whole. Code::exists, ...
  Result<void> backup(const std::filesystem::path& path);

  // Copies what can be read of the store at `from`, which may be damaged and is not written to,
  // into a new store at `to`; see RepairReport. No value is wrong: each fits the checksum over its
  // table and key. `to` does not appear before it is whole. O(file). Code::exists; locked, where
  // `from` is open for writing; truncated, where the file ends before the heap; not_found, where
  // there is no such file, or no table and no value of one in it; ...
  [[nodiscard]] static Result<RepairReport> repair(const std::filesystem::path& from,
                                                   const std::filesystem::path& to,
                                                   const RepairOptions& options = {});

  // Trees, heap and the checksum of every value; problems name table and offset. No writer may run.
  [[nodiscard]] Result<CheckReport> check() const;
  [[nodiscard]] Result<StoreInfo> info() const;
  // The pool beneath, for its epochs, counters and figures.
  [[nodiscard]] Pool pool() const;

  // Releases this handle. If it is the last one on the store, it is closed now, and a failed
  // write-back is the error. Of a closed handle, and of one that was moved from, all calls but
  // close() and pool() answer bad_argument, or dropped; pool() must not be called.
  Result<void> close();

 private:
  friend struct StoreAccess;
  explicit Store(std::shared_ptr<store::State> state) : state_(std::move(state)) {}
  std::shared_ptr<store::State> state_;
};

extern template class Cursor<Bytes>;
extern template class Cursor<std::uint64_t>;
extern template class Table<Bytes>;
extern template class Table<std::uint64_t>;
extern template Result<Table<Bytes>> Store::table(std::string_view, std::string_view);
extern template Result<Table<std::uint64_t>> Store::table(std::string_view, std::string_view);
extern template void Batch::put(const Table<Bytes>&, Bytes, Bytes);
extern template void Batch::put(const Table<std::uint64_t>&, std::uint64_t, Bytes);
extern template void Batch::erase(const Table<Bytes>&, Bytes);
extern template void Batch::erase(const Table<std::uint64_t>&, std::uint64_t);

}  // namespace everleaf
