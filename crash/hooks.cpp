// The entry points that `-fsanitize=thread` calls in the observed build, and the wrapped memory
// functions. An access outside the arena costs a subtraction and a comparison; one inside looks at
// one more line (Now), as long as it decides nothing.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "hash.hpp"
#include "recorder.hpp"
#include "threads/scheduler.hpp"

namespace everleaf::crash {
namespace {

// Read by every access of the library: in one line.
struct alignas(64) Watched {
  std::uintptr_t base = 0;
  std::size_t bytes = 0;  // 0: nobody watches
  Now* now = nullptr;
};
Watched g_watched;
Recorder* g_recorder = nullptr;

}  // namespace

void Recorder::watch(Recorder* recorder) {
  g_recorder = recorder;
  g_watched.bytes = 0;
  if (recorder == nullptr) return;
  g_watched = {reinterpret_cast<std::uintptr_t>(recorder->arena().base(0)),
               recorder->arena().bytes(), &recorder->arena().now()};
}

namespace {

inline bool watched(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address) - g_watched.base < g_watched.bytes;
}

std::size_t offset_of(const volatile void* address) {
  return reinterpret_cast<std::uintptr_t>(address) -
         reinterpret_cast<std::uintptr_t>(g_watched.now->base);
}

// Whether a read, which lies in one line, takes the short way: it has nothing to decide. It is
// counted.
[[gnu::always_inline]] inline bool passes(Now& now, std::size_t at) {
  if (at >= now.bytes || now.open[at / kUnitMost] != 0) [[unlikely]]
    return false;
  if (--now.left < 0) [[unlikely]]
    g_recorder->runaway();
  return true;
}

// The same of any.
[[gnu::always_inline]] inline bool passes(Now& now, std::size_t at, std::size_t bytes) {
  const std::size_t last = (at + bytes - 1) / kUnitMost;
  // Keys mostly are in one line or two.
  if (at >= now.bytes || bytes > now.bytes - at || last - at / kUnitMost > 1 ||
      (now.open[at / kUnitMost] | now.open[last]) != 0) [[unlikely]]
    return false;
  if (--now.left < 0) [[unlikely]]
    g_recorder->runaway();
  return true;
}

// Apart, so that an access outside the arena, which most are, needs no registers for them.
[[gnu::noinline]] void read_watched(const volatile void* address, std::size_t bytes) {
  if (bytes != 0) g_recorder->read(offset_of(address), bytes);
}

[[gnu::noinline]] void write_watched(const volatile void* address, std::size_t bytes,
                                     const void* pc) {
  if (bytes != 0) g_recorder->write(offset_of(address), bytes, pc);
}

template <std::size_t bytes>
[[gnu::always_inline]] inline void on_read_of(const volatile void* address) {
  if (!watched(address)) return;
  const std::size_t at = offset_of(address);
  if (at % bytes != 0 || !passes(*g_watched.now, at)) [[unlikely]]
    read_watched(address, bytes);
}

inline void on_read(const volatile void* address, std::size_t bytes) {
  if (watched(address) && !passes(*g_watched.now, offset_of(address), bytes)) [[unlikely]]
    read_watched(address, bytes);
}

inline void on_write(const volatile void* address, std::size_t bytes, const void* pc) {
  if (watched(address)) [[unlikely]]
    write_watched(address, bytes, pc);
}

// An atomic access: what was pending has happened. Relaxed ones outside the arena are counters, and
// no place for another thread to come in.
template <class T>
[[gnu::always_inline]] inline void before_atomic(const volatile T* address, bool stores,
                                                 bool shared = true) {
  const bool inside = watched(address);
  if (Scheduler::active() != nullptr && (inside || shared)) g_recorder->schedule();
  if (!inside) {
    if (Scheduler::active() != nullptr) Scheduler::active()->touch(address, stores);
    return;
  }
  g_recorder->settle();
  g_recorder->atomic();
  // An exchange keeps what it does not change.
  g_recorder->read(offset_of(address), sizeof(T), !stores);
  if (stores) g_recorder->before_store(offset_of(address), sizeof(T));
}

template <class T>
inline void after_atomic(const volatile T* address, const void* pc, bool bits) {
  if (watched(address)) g_recorder->after_store(offset_of(address), sizeof(T), pc, bits);
}

template <class T>
[[gnu::noinline]] bool exchange_apart(volatile T* address, T* expected, T desired, const void* pc) {
  before_atomic(address, true);
  const bool done = __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,
                                                __ATOMIC_SEQ_CST);
  if (!watched(address)) return done;
  if (done) {
    g_recorder->after_store(offset_of(address), sizeof(T), pc);
  } else {
    g_recorder->found(offset_of(address), sizeof(T));
  }
  return done;
}

