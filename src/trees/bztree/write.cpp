// Changes of single keys (paper, 4.2): P1 to P4.
#include <new>

#include "trees/bztree/tree.hpp"

namespace everleaf::tree::bztree {

using pmwcas::Durability;

template <class Keys>
Outcome BzTree<Keys>::write(Key key, std::uint64_t value, Write what) {
  return options_.payloads ? write_payload(key, payload_of_number(value), what)
                           : change(key, {value, {}}, what);
}

template <class Keys>
Outcome BzTree<Keys>::change(Key key, const Value& value, Write what) {
  if (const Outcome admitted = c_.admit(what, keys_.too_long(key)); admitted != Outcome::done) {
    return admitted;
  }
  const Probe probe = Keys::probe(key);
  bool shrinks = false;
  const Outcome outcome = c_.with_space([&] {
    const alloc::Grace::Pin pin(c_.grace);
    if (!pin.ok()) return Outcome::too_many_threads;
    try {
      if (options_.reserve_entry) {
        if (const Outcome begun = begin_epoch(); begun != Outcome::done) return begun;
      }
      keep_spares();
      pmwcas::Retries retries(*words_);
      while (true) {
        base::reads_discarded();
        const Attempt tried = attempt(probe, value, what, shrinks);
        if (!tried.over && retries.again()) continue;
        if (!tried.over) return Outcome::corrupt;
        // What this thread has freed is in its grace period then, and with_space() waits it out.
        if (tried.outcome == Outcome::out_of_space) words_->settle();
        return tried.outcome;
      }
    } catch (const std::bad_alloc&) {
      return Outcome::out_of_space;  // whatever was frozen, the next one replaces
    }
  });
  if (outcome == Outcome::done && shrinks) shrink(key);
  return outcome;
}

template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::attempt(const Probe& probe, const Value& value,
                                                     Write what, bool& shrinks) {
  Path path;
  if (!descend(probe, Aim::at, path)) return answer(Outcome::corrupt);
  const LeafOf here = leaf(path.leaf);
  const Status s = status(here);
  if (s.frozen()) return retried(restructure(path, false));
  const auto hit = here.find(*words_, keys_, probe, s);
  if (hit.damaged) return answer(Outcome::corrupt);
  if (const Outcome refused = detail::refusal(what, hit.found); refused != Outcome::done) {
    return answer(refused);
  }
  if (here.is_asked_for()) return retried(restructure(path, false));
  // What a search knows of a sorted entry (I6) a writer changes, so it is there: each change of it
  // changes the status.
  if (hit.found && words_->read(here.meta(hit.position)) != hit.meta.word) {
    return again_if_changed(here, s);
  }
  if (what == Write::remove) return remove(here, s, hit, shrinks);
  return hit.found ? update(path, here, s, hit, value) : insert(path, here, s, probe, value);
}

// Behind the key, or in a block.
template <class Keys>
Word BzTree<Keys>::word_of(const Value& value, const Beside& beside) const {
  if (!options_.payloads) return value.word & ~pmwcas::kControl;
  return PayloadAt{beside.payload.block(), static_cast<std::uint32_t>(value.payload.size())}.word();
}

// False: damaged: what the heap calls free is in use, and must not go back. The blocks are the
// operation's afterwards: where it fails, they are lost to us.
template <class Keys>
bool BzTree<Keys>::allocates(Descriptor& change, Beside& beside) {
  for (Reserved* const one : {&beside.key, &beside.payload}) {
    const Offset block = one->block();
    one->keep();
    if (block != 0 && !change.allocates(block)) return false;
  }
  return true;
}

// P3, A4: the visible bit goes, the offset stays.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::remove(const LeafOf& leaf, Status s,
                                                    const typename LeafOf::Hit& hit,
                                                    bool& shrinks) {
  Descriptor change = words_->allocate();
  if (!change.ok()) return answer(Outcome::out_of_space);
  const std::uint32_t gone = hit.meta.total() + static_cast<std::uint32_t>(sizeof(Word));
  change.add_word(leaf.meta(hit.position), hit.meta.word, hit.meta.hidden());
  change.add_word(leaf.status(), s.word, s.remove(gone));
  const Word value = options_.payloads ? words_->read(leaf.value(hit.meta)) : 0;
  const Offset block = block_of(value);
  if (block != 0) change.add_word(leaf.value(hit.meta), value, value);  // whatever versions say
  const bool possible =
      (!hit.meta.is_long() || change.frees(Keys::record_of(leaf.stored(hit.meta)))) &&
      (block == 0 || change.frees(block));
  if (!possible) return again_if_changed(leaf, s);
  const Answer tried = change.execute();
  if (tried != Answer::succeeded) return retried(outcome_of(tried));
  const std::uint32_t used =
      s.block() + s.count() * static_cast<std::uint32_t>(sizeof(Word)) - s.deleted() - gone;
  shrinks = used < options_.merge || s.deleted() + gone > options_.dead;
  return answer(Outcome::done);
}

