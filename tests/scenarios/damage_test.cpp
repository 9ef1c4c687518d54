// Bad input: files that are no pool, are cut off, damaged, newer or foreign; requests that cannot
// be met. Every one ends in its own answer; nothing crashes or hangs, whatever bytes are in a file.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "epoch/space.hpp"
#include "pmem/format.hpp"
#include "shadow.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

constexpr unsigned kHangSeconds = 120;

// What is said when the process ends before the test does: how to do it again.
char g_doing[256];

void tell() {
  (void)!::write(2, g_doing, std::strlen(g_doing));
}

void end(int signal) {
  tell();
  (void)::signal(signal, SIG_DFL);
  (void)::raise(signal);
}

void watch(const std::string& doing) {
  std::snprintf(g_doing, sizeof g_doing, "crashes or hangs: %s\n", doing.c_str());
  (void)::signal(SIGALRM, end);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(tell);
#else
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) (void)::signal(signal, end);
#endif
  ::alarm(kHangSeconds);
}

template <class K>
std::vector<std::byte> pool_bytes(const std::string& spec, std::uint64_t keys) {
  const Scratch scratch;
  {
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    auto index = pool.index<K>("index", spec).value();
    Random random(2);
    for (std::uint64_t i = 0; i < keys; ++i) {
      (void)index.insert(i % 5 == 0 ? Keys<K>::odd(random) : Keys<K>::nth(random.below(2000)), i);
    }
    for (std::uint64_t i = 0; i < keys; i += 3) (void)index.remove(Keys<K>::nth(i));
  }
  return read_bytes(scratch / "pool");
}

pmem::Header header_of(const std::vector<std::byte>& bytes, pmem::Offset at) {
  pmem::Header header{};
  std::memcpy(&header, &bytes[at], sizeof header);
  return header;
}

// Changes both header copies and makes their checksums right.
template <class F>
std::vector<std::byte> with_headers(std::vector<std::byte> bytes, F&& change) {
  for (const pmem::Offset at : {pmem::kHeaderA, pmem::kHeaderB}) {
    pmem::Header header = header_of(bytes, at);
    change(header);
    header.checksum = XXH3_64bits(reinterpret_cast<const std::byte*>(&header) + 8,
                                  offsetof(pmem::Header, checksum) - 8);
    std::memcpy(&bytes[at], &header, sizeof header);
  }
  return bytes;
}

