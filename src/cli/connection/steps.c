/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - the calls to the plugin that are not about data: devices, handles, comms,
 * registrations. */
#include "cli/connection/connection.h"

#include <stdio.h>
#include <stdlib.h>

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
	int rc = ncclnet_properties(c->net, dev, &p);
	if (rc) {
		connection_call(c, rc, "getProperties of device %d", dev);
		return connection_fail(c,
			"the plugin counts device %d, and says nothing of it (%s)", dev,
			ncclnet_result_name(rc));
	}
	connection_call(c, rc,
		"device %d: %s, PCI path %s, %d Mbit/s, memory: %s (0x%x), device type %s", dev,
		p.name ? p.name : "(nil)", p.pci_path ? p.pci_path : "(nil)", p.speed,
		memory_words(p.ptr_support, memory, sizeof(memory)), p.ptr_support,
		device_words(p.device_type));
	if (dev == c->o.device)
		c->props = p;
	return 0;
}

int step_initialize(struct connection *c)
{
	int ndev, rc = ncclnet_init(c->net, &c->ctx, NULL);
	if (connection_call(c, rc, "init"))
		return connection_fail(c,
			"init gave %s: NCCL goes on without this plugin then. NCCL_DEBUG=INFO has "
			"the plugin's own words",
			ncclnet_result_name(rc));
	c->initialized = true;
	char why[300];
	if (ncclnet_complete(c->net, why, sizeof(why)))
		return connection_fail(c, "%s", why);
	rc = ncclnet_devices(c->net, &ndev);
	if (connection_call(c, rc, "devices: %d", ndev))
		return connection_fail(
			c, "the plugin cannot count its devices (%s)", ncclnet_result_name(rc));
	if (c->o.device >= ndev)
		return connection_fail(c,
			"the plugin has %d device%s, and device %d was asked for: is the interface "
			"up, and does NCCL_SOCKET_IFNAME or NCCL_IB_HCA leave it "
			"out?",
			ndev, ndev == 1 ? "" : "s", c->o.device);
	for (int dev = 0; dev < ndev; dev++)
		if (show_device(c, dev))
			return -1;
	return 0;
}

/* ---- 2 and 3: handles ---- */

