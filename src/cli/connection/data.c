/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - messages. A direction at a time, up to CONNECTION_IN_FLIGHT of them; requests are tested
 * in the order in which they were posted, which every plugin allows. Each message has a pattern of
 * its own (its direction, its number, each place in it), and behind each are bytes that have to
 * stay as they are.
 */
#include "cli/connection/connection.h"

#include <stdio.h>
#include <stdlib.h>

enum { TAG = 0x7c9, RATE_MIN = 1 << 20 /* below, it would be that of the control path */ };

static const char hello_text[] = "Hello from TCPX client!",
		  answer_text[] = "Hello from TCPX server!";
_Static_assert(sizeof(hello_text) == 24 && sizeof(answer_text) == 24,
	"the message that this test is known by");

/* ---- patterns ---- */

static uint64_t pattern_word(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i) * 0x9e3779b97f4a7c15;
	x ^= x >> 29;
	return x * 0xbf58476d1ce4e5b9;
}

static void pattern_fill(uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t at = 0; at < len; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);
		memcpy(p + at, &word, RPWI_MIN(len - at, sizeof(word)));
	}
}

/* Where it differs, or `len`. */
static size_t pattern_check(const uint8_t *p, size_t len, uint64_t seed)
{
	for (size_t at = 0; at < len; at += 8) {
		uint64_t word = pattern_word(seed, at / 8);
		if (!memcmp(p + at, &word, RPWI_MIN(len - at, sizeof(word))))
			continue;
		while (p[at] == (uint8_t)(word >> at % 8 * 8))
			at++;
		return at;
	}
	return len;
}
static uint8_t pattern_byte(uint64_t seed, size_t i)
{
	return (uint8_t)(pattern_word(seed, i / 8) >> i % 8 * 8);
}

/* ---- one direction ---- */

/* Messages that go together: `n` of `size` bytes, numbered on from `number`; or, with `text`, one
 * of these bytes. */
struct batch {
	bool sends;
	unsigned n, posted, done;
	size_t size;
	uint64_t number;
	const char *text;
	void *request[CONNECTION_IN_FLIGHT];
};

static uint64_t seed_of(const struct batch *b, unsigned i) { return (b->number + i) << 32; }
static uint8_t *message_at(const struct connection *c, const struct batch *b, unsigned i)
{
	return (b->sends ? c->out.data : c->in.data) + i * (b->size + CONNECTION_GUARD);
}

static void prepare(const struct connection *c, const struct batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		uint8_t *p = message_at(c, b, i);
		if (!b->sends)
			pattern_fill(p + b->size, CONNECTION_GUARD, ~seed_of(b, i));
		else if (b->text)
			memcpy(p, b->text, b->size);
		else
			pattern_fill(p, b->size, seed_of(b, i));
	}
}

static int post(struct connection *c, struct batch *b)
{
	unsigned i = b->posted;
	uint8_t *p = message_at(c, b, i);
	void *data = p;
	size_t room = b->size + CONNECTION_GUARD;
	int tag = TAG, rc;
	if (b->sends)
		rc = ncclnet_isend(
			c->net, c->send_comm, p, b->size, tag, c->out.mhandle, &b->request[i]);
	else
		rc = ncclnet_irecv(c->net, c->recv_comm, 1, &data, &room, &tag, &c->in.mhandle,
			&b->request[i]);
	if (rc) {
		connection_call(c, rc, "%s of message %llu", b->sends ? "isend" : "irecv",
			(unsigned long long)b->number + i);
		return connection_fail(c,
			"%s of %zu bytes gave %s: NCCL_DEBUG=INFO shows the plugin's own messages",
			b->sends ? "isend" : "irecv", b->size, ncclnet_result_name(rc));
	}
	b->posted += b->request[i] != NULL;
	return 0;
}

static int check_received(struct connection *c, const struct batch *b, unsigned i, int size)
{
	const uint8_t *p = message_at(c, b, i);
	uint64_t seed = seed_of(b, i);
	unsigned long long number = b->number + i;
	if (size < 0)
		c->sizes_missing = true;
	else if ((size_t)size != b->size)
		return connection_fail(c,
			"message %llu: test says that %d bytes came, %zu were sent", number, size,
			b->size);
	size_t at = b->text ? (memcmp(p, b->text, b->size) ? 0 : b->size)
			    : pattern_check(p, b->size, seed);
	if (at < b->size)
		return connection_fail(c,
			"message %llu of %zu bytes is damaged: byte %zu is 0x%02x, 0x%02x was "
			"sent. Data that test reports as done must be right",
			number, b->size, at, p[at],
			b->text ? (uint8_t)b->text[at] : pattern_byte(seed, at));
	at = pattern_check(p + b->size, CONNECTION_GUARD, ~seed);
	if (at < CONNECTION_GUARD)
		return connection_fail(c,
			"message %llu of %zu bytes: byte %zu behind it was written to", number,
			b->size, at);
	return 0;
}