// P4: three words where the value's bit 63, which lies in the metadata, stays, or a payload lies in
// a block and did so before.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::update(const Path& path, const LeafOf& leaf, Status s,
                                                    const typename LeafOf::Hit& hit,
                                                    const Value& value) {
  Word* const word = leaf.value(hit.meta);
  const Word old = words_->read(word);
  const bool top = (value.word & pmwcas::kControl) != 0;
  const bool same_form =
      options_.payloads ? block_of(old) != 0 && !lies_within(value) : top == hit.meta.top();
  if (!options_.in_place || !same_form) return update_inline(path, leaf, s, hit, value);
  Beside beside(c_.heap);
  if (!write_block(beside.payload, value)) return answer(Outcome::out_of_space);
  Descriptor change = words_->allocate();
  if (!change.ok()) return answer(Outcome::out_of_space);
  change.add_word(word, old, word_of(value, beside));
  change.add_word(leaf.meta(hit.position), hit.meta.word, hit.meta.word);
  change.add_word(leaf.status(), s.word, s.next());
  if (block_of(old) != 0 && !change.frees(block_of(old))) return again_if_changed(leaf, s);
  if (!allocates(change, beside)) return answer(Outcome::corrupt);
  const Answer tried = change.execute();
  return tried == Answer::succeeded ? answer(Outcome::done) : retried(outcome_of(tried));
}

// P4: a new record, to which the entry then points. Of the paper's two entries this makes one, so
// that a deletion never brings the old one back.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::update_inline(const Path& path, const LeafOf& leaf,
                                                           Status s,
                                                           const typename LeafOf::Hit& hit,
                                                           const Value& value) {
  const bool is_long = hit.meta.is_long();
  const std::uint32_t total = record_bytes(hit.meta.key_bytes(), is_long, within(value).size());
  if (!leaf.has_room(s, total, 0)) return retried(restructure(path, false));
  Beside beside(c_.heap);
  if (!write_block(beside.payload, value)) return answer(Outcome::out_of_space);
  const Status reserved{s.reserve(0, total)};
  {
    Descriptor reserve = words_->allocate();
    if (!reserve.ok()) return answer(Outcome::out_of_space);
    reserve.add_word(leaf.status(), s.word, reserved.word);
    const Answer tried = reserve.execute(Durability::later);
    if (tried != Answer::succeeded) return retried(outcome_of(tried));
  }
  const Word flags =
      (is_long ? Meta::kLong : 0) | ((value.word & pmwcas::kControl) != 0 ? Meta::kTop : 0);
  const Meta now = Meta::entry(leaf.header().bytes() - reserved.block(), total,
                               hit.meta.key_bytes(), hit.meta.tag(), flags);
  const auto write = [&] {
    write_record(leaf, now, word_of(value, beside), leaf.key(keys_, hit.meta),
                 is_long ? leaf.stored(hit.meta) : 0, within(value));
  };
  write();
  pmwcas::Retries retries(*words_);
  for (Status seen = reserved; !seen.frozen(); seen = status(leaf)) {
    if (words_->read(leaf.meta(hit.position)) != hit.meta.word) break;  // another one was first
    const Word old_value = words_->read(leaf.value(hit.meta));
    const Offset old = block_of(old_value);
    Descriptor change = words_->allocate();
    if (!change.ok()) return answer(Outcome::out_of_space);
    change.add_word(leaf.meta(hit.position), hit.meta.word, now.word);
    change.add_word(leaf.status(), seen.word, seen.remove(hit.meta.total()));
    if (old != 0) {
      change.add_word(leaf.value(hit.meta), old_value, old_value);
      if (!change.frees(old)) return again_if_changed(leaf, seen);  // what it reserved stays unused
    }
    if (!allocates(change, beside)) return answer(Outcome::corrupt);
    const Answer tried = change.execute();
    if (tried == Answer::succeeded) return answer(Outcome::done);
    if (tried != Answer::failed) return answer(outcome_of(tried));
    if (!retries.again()) return answer(Outcome::corrupt);
    if (lies_within(value)) continue;
    base::reached("P4: a block is written again");  // it was lost with the failure
    if (!write_block(beside.payload, value)) return answer(Outcome::out_of_space);
    write();
  }
  return again();
}

