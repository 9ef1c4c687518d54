// A library that uses Everleaf, loaded and unloaded by plugin_test.cpp.
#include <everleaf/index.hpp>

extern "C" [[gnu::visibility("default")]] bool use_everleaf() {
  auto pool = everleaf::Pool::anonymous();
  if (!pool) return false;
  auto index = pool->index<std::uint64_t>("index");
  return index && index->insert(1, 1) == everleaf::Outcome::done;
}
