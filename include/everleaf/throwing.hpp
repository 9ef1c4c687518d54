// The store for those who prefer exceptions to codes: the calls of everleaf/store.hpp, each with
// what it tells, costs and promises there.
//
//   auto store = everleaf::throwing::Store::open("data.pool");
//   auto users = store.table("users");
//   users.put("ada", "Countess of Lovelace");
//   if (auto name = users.get("ada")) use(*name);
//   store.sync();
//
// What is an answer stays one: absent, exists and differs come back as false or as no value. All
// else is thrown, a StoreError, before or after which the store is as it is after the code.
#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <everleaf/store.hpp>

namespace everleaf::throwing {

// what(): one sentence; of a call on entries behind that call's name.
class StoreError : public std::runtime_error {
 public:
  explicit StoreError(const Error& error) : std::runtime_error(error.message), why_(error.code) {}
  StoreError(Outcome outcome, std::string_view call)
      : std::runtime_error(std::string(call).append(": ").append(describe(outcome))),
        why_(outcome) {}
  // Of a call on entries (an Outcome), or of a rare one (a Code).
  [[nodiscard]] std::variant<Outcome, Code> why() const noexcept { return why_; }
  friend bool operator==(const StoreError& error, Outcome outcome) noexcept {
    return error.why_ == std::variant<Outcome, Code>(outcome);
  }
  friend bool operator==(const StoreError& error, Code code) noexcept {
    return error.why_ == std::variant<Outcome, Code>(code);
  }

 private:
  std::variant<Outcome, Code> why_;
};

template <class T>
T value_of(Result<T>&& result) {
  if (!result) throw StoreError(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}
// Done, or not because of `otherwise`.
inline bool is_done(Outcome outcome, Outcome otherwise, std::string_view call) {
  if (outcome == Outcome::done) return true;
  if (outcome == otherwise) return false;
  throw StoreError(outcome, call);
}
inline void must(Outcome outcome, std::string_view call) {
  (void)is_done(outcome, Outcome::done, call);
}

// As Cursor; a move that fails throws, so invalid means that there is no such place.
template <class K>
class Cursor {
 public:
  explicit Cursor(everleaf::Cursor<K> plain) : plain_(std::move(plain)) {}
  bool first() { return moved(plain_.first()); }
  bool last() { return moved(plain_.last()); }
  bool seek(K key) { return moved(plain_.seek(key)); }
  bool seek_for_prev(K key) { return moved(plain_.seek_for_prev(key)); }
  bool next() { return moved(plain_.next()); }
  bool prev() { return moved(plain_.prev()); }
  [[nodiscard]] bool valid() const noexcept { return plain_.valid(); }
  [[nodiscard]] K key() const noexcept { return plain_.key(); }
  [[nodiscard]] Bytes value() const noexcept { return plain_.value(); }

 private:
  bool moved(bool there) {
    if (!there) must(plain_.outcome(), "cursor");
    return there;
  }
  everleaf::Cursor<K> plain_;
};

template <class K>
class Table {
 public:
  explicit Table(everleaf::Table<K> plain) : plain_(std::move(plain)) {}

  void put(K key, Bytes value) { must(plain_.put(key, value), "put"); }
  // False: the key is there already.
  bool insert(K key, Bytes value) {
    return is_done(plain_.insert(key, value), Outcome::exists, "insert");
  }
  // These: false if it is not there.
  bool update(K key, Bytes value) {
    return is_done(plain_.update(key, value), Outcome::absent, "update");
  }
  bool erase(K key) { return is_done(plain_.erase(key), Outcome::absent, "erase"); }
  // False: another value.
  bool compare_and_set(K key, std::optional<Bytes> expected, std::optional<Bytes> desired) {
    return is_done(plain_.compare_and_set(key, expected, desired), Outcome::differs,
                   "compare_and_set");
  }

  [[nodiscard]] std::optional<std::string> get(K key) const {
    std::string value;
    if (!is_done(plain_.get(key, value), Outcome::absent, "get")) return std::nullopt;
    return value;
  }
  // Calls use(Bytes) with the value where it lies, as a View shows it; false: there is none.
  template <class Use>
  bool with_value(K key, Use&& use) const {
    const View view = plain_.get_view(key);
    if (!is_done(view.outcome(), Outcome::absent, "with_value")) return false;
    std::forward<Use>(use)(*view);
    return true;
  }
  // Unlike the plain one's, which cannot tell "absent" from "damaged" (O(value)).
  [[nodiscard]] bool contains(K key) const {
    return with_value(key, [](Bytes) {});
  }
  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t keys = 0;
    must(plain_.count(keys), "count");
    return keys;
  }

  [[nodiscard]] Cursor<K> cursor(std::optional<K> from = {}, std::optional<K> to = {}) const {
    return Cursor<K>(plain_.cursor(from, to));
  }
  [[nodiscard]] Cursor<K> prefix(K bytes) const requires std::same_as<K, Bytes> {
    return Cursor<K>(plain_.prefix(bytes));
  }

  // For batches and figures.
  [[nodiscard]] everleaf::Table<K>& plain() noexcept { return plain_; }
  [[nodiscard]] const everleaf::Table<K>& plain() const noexcept { return plain_; }

 private:
  everleaf::Table<K> plain_;
};

class Store {
 public:
  [[nodiscard]] static Store open(const std::filesystem::path& path,
                                  const StoreOptions& options = {}) {
    return Store(value_of(everleaf::Store::open(path, options)));
  }
  [[nodiscard]] static Store anonymous(const StoreOptions& options = {}) {
    return Store(value_of(everleaf::Store::anonymous(options)));
  }
  explicit Store(everleaf::Store plain) : plain_(std::move(plain)) {}

  template <class K = Bytes>
  [[nodiscard]] Table<K> table(std::string_view name, std::string_view spec = {}) {
    return Table<K>(value_of(plain_.table<K>(name, spec)));
  }
  void drop_table(std::string_view name) { value_of(plain_.drop_table(name)); }
  [[nodiscard]] std::vector<IndexInfo> tables() const { return value_of(plain_.tables()); }
  void apply(const Batch& batch) { must(plain_.apply(batch), "apply"); }
  void sync() { must(plain_.sync(), "sync"); }
  void backup(const std::filesystem::path& path) { value_of(plain_.backup(path)); }
  [[nodiscard]] static RepairReport repair(const std::filesystem::path& from,
                                           const std::filesystem::path& to,
                                           const RepairOptions& options = {}) {
    return value_of(everleaf::Store::repair(from, to, options));
  }
  [[nodiscard]] CheckReport check() const { return value_of(plain_.check()); }
  [[nodiscard]] StoreInfo info() const { return value_of(plain_.info()); }
  [[nodiscard]] Pool pool() const { return plain_.pool(); }
  void close() { value_of(plain_.close()); }

  [[nodiscard]] everleaf::Store& plain() noexcept { return plain_; }

 private:
  everleaf::Store plain_;
};

}  // namespace everleaf::throwing
