/* SPDX-License-Identifier: BSD-3-Clause */
/* struct.c - what a plugin says of itself: its table, its name, its devices and their properties.
 * One side is enough for this; the other one only loads it, too. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "ncclnet/abi/tables.h"
#include "ncclnet/check/conform_priv.h"

enum { DEVICES_LOOKED_AT = 16, PROPERTIES_ROOM = 512, SPEED_MOST = 10000000, SLOT_PROPERTIES = 3 };
/* NCCL's own Socket of 2.24 to 2.29 (v9 to v11) leaves them as they are. */
enum { VPROPS_ARE_LOOKED_AT = 12 };
#define UNWRITTEN "vProps were not written; NCCL's own Socket did so up to 2.29, and it works"
#define SIZE_MOST_NCCL (1ull << 40) /* NCCL_MAX_NET_SIZE_BYTES */

/* Where the struct of each version ends; what of it need not be written: padding, and from v9 on
 * the virtual device's list. */
static const struct layout {
	size_t bytes;
	struct {
		size_t from, to;
	} idle[2];
} layouts[] = {
	[4] = {sizeof(struct nccl_net_properties_v4), {{0, 0}, {0, 0}}},
	[5] = {sizeof(struct nccl_net_properties_v5), {{0, 0}, {0, 0}}},
	[6] = {sizeof(struct nccl_net_properties_v6), {{0, 0}, {0, 0}}},
	[7] = {sizeof(struct nccl_net_properties_v7), {{0, 0}, {0, 0}}},
	[8] = {sizeof(struct nccl_net_properties_v8), {{60, 64}, {0, 0}}},
	[9] = {sizeof(struct nccl_net_properties_v9),
		{{offsetof(struct nccl_net_properties_v9, v_props) + 4, 88}, {0, 0}}},
	[10] = {sizeof(struct nccl_net_properties_v10),
		{{offsetof(struct nccl_net_properties_v10, v_props) + 4, 88}, {0, 0}}},
	[11] = {sizeof(struct nccl_net_properties_v11),
		{{offsetof(struct nccl_net_properties_v11, v_props) + 4, 88}, {108, 112}}},
	[12] = {sizeof(struct nccl_net_properties_v12),
		{{offsetof(struct nccl_net_properties_v12, v_props) + 4, 104}, {0, 0}}},
};

static bool printable(const char *text, size_t most)
{
	size_t n = strnlen(text, most + 1);
	for (size_t i = 0; i < n; i++)
		if (text[i] < 0x20 || text[i] > 0x7e)
			return false;
	return n > 0 && n <= most;
}

void case_load(struct conform *c)
{
	struct side *s = c->s;
	char why[300] = "";
	int rc = SIDE_CALL(
		s, "dlopen", ncclnet_load(c->o->path, c->o->abi, &s->n, why, sizeof(why)));
	if (rc == -EINVAL) /* there is one, and the next line says what is wrong with it */
		return;
	c->load_error = rc;
	c->abi = c->s->n ? c->s->n->abi : 0;
	if (rc)
		conform_fail(c, "%s", why);
}

/* prepare() has failed already if a function is missing. The optional ones that change what NCCL
 * does are said here. */
void case_table(struct conform *c)
{
	const struct ncclnet *n = c->s->n;
	const void *consumed = NULL;
	if (n->abi < 7)
		return;
	/* from v7 on in one place */
	memcpy(&consumed, (const char *)n->table + offsetof(struct nccl_net_v7, irecvConsumed),
		sizeof(consumed));
	if (consumed)
		conform_quirk(c, NCCLNET_CONSUMED,
			"irecvConsumed is there: NCCL calls it after each receive");
}

void case_name(struct conform *c)
{
	const char *name = SIDE_CALL(c->s, "name", c->s->n->calls->name(c->s->n->table));
	if (!name || !printable(name, sizeof(c->name) - 1)) {
		conform_fail(
			c, name ? "it is not a short line of text: NCCL compares it with NCCL_NET"
				: "it is NULL: NCCL compares it with NCCL_NET");
		return;
	}
	snprintf(c->name, sizeof(c->name), "%s", name);
	conform_note(c, "\"%s\"", name);
}

void case_init(struct conform *c)
{
	struct side *s = c->s;
	char why[300];
	c->initialized = side_init(s, s->n, &s->ctx);
	if (!c->initialized && s->why && ncclnet_complete(s->n, why, sizeof(why)) &&
		!strcmp(s->text, why)) {
		/* `table` says that */
		s->why = NULL;
		return;
	}
	if (!c->initialized)
		return;
	side_properties(s);
	if (*c->name && strcmp(c->name, ncclnet_name(s->n)) != 0)
		conform_fail(c,
			"its name was \"%s\" before and is \"%.60s\" now: NCCL chose it by the "
			"first",
			c->name, ncclnet_name(s->n));
}

