// Writes of one key: S1 to S3 of README.md.
#include <algorithm>
#include <new>

#include "pmem/prefetch.hpp"
#include "store/state.hpp"

namespace everleaf::store {

using detail::Write;

namespace {
constexpr std::size_t kAhead = 4 * pmem::kLine;  // of the next record
}

Fresh::~Fresh() {
  if (record_.at != 0) state_.space().free(record_.at);
}

// S1. In buffered stores the lines are noted in an epoch that begins no later than the tree's
// write.
Outcome Fresh::make(std::uint64_t hash, Bytes value, bool fence) {
  Record record{0, value.size()};
  Offset next = 0;
  if (const Outcome outcome = state_.reserve(record.bytes(), record.at, &next);
      outcome != Outcome::done) {
    return outcome;
  }
  record_ = record;
  pmem::Medium& medium = state_.medium();
  auto* const at = medium.at<Word>(record.at);
  // The lines of the next record of this size are here when it comes: whatever locks something
  // waits for the stores before it.
  if (next != 0) {
    const std::size_t ahead = std::min(record.bytes(), kAhead);
    for (std::size_t line = 0; line < ahead + pmem::kLine; line += pmem::kLine) {
      pmem::prefetch_to_write(medium.at(next + std::min(line, ahead - 1)));
    }
  }
  // Of the copy: a caller who writes to the value meanwhile gets some value, not a damaged one.
  if (!value.empty()) std::memcpy(at + 1, value.data(), value.size());
  *at = checksum_of(hash, {reinterpret_cast<const char*>(at + 1), value.size()});
  medium.count_written(record.bytes());
  if (state_.buffered()) {
    return state_.note(record.at, record.bytes()) ? Outcome::done : Outcome::out_of_space;
  }
  medium.flush(at, record.bytes());
  // Before the tree's write: the word may reach the medium as soon as it is stored.
  return !fence || medium.fence() ? Outcome::done : Outcome::io_error;
}

TableBase::TableBase(State& of, IndexInfo is)
    : state(of), info(std::move(is)), seed(hash_of(0, Bytes(info.name))) {}

template <class K>
TableOf<K>::TableOf(State& of, IndexInfo is, detail::Tree<K>* tree)
    : TableBase(of, std::move(is)), tree_(tree) {}

template <class K>
bool TableOf<K>::too_long(const OwnedAny& key) const {
  if constexpr (std::same_as<K, Bytes>) return std::get<Owned>(key).size() > kMaxKeyBytes;
  return false;
}

template <class K>
Outcome TableOf<K>::put(K key, Bytes value, Rule rule) {
  if (const Outcome admitted = state.admit(); admitted != Outcome::done) return admitted;
  if (value.size() > kMaxValueBytes) return Outcome::value_too_long;
  try {
    const std::uint64_t hash = hash_of(seed, key);
    Fresh fresh(state);
    if (const Outcome made = fresh.make(hash, value); made != Outcome::done) return made;
    const LatchGuard guard(state.latch(hash));
    return put_latched(key, fresh, rule);
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
}

// S2: the tree's write is what makes it happen. S3: what it replaced is given up after it.
template <class K>
Outcome TableOf<K>::put_latched(K key, Fresh& fresh, Rule rule) {
  if (dropped.load(std::memory_order_relaxed)) return Outcome::dropped;
  std::optional<Word> old;
  Outcome written = Outcome::done;
  if (rule == Rule::insert) {
    written = tree_->write(key, fresh.word(), Write::insert);
  } else {
    const Write what = rule == Rule::update ? Write::update : Write::upsert;
    written = tree_->exchange(key, fresh.word(), what, old);
  }
  if (fresh.settle(written) != Outcome::done) return written;
  if (old) state.retire(*old);
  state.wrote(*this, key);
  return written;
}

template <class K>
Outcome TableOf<K>::erase_latched(K key) {
  if (dropped.load(std::memory_order_relaxed)) return Outcome::dropped;
  std::optional<Word> old;
  const Outcome removed = tree_->exchange(key, 0, Write::remove, old);
  if (removed != Outcome::done) return removed;
  state.retire(*old);
  state.wrote(*this, key);
  return removed;
}

template <class K>
Outcome TableOf<K>::erase(K key) {
  if (const Outcome admitted = state.admit(); admitted != Outcome::done) return admitted;
  try {
    const LatchGuard guard(state.latch(hash_of(seed, key)));
    return erase_latched(key);
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
}

template <class K>
Outcome TableOf<K>::compare_and_set(K key, std::optional<Bytes> expected,
                                    std::optional<Bytes> desired) {
  if (const Outcome admitted = state.admit(); admitted != Outcome::done) return admitted;
  if (desired && desired->size() > kMaxValueBytes) return Outcome::value_too_long;
  try {
    const std::uint64_t hash = hash_of(seed, key);
    Fresh fresh(state);
    if (desired) {
      if (const Outcome made = fresh.make(hash, *desired); made != Outcome::done) return made;
    }
    const LatchGuard guard(state.latch(hash));
    {
      const alloc::Grace::Pin pin(state.grace());
      Bytes value;
      const Outcome is = look(key, value);
      if (is != Outcome::done && is != Outcome::absent) return is;
      const bool fits = is == Outcome::done ? expected == value : !expected;
      if (!fits) return Outcome::differs;
    }
    if (desired) return put_latched(key, fresh, expected ? Rule::update : Rule::insert);
    return expected ? erase_latched(key) : Outcome::done;
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
}

EVERLEAF_INSTANTIATE(TableOf<Bytes>);
EVERLEAF_INSTANTIATE(TableOf<std::uint64_t>);

}  // namespace everleaf::store
