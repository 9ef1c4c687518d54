// Which process something belongs to. A child of fork() inherits open pools, but not the thread of
// their clock, and mutexes in whatever state they were: nothing of them may be closed or destroyed
// there, least of all what both processes have mapped.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/seam.hpp"

namespace everleaf::base {

class Process {
 public:
  [[nodiscard]] bool is_this() const noexcept { return id_ == process_id(); }

 private:
  int id_ = process_id();
};

// A shared object that only the process that made it destroys; a child of it keeps it as it is.
template <class T>
std::shared_ptr<T> shared_here(std::unique_ptr<T> object) {
  return {object.release(), [made_by = Process()](T* one) {
            if (made_by.is_this()) {
              delete one;
              return;
            }
            // Reachable, so that no checker takes it for a leak. Its memory ends with the process.
            static std::mutex guard;
            static auto* const kept = new std::vector<T*>;
            const std::lock_guard held(guard);
            kept->push_back(one);
          }};
}

}  // namespace everleaf::base
