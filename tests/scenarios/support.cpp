#include "support.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string_view>

#include <stdlib.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace everleaf::test {

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.spec << " with " << to_string(c.keys) << " keys";
}

std::vector<Case> every_case(bool (*wanted)(const Case&)) {
  std::vector<Case> cases;
  for (const TreeInfo& tree : trees()) {
    for (const std::string_view spec : tree.test_specs) {
      for (const KeyType keys : {KeyType::u64, KeyType::bytes}) {
        const Case c{std::string(spec), keys};
        if (wanted == nullptr || wanted(c)) cases.push_back(c);
      }
    }
  }
  return cases;
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.spec + "_" + std::string(to_string(info.param.keys));
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

double scale() {
  const char* const text = std::getenv("EVERLEAF_TEST_SCALE");
  const double wanted = text == nullptr ? 1.0 : std::atof(text);
#if defined(__SANITIZE_THREAD__)
  return wanted / 12;
#elif defined(__SANITIZE_ADDRESS__)
  return wanted / 6;
#else
  return wanted;
#endif
}

std::size_t scaled(std::size_t n) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(n) * scale()));
}

std::uint64_t seed() {
  const char* const text = std::getenv("EVERLEAF_TEST_SEED");
  const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + '.' + test->name();
  const std::uint64_t value = text == nullptr ? XXH3_64bits(name.data(), name.size())
                              : std::string_view(text) == "random"
                                  ? std::random_device{}()
                                  : std::strtoull(text, nullptr, 10);
  std::printf("[ seed     ] EVERLEAF_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
  std::fflush(stdout);  // the process may not live long
  return value;
}

Scratch::Scratch()
    : Scratch(::access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm")
                                              : std::filesystem::temp_directory_path()) {}

Scratch::Scratch(const std::filesystem::path& parent) {
  std::string name = parent / "everleaf-test-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp in " + parent.string());
  path_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::vector<std::byte> bytes(std::filesystem::file_size(path));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

// --- Keys ----------------------------------------------------------------------------------------

template <>
std::uint64_t Keys<std::uint64_t>::nth(std::uint64_t n) {
  return n * 3 + 1;
}

template <>
std::uint64_t Keys<std::uint64_t>::odd(Random& random) {
  switch (random.below(8)) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return random.below(64);
    case 3:
      return ~random.below(64);
    case 4:
      return std::uint64_t{1} << random.below(64);
    case 5:
      return (std::uint64_t{1} << random.below(64)) - 1;
    case 6:
      return random.below(300);
    default:
      return random.below(200) * 0x0101010101010101ULL;
  }
}

template <>
std::uint64_t Keys<std::uint64_t>::near(const std::uint64_t& key, Random& random) {
  return key + random.below(21) - 10;  // wraps: every number is a key
}

template <>
KeyType Keys<std::uint64_t>::type() {
  return KeyType::u64;
}

template <>
std::string Keys<Bytes>::nth(std::uint64_t n) {
  // Eight digits behind three equal bytes, so that prefix tags alone decide nothing.
  std::string digits = std::to_string(n * 3 + 1);
  return "key" + std::string(8 - std::min<std::size_t>(8, digits.size()), '0') + digits;
}

template <>
std::string Keys<Bytes>::odd(Random& random) {
  const auto some = [&random](std::size_t most) { return random.below(most + 1); };
  switch (random.below(10)) {
    case 0:
      return {};
    case 1:
      return std::string(some(8), '\0');
    case 2:
      return std::string(some(8), '\xFF');
    case 3:
      return std::string("a\0b", 3) + std::string(some(2), '\0') + char('a' + some(3));
    case 4:
      return std::string(200, 'p') + std::to_string(some(40));
    case 5:
      return std::string(some(300), 'x');
    case 6:
      return "abc" + std::to_string(some(60));
    case 7:
      return std::to_string(some(200));
    case 8:
      return std::string(1, static_cast<char>(some(255)));
    default: {
      std::string key(some(5), '\0');
      for (char& c : key) c = "\0\1\x7F\x80\xFF"[random.below(5)];
      return key;
    }
  }
}

template <>
std::string Keys<Bytes>::near(const std::string& key, Random& random) {
  std::string other = key.substr(0, kMaxKeyBytes - 3);
  switch (random.below(4)) {
    case 0:
      return other + static_cast<char>('0' + random.below(10));
    case 1:
      return other + std::string(1 + random.below(3), '\0');
    case 2:
      if (!other.empty()) other.pop_back();
      return other;
    default:
      if (!other.empty())
        other.back() = static_cast<char>(other.back() + (random.one_in(2) ? 1 : -1));
      return other;
  }
}

template <>
KeyType Keys<Bytes>::type() {
  return KeyType::bytes;
}

std::uint64_t odd_value(Random& random) {
  switch (random.below(5)) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return random.below(4);
    default:
      return random.word();
  }
}

std::string_view to_string(Do what) {
  switch (what) {
    case Do::insert:
      return "insert";
    case Do::update:
      return "update";
    case Do::upsert:
      return "upsert";
    case Do::remove:
      return "remove";
  }
  return "?";
}

std::string show(std::uint64_t key) {
  return std::to_string(key);
}

std::string show(const std::string& key) {
  std::string text = "'";
  for (const char c : key.substr(0, 24)) {
    if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      text += hex;
    }
  }
  return text + (key.size() > 24 ? "'... of " + std::to_string(key.size()) : "'");
}

std::uint64_t figure(const Stats& stats, std::string_view name) {
  for (const auto& [what, value] : stats.more) {
    if (name == what) return value;
  }
  ADD_FAILURE() << "no figure " << name;
  return 0;
}

std::string unsound(const Pool& pool) {
  const auto report = pool.check();
  if (!report) return "check: " + report.error().message;
  return report->problems.empty() ? "" : "check: " + report->problems.front();
}

}  // namespace everleaf::test
