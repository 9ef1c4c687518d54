/* The store for C, and for bindings of other languages: everleaf/store.hpp tells what each call
 * does, what it costs and what a crash leaves.
 *
 *   everleaf_store* store;
 *   everleaf_table* users;
 *   if (everleaf_open("data.pool", NULL, &store) != EVERLEAF_OK) fail(everleaf_message());
 *   everleaf_table_open(store, "users", EVERLEAF_KEYS_BYTES, NULL, &users);
 *   everleaf_put(users, everleaf_key_of("ada", 3), "Lovelace", 8);
 *   everleaf_sync(store);
 *   everleaf_table_close(users);
 *   everleaf_close(store);
 *
 * Every call answers EVERLEAF_OK (0) or a code; everleaf_strerror() gives its name, and
 * everleaf_message() the sentence of the last call of this thread that answered another one than
 * EVERLEAF_OK: what happened, and what to do.
 * Where a call does not answer EVERLEAF_OK, it has written to none of its results, unless it says
 * so. Handles are made by one call and released by another; tables, cursors and views keep the
 * store open, batches do not, and the order does not matter. NULL may be released. Calls on stores
 * and tables are thread-safe; a cursor or a batch belongs to one thread at a time, a view to the
 * one that opened it. A process that forks must not use a store of its parent.
 *
 * Structs that may grow begin with their size, so that a program works with a library that is older
 * or newer than its header: nothing behind it is read or written, and what the library does not
 * know is 0. A size that never was one is EVERLEAF_BAD_CALL.
 */
#ifndef EVERLEAF_H
#define EVERLEAF_H

#include <everleaf/version.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct everleaf_store everleaf_store;
typedef struct everleaf_table everleaf_table;
typedef struct everleaf_cursor everleaf_cursor;
typedef struct everleaf_batch everleaf_batch;
typedef struct everleaf_view everleaf_view;

/* Of the library, "1.2.3"; EVERLEAF_VERSION and its parts are those of this header. Each may be
 * NULL. */
const char* everleaf_version(int* major, int* minor, int* patch);

enum {
  EVERLEAF_OK = 0,
  /* What a call on entries answers; it has changed nothing. */
  EVERLEAF_EXISTS,
  EVERLEAF_ABSENT, /* the key, or a cursor's next place, is not there */
  EVERLEAF_OUT_OF_SPACE,
  EVERLEAF_KEY_TOO_LONG,
  EVERLEAF_READ_ONLY,
  EVERLEAF_IO_ERROR,
  EVERLEAF_CORRUPT,
  EVERLEAF_TOO_MANY_THREADS,
  EVERLEAF_NOT_EMPTY,
  EVERLEAF_NOT_ASCENDING,
  EVERLEAF_VALUE_TOO_LONG,
  EVERLEAF_BATCH_TOO_LARGE,
  EVERLEAF_DIFFERS,
  EVERLEAF_DROPPED,
  /* Of this face. */
  EVERLEAF_BUFFER_TOO_SMALL = 64,
  EVERLEAF_BAD_CALL, /* a NULL or a number that is not allowed there */
  /* What opening, checking and other rare calls answer. */
  EVERLEAF_NOT_A_POOL = 128,
  EVERLEAF_EMPTY_FILE,
  EVERLEAF_TRUNCATED,
  EVERLEAF_CORRUPT_POOL,
  EVERLEAF_NEWER_VERSION,
  EVERLEAF_OTHER_ENDIANNESS,
  EVERLEAF_WRONG_TREE,
  EVERLEAF_WRONG_KEY_TYPE,
  EVERLEAF_UNKNOWN_TREE,
  EVERLEAF_UNKNOWN_OPTION,
  EVERLEAF_BAD_OPTION,
  EVERLEAF_BAD_ARGUMENT,
  EVERLEAF_LOCKED,
  EVERLEAF_LOCKED_HERE,
  EVERLEAF_ALREADY_THERE,
  EVERLEAF_NOT_FOUND,
  EVERLEAF_PERMISSION,
  EVERLEAF_NO_SPACE,
  EVERLEAF_IO,
  EVERLEAF_DOMAIN_TOO_STRONG,
  EVERLEAF_POOL_READ_ONLY
};
const char* everleaf_strerror(int code);
const char* everleaf_message(void); /* until the next such call of this thread; "": none was */

