/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_memory.c - registration, which is collective: each rank tells all others the key of its
 * memory, and waits for theirs. A rank that cannot register says so, and the call fails on all.
 *
 * An mhandle is a number: the place in the coll comm's table, and how often that place was taken.
 * So one that is stale, garbled or of another coll comm is refused, and never followed. */
#include "nccl/rma.h"

#include <sched.h>
#include <stdlib.h>

enum { PLACE_BITS = 20, SPIN_ROUNDS = 2000, SLEEP_NS = 50000 };
_Static_assert(RMA_MEMORIES_MAX < 1 << PLACE_BITS, "a place and one fits");

/* Of a peer's that came. */
struct rma_reg {
	struct rpwi_list all;
	struct rma_reg_head head;
	size_t key_len;
	uint8_t key[];
};

/* ---- the table ---- */

static uint32_t id_of(const struct rma_comm *c, uint32_t slot)
{
	return c->memories.at[slot].generation << PLACE_BITS | (slot + 1);
}

struct rma_memory *rma_memory_by_id(struct rma_comm *c, uint32_t id)
{
	uint32_t place = id & ((1u << PLACE_BITS) - 1);
	struct rma_memory *m = place ? rpwi_slots_find(&c->memories, place - 1) : NULL;
	return m && m->id == id ? m : NULL;
}

static void *mhandle_of(const struct rma_memory *m) { return (void *)((uintptr_t)m->id << 4); }

struct rma_memory *rma_memory_of(struct rma_comm *c, const void *mhandle)
{
	uintptr_t v = (uintptr_t)mhandle;
	return v & 15 || v >> 36 ? NULL : rma_memory_by_id(c, (uint32_t)(v >> 4));
}

static void memory_free(struct rma_memory *m)
{
	struct rma_comm *c = m->comm;
	for (int i = 0; i < c->ranks; i++)
		rpw_rkey_destroy(m->there[i].key);
	rpw_memory_destroy(m->m);
	rpwi_slots_give(&c->memories, m->slot);
	free(m);
}

void rma_memories_free(struct rma_comm *c)
{
	for (uint32_t i = 0; i < c->memories.room; i++) {
		struct rma_memory *m = rpwi_slots_find(&c->memories, i);
		if (m)
			memory_free(m);
	}
	rpwi_slots_fini(&c->memories);
}

static struct rma_memory *memory_new(
	struct rma_comm *c, void *data, size_t size, int type, uint64_t flags)
{
	struct rma_memory *m =
		rpwi_slots_reserve(&c->memories, RMA_MEMORIES_MAX)
			? calloc(1, sizeof(*m) + (size_t)c->ranks * sizeof(m->there[0]))
			: NULL;
	if (!m)
		return NULL;
	m->comm = c;
	m->slot = rpwi_slots_take(&c->memories, m);
	m->id = id_of(c, m->slot);
	m->data = data;
	m->size = size;
	m->type = type;
	m->flags = flags;
	return m;
}

/* ---- what peers say ---- */

void rma_regs_free(struct rma_peer *p)
{
	while (!rpwi_list_empty(&p->regs))
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&p->regs), struct rma_reg, all));
	p->regs_count = 0;
}

static void breach(struct rma_peer *p, const char *what)
{
	if (!p->breached)
		plugin_warn(
			"rank %d (%s) sent %s: do all ranks have the same libnccl-net-ropeway.so?",
			p->rank, p->name, what);
	p->breached = p->comm->failed = true;
}

void rma_reg_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm)
{
	struct rma_comm *c = comm;
	struct rma_peer *p = rpw_endpoint_user(ep);
	struct rma_reg_head h = {0};
	if (header_len == sizeof(h))
		memcpy(&h, header, sizeof(h)); /* the peer may still write where it lies */
	if (!p || (header_len == sizeof(h) && h.number < c->regs && h.number != c->reg_awaited))
		return;
	if (header_len != sizeof(h) || len > RPW_RKEY_BYTES_MAX ||
		p->regs_count >= RMA_REGS_AHEAD) {
		breach(p, "a registration that is none, or one too many");
		return;
	}
	struct rma_reg *r = malloc(sizeof(*r) + len);
	if (!r) {
		breach(p, "a registration for which there is no memory");
		return;
	}
	r->head = h;
	r->key_len = len;
	if (len)
		memcpy(r->key, data, len);
	rpwi_list_add_tail(&p->regs, &r->all);
	p->regs_count++;
}

/* ---- registering ---- */

