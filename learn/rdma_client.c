/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_client.c - call an rdma_server, send a message on each queue pair, receive the answers.
 *
 * The steps are the server's; what differs is who waits for whom. */
#include "hand.h"

int main(int argc, char **argv)
{
	struct options opt;
	struct rdma r = {.opt = &opt};
	struct exchange x = {.fd = -1};

	hand_options(&opt, ROLE_CLIENT, argc, argv);
	on_exit(exchange_close, &x); /* wherever this program ends, the server is told */

	/* Objects of this side alone. */
	init_rdma_resources(&r);
	modify_qp_to_init(&r);
	post_receives(&r);

	/* Who is there? */
	con_data_describe(&r);
	say_step(8, "exchange QPN, LID, GID, PSN and MTU with the server over TCP.");
	exchange_connect(&x, &opt);
	sock_sync_data(&x, &opt, &r.local, &r.remote);
	con_data_show(&r);

	/* Connect the queue pairs. */
	modify_qp_to_rtr(&r);
	modify_qp_to_rts(&r);

	say_step(11, "wait for the server's word over TCP that it is ready.");
	exchange_await(&x, KIND_READY);
	say_step(12,
		"send a message of %u bytes on each QP. Posting returns at once, the device does "
		"the work.",
		opt.message_bytes);
	for (unsigned i = 0; i < opt.qps; i++) {
		message_write(r.send_buffer[i], opt.message_bytes, ROLE_CLIENT, i, &r.local);
		post_send(&r, i, opt.message_bytes);
	}
	say_step(13, "poll the completion queue: for each QP one note that the message was sent, "
		     "and one that the answer is there.");
	for (unsigned i = 0; i < 2 * opt.qps; i++) {
		struct completion c = poll_completion(&r, &x);

		if (c.work == WORK_RECEIVE)
			message_check(r.receive_buffer[c.qp], c, ROLE_SERVER, opt.message_bytes,
				&r.remote);
	}

	/* A QP that is destroyed answers no repetition: nobody leaves before the other has
	 * all. */
	say_step(14, "tell the server that all answers are here, then close everything in reverse "
		     "order.");
	exchange_tell(&x, KIND_DONE);
	exchange_await(&x, KIND_DONE);
	close_rdma_resources(&r);
	say("Done: every message arrived as it was sent.");
	exit(EXIT_SUCCESS); /* while x is still there */
}
