/* SPDX-License-Identifier: BSD-3-Clause */
/* freed_buffer.c - A buffer is freed while the request that reads it waits for the peer.
 *
 *   $ ropeway run --check -- ./freed_buffer
 *   ropeway: error 215 memory-freed: ... */
#include "pair.h"

#include <stdlib.h>

int main(void)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED);
	free(p.a.buf); /* an early return, say */
	p.a.buf = NULL;
	wait_ms(5);
	return 0;
}
