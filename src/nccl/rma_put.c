/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_put.c - puts, signals, gets, flushes, from the side that asks.
 *
 * A payload of up to rma_peer.small bytes for host memory goes as a message (RMA_PUT), with its
 * signal; messages of one endpoint take effect in the order sent. A longer one, or one for a GPU,
 * goes by rpw_put_notify, whose request is done when the bytes are in place; until then its request
 * is `data_out`. A signal is another message, or for a GPU an atomic. It goes when its turn has
 * come: a weak one when its own payload is in place or before it in the order of messages, a strong
 * one when that is true of all puts and signals before it in its sequence. So only this side keeps
 * order, and a peer has nothing to believe.
 *
 * An atomic is a frame as messages are, but a message that is not small enough for its path's
 * credit is fetched. It acts later than frames behind it, and so do the messages behind it, even
 * those that were complete at once. All contexts share the endpoint. So a signal in a GPU waits
 * for each message to that peer that is under way when its turn comes, and for none sent later. */
#include "nccl/rma.h"

/* ---- checks: each failure has one line, with what both sides have ---- */

static int check_range(const struct rma_op *op, const char *what, int rank, uint64_t offset,
	uint64_t size, uint64_t room)
{
	if (RPWI_LIKELY(offset <= room && size <= room - offset))
		return NCCL_SUCCESS;
	plugin_warn("%s of %llu bytes with rank %u: %s offset %llu of memory of which rank %d "
		    "registered %llu bytes",
		op->call, (unsigned long long)size, op->rank, what, (unsigned long long)offset,
		rank, (unsigned long long)room);
	return NCCL_INVALID_ARGUMENT;
}

static int find(struct rma_comm *c, const struct rma_op *op, const char *what, const void *mhandle,
	struct rma_memory **out)
{
	*out = rma_memory_of(c, mhandle);
	if (RPWI_LIKELY(*out != NULL))
		return NCCL_SUCCESS;
	plugin_warn(
		"%s with rank %u: the %s handle %s is not one of the %u that this coll comm has",
		op->call, op->rank, what, RPWI_AT(mhandle), c->memories.used);
	return NCCL_INVALID_ARGUMENT;
}

static int check_rank(struct rma_comm *c, const struct rma_op *op)
{
	if (RPWI_UNLIKELY(op->rank >= (uint32_t)c->ranks)) {
		plugin_warn("%s with rank %u: the coll comm has %d ranks, counted from 0", op->call,
			op->rank, c->ranks);
		return NCCL_INVALID_ARGUMENT;
	}
	if (RPWI_UNLIKELY(op->options & ~(uint32_t)NCCL_RMA_MORE)) {
		plugin_warn("%s with rank %u: option flags 0x%x; known is 0x%x", op->call, op->rank,
			op->options, NCCL_RMA_MORE);
		return NCCL_INVALID_ARGUMENT;
	}
	struct rma_peer *p = &c->peer[op->rank];
	return RPWI_LIKELY(!p->gone)
		       ? NCCL_SUCCESS
		       : rma_peer_failed(p, p->status ? p->status : RPW_ERR_PEER_GONE, op->call);
}

static int check_signal(struct rma_comm *c, const struct rma_op *op, struct rma_memory **signal)
{
	int rc = find(c, op, "signal", op->signal, signal);
	if (rc)
		return rc;
	rc = check_range(op, "a signal at", (int)op->rank, op->signal_off, 8,
		(*signal)->there[op->rank].size);
	if (!rc && op->signal_off % 8) {
		plugin_warn(
			"%s with rank %u: a signal at offset %llu: it has to be a multiple of 8",
			op->call, op->rank, (unsigned long long)op->signal_off);
		rc = NCCL_INVALID_ARGUMENT;
	}
	if (!rc && op->op != NCCL_RMA_SIGNAL_INCREMENT && op->op != NCCL_RMA_SIGNAL_ADD) {
		plugin_warn("%s with rank %u: signal operation %u: increment is %d, add %d",
			op->call, op->rank, op->op, NCCL_RMA_SIGNAL_INCREMENT, NCCL_RMA_SIGNAL_ADD);
		rc = NCCL_INVALID_ARGUMENT;
	}
	return rc;
}