class File {
 public:
  File() : path_(scratch_ / "pool"), view_(path_) {}
  // Opens a pool file of these bytes.
  Result<Pool> open(std::span<const std::byte> bytes, Mode mode = Mode::open) {
    view_.become(bytes);
    return Pool::open(path_, small_pool(mode));
  }
  // The refusal, which must come with a message.
  std::string refusal(std::span<const std::byte> bytes, Mode mode = Mode::open) {
    auto pool = open(bytes, mode);
    if (pool) return "opened";
    EXPECT_GT(pool.error().message.size(), 10U);
    return std::string(to_string(pool.error().code));
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  Scratch scratch_;
  std::filesystem::path path_;
  FileView view_;
};

std::string name(Code code) {
  return std::string(to_string(code));
}

// --- Whole files
// -----------------------------------------------------------------------------------

class Header : public ::testing::Test {
 protected:
  const std::string spec_{trees().front().name};
  const std::vector<std::byte> good_ = pool_bytes<std::uint64_t>(spec_, 300);
  File file_;
};

TEST_F(Header, TruncatedAnywhere) {
  EXPECT_EQ(file_.refusal({}), name(Code::empty_file));
  for (std::size_t size = 4096; size < good_.size(); size += 4096) {
    const std::span part(good_.data(), size);
    ASSERT_EQ(file_.refusal(part), name(Code::truncated)) << size;
    ASSERT_EQ(file_.refusal(part, Mode::read_only), name(Code::truncated)) << size;
  }
  for (const std::size_t size : {1, 7, 8, 100, 255, 256, 4351, 4352, 4353}) {
    const std::string code = file_.refusal(std::span(good_.data(), size));
    EXPECT_EQ(code, name(size < 8 ? Code::not_a_pool : Code::truncated)) << size;
  }
}

TEST_F(Header, NotAPool) {
  std::vector<std::byte> bytes(good_.size(), std::byte{'x'});
  EXPECT_EQ(file_.refusal(bytes), name(Code::not_a_pool));
  std::ranges::fill(bytes, std::byte{0});
  EXPECT_EQ(file_.refusal(bytes), name(Code::not_a_pool));
  bytes.resize(20);
  EXPECT_EQ(file_.refusal(bytes), name(Code::not_a_pool));
}

TEST_F(Header, EveryByteOfOneCopyFlipped) {
  for (const pmem::Offset at : {pmem::kHeaderA, pmem::kHeaderB}) {
    for (std::size_t i = 0; i < sizeof(pmem::Header); ++i) {
      auto bytes = good_;
      bytes[at + i] ^= std::byte{0x41};
      auto pool = file_.open(bytes);
      ASSERT_TRUE(pool) << "byte " << at + i << ": " << pool.error().message;
      EXPECT_TRUE(pool->info().header_copy_damaged) << "byte " << at + i;
      EXPECT_NE(unsound(*pool), "");
      ASSERT_TRUE(pool->close());
      // Mended by the open.
      pool = Pool::open(file_.path(), small_pool());
      ASSERT_TRUE(pool);
      EXPECT_EQ(unsound(*pool), "") << "byte " << at + i;
    }
  }
}

TEST_F(Header, EveryByteOfBothCopiesFlipped) {
  for (std::size_t i = 0; i < sizeof(pmem::Header); ++i) {
    auto bytes = good_;
    bytes[pmem::kHeaderA + i] ^= std::byte{0x41};
    bytes[pmem::kHeaderB + i] ^= std::byte{0x41};
    EXPECT_EQ(file_.refusal(bytes), name(i < 8 ? Code::not_a_pool : Code::corrupt)) << i;
  }
}

TEST_F(Header, NewerAndForeign) {
  EXPECT_EQ(file_.refusal(with_headers(good_, [](auto& h) { h.version = 2; })),
            name(Code::newer_version));
  EXPECT_EQ(file_.refusal(with_headers(good_, [](auto& h) { h.incompatible = 4; })),
            name(Code::newer_version));
  const auto writes = with_headers(good_, [](auto& h) { h.ro_compatible |= 2; });
  EXPECT_EQ(file_.refusal(writes), name(Code::newer_version));
  EXPECT_TRUE(file_.open(writes, Mode::read_only));
  EXPECT_TRUE(file_.open(with_headers(good_, [](auto& h) { h.compatible = 1; })));
  // Of an earlier release: the header says what this one may write before it does.
  EXPECT_TRUE(file_.open(with_headers(good_, [](auto& h) { h.ro_compatible = 0; })));
  EXPECT_EQ(header_of(read_bytes(file_.path()), pmem::kHeaderA).ro_compatible, pmem::kImages);
  EXPECT_EQ(header_of(read_bytes(file_.path()), pmem::kHeaderB).ro_compatible, pmem::kImages);
  EXPECT_EQ(file_.refusal(with_headers(good_, [](auto& h) { h.endian = 0x04030201; })),
            name(Code::other_endianness));
  auto swapped = good_;
  for (const pmem::Offset at : {pmem::kHeaderA, pmem::kHeaderB}) {
    std::reverse(&swapped[at], &swapped[at] + 8);
  }
  EXPECT_EQ(file_.refusal(swapped), name(Code::other_endianness));
}

// Only programs that know late records may open what a crash leaves; a proper close leaves none.
TEST_F(Header, LateRecords) {
  const auto says = [&](pmem::Offset at) {
    return (header_of(read_bytes(file_.path()), at).incompatible & pmem::kLateRecords) != 0;
  };
  const auto current_says = [&] {
    const auto bytes = read_bytes(file_.path());
    const bool a =
        header_of(bytes, pmem::kHeaderA).sequence > header_of(bytes, pmem::kHeaderB).sequence;
    return says(a ? pmem::kHeaderA : pmem::kHeaderB);
  };
  write_bytes(file_.path(), good_);
  EXPECT_FALSE(current_says());
  auto pool = Pool::open(file_.path(), on_disk());
  ASSERT_TRUE(pool) << pool.error().message;
  EXPECT_TRUE(says(pmem::kHeaderA) && says(pmem::kHeaderB));
  {
    auto index = pool->index<std::uint64_t>("late", "pbtree");
    ASSERT_TRUE(index);
    for (std::uint64_t key = 1; key <= 50; ++key) ASSERT_EQ(index->insert(key, key), Outcome::done);
  }
  const auto crashed = read_bytes(file_.path());
  ASSERT_TRUE(pool->close());
  EXPECT_FALSE(current_says());
  pool = Pool::open(file_.path(), on_disk());
  ASSERT_TRUE(pool) << pool.error().message;
  EXPECT_EQ(pool->info().replayed, 0U);
  ASSERT_TRUE(pool->close());
  // Where fences do not wait there are none: nor after the recovery of those that there were.
  write_bytes(file_.path(), crashed);
  EXPECT_TRUE(current_says());
  pool = Pool::open(file_.path(), small_pool());
  ASSERT_TRUE(pool) << pool.error().message;
  EXPECT_GT(pool->info().replayed, 0U);
  EXPECT_FALSE(current_says());
  EXPECT_EQ(unsound(*pool), "");
}

TEST_F(Header, ImpossibleFrontier) {
  for (const std::uint64_t frontier : {std::uint64_t{0}, std::uint64_t{1}, pmem::kHeapAt + 1,
                                       std::uint64_t{1} << 41, ~std::uint64_t{0}}) {
    auto bytes = good_;
    std::memcpy(&bytes[pmem::kStateAt], &frontier, sizeof frontier);
    EXPECT_NE(file_.refusal(bytes), "opened") << frontier;
  }
}

// --- Requests
// --------------------------------------------------------------------------------------

class Requests : public Header {
 protected:
  template <class K = std::uint64_t>
  std::string refusal_of_index(Pool& pool, std::string_view index, std::string_view spec) {
    auto opened = pool.index<K>(index, spec);
    if (opened) return "opened";
    EXPECT_GT(opened.error().message.size(), 10U);
    return name(opened.error().code);
  }
};

TEST_F(Requests, LockedHere) {
  Pool pool = file_.open(good_).value();
  EXPECT_EQ(Pool::open(file_.path(), small_pool()).error().code, Code::locked_here);
  EXPECT_EQ(Pool::open(file_.path(), small_pool(Mode::read_only)).error().code, Code::locked_here);
  ASSERT_TRUE(pool.close());
  EXPECT_TRUE(Pool::open(file_.path(), small_pool()));
}

TEST_F(Requests, LockedByAnotherProcess) {
  { Pool pool = file_.open(good_).value(); }
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready) + ::pipe(done), 0);
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  char byte = 0;
  if (pid == 0) {
    const auto pool = Pool::open(file_.path(), small_pool());
    (void)!::write(ready[1], pool ? "y" : "n", 1);
    (void)!::read(done[0], &byte, 1);
    ::_exit(0);
  }
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(Pool::open(file_.path(), small_pool()).error().code, Code::locked);
  ASSERT_EQ(::write(done[1], "x", 1), 1);
  ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  EXPECT_TRUE(Pool::open(file_.path(), small_pool()));  // the lock went with the process
  for (const int fd : {ready[0], ready[1], done[0], done[1]}) ::close(fd);
}

