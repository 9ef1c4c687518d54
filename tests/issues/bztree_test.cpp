// Stories of src/trees/bztree.
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>
#include <type_traits>

#include <gtest/gtest.h>

#include "pmem/format.hpp"
#include "support.hpp"
#include "trees/bztree/node.hpp"
#include "trees/pool_state.hpp"

namespace everleaf::test {
namespace {

using Inner = tree::bztree::Inner<tree::bztree::U64Keys>;

// Of the only index of the pool.
tree::bztree::RootAt& root_of(Pool& pool) {
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const auto* const entry = medium.at<pmem::DirectoryEntry>(pmem::kDirectoryAt);
  return *medium.at<tree::bztree::RootAt>(entry->root);
}

// The root block's status is the one status that nobody freezes. A damaged one that was frozen sent
// changes of structure to thaw the node above it, of which there is none.
TEST(BzTree, FrozenRootBlockIsCorrupt) {
  for (const std::uint64_t keys : {3U, 2000U}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
    for (std::uint64_t i = 0; i < keys; ++i) ASSERT_EQ(index.insert(i * 10, i), Outcome::done);
    auto& status = root_of(pool).status;
    ASSERT_EQ(status & tree::bztree::kFrozen, 0U);
    status |= tree::bztree::kFrozen;
    EXPECT_NE(unsound(pool), "");
    Outcome outcome = Outcome::done;
    for (std::uint64_t i = 0; i < 1000 && outcome == Outcome::done; ++i) {
      outcome = index.insert(i * 10 + 5, i);
    }
    EXPECT_EQ(outcome, Outcome::corrupt);
    status &= ~tree::bztree::kFrozen;
    EXPECT_EQ(unsound(pool), "");
  }
}

// A merge frees the separator's record at once, and who counts keys in the old node met one that
// was not allocated, and left out what lies behind it.
TEST(BzTree, SizesBesideMerges) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<Bytes>("index", "bztree").value();
  constexpr std::uint64_t kStay = 400;
  constexpr std::uint64_t kAll = 4000;
  const auto key = [](std::uint64_t i) { return std::string(190, 'k') + std::to_string(kAll + i); };
  for (std::uint64_t i = 0; i < kAll; i += kAll / kStay) {
    ASSERT_EQ(index.insert(key(i), i), Outcome::done);
  }
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (bool there = false; !stop; there = !there) {
      for (std::uint64_t i = 0; i < kAll && !stop; ++i) {
        if (i % (kAll / kStay) != 0) (void)(there ? index.remove(key(i)) : index.insert(key(i), i));
      }
    }
  });
  std::uint64_t least = kAll;
  std::uint64_t most = kStay;
  for (std::size_t i = 0; i < scaled(2000); ++i) {
    least = std::min(least, index.size());
    most = std::max(most, index.size());
  }
  stop = true;
  writer.join();
  EXPECT_GE(least, kStay);
  EXPECT_LE(most, kAll);
  EXPECT_EQ(unsound(pool), "");
}

// Fingerprints are looked at in blocks of 64; the default page has at most 40 8-byte keys. A
// leaf with each number of entries, of which the first, the last and every third are gone.
TEST(BzTree, LeavesOfManyBlocks) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree:page=4096").value();
  constexpr std::uint64_t kSteps = 157;  // keys in an order of their own
  const auto key = [](std::uint64_t i) { return i * 61 % kSteps * 2; };
  std::vector<std::uint64_t> wanted;
  for (std::uint64_t i = 0; i < 2 * kSteps; ++i) wanted.push_back(i);
  for (std::uint64_t n = 1; n <= kSteps; ++n) {
    ASSERT_EQ(index.insert(key(n - 1), n), Outcome::done);
    std::vector<Lookup> answers;
    index.find_many(wanted, answers);
    std::size_t found = 0;
    for (const std::uint64_t one : wanted) {
      const Lookup alone = index.find(one);
      EXPECT_EQ(alone.outcome, answers[one].outcome) << one;
      found += alone ? 1 : 0;
    }
    EXPECT_EQ(found, n);
    for (std::uint64_t i = 0; i < n; ++i) {
      const Lookup one = index.find(key(i));
      ASSERT_TRUE(one) << key(i) << " of " << n;
      EXPECT_EQ(*one, i + 1);
    }
  }
  const auto gone = [](std::uint64_t i) { return i % 3 == 0 || i == kSteps - 1; };
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    if (!gone(i)) continue;
    ASSERT_EQ(index.remove(key(i)), Outcome::done);
  }
  for (std::uint64_t i = 0; i < kSteps; ++i) {
    EXPECT_EQ(static_cast<bool>(index.find(key(i))), !gone(i)) << key(i);
  }
  EXPECT_EQ(unsound(pool), "");
}

