// What is visible in a leaf, copied out in key order: for changes, and for scans.
#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {
namespace {

// By counting, as many as a page of the usual size has. False: they are as they were.
template <class Item>
bool sort_few(std::vector<Item>& items) {
  constexpr std::size_t kCounted = 64;
  if (items.size() > kCounted) return false;
  std::array<std::uint64_t, kCounted> keys;
  std::ranges::transform(items, keys.begin(), &Item::key);
  Ranks<kCounted> ranks;
  if (!ranks.count(std::span(keys).first(items.size()))) return false;
  std::array<Item, kCounted> from;
  std::ranges::copy(items, from.begin());
  for (std::size_t i = 0; i < items.size(); ++i) items[ranks[i]] = from[i];
  return true;
}

// The first `sorted` are in order.
template <class Keys, class Item>
void put_in_order(std::vector<Item>& items, std::size_t sorted) {
  if (sorted == items.size()) return;
  if constexpr (!Keys::kInlineBytes) {
    if (sort_few(items)) return;
  }
  const auto middle = items.begin() + static_cast<std::ptrdiff_t>(sorted);
  const auto less = [](const auto& a, const auto& b) { return a.key < b.key; };
  // In a damaged pool another thread may write where keys lie: the comparisons may contradict each
  // other, which std::sort does not bear.
  for (auto at = middle; at != items.end(); ++at) {
    std::rotate(std::upper_bound(middle, at, *at, less), at, at + 1);
  }
  std::inplace_merge(items.begin(), middle, items.end(), less);
}

}  // namespace

// Not all of one moment where the leaf's status changes meanwhile. False: the leaf is damaged.
template <class Keys>
bool BzTree<Keys>::gather(const LeafOf& leaf, Status s, Items& items) const {
  items.clear();
  items.reserve(s.count());
  bool sound = true;
  const auto sorted = leaf.each_visible(*words_, s, [&](Meta m) {
    const std::uint64_t value = leaf.value_of(*words_, m);
    items.push_back({leaf.key(keys_, m), value, m, m.is_long() ? leaf.stored(m) : 0, {}});
    const PayloadAt payload = PayloadAt::of(value);
    if (!options_.payloads || payload.at != 0 || payload.bytes == 0) return;
    const std::byte* const at = leaf.payload(m, payload.bytes);
    sound = sound && at != nullptr;
    if (at != nullptr) items.back().payload = {reinterpret_cast<const char*>(at), payload.bytes};
  });
  if (!sorted || !sound) return false;
  put_in_order<Keys>(items, *sorted);
  return true;
}

// The same.
template <class Keys>
bool BzTree<Keys>::gather(const LeafOf& leaf, Status s, Pairs& pairs) const {
  if constexpr (!Keys::kInlineBytes) {
    if (leaf.is_packed(options_.page, s)) {
      pairs.resize(s.count());
      if (const auto copied = leaf.copy_packed(*words_, s, pairs.data())) {
        pairs.resize(copied->all);
        put_in_order<Keys>(pairs, copied->sorted);
        return true;
      }
    }
  }
  pairs.clear();
  const auto sorted = leaf.each_visible(*words_, s, [&](Meta m) {
    pairs.push_back({leaf.key(keys_, m), value_of(leaf, m)});
  });
  if (!sorted) return false;
  put_in_order<Keys>(pairs, *sorted);
  return true;
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
