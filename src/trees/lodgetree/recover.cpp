// Opening: nodes from the leaf list, then the log (P11, A11 to A13), and the flush of a close
// (P12).
#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <utility>

#include "base/parallel.hpp"
#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {
namespace {

std::unexpected<Error> corrupt(const char* what, Offset at) {
  return std::unexpected(
      Error{Code::corrupt, std::string(what) + " at offset " + std::to_string(at)});
}

std::unexpected<Error> failed() {
  return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
}

// Fewer records are not worth a thread.
constexpr std::size_t kRecordsOfThread = 4096;
// Shorter records of keys are hashed again for each record of the log that names them.
constexpr std::size_t kLongRecord = 256;
// Times the pool that the long ones of whole records may come to: a damaged log must not compare
// for ever.
constexpr std::uint64_t kMostOverlaps = 4;

}  // namespace

// Whether a slot in use before this one has its word.
template <class Keys>
bool LodgeTree<Keys>::has_word(const Leaf& here, std::size_t slot) {
  const Word word = pmem::load(&here.slot(slot)->key);
  for (Word bits = here.used() & ((Word{1} << slot) - 1); bits != 0; bits &= bits - 1) {
    const auto other = static_cast<std::size_t>(std::countr_zero(bits));
    if (pmem::load(&here.slot(other)->key) == word) return true;
  }
  return false;
}

// One leaf, whose blocks become ours.
template <class Keys>
Result<void> LodgeTree<Keys>::walk_leaf(Offset at, std::vector<Listed>& leaves) {
  const Leaf here = leaf(c_.medium.at(at));
  if ((here.w() & ~(kUse | options_.shape.bits())) != 0) {
    return corrupt("a slot that is not there in a leaf", at);
  }
  if (session_of(here.stamp()) > session_) return corrupt("a stamp of a later session", at);
  if (count_of(here.stamp()) > kMaxCount) return corrupt("an impossible stamp", at);
  last_order_ = std::max(last_order_, here.stamp());
  bool twice = false;
  const Word low = here.low();
  Owned bound{};
  if (!leaves.empty()) {
    if (!keys_.readable(low)) return corrupt("an impossible bound of a leaf", at);
    bound = Keys::own(keys_.key_of(low));
    if (!(leaves.back().low < bound)) return corrupt("a leaf out of order", at);
  } else if (low != 0) {
    return corrupt("a first leaf with a bound", at);
  }
  if constexpr (Keys::kRecords) {
    const auto claim = [this](Word word) {
      return keys_.readable(word) &&
             space_.claim(Keys::record_of(word), Keys::record_bytes(keys_.key_of(word)));
    };
    // All of them at once, not one after the other.
    for (Word bits = here.used(); bits != 0; bits &= bits - 1) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
      keys_.prefetch(pmem::load(&here.slot(slot)->key));
    }
    if (!leaves.empty() && !claim(low)) return corrupt("an impossible bound of a leaf", at);
    for (Word bits = here.used(); bits != 0; bits &= bits - 1) {
      const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
      if (claim(pmem::load(&here.slot(slot)->key))) continue;
      if (!has_word(here, slot)) return corrupt("an impossible key in a leaf", at);
      twice = true;
    }
  }
  leaves.push_back({here.base(), std::move(bound), 0, nullptr, false, twice});
  return {};
}

// The leaf list from its head.
template <class Keys>
Result<void> LodgeTree<Keys>::walk(std::vector<Listed>& leaves) {
  for (Offset at = pmem::load(&root()->head); at != 0 || leaves.empty();) {
    // A leaf that is claimed twice is a circle.
    if (!possible(at) || !space_.claim(at, options_.shape.bytes)) {
      return corrupt("the leaf list leads to no leaf", at);
    }
    const Leaf here = leaf(c_.medium.at(at));
    at = here.next();
    if (at != 0 && possible(at)) {
      const Leaf next = leaf(c_.medium.at(at));
      Keys::kRecords ? next.prefetch() : next.prefetch_line();
    }
    if (auto walked = walk_leaf(c_.medium.offset_of(here.base()), leaves); !walked) return walked;
  }
  return {};
}