// Records lie at multiples of 8 from the end of a leaf; damage put the next one in between.
TEST(BzTree, BlockThatIsNotAligned) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  auto* const leaf = medium.at<pmem::Word>(root_of(pool).child);
  leaf[1] += 5;  // the status
  EXPECT_EQ(index.insert(2, 2), Outcome::corrupt);
  EXPECT_NE(unsound(pool), "");
  leaf[1] -= 5;
  EXPECT_EQ(index.insert(2, 2), Outcome::done);
}

// A crash took a reservation back and left the bytes of its record, where metadata grew later: a
// letter there was taken for an entry, and the index for damaged for ever. Others look like
// references, to what was visible elsewhere: they must not count, not even for a moment.
TEST(BzTree, BytesOfALostRecord) {
  for (const char* const spec : {"bztree", "bztree:reserve=entry"}) {
    for (const pmem::Word bytes : std::initializer_list<pmem::Word>{
             0x6162636465666768, 0x2162636465666768, 1, ~pmem::Word{0}, pmem::Word{1} << 63}) {
      Pool pool = Pool::anonymous().value();
      auto index = pool.index<std::uint64_t>("index", spec).value();
      ASSERT_EQ(index.insert(1, 1), Outcome::done);
      pmem::Medium& medium = PoolAccess::state(pool).medium();
      auto* const leaf = medium.at<pmem::Word>(root_of(pool).child);
      const std::uint32_t count = tree::bztree::Status{leaf[1]}.count();
      *tree::bztree::Leaf<tree::bztree::U64Keys>(medium.at(root_of(pool).child)).meta(count) =
          bytes;
      EXPECT_EQ(unsound(pool), "");
      ASSERT_EQ(index.insert(2, 2), Outcome::done);
      EXPECT_NE(root_of(pool).child, medium.offset_of(leaf));
      for (std::uint64_t i = 3; i < 10; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
      EXPECT_EQ(index.stats().keys, 9U);
      EXPECT_EQ(unsound(pool), "");
    }
  }
}

// Searches count the codes that are not above theirs, those behind the last separator, too.
TEST(BzTree, CodeBehindTheLast) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const auto node = [&] { return root_of(pool).child; };
  const auto children = [&] {
    return tree::bztree::Header{*medium.at<pmem::Word>(node())}.count();
  };
  for (std::uint64_t i = 0; children() != 3; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
  std::byte& code = *medium.at<std::byte>(node() + Inner::kCodesAt + 2 * 2);
  ASSERT_EQ(code, std::byte{0xFF});
  code = std::byte{0};
  EXPECT_NE(unsound(pool), "");
  code = std::byte{0xFF};
  EXPECT_EQ(unsound(pool), "");
}

// Look-ups do not read the metadata of sorted entries of 8-byte keys: what they know instead is
// compared, and is right while values change in place, lose and get bit 63, and entries go.
TEST(BzTree, SortedEntriesWithoutMetadata) {
  constexpr pmem::Word kTop = pmem::Word{1} << 63;
  for (const char* const spec : {"bztree", "bztree:update=inline", "bztree:page=256:free=96",
                                 "bztree:page=512:free=128:update=inline", "bztree:page=2048"}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", spec).value();
    constexpr std::uint64_t kKeys = 300;
    std::map<std::uint64_t, std::uint64_t> model;
    const auto same = [&](const char* after) {
      for (std::uint64_t i = 0; i < kKeys; ++i) {
        const Lookup found = index.find(i);
        const auto wanted = model.find(i);
        ASSERT_EQ(static_cast<bool>(found), wanted != model.end()) << spec << after << i;
        if (!found) continue;
        ASSERT_EQ(*found, wanted->second) << spec << after << i;
      }
      std::vector<Entry<std::uint64_t>> all;
      for (const bool back : {false, true}) {
        const Outcome scanned =
            back ? index.scan_back(std::nullopt, kKeys, all) : index.scan(0, kKeys, all);
        ASSERT_EQ(scanned, Outcome::done) << spec << after;
        if (back) std::ranges::reverse(all);
        ASSERT_TRUE(std::ranges::equal(
            all, model,
            [](const auto& a, const auto& b) { return a.key == b.first && a.value == b.second; }))
            << spec << after;
      }
      ASSERT_EQ(unsound(pool), "") << spec << after;
    };
    const auto put = [&](std::uint64_t i, std::uint64_t value) {
      ASSERT_EQ(index.upsert(i, value), Outcome::done);
      model[i] = value;
    };
    for (std::uint64_t i = 0; i < kKeys; ++i) {
      put(i * 77 % kKeys, i % 3 == 0 ? i | kTop : i);
      if (i % 50 == 0) same(" inserting ");
    }
    same(" inserted ");
    for (std::uint64_t i = 0; i < kKeys; i += 2) put(i, model[i] + 1000);
    same(" updated ");
    for (std::uint64_t i = 0; i < kKeys; i += 5) put(i, model[i] ^ kTop);
    same(" bits 63 changed ");
    for (std::uint64_t i = 1; i < kKeys; i += 4) {
      ASSERT_EQ(index.remove(i), Outcome::done);
      model.erase(i);
    }
    same(" removed ");
    for (std::uint64_t i = 1; i < kKeys; i += 8) put(i, kTop | 7);
    same(" inserted again ");
  }
}

// Whoever changes a leaf that a scan wants left alone replaces it first, as after a crash, where no
// scan is there any more.
TEST(BzTree, LeavesThatScansAskFor) {
  using Leaf = tree::bztree::Leaf<tree::bztree::U64Keys>;
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  constexpr std::uint64_t kKeys = 100;
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
  const auto leaf_at = [&](std::uint32_t i) {
    return *Inner(medium.at(root_of(pool).child)).child(i);
  };
  const auto change = [&](std::uint32_t position, Outcome wanted, auto&& call) {
    const auto at = leaf_at(position);
    Leaf(medium.at(at)).ask();
    EXPECT_TRUE(Leaf(medium.at(at)).is_asked_for());
    EXPECT_EQ(unsound(pool), "");
    EXPECT_EQ(call(), wanted);
    EXPECT_EQ(leaf_at(position) != at, wanted == Outcome::done);
    EXPECT_EQ(Leaf(medium.at(leaf_at(position))).is_asked_for(), wanted != Outcome::done);
    EXPECT_EQ(unsound(pool), "");
  };
  change(0, Outcome::exists, [&] { return index.insert(1, 2); });
  change(0, Outcome::absent, [&] { return index.remove(kKeys); });
  change(0, Outcome::done, [&] { return index.update(1, 2); });
  change(0, Outcome::done, [&] { return index.remove(1); });
  change(0, Outcome::done, [&] { return index.insert(1, 1); });
  change(1, Outcome::done, [&] { return index.remove(30); });  // the first leaf was split
  const auto last = [&] { return Inner(medium.at(root_of(pool).child)).separators(); };
  const std::uint32_t leaves = last();
  for (std::uint64_t i = kKeys; last() == leaves; ++i) {
    ASSERT_LT(i, 2 * kKeys);
    change(leaves, Outcome::done, [&] { return index.insert(i, i); });
  }
  EXPECT_EQ(unsound(pool), "");
}

// What they know instead is compared with the metadata.
TEST(BzTree, MetadataThatSearchesDoNotSee) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  using Leaf = tree::bztree::Leaf<tree::bztree::U64Keys>;
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  const auto header = [&] {
    return tree::bztree::Header{*medium.at<pmem::Word>(root_of(pool).child)};
  };
  for (std::uint64_t i = 0; header().level() == 0; ++i)
    ASSERT_EQ(index.insert(i, i), Outcome::done);
  const auto at = *Inner(medium.at(root_of(pool).child)).child(0);
  const Leaf leaf(medium.at(at));
  ASSERT_GT(leaf.header().count(), 2U);
  auto& tops = *medium.at<pmem::Word>(at + Leaf::tops_at(1024));
  tops ^= Leaf::top_of(1);
  EXPECT_NE(unsound(pool), "");
  tops ^= Leaf::top_of(1);
  EXPECT_EQ(unsound(pool), "");
  *leaf.meta(1) ^= tree::bztree::Meta::kTop;
  EXPECT_NE(unsound(pool), "");
  // Writers change it, so they meet the damage.
  EXPECT_EQ(index.remove(1), Outcome::corrupt);
  EXPECT_EQ(index.update(1, 3), Outcome::corrupt);
  EXPECT_EQ(index.update(1, 3 | pmem::Word{1} << 63), Outcome::corrupt);
  *leaf.meta(1) ^= tree::bztree::Meta::kTop;
  *leaf.meta(1) ^= tree::bztree::Meta::kVisible;
  EXPECT_NE(unsound(pool), "");
  *leaf.meta(1) ^= tree::bztree::Meta::kVisible;
  EXPECT_EQ(index.remove(1), Outcome::done);
  EXPECT_FALSE(index.find(1));
  EXPECT_EQ(unsound(pool), "");
}

