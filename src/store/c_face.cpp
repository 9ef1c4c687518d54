// everleaf.h over store.hpp. No exception leaves it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <variant>
#include <vector>

#include <everleaf/everleaf.h>
#include <everleaf/store.hpp>

#include "base/last_words.hpp"

using everleaf::Bytes;
using everleaf::Code;
using everleaf::Cursor;
using everleaf::Outcome;
using everleaf::Table;

struct everleaf_store {
  everleaf::Store store;
};
struct everleaf_table {
  std::variant<Table<Bytes>, Table<std::uint64_t>> any;
};
struct everleaf_cursor {
  std::variant<Cursor<Bytes>, Cursor<std::uint64_t>> any;
};
struct everleaf_batch {
  everleaf::Batch batch;
};
struct everleaf_view {
  decltype(everleaf_table::any) table;  // it outlives the view, and keeps the store open
  std::uint64_t opener;
  everleaf::View view;
};

namespace {

constexpr int kFirstCode = EVERLEAF_NOT_A_POOL;
static_assert(static_cast<int>(Outcome::exists) == EVERLEAF_EXISTS &&
              static_cast<int>(Outcome::not_ascending) == EVERLEAF_NOT_ASCENDING &&
              static_cast<int>(Outcome::dropped) == EVERLEAF_DROPPED);
static_assert(static_cast<int>(Code::not_a_pool) == 0 &&
              static_cast<int>(Code::wrong_tree) + kFirstCode == EVERLEAF_WRONG_TREE &&
              static_cast<int>(Code::locked) + kFirstCode == EVERLEAF_LOCKED &&
              static_cast<int>(Code::read_only) + kFirstCode == EVERLEAF_POOL_READ_ONLY);

// No destructors: threads may end after the library is gone.
thread_local std::array<char, 512> message{};
thread_local const char* said = "";  // what everleaf_message() answers: `message`, or a constant

constexpr std::array kDomains{everleaf::Domain::volatile_, everleaf::Domain::process,
                              everleaf::Domain::cache, everleaf::Domain::memory,
                              everleaf::Domain::disk};
static_assert(kDomains.size() == EVERLEAF_DOMAIN_DISK &&
              static_cast<int>(kDomains.back()) + 1 == EVERLEAF_DOMAIN_DISK);

int refused(int code, const char* sentence) {
  said = sentence;
  return code;
}
int bad_call() {
  return refused(EVERLEAF_BAD_CALL, "an argument is NULL, or not one that is allowed there");
}
int code_of(Outcome outcome) {
  const int code = static_cast<int>(outcome);
  return outcome == Outcome::done ? code : refused(code, everleaf::describe(outcome).data());
}
int code_of(Code code, std::string_view sentence) {
  const std::size_t size = std::min(sentence.size(), message.size() - 1);
  std::memcpy(message.data(), sentence.data(), size);
  message[size] = 0;
  said = message.data();
  return static_cast<int>(code) + kFirstCode;
}
int code_of(const everleaf::Error& error) {
  return code_of(error.code, error.message);
}
template <class T>
int code_of(const everleaf::Result<T>& result) {
  return result ? EVERLEAF_OK : code_of(result.error());
}

// Memory is out, or the system gives no lock or thread.
template <class Call>
int guarded(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return code_of(Outcome::out_of_space);
  } catch (const std::exception& error) {
    return code_of(Code::io, error.what());  // no memory is needed to say so
  }
}

Bytes bytes_of(const void* data, std::size_t size) {
  return {static_cast<const char*>(data), size};
}
bool is_value(const void* value, std::size_t size) {
  return value != nullptr || size == 0;
}
bool is_key(const everleaf_key& key) {
  return is_value(key.data, key.size);
}
template <class K>
K key_of(const everleaf_key& key) {
  if constexpr (std::same_as<K, Bytes>) {
    return bytes_of(key.data, key.size);
  } else {
    return key.number;
  }
}
template <class T>
struct KeyOf;
template <class K>
struct KeyOf<Table<K>> {
  using type = K;
};
template <class K>
struct KeyOf<Cursor<K>> {
  using type = K;
};

