// Damaged pools: opening, checking, walking, writing, repairing. The input is a list of changes to
// a whole pool, so that checksums do not end each try: first byte: which pool; then each change is
// a kind, a place and a word. Nothing may crash or hang, and no value may be wrong. Of some pools a
// table is half dropped, or a batch half done: a list has what the next open goes through.
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#define XXH_INLINE_ALL
#include <everleaf/store.hpp>

#include <xxhash.h>

#include "file.hpp"
#include "pmem/header.hpp"
#include "store/state.hpp"
#include "trees/pool_state.hpp"

using namespace everleaf;
using fuzz::expect;

namespace {

constexpr std::uint64_t kKeys = 150;

std::string key_of(std::uint64_t n) {
  return "key" + std::to_string(n) + std::string(n % 7 == 0 ? 300 : 0, 'k');
}
std::string value_of(std::uint64_t n) {
  return std::string(n * 5 % 400, static_cast<char>('a' + n % 26));
}

// Of each tree one that was closed and one whose process died.
const std::vector<std::uint8_t>& whole_pool(std::size_t tree, bool closed) {
  static std::map<std::pair<std::size_t, bool>, std::vector<std::uint8_t>> made;
  auto& bytes = made[{tree, closed}];
  if (!bytes.empty()) return bytes;
  const auto path = fuzz::scratch("everleaf-fuzz-");
  StoreOptions options;
  options.pool.mode = Mode::create;
  options.pool.epoch_length = {};
  options.durability = trees()[tree].durability;
  {
    Store store = Store::open(path, options).value();
    auto table = store.table("t", trees()[tree].name).value();
    auto numbers = store.table<std::uint64_t>("n", trees()[tree].name).value();
    for (std::uint64_t n = 0; n < kKeys; ++n) {
      expect(table.put(key_of(n), value_of(n)) == Outcome::done, "put");
      expect(numbers.put(n, value_of(n)) == Outcome::done, "put");
    }
    expect(store.sync() == Outcome::done, "sync");
    if (!closed) {
      Pool pool = store.pool();
      StoreAccess::state(store).abandon();
      PoolAccess::state(pool).abandon();
    }
  }
  bytes = fuzz::take_file(path);
  return bytes;
}

std::uint64_t word_at(const std::vector<std::uint8_t>& bytes, std::uint64_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, &bytes[at], sizeof word);
  return word;
}
void put_word(std::vector<std::uint8_t>& bytes, std::uint64_t at, std::uint64_t word) {
  std::memcpy(&bytes[at], &word, sizeof word);
}
void seal(std::vector<std::uint8_t>& bytes, std::uint64_t at, std::size_t from, std::size_t to,
          std::size_t where) {
  put_word(bytes, at + where, XXH3_64bits(&bytes[at + from], to - from));
}
// Of a list of the store, as long as it says to be, if that can be.
void seal_list(std::vector<std::uint8_t>& bytes, std::uint64_t at) {
  const std::uint64_t count = word_at(bytes, at + 8);
  if (count > (bytes.size() - at) / 8 - 2) return;
  seal(bytes, at, 8, sizeof(pmem::StoreList) + count * 8, 0);
}

// A list of the store at the end of its first extent, where no record is.
std::uint64_t write_list(std::vector<std::uint8_t>& bytes, std::span<const std::uint64_t> words) {
  const std::uint64_t extent = word_at(bytes, pmem::kStoreAt) + offsetof(pmem::StoreRoot, extents);
  const std::uint64_t bytes_of_list = sizeof(pmem::StoreList) + words.size() * 8;
  const std::uint64_t at =
      (word_at(bytes, extent) + word_at(bytes, extent + 8) - bytes_of_list) / 16 * 16;
  put_word(bytes, at + 8, words.size());
  for (std::size_t i = 0; i < words.size(); ++i) put_word(bytes, at + 16 + i * 8, words[i]);
  seal_list(bytes, at);
  return at;
}

