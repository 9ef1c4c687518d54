/* The store from C: counts its runs. */
#include <everleaf/everleaf.h>

#include <stdio.h>
#include <string.h>

static int failed(const char* what, int code) {
  fprintf(stderr, "%s: %s: %s\n", what, everleaf_strerror(code), everleaf_message());
  return 1;
}

int main(void) {
  everleaf_store* store = NULL;
  everleaf_table* runs = NULL;
  const everleaf_key key = everleaf_key_of("hello", 5);
  unsigned long long count = 0; /* what earlier runs left */
  size_t size = 0;
  int code = everleaf_open("hello-c.pool", NULL, &store);
  if (code != EVERLEAF_OK) return failed("open", code);
  code = everleaf_table_open(store, "runs", EVERLEAF_KEYS_BYTES, NULL, &runs);
  if (code != EVERLEAF_OK) return failed("table", code);
  code = everleaf_get(runs, key, &count, sizeof count, &size);
  if (code != EVERLEAF_OK && code != EVERLEAF_ABSENT) return failed("get", code);
  count += 1;
  code = everleaf_put(runs, key, &count, sizeof count);
  if (code != EVERLEAF_OK) return failed("put", code);
  code = everleaf_sync(store); /* durable from here on */
  if (code != EVERLEAF_OK) return failed("sync", code);
  everleaf_table_close(runs);
  code = everleaf_close(store);
  if (code != EVERLEAF_OK) return failed("close", code);
  printf("run %llu\n", count);
  return 0;
}