TEST_F(Requests, WrongIndexOrSpec) {
  Pool pool = file_.open(good_).value();
  EXPECT_EQ(refusal_of_index<Bytes>(pool, "index", ""), name(Code::wrong_key_type));
  EXPECT_EQ(refusal_of_index(pool, "other", ""), name(Code::not_found));
  EXPECT_EQ(refusal_of_index(pool, "x", "oaktree"), name(Code::unknown_tree));
  EXPECT_EQ(refusal_of_index(pool, "x", spec_ + ":colour=red"), name(Code::unknown_option));
  EXPECT_EQ(refusal_of_index(pool, "x", spec_ + ":colour"), name(Code::bad_option));
  EXPECT_EQ(refusal_of_index(pool, "", spec_), name(Code::bad_argument));
  EXPECT_EQ(refusal_of_index(pool, std::string(64, 'n'), spec_), name(Code::bad_argument));
  EXPECT_EQ(refusal_of_index(pool, std::string("a\0b", 3), spec_), name(Code::bad_argument));
  EXPECT_EQ(refusal_of_index(pool, std::string(63, 'n'), spec_), "opened");
  for (const TreeInfo& tree : trees()) {
    for (const OptionInfo& option : tree.options) {
      const std::string start = std::string(tree.name) + ":" + std::string(option.name) + "=";
      EXPECT_EQ(refusal_of_index(pool, "x", start), name(Code::bad_option)) << start;
      EXPECT_EQ(refusal_of_index(pool, "x", start + "-1"), name(Code::bad_option)) << start;
    }
    for (const std::string_view spec : tree.test_specs) {
      auto same = pool.index<std::uint64_t>("index", spec);
      EXPECT_TRUE(same || same.error().code == Code::wrong_tree) << spec;
    }
  }
  EXPECT_EQ(unsound(pool), "");
}

