#include "arena.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace everleaf::crash {
namespace {

// Not memcpy and memcmp, which are wrapped in this program: what reads the pool here is no access
// of the library's.
void copy_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const t = reinterpret_cast<std::uint64_t*>(to);
  const auto* const f = reinterpret_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / 8; ++i) t[i] = f[i];
}

bool same_words(const std::byte* a, const std::byte* b, std::size_t bytes) {
  const auto* const x = reinterpret_cast<const std::uint64_t*>(a);
  const auto* const y = reinterpret_cast<const std::uint64_t*>(b);
  std::uint64_t differs = 0;
  for (std::size_t i = 0; i < bytes / 8; ++i) differs |= x[i] ^ y[i];
  return differs == 0;
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

std::uint64_t hash_words(std::uint64_t hash, const std::byte* bytes, std::size_t n) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(bytes);
  for (std::size_t i = 0; i < n / 8; ++i) hash = mix(hash, words[i]);
  return hash;
}

// Of what is added up, so that sums differ where one of two terms has what the other lacks.
std::uint64_t spread(std::uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCDULL;
  hash = (hash ^ hash >> 33) * 0xC4CEB9FE1A85EC53ULL;
  return hash ^ hash >> 33;
}

// Of a unit and what it holds. Its number is mixed before the first word comes: with words for
// units, half of all pairs of small numbers looked like another pair.
std::uint64_t hash_unit(std::uint64_t unit, const std::byte* bytes, std::size_t n) {
  return spread(hash_words(mix(7, unit), bytes, n));
}

std::uint64_t all_of(std::size_t n) {
  return n >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1;
}

// A set of bytes of a unit: [from, to).
std::uint64_t bytes_between(std::size_t from, std::size_t to) {
  return all_of(to) & ~all_of(from);
}

bool is_zero(const std::byte* from, std::size_t bytes) {
  std::uint64_t any = 0;
  for (; bytes >= 8; bytes -= 8, from += 8) {
    std::uint64_t word = 0;
    __builtin_memcpy(&word, from, sizeof word);
    any |= word;
  }
  for (; bytes != 0; --bytes, ++from) any |= static_cast<std::uint64_t>(*from);
  return any == 0;
}

unsigned lowest(std::uint64_t set) {
  return static_cast<unsigned>(std::countr_zero(set));
}

// The bytes of the set.
template <class Bytes>
void overlay(Bytes& to, std::uint64_t set, const std::byte* from) {
  for (; set != 0; set &= set - 1) to[lowest(set)] = from[lowest(set)];
}

template <class Bytes>
std::uint64_t word_of(const Bytes& bytes, unsigned number) {
  std::uint64_t word = 0;
  __builtin_memcpy(&word, bytes.data() + std::size_t{8} * number, sizeof word);
  return word;
}

template <class Bytes>
bool same_in(const Bytes& a, const Bytes& b, std::uint64_t set) {
  while (set != 0) {
    const unsigned word = lowest(set) / 8;
    const std::uint64_t bytes = set >> (8 * word) & 0xFF;
    set &= ~(std::uint64_t{0xFF} << (8 * word));
    const std::uint64_t differ = word_of(a, word) ^ word_of(b, word);
    if (differ == 0) continue;
    if (bytes == 0xFF) return false;
    for (std::uint64_t left = bytes; left != 0; left &= left - 1) {
      if ((differ >> (8 * lowest(left)) & 0xFF) != 0) return false;
    }
  }
  return true;
}

}  // namespace

