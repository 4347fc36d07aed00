/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - isend, irecv, iflush, test.
 *
 * A message is a tagged message of the comm's endpoint, the tag's 32 bits and one that no other
 * message has. Receives match by endpoint and tag in the order they were posted; a sender that
 * comes before its receive waits at the receiver's side, or in its own memory when it is long. A
 * request is one for a whole group. */
#include "nccl/plugin.h"

#include <limits.h>

enum {
	/* of progress in a test: a message that moves is moved on, rather than the next comm's a
	 * piece, or their memory takes turns in the caches */
	ROUNDS = 16
};
static const uint64_t domain = 1ull << 32;
static uint64_t wire_tag(int tag) { return domain | (uint32_t)tag; }

/* The lowest one: it is in the caches. NULL: all are in use. */
static struct plugin_request *take(struct plugin_comm *c)
{
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(c->unused); i++) {
		uint64_t bits = atomic_load_explicit(&c->unused[i], memory_order_acquire);
		if (!bits)
			continue;
		unsigned k = (unsigned)__builtin_ctzll(bits);
		atomic_fetch_and_explicit(&c->unused[i], ~(1ull << k), memory_order_relaxed);
		return &c->request[i * 64 + k];
	}
	return NULL;
}

static void give_back(struct plugin_request *q)
{
	struct plugin_comm *c = q->comm;
	unsigned at = (unsigned)(q - c->request);
	atomic_store_explicit(&q->state, REQUEST_FREE, memory_order_relaxed);
	atomic_fetch_or_explicit(&c->unused[at / 64], 1ull << (at % 64), memory_order_release);
}

static int int_size(size_t n) { return n > INT_MAX ? INT_MAX : (int)n; }

/* ---- completion ---- */

static void failed(struct plugin_request *q, int i, const rpw_completion *done)
{
	struct plugin_comm *c = q->comm;
	int result;
	if (done->status == RPW_ERR_TRUNCATED) {
		plugin_warn("peer %s sent %zu bytes with tag %d, the receive was for %zu: %s",
			c->peer, done->length, q->tags[i], q->room[i], plugin_advice(done->status));
		result = plugin_result(done->status);
	} else
		result = plugin_comm_failed(
			c, done->status, c->kind == PLUGIN_SEND ? "sending to" : "receiving from");
	if (!q->result)
		q->result = result;
}

static void is_done(struct plugin_request *q)
{
	if (q->is_long)
		helpers_took(q->comm->cc);
	atomic_store_explicit(&q->state, REQUEST_DONE, memory_order_release);
}

/* Called by whoever moves the comm context. */
static void one_done(rpw_request *r, const rpw_completion *done, void *request)
{
	struct plugin_request *q = request;
	int i = 0;
	while (q->r[i] != r)
		i++;
	rpw_request_destroy(r);
	q->r[i] = NULL;
	if (RPWI_UNLIKELY(done->status))
		failed(q, i, done);
	else if (q->comm->kind == PLUGIN_RECV)
		q->sizes[i] = int_size(done->length);
	if (!--q->left)
		is_done(q);
}

/* Those that end after this are not reported. */
static void let_go(struct plugin_request *q)
{
	for (int i = 0; i < q->n; i++)
		if (q->r[i]) {
			rpw_request_on_done(q->r[i], NULL, NULL);
			rpw_request_destroy(q->r[i]);
			q->r[i] = NULL;
		}
	q->left = 0;
}

void plugin_request_abandon(struct plugin_request *q)
{
	let_go(q);
	is_done(q);
}

static int check_request(const struct plugin_request *q, int abi, const int *done)
{
	if (!q || !done) {
		plugin_warn(
			"test of v%d was given a request of %s and done of %s: neither may be NULL",
			abi, RPWI_AT(q), RPWI_AT(done));
		return NCCL_INVALID_ARGUMENT;
	}
	int rc = plugin_comm_check(q->comm, -1, abi, "test");
	if (!rc && atomic_load_explicit(&q->state, memory_order_acquire) == REQUEST_FREE) {
		plugin_warn("test was given a request that is not under way: it was tested until "
			    "it was done already");
		return NCCL_INVALID_ARGUMENT;
	}
	return rc;
}

