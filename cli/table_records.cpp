#include "table_records.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <everleaf/limits.hpp>

#include <fmt/format.h>

#include "json.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

constexpr const char* kNoRecord = R"(not a JSON object {"key": ..., "value": ...})";
// Nothing longer can be a good line: every byte of the longest key and value as \u00HH.
constexpr std::size_t kMaxLineBytes = 6 * (kMaxKeyBytes + kMaxValueBytes) + 64;

// A refusal by the table would not know the line.
std::string checked(std::uint64_t line, std::string_view field, std::string bytes) {
  const std::size_t limit = field == "key" ? kMaxKeyBytes : kMaxValueBytes;
  if (bytes.size() <= limit) return bytes;
  throw BadRecord(line, field,
                  fmt::format("{} bytes, the limit is {}", grouped(bytes.size()), grouped(limit)));
}

// What mdb_load takes, as LMDB is compiled.
constexpr std::size_t kMaxLmdbKeyBytes = 511;

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

std::optional<std::string> from_hexadecimal(std::string_view digits) {
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const auto byte = byte_of(digits.substr(i));
    if (!byte) return std::nullopt;
    bytes += *byte;
  }
  return bytes;
}

Json json_of(Bytes bytes) {
  if (is_utf8(bytes)) return bytes;
  return Json{{"hex", hexadecimal(bytes)}};
}
Json json_of(std::uint64_t key) {
  return key;
}

}  // namespace

TableFormat table_format_of(const std::string& name, const std::string& path) {
  constexpr std::array<std::pair<std::string_view, TableFormat>, 5> kNames{
      {{"tsv", TableFormat::tsv},
       {"csv", TableFormat::csv},
       {"jsonl", TableFormat::json},
       {"ndjson", TableFormat::json},
       {"mdb", TableFormat::mdb}}};
  for (const auto& [known, format] : kNames) {
    if (name.empty() ? path.ends_with(fmt::format(".{}", known)) : name == known) return format;
  }
  if (path.ends_with(".json") && name.empty()) {
    throw Failure(kExitUsage,
                  fmt::format("{} may be JSON of any form: --format jsonl, if it has an "
                              "object {{\"key\": ..., \"value\": ...}} in each line",
                              in_quotes(path)));
  }
  if (name.empty()) return TableFormat::tsv;
  throw Failure(kExitUsage, fmt::format("unknown format {}: there are tsv, csv, jsonl and mdb",
                                        in_quotes(name)));
}

bool TableReader::next(TableRecord& record) {
  switch (format_) {
    case TableFormat::tsv:
      return next_tsv(record);
    case TableFormat::csv:
      return next_csv(record);
    case TableFormat::json:
      return next_json(record);
    default:
      return next_mdb(record);
  }
}

bool TableReader::next_csv(TableRecord& record) {
  Record read;
  if (!csv_.next(read)) return false;
  if (!read.value) throw BadRecord(read.line, "value", "missing");
  record.line = read.line;
  record.key = checked(read.line, "key", std::move(read.key));
  record.value = checked(read.line, "value", std::move(*read.value));
  return true;
}

bool TableReader::next_json(TableRecord& record) {
  if (!line()) return false;
  record.line = line_;
  // The parser takes a zero byte for the end.
  if (text_.find('\0') != std::string::npos) throw BadRecord(line_, "line", "has a zero byte");
  // Of a key that stands there twice the parser keeps the last, and what is nested deeply takes its
  // stack.
  std::size_t keys = 0;
  const auto look = [&](int depth, Json::parse_event_t event, Json&) {
    keys += depth == 1 && event == Json::parse_event_t::key ? 1 : 0;
    const bool nested = depth > 1 && (event == Json::parse_event_t::object_start ||
                                      event == Json::parse_event_t::array_start);
    if (nested) throw BadRecord(line_, "line", kNoRecord);
    return true;
  };
  const Json json = Json::parse(text_, look, false);
  if (!json.is_object() || json.size() != 2 || keys != 2 || !json.contains("key") ||
      !json.contains("value")) {
    throw BadRecord(line_, "line", kNoRecord);
  }
  const Json& key = json["key"];
  // Without a type of its own: key_of() reads it, and a string of digits is no number.
  record.number = key.is_number_unsigned();
  record.key = record.number ? std::to_string(key.get<std::uint64_t>()) : json_bytes("key", key);
  record.value = json_bytes("value", json["value"]);
  return true;
}

