/* everleaf.h, call by call, in C. */
#include <everleaf/everleaf.h>

#include <pthread.h>
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
  CHECK(everleaf_compare_and_set(table, key("a"), "three", 5, NULL, 2) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_compare_and_set(table, key("a"), NULL, 5, "x", 1) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_get(table, key("a"), NULL, 0, &size) == EVERLEAF_BUFFER_TOO_SMALL && size == 5);
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

static void says(const char* part) {
  if (strstr(everleaf_message(), part) != NULL) return;
  fprintf(stderr, "\"%s\" is not in \"%s\"\n", part, everleaf_message());
  exit(1);
}

static void* say_nothing(void* unused) {
  (void)unused;
  CHECK(strcmp(everleaf_message(), "") == 0);
  return NULL;
}

/* The sentence is that of the last call that was refused, of whichever kind, until the next one. */
static void messages(everleaf_store* store, everleaf_table* table) {
  static char long_key[65537];
  everleaf_batch* batch = NULL;
  everleaf_table* gone = NULL;
  everleaf_cursor* cursor = NULL;
  pthread_t other;
  size_t size = 0;
  CHECK(everleaf_table_drop(store, "nowhere") == EVERLEAF_NOT_FOUND);
  says("'nowhere'");
  CHECK(everleaf_put(table, everleaf_key_of(long_key, sizeof long_key), "v", 1) ==
        EVERLEAF_KEY_TOO_LONG);
  says("65,536 bytes");
  CHECK(everleaf_put(table, key("m"), "value", 5) == EVERLEAF_OK);
  says("65,536 bytes");
  CHECK(everleaf_insert(table, key("m"), "v", 1) == EVERLEAF_EXISTS);
  says("the key is there already");
  CHECK(everleaf_get(table, key("m"), NULL, 0, &size) == EVERLEAF_BUFFER_TOO_SMALL);
  says("longer than the buffer");
  CHECK(everleaf_put(NULL, key("m"), "v", 1) == EVERLEAF_BAD_CALL);
  says("NULL");
  CHECK(everleaf_cursor_open_prefix(table, "nothing of", 10, &cursor) == EVERLEAF_OK);
  CHECK(everleaf_cursor_first(cursor) == EVERLEAF_ABSENT);
  says("is not there");
  everleaf_cursor_close(cursor);
  CHECK(everleaf_compare_and_set(table, key("m"), "other", 5, NULL, 0) == EVERLEAF_DIFFERS);
  says("not the expected one");
  CHECK(everleaf_batch_create(&batch) == EVERLEAF_OK);
  for (int n = 0; n < 65537; ++n) {
    CHECK(everleaf_batch_put(batch, table, key("m"), "v", 1) == EVERLEAF_OK);
  }
  CHECK(everleaf_apply(store, batch) == EVERLEAF_BATCH_TOO_LARGE);
  says("65,536 writes or 64 MiB");
  everleaf_batch_release(batch);
  CHECK(everleaf_table_open(store, "gone", EVERLEAF_KEYS_BYTES, NULL, &gone) == EVERLEAF_OK);
  CHECK(everleaf_table_drop(store, "gone") == EVERLEAF_OK);
  CHECK(everleaf_erase(gone, key("m")) == EVERLEAF_DROPPED);
  says("the table was dropped");
  everleaf_table_close(gone);
  CHECK(everleaf_backup(store, "/nowhere/at/all") != EVERLEAF_OK);
  says("/nowhere/at/all");
  CHECK(everleaf_erase(table, key("m")) == EVERLEAF_OK);
  CHECK(pthread_create(&other, NULL, say_nothing, NULL) == 0);
  CHECK(pthread_join(other, NULL) == 0);
}

/* Epochs that nobody but this program ends. */
static void durability(const char* path) {
  everleaf_options options;
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  everleaf_info info = {.size = sizeof info};
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
  CHECK(info.format > 0 && info.lost_blocks == 0 && info.header_damaged == 0);
  CHECK(info.record_bytes_used >= 3 && info.record_bytes_used < info.record_bytes);
  CHECK(info.records_waiting == 0 && info.problems == 0);
  /* The old value waits for the epoch, which nobody ends meanwhile. */
  durable = info.record_bytes_used;
  CHECK(everleaf_put(table, key("a"), "one", 3) == EVERLEAF_OK);
  CHECK(everleaf_get_info(store, &info) == EVERLEAF_OK);
  CHECK(info.records == 2 && info.records_waiting == 1);
  CHECK(info.record_bytes_used == 2 * durable);
  CHECK(everleaf_get_info(store, NULL) == EVERLEAF_BAD_CALL);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
}

