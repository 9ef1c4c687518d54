// The store for Python: what python/everleaf/__init__.py stands on. Only include/everleaf is used.
//
// Threads: every call that touches the store lets go of the interpreter's lock, and holds the
// store's own shared latch, so that close() in one thread waits for calls of others and no call
// meets a closed store.
// A child of fork() has no thread that steps the clock, and two processes must not write one pool:
// every call there is refused, and what the child inherited is abandoned, not closed.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <everleaf/store.hpp>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using everleaf::Bytes;
using everleaf::Code;
using everleaf::Outcome;

std::atomic<unsigned> forks{0};  // of this process's line

// --- Errors --------------------------------------------------------------------------------------

[[noreturn]] void raise_error(std::string_view code, const std::string& message) {
  nb::module_::import_("everleaf._errors").attr("raise_error")(code, message);
  throw nb::value_error("raise_error() returned");
}

[[noreturn]] void raise_error(const everleaf::Error& error) {
  raise_error(everleaf::to_string(error.code), error.message);
}

[[noreturn]] void raise_error(Outcome outcome) {
  raise_error(everleaf::to_string(outcome), std::string(everleaf::to_string(outcome)));
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

// A key of a call.
template <class K>
class Key;
template <>
class Key<Bytes> {
 public:
  // What may change meanwhile is copied: a write looks at its key more than once.
  explicit Key(nb::handle object) : buffer_(object) {
    if (!PyBytes_Check(object.ptr())) copy_.emplace(buffer_.bytes());
  }
  [[nodiscard]] Bytes get() const { return copy_ ? Bytes(*copy_) : buffer_.bytes(); }

 private:
  Buffer buffer_;
  std::optional<std::string> copy_;
};
template <>
class Key<std::uint64_t> {
 public:
  explicit Key(nb::handle object) {
    if (!PyLong_Check(object.ptr())) {
      throw nb::type_error("the keys of this table are integers");
    }
    key_ = PyLong_AsUnsignedLongLong(object.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();  // OverflowError
  }
  [[nodiscard]] std::uint64_t get() const { return key_; }

 private:
  std::uint64_t key_ = 0;
};

// --- The store -----------------------------------------------------------------------------------

// What a Store object and its tables share.
class Core {
 public:
  explicit Core(everleaf::Store store) : store_(std::move(store)) {}
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core() {
    if (forked()) {
      abandon();
      return;
    }
    const nb::gil_scoped_release release;  // closing waits for the disk
    store_.reset();
    u64_tables_.clear();
    bytes_tables_.clear();
  }

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
    const nb::gil_scoped_release release;
    const std::shared_lock guard(latch_);
    if (!store_) {
      const nb::gil_scoped_acquire acquire;
      raise_error("closed", "The store is closed.");
    }
    return work(*store_);
  }

  // Waits for calls of other threads.
  void close() {
    refuse_fork();
    std::optional<everleaf::Error> failed;
    {
      const nb::gil_scoped_release release;
      const std::unique_lock guard(latch_);
      if (!store_) return;
      u64_tables_.clear();
      bytes_tables_.clear();
      auto closing = store_->close();
      store_.reset();
      if (!closing) failed = closing.error();
    }
    if (failed) raise_error(*failed);
  }

  // Of the table with that name, which lives until the store is closed.
  template <class K>
  everleaf::Result<std::size_t> open_table(const std::string& name, const std::string& spec) {
    const std::unique_lock guard(latch_);
    if (!store_)
      return std::unexpected(everleaf::Error{Code::bad_argument, "The store is closed."});
    auto table = store_->table<K>(name, spec);
    if (!table) return std::unexpected(std::move(table).error());
    auto& all = tables<K>();
    all.push_back(std::make_unique<everleaf::Table<K>>(std::move(*table)));
    return all.size() - 1;
  }
  template <class K>
  everleaf::Table<K>& table(std::size_t i) {
    return *tables<K>()[i];
  }
  void refuse_fork() const {
    if (forked()) {
      raise_error("forked", "The store was opened by the parent process: open it again here.");
    }
  }

 private:
  template <class K>
  auto& tables() {
    if constexpr (std::same_as<K, Bytes>) {
      return bytes_tables_;
    } else {
      return u64_tables_;
    }
  }
  // The parent's: nothing of it may be closed or written here.
  void abandon() {
    if (store_) (void)new everleaf::Store(std::move(*store_));
    for (auto& table : u64_tables_) (void)table.release();
    for (auto& table : bytes_tables_) (void)table.release();
  }

  const unsigned born_ = forks.load(std::memory_order_relaxed);
  std::shared_mutex latch_;  // exclusive: tables come, and everything goes
  std::optional<everleaf::Store> store_;
  std::vector<std::unique_ptr<everleaf::Table<std::uint64_t>>> u64_tables_;
  std::vector<std::unique_ptr<everleaf::Table<Bytes>>> bytes_tables_;
};

constexpr std::size_t kMostCopied = std::size_t{1} << 20;  // bytes of values, by one call

template <class K>
class Table {
 public:
  using Owned = typename everleaf::OwnedKey<K>::type;

  Table(std::shared_ptr<Core> core, std::size_t number, std::string name)
      : core_(std::move(core)), number_(number), name_(std::move(name)) {}

  [[nodiscard]] const std::shared_ptr<Core>& core() const { return core_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Within Core::with().
  [[nodiscard]] everleaf::Table<K>& table() const { return core_->table<K>(number_); }

  nb::object get(nb::handle key) const {
    const Key<K> k(key);
    std::string value;
    const Outcome outcome = run([&](auto& t) { return t.get(k.get(), value); });
    if (!answer(outcome, Outcome::absent)) return nb::none();
    return to_python(Bytes(value));
  }
  // The length of the value, of which as much as fits is in `into`; None: no such key.
  nb::object get_into(nb::handle key, nb::handle into) const {
    const Key<K> k(key);
    const Buffer buffer(into, PyBUF_WRITABLE);
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
    if (!answer(outcome, Outcome::absent)) return nb::none();
    return nb::int_(length);
  }
  bool contains(nb::handle key) const {
    const Key<K> k(key);
    return run([&](auto& t) { return t.contains(k.get()); });
  }
  void put(nb::handle key, nb::handle value) const {
    const Key<K> k(key);
    const Buffer v(value);
    expect_done(run([&](auto& t) { return t.put(k.get(), v.bytes()); }));
  }
  bool insert(nb::handle key, nb::handle value) const {
    const Key<K> k(key);
    const Buffer v(value);
    return answer(run([&](auto& t) { return t.insert(k.get(), v.bytes()); }), Outcome::exists);
  }
  bool update(nb::handle key, nb::handle value) const {
    const Key<K> k(key);
    const Buffer v(value);
    return answer(run([&](auto& t) { return t.update(k.get(), v.bytes()); }), Outcome::absent);
  }
  bool erase(nb::handle key) const {
    const Key<K> k(key);
    return answer(run([&](auto& t) { return t.erase(k.get()); }), Outcome::absent);
  }
  bool compare_and_set(nb::handle key, nb::handle expected, nb::handle desired) const {
    const Key<K> k(key);
    std::optional<Buffer> e;
    std::optional<Buffer> d;
    if (!expected.is_none()) e.emplace(expected);
    if (!desired.is_none()) d.emplace(desired);
    const auto bytes = [](const std::optional<Buffer>& b) {
      return b ? std::optional<Bytes>(b->bytes()) : std::nullopt;
    };
    return answer(run([&](auto& t) { return t.compare_and_set(k.get(), bytes(e), bytes(d)); }),
                  Outcome::differs);
  }
  std::uint64_t count() const {
    return run([](auto& t) { return t.count(); });
  }

  // Up to `limit` entries with from <= key < to in either order, fewer if their values are long:
  // a copy of that part of the table. None: there are no more.
  // `after`: the last one of the copy before, which is left out.
  nb::list entries(nb::handle from, nb::handle to, nb::handle after, std::size_t limit,
                   bool reverse, bool values) const {
    const Bound low(from);
    const Bound high(to);
    const Bound last(after);
    std::vector<std::pair<Owned, std::string>> found;
    std::size_t bytes = 0;
    const Outcome outcome = run([&](auto& t) {
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
    });
    expect_done(outcome);
    nb::list list;
    for (const auto& [key, value] : found) {
      if (values) {
        list.append(nb::make_tuple(to_python(K(key)), to_python(Bytes(value))));
      } else {
        list.append(to_python(K(key)));
      }
    }
    return list;
  }

  nb::dict stats() const {
    const everleaf::TableStats stats = run([](auto& t) { return t.stats(); });
    nb::dict all;
    all["name"] = stats.name;
    all["spec"] = stats.spec;
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
    explicit Bound(nb::handle object) {
      if (!object.is_none()) key_.emplace(object);
    }
    [[nodiscard]] std::optional<K> get() const {
      return key_ ? std::optional<K>(key_->get()) : std::nullopt;
    }

   private:
    std::optional<Key<K>> key_;
  };

  template <class Work>
  auto run(Work work) const {
    return core_->with([&](everleaf::Store&) { return work(table()); });
  }

  std::shared_ptr<Core> core_;
  std::size_t number_;
  std::string name_;
};

class Batch {
 public:
  explicit Batch(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  template <class K>
  void put(const Table<K>& table, nb::handle key, nb::handle value) {
    admit(table.core());
    const Key<K> k(key);
    const Buffer v(value);
    core_->with([&](everleaf::Store&) {
      const std::lock_guard guard(*mutex_);
      batch_.put(table.table(), k.get(), v.bytes());
    });
  }
  template <class K>
  void erase(const Table<K>& table, nb::handle key) {
    admit(table.core());
    const Key<K> k(key);
    core_->with([&](everleaf::Store&) {
      const std::lock_guard guard(*mutex_);
      batch_.erase(table.table(), k.get());
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
  void clear() {
    const nb::gil_scoped_release release;
    const std::lock_guard guard(*mutex_);
    batch_.clear();
  }
  [[nodiscard]] std::size_t size() const {
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
  Store(const std::optional<std::string>& path, const std::string& mode,
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
    auto opened = [&] {
      const nb::gil_scoped_release release;
      return path ? everleaf::Store::open(*path, options) : everleaf::Store::anonymous(options);
    }();
    core_ = std::make_shared<Core>(value_of(std::move(opened)));
  }

  [[nodiscard]] bool closed() const { return core_->forked() || core_->closed(); }
  void close() { core_->close(); }

  template <class K>
  Table<K> table(const std::string& name, const std::string& spec) {
    core_->refuse_fork();
    if (core_->closed()) raise_error("closed", "The store is closed.");
    auto number = [&] {
      const nb::gil_scoped_release release;
      return core_->open_table<K>(name, spec);
    }();
    return Table<K>(core_, value_of(std::move(number)), name);
  }
  void drop_table(const std::string& name) {
    value_of(core_->with([&](everleaf::Store& store) { return store.drop_table(name); }));
  }
  // (name, spec, "u64" or "bytes")
  nb::list tables() {
    const auto all = value_of(core_->with([](everleaf::Store& store) { return store.tables(); }));
    nb::list list;
    for (const everleaf::IndexInfo& one : all) {
      list.append(nb::make_tuple(one.name, one.spec, std::string(to_string(one.key_type))));
    }
    return list;
  }
  Batch batch() { return Batch(core_); }
  void sync() {
    expect_done(core_->with([](everleaf::Store& store) { return store.sync(); }));
  }
  void backup(const std::string& path) {
    value_of(core_->with([&](everleaf::Store& store) { return store.backup(path); }));
  }
  std::vector<std::string> check() {
    return value_of(core_->with([](everleaf::Store& store) { return store.check(); })).problems;
  }
  nb::dict info() {
    const everleaf::StoreInfo info =
        value_of(core_->with([](everleaf::Store& store) { return store.info(); }));
    nb::dict all;
    all["path"] = info.pool.path;
    all["durability"] = std::string(to_string(info.durability));
    all["domain"] = std::string(to_string(info.pool.domain.domain));
    all["domain_reason"] = info.pool.domain.reason;
    all["emulated"] = info.pool.domain.emulated;
    all["read_only"] = info.pool.read_only;
    all["clean"] = info.pool.clean;
    all["file_bytes"] = info.pool.file_bytes;
    all["block_bytes"] = info.pool.block_bytes;
    all["record_bytes"] = info.record_bytes;
    all["records"] = info.records;
    all["open_ns"] = info.open_ns + info.pool.open_ns;
    return all;
  }

 private:
  std::shared_ptr<Core> core_;
};

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
      .def("entries", &T::entries, "from_"_a.none(), "to"_a.none(), "after"_a.none(), "limit"_a,
           "reverse"_a, "values"_a)
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
      .def(nb::init<const std::optional<std::string>&, const std::string&,
                    const std::optional<std::string>&, const std::optional<std::string>&, bool,
                    double, std::uint64_t, std::optional<std::uint64_t>>(),
           "path"_a.none(), "mode"_a, "durability"_a.none(), "domain"_a.none(), "emulate"_a,
           "epoch_seconds"_a, "max_bytes"_a, "private_bytes"_a.none())
      .def_prop_ro("closed", &Store::closed)
      .def("close", &Store::close)
      .def("bytes_table", &Store::table<Bytes>, "name"_a, "spec"_a)
      .def("u64_table", &Store::table<std::uint64_t>, "name"_a, "spec"_a)
      .def("drop_table", &Store::drop_table, "name"_a)
      .def("tables", &Store::tables)
      .def("batch", &Store::batch)
      .def("sync", &Store::sync)
      .def("backup", &Store::backup, "path"_a)
      .def("check", &Store::check)
      .def("info", &Store::info);
}