// Whether a record of this session is all there, and the key that it names.
template <class Keys>
bool LodgeTree<Keys>::is_whole(const Record& record, Offset at, Word key, Hashes& hashes) const {
  if (!keys_.readable(key)) return false;
  base::Verification sum;
  sum.over(&record, sizeof(Record));
  if constexpr (Keys::kRecords) {
    sum.over(c_.medium.at(Keys::record_of(key)), Keys::record_bytes(keys_.key_of(key)));
  }
  sum.begin();
  const Record copy{pmem::load(&record.key), pmem::load(&record.value), pmem::load(&record.order),
                    pmem::load(&record.sum)};
  return sum.end(copy.sum == Log::sum_of(copy, at, named_hash(copy.key, hashes)));
}

// Many records may name one key; a long one is hashed once.
template <class Keys>
std::uint64_t LodgeTree<Keys>::named_hash(Word word, Hashes& hashes) const {
  const Key key = keys_.key_of(word);
  if (Keys::record_bytes(key) < kLongRecord) return Keys::named_hash(key);
  const auto [known, is_new] = hashes.known.try_emplace(Keys::record_of(word));
  if (is_new) known->second.hash = Keys::named_hash(key);
  return known->second.hash;
}

// Of a whole record. Keys of whole records hardly overlap; those that torn ones name may, and do:
// what a dead record names has another use by now.
template <class Keys>
bool LodgeTree<Keys>::within_bounds(Word word, Hashes& hashes) const {
  const std::size_t bytes = Keys::record_bytes(keys_.key_of(word));
  if (bytes < kLongRecord) return true;
  std::size_t& counted = hashes.known[Keys::record_of(word)].bytes;
  if (std::exchange(counted, bytes) == 0) hashes.bytes += bytes;
  return is_within_bounds(hashes);
}

template <class Keys>
bool LodgeTree<Keys>::is_within_bounds(const Hashes& hashes) const {
  return hashes.bytes <= kMostOverlaps * c_.medium.size();
}

// A2: what is torn was not acknowledged; A13: what is of another session is not needed any more.
template <class Keys>
Result<void> LodgeTree<Keys>::read_log(std::vector<Found>& found, bool& torn) {
  std::vector<Offset> chunks;
  const auto* const named = c_.medium.template at<Word>(root_block() + kDirectoryAt);
  for (std::size_t i = 0; i < options_.chunks; ++i) {
    const Offset at = pmem::load(named + i);
    if (at == 0) break;
    if (!space_.claim(at, options_.log)) return corrupt("an impossible chunk of the log", at);
    chunks.push_back(at);
  }
  if (chunks.empty()) return corrupt("there is no log", root_block());
  log_.open(chunks);
  base::Mutex mutex;
  Result<void> all;
  Hashes all_named;  // in all chunks
  const std::size_t least = std::max<std::size_t>(1, kRecordsOfThread / log_.records());
  base::in_parallel(chunks.size(), least, [&](std::size_t chunk, std::size_t end) {
    Seen seen;
    Result<void> read;
    for (; chunk != end && read; ++chunk) read = read_chunk(chunk, chunks[chunk], seen);
    const base::MutexGuard guard(mutex);
    for (const auto& [at, known] : seen.hashes.known) {
      if (known.bytes != 0 && all_named.known.try_emplace(at).second)
        all_named.bytes += known.bytes;
    }
    if (!is_within_bounds(all_named)) read = corrupt("overlapping keys in the log", root_block());
    if (!read) all = read;
    torn = torn || seen.torn;
    last_order_ = std::max(last_order_, seen.last_order);
    if (found.empty()) return std::swap(found, seen.found);
    found.insert(found.end(), seen.found.begin(), seen.found.end());
  });
  return all;
}

