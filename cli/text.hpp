// Keys and numbers as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <everleaf/index.hpp>

namespace everleaf::cli {

inline constexpr std::string_view kNumberRange = "a number from 0 to 18446744073709551615";

// Bytes as text that fits into one TSV field and is valid UTF-8: \t, \n, \\, and \xHH for other
// control bytes and whatever is not UTF-8.
[[nodiscard]] std::string escape(std::string_view bytes);
[[nodiscard]] std::string escape(std::uint64_t key);

[[nodiscard]] bool is_utf8(std::string_view bytes);

// The bytes that `text` stands for; nullopt: an escape that does not exist.
[[nodiscard]] std::optional<std::string> unescape(std::string_view text);

[[nodiscard]] std::optional<std::uint64_t> parse_number(std::string_view text);
// The same with an optional suffix K, M, G or T (powers of 1024).
[[nodiscard]] std::optional<std::uint64_t> parse_size(std::string_view text);

// 663473 -> "663,473"
[[nodiscard]] std::string grouped(std::uint64_t number);
// 1, "line" -> "1 line"; 2, "line" -> "2 lines"
[[nodiscard]] std::string counted(std::uint64_t number, std::string_view noun);
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
[[nodiscard]] std::string human_time(double seconds);
[[nodiscard]] std::string human_rate(double per_second);

// For messages: escaped, in quotes, and cut when it is long.
[[nodiscard]] std::string in_quotes(std::string_view bytes);
[[nodiscard]] std::string in_quotes(std::uint64_t key);

// A key as an argument of the command line. Throws Failure.
template <class K>
typename OwnedKey<K>::type key_of_argument(const std::string& text, bool escaped);

}  // namespace everleaf::cli
