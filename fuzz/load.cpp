// What `load` and `store load` read. First byte: the format; the rest is the file. A record is read
// or refused with its line; nothing else may happen.
#include <algorithm>

#include "../cli/records.hpp"
#include "../cli/table_records.hpp"
#include "file.hpp"

using namespace everleaf;

namespace {

template <class Read>
void read_all(Read read) {
  try {
    while (read()) {
    }
  } catch (const cli::Failure& refused) {
    fuzz::expect(refused.exit_code() == cli::kExitUsage, "not a refusal of the input");
  }
}

void read_table(const fuzz::File& file, cli::TableFormat format, bool numbers) {
  cli::Input input(file.path(), nullptr);
  cli::TableReader reader(input, format);
  cli::TableRecord record;
  read_all([&] {
    if (!reader.next(record)) return false;
    fuzz::expect(record.line != 0, "a record without a line");
    if (numbers) {
      (void)reader.key_of<std::uint64_t>(record);
    } else {
      (void)reader.key_of<Bytes>(record);
    }
    return true;
  });
}

void read_index(const fuzz::File& file, cli::Format format, bool numbers) {
  cli::Input input(file.path(), nullptr);
  cli::RecordReader reader(input, format);
  cli::Record record;
  read_all([&] {
    if (!reader.next(record)) return false;
    if (numbers) {
      (void)cli::key_of<std::uint64_t>(record);
    } else {
      (void)cli::key_of<Bytes>(record);
    }
    (void)cli::value_of(record, true);
    return true;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const fuzz::File file({data + 1, size - 1});
  const bool numbers = (data[0] & 8) != 0;
  constexpr cli::TableFormat kFormats[] = {cli::TableFormat::tsv, cli::TableFormat::csv,
                                           cli::TableFormat::json, cli::TableFormat::mdb};
  if (data[0] % 8 < 4) {
    read_table(file, kFormats[data[0] % 4], numbers);
  } else {
    read_index(file, data[0] % 2 == 0 ? cli::Format::tsv : cli::Format::csv, numbers);
  }
  // What escapes, comes back.
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz::expect(cli::unescape(cli::escape(bytes)) == bytes, "escape() and unescape() differ");
  return 0;
}
