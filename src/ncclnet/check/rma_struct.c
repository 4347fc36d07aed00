/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_struct.c - what a plugin of one-sided operations says of itself, and how it connects. */
#include "ncclnet/check/rma_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
	DEVICES_MOST = 1024,
	NET_V_OLD = 11,
	NET_V = 12,
	DEVICE_GIN_PROXY = 2,
	NAME_MOST = 63,
	CLAIM_ROOM = 64
};

/* ---- what the cases share ---- */

static bool make(struct conform *c)
{
	if (!c->rma)
		c->rma = calloc(1, sizeof(*c->rma));
	if (!c->rma)
		return side_fail(c->s, "out of memory");
	c->rma->r.s = c->s;
	return true;
}

bool rma_prepare(struct conform *c, unsigned flags)
{
	if (!make(c))
		return false;
	struct rma_checked *k = c->rma;
	if (!k->r.n.table && !rma_load(&k->r, c->o->path, c->o->table))
		return false;
	c->abi = k->r.n.abi;
	if (flags & CASE_BARE || k->initialized)
		return true;
	k->initialized = rma_init(&k->r, side_logger(c->s), &k->r.instance);
	return k->initialized && rma_properties(&k->r);
}

bool rma_world(struct conform *c)
{
	struct rma_checked *k = c->rma;
	rma_renumber(c);
	return k->world.coll ||
	       (rma_join(&k->r, &k->world, rma_ranks(c), RMA_CONTEXTS) &&
		       rma_mem_make(&k->r, &k->world, &k->window, rma_area(rma_ranks(c))) &&
		       rma_mem_make(&k->r, &k->world, &k->source, RMA_SOURCE) && rma_met(c));
}

uint64_t rma_take(struct conform *c, unsigned n)
{
	uint64_t at = c->rma->signals * sizeof(uint64_t);
	c->rma->signals += n;
	return at;
}

struct ncclnet_rma_op rma_op(const struct conform *c, int rank, size_t size)
{
	return (struct ncclnet_rma_op){.from = c->rma->source.mhandle,
		.size = size,
		.to = c->rma->window.mhandle,
		.to_off = rma_area(rma_me(c)),
		.rank = (uint32_t)rank};
}

struct ncclnet_rma_op rma_signaled(const struct conform *c, int rank, size_t size, uint64_t word)
{
	struct ncclnet_rma_op op = rma_op(c, rank, size);
	op.signals = true;
	op.signal = c->rma->window.mhandle;
	op.signal_off = word;
	op.signal_op = NCCL_RMA_SIGNAL_INCREMENT;
	op.value = 1;
	return op;
}

struct ncclnet_rma_op rma_signal(const struct conform *c, int rank, uint64_t word)
{
	struct ncclnet_rma_op op = rma_signaled(c, rank, 0, word);
	op.from = op.to = NULL;
	op.to_off = 0;
	return op;
}

bool rma_is(struct conform *c, const char *what, const void *at, size_t size, uint64_t salt)
{
	size_t wrong = side_wrong(at, size, salt);
	return wrong == size || conform_fail(c, "%s: byte %zu of %zu is 0x%02x, which is wrong",
					what, wrong, size, ((const unsigned char *)at)[wrong]);
}

bool rma_exchange(struct conform *c, struct rma_comm *m, size_t size)
{
	struct rma_side *r = &c->rma->r;
	struct rma_mem w, from;
	rma_renumber(c);
	if (!rma_mem_make(r, m, &w, size + sizeof(uint64_t)) || !rma_mem_make(r, m, &from, size) ||
		!rma_meet(r, m))
		return false;
	side_fill(from.at, size, rma_salt(c, rma_me(c), rma_next(c), 0));
	struct ncclnet_rma_op op = {.from = from.mhandle,
		.size = size,
		.to = w.mhandle,
		.to_off = sizeof(uint64_t),
		.rank = (uint32_t)rma_next(c),
		.signals = true,
		.signal = w.mhandle,
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = 7};
	return rma_do_put(r, m, 0, &op) && rma_await(r, m, (uint64_t *)(void *)w.at, 7) &&
	       rma_is(c, "a signaled put", w.at + sizeof(uint64_t), size,
		       rma_salt(c, rma_before(c), rma_me(c), 0)) &&
	       rma_meet(r, m) && rma_mem_end(r, m, &from) && rma_mem_end(r, m, &w);
}