template <class T>
inline bool exchange_if(volatile T* address, T* expected, T desired, const void* pc) {
  if (Scheduler::active() == nullptr && !watched(address))
    return __atomic_compare_exchange_n(address, expected, desired, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_SEQ_CST);
  return exchange_apart(address, expected, desired, pc);
}

// Bits of a word that have different owners.
consteval bool of_bits(std::string_view name) {
  return name == "fetch_or" || name == "fetch_and";
}

// Apart for the same reason as read_watched().
template <class T>
[[gnu::noinline]] T load_apart(const volatile T* address, int order) {
  before_atomic(address, false, order != __ATOMIC_RELAXED);
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

template <class T>
inline T load_atomic(const volatile T* address, int order) {
  if (Scheduler::active() != nullptr) [[unlikely]]
    return load_apart(address, order);
  // The most frequent of all watched accesses.
  if (watched(address) && !passes(*g_watched.now, offset_of(address))) [[unlikely]]
    return load_apart(address, order);
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

template <class T, class F>
[[gnu::noinline]] auto store_apart(volatile T* address, const void* pc, F access, int order,
                                   bool bits) {
  before_atomic(address, true, order != __ATOMIC_RELAXED);
  if constexpr (std::is_void_v<decltype(access())>) {
    access();
    after_atomic(address, pc, bits);
  } else {
    const auto result = access();
    after_atomic(address, pc, bits);
    return result;
  }
}

// `access` has copies of what it needs: a reference would keep that in memory here.
template <class T, class F>
[[gnu::always_inline]] inline auto store_atomic(volatile T* address, const void* pc, F access,
                                                int order, bool bits = false) {
  // A counter or a lock in DRAM, and no threads are simulated.
  if (Scheduler::active() == nullptr && !watched(address)) return access();
  return store_apart(address, pc, access, order, bits);
}

}  // namespace
// What observed/base/seam.hpp and observed/xxhash.h call.
namespace seam {
std::uint64_t xxh3(const void* from, std::size_t bytes, std::uint64_t seed) noexcept;
std::size_t first_where(const std::uint64_t* first, std::size_t stride, std::size_t n,
                        std::uint64_t mask, std::uint64_t value, bool other) noexcept;
void verify_over(const void* from, std::size_t bytes) noexcept;
void verify_begin() noexcept;
void verify_end(bool whole) noexcept;
void reads_discarded() noexcept;
void durable(bool begins) noexcept;
void unseen(bool begins) noexcept;
void reached(const char* path) noexcept;

std::uint64_t xxh3(const void* from, std::size_t bytes, std::uint64_t seed) noexcept {
  on_read(from, bytes);
  return crash::xxh3(from, bytes, seed);
}
std::size_t first_where(const std::uint64_t* first, std::size_t stride, std::size_t n,
                        std::uint64_t mask, std::uint64_t value, bool other) noexcept {
  const auto fits = [&](std::uint64_t word) { return ((word & mask) == value) != other; };
  // Words looked at at once: few at first, who scans for each of many finds the next one soon.
  constexpr std::size_t kMost = 64;
  if (g_recorder != nullptr) g_recorder->settle();
  const bool alone = Scheduler::active() == nullptr;
  // What is all zeroes.
  const bool leaps = alone && !fits(0) && watched(first) && !g_recorder->listens();
  const std::size_t step = stride * sizeof *first;
  std::size_t end = 0;
  for (std::size_t begin = 0, piece = 4; begin < n;
       begin = end, piece = std::min(kMost, piece * 2)) {
    const std::uint64_t* const from = first + begin * stride;
    const std::size_t behind = (n - begin - 1) * step + sizeof *first;
    const std::size_t zeroes = leaps ? g_recorder->arena().untouched(offset_of(from), behind) : 0;
    if (zeroes >= sizeof *first) {
      end = begin + (zeroes + step - sizeof *first) / step;
      continue;
    }
    end = std::min(n, begin + piece);
    const std::size_t bytes = (end - begin - 1) * step + sizeof *first;
    const bool plain =
        alone && (!watched(from) || g_recorder->read_plainly(offset_of(from), bytes));
    const auto look = [&](auto&& load) {
      std::size_t i = begin;
      while (i < end && !fits(load(first + i * stride))) ++i;
      return i;
    };
    const std::size_t found =
        plain ? look([](auto* word) { return __atomic_load_n(word, __ATOMIC_RELAXED); })
              : look([](auto* word) { return load_atomic(word, __ATOMIC_ACQUIRE); });
    if (found != end) return found;
  }
  return n;
}
void verify_over(const void* from, std::size_t bytes) noexcept {
  if (watched(from)) g_recorder->arena().verify_over(offset_of(from), bytes);
}
void verify_begin() noexcept {
  if (g_recorder == nullptr) return;
  g_recorder->settle();
  g_recorder->arena().verify_begin();
}
void verify_end(bool whole) noexcept {
  if (g_recorder != nullptr) g_recorder->arena().verify_end(whole);
}
void reads_discarded() noexcept {
  if (g_recorder != nullptr) g_recorder->forget_reads();
}
void durable(bool begins) noexcept {
  if (g_recorder != nullptr) g_recorder->durable(begins);
}
void unseen(bool begins) noexcept {
  if (g_recorder != nullptr) g_recorder->unseen(begins);
}
void reached(const char* path) noexcept {
  if (g_recorder != nullptr) g_recorder->has_reached(path);
}
}  // namespace seam

}  // namespace everleaf::crash

