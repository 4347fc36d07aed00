/* SPDX-License-Identifier: BSD-3-Clause */
/* hand.h - what rdma_server and rdma_client share apart from RDMA: options, and the text of the
 * messages. */
#ifndef LEARN_HAND_H
#define LEARN_HAND_H

#include "steps.h"

void hand_options(struct options *opt, enum role role, int argc, char **argv);

/* Write the message that `role` sends on its QP number `qp` (from 0). It depends on the QPN and the
 * PSN, both drawn anew for each run, so neither an old message nor one of another QP can be taken
 * for it. Printable ASCII throughout. */
void message_write(char *buffer, size_t bytes, enum role role, unsigned qp,
	const struct cm_con_data_t *sender);
/* Is `got`, the receive that is complete, what the peer has sent there? Prints its beginning. */
void message_check(const char *got, struct completion c, enum role role, size_t bytes,
	const struct cm_con_data_t *sender);

#endif