// Leaves of releases that did not write bits 63 behind the fingerprints: their metadata are read.
TEST(BzTree, LeavesWithoutBits63) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  using Leaf = tree::bztree::Leaf<tree::bztree::U64Keys>;
  using tree::bztree::Header;
  constexpr pmem::Word kTop = pmem::Word{1} << 63;
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  constexpr std::uint64_t kKeys = 100;
  for (std::uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(index.insert(i, i | kTop), Outcome::done);
  const auto node = root_of(pool).child;
  const std::uint32_t children = Header{*medium.at<pmem::Word>(node)}.count();
  unsigned leaves = 0;
  for (std::uint32_t i = 0; i < children; ++i) {
    const auto at = *Inner(medium.at(node)).child(i);
    ASSERT_EQ(Leaf(medium.at(at)).header().level(), 0U);
    leaves += Leaf(medium.at(at)).has_tops() && Leaf(medium.at(at)).header().count() != 0 ? 1 : 0;
    *medium.at<pmem::Word>(at) &= ~(pmem::Word{1} << 56);
    *medium.at<pmem::Word>(at + Leaf::tops_at(1024)) = 0;
  }
  EXPECT_GT(leaves, 1U);
  EXPECT_EQ(unsound(pool), "");
  for (std::uint64_t i = 0; i < kKeys; i += 3) ASSERT_EQ(index.update(i, i), Outcome::done);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const Lookup found = index.find(i);
    ASSERT_TRUE(found) << i;
    EXPECT_EQ(*found, i % 3 == 0 ? i : i | kTop);
  }
  EXPECT_EQ(unsound(pool), "");
}

