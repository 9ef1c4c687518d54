# Every target sets up what it needs; `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test python soak bench crash mutants fuzz lint format install

# Compilers at once.
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
BENCH_ARGS ?= --records 1000000
# Seconds of `make crash`.
CRASH_BUDGET ?= 600
# Seconds of `make soak`; a round that has begun is finished.
SOAK_BUDGET ?= 600
# Seconds of each target of `make fuzz`.
FUZZ_SECONDS ?= 120
CTEST := ctest -j $(JOBS) --output-on-failure --no-tests=error

help: ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: ## Load a word list, kill the process half-way, prove that nothing was lost
	@scripts/bootstrap demo
	@cmake -S . -B build/demo -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DEVERLEAF_TESTS=OFF -DEVERLEAF_BENCH=OFF -DEVERLEAF_ONE_UNIT=all >/dev/null
	@cmake --build build/demo -j $(JOBS) --target everleaf-cli
	@build/demo/cli/everleaf demo

test: ## Release, ASan+UBSan and TSan builds with their tests, lint, and the tests of the program
	@scripts/bootstrap build test crash lint
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)
	@$(CTEST) --test-dir build/release -LE cli
	@cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@$(CTEST) --test-dir build/asan -LE "cli|scripts|consumer"
	@cmake --preset tsan
	@cmake --build --preset tsan -j $(JOBS)
	@$(CTEST) --test-dir build/tsan -L concurrent
	@$(MAKE) --no-print-directory python lint
	@$(CTEST) --test-dir build/asan -L cli
	@$(CTEST) --test-dir build/release -L cli

python: ## Build the Python package for build/venv, check its types, run its tests
	@scripts/bootstrap build python
	@[[ -x build/venv/bin/python ]] || python3 -m venv build/venv
	@build/venv/bin/pip install --quiet --disable-pip-version-check \
	  --config-settings=cmake.define.EVERLEAF_ONE_UNIT=all '.[test]'
	@build/venv/bin/mypy
	@build/venv/bin/python -m pytest -q
	@build/venv/bin/python tests/readme/readme_test.py python

soak: ## The scenarios again and again, each time with new random numbers (SOAK_BUDGET=600)
	@scripts/bootstrap build test
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS)
	@cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@end=$$((SECONDS + $(SOAK_BUDGET))); while [[ $$SECONDS -lt $$end ]]; do \
	  for build in release asan; do \
	    EVERLEAF_TEST_SEED=random $(CTEST) --test-dir build/$$build -L "semantics|damage"; \
	  done; \
	done

bench: ## Measure the trees beside their rivals; BENCH_ARGS="--index ... --records ..."
	@scripts/bootstrap bench
	@cmake --preset bench
	@cmake --build --preset bench -j $(JOBS)
	@build/bench/cli/everleaf bench $(BENCH_ARGS)

crash: ## Crash every tree at every point for ten minutes (CRASH_BUDGET=600)
	@scripts/bootstrap build test crash
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target everleaf-crash
	@build/release/crash/everleaf-crash --budget $$(($(CRASH_BUDGET) * 6 / 20))
	@build/release/crash/everleaf-crash --store --budget $$(($(CRASH_BUDGET) / 20))
	@build/release/crash/everleaf-crash --permuted --budget $$(($(CRASH_BUDGET) / 20))
	@build/release/crash/everleaf-crash --domain disk --budget $$(($(CRASH_BUDGET) / 5))
	@build/release/crash/everleaf-crash --domain process --nested 1 --budget $$(($(CRASH_BUDGET) / 20))
	@build/release/crash/everleaf-crash --domain cache --nested 1 --budget $$(($(CRASH_BUDGET) / 20))
	@build/release/crash/everleaf-crash --exhaustive 3 --budget $$(($(CRASH_BUDGET) / 10))
	@build/release/crash/everleaf-crash --threads 2 --budget $$(($(CRASH_BUDGET) * 7 / 100))
	@build/release/crash/everleaf-crash --threads 3 --budget $$(($(CRASH_BUDGET) * 7 / 100))
	@for threads in 1 2 3; do for domain in memory disk; do \
	  build/release/crash/everleaf-crash --pmwcas --threads $$threads --domain $$domain \
	    --budget $$(($(CRASH_BUDGET) / 100)); \
	done; done
	@build/release/crash/everleaf-crash --pmwcas --all-schedules --budget $(CRASH_BUDGET)
	@build/release/crash/everleaf-crash --counts

mutants: ## Would the crash checker notice? Drop flushes and fences, plant bugs, verify its hooks (an hour)
	@scripts/bootstrap build test crash
	@cmake --preset release
	@cmake --build --preset release -j $(JOBS) --target everleaf-crash
	@build/release/crash/everleaf-crash --planted --budget 20
	@build/release/crash/everleaf-crash --mutate --budget 300
	@build/release/crash/everleaf-crash --mutate --store --budget 60
	@cmake --preset verify
	@cmake --build --preset verify -j $(JOBS)
	@for mode in "" --store --permuted "--domain disk" "--domain process --nested 1" "--threads 2" \
	    "--pmwcas --threads 2"; do \
	  build/verify/crash/everleaf-crash $$mode --budget 30; \
	done

fuzz: ## Feed pools, files and calls that a fuzzer makes up (FUZZ_SECONDS=120 for each target)
	@scripts/bootstrap build fuzz
	@cmake --preset fuzz
	@cmake --build --preset fuzz -j $(JOBS)
	@for target in pool operations load; do \
	  mkdir -p build/fuzz/found/$$target; \
	  build/fuzz/fuzz/everleaf-fuzz-$$target -max_total_time=$(FUZZ_SECONDS) -timeout=30 \
	    -max_len=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/found/ \
	    build/fuzz/found/$$target fuzz/corpus/$$target; \
	done

lint: ## Check the format and the rules of the house
	@scripts/bootstrap lint
	@scripts/lint --format
	@scripts/lint

format: ## Format every C++ source
	@scripts/bootstrap lint
	@scripts/lint --list-sources | xargs clang-format-14 -i

install: ## Install the library and the program below PREFIX
	@scripts/bootstrap build
	@cmake -S . -B build/install -G Ninja -DCMAKE_BUILD_TYPE=Release \
	  -DEVERLEAF_TESTS=OFF -DEVERLEAF_BENCH=OFF -DEVERLEAF_CRASH=OFF
	@cmake --build build/install -j $(JOBS)
	@cmake --install build/install --prefix $(PREFIX)