template <class Handle>
bool fits(const Handle& handle, const everleaf_key& key) {
  const bool numbers = std::visit(
      []<class T>(const T&) { return std::same_as<typename KeyOf<T>::type, std::uint64_t>; },
      handle.any);
  return is_key(key) && key.keys == (numbers ? EVERLEAF_KEYS_U64 : EVERLEAF_KEYS_BYTES);
}

// call(table or cursor, key)
template <class Handle, class Call>
int with_key(Handle* handle, const everleaf_key& key, Call call) {
  if (handle == nullptr || !fits(*handle, key)) return bad_call();
  return guarded([&] {
    return std::visit(
        [&]<class T>(T& any) { return call(any, key_of<typename KeyOf<T>::type>(key)); },
        handle->any);
  });
}

// Unlike the system's numbers none comes again.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

// Structs whose size the caller says: the shortest that it may be, which stays when they grow.
template <class T>
constexpr std::size_t kShortest = 0;
template <>
constexpr std::size_t kShortest<everleaf_options> = offsetof(everleaf_options, domain);
template <>
constexpr std::size_t kShortest<everleaf_info> = offsetof(everleaf_info, record_bytes_used);
template <>
constexpr std::size_t kShortest<everleaf_stats> = offsetof(everleaf_stats, dram_bytes) + 8;
template <>
constexpr std::size_t kShortest<everleaf_repair_options> = offsetof(everleaf_repair_options,
                                                                    context) +
                                                           sizeof(void*);
constexpr std::size_t kLongest = 1024;  // a size above was never set

template <class T>
bool is_sized(const T* from) {
  static_assert(kShortest<T> >= 2 * sizeof(std::size_t));
  static_assert(kShortest<T> % alignof(T) == 0);
  return from != nullptr && from->size >= kShortest<T> && from->size <= kLongest &&
         from->size % alignof(T) == 0;
}
// What the caller's struct does not have is that of `all`. False: it says more than we know.
template <class T>
bool take(const T& from, T& all) {
  const std::size_t size = from.size;
  std::memcpy(&all, &from, std::min(size, sizeof(T)));
  const auto* const bytes = reinterpret_cast<const char*>(&from);
  return size <= sizeof(T) ||
         std::all_of(bytes + sizeof(T), bytes + size, [](char byte) { return byte == 0; });
}
// The caller's size stays.
template <class T>
int give(T all, T* to) {
  all.size = to->size;
  if (to->size > sizeof(T)) {
    std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, to->size - sizeof(T));
  }
  std::memcpy(to, &all, std::min(all.size, sizeof(T)));
  return EVERLEAF_OK;
}

everleaf_options default_options() {
  const everleaf::PoolOptions defaults;
  everleaf_options all{};
  all.mode = EVERLEAF_OPEN_OR_CREATE;
  all.durability = EVERLEAF_ANY;
  all.epoch_ns = static_cast<std::uint64_t>(defaults.epoch_length.count());
  all.max_bytes = defaults.max_bytes;
  all.domain = EVERLEAF_DOMAIN_DETECTED;
  all.emulate = defaults.emulate ? 1 : 0;
  all.private_bytes = EVERLEAF_PRIVATE_DEFAULT;
  all.huge_pages = defaults.huge_pages ? 1 : 0;
  return all;
}

int kind_of(everleaf::KeyType type) {
  return type == everleaf::KeyType::u64 ? EVERLEAF_KEYS_U64 : EVERLEAF_KEYS_BYTES;
}
bool is_kind(int keys) {
  return keys == EVERLEAF_KEYS_BYTES || keys == EVERLEAF_KEYS_U64;
}

// The store may be closed with its last handle.
template <class Handle>
int release(Handle* handle) {
  return guarded([&] { return code_of(everleaf::base::LastWords::of([&] { delete handle; })); });
}

