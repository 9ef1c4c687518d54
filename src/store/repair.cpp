// Repair: what can be read of a damaged store goes into a new one. Two passes:
//
//   1. The store is opened read-only, and each table that opens is read by its tree, from both ends
//      where the tree is damaged in between. What comes this way is as good as from a sound store.
//   2. For tables that pass 1 did not read wholly, the file is searched for neighbouring words of
//      which one can be a key and the other a value word. The record's checksum is seeded with
//      table and key, so a pair that fits it was once put into that table. But it may be of a leaf
//      that went: an older value, or a key that was removed since. Such entries are counted apart.
//
// Slots of all trees are such pairs, key first; a BzTree's records have the value first, and short
// keys in place.
#include <algorithm>
#include <array>
#include <new>
#include <set>
#include <string>

#include <fcntl.h>

#include "base/spec.hpp"
#include "pmem/file.hpp"
#include "store/new_store.hpp"
#include "store/state.hpp"

namespace everleaf::store {
namespace {

constexpr std::size_t kStep = 1024;       // entries read at once
constexpr std::size_t kMostInline = 512;  // bytes of a key in a BzTree's leaf
// In sizes of the file, what is read of all tables together to find keys in place, whose lengths
// are tried one by one, with values of other tables, too: about a thousand sizes in a sound BzTree,
// from the cache.
constexpr std::uint64_t kMostTried = 2048;
constexpr std::uint64_t kShort = 8192;  // above it a record has chunks of its own: epoch/space.cpp
constexpr Offset kKeyOffset = (Offset{1} << 40) - 1;  // of a key word: trees/keys.hpp

// A table that the directory names, or the caller.
struct Named {
  IndexInfo info;
  bool whole = false;  // its directory entry is
  bool asked = false;  // the caller names it
  Offset at = 0;       // of the directory entry
};

// As the keys themselves: whoever resumes behind one needs the next.
bool next_key(std::uint64_t& key) {
  return ++key != 0;
}
bool next_key(std::string& key) {
  key += '\0';
  return true;
}

// The file's bytes, whatever they are.
class Image {
 public:
  static Result<Image> of(const std::filesystem::path& path) {
    auto file = pmem::Descriptor::open(path, O_RDONLY);
    if (!file) return std::unexpected(file.error());
    if (auto locked = file->lock(false, path); !locked) return std::unexpected(locked.error());
    const auto bytes = pmem::size_of(*file);
    if (!bytes) return std::unexpected(bytes.error());
    if (*bytes < pmem::kHeapAt) {
      return std::unexpected(
          Error{Code::truncated, path.string() + " has no heap: nothing of it can be repaired"});
    }
    auto mapping = pmem::Mapping::copy(*file, *bytes);
    if (!mapping) return std::unexpected(mapping.error());
    return Image(std::move(*file), std::move(*mapping));
  }

  [[nodiscard]] std::uint64_t bytes() const { return mapping_.bytes(); }
  [[nodiscard]] bool contains(Offset at, std::uint64_t size) const {
    return at <= bytes() && size <= bytes() - at;
  }
  [[nodiscard]] const char* at(Offset offset) const {
    return reinterpret_cast<const char*>(mapping_.base()) + offset;
  }
  [[nodiscard]] Word word(Offset offset) const {
    Word word = 0;
    std::memcpy(&word, at(offset), sizeof word);
    return word;
  }

