// A class template whose members several files of a folder define: each of them instantiates those
// that it sees. Where the folder is one unit (EVERLEAF_ONE_UNIT of CMakeLists.txt) it sees all, and
// who makes objects of the class instantiates what is needed.
#pragma once

#ifdef EVERLEAF_ONE_UNIT
#define EVERLEAF_INSTANTIATE(...) static_assert(true)
#else
#define EVERLEAF_INSTANTIATE(...) template class __VA_ARGS__
#endif
