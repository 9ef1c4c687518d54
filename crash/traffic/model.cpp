#include "traffic/model.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace everleaf::crash {
namespace {

constexpr std::size_t kWords = kLineBytes / 8;

template <class F>
void for_lines(std::size_t at, std::size_t bytes, F&& each) {
  for (std::uint64_t line = at / kLineBytes; line <= (at + bytes - 1) / kLineBytes; ++line) {
    each(line);
  }
}

}  // namespace

Machine pcm_machine() {
  Machine machine;
  machine.caches = {{32 << 10, 8, 4}, {256 << 10, 8, 11}, {8 << 20, 16, 39}};
  machine.flush = FlushBy::clflushopt;  // the paper's clflush throws lines away
  return machine;
}

Machine optane_machine() {
  Machine machine;
  machine.caches = {{48 << 10, 12, 5}, {1280 << 10, 20, 14}, {42 << 20, 12, 70}};
  return machine;
}

Machine scaled(Machine machine, double scale) {
  for (CacheShape& cache : machine.caches) {
    cache.bytes = std::max(static_cast<std::size_t>(static_cast<double>(cache.bytes) * scale),
                           cache.ways * kLineBytes);
  }
  return machine;
}

TrafficCounts TrafficCounts::operator-(const TrafficCounts& other) const {
  return {reads - other.reads,
          writes - other.writes,
          media_reads - other.media_reads,
          media_writes - other.media_writes,
          flushes - other.flushes,
          fences - other.fences,
          words_changed - other.words_changed,
          bits_changed - other.bits_changed,
          cycles - other.cycles};
}

double picojoules(const TrafficCounts& counts, const Machine& machine) {
  return static_cast<double>(counts.reads * kLineBytes * 8) * machine.read_picojoules +
         static_cast<double>(counts.bits_changed) * machine.write_picojoules;
}

Cache::Cache(const CacheShape& shape)
    : ways_(shape.ways),
      sets_(std::max<std::size_t>(1, shape.bytes / kLineBytes / shape.ways)),
      lines_(ways_ * sets_, kEmpty) {}

std::span<std::uint64_t> Cache::set_of(std::uint64_t line) {
  return std::span(lines_).subspan(line % sets_ * ways_, ways_);
}

bool Cache::touch(std::uint64_t line) {
  const auto set = set_of(line);
  const auto place = std::ranges::find(set, line);
  if (place == set.end()) return false;
  std::rotate(set.begin(), place, place + 1);
  return true;
}

std::optional<std::uint64_t> Cache::add(std::uint64_t line) {
  const auto set = set_of(line);
  const std::uint64_t last = set.back();
  std::rotate(set.begin(), set.end() - 1, set.end());
  set.front() = line;
  return last == kEmpty ? std::nullopt : std::optional(last);
}

void Cache::remove(std::uint64_t line) {
  const auto set = set_of(line);
  const auto place = std::ranges::find(set, line);
  if (place == set.end()) return;
  *place = kEmpty;
  std::rotate(place, place + 1, set.end());  // what is empty is filled first
}

TrafficModel::TrafficModel(std::span<const std::byte> memory, Machine machine)
    : memory_(memory),
      medium_(memory.begin(), memory.end()),
      machine_(std::move(machine)),
      dirty_(memory.size() / kLineBytes),
      rank_free_(machine_.ranks) {
  for (const CacheShape& shape : machine_.caches) caches_.emplace_back(shape);
}

void TrafficModel::read(std::size_t at, std::size_t bytes) {
  for_lines(at, bytes, [&](std::uint64_t line) { access(line, false); });
}

void TrafficModel::stored(std::size_t at, std::size_t bytes) {
  for_lines(at, bytes, [&](std::uint64_t line) { access(line, true); });
}

void TrafficModel::access(std::uint64_t line, bool writes) {
  std::size_t level = 0;
  while (level < caches_.size()) {
    counts_.cycles += machine_.caches[level].cycles;
    if (caches_[level].touch(line)) break;
    ++level;
  }
  if (level == caches_.size()) {
    ++counts_.reads;
    counts_.cycles += machine_.read_cycles;
    Block& block = block_of(line);
    if (!block.filled && (block.dirty >> line % kBlockLines & 1) == 0) {
      ++counts_.media_reads;
      block.filled = true;
    }
  }
  // From the outside in, so that what goes there goes everywhere.
  while (level-- > 0) {
    const auto victim = caches_[level].add(line);
    if (victim && level + 1 == caches_.size()) drop(*victim);
  }
  if (writes) dirty_[line] = true;
}

void TrafficModel::drop(std::uint64_t line) {
  for (Cache& cache : caches_) cache.remove(line);
  if (dirty_[line]) write_back(line);
}

void TrafficModel::write_back(std::uint64_t line) {
  dirty_[line] = false;
  ++counts_.writes;
  std::uint64_t changed = 0;
  for (std::size_t word = 0; word < kWords; ++word) {
    const std::size_t at = line * kLineBytes + word * 8;
    std::uint64_t now = 0;
    std::uint64_t before = 0;
    std::memcpy(&now, memory_.data() + at, 8);
    std::memcpy(&before, medium_.data() + at, 8);
    if (now == before) continue;
    ++changed;
    counts_.bits_changed += static_cast<std::uint64_t>(std::popcount(now ^ before));
    std::memcpy(medium_.data() + at, &now, 8);
  }
  counts_.words_changed += changed;
  std::uint64_t& free = rank_free_[line % rank_free_.size()];
  free = std::max(free, counts_.cycles) + changed * machine_.write_cycles_per_word;
  block_of(line).dirty |= 1U << line % kBlockLines;
}

void TrafficModel::flushed(std::size_t at, std::size_t bytes) {
  for_lines(at, bytes, [&](std::uint64_t line) {
    ++counts_.flushes;
    if (machine_.flush == FlushBy::none) return;
    if (dirty_[line]) {
      write_back(line);
      flushed_until_ = std::max(flushed_until_, rank_free_[line % rank_free_.size()]);
    }
    if (machine_.flush == FlushBy::clflushopt) {
      for (Cache& cache : caches_) cache.remove(line);
    }
  });
}

void TrafficModel::fenced() {
  ++counts_.fences;
  counts_.cycles = std::max(counts_.cycles, flushed_until_);
}

TrafficModel::Block& TrafficModel::block_of(std::uint64_t line) {
  const std::uint64_t number = line / kBlockLines;
  if (const auto known = blocks_.find(number); known != blocks_.end()) {
    buffer_.splice(buffer_.begin(), buffer_, known->second);
    return buffer_.front();
  }
  if (buffer_.size() == machine_.buffer_blocks) {
    evict(buffer_.back());
    blocks_.erase(buffer_.back().number);
    buffer_.pop_back();
  }
  buffer_.push_front({number});
  blocks_[number] = buffer_.begin();
  return buffer_.front();
}

void TrafficModel::evict(const Block& block) {
  constexpr unsigned kAll = (1U << kBlockLines) - 1;
  if (block.dirty == 0) return;
  if (!block.filled && block.dirty != kAll) ++counts_.media_reads;
  ++counts_.media_writes;
}

}  // namespace everleaf::crash