/* Have all sends of the comm context that are complete left this process, too? With its lock
 * held. */
static bool all_gone(struct comm_context *l)
{
	rpw_statistics s = {.size = sizeof(s)};
	rpw_context_statistics(l->c, &s);
	if (s.unsent)
		return false;
	l->gone++;
	return true;
}

/* A send that was complete when it was posted is done when it has left this process: after that
 * nobody may ask again, and nobody progress. */
static bool left(struct plugin_request *q)
{
	struct comm_context *l = q->comm->cc;
	if (RPWI_LIKELY(!q->gone_after) || !comm_context_try(l))
		return !q->gone_after;
	if (l->gone < q->gone_after) {
		rpw_context_progress(l->c);
		all_gone(l);
	}
	bool gone = l->gone >= q->gone_after;
	comm_context_leave(l);
	return gone;
}

/* Moves the comm context, unless somebody else does. */
static void move(struct plugin_request *q)
{
	struct comm_context *l = q->comm->cc;
	bool moved = false;
	if (!comm_context_try(l))
		return;
	for (unsigned i = 0; i < ROUNDS && plugin_request_busy(q); i++) {
		if (rpw_context_progress(l->c) <= 0)
			break;
		moved = true;
	}
	/* what its sender waits for: nobody may call again soon */
	if (q->comm->may_hold && !plugin_request_busy(q) && !all_gone(l))
		rpw_context_progress(l->c);
	comm_context_leave(l);
	if (moved && atomic_load_explicit(&l->long_ones, memory_order_relaxed))
		helpers_wake();
}

int plugin_test(int abi, void *request, int *done, int *sizes)
{
	struct plugin_request *q = request;
	if (done)
		*done = 0;
	int rc = check_request(q, abi, done);
	if (RPWI_UNLIKELY(rc))
		return rc;
	if (plugin_request_busy(q) || (q->was_busy && q->comm->may_hold))
		move(q);
	if (plugin_request_busy(q) || (!q->result && !left(q)))
		return NCCL_SUCCESS;
	for (int i = 0; sizes && i < q->n; i++)
		sizes[i] = q->sizes[i];
	rc = q->result;
	*done = 1;
	give_back(q);
	return rc;
}

/* ---- posting ---- */

/* One that could not be posted is a request as well, which is done and has failed: the peer's end
 * is heard of at any moment, and callers look for it in test. */
static int posted(struct plugin_request *q, void **request)
{
	q->was_busy = q->left;
	q->is_long = q->is_long && q->left;
	if (q->is_long)
		helpers_take(q->comm->cc);
	atomic_store_explicit(
		&q->state, q->left ? REQUEST_BUSY : REQUEST_DONE, memory_order_release);
	for (int i = 0; i < q->n; i++)
		rpw_request_on_done(q->r[i], one_done, q);
	*request = q;
	return NCCL_SUCCESS;
}