 private:
  Image(pmem::Descriptor file, pmem::Mapping mapping)
      : file_(std::move(file)), mapping_(std::move(mapping)) {}
  pmem::Descriptor file_;  // locked
  pmem::Mapping mapping_;
};

bool has_name(const std::vector<Named>& tables, const std::string& name) {
  return std::ranges::find(tables, name, [](const Named& t) { return t.info.name; }) !=
         tables.end();
}

bool mostly_zero(std::span<const std::byte> bytes) {
  return std::ranges::count(bytes, std::byte{0}) * 2 > std::ssize(bytes);
}

// Whether a damaged entry was one: of noise a search for the values of each such name takes
// minutes. Bytes that are zero in every entry tell, in whichever of its lines they are left.
bool was_an_entry(const pmem::DirectoryEntry& entry) {
  const auto bytes = std::as_bytes(std::span(&entry, 1));
  const auto after_name = bytes.subspan(offsetof(pmem::DirectoryEntry, name), entry.name.size())
                              .subspan(std::strlen(entry.name.data()));
  return mostly_zero(bytes.first(offsetof(pmem::DirectoryEntry, name))) ||
         mostly_zero(
             bytes.subspan(offsetof(pmem::DirectoryEntry, reserved), sizeof entry.reserved)) ||
         (after_name.size() > sizeof(Word) && mostly_zero(after_name));
}

// Tables of the directory. Of a damaged entry the name may be whole; where another table has it, it
// is that one's.
std::vector<Named> tables_of(const Image& image, RepairReport& report) {
  std::vector<Named> damaged;
  std::vector<Named> all;
  for (std::size_t i = 0; i < kMaxIndexes; ++i) {
    const Offset at = pmem::kDirectoryAt + i * sizeof(pmem::DirectoryEntry);
    pmem::DirectoryEntry entry;
    std::memcpy(&entry, image.at(at), sizeof entry);
    if (entry.state == 0) continue;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&entry);
    const bool whole = entry.state == 1 && entry.checksum == XXH3_64bits(bytes + 8, 208 - 8);
    if (whole && (entry.key_type & pmem::kTableBit) == 0) continue;  // an index
    entry.name.back() = 0;
    entry.spec.back() = 0;
    if (!whole) {
      ++report.damaged_entries;
      report.problems.push_back("the directory entry at offset " + std::to_string(at) +
                                " is damaged");
      if (!was_an_entry(entry)) continue;
    }
    Named one;
    one.whole = whole;
    one.at = at;
    one.info = {entry.name.data(), entry.spec.data(),
                (entry.key_type & 1) == 0 ? KeyType::u64 : KeyType::bytes, true};
    if (!one.info.name.empty()) (whole ? all : damaged).push_back(std::move(one));
  }
  for (Named& one : damaged) {
    if (!has_name(all, one.info.name)) all.push_back(std::move(one));
  }
  return all;
}

// Copies entries of one table; what it met is in the report.
template <class K>
class Salvage {
 public:
  using Owned = typename OwnedKey<K>::type;
  // `budget`: for pass 1.
  Salvage(Table<K> to, RepairReport::Table& report, Budget budget)
      : to_(std::move(to)), report_(report), budget_(budget) {}

  // Pass 1. True: all of it was there.
  Result<bool> read(const TableOf<K>& from) {
    Owned upper{};
    bool any = false;
    auto up = read_up(from, upper, any);
    if (!up || *up || budget_.exceeded()) return up;
    auto down = read_down(from, any ? std::optional(upper) : std::nullopt);
    if (!down) return down;
    return false;
  }

  // Pass 2. Short values first: of words that are none at all nearly each would name a long one.
  // `tries`: what may still be read for keys in place; null: there are none.
  Result<void> search(const Image& image, Budget* tries, std::vector<std::string>& problems) {
    const std::uint64_t seed = hash_of(0, Bytes(report_.name));
    Budget none(0);
    Budget& in_place = tries != nullptr ? *tries : none;
    for (const bool long_ones : {false, true}) {
      if (auto done = search(image, long_ones, in_place, seed, problems); !done) return done;
    }
    if (tries != nullptr && tries->exceeded()) {
      problems.push_back("table '" + report_.name + "': not all keys in leaves were looked for");
    }
    return {};
  }

 private:
  Result<void> search(const Image& image, bool long_ones, Budget& in_place, std::uint64_t seed,
                      std::vector<std::string>& problems) {
    Budget budget(kMostRead * image.bytes());
    for (Offset at = pmem::kHeapAt; at + sizeof(Word) <= image.bytes(); at += sizeof(Word)) {
      const Record record = Record::of(image.word(at));
      if (record.at < pmem::kHeapAt || !image.contains(record.at, record.bytes())) continue;
      if ((record.bytes() > kShort) != long_ones) continue;
      if (long_ones && record.at % epoch::kBlockAlign != 0) continue;  // it has whole chunks
      if (!budget.spend(2 * record.bytes())) {  // with a key before it, and with one behind it
        problems.push_back("table '" + report_.name + "': the search ended at offset " +
                           std::to_string(at) + ", too many words name values");
        break;
      }
      const Word checksum = image.word(record.at);
      const Bytes value(image.at(record.at) + sizeof checksum, record.length);
      const auto fits = [&](K key) { return checksum == checksum_of(hash_of(seed, key), value); };
      if (auto kept = keep_pair(image, at, budget, in_place, fits, value); !kept) return kept;
    }
    return {};
  }

