/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - see rma.h. */
#include "ncclnet/drive/rma.h"

#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

enum { GUARD_BYTE = 0xa7, UNTOUCHED = 0x5a, NET_ABI_CONTEXTS = 11 };

#define CALL(r, name, fn, ...) SIDE_CALL((r)->s, name, (r)->n.calls->fn((r)->n.table, __VA_ARGS__))

/* ---- tables ---- */

const char *rma_symbol(const char *name, char *out, size_t room)
{
	snprintf(out, room, "nccl%sPlugin_%s", *name == 'G' ? "Gin" : "Rma", strchr(name, 'v'));
	return out;
}

const char *rma_table(const char *brief)
{
	for (unsigned i = 0; *brief && ncclnet_rma_table_name(i); i++) {
		const char *name = ncclnet_rma_table_name(i), *number = strchr(name, 'v');
		bool gin = *name == 'G';
		if (!strncmp(brief, gin ? "gin" : "v", gin ? 3 : 1) &&
			!strcmp(brief + (gin ? 3 : 1), number + 1))
			return name;
	}
	return *brief ? NULL : brief;
}

bool rma_has_get(const struct rma_side *r) { return r->n.abi >= 13; }
bool rma_has_weak(const struct rma_side *r) { return r->n.abi >= 14; }
bool rma_has_options(const struct rma_side *r) { return r->n.abi >= 15; }
int rma_contexts(const struct rma_side *r, int wanted) { return r->n.abi == 11 ? 1 : wanted; }

bool rma_load(struct rma_side *r, const char *path, const char *which)
{
	char why[300] = "", none[300], symbol[32];
	r->load_result =
		SIDE_CALL(r->s, "dlopen", ncclnet_rma_load(path, which, &r->n, why, sizeof(why)));
	void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	for (unsigned i = 0; library && ncclnet_rma_table_name(i); i++)
		if (dlsym(library, rma_symbol(ncclnet_rma_table_name(i), symbol, sizeof(symbol))))
			r->exported |= 1u << i;
	if (library)
		dlclose(library);
	/* of the versions that may be initialized for each communicator */
	if (!r->load_result && !r->net && ncclnet_load(path, 0, &r->net, none, sizeof(none)))
		r->net = NULL;
	if (r->net && r->net->abi < NET_ABI_CONTEXTS) {
		ncclnet_unload(r->net);
		r->net = NULL;
	}
	return !r->load_result || side_fail(r->s, "%s", why);
}

bool rma_init(struct rma_side *r, nccl_logger log, void **instance)
{
	void *ctx; /* lives as long as the process */
	if (r->net && !r->net_up) {
		/* NCCL takes another network where it fails, and goes on */
		SIDE_CALL(r->s, "init of the network plugin", ncclnet_init(r->net, &ctx, log));
		r->net_up = true;
	}
	return side_result(r->s, CALL(r, "init", init, instance, log), "init");
}

bool rma_properties(struct rma_side *r)
{
	int rc = CALL(r, "getProperties", properties, r->s->device, &r->p);
	return side_result(r->s, rc, "getProperties(%d)", r->s->device);
}

/* ---- comms ---- */

bool rma_listen(struct rma_side *r, struct rma_comm *m, void *handle)
{
	*m = (struct rma_comm){.instance = r->instance};
	int rc = CALL(r, "listen", listen, m->instance, r->s->device, handle, &m->listen);
	return side_result(r->s, rc, "listen") &&
	       (m->listen || side_fail(r->s, "listen gives no comm"));
}

bool rma_connect(
	struct rma_side *r, struct rma_comm *m, void **handles, int ranks, int rank, int contexts)
{
	m->ranks = ranks;
	m->rank = rank;
	m->contexts = rma_contexts(r, contexts);
	int rc = CALL(r, "connect", connect, m->instance, handles, ranks, rank, m->contexts,
		m->listen, &m->coll);
	if (!side_result(r->s, rc, "connect of %d ranks", ranks))
		return false;
	if (!m->coll)
		return side_fail(r->s, "connect gives no coll comm");
	rc = CALL(r, "createContext", context, m->coll, m->contexts, &m->ctx);
	return side_result(r->s, rc, "createContext");
}

bool rma_join(struct rma_side *r, struct rma_comm *m, int ranks, int contexts)
{
	struct side *s = r->s;
	void *handles[PAIR_SIDES_MAX];
	char copy[PAIR_SIDES_MAX][RMA_HANDLE_ROOM], *own = s->shared->note[s->role];
	bool joins = s->role < ranks;
	*m = (struct rma_comm){.rank = -1};
	memset(own, UNTOUCHED, PAIR_NOTE);
	if ((joins && !rma_listen(r, m, own)) || !side_meet_spinning(s))
		return false;
	for (int i = NCCL_RMA_HANDLE_BYTES; joins && i < PAIR_NOTE; i++)
		if (own[i] != UNTOUCHED)
			return side_fail(s, "listen wrote byte %d of a handle of %d", i,
				NCCL_RMA_HANDLE_BYTES);
	memcpy(copy, s->shared->note, sizeof(copy));
	for (int i = 0; i < ranks; i++)
		handles[i] = copy[i];
	return (!joins || rma_connect(r, m, handles, ranks, s->role, contexts)) &&
	       rma_meet(r, joins ? m : NULL);
}

bool rma_close(struct rma_side *r, struct rma_comm *m)
{
	int ctx = 0, coll = 0, listen = 0;
	if (m->ctx)
		ctx = CALL(r, "destroyContext", context_destroy, m->ctx);
	if (m->coll)
		coll = CALL(r, "closeColl", close_coll, m->coll);
	if (m->listen)
		listen = CALL(r, "closeListen", close_listen, m->listen);
	*m = (struct rma_comm){.rank = -1};
	return side_result(r->s, ctx, "destroyContext") && side_result(r->s, coll, "closeColl") &&
	       side_result(r->s, listen, "closeListen");
}