/* What we say. 0, or enum nccl_result with a line. */
static int open_here(struct rma_memory *m, uint8_t *key, size_t *key_len)
{
	const unsigned access = RPW_REMOTE_READ | RPW_REMOTE_WRITE | RPW_REMOTE_ATOMIC;
	*key_len = 0;
	if (!m->size)
		return NCCL_SUCCESS;
	int status = rpw_memory_register(m->comm->cc->c, m->data, m->size,
		m->type == NCCL_PTR_CUDA ? RPW_MEMORY_CUDA : RPW_MEMORY_HOST, access, &m->m);
	int n = status ? status : rpw_rkey_pack(m->m, key, RPW_RKEY_BYTES_MAX);
	if (n >= 0) {
		*key_len = (size_t)n;
		return NCCL_SUCCESS;
	}
	plugin_warn("%zu bytes of %s memory at %s cannot be registered: %s", m->size,
		m->type == NCCL_PTR_CUDA ? "CUDA" : "host", RPWI_AT(m->data), rpw_last_error());
	return plugin_result(n);
}

static void told(rpw_request *r, const rpw_completion *done, void *key)
{
	rpw_request_destroy(r);
	free(key);
}

/* To all ranks, ourselves too; those of the endpoints that have ended are found by the wait. */
static void tell(struct rma_comm *c, const struct rma_reg_head *h, const uint8_t *key, size_t len)
{
	for (int i = 0; i < c->ranks; i++) {
		rpw_request *r = NULL;
		uint8_t *copy = malloc(len + 1); /* in use until it has gone */
		if (copy && len)
			memcpy(copy, key, len);
		if (copy && rpw_am_send(c->peer[i].ep, RMA_REG, h, sizeof(*h), copy, len, &r) ==
				    RPW_IN_PROGRESS)
			rpw_request_on_done(r, told, copy);
		else
			free(copy);
	}
}

/* What we say to ourselves comes by the other end. */
static struct rma_peer *says(struct rma_comm *c, int rank)
{
	return &c->peer[rank == c->rank ? c->ranks : rank];
}

/* A rank that has not said its part yet; NULL: all have. */
static struct rma_peer *not_heard(struct rma_comm *c)
{
	for (int i = 0; i < c->ranks; i++)
		if (rpwi_list_empty(&says(c, i)->regs))
			return says(c, i);
	return NULL;
}

/* Nobody waits for registrations up to this one (any more). */
static void forget(struct rma_comm *c, uint64_t number)
{
	c->reg_awaited = UINT64_MAX;
	for (int i = 0; i < c->ranks; i++) {
		struct rma_peer *p = says(c, i);
		RPWI_LIST_EACH_SAFE (struct rma_reg, r, after, &p->regs, all)
			if (r->head.number <= number) {
				rpwi_list_del(&r->all);
				free(r);
				p->regs_count--;
			}
	}
}

static struct rma_peer *hear_all(struct rma_comm *c, unsigned ms)
{
	const struct timespec moment = {.tv_nsec = SLEEP_NS};
	uint64_t until_ns = rpwi_now_ns() + ms * RPWI_NS_PER_MS;
	for (unsigned round = 0;; round++) {
		rpw_context_progress(c->cc->c);
		struct rma_peer *p = not_heard(c);
		if (!p || p->gone || rpwi_now_ns() > until_ns)
			return p;
		comm_context_leave(c->cc);
		if (round < SPIN_ROUNDS)
			sched_yield();
		else
			nanosleep(&moment, NULL);
		comm_context_enter(c->cc);
	}
}

static int take_one(struct rma_memory *m, int rank, uint64_t number)
{
	struct rma_comm *c = m->comm;
	struct rma_peer *p = &c->peer[rank], *said = says(c, rank);
	struct rma_reg *r = RPWI_CONTAINER_OF(rpwi_list_pop(&said->regs), struct rma_reg, all);
	struct rma_there *t = &m->there[rank];
	int rc = NCCL_SUCCESS;
	said->regs_count--;
	if (r->head.number != number) {
		plugin_warn("rank %d registers for the %llu. time, rank %d for the %llu.: "
			    "registration is collective, in one order on all ranks",
			c->rank, (unsigned long long)number + 1, rank,
			(unsigned long long)r->head.number + 1);
		rc = NCCL_INVALID_USAGE;
	} else if (r->head.result) {
		if (rank != c->rank)
			plugin_warn("rank %d could not register its part (result %d): its log says "
				    "why",
				rank, r->head.result);
		rc = NCCL_REMOTE_ERROR;
	} else if (r->head.size && rpw_rkey_unpack(p->ep, r->key, r->key_len, &t->key)) {
		plugin_warn("the key of rank %d's memory: %s", rank, rpw_last_error());
		rc = NCCL_INTERNAL_ERROR;
	}
	t->size = r->head.size;
	t->id = r->head.id;
	t->type = (int)r->head.type;
	free(r);
	return rc;
}