Arena::Arena(std::size_t capacity, std::size_t levels, Model model)
    : capacity_(capacity),
      model_(model),
      shift_(static_cast<unsigned>(std::countr_zero(model.unit))),
      levels_(std::min(levels, kMostLevels)) {
  void* const memory = ::mmap(nullptr, this->bytes(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the arena");
  base_ = static_cast<std::byte*>(memory);
  for (Level& level : levels_) {
    level.dirty_of.resize(capacity >> shift_);
    level.undecided_of.resize(capacity >> shift_);
    level.open.resize(capacity / kUnitMost + 1);
    level.touched.resize(capacity >> shift_);
  }
  now_ = {.base = base_, .bytes = capacity, .open = levels_[0].open.data()};
  is_copied_.resize(capacity >> shift_);
  used_.resize(capacity / kPage + 8);
  recording_ = levels_.size() > 1;
}

Arena::~Arena() {
  ::munmap(base_, bytes());
}

// A line of known size is four moves, not a loop.
void Arena::copy_unit(std::byte* to, const std::byte* from) const {
  if (model_.unit == kUnitMost) return copy_words(to, from, kUnitMost);
  copy_words(to, from, model_.unit);
}

// --- Stores --------------------------------------------------------------------------------------

void Arena::touch(std::uint32_t unit) {
  Level& level = levels_[active_];
  if (active_ == 0 || level.touched[unit] != 0) return;
  level.touched[unit] = 1;
  Saved& saved = level.undo.emplace_back();
  saved.unit = unit;
  copy_unit(saved.bytes.data(), unit_at(active_, unit));
}

void Arena::will_write(std::size_t at, std::size_t bytes) {
  if (reading_) [[unlikely]]
    return reader_will_write(at, bytes);
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    touch(static_cast<std::uint32_t>(unit));
    if (recording_ && !model_.all_survive) dirty_unit(static_cast<std::uint32_t>(unit));
    if (undecided_count_ == 0) continue;
    const std::uint32_t index = levels_[active_].undecided_of[unit];
    if (index == 0) continue;
    Undecided& u = levels_[active_].undecided[index - 1];
    const std::size_t start = unit << shift_;
    u.written |= bytes_between(std::max(at, start) - start,
                               std::min(at + bytes, start + model_.unit) - start);
    // Where a crash may follow, what lies below is still open.
    if (!recording_ && u.written == all_of(model_.unit)) {
      stand_for(u, u.open & -u.open);
      decided(u);
    }
  }
  lowest_beyond_ = lowest_beyond_ || at + bytes > beyond_;
}

Arena::Dirty& Arena::dirty_unit(std::uint32_t unit) {
  Level& level = levels_[active_];
  std::uint32_t& index = level.dirty_of[unit];
  if (index != 0) return level.dirty[index - 1];
  if (level.dirty_count == level.dirty.size()) level.dirty.emplace_back();
  Dirty& fresh = level.dirty[level.dirty_count++];
  index = static_cast<std::uint32_t>(level.dirty_count);
  fresh.unit = unit;
  fresh.events.clear();
  // V1: what is durable; the memory itself may hold a store that escaped the hooks, which V3 shows.
  copy_unit(fresh.base.data(), unit_at(active_ + 1, unit));
  const std::uint32_t open = level.undecided_of[unit];
  fresh.written = open == 0 ? 0 : level.undecided[open - 1].written;
  return fresh;
}

void Arena::drop_dirty(Level& level, std::uint32_t unit) {
  const std::uint32_t index = level.dirty_of[unit] - 1;
  level.dirty_of[unit] = 0;
  const std::size_t last = --level.dirty_count;
  if (index != last) {
    std::swap(level.dirty[index], level.dirty[last]);
    level.dirty_of[level.dirty[index].unit] = index + 1;
  }
}

void Arena::add_event(std::uint32_t unit, std::size_t at, std::size_t size, const void* pc,
                      unsigned thread, std::uint64_t group) {
  Event event{static_cast<std::uint8_t>(at),
              static_cast<std::uint8_t>(size),
              static_cast<std::uint8_t>(thread),
              0,
              pc,
              ++levels_[active_].events,
              group};
  const std::byte* const from = unit_at(active_, unit) + at;
  if (size == 8) {
    event.value = *reinterpret_cast<const std::uint64_t*>(from);
  } else {
    for (std::size_t i = 0; i < size; ++i) {
      event.value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
    }
  }
  Dirty& dirty = dirty_unit(unit);
  if (dirty.events.size() == kMostEvents) {
    // Two stores become one: a crash between them is not looked at, and counted as such.
    ++merged_;
    apply(dirty.events.front(), dirty.base.data());
    dirty.written |= bytes_of(dirty.events.front());
    dirty.events.erase(dirty.events.begin());
  }
  dirty.events.push_back(event);
}

void Arena::wrote(std::size_t at, std::size_t bytes, const void* pc, unsigned thread,
                  std::uint64_t group) {
  ++stores_;
  last_store_ = pc;
  if (!strayed_) use(at, bytes);
  if (!recording_) return;
  const std::size_t end = at + bytes;
  while (at < end) {
    // Words are indivisible, more is not.
    const std::size_t size = std::min(end, (at / 8 + 1) * 8) - at;
    const auto unit = static_cast<std::uint32_t>(at >> shift_);
    if (model_.all_survive) {
      const std::size_t word = at / 8 * 8;
      levels_[active_].touched[unit] = kBelow;
      for (std::size_t level = active_ + 1; level <= levels_.size(); ++level)
        copy_words(base(level) + word, base(active_) + word, 8);
    } else {
      const std::uint64_t alone = size == bytes ? 0 : stores_;
      add_event(unit, at & (model_.unit - 1), size, pc, thread, group != 0 ? group : alone);
    }
    at += size;
  }
}

// The bytes are there. Zeroes are stored to pages that hold nothing else: new blocks, and records
// that cover them.
void Arena::use(std::size_t at, std::size_t bytes) {
  for (const std::size_t end = at + bytes; at < end;) {
    const std::size_t next = std::min(end, (at / kPage + 1) * kPage);
    std::uint8_t& used = used_[at / kPage];
    if (used == 0 && !is_zero(now_.base + at, next - at)) used = 1;
    at = next;
  }
}

void Arena::put(std::uint32_t unit, const std::byte* bytes, std::size_t from_level) {
  levels_[active_].touched[unit] = kBelow;
  for (std::size_t level = from_level; level <= levels_.size(); ++level) {
    copy_unit(unit_at(level, unit), bytes);
  }
}

void Arena::flushed(std::size_t at, std::size_t bytes, unsigned thread) {
  if (!recording_ || model_.all_survive) return;
  Level& level = levels_[active_];
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    const std::uint32_t index = level.dirty_of[unit];
    if (index == 0 || level.dirty[index - 1].events.empty()) continue;
    level.noted[thread].push_back(
        {static_cast<std::uint32_t>(unit), level.dirty[index - 1].events.back().number});
  }
}

