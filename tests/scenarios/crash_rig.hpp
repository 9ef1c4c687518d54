// Runs operations on an observed pool and judges, at the fences, every image that a crash could
// leave there: the pool opens, check() is sound, all acknowledged operations are there, the pending
// one wholly or not at all, and the tree goes on working.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pmem/format.hpp"
#include "shadow.hpp"
#include "support.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {

inline constexpr const char* kIndexName = "index";

// What a crashed pool may hold.
template <class K>
struct Expected {
  Map<K> acknowledged;
  std::optional<Op<K>> pending;
  const std::vector<Entry<K>>* loading = nullptr;  // bulk_load: any prefix
  bool creating = false;                           // the index may be missing
  bool headers = false;                            // a header copy may be half-written
  std::size_t others = 0;                          // further indexes that must be there
};

// Opens images and looks.
template <class K>
class Judge {
 public:
  Judge(std::filesystem::path path, std::string spec, std::uint64_t seed)
      : path_(std::move(path)), spec_(std::move(spec)), random_(seed), view_(path_) {}

  // What is wrong; empty: nothing.
  std::string judge(std::span<const std::byte> image, const Expected<K>& expected) {
    ++images;
    view_.become(image);
    Pool pool = open(Mode::open, wrong_);
    if (!wrong_.empty()) return std::exchange(wrong_, {});
    const auto report = pool.check();
    if (!report) return "check: " + report.error().message;
    for (const std::string& problem : report->problems) {
      const bool header = problem.find("header copy") != std::string::npos;
      if (!header || !expected.headers) return "check: " + problem;
    }
    replays += pool.info().replayed;
    Map<K> map;
    auto index = settle(pool, expected, map);
    if (!index) return std::exchange(wrong_, {});
    if (std::string wrong = go_on(*index, map, expected, images % 16 == 0 ? 40 : 4);
        !wrong.empty()) {
      return "afterwards: " + wrong;
    }
    if (images % 4 != 0) return {};
    std::string wrong = difference<K>(*index, map, 7);
    if (wrong.empty() && report->problems.empty()) wrong = unsound(pool);
    return wrong.empty() ? "" : "after more work: " + wrong;
  }

  // Opening a pool that was recovered and closed changes nothing but headers.
  std::string judge_twice(std::span<const std::byte> image) {
    view_.become(image);
    (void)open(Mode::open, wrong_);
    if (!wrong_.empty()) return std::exchange(wrong_, {});
    const std::vector<std::byte> once(view_.bytes().begin(), view_.bytes().end());
    (void)open(Mode::open, wrong_);
    if (!wrong_.empty()) return std::exchange(wrong_, {});
    const auto twice = view_.bytes();
    const bool same =
        once.size() == twice.size() &&
        std::equal(once.begin() + pmem::kStateAt, once.end(), twice.begin() + pmem::kStateAt);
    return same ? "" : "the second recovery wrote something";
  }

  // A read-only open sees the same and leaves the file alone.
  std::string judge_read_only(std::span<const std::byte> image, const Expected<K>& expected) {
    view_.become(image);
    {
      Pool pool = open(Mode::read_only, wrong_);
      if (!wrong_.empty()) return "read-only: " + std::exchange(wrong_, {});
      Map<K> map;
      if (!expected.creating && !settle(pool, expected, map)) {
        return "read-only: " + std::exchange(wrong_, {});
      }
    }
    const auto after = view_.bytes();
    return std::equal(image.begin(), image.end(), after.begin(), after.end())
               ? ""
               : "a read-only open changed the file";
  }