TEST_F(Requests, DirectoryOfIndexesFull) {
  Pool pool = file_.open(good_).value();
  for (std::size_t i = 1; i < kMaxIndexes; ++i) {
    ASSERT_EQ(refusal_of_index(pool, std::to_string(i), spec_), "opened");
  }
  EXPECT_EQ(refusal_of_index(pool, "one more", spec_), name(Code::out_of_space));
  EXPECT_EQ(pool.indexes().value().size(), kMaxIndexes);
  EXPECT_EQ(unsound(pool), "");
}

TEST_F(Requests, PathsModesAndDomains) {
  const Scratch scratch;
  EXPECT_EQ(Pool::open(scratch / "no" / "pool").error().code, Code::not_found);
  EXPECT_EQ(Pool::open(scratch / "pool", small_pool(Mode::open)).error().code, Code::not_found);
  EXPECT_EQ(Pool::open(scratch / "pool", small_pool(Mode::read_only)).error().code,
            Code::not_found);
  EXPECT_FALSE(Pool::open(scratch.path()));
  ASSERT_TRUE(Pool::open(scratch / "pool", small_pool(Mode::create)));
  EXPECT_EQ(Pool::open(scratch / "pool", small_pool(Mode::create)).error().code, Code::exists);
  PoolOptions options = small_pool();
  options.max_bytes = 4096;
  EXPECT_EQ(Pool::open(scratch / "tiny", options).error().code, Code::bad_argument);
  options = small_pool();
  options.domain = Domain::memory;
  EXPECT_EQ(Pool::open(scratch / "pool", options).error().code, Code::domain_too_strong);
  EXPECT_EQ(Pool::open(scratch / "fresh", options).error().code, Code::domain_too_strong);
  EXPECT_FALSE(std::filesystem::exists(scratch / "fresh"));
  EXPECT_EQ(Pool::anonymous(options).error().code, Code::domain_too_strong);
  if (::geteuid() != 0) {
    ASSERT_EQ(::chmod(scratch.path().c_str(), 0500), 0);
    EXPECT_EQ(Pool::open(scratch / "denied").error().code, Code::permission);
    ASSERT_EQ(::chmod(scratch.path().c_str(), 0700), 0);
  }
}

TEST_F(Requests, ReadOnlyPoolTakesNoWrites) {
  Pool pool = file_.open(good_, Mode::read_only).value();
  auto index = pool.index<std::uint64_t>("index", "").value();
  EXPECT_EQ(index.insert(1, 1), Outcome::read_only);
  EXPECT_EQ(index.upsert(1, 1), Outcome::read_only);
  EXPECT_EQ(index.update(1, 1), Outcome::read_only);
  EXPECT_EQ(index.remove(1), Outcome::read_only);
  EXPECT_NE(index.bulk_load({}), Outcome::done);
  EXPECT_EQ(refusal_of_index(pool, "new", spec_), name(Code::not_found));
}

// --- Random damage
// ---------------------------------------------------------------------------------

class Damage : public EveryTree {};

// Words of the file that mean something: damage elsewhere shows nothing.
std::vector<std::size_t> words_in_use(std::span<const std::byte> bytes, std::size_t from = 0) {
  std::vector<std::size_t> all;
  for (std::size_t at = from; at < bytes.size(); at += 8) {
    const auto word = bytes.subspan(at, 8);
    if (std::ranges::any_of(word, [](std::byte b) { return b != std::byte{0}; })) all.push_back(at);
  }
  return all;
}

