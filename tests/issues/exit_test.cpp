// The story: the table of the files that this process has open was destroyed at exit before a pool
// in a static variable was closed, which then looked into it. Now it is never destroyed.
#include <optional>

#include "support.hpp"

namespace everleaf::test {
namespace {

// Closed after the table would be gone: it is older. The address sanitizer tells.
std::optional<Scratch> late_scratch;
std::optional<Pool> late_pool;

TEST(Exit, APoolInAStaticVariable) {
  late_scratch.emplace();
  late_pool = Pool::open(*late_scratch / "pool", small_pool()).value();
  // It is in the table.
  EXPECT_EQ(Pool::open(*late_scratch / "pool", small_pool()).error().code, Code::locked_here);
}

}  // namespace
}  // namespace everleaf::test