/* What a put needs; 0, or enum nccl_result with a line. */
static int check_put(struct rma_comm *c, const struct rma_op *op, struct rma_memory **from,
	struct rma_memory **to, struct rma_memory **signal)
{
	*from = *to = *signal = NULL;
	int rc = check_rank(c, op);
	if (!rc && op->size)
		rc = find(c, op, "source", op->from, from);
	if (!rc && op->size)
		rc = find(c, op, "destination", op->to, to);
	if (!rc && op->size)
		rc = check_range(op, "from", c->rank, op->from_off, op->size, (*from)->size);
	if (!rc && op->size)
		rc = check_range(
			op, "to", (int)op->rank, op->to_off, op->size, (*to)->there[op->rank].size);
	if (!rc && op->signals)
		rc = check_signal(c, op, signal);
	return rc;
}

static struct rma_sequence *sequence_of(struct rma_context *x, int index, uint32_t rank)
{
	return &x->sequence[(size_t)index * (size_t)x->comm->ranks + rank];
}

/* ---- puts ---- */

static void sequence_look(struct rma_sequence *sequence);

static void fails(struct rma_request *q, int status)
{
	int rc =
		rma_peer_failed(q->peer, status, q->kind == RMA_OP_GET ? "a get from" : "a put to");
	q->result = q->result ? q->result : rc;
	q->signal_owed = false;
	if (q->after)
		rpwi_list_del(&q->in_waiting);
}

static bool is_over(const struct rma_request *q)
{
	return !q->data_out && !q->signal_owed && !q->adds && !q->messages_out;
}

/* ---- messages under way, and the signals in a GPU that wait for them ---- */

static bool messages_done(const struct rma_peer *p, uint64_t stamp)
{
	return rpwi_list_empty(&p->messages) ||
	       RPWI_CONTAINER_OF(p->messages.next, struct rma_request, in_messages)->stamp > stamp;
}

static void message_ends(struct rma_request *q)
{
	if (!--q->messages_out)
		rpwi_list_del(&q->in_messages);
}

/* Its turn has come but for messages. From then on it is in peer->waiting for as long as it has to
 * be. */
static bool signal_waits(struct rma_request *q)
{
	struct rma_peer *p = q->peer;
	if (RPWI_LIKELY(!q->gpu_signal))
		return false;
	if (q->after)
		return !rpwi_list_empty(&q->in_waiting);
	if (!(q->strong || q->by_message) || messages_done(p, p->stamp))
		return false;
	q->after = p->stamp;
	rpwi_list_add_tail(&p->waiting, &q->in_waiting);
	return true;
}

static void waiting_look(struct rma_peer *p)
{
	while (!rpwi_list_empty(&p->waiting)) {
		struct rma_request *q =
			RPWI_CONTAINER_OF(p->waiting.next, struct rma_request, in_waiting);
		if (!messages_done(p, q->after))
			return;
		rpwi_list_del(&q->in_waiting);
		sequence_look(q->sequence);
	}
}

/* Of either of its requests. */
static void part_done(rpw_request *r, const rpw_completion *done, void *arg)
{
	struct rma_request *q = arg;
	struct rma_sequence *sequence = q->sequence;
	struct rma_peer *p = q->peer;
	if (r == q->data) {
		q->data = NULL;
		q->data_out = false;
	} else if (r == q->signal) {
		q->signal = NULL;
		q->adds = false;
	} else {
		message_ends(q);
	}
	rpw_request_destroy(r);
	if (done->status)
		fails(q, done->status);
	if (q->kind == RMA_OP_GET)
		rma_request_finish(q);
	else
		sequence_look(sequence);
	waiting_look(p);
}

/* A second one of a request leaves it the stamp of the first. */
__attribute__((noinline)) static void message_begins(struct rma_request *q, rpw_request *r)
{
	if (!q->messages_out++) {
		q->stamp = ++q->peer->stamp;
		rpwi_list_add_tail(&q->peer->messages, &q->in_messages);
	}
	rpw_request_on_done(r, part_done, q);
}

static void message_send(
	struct rma_request *q, const struct rma_put_head *h, const void *data, size_t len)
{
	rpw_request *r = NULL;
	int rc = rpw_am_send(q->peer->ep, RMA_PUT, h, sizeof(*h), data, len, &r);
	if (rc < 0)
		fails(q, rc);
	if (rc == RPW_IN_PROGRESS)
		message_begins(q, r);
}

