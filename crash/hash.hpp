#pragma once

#include <cstddef>
#include <cstdint>

namespace everleaf::crash {

std::uint64_t xxh3(const void* from, std::size_t bytes, std::uint64_t seed) noexcept;

}  // namespace everleaf::crash