using everleaf::crash::exchange_if;
using everleaf::crash::g_recorder;
using everleaf::crash::on_read;
using everleaf::crash::on_read_of;
using everleaf::crash::on_write;
using everleaf::crash::store_atomic;
using everleaf::crash::watched;

#define EVERLEAF_PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {
  if (g_recorder != nullptr) g_recorder->settle();
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// One line for each size: the names are the compiler's.
#define EVERLEAF_ACCESS(n)                  \
  void __tsan_read##n(void* p) {            \
    on_read_of<n>(p);                       \
  }                                         \
  void __tsan_write##n(void* p) {           \
    on_write(p, n, EVERLEAF_PC);            \
  }                                         \
  void __tsan_unaligned_read##n(void* p) {  \
    on_read_of<n>(p);                       \
  }                                         \
  void __tsan_unaligned_write##n(void* p) { \
    on_write(p, n, EVERLEAF_PC);            \
  }
EVERLEAF_ACCESS(1)
EVERLEAF_ACCESS(2)
EVERLEAF_ACCESS(4)
EVERLEAF_ACCESS(8)
EVERLEAF_ACCESS(16)
#undef EVERLEAF_ACCESS

void __tsan_read_range(void* p, unsigned long bytes) {
  on_read(p, bytes);
}
void __tsan_write_range(void* p, unsigned long bytes) {
  on_write(p, bytes, EVERLEAF_PC);
}

// compiler/elsewhere.cpp: an access that cannot be one of the pool's.
void __everleaf_elsewhere(void* p) {
  if (!watched(p)) return;
  std::fputs("everleaf-crash: compiler/elsewhere.cpp left a hook out that a pool needs\n", stderr);
  std::abort();
}

using everleaf_a8 = unsigned char;
using everleaf_a16 = unsigned short;
using everleaf_a32 = unsigned int;
using everleaf_a64 = unsigned long;
__extension__ typedef unsigned __int128 everleaf_a128;

