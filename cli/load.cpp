// everleaf load: lines of a file into an index. What was acknowledged stays, whatever happens next.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "commands.hpp"
#include "failure.hpp"
#include "progress.hpp"
#include "records.hpp"
#include "stream.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct LoadArguments : TableArguments {
  std::string file;
  std::string format;
  std::string ack;
  std::uint64_t skip = 0;
  bool number_lines = false;
};

// A file that always holds the number of the last acknowledged line: one pwrite each, so that it is
// right after a SIGKILL, too.
class AckFile {
 public:
  // Refuses whatever holds something else: the pool, say, or the lines that are loaded.
  explicit AckFile(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666)) {
    if (fd_ < 0) throw Failure(kExitIo, fmt::format("cannot write {}: {}", path, strerror(errno)));
    std::array<char, kBytes + 1> held{};
    const ssize_t size = ::pread(fd_, held.data(), held.size(), 0);
    if (size == 0) return;
    const std::string_view text(held.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
    if (text.size() == kBytes && text.back() == '\n' &&
        text.find_first_not_of("0123456789") == kBytes - 1) {
      return;
    }
    ::close(fd_);
    throw Failure(kExitUsage, fmt::format("{} is there, and no file of --ack", path));
  }
  ~AckFile() { ::close(fd_); }
  AckFile(const AckFile&) = delete;
  AckFile& operator=(const AckFile&) = delete;

  void store(std::uint64_t line) {
    // Of fixed width: overwriting never leaves a mixture of two lengths.
    std::array<char, kBytes> text{};
    fmt::format_to_n(text.data(), text.size(), "{:020}\n", line);
    if (::pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      throw Failure(kExitIo, fmt::format("cannot write {}: {}", path_, strerror(errno)));
    }
  }

 private:
  static constexpr std::size_t kBytes = 21;
  std::string path_;
  int fd_;
};

bool is_buffered(const IndexInfo& info) {
  const std::string_view name = std::string_view(info.spec).substr(0, info.spec.find(':'));
  const auto tree = std::ranges::find(trees(), name, &TreeInfo::name);
  return tree != trees().end() && tree->durability == Durability::buffered;
}

// Lines that are in, and the promise about them.
class Acknowledger {
 public:
  explicit Acknowledger(const LoadArguments& arguments) {
    last_line_ = arguments.skip;
    if (arguments.ack.empty()) return;
    file_.emplace(arguments.ack);
    file_->store(last_line_);
  }

  void done(std::uint64_t line) {
    last_line_ = line;
    ++lines_;
    if (file_) file_->store(line);
  }

  [[nodiscard]] std::uint64_t lines() const { return lines_; }
  [[nodiscard]] std::uint64_t last_line() const { return last_line_; }

 private:
  std::optional<AckFile> file_;
  std::uint64_t lines_ = 0;
  std::uint64_t last_line_ = 0;
};

// Reads records into the index until the end.
template <class K>
class Loader {
 public:
  Loader(Index<K> index, const LoadArguments& arguments, Acknowledger& acknowledger)
      : index_(std::move(index)),
        arguments_(arguments),
        acknowledger_(acknowledger),
        format_(format_of(arguments.format, arguments.file)),
        buffered_(is_buffered(index_.info())) {
    if (auto payloads = index_.payloads()) payloads_.emplace(std::move(*payloads));
  }

  void run(Input& input, Interrupts& interrupts) {
    RecordReader reader(input, format_, kMaxPayloadBytes,
                        payloads_ ? RecordReader::kMaxPayloadLine : RecordReader::kMaxLine);
    std::optional<Progress> progress;
    Record record;
    std::uint64_t lines = 0;
    std::uint64_t last = 0;
    constexpr std::uint64_t kSignalsEvery = 64;
    try {
      for (std::uint64_t n = 1; reader.next(record); ++n) {
        if (n % kSignalsEvery == 0) interrupts.check();
        last = record.line;
        if (record.line <= arguments_.skip) continue;
        if (!progress) progress.emplace(input.size(), input.position());
        put(record);
        if (++lines % kSignalsEvery == 0) progress->update(input.position(), lines);
      }
    } catch (...) {
      flush();
      throw;
    }
    flush();
    if (last < arguments_.skip) {
      throw Failure(kExitUsage,
                    fmt::format("there are no {} to pass over, the last one has number {}",
                                counted(arguments_.skip, "line"), grouped(last)));
    }
  }

