/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - comms, and the checks of them in every call: that they are ours, and that the table that
 * is called is the one they were made by. */
#include "nccl/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLUSH_SPIN_NS = 100000 };
static const uint64_t comm_magic = 0x6d6d6f632d777072; /* "rpw-comm" */
static const char *const kind_names[] = {
	[PLUGIN_LISTEN] = "listen", [PLUGIN_SEND] = "send", [PLUGIN_RECV] = "receive"};

struct plugin_comm *plugin_comm_new(
	enum plugin_kind kind, int abi, struct comm_context *cc, const struct plugin_device *d)
{
	unsigned requests = kind == PLUGIN_LISTEN ? 0 : PLUGIN_REQUESTS;
	struct plugin_comm *c = calloc(1, sizeof(*c) + requests * sizeof(c->request[0]));
	if (!c) {
		plugin_warn("no memory for a %s comm", kind_names[kind]);
		return NULL;
	}
	c->magic = comm_magic;
	c->abi = abi;
	c->kind = kind;
	c->cc = cc;
	c->device = d;
	rpwi_list_init(&c->memories);
	memset((void *)c->unused, 0xff, sizeof(c->unused));
	for (unsigned i = 0; i < requests; i++)
		c->request[i].comm = c;
	return c;
}

void plugin_comm_free(struct plugin_comm *c)
{
	c->magic = 0;
	free(c);
}

int plugin_comm_check(const void *comm, int kind, int abi, const char *call)
{
	const struct plugin_comm *c = comm;
	if (RPWI_LIKELY(c && c->magic == comm_magic && c->abi == abi &&
			(kind < 0 ? c->kind != PLUGIN_LISTEN : (int)c->kind == kind)))
		return NCCL_SUCCESS;
	if (!c || c->magic != comm_magic) {
		plugin_warn("%s of v%d was given %p, which is not a comm of this plugin%s", call,
			abi, comm, c ? " (was it closed already?)" : "");
		return NCCL_INVALID_ARGUMENT;
	}
	if (c->abi != abi) {
		plugin_warn("%s of plugin API v%d was given a comm made by v%d: one version's "
			    "table has to be used throughout",
			call, abi, c->abi);
		return NCCL_INVALID_USAGE;
	}
	plugin_warn("%s was given a %s comm", call, kind_names[c->kind]);
	return NCCL_INVALID_ARGUMENT;
}

int plugin_comm_failed(struct plugin_comm *c, int status, const char *doing)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	if (!rpw_endpoint_info(c->ep, &i) && i.status && status != RPW_ERR_TRUNCATED)
		status = i.status; /* why it ended says more than what that did to this request */
	if (!c->warned)
		plugin_warn("%s peer %s: %s (%s): %s", doing, c->peer, rpw_status_name(status),
			i.why && *i.why ? i.why : rpw_last_error(), plugin_advice(status));
	c->warned = true;
	return plugin_result(status);
}

void plugin_comm_say(struct plugin_comm *c, const char *what)
{
	rpw_endpoint_information i = {.size = sizeof(i)};
	if (rpw_endpoint_info(c->ep, &i))
		return;
	snprintf(c->peer, sizeof(c->peer), "%s", i.peer);
	c->may_hold = strcmp(i.transport, "shm") != 0;
	plugin_info("%s %s by %s (%s) on %s: %s", what, i.peer, i.transport, i.path,
		c->device->name, i.why);
}

/* ---- closing ---- */

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
