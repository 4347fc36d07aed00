/* SPDX-License-Identifier: BSD-3-Clause */
/* rng.h - random numbers of the tests: splitmix64, the same on every machine. A stream for each
 * purpose: a change of one leaves the others as they were. C11 and C++17. */
#ifndef TESTS_LIB_RNG_H
#define TESTS_LIB_RNG_H

#include <stdbool.h>
#include <stdint.h>

#define RNG_STEP 0x9e3779b97f4a7c15ull

struct rng {
	uint64_t state; /* the seed, at first */
};

static inline uint64_t rng_mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}
/* One number of two. */
static inline uint64_t rng_mix2(uint64_t a, uint64_t b)
{
	return rng_mix(a * RNG_STEP + rng_mix(b + RNG_STEP));
}
static inline uint64_t rng_next(struct rng *r) { return rng_mix(r->state += RNG_STEP); }
/* Less than n; n may be 0 for 0. */
static inline uint64_t rng_below(struct rng *r, uint64_t n)
{
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)((wide)rng_next(r) * n >> 64);
}
static inline uint64_t rng_between(struct rng *r, uint64_t lo, uint64_t hi)
{
	return lo + rng_below(r, hi - lo + 1);
}
static inline bool rng_one_in(struct rng *r, uint64_t n) { return !rng_below(r, n); }
static inline bool rng_chance(struct rng *r, double p)
{
	return (double)(rng_next(r) >> 11) * 0x1p-53 < p;
}

#endif
