/* SPDX-License-Identifier: BSD-3-Clause */
/* longest_timer.c - min_rnr_timer 0 looks like the shortest one. It is the longest: 655 ms for
 * each message that comes before its receive.
 *
 *   $ ropeway run --check -- ./longest_timer
 *   ropeway: warning 208 min-rnr-0: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){.min_rnr_1 = 1 + 0});
	pair_close(&p);
	return 0;
}
