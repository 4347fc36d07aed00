/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_comm.c - coll comms and their contexts: made, asked about, closed. */
#include "nccl/rma.h"

#include <sched.h>
#include <stdlib.h>

/* ---- contexts ---- */

static struct rma_context *context_new(struct rma_comm *c, int count, int traffic_class)
{
	size_t sequences = (size_t)count * (size_t)c->ranks;
	struct rma_context *x = calloc(1, sizeof(*x) + sequences * sizeof(x->sequence[0]));
	if (!x) {
		plugin_warn("no memory for %d contexts", count);
		return NULL;
	}
	x->magic = rma_context_magic;
	x->abi = c->abi;
	x->comm = c;
	x->count = count;
	x->traffic_class = traffic_class;
	for (size_t i = 0; i < sequences; i++) {
		rpwi_list_init(&x->sequence[i].puts);
		rpwi_list_init(&x->sequence[i].gets);
	}
	rpwi_list_add_tail(&c->contexts, &x->all);
	c->contexts_count += (unsigned)count;
	return x;
}

static int check_contexts(int contexts)
{
	if (contexts >= 1 && contexts <= RMA_CONTEXTS_MAX)
		return NCCL_SUCCESS;
	plugin_warn("%d contexts were asked for: 1 to %d are possible", contexts, RMA_CONTEXTS_MAX);
	return NCCL_INVALID_ARGUMENT;
}

int rma_context_create(int abi, void *coll, int contexts, int traffic_class, void **ctx)
{
	struct rma_comm *c = coll;
	*ctx = NULL;
	int rc = rma_comm_check(coll, abi, "createContext");
	if (!rc)
		rc = check_contexts(contexts);
	if (rc)
		return rc;
	comm_context_enter(c->cc);
	*ctx = context_new(c, contexts, traffic_class);
	comm_context_leave(c->cc);
	return *ctx ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

static bool is_idle(const struct rma_context *x)
{
	for (size_t i = 0; i < (size_t)x->count * (size_t)x->comm->ranks; i++)
		if (!rpwi_list_empty(&x->sequence[i].puts) ||
			!rpwi_list_empty(&x->sequence[i].gets))
			return false;
	return true;
}

/* Operations under way go on; then it is freed with its coll comm. */
int rma_context_destroy(int abi, void *ctx)
{
	struct rma_context *x;
	if (!ctx && rma_names_no_context(abi))
		return NCCL_SUCCESS; /* which the proxies of these versions never made */
	int rc = rma_context_check(ctx, abi, -1, "destroyContext", &x);
	if (rc)
		return rc;
	struct rma_comm *c = x->comm;
	comm_context_enter(c->cc);
	if (x != c->own) {
		x->magic = 0;
		c->contexts_count -= (unsigned)x->count;
		if (is_idle(x)) {
			rpwi_list_del(&x->all);
			free(x);
		}
	}
	comm_context_leave(c->cc);
	return NCCL_SUCCESS;
}

/* ---- errors ---- */

/* The GIN proxy of NCCL 2.30.3 and 2.30.4 passes not what createContext gave, but a struct of its
 * own, which begins with the coll comm. */
static void *asked_about(int abi, void *ctx)
{
	void *first;
	if (abi != PLUGIN_API_GIN + 13 || !ctx)
		return ctx;
	memcpy(&first, ctx, sizeof(first));
	return comm_context_has(first) ? ((struct rma_comm *)first)->own : ctx;
}

int rma_query(int abi, void *ctx, bool *failed)
{
	struct rma_context *x;
	*failed = false;
	int rc = rma_context_check(asked_about(abi, ctx), abi, -1, "queryLastError", &x);
	if (rc)
		return rc;
	struct rma_comm *c = x->comm;
	comm_context_enter(c->cc);
	rpw_context_progress(c->cc->c);
	*failed = c->failed;
	comm_context_leave(c->cc);
	return NCCL_SUCCESS;
}

int rma_progress(int abi, void *ctx)
{
	struct rma_context *x;
	int rc = rma_context_check(ctx, abi, -1, "progress", &x);
	if (rc)
		return rc;
	struct rma_comm *c = x->comm;
	if (!comm_context_try(c->cc))
		return NCCL_SUCCESS; /* somebody does */
	rpw_context_progress(c->cc->c);
	comm_context_leave(c->cc);
	return NCCL_SUCCESS;
}

/* ---- connect ---- */

static void comm_free(struct rma_comm *c)
{
	struct comm_context *cc = c->cc;
	comm_context_enter(cc);
	c->magic = 0;
	c->shut = true;
	for (unsigned id = PLUGIN_REFUSED; id <= RMA_REFUSED; id++)
		rpw_context_on_am(cc->c, id, NULL, NULL);
	for (int i = 0; i <= c->ranks; i++) {
		struct rma_peer *p = &c->peer[i];
		if (p->ep) {
			rpw_endpoint_on_close(p->ep, NULL, NULL);
			rpw_endpoint_set_user(p->ep, NULL);
			rpw_endpoint_destroy(p->ep);
			p->ep = NULL;
		}
		rma_regs_free(p);
	}
	rpw_context_progress(cc->c); /* callbacks of what that has ended */
	rma_requests_free(c);
	rma_memories_free(c);
	while (!rpwi_list_empty(&c->contexts))
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&c->contexts), struct rma_context, all));
	atomic_store(&cc->coll, NULL);
	comm_context_leave(cc);
	comm_context_drop(cc);
	free(c);
}

