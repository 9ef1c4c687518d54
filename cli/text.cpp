#include "text.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "failure.hpp"

namespace everleaf::cli {
namespace {

// Length of the well-formed UTF-8 sequence at the start of `text`; 0: there is none.
std::size_t utf8_length(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0U) != 0x80) return 0;
  }
  // Overlong forms, surrogates and what is beyond U+10FFFF.
  const unsigned second = at(1);
  if (first == 0xE0 && second < 0xA0) return 0;
  if (first == 0xED && second > 0x9F) return 0;
  if (first == 0xF0 && second < 0x90) return 0;
  if (first == 0xF4 && second > 0x8F) return 0;
  return length;
}

void append_hex(std::string& out, char byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  out += "\\x";
  out += kDigits[value >> 4U];
  out += kDigits[value & 15U];
}

std::optional<char> hex_byte(std::string_view digits) {
  unsigned value = 0;
  if (digits.size() != 2) return std::nullopt;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + 2, value, 16);
  if (error != std::errc{} || end != digits.data() + 2) return std::nullopt;
  return static_cast<char>(value);
}

}  // namespace

std::string escape(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const char byte = bytes.front();
    const std::size_t length = utf8_length(bytes);
    if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\\') {
      out += "\\\\";
    } else if (length == 0 || static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F) {
      append_hex(out, byte);
    } else {
      out += bytes.substr(0, length);
    }
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t length = utf8_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string escape(std::uint64_t key) {
  return std::to_string(key);
}

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t backslash = text.find('\\');
    out += text.substr(0, backslash);
    if (backslash == std::string_view::npos) return out;
    text.remove_prefix(backslash + 1);
    if (text.empty()) return std::nullopt;
    const char kind = text.front();
    text.remove_prefix(1);
    if (kind == 't') {
      out += '\t';
    } else if (kind == 'n') {
      out += '\n';
    } else if (kind == '\\') {
      out += '\\';
    } else if (const auto byte = hex_byte(text.substr(0, 2)); kind == 'x' && byte) {
      out += *byte;
      text.remove_prefix(2);
    } else {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  constexpr std::string_view kSuffixes = "KMGT";
  unsigned shift = 0;
  if (!text.empty()) {
    const std::size_t at = kSuffixes.find(text.back());
    if (at != std::string_view::npos) {
      shift = 10 * static_cast<unsigned>(at + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number(text);
  if (!number || (*number << shift) >> shift != *number) return std::nullopt;
  return *number << shift;
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string counted(std::uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(number), noun, number == 1 ? "" : "s");
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  return fmt::format("{:.{}f} {}", amount, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string human_time(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(seconds);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string human_rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f} M/s", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f} k/s", per_second / 1e3);
  return fmt::format("{:.0f}/s", per_second);
}

std::string in_quotes(std::string_view bytes) {
  constexpr std::size_t kMost = 40;
  if (bytes.size() <= kMost) return fmt::format("'{}'", escape(bytes));
  // Not in the middle of a character.
  std::size_t cut = kMost;
  while (cut > kMost - 3 && (static_cast<unsigned char>(bytes[cut]) & 0xC0U) == 0x80) --cut;
  return fmt::format("'{}...'", escape(bytes.substr(0, cut)));
}

std::string in_quotes(std::uint64_t key) {
  return std::to_string(key);
}

template <>
std::uint64_t key_of_argument<std::uint64_t>(const std::string& text, bool /*escaped*/) {
  if (const auto key = parse_number(text)) return *key;
  throw Failure(kExitUsage,
                fmt::format("key {} is not {}, as u64 keys are", in_quotes(text), kNumberRange));
}

template <>
std::string key_of_argument<Bytes>(const std::string& text, bool escaped) {
  std::string key = text;
  if (escaped) {
    auto bytes = unescape(text);
    if (!bytes) {
      throw Failure(kExitUsage,
                    fmt::format("key {} has an unknown escape: there are \\t, \\n, \\\\ "
                                "and \\xHH",
                                in_quotes(text)));
    }
    key = std::move(*bytes);
  }
  if (key.size() > kMaxKeyBytes) {
    throw Failure(kExitUsage, fmt::format("the key has {} bytes, the limit is {}",
                                          grouped(key.size()), grouped(kMaxKeyBytes)));
  }
  return key;
}

}  // namespace everleaf::cli
