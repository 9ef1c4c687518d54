// Structure checks, statistics and the list of blocks: one walk that trusts no word.
#include <algorithm>
#include <string>
#include <unordered_set>

#include "trees/bztree/tree.hpp"
#include "trees/problems.hpp"

namespace everleaf::tree::bztree {

template <class Keys>
struct BzTree<Keys>::Survey {
  const detail::Visit* visit = nullptr;
  CheckReport report;
  Stats stats;
  std::unordered_set<Offset> seen;
  bool beside_writers = false;  // what they replace or change meanwhile is counted as it was

  void problem(std::string text) { add_problem(report, std::move(text)); }
  void own(Offset block, std::size_t bytes) {
    stats.pool_bytes += bytes;
    if (visit != nullptr) (*visit)(block, bytes);
  }
};

// Of a long key or separator: readable, allocated, this node's alone. What is wrong; null: nothing.
template <class Keys>
const char* BzTree<Keys>::survey_record(Survey& s, Offset record) const {
  if constexpr (Keys::kRecords) {
    const std::size_t bytes = c_.heap.allocated_bytes(record);
    if (!keys_.readable(record) || bytes < Keys::record_bytes(keys_.key_of(Word{record}))) {
      return "a key record is impossible or not allocated";
    }
    if (!s.seen.insert(record).second) return "a key record is linked twice";
    s.own(record, bytes);
  } else {
    static_cast<void>(s), static_cast<void>(record);
  }
  return nullptr;
}

// The same of an entry's payload.
template <class Keys>
const char* BzTree<Keys>::survey_payload(Survey& s, const Item<Key>& item) const {
  const PayloadAt payload = PayloadAt::of(item.value);
  const bool is_within = payload.bytes <= options_.within;
  if (item.meta.top() || payload.bytes > kMaxPayloadBytes || is_within != (payload.at == 0)) {
    return "a payload is impossible";
  }
  if (is_within) return nullptr;
  const std::size_t bytes = c_.heap.allocated_bytes(payload.at);
  if (bytes < payload.bytes) return "a payload is not allocated";
  if (!s.seen.insert(payload.at).second) return "a payload is linked twice";
  s.own(payload.at, bytes);
  return nullptr;
}

template <class Keys>
void BzTree<Keys>::survey_leaf(Survey& s, Offset at, const std::optional<Owned>& low,
                               const std::optional<Owned>& high) const {
  ++s.stats.leaf_nodes;
  const LeafOf node = leaf(at);
  const Status now = status(node);
  if (!node.plausible(now)) return s.problem(at_node(at, "more entries than fit"));
  Items items;
  if (!gather(node, items)) return s.problem(at_node(at, "an entry lies outside the node"));
  s.report.keys += items.size();
  // What was right when it was read need not be any more: an entry goes, or a block of one, which
  // of a leaf that was replaced nothing shows.
  const auto unchanged = [&] {
    return status(node).word == now.word && !(s.beside_writers && now.frozen());
  };
  const auto problem = [&](const char* what) {
    if (unchanged()) s.problem(at_node(at, what));
  };
  for (const auto& item : items) {
    const char* wrong = item.meta.is_long() ? survey_record(s, item.stored) : nullptr;
    if (wrong == nullptr && options_.payloads) wrong = survey_payload(s, item);
    if (wrong != nullptr) problem(wrong);
  }
  if (!s.report.problems.empty()) return;  // keys mean nothing
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& item = items[i];
    if (!item.meta.tagged(Keys::probe(item.key).hash)) problem("a key's tag is wrong");
    if (i > 0 && !(items[i - 1].key < item.key)) problem("a key is there twice");
    if ((low && item.key < Key(*low)) || (high && !(item.key < Key(*high)))) {
      problem("a key lies outside the separators");
    }
    const auto hit = node.find(*words_, keys_, Keys::probe(item.key), now);
    if (!hit.found) {
      problem("a search misses a key");
    } else if (hit.meta.word != words_->read(node.meta(hit.position))) {
      problem("searches know other metadata than there is");
    }
  }
  for (std::uint32_t i = 0; i < node.header().count(); ++i) {
    const Meta m{words_->read(node.meta(i))};
    const bool is_there = m.visible() || !node.is_packed(options_.page, now);
    const bool is_entry = (m.word & Meta::kReserved) == 0 && node.sound(m);
    if (!is_entry || !is_there) problem("a sorted entry is none");
  }
  for (std::uint32_t i = node.header().count(); i < now.count(); ++i) {
    const Meta m{words_->read(node.meta(i))};  // before the epoch
    if (m.reserved_after(pmem::load(&root()->epoch))) {
      problem("an entry is reserved in an epoch to come");
    }
  }
}

