/* SPDX-License-Identifier: BSD-3-Clause */
/* hist.h - a histogram as HdrHistogram's: buckets whose width grows with their values, so that any
 * value is known to one part in 1024, in bounded memory. (HdrHistogram's C library is not packaged
 * in Debian 12.) */
#ifndef ROPEWAY_CLI_PERF_HIST_H
#define ROPEWAY_CLI_PERF_HIST_H

#include <stdint.h>

enum {
	PERF_HIST_BITS = 10, /* of a value that are kept */
	PERF_HIST_SUB = 1 << PERF_HIST_BITS,
	PERF_HIST_BUCKETS = PERF_HIST_SUB * (32 - PERF_HIST_BITS + 1),
};

struct perf_hist {
	uint64_t n, sum;
	uint32_t least, most;
	uint64_t count[PERF_HIST_BUCKETS];
};

/* Values below 2 * SUB have a bucket each; above, the top bits after the leading one choose. */
static inline uint32_t perf_hist_bucket(uint32_t v)
{
	unsigned shift =
		v < 2 * PERF_HIST_SUB ? 0 : 31u - (unsigned)__builtin_clz(v) - PERF_HIST_BITS;
	return (shift << PERF_HIST_BITS) + (v >> shift);
}

static inline void perf_hist_add(struct perf_hist *h, uint32_t v)
{
	h->least = h->n && h->least < v ? h->least : v;
	h->most = h->most > v ? h->most : v;
	h->n++;
	h->sum += v;
	h->count[perf_hist_bucket(v)]++;
}

/* The middle of the bucket that a share (0..1) of the values does not go beyond; never outside of
 * the added values. */
double perf_hist_at(const struct perf_hist *h, double share);

/* Sorts them. */
double rpwi_perf_median(double *v, unsigned n);

#endif