 private:
  void put(const Record& record) {
    const auto key = key_of<K>(record);
    const Outcome outcome =
        payloads_ ? payloads_->upsert(key, payload_of(record, format_, arguments_.number_lines))
                  : index_.upsert(key, value_of(record, arguments_.number_lines));
    if (outcome != Outcome::done) refuse(record.line, outcome);
    if (!buffered_) return acknowledger_.done(record.line);
    constexpr std::size_t kSyncEvery = 4096;
    pending_.push_back(record.line);
    if (pending_.size() == kSyncEvery) flush();
  }

  // A buffered tree acknowledges at sync() and not before.
  void flush() {
    if (pending_.empty()) return;
    const std::vector<std::uint64_t> lines = std::exchange(pending_, {});
    const Outcome outcome = index_.sync();
    if (outcome != Outcome::done) refuse(lines.front(), outcome);
    for (const std::uint64_t line : lines) acknowledger_.done(line);
  }

  [[noreturn]] void refuse(std::uint64_t line, Outcome outcome) {
    throw Failure(exit_code_of(outcome), fmt::format("line {}: {}", line, describe(outcome)));
  }

  Index<K> index_;
  const LoadArguments& arguments_;
  Acknowledger& acknowledger_;
  Format format_;
  bool buffered_;
  std::optional<Payloads<K>> payloads_;  // where its values are such
  std::vector<std::uint64_t> pending_;
};

std::string so_far(const Acknowledger& acknowledger) {
  return fmt::format("{} acknowledged and kept; go on with --skip {}",
                     counted(acknowledger.lines(), "line"), acknowledger.last_line());
}

// Runs the loader; a failure on the way says how far it came.
template <class K>
void load_lines(Index<K> index, const LoadArguments& arguments, Input& input,
                Interrupts& interrupts, Acknowledger& acknowledger) {
  try {
    Loader<K>(std::move(index), arguments, acknowledger).run(input, interrupts);
  } catch (const Interrupted& stop) {
    const char* const name = stop.signal == SIGINT ? "SIGINT" : "SIGTERM";
    throw Failure(128 + stop.signal, fmt::format("stopped by {}: {}", name, so_far(acknowledger)));
  } catch (const Failure& failure) {
    throw Failure(failure.exit_code(),
                  fmt::format("{}: {} ({})", input.name(), failure.what(), so_far(acknowledger)));
  }
}

int load(const LoadArguments& arguments) {
  (void)format_of(arguments.format);  // before anything is opened
  const auto start = std::chrono::steady_clock::now();
  Interrupts interrupts;
  Input input(arguments.file, &interrupts);
  Pool pool = open_or_create(arguments);
  const TableChoice choice = table_to_fill(pool, arguments);
  Acknowledger acknowledger(arguments);
  with_key_type(choice.key_type, [&]<class K>() {
    load_lines(open_index<K>(pool, choice), arguments, input, interrupts, acknowledger);
  });
  value_or_fail(pool.close());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} loaded in {} ({})\n", counted(acknowledger.lines(), "line"), human_time(seconds),
             human_rate(static_cast<double>(acknowledger.lines()) / seconds));
  return 0;
}

}  // namespace

void add_load(CLI::App& app, int& status) {
  auto arguments = std::make_shared<LoadArguments>();
  Command command(app, "load", "Put the lines of a TSV or CSV file into an index");
  add_pool(command, *arguments);
  command.positional("FILE", arguments->file, "Lines of key and value; - for standard input");
  add_table(command, *arguments);
  add_creation(command, *arguments);
  add_domain(command, *arguments);
  command.option("--format", arguments->format, "tsv or csv; default: by the extension, tsv");
  command.flag("--number-lines", arguments->number_lines,
               "A line without a value gets its number as the value (word lists)");
  command.number("--skip", arguments->skip, "Pass over that many lines, loaded earlier");
  command.option("--ack", arguments->ack,
                 "A file that always holds the number of the last acknowledged line");
  command.run([arguments, &status] { status = load(*arguments); });
}

}  // namespace everleaf::cli
