/* everleaf.h, call by call, in C. */
#include <everleaf/everleaf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static everleaf_key key(const char* text) {
  return everleaf_key_of(text, strlen(text));
}

static void expect(everleaf_table* table, const char* name, const char* value) {
  char buffer[64];
  size_t size = 0;
  CHECK(everleaf_get(table, key(name), buffer, sizeof buffer, &size) == EVERLEAF_OK);
  CHECK(size == strlen(value) && memcmp(buffer, value, size) == 0);
}

static uint64_t count(everleaf_table* table) {
  uint64_t number = 0;
  CHECK(everleaf_count(table, &number) == EVERLEAF_OK);
  return number;
}

static void writes_and_reads(everleaf_table* table) {
  size_t size = 0;
  void* copy = NULL;
  char small[2];
  CHECK(everleaf_put(table, key("a"), "one", 3) == EVERLEAF_OK);
  CHECK(everleaf_insert(table, key("a"), "x", 1) == EVERLEAF_EXISTS);
  CHECK(everleaf_update(table, key("b"), "x", 1) == EVERLEAF_ABSENT);
  CHECK(everleaf_erase(table, key("b")) == EVERLEAF_ABSENT);
  CHECK(everleaf_update(table, key("a"), "two", 3) == EVERLEAF_OK);
  expect(table, "a", "two");
  CHECK(everleaf_get(table, key("a"), small, sizeof small, &size) == EVERLEAF_BUFFER_TOO_SMALL);
  CHECK(size == 3);
  CHECK(everleaf_get_copy(table, key("a"), &copy, &size) == EVERLEAF_OK);
  CHECK(size == 3 && memcmp(copy, "two", 3) == 0);
  everleaf_free(copy);
  CHECK(everleaf_get_copy(table, key("none"), &copy, &size) == EVERLEAF_ABSENT);
  CHECK(everleaf_compare_and_set(table, key("a"), "one", 3, "no", 2) == EVERLEAF_DIFFERS);
  CHECK(everleaf_compare_and_set(table, key("a"), "two", 3, "three", 5) == EVERLEAF_OK);
  CHECK(everleaf_compare_and_set(table, key("c"), NULL, 0, "", 0) == EVERLEAF_OK);
  expect(table, "a", "three");
  expect(table, "c", "");
  CHECK(everleaf_contains(table, key("c")) == 1 && everleaf_contains(table, key("d")) == 0);
  CHECK(count(table) == 2);
  CHECK(everleaf_erase(table, key("c")) == EVERLEAF_OK);
  CHECK(everleaf_put(table, everleaf_key_of(NULL, 4), "x", 1) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_put(NULL, key("a"), "x", 1) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_put(table, everleaf_key_u64(5), "x", 1) == EVERLEAF_BAD_CALL);
  everleaf_cursor* nowhere = NULL;
  const everleaf_key null_key = everleaf_key_of(NULL, 4);
  CHECK(everleaf_cursor_open(table, &null_key, NULL, &nowhere) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_open(table, NULL, NULL, &nowhere) == EVERLEAF_OK);
  CHECK(everleaf_cursor_seek(nowhere, null_key) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_seek_for_prev(nowhere, null_key) == EVERLEAF_BAD_CALL);
  everleaf_cursor_close(nowhere);
}

static void cursors(everleaf_table* numbers) {
  everleaf_cursor* cursor = NULL;
  everleaf_key at;
  const everleaf_key from = everleaf_key_u64(10);
  const everleaf_key to = everleaf_key_u64(20);
  const void* value = NULL;
  size_t size = 0;
  uint64_t n = 0;
  for (n = 0; n < 100; ++n) {
    CHECK(everleaf_put(numbers, everleaf_key_u64(n), &n, sizeof n) == EVERLEAF_OK);
  }
  at = key("ten");
  CHECK(everleaf_put(numbers, at, "x", 1) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_open(numbers, &at, &to, &cursor) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_open(numbers, &from, &to, &cursor) == EVERLEAF_OK);
  CHECK(everleaf_cursor_seek(cursor, at) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_get(cursor, &at, &value, &size) == EVERLEAF_ABSENT);
  n = 10;
  for (int code = everleaf_cursor_first(cursor); code != EVERLEAF_ABSENT;
       code = everleaf_cursor_next(cursor)) {
    CHECK(code == EVERLEAF_OK);
    CHECK(everleaf_cursor_get(cursor, &at, &value, &size) == EVERLEAF_OK);
    CHECK(at.number == n && size == sizeof n && memcmp(value, &n, sizeof n) == 0);
    ++n;
  }
  CHECK(n == 20);
  CHECK(everleaf_cursor_last(cursor) == EVERLEAF_OK);
  CHECK(everleaf_cursor_prev(cursor) == EVERLEAF_OK);
  CHECK(everleaf_cursor_get(cursor, &at, NULL, NULL) == EVERLEAF_OK && at.number == 18);
  CHECK(everleaf_cursor_seek(cursor, everleaf_key_u64(50)) == EVERLEAF_ABSENT);
  CHECK(everleaf_cursor_seek_for_prev(cursor, everleaf_key_u64(50)) == EVERLEAF_OK);
  CHECK(everleaf_cursor_get(cursor, &at, NULL, NULL) == EVERLEAF_OK && at.number == 19);
  everleaf_cursor_close(cursor);
}