  Result<void> put(K key, Bytes value) {
    const Outcome outcome = to_.put(key, value);
    if (outcome == Outcome::done) return {};
    return std::unexpected(
        Error{outcome == Outcome::out_of_space ? Code::out_of_space : Code::io,
              "the new store cannot be written: " + std::string(to_string(outcome))});
  }
  // False: too much was read.
  Result<bool> take(const TableOf<K>& from, const everleaf::Entry<K>& entry) {
    Bytes value;
    if (!from.affords(budget_, entry.value, K(entry.key))) {
      report_.problems.push_back(
          "the values that its tree names have many times the bytes of the file");
      return false;
    }
    if (from.read(entry.value, K(entry.key), value) == Outcome::done) {
      ++report_.read;
      if (auto done = put(K(entry.key), value); !done) return std::unexpected(done.error());
      return true;
    }
    if (++report_.damaged_values <= kNamed) {
      report_.problems.push_back("a value does not fit its checksum at offset " +
                                 std::to_string(Record::of(entry.value).at));
    }
    return true;
  }
  // At damage it steps more and more slowly, up to what can be read.
  template <class Step>
  static Outcome nearer(Step step) {
    Outcome outcome = Outcome::corrupt;
    for (std::size_t limit = kStep; limit != 0; limit /= 4) {
      outcome = step(limit);
      if (outcome == Outcome::done) return outcome;
    }
    return outcome;
  }
  // True: up to the end. Otherwise `last` is the last key, if there is `any`.
  Result<bool> read_up(const TableOf<K>& from, Owned& last, bool& any) {
    std::vector<everleaf::Entry<K>> entries;
    Owned at{};
    while (true) {
      const Outcome outcome = nearer(
          [&](std::size_t limit) { return from.tree().scan(K(at), std::nullopt, limit, entries); });
      if (outcome != Outcome::done) {
        report_.problems.push_back("the tree cannot be read on: " +
                                   std::string(to_string(outcome)));
        return false;
      }
      if (entries.empty()) return true;
      if (entries.back().key < at) return false;  // only in a damaged tree
      for (const auto& entry : entries) {
        if (auto taken = take(from, entry); !taken || !*taken) return taken;
      }
      at = std::move(entries.back().key);
      last = at;
      any = true;
      if (!next_key(at)) return true;
    }
  }
  Result<bool> read_down(const TableOf<K>& from, const std::optional<Owned>& lowest) {
    std::vector<everleaf::Entry<K>> entries;
    std::optional<Owned> at;
    while (true) {
      const Outcome outcome = nearer([&](std::size_t limit) {
        // The place itself was there: one more.
        return from.tree().scan_back(at ? std::optional(K(*at)) : std::nullopt, limit + 1, entries);
      });
      if (outcome != Outcome::done) return false;
      if (at && !entries.empty() && entries.front().key == *at) entries.erase(entries.begin());
      if (entries.empty()) return true;
      if (at && !(entries.back().key < *at)) return false;
      for (const auto& entry : entries) {
        if (lowest && !(*lowest < entry.key)) return true;
        if (auto taken = take(from, entry); !taken || !*taken) return taken;
      }
      at = std::move(entries.back().key);
    }
  }

  // The key whose record the word names.
  static std::optional<Bytes> named_key(const Image& image, Word word) {
    if (word == 0) return Bytes();  // of a PB+tree
    const Offset at = word & kKeyOffset;
    std::uint32_t length = 0;
    if (at < pmem::kHeapAt || at % 16 != 0 || !image.contains(at, sizeof length)) {
      return std::nullopt;
    }
    std::memcpy(&length, image.at(at), sizeof length);
    if (length > kMaxKeyBytes || !image.contains(at + sizeof length, length)) return std::nullopt;
    return Bytes(image.at(at + sizeof length), length);
  }

  // The value word stands at `at`: before it or behind it may be its key.
  template <class Fits>
  Result<void> keep_pair(const Image& image, Offset at, Budget& budget, Budget& in_place, Fits fits,
                         Bytes value) {
    for (const Offset beside : {at - sizeof(Word), at + sizeof(Word)}) {
      if (!image.contains(beside, sizeof(Word))) continue;
      if constexpr (std::same_as<K, Bytes>) {
        const auto key = named_key(image, image.word(beside));
        if (key && budget.spend(2 * key->size()) && fits(*key)) return keep(*key, value);
      } else if (fits(image.word(beside))) {
        return keep(image.word(beside), value);
      }
    }
    if constexpr (std::same_as<K, Bytes>) {
      const Offset behind = at + sizeof(Word);
      for (std::size_t n = 0; n <= kMostInline && image.contains(behind, n); ++n) {
        if (!in_place.spend(value.size() + n + sizeof(Word))) break;
        const Bytes key(image.at(behind), n);
        if (fits(key)) return keep(key, value);
      }
    }
    return {};
  }

