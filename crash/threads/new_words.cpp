#include "threads/new_words.hpp"

#include <unordered_set>
#include <utility>
#include <vector>

#include "threads/explore.hpp"
#include "threads/words_pool.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kCapacity = std::size_t{1} << 20;
constexpr std::size_t kLevels = 3;                // a crash, and one of its recovery
constexpr std::uint64_t kMostEvents = 5'000'000;  // of a recovery
constexpr std::uint64_t kMostExecutions = 4000;   // of a crash point
constexpr std::uint64_t kMostNested = 1 << 16;    // and of one of a recovery

// The pool is made on level 0 of the arena, in blocks that were used before.
class NewWords final : Crasher {
 public:
  explicit NewWords(const NewWordsConfig& config)
      : config_(config),
        arena_(kCapacity, kLevels,
               {config.domain == Domain::disk ? std::size_t{8} : std::size_t{64},
                config.domain == Domain::cache || config.domain == Domain::process}),
        recorder_(arena_) {
    options_.domain = config.domain;
    options_.emulate = true;
    recorder_.dropped = config.dropped;
    recorder_.collect_sites = config.collect_sites;
    Recorder::watch(&recorder_);
  }
  NewWords(const NewWords&) = delete;
  NewWords& operator=(const NewWords&) = delete;
  ~NewWords() { Recorder::watch(nullptr); }

  NewWordsReport go() {
    use_blocks();
    recorder_.crasher = this;
    if (report_.failure.empty()) open(0);
    recorder_.crasher = nullptr;
    report_.merged = arena_.merged();
    report_.sites = recorder_.sites;
    return std::move(report_);
  }

 private:
  using Values = std::vector<pmem::Word>;

  void use_blocks() {
    auto file = pmem::PoolFile::format(arena_.base(0), bytes_, kCapacity, options_, &recorder_);
    if (!file || !WordPoolProbe::use_blocks(**file, config_.count)) return fail("no pool");
    bytes_ = (*file)->medium().size();
    recorder_.settle();
  }

  // Whatever the level has: the pool opens with its words, all of them 0.
  void open(std::size_t level) {
    auto file = pmem::PoolFile::attach(arena_.base(level), bytes_, kCapacity, options_, &recorder_);
    if (!file) return fail("open: " + file.error().message);
    auto opened = pmwcas::WordPoolAccess::over(std::move(*file), config_.count);
    recorder_.settle();
    if (!opened) return fail("open: " + opened.error().message);
    crash_point();  // the words are there
    if (level != 0) judge(**opened);
    pmwcas::WordPoolAccess::abandon(**opened);
    recorder_.settle();
  }

  // Crashes in operations are those of words.cpp.
  void judge(pmwcas::WordPool& pool) {
    if (!report_.failure.empty()) return;
    arena_.record(false);
    Values expected(config_.count);
    if (WordPoolProbe::values(pool) != expected) return fail("a word is not 0");
    if (const std::string what = WordPoolProbe::problem(pool); !what.empty()) return fail(what);
    ++expected.front();
    ++expected.back();
    if (!WordPoolProbe::add_one(pool) || WordPoolProbe::values(pool) != expected)
      return fail("an operation does not succeed");
    if (const std::string what = WordPoolProbe::problem(pool); !what.empty())
      fail("after an operation: " + what);
  }

  void escaped(const std::string& what) override { fail(what); }

  void crash_point() override {
    const std::size_t level = arena_.level();
    if (level + 1 == kLevels || !report_.failure.empty()) return;
    if (level == 0) seen_.clear();
    // Another execution brought recovery to the same state.
    if (level != 0 && !seen_.insert(arena_.state_hash()).second) return;
    ++(level == 0 ? report_.crash_points : report_.nested_points);
    const std::uint64_t most = level == 0 ? kMostExecutions : kMostNested;
    const Recoveries done = crash_here(recorder_, most, [this, level] {
      recorder_.allow(kMostEvents);
      open(level + 1);
      return report_.failure.empty();
    });
    report_.executions += done.executions;
    (level == 0 ? report_.sampled_points : report_.sampled_nested_points) += done.all ? 0 : 1;
    recorder_.allow(level == 0 ? ~std::uint64_t{0} : kMostEvents);
  }

  void fail(const std::string& what) {
    if (!report_.failure.empty()) return;
    report_.failure = what;
    report_.where = recorder_.last();
  }

  const NewWordsConfig& config_;
  Arena arena_;
  Recorder recorder_;
  Signals signals_{this};
  PoolOptions options_;
  std::uint64_t bytes_ = pmem::kMinPoolBytes;
  std::unordered_set<std::uint64_t> seen_;
  NewWordsReport report_;
};

}  // namespace

NewWordsReport run_new_words(const NewWordsConfig& config) {
  return NewWords(config).go();
}

}  // namespace everleaf::crash
