/* SPDX-License-Identifier: BSD-3-Clause */
/* dereg_in_flight.c - A region is deregistered although a receive into it is posted.
 *
 *   $ ropeway run --check -- ./dereg_in_flight
 *   ropeway: error 104 mr-in-use: ... */
#include "pair.h"

int main(void)
{
	struct pair p = pair_open(&(struct wish){0});
	recv_at(&p.b, 1, 0, 4096);
	ibv_dereg_mr(p.b.mr);
	p.b.mr = NULL;
	send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED);
	struct ibv_wc wc;
	poll_one(p.b.cq, &wc);
	poll_one(p.a.cq, &wc);
	pair_close(&p);
	return 0;
}