everleaf::Result<everleaf::StoreOptions> options_of(const everleaf_options* given) {
  everleaf::StoreOptions options;
  everleaf_options all = default_options();
  const everleaf_options* const from = &all;
  if (given != nullptr && (!take(*given, all) || all.reserved != 0)) {
    return std::unexpected(
        everleaf::Error{Code::unknown_option, "the options have one of a newer version"});
  }
  if (from->mode < EVERLEAF_OPEN_OR_CREATE || from->mode > EVERLEAF_OPEN_READ_ONLY ||
      from->durability < EVERLEAF_ANY || from->durability > EVERLEAF_STRICT) {
    return std::unexpected(everleaf::Error{Code::bad_argument, "there is no such mode"});
  }
  if (from->domain < EVERLEAF_DOMAIN_DETECTED || from->domain > EVERLEAF_DOMAIN_DISK) {
    return std::unexpected(everleaf::Error{Code::bad_argument, "there is no such domain"});
  }
  if (from->domain != EVERLEAF_DOMAIN_DETECTED) {
    options.pool.domain = kDomains[static_cast<std::size_t>(from->domain) - 1];
  }
  options.pool.emulate = from->emulate != 0;
  options.pool.huge_pages = from->huge_pages != 0;
  if (from->private_bytes != EVERLEAF_PRIVATE_DEFAULT) {
    options.pool.private_bytes = from->private_bytes;
  }
  constexpr std::array kModes{everleaf::Mode::open_or_create, everleaf::Mode::create,
                              everleaf::Mode::open, everleaf::Mode::read_only};
  options.pool.mode = kModes[static_cast<std::size_t>(from->mode)];
  options.pool.epoch_length = std::chrono::nanoseconds(from->epoch_ns);
  options.pool.max_bytes = from->max_bytes;
  if (from->durability == EVERLEAF_BUFFERED) options.durability = everleaf::Durability::buffered;
  if (from->durability == EVERLEAF_STRICT) options.durability = everleaf::Durability::strict;
  return options;
}

int hand_out(everleaf::Result<everleaf::Store> opened, everleaf_store** store) {
  if (!opened) return code_of(opened.error());
  *store = new everleaf_store{std::move(*opened)};
  return EVERLEAF_OK;
}

template <class K>
int open_table(everleaf::Store& store, const char* name, const char* tree, everleaf_table** table) {
  auto opened = store.table<K>(name, tree == nullptr ? "" : tree);
  if (!opened) return code_of(opened.error());
  *table = new everleaf_table{std::move(*opened)};
  return EVERLEAF_OK;
}

void tell(const std::vector<std::string>& sentences, void (*problem)(void*, const char*),
          void* context) {
  if (problem == nullptr) return;
  for (const std::string& one : sentences) problem(context, one.c_str());
}

template <class Move>
int move(everleaf_cursor* cursor, Move go) {
  if (cursor == nullptr) return bad_call();
  return guarded([&] {
    return std::visit(
        [&](auto& any) {
          if (go(any)) return static_cast<int>(EVERLEAF_OK);
          const Outcome outcome = any.outcome();
          return code_of(outcome == Outcome::done ? Outcome::absent : outcome);
        },
        cursor->any);
  });
}

}  // namespace

