// The wB+-Tree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::wbtree {

extern const Factory kFactory;  // register.cpp

inline constexpr std::array<OptionInfo, 2> kOptions{
    {{"structure", "slot-bitmap", "slot-only, slot-bitmap, bitmap-leaf",
      "node structures of Table 2: slot arrays alone (128-byte nodes), slot array and bitmap in "
      "all "
      "nodes, or leaves with a bitmap only"},
     {"node", "1024", "a multiple of 64 from 128 to 1024",
      "bytes of a node; slot-only needs 128"}}};

inline constexpr std::array<std::string_view, 7> kTestSpecs{
    "wbtree",
    "wbtree:structure=slot-only:node=128",
    "wbtree:structure=slot-bitmap:node=128",
    "wbtree:structure=slot-bitmap:node=512",
    "wbtree:structure=bitmap-leaf:node=1024",
    "wbtree:structure=bitmap-leaf:node=128",
    "wbtree:structure=bitmap-leaf:node=576"};

inline constexpr Registration kRegistration{
    {"wbtree", "write-atomic B+-tree: unsorted entries, one 8-byte word commits an operation",
     "Chen, Jin: Persistent B+-Trees in Non-Volatile Main Memory, PVLDB 8(7), 2015",
     Durability::strict, InnerNodes::pool, Recovery::instant, false, false, kOptions, kTestSpecs},
    kFactory};

}  // namespace everleaf::tree::wbtree
