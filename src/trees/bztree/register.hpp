// The BzTree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::bztree {

extern const Factory kFactory;  // register.cpp

// README.md, Options, has where the defaults come from.
inline constexpr std::array<OptionInfo, 9> kOptions{
    {{"page", "1024", "a multiple of 64 from 256 to 4096", "most bytes of a node"},
     {"free", "256", "bytes, from 32 to half a page", "least free space of a fresh leaf"},
     {"split", "100", "75 to 100",
      "percent of a page that entries and free space may take, or the leaf splits"},
     {"merge", "25", "0 to 45", "percent of a page below which a node is merged"},
     {"dead", "50", "10 to 100",
      "percent of a page of deleted bytes above which a leaf is consolidated"},
     {"update", "pointer", "pointer, inline", "values change in place, or by new records"},
     {"reserve", "status", "status, entry",
      "an insertion reserves by the leaf's status alone, or by its metadata, too"},
     {"values", "numbers", "numbers, bytes",
      "values are 64-bit numbers, or payloads of up to 65,536 bytes"},
     {"inline", "128", "bytes, from 0 to 512",
      "most bytes of a payload that lies in its leaf; of an eighth of a page no more do"}}};

inline constexpr std::array<std::string_view, 4> kTestSpecs{
    "bztree", "bztree:page=256:free=96",
    "bztree:page=512:free=128:split=75:dead=20:update=inline:reserve=entry",
    "bztree:page=256:free=96:values=bytes:inline=2"};

inline constexpr Registration kRegistration{
    {"bztree", "latch-free: multi-word compare-and-swap, append-only leaves, immutable inner nodes",
     "Arulraj et al.: BzTree: A High-Performance Latch-free Range Index for Non-Volatile Memory, "
     "PVLDB 11(5), 2018",
     Durability::strict, InnerNodes::pool, Recovery::instant, true, false, kOptions, kTestSpecs},
    kFactory,
    true};

}  // namespace everleaf::tree::bztree
