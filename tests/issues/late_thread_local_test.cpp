// The story: a thread_local object of the user that was made before the thread's first use of the
// library, and uses it in its destructor, took a thread slot that nobody gave back. After 1023
// such threads every operation was refused.
#include <thread>

#include "support.hpp"

namespace everleaf::test {
namespace {

struct Late {
  Index<std::uint64_t>* index = nullptr;
  ~Late() {
    if (index != nullptr) (void)index->find(1);
  }
};
thread_local Late t_late;

TEST(LateThreadLocal, DestructorsMayUseTheLibrary) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index").value();
  for (std::uint64_t i = 0; i < kMaxThreads + 50; ++i) {
    Outcome outcome = Outcome::corrupt;
    std::thread([&] {
      t_late.index = &index;
      outcome = index.insert(i, i);
    }).join();
    ASSERT_EQ(outcome, Outcome::done) << "thread " << i;
  }
}

}  // namespace
}  // namespace everleaf::test
