// Turns value numbers into values of bytes, and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "workloads/random.hpp"

namespace everleaf::bench {

// Values of 8 to kMost bytes. The first eight are the number, every following word (the last one
// may be cut short) is that number and its place: who reads a value sees in each byte whether it is
// the one that was written. One for each thread.
class ValueCodec {
 public:
  static constexpr std::size_t kLeast = sizeof(std::uint64_t);
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  explicit ValueCodec(std::size_t bytes = kLeast) : text_(bytes, '\0') {}

  // The answer points into this object and lives until the next call.
  std::string_view operator()(std::uint64_t number) {
    for (std::size_t at = 0; at < text_.size(); at += kLeast) {
      const std::uint64_t word = word_at(number, at);
      std::memcpy(text_.data() + at, &word, std::min(kLeast, text_.size() - at));
    }
    return text_;
  }

  // nullopt: not a value of ours, whole.
  [[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view value) const {
    if (value.size() < kLeast || value.size() != text_.size()) return std::nullopt;
    std::uint64_t number = 0;
    std::memcpy(&number, value.data(), kLeast);
    std::uint64_t differs = 0;
    std::size_t at = kLeast;
    for (; at + kLeast <= value.size(); at += kLeast) {
      std::uint64_t word = 0;
      std::memcpy(&word, value.data() + at, kLeast);
      differs |= word ^ word_at(number, at);
    }
    const std::uint64_t rest = word_at(number, at);
    if (std::memcmp(value.data() + at, &rest, value.size() - at) != 0 || differs != 0) {
      return std::nullopt;
    }
    return number;
  }

 private:
  static std::uint64_t word_at(std::uint64_t number, std::size_t at) {
    return number + at * kGolden;
  }

  std::string text_;
};

}  // namespace everleaf::bench