  // Crashes at the fences of recovery and of the close after it.
  std::string judge_nested(std::span<const std::byte> image, Expected<K> expected, Judge& inner) {
    view_.become(image);
    expected.headers = true;
    std::string wrong;
    std::vector<std::byte> second;
    Shadow* seen = nullptr;
    Shadow shadow(path_, [&] {
      for (const auto kind : {Shadow::Image::durable, Shadow::Image::noted, Shadow::Image::words}) {
        if (!wrong.empty()) return;
        seen->make(kind, random_, second);
        wrong = inner.judge(second, expected);
        if (!wrong.empty())
          wrong = "crash in recovery (" + std::string(to_string(kind)) + "): " + wrong;
      }
    });
    seen = &shadow;
    auto pool = PoolAccess::open(path_, small_pool(Mode::open), &shadow);
    if (!pool) return "open: " + pool.error().message;
    (void)pool->close();
    return wrong;
  }

  std::uint64_t images = 0;
  std::uint64_t replays = 0;

 private:
  // An anonymous pool stands for a failure, which `wrong` tells.
  Pool open(Mode mode, std::string& wrong) {
    auto pool = Pool::open(path_, small_pool(mode));
    if (pool) return std::move(*pool);
    wrong = "open: " + pool.error().message;
    return Pool::anonymous().value();
  }

  // Which of the legal states the index is in.
  std::optional<Index<K>> settle(Pool& pool, const Expected<K>& expected, Map<K>& map) {
    const auto all = pool.indexes();
    if (!all) {
      wrong_ = "indexes: " + all.error().message;
      return {};
    }
    const bool missing =
        std::ranges::none_of(*all, [](const IndexInfo& info) { return info.name == kIndexName; });
    if (missing && !expected.creating) {
      wrong_ = "the index is gone";
      return {};
    }
    auto index = pool.index<K>(kIndexName, spec_);
    if (!index) {
      wrong_ = "index: " + index.error().message;
      return {};
    }
    if (all->size() + (missing ? 1 : 0) < expected.others) wrong_ = "another index is gone";
    map = expected.acknowledged;
    if (expected.loading != nullptr) {
      const std::uint64_t n = index->size();
      if (n > expected.loading->size()) wrong_ = "more than was loaded";
      for (std::size_t i = 0; i < std::min<std::size_t>(n, expected.loading->size()); ++i) {
        map.emplace((*expected.loading)[i].key, (*expected.loading)[i].value);
      }
    }
    std::string wrong = difference<K>(*index, map, 13);
    if (!wrong.empty() && expected.pending) {
      (void)apply<K>(map, *expected.pending);
      const std::string also = difference<K>(*index, map, 13);
      if (also.empty()) wrong.clear();
    }
    if (!wrong.empty()) wrong_ = wrong;
    return wrong_.empty() ? std::optional(*index) : std::nullopt;
  }

  // Works on around the place of the crash.
  std::string go_on(Index<K>& index, Map<K>& map, const Expected<K>& expected, unsigned steps) {
    Owned<K> pivot = Keys<K>::nth(random_.below(map.size() + 1));
    if (expected.pending) pivot = expected.pending->key;
    for (unsigned i = 0; i < steps; ++i) {
      Owned<K> key = pivot;
      if (i != 0) {
        auto it = map.lower_bound(pivot);
        for (std::uint64_t back = random_.below(8); back != 0 && it != map.begin(); --back) --it;
        for (std::uint64_t on = random_.below(8); on != 0 && it != map.end(); --on) ++it;
        if (it != map.end()) key = it->first;
        if (random_.one_in(2)) key = Keys<K>::near(key, random_);
      }
      const Op<K> op = random_op<K>(random_, key);
      const Outcome should = apply<K>(map, op);
      const Outcome is = apply<K>(index, op);
      if (is != should) {
        return show<K>(op) + " is '" + std::string(everleaf::to_string(is)) + "', not '" +
               std::string(everleaf::to_string(should)) + "'";
      }
    }
    return {};
  }

  std::filesystem::path path_;
  std::string spec_;
  Random random_;
  FileView view_;
  std::string wrong_;
};

struct RigOptions {
  std::size_t every = 1;            // of the fences that change no structure, how many are judged
  std::size_t structure_every = 1;  // of the others
  std::size_t random_images = 3;    // at each fence, besides durable and noted
  std::size_t thinner = scale() < 0.5 ? 8 : 1;  // sanitizers look at fewer fences
  bool around_growth = false;                   // only while the pool grows, and a little longer
  std::size_t keep = 0;                         // images, after plain operations, for kept()
  bool deep = true;                             // nested crashes, second recovery, read-only open
  std::uint64_t lost_flush = 0;                 // canaries: the n-th after open() does not happen
  std::uint64_t lost_fence = 0;
};

