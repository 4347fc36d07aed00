/* SPDX-License-Identifier: BSD-3-Clause */
/* late_receive.c - The receive is posted after the peer has sent. It works, since the peer tries
 * again; with rnr_retry 0, or where nobody posts for a while, it does not.
 *
 *   $ ropeway run --check -- ./late_receive
 *   ropeway: warning 201 recv-late: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED);
	wait_ms(2); /* setting something up */
	recv_at(&p.b, 1, 0, 64);
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
	return 0;
}