std::string TableReader::json_bytes(std::string_view field, const Json& json) const {
  if (json.is_string()) return checked(line_, field, json.get<std::string>());
  const bool hex =
      json.is_object() && json.size() == 1 && json.contains("hex") && json["hex"].is_string();
  if (!hex) {
    std::string what = R"(neither a string nor {"hex": "..."})";
    if (field == "key") what += fmt::format(" nor {}", kNumberRange);
    if (json.is_number()) what = fmt::format("{} is {}", json.dump(), what);
    throw BadRecord(line_, field, what);
  }
  auto bytes = from_hexadecimal(json["hex"].get_ref<const std::string&>());
  if (!bytes) throw BadRecord(line_, field, "two hexadecimal digits are one byte");
  return checked(line_, field, std::move(*bytes));
}

bool TableReader::line() {
  const Input::Line is = input_.line(text_, kMaxLineBytes);
  if (is == Input::Line::too_long) {
    throw BadRecord(line_ + 1, "line", fmt::format("longer than {} bytes", grouped(kMaxLineBytes)));
  }
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
    return checked(line_, field, std::move(*bytes));
  };
  record.key = bytes_of("key", text.substr(0, tab));
  record.value = bytes_of("value", text.substr(tab + 1));
  return true;
}

// What a line of the header says is taken, or passed over, or would make another table of the
// records.
void TableReader::read_header_line() {
  const auto refuse = [this](const std::string& why) { throw BadRecord(line_, "header", why); };
  const std::size_t equals = text_.find('=');
  if (equals == std::string::npos) refuse("not what mdb_dump writes");
  const std::string_view name = std::string_view(text_).substr(0, equals);
  const std::string_view value = std::string_view(text_).substr(equals + 1);
  if (name == "VERSION" && value != "3") refuse("VERSION=3 is known, and no other");
  if (name == "type" && value != "btree") refuse("type=btree is known, and no other");
  if (name == "format") {
    if (value != "print" && value != "bytevalue") {
      refuse("format=bytevalue and format=print are known, and no other");
    }
    printable_ = value == "print";
  }
  if (value != "1") return;
  if (name == "duplicates" || name == "dupsort") {
    refuse("the keys may have several values (dupsort); a table has one for each");
  }
  if (name == "reversekey") {
    refuse("the keys are compared from their ends (reversekey), which no table does");
  }
  if (name == "integerkey") integer_keys_ = true;
}

void TableReader::read_header() {
  bool any = false;
  while (line()) {
    any = true;
    if (text_ == "HEADER=END") {
      in_data_ = true;
      return;
    }
    read_header_line();
  }
  if (any) throw BadRecord(line_, "header", "HEADER=END is missing");
  throw BadRecord(1, "header", "missing: not what mdb_dump writes");
}

bool TableReader::next_mdb(TableRecord& record) {
  if (!in_data_) read_header();
  if (!line()) throw BadRecord(line_, "line", "DATA=END is missing: the file was cut");
  if (text_ == "DATA=END") {
    if (line()) {
      throw BadRecord(line_, "line",
                      "a further table follows (mdb_dump -a): dump them one by one, with -s");
    }
    return false;
  }
  record.line = line_;
  record.key = mdb_bytes("key");
  if (!line() || text_ == "DATA=END") throw BadRecord(record.line, "value", "missing");
  record.value = mdb_bytes("value");
  return true;
}

std::string TableReader::mdb_bytes(std::string_view field) {
  const auto bad = [&](const std::string& why) { return BadRecord(line_, field, why); };
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
    // LMDB 0.9.24 writes a backslash as it is. What follows it then may look like an escape, but
    // nobody escapes what can be printed.
    if (printable_ && (!byte || (*byte != '\\' && *byte >= ' ' && *byte <= '~'))) {
      throw bad(
          fmt::format("{} is no escape: older versions of mdb_dump -p write a backslash as "
                      "it is; dump without -p",
                      in_quotes(text.substr(i, 3))));
    }
    if (!byte) throw bad("two hexadecimal digits are one byte");
    bytes += *byte;
    i = digits + 2;
  }
  return checked(line_, field, std::move(bytes));
}

