/* SPDX-License-Identifier: BSD-3-Clause */
/* init.c - init, devices and what else is not about a connection. */
#include "nccl/plugin.h"

#include <stdlib.h>
#include <strings.h>

/* v11 on: one for each of NCCL's communicators. Nothing is kept in it but that it is ours. */
struct plugin_ctx {
	uint64_t magic;
	int abi;
};
static const uint64_t ctx_magic = 0x2d7874632d777072; /* "rpw-ctx-" */

static struct {
	_Atomic bool said; /* that it is no number */
} timeout;

/* Of the net tables. Before v11 nobody says when it is over. */
static struct {
	_Atomic unsigned instances;
	_Atomic bool for_ever;
} net;

bool plugin_net_in_use(void)
{
	const char *name = getenv("NCCL_NET");
	return (atomic_load(&net.instances) || atomic_load(&net.for_ever)) &&
	       (!name || !*name || !strcasecmp(name, "ropeway"));
}

unsigned plugin_timeout_ms(unsigned otherwise)
{
	const char *text = getenv("ROPEWAY_NCCL_TIMEOUT_MS");
	char *end = NULL;
	if (!text || !*text)
		return otherwise;
	long ms = strtol(text, &end, 10);
	if (*end || ms < 1 || ms > INT32_MAX) {
		if (!atomic_exchange(&timeout.said, true))
			plugin_warn("ROPEWAY_NCCL_TIMEOUT_MS=%s: expected milliseconds, 1 or more; "
				    "using %u",
				text, otherwise);
		return otherwise;
	}
	return (unsigned)ms;
}

static void say_devices(void)
{
	int n = plugin_devices();
	plugin_info("%d device%s", n, n == 1 ? "" : "s");
	for (int i = 0; i < n; i++) {
		const struct plugin_device *d = plugin_device(i);
		const char *rdma = *d->rdma ? d->rdma : "all there are";
		plugin_info("[%d] %s %s, %d Mbit/s, RDMA devices: %s", i, d->name, d->address,
			d->speed, d->no_rdma ? "none (NCCL_IB_DISABLE or NCCL_IB_HCA)" : rdma);
	}
}

struct plugin_ctx *plugin_ctx_new(int abi)
{
	struct plugin_ctx *c = malloc(sizeof(*c));
	if (!c) {
		plugin_warn("no memory for a context");
		return NULL;
	}
	*c = (struct plugin_ctx){.magic = ctx_magic, .abi = abi};
	return c;
}

int plugin_init(int abi, nccl_logger log, struct plugin_ctx **ctx)
{
	if (ctx)
		*ctx = NULL;
	plugin_log_to(log);
	plugin_info("version %s, plugin API %s", ROPEWAY_VERSION, PLUGIN_API(abi));
	say_devices();
	if (!ctx) {
		atomic_store(&net.for_ever, true);
		return NCCL_SUCCESS;
	}
	*ctx = plugin_ctx_new(abi);
	if (!*ctx)
		return NCCL_SYSTEM_ERROR;
	atomic_fetch_add(&net.instances, 1);
	return NCCL_SUCCESS;
}

/* Comms are closed one by one, before or after. */
int plugin_finalize(int abi, struct plugin_ctx *ctx)
{
	if (!ctx || ctx->magic != ctx_magic || ctx->abi != abi) {
		plugin_warn("finalize of %s was given %s, which init of %s did not give",
			PLUGIN_API(abi), RPWI_AT(ctx), PLUGIN_API(abi));
		return NCCL_INVALID_ARGUMENT;
	}
	if (!plugin_api_is_rma(abi))
		atomic_fetch_sub(&net.instances, 1);
	ctx->magic = 0;
	free(ctx);
	return NCCL_SUCCESS;
}

int plugin_no_device(int dev)
{
	plugin_warn("there is no device %d: there are %d, counted from 0", dev, plugin_devices());
	return NCCL_INVALID_ARGUMENT;
}
