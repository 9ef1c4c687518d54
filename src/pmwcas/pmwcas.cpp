#include "pmwcas/pmwcas.hpp"

#include <algorithm>
#include <new>

#include "base/seam.hpp"
#include "base/stopwatch.hpp"
#include "base/thread_slot.hpp"
#include "pmem/format.hpp"
#include "pmem/prefetch.hpp"

namespace everleaf::pmwcas {
namespace {

bool is_undecided(State state, Reference reference) {
  return state.status() == Status::undecided && state.sequence() == reference.sequence();
}
bool is_open(State state, Reference reference) {
  return state.is_open() && state.sequence() == reference.sequence();
}

// Of a lane, which one thread at a time works by.
void count(std::atomic<std::uint64_t>& figure) {
  figure.store(figure.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// A load of a word, a state, or what a reference names. Whoever acts on it may: a value is durable
// (I1), a descriptor and a record are before a reference to them is there (W1, W3), a success is by
// its words (F2; who sees it placed: R1), and any state is made so before a word changes because of
// it. The checker takes this on trust: it judges by the answers.
Word look(const Word* word) {
  const base::Durable durable;
  return pmem::load(word);
}

// From the descriptor's beginning on.
std::size_t bytes_in_use(std::size_t words, std::size_t blocks) {
  return blocks != 0 ? offsetof(DescriptorAt, blocks) + blocks * sizeof(Word)
                     : offsetof(DescriptorAt, words) + words * sizeof(WordEntry);
}

bool is_word(const pmem::Medium& medium, Offset at) {
  return at >= pmem::kHeapAt && at % sizeof(Word) == 0 && medium.contains(at, sizeof(Word));
}

}  // namespace

// What the owner of a thread slot knows of its descriptors. Phases move on by the fences of the
// slot's thread alone, which flushes what they wait for just before: the thread may have changed.
struct Descriptor::Lane {
  enum class Phase : std::uint8_t {
    idle,
    running,  // W1 to W5
    decided,  // its state is to be made durable, and its words if Durability::later
    cleaned,  // its words are
    freed,    // its free state is
  };
  struct Own {
    Phase phase = Phase::idle;
    bool succeeded = false;
    bool later = false;
    Word sequence = 0;
    std::size_t word_count = 0;
    std::array<Word*, kMaxWords> words;
    // As in the descriptor, whose lines are being flushed when W6 wants them.
    std::array<Word, kMaxWords> expected;
    std::array<Word, kMaxWords> desired;
    std::size_t block_count = 0;
    std::array<Block, kMaxBlocks> blocks;

    [[nodiscard]] std::span<const Block> all_blocks() const {
      return std::span(blocks).first(block_count);
    }
    [[nodiscard]] std::span<Word* const> all_words() const {
      return std::span(words).first(word_count);
    }
    Callback callback;
  };

  // kDescriptors: none is.
  [[nodiscard]] std::size_t first_idle() const {
    return static_cast<std::size_t>(std::ranges::find(own, Phase::idle, &Own::phase) - own.begin());
  }

  unsigned slot = 0;
  LaneAt* media = nullptr;
  std::array<Own, kDescriptors> own;
  Word install_sequence = 0;
  // Decided operations of others that this thread met; their states became durable with F1.
  std::array<Word, kMaxWords> met{};
  std::size_t met_count = 0;
  // Single words that were swapped (run_alone()), for the next second fence, or settle().
  std::array<Word*, 16> swapped;
  std::size_t swapped_count = 0;
  std::array<std::atomic<std::uint64_t>, kMaxWords + 1> executed{};  // by words
  std::atomic<std::uint64_t> failed{0};
  std::atomic<std::uint64_t> helped{0};
};

// What an owner and his helpers work by.
struct DescriptorPool::Operation {
  DescriptorAt* descriptor = nullptr;
  Reference reference{0};  // of word 0
  State undecided{0};
  std::size_t count = 0;
  bool later = false;
  struct Target {
    Word* word;
    Word expected;
  };
  std::array<Target, kMaxWords> targets;

  [[nodiscard]] Reference at(std::size_t index) const {
    return {Kind::descriptor, reference.slot(), reference.descriptor(),
            static_cast<unsigned>(index), reference.sequence()};
  }
  [[nodiscard]] bool is_undecided() const { return look(&descriptor->state) == undecided.word; }
  [[nodiscard]] Word state(Status status) const { return undecided.decided(status).word; }
  void add_words(Lines& lines, pmem::Site site = pmem::Site::current()) const;
};

// What a fence makes durable: each line once, and just before it. A line whose flush is under way
// makes another flush of it wait, and any load from it. Nothing where fences do not wait: flushes
// do nothing there.
class DescriptorPool::Lines {
 public:
  explicit Lines(pmem::Medium& medium) : medium_(medium), needed_(medium.fences_wait()) {}

  void add(const void* from, std::size_t bytes, pmem::Site site = pmem::Site::current()) {
    if (!needed_) return;
    const auto* const begin = static_cast<const std::byte*>(from);
    const std::byte* line = begin - reinterpret_cast<std::uintptr_t>(begin) % pmem::kLine;
    for (; line < begin + bytes; line += pmem::kLine) {
      const auto known = std::span(at_).first(count_);
      if (std::ranges::find(known, line) != known.end()) continue;
      if (count_ == kMost) flush();
      std::construct_at(sites() + count_, site);
      at_[count_++] = line;
    }
  }
  void flush() {
    if (count_ != 0) medium_.flush_each(std::span(at_).first(count_), sites());
    count_ = 0;
  }

 private:
  static constexpr std::size_t kMost = 48;
  [[nodiscard]] pmem::Site* sites() { return reinterpret_cast<pmem::Site*>(sites_.data()); }

  pmem::Medium& medium_;
  const bool needed_;
  std::size_t count_ = 0;
  // The first count_. Bytes, so that nobody fills the others.
  std::array<const std::byte*, kMost> at_;
  alignas(pmem::Site) std::array<std::byte, kMost * sizeof(pmem::Site)> sites_;
};

void DescriptorPool::Operation::add_words(Lines& lines, pmem::Site site) const {
  for (const Target& target : std::span(targets).first(count)) {
    lines.add(target.word, sizeof(Word), site);
  }
}

// --- A descriptor in the making ------------------------------------------------------------------

bool Descriptor::takes(const Word* word, Word expected, Word desired) const {
  if (word == nullptr || count_ == kMaxWords || ((expected | desired) & kControl) != 0)
    return false;
  return std::ranges::find(places(), word, &Work::word) == places().end();
}

// The first free place: the others stay where they are, reserve_entry() names them.
Word* Descriptor::add(const Work& work) {
  const auto free = std::ranges::find(places(), nullptr, &Work::word);
  Work& place = free == places().end() ? words_[places_++] : *free;
  place = work;
  ++count_;
  return &place.desired;
}

bool Descriptor::add_word(Word* word, Word expected, Word desired) {
  if (!takes(word, expected, desired)) return false;
  add({word, expected, desired, Policy::none});
  return true;
}

Word* Descriptor::reserve_entry(Word* word, Word expected, Policy policy) {
  return takes(word, expected, 0) ? add({word, expected, 0, policy}) : nullptr;
}

bool Descriptor::remove_word(Word* word) {
  const auto found = std::ranges::find(places(), word, &Work::word);
  if (word == nullptr || found == places().end()) return false;
  *found = {};
  --count_;
  return true;
}

bool Descriptor::note_block(Offset block, bool allocated) {
  if (block_count_ == kMaxBlocks ||
      std::ranges::find(blocks(), block, &Block::at) != blocks().end()) {
    return false;
  }
  const alloc::Heap::Bit bit = allocated ? bit_of_reserved(block) : pool_.heap_.to_release(block);
  if (allocated && bit.mask == 0) return false;
  blocks_[block_count_++] = {block, bit, allocated};
  return true;
}

// mask 0: it is none, or in use: a failure would free what somebody else has.
alloc::Heap::Bit Descriptor::bit_of_reserved(Offset block) const {
  const alloc::Heap::Bit bit = pool_.heap_.to_activate(block);
  if (bit.mask == 0) return bit;
  const base::Durable durable;  // of the word's bits others change theirs
  const bool in_use = (pmem::load(pool_.medium_.at<Word>(bit.word)) & bit.mask) != 0;
  return in_use ? alloc::Heap::Bit{} : bit;
}

bool Descriptor::allocates(Offset block) {
  return note_block(block, true);
}

bool Descriptor::frees(Offset block) {
  return note_block(block, false);
}

// What the policies of words come to. False: a value with the control bit, or too many blocks.
bool Descriptor::note_policies() {
  for (Work& one : places()) {
    if ((one.desired & kControl) != 0) return false;
    if (one.policy == Policy::none) continue;
    if (one.expected != 0 && !frees(one.expected)) return false;
    if (one.desired != 0 && !allocates(one.desired)) return false;
    one.policy = Policy::none;
  }
  return true;
}

void Descriptor::discard() {
  const auto give_back = [this](Offset block) {
    callback_ ? callback_(block, false) : pool_.heap_.recycle(block);
  };
  // Each once, whatever the caller has named twice.
  const auto noted = [this](Offset block) {
    return std::ranges::any_of(
        blocks(), [block](const Block& one) { return one.allocated && one.at == block; });
  };
  const auto named_before = [this](const Work& work) {
    const auto before = places().first(static_cast<std::size_t>(&work - words_.data()));
    return std::ranges::any_of(before, [&work](const Work& one) {
      return one.policy == Policy::free_one && one.desired == work.desired;
    });
  };
  for (const Work& one : places()) {
    if (one.policy != Policy::free_one || noted(one.desired) || named_before(one)) continue;
    if (bit_of_reserved(one.desired).mask != 0) give_back(one.desired);
  }
  for (const Block& one : blocks()) {
    if (one.allocated) give_back(one.at);
  }
  clear();
}

Answer Descriptor::execute(Durability durability) {
  const base::Stopwatch watch(base::Part::words);
  if (!ok()) {
    discard();
    return Answer::out_of_space;
  }
  if (count_ == 0) {
    discard();
    return Answer::failed;  // A2: recovery could not tell that it succeeded
  }
  if (!note_policies()) {
    discard();
    return Answer::corrupt;
  }
  if (std::ranges::any_of(blocks(), [](const Block& one) { return one.bit.mask == 0; })) {
    // Its bit goes after the operation that freed it: so a word has changed, or there is no block.
    const bool stale = std::ranges::any_of(places(), [this](const Work& one) {
      return one.word != nullptr && pool_.read(one.word) != one.expected;
    });
    base::reached(stale ? "W1: a block that somebody else freed" : "W1: no such block");
    discard();
    return stale ? Answer::failed : Answer::corrupt;
  }
  // By rising offset, free places last: see Helping. By insertion: they are few.
  const auto comes_before = [](const Work& a, const Work& b) {
    return a.word != nullptr && (b.word == nullptr || a.word < b.word);
  };
  for (std::size_t i = 1; i < places_; ++i) {
    for (std::size_t k = i; k != 0 && comes_before(words_[k], words_[k - 1]); --k) {
      std::swap(words_[k], words_[k - 1]);
    }
  }
  const Answer answer = pool_.run(*this, durability);
  clear();  // the blocks' life goes on in the pool
  return answer;
}

// --- Lanes ---------------------------------------------------------------------------------------

DescriptorPool::DescriptorPool(pmem::Medium& medium, alloc::Heap& heap, alloc::RedoLog& redo,
                               alloc::Grace& grace, Offset table)
    : medium_(medium),
      heap_(heap),
      redo_(redo),
      grace_(grace),
      table_(table),
      lanes_(std::make_unique<std::array<std::atomic<Lane*>, kMaxThreads>>()) {}

DescriptorPool::~DescriptorPool() {
  for (auto& lane : *lanes_) delete lane.load(std::memory_order_acquire);
}

LaneAt* DescriptorPool::lane_at(unsigned slot) const {
  // Acquire: who has a reference to it sees the lane.
  const Lane* const lane =
      slot < kMaxThreads ? (*lanes_)[slot].load(std::memory_order_acquire) : nullptr;
  return lane == nullptr ? nullptr : lane->media;
}

// Null: a damaged word.
DescriptorAt* DescriptorPool::descriptor_of(Reference reference) const {
  LaneAt* const lane = lane_at(reference.slot());
  if (lane == nullptr || reference.index() >= kMaxWords) return nullptr;
  return &lane->descriptors[reference.descriptor()];
}

DescriptorPool::Lane* DescriptorPool::lane() {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return nullptr;
  Lane* const lane = (*lanes_)[slot].load(std::memory_order_acquire);
  return lane != nullptr ? lane : new_lane(slot);
}

// The slot's thread alone comes here.
DescriptorPool::Lane* DescriptorPool::new_lane(unsigned slot) {
  std::unique_ptr<Lane> lane(new (std::nothrow) Lane);
  if (lane == nullptr) return nullptr;
  const Offset block = heap_.reserve(sizeof(LaneAt));
  if (block == 0) return nullptr;
  auto* const words = medium_.at<Word>(block);
  for (std::size_t i = 0; i < sizeof(LaneAt) / sizeof(Word); ++i) medium_.store(words + i, 0);
  lane->slot = slot;
  lane->media = medium_.at<LaneAt>(block);
  // See the README's limits: begins at random.
  Word random = (base::now_ns() + block) * 0x9E3779B97F4A7C15ULL;
  for (std::size_t i = 0; i < kDescriptors; ++i) {
    random = (random ^ random >> 29) * 0xBF58476D1CE4E5B9ULL;
    lane->own[i].sequence = random >> 32;
    medium_.store(&lane->media->descriptors[i].state, State::free(lane->own[i].sequence).word);
  }
  lane->install_sequence = random >> 20 & 0xFFFFFFFF;
  medium_.flush(words, sizeof(LaneAt));
  alloc::Redo record;
  if (!heap_.activate(record, block)) return nullptr;
  record.cover(block, sizeof(LaneAt));
  record.store(table_ + offsetof(TableAt, lanes) + slot * sizeof(Word), block);
  // Not for ever: threads that are stopped here hold a lane of the log each.
  const Outcome outcome = redo_.commit(record, alloc::RedoLog::Waits::two_seconds);
  if (outcome != Outcome::done) {
    if (outcome != Outcome::io_error) heap_.recycle(block);
    return nullptr;
  }
  (*lanes_)[slot].store(lane.get(), std::memory_order_release);
  return lane.release();
}

Descriptor DescriptorPool::allocate(Descriptor::Callback callback) {
  return {*this, lane(), std::move(callback)};
}

// --- Reading -------------------------------------------------------------------------------------

// What the reference stands for in this state of its descriptor, if that has not moved on.
Word DescriptorPool::value_of(const DescriptorAt& descriptor, State state, Reference reference) {
  const WordEntry& entry = descriptor.words[reference.index()];
  const bool desired = reference.kind() == Kind::descriptor &&
                       state.sequence() == reference.sequence() &&
                       (state.status() == Status::succeeded || state.status() == Status::placed);
  return look(desired ? &entry.desired : &entry.expected) & ~kControl;
}

// As long as what it names is of the same use, the word had the value while the reference stood
// there, however often it has changed since: who reads beside writers does not begin again.
Word DescriptorPool::resolve(const Word* word, Word seen) const {
  while ((seen & kControl) != 0) {
    const Reference reference(seen);
    Word value = 0;  // of a damaged word
    Word sequence = ~Word{0};
    if (reference.kind() == Kind::install) {
      if (const LaneAt* const lane = lane_at(reference.slot())) {
        value = look(&lane->install.old) & ~kControl;
        sequence = look(&lane->install.sequence);
      }
    } else if (const DescriptorAt* const descriptor = descriptor_of(reference)) {
      base::reached("reading: a reference");
      const State state{look(&descriptor->state)};
      if (state.status() == Status::placed) make_durable(reference);
      value = value_of(*descriptor, state, reference);
      // A free one has kept its sequence, but no decision: the word is rid of it.
      const State after{look(&descriptor->state)};
      if (after.status() != Status::free) sequence = after.sequence();
    }
    if (sequence == reference.sequence()) return value;
    const Word now = look(word);
    if (now == seen) return value;  // a damaged word
    seen = now;
  }
  return seen;
}

// R1: of a placed operation, before what it desires is answered. Who decides it does the same, so
// if it is over, somebody has.
void DescriptorPool::make_durable(Reference reference) const {
  Operation operation;
  if (!copy_out(reference, operation)) return;
  base::reached("R1: a reader flushes");
  Lines lines(medium_);
  operation.add_words(lines);
  lines.flush();
  (void)medium_.fence();  // of memory, which does not fail, or on a damaged disk
}

// --- W1 to W5 ------------------------------------------------------------------------------------

bool DescriptorPool::swap(Word* word, Word from, Word to) {
  // seq_cst: who installs looks at the state next, and who has made it something else than
  // undecided looks at the word next; they must not miss each other. On x86 any compare-and-swap
  // does that.
  const base::Unseen unseen;
  return std::atomic_ref<Word>(*word).compare_exchange_strong(from, to, std::memory_order_seq_cst);
}

void DescriptorPool::change_bits(const Descriptor::Block& block, bool set) {
  const std::atomic_ref<Word> bits(*medium_.at<Word>(block.bit.word));
  // Release: as the redo log's.
  set ? bits.fetch_or(block.bit.mask, std::memory_order_release)
      : bits.fetch_and(~block.bit.mask, std::memory_order_release);
  medium_.count_heap_written(sizeof(Word));
}

// W1, but for the fence.
void DescriptorPool::write_out(Descriptor& mine, std::size_t which, Lines& lines) {
  Lane& lane = *mine.lane_;
  Lane::Own& own = lane.own[which];
  DescriptorAt& descriptor = lane.media->descriptors[which];
  own.phase = Lane::Phase::running;
  own.word_count = mine.count_;
  own.block_count = mine.block_count_;
  std::ranges::copy(mine.blocks(), own.blocks.begin());
  own.callback = std::move(mine.callback_);
  own.sequence = (own.sequence + 1) & Reference::kSequenceMask;
  // Before the fields: who reads one of them for an earlier operation sees that he is late.
  medium_.store(&descriptor.state, State::free(own.sequence).word, 0);
  for (std::size_t i = 0; i < mine.count_; ++i) {
    WordEntry& entry = descriptor.words[i];
    own.words[i] = mine.words_[i].word;
    own.expected[i] = mine.words_[i].expected;
    own.desired[i] = mine.words_[i].desired;
    medium_.store(&entry.at, medium_.offset_of(own.words[i]), 0);
    medium_.store(&entry.expected, mine.words_[i].expected, 0);
    medium_.store(&entry.desired, mine.words_[i].desired, 0);
  }
  for (std::size_t i = 0; i < mine.block_count_; ++i) {
    medium_.store(&descriptor.blocks[i],
                  mine.blocks_[i].at | (mine.blocks_[i].allocated ? kAllocated : 0), 0);
  }
  const State undecided = State::undecided(own.sequence, mine.count_, mine.block_count_);
  medium_.store(&descriptor.state, undecided.word, 0);
  medium_.count_heap_written((1 + 3 * mine.count_ + mine.block_count_) * sizeof(Word));
  medium_.count_written(mine.count_ * sizeof(Word));
  lines.add(&descriptor, bytes_in_use(own.word_count, own.block_count));
}

// Decided operations that stand in the way: their states become durable with F1.
void DescriptorPool::note_met(const Operation& operation, Lane& lane, Lines& lines) {
  lane.met_count = 0;
  for (std::size_t i = 0; i < operation.count; ++i) {
    const Reference reference(look(operation.targets[i].word));
    if ((reference.word() & kControl) == 0 || reference.kind() != Kind::descriptor) continue;
    const DescriptorAt* const other = descriptor_of(reference);
    if (other == nullptr || State{look(&other->state)}.is_open()) continue;
    lines.add(&other->state, sizeof(Word));
    lane.met[lane.met_count++] = reference.word();
  }
}

// A single word that need not be durable takes one swap: nobody ever meets a reference to it.
Answer DescriptorPool::run_alone(Word* word, Word expected, Word desired, Lane& lane) {
  lane.met_count = 0;
  if (lane.swapped_count == lane.swapped.size()) {  // none of an operation took them along
    Lines lines(medium_);
    // crash: fence stays: a crash may take these words back, another thread's close must not
    if (!fence(lane, lines, Rest::goes_along)) return Answer::io_error;
  }
  while (true) {
    const Word now = look(word);
    if (now == expected) {
      if (!swap(word, expected, desired)) continue;
      medium_.count_written(sizeof(Word));
      const auto known = std::span(lane.swapped).first(lane.swapped_count);
      if (medium_.fences_wait() && std::ranges::find(known, word) == known.end()) {
        lane.swapped[lane.swapped_count++] = word;
      }
      count(lane.executed[1]);
      base::reached("W3: a single word is swapped");
      return Answer::succeeded;
    }
    if ((now & kControl) == 0) {
      count(lane.executed[1]);
      count(lane.failed);
      base::reached("W3: a single word has changed");
      return Answer::failed;
    }
    const Reference other(now);
    if (other.kind() != Kind::descriptor) {
      finish_install(word, now);
      continue;
    }
    Blocker blocker;
    const Step step = replace_decided(word, other, lane, blocker);
    if (step == Step::io_error || (step == Step::blocked && !help(blocker, lane))) {
      return Answer::io_error;
    }
  }
}

// W1 of the next operation finds its descriptor at hand.
void DescriptorPool::fetch_next(const Lane& lane, std::size_t bytes) {
  const std::size_t next = lane.first_idle();
  if (next != kDescriptors) pmem::prefetch_lines(&lane.media->descriptors[next], bytes);
}

Answer DescriptorPool::run(Descriptor& mine, Durability durability) {
  Lane& lane = *mine.lane_;
  const alloc::Grace::Pin pin(grace_);  // for what advance() retires
  if (durability == Durability::later && mine.count_ == 1 && mine.block_count_ == 0) {
    // remove_word() leaves holes: sorted, the words come first.
    const auto& only = mine.words_[0];
    return run_alone(only.word, only.expected, only.desired, lane);
  }
  if (lane.first_idle() == kDescriptors && !settle(lane)) return Answer::io_error;
  const std::size_t which = lane.first_idle();
  if (which == kDescriptors) return Answer::io_error;  // stuck since a write-back failed
  Lane::Own& own = lane.own[which];
  own.later = durability == Durability::later && mine.block_count_ == 0;
  Lines lines(medium_);
  write_out(mine, which, lines);

  Operation operation;
  operation.descriptor = &lane.media->descriptors[which];
  operation.reference =
      Reference(Kind::descriptor, lane.slot, static_cast<unsigned>(which), 0, own.sequence);
  operation.undecided = State::undecided(own.sequence, mine.count_, mine.block_count_);
  operation.count = mine.count_;
  operation.later = own.later;
  for (std::size_t i = 0; i < mine.count_; ++i) {
    operation.targets[i] = {mine.words_[i].word, mine.words_[i].expected};
  }
  note_met(operation, lane, lines);
  // The next operation finds a descriptor.
  const Rest rest = lane.first_idle() == kDescriptors ? Rest::goes_along : Rest::waits;
  // F1: the descriptor is there before a reference is.
  if (!fence(lane, lines, rest)) return Answer::io_error;
  bool allocates = false;
  for (const auto& block : own.all_blocks()) {
    if (!block.allocated) continue;
    change_bits(block, true);  // W2
    lines.add(medium_.at(block.bit.word), sizeof(Word));
    allocates = true;
  }
  // Whoever recovers a success finds them set.
  if (allocates && !fence(lane, lines, Rest::waits)) return Answer::io_error;

  for (Blocker blocker;;) {
    const Step step = install_all(operation, lane, true, blocker);
    if (step == Step::io_error) return Answer::io_error;
    if (step == Step::decided) break;
    if (!help(blocker, lane)) return Answer::io_error;
  }
  own.succeeded = State{look(&operation.descriptor->state)}.status() == Status::succeeded;
  own.phase = Lane::Phase::decided;
  count(lane.executed[operation.count]);
  if (own.succeeded) {
    for (const auto& block : own.all_blocks()) {
      if (!block.allocated) change_bits(block, false);
    }
    if (own.later) clean(lane, which);  // A8: it need not be durable, nor whole after a crash
    if (!medium_.fences_wait()) finish(lane, which);
    return Answer::succeeded;
  }
  count(lane.failed);
  if (!medium_.fences_wait()) {
    finish(lane, which);
    return Answer::failed;
  }
  // W5: a failure is durable before anybody acts on it; blocks are given back at once.
  const bool ok = allocates ? settle(lane) : fence(lane, lines, Rest::waits);
  return ok ? Answer::failed : Answer::io_error;
}

// W3 to W5, by the owner or a helper.
DescriptorPool::Step DescriptorPool::install_all(const Operation& operation, Lane& lane, bool owner,
                                                 Blocker& blocker) {
  for (std::size_t i = 0; i < operation.count; ++i) {
    Word* const word = operation.targets[i].word;
    const Word wanted = operation.at(i).word();
    while (operation.is_undecided()) {
      base::reached("W3: undecided");
      const Word now = look(word);
      if (now == wanted) break;
      if (now == operation.targets[i].expected) {
        if (!place(operation, i, lane, owner)) return Step::io_error;
        continue;
      }
      if ((now & kControl) == 0) {
        base::reached("W5: failed");
        (void)decide(operation, Status::undecided, Status::failed);
        return Step::decided;
      }
      const Reference other(now);
      if (other.kind() != Kind::descriptor) {
        finish_install(word, now);
        continue;
      }
      const Step step = replace_decided(word, other, lane, blocker);
      if (step != Step::decided) return step;
    }
  }
  if (owner && operation.later) {
    base::reached("W5: succeeded");
    (void)decide(operation, Status::undecided, Status::succeeded);
    return Step::decided;
  }
  if (!is_open(State{look(&operation.descriptor->state)}, operation.reference)) {
    return Step::decided;
  }
  base::reached("W4: all are there");
  const bool places = owner && medium_.domain() == Domain::memory;
  if (places && !decide(operation, Status::undecided, Status::placed)) return Step::decided;  // W4
  if (places) base::reached("W4: placed");
  Lines lines(medium_);
  operation.add_words(lines);
  // F2: all references are durable before the operation counts as done.
  if (!fence(lane, lines, Rest::goes_along)) return Step::io_error;
  base::reached("W5: succeeded");
  if (places) {
    // Nobody makes anything else of it, and no locked instruction waits here for F2.
    medium_.store(&operation.descriptor->state, operation.state(Status::succeeded), 0);
    fetch_next(lane, bytes_in_use(operation.count, 0));
  } else if (!decide(operation, Status::undecided, Status::succeeded)) {
    (void)decide(operation, Status::placed, Status::succeeded);
  }
  return Step::decided;
}

bool DescriptorPool::decide(const Operation& operation, Status from, Status to) {
  return swap(&operation.descriptor->state, operation.state(from), operation.state(to));
}

// Where the word has its expected value: the conditional install. False: a write-back failed.
bool DescriptorPool::place(const Operation& operation, std::size_t index, Lane& lane, bool owner) {
  const auto& target = operation.targets[index];
  if (!owner) base::reached("W3: a helper is about to install");
  // Since the word was seen as expected: what the owner had placed there would stand there still.
  // So he places each reference and each marker once.
  if (owner && !operation.is_undecided()) {
    base::reached("W3: decided meanwhile");
    return true;
  }
  if (owner && index == 0) {  // nobody knows of the operation yet: nobody can have decided it
    (void)swap(target.word, target.expected, operation.at(0).word());
    base::reached("W3: a first word is placed");
    return true;
  }
  if (owner) {
    const Word marker = operation.at(index).as(Kind::marker).word();
    if (swap(target.word, target.expected, marker)) finish_install(target.word, marker);
    return true;
  }
  InstallAt& record = lane.media->install;
  lane.install_sequence = (lane.install_sequence + 1) & Reference::kSequenceMask;
  medium_.store(&record.sequence, lane.install_sequence, 0);
  medium_.store(&record.target, operation.at(index).word(), 0);
  medium_.store(&record.at, medium_.offset_of(target.word), 0);
  medium_.store(&record.old, target.expected, 0);
  // The record is durable before a word refers to it.
  if (!medium_.persist(&record, sizeof record)) return false;
  const Word install = Reference(Kind::install, lane.slot, 0, 0, lane.install_sequence).word();
  if (!swap(target.word, target.expected, install)) return true;
  base::reached("W3: a helper's install");
  finish_install(target.word, install);
  // The word is durably rid of it before the record is used again.
  return medium_.persist(target.word, sizeof(Word));
}

// A marker or an install becomes what it stands for if its operation is undecided, else the old
// value.
void DescriptorPool::finish_install(Word* word, Word seen) {
  const Reference reference(seen);
  Reference target(0);
  Word old = 0;
  if (reference.kind() == Kind::install) {
    const LaneAt* const lane = lane_at(reference.slot());
    if (lane != nullptr) {
      target = Reference(look(&lane->install.target));
      old = look(&lane->install.old) & ~kControl;
      // Damaged: a word would be swapped for itself for ever.
      if ((target.word() & kControl) == 0 || target.kind() != Kind::descriptor) {
        target = Reference(0);
      }
    }
  } else {
    target = reference.as(Kind::descriptor);
    const DescriptorAt* const descriptor = descriptor_of(reference);
    if (descriptor != nullptr) {
      old = look(&descriptor->words[reference.index()].expected) & ~kControl;
    }
  }
  if (look(word) != seen) return;  // I3: what was read may be of another use
  const DescriptorAt* const descriptor = descriptor_of(target);
  const bool undecided =
      descriptor != nullptr && is_undecided(State{look(&descriptor->state)}, target);
  base::reached(reference.kind() == Kind::install
                    ? undecided ? "W3: an install goes on" : "W3: an install is taken away"
                : undecided ? "W3: a marker goes on"
                            : "W3: a marker is taken away");
  (void)swap(word, seen, undecided ? target.word() : old);
}

// A decided operation's reference gives way to its value; blocked: it is open.
DescriptorPool::Step DescriptorPool::replace_decided(Word* word, Reference seen, const Lane& lane,
                                                     Blocker& blocker) {
  const DescriptorAt* const descriptor = descriptor_of(seen);
  // Before the state: then the field is the operation's own, if that is open and counts it.
  const Offset its = descriptor == nullptr ? 0 : look(&descriptor->words[seen.index()].at);
  const State state{descriptor == nullptr ? 0 : look(&descriptor->state)};
  const bool open = is_open(state, seen);
  const bool own = its == medium_.offset_of(word) && seen.index() < state.words();
  if (descriptor == nullptr || (open && !own)) {
    // Damaged. Who is in the way of himself would help himself for ever.
    (void)swap(word, seen.word(), 0);
    return Step::decided;
  }
  if (open) {
    blocker = {seen, word};
    return Step::blocked;
  }
  const Word value = value_of(*descriptor, state, seen);
  const auto met = std::span(lane.met).first(lane.met_count);
  const bool durable = std::ranges::find(met, seen.word()) != met.end();
  base::reached(durable ? "helping: decided, made durable by F1" : "helping: decided");
  // No reference goes before its state is durable.
  if (!durable && !medium_.persist(&descriptor->state, sizeof(Word))) return Step::io_error;
  (void)swap(word, seen.word(), value);  // only if it stood there all the time (I2)
  return Step::decided;
}

bool DescriptorPool::copy_out(Reference reference, Operation& operation) const {
  DescriptorAt* const descriptor = descriptor_of(reference);
  if (descriptor == nullptr) return false;
  operation.descriptor = descriptor;
  operation.reference = Reference(Kind::descriptor, reference.slot(), reference.descriptor(), 0,
                                  reference.sequence());
  const State state{look(&descriptor->state)};
  if (!is_open(state, reference)) return false;
  operation.undecided = state.decided(Status::undecided);
  operation.count = 0;
  const std::size_t words = std::min(operation.undecided.words(), kMaxWords);
  Offset before = 0;
  for (const WordEntry& entry : std::span(descriptor->words).first(words)) {
    const Offset at = look(&entry.at);
    // Damaged: who is in his own way would help himself for ever, and who has his own state among
    // his words would never be decided.
    const bool own = at - medium_.offset_of(descriptor) < sizeof *descriptor;
    if (at <= before || own || !is_word(medium_, at)) break;
    before = at;
    operation.targets[operation.count++] = {medium_.at<Word>(at), look(&entry.expected)};
  }
  // Then so it was, and the fields are its own.
  return is_open(State{look(&descriptor->state)}, reference);
}

// False: a write-back failed. Otherwise the blocker is decided, or one that was in its way is.
bool DescriptorPool::help(Blocker blocker, Lane& lane) {
  count(lane.helped);
  while (true) {
    Operation operation;
    if (!copy_out(blocker.reference, operation)) return true;
    const Word* const met = blocker.word;
    const Step step = install_all(operation, lane, false, blocker);
    if (step != Step::blocked) return step == Step::decided;
    // Who was met at a word has placed those before it. Otherwise it was decided meanwhile, or
    // damaged words block each other in a circle.
    if (blocker.word <= met) {
      (void)decide(operation, Status::undecided, Status::failed);
      return true;
    }
    base::reached("helping: a blocker is blocked");
  }
}

// --- W6 ------------------------------------------------------------------------------------------

bool DescriptorPool::fence(Lane& lane, Lines& lines, Rest rest, pmem::Site site) {
  if (!medium_.fences_wait()) return medium_.fence(site);  // nothing is pending: see finish()
  note_pending(lane, lines, rest);
  lines.flush();
  if (!medium_.fence(site)) return false;
  advance(lane, rest);
  return true;
}

// What the next fence makes durable of operations that are over.
void DescriptorPool::note_pending(const Lane& lane, Lines& lines, Rest rest) const {
  using Phase = Lane::Phase;
  if (rest == Rest::goes_along) {
    for (const Word* const word : std::span(lane.swapped).first(lane.swapped_count)) {
      // crash: flush stays: a crash may take these words back, a proper close must not
      lines.add(word, sizeof(Word));
    }
  }
  for (std::size_t which = 0; which < kDescriptors; ++which) {
    const Lane::Own& own = lane.own[which];
    if (own.phase == Phase::idle || own.phase == Phase::running) continue;
    const DescriptorAt& descriptor = lane.media->descriptors[which];
    if (own.phase == Phase::decided) {
      lines.add(&descriptor.state, sizeof(Word));
      // advance() is about to change them.
      for (const Word* const word : own.all_words()) pmem::prefetch(word);
    }
    if (own.phase == Phase::cleaned && (!own.later || rest == Rest::goes_along)) {
      for (const Word* const word : own.all_words()) lines.add(word, sizeof(Word));
    }
    if (own.phase == Phase::decided || own.phase == Phase::cleaned) {
      for (const auto& block : own.all_blocks()) {
        lines.add(medium_.at(block.bit.word), sizeof(Word));
      }
    }
    if (own.phase == Phase::freed) {
      lines.add(&descriptor.state, sizeof(Word));
      lines.add(&descriptor.blocks, own.block_count * sizeof(Word));
    }
  }
}

// After a fence: one phase on.
void DescriptorPool::advance(Lane& lane, Rest rest) {
  if (rest == Rest::goes_along) lane.swapped_count = 0;
  for (std::size_t which = 0; which < kDescriptors; ++which) {
    const Lane::Own& own = lane.own[which];
    switch (own.phase) {
      case Lane::Phase::idle:
      case Lane::Phase::running:
        break;
      case Lane::Phase::decided:
        clean(lane, which);
        break;
      case Lane::Phase::cleaned:
        if (own.later && rest == Rest::waits) break;
        own.block_count != 0 ? free(lane, which) : done(lane, which);
        break;
      case Lane::Phase::freed:
        done(lane, which);
        break;
    }
  }
}

// The state is durable, or need not be: references become values.
void DescriptorPool::clean(Lane& lane, std::size_t which) {
  Lane::Own& own = lane.own[which];
  for (unsigned i = 0; i < own.word_count; ++i) {
    const Reference mine(Kind::descriptor, lane.slot, static_cast<unsigned>(which), i,
                         own.sequence);
    Word* const word = own.words[i];
    while (true) {
      const Reference now(look(word));
      if (now.word() == mine.word() || now.word() == mine.as(Kind::marker).word()) {
        const bool changes = own.succeeded && now.word() == mine.word();
        (void)swap(word, now.word(), changes ? own.desired[i] : own.expected[i]);
        continue;
      }
      if ((now.word() & kControl) == 0 || now.kind() != Kind::install) break;
      const LaneAt* const helper = lane_at(now.slot());
      const bool ours = helper != nullptr && look(&helper->install.target) == mine.word();
      if (ours) base::reached("W6: an install stands there");
      if (ours) finish_install(word, now.word());
      if (!ours && look(word) == now.word()) break;  // I3
    }
  }
  for (const auto& block : own.all_blocks()) {
    if (!own.succeeded && block.allocated) change_bits(block, false);
  }
  own.phase = Lane::Phase::cleaned;
}

// The words are durably rid of it. Without blocks nothing more would come of it, whatever a crash
// leaves of it and of the next one there (A1): then it is done.
void DescriptorPool::free(Lane& lane, std::size_t which) {
  Lane::Own& own = lane.own[which];
  DescriptorAt& descriptor = lane.media->descriptors[which];
  for (std::size_t i = 0; i < own.block_count; ++i) medium_.store(&descriptor.blocks[i], 0, 0);
  medium_.store(&descriptor.state, State::free(own.sequence).word, 0);
  medium_.count_heap_written((1 + own.block_count) * sizeof(Word));
  own.phase = Lane::Phase::freed;
}

// It is durably free, or has no blocks.
void DescriptorPool::done(Lane& lane, std::size_t which) {
  Lane::Own& own = lane.own[which];
  for (const auto& block : own.all_blocks()) {
    if (block.allocated == own.succeeded) continue;
    if (own.callback) {
      own.callback(block.at, own.succeeded);
    } else if (own.succeeded) {
      grace_.retire(block.at);
    } else {
      heap_.recycle(block.at);
    }
  }
  own.callback = nullptr;
  own.phase = Lane::Phase::idle;
}

// W6 at once, where fences do not wait: there a crash keeps stores in their order.
void DescriptorPool::finish(Lane& lane, std::size_t which) {
  const Lane::Own& own = lane.own[which];
  if (own.phase == Lane::Phase::decided) clean(lane, which);
  if (own.block_count != 0) free(lane, which);
  done(lane, which);
}

bool DescriptorPool::settle(Lane& lane) {
  const auto pending = [](const Lane::Own& own) {
    return own.phase != Lane::Phase::idle && own.phase != Lane::Phase::running;
  };
  if (!medium_.fences_wait()) {  // pending only where a thread was stopped for ever
    for (std::size_t which = 0; which < kDescriptors; ++which) {
      if (pending(lane.own[which])) finish(lane, which);
    }
    return true;
  }
  while (lane.swapped_count != 0 || std::ranges::any_of(lane.own, pending)) {
    Lines lines(medium_);
    if (!fence(lane, lines, Rest::goes_along)) return false;
  }
  return true;
}

void DescriptorPool::settle() {
  const unsigned slot = base::thread_slot();
  if (slot == base::kNoSlot) return;
  const alloc::Grace::Pin pin(grace_);
  if (Lane* const mine = (*lanes_)[slot].load(std::memory_order_acquire)) (void)settle(*mine);
}

bool DescriptorPool::settle_all() {
  const alloc::Grace::Pin pin(grace_);
  for (auto& lane : *lanes_) {
    Lane* const one = lane.load(std::memory_order_acquire);
    if (one != nullptr && !settle(*one)) return false;
  }
  return true;
}

void DescriptorPool::for_each_block(const std::function<void(Offset, std::size_t)>& visit) const {
  visit(table_, heap_.allocated_bytes(table_));
  for (const auto& lane : *lanes_) {
    const Lane* const one = lane.load(std::memory_order_acquire);
    if (one == nullptr) continue;
    const Offset block = medium_.offset_of(one->media);
    visit(block, heap_.allocated_bytes(block));
  }
}

Statistics DescriptorPool::statistics() const {
  Statistics sum;
  for (const auto& lane : *lanes_) {
    const Lane* const one = lane.load(std::memory_order_acquire);
    if (one == nullptr) continue;
    for (std::size_t words = 0; words <= kMaxWords; ++words) {
      const std::uint64_t count = one->executed[words].load(std::memory_order_relaxed);
      sum.of_words[words] += count;
      sum.executed += count;
    }
    sum.failed += one->failed.load(std::memory_order_relaxed);
    sum.helped += one->helped.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t DescriptorPool::executed_by_others() const {
  const unsigned mine = base::thread_slot();
  std::uint64_t sum = 0;
  for (unsigned slot = 0; slot < kMaxThreads; ++slot) {
    const Lane* const one = (*lanes_)[slot].load(std::memory_order_acquire);
    if (one == nullptr || slot == mine) continue;
    for (const auto& count : one->executed) sum += count.load(std::memory_order_relaxed);
  }
  return sum;
}

// --- Recovery ------------------------------------------------------------------------------------

// Finds what was under way, and makes an end of it in three steps with a fence each (A7).
class DescriptorPool::Recovery {
 public:
  explicit Recovery(DescriptorPool& pool) : pool_(pool), medium_(pool.medium_) {}

  [[nodiscard]] everleaf::Result<void> find_all();
  [[nodiscard]] bool found_some() const { return !found_.empty() || !installs_.empty(); }
  void decide();
  void replace();
  void free();
  [[nodiscard]] const std::vector<Offset>& blocks() const { return blocks_; }

 private:
  struct Found {
    Lane* lane;
    std::size_t which;
  };
  static everleaf::Result<void> damaged(Offset at) {
    return std::unexpected(Error{
        Code::corrupt, "the operations under way are damaged at offset " + std::to_string(at)});
  }
  [[nodiscard]] static DescriptorAt& at(const Found& one) {
    return one.lane->media->descriptors[one.which];
  }
  [[nodiscard]] static State state(const Found& one) { return {pmem::load(&at(one).state)}; }
  [[nodiscard]] static std::span<WordEntry> words(const Found& one) {
    return std::span(at(one).words).first(state(one).words());
  }
  [[nodiscard]] static Reference reference(const Found& one, unsigned index) {
    return {Kind::descriptor, one.lane->slot, static_cast<unsigned>(one.which), index,
            one.lane->own[one.which].sequence};
  }
  [[nodiscard]] static Word install_of(const Lane& lane) {
    return Reference(Kind::install, lane.slot, 0, 0, lane.install_sequence).word();
  }
  [[nodiscard]] everleaf::Result<void> find_in(unsigned slot, Offset lane);
  [[nodiscard]] bool installed(const Found& one) const;
  void replace(Offset word, Word seen, Word value);
  void replace_words(const Found& one);
  void clear_bits(const Found& one);

  DescriptorPool& pool_;
  pmem::Medium& medium_;
  std::vector<Found> found_;
  std::vector<const Lane*> installs_;  // that stand in a word
  std::vector<Offset> blocks_;         // that became free
};

everleaf::Result<void> DescriptorPool::Recovery::find_all() {
  const Offset table_at = pool_.table_;
  if (pool_.heap_.allocated_bytes(table_at) < sizeof(TableAt)) return damaged(table_at);
  const auto* const table = medium_.at<TableAt>(table_at);
  std::vector<Offset> blocks{table_at};
  for (unsigned slot = 0; slot < kMaxThreads; ++slot) {
    const Offset lane = pmem::load(&table->lanes[slot]);
    if (lane == 0) continue;
    blocks.push_back(lane);
    if (auto ok = find_in(slot, lane); !ok) return ok;
  }
  // Two slots of one lane would work on the same descriptors.
  std::ranges::sort(blocks);
  const auto twice = std::ranges::adjacent_find(blocks);
  return twice == blocks.end() ? everleaf::Result<void>{} : damaged(*twice);
}

everleaf::Result<void> DescriptorPool::Recovery::find_in(unsigned slot, Offset lane_at) {
  if (pool_.heap_.allocated_bytes(lane_at) < sizeof(LaneAt) || lane_at % pmem::kLine != 0) {
    return damaged(lane_at);
  }
  Lane* const lane = new Lane;
  delete (*pool_.lanes_)[slot].exchange(lane, std::memory_order_release);
  lane->slot = slot;
  lane->media = medium_.at<LaneAt>(lane_at);
  const InstallAt& install = lane->media->install;
  lane->install_sequence = pmem::load(&install.sequence) & Reference::kSequenceMask;
  if (const Offset word = pmem::load(&install.at); word != 0) {
    if (!is_word(medium_, word)) return damaged(lane_at);
    if (pmem::load(medium_.at<Word>(word)) == install_of(*lane)) installs_.push_back(lane);
  }
  for (std::size_t which = 0; which < kDescriptors; ++which) {
    const DescriptorAt& descriptor = lane->media->descriptors[which];
    const State state{pmem::load(&descriptor.state)};
    lane->own[which].sequence = state.sequence();
    if (!state.possible()) return damaged(medium_.offset_of(&descriptor));
    const Found one{lane, which};
    // No word refers to it, and its state will not free the blocks of the next one (A1). Nothing is
    // left placed, though it would do no harm: earlier releases know no such state.
    bool over =
        state.status() == Status::free || (state.blocks() == 0 && state.status() != Status::placed);
    for (unsigned i = 0; i < state.words(); ++i) {
      const Offset at = pmem::load(&descriptor.words[i].at);
      if (at == 0) continue;  // W1 was torn
      if (!is_word(medium_, at)) return damaged(medium_.offset_of(&descriptor));
      const Word now = pmem::load(medium_.at<Word>(at));
      const Reference its = reference(one, i);
      over = over && now != its.word() && now != its.as(Kind::marker).word();
    }
    for (const Word& block : descriptor.blocks) over = over && pmem::load(&block) == 0;
    if (!over) found_.push_back(one);
  }
  return {};
}

bool DescriptorPool::Recovery::installed(const Found& one) const {
  unsigned i = 0;
  return !words(one).empty() && std::ranges::all_of(words(one), [&](const WordEntry& entry) {
    const Offset word = pmem::load(&entry.at);
    return word != 0 && pmem::load(medium_.at<Word>(word)) == reference(one, i++).word();
  });
}

// A2, A3.
void DescriptorPool::Recovery::decide() {
  for (const Found& one : found_) {
    if (!state(one).is_open()) continue;
    const bool committed = installed(one);
    base::reached(committed ? "A3: all words are installed" : "A2: not all are");
    const Status decision = committed ? Status::succeeded : Status::failed;
    medium_.store(&at(one).state, state(one).decided(decision).word);
    medium_.flush(&at(one).state, sizeof(Word));
  }
}

// A4, A5, A6.
void DescriptorPool::Recovery::replace() {
  for (const Found& one : found_) {
    if (state(one).status() == Status::free) continue;  // A1
    replace_words(one);
    clear_bits(one);
  }
  for (const Lane* const lane : installs_) {
    base::reached("A6: an install");
    const InstallAt& install = lane->media->install;
    replace(pmem::load(&install.at), install_of(*lane), pmem::load(&install.old));
  }
}

void DescriptorPool::Recovery::replace(Offset word, Word seen, Word value) {
  if (pmem::load(medium_.at<Word>(word)) != seen) return;
  medium_.store(medium_.at<Word>(word), value & ~kControl);
  medium_.flush(medium_.at(word), sizeof(Word));
}

void DescriptorPool::Recovery::replace_words(const Found& one) {
  const bool succeeded = state(one).status() == Status::succeeded;
  for (unsigned i = 0; i < words(one).size(); ++i) {
    const WordEntry& entry = words(one)[i];
    const Offset word = pmem::load(&entry.at);
    if (word == 0) continue;
    replace(word, reference(one, i).word(),
            pmem::load(succeeded ? &entry.desired : &entry.expected));
    replace(word, reference(one, i).as(Kind::marker).word(), pmem::load(&entry.expected));
  }
}

void DescriptorPool::Recovery::clear_bits(const Found& one) {
  const bool succeeded = state(one).status() == Status::succeeded;
  for (const Word& of_descriptor : std::span(at(one).blocks).first(state(one).blocks())) {
    const Word block = pmem::load(&of_descriptor);
    if (block == 0 || ((block & kAllocated) != 0) == succeeded) continue;
    const Offset free = block & ~kAllocated;
    const alloc::Heap::Bit bit = pool_.heap_.to_release(free);
    if (bit.mask == 0) continue;
    base::reached(succeeded ? "A5: a freed block" : "A4: an allocated block");
    pool_.change_bits({free, bit, false}, false);
    medium_.flush(medium_.at(bit.word), sizeof(Word));
    blocks_.push_back(free);
  }
}

void DescriptorPool::Recovery::free() {
  for (const Found& one : found_) {
    if (state(one).status() == Status::free) base::reached("A1: blocks of a free descriptor");
    for (Word& block : at(one).blocks) medium_.store(&block, 0, 0);
    medium_.store(&at(one).state, State::free(one.lane->own[one.which].sequence).word, 0);
    medium_.flush(&at(one), sizeof(DescriptorAt));
  }
}

everleaf::Result<void> DescriptorPool::recover() {
  const auto failed = [] {
    return std::unexpected(Error{Code::io, "a write-back failed during recovery"});
  };
  Recovery recovery(*this);
  if (auto found = recovery.find_all(); !found) return found;
  if (!recovery.found_some()) return {};
  recovery.decide();
  if (!medium_.fence()) return failed();  // A7: before the first word changes
  recovery.replace();
  if (!medium_.fence()) return failed();  // A7: before a descriptor is free
  recovery.free();
  if (!medium_.fence()) return failed();  // before it is used again, or its blocks are
  for (const Offset block : recovery.blocks()) heap_.recycle(block);
  return {};
}

}  // namespace everleaf::pmwcas
