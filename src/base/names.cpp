#include <array>
#include <utility>

#include <everleaf/index.hpp>
#include <everleaf/limits.hpp>

namespace everleaf {
namespace {

constexpr std::array kDomains{std::pair{Domain::volatile_, std::string_view("volatile")},
                              std::pair{Domain::process, std::string_view("process")},
                              std::pair{Domain::cache, std::string_view("cache")},
                              std::pair{Domain::memory, std::string_view("memory")},
                              std::pair{Domain::disk, std::string_view("disk")}};

}  // namespace

std::string_view to_string(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::done:
      return "done";
    case Outcome::exists:
      return "exists";
    case Outcome::absent:
      return "absent";
    case Outcome::out_of_space:
      return "out of space";
    case Outcome::key_too_long:
      return "key too long";
    case Outcome::read_only:
      return "read-only";
    case Outcome::io_error:
      return "I/O error";
    case Outcome::corrupt:
      return "corrupt";
    case Outcome::too_many_threads:
      return "too many threads";
    case Outcome::not_empty:
      return "not empty";
    case Outcome::not_ascending:
      return "not ascending";
    case Outcome::value_too_long:
      return "value too long";
    case Outcome::batch_too_large:
      return "batch too large";
    case Outcome::differs:
      return "differs";
    case Outcome::dropped:
      return "dropped";
  }
  return "unknown outcome";
}

// The limits as the sentences name them. That of threads is a test's: the crash checker has less.
static_assert(kMaxKeyBytes == 65'536 && kMaxValueBytes == 268'435'455);
static_assert(kMaxBatchOperations == 65'536 && kMaxBatchBytes == 64 << 20);

std::string_view describe(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::done:
      return "it is done";
    case Outcome::exists:
      return "the key is there already";
    case Outcome::absent:
      return "what was asked for is not there: a key, a cursor's place or an epoch";
    case Outcome::out_of_space:
      return "out of space: the disk, the file's cap or memory is full; make room, or "
             "raise the cap (max_bytes, --max-bytes)";
    case Outcome::key_too_long:
      return "the key is longer than 65,536 bytes: take a shorter one, a hash perhaps";
    case Outcome::read_only:
      return "the file was opened read-only: open it for writing";
    case Outcome::io_error:
      return "a write-back failed, now or earlier, and the file takes no more writes: look after "
             "the device, and open it again";
    case Outcome::corrupt:
      return "a part of the file is damaged: `check` tells which, and `repair` copies what is left "
             "of a store";
    case Outcome::too_many_threads:
      return "more than 1,024 threads use the library at once: let some of them end";
    case Outcome::not_empty:
      return "the index has keys already: only an empty one is loaded in bulk";
    case Outcome::not_ascending:
      return "the keys do not ascend: sort them, and leave out those that come twice";
    case Outcome::value_too_long:
      return "the value is too long: a store takes 268,435,455 bytes (256 MiB), an index of "
             "payloads "
             "65,536; put it under several keys. One that is there is longer than a number's 8 "
             "bytes: "
             "read it as a payload";
    case Outcome::batch_too_large:
      return "the batch has more than 65,536 writes or 64 MiB of keys and values: apply it in "
             "parts";
    case Outcome::differs:
      return "the value is not the expected one: read it, and decide again";
    case Outcome::dropped:
      return "the table was dropped: open it again, or another one";
  }
  return "an outcome that this library does not know";
}

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::not_a_pool:
      return "not a pool";
    case Code::empty_file:
      return "empty file";
    case Code::truncated:
      return "truncated";
    case Code::corrupt:
      return "corrupt";
    case Code::newer_version:
      return "newer version";
    case Code::other_endianness:
      return "other endianness";
    case Code::wrong_tree:
      return "wrong tree";
    case Code::wrong_key_type:
      return "wrong key type";
    case Code::unknown_tree:
      return "unknown tree";
    case Code::unknown_option:
      return "unknown option";
    case Code::bad_option:
      return "bad option";
    case Code::bad_argument:
      return "bad argument";
    case Code::locked:
      return "locked";
    case Code::locked_here:
      return "locked by this process";
    case Code::exists:
      return "exists";
    case Code::not_found:
      return "not found";
    case Code::permission:
      return "permission";
    case Code::out_of_space:
      return "out of space";
    case Code::io:
      return "I/O error";
    case Code::domain_too_strong:
      return "domain too strong";
    case Code::read_only:
      return "read-only";
  }
  return "unknown code";
}

std::string_view to_string(Domain domain) noexcept {
  for (const auto& [value, name] : kDomains) {
    if (value == domain) return name;
  }
  return "unknown domain";
}

std::optional<Domain> parse_domain(std::string_view name) noexcept {
  for (const auto& [value, known] : kDomains) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string_view to_string(KeyType type) noexcept {
  return type == KeyType::u64 ? "u64" : "bytes";
}

std::string_view to_string(Durability durability) noexcept {
  return durability == Durability::strict ? "strict" : "buffered";
}

std::string_view to_string(InnerNodes inner) noexcept {
  return inner == InnerNodes::pool ? "pool" : "dram";
}

std::string_view to_string(Recovery recovery) noexcept {
  switch (recovery) {
    case Recovery::instant:
      return "instant";
    case Recovery::rebuild:
      return "rebuild";
    case Recovery::replay:
      return "replay";
  }
  return "unknown recovery";
}

}  // namespace everleaf