template <class Keys>
Result<void> LodgeTree<Keys>::read_chunk(std::size_t chunk, Offset base, Seen& seen) const {
  const auto* const first = c_.medium.template at<Record>(base);
  const std::size_t records = log_.records();
  for (std::size_t i = 0; i < records; ++i) {
    i += base::first_where(&first[i].order, sizeof(Record) / sizeof(Word), records - i,
                           first_order(kMaxSession) << 1, first_order(session_) << 1);
    if (i == records) break;
    const Record& record = first[i];
    const Word order = pmem::load(&record.order);
    if (order == 0) continue;
    const Offset at = base + i * sizeof(Record);
    if (!is_whole(record, at, pmem::load(&record.key), seen.hashes)) {
      seen.torn = true;
      continue;
    }
    if (!within_bounds(pmem::load(&record.key), seen.hashes)) {
      return corrupt("overlapping keys in the log", at);
    }
    if (count_of(order >> 1) > kMaxCount) return corrupt("an impossible order", at);
    seen.last_order = std::max(seen.last_order, order >> 1);
    seen.found.push_back({log_.ref_of(chunk, i),
                          {pmem::load(&record.key), pmem::load(&record.value), order >> 1, 0},
                          (order & kRemoval) != 0});
  }
  return {};
}

// Many records may name one long key, which is compared once then.
template <class Keys>
void LodgeTree<Keys>::last_of_each_record(std::vector<Found>& found) {
  if constexpr (Keys::kRecords) {
    std::ranges::sort(found, [](const Found& a, const Found& b) {
      return std::pair(Keys::record_of(a.record.key), b.record.order) <
             std::pair(Keys::record_of(b.record.key), a.record.order);
    });
    const auto same = std::ranges::unique(
        found, {}, [](const Found& one) { return Keys::record_of(one.record.key); });
    found.erase(same.begin(), same.end());
  }
}

// F7: of each key the record of the highest order, if it is above the stamp of the key's leaf.
template <class Keys>
void LodgeTree<Keys>::choose(std::vector<Listed>& leaves, std::vector<Found>& found) const {
  last_of_each_record(found);
  const std::size_t none = leaves.size();
  base::in_parallel(found.size(), kRecordsOfThread, [&](std::size_t i, std::size_t end) {
    for (; i != end; ++i) {
      Found& one = found[i];
      one.key = keys_.key_of(one.record.key);
      const auto behind = std::upper_bound(
          leaves.begin() + 1, leaves.end(), one.key,
          [](const Key& probe, const Listed& listed) { return probe < Key(listed.low); });
      one.leaf = static_cast<std::size_t>(behind - leaves.begin()) - 1;
      if (one.record.order <= leaf(leaves[one.leaf].base).stamp()) one.leaf = none;
    }
  });
  std::erase_if(found, [none](const Found& one) { return one.leaf == none; });
  for (const Found& one : found) {  // A18: before newer records of their keys are preferred
    leaves[one.leaf].reused = leaves[one.leaf].reused || one.removal;
  }
  const auto before = [](const Found& a, const Found& b) {
    if (a.leaf != b.leaf) return a.leaf < b.leaf;  // mostly, without a look at the keys
    const auto order = a.key <=> b.key;
    return order != 0 ? order < 0 : a.record.order > b.record.order;
  };
  if constexpr (Keys::kRecords) {  // they lie in the pool: as in check.cpp
    std::ranges::make_heap(found, before);
    std::ranges::sort_heap(found, before);
  } else {
    std::ranges::sort(found, before);
  }
  const auto same = std::ranges::unique(found, {}, &Found::key);
  found.erase(same.begin(), same.end());
}

