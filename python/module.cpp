// The store for Python: what python/everleaf/__init__.py stands on. Only include/everleaf is used.
//
// Threads: every call that touches the store lets go of the interpreter's lock, and holds the
// store's own latch with others, so that close() in one thread waits for calls of others and no
// call meets a closed store. No Python code runs under that latch: the garbage collector might.
// A child of fork() has no thread that steps the clock, and two processes must not write one pool:
// every call there is refused, and what the child inherited is abandoned, not closed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <everleaf/store.hpp>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <pthread.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using everleaf::Bytes;
using everleaf::Outcome;

// Arguments as the type stub names them. What they are is looked at by Key and Buffer, which say
// more plainly what is wrong with one.
template <class K>
struct KeyArgument {
  nb::handle object;
};
struct BufferArgument {
  nb::handle object;
};

}  // namespace

namespace nanobind::detail {

inline bool take(handle source, handle& argument) {
  argument = source;
  return true;
}
template <>
struct type_caster<KeyArgument<Bytes>> {
  NB_TYPE_CASTER(KeyArgument<Bytes>, const_name("typing_extensions.Buffer"))
  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    return take(source, value.object);
  }
};
template <>
struct type_caster<KeyArgument<std::uint64_t>> {
  NB_TYPE_CASTER(KeyArgument<std::uint64_t>, const_name("typing.SupportsIndex"))
  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    return take(source, value.object);
  }
};
template <>
struct type_caster<BufferArgument> {
  NB_TYPE_CASTER(BufferArgument, const_name("typing_extensions.Buffer"))
  bool from_python(handle source, std::uint8_t, cleanup_list*) {
    return take(source, value.object);
  }
};

}  // namespace nanobind::detail

namespace {

std::atomic<unsigned> forks{0};  // of this process's line

// --- Errors --------------------------------------------------------------------------------------

// Names and messages may have bytes that are not UTF-8: they become surrogates, as os.fsdecode()
// makes them, and come back from there.
nb::str to_text(std::string_view text) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
}
std::string from_text(const nb::str& text) {
  const nb::object bytes =
      nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();  // UnicodeEncodeError
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}
// Of what os.fsencode() made.
std::string path_of(const nb::bytes& encoded) {
  std::string path(encoded.c_str(), encoded.size());
  if (path.find('\0') != std::string::npos) throw nb::value_error("embedded null byte in a path");
  return path;
}

[[noreturn]] void raise_error(std::string_view code, std::string_view message) {
  nb::module_::import_("everleaf._errors").attr("raise_error")(to_text(code), to_text(message));
  throw nb::value_error("raise_error() returned");
}

[[noreturn]] void raise_error(const everleaf::Error& error) {
  raise_error(everleaf::to_string(error.code), error.message);
}

[[noreturn]] void raise_error(Outcome outcome) {
  raise_error(everleaf::to_string(outcome), everleaf::describe(outcome));
}

// done: true; `no`: false; anything else is an error.
bool answer(Outcome outcome, Outcome no) {
  if (outcome == Outcome::done) return true;
  if (outcome == no) return false;
  raise_error(outcome);
}

void expect_done(Outcome outcome) {
  if (outcome != Outcome::done) raise_error(outcome);
}

