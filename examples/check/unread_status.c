/* SPDX-License-Identifier: BSD-3-Clause */
/* unread_status.c - Nobody looks at the status of a completion, so the program goes on after its
 * QP is dead. Nine poll loops of one library did this: each message after the first failure was
 * lost, without a word.
 *
 *   $ ropeway run --check -- ./unread_status
 *   ropeway: error 101 error-ignored: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_wc wc;
	/* 64 bytes too many: the peer's region ends there */
	write_at(&p.a, 1, 0, 128, &p.b, BUFFER - 64, IBV_SEND_SIGNALED);
	for (uint64_t i = 2; i < 6; i++) {
		poll_one(p.a.cq, &wc); /* and wc.status? */
		send_at(&p.a, i, 0, 64, IBV_SEND_SIGNALED);
	}
	pair_close(&p);
	return 0;
}
