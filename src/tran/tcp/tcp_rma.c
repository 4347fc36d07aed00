/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_rma.c - gets, puts, atomics and flush. It never reads or writes a socket. It takes no lock: a transport is used by one thread at a time.
 *
 * An operation is asked for in chunks of at most TCP_CHUNK_MAX bytes, each by itself on the stream that has the fewest unanswered; at most TCP_WINDOW are unanswered on a stream, the
 * rest of the operation waits. Small operations and atomics go by stream 0, large ones by the streams for bulk data, so that frames need not queue behind megabytes.
 * Where several endpoints of a bundle have parts to be asked for, each gets one in its turn: none waits for more than TCP_WINDOW chunks and one of each other.
 * A put is done when the peer has said that the bytes are in place; so flush needs nothing on the wire, it waits for what was posted before.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/copy.h"
#include "base/fail.h"
#include "base/guard.h"

enum {
	BULK_MIN = 128 * 1024, /* from here on by a stream for bulk data */
	OPS_KEPT = 256,
};

/* ---- the side that asks ---- */

static struct tcp_op *op_new(struct tcp_ep *ep, enum tcp_op_kind kind, void *cookie)
{
	struct tcp *t = tcp_of(ep->base.tran);
	struct tcp_op *op;
	if (!rpwi_list_empty(&t->op_free)) {
		op = RPWI_CONTAINER_OF(t->op_free.next, struct tcp_op, waiting);
		rpwi_list_del(&op->waiting);
		t->op_free_count--;
	} else if (!(op = malloc(sizeof *op))) {
		return NULL;
	}
	*op = (struct tcp_op){.ep = ep, .kind = kind, .cookie = cookie};
	rpwi_list_init(&op->waiting);
	rpwi_list_init(&op->posted);
	ep->ops++;
	return op;
}

static void op_free(struct tcp_ep *ep, struct tcp_op *op)
{
	struct tcp *t = tcp_of(ep->base.tran);
	rpwi_list_del(&op->waiting);
	rpwi_list_del(&op->posted);
	ep->ops--;
	if (t->op_free_count >= OPS_KEPT) {
		free(op);
		return;
	}
	rpwi_list_add_tail(&t->op_free, &op->waiting);
	t->op_free_count++;
}

static void chunk_free(struct tcp_stream *s, struct tcp_chunk *c)
{
	*c = (struct tcp_chunk){0};
	s->chunk_count--;
}

void tcp_rma_free_ops(struct tcp *t)
{
	while (!rpwi_list_empty(&t->op_free)) {
		free(RPWI_CONTAINER_OF(rpwi_list_pop(&t->op_free), struct tcp_op, waiting));
	}
}

/* What is under way of this endpoint's operations: its memory is not touched any more, and the answers will find nobody. */
static void chunks_forget(struct tcp_ep *ep)
{
	for (unsigned n = 0; n < TCP_STREAMS_MAX; n++) {
		struct tcp_stream *s = ep->bundle->stream[n];
		for (unsigned i = 0; s && i < TCP_WINDOW; i++) {
			struct tcp_chunk *c = &s->chunk[i];
			if (!c->op || c->op->ep != ep)
				continue;
			c->op = NULL;
			if (tcp_stream_forget_chunk(s, c))
				chunk_free(s, c);
		}
	}
}

void tcp_rma_drop(struct tcp_ep *ep)
{
	if (ep->ops && ep->bundle)
		chunks_forget(ep);
	struct rpwi_list *lists[] = {&ep->gets, &ep->ordered};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		while (!rpwi_list_empty(lists[i]))
			op_free(ep,
				RPWI_CONTAINER_OF(rpwi_list_pop(lists[i]), struct tcp_op, posted));
}

static void op_done(struct tcp_ep *ep, struct tcp_op *op)
{
	void *cookie = op->cookie;
	int status = op->status;
	op_free(ep, op);
	ep->base.tran->up->done(ep->base.user, cookie, status);
}

static void op_check_done(struct tcp_ep *ep, struct tcp_op *op)
{
	if (op->chunks || !rpwi_list_empty(&op->waiting))
		return;
	op_done(ep, op);
	while (!rpwi_list_empty(&ep->ordered) &&
		RPWI_CONTAINER_OF(ep->ordered.next, struct tcp_op, posted)->kind == TCP_OP_FLUSH)
		op_done(ep, RPWI_CONTAINER_OF(rpwi_list_pop(&ep->ordered), struct tcp_op, posted));
}

