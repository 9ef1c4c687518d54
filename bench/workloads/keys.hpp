// Keys and values by arithmetic: no table, so nothing but the index is in the caches.
//
// Every record has an id. The live records of a run are the ids [first, end): `insert` takes new
// ids at the end, `remove` takes old ones at the front. An id gives a 64-bit key number, the key
// number gives the key (itself, or bytes in the same order) and the value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <everleaf/index.hpp>

#include "workloads/random.hpp"

namespace everleaf::bench {

enum class KeyOrder : std::uint8_t {
  scattered,   // a bijection over the whole 64-bit range: id order is a random order of the keys
  ascending,   // key = id
  descending,  // key = 2^64 - 1 - id
};

class KeySpace {
 public:
  KeySpace(KeyOrder order, std::uint64_t seed) : order_(order), offset_(mix(seed)) {}

  [[nodiscard]] std::uint64_t key_of(std::uint64_t id) const {
    if (order_ == KeyOrder::scattered) return mix(id + offset_);
    return order_ == KeyOrder::ascending ? id : ~id;
  }

  [[nodiscard]] std::uint64_t id_of(std::uint64_t key) const {
    if (order_ == KeyOrder::scattered) return unmix(key) - offset_;
    return order_ == KeyOrder::ascending ? key : ~key;
  }

 private:
  KeyOrder order_;
  std::uint64_t offset_;
};

struct IdRange {
  std::uint64_t first = 0;
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size() const { return end - first; }
  [[nodiscard]] bool contains(std::uint64_t id) const { return id - first < size(); }
};

// The low byte of a value says who wrote it (0: load or insert, 1: update), the rest belongs to the
// key: a reader can tell a right value from a wrong one whatever updates run beside it.
inline constexpr std::uint64_t kWriterMask = 0xff;

constexpr std::uint64_t value_of(std::uint64_t key, std::uint64_t writer) {
  return ((key * kGolden) & ~kWriterMask) | writer;
}
constexpr bool value_belongs(std::uint64_t value, std::uint64_t key) {
  return ((value ^ value_of(key, 0)) & ~kWriterMask) == 0;
}

// Which records there are.
struct Live {
  IdRange ids;
  std::vector<std::uint8_t> present = {};  // of those ids; empty: all of them

  [[nodiscard]] std::uint64_t size() const {
    return present.empty() ? ids.size()
                           : static_cast<std::uint64_t>(std::ranges::count(present, 1));
  }
  [[nodiscard]] bool contains(std::uint64_t id) const {
    return ids.contains(id) && (present.empty() || present[id - ids.first] == 1);
  }
};

// Turns key numbers into keys of type K, and back (nullopt: not one of ours).
template <class K>
class KeyCodec;

template <>
class KeyCodec<std::uint64_t> {
 public:
  explicit KeyCodec(std::size_t = sizeof(std::uint64_t)) {}
  std::uint64_t operator()(std::uint64_t number) { return number; }
  [[nodiscard]] std::optional<std::uint64_t> number_of(std::uint64_t key) const { return key; }
};

// Keys of kLeast to kMost bytes, in the order of the numbers. From kReadable on: "user", 16
// lower-case hexadecimal digits, and dots to the length; 20 bytes are too long for the short-string
// buffer, as real keys are. Shorter ones: the number's eight bytes, the highest first, and dots.
template <>
class KeyCodec<Bytes> {
 public:
  static constexpr std::string_view kPrefix = "user";
  static constexpr std::size_t kDigits = 16;
  static constexpr std::size_t kLeast = sizeof(std::uint64_t);
  static constexpr std::size_t kReadable = kPrefix.size() + kDigits;
  static constexpr std::size_t kMost = 128;

  explicit KeyCodec(std::size_t bytes = kReadable) : bytes_(bytes) {
    text_.fill('.');
    if (readable()) std::ranges::copy(kPrefix, text_.begin());
  }

  // The answer points into this object and lives until the next call.
  Bytes operator()(std::uint64_t number) {
    for (std::size_t byte = 0; byte < sizeof number; ++byte) {
      const auto value = static_cast<std::uint8_t>(number >> (56 - 8 * byte));
      if (!readable()) {
        text_[byte] = static_cast<char>(value);
        continue;
      }
      text_[kPrefix.size() + 2 * byte] = kPairs[value][0];
      text_[kPrefix.size() + 2 * byte + 1] = kPairs[value][1];
    }
    return {text_.data(), bytes_};
  }

  [[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view key) const {
    if (key.size() != bytes_) return std::nullopt;
    const std::size_t end = readable() ? kReadable : kLeast;
    if (key.find_first_not_of('.', end) != std::string_view::npos) return std::nullopt;
    std::uint64_t number = 0;
    if (!readable()) {
      for (const char byte : key.substr(0, end)) {
        number = number << 8 | static_cast<std::uint8_t>(byte);
      }
      return number;
    }
    if (!key.starts_with(kPrefix)) return std::nullopt;
    for (const char digit : key.substr(kPrefix.size(), kDigits)) {
      const std::size_t nibble = kHex.find(digit);
      if (nibble == std::string_view::npos) return std::nullopt;
      number = number << 4 | nibble;
    }
    return number;
  }

 private:
  static constexpr std::string_view kHex = "0123456789abcdef";
  static constexpr auto kPairs = [] {
    std::array<std::array<char, 2>, 256> pairs{};
    for (std::size_t i = 0; i < 256; ++i) pairs[i] = {kHex[i / 16], kHex[i % 16]};
    return pairs;
  }();

  [[nodiscard]] bool readable() const { return bytes_ >= kReadable; }

  std::size_t bytes_;
  std::array<char, kMost> text_;
};

}  // namespace everleaf::bench