void damage(std::span<std::byte> bytes, const std::vector<std::size_t>& in_use, Random& random) {
  for (std::uint64_t n = 1 + random.below(6); n != 0; --n) {
    const bool anywhere = random.one_in(8);
    const std::size_t at =
        anywhere ? random.below(bytes.size() / 8) * 8 : in_use[random.below(in_use.size())];
    pmem::Word word = 0;
    std::memcpy(&word, &bytes[at], sizeof word);
    switch (random.below(6)) {
      case 0:
        word ^= std::uint64_t{1} << random.below(64);
        break;
      case 1:
        word = random.word();
        break;
      case 2:
        word = 0;
        break;
      case 3:
        word = ~std::uint64_t{0};
        break;
      case 4:
        word += 64 * (random.below(9) - 4);
        break;
      default:
        std::memcpy(&word, &bytes[in_use[random.below(in_use.size())]], sizeof word);
        break;
    }
    std::memcpy(&bytes[at], &word, sizeof word);
  }
}

// What lies elsewhere looks sound here: links that meet, nodes that are there twice.
void displace(std::span<std::byte> bytes, const std::vector<std::size_t>& in_use, Random& random) {
  const std::size_t align = random.one_in(2) ? 8 : 64;
  const std::size_t longest = random.one_in(2) ? 8 : 512;
  for (std::uint64_t n = 1 + random.below(3); n != 0; --n) {
    const std::size_t length = align * (1 + random.below(longest / align + 1));
    const std::size_t from = in_use[random.below(in_use.size())] / align * align;
    std::size_t to = in_use[random.below(in_use.size())] / align * align;
    // Often the same field of another node.
    if (random.one_in(2)) to = to / 256 * 256 + from % 256;
    if (std::max(from, to) + length > bytes.size() || to < in_use.front()) continue;
    std::memmove(&bytes[to], &bytes[from], length);
  }
}

// Uses the index in every way; any answer will do.
template <class K>
void use(Index<K>& index, Random& random) {
  std::vector<Entry<K>> out;
  (void)index.scan(K{}, 10000, out);
  (void)index.scan_back(std::nullopt, 10000, out);
  (void)index.check();
  for (int i = 0; i < 60; ++i) {
    const Owned<K> key = random.one_in(2) ? Keys<K>::odd(random) : Keys<K>::nth(random.below(2000));
    (void)index.find(key);
    (void)apply<K>(index, random_op<K>(random, key));
    if (i % 20 == 0) (void)index.scan(key, 50, out);
  }
  std::vector<Owned<K>> asked;
  for (std::uint64_t i = 0; i < 200; ++i) asked.push_back(Keys<K>::nth(i * 10));
  std::vector<Lookup> answers;
  index.find_many(std::vector<K>(asked.begin(), asked.end()), answers);
  (void)index.size();
  (void)index.stats();
}

template <class K>
void use(Pool& pool, Random& random) {
  (void)pool.info();
  (void)pool.indexes();
  (void)pool.check();
  auto index = pool.index<K>("index", "");
  if (!index) return;
  use(*index, random);
  (void)pool.check();
}

TEST_P(Damage, NoBytesCrashOrHang) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const auto good = pool_bytes<K>(spec, 400);
    const auto in_use = words_in_use(good);
    File file;
    std::uint64_t opened = 0;
    const std::uint64_t rounds = scaled(300);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Random random(seed + round);
      watch(spec + ", EVERLEAF_TEST_SEED=" + std::to_string(seed + round));
      auto bytes = good;
      if (round % 3 == 0) {
        displace(bytes, in_use, random);
      } else {
        damage(bytes, in_use, random);
      }
      auto pool = file.open(bytes, random.one_in(4) ? Mode::read_only : Mode::open);
      if (!pool) continue;
      ++opened;
      use<K>(*pool, random);
    }
    ::alarm(0);
    EXPECT_GT(opened, 0U);
  });
}

// What an open found sound, another index may write over.
TEST_P(Damage, WhileThePoolIsOpen) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const auto good = pool_bytes<K>(spec, 400);
    File file;
    const std::uint64_t rounds = scaled(200);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Random random(seed + round);
      watch(spec + ", open, EVERLEAF_TEST_SEED=" + std::to_string(seed + round));
      Pool pool = file.open(good).value();
      auto index = pool.index<K>("index", "").value();
      for (std::uint64_t i = 0; i < 100; ++i) {
        (void)index.upsert(Keys<K>::nth(random.below(2000)), i);
      }
      const pmem::Medium& medium = PoolAccess::state(pool).medium();
      const std::span bytes(medium.at<std::byte>(0), medium.size());
      const auto in_use = words_in_use(bytes, pmem::kHeapAt);
      if (round % 3 == 0) {
        damage(bytes, in_use, random);
      } else {
        displace(bytes, in_use, random);
      }
      use(index, random);
      (void)pool.check();
      (void)pool.close();
    }
    ::alarm(0);
  });
}

