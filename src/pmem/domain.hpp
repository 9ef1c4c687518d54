// Which persistence domain a file gives, and which one a pool on it runs in.
#pragma once

#include <everleaf/pool.hpp>

namespace everleaf::pmem {

// The domain of the file behind `fd` by its device and mapping. MAP_SYNC is tried on `fd` itself if
// it is a file of at least one page; a directory's answer is that of its file system.
DomainChoice detect(int fd);
[[nodiscard]] bool on_tmpfs(int fd);
[[nodiscard]] bool on_hugetlbfs(int fd);

// `wanted` (or what the device gives) checked against the device: domain_too_strong unless
// emulated.
Result<DomainChoice> choose(int fd, const PoolOptions& options);

}  // namespace everleaf::pmem