std::uint64_t Arena::bytes_of(const Event& event) {
  return bytes_between(event.at, std::size_t{event.at} + event.size);
}

void Arena::apply(const Event& event, std::byte* bytes) {
  if (event.size == 8) {
    *reinterpret_cast<std::uint64_t*>(bytes + event.at) = event.value;
    return;
  }
  for (std::size_t i = 0; i < event.size; ++i) {
    bytes[event.at + i] = static_cast<std::byte>(event.value >> (8 * i) & 0xFF);
  }
}

void Arena::fenced(unsigned thread) {
  if (!recording_ || model_.all_survive) return;
  Level& level = levels_[active_];
  for (const Note& note : level.noted[thread]) {
    const std::uint32_t index = level.dirty_of[note.unit];
    if (index == 0) continue;  // noted twice
    Dirty& dirty = level.dirty[index - 1];
    auto end = dirty.events.begin();
    for (; end != dirty.events.end() && end->number <= note.number; ++end) {
      apply(*end, dirty.base.data());
      dirty.written |= bytes_of(*end);
    }
    dirty.events.erase(dirty.events.begin(), end);
    put(note.unit, dirty.base.data(), active_ + 1);  // V1
    if (dirty.events.empty()) drop_dirty(level, note.unit);
  }
  level.noted[thread].clear();
}

void Arena::unsynced(std::size_t at, std::size_t bytes, unsigned thread,
                     std::vector<Unsynced>& out) const {
  const Level& level = levels_[active_];
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    const std::uint32_t index = level.dirty_of[unit];
    if (index == 0) continue;
    const std::size_t start = unit << shift_;
    const std::uint64_t seen = bytes_between(std::max(at, start) - start,
                                             std::min(at + bytes, start + model_.unit) - start);
    alignas(8) Bytes now = level.dirty[index - 1].base;
    for (const Event& event : level.dirty[index - 1].events) {
      if ((bytes_of(event) & seen) == 0) continue;
      const Bytes before = now;
      apply(event, now.data());
      // Who stores what is there already loses nothing.
      const bool changes = !same_in(before, now, seen);
      if (changes && event.thread != thread && event.thread != kAnyThread)
        out.push_back({static_cast<std::uint32_t>(unit), event.number});
    }
  }
}

bool Arena::still(const Unsynced& store) const {
  const Level& level = levels_[active_];
  const std::uint32_t index = level.dirty_of[store.unit];
  return index != 0 && std::ranges::find(level.dirty[index - 1].events, store.number,
                                         &Event::number) != level.dirty[index - 1].events.end();
}

// --- Choices -------------------------------------------------------------------------------------