/* --- Stores --- */
enum {
  EVERLEAF_OPEN_OR_CREATE = 0,
  EVERLEAF_CREATE = 1,
  EVERLEAF_OPEN = 2,
  EVERLEAF_OPEN_READ_ONLY = 3
};
enum { EVERLEAF_ANY = 0, EVERLEAF_BUFFERED = 1, EVERLEAF_STRICT = 2 };
/* What a crash leaves: everleaf/pool.hpp, Domain. */
enum {
  EVERLEAF_DOMAIN_DETECTED = 0, /* from the file's device and mapping */
  EVERLEAF_DOMAIN_VOLATILE,
  EVERLEAF_DOMAIN_PROCESS,
  EVERLEAF_DOMAIN_CACHE,
  EVERLEAF_DOMAIN_MEMORY,
  EVERLEAF_DOMAIN_DISK
};
#define EVERLEAF_PRIVATE_DEFAULT UINT64_MAX
typedef struct everleaf_options {
  size_t size;
  int mode;
  int durability;     /* EVERLEAF_ANY: what an existing store has; buffered for a new one */
  uint64_t epoch_ns;  /* length of an epoch of a buffered store; 0: sync alone ends them */
  uint64_t max_bytes; /* cap on the file's size; 0: none */
  int domain;
  int emulate;            /* not 0: a domain that the device does not give, to measure it */
  uint64_t private_bytes; /* on disks, what may be a private copy; PoolOptions::private_bytes */
  int huge_pages;         /* not 0: pages of 2 MiB where they may be had; PoolOptions::huge_pages */
  int reserved;           /* 0 */
} everleaf_options;
/* Fills the options that have their size; for bindings. */
int everleaf_fill_options(everleaf_options* options);
/* Begin with these. */
static inline void everleaf_default_options(everleaf_options* options) {
  if (options == NULL) return;
  options->size = sizeof *options;
  (void)everleaf_fill_options(options);
}
/* options: NULL for the defaults. EVERLEAF_UNKNOWN_OPTION: one that this library does not know is
 * not 0. */
int everleaf_open(const char* path, const everleaf_options* options, everleaf_store** store);
int everleaf_open_in_memory(const everleaf_options* options, everleaf_store** store);
/* This and the calls that close tables and cursors: where no other handle is left, the store is
 * closed, and the code tells how that went. */
int everleaf_close(everleaf_store* store);
int everleaf_sync(everleaf_store* store);
/* Of a buffered store; 0 and 0 of a strict one. What has returned belongs to *now or an earlier
 * epoch, and a crash loses nothing of *durable and of those before. Either may be NULL. */
int everleaf_epochs(everleaf_store* store, uint64_t* now, uint64_t* durable);
/* Returns when that epoch is durable. EVERLEAF_ABSENT: it has not begun. */
int everleaf_wait_durable(everleaf_store* store, uint64_t epoch);
int everleaf_backup(everleaf_store* store, const char* path);
/* `problem`, if not NULL, is called with each sentence; `count`, if not NULL, is their number. */
int everleaf_check(everleaf_store* store, void (*problem)(void* context, const char* sentence),
                   void* context, uint64_t* count);
