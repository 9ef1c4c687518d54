// A user's program: everything it needs comes from the installed package.
#include <cstdio>
#include <cstring>

#include <everleaf/everleaf.h>
#include <everleaf/index.hpp>

int main() {
  auto pool = everleaf::Pool::anonymous();
  if (!pool) return 1;
  auto index = pool->index<std::uint64_t>("numbers");
  if (!index || index->insert(42, 4711) != everleaf::Outcome::done) return 2;
  const everleaf::Lookup hit = index->find(42);
  if (!hit || *hit != 4711) return 3;
  if (std::strcmp(everleaf_version(nullptr, nullptr, nullptr), EVERLEAF_VERSION) != 0) return 4;
  std::puts("the installed package works");
  return 0;
}
