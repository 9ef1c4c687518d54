// The story: on `disk`, the kernel may write back any part of any page at any time before the sync
// that asks for it, and nothing looked at what a power cut then leaves, for trees that have no
// fence in an operation least of all. Here the file's content stands for the page cache and `disk`
// for what is below it: pages go there when fsync or fdatasync say so, whole pages at any other
// time, and at the cut any sectors or words of pages that are dirty. Odd seeds have a shared
// mapping, where a store dirties its page; even ones private copies, where a write does, of all or
// of the first quarter of a MiB. Workloads are cut in and between their write-backs; each image
// must recover to what the tree promises, and to nothing in between.
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>

#include "hooks.hpp"
#include "pmem/format.hpp"
#include "shadow.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

constexpr std::size_t kSector = 512;
constexpr std::uint64_t kKeys = 150;

using Bytes8 = std::array<std::byte, 8>;

// From the making on, the file's mappings are observed; the file is durable at that time.
class PageCache {
 public:
  PageCache(const std::filesystem::path& path, std::uint64_t seed)
      : file_(path), random_(seed), disk_(read_bytes(path)) {
    hooks.pwrite = [this](int) -> Answer {
      if (at_write_back) at_write_back();
      return std::nullopt;
    };
    hooks.fsync = hooks.fdatasync = [this](int) -> Answer { return write_back(); };
  }
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;
  ~PageCache() { reset_hooks(); }

  // Called before and after each write-back, with nothing written and all of it.
  std::function<void()> at_write_back;

  // Some dirty pages as they are now: the kernel found the time.
  void some_pages() {
    const std::lock_guard guard(mutex_);
    catch_up();
    for (std::size_t at = 0; at < live_.size(); at += kPage) {
      if (dirty(at) && random_.one_in(3)) copy(disk_, at, kPage);
    }
  }

  // What would be on the disk if the power went now.
  std::vector<std::byte> cut() {
    const std::lock_guard guard(mutex_);
    catch_up();
    std::vector<std::byte> image = disk_;
    const std::uint64_t kind = random_.below(5);
    const std::uint64_t density = 1 + random_.below(7);  // of 8
    for (std::size_t at = 0; at < live_.size(); at += kPage) {
      if (!dirty(at) || kind == 0) continue;
      const std::size_t unit = kind == 1 ? kPage : kind == 2 ? kSector : sizeof(Bytes8);
      const bool torn = kind < 4 || random_.one_in(2);
      for (std::size_t i = at; i < at + kPage; i += unit) {
        if (!torn || random_.below(8) < density) copy(image, i, unit);
      }
    }
    return image;
  }

  // What is there whatever the kernel did beyond that.
  std::vector<std::byte> synced() {
    const std::lock_guard guard(mutex_);
    catch_up();
    return disk_;
  }

  [[nodiscard]] std::uint64_t write_backs() const { return write_backs_.load(); }

 private:
  // Word by word, as the others may be storing.
  void catch_up() {
    const auto now = file_.bytes();
    live_.resize(now.size());
    for (std::size_t at = 0; at < now.size(); at += sizeof(pmem::Word)) {
      const pmem::Word word = pmem::load(reinterpret_cast<const pmem::Word*>(&now[at]));
      std::memcpy(&live_[at], &word, sizeof word);
    }
    disk_.resize(live_.size());  // a new size is durable with zeros before it is used
  }
  [[nodiscard]] bool dirty(std::size_t at) const {
    return std::memcmp(&live_[at], &disk_[at], kPage) != 0;
  }
  void copy(std::vector<std::byte>& to, std::size_t at, std::size_t bytes) const {
    std::memcpy(&to[at], &live_[at], bytes);
  }
  int write_back() {
    if (at_write_back) at_write_back();
    {
      const std::lock_guard guard(mutex_);
      write_backs_.fetch_add(1);
      catch_up();
      for (std::size_t at = 0; at < live_.size(); at += kPage) copy(disk_, at, kPage);
    }
    if (at_write_back) at_write_back();
    return 0;
  }

