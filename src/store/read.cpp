// Reads: look-ups, views, walks, cursors. A reader is pinned from before it learns a value word
// until it has done with the record (T3).
#include <algorithm>
#include <limits>
#include <new>
#include <vector>

#include "pmem/prefetch.hpp"
#include "store/state.hpp"

namespace everleaf::store {
namespace {

constexpr std::size_t kWalkEntries = 1024;
constexpr std::size_t kPageEntries = 256;
constexpr std::size_t kFirstPageEntries = 16;
constexpr std::size_t kPageBytes = std::size_t{1} << 20;  // of values, and one value more
constexpr std::size_t kPrefetched = 256;                  // of a record

}  // namespace

template <class K>
Outcome TableOf<K>::read(Word word, K key, Bytes& value) const {
  const Record record = Record::of(word);
  if (!record.inside(state.medium())) return Outcome::corrupt;
  const auto* const at = state.medium().template at<char>(record.at);
  Word checksum = 0;
  std::memcpy(&checksum, at, sizeof checksum);
  value = {at + sizeof checksum, record.length};
  return checksum == checksum_of(hash_of(seed, key), value) ? Outcome::done : Outcome::corrupt;
}

template <class K>
Outcome TableOf<K>::look(K key, Bytes& value) const {
  // After the pin: who drops the table waits for us, or we see that it is gone.
  if (dropped.load(std::memory_order_seq_cst)) return Outcome::dropped;
  const Lookup hit = tree_->find(key);
  return hit ? read(*hit, key, value) : hit.outcome;
}

// In steps, so that the walk holds back no memory for long; in smaller ones at damage, up to it.
// The caller keeps the tree. The keys' bytes come from the budget.
template <class K>
template <class F>
Outcome TableOf<K>::for_each_entry(Budget& budget, F&& visit) const {
  std::vector<Entry<K>> entries;
  Owned from{};
  std::size_t limit = kWalkEntries;
  while (true) {
    if (const Outcome outcome = tree_->scan(K(from), std::nullopt, limit, entries);
        outcome != Outcome::done) {
      if (outcome != Outcome::corrupt || limit == 1) return outcome;
      limit /= 4;
      continue;
    }
    for (const auto& entry : entries) {
      if constexpr (std::same_as<K, Bytes>) {  // forged records of keys may overlap
        if (!budget.spend(entry.key.size())) return Outcome::corrupt;
      }
      if (!visit(entry)) return Outcome::done;
    }
    if (entries.size() < limit) return Outcome::done;
    from = std::move(entries.back().key);
    if constexpr (std::same_as<K, Bytes>) {
      from += '\0';  // the next key
    } else {
      if (from++ == std::numeric_limits<K>::max()) return Outcome::done;
    }
  }
}

template <class K>
Outcome TableOf<K>::for_each_word(const std::function<bool(Word)>& visit) const {
  Budget budget(kMostRead * state.medium().size());
  return for_each_entry(budget, [&](const Entry<K>& entry) { return visit(entry.value); });
}

template <class K>
bool TableOf<K>::affords(Budget& budget, Word word, K key) const {
  std::uint64_t bytes = sizeof(Word);
  if constexpr (std::same_as<K, Bytes>) bytes += key.size();
  const Record record = Record::of(word);
  return budget.spend(record.inside(state.medium()) ? bytes + record.length : bytes);
}

template <class K>
Outcome TableOf<K>::for_each_value(Budget& budget,
                                   const std::function<void(Word, bool)>& visit) const {
  const Outcome walked = for_each_entry(budget, [&](const Entry<K>& entry) {
    if (!affords(budget, entry.value, K(entry.key))) return false;
    Bytes value;
    visit(entry.value, read(entry.value, K(entry.key), value) == Outcome::done);
    return true;
  });
  return budget.exceeded() ? Outcome::corrupt : walked;
}

template <class K>
void TableOf<K>::find_many(std::span<const BatchItem* const> items,
                           std::span<Lookup> answers) const {
  std::vector<K> keys;
  keys.reserve(items.size());
  for (const BatchItem* const item : items) keys.push_back(std::get<Owned>(item->key));
  const bool all_short =
      std::ranges::none_of(items, [this](const BatchItem* item) { return too_long(item->key); });
  if (all_short) return tree_->find_many(keys, answers);
  for (std::size_t i = 0; i < keys.size(); ++i) answers[i] = tree_->find(keys[i]);
}

EVERLEAF_INSTANTIATE(TableOf<Bytes>);
EVERLEAF_INSTANTIATE(TableOf<std::uint64_t>);

// What a cursor holds: copies of some entries, in the order in which they were fetched.
template <class K>
struct Page {
  using Owned = typename OwnedKey<K>::type;
  struct Item {
    Owned key;
    std::size_t at;  // in `bytes`
    std::size_t length;
  };

  std::shared_ptr<State> state;
  std::shared_ptr<TableOf<K>> table;
  std::optional<Owned> from;
  std::optional<Owned> to;
  bool upwards = true;
  std::vector<Item> items;
  std::string bytes;
  std::vector<Entry<K>> scanned;
  std::size_t at = 0;
  std::size_t wanted = kFirstPageEntries;
  Outcome outcome = Outcome::done;  // of the fetch: what follows behind its items
  bool valid = false;

