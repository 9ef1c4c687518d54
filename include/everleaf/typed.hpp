// Tables of typed keys and values, over those of bytes (everleaf/store.hpp).
//
//   struct Point { double x, y; };
//   auto points = everleaf::TypedTable<std::int64_t, Point>::open(store, "points").value();
//   points.put(-7, {1, 2});
//   if (auto point = points.get(-7)) use(point->x);
//
// Keys: std::uint64_t, std::int64_t (in their order) and std::string. Values: what has a Codec;
// std::string and trivially copyable types have one, whose bytes are those in memory: a store that
// is carried to a machine with another layout of the type has to have a Codec of its own.
#pragma once

#include <cstring>
#include <expected>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <everleaf/store.hpp>

namespace everleaf {

// How a T lies in a value. Specialize it for your types; read() answers nullopt for bytes that are
// no T.
template <class T>
struct Codec {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>,
                "specialize everleaf::Codec for this type");
  static void append(std::string& bytes, const T& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static std::optional<T> read(Bytes bytes) {
    if (bytes.size() != sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
};
template <>
struct Codec<std::string> {
  static void append(std::string& bytes, const std::string& value) { bytes += value; }
  static std::optional<std::string> read(Bytes bytes) { return std::string(bytes); }
};

// The key of the table beneath.
template <class T>
struct KeyCodec;
template <>
struct KeyCodec<std::uint64_t> {
  using Raw = std::uint64_t;
  static Raw raw(std::uint64_t key) { return key; }
  static std::uint64_t read(Raw raw) { return raw; }
};
template <>
struct KeyCodec<std::int64_t> {
  using Raw = std::uint64_t;
  static constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  static Raw raw(std::int64_t key) { return static_cast<std::uint64_t>(key) ^ kSign; }
  static std::int64_t read(Raw raw) { return static_cast<std::int64_t>(raw ^ kSign); }
};
template <>
struct KeyCodec<std::string> {
  using Raw = Bytes;
  static Raw raw(const std::string& key) { return key; }
  static std::string read(Raw raw) { return std::string(raw); }
};

// A handle, as Table. Thread-safe. Answers as Table does; corrupt, too: a value is no Value. Throws
// what a codec throws, bad_alloc among it: it makes the value's bytes.
template <class Key, class Value>
class TypedTable {
 public:
  using Raw = typename KeyCodec<Key>::Raw;

  [[nodiscard]] static Result<TypedTable> open(Store& store, std::string_view name,
                                               std::string_view spec = {}) {
    auto table = store.table<Raw>(name, spec);
    if (!table) return std::unexpected(table.error());
    return TypedTable(std::move(*table));
  }
  explicit TypedTable(Table<Raw> table) : table_(std::move(table)) {}

  Outcome put(const Key& key, const Value& value) { return table_.put(raw(key), bytes_of(value)); }
  Outcome insert(const Key& key, const Value& value) {
    return table_.insert(raw(key), bytes_of(value));
  }
  Outcome update(const Key& key, const Value& value) {
    return table_.update(raw(key), bytes_of(value));
  }
  Outcome erase(const Key& key) { return table_.erase(raw(key)); }
  [[nodiscard]] std::expected<Value, Outcome> get(const Key& key) const {
    const View view = table_.get_view(raw(key));
    if (!view) return std::unexpected(view.outcome());
    std::optional<Value> value = Codec<Value>::read(*view);
    if (!value) return std::unexpected(Outcome::corrupt);
    return std::move(*value);
  }
  [[nodiscard]] bool contains(const Key& key) const { return table_.contains(raw(key)); }

  void put(Batch& batch, const Key& key, const Value& value) const {
    batch.put<Raw>(table_, raw(key), bytes_of(value));
  }
  void erase(Batch& batch, const Key& key) const { batch.erase<Raw>(table_, raw(key)); }

  // Calls visit(key, value) for from <= key < to in their order, until it answers false.
  template <class Visit>
  Outcome for_each(std::optional<Key> from, std::optional<Key> to, Visit visit) const {
    const auto bound = [](const std::optional<Key>& key) {
      return key ? std::optional<Raw>(raw(*key)) : std::nullopt;
    };
    Cursor<Raw> cursor = table_.cursor(bound(from), bound(to));
    for (cursor.first(); cursor.valid(); cursor.next()) {
      const std::optional<Value> value = Codec<Value>::read(cursor.value());
      if (!value) return Outcome::corrupt;
      if (!visit(KeyCodec<Key>::read(cursor.key()), *value)) return Outcome::done;
    }
    return cursor.outcome();
  }

  // Beneath: bytes, cursors, counts.
  [[nodiscard]] Table<Raw>& table() noexcept { return table_; }

 private:
  static Raw raw(const Key& key) { return KeyCodec<Key>::raw(key); }
  static std::string bytes_of(const Value& value) {
    std::string bytes;
    Codec<Value>::append(bytes, value);
    return bytes;
  }
  Table<Raw> table_;
};

}  // namespace everleaf