static void signal_send(struct rma_request *q)
{
	const struct rma_there *t = q->signal_there;
	q->signal_owed = false;
	if (q->comm->shut) { /* its endpoint is gone */
		fails(q, RPW_ERR_CANCELED);
		return;
	}
	if (!q->gpu_signal) {
		message_send(q,
			&(struct rma_put_head){
				.signal = t->id, .signal_off = q->signal_off, .value = q->value},
			NULL, 0);
		return;
	}
	int rc =
		rpw_fetch_add(q->peer->ep, q->value, t->key, q->signal_off, &q->before, &q->signal);
	if (rc < 0)
		fails(q, rc);
	if (rc != RPW_IN_PROGRESS)
		return;
	q->adds = true;
	rpw_request_on_done(q->signal, part_done, q);
}

/* Signals whose turn has come go, and requests that are over leave. */
static void sequence_pass(struct rma_sequence *sequence)
{
	bool moving = false; /* something before it */
	RPWI_LIST_EACH_SAFE (struct rma_request, q, after, &sequence->puts, in_sequence) {
		bool before = q->data_out || (q->strong && moving);
		if (q->signal_owed && !before && !signal_waits(q))
			signal_send(q);
		moving |= q->data_out || q->signal_owed;
		if (is_over(q))
			rma_request_finish(q);
	}
}

/* A request may end while it is made, and calls this again. */
static void sequence_look(struct rma_sequence *sequence)
{
	sequence->again = true;
	if (sequence->looking)
		return;
	sequence->looking = true;
	while (sequence->again) {
		sequence->again = false;
		sequence_pass(sequence);
	}
	sequence->looking = false;
}

/* Does anything in the sequence move that no message waits for? */
static bool sequence_moves(const struct rma_sequence *sequence)
{
	RPWI_LIST_EACH (const struct rma_request, q, &sequence->puts, in_sequence)
		if (q->data_out || q->signal_owed)
			return true;
	return false;
}

/* Payload, and its signal where both fit into one message. */
static void payload_send(struct rma_request *q, const struct rma_op *op,
	const struct rma_memory *from, const struct rma_there *to)
{
	const char *data = from->data + op->from_off;
	if (to->type == NCCL_PTR_HOST && op->size <= q->peer->small) {
		struct rma_put_head h = {.to = to->id, .to_off = op->to_off};
		if (q->gpu_signal) {
			q->by_message = true;
		} else if (q->signal_owed && !(q->strong && sequence_moves(q->sequence))) {
			h.signal = q->signal_there->id;
			h.signal_off = q->signal_off;
			h.value = q->value;
			q->signal_owed = false;
		}
		message_send(q, &h, data, op->size);
		return;
	}
	q->data_out = true;
	int rc = rpw_put_notify(q->peer->ep, data, op->size, to->key, op->to_off, 0, &q->data);
	if (rc < 0)
		fails(q, rc);
	if (rc != RPW_IN_PROGRESS)
		q->data_out = false;
	else
		rpw_request_on_done(q->data, part_done, q);
}

static struct rma_request *put(struct rma_context *x, int index, const struct rma_op *op,
	struct rma_memory *from, struct rma_memory *to, struct rma_memory *signal)
{
	struct rma_sequence *sequence = sequence_of(x, index, op->rank);
	struct rma_request *q = rma_request_new(sequence, &x->comm->peer[op->rank], RMA_OP_PUT);
	if (!q)
		return NULL;
	rma_request_use(q, from);
	rma_request_use(q, to);
	rma_request_use(q, signal);
	if (signal) {
		q->signal_there = &signal->there[op->rank];
		q->gpu_signal = q->signal_there->type == NCCL_PTR_CUDA;
		q->strong = op->strong;
		q->signal_off = op->signal_off;
		q->value = op->op == NCCL_RMA_SIGNAL_ADD ? op->value : 1;
		q->signal_owed = true;
	}
	/* it is in the sequence when its parts end, but not in its own way */
	sequence->looking = true;
	if (op->size)
		payload_send(q, op, from, &to->there[op->rank]);
	rpwi_list_add_tail(&sequence->puts, &q->in_sequence);
	sequence->looking = false;
	sequence_look(sequence);
	return q;
}