// The metadata of an entry that was inserted since the leaf was made name other bytes than its
// record, and the status knows nothing of it: a removal made it impossible, an update overwrote
// the neighbour's record.
TEST(BzTree, LengthsOfAnEntryThatIsNotSorted) {
  using tree::bztree::Meta;
  for (const std::uint32_t total : {0U, 8U, 24U, 4096U}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "bztree").value();
    for (std::uint64_t i = 1; i <= 5; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
    const tree::bztree::Leaf<tree::bztree::U64Keys> leaf(
        PoolAccess::state(pool).medium().at(root_of(pool).child));
    const Meta was{*leaf.meta(1)};
    *leaf.meta(1) = Meta::entry(was.offset(), total, was.key_bytes(), was.tag(), 0).word;
    const bool fits = total == 24;  // and reaches into the record behind it: nobody can tell
    EXPECT_EQ(unsound(pool) != "", !fits) << total;
    EXPECT_EQ(index.find(2).outcome, fits ? Outcome::done : Outcome::corrupt) << total;
    if (fits) continue;
    EXPECT_EQ(index.update(2, 7 | pmem::Word{1} << 63), Outcome::corrupt) << total;
    EXPECT_EQ(index.remove(2), Outcome::corrupt) << total;
    EXPECT_EQ(*index.find(5), 5U);
  }
}

