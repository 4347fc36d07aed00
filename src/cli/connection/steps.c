/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - the calls to the plugin that are not about data: devices, handles, comms,
 * registrations. */
#include "cli/connection/connection.h"

#include "cli/cli.h"

#include <stdio.h>

static const char *memory_words(int types, char *out, size_t len)
{
	static const char *const words[] = {"host", "CUDA", "dma-buf"};
	size_t n = 0;
	snprintf(out, len, "none");
	for (int i = 0; i < (int)RPWI_ARRAY_LEN(words); i++)
		if (types >> i & 1)
			n += (size_t)snprintf(out + n, len - n, "%s%s", n ? ", " : "", words[i]);
	return out;
}

static const char *device_words(int type)
{
	static const char *const words[] = {
		"host", "unpack (GPUDirect-TCPX)", "GIN proxy", "GIN GDAKI"};
	return type >= 0 && type < (int)RPWI_ARRAY_LEN(words) ? words[type] : "unknown";
}

/* ---- 1: initialize ---- */

static int show_device(struct connection *c, int dev)
{
	struct ncclnet_properties p;
	char memory[64];
	int rc = ncclnet_properties(c->side.n, dev, &p);
	if (rc) {
		connection_call(c, rc, "getProperties of device %d", dev);
		return connection_fail(c,
			"the plugin counts device %d, and says nothing of it (%s)", dev,
			ncclnet_result_name(rc));
	}
	const char *name = p.name ? p.name : "none";
	const char *path = p.pci_path ? p.pci_path : "none";
	connection_call(c, rc,
		"device %d: %s, PCI path %s, %d Mbit/s, memory: %s (0x%x), device type %s", dev,
		name, path, p.speed, memory_words(p.ptr_support, memory, sizeof(memory)),
		p.ptr_support, device_words(p.device_type));
	if (dev == c->o.device)
		c->side.p = p;
	return 0;
}

int step_initialize(struct connection *c)
{
	int ndev, rc = ncclnet_init(c->side.n, &c->side.ctx, NULL);
	if (connection_call(c, rc, "init"))
		return connection_fail(c,
			"init gave %s: NCCL goes on without this plugin then. NCCL_DEBUG=INFO has "
			"the plugin's own words",
			ncclnet_result_name(rc));
	c->initialized = true;
	char why[300];
	if (ncclnet_complete(c->side.n, why, sizeof(why)))
		return connection_fail(c, "%s", why);
	rc = ncclnet_devices(c->side.n, &ndev);
	if (connection_call(c, rc, "devices: %d", ndev))
		return connection_fail(
			c, "the plugin cannot count its devices (%s)", ncclnet_result_name(rc));
	if (c->o.device >= ndev)
		return connection_fail(c,
			"the plugin has %d device%s, and device %d was asked for: is the interface "
			"up, and does NCCL_SOCKET_IFNAME or NCCL_IB_HCA leave it "
			"out?",
			ndev, rpwi_cli_plural((unsigned)ndev), c->o.device);
	for (int dev = 0; dev < ndev; dev++)
		if (show_device(c, dev))
			return -1;
	return 0;
}

/* ---- 2 and 3: handles ---- */

void steps_show_handle(const struct connection *c, const char *whose, const void *bytes)
{
	enum { SHOWN = 32 };
	const uint8_t *handle = bytes;
	char text[3 * SHOWN + 1];
	for (int i = 0; i < SHOWN; i++)
		snprintf(text + 3 * i, 4, "%02x ", handle[i]);
	connection_say(c, "%s handle, %d of %zu bytes: %.*s", whose, SHOWN, c->own.handle_bytes,
		3 * SHOWN - 1, text);
}

static void show_where(const struct connection *c, const char *whose, const char *where)
{
	connection_say(c,
		"%s listens on %s; which address and port are in use, only the handle says", whose,
		where);
}

int step_listen(struct connection *c)
{
	struct link *l = &c->in.link;
	if (!link_listen(&c->side, l))
		return connection_fail(c,
			"%s on device %d: has its interface an address? NCCL_DEBUG=INFO shows the "
			"plugin's own messages",
			c->side.text, c->o.device);
	connection_call(
		c, 0, "listen on device %d: listen comm %s", c->o.device, RPWI_AT(l->listen));
	where_listens(&c->side.p, c->o.device, c->where, sizeof(c->where));
	show_where(c, "the plugin", c->where);
	steps_show_handle(c, "own", l->handle);
	return 0;
}

int step_exchange(struct connection *c)
{
	connection_deadline(c, c->o.wait_ms,
		connection_is_server(c) ? "waiting for a client" : "looking for the server");
	if (talk_open(c) || talk_exchange(c))
		return -1;
	connection_deadline(c, c->o.timeout_ms, "exchanging handles");
	if (c->o.table)
		connection_say(c, "%s: plugin \"%s\", %s", c->talk.text, c->peer.plugin,
			connection_table(c->peer.abi));
	else
		connection_say(c, "%s: plugin \"%s\", API v%d, messages up to %zu bytes",
			c->talk.text, c->peer.plugin, c->peer.abi, c->o.size_max);
	show_where(c,
		connection_is_server(c) ? "the client says that its plugin"
					: "the server says that its plugin",
		c->peer.where);
	steps_show_handle(c, "its", c->peer.handle);
	if (!c->o.table)
		memcpy(c->out.link.handle, c->peer.handle, sizeof(c->peer.handle));
	return talk_step(c);
}

/* ---- 4: comms ---- */