extern "C" {

const char* everleaf_version(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = EVERLEAF_VERSION_MAJOR;
  if (minor != nullptr) *minor = EVERLEAF_VERSION_MINOR;
  if (patch != nullptr) *patch = EVERLEAF_VERSION_PATCH;
  return EVERLEAF_VERSION;
}
const char* everleaf_strerror(int code) {
  if (code == EVERLEAF_BUFFER_TOO_SMALL) return "buffer too small";
  if (code == EVERLEAF_BAD_CALL) return "bad call";
  if (code >= 0 && code <= EVERLEAF_DROPPED) {
    return everleaf::to_string(static_cast<Outcome>(code)).data();
  }
  if (code >= kFirstCode && code <= EVERLEAF_POOL_READ_ONLY) {
    return everleaf::to_string(static_cast<Code>(code - kFirstCode)).data();
  }
  return "unknown code";
}
const char* everleaf_message(void) {
  return said;
}

int everleaf_fill_options(everleaf_options* options) {
  return is_sized(options) ? give(default_options(), options) : bad_call();
}
int everleaf_open(const char* path, const everleaf_options* options, everleaf_store** store) {
  if (path == nullptr || store == nullptr) return bad_call();
  if (options != nullptr && !is_sized(options)) return bad_call();
  return guarded([&] {
    const auto with = options_of(options);
    return with ? hand_out(everleaf::Store::open(path, *with), store) : code_of(with.error());
  });
}
int everleaf_open_in_memory(const everleaf_options* options, everleaf_store** store) {
  if (store == nullptr) return bad_call();
  if (options != nullptr && !is_sized(options)) return bad_call();
  return guarded([&] {
    const auto with = options_of(options);
    return with ? hand_out(everleaf::Store::anonymous(*with), store) : code_of(with.error());
  });
}
int everleaf_close(everleaf_store* store) {
  if (store == nullptr) return EVERLEAF_OK;
  const std::unique_ptr<everleaf_store> last(store);
  return guarded([&] { return code_of(last->store.close()); });
}
int everleaf_sync(everleaf_store* store) {
  if (store == nullptr) return bad_call();
  return guarded([&] { return code_of(store->store.sync()); });
}
int everleaf_epochs(everleaf_store* store, uint64_t* now, uint64_t* durable) {
  if (store == nullptr) return bad_call();
  return guarded([&] {
    const everleaf::EpochInfo epochs = store->store.pool().epochs();
    if (now != nullptr) *now = epochs.now;
    if (durable != nullptr) *durable = epochs.durable;
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_wait_durable(everleaf_store* store, uint64_t epoch) {
  if (store == nullptr) return bad_call();
  return guarded([&] { return code_of(store->store.pool().wait_durable(epoch)); });
}
int everleaf_backup(everleaf_store* store, const char* path) {
  if (store == nullptr || path == nullptr) return bad_call();
  return guarded([&] { return code_of(store->store.backup(path)); });
}
int everleaf_check(everleaf_store* store, void (*problem)(void* context, const char* sentence),
                   void* context, uint64_t* count) {
  if (store == nullptr) return bad_call();
  return guarded([&] {
    const auto report = store->store.check();
    if (!report) return code_of(report.error());
    if (count != nullptr) *count = report->problems.size();
    tell(report->problems, problem, context);
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_get_info(everleaf_store* store, everleaf_info* info) {
  if (store == nullptr || !is_sized(info)) return bad_call();
  return guarded([&] {
    const auto found = store->store.info();
    if (!found) return code_of(found.error());
    const everleaf::PoolInfo& pool = found->pool;
    everleaf_info all{};
    all.durability =
        found->durability == everleaf::Durability::strict ? EVERLEAF_STRICT : EVERLEAF_BUFFERED;
    all.domain = static_cast<int>(pool.domain.domain) + 1;
    all.emulated = pool.domain.emulated ? 1 : 0;
    all.read_only = pool.read_only ? 1 : 0;
    all.clean = pool.clean ? 1 : 0;
    all.replayed = pool.replayed;
    all.file_bytes = pool.file_bytes;
    all.heap_bytes = pool.heap_bytes;
    all.record_bytes = found->record_bytes;
    all.records = found->records;
    all.open_ns = pool.open_ns + found->open_ns;
    all.tables = found->tables.size();
    all.format = pool.version;
    all.header_damaged = pool.header_copy_damaged ? 1 : 0;
    all.from_image = found->opened_from_image ? 1 : 0;
    all.record_bytes_used = found->record_bytes_used;
    all.records_waiting = found->records_waiting;
    all.problems = found->problems.size();
    all.lost_blocks = pool.lost_blocks;
    return give(all, info);
  });
}
int everleaf_repair(const char* from, const char* to, const everleaf_repair_options* options,
                    int* sound) {
  everleaf_repair_options all{};
  if (from == nullptr || to == nullptr) return bad_call();
  if (options != nullptr && !is_sized(options)) return bad_call();
  if (options != nullptr && !take(*options, all)) {
    return code_of(Code::unknown_option, "the options have one of a newer version");
  }
  if (all.lost == nullptr && all.lost_count != 0) return bad_call();
  return guarded([&] {
    everleaf::RepairOptions with;
    for (std::size_t i = 0; i < all.lost_count; ++i) {
      const everleaf_table_name& one = all.lost[i];
      if (one.name == nullptr || !is_kind(one.keys)) return bad_call();
      with.tables.emplace_back(one.name, one.keys == EVERLEAF_KEYS_U64 ? everleaf::KeyType::u64
                                                                       : everleaf::KeyType::bytes);
    }
    const auto report = everleaf::Store::repair(from, to, with);
    if (!report) return code_of(report.error());
    tell(report->problems, all.problem, all.context);
    for (const auto& table : report->tables) {
      tell(table.problems, all.problem, all.context);
      const everleaf_repaired one{sizeof one,
                                  table.name.c_str(),
                                  table.spec.c_str(),
                                  kind_of(table.key_type),
                                  0,
                                  table.read,
                                  table.damaged_values,
                                  table.found,
                                  table.unclear};
      if (all.table != nullptr) all.table(all.context, &one);
    }
    if (sound != nullptr) *sound = report->sound() ? 1 : 0;
    return static_cast<int>(EVERLEAF_OK);
  });
}

int everleaf_table_open(everleaf_store* store, const char* name, int keys, const char* tree,
                        everleaf_table** table) {
  if (store == nullptr || name == nullptr || table == nullptr) return bad_call();
  if (!is_kind(keys)) return bad_call();
  return guarded([&] {
    return keys == EVERLEAF_KEYS_U64 ? open_table<std::uint64_t>(store->store, name, tree, table)
                                     : open_table<Bytes>(store->store, name, tree, table);
  });
}
int everleaf_table_close(everleaf_table* table) {
  return release(table);
}
int everleaf_table_drop(everleaf_store* store, const char* name) {
  if (store == nullptr || name == nullptr) return bad_call();
  return guarded([&] { return code_of(store->store.drop_table(name)); });
}
int everleaf_table_describe(everleaf_table* table, const char** name, int* keys,
                            const char** tree) {
  if (table == nullptr) return bad_call();
  std::visit(
      [&]<class K>(const Table<K>& t) {
        if (name != nullptr) *name = t.name().c_str();
        if (keys != nullptr) {
          *keys = std::same_as<K, Bytes> ? EVERLEAF_KEYS_BYTES : EVERLEAF_KEYS_U64;
        }
        if (tree != nullptr) *tree = t.spec().c_str();
      },
      table->any);
  return EVERLEAF_OK;
}
int everleaf_table_stats(everleaf_table* table, everleaf_stats* stats) {
  if (table == nullptr || !is_sized(stats)) return bad_call();
  return guarded([&] {
    everleaf::TableStats found;
    const Outcome outcome = std::visit([&](const auto& t) { return t.stats(found); }, table->any);
    if (outcome != Outcome::done) return code_of(outcome);
    const everleaf::Stats& tree = found.tree;
    return give(everleaf_stats{0, tree.keys, found.value_bytes, tree.height, tree.inner_nodes,
                               tree.leaf_nodes, tree.pool_bytes, tree.dram_bytes},
                stats);
  });
}
int everleaf_tables(everleaf_store* store,
                    void (*visit)(void* context, const char* name, int keys, const char* tree),
                    void* context) {
  if (store == nullptr || visit == nullptr) return bad_call();
  return guarded([&] {
    const auto all = store->store.tables();
    if (!all) return code_of(all.error());
    for (const auto& one : *all) {
      visit(context, one.name.c_str(), kind_of(one.key_type), one.spec.c_str());
    }
    return static_cast<int>(EVERLEAF_OK);
  });
}

int everleaf_put(everleaf_table* table, everleaf_key key, const void* value, size_t size) {
  if (!is_value(value, size)) return bad_call();
  return with_key(table, key,
                  [&](auto& t, auto k) { return code_of(t.put(k, bytes_of(value, size))); });
}
int everleaf_insert(everleaf_table* table, everleaf_key key, const void* value, size_t size) {
  if (!is_value(value, size)) return bad_call();
  return with_key(table, key,
                  [&](auto& t, auto k) { return code_of(t.insert(k, bytes_of(value, size))); });
}
int everleaf_update(everleaf_table* table, everleaf_key key, const void* value, size_t size) {
  if (!is_value(value, size)) return bad_call();
  return with_key(table, key,
                  [&](auto& t, auto k) { return code_of(t.update(k, bytes_of(value, size))); });
}
int everleaf_erase(everleaf_table* table, everleaf_key key) {
  return with_key(table, key, [](auto& t, auto k) { return code_of(t.erase(k)); });
}
int everleaf_compare_and_set(everleaf_table* table, everleaf_key key, const void* expected,
                             size_t expected_size, const void* desired, size_t desired_size) {
  if (!is_value(expected, expected_size) || !is_value(desired, desired_size)) {
    return bad_call();
  }
  const auto value = [](const void* data, std::size_t size) {
    return data == nullptr ? std::nullopt : std::optional(bytes_of(data, size));
  };
  return with_key(table, key, [&](auto& t, auto k) {
    return code_of(
        t.compare_and_set(k, value(expected, expected_size), value(desired, desired_size)));
  });
}

int everleaf_get(everleaf_table* table, everleaf_key key, void* buffer, size_t capacity,
                 size_t* size) {
  if (size == nullptr || !is_value(buffer, capacity)) return bad_call();
  return with_key(table, key, [&](auto& t, auto k) {
    const everleaf::View view = t.get_view(k);
    if (!view) return code_of(view.outcome());
    *size = (*view).size();
    if (*size > capacity) {
      return refused(EVERLEAF_BUFFER_TOO_SMALL, "the value is longer than the buffer");
    }
    if (*size != 0) std::memcpy(buffer, (*view).data(), *size);
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_get_copy(everleaf_table* table, everleaf_key key, void** value, size_t* size) {
  if (value == nullptr || size == nullptr) return bad_call();
  return with_key(table, key, [&](auto& t, auto k) {
    const everleaf::View view = t.get_view(k);
    if (!view) return code_of(view.outcome());
    const Bytes bytes = *view;
    void* const copy = std::malloc(std::max<std::size_t>(bytes.size(), 1));
    if (copy == nullptr) return code_of(Outcome::out_of_space);
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    *value = copy;
    *size = bytes.size();
    return static_cast<int>(EVERLEAF_OK);
  });
}
void everleaf_free(void* value) {
  std::free(value);
}
int everleaf_view_open(everleaf_table* table, everleaf_key key, const void** value, size_t* size,
                       everleaf_view** view) {
  if (value == nullptr || size == nullptr || view == nullptr) return bad_call();
  return with_key(table, key, [&](auto& t, auto k) {
    std::unique_ptr<everleaf_view> opened(
        new everleaf_view{table->any, this_thread(), t.get_view(k)});
    if (!opened->view) return code_of(opened->view.outcome());
    *value = (*opened->view).data();
    *size = (*opened->view).size();
    *view = opened.release();
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_view_close(everleaf_view* view) {
  if (view != nullptr && view->opener != this_thread()) return bad_call();
  return release(view);
}
int everleaf_contains(everleaf_table* table, everleaf_key key) {
  return with_key(table, key, [](auto& t, auto k) { return t.contains(k) ? 1 : 0; }) == 1 ? 1 : 0;
}
int everleaf_count(everleaf_table* table, uint64_t* count) {
  if (table == nullptr || count == nullptr) return bad_call();
  return guarded([&] {
    return code_of(std::visit([&](const auto& t) { return t.count(*count); }, table->any));
  });
}

int everleaf_cursor_open(everleaf_table* table, const everleaf_key* from, const everleaf_key* to,
                         everleaf_cursor** cursor) {
  if (table == nullptr || cursor == nullptr) return bad_call();
  for (const everleaf_key* const key : {from, to}) {
    if (key != nullptr && !fits(*table, *key)) return bad_call();
  }
  return guarded([&] {
    std::visit(
        [&]<class K>(const Table<K>& t) {
          const auto bound = [](const everleaf_key* key) {
            return key == nullptr ? std::nullopt : std::optional(key_of<K>(*key));
          };
          *cursor = new everleaf_cursor{t.cursor(bound(from), bound(to))};
        },
        table->any);
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_cursor_open_prefix(everleaf_table* table, const void* prefix, size_t size,
                                everleaf_cursor** cursor) {
  if (table == nullptr || cursor == nullptr || !is_value(prefix, size)) return bad_call();
  const auto* const bytes = std::get_if<Table<Bytes>>(&table->any);
  if (bytes == nullptr) return bad_call();
  return guarded([&] {
    *cursor = new everleaf_cursor{bytes->prefix(bytes_of(prefix, size))};
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_cursor_close(everleaf_cursor* cursor) {
  return release(cursor);
}
int everleaf_cursor_first(everleaf_cursor* cursor) {
  return move(cursor, [](auto& any) { return any.first(); });
}
int everleaf_cursor_last(everleaf_cursor* cursor) {
  return move(cursor, [](auto& any) { return any.last(); });
}
int everleaf_cursor_seek(everleaf_cursor* cursor, everleaf_key key) {
  if (cursor == nullptr || !fits(*cursor, key)) return bad_call();
  return move(cursor, [&]<class K>(Cursor<K>& any) { return any.seek(key_of<K>(key)); });
}
int everleaf_cursor_seek_for_prev(everleaf_cursor* cursor, everleaf_key key) {
  if (cursor == nullptr || !fits(*cursor, key)) return bad_call();
  return move(cursor, [&]<class K>(Cursor<K>& any) { return any.seek_for_prev(key_of<K>(key)); });
}
int everleaf_cursor_next(everleaf_cursor* cursor) {
  return move(cursor, [](auto& any) { return any.next(); });
}
int everleaf_cursor_prev(everleaf_cursor* cursor) {
  return move(cursor, [](auto& any) { return any.prev(); });
}
int everleaf_cursor_get(everleaf_cursor* cursor, everleaf_key* key, const void** value,
                        size_t* size) {
  if (cursor == nullptr) return bad_call();
  return std::visit(
      [&]<class K>(const Cursor<K>& any) {
        if (!any.valid()) return code_of(Outcome::absent);
        if (key != nullptr) {
          if constexpr (std::same_as<K, Bytes>) {
            *key = everleaf_key_of(any.key().data(), any.key().size());
          } else {
            *key = everleaf_key_u64(any.key());
          }
        }
        if (value != nullptr) *value = any.value().data();
        if (size != nullptr) *size = any.value().size();
        return static_cast<int>(EVERLEAF_OK);
      },
      cursor->any);
}

int everleaf_batch_create(everleaf_batch** batch) {
  if (batch == nullptr) return bad_call();
  return guarded([&] {
    *batch = new everleaf_batch;
    return static_cast<int>(EVERLEAF_OK);
  });
}
void everleaf_batch_release(everleaf_batch* batch) {
  delete batch;
}
int everleaf_batch_put(everleaf_batch* batch, everleaf_table* table, everleaf_key key,
                       const void* value, size_t size) {
  if (batch == nullptr || !is_value(value, size)) return bad_call();
  return with_key(table, key, [&]<class K>(Table<K>& t, K k) {
    batch->batch.put<K>(t, k, bytes_of(value, size));
    return static_cast<int>(EVERLEAF_OK);
  });
}
int everleaf_batch_erase(everleaf_batch* batch, everleaf_table* table, everleaf_key key) {
  if (batch == nullptr) return bad_call();
  return with_key(table, key, [&]<class K>(Table<K>& t, K k) {
    batch->batch.erase<K>(t, k);
    return static_cast<int>(EVERLEAF_OK);
  });
}
void everleaf_batch_clear(everleaf_batch* batch) {
  if (batch != nullptr) batch->batch.clear();
}
size_t everleaf_batch_count(const everleaf_batch* batch) {
  return batch == nullptr ? 0 : batch->batch.size();
}
int everleaf_apply(everleaf_store* store, everleaf_batch* batch) {
  if (store == nullptr || batch == nullptr) return bad_call();
  return guarded([&] { return code_of(store->store.apply(batch->batch)); });
}

}  // extern "C"