// Fills an entry's reserved space; durable with the next fence. `long_record`: of a key that lies
// there.
template <class Keys>
void BzTree<Keys>::write_record(const LeafOf& leaf, Meta entry, Word value, Key key,
                                Word long_record, Bytes payload) {
  std::byte* const at = leaf.base() + entry.offset();
  c_.medium.store(reinterpret_cast<Word*>(at), value, 0);
  if (entry.is_long()) {
    c_.medium.store(reinterpret_cast<Word*>(at + sizeof(Word)), long_record, 0);
  } else {
    Keys::copy_to(at + sizeof(Word), key);
  }
  if (!payload.empty()) {
    std::memcpy(at + record_bytes(entry.key_bytes(), entry.is_long()), payload.data(),
                payload.size());
  }
  c_.medium.count_written(entry.total());
  c_.medium.flush(at, entry.total());
}

// A key's own record; durable with the next fence. False: out of space.
template <class Keys>
bool BzTree<Keys>::write_key(Reserved& record, Key key) {
  if constexpr (Keys::kRecords) {
    if (!record.get(Keys::record_bytes(key))) return false;
    keys_.store_record(record.block(), key);
    c_.medium.flush(c_.medium.at(record.block()), Keys::record_bytes(key));
  }
  return true;
}

// A long payload's block; durable with the next fence. False: out of space.
template <class Keys>
bool BzTree<Keys>::write_block(Reserved& record, const Value& value) {
  if (lies_within(value)) return true;
  if (!record.get(value.payload.size())) return false;
  std::memcpy(c_.medium.at(record.block()), value.payload.data(), value.payload.size());
  c_.medium.count_written(value.payload.size());
  c_.medium.flush(c_.medium.at(record.block()), value.payload.size());
  return true;
}

// A1: whether a place behind the entries is as a fresh leaf has it. A crash that took a reservation
// back may have left it, or bytes of its record, which could look like anything once the place
// counts: a visible entry, a reference. They go with the leaf.
template <class Keys>
bool BzTree<Keys>::is_blank(const Word* meta) const {
  const base::Durable durable;  // what is not zero leads to a copy of the leaf, which is harmless
  return pmem::load(meta) == 0;
}