EVERLEAF_EVERY_TREE(Damage);

// --- Images of inner levels

// The stream of words of the image of the first index, and where each of them is.
struct Stream {
  std::vector<std::size_t> at;
  std::vector<pmem::Word> words;
};

pmem::Word word_at(const std::vector<std::byte>& bytes, std::size_t at) {
  pmem::Word word = 0;
  std::memcpy(&word, &bytes[at], sizeof word);
  return word;
}

void put_word(std::vector<std::byte>& bytes, std::size_t at, pmem::Word word) {
  std::memcpy(&bytes[at], &word, sizeof word);
}

std::size_t root_of(const std::vector<std::byte>& bytes) {
  return word_at(bytes, pmem::kDirectoryAt + offsetof(pmem::DirectoryEntry, root));
}

std::size_t node_of(const std::string& spec) {
  const auto node = spec.find("node=");
  return node == std::string::npos ? 1024 : std::stoul(spec.substr(node + 5));
}

Stream stream_of(const std::vector<std::byte>& bytes, const std::string& spec) {
  const std::size_t block = node_of(spec);
  Stream stream;
  std::size_t at = (word_at(bytes, root_of(bytes)) & 0xFFFFFFFF) * 256;
  for (std::size_t size = 1; at != 0; at = word_at(bytes, at)) {
    if (stream.at.empty()) size = word_at(bytes, at + 16);
    for (std::size_t i = 8; i < block && stream.at.size() < size; i += 8) {
      stream.at.push_back(at + i);
      stream.words.push_back(word_at(bytes, at + i));
    }
  }
  return stream;
}

template <class K>
std::uint64_t from_image(const Index<K>& index) {
  for (const auto& [name, value] : index.stats().more) {
    if (name == "opened_from_image") return value;
  }
  return 2;
}

class ImageDamage : public EveryTree {};

// Whatever word of it is wrong: it is not believed, and the list is walked.
TEST_P(ImageDamage, EveryWordIsChecked) {
  with_keys([]<class K>(const std::string& spec) {
    const auto good = pool_bytes<K>(spec, 300);
    const Stream stream = stream_of(good, spec);
    ASSERT_GT(stream.at.size(), 10U);
    File file;
    auto places = stream.at;
    places.push_back(root_of(good));
    for (std::size_t i = 0; i < places.size(); i += 1 + places.size() / 200) {
      for (const std::size_t byte : {0, 1, 3, 4, 7}) {
        auto bytes = good;
        bytes[places[i] + byte] ^= std::byte{0x41};
        Pool pool = file.open(bytes).value();
        auto index = pool.index<K>("index", "").value();
        ASSERT_EQ(from_image<K>(index), 0U) << "word " << i;
        ASSERT_EQ(unsound(pool), "") << "word " << i;
      }
    }
  });
}

// With a checksum that is right: check() reports what is wrong, and nothing crashes or hangs.
TEST_P(ImageDamage, NoForgedImageCrashesOrHangs) {
  with_keys([]<class K>(const std::string& spec) {
    const std::uint64_t seed = test::seed();
    const auto good = pool_bytes<K>(spec, 400);
    const Stream stream = stream_of(good, spec);
    const auto in_use = words_in_use(good);
    File file;
    std::uint64_t believed = 0;
    const std::uint64_t rounds = scaled(300);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Random random(seed + round);
      watch(spec + ", forged, EVERLEAF_TEST_SEED=" + std::to_string(seed + round));
      auto bytes = good;
      auto words = stream.words;
      for (std::uint64_t n = random.below(3); n != 0; --n) {
        const std::size_t i = 2 + random.below(words.size() - 2);
        const std::uint64_t kind = random.below(4);
        words[i] = kind == 0   ? words[i] ^ std::uint64_t{1} << random.below(64)
                   : kind == 1 ? words[2 + random.below(words.size() - 2)]
                   : kind == 2 ? words[i] + 256 * (random.below(9) - 4)
                               : random.word();
      }
      words[0] = XXH3_64bits(&words[1], (words.size() - 1) * 8);
      for (std::size_t i = 0; i < words.size(); ++i) put_word(bytes, stream.at[i], words[i]);
      // The leaves, which the open does not read, have damage of their own.
      if (random.one_in(2)) damage(bytes, in_use, random);
      Result<Pool> pool = file.open(bytes);
      if (!pool) continue;
      auto index = pool->template index<K>("index", "");
      if (!index) continue;
      believed += from_image<K>(*index);
      use<K>(*pool, random);
    }
    ::alarm(0);
    EXPECT_GT(believed, 0U);
  });
}