  Result<void> keep(K key, Bytes value) {
    const std::uint64_t hash = hash_of(0, key);
    if (found_.contains(hash)) {
      const View there = to_.get_view(key);
      if (there && *there != value && unclear_.insert(hash).second) ++report_.unclear;
      return {};
    }
    if (to_.contains(key)) return {};  // pass 1 knew better
    found_.insert(hash);
    ++report_.found;
    return put(key, value);
  }

  Table<K> to_;
  RepairReport::Table& report_;
  Budget budget_;
  std::unordered_set<std::uint64_t> found_;
  std::unordered_set<std::uint64_t> unclear_;
};

// Another store than those that repair is for, or none; or there is no memory to look at it.
bool hopeless(Code code) {
  switch (code) {
    case Code::locked:
    case Code::locked_here:
    case Code::not_found:
    case Code::permission:
    case Code::newer_version:
    case Code::other_endianness:
    case Code::empty_file:
    case Code::out_of_space:
      return true;
    default:
      return false;
  }
}

class Repair {
 public:
  Repair(const std::filesystem::path& from, const std::filesystem::path& to,
         const RepairOptions& options)
      : path_(from), new_(to), options_(options) {}

  Result<RepairReport> run() {
    auto image = Image::of(path_);
    if (!image) return std::unexpected(image.error());
    std::vector<Named> tables = tables_of(*image, report_);
    name_tables(tables);
    std::shared_ptr<State> old;
    if (auto opened = State::start_to_salvage(path_, report_.problems)) {
      old = std::move(*opened);
    } else {
      if (hopeless(opened.error().code)) return std::unexpected(opened.error());
      report_.problems.insert(report_.problems.begin(), opened.error().message);
      cause_ = opened.error().code;
    }
    // A crash may have come between the mark in the header and the root block.
    const bool is_store = old != nullptr && old->has_root();
    if (tables.empty() && (report_.problems.empty() || !is_store)) return no_tables();
    if (old != nullptr) add_problems(old->pool().check());  // what the trees' own do not see
    tries_ = Budget(kMostTried * image->bytes());
    if (auto made = new_.make(durability_of(tables, old.get())); !made) {
      return std::unexpected(made.error());
    }
    for (Named& one : tables) {
      auto done = one.info.key_type == KeyType::u64 ? salvage<std::uint64_t>(one, old.get(), *image)
                                                    : salvage<Bytes>(one, old.get(), *image);
      if (!done) return std::unexpected(done.error());
    }
    const bool any_whole = std::ranges::any_of(tables, &Named::whole);
    const bool any_record = std::ranges::any_of(
        report_.tables, [](const RepairReport::Table& one) { return one.found != 0; });
    if (!is_store && !any_whole && !any_record) return no_tables();
    old.reset();
    if (auto named = new_.name(); !named) return std::unexpected(named.error());
    return std::move(report_);
  }

 private:
  [[nodiscard]] std::unexpected<Error> no_tables() const {
    std::string what = path_.string() + " has no table, and no value of one that is named";
    if (!report_.problems.empty()) what += ": " + report_.problems.front();
    return std::unexpected(Error{cause_ == Code::io ? cause_ : Code::not_found, std::move(what)});
  }
  void add_problems(const Result<CheckReport>& is) {
    if (!is) return report_.problems.push_back(is.error().message);
    const auto n = std::min(is->problems.size(), kNamed);
    report_.problems.insert(report_.problems.end(), is->problems.begin(),
                            is->problems.begin() + static_cast<std::ptrdiff_t>(n));
  }
  void name_tables(std::vector<Named>& tables) const {
    for (const auto& [name, type] : options_.tables) {
      const auto there =
          std::ranges::find(tables, name, [](const Named& t) { return t.info.name; });
      if (there != tables.end()) {
        if (!there->whole) there->info.key_type = type;
        there->asked = true;
      } else {
        tables.push_back({{name, {}, type, true}, false, true, 0});
      }
    }
  }

  static std::optional<Durability> durability_of(const std::string& spec) {
    const auto row = tree::find_tree(base::tree_of(spec));
    if (!row) return std::nullopt;
    return (*row)->info.durability;
  }
  // That of the tables.
  static Durability durability_of(const std::vector<Named>& tables, const State* old) {
    for (const Named& one : tables) {
      if (const auto is = durability_of(one.info.spec); one.whole && is) return *is;
    }
    return old != nullptr && !old->buffered() ? Durability::strict : Durability::buffered;
  }

