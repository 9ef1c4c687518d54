// everleaf get: the value of one key.
#include <memory>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "commands.hpp"
#include "failure.hpp"
#include "json.hpp"
#include "table.hpp"
#include "text.hpp"

namespace everleaf::cli {
namespace {

struct GetArguments : TableArguments {
  std::string key;
  bool json = false;
};

template <class K>
int get(const GetArguments& arguments, Pool& pool, const TableChoice& choice) {
  const auto key = key_of_argument<K>(arguments.key, arguments.escaped);
  Lookup hit;
  std::string value;  // as it is printed
  Json json;
  with_values<K>(open_index<K>(pool, choice), [&]<class Source>(const Source& source) {
    if constexpr (std::is_same_v<Source, Payloads<K>>) {
      hit.outcome = source.find(key, value);
      json = escape(value);
    } else {
      hit = source.find(key);
      value = std::to_string(*hit);
      json = *hit;
    }
  });
  if (!hit && hit.outcome != Outcome::absent) {
    throw Failure(exit_code_of(hit.outcome), describe(hit.outcome));
  }
  if (arguments.json) {
    print(Json{{"table", choice.name},
               {"key_type", to_string(choice.key_type)},
               {"key", json_key(key)},
               {"found", static_cast<bool>(hit)},
               {"value", hit ? json : Json(nullptr)}});
  } else if (hit) {
    Output output;
    output << value << "\n";
    output.finish();
  }
  if (hit) return 0;
  throw Failure(kExitNo, fmt::format("no key {} in {}", in_quotes(key), in_quotes(choice.name)));
}

}  // namespace

void add_get(CLI::App& app, int& status) {
  auto arguments = std::make_shared<GetArguments>();
  Command command(app, "get", "Print the value of a key");
  add_pool(command, *arguments);
  command.positional("KEY", arguments->key, "A number or the bytes of the key");
  add_table(command, *arguments);
  add_escaped(command, *arguments);
  command.flag("--json", arguments->json, "For programs");
  command.run([arguments, &status] {
    Pool pool = open_to_read(*arguments);
    const TableChoice choice = existing_table(pool, *arguments);
    status =
        with_key_type(choice.key_type, [&]<class K>() { return get<K>(*arguments, pool, choice); });
  });
}

}  // namespace everleaf::cli
