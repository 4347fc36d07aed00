/* SPDX-License-Identifier: BSD-3-Clause */
/* init.c - init, devices and what else is not about a connection. */
#include "nccl/plugin.h"

#include <stdlib.h>

/* v11 on: one for each of NCCL's communicators. Nothing is kept in it but that it is ours. */
struct plugin_ctx {
	uint64_t magic;
	int abi;
};
static const uint64_t ctx_magic = 0x2d7874632d777072; /* "rpw-ctx-" */

static struct {
	_Atomic bool said; /* that it is no number */
} timeout;

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

int plugin_init(int abi, nccl_logger log, struct plugin_ctx **ctx)
{
	if (ctx)
		*ctx = NULL;
	plugin_log_to(log);
	plugin_info("version %s, plugin API v%d", ROPEWAY_VERSION, abi);
	say_devices();
	if (!ctx)
		return NCCL_SUCCESS;
	struct plugin_ctx *c = malloc(sizeof(*c));
	if (!c) {
		plugin_warn("no memory for a context");
		return NCCL_SYSTEM_ERROR;
	}
	*c = (struct plugin_ctx){.magic = ctx_magic, .abi = abi};
	*ctx = c;
	return NCCL_SUCCESS;
}

/* Comms are closed one by one, before or after. */
int plugin_finalize(int abi, struct plugin_ctx *ctx)
{
	if (!ctx || ctx->magic != ctx_magic || ctx->abi != abi) {
		plugin_warn("finalize of v%d was given %s, which init of v%d did not give", abi,
			RPWI_AT(ctx), abi);
		return NCCL_INVALID_ARGUMENT;
	}
	ctx->magic = 0;
	free(ctx);
	return NCCL_SUCCESS;
}

int plugin_no_device(int dev)
{
	plugin_warn("there is no device %d: there are %d, counted from 0", dev, plugin_devices());
	return NCCL_INVALID_ARGUMENT;
}
