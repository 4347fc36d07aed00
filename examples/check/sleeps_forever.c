/* SPDX-License-Identifier: BSD-3-Clause */
/* sleeps_forever.c - The program polls, finds nothing, arms the CQ and sleeps. What comes between
 * the poll and the arming makes no event: one message in a million, and the program hangs.
 *
 *   $ ropeway run --check -- ./sleeps_forever
 *   ropeway: warning 114 armed-late: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;
	recv_at(&p.b, 1, 0, 64);
	while (ibv_poll_cq(p.b.cq, 1, &wc))
		;
	ibv_req_notify_cq(p.b.cq, 0);
	/* here: one more poll */
	send_at(&p.a, 1, 0, 64, IBV_SEND_SIGNALED);
	ibv_get_cq_event(p.b.channel, &cq, &context);
	ibv_ack_cq_events(cq, 1);
	poll_good(p.b.cq);
	poll_good(p.a.cq);
	pair_close(&p);
	return 0;
}