/* ---- memory ---- */

bool rma_reg(struct rma_side *r, const struct rma_comm *m, void *at, size_t size, uint64_t flags,
	void **mhandle)
{
	int rc = CALL(r, "regMrSym", reg, m->coll, at, size, NCCL_PTR_HOST, flags, mhandle);
	return side_result(r->s, rc, "regMrSym of %zu bytes, flags %llu", size,
		       (unsigned long long)flags) &&
	       (*mhandle || side_fail(r->s, "regMrSym gives no handle"));
}

bool rma_dereg(struct rma_side *r, const struct rma_comm *m, void *mhandle)
{
	return side_result(r->s, CALL(r, "deregMrSym", dereg, m->coll, mhandle), "deregMrSym");
}

bool rma_mem_make(struct rma_side *r, const struct rma_comm *m, struct rma_mem *w, size_t size)
{
	char *map = mmap(NULL, size + 2 * RMA_GUARD, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED)
		return side_fail(r->s, "no memory for %zu bytes", size);
	/* as end_memory does */
	madvise(map, size + 2 * RMA_GUARD, MADV_HUGEPAGE);
	*w = (struct rma_mem){.at = map + RMA_GUARD, .size = size};
	memset(map, GUARD_BYTE, RMA_GUARD);
	memset(map + RMA_GUARD + size, GUARD_BYTE, RMA_GUARD);
	return rma_reg(r, m, w->at, size, NCCL_RMA_FORCE_ORDER, &w->mhandle);
}

bool rma_mem_end(struct rma_side *r, const struct rma_comm *m, struct rma_mem *w)
{
	bool ok = rma_dereg(r, m, w->mhandle);
	if (ok)
		munmap(w->at - RMA_GUARD, w->size + 2 * RMA_GUARD);
	*w = (struct rma_mem){.at = NULL};
	return ok;
}

long rma_mem_hurt(const struct rma_mem *w)
{
	const unsigned char *at = (const unsigned char *)w->at;
	long size = (long)w->size;
	for (long i = -1; i >= -RMA_GUARD; i--)
		if (at[i] != GUARD_BYTE)
			return i;
	for (long i = size; i < size + RMA_GUARD; i++)
		if (at[i] != GUARD_BYTE)
			return i;
	return 0;
}

/* ---- operations ---- */

bool rma_put(struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op,
	void **request)
{
	const char *name = op->signals ? "iputSignal" : "iput";
	int rc = CALL(r, name, put, m->coll, m->ctx, ctx, op, request);
	return side_result(r->s, rc, "%s of %zu bytes to rank %u", name, op->size, op->rank) &&
	       (*request || side_fail(r->s, "%s gives success and no request", name));
}

bool rma_get(struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op,
	void **request)
{
	int rc = CALL(r, "iget", get, m->coll, m->ctx, ctx, op, request);
	return side_result(r->s, rc, "iget of %zu bytes from rank %u", op->size, op->rank) &&
	       (*request || side_fail(r->s, "iget gives success and no request"));
}

bool rma_flush(struct rma_side *r, const struct rma_comm *m, int ctx, void *mhandle, uint32_t rank,
	void **request)
{
	int rc = CALL(r, "iflush", flush, m->coll, m->ctx, ctx, mhandle, rank, request);
	return rc == NCCLNET_ABSENT || side_result(r->s, rc, "iflush");
}

int rma_test(struct rma_side *r, const struct rma_comm *m, void *request, int *done)
{
	return CALL(r, "test", test, m->coll, request, done);
}

bool rma_progress(struct rma_side *r, const struct rma_comm *m)
{
	if (!m || !m->coll)
		return true;
	int rc = CALL(r, "rmaProgress", progress, m->coll, m->ctx);
	return rc == NCCLNET_ABSENT || side_result(r->s, rc, "rmaProgress");
}

bool rma_idle(struct rma_side *r, const struct rma_comm *m, unsigned *looks)
{
	return rma_progress(r, m) && r->s->idle(r->s, looks);
}

bool rma_wait(struct rma_side *r, const struct rma_comm *m, void *request)
{
	unsigned looks = 0;
	for (;;) {
		int done = 0, rc = rma_test(r, m, request, &done);
		if (!side_result(r->s, rc, "test"))
			return false;
		if (done)
			return true;
		if (!rma_idle(r, m, &looks))
			return false;
	}
}

bool rma_do_put(
	struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op)
{
	void *request;
	return rma_put(r, m, ctx, op, &request) && rma_wait(r, m, request);
}

bool rma_do_get(
	struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op)
{
	void *request, *flush;
	return rma_get(r, m, ctx, op, &request) && rma_wait(r, m, request) &&
	       rma_flush(r, m, ctx, op->to, op->rank, &flush) && (!flush || rma_wait(r, m, flush));
}

bool rma_await(struct rma_side *r, const struct rma_comm *m, const uint64_t *word, uint64_t value)
{
	for (unsigned looks = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE) < value;)
		if (!rma_idle(r, m, &looks))
			return false;
	return true;
}

bool rma_meet(struct rma_side *r, const struct rma_comm *m)
{
	uint32_t ticket = side_arrive(r->s);
	for (unsigned looks = 0; !side_arrived(r->s, ticket);)
		if (!rma_idle(r, m, &looks))
			return false;
	return true;
}

bool rma_has_failed(struct rma_side *r, const struct rma_comm *m)
{
	bool failed = false;
	int rc = CALL(r, "queryLastError", query, m->coll, m->ctx, &failed);
	return (rc && rc != NCCLNET_ABSENT) || failed;
}