static void versions(void) {
  char text[64];
  int parts[3] = {-1, -1, -1};
  const char* const version = everleaf_version(&parts[0], &parts[1], &parts[2]);
  CHECK(strcmp(version, EVERLEAF_VERSION) == 0);
  CHECK(parts[0] == EVERLEAF_VERSION_MAJOR && parts[1] == EVERLEAF_VERSION_MINOR);
  CHECK(parts[2] == EVERLEAF_VERSION_PATCH);
  snprintf(text, sizeof text, "%d.%d.%d", parts[0], parts[1], parts[2]);
  CHECK(strcmp(everleaf_version(NULL, NULL, NULL), text) == 0);
}

/* A struct of the program's header, which may be shorter or longer than the library's: it has just
 * this memory, so that the sanitizer sees what is beyond. */
static void* sized(size_t size) {
  unsigned char* const memory = malloc(size);
  CHECK(memory != NULL);
  memset(memory, 0xa5, size);
  memcpy(memory, &size, size < sizeof size ? size : sizeof size);
  return memory;
}
/* Its bytes from `from` on are what `sized` left (0xa5), or 0. */
static void all_are(const void* memory, size_t from, size_t to, unsigned char byte) {
  for (; from < to; ++from) CHECK(((const unsigned char*)memory)[from] == byte);
}

static void options_of_other_headers(void) {
  const size_t first = offsetof(everleaf_options, domain);
  const size_t longer = sizeof(everleaf_options) + 24;
  everleaf_store* store = NULL;
  everleaf_options* options = sized(first);
  CHECK(everleaf_fill_options(options) == EVERLEAF_OK);
  CHECK(options->size == first && options->epoch_ns == 50000000);
  options->durability = EVERLEAF_STRICT;
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  free(options);
  /* More memory than it says: what lies behind is not of the options. */
  options = sized(sizeof *options);
  options->size = first;
  CHECK(everleaf_fill_options(options) == EVERLEAF_OK);
  all_are(options, first, sizeof *options, 0xa5);
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  options->size = first - 1;
  CHECK(everleaf_fill_options(options) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_open("never", options, &store) == EVERLEAF_BAD_CALL);
  options->size = first + 2; /* a part of a member */
  CHECK(everleaf_fill_options(options) == EVERLEAF_BAD_CALL);
  options->size = (size_t)-1;
  CHECK(everleaf_fill_options(options) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_fill_options(NULL) == EVERLEAF_BAD_CALL);
  everleaf_default_options(NULL);
  everleaf_default_options(options);
  CHECK(options->size == sizeof *options && options->huge_pages == 1);
  options->huge_pages = 0;
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  options->reserved = 1;
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_UNKNOWN_OPTION);
  free(options);
  options = sized(longer);
  CHECK(everleaf_fill_options(options) == EVERLEAF_OK);
  CHECK(options->size == longer);
  all_are(options, sizeof *options, longer, 0);
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  ((char*)options)[longer - 1] = 1;
  CHECK(everleaf_open_in_memory(options, &store) == EVERLEAF_UNKNOWN_OPTION);
  CHECK(strlen(everleaf_message()) > 10);
  free(options);
}

static void figures_of_other_headers(everleaf_store* store) {
  const size_t first = offsetof(everleaf_info, record_bytes_used);
  const size_t longer = sizeof(everleaf_info) + 24;
  everleaf_info* info = sized(first);
  CHECK(everleaf_get_info(store, info) == EVERLEAF_OK);
  CHECK(info->size == first && info->tables == 2);
  free(info);
  info = sized(sizeof *info);
  info->size = first;
  CHECK(everleaf_get_info(store, info) == EVERLEAF_OK);
  all_are(info, first, sizeof *info, 0xa5);
  info->size = first - 1;
  CHECK(everleaf_get_info(store, info) == EVERLEAF_BAD_CALL);
  info->size = (size_t)-1;
  CHECK(everleaf_get_info(store, info) == EVERLEAF_BAD_CALL);
  free(info);
  info = sized(longer);
  CHECK(everleaf_get_info(store, info) == EVERLEAF_OK);
  CHECK(info->size == longer && info->tables == 2 && info->format > 0);
  all_are(info, sizeof *info, longer, 0);
  free(info);
}

