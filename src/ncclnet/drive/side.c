/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - what a side says of a call, connections, and patterns. */
#include "ncclnet/drive/side.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/hash.h"

enum { GUARD = 0xa7 };

static bool sentence(struct side *s, const char *end, const char *fmt, va_list ap)
{
	if (s->why)
		return false;
	int n = vsnprintf(s->text, sizeof(s->text), fmt, ap);
	if (n >= 0 && (size_t)n < sizeof(s->text))
		snprintf(s->text + n, sizeof(s->text) - (size_t)n, "%s", end);
	s->why = s->text;
	return false;
}

bool side_fail(struct side *s, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	sentence(s, "", fmt, ap);
	va_end(ap);
	return false;
}

bool side_result(struct side *s, int rc, const char *fmt, ...)
{
	char end[64];
	va_list ap;
	if (!rc)
		return true;
	snprintf(end, sizeof(end), " gives %d (%s)", rc, ncclnet_result_name(rc));
	va_start(ap, fmt);
	sentence(s, end, fmt, ap);
	va_end(ap);
	return false;
}

void side_step(struct side *s) { s->until = rpwi_now_ns() + s->timeout_ms * RPWI_NS_PER_MS; }

/* ---- a connection ---- */

void link_guard(const struct side *s, struct link *l)
{
	memset(l->handle + s->n->handle_bytes, GUARD, sizeof(l->handle) - s->n->handle_bytes);
}

bool link_guarded(const struct side *s, const struct link *l)
{
	for (size_t i = s->n->handle_bytes; i < sizeof(l->handle); i++)
		if (l->handle[i] != GUARD)
			return false;
	return true;
}

bool link_listen(struct side *s, struct link *l)
{
	link_guard(s, l);
	int rc = SIDE_CALL(
		s, "listen", ncclnet_listen(s->n, s->ctx, s->device, l->handle, &l->listen));
	return side_result(s, rc, "listen") && (l->listen || side_fail(s, "listen gives no comm"));
}

bool link_accept(struct side *s, struct link *l)
{
	for (unsigned looks = 0;;) {
		int rc = SIDE_CALL(
			s, "accept", ncclnet_accept(s->n, l->listen, &l->recv, &l->device));
		if (rc || l->recv)
			return side_result(s, rc, "accept");
		if (!s->idle(s, &looks))
			return side_fail(s, "accept gives no comm");
	}
}

bool link_connect(struct side *s, struct link *l)
{
	link_guard(s, l);
	for (unsigned looks = 0;;) {
		int rc = SIDE_CALL(s, "connect",
			ncclnet_connect(s->n, s->ctx, s->device, l->handle, &l->send, &l->device));
		if (rc || l->send)
			return side_result(s, rc, "connect");
		if (!s->idle(s, &looks))
			return side_fail(s, "connect gives no comm");
	}
}

void link_close(struct side *s, struct link *l)
{
	if (l->send)
		SIDE_CALL(s, "closeSend", ncclnet_close_send(s->n, l->send));
	if (l->recv)
		SIDE_CALL(s, "closeRecv", ncclnet_close_recv(s->n, l->recv));
	if (l->listen)
		SIDE_CALL(s, "closeListen", ncclnet_close_listen(s->n, l->listen));
	l->send = l->recv = l->listen = NULL;
}

/* ---- patterns ---- */

static uint64_t word_at(uint64_t message, size_t word)
{
	return (rpwi_scatter(message + 1) | 1) * (word + 1) + (word << 7 ^ message);
}

void side_fill(void *buf, size_t size, uint64_t message)
{
	for (size_t at = 0; at < size; at += 8) {
		uint64_t w = word_at(message, at / 8);
		memcpy((char *)buf + at, &w, RPWI_MIN(size - at, (size_t)8));
	}
}

size_t side_wrong(const void *buf, size_t size, uint64_t message)
{
	const unsigned char *b = buf;
	for (size_t at = 0; at < size; at += 8) {
		uint64_t w = word_at(message, at / 8);
		const unsigned char *right = (const unsigned char *)&w;
		size_t n = RPWI_MIN(size - at, (size_t)8);
		if (memcmp(b + at, right, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (b[at + i] != right[i])
				return at + i;
	}
	return size;
}
