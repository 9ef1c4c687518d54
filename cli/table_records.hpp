// Records of tables, keys and values of any bytes, as text: what `store load` reads and `store
// dump` writes.
//
// TSV: key, tab, value, each with \t, \n, \\ and \xHH for bytes that need it. CSV: that of
// records.hpp. JSON lines: {"key": K, "value": V}, bytes as a string or, if they are not UTF-8, as
// {"hex": "00ff"}. mdb: the format of
// LMDB's mdb_dump and mdb_load, bytes as hexadecimal digits (format=bytevalue) or with \HH for
// those that cannot be printed (format=print, read only). Numbers as keys are written in decimal,
// in mdb as eight bytes, the most significant first, so that their order is that of the bytes;
// those of integerkey=1 are read in the machine's order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <everleaf/index.hpp>

#include "json.hpp"
#include "records.hpp"
#include "stream.hpp"

namespace everleaf::cli {

enum class TableFormat : std::uint8_t { tsv, csv, json, mdb };

// `name` as the user gave it, or what the file's extension says (.csv, .jsonl, .ndjson,
// .mdb), or TSV.
[[nodiscard]] TableFormat table_format_of(const std::string& name, const std::string& path = {});

struct TableRecord {
  std::uint64_t line = 0;  // where it starts, from 1
  std::string key;
  bool number = false;  // JSON: the key is one
  std::string value;
};

class TableReader {
 public:
  TableReader(Input& input, TableFormat format)
      : input_(input), format_(format), csv_(input, Format::csv, kMaxValueBytes) {}

  // False: the end. Throws BadRecord.
  bool next(TableRecord& record);
  template <class K>
  [[nodiscard]] typename OwnedKey<K>::type key_of(const TableRecord& record) const;

 private:
  bool line();  // into text_
  bool next_tsv(TableRecord& record);
  bool next_csv(TableRecord& record);
  bool next_json(TableRecord& record);
  bool next_mdb(TableRecord& record);
  void read_header();
  void read_header_line();
  [[nodiscard]] std::string mdb_bytes(std::string_view field);
  [[nodiscard]] std::uint64_t mdb_number(const TableRecord& record) const;
  [[nodiscard]] std::string json_bytes(std::string_view field, const Json& json) const;

  Input& input_;
  TableFormat format_;
  RecordReader csv_;
  std::uint64_t line_ = 0;
  std::string text_;
  bool in_data_ = false;
  bool printable_ = false;     // format=print
  bool integer_keys_ = false;  // integerkey=1
};

class TableWriter {
 public:
  // `file_bytes`: of the store; what is written is not larger.
  TableWriter(Output& output, TableFormat format, std::uint64_t file_bytes);
  void write(Bytes key, Bytes value);
  void write(std::uint64_t key, Bytes value);
  // Says on standard error how many keys LMDB does not take.
  void finish();

 private:
  template <class K>
  void write_text(K key, Bytes value);
  Output& output_;
  TableFormat format_;
  std::uint64_t lmdb_refuses_ = 0;
};

}  // namespace everleaf::cli
