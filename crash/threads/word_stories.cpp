// Threads that sleep at the worst places of src/pmwcas (its README: Helping, The decision).
#include <algorithm>
#include <iterator>

#include "threads/words.hpp"

namespace everleaf::crash {
namespace {

constexpr const char* kFirst = "W3: a first word is placed";
constexpr const char* kMarker = "W3: a marker goes on";
constexpr const char* kAbout = "W3: a helper is about to install";
constexpr const char* kInstall = "W3: a helper's install";
constexpr const char* kFailed = "W5: failed";
constexpr const char* kAll = "W4: all are there";
constexpr const char* kPlaced = "W4: placed";
constexpr const char* kSucceeded = "W5: succeeded";
constexpr const char* kTaken = "W3: a marker is taken away";
constexpr const char* kUndecided = "W3: undecided";
constexpr const char* kMeanwhile = "W3: decided meanwhile";
constexpr const char* kReading = "reading: a reference";

// Who looks at two words sleeps in between.
std::vector<WordsStory> stories_of_late_looks() {
  return {
      // The owner looks late at the first word that he has placed: it is as before, all is over.
      {"0,0,5/0:0>1+1:0>1/0:1>0,2:5>6",
       {{0, kFirst}, {0, kUndecided}, {1, kEnd}, {0, kEnd}},
       kMeanwhile},
      // The same of his marker, which another one is about to complete.
      {"0,0,5/0:0>1+1:0>1/1:1>0,2:5>6/1:+1",
       {{0, kMarker}, {2, kMarker}, {0, kUndecided}, {1, kEnd}, {0, kTaken}, {2, kEnd}, {0, kEnd}},
       kMeanwhile},
      // A reader sleeps before he looks at the state, until the descriptor is free.
      {"b,0,0/0:b+1:+1,2:+1/r1", {{0, kCall}, {1, kReading}, {0, kCall}, {1, kEnd}}, kReading},
  };
}

std::vector<WordsStory> stories_of_slots() {
  return {
      // One thread: a descriptor is used again, by an operation with other blocks.
      {"b,b,1/1:-,2:+1+0:b+1:b,1:b,2:+1+1:-,1:b+0:-,0:b", {{0, kEnd}}, {}},
      // A thread ends; what it flushed is made durable by who inherits its slot.
      {"b,0/0:-/1:+1,1:+1,1:+1", {{0, kEnd}, {1, kEnd}}, {}},
  };
}

std::vector<WordsStory> stories_of_placed() {
  return {
      // A slow decider calls failed what has been placed by then, and nobody listens.
      {"0,0/0:0>1+1:0>1/0:+1/1:0>5,1:5>0",
       {{2, kCall},
        {0, kFirst},
        {1, kFailed},
        {2, kEnd},
        {0, kSucceeded},
        {1, "helping: decided"},
        {0, kEnd}},
       kFailed},
      // The owner sleeps before F2: one reads what he has placed.
      {"0,0/0:+1+1:+1/r0,r1", {{0, kPlaced}, {1, kEnd}}, "R1: a reader flushes"},
      // He sleeps there, and again before he stores that it has succeeded, as others know by then.
      {"0,0/0:+1+1:+1/0:+1,0:+1/1:+1",
       {{0, kPlaced}, {1, kCall}, {0, kSucceeded}, {2, kEnd}, {1, kEnd}, {0, kEnd}},
       "helping: decided"},
  };
}

}  // namespace

std::vector<WordsStory> word_stories() {
  std::vector<WordsStory> all{
      // The owner sleeps behind his first word.
      {"0,0/0:+1+1:+1/0:+1+1:+1", {{0, kFirst}, {1, kEnd}}, kInstall},
      {"0,0/0:+1+1:+1/0:+1+1:+1",
       {{0, kFirst}, {1, kInstall}, {0, kEnd}},
       "W3: an install goes on"},
      // The blocker's second word is held by a third.
      {"0,0,0/1:+1+2:+1/0:+1+1:+1/0:+1",
       {{0, kFirst}, {1, kFirst}, {2, kEnd}},
       "helping: a blocker is blocked"},
      // A helper sleeps before his install until the operation is over and the word is as it was.
      {"0,0,0/0:=+1:=,2:+1,2:+1/0:+1+1:+1/1:=,2:=",
       {{0, kFirst}, {1, kAbout}, {0, kCall}, {2, kEnd}, {1, kEnd}, {0, kEnd}},
       "W3: an install is taken away"},
      // And again behind it, while the owner makes an end of his operation.
      {"0,0,0/0:=+1:=,2:+1,2:+1,2:+1/0:+1+1:+1/1:=,2:=",
       {{0, kFirst}, {1, kAbout}, {0, kCall}, {2, kEnd}, {1, kInstall}, {0, kEnd}},
       "W6: an install stands there"},
      // One who saw it go on completes it late: another install, or marker, must not be his.
      {"0,0,0/0:=+1:=,2:+1,2:+1,2:+1/0:+1+1:+1/0:+1",
       {{0, kFirst},
        {1, kAbout},
        {2, kMarker},
        {0, kCall},
        {0, kCall},
        {0, kCall},
        {1, kTaken},
        {2, kEnd},
        {0, kEnd}},
       kAbout},
      {"0,0,0/0:=+1:=,2:+1,2:+1,2:+1/0:+1+1:+1/1:=,2:=/0:+1",
       {{0, kFirst},
        {1, kAbout},
        {0, kCall},
        {2, kEnd},
        {1, kInstall},
        {3, "W3: an install is taken away"},
        {0, kEnd},
        {3, kEnd}},
       "W3: an install is taken away"},
      // A slow decider calls failed what has all its words by then.
      {"0,0/0:0>1+1:0>1/0:+1/1:0>5,1:5>0",
       {{2, kCall},
        {0, kFirst},
        {1, kFailed},
        {2, kEnd},
        {0, kAll},
        {1, "helping: decided"},
        {0, kEnd}},
       kFailed},
      // The same, and a helper who saw it undecided sleeps before he makes an install a reference.
      {"0,0,0/0:0>1+1:0>1,2:+1,2:+1,2:+1/0:+1/1:0>5,1:5>0/0:+1",
       {{2, kCall},
        {0, kFirst},
        {1, kFailed},
        {2, kEnd},
        {3, "W3: an install goes on"},
        {1, "helping: decided"},
        {0, kEnd},
        {3, kEnd}},
       "W6: an install stands there"},
  };
  std::ranges::move(stories_of_late_looks(), std::back_inserter(all));
  std::ranges::move(stories_of_placed(), std::back_inserter(all));
  std::ranges::move(stories_of_slots(), std::back_inserter(all));
  return all;
}

WordsConfig config_of(const WordsStory& story, Domain domain) {
  WordsConfig config;
  config.program = *parse_words(story.program);
  config.steps = story.steps;
  config.domain = domain;
  return config;
}

}  // namespace everleaf::crash
