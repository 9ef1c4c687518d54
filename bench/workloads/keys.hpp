// Keys and values by arithmetic: no table, so nothing but the index is in the caches.
//
// Every record has an id. The live records of a run are the ids [first, end): `insert` takes new
// ids at the end, `remove` takes old ones at the front. An id gives a 64-bit key number, the key
// number gives the key (itself, or bytes in the same order) and the value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

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

// Turns key numbers into keys of type K, and back (nullopt: not one of ours).
template <class K>
class KeyCodec;

template <>
class KeyCodec<std::uint64_t> {
 public:
  std::uint64_t operator()(std::uint64_t number) { return number; }
  static std::optional<std::uint64_t> number_of(std::uint64_t key) { return key; }
};

// "user" and 16 lower-case hexadecimal digits: 20 bytes, in the order of the numbers, and too long
// for the short-string buffer, as real keys are.
template <>
class KeyCodec<Bytes> {
 public:
  static constexpr std::string_view kPrefix = "user";
  static constexpr std::size_t kDigits = 16;

  // The answer points into this object and lives until the next call.
  Bytes operator()(std::uint64_t number) {
    for (std::size_t byte = 0; byte < kDigits / 2; ++byte) {
      const auto pair = kPairs[(number >> (56 - 8 * byte)) & 0xff];
      text_[kPrefix.size() + 2 * byte] = pair[0];
      text_[kPrefix.size() + 2 * byte + 1] = pair[1];
    }
    return {text_.data(), text_.size()};
  }

  static std::optional<std::uint64_t> number_of(std::string_view key) {
    if (key.size() != kPrefix.size() + kDigits || !key.starts_with(kPrefix)) return std::nullopt;
    std::uint64_t number = 0;
    for (const char digit : key.substr(kPrefix.size())) {
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

  std::array<char, 20> text_{'u', 's', 'e', 'r'};
};

}  // namespace everleaf::bench
