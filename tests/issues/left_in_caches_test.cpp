// The stories: after a failed write-back the kernel calls pages clean that the disk never got. A
// reopened pool judged those pages, recovered by what they held and truncated the record; a power
// loss then took them away. And a process that was killed leaves dirty pages, which the next
// process read and built on without their being on the disk. Now a writable open in `disk` writes
// back what is dirty and drops what is cached, and recovery flushes what a record covers, which
// stores to its pages once more.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "alloc/redo_log.hpp"
#include "hooks.hpp"
#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

// The disk below a file; the file's content stands for the page cache.
class Disk {
 public:
  explicit Disk(std::filesystem::path path) : path_(std::move(path)), bytes_(read_bytes(path_)) {
    hooks.fsync = hooks.fdatasync = [this](int) -> Answer { return sync(); };
    hooks.drop_cache = [this](int, std::uint64_t from, std::uint64_t bytes) -> Answer {
      drop(from, bytes == 0 ? ~std::uint64_t{0} : from + bytes);
      return 0;
    };
  }
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  ~Disk() { reset_hooks(); }

  // After so many syncs all fail; `pass`: and their pages pass for clean.
  void fail_after(int syncs, bool pass) {
    good_ = syncs;
    pass_ = pass;
  }
  void mend() { good_ = -1; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  using Page = std::span<std::byte, kPage>;
  static Page page(std::vector<std::byte>& bytes, std::size_t at) {
    return Page(&bytes[at], kPage);
  }
  // Not written since its write-back failed.
  bool passes_for_clean(std::size_t at, Page cached) {
    const auto failed = failed_.find(at);
    return failed != failed_.end() && std::ranges::equal(failed->second, cached);
  }

  int sync() {
    auto cached = read_bytes(path_);
    bytes_.resize(cached.size());
    for (std::size_t at = 0; at < cached.size(); at += kPage) {
      const Page now = page(cached, at);
      if (std::ranges::equal(now, page(bytes_, at)) || passes_for_clean(at, now)) continue;
      if (good_ != 0) {
        std::ranges::copy(now, page(bytes_, at).begin());
      } else if (pass_) {
        failed_[at].assign(now.begin(), now.end());
      }
    }
    if (good_ == 0) return EIO;
    if (good_ > 0) --good_;
    return 0;
  }

  void drop(std::size_t from, std::size_t to) {
    auto cached = read_bytes(path_);
    for (std::size_t at = from; at < std::min(to, cached.size()); at += kPage) {
      if (passes_for_clean(at, page(cached, at))) {
        std::ranges::copy(page(bytes_, at), page(cached, at).begin());
        failed_.erase(at);
      }
    }
    write_bytes(path_, cached);
  }

  std::filesystem::path path_;
  std::vector<std::byte> bytes_;
  std::map<std::size_t, std::vector<std::byte>> failed_;
  int good_ = -1;
  bool pass_ = false;
};

template <class K>
Map<K> all_of(const Index<K>& index) {
  std::vector<Entry<K>> seen;
  EXPECT_EQ(index.scan(K{}, kAll, seen), Outcome::done);
  Map<K> map;
  for (const auto& entry : seen) map.emplace(entry.key, entry.value);
  return map;
}

// A session of so many keys ends at its n-th sync; the next one sees something; power is lost.
// `pass`: the sync failed, and its pages pass for clean; else the process was killed in it.
// `far`: the keys lie behind the first pages.
template <class K>
void what_was_seen_stays(const std::string& spec, std::uint64_t keys, int step, bool pass,
                         bool far = false) {
  SCOPED_TRACE(testing::Message() << keys << " keys, sync " << step);
  const Scratch scratch;
  const auto path = scratch / "pool";
  std::optional<Disk> disk;
  {
    Pool pool = Pool::open(path, on_disk_by_hand()).value();
    auto before = pool.index<Bytes>("before").value();
    for (int i = 0; far && i < 40; ++i) {
      ASSERT_EQ(before.insert(std::to_string(i) + std::string(60000, 'x'), 1), Outcome::done);
    }
    auto index = pool.index<K>("index", spec).value();
    for (std::uint64_t i = 0; i < keys; ++i) {
      ASSERT_EQ(index.insert(Keys<K>::nth(i * 2), i), Outcome::done);
    }
    disk.emplace(path);
    disk->fail_after(step, pass);
    (void)(step % 3 == 2 ? index.remove(Keys<K>::nth(2)) : index.insert(Keys<K>::nth(3), 1));
    (void)index.sync();
    if (!pass) PoolAccess::state(pool).abandon();
  }
  disk->mend();
  Map<K> seen;
  std::vector<std::byte> left;
  {
    Pool pool = Pool::open(path, on_disk_by_hand()).value();
    seen = all_of<K>(pool.index<K>("index").value());
    left = disk->bytes();
  }
  disk.reset();
  const auto crashed = scratch / "crashed";
  write_bytes(crashed, left);
  Pool pool = Pool::open(crashed, small_pool()).value();
  EXPECT_EQ(difference<K>(pool.index<K>("index").value(), seen), "");
  EXPECT_EQ(unsound(pool), "");
}

class LeftInCaches : public EveryTree {
 protected:
  void at_every_sync(bool pass) {
    with_keys([pass]<class K>(const std::string& spec) {
      // With sanitizers, which slow this down most, every third step, each of them somewhere.
      const int every = scaled(12) < 12 ? 3 : 1;
      int from = 0;
      for (const std::uint64_t keys : {5U, 59U, 62U}) {
        for (int step = from; step < 12; step += every) {
          what_was_seen_stays<K>(spec, keys, step, pass);
        }
        from = (from + 1) % every;
      }
    });
  }
};

TEST_P(LeftInCaches, PagesThatPassForClean) {
  at_every_sync(true);
}

TEST_P(LeftInCaches, DirtyPagesOfADeadProcess) {
  at_every_sync(false);
}

TEST(FarInCaches, PagesThatPassForClean) {
  for (int step = 0; step < 6; ++step) {
    what_was_seen_stays<Bytes>("wbtree", 5, step, true, true);
    what_was_seen_stays<std::uint64_t>("wbtree", 59, step, true, true);
  }
}

// Notes what is flushed before the first fence.
class FirstFlushes final : public pmem::Observer {
 public:
  void flushed(pmem::Offset at, std::size_t bytes, pmem::Site) override {
    if (fenced_) return;
    for (std::size_t i = 0; i < bytes; i += pmem::kLine) lines.insert(at + i);
  }
  void fencing(pmem::Site) override { fenced_ = true; }
  std::set<pmem::Offset> lines;