/* As NCCL does where the properties ask for it. A NULL request: nothing to wait for. */
static int flush(struct connection *c, const struct batch *b)
{
	void *request, *data = message_at(c, b, b->done);
	int size = (int)b->size, done = 0;
	int rc = ncclnet_iflush(c->net, c->recv_comm, 1, &data, &size, &c->in.mhandle, &request);
	for (unsigned idle = 0; !rc && request && !done;) {
		rc = ncclnet_test(c->net, request, &done, NULL);
		if (!done && connection_wait(c, &idle))
			return -1;
	}
	if (rc)
		return connection_fail(c, "iflush gave %s", ncclnet_result_name(rc));
	return 0;
}

/* 1: done. */
static int test_oldest(struct connection *c, struct batch *b)
{
	int done, rc, sizes[NCCL_NET_GROUP_MAX] = {-1};
	void *request = b->request[b->done];
	rc = ncclnet_test(c->net, request, &done, sizes);
	if (rc) {
		connection_call(
			c, rc, "test of message %llu", (unsigned long long)b->number + b->done);
		return connection_fail(c,
			"%s message %llu of %zu bytes: test gave %s. NCCL_DEBUG=INFO has the "
			"plugin's own words",
			b->sends ? "sending" : "receiving", (unsigned long long)b->number + b->done,
			b->size, ncclnet_result_name(rc));
	}
	if (!done)
		return 0;
	if (!b->sends) {
		if (c->props.force_flush && flush(c, b))
			return -1;
		rc = ncclnet_irecv_consumed(c->net, c->recv_comm, 1, request);
		if (rc && rc != NCCLNET_ABSENT)
			return connection_fail(c, "irecvConsumed gave %s", ncclnet_result_name(rc));
		/* checked when the clock has stopped */
		b->request[b->done] = (void *)(intptr_t)sizes[0];
	}
	b->done++;
	return 1;
}

static int move(struct connection *c, struct batch *b)
{
	unsigned idle = 0;
	while (b->done < b->n) {
		unsigned before = b->posted;
		if (b->posted < b->n && post(c, b))
			return -1;
		int rc = b->done < b->posted ? test_oldest(c, b) : 0;
		if (rc < 0)
			return -1;
		if (rc || b->posted != before)
			idle = 0;
		else if (connection_wait(c, &idle))
			return -1;
	}
	return 0;
}

/* Both sides at once, one sends and the other receives. *ns: how long this side was at it. */
static int transfer(struct connection *c, struct batch *b, uint64_t *ns)
{
	connection_deadline(c, c->o.timeout_ms,
		b->sends ? "sending (test says not done, or isend gives no request)"
			 : "receiving (test says not done, or irecv gives no request)");
	b->number = c->next_number;
	c->next_number += b->n;
	prepare(c, b);
	while (!b->sends && b->posted < b->n) {
		/* as far as it takes them before the sender begins */
		unsigned before = b->posted;
		if (post(c, b))
			return -1;
		if (b->posted == before)
			break;
	}
	/* Twice: the clock of who receives runs before the other one may begin. */
	if (talk_step(c))
		return -1;
	uint64_t began = rpwi_now_ns();
	if (talk_step(c) || move(c, b))
		return -1;
	*ns = rpwi_now_ns() - began;
	for (unsigned i = 0; !b->sends && i < b->n; i++)
		if (check_received(c, b, i, (int)(intptr_t)b->request[i]))
			return -1;
	return 0;
}

/* ---- 6 ---- */

int step_hello(struct connection *c)
{
	uint64_t ns;
	for (int way = 0; way < 2; way++) {
		struct batch b = {.sends = (way == 0) != connection_is_server(c),
			.n = 1,
			.size = sizeof(hello_text),
			.text = way ? answer_text : hello_text};
		if (transfer(c, &b, &ns))
			return -1;
		connection_call(c, NCCL_SUCCESS, "%s \"%s\", %zu bytes with its NUL",
			b.sends ? "sent" : "received", b.text, b.size);
	}
	return talk_step(c);
}

/* ---- 7 ---- */

static const size_t sizes[] = {
	0, 1, 4095, 4096, 4097, 65536, 524288, (1 << 20) + 1, 4 << 20, 16 << 20, 64 << 20};

/* The rate is the receiver's, from when both were ready: a sender may call done what is still on
 * its way. */
static int both_ways(struct connection *c, size_t size)
{
	char rate[40] = "";
	unsigned n = size <= CONNECTION_SHARED_MAX ? CONNECTION_IN_FLIGHT : 1;
	for (int way = 0; way < 2; way++) {
		struct batch b = {
			.sends = (way == 0) != connection_is_server(c), .n = n, .size = size};
		uint64_t ns;
		if (transfer(c, &b, &ns))
			return -1;
		if (!b.sends && size >= RATE_MIN)
			snprintf(rate, sizeof(rate), ", received at %.2f GB/s",
				(double)size * n / (double)RPWI_MAX(ns, 1ull));
	}
	return connection_call(
		c, NCCL_SUCCESS, "%zu bytes, %u each way, every byte right%s", size, n, rate);
}

int step_sizes(struct connection *c)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(sizes) && sizes[i] <= c->o.size_max; i++)
		if (both_ways(c, sizes[i]))
			return -1;
	if (c->sizes_missing)
		connection_say(c, "test says nothing of sizes: NCCL then does not notice a message "
				  "that is shorter than it should be");
	return talk_step(c);
}