static void show_handle(const struct connection *c, const char *whose, const uint8_t *handle)
{
	enum { SHOWN = 32 };
	char text[3 * SHOWN + 1];
	for (int i = 0; i < SHOWN; i++)
		snprintf(text + 3 * i, 4, "%02x ", handle[i]);
	connection_say(c, "%s handle, %d of %zu bytes: %.*s", whose, SHOWN, c->net->handle_bytes,
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
	int rc = ncclnet_listen(c->net, c->ctx, c->o.device, c->handle, &c->listen_comm);
	if (connection_call(
		    c, rc, "listen on device %d: listen comm %p", c->o.device, c->listen_comm))
		return connection_fail(c,
			"listen on device %d gave %s: has its interface an address? "
			"NCCL_DEBUG=INFO shows the plugin's own messages",
			c->o.device, ncclnet_result_name(rc));
	if (!c->listen_comm)
		return connection_fail(c,
			"listen on device %d returned success but no comm: NCCL would use NULL in "
			"every accept",
			c->o.device);
	where_listens(&c->props, c->o.device, c->where, sizeof(c->where));
	show_where(c, "the plugin", c->where);
	show_handle(c, "own", c->handle);
	return 0;
}

int step_exchange(struct connection *c)
{
	connection_deadline(c, c->o.wait_ms,
		connection_is_server(c) ? "waiting for a client" : "looking for the server");
	if (talk_open(c) || talk_exchange(c))
		return -1;
	connection_deadline(c, c->o.timeout_ms, "exchanging handles");
	connection_say(c, "%s: plugin \"%s\", API v%d, messages up to %zu bytes", c->talk.text,
		c->peer.plugin, c->peer.abi, c->o.size_max);
	show_where(c,
		connection_is_server(c) ? "the client says that its plugin"
					: "the server says that its plugin",
		c->peer.where);
	show_handle(c, "its", c->peer.handle);
	return talk_step(c);
}

/* ---- 4: comms ---- */

static void show_comm(struct connection *c, const char *call, unsigned calls, const void *comm,
	const struct nccl_net_device_handle *d, const void *given)
{
	connection_call(c, NCCL_SUCCESS, "%s: comm %p after %u call%s", call, comm, calls,
		calls == 1 ? "" : "s");
	if (c->net->abi >= 7)
		connection_say(c,
			"%s: device handle %p%s: type %d (%s), version %d, handle %p, %zu bytes, "
			"proxy progress %d",
			call, given, given == d ? "" : " (the plugin's own)", d->type,
			device_words(d->type), d->version, d->handle, d->size,
			d->needs_proxy_progress);
}

static int connect_call(struct connection *c, void **comm)
{
	struct nccl_net_device_handle *d = &c->send_device;
	unsigned calls = 0, idle = 0;
	for (*comm = NULL; !*comm;) {
		int rc = ncclnet_connect(c->net, c->ctx, c->o.device, c->peer.handle, comm, &d);
		calls++;
		if (rc) {
			connection_call(c, rc, "connect, call %u", calls);
			return connection_fail(c,
				"connect gave %s: is the address in the handle (NCCL_DEBUG=INFO "
				"shows it) one that this machine can reach? "
				"NCCL_SOCKET_IFNAME on the other side chooses another",
				ncclnet_result_name(rc));
		}
		if (!*comm && connection_wait(c, &idle))
			return -1;
	}
	show_comm(c, "connect", calls, *comm, &c->send_device, d);
	return 0;
}

static int accept_call(struct connection *c, void **comm)
{
	struct nccl_net_device_handle *d = &c->recv_device;
	unsigned calls = 0, idle = 0;
	for (*comm = NULL; !*comm;) {
		int rc = ncclnet_accept(c->net, c->listen_comm, comm, &d);
		calls++;
		if (rc) {
			connection_call(c, rc, "accept, call %u", calls);
			return connection_fail(c,
				"accept gave %s: NCCL_DEBUG=INFO shows the plugin's own messages",
				ncclnet_result_name(rc));
		}
		if (!*comm && connection_wait(c, &idle))
			return -1;
	}
	show_comm(c, "accept", calls, *comm, &c->recv_device, d);
	return 0;
}

/* One direction after the other, since plugins may block in accept. */
int step_connect(struct connection *c)
{
	c->send_device = c->recv_device = (struct nccl_net_device_handle){0};
	for (int way = 0; way < 2; way++) {
		bool connects = (way == 0) != connection_is_server(c);
		connection_deadline(c, c->o.timeout_ms,
			connects ? "connect (the comm stays NULL)"
				 : "accept (the comm stays NULL)");
		if (connects ? connect_call(c, &c->send_comm) : accept_call(c, &c->recv_comm))
			return -1;
	}
	return talk_step(c);
}

/* ---- 5: registrations ---- */

static int buffer_make(
	struct connection *c, struct connection_buffer *b, void *comm, const char *which)
{
	size_t each = RPWI_MIN(c->o.size_max, (size_t)CONNECTION_SHARED_MAX) + CONNECTION_GUARD;
	b->len = RPWI_MAX(c->o.size_max + CONNECTION_GUARD, CONNECTION_IN_FLIGHT * each);
	b->len = (b->len + 4095) & ~(size_t)4095;
	b->data = aligned_alloc(4096, b->len);
	if (!b->data)
		return connection_fail(
			c, "no memory for %zu bytes; --max-size makes it less", b->len);
	memset(b->data, 0, b->len);
	int rc = ncclnet_reg(c->net, comm, b->data, b->len, NCCL_PTR_HOST, &b->mhandle);
	if (connection_call(c, rc, "regMr, %s comm, %zu bytes of NCCL_PTR_HOST: mhandle %p", which,
		    b->len, b->mhandle))
		return connection_fail(c,
			"regMr of %zu bytes of host memory on the %s comm gave %s: how much may be "
			"locked (ulimit -l)?",
			b->len, which, ncclnet_result_name(rc));
	b->registered = true;
	return 0;
}

/* NCCL never asks for it; a plugin that takes it will take a wrong one of NCCL's, too, and fail
 * later. */
static void register_nonsense(struct connection *c)
{
	void *mhandle;
	int rc = ncclnet_reg(c->net, c->send_comm, c->out.data, 4096, 0, &mhandle);
	if (rc) {
		connection_say(c,
			"regMr with memory type 0, which is none: refused, as it has to be (a "
			"warning of the plugin above is its answer), rc %d (%s)",
			rc, ncclnet_result_name(rc));
		return;
	}
	connection_say(c,
		"regMr with memory type 0, which is none: ACCEPTED (mhandle %p): the plugin does "
		"not look at it, and would take CUDA memory for the host's",
		mhandle);
	ncclnet_dereg(c->net, c->send_comm, mhandle);
}

int step_register(struct connection *c)
{
	char memory[64];
	if (!(c->props.ptr_support & NCCL_PTR_HOST))
		return connection_fail(c,
			"device %d takes %s memory and none of the host's (0x%x), and this program "
			"has no other",
			c->o.device, memory_words(c->props.ptr_support, memory, sizeof(memory)),
			c->props.ptr_support);
	if (buffer_make(c, &c->out, c->send_comm, "send") ||
		buffer_make(c, &c->in, c->recv_comm, "recv"))
		return -1;
	register_nonsense(c);
	return talk_step(c);
}

/* ---- 8: the end ---- */

static int dereg(struct connection *c, struct connection_buffer *b, void *comm, const char *which)
{
	int rc = ncclnet_dereg(c->net, comm, b->mhandle);
	b->registered = false;
	if (connection_call(c, rc, "deregMr, %s comm", which))
		return connection_fail(
			c, "deregMr on the %s comm gave %s", which, ncclnet_result_name(rc));
	return 0;
}

static int close_comm(struct connection *c, const char *call,
	int (*fn)(const struct ncclnet *n, void *comm), void **comm)
{
	void *closing = *comm;
	*comm = NULL;
	int rc = fn(c->net, closing);
	if (connection_call(c, rc, "%s", call))
		return connection_fail(c, "%s gave %s", call, ncclnet_result_name(rc));
	return 0;
}

int step_close(struct connection *c)
{
	if (dereg(c, &c->out, c->send_comm, "send") || dereg(c, &c->in, c->recv_comm, "recv") ||
		close_comm(c, "closeSend", ncclnet_close_send, &c->send_comm) ||
		close_comm(c, "closeRecv", ncclnet_close_recv, &c->recv_comm) ||
		close_comm(c, "closeListen", ncclnet_close_listen, &c->listen_comm))
		return -1;
	c->initialized = false;
	int rc = ncclnet_finalize(c->net, c->ctx);
	if (rc != NCCLNET_ABSENT && connection_call(c, rc, "finalize"))
		return connection_fail(c, "finalize gave %s", ncclnet_result_name(rc));
	c->talk.last = true;
	return talk_step(c);
}

void steps_give_back(struct connection *c)
{
	if (c->out.registered)
		ncclnet_dereg(c->net, c->send_comm, c->out.mhandle);
	if (c->in.registered)
		ncclnet_dereg(c->net, c->recv_comm, c->in.mhandle);
	if (c->send_comm)
		ncclnet_close_send(c->net, c->send_comm);
	if (c->recv_comm)
		ncclnet_close_recv(c->net, c->recv_comm);
	if (c->listen_comm)
		ncclnet_close_listen(c->net, c->listen_comm);
	if (c->initialized)
		ncclnet_finalize(c->net, c->ctx);
	free(c->out.data);
	free(c->in.data);
}
