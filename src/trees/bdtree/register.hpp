// The BD+Tree's row in the registry.
#pragma once

#include <array>

#include "trees/contract.hpp"

namespace everleaf::tree::bdtree {

Outcome create(Context context, const base::Spec& canonical, KeyType key_type, alloc::Redo& record,
               std::vector<Reserved>& blocks);
Result<std::unique_ptr<detail::Tree<std::uint64_t>>> open_u64(Context context,
                                                              const base::Spec& canonical);
Result<std::unique_ptr<detail::Tree<Bytes>>> open_bytes(Context context,
                                                        const base::Spec& canonical);
Result<void> validate(const base::Spec& canonical);

inline constexpr std::array<OptionInfo, 1> kOptions{
    {{"node", "512", "256, 512, 1024, 2048", "bytes of a leaf"}}};

inline constexpr std::array<std::string_view, 3> kTestSpecs{"bdtree", "bdtree:node=256",
                                                            "bdtree:node=1024"};

inline constexpr Registration kRegistration{
    {"bdtree", "buffered: operations at memory speed, a crash costs at most two epochs",
     "Du, Scott: Buffered Persistence in B+ Trees, Proc. ACM Manag. Data 2(6), 2024",
     Durability::buffered, InnerNodes::dram, Recovery::rebuild, false, kOptions, kTestSpecs},
    {create, open_u64, open_bytes, validate}};

}  // namespace everleaf::tree::bdtree
