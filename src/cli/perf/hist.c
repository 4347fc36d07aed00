/* SPDX-License-Identifier: BSD-3-Clause */
/* hist.c - what a histogram says, and the middle of a few figures. */
#include "cli/perf/hist.h"

#include <stdlib.h>

#include "base/base.h"

static double middle_of(uint32_t bucket)
{
	unsigned shift = bucket < 2 * PERF_HIST_SUB ? 0 : (bucket >> PERF_HIST_BITS) - 1;
	double low = (double)((uint64_t)(bucket - (shift << PERF_HIST_BITS)) << shift);
	return low + (double)((1ull << shift) - 1) / 2;
}

double perf_hist_at(const struct perf_hist *h, double share)
{
	double wanted = share * (double)h->n;
	uint64_t seen = 0;
	for (uint32_t b = 0; b < PERF_HIST_BUCKETS; b++) {
		seen += h->count[b];
		if (!h->count[b] || (double)seen < wanted)
			continue;
		double v = middle_of(b);
		return RPWI_MAX(RPWI_MIN(v, (double)h->most), (double)h->least);
	}
	return h->most;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double rpwi_perf_median(double *v, unsigned n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), ascending);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}
