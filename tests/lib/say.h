/* SPDX-License-Identifier: BSD-3-Clause */
/* say.h - what a failure says beside its line: the size or seed of the loop that it came from, and
 * the variable that repeats it.
 *
 *	FOR_SEEDS (s, 300) { ... rng_below(&s.rng, 5) ... s.seed ... }
 *	for (...) {
 *		IN_CASE("bytes", sizes[i]);
 *
 * A case ends with its block. Failed asserts of cmocka, abort() and the SIGTERM of meson's time
 * limit print the cases that are open; a program with failures of its own calls say_cases. */
#ifndef TESTS_LIB_SAY_H
#define TESTS_LIB_SAY_H

#include "lib/rng.h"

/* TEST_SEED, or else this one. */
uint64_t test_seed(uint64_t otherwise);
/* A new one each time that the program runs; the same from then on. */
uint64_t test_seed_any(void);
/* TEST_ROUNDS, or else so many. */
unsigned long test_rounds(unsigned long otherwise);

void say_cases(void);

struct test_case {
	unsigned outer; /* how many cases are around it */
};
struct test_case case_begin(const char *what, uint64_t value);
void case_end(struct test_case *c);
#define CASE_NAME_(line) case_of_##line
#define CASE_AT_(line, what, value) \
	__attribute__((cleanup(case_end), unused)) struct test_case CASE_NAME_(line) = \
		case_begin(what, (uint64_t)(value))
#define IN_CASE(what, value) CASE_AT_(__LINE__, what, value)

/* n seeds (or TEST_ROUNDS of them), or TEST_SEED alone; each begins a stream of random numbers. */
struct seeds {
	uint64_t seed, end;
	struct rng rng;
	struct test_case c;
};
struct seeds seeds_of(uint64_t first, unsigned long n);
bool seeds_next(struct seeds *s);
void seeds_end(struct seeds *s);
#define FOR_SEEDS_FROM(s, first, n) \
	for (__attribute__((cleanup(seeds_end))) struct seeds s = seeds_of(first, n); \
		seeds_next(&(s));)
#define FOR_SEEDS(s, n) FOR_SEEDS_FROM (s, 1, n)

#endif