// What the open of a damaged pool used to find: now the first who uses the leaf does.
TEST_P(ImageDamage, LeavesThatAreNotRead) {
  with_keys([]<class K>(const std::string& spec) {
    const auto good = pool_bytes<K>(spec, 400);
    const Stream stream = stream_of(good, spec);
    const std::size_t first = stream.words[6 + stream.words[3]];
    constexpr std::size_t kWord = 32;  // the first of three in a leaf's metadata
    const pmem::Word retired = pmem::Word{1} << 28;
    const pmem::Word newest =
        std::max({word_at(good, first + kWord), word_at(good, first + kWord + 8),
                  word_at(good, first + kWord + 16)});
    for (const pmem::Word wrong :
         {newest | retired, retired | pmem::Word{1} << 62, ~pmem::Word{0} >> 1, pmem::Word{1} << 62,
          (pmem::Word{1} << 62) | 0xFFFFFFF}) {
      watch(spec + ", word " + std::to_string(wrong));
      auto bytes = good;
      put_word(bytes, first + kWord, wrong | pmem::Word{1} << 29);  // present
      put_word(bytes, first + kWord + 8, 0);
      put_word(bytes, first + kWord + 16, 0);
      File file;
      Pool pool = file.open(bytes).value();
      auto index = pool.index<K>("index", "").value();
      EXPECT_EQ(index.upsert(K{}, 1), Outcome::corrupt);
      EXPECT_NE(unsound(pool), "");
      Random random(1);
      use<K>(pool, random);
    }
    ::alarm(0);
  });
}

// The words and the link of each cell of the image's first leaf.
void forge_leaf(std::vector<std::byte>& bytes, std::size_t leaf, const std::string& spec,
                std::array<pmem::Word, 3> words, std::size_t next) {
  for (std::size_t cell = 0; cell < std::max<std::size_t>(1, node_of(spec) / 512); ++cell) {
    for (std::size_t i = 0; i < 3; ++i) put_word(bytes, leaf + 64 * cell + 32 + 8 * i, words[i]);
    put_word(bytes, leaf + 64 * cell + 56, cell == 0 ? next / 256 : 0);
  }
}

// A round through a list that no walk has seen; a leaf that is full of slots that nobody has set.
TEST_P(ImageDamage, NoRoundOrSplitGoesAstray) {
  with_keys([]<class K>(const std::string& spec) {
    const auto good = pool_bytes<K>(spec, 400);
    Stream stream = stream_of(good, spec);
    const std::size_t leaf = stream.words[6 + stream.words[3]];
    const pmem::Word clock = word_at(good, pmem::kStateAt + offsetof(pmem::PoolState, clock));
    const pmem::Word present = pmem::Word{1} << 29;
    const pmem::Word all = (pmem::Word{1} << 28) - 1;
    const Scratch scratch;
    PoolOptions options = small_pool();
    options.epoch_length = {};
    const auto open = [&](const std::vector<std::byte>& bytes) {
      watch(spec);
      write_bytes(scratch / "pool", bytes);
      return Pool::open(scratch / "pool", options).value();
    };
    stream.words[5] = clock + 1;  // a round is due
    stream.words[0] = XXH3_64bits(&stream.words[1], (stream.words.size() - 1) * 8);
    auto circle = good;
    for (const std::size_t i : {0, 5}) put_word(circle, stream.at[i], stream.words[i]);
    forge_leaf(circle, leaf, spec, {(clock - 2) << 30 | present, 0, 0}, leaf);
    {
      Pool pool = open(circle);
      EXPECT_EQ(from_image<K>(pool.index<K>("index", "").value()), 1U);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.advance_epoch(), Outcome::done);
    }
    auto full = good;
    forge_leaf(full, leaf, spec, {clock << 30 | present, all, all}, 0);
    {
      Pool pool = open(full);
      auto index = pool.index<K>("index", "").value();
      EXPECT_EQ(from_image<K>(index), 1U);
      EXPECT_EQ(index.upsert(K{}, 1), Outcome::corrupt);
    }
    ::alarm(0);
  });
}

