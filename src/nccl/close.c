/* SPDX-License-Identifier: BSD-3-Clause */
/* close.c - comms are closed: at once, or left to the progress thread until the peer has all. */
#include "nccl/plugin.h"

enum { FLUSH_SPIN_NS = 100000 };

static bool work_in_flight(struct plugin_comm *c)
{
	for (unsigned i = 0; i < PLUGIN_REQUESTS; i++)
		if (plugin_request_busy(&c->request[i]))
			return true;
	return false;
}

static void requests_end(struct plugin_comm *c)
{
	for (unsigned i = 0; i < PLUGIN_REQUESTS; i++)
		if (plugin_request_busy(&c->request[i]))
			plugin_request_abandon(&c->request[i]);
}

/* Nobody has a say in it any more: its endpoint goes, and the comm. */
static void comm_end(struct plugin_comm *c)
{
	if (c->flush)
		rpw_request_destroy(c->flush);
	rpw_endpoint_destroy(c->ep);
	requests_end(c);
	plugin_memories_free(c);
	plugin_comm_free(c);
}

static bool flushed(struct comm_tail *t, uint64_t now_ns)
{
	struct plugin_comm *c = RPWI_CONTAINER_OF(t, struct plugin_comm, tail);
	bool waits = rpw_request_test(c->flush, NULL) == RPW_IN_PROGRESS;
	if (waits && now_ns < t->until_ns)
		return false;
	if (waits)
		plugin_info("peer %s did not confirm within %d ms that it received everything: "
			    "closing the connection anyway",
			c->peer, PLUGIN_CLOSE_MS);
	comm_end(c);
	return true;
}

/* Everything that was sent is to be at the peer's side, and its word on what came from it is to be
 * here; but not for longer than PLUGIN_CLOSE_MS. A peer that polls says so within FLUSH_SPIN_NS;
 * one that does not is waited for by the progress thread. True: that has the comm now. */
static bool flush(struct plugin_comm *c)
{
	struct comm_context *l = c->cc;
	uint64_t began_ns = rpwi_now_ns();
	if (rpw_endpoint_flush(c->ep, &c->flush) != RPW_IN_PROGRESS)
		return false;
	while (rpw_request_test(c->flush, NULL) == RPW_IN_PROGRESS)
		if (rpw_context_progress(l->c) < 0 || rpwi_now_ns() - began_ns > FLUSH_SPIN_NS)
			return true;
	return false;
}

int plugin_close(int abi, void *comm, enum plugin_kind kind)
{
	struct plugin_comm *c = comm;
	int rc = plugin_comm_check(comm, (int)kind, abi, "close");
	if (rc)
		return rc;
	struct comm_context *l = c->cc;
	comm_context_enter(l);
	if (kind == PLUGIN_LISTEN) {
		plugin_listen_close(c);
		plugin_comm_free(c);
	} else {
		rpw_context_progress(l->c);
		bool waits = !work_in_flight(c) && flush(c);
		if (waits) {
			plugin_memories_free(c);
			c->magic = 0;
			c->tail = (struct comm_tail){
				.until_ns = rpwi_now_ns() + PLUGIN_CLOSE_MS * RPWI_NS_PER_MS,
				.over = flushed};
			comm_context_leave_tail(l, &c->tail);
			return NCCL_SUCCESS;
		}
		comm_end(c);
	}
	comm_context_leave(l);
	comm_context_drop(l);
	return NCCL_SUCCESS;
}
