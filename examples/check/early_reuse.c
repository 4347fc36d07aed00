/* SPDX-License-Identifier: BSD-3-Clause */
/* early_reuse.c - The next message is written into the buffer while the last one is still under
 * way.
 *
 *   $ ropeway run --check -- ./early_reuse
 *   ropeway: error 213 buffer-changed: ... */
#include "pair.h"

#include <string.h>

int main(void)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED);
	memset(p.a.buf, 'b', 4096); /* the completion of `1` was not polled */
	recv_at(&p.b, 1, 0, 4096);
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
	return 0;
}