  FileView file_;
  Random random_;
  std::mutex mutex_;  // a clock's thread and the workload's
  std::vector<std::byte> disk_;
  std::vector<std::byte> live_;
  std::atomic<std::uint64_t> write_backs_{0};
};

// Two indexes, changed in turn: a recovered state is one of both together.
template <class K>
using Both = std::array<Map<K>, 2>;
template <class K>
struct Change {
  std::size_t index;
  Op<K> op;
};
constexpr std::array<const char*, 2> kNames = {"a", "b"};

struct Cut {
  std::vector<std::byte> image;
  std::uint64_t least;  // changes that must be there,
  std::uint64_t most;   // and that may be
};

std::uint64_t clock_of(const std::vector<std::byte>& image) {
  std::uint64_t clock = 0;
  std::memcpy(&clock, &image[pmem::kStateAt + offsetof(pmem::PoolState, clock)], sizeof clock);
  return clock;
}

template <class K>
class PowerCutRun {
 public:
  PowerCutRun(std::string spec, std::uint64_t seed)
      : spec_(std::move(spec)),
        random_(seed),
        options_(on_disk_by_hand()),
        strict_(!is_buffered(spec_)),
        seed_(seed) {
    if (seed % 2 == 0) options_ = in_copies(options_);
    if (seed % 4 == 0) options_.private_bytes = std::uint64_t{1} << 18;
    Pool pool = Pool::open(path(), options_).value();
    for (const char* const name : kNames) EXPECT_TRUE(pool.index<K>(name, spec_));
  }

  // So many changes; the clock is stepped by hand, or by its thread.
  void work(std::uint64_t changes, std::chrono::nanoseconds epoch_length, std::size_t most_cuts) {
    PageCache cache(path(), random_.word());
    // Set while there is no other thread.
    cache.at_write_back = [&] {
      if (cutting_.load() && chosen(cache, most_cuts)) take(cache);
    };
    PoolOptions options = options_;
    options.epoch_length = epoch_length;
    by_hand_ = epoch_length.count() == 0;
    Pool pool = Pool::open(path(), options).value();
    std::vector<Index<K>> index;
    for (const char* const name : kNames) index.push_back(pool.index<K>(name).value());
    if (!strict_) note_epoch(pool);
    cutting_.store(true);
    for (std::uint64_t i = 0; i < changes; ++i) {
      const Change<K> change{random_.below(2),
                             random_op<K>(random_, Keys<K>::nth(random_.below(kKeys)))};
      {
        const std::lock_guard guard(mutex_);
        log_.push_back(change);
      }
      ASSERT_EQ(apply<K>(index[change.index], change.op), apply<K>(now_[change.index], change.op));
      if (strict_) least_.store(i + 1);
      if (random_.one_in(40)) cache.some_pages();
      if (random_.one_in(60)) take(cache);
      if (!strict_) step(pool);
    }
    cutting_.store(false);
    PoolAccess::state(pool).abandon();
    EXPECT_GT(cache.write_backs(), 0U);
  }