  template <class K>
  Result<void> salvage(Named& one, State* old, const Image& image) {
    RepairReport::Table& report = report_.tables.emplace_back();
    report.name = one.info.name;
    report.key_type = one.info.key_type;
    // A spec that cannot be is that of a damaged entry.
    auto to = new_.store().table<K>(report.name, one.whole ? one.info.spec : std::string());
    if (!to && one.whole) to = new_.store().table<K>(report.name, {});
    if (!to && (to.error().code == Code::out_of_space || to.error().code == Code::io)) {
      return std::unexpected(to.error());  // says nothing of the damaged store
    }
    if (!to) {
      report.problems.push_back("no such table can be made: " + to.error().message);
      return {};
    }
    report.spec = to->stats().spec;
    Salvage<K> salvage(*to, report, Budget(kMostRead * image.bytes()));
    const auto from = old == nullptr || !one.whole ? nullptr : old->table_to_salvage(report.name);
    if (from != nullptr) {
      auto all = salvage.read(static_cast<const TableOf<K>&>(*from));
      if (!all) return std::unexpected(all.error());
      // A tree may be read without a word, and yet lead past what it has.
      const CheckReport is = static_cast<const TableOf<K>&>(*from).tree().check();
      if (*all && is.problems.empty()) return {};
      if (!is.problems.empty()) {
        report.problems.push_back("the tree is damaged: " + is.problems.front());
      }
    } else if (one.whole) {
      report.problems.push_back("the tree cannot be opened");
    }
    const bool in_place = base::tree_of(one.info.spec) == "bztree" || !one.whole;
    auto searched = salvage.search(image, in_place ? &tries_ : nullptr, report_.problems);
    if (!searched || one.whole || one.asked || report.found != 0) return searched;
    return forget(one);
  }
  // The last table: it has the name that damage left, and nothing was found of it.
  Result<void> forget(const Named& one) {
    report_.problems.push_back("nothing was found of a table '" + one.info.name +
                               "', the name in the damaged directory entry at offset " +
                               std::to_string(one.at) +
                               ": if it had another, or keys of the other type, give that");
    report_.tables.pop_back();
    return new_.store().drop_table(one.info.name);
  }

  const std::filesystem::path path_;
  NewStore new_;
  const RepairOptions& options_;
  RepairReport report_;
  Code cause_ = Code::not_found;  // why the store cannot be opened
  Budget tries_{0};               // see search()
};

}  // namespace

// Root block and lists may be damaged: nothing of them is needed to read.
Result<std::shared_ptr<State>> State::start_to_salvage(const std::filesystem::path& path,
                                                       std::vector<std::string>& problems) {
  PoolOptions options;
  options.mode = Mode::read_only;
  auto pool = Pool::open(path, options);
  if (!pool) return std::unexpected(pool.error());
  if (!PoolAccess::state(*pool).file().is_store()) {
    return std::unexpected(Error{Code::not_found, "there is no store in " + path.string()});
  }
  pool = without_batch(std::move(*pool));
  if (!pool) {
    problems.push_back("a batch was under way, and a part of it may be there: " +
                       pool.error().message);
    pool = Pool::open(path, options);
    if (!pool) return std::unexpected(pool.error());
  }
  auto state = base::shared_here(std::make_unique<State>(std::move(*pool)));
  if (auto opened = state->open_tables(); !opened) return std::unexpected(opened.error());
  if (const auto root = root_of(state->base_); !root) problems.push_back(root.error().message);
  return state;
}

std::shared_ptr<TableBase> State::table_to_salvage(std::string_view name) const {
  const auto known = tables_.find(name);
  return known == tables_.end() ? nullptr : known->second;
}

Result<RepairReport> State::repair(const std::filesystem::path& from,
                                   const std::filesystem::path& to, const RepairOptions& options) {
  try {
    std::error_code error;
    if (std::filesystem::exists(to, error)) {
      return std::unexpected(Error{Code::exists, to.string() + " is there already"});
    }
    return Repair(from, to, options).run();
  } catch (const std::bad_alloc&) {
    return std::unexpected(Error{Code::out_of_space, "no memory for the repair"});
  }
}

}  // namespace everleaf::store

namespace everleaf {

bool RepairReport::sound() const {
  return problems.empty() && std::ranges::all_of(tables, [](const Table& one) {
           return one.problems.empty() && one.damaged_values == 0 && one.found == 0;
         });
}

}  // namespace everleaf
