// The story: a thread gives its slot back in the destructor of a POSIX key. Where the library was
// part of a plugin that was unloaded before the thread ended, that was a jump into unmapped code.
// Now the thread keeps the library loaded until it ends.
#include <semaphore>
#include <thread>

#include <dlfcn.h>

#include "support.hpp"

namespace everleaf::test {
namespace {

TEST(Plugin, UnloadedBeforeAThreadEnds) {
  void* const plugin = ::dlopen(EVERLEAF_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(plugin, nullptr) << ::dlerror();
  const auto use = reinterpret_cast<bool (*)()>(::dlsym(plugin, "use_everleaf"));
  ASSERT_NE(use, nullptr);
  std::binary_semaphore used(0);
  std::binary_semaphore may_end(0);
  std::thread thread([&] {
    EXPECT_TRUE(use());
    used.release();
    may_end.acquire();
  });
  used.acquire();
  ASSERT_EQ(::dlclose(plugin), 0);
  void* const still_there = ::dlopen(EVERLEAF_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
  EXPECT_NE(still_there, nullptr) << "unloaded under a thread";
  if (still_there != nullptr) ::dlclose(still_there);
  may_end.release();
  thread.join();
}

}  // namespace
}  // namespace everleaf::test
