// The LodgeTree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::lodgetree {

extern const Factory kFactory;  // register.cpp

inline constexpr std::array<OptionInfo, 10> kOptions{
    {{"node", "512", "256, 512, 1024", "bytes of a leaf"},
     {"slots", "28", "6 to 63", "slots of a last-level node, for leaves and buffered pairs"},
     {"buffer", "64", "1 to 64",
      "most buffered pairs of a node; 1: the next one makes it go to its leaf"},
     {"t_node", "4", "1 to 64", "most leaves that a flush goes to"},
     {"t_split", "0", "2 to the slots of a leaf less 1; 0: less 2",
      "pairs in a leaf from which on it splits"},
     {"t", "2", "1 to 1000", "hotness from which on a node splits into more nodes or fewer"},
     {"split", "4", "2 to 16", "most nodes that one splits into; 2: no multiple split"},
     {"log", "64512", "256 to 4096 (powers of two), multiples of 16128", "bytes of a log chunk"},
     {"chunks", "512", "3 to 512", "most chunks of the log"},
     {"partitions", "64", "1 to 255, less than half of chunks",
      "partitions of the log; 1: no partitioned log"}}};

inline constexpr std::array<std::string_view, 5> kTestSpecs{
    "lodgetree", "lodgetree:node=256:slots=8:t_node=2:log=256:chunks=5:partitions=2",
    "lodgetree:node=256:slots=12:t_node=64:split=2:log=512:chunks=3:partitions=1",
    "lodgetree:node=256:slots=6:t_split=5:log=4096:chunks=3:partitions=1",
    "lodgetree:node=1024:slots=63:t=1:split=16:buffer=1"};

inline constexpr Registration kRegistration{
    {"lodgetree",
     "strict: a log, and buffers in the free slots of the last inner level, flushed leaf by leaf",
     "Du et al.: LodgeTree: A Last-Level Distributed and Surrogate Buffer Tree for Non-Volatile "
     "Memories",
     Durability::strict, InnerNodes::dram, Recovery::replay, false, false, kOptions, kTestSpecs},
    kFactory};

}  // namespace everleaf::tree::lodgetree
