// What listens to every access of the observed memory. Offsets count from its first byte.
#pragma once

#include <cstddef>

namespace everleaf::crash {

class Gauge {
 public:
  virtual ~Gauge() = default;
  virtual void read(std::size_t at, std::size_t bytes) = 0;
  virtual void stored(std::size_t at, std::size_t bytes) = 0;  // the bytes are there
  virtual void flushed(std::size_t at, std::size_t bytes) = 0;
  virtual void fenced() = 0;
};

}  // namespace everleaf::crash
