#include "failure.hpp"

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
    case Outcome::differs:
      return kExitNo;
    case Outcome::key_too_long:
    case Outcome::value_too_long:
    case Outcome::batch_too_large:
    case Outcome::not_empty:
    case Outcome::not_ascending:
      return kExitUsage;
    default:
      return kExitIo;
  }
}

}  // namespace everleaf::cli
