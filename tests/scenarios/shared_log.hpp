// Memory that a child shares with its parent, and that outlives it.
#pragma once

#include <new>

#include <sys/mman.h>

namespace everleaf::test {

template <class Log>
class SharedLog {
 public:
  SharedLog()
      : log_(new (::mmap(nullptr, sizeof(Log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0)) Log) {}
  SharedLog(const SharedLog&) = delete;
  SharedLog& operator=(const SharedLog&) = delete;
  ~SharedLog() { ::munmap(log_, sizeof(Log)); }
  Log* operator->() const { return log_; }

 private:
  Log* log_;
};

}  // namespace everleaf::test