// A18: slots that a flush cleared are used again before that is durable. So a slot that the word on
// the medium names may have another key by now, whole or not, and another slot may have that key,
// too; each of them has a record in the log, from which replay stores what is true of it. For that
// it has to find them. False: damaged, or a fence failed.
template <class Keys>
bool LodgeTree<Keys>::mend(std::vector<Listed>& leaves, Spare& spare) {
  // Before anything is stored.
  for (const Listed& one : leaves) {
    if (one.twice && !one.reused) return false;
  }
  std::atomic<bool> all{true};
  std::atomic<bool> no_memory{false};
  base::Mutex mutex;
  // Copies of a read-only pool are in one list.
  const std::size_t least = c_.read_only ? leaves.size() : kRecordsOfThread;
  base::in_parallel(leaves.size(), least, [&](std::size_t i, std::size_t end) {
    Spare mine;
    bool mended = false;
    for (; i != end; ++i) {
      Listed& one = leaves[i];
      if (!one.reused) continue;
      if (c_.read_only) one.base = copy_of(one.base);
      try {
        if (mend_leaf(leaf(one.base), mine)) mended = true;
      } catch (const std::bad_alloc&) {  // before it stored anything
        no_memory = true;
        break;
      }
    }
    // P11: here, for memory that only older records of a key name is used again by replay; and in
    // any case, for the next open would find the leaves mended.
    // crash: fence stays: no program's replay takes memory that only older records name
    if (mended && !c_.read_only && !c_.medium.fence()) all = false;
    const base::MutexGuard guard(mutex);
    spare.insert(spare.end(), mine.begin(), mine.end());
  });
  if (no_memory) throw std::bad_alloc();
  // Two slots may have had the same word, and a third one another.
  std::ranges::sort(spare);
  const auto same = std::ranges::unique(spare);
  spare.erase(same.begin(), same.end());
  return all;
}

// Each slot gets the fingerprint of its key, and of slots with the same key one stays. Whether
// anything had to be stored.
template <class Keys>
bool LodgeTree<Keys>::mend_leaf(const Leaf& here, Spare& spare) {
  const Word used = here.used();
  if constexpr (Keys::kRecords) spare.reserve(spare.size() + kMaxSlots);  // before stores
  bool stored = false;
  for (Word bits = used; bits != 0; bits &= bits - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
    const auto print = Keys::fingerprint_of(keys_.key_of(pmem::load(&here.slot(slot)->key)));
    if (here.fingerprint(slot) == print) continue;
    store_print(here, slot, print);
    stored = true;
  }
  Word dropped = 0;
  for (Word bits = used; bits != 0; bits &= bits - 1) {
    const auto slot = static_cast<std::size_t>(std::countr_zero(bits));
    const Word word = pmem::load(&here.slot(slot)->key);
    Word same = here.match(here.fingerprint(slot)) & bits & ~dropped;
    if ((same >> slot & 1) == 0) continue;
    for (same &= same - 1; same != 0; same &= same - 1) {
      const auto other = static_cast<std::size_t>(std::countr_zero(same));
      const Word its = pmem::load(&here.slot(other)->key);
      if (its != word && keys_.key_of(its) != keys_.key_of(word)) continue;
      dropped |= Word{1} << other;
      if constexpr (Keys::kRecords) {
        if (its != word) spare.push_back(Keys::record_of(its));
      }
    }
  }
  if (dropped != 0) c_.medium.store(&here.line()->w, here.w() & ~dropped);
  if (!stored && dropped == 0) return false;
  // crash: flush stays: of small leaves it is one line, which their next commit flushes
  flush(here.base(), options_.shape.slots_at);  // P11
  return true;
}

// B5: a key that the leaf has is named by its record there, and the pair's own is spare, but named
// by the log still; any other record is the pair's own. So is that of a removal whose key is gone:
// older records of the key may still be above the stamp.
template <class Keys>
bool LodgeTree<Keys>::claim_keys(const std::vector<Listed>& leaves, std::vector<Found>& found,
                                 Spare& spare) {
  for (Found& one : found) {
    const Leaf here = leaf(leaves[one.leaf].base);
    const std::size_t slot = search(here, probe_of(one.record.key));
    const Word word = std::exchange(
        one.record.key, slot == kNoSlot ? one.record.key : pmem::load(&here.slot(slot)->key));
    if constexpr (Keys::kRecords) {
      if (word == one.record.key && slot != kNoSlot) continue;
      const bool claimed =
          space_.claim(Keys::record_of(word), Keys::record_bytes(keys_.key_of(word)));
      if (slot == kNoSlot && !claimed) return false;
      if (slot != kNoSlot && claimed) spare.push_back(Keys::record_of(word));
    }
  }
  return true;
}

