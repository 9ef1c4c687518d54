#include "accesses.hpp"

#include <algorithm>

namespace everleaf::crash {

void fill(Wide& wide, char with) {
  wide.name.fill(with);
  wide.spec.fill(with);
}

void copy(Wide& to, const Wide& from) {
  std::copy(from.name.begin(), from.name.end(), to.name.begin());
  std::copy(from.spec.begin(), from.spec.end(), to.spec.begin());
}

void assign(Wide& to, const Wide& from) {
  to = from;
}

bool same(const Wide& a, const Wide& b) {
  return a.name == b.name && a.spec == b.spec;
}

std::uint64_t sum(const std::uint64_t* words) {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < 8; ++i) all += words[i];
  return all;
}

}  // namespace everleaf::crash