void Arena::set_open(Level& level, const Undecided& u, std::uint32_t index) const {
  level.undecided_of[u.unit] = index;
  const std::size_t words = model_.unit / 8;
  const std::size_t word = u.unit * words;
  std::uint8_t& line = level.open[word / kLineWords];
  const auto place = [&](std::uint64_t set) {
    return static_cast<std::uint8_t>((set & all_of(words)) << word % kLineWords);
  };
  line &= static_cast<std::uint8_t>(~place(~std::uint64_t{0}));
  if (index != 0) line |= place(u.differ);
}

void Arena::decide(std::size_t at, std::size_t bytes) {
  Level& level = levels_[active_];
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    const std::uint32_t index = level.undecided_of[unit];
    if (index == 0) continue;
    const std::size_t start = unit << shift_;
    const std::size_t from = std::max(at, start) - start;
    const std::size_t to = std::min(at + bytes, start + model_.unit) - start;
    decide_unit(level.undecided[index - 1], from, to);
  }
}

// A choice: other executions have the rest.
void Arena::narrow(Undecided& u, std::uint64_t open) {
  if ((open & u.open & -u.open) == 0) u.beside = 0;
  u.open = open;
}

// No other execution has the rest.
void Arena::stand_for(Undecided& u, std::uint64_t open) {
  u.beside += static_cast<std::uint64_t>(std::popcount(u.open) - std::popcount(open));
  u.open = open;
}

// Groups the images by what the read sees of them, and takes one group.
void Arena::decide_unit(Undecided& u, std::size_t from, std::size_t to) {
  choose_content(u, bytes_between(from, to) & ~u.written);
  if (std::has_single_bit(u.open)) decided(u);
}

void Arena::choose_content(Undecided& u, std::uint64_t seen) {
  std::array<std::uint64_t, kMostImages> groups;
  std::uint32_t count = 0;
  for (std::uint64_t left = u.open; left != 0; left &= left - 1) {
    const unsigned image = lowest(left);
    std::uint32_t g = 0;
    while (g < count && !same_in(u.images[lowest(groups[g])].bytes, u.images[image].bytes, seen))
      ++g;
    if (g == count) groups[count++] = 0;
    groups[g] |= std::uint64_t{1} << image;
  }
  if (count > 1) {
    narrow(u, groups[choose(count)]);
    fill(u);
  }
}

// The open images that have the same bytes there.
std::uint64_t Arena::alike(const Undecided& u, unsigned image, std::uint64_t seen) {
  std::uint64_t same = 0;
  for (std::uint64_t left = u.open; left != 0; left &= left - 1) {
    if (same_in(u.images[image].bytes, u.images[lowest(left)].bytes, seen)) same |= left & -left;
  }
  return same;
}

void Arena::decided(const Undecided& u) {
  set_open(levels_[active_], u, 0);
  --undecided_count_;
}

// A reader that excluded the newest image will not find the checksum right, whichever is taken.
unsigned Arena::newest_of(const Undecided& u) {
  const auto highest = static_cast<unsigned>(std::bit_width(u.open)) - 1;
  return (u.open >> u.newest & 1) != 0 ? static_cast<unsigned>(u.newest) : highest;
}

void Arena::verify_over(std::size_t at, std::size_t bytes) {
  if (undecided_count_ == 0 || bytes == 0) return;
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    const std::uint32_t index = levels_[active_].undecided_of[unit];
    if (index == 0) continue;
    const std::size_t start = unit << shift_;
    cover(index - 1, std::max(at, start) - start,
          std::min(at + bytes, start + model_.unit) - start);
  }
}

void Arena::cover(std::uint32_t index, std::size_t from, std::size_t to) {
  Undecided& u = levels_[active_].undecided[index];
  const std::uint64_t seen = bytes_between(from, to) & ~u.written;
  const std::uint64_t newest = alike(u, newest_of(u), seen);
  const std::uint64_t oldest = alike(u, lowest(u.open), seen);
  if (u.verified != 0) {
    Verified& v = verified_[u.verified - 1];
    v = {index, v.newest & newest, v.oldest & oldest, v.seen | seen};
    return;
  }
  verified_.push_back({index, newest, oldest, seen});
  u.verified = static_cast<std::uint32_t>(verified_.size());
}