/* ---- the table ---- */

void case_rma_load(struct conform *c)
{
	if (!make(c))
		return;
	if (!rma_load(&c->rma->r, c->o->path, c->o->table) &&
		c->rma->r.load_result == -EINVAL) /* there is one: `table` says what is wrong */
		rma_forgive(c);
	else
		c->load_error = c->rma->r.load_result;
	c->abi = c->rma->r.n.abi;
}

/* A table that lacks something is not loaded: that is said again. */
void case_rma_table(struct conform *c) { rma_prepare(c, CASE_BARE); }

void case_rma_iflush(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	bool lacks = false;
	const void *table = r->n.table, *p = table;
#define LOOK(kind) \
	memcpy(&p, (const char *)table + offsetof(struct kind, iflush), sizeof(p)); \
	lacks = !p
	if (r->n.abi == 13) {
		LOOK(nccl_gin_v13);
	} else if (r->n.abi == 14) {
		LOOK(nccl_rma_v14);
	} else if (r->n.abi == 15) {
		LOOK(nccl_rma_v15);
	} else {
		LOOK(nccl_rma_v16);
	}
#undef LOOK
	if (lacks)
		conform_fail(c, "iflush is NULL");
}

void case_rma_name(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	const char *name = SIDE_CALL(c->s, "name", r->n.calls->name(r->n.table));
	size_t n = name ? strnlen(name, NAME_MOST + 1) : 0;
	if (!n || n > NAME_MOST)
		conform_fail(c, name ? "it is not a short line of text" : "it is NULL");
	else
		conform_note(c, "\"%s\"", name);
}

void case_rma_init(struct conform *c)
{
	struct rma_checked *k = c->rma;
	void *second = NULL;
	k->initialized = rma_init(&k->r, side_logger(c->s), &k->r.instance);
	if (!k->initialized || !rma_properties(&k->r))
		return;
	if (!rma_init(&k->r, side_logger(c->s), &second))
		return;
	int rc = SIDE_CALL(c->s, "finalize", k->r.n.calls->finalize(k->r.n.table, second));
	side_result(c->s, rc, "finalize of the second instance");
}

static int device_count(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	int ndev = -1, rc = SIDE_CALL(c->s, "devices", r->n.calls->devices(r->n.table, &ndev));
	return side_result(c->s, rc, "devices") ? ndev : -1;
}

void case_rma_devices(struct conform *c)
{
	int ndev = device_count(c);
	if (ndev >= 0 && ndev <= c->o->device)
		conform_fail(c, "%d: there is no device %d", ndev, c->o->device);
	else if (ndev > DEVICES_MOST)
		conform_fail(c, "%d: is it a number at all?", ndev);
	else if (ndev > 0)
		conform_note(c, "%d", ndev);
}

/* ---- properties ---- */

static bool properties_call(const struct rma_side *r, int (**call)(int, void *))
{
	size_t at = r->n.abi >= 16 ? offsetof(struct nccl_rma_v16, getProperties)
				   : offsetof(struct nccl_rma_v15, getProperties);
	memcpy(call, (const char *)r->n.table + at, sizeof(*call));
	return *call != NULL;
}

void case_rma_properties(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	const struct nccl_net_properties_v12 *p = &r->p;
	int (*call)(int, void *);
	if (c->s->role || !properties_call(r, &call) ||
		!conform_within_struct(c, call, r->n.abi >= 13 ? NET_V : NET_V_OLD, c->o->device) ||
		!rma_properties(r))
		return;
	if (!p->name || !strnlen(p->name, 256))
		conform_fail(
			c, "the name of device %d is %s", c->o->device, p->name ? "empty" : "NULL");
	else if (p->ptr_support & ~(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF))
		conform_fail(c,
			"ptrSupport 0x%x has bits that mean nothing (1 host, 2 CUDA, 4 dma-buf)",
			p->ptr_support);
	else if (!(p->ptr_support & NCCL_PTR_HOST))
		conform_fail(c,
			"ptrSupport 0x%x has no host memory, which NCCL's inline values are in",
			p->ptr_support);
	else if (p->max_recvs < 1)
		conform_fail(c, "maxRecvs %d: NCCL has 32 times as many requests in flight",
			p->max_recvs);
	else if (p->max_comms < 1)
		conform_fail(c, "maxComms %d: at least 1 is expected", p->max_comms);
	else
		conform_note(c, "device %d is %.40s: %d Mbit/s, maxRecvs %d", c->o->device, p->name,
			p->speed, p->max_recvs);
}

