// Insert, update, upsert and remove: a record in the log and a pair in the buffer (P2), folded with
// what a full buffer writes to its leaves (P3); without space, the leaf itself (P6).
#include <new>
#include <utility>

#include "trees/lodgetree/tree.hpp"

namespace everleaf::tree::lodgetree {

template <class Keys>
Outcome LodgeTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  if (const Outcome admitted = c_.admit(what, Keys::too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  if (!begun_.load(std::memory_order_acquire)) {
    if (const Outcome begun = begin_session(); begun != Outcome::done) return begun;
  }
  try {
    KeyRecord record(space_);
    bool tried = false;
    bool direct = false;
    bool emptied = false;  // as far as it went
    while (true) {
      Attempt is = direct ? attempt_in_place(key, value, what, record)
                          : attempt(key, value, what, record, false);
      Outcome outcome = Outcome::done;
      if (is.next == Next::done) {
        if (is.lonely) unlink_lonely(key);
        if (is.late) relieve_log();
        return is.outcome;
      }
      if (is.next == Next::divide) {
        is = divide(key);
        if (is.next == Next::done) outcome = is.outcome;
      } else if (is.next == Next::grow) {
        outcome = more_space(is.bytes, tried);
      } else if (is.next == Next::log) {
        outcome = log_room(base::thread_slot());
      }
      if (outcome == Outcome::done) continue;
      if (outcome != Outcome::out_of_space) return outcome;
      const bool made_holes = is.next == Next::log && !std::exchange(emptied, true);
      if (direct && !made_holes) return outcome;
      direct = true;
    }
  } catch (const std::bad_alloc&) {
    return Outcome::out_of_space;  // nothing was changed: memory is taken before
  }
}

// Not within a pin. What waits for readers alone will do, once.
template <class Keys>
Outcome LodgeTree<Keys>::more_space(std::size_t bytes, bool& tried) {
  const Outcome grown = space_.grow(bytes);  // P7, A8
  if (grown != Outcome::out_of_space || tried) return grown;
  tried = true;
  if (!release_all_keys()) return Outcome::io_error;
  grace_.collect_all();
  return Outcome::done;
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::attempt(Key key, std::uint64_t value, Write what,
                                                           KeyRecord& record, bool direct) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  Op op{Keys::probe(key), value, what == Write::remove, direct, base::thread_slot(), {}};
  Place place;
  if (!locate(op.probe, place, true)) return {Next::again};
  Node& node = *place.node;
  std::byte* base = nullptr;
  if (!look_in_node(place, op.probe, op.hit, base, true)) return {Next::again};
  // B4: whether the leaf has the key is found out when the pair goes there. A key of bytes is
  // named by the leaf's record if there is one (B5).
  const bool asks = op.hit.pair == Node::kNoSlot && !op.hit.excluded;
  op.unsure = asks && what == Write::upsert && !Keys::kRecords && !direct;
  const bool looks = asks && !op.unsure;
  // Fingerprints are enough for a key that is not there.
  if (what != Write::insert && looks) leaf(base).prefetch();
  expect_flush(place);
  if (looks) look_in_leaf(leaf(base), op.probe, op.hit);
  if (const Outcome refused = detail::refusal(what, op.hit.found); refused != Outcome::done) {
    return node.latch.unchanged(place.version) ? answer(refused) : Attempt{Next::again};
  }
  const bool is_new = op.hit.pair == Node::kNoSlot && op.hit.slot == kNoSlot;
  op.word = op.hit.key;
  if (is_new) {
    if constexpr (Keys::kRecords) {
      if (record.block.at() == 0) {
        const std::size_t bytes = Keys::record_bytes(key);
        if (!record.block.get(bytes)) return {Next::grow, Outcome::done, bytes};
        record.word = keys_.write_record(record.block.at(), key);
      }
      op.word = record.word;
    } else {
      op.word = key;
    }
  }
  log_.ready(op.slot);
  if (!node.latch.try_lock(place.version)) return {Next::again};
  const base::Unlock unlock(node.latch);
  if (count_of(node.sequence) >= kMaxCount)
    return answer(Outcome::out_of_space);  // until it is opened
  if (!is_new && op.hit.pair != Node::kNoSlot) return supersede(node, op);
  if (direct && !is_new) return change_leaf(node, op);
  return add(node, op, record);
}

// Without space. One at a time: who replaces a record waits for nobody else's (L5).
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::attempt_in_place(Key key, std::uint64_t value,
                                                                    Write what, KeyRecord& record) {
  const base::MutexGuard guard(growing_log_);
  return attempt(key, value, what, record, true);
}

// P2: the record, whose fence is the operation's; P6, A17: over a dead one.
template <class Keys>
Ref LodgeTree<Keys>::append(Node& node, Op& op, Log::Begun& begun) {
  const Word order = node.sequence + 1;
  const Record record{op.word, op.value, order << 1 | (op.removal ? kRemoval : 0), 0};
  const std::uint64_t hash = Keys::named_hash(op.probe.key);
  const Ref ref = begun.ok() ? begun.write(record, hash)
                             : log_.append_to_hole(record, hash, op.hit.pair != Node::kNoSlot);
  if (ref == 0) return 0;
  node.sequence = order;
  op.late = log_.is_late(ref);
  return ref;
}

template <class Keys>
void LodgeTree<Keys>::put(Node& node, const Op& op, Ref ref) {
  const bool fresh = op.hit.slot == kNoSlot && !op.unsure;
  node.put(
      {op.word, op.value, op.probe.fingerprint, op.removal, fresh, op.unsure, op.hit.leaf, ref});
}

// The key is in the buffer: no room is needed.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::supersede(Node& node, Op& op) {
  Log::Begun begun(log_, op.slot);
  if (!begun.ok() && !op.direct) return {Next::log};
  const Ref ref = append(node, op, begun);
  if (ref == 0) return {Next::log};
  if (!fence(op.slot)) return answer(Outcome::io_error);  // P2, A2
  const Ref old = node.ref(op.hit.pair);
  node.replace(op.hit.pair, op.value, op.removal, ref);
  log_.die(old);  // not before: a crash between would have neither (A10)
  return tidied(node, op, false);
}

// The operation is done. Leaves that a removal emptied go; a node without any key gives its last
// pairs up, so that it can go. What there is no memory for stays.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::tidied(Node& node, const Op& op, bool emptied) {
  Attempt is = answer(Outcome::done);
  is.late = op.late;
  try {
    if (emptied) unlink_empty(node, op.slot);
    if (!op.removal || has_keys(node)) return is;
    const Attempt flushed = flush_node(node, op.slot);
    if (flushed.next == Next::done && flushed.outcome == Outcome::done) {
      unlink_empty(node, op.slot);
    }
    is.lonely = is_lonely(node);
  } catch (const std::bad_alloc&) {
    return is;
  }
  return is;
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::add(Node& node, Op& op, KeyRecord& record) {
  Log::Begun begun(log_, op.slot);
  if (!begun.ok() && !op.direct) return {Next::log};
  if constexpr (Keys::kRecords) {
    if (record.block.at() != 0 && op.word == record.word) {
      flush(c_.medium.at(record.block.at()), Keys::record_bytes(op.probe.key));  // P2
    }
  }
  while (true) {
    const bool has_to = !has_room(node);
    Step step(space_);
    if (has_to) {
      const Attempt prepared = prepare(node, step);
      if (prepared.next != Next::done || prepared.outcome != Outcome::done) return prepared;
    }
    const bool last = !has_to || step.room;
    // F4: the stamp of the step speaks for what was there before this operation.
    const Word before = node.sequence;
    Ref ref = 0;
    if (last) {
      ref = append(node, op, begun);
      if (ref == 0) return {Next::log};
    }
    if (!fence(op.slot)) return answer(Outcome::io_error);  // P2, P3: one for both
    if (has_to) {
      const Word mine = std::exchange(node.sequence, before);
      const bool committed = commit(node, step, op.slot);
      node.sequence = mine;
      if (!committed) return answer(Outcome::io_error);
      if (step.splits) op.hit.leaf = node.rank(op.probe, Aim::at);
    }
    if (!last) continue;
    put(node, op, ref);
    if (op.word == record.word) record.block.keep();
    return tidied(node, op, has_to && empties(step));
  }
}

// P6, A7: no space for a split, and the key is in the leaf alone: one word is changed in place.
// Older records of the key are made dead by the stamp, which is in memory already.
template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::change_leaf(Node& node, const Op& op) {
  const Leaf here = leaf(node.leaf(op.hit.leaf));
  if (!op.removal) {
    Slot* const slot = here.slot(op.hit.slot);
    c_.medium.store(&slot->value, op.value);
    flush(slot, sizeof(Slot));
  } else {
    c_.medium.store(&here.line()->w, here.w() & ~(Word{1} << op.hit.slot));
    node.enter(op.hit.leaf, here);
  }
  // P6: the stamp, too, which another thread may have stored: an older record must not be replayed
  // over this.
  flush(here.base(), sizeof(LeafLine));
  if (!fence(op.slot)) return answer(Outcome::io_error);
  if constexpr (Keys::kRecords) {
    if (op.removal) {
      if (!log_.settle()) return answer(Outcome::io_error);  // no living record names it
      retire_record(Keys::record_of(op.word));
    }
  }
  return tidied(node, op, op.removal);
}

// --- Room in the log: neither latched nor pinned ---
template <class Keys>
Outcome LodgeTree<Keys>::log_room(unsigned slot) {
  while (!log_.room(slot)) {
    const base::MutexGuard guard(growing_log_);
    Outcome outcome = Outcome::out_of_space;
    if (const std::size_t place = log_.next_place(); place != kMaxChunks) {
      outcome = add_chunk(place);
      if (outcome == Outcome::done) continue;
      if (outcome != Outcome::out_of_space) return outcome;
    }
    Log::Closed closed{};
    // None is closed: another thread has just made one of them free, or there is no log at all.
    if (!log_.oldest(closed)) {
      if (log_.room(slot)) break;
      return outcome;
    }
    if (outcome = empty_chunk(closed); outcome != Outcome::done) return outcome;
  }
  return Outcome::done;
}

// P8, A9: a chunk is all zero before the directory names it, and named before it has a record.
template <class Keys>
Outcome LodgeTree<Keys>::add_chunk(std::size_t place) {
  Block block(space_);
  bool tried = false;
  while (!block.get(options_.log)) {
    if (const Outcome outcome = more_space(options_.log, tried); outcome != Outcome::done) {
      return outcome;
    }
  }
  log_.prepare(block.at());
  auto* const words = c_.medium.template at<Word>(block.at());
  for (std::size_t i = 0; i < options_.log / sizeof(Word); ++i) c_.medium.store(words + i, 0, 0);
  // crash: flush stays: what lay there before fits no record's checksum, but only all but surely
  c_.medium.flush(words, options_.log);
  // crash: fence stays: as the flush
  if (!c_.medium.fence()) return Outcome::io_error;  // P8
  Word* const named = c_.medium.template at<Word>(root_block() + kDirectoryAt) + place;
  c_.medium.store(named, block.at());
  c_.medium.flush(named, sizeof(Word));
  // crash: fence stays: this thread's record has one, too; no program gives another the chunk
  if (!c_.medium.fence()) return Outcome::io_error;  // P8
  log_.add();
  block.keep();
  return Outcome::done;
}

// P9, A10: flushes what the chunk's living records wait for, however cold its buffers are. Records
// that only wait for the fence of another slot get it here. Operations that took their places
// before it was closed are waited for (nobody fills a hole meanwhile: growing_log_); a record that
// lives when they are gone, and no buffer has, is damaged, and would live for ever.
template <class Keys>
Outcome LodgeTree<Keys>::empty_chunk(const Log::Closed& closed) {
  log_.ready(base::thread_slot());
  const std::uint64_t epoch = grace_.advance();
  bool tried = false;
  for (unsigned round = 0; !log_.is_empty(closed); ++round) {
    const bool nobody = grace_.advance() >= epoch + 2;
    bool waits = false;
    for (std::size_t i = log_.next_live(closed.chunk, 0); i < log_.records();) {
      const Attempt is = force(closed, i);
      waits = waits || !is.nothing;
      Outcome outcome = is.outcome;
      if (is.next == Next::done && outcome == Outcome::done) {
        i = log_.next_live(closed.chunk, i + 1);
      }
      if (is.next == Next::grow) outcome = more_space(is.bytes, tried);
      if (outcome != Outcome::done) {  // what it has made dead may be written over all the same
        return log_.settle() ? outcome : Outcome::io_error;
      }
    }
    if (!log_.settle()) return Outcome::io_error;
    const bool lives = log_.next_live(closed.chunk, 0) != log_.records();
    if (log_.is_empty(closed)) break;
    if (c_.medium.failed()) return Outcome::io_error;  // whoever wrote it could not fence it
    if (nobody && !waits && lives) return Outcome::corrupt;
    base::wait_a_little(round);
  }
  return Outcome::done;
}

// P9, a record at a time while the last chunk fills, so that nobody waits for all of them. What it
// cannot do is left to whoever needs the chunk.
template <class Keys>
void LodgeTree<Keys>::relieve_log() noexcept {
  try {
    Log::Closed closed{};
    if (!log_.is_tight() || !log_.oldest(closed)) return;
    const std::size_t next = log_.next_live(closed.chunk, 0);
    if (next != log_.records()) (void)force(closed, next);
  } catch (const std::bad_alloc&) {
    return;
  }
}

template <class Keys>
typename LodgeTree<Keys>::Attempt LodgeTree<Keys>::force(const Log::Closed& closed,
                                                         std::size_t index) {
  const alloc::Grace::Pin pin(grace_);
  if (!pin.ok()) return answer(Outcome::too_many_threads);
  const Ref ref = log_.ref_of(closed.chunk, index);
  Attempt nothing = answer(Outcome::done);
  nothing.nothing = true;
  // In this order: what lives in a chunk that is in use again means nothing.
  if (!log_.is_live(ref) || log_.is_empty(closed)) return nothing;
  const Record* const record = log_.record(ref);
  if (pmem::load(&record->order) == 0) {  // its operation is under way
    base::reads_discarded();
    return nothing;
  }
  const Key key = keys_.key_of(pmem::load(&record->key));
  const Probe probe = Keys::probe(key);
  Place place;
  if (!locate(probe, place) || !place.node->latch.try_lock(place.version)) return {Next::again};
  Attempt is = answer(Outcome::done);
  {
    const base::Unlock unlock(place.node->latch);
    Node& node = *place.node;
    const unsigned pair = node.search(keys_, probe);
    if (pair == Node::kNoSlot || node.ref(pair) != ref) return nothing;  // a fence is missing
    is = flush_leaf(node, node.target(pair), base::thread_slot());
  }
  forced_.fetch_add(1, std::memory_order_relaxed);
  if (is.next != Next::divide) return is;
  is = divide(key);
  return is.next == Next::done && is.outcome == Outcome::done ? Attempt{Next::again} : is;
}

EVERLEAF_INSTANTIATE(LodgeTree<U64Keys>);
EVERLEAF_INSTANTIATE(LodgeTree<BytesKeys>);

}  // namespace everleaf::tree::lodgetree
