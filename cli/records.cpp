#include "records.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "text.hpp"

namespace everleaf::cli {
namespace {

std::string too_long(std::size_t limit = kMaxKeyBytes) {
  return fmt::format("longer than {} bytes", grouped(limit));
}

bool needs_quotes(std::string_view text) {
  return text.empty() || std::ranges::any_of(text, [](char c) {
           return c == ',' || c == '"' || static_cast<unsigned char>(c) <= 0x20 || c == 0x7F;
         });
}

std::string unescaped(std::uint64_t line, std::string_view field, std::string_view text) {
  if (auto bytes = unescape(text)) return std::move(*bytes);
  throw BadRecord(
      line, field,
      fmt::format("{} has an unknown escape: there are \\t, \\n, \\\\ and \\xHH", in_quotes(text)));
}

void expect_one_field(const Record& record, std::string_view value) {
  if (value.find('\t') == std::string_view::npos) return;
  throw BadRecord(record.line, "value", "a further field follows; a line is key, tab, value");
}

std::string text_of(std::uint64_t key, Format /*format*/) {
  return fmt::to_string(key);
}
std::string text_of(std::string_view bytes, Format format) {
  return format == Format::tsv ? escape(bytes) : csv_field(bytes);
}

char between(Format format) {
  return format == Format::tsv ? '\t' : ',';
}

}  // namespace

std::string csv_field(std::string_view text) {
  if (!needs_quotes(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
  return out;
}

BadRecord::BadRecord(std::uint64_t line, std::string_view field, const std::string& problem)
    : Failure(kExitUsage, fmt::format("line {}: {}: {}", line, field, problem)) {}

Format format_of(const std::string& name, const std::string& path) {
  if (name == "csv" || (name.empty() && path.ends_with(".csv"))) return Format::csv;
  if (name.empty() || name == "tsv") return Format::tsv;
  throw Failure(kExitUsage,
                fmt::format("unknown format {}: there are tsv and csv", in_quotes(name)));
}

bool RecordReader::next(Record& record) {
  start_ = line_ + 1;
  record.line = start_;
  return format_ == Format::tsv ? next_tsv(record) : next_csv(record);
}

bool RecordReader::next_tsv(Record& record) {
  const Input::Line line = input_.line(text_, most_line_bytes_);
  if (line == Input::Line::too_long) {
    throw BadRecord(start_, text_.contains('\t') ? "value" : "key", too_long());
  }
  if (line == Input::Line::end) return false;
  ++line_;
  const std::size_t tab = text_.find('\t');
  record.key = unescaped(start_, "key", std::string_view(text_).substr(0, tab));
  record.value.reset();
  if (tab != std::string::npos) record.value = text_.substr(tab + 1);
  return true;
}

void RecordReader::fail(const std::string& problem) const {
  throw BadRecord(start_, fields_used_ <= 1 ? "key" : "value", problem);
}

std::string& RecordReader::add_field() {
  if (fields_.size() == fields_used_) fields_.emplace_back();
  fields_[fields_used_].clear();
  return fields_[fields_used_++];
}

int RecordReader::peek_char() {
  const std::string_view bytes = input_.peek();
  return bytes.empty() ? -1 : static_cast<unsigned char>(bytes.front());
}

char RecordReader::take_char() {
  const char c = input_.peek().front();
  input_.consume(1);
  if (c == '\n') ++line_;
  return c;
}

// From behind the opening quote to behind the closing one.
void RecordReader::read_quoted(std::string& field) {
  while (true) {
    if (peek_char() < 0) fail("the quote is never closed");
    const char c = take_char();
    if (c == '"') {
      if (peek_char() != '"') break;
      take_char();
    }
    field += c;
    if (field.size() > limit()) fail(too_long(limit()));
  }
  const int next = peek_char();
  if (next == '\r' || next == '\n' || next == ',' || next < 0) return;
  fail("text after the closing quote");
}

void RecordReader::read_plain(std::string& field) {
  for (int next = peek_char(); next >= 0 && next != ',' && next != '\n'; next = peek_char()) {
    if (next == '"') fail("a quote inside a field that is not quoted");
    field += take_char();
    // One more for the carriage return before the end of the line.
    if (field.size() > limit() + 1) fail(too_long(limit()));
  }
  if (peek_char() != ',' && field.ends_with('\r')) field.pop_back();
}

bool RecordReader::next_csv(Record& record) {
  fields_used_ = 0;
  if (peek_char() < 0) return false;
  while (true) {
    std::string& field = add_field();
    if (fields_used_ > 2) {
      throw BadRecord(start_, "value", "a further field follows; a line is key,value");
    }
    if (peek_char() == '"') {
      take_char();
      read_quoted(field);
      if (peek_char() == '\r') take_char();
      if (peek_char() >= 0 && peek_char() != ',' && peek_char() != '\n') {
        fail("text after the closing quote");
      }
    } else {
      read_plain(field);
    }
    if (peek_char() < 0) {
      ++line_;  // a last line without its newline
      break;
    }
    if (take_char() == '\n') break;
  }
  record.key = fields_[0];
  record.value.reset();
  if (fields_used_ == 2) record.value = fields_[1];
  return true;
}

template <>
std::uint64_t key_of<std::uint64_t>(const Record& record) {
  if (const auto key = parse_number(record.key)) return *key;
  throw BadRecord(record.line, "key",
                  fmt::format("{} is not {}", in_quotes(record.key), kNumberRange));
}

template <>
std::string key_of<Bytes>(const Record& record) {
  if (record.key.size() <= kMaxKeyBytes) return record.key;
  throw BadRecord(
      record.line, "key",
      fmt::format("{} bytes, the limit is {}", grouped(record.key.size()), grouped(kMaxKeyBytes)));
}

std::uint64_t value_of(const Record& record, bool number_lines) {
  if (!record.value) {
    if (number_lines) return record.line;
    throw BadRecord(record.line, "value",
                    "missing; --number-lines takes the line's number instead");
  }
  expect_one_field(record, *record.value);
  if (const auto value = parse_number(*record.value)) return *value;
  throw BadRecord(record.line, "value",
                  fmt::format("{} is not {}", in_quotes(*record.value), kNumberRange));
}

std::string payload_of(const Record& record, Format format, bool number_lines) {
  if (!record.value) return fmt::to_string(value_of(record, number_lines));
  std::string payload = *record.value;
  if (format == Format::tsv) {
    expect_one_field(record, payload);
    payload = unescaped(record.line, "value", payload);
  }
  if (payload.size() <= kMaxPayloadBytes) return payload;
  throw BadRecord(
      record.line, "value",
      fmt::format("{} bytes, the limit is {}", grouped(payload.size()), grouped(kMaxPayloadBytes)));
}

template <class K>
void write_record(Output& output, Format format, const Entry<K>& entry) {
  output << fmt::format("{}{}{}\n", text_of(entry.key, format), between(format), entry.value);
}

template <class K>
void write_record(Output& output, Format format, const PayloadEntry<K>& entry) {
  output << fmt::format("{}{}{}\n", text_of(entry.key, format), between(format),
                        text_of(entry.payload, format));
}

template void write_record(Output&, Format, const Entry<std::uint64_t>&);
template void write_record(Output&, Format, const Entry<Bytes>&);
template void write_record(Output&, Format, const PayloadEntry<std::uint64_t>&);
template void write_record(Output&, Format, const PayloadEntry<Bytes>&);

}  // namespace everleaf::cli