/* One direction after the other, since plugins may block in accept. */
static int comm_make(struct connection *c, bool connects)
{
	struct end *e = connects ? &c->out : &c->in;
	struct nccl_net_device_handle *d = &e->link.device_memory;
	const char *call = connects ? "connect" : "accept";
	unsigned before = c->watch.count;
	e->sends = connects;
	e->link.device = d;
	connection_deadline(c, c->o.timeout_ms,
		connects ? "connect (the comm stays NULL)" : "accept (the comm stays NULL)");
	if (connects && !link_connect(&c->side, &e->link))
		return connection_fail(c,
			"%s: is the address in the handle (NCCL_DEBUG=INFO shows it) one that this "
			"machine can reach? NCCL_SOCKET_IFNAME on the other side chooses another",
			c->side.text);
	if (!connects && !link_accept(&c->side, &e->link))
		return connection_fail(
			c, "%s: NCCL_DEBUG=INFO shows the plugin's own messages", c->side.text);
	unsigned calls = c->watch.count - before;
	connection_call(c, NCCL_SUCCESS, "%s: comm %s after %u call%s", call, RPWI_AT(end_comm(e)),
		calls, rpwi_cli_plural(calls));
	if (c->side.n->abi >= 7)
		connection_say(c,
			"%s: device handle %s%s: type %d (%s), version %d, handle %s, %zu bytes, "
			"proxy progress %d",
			call, RPWI_AT(e->link.device),
			e->link.device == d ? "" : " (the plugin's own)", d->type,
			device_words(d->type), d->version, RPWI_AT(d->handle), d->size,
			d->needs_proxy_progress);
	return 0;
}

int step_connect(struct connection *c)
{
	bool server = connection_is_server(c);
	return comm_make(c, !server) || comm_make(c, server) ? -1 : talk_step(c);
}

/* ---- 5: registrations ---- */

static const char *which(const struct end *e) { return e->sends ? "send" : "recv"; }

static int buffer_make(struct connection *c, struct end *e)
{
	size_t one = c->o.size_max, shared = RPWI_MIN(one, (size_t)CONNECTION_SHARED_MAX);
	struct stream largest = {.window = 1, .sizes = &one, .sizes_n = 1},
		      together = {.window = CONNECTION_IN_FLIGHT, .sizes = &shared, .sizes_n = 1};
	if (!end_memory(&c->side, e, RPWI_MAX(stream_bytes(&largest), stream_bytes(&together))))
		return connection_fail(c,
			"%s on the %s comm: how much may be locked (ulimit -l)? --max-size makes "
			"it less",
			c->side.text, which(e));
	return connection_call(c, 0, "regMr, %s comm, %zu bytes of NCCL_PTR_HOST: mhandle %s",
		which(e), e->bytes, RPWI_AT(e->mhandle));
}

/* NCCL never asks for it; a plugin that takes it will take a wrong one of NCCL's, too, and fail
 * later. */
static void register_nonsense(struct connection *c)
{
	void *mhandle;
	int rc = ncclnet_reg(c->side.n, c->out.link.send, c->out.memory, 4096, 0, &mhandle);
	if (rc) {
		connection_say(c,
			"regMr with memory type 0, which is none: refused, as it has to be (a "
			"warning of the plugin above is its answer), rc %d (%s)",
			rc, ncclnet_result_name(rc));
		return;
	}
	connection_say(c,
		"regMr with memory type 0, which is none: ACCEPTED (mhandle %s): the plugin does "
		"not look at it, and would take CUDA memory for the host's",
		RPWI_AT(mhandle));
	end_dereg(&c->side, &c->out, mhandle);
}

int step_register(struct connection *c)
{
	char memory[64];
	if (!(c->side.p.ptr_support & NCCL_PTR_HOST))
		return connection_fail(c,
			"device %d takes %s memory and none of the host's (0x%x), and this program "
			"has no other",
			c->o.device, memory_words(c->side.p.ptr_support, memory, sizeof(memory)),
			c->side.p.ptr_support);
	if (buffer_make(c, &c->out) || buffer_make(c, &c->in))
		return -1;
	register_nonsense(c);
	return talk_step(c);
}

/* ---- 8: the end ---- */

static int said(struct connection *c, int rc, const char *call)
{
	if (connection_call(c, rc, "%s", call))
		return connection_fail(c, "%s gave %s", call, ncclnet_result_name(rc));
	return 0;
}

static int dereg(struct connection *c, struct end *e)
{
	void *mhandle = e->mhandle;
	e->mhandle = NULL;
	return said(c, end_dereg(&c->side, e, mhandle),
		e->sends ? "deregMr, send comm" : "deregMr, recv comm");
}

static int close_comm(struct connection *c, const char *call,
	int (*fn)(const struct ncclnet *n, void *comm), void **comm)
{
	void *closing = *comm;
	*comm = NULL;
	return said(c, fn(c->side.n, closing), call);
}

int step_close(struct connection *c)
{
	if (dereg(c, &c->out) || dereg(c, &c->in) ||
		close_comm(c, "closeSend", ncclnet_close_send, &c->out.link.send) ||
		close_comm(c, "closeRecv", ncclnet_close_recv, &c->in.link.recv) ||
		close_comm(c, "closeListen", ncclnet_close_listen, &c->in.link.listen))
		return -1;
	c->initialized = false;
	int rc = ncclnet_finalize(c->side.n, c->side.ctx);
	if (rc != NCCLNET_ABSENT && said(c, rc, "finalize"))
		return -1;
	c->talk.last = true;
	return talk_step(c);
}

void steps_give_back(struct connection *c)
{
	end_close(&c->side, &c->out);
	end_close(&c->side, &c->in);
	if (c->initialized)
		ncclnet_finalize(c->side.n, c->side.ctx);
}
