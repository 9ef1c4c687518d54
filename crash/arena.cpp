#include "arena.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <sys/mman.h>

namespace everleaf::crash {
namespace {

// Not memcpy, which is wrapped in this program.
void copy_words(std::byte* to, const std::byte* from, std::size_t bytes) {
  auto* const t = reinterpret_cast<std::uint64_t*>(to);
  const auto* const f = reinterpret_cast<const std::uint64_t*>(from);
  for (std::size_t i = 0; i < bytes / 8; ++i) t[i] = f[i];
}

bool same_words(const std::byte* a, const std::byte* b, std::size_t bytes) {
  return std::memcmp(a, b, bytes) == 0;
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

std::uint64_t all_cuts(std::size_t events) {
  return events >= 63 ? ~std::uint64_t{0} : (std::uint64_t{2} << events) - 1;
}

}  // namespace

Arena::Arena(std::size_t capacity, std::size_t levels, Model model)
    : capacity_(capacity),
      model_(model),
      shift_(static_cast<unsigned>(std::countr_zero(model.unit))),
      levels_(std::min(levels, kMostLevels)) {
  void* const memory = ::mmap(nullptr, capacity * levels_.size(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the arena");
  base_ = static_cast<std::byte*>(memory);
  for (Level& level : levels_) {
    level.dirty_of.resize(capacity >> shift_);
    level.undecided_of.resize(capacity >> shift_);
    level.touched.resize(capacity >> shift_);
  }
  recording_ = levels_.size() > 1;
}

Arena::~Arena() {
  ::munmap(base_, capacity_ * levels_.size());
}

void Arena::copy_unit(std::byte* to, const std::byte* from) const {
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
  const std::size_t last = (at + bytes - 1) >> shift_;
  for (std::size_t unit = at >> shift_; unit <= last; ++unit) {
    if (undecided_count_ != 0) {
      const std::uint32_t index = levels_[active_].undecided_of[unit];
      // V2. The whole unit, since the store makes all of it differ.
      if (index != 0) decide_unit(levels_[active_].undecided[index - 1], 0, model_.unit);
    }
    touch(static_cast<std::uint32_t>(unit));
    if (recording_ && !model_.all_survive) dirty_unit(static_cast<std::uint32_t>(unit));
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
  copy_unit(fresh.base.data(), unit_at(active_, unit));
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

void Arena::add_event(std::uint32_t unit, std::size_t at, std::size_t size, const void* pc) {
  Event event{static_cast<std::uint8_t>(at), static_cast<std::uint8_t>(size), 0, pc,
              ++levels_[active_].events};
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
    dirty.events.erase(dirty.events.begin());
  }
  dirty.events.push_back(event);
}

void Arena::wrote(std::size_t at, std::size_t bytes, const void* pc) {
  ++stores_;
  last_store_ = pc;
  if (!recording_) return;
  const std::size_t end = at + bytes;
  while (at < end) {
    // Words are indivisible, more is not.
    const std::size_t size = std::min(end, (at / 8 + 1) * 8) - at;
    const auto unit = static_cast<std::uint32_t>(at >> shift_);
    if (model_.all_survive) {
      put(unit, unit_at(active_, unit), active_ + 1);
    } else {
      add_event(unit, at & (model_.unit - 1), size, pc);
    }
    at += size;
  }
}

void Arena::put(std::uint32_t unit, const std::byte* bytes, std::size_t from_level) {
  for (std::size_t level = from_level; level < levels_.size(); ++level) {
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
    }
    dirty.events.erase(dirty.events.begin(), end);
    put(note.unit, dirty.base.data(), active_ + 1);  // V1
    if (dirty.events.empty()) drop_dirty(level, note.unit);
  }
  level.noted[thread].clear();
}

// --- Choices -------------------------------------------------------------------------------------

void Arena::image(const Undecided& u, unsigned cut, std::byte* bytes) const {
  copy_unit(bytes, u.history->base.data());
  for (unsigned i = 0; i < cut; ++i) apply(u.history->events[i], bytes);
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

// Groups the cuts by what the read sees of them, and takes one group.
void Arena::decide_unit(Undecided& u, std::size_t from, std::size_t to) {
  struct Group {
    alignas(8) Bytes bytes;
    std::uint64_t cuts;
  };
  static std::array<Group, kMostEvents + 1> groups;
  std::uint32_t count = 0;
  alignas(8) Bytes now;
  copy_unit(now.data(), u.history->base.data());
  const auto events = static_cast<unsigned>(u.history->events.size());
  for (unsigned cut = 0; cut <= events; ++cut) {
    if (cut != 0) apply(u.history->events[cut - 1], now.data());
    if ((u.cuts >> cut & 1) == 0) continue;
    std::uint32_t g = 0;
    while (g < count && !same_words(groups[g].bytes.data() + from, now.data() + from, to - from))
      ++g;
    if (g == count) {
      groups[count++] = {now, 0};
    }
    groups[g].cuts |= std::uint64_t{1} << cut;
  }
  if (count > 1) {
    u.cuts = groups[choose(count)].cuts;
    fill(u);
  }
  const bool whole = from == 0 && to == model_.unit;
  if (whole || std::has_single_bit(u.cuts)) {
    levels_[active_].undecided_of[u.unit] = 0;
    --undecided_count_;
  }
}

void Arena::fill(const Undecided& u) {
  touch(u.unit);
  alignas(8) Bytes bytes;
  image(u, static_cast<unsigned>(std::countr_zero(u.cuts)), bytes.data());
  put(u.unit, bytes.data(), active_);
}

std::uint32_t Arena::choose(std::uint32_t count) {
  Level& level = levels_[active_];
  if (level.next_choice == level.path.size()) level.path.push_back({0, count});
  const Choice choice = level.path[level.next_choice++];
  if (choice.count != count && choice.count != 0) {
    std::fputs("everleaf-crash: recovery is not deterministic: the same choices met another read\n",
               stderr);
    std::abort();
  }
  // A pick that was given without a count: what it comes to here is what replays it.
  Choice& made = level.path[level.next_choice - 1];
  made = {choice.pick == kLast ? count - 1 : choice.pick % count, count};
  return made.pick;
}

bool Arena::advance(std::vector<Choice>& path) {
  while (!path.empty() && path.back().pick + 1 >= path.back().count) path.pop_back();
  if (path.empty()) return false;
  ++path.back().pick;
  return true;
}

// --- Executions ----------------------------------------------------------------------------------

void Arena::enter() {
  Level& from = levels_[active_];
  from.recording = recording_;
  Level& to = levels_[active_ + 1];
  to.undecided.clear();
  for (std::size_t i = 0; i < from.dirty_count; ++i) {
    const Dirty& dirty = from.dirty[i];
    if (dirty.events.empty()) continue;
    const std::uint64_t cuts = all_cuts(dirty.events.size());
    to.undecided.push_back({dirty.unit, &dirty, cuts, cuts});
  }
  // What recovery has not looked at is as open as it was.
  for (const Undecided& u : from.undecided) {
    if (from.undecided_of[u.unit] != 0) to.undecided.push_back({u.unit, u.history, u.cuts, u.cuts});
  }
  ++active_;
  recording_ = active_ < deepest();
}

void Arena::leave() {
  --active_;
  recording_ = levels_[active_].recording;
  undecided_now_ = levels_[active_].undecided_of.data();
  undecided_count_ = 0;
  for (const Undecided& u : levels_[active_].undecided) {
    undecided_count_ += levels_[active_].undecided_of[u.unit] != 0 ? 1U : 0U;
  }
}

void Arena::begin(std::vector<Choice> path) {
  Level& level = levels_[active_];
  level.path = std::move(path);
  level.next_choice = 0;
  for (std::size_t i = 0; i < level.undecided.size(); ++i) {
    level.undecided[i].cuts = level.undecided[i].start;
    level.undecided_of[level.undecided[i].unit] = static_cast<std::uint32_t>(i + 1);
  }
  undecided_now_ = level.undecided_of.data();
  undecided_count_ = level.undecided.size();
  recording_ = active_ < deepest();
  lowest_beyond_ = false;
}

void Arena::end() {
  Level& level = levels_[active_];
  for (const Undecided& u : level.undecided) level.undecided_of[u.unit] = 0;
  undecided_count_ = 0;
  for (const Saved& saved : level.undo) {
    level.touched[saved.unit] = 0;
    put(saved.unit, saved.bytes.data(), active_);
  }
  level.undo.clear();
  for (std::size_t i = 0; i < level.dirty_count; ++i) level.dirty_of[level.dirty[i].unit] = 0;
  level.dirty_count = 0;
  for (auto& notes : level.noted) notes.clear();
}

bool Arena::wrote_beyond(std::size_t bytes) const {
  return lowest_beyond_ && beyond_ == bytes;
}

std::uint64_t Arena::state_hash() const {
  const Level& level = levels_[active_];
  std::uint64_t hash = 0;
  // Sums, so that the order of units does not matter.
  for (const Saved& saved : level.undo) {
    hash += hash_words(saved.unit + 1, unit_at(active_ + 1, saved.unit), model_.unit);
  }
  for (std::size_t i = 0; i < level.dirty_count; ++i) {
    std::uint64_t one = mix(7, level.dirty[i].unit);
    for (const Event& event : level.dirty[i].events) {
      one = mix(mix(one, event.value), event.at + 256U * event.size);
    }
    hash += one;
  }
  for (const Undecided& u : level.undecided) {
    if (level.undecided_of[u.unit] != 0) hash += mix(mix(11, u.unit), u.cuts);
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

std::uint64_t Arena::images() const {
  std::uint64_t product = 1;
  for (const Undecided& u : levels_[active_].undecided) {
    const auto cuts = static_cast<std::uint64_t>(std::popcount(u.start));
    if (product > (std::uint64_t{1} << 62) / cuts) return ~std::uint64_t{0};
    product *= cuts;
  }
  return product;
}

void Arena::choose_image(std::uint64_t number) {
  for (Undecided& u : levels_[active_].undecided) {
    const auto cuts = static_cast<std::uint64_t>(std::popcount(u.start));
    std::uint64_t left = u.start;
    for (std::uint64_t skip = number % cuts; skip != 0; --skip) left &= left - 1;
    number /= cuts;
    u.cuts = left & ~(left - 1);
    fill(u);
    levels_[active_].undecided_of[u.unit] = 0;
  }
  undecided_count_ = 0;
}

std::string Arena::describe_lost() const {
  std::string text;
  for (const Undecided& u : levels_[active_].undecided) {
    const auto stores = u.history->events.size();
    const bool open = levels_[active_].undecided_of[u.unit] != 0;
    const auto least = static_cast<std::size_t>(std::countr_zero(u.cuts));
    text += fmt::format(
        "  offset {:#x}: {} of {} unsynced stores survived{}\n", u.unit * model_.unit, least,
        stores, open && !std::has_single_bit(u.cuts) ? " at least (not looked at further)" : "");
  }
  return text;
}

}  // namespace everleaf::crash