void Arena::verify_begin() {
  std::erase_if(verified_, [&](Verified& v) {
    Undecided& u = levels_[active_].undecided[v.index];
    u.verified = 0;
    if (u.mixed) {
      choose_content(u, v.seen);
      if (std::has_single_bit(u.open)) decided(u);
      return true;
    }
    return v.newest == u.open;
  });
  const std::size_t n = verified_.size();
  const auto open_of = [&](const Verified& v) -> Undecided& {
    return levels_[active_].undecided[v.index];
  };
  const auto told =
      std::ranges::find_if(verified_, [](const Verified& v) { return (v.newest & v.oldest) == 0; });
  const auto first = static_cast<std::size_t>(told - verified_.begin());
  const std::uint64_t between =
      first == n ? 0 : open_of(*told).open & ~told->newest & ~told->oldest;
  const std::size_t without = first < n && between == 0 ? 1 : 0;
  const std::size_t torn_choices = n - without;
  const std::size_t choices = torn_choices + (n - first) + 1;
  const std::size_t pick = n == 0 ? 0 : choose(static_cast<std::uint32_t>(choices));
  std::size_t newest_to = n;
  std::size_t torn = n;
  open_from_ = n;
  if (pick < torn_choices) {
    newest_to = torn = pick + (pick >= first ? without : 0);
    open_from_ = torn + 1;
  } else if (pick + 1 < choices) {
    newest_to = first;
    open_from_ = first + 1 + (pick - torn_choices);
  }
  for (std::size_t i = 0; i < n; ++i) {
    const Verified& v = verified_[i];
    Undecided& u = open_of(v);
    set_open(levels_[active_], u, 0);  // the reads of the checksum decide nothing of it
    if (i < newest_to) {
      narrow(u, u.open & v.newest);
    } else if (i == torn) {
      narrow(u, i == first ? between : u.open & ~v.newest);
    } else if (i < open_from_) {
      narrow(u, u.open & v.oldest);
    } else {
      if (torn == n && i == open_from_) narrow(u, u.open & ~v.oldest);
      const std::uint64_t stays_open = u.open;
      if ((u.open & v.newest) != 0) u.open &= v.newest;
      fill(u);
      u.open = stays_open;
      continue;
    }
    fill(u);
  }
}

void Arena::verify_end(bool whole) {
  for (std::size_t i = 0; i < verified_.size(); ++i) {
    Undecided& u = levels_[active_].undecided[verified_[i].index];
    set_open(levels_[active_], u, verified_[i].index + 1);
    if (i >= open_from_) {
      const std::uint64_t newest = u.open & verified_[i].newest;
      if (whole) stand_for(u, newest != 0 ? newest : u.open & -u.open);  // what was tried
      fill(u);
    } else if (whole) {
      stand_for(u, alike(u, lowest(u.open), verified_[i].seen));
    }
    if (std::has_single_bit(u.open)) decided(u);
  }
  verified_.clear();
}

// V4.
void Arena::fill(const Undecided& u) {
  touch(u.unit);
  Bytes bytes = u.images[lowest(u.open)].bytes;
  if (reading_) {  // V5; nothing is stored on the level itself yet
    Bytes copy = bytes;
    overlay(copy, u.written, now_.base + u.unit * model_.unit);
    put(u.unit, bytes.data(), active_);
    return copy_unit(now_.base + u.unit * model_.unit, copy.data());
  }
  overlay(bytes, u.written, unit_at(active_, u.unit));
  copy_unit(unit_at(active_, u.unit), bytes.data());
  const std::uint32_t dirty = levels_[active_].dirty_of[u.unit];
  if (dirty != 0) {
    Dirty& d = levels_[active_].dirty[dirty - 1];
    bytes = u.images[lowest(u.open)].bytes;
    overlay(bytes, d.written, d.base.data());
    d.base = bytes;
  }
  put(u.unit, bytes.data(), active_ + 1);
}

std::uint32_t Arena::choose(std::uint32_t count) {
  Level& level = levels_[active_];
  if (level.next_choice == level.path.size()) level.path.push_back({0, count});
  const Choice choice = level.path[level.next_choice++];
  if (choice.count != count && choice.count != 0) {
    if (paths_are_given_) {
      std::fputs("everleaf-crash: this replay line is of another build: recovery reads otherwise\n",
                 stderr);
      ::_exit(2);
    }
    std::fputs("everleaf-crash: recovery is not deterministic: the same choices met another read\n",
               stderr);
    std::abort();
  }
  // A pick that was given without a count: what it comes to here is what replays it.
  Choice& made = level.path[level.next_choice - 1];
  made = {choice.pick == kLast ? count - 1 : choice.pick % count, count};
  return made.pick;
}

