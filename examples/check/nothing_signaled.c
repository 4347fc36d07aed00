/* SPDX-License-Identifier: BSD-3-Clause */
/* nothing_signaled.c - No request asks for a completion, so no slot of the send queue becomes free
 * again.
 *
 *   $ ropeway run --check -- ./nothing_signaled
 *   ropeway: error 105 never-signaled: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){.some_signaled = true, .sends = 8});
	for (uint64_t i = 0; i < 12; i++) {
		write_at(&p.a, i, 0, 64, &p.b, 0, 0);
		wait_ms(5);
	}
	pair_close(&p);
	return 0;
}
