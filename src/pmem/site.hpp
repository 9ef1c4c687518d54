// Which flush or fence of the source this is: its call. Observers get it, the plain path ignores
// it.
#pragma once

#include <source_location>

namespace everleaf::pmem {

using Site = std::source_location;

}  // namespace everleaf::pmem