// Two thirds full, and with room for what the log has.
template <class Keys>
void LodgeTree<Keys>::build(std::vector<Listed>& leaves) {
  std::vector<typename Upper::Child> children;
  struct Built {  // goes again when memory ends
    std::vector<Node*> nodes;
    ~Built() {
      for (Node* const node : nodes) {
        if (node == nullptr) continue;
        free_separators(*node);
        base::NodeArena::free(node);
      }
    }
  } built;
  const unsigned most = std::max(1U, (options_.slots - 2) * 2 / 3);
  Node* last = nullptr;
  for (std::size_t i = 0; i < leaves.size();) {
    Node*& node = built.nodes.emplace_back(nullptr);
    node = make_node();
    children.push_back(
        {i == 0 ? Fresh{} : Upper::fresh(leaves[i].low), reinterpret_cast<std::uint64_t>(node)});
    unsigned pairs = 0;
    for (unsigned n = 0; i < leaves.size() && n < most; ++n, ++i) {
      pairs += leaves[i].pairs;
      const bool fits = n + 1 + pairs + 2 <= options_.slots && pairs < options_.buffer;
      if (n != 0 && !fits) break;
      leaves[i].node = node;
      node->append_leaf(n == 0 ? Fresh{} : Upper::fresh(leaves[i].low), leaf(leaves[i].base));
    }
    if (last != nullptr) last->right.store(node, std::memory_order_relaxed);
    last = node;
  }
  upper_.build(std::move(children));
  built.nodes.clear();
}

// P11, A16: without space for a split a leaf is filled to its last slot, with the oldest of its
// pairs: the stamp is the order of the last one that goes. Those that a crash found in the leaf,
// but not its stamp, fit as they did then; all others had room in the buffer.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::flush_what_fits(Node& node, unsigned slot) {
  for (unsigned i = 0; i < node.leaves(); ++i) {
    std::array<std::pair<Word, unsigned>, kMaxNodeSlots> pairs;  // by order
    std::size_t count = 0;
    for (std::uint64_t bits = node.pairs_of(i); bits != 0; bits &= bits - 1) {
      const auto pair = static_cast<unsigned>(std::countr_zero(bits));
      pairs[count++] = {pmem::load(&log_.record(node.ref(pair))->order) >> 1, pair};
    }
    std::sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(count));
    auto left = options_.shape.slots - node.count(i);
    std::uint64_t some = 0;
    Word upto = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const auto [order, pair] = pairs[k];
      const bool takes_slot = node.is_fresh(pair) && !node.is_removal(pair);
      if (takes_slot && left == 0) break;
      left -= takes_slot ? 1 : 0;
      some |= std::uint64_t{1} << pair;
      upto = order;
    }
    if (some == 0) continue;
    Step step(space_);
    if (!prepare_leaf(node, i, some, step)) return answer(Outcome::corrupt);
    if (!fence(slot)) return answer(Outcome::io_error);  // P11
    node.sequence = upto;
    return answer(commit(node, step, slot) ? Outcome::done : Outcome::io_error);
  }
  return answer(Outcome::out_of_space);
}

// P11: a pair in the buffer, whose record is in the log already. Orders rise, so what a full buffer
// flushes meanwhile gets a stamp that promises no more than there is.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::replay(const Found& found, bool full) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  const Probe probe = probe_of(found.record.key);
  Place place;
  if (!locate(probe, place) || !place.node->latch.try_lock(place.version)) return {Next::again};
  const base::Unlock unlock(place.node->latch);
  Node& node = *place.node;
  const unsigned slot = base::thread_slot();
  node.sequence = found.record.order - 1;
  while (!has_room(node)) {
    if (full) {
      const Attempt is = flush_what_fits(node, slot);
      if (is.outcome != Outcome::done) return is;
      continue;
    }
    Step step(space_);
    const Attempt prepared = prepare(node, step);
    if (prepared.next != Next::done || prepared.outcome != Outcome::done) return prepared;
    if (!fence(slot)) return answer(Outcome::io_error);  // P11
    if (!commit(node, step, slot)) return answer(Outcome::io_error);
  }
  const unsigned i = node.rank(probe, Aim::at);
  const bool fresh = search(leaf(node.leaf(i)), probe) == kNoSlot;
  node.put({found.record.key, found.record.value, probe.fingerprint, found.removal, fresh, false, i,
            found.ref});
  node.sequence = found.record.order;
  return answer(Outcome::done);
}

