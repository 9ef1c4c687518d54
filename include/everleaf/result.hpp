// Outcomes and errors: what every call of the library can answer.
//
// Hot paths answer with an Outcome, a one-byte value: no allocation, no exception; describe() has
// the sentence to it.
// Opening, checking and other rare calls answer with Result<T>: a value, or a code and one
// sentence that says what to do.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace everleaf {

enum class Outcome : std::uint8_t {
  done,              // it happened, and (strict trees) it is durable
  exists,            // insert: the key is already there, nothing changed
  absent,            // find, update, remove: the key is not there, nothing changed
  out_of_space,      // the pool cannot grow: nothing changed, everything stays readable
  key_too_long,      // insert, upsert: a bytes key over kMaxKeyBytes, nothing changed
  read_only,         // the pool was opened read-only
  io_error,          // a write-back failed now or earlier: the pool takes no more writes
  corrupt,           // the pool holds an impossible word: run `everleaf check`
  too_many_threads,  // more than kMaxThreads threads use the library at once
  not_empty,         // bulk_load needs an empty index
  not_ascending,     // bulk_load and insert_all need strictly ascending keys
  value_too_long,    // Store: a value over kMaxValueBytes; Payloads: over kMaxPayloadBytes; Index:
                     // what is there is a payload longer than a number; nothing changed
  batch_too_large,   // Store: over kMaxBatchOperations or kMaxBatchBytes, nothing changed
  differs,           // Store: compare_and_set found another value, nothing changed
  dropped,           // Store: the table is gone
};

// A short English name, "done", "out of space", ...
[[nodiscard]] std::string_view to_string(Outcome outcome) noexcept;

// One sentence, as an Error's: what happened, the limit if there is one, what to do. Its end is a
// zero byte, and it lives as long as the library.
[[nodiscard]] std::string_view describe(Outcome outcome) noexcept;

enum class Code : std::uint8_t {
  not_a_pool,         // no Everleaf magic
  empty_file,         // zero bytes
  truncated,          // shorter than its header says
  corrupt,            // checksums or offsets are wrong
  newer_version,      // format version or an incompatible feature of a later release
  other_endianness,   // written on a machine of the other byte order
  wrong_tree,         // the index is of another tree kind or has other options
  wrong_key_type,     // the index has the other key type
  unknown_tree,       // no such tree in the registry
  unknown_option,     // the tree has no such option
  bad_option,         // the option's value is not one of those allowed
  bad_argument,       // a name that is too long, a cap below the minimum, ...
  locked,             // another process has the pool open
  locked_here,        // this process has the pool open already
  exists,             // asked to create, and it is there
  not_found,          // no such file or index
  permission,         // the system refuses access
  out_of_space,       // the disk, the cap or the directory is full
  io,                 // any other failure of the system
  domain_too_strong,  // the device does not give the persistence that was asked for
  read_only,          // a write on a pool that was opened read-only
};

[[nodiscard]] std::string_view to_string(Code code) noexcept;

struct Error {
  Code code;
  std::string message;  // one sentence: what is wrong and what to do
};

template <class T>
using Result = std::expected<T, Error>;

// Answer of a lookup: `if (auto hit = index.find(key)) use(*hit);`
struct Lookup {
  Outcome outcome = Outcome::absent;
  std::uint64_t value = 0;
  explicit operator bool() const noexcept { return outcome == Outcome::done; }
  std::uint64_t operator*() const noexcept { return value; }
};

}  // namespace everleaf
