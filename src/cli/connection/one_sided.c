/* SPDX-License-Identifier: BSD-3-Clause */
/* one_sided.c - the steps of `test_connection --rma`: two ranks, one on each side, and a put with a
 * signal each way. The server is rank 0. */
#include "cli/connection/connection.h"

#include "cli/cli.h"

#include <stdio.h>

enum { PUT_BYTES = 1 << 20, WORD = sizeof(uint64_t), ADDED = 41 };

static int call(struct connection *c, bool ok, const char *what, const char *hint)
{
	if (ok)
		return connection_call(c, 0, "%s", what);
	return connection_fail(c, "%s%s", c->side.text, hint);
}

int one_sided_load(struct connection *c)
{
	c->rma.s = &c->side;
	if (!rma_load(&c->rma, c->o.plugin, c->o.table))
		return -1;
	const struct ncclnet_rma *n = &c->rma.n;
	c->own = (struct connection_own){.name = n->calls->name(n->table),
		.abi = n->abi + (n->gin ? CONNECTION_GIN : CONNECTION_RMA),
		.exported = c->rma.exported,
		.handle_bytes = NCCL_RMA_HANDLE_BYTES,
		.handle = c->rma_handle};
	return 0;
}

int one_sided_initialize(struct connection *c)
{
	const struct ncclnet_rma *n = &c->rma.n;
	struct ncclnet_properties p = {.name = NULL};
	int ndev = 0;
	if (call(c, rma_init(&c->rma, ncclnet_log, &c->rma.instance), "init",
		    ": NCCL goes on without this plugin then. NCCL_DEBUG=INFO has the plugin's own "
		    "words"))
		return -1;
	c->initialized = true;
	int rc = n->calls->devices(n->table, &ndev);
	if (connection_call(c, rc, "devices: %d", ndev))
		return connection_fail(
			c, "the plugin cannot count its devices (%s)", ncclnet_result_name(rc));
	if (c->o.device >= ndev)
		return connection_fail(c,
			"the plugin has %d device%s, and device %d was asked for. ropeway's has "
			"none where NCCL's own would be better: ROPEWAY_RMA=1 or NCCL_RMA_PLUGIN "
			"overrules it",
			ndev, rpwi_cli_plural((unsigned)ndev), c->o.device);
	if (!rma_properties(&c->rma))
		return connection_fail(c, "%s", c->side.text);
	p.name = c->rma.p.name;
	p.port = c->rma.p.port;
	where_listens(&p, c->o.device, c->where, sizeof(c->where));
	return connection_call(c, 0, "device %d: %s, %d Mbit/s, device type %d", c->o.device,
		p.name ? p.name : "none", c->rma.p.speed, c->rma.p.device_type);
}

int one_sided_listen(struct connection *c)
{
	if (call(c, rma_listen(&c->rma, &c->comm, c->rma_handle), "listen",
		    ": NCCL_DEBUG=INFO shows the plugin's own messages"))
		return -1;
	steps_show_handle(c, "own", c->rma_handle);
	return 0;
}

int one_sided_connect(struct connection *c)
{
	bool server = connection_is_server(c);
	void *handles[2] = {c->rma_handle, c->peer.handle};
	if (!server) {
		handles[0] = c->peer.handle;
		handles[1] = c->rma_handle;
	}
	connection_deadline(c, c->o.timeout_ms, "connect of two ranks");
	if (call(c, rma_connect(&c->rma, &c->comm, handles, 2, !server, 1),
		    server ? "connect as rank 0 of 2, and a context"
			   : "connect as rank 1 of 2, and a context",
		    ": is the address in the other side's handle (NCCL_DEBUG=INFO shows it) one "
		    "that this machine can reach?"))
		return -1;
	return talk_step(c);
}

int one_sided_register(struct connection *c)
{
	connection_deadline(c, c->o.timeout_ms, "registering memory (both ranks have to)");
	if (call(c, rma_mem_make(&c->rma, &c->comm, &c->window, WORD + PUT_BYTES),
		    "regMrSym of what the other side writes to, with its signal", "") ||
		call(c, rma_mem_make(&c->rma, &c->comm, &c->source, PUT_BYTES),
			"regMrSym of what is put", ""))
		return -1;
	return talk_step(c);
}

/* Each side's put has bytes of its own. */
static uint64_t salt(const struct connection *c, bool ours)
{
	return 0x5e11 + (connection_is_server(c) == ours);
}

int one_sided_put(struct connection *c)
{
	struct ncclnet_rma_op op = {.from = c->source.mhandle,
		.size = PUT_BYTES,
		.to = c->window.mhandle,
		.to_off = WORD,
		.rank = connection_is_server(c),
		.signals = true,
		.signal = c->window.mhandle,
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = ADDED};
	const uint64_t *word = (uint64_t *)(void *)c->window.at;
	connection_deadline(c, c->o.timeout_ms, "a put with a signal");
	side_fill(c->source.at, PUT_BYTES, salt(c, true));
	if (!rma_do_put(&c->rma, &c->comm, 0, &op))
		return connection_fail(c, "%s", c->side.text);
	connection_call(c, 0, "iputSignal of %d bytes, adding %d: done", PUT_BYTES, ADDED);
	connection_deadline(c, c->o.timeout_ms, "waiting for the other side's signal");
	if (!rma_await(&c->rma, &c->comm, word, ADDED))
		return connection_fail(
			c, "%s", *c->side.text ? c->side.text : "its signal has not come");
	size_t wrong = side_wrong(c->window.at + WORD, PUT_BYTES, salt(c, false));
	if (wrong < PUT_BYTES)
		return connection_fail(
			c, "its signal is there, and byte %zu of its put is wrong", wrong);
	if (*word != ADDED || rma_mem_hurt(&c->window))
		return connection_fail(c,
			"the signal is %llu, not %d, or bytes beside were written",
			(unsigned long long)*word, ADDED);
	connection_call(c, 0, "its signal has come, and its %d bytes are right", PUT_BYTES);
	return talk_step(c);
}

int one_sided_close(struct connection *c)
{
	connection_deadline(c, c->o.timeout_ms, "deregistering and closing");
	if (call(c, rma_mem_end(&c->rma, &c->comm, &c->source), "deregMrSym", "") ||
		call(c, rma_mem_end(&c->rma, &c->comm, &c->window), "deregMrSym", "") ||
		call(c, rma_close(&c->rma, &c->comm), "destroyContext, closeColl, closeListen", ""))
		return -1;
	c->initialized = false;
	int rc = c->rma.n.calls->finalize(c->rma.n.table, c->rma.instance);
	if (connection_call(c, rc, "finalize"))
		return connection_fail(c, "finalize gave %s", ncclnet_result_name(rc));
	c->talk.last = true;
	return talk_step(c);
}

void one_sided_give_back(struct connection *c)
{
	rma_close(&c->rma, &c->comm);
	if (c->initialized)
		c->rma.n.calls->finalize(c->rma.n.table, c->rma.instance);
}
