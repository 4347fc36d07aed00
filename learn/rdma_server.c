/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_server.c - wait for an rdma_client, receive a message on each queue pair, answer each.
 *
 * Read this file first, then rdma_client.c: main() is the order of the protocol. Both use the steps
 * of steps.c and the TCP connection of exchange.c. */
#include "hand.h"

int main(int argc, char **argv)
{
	struct rdma r = {.tcp = -1};

	hand_options(&r.opt, ROLE_SERVER, argc, argv);
	on_exit(exchange_close, &r); /* wherever this program ends, the client is told */

	/* Objects of this side alone. */
	init_rdma_resources(&r);
	modify_qp_to_init(&r);
	post_receives(&r);

	/* Who is there? */
	con_data_describe(&r);
	printf("Step 8: exchange QPN, LID, GID, PSN and MTU with the client over TCP.\n");
	exchange_accept(&r);
	sock_sync_data(&r);
	con_data_show(&r);

	/* Connect the queue pairs. */
	modify_qp_to_rtr(&r);
	modify_qp_to_rts(&r);

	/* Only now may the client send: the receives are posted and the QPs can take messages. */
	printf("Step 11: tell the client over TCP that this side is ready: its messages find a "
	       "receive.\n");
	exchange_tell(&r, KIND_READY);
	printf("Step 12: poll the completion queue for the client's messages, and answer each with "
	       "as many bytes.\n");
	for (unsigned i = 0; i < 2 * r.opt.qps; i++) { /* of each QP a receive and a send */
		struct completion c = poll_completion(&r);

		if (c.work == WORK_RECEIVE) {
			message_check(&r, c);
			message_write(&r, c.qp);
			post_send(&r, c.qp);
		}
	}
	printf("    %u answer(s) sent, and acknowledged by the client's device\n", r.opt.qps);

	/* A QP that is destroyed answers no repetition: nobody leaves before the other has
	 * all. */
	printf("Step 13: wait until the client has all answers, then close everything in reverse "
	       "order.\n");
	exchange_await(&r, KIND_DONE);
	exchange_tell(&r, KIND_DONE);
	close_rdma_resources(&r);
	printf("    Done: every message arrived as it was sent.\n");
	exit(EXIT_SUCCESS); /* while r is still there */
}
