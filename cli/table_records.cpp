#include "table_records.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include <everleaf/limits.hpp>

#include <fmt/format.h>

#include "records.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

// Nothing longer can be a good line: every byte of the longest key and value as \xHH.
constexpr std::size_t kMaxLineBytes = 4 * (kMaxKeyBytes + kMaxValueBytes) + 64;

std::optional<unsigned> digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

std::optional<char> byte_of(std::string_view digits) {
  if (digits.size() < 2) return std::nullopt;
  const auto high = digit_of(digits[0]);
  const auto low = digit_of(digits[1]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

std::string hexadecimal(Bytes bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

}  // namespace

TableFormat table_format_of(const std::string& name) {
  if (name.empty() || name == "tsv") return TableFormat::tsv;
  if (name == "mdb") return TableFormat::mdb;
  throw Failure(kExitUsage,
                fmt::format("unknown format {}: there are tsv and mdb", in_quotes(name)));
}

bool TableReader::next(TableRecord& record) {
  return format_ == TableFormat::tsv ? next_tsv(record) : next_mdb(record);
}

bool TableReader::line() {
  const Input::Line is = input_.line(text_, kMaxLineBytes);
  if (is == Input::Line::too_long) throw BadRecord(line_ + 1, "line", "too long");
  if (is == Input::Line::end) return false;
  ++line_;
  return true;
}

bool TableReader::next_tsv(TableRecord& record) {
  if (!line()) return false;
  record.line = line_;
  const std::size_t tab = text_.find('\t');
  if (tab == std::string::npos) throw BadRecord(line_, "value", "missing");
  const std::string_view text = text_;
  if (text.find('\t', tab + 1) != std::string_view::npos) {
    throw BadRecord(line_, "value", "a further field follows; a line is key, tab, value");
  }
  const auto bytes_of = [this](const char* field, std::string_view part) {
    auto bytes = unescape(part);
    if (!bytes) {
      throw BadRecord(line_, field,
                      fmt::format("{} has an unknown escape: there are \\t, \\n, \\\\ and \\xHH",
                                  in_quotes(part)));
    }
    return std::move(*bytes);
  };
  record.key = bytes_of("key", text.substr(0, tab));
  record.value = bytes_of("value", text.substr(tab + 1));
  return true;
}

void TableReader::read_header() {
  bool any = false;
  while (line()) {
    any = true;
    if (text_ == "HEADER=END") {
      in_data_ = true;
      return;
    }
    if (text_ == "format=print") printable_ = true;
    if (text_ == "duplicates=1" || text_ == "dupsort=1") {
      throw BadRecord(line_, "header", "a table has one value for each key");
    }
    if (text_.find('=') == std::string::npos) {
      throw BadRecord(line_, "header", "not what mdb_dump writes");
    }
  }
  if (any) throw BadRecord(line_, "header", "HEADER=END is missing");
  throw BadRecord(1, "header", "missing: not what mdb_dump writes");
}

bool TableReader::next_mdb(TableRecord& record) {
  if (!in_data_) read_header();
  if (!line()) throw BadRecord(line_, "line", "DATA=END is missing: the file was cut");
  if (text_ == "DATA=END") return false;  // of a further table nothing is read
  record.line = line_;
  record.key = mdb_bytes("key");
  if (!line() || text_ == "DATA=END") throw BadRecord(record.line, "value", "missing");
  record.value = mdb_bytes("value");
  return true;
}

std::string TableReader::mdb_bytes(std::string_view field) {
  const auto bad = [&](const char* why) { return BadRecord(line_, field, why); };
  if (!text_.starts_with(' ')) throw bad("a line of data begins with a blank");
  const std::string_view text = std::string_view(text_).substr(1);
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    if (printable_ && text[i] != '\\') {
      bytes += text[i++];
      continue;
    }
    if (printable_ && text.substr(i).starts_with("\\\\")) {
      bytes += '\\';
      i += 2;
      continue;
    }
    const std::size_t digits = printable_ ? i + 1 : i;
    const auto byte = byte_of(text.substr(std::min(digits, text.size())));
    if (!byte) throw bad("two hexadecimal digits are one byte");
    bytes += *byte;
    i = digits + 2;
  }
  return bytes;
}

template <>
std::string TableReader::key_of<Bytes>(const TableRecord& record) const {
  return record.key;
}

template <>
std::uint64_t TableReader::key_of<std::uint64_t>(const TableRecord& record) const {
  if (format_ == TableFormat::mdb) {
    if (record.key.size() != sizeof(std::uint64_t)) {
      throw BadRecord(record.line, "key", "a number is eight bytes");
    }
    std::uint64_t key = 0;
    for (const char c : record.key) key = key << 8 | static_cast<unsigned char>(c);
    return key;
  }
  if (const auto key = parse_number(record.key)) return *key;
  throw BadRecord(record.line, "key",
                  fmt::format("{} is not {}", in_quotes(record.key), kNumberRange));
}

TableWriter::TableWriter(Output& output, TableFormat format) : output_(output), format_(format) {
  if (format_ == TableFormat::mdb) {
    output_ << "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";
  }
}

void TableWriter::write(Bytes key, Bytes value) {
  if (format_ == TableFormat::tsv) {
    output_ << escape(key) << "\t" << escape(value) << "\n";
  } else {
    output_ << " " << hexadecimal(key) << "\n " << hexadecimal(value) << "\n";
  }
}

void TableWriter::write(std::uint64_t key, Bytes value) {
  if (format_ == TableFormat::tsv) {
    output_ << escape(key) << "\t" << escape(value) << "\n";
    return;
  }
  std::array<char, sizeof key> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(key >> (56 - 8 * i) & 0xFF);
  }
  write(Bytes(bytes.data(), bytes.size()), value);
}

void TableWriter::finish() {
  if (format_ == TableFormat::mdb) output_ << "DATA=END\n";
}

}  // namespace everleaf::cli
