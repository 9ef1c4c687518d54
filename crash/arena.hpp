// The memory that pools under check live in, and what a crash could leave of it.
//
// Levels: the workload runs on level 0. At a crash point of level k, recovery runs on level k + 1,
// whose memory is what of level k is durable; lines (the units of failure) that hold unsynced
// stores are undecided there. A read of an undecided unit by recovery decides as much as the read
// can see: the images that the unit may have are grouped by the bytes read, one group is chosen,
// and the memory is filled before the load happens. A write decides nothing: what it covers is the
// same in all images from then on.
//
// Not thread-safe: everything happens on one thread.
// Invariants
//   V1. Between executions the memory of level k + 1 and of every deeper level equals what is
//       durable in level k.
//   V2. A unit is written in level k >= 1 only after it was saved for the undo.
//   V3. Memory of a unit = its base and all its events; where it is not, a store escaped the hooks.
//   V4. Memory of an undecided unit = the oldest of its possible images, and the bytes that were
//       written since; below, the durable ones of those.
//   V5. Below the deepest level lies the readers' copy, as one level more (V1), but for what a
//       reader has stored to it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace everleaf::crash {

inline constexpr std::size_t kMostLevels = 4;
inline constexpr unsigned kMostThreads = 8;  // simulated
inline constexpr unsigned kAnyThread = kMostThreads;
inline constexpr std::size_t kUnitMost = 64;
inline constexpr std::size_t kMostEvents = 63;
inline constexpr std::size_t kMostImages = 64;  // of a unit: a set of them is one word
inline constexpr std::uint64_t kFirstGroup = std::uint64_t{1} << 63;

// How much fails together, and what is lost.
struct Model {
  std::size_t unit = 64;     // bytes whose stores reach the medium in order: a line, or a word
  bool all_survive = false;  // every executed store survives
};

struct Event {
  std::uint8_t at;
  std::uint8_t size;  // at most 8
  std::uint8_t thread;
  std::uint64_t value;
  const void* pc;
  std::uint64_t number;  // in the order of stores
  std::uint64_t group;   // of stores that reach the medium in any order; 0: in order
};

// A decision of an execution: which group of images a read saw.
struct Choice {
  std::uint32_t pick;
  std::uint32_t count;  // 0: not known; the pick is taken modulo the count that it meets
};
inline constexpr std::uint32_t kLast = ~0U;  // a pick: everything that was stored

// What each access of a pool looks at, in one line: most reads decide nothing, and need no more.
struct alignas(64) Now {
  std::byte* base = nullptr;           // of the active level, or of the readers' copy
  std::size_t bytes = 0;               // behind it; 0: no read takes the short way
  const std::uint8_t* open = nullptr;  // per line of it: the words of which a read may decide some
  std::int64_t left = kNoLimit;        // accesses; below 0: a recovery does not end
  static constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
};
inline constexpr std::size_t kLineWords = 8;