EVERLEAF_EVERY_TREE_THAT(ImageDamage, is_buffered_case);

// --- Keys

class KeyDamage : public EveryTree {};

// A key that became another one: a scan names the damage, or misses no other key for it.
TEST_P(KeyDamage, NoScanEndsEarly) {
  const auto& [spec, keys] = GetParam();
  constexpr std::uint64_t kCount = 1500;
  const auto number = [](std::uint64_t i) { return 0x1234'5600'0000'0000 + i * 3; };
  constexpr auto key_of = &Entry<std::uint64_t>::key;
  const Scratch scratch;
  {
    Pool pool = Pool::open(scratch / "pool", small_pool()).value();
    auto index = pool.index<std::uint64_t>("index", spec).value();
    for (std::uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(index.insert(number(i), i), Outcome::done);
    ASSERT_EQ(pool.sync(), Outcome::done);
  }
  const auto good = read_bytes(scratch / "pool");
  File file;
  Random random(5);
  std::array<unsigned, 2> damaged{};  // named upwards, and downwards
  for (std::size_t at = pmem::kHeapAt; at + sizeof(pmem::Word) <= good.size(); at += 8) {
    const pmem::Word word = word_at(good, at);
    if (word - number(0) > 3 * kCount || !random.one_in(20)) continue;
    auto bytes = good;
    put_word(bytes, at, word ^ std::uint64_t{1} << (8 + random.below(56)));
    Result<Pool> pool = file.open(bytes);
    if (!pool) continue;
    const auto index = pool->index<std::uint64_t>("index", "");
    if (!index) continue;
    std::vector<Entry<std::uint64_t>> out;
    if (index->scan(0, 2 * kCount, out) == Outcome::corrupt) {
      ++damaged[0];
    } else {
      EXPECT_GE(out.size() + 1, kCount) << spec << " word " << at << " " << (word - number(0)) / 3;
    }
    // Downwards a wrong separator may hide leaves; what is answered is in order.
    if (index->scan_back(std::nullopt, 2 * kCount, out) == Outcome::corrupt) {
      ++damaged[1];
    } else {
      EXPECT_EQ(std::ranges::adjacent_find(out, std::ranges::less_equal(), key_of), out.end())
          << spec << " word " << at;
    }
  }
  EXPECT_GT(damaged[0], 0U);
  EXPECT_GT(damaged[1], 0U);
}

bool has_u64_keys(const Case& c) {
  return c.keys == KeyType::u64;
}
EVERLEAF_EVERY_TREE_THAT(KeyDamage, has_u64_keys);

// --- Tables of extents

class Extents : public EveryTree {};

// Nothing behind a hole is out of sight without a word, nor what a later entry would bring back.
TEST_P(Extents, AHoleInTheTableIsNoticed) {
  with_keys([]<class K>(const std::string& spec) {
    const auto good = pool_bytes<K>(spec, 20'000);
    const auto entry_at = [&](std::size_t i) {
      return root_of(good) + pmem::kLine + i * sizeof(epoch::Extent);
    };
    std::size_t count = 0;
    while (word_at(good, entry_at(count)) != 0) ++count;
    ASSERT_GT(count, 2U);
    File file;
    for (std::size_t hole = 0; hole <= count; ++hole) {
      auto bytes = good;
      put_word(bytes, entry_at(hole), 0);
      put_word(bytes, entry_at(hole) + sizeof(pmem::Word), 0);
      if (hole == count) put_word(bytes, entry_at(hole + 3), 1);
      Pool pool = file.open(bytes).value();
      const auto index = pool.index<K>("index", "");
      // Without its last extent the table is only short, and what lies in it is missed.
      if (!index) {
        EXPECT_EQ(index.error().code, Code::corrupt) << "entry " << hole;
      } else {
        EXPECT_NE(unsound(pool), "") << "entry " << hole;
      }
    }
  });
}

bool has_extents(const Case& c) {
  return is_buffered(c.spec) || has_own_log(c.spec);
}
EVERLEAF_EVERY_TREE_THAT(Extents, has_extents);

}  // namespace
}  // namespace everleaf::test