// Nodes are independent of each other: each share is some nodes in a row, and its records.
template <class Keys>
std::vector<typename LodgeTree<Keys>::Share> LodgeTree<Keys>::make_shares(
    const std::vector<Listed>& leaves, const std::vector<Found>& found) const {
  // Copies of leaves of a read-only pool are in one list.
  const std::size_t most =
      c_.read_only ? 1 : std::min(base::workers(), found.size() / kRecordsOfThread + 1);
  std::vector<Share> shares(1);
  std::vector<std::size_t> share_of(leaves.size());
  std::size_t pairs = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const bool first = i == 0 || leaves[i].node != leaves[i - 1].node;
    if (first && pairs * most > found.size() * shares.size()) {
      shares.back().end = leaves[i].node;
      shares.emplace_back();
      shares.back().from = leaves[i].low;
    }
    pairs += leaves[i].pairs;
    share_of[i] = shares.size() - 1;
  }
  for (const Found& one : found) shares[share_of[one.leaf]].found.push_back(one);
  return shares;
}

// P11: replays and, but for a read-only pool, flushes.
template <class Keys>
void LodgeTree<Keys>::recover(Share& share) {
  try {
    share.outcome = replay(share.found);
    if (share.outcome == Outcome::done && !c_.read_only) {
      share.flushed = flush_range(share.from, share.end);
    }
  } catch (const std::bad_alloc&) {
    share.outcome = Outcome::out_of_space;
  }
}

template <class Keys>
void LodgeTree<Keys>::recover(std::vector<Share>& shares) {
  base::in_parallel(shares.size(), 1, [&](std::size_t i, std::size_t end) {
    for (; i != end; ++i) recover(shares[i]);
  });
}