class Arena {
 public:
  Arena(std::size_t capacity, std::size_t levels, Model model);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  [[nodiscard]] std::byte* base(std::size_t level) const { return base_ + level * capacity_; }
  [[nodiscard]] std::byte* active_base() const { return now_.base; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  // Of all levels and of the readers' copy.
  [[nodiscard]] std::size_t bytes() const { return capacity_ * (levels_.size() + 1); }
  [[nodiscard]] std::size_t deepest() const { return levels_.size() - 1; }
  [[nodiscard]] std::size_t level() const { return active_; }
  [[nodiscard]] const Model& model() const { return model_; }

  [[nodiscard]] Now& now() { return now_; }

  // --- What the hooks call, with offsets into the active level. ---
  void will_read(std::size_t at, std::size_t bytes) {
    if (undecided_count_ == 0) return;
    if (reading_ && (at > capacity_ || bytes > capacity_ - at)) [[unlikely]] {
      strayed_ = true;
      return;
    }
    if (open_in(at, bytes)) decide(at, bytes);
  }
  // Whether a read in the range may decide something.
  [[nodiscard]] bool open_in(std::size_t at, std::size_t bytes) const {
    if (undecided_count_ == 0) return false;
    std::size_t word = at / 8;
    const std::size_t last = (at + bytes - 1) / 8;
    for (; word / kLineWords < last / kLineWords; word = (word / kLineWords + 1) * kLineWords) {
      if (now_.open[word / kLineWords] >> word % kLineWords != 0) return true;
    }
    const unsigned from_word = now_.open[word / kLineWords] >> word % kLineWords;
    return (from_word & ((2U << (last - word)) - 1)) != 0;
  }
  void will_write(std::size_t at, std::size_t bytes);
  // `group`: of stores that may be made in any order, at least kFirstGroup; 0: the words of this
  // one alone may.
  void wrote(std::size_t at, std::size_t bytes, const void* pc, unsigned thread,
             std::uint64_t group = 0);
  void flushed(std::size_t at, std::size_t bytes, unsigned thread);
  // The fence's effect: what the same thread flushed is durable.
  void fenced(unsigned thread);

  // Stores of other threads to these bytes that a crash can still lose.
  struct Unsynced {
    std::uint32_t unit;
    std::uint64_t number;
  };
  void unsynced(std::size_t at, std::size_t bytes, unsigned thread,
                std::vector<Unsynced>& out) const;
  [[nodiscard]] bool still(const Unsynced& store) const;
  // Whether the thread flushed something that its next fence makes durable.
  [[nodiscard]] bool flushing(unsigned thread) const {
    return !levels_[active_].noted[thread].empty();
  }

  // --- Checksums (base::Verification) ---
  // All images in which the named bytes are neither the newest nor as they were before all unsynced
  // stores, which may be whole, too, are one outcome: torn. Of n undecided units, the i-th choice
  // is: those before i are newest, unit i is not, those after it stay open. `first`, of which the
  // oldest image is not the newest, is not the oldest there either. Then, with it and those before
  // unit k the oldest, for each k behind it: unit k is not, those after it stay open; then: all are
  // the oldest; at last: all are the newest. Each image belongs to one choice. It is assumed that
  // no torn image fits the checksum; where one does, it is followed with the bytes that were tried
  // and with what is open the newest. What an interrupted recovery wrote over a unit that a crash
  // had torn may mend it, though: of such units each content is a choice, and first of all.
  void verify_over(std::size_t at, std::size_t bytes);
  void verify_begin();
  void verify_end(bool whole);

  // --- Executions ---
  // From here to leave(): level + 1 is active, its units undecided as the crash leaves them.
  void enter();
  void leave();
  // Paths come from a line that may be of another build: one that does not fit ends the program
  // with status 2.
  void paths_are_given() { paths_are_given_ = true; }
  // Starts an execution that follows `path` and then takes first choices.
  void begin(std::vector<Choice> path);
  void end();  // undoes it
  [[nodiscard]] std::vector<Choice>& path() { return levels_[active_].path; }
  [[nodiscard]] const std::vector<Choice>& path_of(std::size_t level) const {
    return levels_[level].path;
  }
  // --- Readers ---
  // Before anything is stored in an execution: from here to end_reading() accesses come to a copy
  // of the active level, as of a file that is mapped privately. Its reads decide as any do, and
  // what they decide stays so; stores to it are forgotten at the end.
  void begin_reading();
  // False: something was stored outside the copy, or the level is not as it was.
  [[nodiscard]] bool end_reading();
  [[nodiscard]] std::byte* readers_base() const { return base(levels_.size()); }

  // A choice of the execution's own, as if a read had met so many groups.
  [[nodiscard]] std::uint32_t choose(std::uint32_t count);
  // The path after this one in depth-first order; false: there is none.
  static bool advance(std::vector<Choice>& path);

  // A number that the choices of this execution so far give.
  [[nodiscard]] std::uint32_t picks() const;

  // Whether stores of the active level are kept for crashes in it.
  void record(bool on) { recording_ = on && active_ < deepest(); }
  [[nodiscard]] bool recording() const { return recording_; }
  [[nodiscard]] bool crashable() const { return recording_; }
  // Stores of this execution outside the first `bytes`.
  [[nodiscard]] bool wrote_beyond(std::size_t bytes) const;
  void forget_writes() { lowest_beyond_ = false; }
  void watch_beyond(std::size_t bytes) { beyond_ = bytes; }

  // How many of these bytes, from the first on, nothing but zeroes was ever stored to, on any
  // level, the pending store apart.
  [[nodiscard]] std::size_t untouched(std::size_t at, std::size_t bytes) const {
    if (at > capacity_ || bytes > capacity_ - at) return 0;
    std::size_t page = at / kPage;
    while (page * kPage < at + bytes) {
      std::uint64_t eight = 0;
      __builtin_memcpy(&eight, &used_[page], sizeof eight);
      page += static_cast<std::size_t>(std::countr_zero(eight)) / 8;
      if (eight != 0) break;
    }
    return std::clamp(page * kPage, at, at + bytes) - at;
  }

  // Hash of everything that the next level can see.
  [[nodiscard]] std::uint64_t state_hash() const;

  // Hash of all memory of the active level, if no unit is undecided; two executions that begin in
  // one crash point of level 0 may be compared by it.
  [[nodiscard]] std::optional<std::uint64_t> content_hash() const;

  // V3 on dirty units, or on everything. Empty: fine.
  [[nodiscard]] std::string audit(bool everything, std::size_t bytes);

  // Images that a crash of the active level can leave, saturating; and one of them by its number.
  [[nodiscard]] std::uint64_t images();
  // And for how many of them this execution stands: over all executions of a crash point, the sum
  // is images(). Level 1 of two, so that nothing is recorded there.
  [[nodiscard]] std::uint64_t stands_for();
  void choose_image(std::uint64_t number);

  [[nodiscard]] std::string describe_lost();
  [[nodiscard]] const void* last_store() const { return last_store_; }
  [[nodiscard]] std::uint64_t merged() const { return merged_; }
  [[nodiscard]] std::uint64_t stores() const { return stores_; }

 private:
  using Bytes = std::array<std::byte, kUnitMost>;
  struct Dirty {  // a unit with unsynced stores
    std::uint32_t unit = 0;
    alignas(8) Bytes base{};    // durable; of an undecided unit, on its oldest image
    std::uint64_t written = 0;  // bytes of the base that do not come from that image
    std::vector<Event> events;
  };
  struct Note {  // flushed: the unit's events up to this number
    std::uint32_t unit;
    std::uint64_t number;
  };
  struct Image {
    alignas(8) Bytes bytes;
    std::uint8_t survived;  // stores
  };
  struct Undecided {
    std::uint32_t unit = 0;
    std::vector<Image> images;   // distinct, in the order of their first appearance
    std::size_t newest = 0;      // index: all stores
    std::uint64_t id = 0;        // hash of them
    std::uint8_t differ = 0;     // words that are not the same in all of them
    std::size_t stores = 0;      // unsynced at the crash
    std::uint64_t open = 0;      // a set of images
    std::uint64_t beside = 0;    // images that are not in it and that its first one stands for
    std::uint64_t written = 0;   // bytes, since the crash
    std::uint32_t verified = 0;  // 1 + index of verified_
    bool mixed = false;          // recovery stored to what an earlier crash had left open
  };
  struct Saved {
    std::uint32_t unit;
    alignas(8) Bytes bytes;
  };
  struct Level {
    std::vector<std::uint32_t> dirty_of;      // per unit: index + 1
    std::vector<std::uint32_t> undecided_of;  // per unit: index + 1; 0: it is not
    std::vector<std::uint8_t> open;           // Now::open
    std::vector<std::uint8_t> touched;        // per unit: saved, or kBelow; of level 0 nobody asks
    std::vector<Dirty> dirty;
    std::size_t dirty_count = 0;
    std::array<std::vector<Note>, kMostThreads> noted;
    std::uint64_t events = 0;          // so far
    std::vector<Undecided> undecided;  // the first undecided_count: the rest keeps its memory
    std::size_t undecided_count = 0;
    std::vector<Saved> undo;
    std::vector<Choice> path;
    std::size_t next_choice = 0;
    bool recording = true;
  };

  struct Verified {        // a unit that a checksum covers
    std::uint32_t index;   // of undecided
    std::uint64_t newest;  // images whose covered bytes are the newest
    std::uint64_t oldest;  // or as they were before all unsynced stores
    std::uint64_t seen;    // the covered bytes
  };
  // `index`: of undecided, + 1; 0: it is decided.
  void set_open(Level& level, const Undecided& u, std::uint32_t index) const;
  void decide(std::size_t at, std::size_t bytes);
  void cover(std::uint32_t index, std::size_t from, std::size_t to);
  [[nodiscard]] static unsigned newest_of(const Undecided& u);
  void decided(const Undecided& u);
  void decide_unit(Undecided& u, std::size_t from, std::size_t to);
  void choose_content(Undecided& u, std::uint64_t seen);
  [[nodiscard]] static std::uint64_t alike(const Undecided& u, unsigned image, std::uint64_t seen);
  static void narrow(Undecided& u, std::uint64_t open);
  static void stand_for(Undecided& u, std::uint64_t open);
  void touch(std::uint32_t unit);
  void fill(const Undecided& u);
  Undecided& add_undecided(Level& level, std::uint32_t unit);
  void add_image(Undecided& u, const Bytes& bytes, std::size_t survived);
  void add_images(Undecided& u, const Bytes& base, const Dirty& dirty, std::size_t before);
  void add_subsets(Undecided& u, const Bytes& base, std::span<const Event> group,
                   std::size_t before);
  static void finish(Undecided& u);
  [[nodiscard]] std::span<Undecided> undecided(Level& level) const {
    return {level.undecided.data(), level.undecided_count};
  }
  void put(std::uint32_t unit, const std::byte* bytes, std::size_t from_level);
  Dirty& dirty_unit(std::uint32_t unit);
  void drop_dirty(Level& level, std::uint32_t unit);
  void add_event(std::uint32_t unit, std::size_t at, std::size_t size, const void* pc,
                 unsigned thread, std::uint64_t group);
  static void apply(const Event& event, std::byte* bytes);
  static std::uint64_t bytes_of(const Event& event);
  [[nodiscard]] std::byte* unit_at(std::size_t level, std::uint32_t unit) const {
    return base(level) + unit * model_.unit;
  }
  void copy_unit(std::byte* to, const std::byte* from) const;
  void reader_will_write(std::size_t at, std::size_t bytes);
  void use(std::size_t at, std::size_t bytes);

  const std::size_t capacity_;
  const Model model_;
  const unsigned shift_;  // log2 of the unit
  std::byte* base_ = nullptr;
  std::vector<Level> levels_;
  static constexpr std::size_t kPage = 256;
  static constexpr std::uint8_t kBelow = 2;  // saved, and changed on the levels below, too
  std::vector<std::uint8_t> used_;           // pages that were not always zero, on any level
  std::size_t active_ = 0;
  Now now_;
  std::size_t undecided_count_ = 0;  // of the active level
  std::vector<Verified> verified_;
  std::size_t open_from_ = 0;  // of verified_: these stay open where it is torn
  bool recording_ = true;
  bool reading_ = false;
  bool strayed_ = false;                 // a reader stored outside its copy
  std::vector<std::uint32_t> copied_;    // units of the copy that a reader stored to
  std::vector<std::uint8_t> is_copied_;  // per unit
  bool paths_are_given_ = false;
  std::size_t beyond_ = ~std::size_t{0};
  bool lowest_beyond_ = false;
  const void* last_store_ = nullptr;
  std::uint64_t merged_ = 0;
  std::uint64_t stores_ = 0;
};

}  // namespace everleaf::crash
