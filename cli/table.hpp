// Opening a pool and one of its indexes as the command line says.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <everleaf/index.hpp>

#include "options.hpp"

namespace everleaf::cli {

// What every command on an index takes. Empty text: not given.
struct TableArguments {
  std::string pool;
  std::string table = "main";
  std::string keys;   // writers only
  std::string index;  // writers only: a tree spec
  std::string domain;
  bool emulate = false;
  std::uint64_t max_bytes = 0;
  std::optional<std::uint64_t> private_bytes;
  std::chrono::nanoseconds epoch = PoolOptions{}.epoch_length;
  bool escaped = false;
};

void add_pool(Command& command, TableArguments& arguments);
void add_table(Command& command, TableArguments& arguments);
// --domain --emulate --epoch --max-bytes --private-bytes
void add_domain(Command& command, TableArguments& arguments);
void add_creation(Command& command, TableArguments& arguments);  // --keys --index
void add_escaped(Command& command, TableArguments& arguments);

// An index that is there or is to be made.
struct TableChoice {
  std::string name;
  std::string spec;  // empty: as it is
  KeyType key_type = KeyType::bytes;
  bool payloads = false;  // its values are bytes
};

// What --keys says; nullopt: nothing.
[[nodiscard]] std::optional<KeyType> key_type_of(const TableArguments& arguments);
[[nodiscard]] PoolOptions pool_options(const TableArguments& arguments, Mode mode);

// Reading never changes the file, a crashed pool's included.
[[nodiscard]] Pool open_to_read(const TableArguments& arguments);
// An existing pool.
[[nodiscard]] Pool open_to_write(const TableArguments& arguments);
// Creates the pool if need be, but never one that the rest of the arguments would leave empty.
[[nodiscard]] Pool open_or_create(const TableArguments& arguments);

// An index that must be there. Failure: names those that are.
[[nodiscard]] TableChoice existing_table(Pool& pool, const TableArguments& arguments);
// The same, or a new one as --keys and --index say.
[[nodiscard]] TableChoice table_to_fill(Pool& pool, const TableArguments& arguments);

template <class K>
Index<K> open_index(Pool& pool, const TableChoice& choice);

// Whether an index of that spec has payloads as values.
[[nodiscard]] bool names_payloads(std::string_view spec);

// f(index), or of its payloads where it has such.
template <class K, class F>
void with_values(const Index<K>& index, F&& f) {
  if (const auto payloads = index.payloads()) {
    std::forward<F>(f)(*payloads);
  } else {
    std::forward<F>(f)(index);
  }
}

// Calls `f.operator()<K>()` for the key type.
template <class F>
auto with_key_type(KeyType type, F&& f) {
  if (type == KeyType::u64) return std::forward<F>(f).template operator()<std::uint64_t>();
  return std::forward<F>(f).template operator()<Bytes>();
}

}  // namespace everleaf::cli
