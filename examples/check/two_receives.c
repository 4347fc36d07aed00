/* SPDX-License-Identifier: BSD-3-Clause */
/* two_receives.c - Two receives have a part of a buffer in common: the second message overwrites
 * the end of the first.
 *
 *   $ ropeway run --check -- ./two_receives
 *   ropeway: error 103 buffer-reposted: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	recv_at(&p.b, 1, 0, 64);
	recv_at(&p.b, 2, 32, 64); /* 64, 64 was meant */
	send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED);
	send_at(&p.a, 2, 64, 64, IBV_SEND_SIGNALED);
	for (int i = 0; i < 2; i++) {
		poll_good(p.a.cq);
		poll_good(p.b.cq);
	}
	pair_close(&p);
	return 0;
}
