// Two accounts in a file. Money goes from one to the other by a compare-and-swap of both words: a
// program that is killed in the midst of that loses none of it, and makes none.
#include <cassert>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <words/word_pool.hpp>

#include <sys/wait.h>
#include <unistd.h>

namespace pmwcas = everleaf::pmwcas;
using pmwcas::WordPool;

namespace {

constexpr std::size_t kFrom = 0;
constexpr std::size_t kTo = 1;
constexpr std::size_t kRuns = 2;
constexpr std::uint64_t kMoney = 1'000'000;

// False: there is not so much, or another thread was first.
bool transfer(WordPool& pool, std::uint64_t amount) {
  const everleaf::alloc::Grace::Pin pin(pool.grace());
  const std::uint64_t from = pool.words().read(pool.word(kFrom));
  const std::uint64_t to = pool.words().read(pool.word(kTo));
  if (from < amount) return false;
  pmwcas::Descriptor both = pool.words().allocate();
  return both.ok() && both.add_word(pool.word(kFrom), from, from - amount) &&
         both.add_word(pool.word(kTo), to, to + amount) &&
         both.execute() == pmwcas::Answer::succeeded;  // durable
}

// Another run, and the first time the money that there is.
bool begin_run(WordPool& pool) {
  const everleaf::alloc::Grace::Pin pin(pool.grace());
  const std::uint64_t runs = pool.words().read(pool.word(kRuns));
  const std::uint64_t from = pool.words().read(pool.word(kFrom));
  pmwcas::Descriptor change = pool.words().allocate();
  return change.ok() && change.add_word(pool.word(kRuns), runs, runs + 1) &&
         change.add_word(pool.word(kFrom), from, runs == 0 ? kMoney : from) &&
         change.execute() == pmwcas::Answer::succeeded;
}

[[noreturn]] void transfer_for_ever(const std::filesystem::path& path, int told) {
  auto pool = WordPool::open(path, 3);
  if (!pool) std::_Exit(1);
  for (int done = 0; transfer(**pool, 1); ++done) {
    if (done == 100 && ::write(told, "x", 1) != 1) std::_Exit(1);
  }
  std::_Exit(1);
}

// In a process of its own, which gets no chance to end properly.
bool kill_in_the_midst(const std::filesystem::path& path) {
  int ends[2];
  if (::pipe(ends) != 0) return false;
  const pid_t child = ::fork();
  if (child < 0) return false;
  if (child == 0) transfer_for_ever(path, ends[1]);
  ::close(ends[1]);  // a child that gives up ends the read
  char byte = 0;
  const bool is_at_it = ::read(ends[0], &byte, 1) == 1;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  return is_at_it;
}

}  // namespace

int main() {
  const std::filesystem::path path = "accounts.everleaf";
  {
    auto pool = WordPool::open(path, 3);
    if (!pool) {
      std::fprintf(stderr, "%s\n", pool.error().message.c_str());
      return 1;
    }
    if (!begin_run(**pool)) return 1;
  }
  std::uint64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    if (!kill_in_the_midst(path)) return 1;
    auto pool = WordPool::open(path, 3);  // recovers
    if (!pool) return 1;
    const std::uint64_t to = (*pool)->value(kTo);
    assert((*pool)->value(kFrom) + to == kMoney);
    assert(to > before);
    before = to;
  }
  auto pool = WordPool::open(path, 3);
  if (!pool) return 1;
  std::printf("run %llu\n", static_cast<unsigned long long>((*pool)->value(kRuns)));
  return 0;
}
