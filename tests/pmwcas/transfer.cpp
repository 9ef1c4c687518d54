// Two accounts in a pool: money goes from one to the other by a two-word compare-and-swap. A child
// process does that until it is killed; its parent opens the pool and finds every unit.
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>
#include <unistd.h>

#include "words.hpp"

namespace {

using everleaf::Domain;
using everleaf::crash::WordsPool;
namespace pmwcas = everleaf::pmwcas;

constexpr pmwcas::Word kMoney = 1'000'000;
constexpr int kRounds = 5;
constexpr int kTold = 200;  // transfers before the child may be killed

WordsPool::File file_in(const std::filesystem::path& path) {
  return everleaf::pmem::PoolFile::open(path, pmwcas::options_in(Domain::process), nullptr);
}

// Moves one unit. The words are found by where they lie in the pool.
bool transfer(WordsPool& pool) {
  const everleaf::alloc::Grace::Pin pin(pool.grace());
  const pmwcas::Word from = pool.words().read(pool.word(0));
  const pmwcas::Word to = pool.words().read(pool.word(1));
  pmwcas::Descriptor operation = pool.words().allocate();
  return operation.ok() && operation.add_word(pool.word(0), from, from - 1) &&
         operation.add_word(pool.word(1), to, to + 1) &&
         operation.execute() == pmwcas::Answer::succeeded;
}

[[noreturn]] void run_child(const std::filesystem::path& path, int told) {
  auto pool = WordsPool::open(file_in(path));
  if (!pool) std::_Exit(1);
  for (int i = 0;; ++i) {
    if (!transfer(**pool)) std::_Exit(1);
    if (i == kTold && ::write(told, "x", 1) != 1) std::_Exit(1);
  }
}

// What a killed process left: both accounts, or 0 and 0 if something is wrong.
std::pair<pmwcas::Word, pmwcas::Word> recover(const std::filesystem::path& path) {
  auto pool = WordsPool::open(file_in(path));
  if (!pool || !(*pool)->problem().empty()) return {0, 0};
  return {(*pool)->value(0), (*pool)->value(1)};
}

int run() {
  const everleaf::test::Scratch scratch;
  const auto path = scratch / "accounts";
  if (!WordsPool::create(file_in(path), {kMoney, 0})) return 1;
  pmwcas::Word before = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) return 1;
    const pid_t child = ::fork();
    if (child < 0) return 1;
    if (child == 0) run_child(path, ends[1]);
    ::close(ends[1]);  // a child that gives up ends the read
    char byte = 0;
    const bool told = ::read(ends[0], &byte, 1) == 1;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ends[0]);
    const auto [from, to] = recover(path);
    std::printf("killed after %llu transfers: %llu + %llu\n", static_cast<unsigned long long>(to),
                static_cast<unsigned long long>(from), static_cast<unsigned long long>(to));
    if (!told || from + to != kMoney || to < before + kTold) return 1;
    before = to;
  }
  return 0;
}

}  // namespace

int main() {
  return run();
}