  // The entries at `key` (excluded if `behind`) and beyond it, upwards or downwards; nullopt: from
  // the end.
  bool fetch(bool up, std::optional<Owned> key, bool behind) {
    items.clear();
    bytes.clear();
    at = 0;
    upwards = up;
    try {
      outcome = up ? read_up(std::move(key), behind) : read_down(std::move(key), behind);
    } catch (const std::bad_alloc&) {
      items.clear();
      outcome = Outcome::out_of_space;
    }
    wanted = std::min(wanted * 2, kPageEntries);
    valid = !items.empty();
    return valid;
  }

  bool seek(bool up, K key) {
    wanted = kFirstPageEntries;
    try {
      return fetch(up, Owned(key), false);
    } catch (const std::bad_alloc&) {
      outcome = Outcome::out_of_space;
      return valid = false;
    }
  }

  // Inside the page, or beyond it.
  bool move(bool up) {
    if (!valid) return false;
    if (up == upwards) {
      if (at + 1 < items.size()) return ++at, true;
      // What stopped the fetch lies right behind.
      if (outcome != Outcome::done) return valid = false;
    } else if (at != 0) {
      return --at, true;
    } else {
      wanted = kFirstPageEntries;
    }
    return fetch(up, std::move(items[at].key), true);
  }

 private:
  Outcome read_up(std::optional<Owned> key, bool behind) {
    Owned start = key ? std::move(*key) : Owned{};
    if (from && start < *from) {
      start = *from;
      behind = false;
    }
    if (behind) {
      if constexpr (std::same_as<K, Bytes>) {
        start += '\0';
      } else if (start++ == std::numeric_limits<K>::max()) {
        return Outcome::done;
      }
    }
    const alloc::Grace::Pin pin(state->grace());
    if (!pin.ok()) return Outcome::too_many_threads;
    if (table->dropped.load(std::memory_order_seq_cst)) return Outcome::dropped;
    const Outcome is = table->tree().scan(K(start), std::nullopt, wanted, scanned);
    return is == Outcome::done ? take([this](const Owned& one) { return !to || one < *to; }) : is;
  }

  Outcome read_down(std::optional<Owned> key, bool behind) {
    if (to && (!key || !(*key < *to))) {
      key = *to;
      behind = true;
    }
    const alloc::Grace::Pin pin(state->grace());
    if (!pin.ok()) return Outcome::too_many_threads;
    if (table->dropped.load(std::memory_order_seq_cst)) return Outcome::dropped;
    const std::optional<K> start = key ? std::optional(K(*key)) : std::nullopt;
    const Outcome is = table->tree().scan_back(start, wanted + 1, scanned);
    if (is != Outcome::done) return is;
    if (behind && !scanned.empty() && scanned.front().key == *key) scanned.erase(scanned.begin());
    return take([this](const Owned& one) { return !from || !(one < *from); });
  }

  // Copies values of what was scanned, as far as it is inside the bounds. Pinned.
  template <class Inside>
  Outcome take(Inside inside) {
    const pmem::Medium& medium = state->medium();
    for (const auto& entry : scanned) {
      const Record record = Record::of(entry.value);
      if (!record.inside(medium)) continue;
      // Of a long value the processor fetches the rest by itself.
      pmem::prefetch_lines(medium.at(record.at),
                           std::min<std::size_t>(record.bytes(), kPrefetched));
    }
    for (auto& entry : scanned) {
      if (!inside(entry.key) || bytes.size() > kPageBytes) break;
      Bytes value;
      const Outcome is = table->read(entry.value, K(entry.key), value);
      if (is != Outcome::done) return is;
      items.push_back({std::move(entry.key), bytes.size(), value.size()});
      bytes += value;
    }
    return Outcome::done;
  }
};

}  // namespace everleaf::store

