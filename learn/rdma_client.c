/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_client.c - call an rdma_server, send a message on each queue pair, receive the answers.
 *
 * The steps are the server's; what differs is who waits for whom. */
#include "hand.h"

int main(int argc, char **argv)
{
	struct rdma r = {.tcp = -1};

	hand_options(&r.opt, ROLE_CLIENT, argc, argv);
	on_exit(exchange_close, &r); /* wherever this program ends, the server is told */

	/* Objects of this side alone. */
	init_rdma_resources(&r);
	modify_qp_to_init(&r);
	post_receives(&r);

	/* Who is there? */
	con_data_describe(&r);
	printf("Step 8: exchange QPN, LID, GID, PSN and MTU with the server over TCP.\n");
	exchange_connect(&r);
	sock_sync_data(&r);
	con_data_show(&r);

	/* Connect the queue pairs. */
	modify_qp_to_rtr(&r);
	modify_qp_to_rts(&r);

	printf("Step 11: wait for the server's word over TCP that it is ready.\n");
	exchange_await(&r, KIND_READY);
	printf("Step 12: send a message of %u bytes on each QP. Posting returns at once, the "
	       "device does the work.\n",
		r.opt.message_bytes);
	for (unsigned i = 0; i < r.opt.qps; i++) {
		message_write(&r, i);
		post_send(&r, i);
	}
	printf("Step 13: poll the completion queue: for each QP one note that the message was "
	       "sent, and one that the answer is there.\n");
	for (unsigned i = 0; i < 2 * r.opt.qps; i++) {
		struct completion c = poll_completion(&r);

		if (c.work == WORK_RECEIVE)
			message_check(&r, c);
	}

	/* A QP that is destroyed answers no repetition: nobody leaves before the other has
	 * all. */
	printf("Step 14: tell the server that all answers are here, then close everything in "
	       "reverse order.\n");
	exchange_tell(&r, KIND_DONE);
	exchange_await(&r, KIND_DONE);
	close_rdma_resources(&r);
	printf("    Done: every message arrived as it was sent.\n");
	exit(EXIT_SUCCESS); /* while r is still there */
}