template <class K>
class Rig {
 public:
  Rig(std::string spec, std::uint64_t seed, RigOptions options = {})
      : spec_(std::move(spec)),
        options_(options),
        random_(seed),
        judge_(scratch_ / "image", spec_, seed + 1),
        inner_(scratch_ / "inner", spec_, seed + 2) {}

  [[nodiscard]] std::filesystem::path path() const { return scratch_ / "pool"; }

  // Without images; the index is there afterwards.
  void preload(const std::vector<Op<K>>& ops) {
    Pool pool = Pool::open(path(), small_pool()).value();
    auto index = pool.index<K>(kIndexName, spec_).value();
    for (const Op<K>& op : ops)
      ASSERT_EQ(test::apply<K>(index, op), apply<K>(expected_.acknowledged, op));
    ASSERT_TRUE(pool.close());
  }

  // An image that another rig kept, and what is in it.
  void adopt(std::span<const std::byte> image, const Map<K>& map) {
    write_bytes(path(), image);
    expected_.acknowledged = map;
  }

  // From here on every fence is looked at.
  void open() {
    (void)Pool::open(path(), small_pool());  // makes it if it is not there
    shadow_ = std::make_unique<Shadow>(path(), [this] { at_fence(); });
    expected_.headers = true;
    expected_.creating = true;
    what_ = "open";
    // Images of any words: what `disk` leaves. In `memory` trees may rely on more.
    PoolOptions in_words = on_disk();
    in_words.mode = Mode::open;
    auto pool = PoolAccess::open(path(), in_words, shadow_.get());
    ASSERT_TRUE(pool) << pool.error().message;
    expected_.headers = false;
    pool_.emplace(std::move(*pool));
    what_ = "create index";
    auto index = pool_->index<K>(kIndexName, spec_);
    ASSERT_TRUE(index) << index.error().message;
    expected_.creating = false;
    index_.emplace(*index);
    if (options_.lost_flush != 0) shadow_->lost_flush = shadow_->flushes() + options_.lost_flush;
    if (options_.lost_fence != 0) shadow_->lost_fence = shadow_->fences() + options_.lost_fence;
  }

  void run(const Op<K>& op) {
    if (!problem.empty()) return;
    expected_.pending = op;
    what_ = show<K>(op);
    const Outcome should = answer<K>(expected_.acknowledged, op);
    const Outcome is = test::apply<K>(*index_, op);
    if (is != should) {
      problem = what_ + " is '" + std::string(everleaf::to_string(is)) + "'";
    }
    (void)apply<K>(expected_.acknowledged, op);
    expected_.pending.reset();
  }
  void run(const std::vector<Op<K>>& ops) {
    for (const Op<K>& op : ops) run(op);
  }

  // More indexes; each of them is there wholly or not at all.
  void make_others(int count) {
    expected_.creating = true;  // every fence counts
    for (int i = 0; i < count; ++i) {
      what_ = "create other index";
      auto other = pool_->index<K>(std::to_string(i), spec_);
      ASSERT_TRUE(other) << other.error().message;
      expected_.others = static_cast<std::size_t>(i) + 1;
    }
    expected_.creating = false;
  }

  void load(const std::vector<Entry<K>>& entries, double fill) {
    expected_.loading = &entries;
    what_ = "bulk_load";
    const Outcome outcome = index_->bulk_load(entries, fill);
    if (outcome != Outcome::done)
      problem = "bulk_load: " + std::string(everleaf::to_string(outcome));
    expected_.loading = nullptr;
    for (const auto& entry : entries) expected_.acknowledged.emplace(entry.key, entry.value);
  }