std::uint32_t Arena::picks() const {
  const Level& level = levels_[active_];
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < level.next_choice; ++i) sum += level.path[i].pick;
  return sum;
}

bool Arena::advance(std::vector<Choice>& path) {
  while (!path.empty() && path.back().pick + 1 >= path.back().count) path.pop_back();
  if (path.empty()) return false;
  ++path.back().pick;
  return true;
}

// --- Executions ----------------------------------------------------------------------------------

Arena::Undecided& Arena::add_undecided(Level& level, std::uint32_t unit) {
  if (level.undecided_count == level.undecided.size()) level.undecided.emplace_back();
  Undecided& u = level.undecided[level.undecided_count++];
  u.unit = unit;
  u.images.clear();
  u.stores = 0;
  u.verified = 0;
  u.mixed = false;
  return u;
}

void Arena::add_image(Undecided& u, const Bytes& bytes, std::size_t survived) {
  for (u.newest = 0; u.newest < u.images.size(); ++u.newest) {
    // Stores may lead back to what was there before.
    if (same_words(u.images[u.newest].bytes.data(), bytes.data(), model_.unit)) return;
  }
  if (u.images.size() == kMostImages) {
    ++merged_;
    u.images.pop_back();  // the newest is always there
    --u.newest;
  }
  u.images.push_back({bytes, static_cast<std::uint8_t>(survived)});
}

// Some of the stores of a group, which may be made in any order: each subset of few; of many, what
// begins at either end, one alone, and all but one.
void Arena::add_subsets(Undecided& u, const Bytes& base, std::span<const Event> group,
                        std::size_t before) {
  constexpr std::size_t kEach = 4;
  const std::size_t n = group.size();
  const std::uint64_t all = all_of(n);
  const auto add = [&](std::uint64_t set) {
    Bytes some = base;
    for (std::uint64_t left = set; left != 0; left &= left - 1) {
      apply(group[lowest(left)], some.data());
    }
    add_image(u, some, before + static_cast<std::size_t>(std::popcount(set)));
  };
  if (n <= kEach) {
    for (std::uint64_t set = 1; set < all; ++set) add(set);
    return;
  }
  for (std::size_t i = n - 1; i > 0; --i) add(all & ~all_of(i));
  for (std::size_t i = 0; i < n; ++i) {
    add(std::uint64_t{1} << i);
    add(all & ~(std::uint64_t{1} << i));
  }
}

// `base` and the events of the unit up to each.
void Arena::add_images(Undecided& u, const Bytes& base, const Dirty& dirty, std::size_t before) {
  Bytes now = base;
  add_image(u, now, before);
  const std::span<const Event> events(dirty.events);
  for (std::size_t i = 0; i < events.size(); ++i) {
    const std::uint64_t group = events[i].group;
    if (group != 0 && (i == 0 || events[i - 1].group != group)) {
      std::size_t end = i + 1;
      while (end < events.size() && events[end].group == group) ++end;
      add_subsets(u, now, events.subspan(i, end - i), before + i);
    }
    apply(events[i], now.data());
    add_image(u, now, before + i + 1);
  }
}

void Arena::finish(Undecided& u) {
  u.id = mix(9, u.unit);
  u.differ = 0;
  for (const Image& image : u.images) {
    u.id = hash_words(u.id, image.bytes.data(), kUnitMost);
    for (unsigned word = 0; word < kLineWords; ++word) {
      const bool differs = word_of(image.bytes, word) != word_of(u.images.front().bytes, word);
      u.differ |= static_cast<std::uint8_t>(differs ? 1U << word : 0U);
    }
  }
}

