// Lines of key and value, as TSV or CSV: what `load` reads and `dump` writes.
//
// TSV: key, tab, value; in the key, and in payloads, \t, \n, \\ and \xHH stand for bytes. CSV: RFC
// 4180, two fields, no header; bytes stand for themselves inside quotes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <everleaf/index.hpp>

#include "failure.hpp"
#include "stream.hpp"

namespace everleaf::cli {

enum class Format : std::uint8_t { tsv, csv };

// `name` as the user gave it, or, when that is empty, what the file's extension says; TSV
// otherwise.
[[nodiscard]] Format format_of(const std::string& name, const std::string& path = {});

struct Record {
  std::uint64_t line = 0;  // where it starts, from 1
  std::string key;
  std::optional<std::string> value;  // nullopt: the line has only a key
};

// A line that cannot be read. what(): "line 7: value: ...".
class BadRecord : public Failure {
 public:
  BadRecord(std::uint64_t line, std::string_view field, const std::string& problem);
};

class RecordReader {
 public:
  // Nothing longer can be a good line of TSV: every byte of the longest key as \xHH, and a value,
  // or the longest payload.
  static constexpr std::size_t kMaxLine = 4 * kMaxKeyBytes + 64;
  static constexpr std::size_t kMaxPayloadLine = 4 * (kMaxKeyBytes + kMaxPayloadBytes) + 64;

  // `most_value_bytes` counts in CSV, `most_line_bytes` in TSV.
  RecordReader(Input& input, Format format, std::size_t most_value_bytes = kMaxKeyBytes,
               std::size_t most_line_bytes = kMaxLine)
      : input_(input),
        format_(format),
        most_value_bytes_(most_value_bytes),
        most_line_bytes_(most_line_bytes) {}

  // False: the end. Throws BadRecord.
  bool next(Record& record);

 private:
  bool next_tsv(Record& record);
  bool next_csv(Record& record);
  std::string& add_field();
  int peek_char();
  char take_char();
  void read_quoted(std::string& field);
  void read_plain(std::string& field);
  [[noreturn]] void fail(const std::string& problem) const;
  [[nodiscard]] std::size_t limit() const {
    return fields_used_ <= 1 ? kMaxKeyBytes : most_value_bytes_;
  }

  Input& input_;
  Format format_;
  std::size_t most_value_bytes_;
  std::size_t most_line_bytes_;
  std::uint64_t line_ = 0;   // lines begun so far
  std::uint64_t start_ = 0;  // line of the record that is being read
  std::string text_;         // of the line
  std::vector<std::string> fields_;
  std::size_t fields_used_ = 0;
};

// The key and value of a record. Throws BadRecord. `number_lines`: a missing value is the line.
template <class K>
[[nodiscard]] typename OwnedKey<K>::type key_of(const Record& record);
[[nodiscard]] std::uint64_t value_of(const Record& record, bool number_lines);
[[nodiscard]] std::string payload_of(const Record& record, Format format, bool number_lines);

// Bytes as a field of CSV.
[[nodiscard]] std::string csv_field(std::string_view bytes);

// K: a key's type.
template <class K>
void write_record(Output& output, Format format, const Entry<K>& entry);
template <class K>
void write_record(Output& output, Format format, const PayloadEntry<K>& entry);

}  // namespace everleaf::cli