static int device_count(struct conform *c)
{
	int ndev = -1, rc = SIDE_CALL(c->s, "devices", ncclnet_devices(c->s->n, &ndev));
	return side_result(c->s, rc, "devices") ? ndev : -1;
}

void case_devices(struct conform *c)
{
	int ndev = device_count(c);
	if (ndev == 0)
		conform_fail(c, "none: NCCL goes on to its own transports");
	else if (ndev > 0 && ndev <= c->o->device)
		conform_fail(c, "%d: there is no device %d", ndev, c->o->device);
	else if (ndev > 0 && ndev < 1025)
		conform_note(c, "%d", ndev);
	else if (ndev > 0)
		conform_fail(c, "%d: is it a number at all?", ndev);
}

/* ---- properties ---- */

static bool idle_byte(const struct layout *l, size_t at)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(l->idle); i++)
		if (at >= l->idle[i].from && at < l->idle[i].to)
			return true;
	return false;
}

/* The number of devices in it; the list behind it is idle. */
static bool in_vprops(int abi, const struct layout *l, size_t at)
{
	return abi >= 9 && abi < VPROPS_ARE_LOOKED_AT && at < l->idle[0].from &&
	       at >= l->idle[0].from - sizeof(int);
}

/* Twice over memory that is filled differently: a byte that follows the filling was not written;
 * one past the struct that does not was. */
bool conform_within_struct(struct conform *c, int (*call)(int, void *), int net_abi, int dev)
{
	const struct layout *l = &layouts[net_abi];
	_Alignas(16) unsigned char room[2][PROPERTIES_ROOM];
	for (int i = 0; i < 2; i++) {
		memset(room[i], i ? 0x5a : 0xa5, sizeof(room[i]));
		int rc = SIDE_CALL(c->s, "getProperties", call(dev, room[i]));
		if (!side_result(c->s, rc, "getProperties(%d)", dev))
			return false;
	}
	for (size_t at = 0; at < PROPERTIES_ROOM; at++) {
		bool written = room[0][at] != 0xa5 || room[1][at] != 0x5a;
		if (at >= l->bytes && written)
			return conform_fail(c,
				"byte %zu was written, and the struct of v%d has %zu: NCCL's stack "
				"is behind it; is the table of another version?",
				at, c->abi, l->bytes);
		if (at < l->bytes && !written && in_vprops(net_abi, l, at)) {
			conform_quirk(c, -1, UNWRITTEN);
			continue;
		}
		if (at < l->bytes && !written && !idle_byte(l, at))
			return conform_fail(c,
				"byte %zu of %zu was not written: NCCL does not fill the struct "
				"before; is the table of another version?",
				at, l->bytes);
	}
	return true;
}

static bool within_struct(struct conform *c, int dev)
{
	int (*call)(int, void *);
	memcpy(&call, (const char *)c->s->n->table + SLOT_PROPERTIES * sizeof(void *),
		sizeof(call));
	return conform_within_struct(c, call, c->s->n->abi, dev);
}

static void look_at_memory(struct conform *c, const struct ncclnet_properties *p)
{
	if (p->ptr_support & ~(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF))
		conform_fail(c,
			"ptrSupport 0x%x has bits that mean nothing (1 host, 2 CUDA, 4 dma-buf)",
			p->ptr_support);
	else if (!(p->ptr_support & NCCL_PTR_HOST))
		conform_quirk(c, NCCLNET_NO_HOST_MEMORY,
			"ptrSupport 0x%x has no host memory, NCCL then uses that of GPUs only",
			p->ptr_support);
	if (p->reg_is_global != 0 && p->reg_is_global != 1)
		conform_fail(c, "regIsGlobal %d is neither 0 nor 1", p->reg_is_global);
	if (p->force_flush != 0 && p->force_flush != 1)
		conform_fail(c, "forceFlush %d is neither 0 nor 1", p->force_flush);
	if (p->force_flush == 1)
		conform_quirk(
			c, NCCLNET_FLUSH, "forceFlush: NCCL flushes after each receive into a GPU");
}

