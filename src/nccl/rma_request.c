/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_request.c - requests: taken, tested, done. They belong to their coll comm until it is closed,
 * so one that is tested too often is found out. */
#include "nccl/rma.h"

#include <stdlib.h>

enum {
	CHUNK = 64,
	ROUNDS = 16 /* of progress in a test, as long as something moves */
};
static const uint64_t request_magic = 0x716572722d777072; /* "rpw-rreq" */

struct rma_chunk {
	struct rma_chunk *next;
	struct rma_request request[CHUNK];
};

static unsigned requests_max(const struct rma_comm *c)
{
	return PLUGIN_REQUESTS * (unsigned)c->ranks * c->contexts_count;
}

static bool more(struct rma_comm *c)
{
	struct rma_chunk *chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return false;
	chunk->next = c->chunks;
	c->chunks = chunk;
	for (unsigned i = 0; i < CHUNK; i++) {
		struct rma_request *q = &chunk->request[i];
		q->magic = request_magic;
		q->comm = c;
		q->next_free = c->free_requests;
		c->free_requests = q;
	}
	return true;
}

void rma_requests_free(struct rma_comm *c)
{
	while (c->chunks) {
		struct rma_chunk *chunk = c->chunks;
		c->chunks = chunk->next;
		for (unsigned i = 0; i < CHUNK; i++)
			chunk->request[i].magic = 0;
		free(chunk);
	}
}

struct rma_request *rma_request_new(struct rma_lane *lane, struct rma_peer *p, enum rma_kind kind)
{
	struct rma_comm *c = p->comm;
	if (c->requests_out >= requests_max(c)) {
		plugin_warn("%u requests are under way: %d for each rank and context are possible",
			c->requests_out, PLUGIN_REQUESTS);
		return NULL;
	}
	if (!c->free_requests && !more(c)) {
		plugin_warn("no memory for more requests beside %u", c->requests_out);
		return NULL;
	}
	struct rma_request *q = c->free_requests;
	c->free_requests = q->next_free;
	c->requests_out++;
	*q = (struct rma_request){.magic = request_magic,
		.comm = c,
		.lane = lane,
		.peer = p,
		.kind = (uint8_t)kind,
		.state = REQUEST_BUSY};
	rpwi_list_init(&q->in_lane);
	return q;
}

void rma_request_use(struct rma_request *q, struct rma_memory *m)
{
	unsigned i = 0;
	if (!m)
		return;
	while (q->used[i])
		i++;
	q->used[i] = m;
	m->users++;
}

static void leave(struct rma_request *q)
{
	rpwi_list_del(&q->in_lane);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(q->used); i++)
		if (q->used[i])
			q->used[i]->users--;
	q->state = REQUEST_DONE;
}

void rma_request_finish(struct rma_request *q)
{
	struct rma_lane *lane = q->lane;
	leave(q);
	/* flushes are done when all gets before them are */
	while (!rpwi_list_empty(&lane->gets)) {
		struct rma_request *first =
			RPWI_CONTAINER_OF(lane->gets.next, struct rma_request, in_lane);
		if (first->kind != RMA_OP_FLUSH)
			return;
		leave(first);
	}
}

/* ---- test ---- */

static int check_request(const struct rma_comm *c, const struct rma_request *q)
{
	if (!q || q->magic != request_magic || q->comm != c) {
		plugin_warn(
			"test was given %s, which is not a request of this coll comm", RPWI_AT(q));
		return NCCL_INVALID_ARGUMENT;
	}
	if (q->state == REQUEST_FREE) {
		plugin_warn("test was given a request that is not under way: it was tested until "
			    "it was done already");
		return NCCL_INVALID_ARGUMENT;
	}
	return NCCL_SUCCESS;
}

/* Also when it is done: what it said may wait in this process to go, and nobody may call again. */
static void move(struct rma_comm *c, const struct rma_request *q)
{
	rpw_statistics s = {.size = sizeof(s)};
	for (unsigned i = 0; i < ROUNDS && q->state == REQUEST_BUSY; i++)
		if (rpw_context_progress(c->cc->c) <= 0)
			break;
	if (q->state == REQUEST_BUSY)
		return;
	rpw_context_statistics(c->cc->c, &s);
	if (s.unsent)
		rpw_context_progress(c->cc->c);
}

int rma_test(int abi, void *coll, void *request, int *done)
{
	struct rma_comm *c = coll;
	struct rma_request *q = request;
	*done = 0;
	int rc = rma_comm_check(coll, abi, "test");
	if (RPWI_UNLIKELY(rc))
		return rc;
	comm_context_enter(c->cc);
	rc = check_request(c, q);
	if (!rc) {
		move(c, q);
		*done = q->state == REQUEST_DONE;
	}
	if (*done) {
		rc = q->result;
		q->state = REQUEST_FREE;
		q->next_free = c->free_requests;
		c->free_requests = q;
		c->requests_out--;
	}
	comm_context_leave(c->cc);
	return rc;
}
