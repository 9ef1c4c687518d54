#include "pmem/medium.hpp"

#include <algorithm>

#include <cpuid.h>

#include "base/stopwatch.hpp"

namespace everleaf::pmem {
namespace {

struct CpuFlush {
  bool clwb = false;
  bool clflushopt = false;
  CpuFlush() noexcept {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
      clflushopt = (ebx >> 23 & 1) != 0;
      clwb = (ebx >> 24 & 1) != 0;
    }
  }
};

const CpuFlush& cpu() noexcept {
  static const CpuFlush flags;
  return flags;
}

// Assembly, because the intrinsics demand the whole file to be compiled for a CPU that has them.
void clwb(std::byte* line) noexcept {
  asm volatile("clwb %0" : "+m"(*line) : : "memory");
}
void clflushopt(std::byte* line) noexcept {
  asm volatile("clflushopt %0" : "+m"(*line) : : "memory");
}
void clflush(std::byte* line) noexcept {
  asm volatile("clflush %0" : "+m"(*line) : : "memory");
}
void sfence() noexcept {
  asm volatile("sfence" : : : "memory");
}

}  // namespace

Medium::Mode Medium::mode_for(Domain domain, const Observer* observer) noexcept {
  if (observer != nullptr) return Mode::observed;
  switch (domain) {
    case Domain::volatile_:
    case Domain::process:
      return Mode::nothing;
    case Domain::cache:
      return Mode::fence_only;
    case Domain::disk:
      return Mode::disk;
    case Domain::memory:
      break;
  }
  if (cpu().clwb) return Mode::clwb;
  return cpu().clflushopt ? Mode::clflushopt : Mode::clflush;
}

Medium::Medium(std::byte* base, std::uint64_t size, Domain domain, Observer* observer,
               std::unique_ptr<WriteBack> write_back)
    : base_(base),
      size_(size),
      domain_(domain),
      mode_(mode_for(domain, observer)),
      observer_(observer),
      write_back_(std::move(write_back)),
      locals_owner_(std::make_unique<std::array<Local, kMaxThreads + 1>>()),
      locals_(locals_owner_->data()) {}

void Medium::flush_lines(const void* address, std::size_t bytes, Site site) noexcept {
  const base::Stopwatch watch(base::Part::flush);
  auto* const target = static_cast<std::byte*>(const_cast<void*>(address));
  const auto first = reinterpret_cast<std::uintptr_t>(target) / kLine * kLine;
  const auto end = reinterpret_cast<std::uintptr_t>(target) + std::max<std::size_t>(bytes, 1);
  const std::uint64_t lines = (end - first + kLine - 1) / kLine;
  add(local().flushes, lines);
  start(reinterpret_cast<std::byte*>(first), lines, site);
}

void Medium::flush_apart(std::span<const std::byte* const> lines, const Site* sites) noexcept {
  const base::Stopwatch watch(base::Part::flush);
  add(local().flushes, lines.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    start(const_cast<std::byte*>(lines[i]), 1, sites[i]);
  }
}

[[gnu::always_inline]] inline void Medium::start(std::byte* line, std::uint64_t lines,
                                                 const Site& site) noexcept {
  switch (mode_) {
    case Mode::nothing:
    case Mode::fence_only:
      break;
    case Mode::clwb:
      for (std::uint64_t i = 0; i < lines; ++i) clwb(line + i * kLine);
      break;
    case Mode::clflushopt:
      for (std::uint64_t i = 0; i < lines; ++i) clflushopt(line + i * kLine);
      break;
    case Mode::clflush:
      for (std::uint64_t i = 0; i < lines; ++i) clflush(line + i * kLine);
      break;
    case Mode::disk:
      if (!write_back_) break;
      write_back_->note(slot(), offset_of(line), offset_of(line) + lines * kLine);
      break;
    case Mode::observed:
      observer_->flushed(offset_of(line), lines * kLine, site);
      break;
  }
}

bool Medium::fence_slow(Site site) noexcept {
  const base::Stopwatch watch(base::Part::fence);
  add(local().fences, 1);
  switch (mode_) {
    case Mode::disk:
      return !write_back_ || write_back_->fence(slot(), failed_);
    case Mode::observed:
      observer_->fencing(site);
      return true;
    default:
      sfence();  // M1: the lines flushed before have reached the domain
      return true;
  }
}

Counters Medium::counters() const noexcept {
  Counters sum;
  for (std::size_t slot = 0; slot <= kMaxThreads; ++slot) {
    const Local& local = locals_[slot];
    sum.bytes_written += local.bytes_written.load(std::memory_order_relaxed);
    sum.heap_bytes_written += local.heap_bytes_written.load(std::memory_order_relaxed);
    sum.flushes += local.flushes.load(std::memory_order_relaxed);
    sum.fences += local.fences.load(std::memory_order_relaxed);
  }
  return sum;
}

std::string_view Medium::flush_instruction() noexcept {
  if (cpu().clwb) return "clwb";
  return cpu().clflushopt ? "clflushopt" : "clflush";
}

}  // namespace everleaf::pmem

namespace everleaf {

std::string_view flush_instruction() noexcept {
  return pmem::Medium::flush_instruction();
}

}  // namespace everleaf