template <class Keys>
void BzTree<Keys>::survey(Survey& s, Offset at, unsigned level, const std::optional<Owned>& low,
                          const std::optional<Owned>& high) const {
  if (s.report.problems.size() >= kMostProblems) return;
  std::size_t bytes = possible(at) ? c_.heap.allocated_bytes(at) : 0;
  const bool is_replaced = s.beside_writers && possible(at) && bytes == 0 &&
                           (words_->read(unread(at).status()) & kFrozen) != 0;
  if (is_replaced) bytes = options_.page;
  if (bytes == 0 || bytes < options_.page || unread(at).header().bytes() != options_.page ||
      unread(at).header().level() != level) {
    return s.problem(at_node(at, "it is impossible or not allocated"));
  }
  if (!s.seen.insert(at).second) return s.problem(at_node(at, "it is linked twice"));
  s.own(at, bytes);
  if (level == 0) return survey_leaf(s, at, low, high);
  ++s.stats.inner_nodes;
  const InnerOf node = unread(at);
  if (!readable(node, options_.page, options_.page))
    return s.problem(at_node(at, "more children than fit"));
  for (std::uint32_t i = node.separators(); i < node.code_places(); ++i) {
    if (node.code(i) != InnerOf::kNoCode) s.problem(at_node(at, "a code belongs to no separator"));
  }
  if (node.separators() != 0 && node.first() != node.prefix(0)) {
    s.problem(at_node(at, "its codes begin elsewhere"));
  }
  std::optional<Owned> left = low;
  for (std::uint32_t i = 0; i < node.header().count(); ++i) {
    std::optional<Owned> right = high;
    if (i < node.separators()) {
      const Sep separator = node.separator(keys_, i);
      if (separator.record != 0) {
        const char* const wrong = survey_record(s, separator.record);
        // A merge that takes the separator away freezes the node.
        const bool is_merged = s.beside_writers && (words_->read(node.status()) & kFrozen) != 0;
        if (wrong != nullptr && !is_merged) s.problem(at_node(at, wrong));
      }
      if (!s.report.problems.empty()) return;
      if (separator.prefix != Keys::prefix_of(separator.key)) {
        s.problem(at_node(at, "a separator's prefix is wrong"));
      }
      if (node.code(i) != InnerOf::encode(separator.prefix, node.first(), node.header().shift())) {
        s.problem(at_node(at, "a separator's code is wrong"));
      }
      if ((left && !(Key(*left) < separator.key)) || (high && !(separator.key < Key(*high)))) {
        s.problem(at_node(at, "separators are not in order"));
      }
      right = Keys::own(separator.key);
    }
    survey(s, words_->read(node.child(i)), level - 1, left, right);
    left = std::move(right);
  }
}

template <class Keys>
void BzTree<Keys>::survey_all(Survey& s) const {
  const alloc::Grace::Pin pin(c_.grace);
  s.own(root_, c_.heap.allocated_bytes(root_));
  words_->for_each_block([&s](Offset block, std::size_t bytes) { s.own(block, bytes); });
  if ((words_->read(&root()->status) & kFrozen) != 0) {
    s.problem(at_node(root_, "the root block is frozen"));
  }
  const Offset at = words_->read(&root()->child);
  const std::uint32_t level = possible(at) ? unread(at).header().level() : 0;
  s.stats.height = level;
  if (level > kMaxHeight) {
    s.problem(at_node(at, "it is higher than a tree can be"));
  } else {
    survey(s, at, level, std::nullopt, std::nullopt);
  }
  s.stats.keys = s.report.keys;
}

template <class Keys>
CheckReport BzTree<Keys>::check() const {
  Survey s;
  survey_all(s);
  return std::move(s.report);
}

template <class Keys>
Stats BzTree<Keys>::stats() const {
  Survey s;
  s.beside_writers = true;
  survey_all(s);
  const pmwcas::Statistics words = words_->statistics();
  const auto count = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  s.stats.more = {{"consolidations", count(consolidations_)},
                  {"splits", count(splits_)},
                  {"inner_splits", count(inner_splits_)},
                  {"merges", count(merges_)},
                  {"pmwcas_1_words", words.of_words[1]},
                  {"pmwcas_2_words", words.of_words[2]},
                  {"pmwcas_3_words", words.of_words[3]},
                  {"pmwcas_more_words", words.of_words[4] + words.of_words[5] + words.of_words[6]},
                  {"pmwcas_failed", words.failed},
                  {"pmwcas_failed_per_million",
                   words.failed * 1'000'000 / std::max<std::uint64_t>(words.executed, 1)},
                  {"pmwcas_helped", words.helped}};
  return std::move(s.stats);
}

template <class Keys>
void BzTree<Keys>::for_each_block(const detail::Visit& visit) const {
  Survey s;
  s.visit = &visit;
  survey_all(s);
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
