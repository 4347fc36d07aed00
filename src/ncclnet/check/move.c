/* SPDX-License-Identifier: BSD-3-Clause */
/* move.c - ends of connections with registered memory, and streams of messages through them: posted
 * ahead, tested in order, every byte compared, guard bytes behind every receive. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ncclnet/check/conform_priv.h"

enum { GUARD = 0xee, SCRUB = 0xdb, TAG = 7, SLOT_ALIGN = 64, NOT_WRITTEN = -77 };
#define POISON ((void *)0x5a5a5a5a5a5a5a50)

void *end_comm(const struct end *e) { return e->sends ? e->link.send : e->link.recv; }

bool end_open(struct conform *c, struct end *e, int receiver, size_t bytes)
{
	struct side *s = c->s;
	memset(e, 0, sizeof(*e));
	e->sends = s->role != receiver;
	if (!link_open(s, &e->link, c->o->device, receiver))
		return false;
	e->bytes = (bytes + 4095) & ~4095ull;
	e->memory =
		mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->memory == MAP_FAILED) {
		e->memory = NULL;
		return conform_fail(c, "no memory for %zu bytes", e->bytes);
	}
	int rc = SIDE_CALL(s, "regMr",
		ncclnet_reg(s->n, end_comm(e), e->memory, e->bytes, NCCL_PTR_HOST, &e->mhandle));
	return !rc || conform_fail(c, "regMr of %zu bytes of host memory gives %d (%s)", e->bytes,
			      rc, ncclnet_result_name(rc));
}

void end_close(struct conform *c, struct end *e)
{
	if (e->memory && e->mhandle)
		SIDE_CALL(c->s, "deregMr", ncclnet_dereg(c->s->n, end_comm(e), e->mhandle));
	link_close(c->s, &e->link);
	if (e->memory)
		munmap(e->memory, e->bytes);
	e->memory = NULL;
	e->mhandle = NULL;
}

/* ---- streams ---- */

size_t stream_size(const struct stream *t, unsigned i) { return t->sizes[i % t->sizes_n]; }

static size_t pitch(const struct stream *t)
{
	size_t most = 0;
	for (unsigned i = 0; i < t->sizes_n; i++)
		most = RPWI_MAX(most, t->sizes[i]);
	return (most + t->extra + PAIR_GUARD_BYTES + SLOT_ALIGN - 1) & ~(size_t)(SLOT_ALIGN - 1);
}

size_t stream_bytes(const struct stream *t) { return pitch(t) * t->window; }
char *stream_at(const struct stream *t, unsigned i)
{
	return t->e->memory + pitch(t) * (i % t->window);
}
static uint64_t pattern(const struct stream *t, unsigned i) { return (t->salt << 32) + i; }
static struct side *side_of(const struct conform *c, const struct stream *t)
{
	return t->s ? t->s : c->s;
}

static int post_one(struct conform *c, struct stream *t)
{
	struct side *s = side_of(c, t);
	unsigned i = t->posted;
	const struct ncclnet *n = s->n;
	void *data = stream_at(t, i), **request = &t->request[i % t->window];
	size_t size = stream_size(t, i), room = size + t->extra;
	int tag = TAG, rc;
	*request = t->poison ? POISON : NULL;
	if (t->e->sends) {
		pair_fill(data, size, pattern(t, i));
		rc = SIDE_CALL(s, "isend",
			n->calls->isend(n->table, t->e->link.send, data, size, tag, t->e->mhandle,
				request));
	} else {
		memset((char *)data + room, GUARD, PAIR_GUARD_BYTES);
		rc = SIDE_CALL(s, "irecv",
			n->calls->irecv(n->table, t->e->link.recv, 1, &data, &room, &tag,
				&t->e->mhandle, request));
	}
	const char *call = t->e->sends ? "isend" : "irecv";
	if (rc && t->may_refuse && t->posted - t->done >= NCCLNET_REQUESTS_SAFE) {
		t->limit = t->posted - t->done;
		if (t->limit < NCCL_NET_MAX_REQUESTS) /* beyond, NCCL does not ask */
			conform_quirk(c, NCCLNET_FEW_REQUESTS,
				"%s gives %d (%s) with %u under way; NCCL has up to %d", call, rc,
				ncclnet_result_name(rc), t->limit, NCCL_NET_MAX_REQUESTS);
		return 0;
	}
	if (rc) {
		conform_fail(c, "%s of message %u, %zu bytes, gives %d (%s)", call, i, size, rc,
			ncclnet_result_name(rc));
		return -1;
	}
	if (*request == POISON) {
		conform_fail(c,
			"%s says success and leaves *request as it was: NCCL would test what was "
			"there before",
			call);
		return -1;
	}
	t->posted += *request != NULL;
	return *request != NULL;
}

int stream_post(struct conform *c, struct stream *t)
{
	while (t->posted < t->n && t->posted - t->done < (t->limit ? t->limit : t->window)) {
		int rc = post_one(c, t);
		if (rc < 0)
			return rc;
		if (!rc)
			break;
	}
	return (int)t->posted;
}

static bool guard_whole(const char *at)
{
	for (unsigned i = 0; i < PAIR_GUARD_BYTES; i++)
		if ((unsigned char)at[i] != GUARD)
			return false;
	return true;
}

