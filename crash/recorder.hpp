// Between the hooks and the arena: pending stores, sites, crash points, counters.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arena.hpp"
#include "gauge.hpp"
#include "pmem/format.hpp"
#include "pmem/medium.hpp"

namespace everleaf::crash {

enum class Act : std::uint8_t { flush, fence };

// A flush or fence of the source. Two calls on one line are one site.
struct SiteId {
  std::string file;
  unsigned line = 0;
  Act act = Act::flush;
  auto operator<=>(const SiteId&) const = default;
};
std::string to_string(const SiteId& site);
// Relative to the source tree, also where the compiler was given a path from the build tree.
const char* source_name(const char* file);

// How often a site was met.
struct SiteUse {
  std::uint64_t workload = 0;
  std::uint64_t recovery = 0;         // and in what follows it,
  std::vector<std::uint64_t> points;  // from these crash points of the workload
};

// What happens at crash points.
class Crasher {
 public:
  virtual ~Crasher() = default;
  virtual void crash_point() = 0;
  virtual void escaped(const std::string& what) = 0;
  // The process cannot go on: prints what is known. From a signal handler, too.
  virtual void dying(const char* what) noexcept;
};

// One at a time, made by the run; the hooks find it through watch().
class Recorder final : public pmem::Observer {
 public:
  explicit Recorder(Arena& arena) : arena_(arena) {}

  void flushed(pmem::Offset at, std::size_t bytes, pmem::Site site) override;
  void fencing(pmem::Site site) override;

  // --- Hooks ---
  void read(std::size_t at, std::size_t bytes, bool only_read = true) {
    if (--now_.left < 0) [[unlikely]]
      runaway();
    if (notes_) [[unlikely]]
      return read_and_note(at, bytes, only_read);
    arena_.will_read(at, bytes);
  }
  // Whether reads in this range decide nothing and nobody counts them: then they count as one.
  [[nodiscard]] bool read_plainly(std::size_t at, std::size_t bytes) {
    settle();
    if (notes_ || now_.left == 0 || arena_.open_in(at, bytes)) return false;
    atomic();
    --now_.left;
    return true;
  }
  void write(std::size_t at, std::size_t bytes, const void* pc);
  void settle() {  // the pending store has happened
    if (pending_bytes_ != 0) settle_pending();
  }
  // A store whose value is there at once: atomics and copies.
  void before_store(std::size_t at, std::size_t bytes);
  // `bits`: only bits of its own; who reads the word does not depend on it.
  void after_store(std::size_t at, std::size_t bytes, const void* pc, bool bits = false);
  // A plain one: what a compiler may exchange with others between two atomic accesses, flushes or
  // fences.
  void after_copy(std::size_t at, std::size_t bytes, const void* pc);
  void atomic() { ++interval_; }
  // By a compare-and-exchange that failed.
  void found(std::size_t at, std::size_t bytes) {
    if (unseen_[thread()] == 0) learnt(at, bytes);
  }

  // Another simulated thread may run first.
  void schedule();
  // Another level begins or ends: no store is pending in it.
  void switch_level() {
    pending_bytes_ = 0;
    choose_way();
  }

  // The hooks' events until the next call; more than that is a recovery that does not end.
  void allow(std::uint64_t events) {
    now_.left = static_cast<std::int64_t>(std::min(events, Now::kNoLimit));
  }
  [[noreturn]] void runaway() const;

  // What a call of the current thread has read so far of others' stores that a crash can still
  // lose; empty: nothing.
  void forget_reads() { saw_[thread()].clear(); }
  // base::Durable: no reads of the current thread are dependencies, and no reads of what it stores,
  // until the same without `begins`.
  void durable(bool begins) { durable_[thread()] += begins ? 1U : ~0U; }
  void unseen(bool begins) { unseen_[thread()] += begins ? 1U : ~0U; }  // base::Unseen
  // Threads that were left in the middle of a call leave that open.
  void new_threads() { durable_ = unseen_ = {}; }
  [[nodiscard]] std::string depends() const;

  // Look for them: simulated threads on a strict tree.
  void look_for_dependencies(bool on) {
    dependencies_ = on;
    choose_way();
  }
  [[nodiscard]] bool dependencies() const { return dependencies_; }
  void listen(Gauge* gauge) {
    gauge_ = gauge;
    choose_way();
  }
  [[nodiscard]] bool listens() const { return gauge_ != nullptr; }

  // Plain stores are made in any order that a compiler may give them.
  void permute(bool on) {
    permuted_ = on;
    choose_way();
  }

  Crasher* crasher = nullptr;
  bool collect_sites = false;
  std::uint64_t point = 0;  // the newest crash point of the workload
  std::map<SiteId, SiteUse> sites;
  std::map<std::string, std::uint64_t, std::less<>> reached;  // base::reached
  void has_reached(const char* path) {
    Path& known = paths_[reinterpret_cast<std::uintptr_t>(path) / 8 % paths_.size()];
    if (known.name != path) known = {path, &reached[path]};
    ++*known.times;
  }
  std::optional<SiteId> dropped;
  [[nodiscard]] const pmem::Site& last_site() const { return last_site_; }
  [[nodiscard]] std::string last() const;  // flush or fence of the workload, file:line
  bool dropped_one = false;                // of the workload
  std::uint64_t flushes = 0;
  std::uint64_t fences = 0;

  // The recorder that the hooks call; null: none.
  static void watch(Recorder* recorder);
  [[nodiscard]] Arena& arena() { return arena_; }

 private:
  struct Path {  // a literal of the library
    const char* name = nullptr;
    std::uint64_t* times = nullptr;
  };
  [[nodiscard]] static unsigned thread();
  // The frontier and slab headers: bounds are checked against them, nothing is made of them.
  [[nodiscard]] static bool of_allocator(std::size_t at) {
    return at >= pmem::kHeapAt ? at % pmem::kSlabBytes < pmem::kLine
                               : at >= pmem::kStateAt && at < pmem::kDirectoryAt;
  }
  void settle_pending();
  void learnt(std::size_t at, std::size_t bytes);
  void come_to_fence();
  static void touch(std::size_t at, std::size_t bytes, bool stores);
  void read_and_note(std::size_t at, std::size_t bytes, bool only_read);
  void stored(std::size_t at, std::size_t bytes, const void* pc, unsigned by, std::uint64_t group);
  [[nodiscard]] std::uint64_t plain_group() const { return permuted_ ? interval_ : 0; }
  bool drop(const pmem::Site& site, Act act);
  void note_site(SiteUse& use);
  // Whether reads may take the short way: not where somebody notes them, where loads end an
  // interval that matters, or where the next load settles a store.
  void choose_way() {
    notes_ = gauge_ != nullptr || dependencies_;
    now_.bytes = notes_ || permuted_ || pending_bytes_ != 0 ? 0 : arena_.capacity();
  }

  Arena& arena_;
  Now& now_ = arena_.now();
  bool dependencies_ = false;
  bool permuted_ = false;
  bool notes_ = false;
  Gauge* gauge_ = nullptr;
  std::uint64_t interval_ = kFirstGroup;  // between atomic accesses, flushes and fences
  std::size_t pending_bytes_ = 0;
  std::size_t pending_at_ = 0;
  const void* pending_pc_ = nullptr;
  std::array<std::vector<Arena::Unsynced>, kMostThreads> saw_;
  std::array<unsigned, kMostThreads> durable_{};
  std::array<unsigned, kMostThreads> unseen_{};
  std::array<Path, 256> paths_{};
  pmem::Site last_site_;
};

}  // namespace everleaf::crash