// P1, P2
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::insert(const Path& path, const LeafOf& leaf, Status s,
                                                    const Probe& probe, const Value& value) {
  const bool is_long = this->is_long(probe.key);
  const std::uint32_t key_bytes = is_long ? std::uint32_t{sizeof(Word)} : Keys::bytes_of(probe.key);
  const std::uint32_t total = record_bytes(key_bytes, is_long, within(value).size());
  if (!leaf.has_room(s, total)) {
    // The largest key so far, in the last leaf.
    Items items;
    const bool append = !bound(path, true).has_value() && gather(leaf, items) && !items.empty() &&
                        items.back().key < probe.key;
    return retried(restructure(path, append));
  }
  Beside beside(c_.heap);
  if ((is_long && !write_key(beside.key, probe.key)) || !write_block(beside.payload, value)) {
    return answer(Outcome::out_of_space);
  }
  const std::uint32_t position = s.count();
  const Status now{s.reserve(1, total)};
  if (!is_blank(leaf.meta(position))) {
    base::reached("A1: a record's bytes");
    return status(leaf).word == s.word ? retried(restructure(path, false)) : again();
  }
  Meta reserved{0};
  {
    Descriptor reserve = words_->allocate();
    if (!reserve.ok()) return answer(Outcome::out_of_space);
    if (options_.reserve_entry) {
      const Meta mine = Meta::reservation(epoch_.load(std::memory_order_relaxed));
      reserve.add_word(leaf.meta(position), 0, mine.word);
      reserved = mine;
    }
    // Nobody else has reserved since the search: the place was nobody's, and is ours now.
    reserve.add_word(leaf.status(), s.word, now.word);
    const Answer tried = reserve.execute(Durability::later);
    if (tried != Answer::succeeded) return retried(outcome_of(tried));
  }
  leaf.set_fingerprint(c_.medium, position, probe.hash);
  const Word flags =
      (is_long ? Meta::kLong : 0) | ((value.word & pmwcas::kControl) != 0 ? Meta::kTop : 0);
  const Meta final =
      Meta::entry(leaf.header().bytes() - now.block(), total, key_bytes, probe.hash, flags);
  write_record(leaf, final, word_of(value, beside), probe.key, beside.key.block(), within(value));
  return complete(leaf, probe, value, s, position, reserved, final, beside);
}

// P2, A3: visible, unless another one was first. `seen`: the leaf's status when it had no such key.
template <class Keys>
typename BzTree<Keys>::Attempt BzTree<Keys>::complete(const LeafOf& leaf, const Probe& probe,
                                                      const Value& value, Status seen,
                                                      std::uint32_t position, Meta reserved,
                                                      Meta final, Beside& beside) {
  pmwcas::Retries retries(*words_);
  while (true) {
    const Status s = status(leaf);
    if (s.frozen()) return again();  // its space goes with the node
    if (!s.has_version_of(seen)) {
      const auto hit = leaf.find(*words_, keys_, probe, s);
      if (hit.damaged) return answer(Outcome::corrupt);
      // The next attempt finds it.
      if (hit.found) return retried(give_up(leaf, position, reserved, final.total()));
      seen = s;
    }
    Descriptor change = words_->allocate();
    if (!change.ok()) return answer(Outcome::out_of_space);
    change.add_word(leaf.meta(position), reserved.word, final.word);
    change.add_word(leaf.status(), s.word, s.next());
    if (!allocates(change, beside)) return answer(Outcome::corrupt);
    const Answer tried = change.execute();
    if (tried == Answer::succeeded) return answer(Outcome::done);
    if (tried != Answer::failed) return answer(outcome_of(tried));
    if (words_->read(leaf.meta(position)) != reserved.word) return again();  // damaged
    if (!retries.again()) return answer(Outcome::corrupt);
    // Blocks are lost with a failure.
    if (!final.is_long() && lies_within(value)) continue;
    base::reached("P2: blocks are written again");
    if ((final.is_long() && !write_key(beside.key, probe.key)) ||
        !write_block(beside.payload, value)) {
      return answer(Outcome::out_of_space);
    }
    write_record(leaf, final, word_of(value, beside), probe.key, beside.key.block(), within(value));
  }
}

// Our reservation counts for nothing any more.
template <class Keys>
Outcome BzTree<Keys>::give_up(const LeafOf& leaf, std::uint32_t position, Meta reserved,
                              std::uint32_t total) {
  for (pmwcas::Retries retries(*words_);;) {
    const Status s = status(leaf);
    if (s.frozen() || words_->read(leaf.meta(position)) != reserved.word) return Outcome::done;
    Descriptor change = words_->allocate();
    if (!change.ok()) return Outcome::done;
    if (reserved.word != 0) change.add_word(leaf.meta(position), reserved.word, 0);
    change.add_word(leaf.status(), s.word,
                    s.remove(total + static_cast<std::uint32_t>(sizeof(Word))));
    const Answer tried = change.execute(Durability::later);
    if (tried != Answer::failed) return outcome_of(tried);
    if (!retries.again()) return Outcome::corrupt;
  }
}

EVERLEAF_INSTANTIATE(BzTree<U64Keys>);
EVERLEAF_INSTANTIATE(BzTree<BytesKeys>);

}  // namespace everleaf::tree::bztree
