// The BD+Tree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::bdtree {

extern const Factory kFactory;  // register.cpp

inline constexpr std::array<OptionInfo, 1> kOptions{
    {{"node", "1024", "256, 512, 1024, 2048", "bytes of a leaf"}}};

inline constexpr std::array<std::string_view, 3> kTestSpecs{"bdtree", "bdtree:node=256",
                                                            "bdtree:node=512"};

inline constexpr Registration kRegistration{
    {"bdtree", "buffered: operations at memory speed, a crash costs at most two epochs",
     "Du, Scott: Buffered Persistence in B+ Trees, Proc. ACM Manag. Data 2(6), 2024",
     Durability::buffered, InnerNodes::dram, Recovery::rebuild, false, false, kOptions, kTestSpecs},
    kFactory};

}  // namespace everleaf::tree::bdtree