namespace everleaf {

template <class K>
View::View(const store::State& state, const store::TableOf<K>& table, K key)
    : outcome_(Outcome::too_many_threads) {
  using Pin = alloc::Grace::Pin;
  static_assert(sizeof(Pin) <= sizeof pin_ && alignof(Pin) <= 8);
  const auto* const pin = new (pin_.data()) Pin(state.grace());
  if (pin->ok()) outcome_ = table.look(key, value_);
}

View::~View() {
  std::launder(reinterpret_cast<alloc::Grace::Pin*>(pin_.data()))->~Pin();
}

template <class K>
Cursor<K>::Cursor(std::unique_ptr<store::Page<K>> page) : page_(std::move(page)) {}
template <class K>
Cursor<K>::Cursor(Cursor&&) noexcept = default;
template <class K>
Cursor<K>& Cursor<K>::operator=(Cursor&&) noexcept = default;
template <class K>
Cursor<K>::~Cursor() = default;

template <class K>
bool Cursor<K>::first() {
  page_->wanted = store::kFirstPageEntries;
  return page_->fetch(true, std::nullopt, false);
}
template <class K>
bool Cursor<K>::last() {
  page_->wanted = store::kFirstPageEntries;
  return page_->fetch(false, std::nullopt, false);
}
template <class K>
bool Cursor<K>::seek(K key) {
  return page_->seek(true, key);
}
template <class K>
bool Cursor<K>::seek_for_prev(K key) {
  return page_->seek(false, key);
}
template <class K>
bool Cursor<K>::next() {
  return page_->move(true);
}
template <class K>
bool Cursor<K>::prev() {
  return page_->move(false);
}
template <class K>
bool Cursor<K>::valid() const noexcept {
  return page_->valid;
}
template <class K>
Outcome Cursor<K>::outcome() const noexcept {
  return page_->valid ? Outcome::done : page_->outcome;
}
template <class K>
K Cursor<K>::key() const noexcept {
  return page_->items[page_->at].key;
}
template <class K>
Bytes Cursor<K>::value() const noexcept {
  const auto& item = page_->items[page_->at];
  return {page_->bytes.data() + item.at, item.length};
}

template <class K>
Table<K>::Table(std::shared_ptr<store::State> state, std::shared_ptr<store::TableOf<K>> table)
    : state_(std::move(state)), table_(std::move(table)) {}

template <class K>
Outcome Table<K>::put(K key, Bytes value) {
  return table_->put(key, value, store::Rule::put);
}
template <class K>
Outcome Table<K>::insert(K key, Bytes value) {
  return table_->put(key, value, store::Rule::insert);
}
template <class K>
Outcome Table<K>::update(K key, Bytes value) {
  return table_->put(key, value, store::Rule::update);
}
template <class K>
Outcome Table<K>::erase(K key) {
  return table_->erase(key);
}
template <class K>
Outcome Table<K>::compare_and_set(K key, std::optional<Bytes> expected,
                                  std::optional<Bytes> desired) {
  return table_->compare_and_set(key, expected, desired);
}

template <class K>
View Table<K>::get_view(K key) const {
  return View(*state_, *table_, key);
}

template <class K>
Outcome Table<K>::get(K key, std::string& value) const {
  const View view = get_view(key);
  if (!view) return view.outcome();
  try {
    value.assign(*view);
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;
  }
  return Outcome::done;
}

template <class K>
std::expected<std::string, Outcome> Table<K>::get(K key) const {
  std::string value;
  const Outcome outcome = get(key, value);
  if (outcome != Outcome::done) return std::unexpected(outcome);
  return value;
}

template <class K>
bool Table<K>::contains(K key) const {
  const alloc::Grace::Pin pin(state_->grace());
  return pin.ok() && !table_->dropped.load(std::memory_order_seq_cst) && table_->tree().find(key);
}

template <class K>
Outcome Table<K>::count(std::uint64_t& keys) const {
  const alloc::Grace::Pin pin(state_->grace());
  if (!pin.ok()) return Outcome::too_many_threads;
  if (table_->dropped.load(std::memory_order_seq_cst)) return Outcome::dropped;
  keys = table_->tree().stats().keys;
  return Outcome::done;
}

template <class K>
std::uint64_t Table<K>::count() const {
  std::uint64_t keys = 0;
  (void)count(keys);
  return keys;
}

template <class K>
Cursor<K> Table<K>::cursor(std::optional<K> from, std::optional<K> to) const {
  auto page = std::make_unique<store::Page<K>>();
  page->state = state_;
  page->table = table_;
  if (from) page->from.emplace(*from);
  if (to) page->to.emplace(*to);
  return Cursor<K>(std::move(page));
}

template <class K>
Cursor<K> Table<K>::prefix(K bytes) const requires std::same_as<K, Bytes> {
  // The first key behind them all: without trailing 0xFF, one more.
  std::string end(bytes);
  while (!end.empty() && end.back() == '\xFF') end.pop_back();
  if (end.empty()) return cursor(bytes);
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return cursor(bytes, end);
}

template <class K>
const std::string& Table<K>::name() const noexcept {
  return table_->info.name;
}

template <class K>
const std::string& Table<K>::spec() const noexcept {
  return table_->info.spec;
}

template <class K>
Outcome Table<K>::stats(TableStats& stats) const {
  stats = {table_->info.name, table_->info.spec, table_->info.key_type, {}, 0};
  const alloc::Grace::Pin pin(state_->grace());
  if (!pin.ok()) return Outcome::too_many_threads;
  if (table_->dropped.load(std::memory_order_seq_cst)) return Outcome::dropped;
  stats.tree = table_->tree().stats();
  return table_->for_each_word([&stats](store::Word word) {
    stats.value_bytes += store::Record::of(word).length;
    return true;
  });
}

template <class K>
TableStats Table<K>::stats() const {
  TableStats stats;
  (void)this->stats(stats);
  return stats;
}

template class Cursor<Bytes>;
template class Cursor<std::uint64_t>;
template class Table<Bytes>;
template class Table<std::uint64_t>;

}  // namespace everleaf
