/* SPDX-License-Identifier: BSD-3-Clause */
/* here.c - the HCA of this process, its QPs by number, and how its thread is woken: what all others
 * stand on. */
#include <unistd.h>

#include "device/hca.h"

struct hca hca_here = {
	.generation = 1,
	.path_turn = 1,
	.contexts = {&hca_here.contexts, &hca_here.contexts},
	.peers = {&hca_here.peers, &hca_here.peers},
	.waited = {&hca_here.waited, &hca_here.waited},
	.tx_list = {&hca_here.tx_list, &hca_here.tx_list},
	.held = {&hca_here.held, &hca_here.held},
	.touched = {&hca_here.touched, &hca_here.touched},
	.steer_fd = -1,
	.watch_fd = -1,
	.wake_fd = -1,
};

struct dqp *qp_lookup(uint32_t qpn)
{
	struct hca *h = &hca_here;
	uint32_t slot = qpn >> RPWI_SLOT_SHIFT;
	for (unsigned i = 0; i < h->nslots; i++)
		if (h->slots[i] == slot)
			return h->qps[i] ? h->qps[i][qpn & (RPWI_SLOT_QPNS - 1)] : NULL;
	return NULL;
}

void service_wake(void)
{
	uint64_t one = 1;
	rpwi_shield();
	if (hca_here.wake_fd >= 0 && hca_here.service_running &&
		write(hca_here.wake_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		rpwi_error("service thread: cannot wake it: %s", strerror(errno));
}
