/* SPDX-License-Identifier: BSD-3-Clause */
/* data.c - messages. A direction at a time, up to CONNECTION_IN_FLIGHT of them; requests are tested
 * in the order in which they were posted, which every plugin allows. */
#include "cli/connection/connection.h"

#include <stdio.h>

enum { RATE_MIN = 1 << 20 /* below, it would be that of the control path */ };

static const char hello_text[] = "Hello from TCPX client!",
		  answer_text[] = "Hello from TCPX server!";
_Static_assert(sizeof(hello_text) == 24 && sizeof(answer_text) == 24,
	"the message that this test is known by");

/* Both sides at once: one sends n messages of a size (or a text), and the other receives. *ns: how
 * long this side was at it. Messages are checked after the clock has stopped. */
static int transfer(
	struct connection *c, bool sends, unsigned n, size_t size, const char *text, uint64_t *ns)
{
	struct side *s = &c->side;
	int came[CONNECTION_IN_FLIGHT];
	struct stream t = {.e = sends ? &c->out : &c->in,
		.n = n,
		.window = n,
		.sizes = &size,
		.sizes_n = 1,
		.salt = ++c->next_number,
		.text = text,
		.came = came};
	connection_deadline(c, c->o.timeout_ms,
		sends ? "sending (test says not done, or isend gives no request)"
		      : "receiving (test says not done, or irecv gives no request)");
	stream_prepare(&t);
	/* Receives, as far as it takes them before the sender begins. The clock of the side that
	 * receives runs before the other one may begin: so both meet twice. */
	if (!sends && stream_post(s, &t) < 0)
		return connection_fail(c, "%s", s->text);
	if (talk_step(c))
		return -1;
	uint64_t began = rpwi_now_ns();
	if (talk_step(c))
		return -1;
	if (!streams_run(s, &t, 1))
		return connection_fail(
			c, "%s. NCCL_DEBUG=INFO shows the plugin's own messages", s->text);
	*ns = rpwi_now_ns() - began;
	if (!sends && !stream_check(s, &t))
		return connection_fail(
			c, "%s. Data that test reports as done must be right", s->text);
	c->sizes_missing |= !sends && t.left_alone;
	return 0;
}

/* ---- 6 ---- */

int step_hello(struct connection *c)
{
	uint64_t ns;
	for (int way = 0; way < 2; way++) {
		bool sends = (way == 0) != connection_is_server(c);
		const char *text = way ? answer_text : hello_text;
		if (transfer(c, sends, 1, sizeof(hello_text), text, &ns))
			return -1;
		connection_call(c, NCCL_SUCCESS, "%s \"%s\", %zu bytes with its NUL",
			sends ? "sent" : "received", text, sizeof(hello_text));
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
		bool sends = (way == 0) != connection_is_server(c);
		uint64_t ns;
		if (transfer(c, sends, n, size, NULL, &ns))
			return -1;
		if (!sends && size >= RATE_MIN)
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