#define EVERLEAF_RMW(bits, name, builtin)                                                         \
  everleaf_a##bits __tsan_atomic##bits##_##name(volatile everleaf_a##bits* p, everleaf_a##bits v, \
                                                int) {                                            \
    return store_atomic(                                                                          \
        p, EVERLEAF_PC, [p, v] { return builtin(p, v, __ATOMIC_SEQ_CST); }, __ATOMIC_SEQ_CST,     \
        everleaf::crash::of_bits(#name));                                                         \
  }
#define EVERLEAF_CAS(bits, name)                                                          \
  int __tsan_atomic##bits##_compare_exchange_##name(volatile everleaf_a##bits* p,         \
                                                    everleaf_a##bits* expected,           \
                                                    everleaf_a##bits desired, int, int) { \
    return static_cast<int>(exchange_if(p, expected, desired, EVERLEAF_PC));              \
  }
#define EVERLEAF_ATOMIC(bits)                                                                     \
  everleaf_a##bits __tsan_atomic##bits##_load(const volatile everleaf_a##bits* p, int order) {    \
    return everleaf::crash::load_atomic(p, order);                                                \
  }                                                                                               \
  void __tsan_atomic##bits##_store(volatile everleaf_a##bits* p, everleaf_a##bits v, int order) { \
    store_atomic(                                                                                 \
        p, EVERLEAF_PC, [p, v] { __atomic_store_n(p, v, __ATOMIC_RELEASE); }, order);             \
  }                                                                                               \
  EVERLEAF_RMW(bits, exchange, __atomic_exchange_n)                                               \
  EVERLEAF_RMW(bits, fetch_add, __atomic_fetch_add)                                               \
  EVERLEAF_RMW(bits, fetch_sub, __atomic_fetch_sub)                                               \
  EVERLEAF_RMW(bits, fetch_and, __atomic_fetch_and)                                               \
  EVERLEAF_RMW(bits, fetch_or, __atomic_fetch_or)                                                 \
  EVERLEAF_RMW(bits, fetch_xor, __atomic_fetch_xor)                                               \
  EVERLEAF_RMW(bits, fetch_nand, __atomic_fetch_nand)                                             \
  EVERLEAF_CAS(bits, strong)                                                                      \
  EVERLEAF_CAS(bits, weak)                                                                        \
  everleaf_a##bits __tsan_atomic##bits##_compare_exchange_val(                                    \
      volatile everleaf_a##bits* p, everleaf_a##bits expected, everleaf_a##bits desired, int,     \
      int) {                                                                                      \
    exchange_if(p, &expected, desired, EVERLEAF_PC);                                              \
    return expected;                                                                              \
  }
EVERLEAF_ATOMIC(8)
EVERLEAF_ATOMIC(16)
EVERLEAF_ATOMIC(32)
EVERLEAF_ATOMIC(64)
EVERLEAF_ATOMIC(128)
#undef EVERLEAF_ATOMIC
#undef EVERLEAF_CAS
#undef EVERLEAF_RMW

void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}

// --- -Wl,--wrap ---

// Bytes that are read without atomics, a key record: another thread may free them first.
static inline void before_copy(const void* from) {
  if (everleaf::crash::Scheduler::active() != nullptr && watched(from)) g_recorder->schedule();
}

void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
int __real_memcmp(const void* a, const void* b, std::size_t bytes);

// The functions proper are apart: what touches no pool goes straight on.
[[gnu::noinline]] static void copy_watched(void* to, const void* from, std::size_t bytes,
                                           const void* pc,
                                           void* (*copy)(void*, const void*, std::size_t)) {
  before_copy(from);
  on_read(from, bytes);
  if (!watched(to) || bytes == 0) {
    copy(to, from, bytes);
    return;
  }
  const std::size_t at = everleaf::crash::offset_of(to);
  g_recorder->before_store(at, bytes);
  copy(to, from, bytes);
  g_recorder->after_copy(at, bytes, pc);
}

[[gnu::noinline]] static void set_watched(void* to, int value, std::size_t bytes, const void* pc) {
  if (bytes == 0) return;
  const std::size_t at = everleaf::crash::offset_of(to);
  g_recorder->before_store(at, bytes);
  __real_memset(to, value, bytes);
  g_recorder->after_copy(at, bytes, pc);
}

[[gnu::noinline]] static int compare_watched(const void* a, const void* b, std::size_t bytes) {
  before_copy(a);
  before_copy(b);
  on_read(a, bytes);
  on_read(b, bytes);
  return __real_memcmp(a, b, bytes);
}

void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  if (!watched(to) && !watched(from)) return __real_memcpy(to, from, bytes);
  copy_watched(to, from, bytes, EVERLEAF_PC, __real_memcpy);
  return to;
}

void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  if (!watched(to) && !watched(from)) return __real_memmove(to, from, bytes);
  copy_watched(to, from, bytes, EVERLEAF_PC, __real_memmove);
  return to;
}

void* __wrap_memset(void* to, int value, std::size_t bytes) {
  if (!watched(to)) return __real_memset(to, value, bytes);
  set_watched(to, value, bytes, EVERLEAF_PC);
  return to;
}

int __wrap_memcmp(const void* a, const void* b, std::size_t bytes) {
  if (!watched(a) && !watched(b)) return __real_memcmp(a, b, bytes);
  return compare_watched(a, b, bytes);
}

}  // extern "C"