  void close() {
    if (problem.empty()) problem = difference<K>(*index_, expected_.acknowledged);
    if (problem.empty()) problem = unsound(*pool_);
    expected_.headers = true;
    what_ = "close";
    index_.reset();
    if (auto closed = pool_->close(); !closed) problem = closed.error().message;
    pool_.reset();
    expected_.headers = false;
  }

  using Kept = std::pair<std::vector<std::byte>, Map<K>>;
  [[nodiscard]] const std::vector<Kept>& kept() const { return kept_; }
  [[nodiscard]] const Shadow& shadow() const { return *shadow_; }
  [[nodiscard]] std::uint64_t images() const { return judge_.images + inner_.images; }
  [[nodiscard]] std::uint64_t replays() const { return judge_.replays + inner_.replays; }

  std::string problem;  // the first; no images are made after it

 private:
  void at_fence() {
    if (!problem.empty()) return;
    if (options_.around_growth) {
      if (shadow_->grew() && growth_fence_ == 0) growth_fence_ = shadow_->fences();
      if (growth_fence_ == 0 || shadow_->fences() > growth_fence_ + 24) return;
    } else {
      const bool rare = expected_.headers || expected_.creating;
      // An entry with a key record takes or frees one block, a change of structure more.
      const bool structure = shadow_->redo_blocks() > (std::is_same_v<K, Bytes> ? 1U : 0U);
      const std::size_t every =
          (structure ? options_.structure_every : options_.every) * options_.thinner;
      // Whatever the thinning, no run goes without a crash into a change of structure.
      const bool first = structure && structures_++ < kFirstStructures;
      if (!rare && !first && !random_.one_in(every)) return;
    }
    using Image = Shadow::Image;
    static constexpr Image kSome[] = {Image::live, Image::lines,       Image::words,
                                      Image::one,  Image::all_but_one, Image::words};
    look(Image::durable);
    look(Image::noted);
    for (std::size_t i = 0; i < options_.random_images; ++i) {
      look(kSome[random_.below(std::size(kSome))]);
    }
  }

  void look(Shadow::Image kind) {
    if (!problem.empty()) return;
    shadow_->make(kind, random_, image_);
    std::string wrong = judge_.judge(image_, expected_);
    if (wrong.empty() && kept_.size() < options_.keep && expected_.pending && random_.one_in(8)) {
      keep();
    }
    const std::uint64_t n = judge_.images;
    if (options_.deep) {
      if (wrong.empty() && n % 61 == 0) wrong = judge_.judge_nested(image_, expected_, inner_);
      if (wrong.empty() && n % 23 == 0) wrong = judge_.judge_twice(image_);
      if (wrong.empty() && n % 17 == 0) wrong = judge_.judge_read_only(image_, expected_);
    }
    if (wrong.empty()) return;
    problem = "fence " + std::to_string(shadow_->fences()) + " in " + what_ + ", image '" +
              std::string(to_string(kind)) + "': " + wrong;
  }

  // The image for another rig, which needs to know whether the pending operation is in it.
  void keep() {
    write_bytes(scratch_ / "kept", image_);
    Map<K> map = expected_.acknowledged;
    {
      Pool pool = Pool::open(scratch_ / "kept", small_pool(Mode::read_only)).value();
      if (!difference<K>(pool.index<K>(kIndexName, spec_).value(), map).empty()) {
        (void)apply<K>(map, *expected_.pending);
      }
    }
    kept_.emplace_back(image_, std::move(map));
  }

  Scratch scratch_;
  std::string spec_;
  RigOptions options_;
  Random random_;
  Judge<K> judge_;
  Judge<K> inner_;
  Expected<K> expected_;
  std::string what_;
  std::unique_ptr<Shadow> shadow_;
  std::optional<Pool> pool_;
  std::optional<Index<K>> index_;
  std::vector<std::byte> image_;
  std::vector<Kept> kept_;
  std::uint64_t growth_fence_ = 0;
  static constexpr std::size_t kFirstStructures = 3;
  std::size_t structures_ = 0;  // fences in changes of structure
};

}  // namespace everleaf::test
