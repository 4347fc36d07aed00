/* SPDX-License-Identifier: BSD-3-Clause */
/* end.c - ends of connections with registered memory, and streams of messages through them: posted
 * ahead, tested in order, every byte compared, guard bytes behind every receive. */
#include "ncclnet/drive/side.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ncclnet/host/quirks.h"

enum { GUARD = 0xee, SCRUB = 0xdb, TAG = 0x7c9, SLOT_ALIGN = 64, NOT_WRITTEN = -77 };
#define POISON ((void *)0x5a5a5a5a5a5a5a50)

void *end_comm(const struct end *e) { return e->sends ? e->link.send : e->link.recv; }
const char *end_call(const struct end *e) { return e->sends ? "isend" : "irecv"; }

/* ---- calls ---- */

int end_reg(struct side *s, const struct end *e, void *data, size_t bytes, void **mhandle)
{
	return SIDE_CALL(
		s, "regMr", ncclnet_reg(s->n, end_comm(e), data, bytes, NCCL_PTR_HOST, mhandle));
}

int end_dereg(struct side *s, const struct end *e, void *mhandle)
{
	return SIDE_CALL(s, "deregMr", ncclnet_dereg(s->n, end_comm(e), mhandle));
}

int end_post(struct side *s, const struct end *e, void *data, size_t size, int tag, void **request)
{
	void *mhandle = e->mhandle;
	if (e->sends)
		return SIDE_CALL(s, "isend",
			ncclnet_isend(s->n, e->link.send, data, size, tag, mhandle, request));
	return SIDE_CALL(s, "irecv",
		ncclnet_irecv(s->n, e->link.recv, 1, &data, &size, &tag, &mhandle, request));
}

int end_test(struct side *s, void *request, int *done, int *sizes)
{
	return SIDE_CALL(s, "test", ncclnet_test(s->n, request, done, sizes));
}

bool end_post_all(
	struct side *s, const struct end *e, void *data, size_t size, int tag, void **request)
{
	unsigned looks = 0;
	for (*request = NULL; !*request;) {
		int rc = end_post(s, e, data, size, tag, request);
		if (!side_result(s, rc, "%s of %zu bytes", end_call(e), size))
			return false;
		if (!*request && !s->idle(s, &looks))
			return side_fail(s, "%s says again until the deadline", end_call(e));
	}
	return true;
}

int end_wait(struct side *s, void *request, int *sizes, unsigned timeout_ms)
{
	uint64_t until = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	for (unsigned looks = 0;; looks++) {
		int done = 0, rc = end_test(s, request, &done, sizes);
		if (rc || done)
			return rc ? -rc : 1;
		if (rpwi_now_ns() > until)
			return 0;
		if (looks > 1000)
			usleep(50);
	}
}

bool end_received(
	struct side *s, struct end *e, void *request, int n, void **data, const size_t *size)
{
	int sizes[NCCL_NET_GROUP_MAX], done = 0, rc;
	void *mhandles[NCCL_NET_GROUP_MAX], *flush = NULL;
	unsigned looks = 0;
	rc = SIDE_CALL(s, "irecvConsumed", ncclnet_irecv_consumed(s->n, e->link.recv, n, request));
	if (rc != NCCLNET_ABSENT && !side_result(s, rc, "irecvConsumed"))
		return false;
	if (!s->p.force_flush)
		return true;
	for (int i = 0; i < n; i++) {
		sizes[i] = (int)size[i];
		mhandles[i] = e->mhandle;
	}
	rc = SIDE_CALL(
		s, "iflush", ncclnet_iflush(s->n, e->link.recv, n, data, sizes, mhandles, &flush));
	while (!rc && flush && !done) {
		rc = end_test(s, flush, &done, NULL);
		if (!rc && !done && !s->idle(s, &looks))
			return false;
	}
	return side_result(s, rc, "iflush, which forceFlush asks for,");
}

/* ---- memory ---- */

bool end_memory(struct side *s, struct end *e, size_t bytes)
{
	e->bytes = (bytes + 4095) & ~4095ull;
	e->memory =
		mmap(NULL, e->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->memory == MAP_FAILED) {
		e->memory = NULL;
		return side_fail(s, "no memory for %zu bytes", e->bytes);
	}
	/* before regMr, which may touch it: as `ropeway perf` has it, where the kernel gives any */
	madvise(e->memory, e->bytes, MADV_HUGEPAGE);
	int rc = end_reg(s, e, e->memory, e->bytes, &e->mhandle);
	return side_result(s, rc, "regMr of %zu bytes of host memory", e->bytes);
}

void end_close(struct side *s, struct end *e)
{
	if (e->memory && e->mhandle)
		end_dereg(s, e, e->mhandle);
	link_close(s, &e->link);
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
	return (most + t->extra + SIDE_GUARD_BYTES + SLOT_ALIGN - 1) & ~(size_t)(SLOT_ALIGN - 1);
}

size_t stream_bytes(const struct stream *t) { return pitch(t) * t->window; }
char *stream_at(const struct stream *t, unsigned i)
{
	return t->e->memory + pitch(t) * (i % t->window);
}
static uint64_t pattern(const struct stream *t, unsigned i) { return (t->salt << 32) + i; }

/* The bytes to send, or the guard past a receive. */
static void prepare(const struct stream *t, unsigned i)
{
	char *data = stream_at(t, i);
	size_t size = stream_size(t, i);
	if (!t->e->sends)
		memset(data + size + t->extra, GUARD, SIDE_GUARD_BYTES);
	else if (t->text)
		memcpy(data, t->text, size);
	else
		side_fill(data, size, pattern(t, i));
}