static void look_at_numbers(struct conform *c, const struct ncclnet_properties *p)
{
	int abi = c->s->n->abi;
	if (p->speed > SPEED_MOST)
		conform_fail(c, "speed %d Mbit/s is beyond 10 Tbit/s", p->speed);
	else if (p->speed <= 0)
		conform_quirk(c, -1, "speed %d: NCCL takes 10000 Mbit/s", p->speed);
	if (p->max_comms < 1)
		conform_fail(c, "maxComms %d: at least 1 is expected", p->max_comms);
	if (p->max_recvs < 1)
		conform_fail(c, "maxRecvs %d: at least 1 is expected", p->max_recvs);
	else if (p->max_recvs > NCCL_NET_GROUP_MAX)
		conform_quirk(c, -1, "maxRecvs %d: NCCL groups %d at most", p->max_recvs,
			NCCL_NET_GROUP_MAX);
	if (!isfinite(p->latency) || p->latency < 0 || p->latency > 1e6f)
		conform_fail(c, "latency %g us: 0 to a second is expected", (double)p->latency);
	if (abi >= 9 && (!p->max_p2p_bytes || p->max_p2p_bytes > SIZE_MOST_NCCL ||
				!p->max_coll_bytes || p->max_coll_bytes > SIZE_MOST_NCCL))
		conform_fail(c,
			"maxP2pBytes %zu, maxCollBytes %zu: 1 to %llu are expected, NCCL refuses "
			"others",
			p->max_p2p_bytes, p->max_coll_bytes, SIZE_MOST_NCCL);
	if (p->rail_id < -1 || p->plane_id < -1)
		conform_fail(c, "railId %d, planeId %d: -1 (unknown) or more is expected",
			p->rail_id, p->plane_id);
}

static void look_at_device_type(struct conform *c, const struct ncclnet_properties *p)
{
	static const char *const names[] = {"HOST", "UNPACK", "GIN proxy", "GIN GDAKI"};
	if (p->device_type < 0 || p->device_type >= (int)RPWI_ARRAY_LEN(names))
		conform_fail(c, "device type %d: NCCL knows 0 (HOST) and 1 (UNPACK) here",
			p->device_type);
	else if (p->device_type)
		conform_quirk(c, NCCLNET_DEVICE_TYPE,
			"device type %s, version %d: NCCL uses it only if it was built with just "
			"that",
			names[p->device_type], p->device_version);
}

void case_properties(struct conform *c)
{
	int ndev = device_count(c);
	if (c->s->role)
		return;
	for (int dev = 0; dev < RPWI_MIN(ndev, DEVICES_LOOKED_AT); dev++) {
		struct ncclnet_properties p;
		if (!within_struct(c, dev))
			return;
		if (SIDE_CALL(c->s, "getProperties", ncclnet_properties(c->s->n, dev, &p))) {
			conform_fail(c, "getProperties(%d) succeeded, and then did not", dev);
			return;
		}
		if (!p.name || !printable(p.name, 255)) {
			conform_fail(c,
				p.name ? "the name of device %d is not a line of text"
				       : "the name of device %d is NULL",
				dev);
			return;
		}
		look_at_memory(c, &p);
		look_at_numbers(c, &p);
		look_at_device_type(c, &p);
		if (dev != c->o->device)
			continue;
		const char *host = p.ptr_support & NCCL_PTR_HOST ? "host" : "";
		const char *cuda = p.ptr_support & NCCL_PTR_CUDA ? " CUDA" : "";
		const char *dmabuf = p.ptr_support & NCCL_PTR_DMABUF ? " dma-buf" : "";
		conform_note(c, "device %d is %.40s: %d Mbit/s, maxRecvs %d, memory %s%s%s", dev,
			p.name, p.speed, p.max_recvs, host, cuda, dmabuf);
	}
}

/* What is wrong with them; of an older version, that nobody looks at them. */
static void vprops_are_wrong(struct conform *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void vprops_are_wrong(struct conform *c, const char *fmt, ...)
{
	char text[120];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (c->s->n->abi < VPROPS_ARE_LOOKED_AT)
		conform_quirk(c, -1, "%s: " UNWRITTEN, text);
	else
		conform_fail(c, "%s: not what is expected", text);
}

void case_vprops(struct conform *c)
{
	int ndev = device_count(c), most = c->s->n->abi >= 12 ? 8 : 4;
	for (int dev = 0; dev < RPWI_MIN(ndev, DEVICES_LOOKED_AT) && !c->s->role; dev++) {
		struct ncclnet_properties p;
		if (SIDE_CALL(c->s, "getProperties", ncclnet_properties(c->s->n, dev, &p)))
			return;
		const int *of = p.v_props.devs, n = p.v_props.ndevs;
		if (n < 1 || n > most) {
			vprops_are_wrong(
				c, "device %d is made of %d, where 1 to %d can be", dev, n, most);
			return;
		}
		for (int i = 0; i < n; i++)
			if (of[i] < 0 || of[i] >= ndev)
				vprops_are_wrong(c, "device %d is made of device %d of %d", dev,
					of[i], ndev);
		if (n == 1 && of[0] != dev)
			vprops_are_wrong(c, "device %d is made of one, device %d", dev, of[0]);
	}
}
