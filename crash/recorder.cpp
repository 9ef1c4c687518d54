#include "recorder.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <unistd.h>

#include "threads/scheduler.hpp"

namespace everleaf::crash {

std::string to_string(const SiteId& site) {
  return fmt::format("{}:{} {}", site.file, site.line, site.act == Act::flush ? "flush" : "fence");
}

const char* source_name(const char* file) {
  while (std::strncmp(file, "../", 3) == 0) file += 3;
  return file;
}

void Crasher::dying(const char* what) noexcept {
  std::fprintf(stderr, "everleaf-crash: %s\n", what);
}

bool Recorder::drop(const pmem::Site& site, Act act) {
  // A schedule runs on level 1, and its crashes below.
  if (arena_.level() == 0 || Scheduler::active() != nullptr) last_site_ = site;
  if (!collect_sites && !dropped) return false;
  const SiteId id{source_name(site.file_name()), site.line(), act};
  if (collect_sites) note_site(sites[id]);
  const bool drop_it = dropped == id;
  if (drop_it && arena_.level() == 0) dropped_one = true;
  return drop_it;
}

void Recorder::note_site(SiteUse& use) {
  if (arena_.level() == 0) {
    ++use.workload;
    return;
  }
  ++use.recovery;
  if (use.points.empty() || use.points.back() != point) use.points.push_back(point);
}

std::string Recorder::last() const {
  return fmt::format("{}:{}", source_name(last_site_.file_name()), last_site_.line());
}

unsigned Recorder::thread() {
  return Scheduler::active() == nullptr ? 0 : Scheduler::active()->current();
}

void Recorder::schedule() {
  if (Scheduler::active() == nullptr) return;
  settle();
  Scheduler::active()->point();
}

// What a crash can leave is most just before a fence. So that each thread's fence is met with each
// number of the others' fences passed and all before their next one done: a thread comes to a fence
// in a step of its own, on which the others' fences depend.
void Recorder::come_to_fence() {
  schedule();
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr || !scheduler->wants_touches) return;
  scheduler->touch(Scheduler::kArrival | scheduler->current(), true);
  scheduler->point();
  scheduler->touch_others(Scheduler::kArrival);
}

void Recorder::flushed(pmem::Offset at, std::size_t bytes, pmem::Site site) {
  schedule();
  settle();
  atomic();
  touch(at / pmem::kLine * pmem::kLine, bytes + at % pmem::kLine, false);
  ++flushes;
  if (gauge_ != nullptr) gauge_->flushed(at, bytes);
  if (!drop(site, Act::flush)) arena_.flushed(at, bytes, thread());
}

void Recorder::fencing(pmem::Site site) {
  come_to_fence();
  settle();
  atomic();
  ++fences;
  if (gauge_ != nullptr) gauge_->fenced();
  if (drop(site, Act::fence)) return;
  if (crasher != nullptr) {
    if (const std::string wrong = arena_.audit(false, 0); !wrong.empty()) crasher->escaped(wrong);
  }
  if (dependencies_ && arena_.flushing(thread()) && crasher != nullptr) {
    if (const std::string what = depends(); !what.empty())
      crasher->escaped("a fence makes durable what was written after reading " + what);
  }
  if (arena_.crashable() && !arena_.model().all_survive && crasher != nullptr) {
    crasher->crash_point();
  }
  arena_.fenced(thread());
}

std::string Recorder::depends() const {
  for (const Arena::Unsynced& store : saw_[thread()]) {
    if (!arena_.still(store)) continue;
    return fmt::format("another thread's store to the unit at offset {:#x}, which a crash can lose",
                       store.unit * arena_.model().unit);
  }
  return {};
}

void Recorder::stored(std::size_t at, std::size_t bytes, const void* pc, unsigned by,
                      std::uint64_t group) {
  if (gauge_ != nullptr) gauge_->stored(at, bytes);
  if (!arena_.model().all_survive || !arena_.crashable() || crasher == nullptr)
    return arena_.wrote(at, bytes, pc, by, group);
  // A kill may leave a wide store or a copy half done: after each word, but not each of a long one.
  constexpr std::size_t kEachWord = 8;
  const std::size_t end = at + bytes;
  for (std::size_t n = 1; at < end; ++n) {
    const std::size_t next = std::min(end, (at / 8 + 1) * 8);
    arena_.wrote(at, next - at, pc, by);
    at = next;
    if (n <= kEachWord || std::has_single_bit(n) || end - at <= 8) crasher->crash_point();
  }
}

void Recorder::settle_pending() {
  const std::size_t bytes = pending_bytes_;
  pending_bytes_ = 0;
  choose_way();
  stored(pending_at_, bytes, pending_pc_, thread(), plain_group());
}

void Recorder::learnt(std::size_t at, std::size_t bytes) {
  if (dependencies_ && durable_[thread()] == 0 && !of_allocator(at))
    arena_.unsynced(at, bytes, thread(), saw_[thread()]);
}

void Recorder::touch(std::size_t at, std::size_t bytes, bool stores) {
  Scheduler* const scheduler = Scheduler::active();
  if (scheduler == nullptr || !scheduler->wants_touches) return;
  for (std::size_t unit = at / 8; unit * 8 < at + bytes; ++unit) scheduler->touch(unit, stores);
}

void Recorder::read_and_note(std::size_t at, std::size_t bytes, bool only_read) {
  touch(at, bytes, false);
  if (gauge_ != nullptr) gauge_->read(at, bytes);
  if (only_read) learnt(at, bytes);
  arena_.will_read(at, bytes);
}

void Recorder::write(std::size_t at, std::size_t bytes, const void* pc) {
  settle();
  if (--now_.left < 0) runaway();
  touch(at, bytes, true);
  arena_.will_write(at, bytes);
  pending_at_ = at;
  pending_bytes_ = bytes;
  pending_pc_ = pc;
  now_.bytes = 0;  // until it is settled
}

void Recorder::before_store(std::size_t at, std::size_t bytes) {
  settle();
  touch(at, bytes, true);
  arena_.will_write(at, bytes);
}

void Recorder::after_store(std::size_t at, std::size_t bytes, const void* pc, bool bits) {
  stored(at, bytes, pc, bits || durable_[thread()] != 0 ? kAnyThread : thread(), 0);
}

void Recorder::after_copy(std::size_t at, std::size_t bytes, const void* pc) {
  stored(at, bytes, pc, durable_[thread()] != 0 ? kAnyThread : thread(), plain_group());
}

void Recorder::runaway() const {
  // There is no way out of a noexcept function on the stack but the end of the process.
  if (crasher != nullptr) crasher->dying("a recovery does not end");
  ::_exit(1);
}

}  // namespace everleaf::crash
