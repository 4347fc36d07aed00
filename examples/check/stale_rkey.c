/* SPDX-License-Identifier: BSD-3-Clause */
/* stale_rkey.c - The peer writes by a key whose region is gone: it was told of the region, and
 * never that it went.
 *
 *   $ ropeway run --check -- ./stale_rkey
 *   ropeway: error 216 key-stale: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr told = *p.b.mr; /* what the peer knows */
	struct half b = p.b;
	struct ibv_wc wc;
	ibv_dereg_mr(p.b.mr);
	p.b.mr = NULL;
	b.mr = &told;
	write_at(&p.a, 1, 0, 64, &b, 0, IBV_SEND_SIGNALED);
	poll_one(p.a.cq, &wc);
	pair_close(&p);
	return 0;
}
