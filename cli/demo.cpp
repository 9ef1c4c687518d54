// everleaf demo: a real word list, a process that is killed half-way, and the proof that every
// acknowledged word is there afterwards. A missing word or a damaged pool ends it with exit code 1.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.hpp"
#include "failure.hpp"
#include "records.hpp"
#include "stream.hpp"
#include "table.hpp"
#include "text.hpp"
#include "walk.hpp"

namespace everleaf::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Word {
  std::string key;
  std::uint64_t value;
  std::uint64_t line;
};

struct DemoArguments {
  std::string dir;
  std::string words = "/usr/share/dict/american-english-insane";
};

// A directory of its own, removed with all that is in it.
class Scratch {
 public:
  explicit Scratch(const std::string& parent) {
    std::string name = parent + "/everleaf-demo-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      throw Failure(kExitIo,
                    fmt::format("cannot make a directory in {}: {}", parent, std::strerror(errno)));
    }
    dir_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] std::string file(const std::string& name) const { return (dir_ / name).string(); }

 private:
  std::filesystem::path dir_;
};

// `everleaf load` in a process of its own. Never outlives its owner.
class Child {
 public:
  explicit Child(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::signal(SIGCHLD, SIG_DFL);  // ignored, as some start us, children collect themselves
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) {
      throw Failure(kExitIo, fmt::format("cannot start a process: {}", std::strerror(errno)));
    }
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kExitIo);
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(null, STDOUT_FILENO);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(kExitIo);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill();
    (void)wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Also of one that has ended: its number is its own until wait(). Never -1, which is everybody.
  void kill() const {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }

  [[nodiscard]] bool ended() const {
    if (pid_ <= 0) return true;
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }
  int wait() {
    while (pid_ > 0 && ::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status_;
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

std::vector<Word> read_words(const std::string& path, Interrupts& interrupts) {
  Input input(path, &interrupts);
  RecordReader reader(input, Format::tsv);
  std::vector<Word> words;
  Record record;
  while (reader.next(record)) {
    words.push_back({key_of<Bytes>(record), value_of(record, true), record.line});
  }
  return words;
}

// The demo, step by step. Every finding that is not as promised throws.
class Demo {
 public:
  Demo(const DemoArguments& arguments, std::string dir)
      : scratch_(dir),
        words_file_(arguments.words),
        pool_(scratch_.file("words.pool")),
        ack_(scratch_.file("acknowledged")),
        dir_(std::move(dir)) {}

  void run() {
    const auto start = Clock::now();
    words_ = read_words(words_file_, interrupts_);
    if (words_.size() < 2) throw Failure(kExitUsage, words_file_ + " has too few words");
    const DomainChoice domain = value_or_fail(detect_domain(dir_));
    fmt::print("{} words of {}\n", grouped(words_.size()), words_file_);
    fmt::print("pool in {}: domain {} ({})\n\n", dir_, to_string(domain.domain), domain.reason);
    const std::uint64_t acknowledged = load_and_kill();
    verify(acknowledged, "after the kill");
    resume(acknowledged);
    verify(words_.size(), "after the resumed load");
    scan();
    fmt::print("\nNothing was lost. {} in all; {} is removed.\n", human_time(seconds_since(start)),
               pool_);
  }

 private:
  std::vector<std::string> command(std::uint64_t skip) const {
    return {"everleaf",
            "load",
            pool_,
            words_file_,
            "--table",
            "words",
            "--ack",
            ack_,
            "--format",
            "tsv",
            "--number-lines",
            "--skip",
            std::to_string(skip)};
  }

  std::uint64_t acknowledged() const {
    std::uint64_t line = 0;
    std::ifstream(ack_) >> line;
    return line;
  }

  // The child may be done before it is killed: on a busy machine, or with a short list.
  std::uint64_t load_and_kill() {
    constexpr int kAttempts = 5;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      std::filesystem::remove(pool_);
      std::filesystem::remove(ack_);
      if (killed_half_way()) return acknowledged();
    }
    throw Failure(kExitUsage,
                  fmt::format("{} words are too few to kill the load half-way", words_.size()));
  }

  bool killed_half_way() {
    std::random_device random;
    const std::uint64_t part = std::uniform_int_distribution<std::uint64_t>(400, 600)(random);
    const std::uint64_t after = std::max<std::uint64_t>(words_.size() * part / 1000, 1);
    const auto start = Clock::now();
    Child child(command(0));
    while (!child.ended() && acknowledged() < after) interrupts_.sleep_ms(1);
    child.kill();
    const int status = child.wait();
    const double seconds = seconds_since(start);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return false;
    clear_line();
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
      throw Failure(kExitIo, "the loading process failed by itself");
    }
    fmt::print("1. A child process loaded words, one by one, and was killed (SIGKILL) after {}.\n",
               human_time(seconds));
    fmt::print("   It had acknowledged {} of them: {}.\n", grouped(acknowledged()),
               human_rate(static_cast<double>(acknowledged()) / seconds));
    return true;
  }

  // Every acknowledged word is there with its value; besides them at most the one that was under
  // way.
  void verify(std::uint64_t acknowledged, std::string_view when) {
    Pool pool = open();
    const PoolInfo info = pool.info();
    Index<Bytes> index = value_or_fail(pool.index<Bytes>("words", ""));
    const auto start = Clock::now();
    std::unordered_map<std::string_view, std::uint64_t> expected;
    const Word* under_way = nullptr;
    for (const Word& word : words_) {
      if (word.line <= acknowledged) expected[word.key] = word.value;
      if (word.line == acknowledged + 1) under_way = &word;
    }
    for (const auto& [key, value] : expected) {
      const Lookup hit = index.find(key);
      const bool replaced = under_way != nullptr && key == under_way->key;
      if (hit && (*hit == value || (replaced && *hit == under_way->value))) continue;
      throw Failure(kExitNo, fmt::format("{}: acknowledged word {} is {}", when, in_quotes(key),
                                         hit ? "there with a wrong value" : "lost"));
    }
    const std::uint64_t size = index.size();
    const std::uint64_t more = size - expected.size();
    if (size < expected.size() || more > (under_way == nullptr ? 0 : 1)) {
      throw Failure(kExitNo, fmt::format("{}: {} words are there, {} were acknowledged", when,
                                         grouped(size), grouped(expected.size())));
    }
    fmt::print(
        "{}. Reopened in {} ({}).\n", step_++, human_time(static_cast<double>(info.open_ns) * 1e-9),
        info.clean
            ? "it had been closed properly"
            : fmt::format("a crashed pool; {} replayed", counted(info.replayed, "redo record")));
    fmt::print("   All {} acknowledged words are there with their values{} ({}).\n",
               grouped(expected.size()), more == 1 ? ", and the one that was under way" : "",
               human_time(seconds_since(start)));
    check(pool, when);
    interrupts_.check();
  }

  void check(const Pool& pool, std::string_view when) const {
    const auto start = Clock::now();
    const CheckReport report = value_or_fail(pool.check());
    if (!report.problems.empty()) {
      throw Failure(kExitNo, fmt::format("{}: check found damage: {}", when, report.problems[0]));
    }
    fmt::print("   check: sound; {} allocated, all of them reachable ({}).\n",
               counted(report.blocks_allocated, "block"), human_time(seconds_since(start)));
  }

  void resume(std::uint64_t acknowledged) {
    const auto start = Clock::now();
    Child child(command(acknowledged));
    while (!child.ended()) interrupts_.sleep_ms(1);
    clear_line();
    const int status = child.wait();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      throw Failure(kExitIo, "the resumed load failed");
    }
    fmt::print("{}. A second process loaded the remaining {} words in {}.\n", step_++,
               grouped(words_.size() - acknowledged), human_time(seconds_since(start)));
  }

  void scan() {
    std::string prefix = "everl";
    const auto fits = [&](const Word& word) { return word.key.starts_with(prefix); };
    if (std::ranges::none_of(words_, fits)) prefix = words_[words_.size() / 2].key.substr(0, 3);
    std::map<std::string, std::uint64_t> expected;
    for (const Word& word : words_) {
      if (fits(word)) expected[word.key] = word.value;
    }
    Pool pool = open();
    const Index<Bytes> index = value_or_fail(pool.index<Bytes>("words", ""));
    const auto start = Clock::now();
    std::vector<std::pair<std::string, std::uint64_t>> found;
    Range<Bytes> range;
    range.from = prefix;
    walk<Bytes>(index, range, [&](const Entry<Bytes>& entry) {
      if (!entry.key.starts_with(prefix)) return false;
      found.emplace_back(entry.key, entry.value);
      return true;
    });
    const double seconds = seconds_since(start);
    const auto same = [](const auto& a, const auto& b) {
      return a.first == b.first && a.second == b.second;
    };
    if (!std::ranges::equal(found, expected, same)) {
      throw Failure(kExitNo, fmt::format("the scan of {} gave {} words, and {} were expected",
                                         in_quotes(prefix), found.size(), expected.size()));
    }
    fmt::print("{}. Scan of {}: {} in {}:\n  ", step_++, in_quotes(prefix),
               counted(found.size(), "word"), human_time(seconds));
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 6); ++i) {
      fmt::print(" {} ({})", escape(found[i].first), found[i].second);
    }
    fmt::print("{}\n", found.size() > 6 ? " ..." : "");
  }

  Pool open() const {
    PoolOptions options;
    options.mode = Mode::open;
    return value_or_fail(Pool::open(pool_, options));
  }

  // What is left of the killed child's progress bar.
  static void clear_line() {
    if (::isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\x1b[K");
    std::fflush(stdout);
  }

  Interrupts interrupts_;  // first: signals are held back before the directory exists
  Scratch scratch_;
  std::string words_file_;
  std::string pool_;
  std::string ack_;
  std::string dir_;
  std::vector<Word> words_;
  int step_ = 2;
};

std::string usual_dir() {
  if (::access("/dev/shm", W_OK | X_OK) == 0) return "/dev/shm";
  return std::filesystem::temp_directory_path().string();
}

int demo(const DemoArguments& arguments) {
  try {
    Demo(arguments, arguments.dir.empty() ? usual_dir() : arguments.dir).run();
  } catch (const Interrupted& stop) {
    throw Failure(128 + stop.signal, "the demo was stopped");
  }
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, int& status) {
  auto arguments = std::make_shared<DemoArguments>();
  Command command(app, "demo",
                  "Load a word list, kill the process half-way, prove that nothing was lost");
  command.option("--dir", arguments->dir,
                 "Where the pool goes, removed afterwards; default: /dev/shm, else the "
                 "directory for temporary files");
  command.option("--words", arguments->words, "A word list");
  command.run([arguments, &status] { status = demo(*arguments); });
}

}  // namespace everleaf::cli
