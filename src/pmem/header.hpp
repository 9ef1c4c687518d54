// The two header copies: written alternately, so that one is whole at any moment.
#pragma once

#include <everleaf/result.hpp>

#include "pmem/format.hpp"

namespace everleaf::pmem {

struct HeaderReading {
  Header header;
  bool other_damaged = false;  // the copy that was not taken, at `other`, does not check
  Offset other = 0;
};

// Reads the valid copy with the larger sequence from the first pages; says what is wrong otherwise.
// `file_bytes` is the file's size now. The bytes need not be trusted.
Result<HeaderReading> read_headers(const std::byte* base, std::uint64_t file_bytes, bool read_only);

// Writes both copies of a new pool, each with its magic last. False: a write-back failed.
[[nodiscard]] bool create_headers(Medium& medium);

// Overwrites the older copy with `header` and a larger sequence: a crash leaves the other one.
// False: a write-back failed.
[[nodiscard]] bool update_header(Medium& medium, Header header);

}  // namespace everleaf::pmem