void case_rma_outside(struct conform *c)
{
	struct rma_side *r = &c->rma->r;
	int ndev = device_count(c);
	const int outside[] = {ndev, -1};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(outside) && !c->s->role; i++) {
		struct nccl_net_properties_v12 p;
		if (!SIDE_CALL(c->s, "getProperties",
			    r->n.calls->properties(r->n.table, outside[i], &p)))
			conform_quirk(c, -1, "getProperties(%d) of %d devices is a success",
				outside[i], ndev);
	}
}

void case_rma_type(struct conform *c)
{
	int type = c->rma->r.p.device_type;
	if (c->abi <= 13 && type != DEVICE_GIN_PROXY)
		conform_fail(c,
			"netDeviceType %d: tables up to v13 are for type 2 (GIN proxy), whose "
			"operations the host calls",
			type);
	else
		conform_note(c, "%d", type);
}

/* ---- comms ---- */

void case_rma_listen(struct conform *c)
{
	struct rma_comm m;
	char handle[RMA_HANDLE_ROOM];
	memset(handle, 0x5a, sizeof(handle));
	if (!rma_listen(&c->rma->r, &m, handle))
		return;
	for (int i = NCCL_RMA_HANDLE_BYTES; i < RMA_HANDLE_ROOM; i++)
		if (handle[i] != 0x5a) {
			conform_fail(c, "listen wrote byte %d, past the %d bytes of a handle", i,
				NCCL_RMA_HANDLE_BYTES);
			return;
		}
	/* nobody connects */
	rma_close(&c->rma->r, &m);
}

void case_rma_connect(struct conform *c)
{
	if (rma_world(c))
		conform_note(c, "%d ranks, %d context%s", rma_ranks(c), c->rma->world.contexts,
			c->rma->world.contexts > 1 ? "s" : "");
}

/* Each rank of a part writes to the next. */
static bool part(struct conform *c, int ranks)
{
	struct rma_side *r = &c->rma->r;
	struct rma_comm m;
	struct rma_mem w;
	if (!rma_join(r, &m, ranks, 1))
		return false;
	if (rma_me(c) >= ranks)
		return rma_meet(r, NULL) && rma_meet(r, NULL);
	if (!rma_mem_make(r, &m, &w, 4096) || !rma_meet(r, &m))
		return false;
	struct ncclnet_rma_op op = {.rank = (uint32_t)((rma_me(c) + 1) % ranks),
		.signals = true,
		.signal = w.mhandle,
		.signal_op = NCCL_RMA_SIGNAL_ADD,
		.value = 5};
	return rma_do_put(r, &m, 0, &op) && rma_await(r, &m, (uint64_t *)(void *)w.at, 5) &&
	       rma_meet(r, &m) && rma_mem_end(r, &m, &w) && rma_close(r, &m);
}

void case_rma_ranks(struct conform *c)
{
	static const int parts[] = {1, 2, 3, 5};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(parts) && parts[i] < rma_ranks(c); i++)
		if (!part(c, parts[i]))
			return;
}

/* The struct is of one byte, whatever lies behind it. */
void case_rma_claims(struct conform *c)
{
	const struct nccl_rma_v16 *t = c->rma->r.n.table;
	unsigned char room[2][CLAIM_ROOM];
	if (!rma_world(c))
		return;
	for (int i = 0; i < 2; i++) {
		memset(room[i], i ? 0x5a : 0xa5, CLAIM_ROOM);
		int rc = SIDE_CALL(c->s, "getRmaProperties",
			t->getRmaProperties(c->rma->world.coll, (void *)room[i]));
		if (!side_result(c->s, rc, "getRmaProperties"))
			return;
	}
	for (int at = 1; at < CLAIM_ROOM; at++)
		if (room[0][at] != 0xa5 || room[1][at] != 0x5a) {
			conform_fail(c, "byte %d was written, and the struct has 1", at);
			return;
		}
	if (room[0][0] != room[1][0] || room[0][0] > 1)
		conform_fail(c,
			"flushesAllPutsOnAnySignal is 0x%02x and 0x%02x: 0 or 1 is expected",
			room[0][0], room[1][0]);
	else
		conform_note(c, "flushesAllPutsOnAnySignal %d", room[0][0]);
}
