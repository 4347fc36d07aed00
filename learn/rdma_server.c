/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_server.c - wait for an rdma_client, receive a message on each queue pair, answer each.
 *
 * Read this file first, then rdma_client.c: main() is the order of the protocol. Both use the steps
 * of steps.c and the TCP connection of exchange.c. */
#include "hand.h"

static void check_and_answer(struct rdma *r, struct completion c)
{
	message_check(r->receive_buffer[c.qp], c, ROLE_CLIENT, r->remote.message_bytes, &r->remote);
	message_write(r->send_buffer[c.qp], c.bytes, ROLE_SERVER, c.qp, &r->local);
	post_send(r, c.qp, c.bytes);
}

int main(int argc, char **argv)
{
	struct options opt;
	struct rdma r = {.opt = &opt};
	struct exchange x = {.fd = -1};

	hand_options(&opt, ROLE_SERVER, argc, argv);
	on_exit(exchange_close, &x); /* wherever this program ends, the client is told */

	/* Objects of this side alone. */
	init_rdma_resources(&r);
	modify_qp_to_init(&r);
	post_receives(&r);

	/* Who is there? */
	con_data_describe(&r);
	say_step(8, "exchange QPN, LID, GID, PSN and MTU with the client over TCP.");
	exchange_accept(&x, &opt);
	sock_sync_data(&x, &opt, &r.local, &r.remote);
	con_data_show(&r);

	/* Connect the queue pairs. */
	modify_qp_to_rtr(&r);
	modify_qp_to_rts(&r);

	/* Only now may the client send: the receives are posted and the QPs can take messages. */
	say_step(11, "tell the client over TCP that this side is ready: its messages find a "
		     "receive.");
	exchange_tell(&x, KIND_READY);
	say_step(12, "poll the completion queue for the client's messages, and answer each with as "
		     "many bytes.");
	for (unsigned i = 0; i < 2 * opt.qps; i++) { /* of each QP a receive and a send */
		struct completion c = poll_completion(&r, &x);

		if (c.work == WORK_RECEIVE)
			check_and_answer(&r, c);
	}
	say("%u answer(s) sent, and acknowledged by the client's device", opt.qps);

	/* A QP that is destroyed answers no repetition: nobody leaves before the other has
	 * all. */
	say_step(13, "wait until the client has all answers, then close everything in reverse "
		     "order.");
	exchange_await(&x, KIND_DONE);
	exchange_tell(&x, KIND_DONE);
	close_rdma_resources(&r);
	say("Done: every message arrived as it was sent.");
	exit(EXIT_SUCCESS); /* while x is still there */
}