static struct tcp_stream *choose_stream(struct tcp_bundle *b, bool bulk)
{
	struct tcp_stream *best = NULL;
	for (unsigned i = 1; bulk && i < TCP_STREAMS_MAX; i++) {
		struct tcp_stream *s = b->stream[i];
		if (s && s->state == TCP_UP && (!best || s->chunk_count < best->chunk_count))
			best = s;
	}
	if (!best)
		best = b->stream[0];
	return best->chunk_count < TCP_WINDOW ? best : NULL;
}

static struct tcp_chunk *chunk_new(struct tcp_stream *s, struct tcp_op *op, size_t len)
{
	static const uint8_t kinds[] = {[TCP_OP_GET] = TCP_GET,
		[TCP_OP_PUT] = TCP_PUT,
		[TCP_OP_ADD] = TCP_ADD,
		[TCP_OP_SWAP] = TCP_SWAP};
	for (unsigned i = 0; i < TCP_WINDOW; i++) {
		struct tcp_chunk *c = &s->chunk[i];
		if (c->kind)
			continue;
		s->chunk_count++;
		op->chunks++;
		*c = (struct tcp_chunk){.op = op,
			.kind = kinds[op->kind],
			.id = ++s->chunk_seq * TCP_WINDOW + i,
			.len = (uint32_t)len,
			.local = op->local ? op->local + op->issued : NULL};
		return c;
	}
	return NULL;
}

static size_t put_request(uint8_t *p, const struct tcp_op *op, const struct tcp_chunk *c)
{
	tcp_put_header(p, &(struct tcp_header){.kind = c->kind, .id = c->id, .len = c->len});
	tcp_put_target(p + TCP_HEADER_LEN, &(struct tcp_target){.slot = op->target.slot,
						   .key = op->target.key,
						   .offset = op->target.offset + op->issued});
	return TCP_HEADER_LEN + TCP_TARGET_LEN;
}

/* Ask for one part. False: there is no room for it on any stream now. */
static bool issue(struct tcp_bundle *b, struct tcp_op *op, bool bulk)
{
	enum { REQUEST_MAX = TCP_HEADER_LEN + TCP_ATOMIC_LEN };
	struct tcp_stream *s = choose_stream(b, bulk);
	if (!s)
		return false;
	bool is_put = op->kind == TCP_OP_PUT,
	     is_atomic = op->kind == TCP_OP_ADD || op->kind == TCP_OP_SWAP;
	uint8_t *p = NULL;
	if (!is_put && !(p = tcp_stream_reserve(s,
				 TCP_HEADER_LEN + (is_atomic ? TCP_ATOMIC_LEN : TCP_TARGET_LEN))))
		return false;
	size_t len = RPWI_MIN(op->len - op->issued, (size_t)TCP_CHUNK_MAX);
	if (len < op->len - op->issued) /* the next part may come sooner, on another stream */
		len = rpwi_whole_lines(
			is_put ? (const char *)(uintptr_t)(op->target.offset + op->issued)
			       : op->local + op->issued,
			len);
	struct tcp_chunk *c = chunk_new(s, op, len);
	if (is_put) {
		struct tcp_item *i = tcp_stream_item(s);
		i->id = c->id;
		i->body = c->local;
		i->len = len;
		i->head_len = (uint8_t)put_request(i->head, op, c);
	} else if (op->kind == TCP_OP_GET) {
		put_request(p, op, c);
	} else {
		p += put_request(p, op, c);
		rpwi_put_be64(p, op->operand);
		rpwi_put_be64(p + 8, op->compare);
	}
	op->issued += len;
	if (op->issued == op->len)
		rpwi_list_del(&op->waiting);
	tcp_stream_kick(s);
	return true;
}

void tcp_rma_pump(struct tcp_bundle *b)
{
	for (unsigned bulk = 0; bulk < 2; bulk++) {
		while (b->state == TCP_BUNDLE_UP && !rpwi_list_empty(&b->pumping[bulk])) {
			struct tcp_ep *ep = RPWI_CONTAINER_OF(
				b->pumping[bulk].next - bulk, struct tcp_ep, pumping);
			bool more = !rpwi_list_empty(&ep->waiting[bulk]);
			if (more && !issue(b,
					    RPWI_CONTAINER_OF(
						    ep->waiting[bulk].next, struct tcp_op, waiting),
					    bulk))
				break;
			rpwi_list_del(&ep->pumping[bulk]);
			if (!rpwi_list_empty(&ep->waiting[bulk]))
				rpwi_list_add_tail(&b->pumping[bulk], &ep->pumping[bulk]);
		}
	}
}

