#include <cassert>
#include <cstdio>

#include <everleaf/index.hpp>

int main() {
  auto pool = everleaf::Pool::open("hello.pool").value();   // created at the first run
  auto runs = pool.index<everleaf::Bytes>("runs").value();  // a wB+-Tree with byte-string keys
  const auto before = runs.find("hello");                   // what earlier runs left
  const std::uint64_t count = before ? *before + 1 : 1;
  const auto outcome = runs.upsert("hello", count);  // durable when it returns
  assert(outcome == everleaf::Outcome::done && *runs.find("hello") == count);
  std::printf("run %llu\n", static_cast<unsigned long long>(count));
  return outcome == everleaf::Outcome::done ? 0 : 1;
}
