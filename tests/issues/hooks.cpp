#include "hooks.hpp"

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace everleaf::test {
Hooks hooks;

namespace {
template <class Hook, class... Arguments>
Answer ask(const Hook& hook, Arguments&&... arguments) {
  return hook ? hook(arguments...) : std::nullopt;
}

// A test that ends early must not answer for the next one.
class ResetAfterEachTest : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo&) override { reset_hooks(); }
};
[[maybe_unused]] const bool resetting = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ResetAfterEachTest);
  return true;
}();

int returned(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}
}  // namespace
}  // namespace everleaf::test

using everleaf::test::ask;
using everleaf::test::hooks;
using everleaf::test::returned;

extern "C" int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const auto permissions = va_arg(arguments, unsigned);
  va_end(arguments);
  if (const auto answer = ask(hooks.open, flags)) return returned(*answer);
  const auto file = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, permissions));
  if (hooks.opened) hooks.opened(file);
  return file;
}

extern "C" ssize_t pwritev2(int file, const iovec* pieces, int count, off_t at, int flags) {
  if (const auto answer = ask(hooks.pwrite, file); answer && *answer != 0) return returned(*answer);
  return ::syscall(SYS_pwritev2, file, pieces, count, at, 0, flags);
}

extern "C" int fsync(int file) {
  if (const auto answer = ask(hooks.fsync, file)) return returned(*answer);
  return static_cast<int>(::syscall(SYS_fsync, file));
}

extern "C" int fdatasync(int file) {
  if (const auto answer = ask(hooks.fdatasync, file)) return returned(*answer);
  return static_cast<int>(::syscall(SYS_fdatasync, file));
}

extern "C" int posix_fadvise(int file, off_t from, off_t bytes, int advice) noexcept {
  if (advice == POSIX_FADV_DONTNEED) {
    if (const auto answer = ask(hooks.drop_cache, file, from, bytes)) return *answer;
  }
  return static_cast<int>(::syscall(SYS_fadvise64, file, from, bytes, advice)) == 0 ? 0 : errno;
}

extern "C" int fstatvfs(int file, struct statvfs* info) noexcept {
  using Real = int (*)(int, struct statvfs*);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "fstatvfs"));
  const int result = real(file, info);
  if (result != 0) return result;
  const auto answer = ask(hooks.fstatvfs, *info);
  return answer ? returned(*answer) : 0;
}

extern "C" int fallocate(int file, int mode, off_t from, off_t bytes) {
  if (const auto answer = ask(hooks.fallocate)) return returned(*answer);
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, from, bytes));
}

extern "C" int posix_fallocate(int file, off_t from, off_t bytes) {
  if (const auto answer = ask(hooks.posix_fallocate)) return *answer;
  return static_cast<int>(::syscall(SYS_fallocate, file, 0, from, bytes)) == 0 ? 0 : errno;
}

extern "C" int linkat(int from_place, const char* from, int to_place, const char* to,
                      int flags) noexcept {
  if (const auto answer = ask(hooks.linkat)) return returned(*answer);
  return static_cast<int>(::syscall(SYS_linkat, from_place, from, to_place, to, flags));
}

extern "C" int clock_gettime(clockid_t clock, std::timespec* now) noexcept {
  if (const auto answer = ask(hooks.clock, *now)) return returned(*answer);
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, now));
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  if (const auto answer = ask(hooks.new_thread)) return *answer;
  using Real = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attributes, body, argument);
}

void* operator new(std::size_t bytes) {
  if (everleaf::test::before_allocation != nullptr) everleaf::test::before_allocation();
  void* const block = std::malloc(bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept {
  std::free(block);
}
void operator delete(void* block, std::size_t) noexcept {
  std::free(block);
}
