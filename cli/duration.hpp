// The length of an epoch as text. Header only and free of the rest of cli/: everleaf-bench reads it
// with the same words.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace everleaf::cli {

// How a refusal goes on after "'TEXT' is not ".
inline constexpr std::string_view kEpochForm =
    "a length from 1us to 10s with its unit (ns, us, ms or s), or 0: only sync steps";

// "50ms" -> 50,000,000 ns. nullopt: not of the form, or a length that no pool takes.
[[nodiscard]] inline std::optional<std::chrono::nanoseconds> parse_epoch(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> kUnits{
      {{"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};
  constexpr std::uint64_t kLeast = 1'000;
  constexpr std::uint64_t kMost = 10'000'000'000;
  if (text == "0") return std::chrono::nanoseconds(0);
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{}) return std::nullopt;
  for (const auto& [unit, ns] : kUnits) {
    if (std::string_view(stop, end) != unit) continue;
    // Compared before it is multiplied: any number can be typed.
    if (number > kMost / ns || number * ns < kLeast) return std::nullopt;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(number * ns));
  }
  return std::nullopt;
}

}  // namespace everleaf::cli