template <class Keys>
Outcome LodgeTree<Keys>::replay(const std::vector<Found>& found) {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return Outcome::too_many_threads;
  log_.ready(slot);
  bool tried = false;
  bool full = false;
  for (std::size_t i = 0; i < found.size();) {
    Attempt is = replay(found[i], full);
    Outcome outcome = is.outcome;
    if (is.next == Next::done && outcome == Outcome::done) ++i;
    if (is.next == Next::divide) is = divide(keys_.key_of(found[i].record.key));
    if (is.next == Next::done) outcome = is.outcome;
    if (is.next == Next::grow) {
      outcome = more_space(is.bytes, tried);
      if (outcome == Outcome::out_of_space) {
        full = true;
        continue;
      }
    }
    if (outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

// P11: parts of records that a crash left could become whole records with what is written next to
// them in this session. Not with those of another one: their orders are not the same.
template <class Keys>
bool LodgeTree<Keys>::wipe_dead(std::size_t chunks) {
  for (std::size_t i = 0; i < chunks * log_.records(); ++i) {
    const Ref ref = log_.ref_of(0, i);
    if (log_.is_live(ref)) continue;
    auto* const record = log_.record(ref);
    for (Word* const word : {&record->key, &record->value, &record->order, &record->sum}) {
      c_.medium.store(word, 0, 0);
    }
    // crash: flush stays: no workload brings a key back to its block while a full pool is repaired
    c_.medium.flush(record, sizeof(Record));
  }
  return c_.medium.fence();  // crash: fence stays: as the flush
}

// P11, A12: before the first record. No leaf waits for the log any more, so its records, and parts
// of records, are forgotten at once.
template <class Keys>
Outcome LodgeTree<Keys>::begin_session() {
  const base::MutexGuard guard(growing_log_);
  if (begun_.load(std::memory_order_relaxed)) return Outcome::done;
  if (session_ == kMaxSession) return Outcome::out_of_space;
  c_.medium.store(&root()->session, ++session_);
  c_.medium.flush(&root()->session, sizeof(Word));
  if (!c_.medium.fence()) return Outcome::io_error;  // P11
  begun_.store(true, std::memory_order_release);
  return Outcome::done;
}

template <class Keys>
Result<void> LodgeTree<Keys>::end_recovery(const std::vector<Share>& shares, bool logged,
                                           const Spare& spare) {
  bool flushed = true;
  for (const Share& share : shares) {
    if (share.outcome == Outcome::io_error) return failed();
    if (share.outcome == Outcome::corrupt)
      return corrupt("impossible keys in a leaf", root_block());
    if (share.outcome != Outcome::done) {
      return std::unexpected(Error{Code::out_of_space, "no space for what the log has"});
    }
    flushed = flushed && share.flushed;
  }
  if (!logged) return {};
  if (flushed) {
    if (begin_session() == Outcome::io_error) return failed();
    for (const Offset key : spare) space_.free(key);  // no record of this session names one
    return {};
  }
  // Without space for the flush the session goes on.
  if (!wipe_dead(log_.figures().chunks)) return failed();
  begun_ = true;
  return {};
}

// What a failed one stored is in the pool: the next open of this process trusts its stamps, so they
// are made durable.
template <class Keys>
Result<void> LodgeTree<Keys>::open() {
  Result<void> opened;
  try {
    opened = rebuild();
  } catch (const std::bad_alloc&) {
    opened = std::unexpected(Error{Code::out_of_space, "no memory for the inner nodes"});
  }
  if (!opened && !c_.read_only && !log_.settle()) return failed();
  return opened;
}

template <class Keys>
Result<void> LodgeTree<Keys>::rebuild() {
  const std::uint64_t started = base::now_ns();
  const Offset block = root_block();
  if (block < pmem::kHeapAt || block % pmem::kLine != 0 ||
      c_.heap.allocated_bytes(block) < kRootBytes) {
    return corrupt("there is no root block", block);
  }
  session_ = pmem::load(&root()->session);
  if (session_ > kMaxSession) return corrupt("an impossible session", block);
  if (space_.open() != Outcome::done) return corrupt("impossible extents in the root block", block);
  std::vector<Listed> leaves;
  std::vector<Found> found;
  bool torn = false;
  if (auto walked = walk(leaves); !walked) return walked;
  if (auto read = read_log(found, torn); !read) return read;
  const bool logged = !found.empty() || torn;
  choose(leaves, found);
  Spare spare;
  if (!mend(leaves, spare)) {
    return c_.medium.failed() ? failed() : corrupt("a key twice in a leaf", block);
  }
  if (!claim_keys(leaves, found, spare)) {
    return corrupt("an impossible key in the log", block);
  }
  std::ranges::sort(found, {}, [](const Found& one) { return one.record.order; });
  for (const Found& one : found) {
    ++leaves[one.leaf].pairs;
    log_.adopt(one.ref);
  }
  log_.opened();
  replayed_ = found.size();
  build(leaves);
  auto shares = make_shares(leaves, found);
  shares_ = shares.size();
  recover(shares);
  if (auto ended = end_recovery(shares, logged && !c_.read_only, spare); !ended) return ended;
  if (c_.medium.failed()) return failed();
  const Word first = std::max(first_order(session_ + (begun_ ? 0 : 1)), last_order_ + 1);
  for_each_node([first](Node& node, const Owned*) { node.sequence = first; });
  rebuild_ns_ = base::now_ns() - started;
  return {};
}

// P12: the next open has nothing to replay.
template <class Keys>
bool LodgeTree<Keys>::closing() {
  if (c_.read_only || c_.medium.failed()) return true;
  try {
    (void)flush_all();
  } catch (const std::bad_alloc&) {  // then it has
  }
  return log_.settle();  // the next open trusts stamps
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