void Arena::enter() {
  Level& from = levels_[active_];
  from.recording = recording_;
  Level& to = levels_[active_ + 1];
  to.undecided_count = 0;
  for (std::size_t i = 0; i < from.dirty_count; ++i) {
    const Dirty& dirty = from.dirty[i];
    // An undecided one: below.
    if (dirty.events.empty() || from.undecided_of[dirty.unit] != 0) continue;
    Undecided& u = add_undecided(to, dirty.unit);
    u.stores = dirty.events.size();
    add_images(u, dirty.base, dirty, 0);
    finish(u);
  }
  // What recovery has not looked at is as open as it was, but for what it wrote.
  for (const Undecided& old : undecided(from)) {
    const std::uint32_t index = from.dirty_of[old.unit];
    if (from.undecided_of[old.unit] == 0) {
      for (Undecided& u : undecided(to)) u.mixed = u.mixed || (index != 0 && u.unit == old.unit);
      continue;
    }
    Undecided& u = add_undecided(to, old.unit);
    const Dirty* const dirty = index == 0 ? nullptr : &from.dirty[index - 1];
    u.stores = old.stores + (dirty == nullptr ? 0 : dirty->events.size());
    u.mixed = old.mixed || dirty != nullptr || old.written != 0;
    const auto add = [&](const Image& image) {
      Bytes bytes = image.bytes;
      if (dirty != nullptr) {
        overlay(bytes, dirty->written, dirty->base.data());
        add_images(u, bytes, *dirty, image.survived);
      } else {
        overlay(bytes, old.written, unit_at(active_, old.unit));
        add_image(u, bytes, image.survived);
      }
    };
    for (std::uint64_t left = old.open; left != 0; left &= left - 1) add(old.images[lowest(left)]);
    add(old.images[newest_of(old)]);  // again: what comes of it is the newest
    finish(u);
  }
  now_.base = base(++active_);
  now_.open = to.open.data();
  undecided_count_ = 0;
  recording_ = active_ < deepest();
}

void Arena::leave() {
  now_.base = base(--active_);
  recording_ = levels_[active_].recording;
  now_.open = levels_[active_].open.data();
  undecided_count_ = 0;
  for (const Undecided& u : undecided(levels_[active_])) {
    undecided_count_ += levels_[active_].undecided_of[u.unit] != 0 ? 1U : 0U;
  }
}

void Arena::begin(std::vector<Choice> path) {
  Level& level = levels_[active_];
  level.path = std::move(path);
  level.next_choice = 0;
  now_.open = level.open.data();
  undecided_count_ = 0;
  for (std::size_t i = 0; i < level.undecided_count; ++i) {
    Undecided& u = level.undecided[i];
    u.open = all_of(u.images.size());
    u.beside = 0;
    u.written = 0;
    if (u.images.size() == 1) continue;
    set_open(level, u, static_cast<std::uint32_t>(i + 1));
    ++undecided_count_;
  }
  recording_ = active_ < deepest();
  lowest_beyond_ = false;
}

void Arena::end() {
  Level& level = levels_[active_];
  for (const Undecided& u : undecided(level)) set_open(level, u, 0);
  undecided_count_ = 0;
  for (const Saved& saved : level.undo) {
    if (level.touched[saved.unit] == kBelow) {
      put(saved.unit, saved.bytes.data(), active_);
    } else {
      copy_unit(unit_at(active_, saved.unit), saved.bytes.data());
    }
    level.touched[saved.unit] = 0;
  }
  level.undo.clear();
  for (std::size_t i = 0; i < level.dirty_count; ++i) level.dirty_of[level.dirty[i].unit] = 0;
  level.dirty_count = 0;
  for (auto& notes : level.noted) notes.clear();
}

// --- Readers -------------------------------------------------------------------------------------

void Arena::begin_reading() {
  reading_ = true;
  strayed_ = false;
  levels_[active_].recording = recording_;
  recording_ = false;
  now_.base = readers_base();
}

void Arena::reader_will_write(std::size_t at, std::size_t bytes) {
  strayed_ = strayed_ || at > capacity_ || bytes > capacity_ - at;
  if (strayed_) return;
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    if (is_copied_[unit] == 0) copied_.push_back(static_cast<std::uint32_t>(unit));
    is_copied_[unit] = 1;
    const std::uint32_t index = levels_[active_].undecided_of[unit];
    if (index == 0) continue;
    const std::size_t start = unit << shift_;
    levels_[active_].undecided[index - 1].written |= bytes_between(
        std::max(at, start) - start, std::min(at + bytes, start + model_.unit) - start);
  }
}

bool Arena::end_reading() {
  Level& level = levels_[active_];
  for (const std::uint32_t unit : copied_) {
    is_copied_[unit] = 0;
    copy_unit(unit_at(levels_.size(), unit), unit_at(active_, unit));
    const std::uint32_t index = level.undecided_of[unit];
    if (index != 0) level.undecided[index - 1].written = 0;
  }
  copied_.clear();
  reading_ = false;
  recording_ = level.recording;
  now_.base = base(active_);
  return !strayed_;
}

// --- States --------------------------------------------------------------------------------------

bool Arena::wrote_beyond(std::size_t bytes) const {
  return lowest_beyond_ && beyond_ == bytes;
}