static int post(struct tcp_ep *ep, enum tcp_op_kind kind, const struct tran_desc *remote,
	uint64_t offset, void *local, size_t len, void *cookie, struct tcp_op **out)
{
	struct tcp_key key;
	if (ep->state != TCP_EP_UP)
		return -EPIPE;
	if (ep->ops >= TCP_OPS_MAX)
		return -ENOBUFS;
	struct tcp_op *op = op_new(ep, kind, cookie);
	if (!op)
		return -ENOMEM;
	if (tcp_get_desc(remote, &key))
		key = (struct tcp_key){
			.slot = UINT32_MAX}; /* garbled: the peer will not find it, either */
	op->target = (struct tcp_target){.slot = key.slot, .key = key.key, .offset = offset};
	op->local = local;
	op->len = len;
	rpwi_list_add_tail(kind == TCP_OP_GET ? &ep->gets : &ep->ordered, &op->posted);
	bool bulk = len >= BULK_MIN;
	rpwi_list_add_tail(&ep->waiting[bulk], &op->waiting);
	if (rpwi_list_empty(&ep->pumping[bulk]))
		rpwi_list_add_tail(&ep->bundle->pumping[bulk], &ep->pumping[bulk]);
	if (bulk)
		tcp_bundle_more_streams(ep->bundle);
	*out = op;
	return 0;
}

int tcp_rma(struct tran_ep *tran_ep, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie)
{
	struct tcp_ep *ep = (struct tcp_ep *)tran_ep;
	struct tcp_op *op;
	int err =
		post(ep, is_put ? TCP_OP_PUT : TCP_OP_GET, remote, offset, local, len, cookie, &op);
	if (!err)
		tcp_rma_pump(ep->bundle);
	return err;
}

int tcp_atomic(struct tran_ep *tran_ep, enum tran_atomic kind, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie)
{
	struct tcp_ep *ep = (struct tcp_ep *)tran_ep;
	struct tcp_op *op;
	int err = post(ep, kind == TRAN_FETCH_ADD ? TCP_OP_ADD : TCP_OP_SWAP, remote, offset, NULL,
		8, cookie, &op);
	if (err)
		return err;
	op->operand = operand;
	op->compare = compare;
	op->before = before;
	tcp_rma_pump(ep->bundle);
	return 0;
}

int tcp_flush(struct tran_ep *tran_ep, void *cookie)
{
	struct tcp_ep *ep = (struct tcp_ep *)tran_ep;
	if (ep->state != TCP_EP_UP)
		return -EPIPE;
	if (rpwi_list_empty(&ep->ordered)) {
		ep->base.tran->up->done(ep->base.user, cookie, RPW_OK);
		return 0;
	}
	if (ep->ops >= TCP_OPS_MAX)
		return -ENOBUFS;
	struct tcp_op *op = op_new(ep, TCP_OP_FLUSH, cookie);
	if (!op)
		return -ENOMEM;
	rpwi_list_add_tail(&ep->ordered, &op->posted);
	return 0;
}

static struct tcp_chunk *chunk_of(struct tcp_stream *s, uint32_t id)
{
	struct tcp_chunk *c = &s->chunk[id % TCP_WINDOW];
	return c->kind && c->id == id ? c : NULL;
}

int tcp_rma_on_data(struct tcp_stream *s, const struct tcp_header *h, const char **why)
{
	struct tcp_chunk *c = chunk_of(s, h->id);
	if (!c || c->kind != TCP_GET || c->have_all || c->len != h->len) {
		*why = "data that nobody asked for";
		return -1;
	}
	s->body = c->local;
	s->body_left = c->len;
	s->body_id = c->id;
	s->body_kind = TCP_DATA;
	return 0;
}

int tcp_rma_on_done(struct tcp_stream *s, const struct tcp_header *h, const char **why)
{
	struct tcp_chunk *c = chunk_of(s, h->id);
	/* A put that is said to be done before it was sent would let its buffer be used again while we still read it. */
	if (!c || (c->kind == TCP_PUT && !c->have_all) ||
		(c->kind == TCP_GET && !c->have_all && h->answer == TCP_OK)) {
		*why = "an answer to what was not asked, or not all sent";
		return -1;
	}
	struct tcp_op *op = c->op;
	struct tcp_bundle *b = s->bundle;
	chunk_free(s, c);
	if (op) {
		op->chunks--;
		if (h->answer == TCP_OK && op->before) {
			*op->before = h->value;
		} else if (h->answer != TCP_OK) {
			if (!op->status)
				op->status = rpwi_fail(RPW_ERR_ACCESS,
					"tcp: %s refused the access to %zu bytes at offset %llu: "
					"it has no such memory registered (any more), or not for "
					"this, "
					"or not "
					"that much; use the key that it packed",
					op->ep->peer_name, op->len,
					(unsigned long long)op->target.offset);
			rpwi_list_del(&op->waiting); /* no use in asking for the rest */
		}
		op_check_done(op->ep, op);
	}
	if (s->state == TCP_UP)
		tcp_rma_pump(b);
	return 0;
}

