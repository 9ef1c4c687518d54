// Accesses that compilers make of their own builtins, compiled with the hooks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace everleaf::crash {

// As a record in a pool: 200 bytes that are filled, copied and compared as wholes.
struct Wide {
  std::uint64_t first = 0;
  std::array<char, 64> name{};
  std::array<char, 128> spec{};
};
static_assert(sizeof(Wide) == 200);

void fill(Wide& wide, char with);         // std::array::fill
void copy(Wide& to, const Wide& from);    // std::copy of 64 and 128 bytes
void assign(Wide& to, const Wide& from);  // of a struct
bool same(const Wide& a, const Wide& b);  // operator== of arrays
std::uint64_t sum(
    const std::uint64_t* words);  // a loop over eight words that could be one of vectors

}  // namespace everleaf::crash
