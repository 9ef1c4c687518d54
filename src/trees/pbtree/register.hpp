// The PB+tree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::pbtree {

extern const Factory kFactory;  // register.cpp

inline constexpr std::array<OptionInfo, 1> kOptions{
    {{"node", "1024", "a multiple of 64 from 256 to 4096", "bytes of a node"}}};

inline constexpr std::array<std::string_view, 3> kTestSpecs{"pbtree", "pbtree:node=256",
                                                            "pbtree:node=512"};

inline constexpr Registration kRegistration{
    {"pbtree", "pivotal nodes: sorted entries on both sides of a pivot, searches without latches",
     "Yoo et al.: Pivotal B+tree for Byte-Addressable Persistent Memory, IEEE Access 10, 2022",
     Durability::strict, InnerNodes::pool, Recovery::instant, false, true, kOptions, kTestSpecs},
    kFactory};

}  // namespace everleaf::tree::pbtree
