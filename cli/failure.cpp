#include "failure.hpp"

#include <string>

#include <everleaf/index.hpp>

namespace everleaf::cli {

int exit_code_of(Code code) noexcept {
  switch (code) {
    case Code::wrong_tree:
    case Code::wrong_key_type:
    case Code::unknown_tree:
    case Code::unknown_option:
    case Code::bad_option:
    case Code::bad_argument:
    case Code::domain_too_strong:
      return kExitUsage;
    default:
      return kExitIo;
  }
}

int exit_code_of(Outcome outcome) noexcept {
  switch (outcome) {
    case Outcome::done:
      return 0;
    case Outcome::exists:
    case Outcome::absent:
      return kExitNo;
    case Outcome::key_too_long:
    case Outcome::not_empty:
    case Outcome::not_ascending:
      return kExitUsage;
    default:
      return kExitIo;
  }
}

std::string describe(Outcome outcome) {
  switch (outcome) {
    case Outcome::out_of_space:
      return "out of space: the pool cannot grow; free some of the disk or raise --max-bytes";
    case Outcome::key_too_long:
      return "the key is longer than " + std::to_string(kMaxKeyBytes) + " bytes";
    case Outcome::io_error:
      return "a write-back failed: the pool takes no more writes";
    case Outcome::corrupt:
      return "the pool is damaged: run `everleaf check`";
    default:
      return std::string(to_string(outcome));
  }
}

}  // namespace everleaf::cli