void stream_prepare(struct stream *t)
{
	for (unsigned i = 0; i < t->n; i++)
		prepare(t, i);
	t->prepared = true;
}

/* An error for one more than it can have under way. */
static bool is_refusal(struct stream *t, int rc)
{
	if (!rc || !t->may_refuse || t->posted - t->done < NCCLNET_REQUESTS_SAFE)
		return false;
	t->limit = t->posted - t->done;
	t->refused = rc;
	return true;
}

static int post_one(struct side *s, struct stream *t)
{
	unsigned i = t->posted;
	void **request = &t->request[i % t->window];
	size_t size = stream_size(t, i);
	*request = s->n->stale && !t->no_sizes ? POISON : NULL;
	if (!t->prepared)
		prepare(t, i);
	int rc = end_post(
		s, t->e, stream_at(t, i), t->e->sends ? size : size + t->extra, TAG, request);
	if (is_refusal(t, rc))
		return 0;
	if (!side_result(s, rc, "%s of message %u, %zu bytes,", end_call(t->e), i, size))
		return -1;
	if (*request == POISON) {
		side_fail(s,
			"%s says success and leaves *request as it was: NCCL would test what was "
			"there before",
			end_call(t->e));
		return -1;
	}
	t->posted += *request != NULL;
	return *request != NULL;
}

int stream_post(struct side *s, struct stream *t)
{
	while (t->posted < t->n && t->posted - t->done < (t->limit ? t->limit : t->window)) {
		int rc = post_one(s, t);
		if (rc < 0)
			return rc;
		if (!rc)
			break;
	}
	return (int)t->posted;
}

static size_t first_wrong(const char *at, const char *right, size_t n)
{
	size_t i = 0;
	while (i < n && at[i] == right[i])
		i++;
	return i;
}

/* A receive that is done, at once: bytes missing now were missing when test said so. */
static bool came_right(struct side *s, const struct stream *t, unsigned i, int got)
{
	char *at = stream_at(t, i), guard[SIDE_GUARD_BYTES];
	size_t size = stream_size(t, i), room = size + t->extra;
	size_t wrong =
		t->text ? first_wrong(at, t->text, size) : side_wrong(at, size, pattern(t, i));
	if (got != NOT_WRITTEN && (size_t)got != size)
		return side_fail(
			s, "message %u: test says that %d bytes came, %zu were sent", i, got, size);
	if (wrong != size)
		return side_fail(s,
			"message %u of %zu bytes is damaged: when test says done, byte %zu is "
			"wrong (0x%02x)",
			i, size, wrong, (uint8_t)at[wrong]);
	memset(guard, GUARD, sizeof(guard));
	return !memcmp(at + room, guard, sizeof(guard)) ||
	       side_fail(s, "message %u of %zu bytes: bytes behind its receive of %zu were written",
		       i, size, room);
}

bool stream_check(struct side *s, struct stream *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (!came_right(s, t, i, t->came[i]))
			return false;
	return true;
}

/* A receive is done. */
static bool received(struct side *s, struct stream *t, unsigned i, int got)
{
	void *data = stream_at(t, i);
	size_t size = stream_size(t, i);
	if (!end_received(s, t->e, t->request[i % t->window], 1, &data, &size))
		return false;
	if (!t->came)
		return came_right(s, t, i, got);
	t->came[i] = got;
	return true;
}

int stream_test(struct side *s, struct stream *t, unsigned i)
{
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {NOT_WRITTEN};
	size_t size = stream_size(t, i);
	int rc = end_test(s, t->request[i % t->window], &done, t->no_sizes ? NULL : sizes);
	if (!side_result(s, rc, "test of %s of message %u, %zu bytes,",
		    t->e->sends ? "the send" : "the receive", i, size))
		return -1;
	if (!done)
		return 0;
	t->left_alone += !t->no_sizes && sizes[0] == NOT_WRITTEN;
	if (!t->e->sends)
		return received(s, t, i, sizes[0]) ? 1 : -1;
	if (!t->no_sizes && sizes[0] != NOT_WRITTEN && (size_t)sizes[0] != size && !t->not_sent++)
		t->said = sizes[0]; /* NCCL does not look at it */
	if (!t->prepared)
		memset(stream_at(t, i), SCRUB, size); /* done: it is ours again */
	return 1;
}

/* 1: something moved, 0: nothing; negative: failed, s says why. */
static int advance(struct side *s, struct stream *t)
{
	unsigned before = t->posted;
	int rc = stream_post(s, t);
	if (rc >= 0 && t->done < t->posted) {
		rc = stream_test(s, t, t->done);
		t->done += rc > 0;
	}
	return rc < 0 ? rc : t->posted != before || rc > 0;
}

bool streams_run(struct side *s, struct stream *t, unsigned n)
{
	unsigned looks = 0;
	side_step(s);
	for (;;) {
		int moved = 0;
		unsigned left = 0;
		for (unsigned i = 0; i < n; i++) {
			int rc = t[i].done < t[i].n ? advance(s, &t[i]) : 0;
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
		} else if (!s->idle(s, &looks)) {
			size_t at = strlen(s->text);
			snprintf(s->text + at, sizeof(s->text) - at,
				"; %u of %u messages were %s, %u more were under way", t->done,
				t->n, t->e->sends ? "sent" : "received", t->posted - t->done);
			return false;
		}
	}
}