std::uint64_t Arena::state_hash() const {
  const Level& level = levels_[active_];
  std::uint64_t hash = 0;
  // Sums, so that the order of units does not matter.
  for (const Saved& saved : level.undo) {
    hash += hash_unit(saved.unit, unit_at(active_ + 1, saved.unit), model_.unit);
  }
  for (std::size_t i = 0; i < level.dirty_count; ++i) {
    std::uint64_t one = mix(11, level.dirty[i].unit);
    for (const Event& event : level.dirty[i].events) {
      one = mix(mix(one, event.value), event.at + 256U * event.size);
    }
    hash += spread(one);
  }
  for (std::size_t i = 0; i < level.undecided_count; ++i) {
    const Undecided& u = level.undecided[i];
    if (level.undecided_of[u.unit] == 0) continue;
    const std::uint32_t dirty = level.dirty_of[u.unit];
    hash += spread(mix(mix(u.id, u.open), dirty == 0 ? u.written : level.dirty[dirty - 1].written));
  }
  return hash;
}

std::optional<std::uint64_t> Arena::content_hash() const {
  if (undecided_count_ != 0) return std::nullopt;
  std::uint64_t hash = 0;
  // What differs from the durable bytes of level 0: a unit counts on the first level that saved it.
  for (std::size_t level = 1; level <= active_; ++level) {
    for (const Saved& saved : levels_[level].undo) {
      bool before = false;
      for (std::size_t i = 1; i < level; ++i)
        before = before || levels_[i].touched[saved.unit] != 0;
      const std::byte* const now = unit_at(active_, saved.unit);
      if (before || same_words(saved.bytes.data(), now, model_.unit)) continue;
      hash += hash_unit(saved.unit, now, model_.unit);
    }
  }
  return hash;
}

// --- Audit, images, words ------------------------------------------------------------------------

std::string Arena::audit(bool everything, std::size_t bytes) {
  const Level& level = levels_[active_];
  if (!recording_) return {};
  const auto escaped = [&](std::uint32_t unit) {
    return fmt::format(
        "an access escaped the hooks: the unit at offset {} is not what the recorded "
        "stores make of it",
        unit * model_.unit);
  };
  for (std::size_t i = 0; i < level.dirty_count; ++i) {
    const Dirty& dirty = level.dirty[i];
    alignas(8) Bytes now;
    copy_unit(now.data(), dirty.base.data());
    for (const Event& event : dirty.events) apply(event, now.data());
    if (!same_words(now.data(), unit_at(active_, dirty.unit), model_.unit)) {
      return escaped(dirty.unit);
    }
  }
  if (!everything) return {};
  for (std::size_t page = 0; page < bytes; page += 4096) {
    if (same_words(base(active_) + page, base(active_ + 1) + page, 4096)) continue;
    for (std::size_t unit = page >> shift_; unit < (page + 4096) >> shift_; ++unit) {
      const auto u = static_cast<std::uint32_t>(unit);
      if (level.dirty_of[unit] == 0 &&
          !same_words(unit_at(active_, u), unit_at(active_ + 1, u), model_.unit)) {
        return escaped(u);
      }
    }
  }
  return {};
}

std::uint64_t Arena::images() {
  std::uint64_t product = 1;
  for (const Undecided& u : undecided(levels_[active_])) {
    if (product > (std::uint64_t{1} << 62) / u.images.size()) return ~std::uint64_t{0};
    product *= u.images.size();
  }
  return product;
}

std::uint64_t Arena::stands_for() {
  std::uint64_t product = 1;
  for (const Undecided& u : undecided(levels_[active_])) {
    product *= static_cast<std::uint64_t>(std::popcount(u.open)) + u.beside;
  }
  return product;
}

void Arena::choose_image(std::uint64_t number) {
  for (Undecided& u : undecided(levels_[active_])) {
    u.open = std::uint64_t{1} << number % u.images.size();
    number /= u.images.size();
    fill(u);
    set_open(levels_[active_], u, 0);
  }
  undecided_count_ = 0;
}

std::string Arena::describe_lost() {
  std::string text;
  for (const Undecided& u : undecided(levels_[active_])) {
    if (u.stores == 0) continue;
    text += fmt::format("  offset {:#x}: {} of {} unsynced stores survived{}\n",
                        u.unit * model_.unit, u.images[lowest(u.open)].survived, u.stores,
                        std::has_single_bit(u.open) ? "" : " at least (not looked at further)");
  }
  return text;
}

}  // namespace everleaf::crash