 private:
  bool fenced_ = false;
};

// A new node that a whole record covers may be in a cache only.
TEST(Recovery, FlushesWhatARecordCovers) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  std::size_t covers = 0;
  for (int step = 0; step < 6; ++step) {
    std::filesystem::remove(path);
    {
      Pool pool = Pool::open(path, on_disk_by_hand()).value();
      auto index = pool.index<Bytes>("index").value();
      ASSERT_EQ(index.insert("a", 1), Outcome::done);
      Disk disk(path);
      disk.fail_after(step, false);
      (void)index.insert("b", 1);
      PoolAccess::state(pool).abandon();
    }
    const auto image = read_bytes(path);
    FirstFlushes flushes;
    Pool pool = PoolAccess::open(path, small_pool(), &flushes).value();
    if (pool.info().replayed == 0) continue;
    for (std::size_t lane = 0; lane < pmem::kLanes; ++lane) {
      std::array<pmem::Word, pmem::kLaneBytes / sizeof(pmem::Word)> words{};
      std::memcpy(words.data(), &image[pmem::kLanesAt + lane * pmem::kLaneBytes], sizeof words);
      for (std::size_t i = 0; i < words[0] >> alloc::RedoLog::kCountShift; ++i) {
        if ((words[alloc::RedoLog::kEntriesWord + 2 * i] & 7) !=
            static_cast<pmem::Word>(alloc::Redo::Op::cover))
          continue;
        ++covers;
        const pmem::Offset from = words[alloc::RedoLog::kEntriesWord + 2 * i] & ~pmem::Word{7};
        for (pmem::Offset line = from / pmem::kLine * pmem::kLine;
             line < from + words[alloc::RedoLog::kEntriesWord + 1 + 2 * i]; line += pmem::kLine) {
          EXPECT_TRUE(flushes.lines.contains(line)) << "step " << step << ", line " << line;
        }
      }
    }
  }
  EXPECT_GT(covers, 0U) << "no whole record was left";
}

EVERLEAF_EVERY_TREE(LeftInCaches);

}  // namespace
}  // namespace everleaf::test