/* ---- the side that answers ---- */

static int answer(
	struct tcp_stream *s, uint32_t id, enum tcp_answer a, uint64_t value, const char **why)
{
	uint8_t *p = tcp_stream_reserve(s, TCP_HEADER_LEN);
	if (!p) {
		*why = "more requests than answers were read";
		return -1;
	}
	tcp_put_header(
		p, &(struct tcp_header){
			   .kind = TCP_DONE, .answer = (uint8_t)a, .id = id, .value = value});
	tcp_stream_kick(s);
	return 0;
}

int tcp_rma_on_get(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_target at = tcp_get_target(more);
	struct tcp_mem *m = tcp_mem_find(s->t, &at, h->len, TRAN_READ);
	if (!m)
		return answer(s, h->id, TCP_NO_ACCESS, 0, why);
	if (s->gets_owed == TCP_WINDOW) {
		*why = "more gets at a time than allowed";
		return -1;
	}
	s->gets_owed++;
	m->users++;
	struct tcp_item *i = tcp_stream_item(s);
	*i = (struct tcp_item){.head_len = TCP_HEADER_LEN,
		.is_data = true,
		.id = h->id,
		.body = (char *)m->base.addr + at.offset,
		.len = h->len,
		.mem = m};
	tcp_put_header(i->head, &(struct tcp_header){.kind = TCP_DATA, .id = h->id, .len = h->len});
	tcp_stream_kick(s);
	return 0;
}

int tcp_rma_on_put(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_target at = tcp_get_target(more);
	struct tcp_mem *m = tcp_mem_find(s->t, &at, h->len, TRAN_WRITE);
	s->body_mem = m;
	s->body = m ? (char *)m->base.addr + at.offset : NULL;
	s->body_left = h->len;
	s->body_id = h->id;
	s->body_kind = TCP_PUT;
	s->body_answer = m ? TCP_OK : TCP_NO_ACCESS;
	if (m)
		m->users++;
	return 0;
}

int tcp_rma_body_end(struct tcp_stream *s, const char **why)
{
	s->body = NULL;
	if (s->body_kind == TCP_DATA) {
		s->chunk[s->body_id % TCP_WINDOW].have_all = true;
		return 0;
	}
	if (s->body_mem)
		s->body_mem->users--;
	s->body_mem = NULL;
	return answer(s, s->body_id, s->body_answer, 0, why);
}

void tcp_rma_body_fault(struct tcp_stream *s)
{
	s->body = NULL;
	if (s->body_kind == TCP_DATA) {
		struct tcp_op *op = s->chunk[s->body_id % TCP_WINDOW].op;
		if (op)
			op->status = RPW_ERR_INVALID; /* our own program's buffer is not mapped */
		return;
	}
	s->body_answer = TCP_NO_ACCESS;
}

struct atomic {
	uint64_t *at, operand, compare, before;
	bool is_add;
};

static void do_atomic(void *arg)
{
	struct atomic *a = arg;
	if (a->is_add) {
		a->before = __atomic_fetch_add(a->at, a->operand, __ATOMIC_SEQ_CST);
		return;
	}
	a->before = a->compare;
	__atomic_compare_exchange_n(
		a->at, &a->before, a->operand, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

int tcp_rma_on_atomic(
	struct tcp_stream *s, const struct tcp_header *h, const uint8_t *more, const char **why)
{
	struct tcp_target target = tcp_get_target(more);
	struct tcp_mem *m = tcp_mem_find(s->t, &target, 8, TRAN_ATOMIC);
	struct atomic a = {.operand = rpwi_get_be64(more + TCP_TARGET_LEN),
		.compare = rpwi_get_be64(more + TCP_TARGET_LEN + 8),
		.is_add = h->kind == TCP_ADD};
	if (m)
		a.at = (uint64_t *)((char *)m->base.addr + target.offset);
	if (!m || (uintptr_t)a.at % 8 || rpwi_guard_call(do_atomic, &a))
		return answer(s, h->id, TCP_NO_ACCESS, 0, why);
	return answer(s, h->id, TCP_OK, a.before, why);
}