// More sorted entries than entries.
TEST(BzTree, SortedEntriesThatAreNotCounted) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  for (std::uint64_t i = 1; i <= 5; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
  auto& header = *PoolAccess::state(pool).medium().at<pmem::Word>(root_of(pool).child);
  header |= pmem::Word{6} << 32 | pmem::Word{1} << 56;
  EXPECT_NE(unsound(pool), "");
  EXPECT_EQ(index.find(2).outcome, Outcome::corrupt);
  EXPECT_EQ(index.insert(9, 9), Outcome::corrupt);
}

// Two indexes of a damaged pool may have a block in common. Codes that change between the two
// counts of a search made it look far behind the node.
TEST(BzTree, ANodeThatIsWrittenOver) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  for (std::uint64_t i = 0; i < 1500; ++i) ASSERT_EQ(index.insert(1000 + i, i), Outcome::done);
  pmem::Medium& medium = PoolAccess::state(pool).medium();
  // Where nothing lies behind it, unlike in a pool, whose range is long.
  alignas(64) std::array<std::byte, tree::bztree::kUsualPageBytes> copy;
  std::memcpy(copy.data(), medium.at(root_of(pool).child), copy.size());
  const Inner node(copy.data());
  ASSERT_EQ(node.header().level(), 1U);
  ASSERT_GT(node.separators(), 16U);
  ASSERT_EQ(node.header().shift(), 0U);  // codes are differences to the first prefix
  const auto probe = tree::bztree::U64Keys::probe(node.first() + 100);
  auto* const codes = reinterpret_cast<pmem::Word*>(copy.data() + Inner::kCodesAt);
  medium.store(codes, 0x0064006400640064, 0);  // what is looked for
  std::atomic<bool> over{false};
  std::thread other([&] {
    for (pmem::Word word = 0; !over; word = ~word) {
      for (unsigned i : {1, 2, 3}) medium.store(codes + i, word, 0);
    }
  });
  std::uint32_t most = 0;
  const tree::bztree::U64Keys keys(medium);
  for (unsigned i = 0; i < 2'000'000 && most <= node.separators(); ++i) {
    most = std::max(most, node.rank(keys, probe, tree::Aim::at));
  }
  over = true;
  other.join();
  EXPECT_LE(most, node.separators());
}

// A removal looks for a sibling to merge with: a wild one ended the process.
TEST(BzTree, WildSibling) {
  for (const pmem::Word wild : {pmem::Word{1} << 61, pmem::Word{8}, pmem::kHeapAt + 1}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
    for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
    pmem::Medium& medium = PoolAccess::state(pool).medium();
    const auto node = root_of(pool).child;
    ASSERT_GE(tree::bztree::Header{*medium.at<pmem::Word>(node)}.count(), 2U);
    *Inner(medium.at(node)).child(1) = wild;
    Outcome outcome = Outcome::done;
    for (std::uint64_t i = 0; i < 20 && outcome != Outcome::corrupt; ++i) outcome = index.remove(i);
    EXPECT_EQ(outcome, Outcome::corrupt);
    EXPECT_NE(unsound(pool), "");
  }
}

// Entries of the empty key are smaller than others: more of them than fingerprints fit a page.
TEST(BzTree, TheEmptyKeyManyTimes) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::string_view>("index", "bztree:dead=100:merge=0").value();
  for (const char* const key : {"a", "b"}) ASSERT_EQ(index.insert(key, 1), Outcome::done);
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(index.insert("", i), Outcome::done);
    const Lookup found = index.find("");
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, i);
    ASSERT_EQ(unsound(pool), "");
    ASSERT_EQ(index.remove(""), Outcome::done);
  }
  EXPECT_EQ(index.stats().keys, 2U);
}

