// How a refused operation ends a command: each outcome has its exit code.
#include "failure.hpp"

#include <array>
#include <utility>

#include <gtest/gtest.h>

namespace everleaf::cli {
namespace {

TEST(Failure, OutcomesHaveExitCodes) {
  constexpr std::array kCodes{
      std::pair{Outcome::done, 0},
      std::pair{Outcome::exists, kExitNo},
      std::pair{Outcome::absent, kExitNo},
      std::pair{Outcome::out_of_space, kExitIo},
      std::pair{Outcome::key_too_long, kExitUsage},
      std::pair{Outcome::read_only, kExitIo},
      std::pair{Outcome::io_error, kExitIo},
      std::pair{Outcome::corrupt, kExitIo},
      std::pair{Outcome::too_many_threads, kExitIo},
      std::pair{Outcome::not_empty, kExitUsage},
      std::pair{Outcome::not_ascending, kExitUsage},
      std::pair{Outcome::value_too_long, kExitUsage},
      std::pair{Outcome::batch_too_large, kExitUsage},
      std::pair{Outcome::differs, kExitNo},
      std::pair{Outcome::dropped, kExitIo},
  };
  static_assert(kCodes.back().first == Outcome::dropped &&
                kCodes.size() == static_cast<std::size_t>(Outcome::dropped) + 1);
  for (const auto& [outcome, code] : kCodes)
    EXPECT_EQ(exit_code_of(outcome), code) << to_string(outcome);
}

}  // namespace
}  // namespace everleaf::cli