// A batch of an insertion, an update and a removal in table "n" is under way: to be taken back
// (1), or to be gone on with (2). Where the list is.
std::uint64_t batch_half(std::vector<std::uint8_t>& bytes, std::uint64_t way) {
  constexpr std::uint64_t kName = 'n';
  const std::uint64_t at = write_list(
      bytes, std::array<std::uint64_t, 12>{1, 1, kName, 0, 0, kKeys / 2, 1, 0, kKeys + 1, 2, 0, 3});
  put_word(bytes, word_at(bytes, pmem::kStoreAt) + offsetof(pmem::StoreRoot, batch), at | way);
  return at;
}

// Table "n" of that pool, whose process died, is gone, and none of its blocks is free yet. Where
// the list is.
std::uint64_t drop_half(std::vector<std::uint8_t>& bytes) {
  std::vector<pmem::Offset> blocks;
  {
    const fuzz::File file(bytes);
    StoreOptions options;
    options.pool.mode = Mode::read_only;
    Store store = Store::open(file.path(), options).value();
    Pool pool = store.pool();
    blocks = PoolAccess::state(pool).blocks_of("n").value();
  }
  expect(!blocks.empty(), "a table without blocks");
  const std::uint64_t at = write_list(bytes, blocks);
  put_word(bytes, word_at(bytes, pmem::kStoreAt) + offsetof(pmem::StoreRoot, dropping), at);
  for (std::uint64_t entry = pmem::kDirectoryAt;; entry += sizeof(pmem::DirectoryEntry)) {
    const auto* const name = &bytes[entry + offsetof(pmem::DirectoryEntry, name)];
    if (word_at(bytes, entry) == 0 || std::memcmp(name, "n", 2) != 0) continue;
    put_word(bytes, entry, 0);
    return at;
  }
}

class Damage {
 public:
  // `list`: of a drop or a batch that is under way; 0: none.
  Damage(std::vector<std::uint8_t>& bytes, fuzz::Choices& choices, std::uint64_t list)
      : bytes_(bytes), choices_(choices), list_(list) {}

  void one() {
    switch (choices_.below(7)) {
      case 0:
        if (list_ != 0 && choices_.below(4) != 0) return list();
        return word(pmem::kHeapAt + choices_.take(3) % (bytes_.size() - pmem::kHeapAt));
      case 1: {
        const pmem::Offset at = choices_.below(2) == 0 ? pmem::kHeaderA : pmem::kHeaderB;
        word(at + choices_.below(30) * 8);
        return seal(bytes_, at, 8, 248, 248);
      }
      case 2: {
        const pmem::Offset at = pmem::kDirectoryAt + choices_.below(3) * 256;
        word(at + choices_.below(31) * 8);
        return seal(bytes_, at, 8, 208, 248);
      }
      case 3:
        return word(pmem::kStateAt + choices_.below(16) * 8);
      case 4:
        return word(pmem::kLanesAt + choices_.take(2) % (pmem::kLanes * pmem::kLaneBytes));
      case 5: {
        pmem::Word root = 0;
        std::memcpy(&root, &bytes_[pmem::kStoreAt], sizeof root);
        return word(root + choices_.below(24) * 8);
      }
      default: {  // words that belong elsewhere
        const std::size_t from = choices_.take(3) % (bytes_.size() - 512) / 8 * 8;
        const std::size_t to = choices_.take(3) % (bytes_.size() - 512) / 8 * 8;
        std::memmove(&bytes_[to], &bytes_[from], choices_.below(65) * 8);
      }
    }
  }

 private:
  void list() {
    word(list_ + 8 + choices_.below(32) * 8);
    seal_list(bytes_, list_);
  }
  void word(std::uint64_t at) {
    at = at / 8 * 8;
    if (at + 8 > bytes_.size()) return;
    std::uint64_t now = 0;
    std::memcpy(&now, &bytes_[at], 8);
    switch (choices_.below(6)) {
      case 0:
        now ^= std::uint64_t{1} << choices_.below(64);
        break;
      case 1:
        now = choices_.take(1);
        break;
      case 2:
        now = ~choices_.take(1);
        break;
      case 3:  // a place in the file
        now = choices_.take(3) % bytes_.size() / 16 * 16;
        break;
      case 4:
        now += choices_.take(1) - 128;
        break;
      default:
        now = choices_.take(8);
    }
    std::memcpy(&bytes_[at], &now, 8);
  }

  std::vector<std::uint8_t>& bytes_;
  fuzz::Choices& choices_;
  const std::uint64_t list_;
};