// Metadata that damage made name one record, each of them sound by itself: copies did not fit a
// page, and were written outside of it. The leaf fills, or is frozen.
TEST(BzTree, RecordsInCommon) {
  using Leaf = tree::bztree::Leaf<tree::bztree::BytesKeys>;
  using tree::bztree::Meta;
  for (const std::uint32_t damaged : {1U, 4U, 20U}) {
    for (const bool frozen : {false, true}) {
      const Scratch scratch;
      Pool pool = Pool::open(scratch / "pool").value();
      auto index = pool.index<std::string_view>("index", "bztree").value();
      const auto key = [](unsigned i) { return "key" + std::to_string(i); };
      for (unsigned i = 0; i < 20; ++i) ASSERT_EQ(index.insert(key(i), i), Outcome::done);
      pmem::Medium& medium = PoolAccess::state(pool).medium();
      auto* const base = medium.at(root_of(pool).child);
      const Leaf leaf(base);
      constexpr std::uint32_t kBytes = 928;
      for (std::uint32_t i = 0; i < damaged; ++i) {
        const std::uint32_t tag = Meta{*leaf.meta(i)}.tag();
        *leaf.meta(i) = Meta::entry(1024 - kBytes, kBytes, kBytes - 8, tag, 0).word;
      }
      if (frozen) *leaf.status() |= tree::bztree::kFrozen;
      EXPECT_NE(unsound(pool), "");
      Outcome outcome = Outcome::done;
      for (unsigned i = 20; i < 100 && outcome == Outcome::done; ++i) {
        outcome = index.insert(key(i), i);
      }
      EXPECT_EQ(outcome, Outcome::corrupt) << damaged << frozen;
    }
  }
}

// Lengths of keys that no entry has. Of an 8-byte key that lies behind the page's end a copy was
// written there, too; and a leaf of one entry that leaves no room was copied for ever.
TEST(BzTree, LengthsThatNoKeyHas) {
  using tree::bztree::Meta;
  const auto forge = []<class Keys>(std::type_identity<Keys>, std::uint32_t bytes,
                                    std::uint32_t total) {
    using Leaf = tree::bztree::Leaf<Keys>;
    using Key = typename Keys::Key;
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<Key>("index", "bztree").value();
    const auto key = [](std::uint64_t i) { return test::Keys<Key>::nth(i); };
    ASSERT_EQ(index.insert(key(0), 0), Outcome::done);
    const Leaf leaf(PoolAccess::state(pool).medium().at(root_of(pool).child));
    const std::uint32_t offset = 1024 - total;
    *leaf.meta(0) = Meta::entry(offset, total, bytes, Meta{*leaf.meta(0)}.tag(), 0).word;
    *leaf.status() = tree::bztree::Status{0}.reserve(1, total);
    EXPECT_NE(unsound(pool), "");
    EXPECT_EQ(index.find(key(0)).outcome, Outcome::corrupt);
    EXPECT_EQ(index.upsert(key(0), 1), Outcome::corrupt);
    std::vector<Entry<Key>> out;
    EXPECT_EQ(index.scan(Key{}, 10, out), Outcome::corrupt);
    Outcome outcome = Outcome::done;
    for (std::uint64_t i = 1; i < 100 && outcome == Outcome::done; ++i) {
      outcome = index.insert(key(i), i);
    }
    EXPECT_EQ(outcome, Outcome::corrupt);
  };
  forge(std::type_identity<tree::bztree::U64Keys>{}, 0, 8);
  forge(std::type_identity<tree::bztree::U64Keys>{}, 16, 24);
  forge(std::type_identity<tree::bztree::U64Keys>{}, 900, 912);
  forge(std::type_identity<tree::bztree::BytesKeys>{}, 129, 144);
  forge(std::type_identity<tree::bztree::BytesKeys>{}, 900, 912);
}

