// The best players of a game, always in order: one table from players to their points, one whose
// keys sort by points, and batches that keep the two in step, whatever crashes.
#include <array>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <everleaf/store.hpp>

namespace {

using everleaf::Batch;
using everleaf::Bytes;
using everleaf::Outcome;
using everleaf::Store;
using everleaf::Table;

class Leaderboard {
 public:
  explicit Leaderboard(const Store& store)
      : store_(store),
        points_(store_.table("points").value()),
        ranks_(store_.table("ranks").value()) {}

  // One thread writes; for several, a player needs a lock of its own around the two calls.
  Outcome add(std::string_view player, std::uint64_t points) {
    std::uint64_t total = points;
    Batch batch;
    const auto before = points_.get(player);
    if (before) {
      total += std::stoull(*before);
      batch.erase<Bytes>(ranks_, rank_key(std::stoull(*before), player));
    } else if (before.error() != Outcome::absent) {
      return before.error();
    }
    batch.put<Bytes>(points_, player, std::to_string(total));
    batch.put<Bytes>(ranks_, rank_key(total, player), "");
    return store_.apply(batch);
  }

  [[nodiscard]] std::vector<std::string> best(std::size_t count) const {
    std::vector<std::string> names;
    auto cursor = ranks_.cursor();
    for (cursor.first(); cursor.valid() && names.size() < count; cursor.next()) {
      names.emplace_back(cursor.key().substr(sizeof(std::uint64_t)));
    }
    return names;
  }

 private:
  // The most points first: keys are in the order of their bytes, so the highest byte comes first,
  // and all bits are turned round.
  static std::string rank_key(std::uint64_t points, std::string_view player) {
    std::string key;
    for (int shift = 56; shift >= 0; shift -= 8) key += static_cast<char>(~points >> shift);
    return key.append(player);
  }

  Store store_;
  Table<Bytes> points_;
  Table<Bytes> ranks_;
};

}  // namespace

int main() {
  auto store = Store::open("game.pool").value();
  Leaderboard board(store);
  const std::size_t run = store.table("points").value().count() == 0 ? 1 : 2;
  // Every run ada wins 300 points and bob 200; cyn, who plays once, gets 500.
  if (board.add("ada", 300) != Outcome::done || board.add("bob", 200) != Outcome::done) return 1;
  if (run == 1 && board.add("cyn", 500) != Outcome::done) return 1;
  const std::vector<std::string> best = board.best(2);
  const auto wanted = run == 1 ? std::array{"cyn", "ada"} : std::array{"ada", "cyn"};
  assert(best.size() == 2 && best[0] == wanted[0] && best[1] == wanted[1]);
  assert(board.best(10).size() == 3);  // nobody is there twice
  if (store.sync() != Outcome::done) return 1;
  std::printf("run %zu\n", run);
  return best.size() == 2 ? 0 : 1;
}