  // Opens every image. Crashes of recoveries, too: their images are of the same changes.
  void judge() {
    EXPECT_GT(cuts_.size(), 3U);
    for (std::size_t i = 0; i < cuts_.size(); ++i) {
      SCOPED_TRACE(testing::Message() << spec_ << ", seed " << seed_ << ", cut " << i);
      std::vector<std::vector<std::byte>> nested;
      judge_one(cuts_[i], i % 4 == 0 ? &nested : nullptr);
      for (auto& image : nested)
        judge_one({std::move(image), cuts_[i].least, cuts_[i].most}, nullptr);
      if (testing::Test::HasFailure()) return;
    }
  }
  [[nodiscard]] std::size_t cuts() const { return cuts_.size(); }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "pool"; }

  // How many changes had been made when an epoch ended.
  void note_epoch(Pool& pool) {
    const std::uint64_t now = pool.epochs().now;
    for (std::uint64_t e = now - 2; e <= now; ++e) ended_[e] = log_.size();
  }
  void advance(Pool& pool) {
    ended_[pool.epochs().now] = log_.size();
    ASSERT_EQ(pool.advance_epoch(), Outcome::done);
    ended_[pool.epochs().now] = log_.size();
  }
  // What acknowledges: a sync, or that an epoch is durable.
  void step(Pool& pool) {
    if (by_hand_ && random_.one_in(12)) {
      advance(pool);
      least_.store(ended_.at(pool.epochs().durable));
    }
    if (!random_.one_in(50)) return;
    for (int i = 0; by_hand_ && i < 2; ++i) advance(pool);
    if (!by_hand_) {
      ASSERT_EQ(pool.sync(), Outcome::done);
    }
    least_.store(log_.size());
  }

  bool chosen(const PageCache& cache, std::size_t most_cuts) {
    const std::lock_guard guard(mutex_);
    return cuts_.size() < most_cuts && (cache.write_backs() * 7 + seed_) % (strict_ ? 19 : 3) == 0;
  }
  void take(PageCache& cache) {
    // In this order: changes that come meanwhile may or may not be in the image.
    const std::uint64_t least = least_.load();
    std::vector<std::byte> image = cache.cut();
    const std::lock_guard guard(mutex_);
    cuts_.push_back({std::move(image), least, log_.size()});
  }

  void judge_one(const Cut& cut, std::vector<std::vector<std::byte>>* nested) {
    const auto crashed = scratch_ / "crashed";
    write_bytes(crashed, cut.image);
    Pool pool = open(crashed, nested);
    Both<K> found;
    std::vector<Index<K>> index;
    for (std::size_t i = 0; i < found.size(); ++i) {
      index.push_back(pool.index<K>(kNames[i]).value());
      std::vector<Entry<K>> seen;
      ASSERT_EQ(index[i].scan(K{}, kAll, seen), Outcome::done);
      for (const auto& entry : seen) found[i].emplace(entry.key, entry.value);
    }
    std::uint64_t first = cut.least;
    std::uint64_t last = cut.most;
    if (!strict_ && by_hand_) {
      // Exactly the end of the epoch that the image's clock names.
      first = last = ended_.at(clock_of(cut.image) - 2);
      ASSERT_GE(first, cut.least) << "an epoch that was acknowledged is not durable";
    }
    const auto changes = prefix(found, first, last);
    ASSERT_TRUE(changes) << "not a state after " << first << " to " << last << " changes";
    lost_ += cut.most - *changes;
    const auto report = pool.check();
    ASSERT_TRUE(report) << report.error().message;
    for (const std::string& problem : report->problems) {
      // Of two copies of the header, one may be half-written.
      ASSERT_NE(problem.find("header copy"), std::string::npos) << problem;
    }
    for (std::uint64_t i = 0; i < 30; ++i) {
      const auto op = random_op<K>(random_, Keys<K>::nth(random_.below(kKeys)));
      ASSERT_EQ(apply<K>(index[i % 2], op), apply<K>(found[i % 2], op));
    }
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(difference<K>(index[i], found[i]), "");
    }
  }

  [[nodiscard]] Pool open(const std::filesystem::path& path,
                          std::vector<std::vector<std::byte>>* nested) const {
    if (nested == nullptr) return Pool::open(path, options_).value();
    PageCache cache(path, 1);
    cache.at_write_back = [&] {
      if (nested->size() < 4) nested->push_back(cache.cut());
    };
    return Pool::open(path, options_).value();
  }

  // After how many changes this was the state, if it was between those.
  std::optional<std::uint64_t> prefix(const Both<K>& found, std::uint64_t first,
                                      std::uint64_t last) const {
    Both<K> state;
    for (std::uint64_t n = 0; n <= last; ++n) {
      if (n >= first && state == found) return n;
      if (n < last) (void)apply<K>(state[log_[n].index], log_[n].op);
    }
    return {};
  }

  Scratch scratch_;
  const std::string spec_;
  Random random_;
  PoolOptions options_;
  const bool strict_;
  const std::uint64_t seed_;
  bool by_hand_ = true;
  std::mutex mutex_;  // guards log_ and cuts_ against the clock's thread
  std::vector<Change<K>> log_;
  std::vector<Cut> cuts_;
  Both<K> now_;
  std::atomic<std::uint64_t> least_{0};
  std::atomic<bool> cutting_{false};
  std::map<std::uint64_t, std::uint64_t> ended_;  // by epoch
  std::uint64_t lost_ = 0;                        // changes, in all images
};