/* Keys that begin alike; what a prefix ends with may be the largest byte. */
static void prefixes(everleaf_table* table, everleaf_table* numbers) {
  const char* const names[] = {"p", "pa", "pb", "pb\xff", "q"};
  everleaf_cursor* cursor = NULL;
  int n = 0;
  for (n = 0; n < 5; ++n) CHECK(everleaf_put(table, key(names[n]), "v", 1) == EVERLEAF_OK);
  CHECK(everleaf_cursor_open_prefix(numbers, "pb", 2, &cursor) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_cursor_open_prefix(table, "pb", 2, &cursor) == EVERLEAF_OK);
  n = 0;
  for (int code = everleaf_cursor_first(cursor); code == EVERLEAF_OK;
       code = everleaf_cursor_next(cursor)) {
    everleaf_key at;
    CHECK(everleaf_cursor_get(cursor, &at, NULL, NULL) == EVERLEAF_OK);
    CHECK(at.size >= 2 && memcmp(at.data, "pb", 2) == 0);
    ++n;
  }
  CHECK(n == 2);
  everleaf_cursor_close(cursor);
  for (n = 0; n < 5; ++n) CHECK(everleaf_erase(table, key(names[n])) == EVERLEAF_OK);
}

/* Epochs that nobody but this program ends. */
static void durability(const char* path) {
  everleaf_options options;
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  everleaf_info info;
  uint64_t now = 0;
  uint64_t durable = 0;
  remove(path);
  everleaf_default_options(&options);
  options.epoch_ns = 0;
  options.domain = EVERLEAF_DOMAIN_DISK + 1;
  CHECK(everleaf_open(path, &options, &store) == EVERLEAF_BAD_ARGUMENT);
  options.domain = EVERLEAF_DOMAIN_DISK;
  options.emulate = 1; /* the file may lie in memory */
  options.private_bytes = 0;
  CHECK(everleaf_open(path, &options, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_put(table, key("a"), "one", 3) == EVERLEAF_OK);
  CHECK(everleaf_epochs(store, &now, &durable) == EVERLEAF_OK);
  CHECK(now > durable);
  CHECK(everleaf_wait_durable(store, now + 1) == EVERLEAF_ABSENT);
  CHECK(everleaf_wait_durable(store, now) == EVERLEAF_OK);
  CHECK(everleaf_epochs(store, NULL, &durable) == EVERLEAF_OK);
  CHECK(durable >= now);
  CHECK(everleaf_get_info(store, &info) == EVERLEAF_OK);
  CHECK(info.durability == EVERLEAF_BUFFERED && info.domain == EVERLEAF_DOMAIN_DISK);
  CHECK(info.clean != 0 && info.read_only == 0 && info.tables == 1 && info.records == 1);
  CHECK(info.heap_bytes > 0 && info.heap_bytes <= info.file_bytes);
  CHECK(everleaf_get_info(store, NULL) == EVERLEAF_BAD_CALL);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
}

static void count_problems(void* context, const char* sentence) {
  CHECK(strlen(sentence) > 10);
  ++*(int*)context;
}

/* A value of the store that durability() left loses a byte; the rest is copied. */
static void repairs(const char* path, const char* copy) {
  static char bytes[64 << 20];
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  FILE* file = NULL;
  size_t size = 0;
  size_t at = 0;
  int problems = 0;
  int sound = 0;
  remove(copy);
  CHECK(everleaf_repair(path, copy, count_problems, &problems, &sound) == EVERLEAF_OK);
  CHECK(sound == 1 && problems == 0);
  CHECK(everleaf_repair(path, copy, NULL, NULL, NULL) == EVERLEAF_ALREADY_THERE);
  CHECK(everleaf_open(path, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_put(table, key("b"), "a value to be found again", 25) == EVERLEAF_OK);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  file = fopen(path, "r+b");
  CHECK(file != NULL);
  size = fread(bytes, 1, sizeof bytes, file);
  for (at = 0; at + 25 <= size && memcmp(bytes + at, "a value to be found again", 25) != 0; ++at) {
  }
  CHECK(at + 25 <= size);
  CHECK(fseek(file, (long)at, SEEK_SET) == 0 && fwrite("X", 1, 1, file) == 1);
  CHECK(fclose(file) == 0);
  remove(copy);
  CHECK(everleaf_repair(path, copy, count_problems, &problems, &sound) == EVERLEAF_OK);
  CHECK(sound == 0 && problems > 0);
  CHECK(everleaf_open(copy, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  expect(table, "a", "one");
  CHECK(everleaf_contains(table, key("b")) == 0);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  remove(copy);
  CHECK(everleaf_repair("/nowhere/at/all", copy, NULL, NULL, NULL) == EVERLEAF_NOT_FOUND);
  CHECK(everleaf_repair(NULL, copy, NULL, NULL, NULL) == EVERLEAF_BAD_CALL);
}

static void count_tables(void* context, const char* name, int keys, const char* tree) {
  CHECK(strlen(name) == 1 && tree != NULL);
  *(int*)context += keys == EVERLEAF_KEYS_U64 ? 100 : 1;
}

static void no_problem(void* context, const char* sentence) {
  (void)context;
  fprintf(stderr, "%s\n", sentence);
  exit(1);
}

int main(int argc, char** argv) {
  everleaf_options options;
  everleaf_store* store = NULL;
  everleaf_store* second = NULL;
  everleaf_table* table = NULL;
  everleaf_table* numbers = NULL;
  everleaf_batch* batch = NULL;
  uint64_t problems = 1;
  int tables = 0;
  CHECK(argc == 3);
  remove(argv[1]);
  remove(argv[2]);
  everleaf_default_options(&options);
  options.mode = EVERLEAF_OPEN;
  CHECK(everleaf_open(argv[1], &options, &store) == EVERLEAF_NOT_FOUND);
  CHECK(strlen(everleaf_message()) > 10);
  CHECK(strcmp(everleaf_strerror(EVERLEAF_NOT_FOUND), "not found") == 0);
  CHECK(strcmp(everleaf_strerror(EVERLEAF_ABSENT), "absent") == 0);
  options.mode = 17;
  CHECK(everleaf_open(argv[1], &options, &store) == EVERLEAF_BAD_ARGUMENT);
  CHECK(everleaf_open(argv[1], NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_open(argv[1], NULL, &second) == EVERLEAF_LOCKED_HERE);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "n", EVERLEAF_KEYS_U64, NULL, &numbers) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "n", 7, NULL, &numbers) == EVERLEAF_BAD_CALL);
  writes_and_reads(table);
  cursors(numbers);
  prefixes(table, numbers);

  CHECK(everleaf_batch_create(&batch) == EVERLEAF_OK);
  CHECK(everleaf_batch_put(batch, table, key("x"), "1", 1) == EVERLEAF_OK);
  CHECK(everleaf_batch_put(batch, numbers, everleaf_key_u64(1000), "2", 1) == EVERLEAF_OK);
  CHECK(everleaf_batch_erase(batch, table, key("a")) == EVERLEAF_OK);
  CHECK(everleaf_apply(store, batch) == EVERLEAF_OK);
  expect(table, "x", "1");
  CHECK(everleaf_contains(table, key("a")) == 0);
  everleaf_batch_clear(batch);
  CHECK(everleaf_apply(store, batch) == EVERLEAF_OK);
  everleaf_batch_release(batch);

  CHECK(everleaf_tables(store, count_tables, &tables) == EVERLEAF_OK && tables == 101);
  CHECK(everleaf_check(store, no_problem, NULL, &problems) == EVERLEAF_OK && problems == 0);
  CHECK(everleaf_backup(store, argv[2]) == EVERLEAF_OK);
  CHECK(everleaf_backup(store, argv[2]) == EVERLEAF_ALREADY_THERE);
  CHECK(everleaf_table_drop(store, "n") == EVERLEAF_OK);
  CHECK(everleaf_put(numbers, everleaf_key_u64(1), "", 0) == EVERLEAF_DROPPED);
  CHECK(everleaf_count(numbers, &problems) == EVERLEAF_DROPPED);
  CHECK(everleaf_sync(store) == EVERLEAF_OK);
  everleaf_table_close(numbers);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);

  options.mode = EVERLEAF_OPEN_READ_ONLY;
  CHECK(everleaf_open(argv[2], &options, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "n", EVERLEAF_KEYS_U64, NULL, &numbers) == EVERLEAF_OK);
  CHECK(count(numbers) == 101);
  CHECK(everleaf_put(numbers, everleaf_key_u64(1), "", 0) == EVERLEAF_READ_ONLY);
  CHECK(everleaf_close(store) == EVERLEAF_OK); /* the table keeps it open */
  CHECK(everleaf_contains(numbers, everleaf_key_u64(1000)) == 1);
  CHECK(everleaf_table_close(numbers) == EVERLEAF_OK);

  options.mode = EVERLEAF_OPEN_OR_CREATE;
  options.durability = EVERLEAF_STRICT;
  CHECK(everleaf_open_in_memory(&options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  CHECK(everleaf_close(NULL) == EVERLEAF_OK);
  durability(argv[1]);
  repairs(argv[1], argv[2]);
  return 0;
}