typedef struct everleaf_info {
  size_t size;    /* set it before the call: sizeof info */
  int durability; /* EVERLEAF_BUFFERED or EVERLEAF_STRICT */
  int domain;     /* EVERLEAF_DOMAIN_VOLATILE to EVERLEAF_DOMAIN_DISK */
  int emulated;   /* not 0: the device does not give that domain */
  int read_only;
  int clean;         /* not 0: the store had been closed properly before */
  uint32_t replayed; /* redo records that opening applied */
  uint64_t file_bytes;
  uint64_t heap_bytes;   /* handed out so far; beyond it where opening ended a batch in memory */
  uint64_t record_bytes; /* memory for values, all of it */
  uint64_t records;      /* in it, those that wait to be free included */
  uint64_t open_ns;      /* what opening took, recovery included */
  uint64_t tables;
  uint64_t record_bytes_used; /* of record_bytes; the rest is free for values of any table */
  uint64_t records_waiting;   /* of records: free with their epoch, when no reader is left */
  uint64_t problems; /* tables that are damaged; `tables` may lack them, everleaf_check() tells */
  uint64_t lost_blocks; /* freed while memory was out; used again after the next open */
  uint32_t format;      /* version of the file's format */
  int header_damaged;   /* not 0: one of the two copies of the file's header */
  int from_image;       /* not 0: opening knew what is in use, and did not walk all keys */
  int reserved;
} everleaf_info;
int everleaf_get_info(everleaf_store* store, everleaf_info* info);

/* A table by its name and the kind of its keys. */
typedef struct everleaf_table_name {
  const char* name;
  int keys;
} everleaf_table_name;
/* What repair has copied of a table: RepairReport::Table in everleaf/store.hpp. */
typedef struct everleaf_repaired {
  size_t size; /* set by the library */
  const char* name;
  const char* tree; /* of the copy */
  int keys;
  int reserved;
  uint64_t read;           /* entries, as good as before the damage */
  uint64_t damaged_values; /* keys whose value is lost */
  uint64_t found;   /* entries without their tree: put once, maybe old, maybe removed since */
  uint64_t unclear; /* of them: with several values, of which one was taken */
} everleaf_repaired;
/* Begin with {.size = sizeof options}; what is 0 or NULL is not wanted. */
typedef struct everleaf_repair_options {
  size_t size;
  const everleaf_table_name* lost; /* tables whose directory entries are gone */
  size_t lost_count;
  void (*problem)(void* context, const char* sentence);
  void (*table)(void* context, const everleaf_repaired* table);
  void* context;
} everleaf_repair_options;
/* Copies what can be read of a store that may be damaged, and is not open, to a new one. The
 * callbacks come when it is there, with what lives until they return. *sound, if not NULL, tells
 * whether there was no damage: the answer is EVERLEAF_OK whenever the copy is there. options: NULL
 * for none. */
int everleaf_repair(const char* from, const char* to, const everleaf_repair_options* options,
                    int* sound);

/* --- Tables --- */
enum { EVERLEAF_KEYS_BYTES = 0, EVERLEAF_KEYS_U64 = 1 };
/* Opens or creates. tree: NULL for the default. */
int everleaf_table_open(everleaf_store* store, const char* name, int keys, const char* tree,
                        everleaf_table** table);
int everleaf_table_close(everleaf_table* table);
int everleaf_table_drop(everleaf_store* store, const char* name);
/* Each may be NULL; the texts live as long as the handle. Of dropped tables, too. */
int everleaf_table_describe(everleaf_table* table, const char** name, int* keys, const char** tree);
typedef struct everleaf_stats {
  size_t size; /* set it before the call: sizeof stats */
  uint64_t keys;
  uint64_t value_bytes; /* sum of the values' lengths */
  uint64_t height;      /* levels of inner nodes above the leaves */
  uint64_t inner_nodes;
  uint64_t leaf_nodes;
  uint64_t tree_bytes; /* of the file; keys included, values not */
  uint64_t dram_bytes;
} everleaf_stats;
int everleaf_table_stats(everleaf_table* table, everleaf_stats* stats); /* O(n) */
int everleaf_tables(everleaf_store* store,
                    void (*visit)(void* context, const char* name, int keys, const char* tree),
                    void* context);

/* A key: bytes, or a number for tables of EVERLEAF_KEYS_U64. The other kind is EVERLEAF_BAD_CALL.
 */