/* Of a table with a hundred numbers, whose values have eight bytes each. */
static void descriptions(everleaf_store* store, everleaf_table* numbers) {
  const size_t longer = sizeof(everleaf_stats) + 8;
  everleaf_stats* stats = sized(longer);
  everleaf_table* table = NULL;
  const char* name = NULL;
  const char* tree = NULL;
  int keys = -1;
  CHECK(everleaf_table_stats(numbers, stats) == EVERLEAF_OK);
  CHECK(stats->size == longer && stats->keys == 100 && stats->value_bytes == 800);
  CHECK(stats->leaf_nodes > 0 && stats->tree_bytes > 1600);
  all_are(stats, sizeof *stats, longer, 0);
  stats->size = sizeof *stats - 1;
  CHECK(everleaf_table_stats(numbers, stats) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_table_stats(numbers, NULL) == EVERLEAF_BAD_CALL);
  stats->size = sizeof *stats;
  CHECK(everleaf_table_stats(NULL, stats) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_table_describe(numbers, &name, &keys, &tree) == EVERLEAF_OK);
  CHECK(strcmp(name, "n") == 0 && keys == EVERLEAF_KEYS_U64 && strncmp(tree, "bdtree", 6) == 0);
  CHECK(everleaf_table_describe(NULL, &name, NULL, NULL) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_table_open(store, "gone", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_table_drop(store, "gone") == EVERLEAF_OK);
  CHECK(everleaf_table_describe(table, &name, &keys, NULL) == EVERLEAF_OK);
  CHECK(strcmp(name, "gone") == 0 && keys == EVERLEAF_KEYS_BYTES);
  stats->keys = 4711;
  CHECK(everleaf_table_stats(table, stats) == EVERLEAF_DROPPED && stats->keys == 4711);
  CHECK(everleaf_table_describe(table, NULL, NULL, NULL) == EVERLEAF_OK);
  everleaf_table_close(table);
  free(stats);
}

static void* close_view(void* view) {
  static int code;
  code = everleaf_view_close(view);
  return &code;
}

/* A value stays where it lies, though its key is written and erased, the table dropped, and every
 * other handle closed. */
static void views(void) {
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  everleaf_view* view = NULL;
  everleaf_view* empty = NULL;
  const void* value = NULL;
  void* code = NULL;
  char* large = malloc(100000);
  size_t size = 0;
  pthread_t other;
  CHECK(large != NULL);
  memset(large, 'a', 100000);
  CHECK(everleaf_open_in_memory(NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "v", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_put(table, key("k"), large, 100000) == EVERLEAF_OK);
  CHECK(everleaf_put(table, key("e"), NULL, 0) == EVERLEAF_OK);
  CHECK(everleaf_view_open(table, key("none"), &value, &size, &view) == EVERLEAF_ABSENT);
  CHECK(value == NULL && view == NULL);
  CHECK(everleaf_view_open(table, everleaf_key_u64(1), &value, &size, &view) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_view_open(NULL, key("k"), &value, &size, &view) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_view_open(table, key("k"), NULL, &size, &view) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_view_open(table, key("k"), &value, NULL, &view) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_view_open(table, key("k"), &value, &size, NULL) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_view_open(table, key("e"), &value, &size, &empty) == EVERLEAF_OK && size == 0);
  CHECK(everleaf_view_open(table, key("k"), &value, &size, &view) == EVERLEAF_OK);
  CHECK(everleaf_view_close(empty) == EVERLEAF_OK);
  memset(large, 'b', 100000);
  for (int n = 0; n < 50; ++n) {
    CHECK(everleaf_put(table, key("k"), large, 100000) == EVERLEAF_OK);
    CHECK(everleaf_erase(table, key("k")) == EVERLEAF_OK);
    CHECK(everleaf_sync(store) == EVERLEAF_OK);
  }
  CHECK(everleaf_table_drop(store, "v") == EVERLEAF_OK);
  CHECK(everleaf_view_open(table, key("k"), &value, &size, &empty) == EVERLEAF_DROPPED);
  CHECK(everleaf_table_close(table) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  CHECK(size == 100000);
  all_are(value, 0, size, 'a');
  CHECK(pthread_create(&other, NULL, close_view, view) == 0);
  CHECK(pthread_join(other, &code) == 0 && *(int*)code == EVERLEAF_BAD_CALL);
  all_are(value, 0, size, 'a');
  CHECK(everleaf_view_close(view) == EVERLEAF_OK);
  CHECK(everleaf_view_close(NULL) == EVERLEAF_OK);
  free(large);
}

static void count_problems(void* context, const char* sentence) {
  CHECK(strlen(sentence) > 10);
  ++*(int*)context;
}

static void count_tables(void* context, const char* name, int keys, const char* tree) {
  CHECK(strlen(name) == 1 && tree != NULL);
  *(int*)context += keys == EVERLEAF_KEYS_U64 ? 100 : 1;
}

/* Replaces what begins like this in the file by as many bytes. */
static void overwrite(const char* path, const char* old, const char* bytes, size_t size) {
  static char content[64 << 20];
  FILE* const file = fopen(path, "r+b");
  size_t all = 0;
  size_t at = 0;
  CHECK(file != NULL);
  all = fread(content, 1, sizeof content, file);
  while (at + strlen(old) <= all && memcmp(content + at, old, strlen(old)) != 0) ++at;
  CHECK(at + strlen(old) <= all);
  CHECK(fseek(file, (long)at, SEEK_SET) == 0 && fwrite(bytes, 1, size, file) == size);
  CHECK(fclose(file) == 0);
}

/* What repair says; the texts do not outlive its callbacks. */
typedef struct Told {
  int problems;
  int tables;
  everleaf_repaired last;
  char name[16];
} Told;
static void note_problem(void* context, const char* sentence) {
  count_problems(&((Told*)context)->problems, sentence);
}
static void note_table(void* context, const everleaf_repaired* table) {
  Told* const told = context;
  CHECK(table->size == sizeof *table && strncmp(table->tree, "bdtree", 6) == 0);
  CHECK(strlen(table->name) < sizeof told->name);
  ++told->tables;
  told->last = *table;
  strcpy(told->name, table->name);
}

static void refuses_repair(const char* path, const char* copy) {
  everleaf_table_name lost = {"l", 2};
  everleaf_repair_options options = {.size = sizeof options, .lost_count = 1};
  CHECK(everleaf_repair("/nowhere/at/all", copy, NULL, NULL) == EVERLEAF_NOT_FOUND);
  CHECK(everleaf_repair(NULL, copy, NULL, NULL) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_repair(path, NULL, NULL, NULL) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_repair(path, copy, &options, NULL) == EVERLEAF_BAD_CALL);
  options.lost = &lost;
  CHECK(everleaf_repair(path, copy, &options, NULL) == EVERLEAF_BAD_CALL);
  lost.keys = EVERLEAF_KEYS_U64;
  lost.name = NULL;
  CHECK(everleaf_repair(path, copy, &options, NULL) == EVERLEAF_BAD_CALL);
  options.lost_count = 0;
  options.size = sizeof options - 1;
  CHECK(everleaf_repair(path, copy, &options, NULL) == EVERLEAF_BAD_CALL);
}

/* The store without the name of its only table: as much of it as a reader may see. */
static void shows_damaged(const char* path) {
  everleaf_options options;
  everleaf_info info = {.size = sizeof info};
  everleaf_store* store = NULL;
  everleaf_default_options(&options);
  options.mode = EVERLEAF_OPEN_READ_ONLY;
  CHECK(everleaf_open(path, &options, &store) == EVERLEAF_OK);
  CHECK(everleaf_get_info(store, &info) == EVERLEAF_OK);
  CHECK(info.read_only != 0 && info.tables == 0 && info.problems == 1);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
}

/* A table whose directory entry has lost its name is found again where it is named. */
static void repairs_lost_table(const char* path, const char* copy) {
  const everleaf_table_name lost = {"ledger", EVERLEAF_KEYS_U64};
  everleaf_repair_options options = {.size = sizeof options, .lost = &lost, .lost_count = 1};
  Told told = {0};
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  int sound = 1;
  remove(path);
  remove(copy);
  CHECK(everleaf_open(path, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "ledger", EVERLEAF_KEYS_U64, NULL, &table) == EVERLEAF_OK);
  for (uint64_t n = 1; n <= 20; ++n) {
    CHECK(everleaf_put(table, everleaf_key_u64(n), "booked", 6) == EVERLEAF_OK);
  }
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  overwrite(path, "ledger", "\0\0\0\0\0\0", 6);
  CHECK(everleaf_repair(path, copy, NULL, &sound) == EVERLEAF_OK && sound == 0);
  shows_damaged(path);
  CHECK(everleaf_open(copy, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_tables(store, count_tables, &told.tables) == EVERLEAF_OK && told.tables == 0);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  remove(copy);
  options.table = note_table;
  options.context = &told;
  CHECK(everleaf_repair(path, copy, &options, &sound) == EVERLEAF_OK);
  CHECK(sound == 0 && told.tables == 1 && strcmp(told.name, "ledger") == 0);
  CHECK(told.last.keys == EVERLEAF_KEYS_U64 && told.last.read == 0 && told.last.found == 20);
  CHECK(told.last.damaged_values == 0 && told.last.unclear == 0);
  CHECK(everleaf_open(copy, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "ledger", EVERLEAF_KEYS_U64, NULL, &table) == EVERLEAF_OK);
  CHECK(count(table) == 20);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
}

/* A value of the store that durability() left loses a byte; the rest is copied. */
static void repairs(const char* path, const char* copy) {
  everleaf_store* store = NULL;
  everleaf_table* table = NULL;
  Told told = {0};
  everleaf_repair_options options = {
      .size = sizeof options, .problem = note_problem, .table = note_table, .context = &told};
  int sound = 0;
  remove(copy);
  CHECK(everleaf_repair(path, copy, &options, &sound) == EVERLEAF_OK);
  CHECK(sound == 1 && told.problems == 0 && told.tables == 1 && told.last.read == 1);
  CHECK(everleaf_repair(path, copy, NULL, NULL) == EVERLEAF_ALREADY_THERE);
  CHECK(everleaf_open(path, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  CHECK(everleaf_put(table, key("b"), "a value to be found again", 25) == EVERLEAF_OK);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  overwrite(path, "a value to be found again", "X", 1);
  remove(copy);
  told.tables = 0;
  CHECK(everleaf_repair(path, copy, &options, &sound) == EVERLEAF_OK);
  CHECK(sound == 0 && told.problems > 0 && told.tables == 1 && strcmp(told.name, "t") == 0);
  CHECK(told.last.keys == EVERLEAF_KEYS_BYTES && told.last.read == 1);
  CHECK(told.last.damaged_values == 1 && told.last.found == 0 && told.last.unclear == 0);
  CHECK(everleaf_open(copy, NULL, &store) == EVERLEAF_OK);
  CHECK(everleaf_table_open(store, "t", EVERLEAF_KEYS_BYTES, NULL, &table) == EVERLEAF_OK);
  expect(table, "a", "one");
  CHECK(everleaf_contains(table, key("b")) == 0);
  everleaf_table_close(table);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  remove(copy);
  refuses_repair(path, copy);
  repairs_lost_table(path, copy);
}

static void no_problem(void* context, const char* sentence) {
  (void)context;
  fprintf(stderr, "%s\n", sentence);
  exit(1);
}

static void batches(everleaf_store* store, everleaf_table* table, everleaf_table* numbers) {
  everleaf_batch* batch = NULL;
  CHECK(everleaf_batch_create(&batch) == EVERLEAF_OK);
  CHECK(everleaf_batch_count(batch) == 0 && everleaf_batch_count(NULL) == 0);
  CHECK(everleaf_batch_put(batch, table, key("x"), "1", 1) == EVERLEAF_OK);
  CHECK(everleaf_batch_put(batch, numbers, everleaf_key_u64(1000), "2", 1) == EVERLEAF_OK);
  CHECK(everleaf_batch_erase(batch, table, key("a")) == EVERLEAF_OK);
  CHECK(everleaf_batch_put(batch, table, everleaf_key_u64(1), "2", 1) == EVERLEAF_BAD_CALL);
  CHECK(everleaf_batch_count(batch) == 3);
  CHECK(everleaf_apply(store, batch) == EVERLEAF_OK);
  CHECK(everleaf_batch_count(batch) == 3);
  expect(table, "x", "1");
  CHECK(everleaf_contains(table, key("a")) == 0);
  everleaf_batch_clear(batch);
  CHECK(everleaf_batch_count(batch) == 0);
  CHECK(everleaf_apply(store, batch) == EVERLEAF_OK);
  everleaf_batch_release(batch);
}

int main(int argc, char** argv) {
  everleaf_options options;
  everleaf_store* store = NULL;
  everleaf_store* second = NULL;
  everleaf_table* table = NULL;
  everleaf_table* numbers = NULL;
  uint64_t problems = 1;
  int tables = 0;
  CHECK(argc == 3);
  CHECK(strcmp(everleaf_message(), "") == 0);
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
  messages(store, table);
  cursors(numbers);
  descriptions(store, numbers);
  figures_of_other_headers(store);
  prefixes(table, numbers);
  batches(store, table, numbers);

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
  says("read-only");
  CHECK(everleaf_close(store) == EVERLEAF_OK); /* the table keeps it open */
  CHECK(everleaf_contains(numbers, everleaf_key_u64(1000)) == 1);
  CHECK(everleaf_table_close(numbers) == EVERLEAF_OK);

  options.mode = EVERLEAF_OPEN_OR_CREATE;
  options.durability = EVERLEAF_STRICT;
  CHECK(everleaf_open_in_memory(&options, &store) == EVERLEAF_OK);
  CHECK(everleaf_close(store) == EVERLEAF_OK);
  CHECK(everleaf_close(NULL) == EVERLEAF_OK);
  versions();
  options_of_other_headers();
  views();
  durability(argv[1]);
  repairs(argv[1], argv[2]);
  return 0;
}