class PowerCut : public EveryTree {
 protected:
  void cut(std::chrono::nanoseconds epoch_length) {
    with_keys([epoch_length]<class K>(const std::string& spec) {
      std::size_t cuts = 0;
      std::uint64_t lost = 0;
      // Sanitizers slow this down most.
      const std::uint64_t seeds = scaled(4) < 4 ? 2 : 4;
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        PowerCutRun<K> run(spec, seed);
        run.work(std::max<std::size_t>(200, scaled(500)), epoch_length, 24);
        run.judge();
        if (HasFatalFailure()) return;
        cuts += run.cuts();
        lost += run.lost();
      }
      RecordProperty("cuts", static_cast<int>(cuts));
      if (is_buffered(spec)) {
        EXPECT_GT(lost, 0U) << "no cut went back";
      }
    });
  }
};
class PowerCutBesideTheClock : public PowerCut {};

// Strict trees: every change that returned. Buffered ones: the end of an epoch, exactly.
TEST_P(PowerCut, LeavesWhatWasPromised) {
  cut({});
}

// The clock's thread writes back while changes go on: a state between two changes, with all that a
// sync covered.
TEST_P(PowerCutBesideTheClock, LeavesAStateThatWas) {
  cut(std::chrono::microseconds(500));
}

EVERLEAF_EVERY_TREE(PowerCut);
EVERLEAF_EVERY_TREE_THAT(PowerCutBesideTheClock, is_buffered_case);

// The images are not too kind: a disk that lies from some write-back on is found out.
TEST(PowerCutCanary, FindsADiskThatLies) {
  for (const char* const spec : {"wbtree", "bdtree"}) {
    for (int i = 0; i < 8; ++i) {
      const int honest = i / 2;
      const PoolOptions options = i % 2 == 0 ? on_disk_by_hand() : in_copies(on_disk_by_hand());
      const Scratch scratch;
      const auto path = scratch / "pool";
      std::vector<std::byte> image;
      {
        Pool pool = Pool::open(path, options).value();
        auto index = pool.index<std::uint64_t>("index", spec).value();
        for (std::uint64_t n = 0; n < 40; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
        ASSERT_EQ(pool.sync(), Outcome::done);
        PageCache cache(path, 1);
        hooks.fdatasync = [left = honest, real = hooks.fdatasync](int file) mutable -> Answer {
          return left-- > 0 ? real(file) : Answer(0);
        };
        for (std::uint64_t n = 40; n < 60; ++n) ASSERT_EQ(index.insert(n, n), Outcome::done);
        ASSERT_EQ(pool.sync(), Outcome::done);
        image = cache.synced();
        PoolAccess::state(pool).abandon();
      }
      write_bytes(path, image);
      auto pool = Pool::open(path, options);
      if (!pool) continue;
      const auto index = pool->index<std::uint64_t>("index");
      // The write-backs of the clock are two, if not more.
      const bool whole = index && index->size() == 60;
      EXPECT_TRUE(!whole || (is_buffered(spec) && honest >= 2)) << spec << ", " << honest;
    }
  }
}

}  // namespace
}  // namespace everleaf::test
