// What a process still says that damaged memory ends.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>

#include <unistd.h>

#include "recorder.hpp"

namespace everleaf::crash {

// Text in a buffer of its own: the heap may be what broke.
class LastWords {
 public:
  template <class... Args>
  void add(const char* format, Args... args) noexcept {
    const int n = std::snprintf(text_.data() + size_, text_.size() - size_, format, args...);
    if (n > 0) size_ = std::min(size_ + static_cast<std::size_t>(n), text_.size() - 1);
  }
  // Of a program of threads: what became of it, where, and the line so far that replays it.
  void begin(const char* what, const pmem::Site& site, const char* line) noexcept {
    add("FAILURE %s\nlast flush or fence at %s:%u\nreplay: everleaf crash --replay '%s", what,
        source_name(site.file_name()), site.line(), line);
  }
  void write() const noexcept {
    if (::write(STDOUT_FILENO, text_.data(), size_) < 0) return;
  }

 private:
  std::array<char, 8192> text_{};
  std::size_t size_ = 0;
};

// Signals that damaged memory ends in, on a stack of their own, for as long as this lives.
class Signals {
 public:
  explicit Signals(Crasher* crasher) {
    crasher_ = crasher;
    stack_t stack{};
    stack.ss_sp = memory_.data();
    stack.ss_size = memory_.size();
    ::sigaltstack(&stack, &old_stack_);
    struct sigaction action {};
    action.sa_handler = &Signals::caught;
    action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND);
    for (std::size_t i = 0; i < kCaught.size(); ++i) ::sigaction(kCaught[i], &action, &old_[i]);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    for (std::size_t i = 0; i < kCaught.size(); ++i) ::sigaction(kCaught[i], &old_[i], nullptr);
    ::sigaltstack(&old_stack_, nullptr);
    crasher_ = nullptr;
  }

 private:
  static constexpr std::array kCaught{SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
  static void caught(int signal) {
    const char* const what = signal == SIGSEGV  ? "SIGSEGV"
                             : signal == SIGBUS ? "SIGBUS"
                             : signal == SIGFPE ? "SIGFPE"
                                                : "SIGABRT";
    if (crasher_ != nullptr) crasher_->dying(what);
    ::_exit(1);
  }
  static inline Crasher* crasher_ = nullptr;
  static inline std::array<std::byte, 65536> memory_;
  std::array<struct sigaction, 4> old_{};
  stack_t old_stack_{};
};

}  // namespace everleaf::crash