template <>
std::string TableReader::key_of<Bytes>(const TableRecord& record) const {
  if (record.number) throw BadRecord(record.line, "key", "a number; the table's keys are bytes");
  if (integer_keys_) {
    throw BadRecord(record.line, "key",
                    "a number (integerkey=1 in the header); the table's keys are bytes: load it "
                    "with --keys u64 into another");
  }
  return record.key;
}

// Of an integerkey in the machine's order, which is that of this program's; else the most
// significant byte first, so that their order is that of LMDB.
std::uint64_t TableReader::mdb_number(const TableRecord& record) const {
  static_assert(std::endian::native == std::endian::little);
  std::string key = record.key;
  if (integer_keys_) {
    if (key.size() != sizeof(std::uint32_t) && key.size() != sizeof(std::uint64_t)) {
      throw BadRecord(record.line, "key", "an integerkey is four or eight bytes");
    }
    std::ranges::reverse(key);
  } else if (key.size() != sizeof(std::uint64_t)) {
    throw BadRecord(record.line, "key", "a number is eight bytes");
  }
  std::uint64_t number = 0;
  for (const char c : key) number = number << 8 | static_cast<unsigned char>(c);
  return number;
}

template <>
std::uint64_t TableReader::key_of<std::uint64_t>(const TableRecord& record) const {
  if (format_ == TableFormat::mdb) return mdb_number(record);
  if (format_ == TableFormat::json && !record.number) {
    throw BadRecord(record.line, "key", fmt::format("not {}", kNumberRange));
  }
  if (const auto key = parse_number(record.key)) return *key;
  throw BadRecord(record.line, "key",
                  fmt::format("{} is not {}", in_quotes(record.key), kNumberRange));
}

TableWriter::TableWriter(Output& output, TableFormat format, std::uint64_t file_bytes)
    : output_(output), format_(format) {
  if (format_ == TableFormat::mdb) {
    // Address space, not memory: mdb_load takes a mebibyte without it.
    const std::uint64_t map = 4 * file_bytes + (std::uint64_t{64} << 20);
    output_ << "VERSION=3\nformat=bytevalue\ntype=btree\nmapsize=" << std::to_string(map)
            << "\nHEADER=END\n";
  }
}

template <class K>
void TableWriter::write_text(K key, Bytes value) {
  if (format_ == TableFormat::tsv) {
    output_ << escape(key) << "\t" << escape(value) << "\n";
  } else if (format_ == TableFormat::csv) {
    if constexpr (std::same_as<K, Bytes>) {
      output_ << csv_field(key);
    } else {
      output_ << std::to_string(key);
    }
    output_ << "," << csv_field(value) << "\n";
  } else {
    output_ << Json{{"key", json_of(key)}, {"value", json_of(value)}}.dump() << "\n";
  }
}

void TableWriter::write(Bytes key, Bytes value) {
  if (format_ != TableFormat::mdb) return write_text(key, value);
  if (key.empty() || key.size() > kMaxLmdbKeyBytes) ++lmdb_refuses_;
  output_ << " " << hexadecimal(key) << "\n " << hexadecimal(value) << "\n";
}

void TableWriter::write(std::uint64_t key, Bytes value) {
  if (format_ != TableFormat::mdb) return write_text(key, value);
  std::array<char, sizeof key> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(key >> (56 - 8 * i) & 0xFF);
  }
  write(Bytes(bytes.data(), bytes.size()), value);
}

void TableWriter::finish() {
  if (format_ == TableFormat::mdb) output_ << "DATA=END\n";
  output_.finish();
  if (lmdb_refuses_ == 0) return;
  fmt::print(
      stderr,
      "everleaf: warning: keys that mdb_load does not take, empty or longer than {} bytes: {}\n",
      kMaxLmdbKeyBytes, grouped(lmdb_refuses_));
}

}  // namespace everleaf::cli