template <class T>
T value_of(everleaf::Result<T>&& result) {
  if (!result) raise_error(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// --- Bytes ---------------------------------------------------------------------------------------

// The bytes of any object with the buffer protocol, for as long as it lives; under the
// interpreter's lock.
class Buffer {
 public:
  explicit Buffer(nb::handle object, int flags = PyBUF_SIMPLE) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }
  [[nodiscard]] Bytes bytes() const {
    return {static_cast<const char*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
  [[nodiscard]] char* begin() const { return static_cast<char*>(view_.buf); }

 private:
  Py_buffer view_{};
};

nb::bytes to_python(Bytes bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}
nb::int_ to_python(std::uint64_t number) {
  return nb::int_(number);
}
nb::list to_list(const std::vector<std::string>& sentences) {
  nb::list list;
  for (const std::string& sentence : sentences) list.append(to_text(sentence));
  return list;
}

// A key of a call.
template <class K>
class Key;
template <>
class Key<Bytes> {
 public:
  // What may change meanwhile is copied: a write looks at its key more than once.
  explicit Key(KeyArgument<Bytes> key) : buffer_(key.object) {
    if (!PyBytes_Check(key.object.ptr())) copy_.emplace(buffer_.bytes());
  }
  [[nodiscard]] Bytes get() const { return copy_ ? Bytes(*copy_) : buffer_.bytes(); }

 private:
  Buffer buffer_;
  std::optional<std::string> copy_;
};
template <>
class Key<std::uint64_t> {
 public:
  explicit Key(KeyArgument<std::uint64_t> key) {
    if (PyIndex_Check(key.object.ptr()) == 0) {
      throw nb::type_error("the keys of this table are integers");
    }
    const nb::object number = nb::steal(PyNumber_Index(key.object.ptr()));
    if (!number.is_valid()) throw nb::python_error();
    key_ = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // OverflowError
  }
  [[nodiscard]] std::uint64_t get() const { return key_; }

 private:
  std::uint64_t key_ = 0;
};

// --- The store -----------------------------------------------------------------------------------

// Of a store that is in use with others, or had alone. Who waits to have it alone goes before those
// who come later: readers that never pause would keep close() out for ever.
class Latch {
 public:
  Latch() {
    pthread_rwlockattr_t kind;
    pthread_rwlockattr_init(&kind);
    pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&lock_, &kind);
    pthread_rwlockattr_destroy(&kind);
  }
  Latch(const Latch&) = delete;
  Latch& operator=(const Latch&) = delete;
  ~Latch() { pthread_rwlock_destroy(&lock_); }
  void lock() { pthread_rwlock_wrlock(&lock_); }
  void unlock() { pthread_rwlock_unlock(&lock_); }
  void lock_shared() { pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

// What the objects of one table share: empty when the table was dropped, or the store closed.
template <class K>
using Handle = std::optional<everleaf::Table<K>>;

// What a Store object and its tables share.
class Core {
 public:
  Core(everleaf::Store store, std::optional<std::string> path)
      : path_(std::move(path)), store_(std::move(store)) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    if (forked()) {
      abandon();
      return;
    }
    const nb::gil_scoped_release release;  // closing waits for the disk
    empty_handles();
    store_.reset();
  }

  [[nodiscard]] const std::optional<std::string>& path() const { return path_; }
  [[nodiscard]] bool forked() const { return born_ != forks.load(std::memory_order_relaxed); }
  [[nodiscard]] bool closed() {
    const nb::gil_scoped_release release;
    const std::shared_lock guard(latch_);
    return !store_.has_value();
  }

  // Runs `work` on the open store, without the interpreter's lock.
  template <class Work>
  auto with(Work work) {
    refuse_fork();
    {
      const nb::gil_scoped_release release;
      const std::shared_lock guard(latch_);
      if (store_) return work(*store_);
    }
    refuse_closed();
  }
  // The same on a table of it.
  template <class K, class Work>
  auto with(Handle<K>& handle, Work work) {
    refuse_fork();
    bool open = false;
    {
      const nb::gil_scoped_release release;
      const std::shared_lock guard(latch_);
      open = store_.has_value();
      if (handle) return work(*handle);
    }
    if (open) raise_error(Outcome::dropped);
    refuse_closed();
  }

  // Waits for calls of other threads.
  void close() {
    refuse_fork();
    std::optional<everleaf::Error> failed;
    {
      const nb::gil_scoped_release release;
      const std::unique_lock guard(latch_);
      if (!store_) return;
      empty_handles();
      auto closing = store_->close();
      store_.reset();
      if (!closing) failed = closing.error();
    }
    if (failed) raise_error(*failed);
  }

  template <class K>
  std::shared_ptr<Handle<K>> open_table(const std::string& name, const std::string& spec) {
    return value_of(
        with([&](everleaf::Store& store) -> everleaf::Result<std::shared_ptr<Handle<K>>> {
          auto table = store.table<K>(name, spec);
          if (!table) return std::unexpected(std::move(table).error());
          auto handle = std::make_shared<Handle<K>>(std::move(*table));
          const std::lock_guard guard(handles_mutex_);
          return handles<K>().try_emplace(name, std::move(handle)).first->second;
        }));
  }
  // Waits for calls of other threads, and they for it.
  void drop_table(const std::string& name) {
    refuse_fork();
    std::optional<everleaf::Result<void>> dropping;
    {
      const nb::gil_scoped_release release;
      const std::unique_lock guard(latch_);
      if (store_) {
        dropping.emplace(store_->drop_table(name));
        // It may be gone although that failed: then nobody may find its handle under the name.
        bool gone = dropping->has_value();
        if (!gone) {
          const auto left = store_->tables();
          gone = left && std::ranges::find(*left, name, &everleaf::IndexInfo::name) == left->end();
        }
        if (gone) {
          empty_handle(bytes_handles_, name);
          empty_handle(u64_handles_, name);
        }
      }
    }
    if (!dropping) refuse_closed();
    value_of(std::move(*dropping));
  }
  void refuse_fork() const {
    if (forked()) {
      raise_error("forked", "The store was opened by the parent process: open it again here.");
    }
  }

 private:
  template <class K>
  using Handles = std::map<std::string, std::shared_ptr<Handle<K>>>;

  [[noreturn]] static void refuse_closed() { raise_error("closed", "The store is closed."); }
  template <class K>
  Handles<K>& handles() {
    if constexpr (std::same_as<K, Bytes>) {
      return bytes_handles_;
    } else {
      return u64_handles_;
    }
  }
  template <class K>
  static void empty_handle(Handles<K>& all, const std::string& name) {
    const auto handle = all.find(name);
    if (handle == all.end()) return;
    handle->second->reset();
    all.erase(handle);
  }
  // Each keeps the store open.
  void empty_handles() {
    for (const auto& [name, handle] : u64_handles_) handle->reset();
    for (const auto& [name, handle] : bytes_handles_) handle->reset();
    u64_handles_.clear();
    bytes_handles_.clear();
  }
  // The parent's: nothing of it may be closed or written here.
  void abandon() {
    if (store_) (void)new everleaf::Store(std::move(*store_));
    (void)new Handles<std::uint64_t>(std::move(u64_handles_));
    (void)new Handles<Bytes>(std::move(bytes_handles_));
  }

  const unsigned born_ = forks.load(std::memory_order_relaxed);
  const std::optional<std::string> path_;
  Latch latch_;  // alone: a table goes, or everything does
  std::optional<everleaf::Store> store_;
  std::mutex handles_mutex_;  // for those who have the latch with others; guards the next two
  Handles<std::uint64_t> u64_handles_;  // one for each table that was asked for
  Handles<Bytes> bytes_handles_;
};

constexpr std::size_t kMostCopied = std::size_t{1} << 20;  // bytes of values, by one call

template <class K>
class Table {
 public:
  using Owned = typename everleaf::OwnedKey<K>::type;

  // What Python has of a key.
  using Object = std::conditional_t<std::same_as<K, Bytes>, nb::bytes, nb::int_>;
  using Argument = KeyArgument<K>;
  using OptionalArgument = std::optional<Argument>;

  Table(std::shared_ptr<Core> core, std::shared_ptr<Handle<K>> handle, std::string name)
      : core_(std::move(core)), handle_(std::move(handle)), name_(std::move(name)) {}

  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }
  [[nodiscard]] nb::str name() const { return to_text(name_); }
  // Runs `work` on the everleaf::Table.
  template <class Work>
  auto run(Work work) const {
    return core_->with(*handle_, work);
  }

  std::optional<nb::bytes> get(Argument key) const {
    const Key<K> k(key);
    std::string value;
    const Outcome outcome = run([&](auto& t) { return t.get(k.get(), value); });
    if (!answer(outcome, Outcome::absent)) return std::nullopt;
    return to_python(Bytes(value));
  }
  // The length of the value, of which as much as fits is in `into`; None: no such key.
  std::optional<std::size_t> get_into(Argument key, BufferArgument into) const {
    const Key<K> k(key);
    const Buffer buffer(into.object, PyBUF_WRITABLE);
    std::size_t length = 0;
    const Outcome outcome = run([&](auto& t) {
      const everleaf::View view = t.get_view(k.get());
      if (view.outcome() == Outcome::done) {
        const Bytes value = *view;
        length = value.size();
        if (!value.empty()) {
          std::memcpy(buffer.begin(), value.data(), std::min(length, buffer.bytes().size()));
        }
      }
      return view.outcome();
    });
    if (!answer(outcome, Outcome::absent)) return std::nullopt;
    return length;
  }
  bool contains(Argument key) const {
    const Key<K> k(key);
    // "No" has several reasons, of which get_view() knows which.
    return answer(run([&](auto& t) {
                    return t.contains(k.get()) ? Outcome::done : t.get_view(k.get()).outcome();
                  }),
                  Outcome::absent);
  }
  void put(Argument key, BufferArgument value) const {
    const Key<K> k(key);
    const Buffer v(value.object);
    expect_done(run([&](auto& t) { return t.put(k.get(), v.bytes()); }));
  }
  bool insert(Argument key, BufferArgument value) const {
    const Key<K> k(key);
    const Buffer v(value.object);
    return answer(run([&](auto& t) { return t.insert(k.get(), v.bytes()); }), Outcome::exists);
  }
  bool update(Argument key, BufferArgument value) const {
    const Key<K> k(key);
    const Buffer v(value.object);
    return answer(run([&](auto& t) { return t.update(k.get(), v.bytes()); }), Outcome::absent);
  }
  bool erase(Argument key) const {
    const Key<K> k(key);
    return answer(run([&](auto& t) { return t.erase(k.get()); }), Outcome::absent);
  }
  bool compare_and_set(Argument key, std::optional<BufferArgument> expected,
                       std::optional<BufferArgument> desired) const {
    const Key<K> k(key);
    std::optional<Buffer> e;
    std::optional<Buffer> d;
    if (expected) e.emplace(expected->object);
    if (desired) d.emplace(desired->object);
    const auto bytes = [](const std::optional<Buffer>& b) {
      return b ? std::optional<Bytes>(b->bytes()) : std::nullopt;
    };
    return answer(run([&](auto& t) { return t.compare_and_set(k.get(), bytes(e), bytes(d)); }),
                  Outcome::differs);
  }
  std::uint64_t count() const {
    std::uint64_t keys = 0;
    expect_done(run([&](auto& t) { return t.count(keys); }));
    return keys;
  }

  // Up to `limit` keys with from <= key < to in either order: a copy of that part of the table.
  // None: there are no more. `after`: the last one of the copy before, which is left out.
  nb::typed<nb::list, Object> keys(const OptionalArgument& from, const OptionalArgument& to,
                                   const OptionalArgument& after, std::size_t limit,
                                   bool reverse) const {
    nb::list list;
    for (const auto& [key, value] : entries(from, to, after, limit, reverse, false)) {
      list.append(to_python(K(key)));
    }
    return list;
  }
  // The same with values: fewer if they are long.
  nb::typed<nb::list, nb::typed<nb::tuple, Object, nb::bytes>> items(const OptionalArgument& from,
                                                                     const OptionalArgument& to,
                                                                     const OptionalArgument& after,
                                                                     std::size_t limit,
                                                                     bool reverse) const {
    nb::list list;
    for (const auto& [key, value] : entries(from, to, after, limit, reverse, true)) {
      list.append(nb::make_tuple(to_python(K(key)), to_python(Bytes(value))));
    }
    return list;
  }

  nb::typed<nb::dict, nb::str, nb::any> stats() const {
    everleaf::TableStats stats;
    expect_done(run([&](auto& t) { return t.stats(stats); }));
    nb::dict all;
    all["name"] = to_text(stats.name);
    all["spec"] = to_text(stats.spec);
    all["keys"] = stats.tree.keys;
    all["height"] = stats.tree.height;
    all["inner_nodes"] = stats.tree.inner_nodes;
    all["leaf_nodes"] = stats.tree.leaf_nodes;
    all["tree_bytes"] = stats.tree.pool_bytes;
    all["dram_bytes"] = stats.tree.dram_bytes;
    all["value_bytes"] = stats.value_bytes;
    return all;
  }

 private:
  // A bound that need not be there.
  class Bound {
   public:
    explicit Bound(const OptionalArgument& key) {
      if (key) key_.emplace(*key);
    }
    [[nodiscard]] std::optional<K> get() const {
      return key_ ? std::optional<K>(key_->get()) : std::nullopt;
    }

   private:
    std::optional<Key<K>> key_;
  };

  std::vector<std::pair<Owned, std::string>> entries(const OptionalArgument& from,
                                                     const OptionalArgument& to,
                                                     const OptionalArgument& after,
                                                     std::size_t limit, bool reverse,
                                                     bool values) const {
    const Bound low(from);
    const Bound high(to);
    const Bound last(after);
    std::vector<std::pair<Owned, std::string>> found;
    std::size_t bytes = 0;
    expect_done(run([&](auto& t) {
      auto cursor = t.cursor(low.get(), high.get());
      bool there = false;
      if (last.get()) {
        const K key = *last.get();
        there = reverse ? cursor.seek_for_prev(key) : cursor.seek(key);
        if (there && cursor.key() == key) there = reverse ? cursor.prev() : cursor.next();
      } else {
        there = reverse ? cursor.last() : cursor.first();
      }
      for (; there && found.size() < limit && bytes < kMostCopied;
           there = reverse ? cursor.prev() : cursor.next()) {
        found.emplace_back(Owned(cursor.key()),
                           values ? std::string(cursor.value()) : std::string());
        bytes += found.back().second.size();
      }
      return cursor.outcome();
    }));
    return found;
  }

  std::shared_ptr<Core> core_;
  std::shared_ptr<Handle<K>> handle_;
  std::string name_;
};

class Batch {
 public:
  explicit Batch(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) = delete;
  // In a child of fork() another thread of the parent may have been in the middle of a change.
  ~Batch() {
    if (core_ != nullptr && core_->forked()) (void)new everleaf::Batch(std::move(batch_));
  }

  template <class K>
  void put(const Table<K>& table, KeyArgument<K> key, BufferArgument value) {
    admit(table.core());
    const Key<K> k(key);
    const Buffer v(value.object);
    table.run([&](auto& t) {
      const std::lock_guard guard(*mutex_);
      batch_.put(t, k.get(), v.bytes());
    });
  }
  template <class K>
  void erase(const Table<K>& table, KeyArgument<K> key) {
    admit(table.core());
    const Key<K> k(key);
    table.run([&](auto& t) {
      const std::lock_guard guard(*mutex_);
      batch_.erase(t, k.get());
    });
  }
  void apply() {
    expect_done(core_->with([&](everleaf::Store& store) {
      const std::lock_guard guard(*mutex_);
      const Outcome outcome = store.apply(batch_);
      if (outcome == Outcome::done) batch_.clear();
      return outcome;
    }));
  }
  // Of a closed store, too; in a child of fork() the mutex may be held for ever.
  void clear() {
    if (core_->forked()) return;
    const nb::gil_scoped_release release;
    const std::lock_guard guard(*mutex_);
    batch_.clear();
  }
  [[nodiscard]] std::size_t size() const {
    core_->refuse_fork();
    const nb::gil_scoped_release release;
    const std::lock_guard guard(*mutex_);
    return batch_.size();
  }

 private:
  void admit(const std::shared_ptr<Core>& of) const {
    if (of != core_) throw nb::value_error("the table is of another store");
  }
  std::shared_ptr<Core> core_;
  // A program error of Python's is no race here. Not in place: batches are moved to Python.
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
  everleaf::Batch batch_;
};

std::optional<everleaf::Durability> parse_durability(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  if (*name == "buffered") return everleaf::Durability::buffered;
  if (*name == "strict") return everleaf::Durability::strict;
  throw nb::value_error("durability is 'buffered' or 'strict'");
}

everleaf::Mode parse_mode(const std::string& name) {
  if (name == "open_or_create") return everleaf::Mode::open_or_create;
  if (name == "create") return everleaf::Mode::create;
  if (name == "open") return everleaf::Mode::open;
  if (name == "read_only") return everleaf::Mode::read_only;
  throw nb::value_error("mode is 'open_or_create', 'create', 'open' or 'read_only'");
}

class Store {
 public:
  Store(const std::optional<nb::bytes>& path, const std::string& mode,
        const std::optional<std::string>& durability, const std::optional<std::string>& domain,
        bool emulate, double epoch_seconds, std::uint64_t max_bytes,
        std::optional<std::uint64_t> private_bytes) {
    everleaf::StoreOptions options;
    options.durability = parse_durability(durability);
    options.pool.mode = parse_mode(mode);
    options.pool.emulate = emulate;
    options.pool.max_bytes = max_bytes;
    options.pool.private_bytes = private_bytes;
    if (!(epoch_seconds >= 0 && epoch_seconds <= 10)) {
      throw nb::value_error("epoch_seconds is 0 to 10");
    }
    options.pool.epoch_length =
        std::chrono::nanoseconds(static_cast<std::int64_t>(epoch_seconds * 1e9));
    if (domain) {
      options.pool.domain = everleaf::parse_domain(*domain);
      if (!options.pool.domain) {
        throw nb::value_error("domain is 'volatile', 'process', 'cache', 'memory' or 'disk'");
      }
    }
    const auto file = path ? std::optional(path_of(*path)) : std::nullopt;
    auto opened = [&] {
      const nb::gil_scoped_release release;
      return file ? everleaf::Store::open(*file, options) : everleaf::Store::anonymous(options);
    }();
    core_ = std::make_shared<Core>(value_of(std::move(opened)), file);
  }

  [[nodiscard]] std::optional<nb::bytes> path() const {
    const auto& path = core_->path();
    return path ? std::optional(to_python(Bytes(*path))) : std::nullopt;
  }
  [[nodiscard]] bool closed() const { return core_->forked() || core_->closed(); }
  // Raises what every call would: it is closed, or the parent's.
  void require_open() {
    core_->with([](everleaf::Store&) {});
  }
  void close() { core_->close(); }

  template <class K>
  Table<K> table(const nb::str& name, const nb::str& spec) {
    const std::string named = from_text(name);
    return Table<K>(core_, core_->open_table<K>(named, from_text(spec)), named);
  }
  void drop_table(const nb::str& name) { core_->drop_table(from_text(name)); }
  // (name, spec, "u64" or "bytes")
  nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::str, nb::str>> tables() {
    const auto all = value_of(core_->with([](everleaf::Store& store) { return store.tables(); }));
    nb::list list;
    for (const everleaf::IndexInfo& one : all) {
      list.append(
          nb::make_tuple(to_text(one.name), to_text(one.spec), to_text(to_string(one.key_type))));
    }
    return list;
  }
  Batch batch() {
    require_open();
    return Batch(core_);
  }
  void sync() {
    expect_done(core_->with([](everleaf::Store& store) { return store.sync(); }));
  }
  // (now, durable)
  nb::typed<nb::tuple, nb::int_, nb::int_> epochs() {
    const auto is = core_->with([](everleaf::Store& store) { return store.pool().epochs(); });
    return nb::make_tuple(is.now, is.durable);
  }
  // In strict stores, and before there is a table, the clock stands at 0.
  void wait_durable(std::uint64_t epoch) {
    const Outcome outcome = core_->with([&](everleaf::Store& store) {
      everleaf::Pool pool = store.pool();
      return pool.wait_durable(epoch);
    });
    if (!answer(outcome, Outcome::absent)) throw nb::value_error("that epoch has not begun");
  }
  void backup(const nb::bytes& path) {
    const std::string to = path_of(path);
    value_of(core_->with([&](everleaf::Store& store) { return store.backup(to); }));
  }
  nb::typed<nb::list, nb::str> check() {
    return to_list(
        value_of(core_->with([](everleaf::Store& store) { return store.check(); })).problems);
  }
  nb::typed<nb::dict, nb::str, nb::any> info() {
    const everleaf::StoreInfo info =
        value_of(core_->with([](everleaf::Store& store) { return store.info(); }));
    nb::dict all;
    all["durability"] = to_text(to_string(info.durability));
    all["domain"] = to_text(to_string(info.pool.domain.domain));
    all["domain_reason"] = to_text(info.pool.domain.reason);
    all["emulated"] = info.pool.domain.emulated;
    all["read_only"] = info.pool.read_only;
    all["clean"] = info.pool.clean;
    all["from_image"] = info.opened_from_image;
    all["file_bytes"] = info.pool.file_bytes;
    all["heap_bytes"] = info.pool.heap_bytes;
    all["block_bytes"] = info.pool.block_bytes;
    all["lost_blocks"] = info.pool.lost_blocks;
    all["record_bytes"] = info.record_bytes;
    all["record_bytes_used"] = info.record_bytes_used;
    all["records"] = info.records;
    all["records_waiting"] = info.records_waiting;
    all["open_ns"] = info.open_ns + info.pool.open_ns;
    all["problems"] = to_list(info.problems);
    return all;
  }

 private:
  std::shared_ptr<Core> core_;
};

using NamedTypes = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, nb::str>>;

// `tables`: (name, "u64" or "bytes")
nb::typed<nb::dict, nb::str, nb::any> repair(const nb::bytes& from, const nb::bytes& to,
                                             const NamedTypes& tables) {
  everleaf::RepairOptions options;
  for (const nb::handle one : tables) {
    const bool u64 = nb::cast<std::string>(one[1]) == "u64";
    options.tables.emplace_back(from_text(nb::cast<nb::str>(one[0])),
                                u64 ? everleaf::KeyType::u64 : everleaf::KeyType::bytes);
  }
  const std::string source = path_of(from);
  const std::string target = path_of(to);
  const everleaf::RepairReport report = value_of([&] {
    const nb::gil_scoped_release release;
    return everleaf::Store::repair(source, target, options);
  }());
  nb::list repaired;
  for (const auto& one : report.tables) {
    nb::dict table;
    table["name"] = to_text(one.name);
    table["spec"] = to_text(one.spec);
    table["keys"] = to_text(to_string(one.key_type));
    table["read"] = one.read;
    table["damaged_values"] = one.damaged_values;
    table["found"] = one.found;
    table["unclear"] = one.unclear;
    table["problems"] = to_list(one.problems);
    repaired.append(table);
  }
  nb::dict all;
  all["sound"] = report.sound();
  all["tables"] = repaired;
  all["problems"] = to_list(report.problems);
  return all;
}

template <class K>
void bind_table(nb::module_& m, const char* name) {
  using T = Table<K>;
  nb::class_<T>(m, name)
      .def_prop_ro("name", &T::name)
      .def("get", &T::get, "key"_a)
      .def("get_into", &T::get_into, "key"_a, "into"_a)
      .def("contains", &T::contains, "key"_a)
      .def("put", &T::put, "key"_a, "value"_a)
      .def("insert", &T::insert, "key"_a, "value"_a)
      .def("update", &T::update, "key"_a, "value"_a)
      .def("erase", &T::erase, "key"_a)
      .def("compare_and_set", &T::compare_and_set, "key"_a, "expected"_a.none(), "desired"_a.none())
      .def("count", &T::count)
      .def("keys", &T::keys, "start"_a.none(), "stop"_a.none(), "after"_a.none(), "limit"_a,
           "reverse"_a)
      .def("items", &T::items, "start"_a.none(), "stop"_a.none(), "after"_a.none(), "limit"_a,
           "reverse"_a)
      .def("stats", &T::stats);
}

}  // namespace

NB_MODULE(_everleaf, m) {
  (void)::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  bind_table<Bytes>(m, "BytesTable");
  bind_table<std::uint64_t>(m, "U64Table");
  nb::class_<Batch>(m, "Batch")
      .def("put", &Batch::put<Bytes>, "table"_a, "key"_a, "value"_a)
      .def("put", &Batch::put<std::uint64_t>, "table"_a, "key"_a, "value"_a)
      .def("erase", &Batch::erase<Bytes>, "table"_a, "key"_a)
      .def("erase", &Batch::erase<std::uint64_t>, "table"_a, "key"_a)
      .def("apply", &Batch::apply)
      .def("clear", &Batch::clear)
      .def("__len__", &Batch::size);
  nb::class_<Store>(m, "Store")
      .def(nb::init<const std::optional<nb::bytes>&, const std::string&,
                    const std::optional<std::string>&, const std::optional<std::string>&, bool,
                    double, std::uint64_t, std::optional<std::uint64_t>>(),
           "path"_a.none(), "mode"_a, "durability"_a.none(), "domain"_a.none(), "emulate"_a,
           "epoch_seconds"_a, "max_bytes"_a, "private_bytes"_a.none())
      .def_prop_ro("path", &Store::path)
      .def_prop_ro("closed", &Store::closed)
      .def("require_open", &Store::require_open)
      .def("close", &Store::close)
      .def("bytes_table", &Store::table<Bytes>, "name"_a, "spec"_a)
      .def("u64_table", &Store::table<std::uint64_t>, "name"_a, "spec"_a)
      .def("drop_table", &Store::drop_table, "name"_a)
      .def("tables", &Store::tables)
      .def("batch", &Store::batch)
      .def("sync", &Store::sync)
      .def("epochs", &Store::epochs)
      .def("wait_durable", &Store::wait_durable, "epoch"_a)
      .def("backup", &Store::backup, "path"_a)
      .def("check", &Store::check)
      .def("info", &Store::info);
  m.def("repair", &repair, "source"_a, "target"_a, "tables"_a);
}
