// The heap beside a thread that is stopped within it (src/alloc/README.md, Stopped threads): the
// others go on, and no block is handed out twice, whether that thread comes back or not.
#include <algorithm>
#include <memory>
#include <vector>

#include "alloc/ground.hpp"
#include "pmem/format.hpp"
#include "stops.hpp"

namespace everleaf::crash {
namespace {

constexpr std::size_t kBlockBytes = 4096;
constexpr std::size_t kLargeBytes = 70000;

// A heap after an open: slabs with blocks in use that nobody has looked at.
class HeapStage {
 public:
  HeapStage() {
    make_pool();
    // More than a slab of each; every third is free again.
    for (int i = 0; i < 40; ++i) small_.push_back(allocated(kBlockBytes));
    for (int i = 0; i < 3; ++i) large_.push_back(allocated(kLargeBytes));
    for (std::size_t i = 0; i < small_.size(); i += 3) give_back(small_[i]);
    std::erase_if(small_,
                  [this](pmem::Offset block) { return ground_->heap.allocated_bytes(block) == 0; });
    open_again();
  }
  // What the threads had in DRAM is gone.
  void open_again() {
    ground_.reset();
    file_.reset();
    file_ = pmem::PoolFile::attach(arena_.base(0), kCapacity, kCapacity, emulated(), &recorder_)
                .value();
    ground_ = std::make_unique<alloc::Ground>(*file_);
    EXPECT_TRUE(ground_->redo.recover());
  }
  [[nodiscard]] std::vector<pmem::Offset> in_use() {
    std::vector<pmem::Offset> all;
    std::vector<std::string> problems;
    heap().for_each_allocated([&](pmem::Offset at, std::size_t) { all.push_back(at); }, &problems);
    EXPECT_TRUE(problems.empty()) << problems.front();
    return all;
  }

  [[nodiscard]] alloc::Heap& heap() { return ground_->heap; }
  [[nodiscard]] const std::vector<pmem::Offset>& small() const { return small_; }
  [[nodiscard]] const std::vector<pmem::Offset>& large() const { return large_; }
  [[nodiscard]] bool has_reached(const char* path) const {
    return recorder_.reached.contains(path);
  }

  pmem::Offset allocated(std::size_t bytes) {
    const pmem::Offset block = heap().reserve(bytes);
    EXPECT_NE(block, 0U);
    EXPECT_EQ(heap().allocated_bytes(block), 0U) << "handed out, but in use";
    alloc::Redo record;
    EXPECT_TRUE(heap().activate(record, block));
    EXPECT_EQ(ground_->redo.commit(record), Outcome::done);
    return block;
  }
  void give_back(pmem::Offset block) {
    alloc::Redo record;
    EXPECT_TRUE(heap().release(record, block));
    EXPECT_EQ(ground_->redo.commit(record), Outcome::done);
    heap().recycle(block);
  }

 private:
  void make_pool() {
    file_ = pmem::PoolFile::format(arena_.base(0), pmem::kMinPoolBytes, kCapacity, emulated(),
                                   &recorder_)
                .value();
    ground_ = std::make_unique<alloc::Ground>(*file_);
  }

  Arena arena_{kCapacity, 2, {}};
  Recorder recorder_{arena_};  // finds the scheduler its points
  Watch watch_{recorder_};
  std::unique_ptr<pmem::PoolFile> file_;
  std::unique_ptr<alloc::Ground> ground_;
  std::vector<pmem::Offset> small_;
  std::vector<pmem::Offset> large_;
};

// What a thread does to the heap: the blocks it has then, and those it gave back.
struct Has {
  std::vector<pmem::Offset> taken;
  std::vector<pmem::Offset> freed;
};
using Does = void (*)(HeapStage& stage, Has& has, std::size_t thread);

void takes(HeapStage& stage, Has& has, std::size_t) {
  for (int i = 0; i < 12; ++i) has.taken.push_back(stage.allocated(kBlockBytes));
  has.taken.push_back(stage.allocated(kLargeBytes));
}

// Of slabs that nobody has looked at; and blocks come back into use at once.
void frees(HeapStage& stage, Has& has, std::size_t thread) {
  for (std::size_t i = thread; i < stage.small().size(); i += 2) {
    has.freed.push_back(stage.small()[i]);
    stage.give_back(stage.small()[i]);
  }
  has.freed.push_back(stage.large()[thread]);
  stage.give_back(stage.large()[thread]);
  takes(stage, has, thread);
}

// What is left, by heirs of the two threads' magazines: each block once.
void take_all(HeapStage& stage) {
  std::vector<pmem::Offset> blocks;
  const Thread taker{.prepare = {}, .act = [&] {
                       while (const pmem::Offset block = stage.heap().reserve(kBlockBytes)) {
                         blocks.push_back(block);
                       }
                     }};
  (void)stop_first({}, Stops::for_ever, taker, taker);
  EXPECT_GT(blocks.size(), 200U);
  EXPECT_TRUE(std::ranges::none_of(blocks, [&](pmem::Offset block) {
    return stage.heap().allocated_bytes(block) != 0;
  })) << "handed out, but in use";
  std::ranges::sort(blocks);
  EXPECT_EQ(std::ranges::adjacent_find(blocks), blocks.end()) << "handed out twice";
}

void stop_in(Does first, Does second) {
  bool without_lock = false;
  const auto once = [&](std::optional<std::uint64_t> at, Stops stops) {
    HeapStage stage;
    Has has[2];
    const Stop stop = stop_first(at, stops, {{}, [&] { first(stage, has[0], 0); }},
                                 {{}, [&] { second(stage, has[1], 1); }});
    without_lock = without_lock || stage.has_reached("a lock is given up");
    // Nobody may ever come back.
    if (!stop.ended) stage.open_again();
    std::vector<pmem::Offset> expected;
    for (const auto* all : {&stage.small(), &stage.large()}) {
      std::ranges::copy_if(*all, std::back_inserter(expected), [&](pmem::Offset block) {
        return std::ranges::find(has[0].freed, block) == has[0].freed.end() &&
               std::ranges::find(has[1].freed, block) == has[1].freed.end();
      });
    }
    for (const Has& one : has) expected.insert(expected.end(), one.taken.begin(), one.taken.end());
    const std::vector<pmem::Offset> allocated = stage.in_use();
    std::ranges::sort(expected);
    std::vector<pmem::Offset> odd;
    std::ranges::set_symmetric_difference(allocated, expected, std::back_inserter(odd));
    // That of the record which the stopped one was about to write.
    EXPECT_LE(odd.size(), stop.ended ? 0U : 1U);
    take_all(stage);
    return stop;
  };
  EXPECT_GT(stop_everywhere(once), 50U);
  EXPECT_TRUE(without_lock);
}

TEST(Heap, AStoppedThreadHoldsNobodyUp) {
  stop_in(takes, takes);
  stop_in(takes, frees);
  stop_in(frees, takes);
  stop_in(frees, frees);
}

}  // namespace
}  // namespace everleaf::crash