typedef struct everleaf_key {
  const void* data;
  size_t size;
  uint64_t number;
  int keys; /* EVERLEAF_KEYS_BYTES or EVERLEAF_KEYS_U64 */
} everleaf_key;
static inline everleaf_key everleaf_key_of(const void* data, size_t size) {
  everleaf_key key;
  key.data = data;
  key.size = size;
  key.number = 0;
  key.keys = EVERLEAF_KEYS_BYTES;
  return key;
}
static inline everleaf_key everleaf_key_u64(uint64_t number) {
  everleaf_key key;
  key.data = NULL;
  key.size = 0;
  key.number = number;
  key.keys = EVERLEAF_KEYS_U64;
  return key;
}

int everleaf_put(everleaf_table* table, everleaf_key key, const void* value, size_t size);
int everleaf_insert(everleaf_table* table, everleaf_key key, const void* value, size_t size);
int everleaf_update(everleaf_table* table, everleaf_key key, const void* value, size_t size);
int everleaf_erase(everleaf_table* table, everleaf_key key);
/* expected, desired: NULL and 0 for "not there"; desired: to erase. EVERLEAF_DIFFERS. */
int everleaf_compare_and_set(everleaf_table* table, everleaf_key key, const void* expected,
                             size_t expected_size, const void* desired, size_t desired_size);
/* Copies the value; *size is its size, of EVERLEAF_BUFFER_TOO_SMALL, too. NULL and 0 ask for it. */
int everleaf_get(everleaf_table* table, everleaf_key key, void* buffer, size_t capacity,
                 size_t* size);
/* The same into memory that everleaf_free() takes back. */
int everleaf_get_copy(everleaf_table* table, everleaf_key key, void** value, size_t* size);
void everleaf_free(void* value);
/* The value where it lies, without a copy: it does not change, whatever happens to the key. Close
 * the view soon, as until then no memory that the store frees is used again, and in the thread that
 * opened it: another's call is EVERLEAF_BAD_CALL, and the view stays. */
int everleaf_view_open(everleaf_table* table, everleaf_key key, const void** value, size_t* size,
                       everleaf_view** view);
int everleaf_view_close(everleaf_view* view);
/* 1 or 0; 0 for every refusal, too, which everleaf_get() would tell. */
int everleaf_contains(everleaf_table* table, everleaf_key key);
int everleaf_count(everleaf_table* table, uint64_t* count); /* O(n) */

/* --- Cursors: over from <= key < to; NULL: no bound. --- */
int everleaf_cursor_open(everleaf_table* table, const everleaf_key* from, const everleaf_key* to,
                         everleaf_cursor** cursor);
/* Over the keys that begin with these bytes. EVERLEAF_BAD_CALL for tables of EVERLEAF_KEYS_U64. */
int everleaf_cursor_open_prefix(everleaf_table* table, const void* prefix, size_t size,
                                everleaf_cursor** cursor);
int everleaf_cursor_close(everleaf_cursor* cursor);
/* EVERLEAF_ABSENT: there is no such place, and the cursor is nowhere. */
int everleaf_cursor_first(everleaf_cursor* cursor);
int everleaf_cursor_last(everleaf_cursor* cursor);
int everleaf_cursor_seek(everleaf_cursor* cursor, everleaf_key key);
int everleaf_cursor_seek_for_prev(everleaf_cursor* cursor, everleaf_key key);
int everleaf_cursor_next(everleaf_cursor* cursor);
int everleaf_cursor_prev(everleaf_cursor* cursor);
/* Where it is; until it moves. */
int everleaf_cursor_get(everleaf_cursor* cursor, everleaf_key* key, const void** value,
                        size_t* size);

/* --- Batches --- */
int everleaf_batch_create(everleaf_batch** batch);
void everleaf_batch_release(everleaf_batch* batch);
int everleaf_batch_put(everleaf_batch* batch, everleaf_table* table, everleaf_key key,
                       const void* value, size_t size);
int everleaf_batch_erase(everleaf_batch* batch, everleaf_table* table, everleaf_key key);
void everleaf_batch_clear(everleaf_batch* batch);
size_t everleaf_batch_count(const everleaf_batch* batch); /* writes in it; NULL: 0 */
int everleaf_apply(everleaf_store* store, everleaf_batch* batch);

#ifdef __cplusplus
}
#endif

#endif
