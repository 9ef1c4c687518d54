// How the end of an object went, told to the thread that let go of its last handle: of several
// threads, each with a handle, none knows beforehand whether it will be the one.
#pragma once

#include <new>
#include <utility>

#include <everleaf/result.hpp>

namespace everleaf::base {

class LastWords {
 public:
  // Calls `release`, which lets go of a handle. The first error of what ended with it.
  template <class F>
  static Result<void> of(F&& release) {
    LastWords here;
    LastWords* const outer = std::exchange(listening_, &here);
    release();
    listening_ = outer;
    return std::move(here.result_);
  }

  // Of a destructor: ends the object by `finish`, which may answer an error or throw bad_alloc.
  template <class F>
  static void say(F&& finish) noexcept {
    try {
      Result<void> result = finish();
      if (!result && listening_ != nullptr && listening_->result_) {
        listening_->result_ = std::move(result);
      }
    } catch (const std::bad_alloc&) {
      // No memory for the sentence of an error; short ones need none.
      if (listening_ != nullptr && listening_->result_) {
        listening_->result_ = std::unexpected(Error{Code::io, "no memory"});
      }
    }
  }

 private:
  LastWords() = default;
  Result<void> result_;
  static inline constinit thread_local LastWords* listening_ = nullptr;
};

}  // namespace everleaf::base