static struct rma_comm *comm_new(int abi, int ranks, int rank, struct plugin_comm *lc)
{
	struct rma_comm *c = calloc(1, sizeof(*c) + ((size_t)ranks + 1) * sizeof(c->peer[0]));
	if (!c) {
		plugin_warn("no memory for a coll comm of %d ranks", ranks);
		return NULL;
	}
	c->magic = rma_coll_magic;
	c->abi = abi;
	c->cc = lc->cc;
	c->device = lc->device;
	c->ranks = ranks;
	c->rank = rank;
	rpwi_list_init(&c->contexts);
	for (int i = 0; i <= ranks; i++) {
		c->peer[i].comm = c;
		c->peer[i].rank = i < ranks ? i : rank;
		rpwi_list_init(&c->peer[i].messages);
		rpwi_list_init(&c->peer[i].waiting);
		rpwi_list_init(&c->peer[i].regs);
	}
	comm_context_enter(c->cc);
	c->cc->users++;
	atomic_store(&c->cc->coll, c);
	comm_context_leave(c->cc);
	return c;
}

static int check_group(int abi, void **handles, int ranks, int rank, const struct plugin_comm *lc,
	struct plugin_handle *copies)
{
	char why[320];
	for (int i = 0; i < ranks; i++) {
		memcpy(&copies[i], handles[i], sizeof(copies[i])); /* NCCL aligns it for chars */
		int rc = plugin_handle_check(&copies[i], abi, why, sizeof(why));
		if (rc) {
			plugin_warn("connect, rank %d of %d: of rank %d: %s", rank, ranks, i, why);
			return rc;
		}
	}
	if (memcmp(copies[rank].nonce, plugin_listen_nonce(lc), PLUGIN_NONCE_BYTES) != 0) {
		plugin_warn(
			"connect, rank %d of %d: handle %d, its own, was not made by the listen "
			"comm that it gives",
			rank, ranks, rank);
		return NCCL_INVALID_ARGUMENT;
	}
	if (!atomic_load(&lc->cc->coll))
		return NCCL_SUCCESS;
	plugin_warn("connect, rank %d of %d: the listen comm that it gives has a coll comm "
		    "already: each needs a listen comm of its own",
		rank, ranks);
	return NCCL_INVALID_USAGE;
}

int rma_connect(
	int abi, void **handles, int ranks, int rank, int contexts, void *listen_comm, void **coll)
{
	struct plugin_comm *lc = listen_comm;
	*coll = NULL;
	int rc = plugin_comm_check(listen_comm, PLUGIN_LISTEN, abi, "connect");
	if (!rc && (!handles || ranks < 1 || ranks > RMA_RANKS_MAX || rank < 0 || rank >= ranks)) {
		plugin_warn("connect was given rank %d of %d: 1 to %d ranks are possible", rank,
			ranks, RMA_RANKS_MAX);
		rc = NCCL_INVALID_ARGUMENT;
	}
	if (!rc)
		rc = check_contexts(contexts);
	struct plugin_handle *copies = rc ? NULL : calloc((size_t)ranks, sizeof(*copies));
	if (!rc)
		rc = copies ? check_group(abi, handles, ranks, rank, lc, copies)
			    : NCCL_SYSTEM_ERROR;
	struct rma_comm *c = rc ? NULL : comm_new(abi, ranks, rank, lc);
	if (!rc && c)
		c->own = context_new(c, contexts, -1);
	if (!rc)
		rc = c && c->own ? rma_join_all(c, lc, copies) : NCCL_SYSTEM_ERROR;
	free(copies);
	if (rc && c)
		comm_free(c);
	if (rc)
		return rc;
	plugin_info("%s: rank %d of %d on %s: all ranks are connected", PLUGIN_API(abi), rank,
		ranks, c->device->name);
	*coll = c;
	return NCCL_SUCCESS;
}

/* ---- close ---- */

/* Everything that was put is to be at its peer, which does not have to call anything for that. */
static void shut_down(struct rma_comm *c)
{
	rpw_request **r = calloc((size_t)c->ranks, sizeof(rpw_request *));
	uint64_t until_ns = rpwi_now_ns() + RMA_CLOSE_MS * RPWI_NS_PER_MS;
	bool waits = r != NULL;
	for (int i = 0; r && i < c->ranks; i++)
		if (rpw_endpoint_shutdown(c->peer[i].ep, &r[i]) < 0)
			r[i] = NULL;
	while (waits && rpwi_now_ns() < until_ns) {
		waits = false;
		for (int i = 0; i < c->ranks; i++)
			waits |= r[i] && rpw_request_test(r[i], NULL) == RPW_IN_PROGRESS;
		if (waits && rpw_context_progress(c->cc->c) <= 0)
			sched_yield();
	}
	for (int i = 0; r && i < c->ranks; i++)
		if (r[i]) {
			if (rpw_request_test(r[i], NULL) == RPW_IN_PROGRESS)
				plugin_info("rank %d did not confirm within %d ms that it received "
					    "everything: closing the connection anyway",
					i, RMA_CLOSE_MS);
			rpw_request_destroy(r[i]);
		}
	free(r);
}

int rma_close(int abi, void *coll)
{
	struct rma_comm *c = coll;
	int rc = rma_comm_check(coll, abi, "closeColl");
	if (rc)
		return rc;
	comm_context_enter(c->cc);
	c->shut = true;
	if (!c->requests_out)
		shut_down(c);
	comm_context_leave(c->cc);
	comm_free(c);
	return NCCL_SUCCESS;
}
