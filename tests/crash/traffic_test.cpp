// The model of caches and medium on cases that were computed by hand.
#include <array>
#include <cstring>
#include <optional>
#include <tuple>

#include <gtest/gtest.h>

#include "traffic/model.hpp"

namespace everleaf::crash {
namespace {

// 1 KiB: 16 lines, 4 blocks.
class Traffic : public testing::Test {
 protected:
  // One cache of one set with two lines, one block in the buffer, one rank.
  static Machine tiny() {
    Machine machine;
    machine.caches = {{128, 2, 4}};
    machine.buffer_blocks = 1;
    machine.ranks = 1;
    return machine;
  }

  void use(const Machine& machine) { model_.emplace(memory_, machine); }
  void read(std::size_t line) { model_->read(line * kLineBytes, 8); }
  // `value` into the first word of the line.
  void write(std::size_t line, std::uint64_t value, std::size_t word = 0) {
    std::memcpy(memory_.data() + line * kLineBytes + word * 8, &value, 8);
    model_->stored(line * kLineBytes + word * 8, 8);
  }
  void flush(std::size_t line) { model_->flushed(line * kLineBytes, kLineBytes); }
  const TrafficCounts& is() const { return model_->counts(); }

  std::array<std::byte, 1024> memory_{};
  std::optional<TrafficModel> model_;
};

TEST_F(Traffic, ReadsThatHitCostTheirLevelAlone) {
  use(tiny());
  read(0);
  EXPECT_EQ(is().cycles, 4U + 230U);
  EXPECT_EQ(is().reads, 1U);
  EXPECT_EQ(is().media_reads, 1U);
  read(0);
  EXPECT_EQ(is().cycles, 4U + 230U + 4U);
  EXPECT_EQ(is().reads, 1U);
  read(1);  // the buffer has its block
  EXPECT_EQ(is().reads, 2U);
  EXPECT_EQ(is().media_reads, 1U);
  model_->read(60, 8);  // lines 0 and 1, both there
  EXPECT_EQ(is().reads, 2U);
}

TEST_F(Traffic, LeastRecentlyUsedGoes) {
  use(tiny());
  read(0);
  read(1);
  read(0);
  read(2);  // 1 goes
  EXPECT_EQ(is().reads, 3U);
  read(0);
  EXPECT_EQ(is().reads, 3U);
  read(1);
  EXPECT_EQ(is().reads, 4U);
}

TEST_F(Traffic, SetsAreApart) {
  Machine machine = tiny();
  machine.caches = {{256, 2, 4}};  // two sets: even and odd lines
  use(machine);
  for (const std::size_t line : {0, 2, 1, 3, 0, 2, 1, 3}) read(line);
  EXPECT_EQ(is().reads, 4U);
  read(4);  // 0 goes
  read(1);
  EXPECT_EQ(is().reads, 5U);
  read(0);
  EXPECT_EQ(is().reads, 6U);
}

TEST_F(Traffic, WhatLeavesTheLastLevelLeavesAll) {
  Machine machine = tiny();
  machine.caches = {{64, 1, 4}, {128, 2, 11}};
  use(machine);
  read(0);
  EXPECT_EQ(is().cycles, 4U + 11 + 230);
  read(1);
  read(0);  // the second level has it
  EXPECT_EQ(is().cycles, 2 * (4U + 11 + 230) + 4 + 11);
  for (int i = 0; i < 3; ++i) read(0);
  // The second level has not seen those, and throws away 1.
  read(2);
  EXPECT_EQ(is().reads, 3U);
  read(0);
  EXPECT_EQ(is().reads, 3U);
  read(1);
  EXPECT_EQ(is().reads, 4U);
}

TEST_F(Traffic, DirtyLinesAreWrittenWhenTheyGo) {
  use(tiny());
  write(0, 0b111);
  read(1);
  EXPECT_EQ(is().writes, 0U);
  read(2);  // 0 goes
  EXPECT_EQ(is().writes, 1U);
  EXPECT_EQ(is().words_changed, 1U);
  EXPECT_EQ(is().bits_changed, 3U);
  read(3);  // 1 was clean
  EXPECT_EQ(is().writes, 1U);
}

TEST_F(Traffic, ClwbKeepsTheLineClflushoptDoesNot) {
  for (const auto& [by, writes, reads] : {std::tuple{FlushBy::clwb, 2U, 1U},
                                          {FlushBy::clflushopt, 2U, 3U},
                                          {FlushBy::none, 0U, 1U}}) {
    memory_.fill({});
    Machine machine = tiny();
    machine.flush = by;
    use(machine);
    write(0, 1);
    flush(0);
    flush(0);  // clean, or not there
    write(0, 2);
    flush(0);
    read(0);
    EXPECT_EQ(is().writes, writes);
    EXPECT_EQ(is().reads, reads);
    EXPECT_EQ(is().flushes, 3U);
  }
}

TEST_F(Traffic, ABufferedBlockIsWrittenOnce) {
  use(tiny());
  for (std::size_t line = 0; line < 4; ++line) {
    write(line, 7);
    flush(line);
  }
  EXPECT_EQ(is().writes, 4U);
  EXPECT_EQ(is().media_writes, 0U);
  read(4);  // another block: the first one goes
  EXPECT_EQ(is().media_writes, 1U);
  EXPECT_EQ(is().media_reads, 2U);  // both blocks, for the lines that were missing
}

TEST_F(Traffic, PartOfABlockIsReadFirst) {
  use(tiny());
  write(0, 7);  // reads block 0
  read(4);      // block 1 takes its place
  EXPECT_EQ(is().media_reads, 2U);
  flush(0);  // block 0 again, of which the buffer has one line alone
  EXPECT_EQ(is().media_reads, 2U);
  read(8);  // block 0 goes: read, written
  EXPECT_EQ(is().media_reads, 4U);
  EXPECT_EQ(is().media_writes, 1U);
}

TEST_F(Traffic, FencesWaitForTheWordsThatChanged) {
  use(tiny());
  write(0, 1);
  EXPECT_EQ(is().cycles, 234U);
  flush(0);
  EXPECT_EQ(is().cycles, 234U);  // nobody waits for it yet
  model_->fenced();
  EXPECT_EQ(is().cycles, 234U + 450);
  model_->fenced();  // nothing to wait for
  EXPECT_EQ(is().cycles, 234U + 450);
  write(0, 1);  // the same value: nothing changes on the medium
  flush(0);
  model_->fenced();
  EXPECT_EQ(is().cycles, 234U + 450 + 4);
  EXPECT_EQ(is().fences, 3U);
  EXPECT_EQ(is().words_changed, 1U);
}

TEST_F(Traffic, RanksWriteSideBySide) {
  // Line 0 is written from 234 to 684; line 1, flushed at 468, behind it or beside it.
  for (const auto& [ranks, cycles] : {std::pair{1U, 684U + 450}, {2U, 468U + 450}}) {
    memory_.fill({});
    Machine machine = tiny();
    machine.ranks = ranks;
    use(machine);
    write(0, 1);
    flush(0);
    write(1, 1);
    flush(1);
    model_->fenced();
    EXPECT_EQ(is().cycles, cycles);
  }
}

TEST_F(Traffic, Energy) {
  use(tiny());
  write(0, 0b101);  // a line is read: 512 bits of 2 pJ
  flush(0);         // two bits change: 16 pJ each
  EXPECT_EQ(picojoules(is(), tiny()), 1024 + 32);
}

TEST_F(Traffic, MachinesHaveTheirShapes) {
  EXPECT_EQ(pcm_machine().caches.back().bytes, std::size_t{8} << 20);
  EXPECT_EQ(scaled(pcm_machine(), 0.5).caches.front().bytes, std::size_t{16} << 10);
  EXPECT_EQ(scaled(pcm_machine(), 1e-6).caches.front().bytes, 8U * 64U);  // one set
}

}  // namespace
}  // namespace everleaf::crash