/* A receive that is done, at once: what is not there now was not there when test said so. */
static bool came_right(struct conform *c, struct stream *t, unsigned i, int got)
{
	size_t size = stream_size(t, i), wrong = pair_wrong(stream_at(t, i), size, pattern(t, i));
	if (got != NOT_WRITTEN && (size_t)got != size)
		return conform_fail(
			c, "message %u of %zu bytes: test says %d at the receiver's", i, size, got);
	if (wrong != size)
		return conform_fail(c,
			"message %u of %zu bytes: when test says done, byte %zu is wrong", i, size,
			wrong);
	return guard_whole(stream_at(t, i) + size + t->extra) ||
	       conform_fail(c,
		       "message %u of %zu bytes: bytes behind its receive of %zu were written", i,
		       size, size + t->extra);
}

bool move_after_receive(struct conform *c, struct side *s, struct end *e, void *request, int n,
	void **data, const size_t *size)
{
	int rc = SIDE_CALL(
		    s, "irecvConsumed", ncclnet_irecv_consumed(s->n, e->link.recv, n, request)),
	    flush_sizes[NCCL_NET_GROUP_MAX];
	void *mhandles[NCCL_NET_GROUP_MAX], *flush = NULL;
	if (rc && rc != NCCLNET_ABSENT)
		return conform_fail(c, "irecvConsumed gives %d (%s)", rc, ncclnet_result_name(rc));
	if (!c->p.force_flush)
		return true;
	for (int i = 0; i < n; i++) {
		flush_sizes[i] = (int)size[i];
		mhandles[i] = e->mhandle;
	}
	rc = SIDE_CALL(s, "iflush",
		ncclnet_iflush(s->n, e->link.recv, n, data, flush_sizes, mhandles, &flush));
	uint64_t until = rpwi_now_ns() + s->timeout_ms * RPWI_NS_PER_MS;
	for (int done = 0; !rc && flush && !done && rpwi_now_ns() < until;)
		rc = SIDE_CALL(s, "test", s->n->calls->test(s->n->table, flush, &done, NULL));
	return !rc || conform_fail(c, "iflush, which forceFlush asks for, gives %d (%s)", rc,
			      ncclnet_result_name(rc));
}

int stream_test(struct conform *c, struct stream *t, unsigned i)
{
	struct side *s = side_of(c, t);
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {NOT_WRITTEN};
	size_t size = stream_size(t, i);
	int rc = SIDE_CALL(s, "test",
		s->n->calls->test(
			s->n->table, t->request[i % t->window], &done, t->no_sizes ? NULL : sizes));
	if (rc) {
		conform_fail(c, "test of %s of message %u, %zu bytes, gives %d (%s)",
			t->e->sends ? "the send" : "the receive", i, size, rc,
			ncclnet_result_name(rc));
		return -1;
	}
	if (!done)
		return 0;
	t->left_alone += !t->no_sizes && sizes[0] == NOT_WRITTEN;
	if (!t->e->sends) {
		void *data = stream_at(t, i);
		bool right = move_after_receive(
				     c, s, t->e, t->request[i % t->window], 1, &data, &size) &&
			     came_right(c, t, i, sizes[0]);
		return right ? 1 : -1;
	}
	if (!t->no_sizes && sizes[0] != NOT_WRITTEN && (size_t)sizes[0] != size && !t->not_sent++)
		t->said = sizes[0];           /* NCCL does not look at it */
	memset(stream_at(t, i), SCRUB, size); /* done: it is ours again */
	return 1;
}

int stream_advance(struct conform *c, struct stream *t)
{
	unsigned before = t->posted;
	int rc = stream_post(c, t);
	if (rc >= 0 && t->done < t->posted) {
		rc = stream_test(c, t, t->done);
		t->done += rc > 0;
	}
	return rc < 0 ? rc : t->posted != before || rc > 0;
}

bool streams_run(struct conform *c, struct stream *t, unsigned n)
{
	struct side *s = side_of(c, t);
	unsigned looks = 0;
	side_step(s);
	for (;;) {
		int moved = 0;
		unsigned left = 0;
		for (unsigned i = 0; i < n; i++) {
			int rc = t[i].done < t[i].n ? stream_advance(c, &t[i]) : 0;
			if (rc < 0)
				return false;
			moved |= rc;
			left += t[i].done < t[i].n;
		}
		if (!left)
			return true;
		if (moved) {
			looks = 0;
			side_step(s);
		} else if (!side_idle(s, &looks))
			return conform_fail(c,
				"%s; %u of %u messages were %s, %u more were under way", s->text,
				t->done, t->n, t->e->sends ? "sent" : "received",
				t->posted - t->done);
	}
}

bool stream_once(struct conform *c, struct stream *t, int receiver)
{
	struct end e;
	t->e = &e;
	bool ok = end_open(c, &e, receiver, stream_bytes(t)) && streams_run(c, t, 1) &&
		  side_meet(c->s);
	if (ok)
		end_close(c, &e);
	return ok;
}

int move_wait(struct conform *c, void *request, int *sizes, unsigned timeout_ms)
{
	uint64_t until = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	for (unsigned looks = 0;; looks++) {
		int done = 0, rc = SIDE_CALL(c->s, "test",
				      c->s->n->calls->test(c->s->n->table, request, &done, sizes));
		if (rc || done)
			return rc ? -rc : 1;
		if (rpwi_now_ns() > until)
			return 0;
		if (looks > 1000)
			usleep(50);
	}
}
