// everleaf dump: an index as lines that `load` reads, every byte of every key kept.
#include <memory>

#include "commands.hpp"
#include "records.hpp"
#include "table.hpp"
#include "walk.hpp"

namespace everleaf::cli {
namespace {

struct DumpArguments : TableArguments {
  std::string format;
};

int dump(const DumpArguments& arguments) {
  const Format format = format_of(arguments.format);
  Pool pool = open_to_read(arguments);
  const TableChoice choice = existing_table(pool, arguments);
  Output output;
  with_key_type(choice.key_type, [&]<class K>() {
    with_values<K>(open_index<K>(pool, choice), [&](const auto& source) {
      walk<K>(source, Range<K>{}, [&](const auto& entry) {
        write_record(output, format, entry);
        return true;
      });
    });
  });
  output.finish();
  return 0;
}

}  // namespace

void add_dump(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DumpArguments>();
  Command command(app, "dump", "Write an index to standard output as `load` reads it");
  add_pool(command, *arguments);
  add_table(command, *arguments);
  command.option("--format", arguments->format, "tsv or csv; default: tsv");
  command.run([arguments, &status] { status = dump(*arguments); });
}

}  // namespace everleaf::cli