// All nodes have the size of a page: a header that says otherwise is damage.
TEST(BzTree, NodeOfAnotherSize) {
  for (const std::uint32_t bytes : {128U, 192U, 320U, 2048U, 1U << 20U}) {
    Pool pool = Pool::anonymous().value();
    auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
    for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
    pmem::Medium& medium = PoolAccess::state(pool).medium();
    auto* const root = medium.at<pmem::Word>(root_of(pool).child);
    auto* const leaf = medium.at<pmem::Word>(*Inner(medium.at(root_of(pool).child)).child(0));
    for (pmem::Word* const header : {root, leaf}) {
      const pmem::Word before = *header;
      *header = before >> 32 << 32 | bytes;
      EXPECT_NE(unsound(pool), "");
      EXPECT_EQ(index.find(0).outcome, Outcome::corrupt);
      EXPECT_EQ(index.insert(0, 1), Outcome::corrupt);
      *header = before;
    }
    EXPECT_EQ(unsound(pool), "");
  }
}

// More entries than there are fingerprints, though they would fit.
TEST(BzTree, StatusThatCountsTooMany) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  auto& status = PoolAccess::state(pool).medium().at<pmem::Word>(root_of(pool).child)[1];
  const pmem::Word before = status;
  status = tree::bztree::Status{before}.reserve(48, 0);
  EXPECT_NE(unsound(pool), "");
  EXPECT_EQ(index.find(2).outcome, Outcome::corrupt);
  status = tree::bztree::Status{before}.reserve(47, 0);
  EXPECT_EQ(index.find(2).outcome, Outcome::absent);
}

// What codes count from.
TEST(BzTree, FirstPrefixOfAnotherKey) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree:page=256:free=96").value();
  for (std::uint64_t i = 0; i < 40; ++i) ASSERT_EQ(index.insert(i << 50, i), Outcome::done);
  auto& first = *PoolAccess::state(pool).medium().at<pmem::Word>(root_of(pool).child +
                                                                 tree::bztree::kHeadBytes);
  --first;
  EXPECT_NE(unsound(pool), "");
  ++first;
  EXPECT_EQ(unsound(pool), "");
}

// Inner nodes of the largest pages have some two hundred separators.
TEST(BzTree, LargeInnerNodes) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree:page=4096:free=32").value();
  constexpr std::uint64_t kKeys = 70'000;
  std::vector<Entry<std::uint64_t>> entries;
  for (std::uint64_t i = 0; i < kKeys; ++i) entries.push_back({2 * i * i, i});
  ASSERT_EQ(index.bulk_load(entries), Outcome::done);
  EXPECT_GE(index.stats().leaf_nodes, 400U);
  EXPECT_EQ(index.stats().inner_nodes, 1U + 2U);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const Lookup one = index.find(2 * i * i);
    ASSERT_TRUE(one) << i;
    ASSERT_EQ(*one, i);
    ASSERT_FALSE(index.find(2 * i * i + 1)) << i;
  }
  EXPECT_EQ(unsound(pool), "");
}

// Its nodes would be taken for others.
TEST(BzTree, AnEarlierLayout) {
  const Scratch scratch;
  const auto path = scratch / "pool";
  {
    Pool pool = Pool::open(path).value();
    auto index = pool.index<std::uint64_t>("index", "bztree").value();
    ASSERT_EQ(index.insert(1, 1), Outcome::done);
    root_of(pool).layout = 3;
  }
  Pool pool = Pool::open(path).value();
  EXPECT_EQ(pool.index<std::uint64_t>("index", "bztree").error().code, Code::newer_version);
}

// Each search goes by them: a wrong one hides its key.
TEST(BzTree, FingerprintOfAnotherKey) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_EQ(index.insert(i, i), Outcome::done);
  std::byte& one = *PoolAccess::state(pool).medium().at<std::byte>(root_of(pool).child +
                                                                   tree::bztree::kHeadBytes + 3);
  one ^= std::byte{1};
  EXPECT_NE(unsound(pool), "");
  one ^= std::byte{1};
  EXPECT_EQ(unsound(pool), "");
}

// A release that knows no layouts must not take the table for one of its own.
TEST(BzTree, EarlierReleasesFindNoTable) {
  Pool pool = Pool::anonymous().value();
  auto index = pool.index<std::uint64_t>("index", "bztree").value();
  ASSERT_EQ(index.insert(1, 1), Outcome::done);
  EXPECT_EQ(reinterpret_cast<const pmem::Word*>(&root_of(pool))[3], 0U);
}

}  // namespace
}  // namespace everleaf::test