/* With the lock held: our part to all, and theirs. `result`: why there is none of ours. */
static int exchange(
	struct rma_comm *c, struct rma_memory *m, int result, const uint8_t *key, size_t key_len)
{
	unsigned ms = plugin_timeout_ms(PLUGIN_ACCEPT_MS);
	uint64_t number = c->regs++;
	const struct rma_reg_head h = {.number = number,
		.size = m ? m->size : 0,
		.id = m ? m->id : 0,
		.type = m ? (uint32_t)m->type : 0,
		.flags = m ? (uint32_t)m->flags : 0,
		.result = result};
	c->reg_awaited = number;
	tell(c, &h, key, key_len);
	if (!m || result) {
		forget(c, number);
		return result;
	}
	struct rma_peer *p = hear_all(c, ms);
	if (p && p->gone) {
		forget(c, number);
		return rma_peer_failed(
			p, p->status ? p->status : RPW_ERR_PEER_GONE, "registering memory with");
	}
	if (p) {
		forget(c, number);
		plugin_warn("rank %d has not registered within %u ms: registration is collective; "
			    "ROPEWAY_NCCL_TIMEOUT_MS is how long to wait",
			p->rank, ms);
		return NCCL_REMOTE_ERROR;
	}
	int rc = NCCL_SUCCESS;
	for (int i = 0; i < c->ranks; i++) {
		int one = take_one(m, i, number);
		rc = rc ? rc : one;
	}
	forget(c, number);
	return rc;
}

static int check_reg(const void *data, size_t size, int type)
{
	if (size > PTRDIFF_MAX || size > UINTPTR_MAX - (uintptr_t)data || (!data && size)) {
		plugin_warn("regMrSym was given %zd bytes at %s", (ssize_t)size, RPWI_AT(data));
		return NCCL_INVALID_ARGUMENT;
	}
	if (type == NCCL_PTR_HOST || (type == NCCL_PTR_CUDA && rma_ptr_support() & NCCL_PTR_CUDA))
		return NCCL_SUCCESS;
	plugin_warn("memory type %d cannot be registered: NCCL_PTR_HOST is %d, NCCL_PTR_CUDA %d; "
		    "ptrSupport is 0x%x",
		type, NCCL_PTR_HOST, NCCL_PTR_CUDA, rma_ptr_support());
	return NCCL_INVALID_ARGUMENT;
}

int rma_reg(int abi, void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle)
{
	struct rma_comm *c = coll;
	uint8_t key[RPW_RKEY_BYTES_MAX];
	size_t key_len = 0;
	*mhandle = NULL;
	int rc = rma_comm_check(coll, abi, "regMrSym");
	if (rc)
		return rc;
	int result = check_reg(data, size, type);
	comm_context_enter(c->cc);
	struct rma_memory *m = result ? NULL : memory_new(c, data, size, type, flags);
	if (!m && !result) {
		plugin_warn("no memory to register memory, or %d are registered", RMA_MEMORIES_MAX);
		result = NCCL_SYSTEM_ERROR;
	}
	if (m)
		result = open_here(m, key, &key_len);
	rc = exchange(c, m, result, key, key_len);
	if (!rc)
		*mhandle = mhandle_of(m);
	else if (m)
		memory_free(m);
	comm_context_leave(c->cc);
	return rc;
}

int rma_reg_dmabuf(int abi, void *coll, void **mhandle)
{
	struct rma_comm *c = coll;
	*mhandle = NULL;
	int rc = rma_comm_check(coll, abi, "regMrSymDmaBuf");
	if (rc)
		return rc;
	plugin_warn("regMrSymDmaBuf: memory cannot be registered by a dma-buf, which ptrSupport "
		    "(0x%x) does not offer: use regMrSym",
		rma_ptr_support());
	comm_context_enter(c->cc);
	rc = exchange(c, NULL, NCCL_INVALID_USAGE, NULL, 0);
	comm_context_leave(c->cc);
	return rc;
}

/* Operations under way use its keys and its bytes: they are waited for. */
static bool await_users(struct rma_memory *m)
{
	struct rma_comm *c = m->comm;
	uint64_t until_ns = rpwi_now_ns() + RMA_DEREG_MS * RPWI_NS_PER_MS;
	while (m->users && rpwi_now_ns() < until_ns)
		if (rpw_context_progress(c->cc->c) <= 0) {
			comm_context_leave(c->cc);
			sched_yield();
			comm_context_enter(c->cc);
		}
	return !m->users;
}

int rma_dereg(int abi, void *coll, void *mhandle)
{
	struct rma_comm *c = coll;
	int rc = rma_comm_check(coll, abi, "deregMrSym");
	if (rc || !mhandle)
		return rc;
	comm_context_enter(c->cc);
	struct rma_memory *m = rma_memory_of(c, mhandle);
	if (!m) {
		plugin_warn(
			"deregMrSym was given %s, which regMrSym of this coll comm did not give, "
			"or which was deregistered",
			RPWI_AT(mhandle));
		rc = NCCL_INVALID_ARGUMENT;
	} else if (!await_users(m)) {
		plugin_warn(
			"deregMrSym of %zu bytes at %s: %u operations of it are still under way "
			"after %d ms: it stays registered",
			m->size, RPWI_AT(m->data), m->users, RMA_DEREG_MS);
		rc = NCCL_INTERNAL_ERROR;
	} else
		memory_free(m);
	comm_context_leave(c->cc);
	return rc;
}