int plugin_isend(
	int abi, void *comm, void *data, size_t size, int tag, void *mhandle, void **request)
{
	struct plugin_comm *c = comm;
	*request = NULL;
	int rc = plugin_comm_check(comm, PLUGIN_SEND, abi, "isend");
	if (RPWI_UNLIKELY(rc))
		return rc;
	if (RPWI_UNLIKELY(size > PTRDIFF_MAX || (size && !data))) {
		plugin_warn("isend was given %zd bytes at %s", (ssize_t)size, RPWI_AT(data));
		return NCCL_INVALID_ARGUMENT;
	}
	if (RPWI_UNLIKELY(!comm_context_enter_to_post(c->cc)))
		return NCCL_SUCCESS; /* NCCL tries again */
	struct plugin_request *q = take(c);
	if (RPWI_UNLIKELY(!q)) {
		comm_context_leave(c->cc);
		return NCCL_SUCCESS; /* full: likewise */
	}
	q->n = 1;
	q->is_long = size >= PLUGIN_LONG_BYTES;
	q->result = 0;
	q->sizes[0] = int_size(size);
	int status = rpw_send(c->ep, data, size, wire_tag(tag), &q->r[0]);
	q->left = status == RPW_IN_PROGRESS;
	q->gone_after = !q->left && c->may_hold && !all_gone(c->cc) ? c->cc->gone + 1 : 0;
	if (RPWI_UNLIKELY(status < 0))
		q->result = plugin_comm_failed(c, status, "sending to");
	rc = posted(q, request);
	comm_context_leave(c->cc);
	return rc;
}

static int check_group(int n, void **data, const size_t *sizes)
{
	if (n < 1 || n > PLUGIN_RECVS_MAX) {
		plugin_warn("irecv was given a group of %d: 1 to %d (maxRecvs) are possible", n,
			PLUGIN_RECVS_MAX);
		return NCCL_INVALID_ARGUMENT;
	}
	for (int i = 0; i < n; i++)
		if (sizes[i] > PTRDIFF_MAX || (sizes[i] && !data[i])) {
			plugin_warn("irecv was given %zd bytes at %s (receive %d of %d)",
				(ssize_t)sizes[i], RPWI_AT(data[i]), i, n);
			return NCCL_INVALID_ARGUMENT;
		}
	return NCCL_SUCCESS;
}

/* Of a group of which not all could be posted: those that were are taken back. */
static void unpost(struct plugin_request *q, int status)
{
	for (int i = 0; i < q->n; i++)
		if (q->r[i])
			rpw_request_cancel(q->r[i]);
	let_go(q);
	q->result = plugin_comm_failed(q->comm, status, "receiving from");
}

int plugin_irecv(int abi, void *comm, int n, void **data, const size_t *sizes, const int *tags,
	void **mhandles, void **request)
{
	struct plugin_comm *c = comm;
	*request = NULL;
	int rc = plugin_comm_check(comm, PLUGIN_RECV, abi, "irecv");
	if (!rc)
		rc = check_group(n, data, sizes);
	if (RPWI_UNLIKELY(rc))
		return rc;
	if (RPWI_UNLIKELY(!comm_context_enter_to_post(c->cc)))
		return NCCL_SUCCESS;
	struct plugin_request *q = take(c);
	if (RPWI_UNLIKELY(!q)) {
		comm_context_leave(c->cc);
		return NCCL_SUCCESS;
	}
	q->n = q->left = 0;
	q->is_long = false;
	q->result = 0;
	q->gone_after = 0;
	int status = RPW_IN_PROGRESS;
	for (int i = 0; i < n && status == RPW_IN_PROGRESS; i++) {
		q->room[i] = sizes[i];
		q->is_long |= q->room[i] >= PLUGIN_LONG_BYTES;
		q->tags[i] = tags[i];
		q->sizes[i] = 0;
		q->r[i] = NULL;
		status = rpw_recv(c->cc->c, c->ep, data[i], q->room[i], wire_tag(tags[i]),
			UINT64_MAX, &q->r[i]);
		q->n++;
		q->left++;
	}
	if (RPWI_UNLIKELY(status < 0))
		unpost(q, status);
	rc = posted(q, request);
	comm_context_leave(c->cc);
	return rc;
}

/* What was received is there: the CPU wrote it; or, in a GPU, the messaging library has seen to
 * that before it said that the receive is complete. */
int plugin_iflush(
	int abi, void *comm, int n, void **data, const int *sizes, void **mhandles, void **request)
{
	*request = NULL;
	return plugin_comm_check(comm, PLUGIN_RECV, abi, "iflush");
}