int rma_put(int abi, void *ctx, int index, const struct rma_op *op, void **request)
{
	struct rma_context *x;
	struct rma_memory *from, *to, *signal;
	*request = NULL;
	int rc = rma_context_check(ctx, abi, index, op->call, &x);
	if (RPWI_UNLIKELY(rc))
		return rc;
	comm_context_enter(x->comm->cc);
	rc = check_put(x->comm, op, &from, &to, &signal);
	if (!rc) {
		*request = put(x, index, op, from, to, signal);
		rc = *request ? NCCL_SUCCESS : NCCL_INTERNAL_ERROR;
	}
	comm_context_leave(x->comm->cc);
	return rc;
}

/* ---- gets ---- */

static struct rma_request *get(struct rma_context *x, int index, const struct rma_op *op,
	struct rma_memory *from, struct rma_memory *to)
{
	struct rma_sequence *sequence = sequence_of(x, index, op->rank);
	struct rma_request *q = rma_request_new(sequence, &x->comm->peer[op->rank], RMA_OP_GET);
	if (!q)
		return NULL;
	rma_request_use(q, from);
	rma_request_use(q, to);
	rpwi_list_add_tail(&sequence->gets, &q->in_sequence);
	int rc = op->size ? rpw_get(q->peer->ep, to->data + op->to_off, op->size,
				    from->there[op->rank].key, op->from_off, &q->data)
			  : RPW_OK;
	if (rc < 0)
		fails(q, rc);
	if (rc == RPW_IN_PROGRESS)
		rpw_request_on_done(q->data, part_done, q);
	else
		rma_request_finish(q);
	return q;
}

static int check_get(struct rma_comm *c, const struct rma_op *op, struct rma_memory **from,
	struct rma_memory **to)
{
	int rc = check_rank(c, op);
	if (!rc)
		rc = find(c, op, "remote", op->from, from);
	if (!rc)
		rc = find(c, op, "local", op->to, to);
	if (!rc)
		rc = check_range(op, "from", (int)op->rank, op->from_off, op->size,
			(*from)->there[op->rank].size);
	if (!rc)
		rc = check_range(op, "to", c->rank, op->to_off, op->size, (*to)->size);
	return rc;
}

int rma_get(int abi, void *ctx, int index, const struct rma_op *op, void **request)
{
	struct rma_context *x;
	struct rma_memory *from, *to;
	*request = NULL;
	int rc = rma_context_check(ctx, abi, index, op->call, &x);
	if (RPWI_UNLIKELY(rc))
		return rc;
	comm_context_enter(x->comm->cc);
	rc = check_get(x->comm, op, &from, &to);
	if (!rc) {
		*request = get(x, index, op, from, to);
		rc = *request ? NCCL_SUCCESS : NCCL_INTERNAL_ERROR;
	}
	comm_context_leave(x->comm->cc);
	return rc;
}

/* The messaging library completes a get when its bytes are there: a flush is done with the gets
 * before it. */
int rma_flush(int abi, void *ctx, int index, void *mhandle, uint32_t rank, void **request)
{
	struct rma_context *x;
	struct rma_memory *m = NULL;
	const struct rma_op op = {.call = "iflush", .rank = rank};
	*request = NULL;
	int rc = rma_context_check(ctx, abi, index, op.call, &x);
	if (RPWI_UNLIKELY(rc))
		return rc;
	comm_context_enter(x->comm->cc);
	rc = check_rank(x->comm, &op);
	if (!rc && mhandle)
		rc = find(x->comm, &op, "local", mhandle, &m);
	struct rma_sequence *sequence = rc ? NULL : sequence_of(x, index, rank);
	struct rma_request *q =
		sequence ? rma_request_new(sequence, &x->comm->peer[rank], RMA_OP_FLUSH) : NULL;
	if (!rc && !q)
		rc = NCCL_INTERNAL_ERROR;
	if (q) {
		bool none = rpwi_list_empty(&sequence->gets);
		rpwi_list_add_tail(&sequence->gets, &q->in_sequence);
		if (none)
			rma_request_finish(q);
		*request = q;
	}
	comm_context_leave(x->comm->cc);
	return rc;
}
