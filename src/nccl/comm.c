/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - comms, and the checks of them in every call: that they are ours, and that the table that
 * is called is the one they were made by. */
#include "nccl/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		plugin_warn("%s of %s was given %s, which is not a comm of this plugin%s", call,
			PLUGIN_API(abi), RPWI_AT(comm), c ? " (was it closed already?)" : "");
		return NCCL_INVALID_ARGUMENT;
	}
	if (c->abi != abi) {
		plugin_warn("%s of plugin API %s was given a comm made by %s: one version's "
			    "table has to be used throughout",
			call, PLUGIN_API(abi), PLUGIN_API(c->abi));
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