// No value but those that were put; true for what may have been written since.
template <class K>
void walk(const Table<K>& table) {
  auto cursor = table.cursor();
  std::size_t steps = 0;
  for (bool there = cursor.first(); there; there = cursor.next()) {
    expect(++steps < 10 * kKeys, "a walk that goes on and on");
    std::uint64_t n = 0;
    if constexpr (std::same_as<K, Bytes>) {
      const Bytes key = cursor.key();
      n = std::strtoull(std::string(key.substr(std::min<std::size_t>(3, key.size()))).c_str(),
                        nullptr, 10);
      expect(key == key_of(n), "a key that never was");
    } else {
      n = cursor.key();
    }
    expect(n < kKeys && (cursor.value() == value_of(n) || cursor.value() == "new"),
           "a wrong value");
  }
  steps = 0;
  for (bool there = cursor.last(); there && steps < 10 * kKeys; there = cursor.prev()) ++steps;
  (void)table.count();
}

void use(const std::filesystem::path& path, Mode mode, bool damaged) {
  StoreOptions options;
  options.pool.mode = mode;
  options.pool.epoch_length = {};
  options.pool.max_bytes = std::uint64_t{16} << 20;
  auto store = Store::open(path, options);
  if (!store) {
    expect(damaged, "a sound store is refused");
    expect(!store.error().message.empty(), "an error without a sentence");
    return;
  }
  const auto report = store->check();
  expect(damaged || (report && report->problems.empty()), "check finds damage in a sound store");
  (void)store->info();
  auto table = store->table("t");
  auto numbers = store->table<std::uint64_t>("n");
  if (table) walk(*table);
  if (numbers) walk(*numbers);
  if (mode == Mode::read_only) return;
  if (table) {
    for (std::uint64_t n = 0; n < kKeys; n += 3) (void)table->put(key_of(n), "new");
    for (std::uint64_t n = 1; n < kKeys; n += 6) (void)table->erase(key_of(n));
  }
  if (numbers) {
    Batch batch;
    for (std::uint64_t n = 0; n < kKeys; n += 2) {
      n % 4 == 0 ? batch.put<std::uint64_t>(*numbers, n, "new")
                 : batch.erase<std::uint64_t>(*numbers, n);
    }
    (void)store->apply(batch);
  }
  (void)store->sync();
  if (table) walk(*table);
  if (numbers) walk(*numbers);
  (void)store->drop_table("n");
}

void repair(const std::filesystem::path& path) {
  const auto to = fuzz::scratch("everleaf-fuzz-new-");
  std::filesystem::remove(to);
  if (const auto report = Store::repair(path, to)) {
    StoreOptions options;
    options.pool.mode = Mode::read_only;
    Store store = Store::open(to, options).value();
    const auto checked = store.check();
    expect(checked && checked->problems.empty(), "a repaired store is damaged");
    if (auto table = store.table("t")) walk(*table);
    if (auto numbers = store.table<std::uint64_t>("n")) walk(*numbers);
  }
  std::filesystem::remove(to);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({data, size});
  const auto which = choices.take(1);
  const bool half_dropped = (which & 144) == 144;
  const bool half_batch = (which & 136) == 136 && !half_dropped;
  const bool closed = (which & 128) != 0 && !half_dropped && !half_batch;
  std::vector<std::uint8_t> bytes = whole_pool(which % trees().size(), closed);
  const std::uint64_t list = half_dropped ? drop_half(bytes)
                             : half_batch ? batch_half(bytes, 1 + which / 2 % 2)
                                          : 0;
  // The update names no old value, which the oracle would miss.
  const bool damaged = !choices.empty() || (which & 64) != 0 || half_batch;
  Damage damage(bytes, choices, list);
  for (int i = 0; i < 24 && !choices.empty(); ++i) damage.one();
  if ((which & 64) != 0) bytes.resize(bytes.size() / 256 * (which % 256));
  if ((which & 32) != 0) {
    const fuzz::File file(bytes);
    repair(file.path());
  }
  {
    const fuzz::File file(bytes);
    use(file.path(), Mode::read_only, damaged);
  }
  const fuzz::File file(bytes);
  use(file.path(), Mode::open, damaged);
  return 0;
}
