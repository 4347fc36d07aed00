/* SPDX-License-Identifier: BSD-3-Clause */
/* jobs.c - each operation and figure, of both sides: a table at the end. */
#include "cli/perf/side.h"

static inline int post_send(struct perf_side *s, uint64_t i, rpw_request **f)
{
	const struct perf_job *j = &s->job;
	if (j->op == PERF_AM)
		return perf_posted(
			rpw_am_send(s->ep, AM_ID, NULL, 0, perf_outgoing(s, i), j->size, f));
	return perf_posted(
		rpw_send(s->ep, perf_outgoing(s, i), j->size, s->client ? TAG_DATA : TAG_REPLY, f));
}

static inline int post_recv(struct perf_side *s, uint64_t i, rpw_request **f)
{
	if (s->job.op == PERF_VIEW)
		return perf_view_post(s, i, f);
	return perf_posted(rpw_recv(s->c, s->ep, perf_buffer(s, s->in, perf_slot(s, i)),
		s->job.size, s->client ? TAG_REPLY : TAG_DATA, ~0ull, f));
}

static inline void message_came(struct perf_side *s, uint64_t i)
{
	if (s->job.op == PERF_VIEW) {
		perf_view_came(s, i);
		return;
	}
	if (s->job.touch)
		perf_read(s, perf_buffer(s, s->in, perf_slot(s, i)), s->job.size);
	perf_arrived(s, s->in, i);
}

static int tag_lat_client(struct perf_side *s)
{
	uint64_t last = rpwi_perf_ticks();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = post_send(s, i, s->flight);
		rc = rc ? rc : post_recv(s, i, s->flight_in);
		rc = rc ? rc : perf_finish(s, s->flight_in);
		rc = rc ? rc : perf_finish(s, s->flight);
		perf_tick(s, i, &last);
		message_came(s, i);
	}
	return rc;
}

static int tag_lat_server(struct perf_side *s)
{
	int rc = post_recv(s, 0, s->flight_in);
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = perf_finish(s, s->flight_in);
		if (rc)
			break;
		message_came(s, i);
		rc = post_send(s, i, s->flight);
		if (!rc && i + 1 < s->job.n)
			rc = post_recv(s, i + 1, s->flight_in);
		rc = rc ? rc : perf_finish(s, s->flight);
	}
	return rc;
}

static int am_lat(struct perf_side *s)
{
	uint64_t last = rpwi_perf_ticks();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		if (!s->client)
			rc = perf_until_got(s, i + 1);
		rc = rc ? rc : post_send(s, i, s->flight);
		if (s->client) {
			rc = rc ? rc : perf_until_got(s, i + 1);
			perf_tick(s, i, &last);
		}
		rc = rc ? rc : perf_finish(s, s->flight);
	}
	return rc;
}

/* A put whose arrival the other side is told, and the same back. */
static int put_lat(struct perf_side *s)
{
	uint64_t last = rpwi_perf_ticks();
	int rc = 0;
	char *memory = rpw_memory_address(s->memory);
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		if (!s->client) {
			rc = perf_until_got(s, i + 1);
			perf_arrived(s, memory, i);
		}
		rc = rc ? rc
			: perf_posted(rpw_put_notify(s->ep, perf_outgoing(s, i), s->job.size,
				  s->key, perf_slot(s, i) * s->pitch, i, s->flight));
		if (s->client) {
			rc = rc ? rc : perf_until_got(s, i + 1);
			perf_tick(s, i, &last);
			if (!rc)
				perf_arrived(s, memory, i);
		}
		rc = rc ? rc : perf_finish(s, s->flight);
	}
	return rc;
}

/* All messages of the job, a window of them under way; `done`: message i is. */
static inline __attribute__((always_inline)) int in_turn(struct perf_side *s, rpw_request **flight,
	int (*post)(struct perf_side *s, uint64_t i, rpw_request **f),
	void (*done)(struct perf_side *s, uint64_t i))
{
	uint64_t window = s->job.window, n = s->job.n, at = 0;
	int rc = 0;
	for (uint64_t i = 0; i < n + window && !rc; i++) {
		if (i >= window && i - window < n) {
			rc = perf_finish(s, &flight[at]);
			if (!rc)
				done(s, i - window);
		}
		if (i < n && !rc)
			rc = post(s, i, &flight[at]);
		at = at + 1 == window ? 0 : at + 1;
	}
	return rc;
}

static inline void sent_one(struct perf_side *s, uint64_t i) {}

static inline void received_one(struct perf_side *s, uint64_t i) { message_came(s, i); }

static int send_many(struct perf_side *s)
{
	char ack;
	int rc = in_turn(s, s->flight, post_send, sent_one);
	return rc ? rc : perf_recv(s, &ack, 1, TAG_ACK);
}

static int recv_many(struct perf_side *s)
{
	int rc = s->job.op == PERF_AM ? perf_until_got(s, s->job.n)
				      : in_turn(s, s->flight_in, post_recv, received_one);
	return rc ? rc : perf_send(s, "a", 1, TAG_ACK);
}

static inline int put_one(struct perf_side *s, uint64_t i, rpw_request **f)
{
	return perf_posted(rpw_put(
		s->ep, perf_outgoing(s, i), s->job.size, s->key, perf_slot(s, i) * s->pitch, f));
}

/* Until all that was put is there. */
static int flush(struct perf_side *s)
{
	int rc = perf_posted(rpw_endpoint_flush(s->ep, s->flight));
	return rc ? rc : perf_finish(s, s->flight);
}

static int put_many(struct perf_side *s)
{
	int rc = in_turn(s, s->flight, put_one, sent_one);
	return rc ? rc : flush(s);
}

/* With `verify` what a buffer gets is never what it had: there is one more of them there than
 * here. */
static uint64_t got_from(const struct perf_side *s, uint64_t i)
{
	return s->job.verify ? 1 + i % (s->slots + 1) : perf_slot(s, i);
}

static inline int get_one(struct perf_side *s, uint64_t i, rpw_request **f)
{
	return perf_posted(rpw_get(s->ep, perf_buffer(s, s->in, perf_slot(s, i)), s->job.size,
		s->key, got_from(s, i) * s->pitch, f));
}

static inline void got_one(struct perf_side *s, uint64_t i)
{
	if (s->job.verify)
		perf_check(s, perf_buffer(s, s->in, perf_slot(s, i)), got_from(s, i), false, 8);
}

static int get_lat(struct perf_side *s)
{
	uint64_t last = rpwi_perf_ticks();
	int rc = 0;
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		rc = get_one(s, i, s->flight);
		rc = rc ? rc : perf_finish(s, s->flight);
		perf_tick(s, i, &last);
		if (!rc)
			got_one(s, i);
	}
	return rc;
}

static int get_many(struct perf_side *s) { return in_turn(s, s->flight, get_one, got_one); }

static int nothing(struct perf_side *s) { return 0; }

static const struct {
	int (*client)(struct perf_side *s), (*server)(struct perf_side *s);
} runs[PERF_OPS][PERF_MODES] = {
	[PERF_TAG] = {{tag_lat_client, tag_lat_server}, {send_many, recv_many}},
	[PERF_PUT] = {{put_lat, put_lat}, {put_many, nothing}},
	[PERF_GET] = {{get_lat, nothing}, {get_many, nothing}},
	[PERF_AM] = {{am_lat, am_lat}, {send_many, recv_many}},
	[PERF_LOAN] = {{perf_loan_lat, perf_loan_lat}, {perf_loan_send_many, perf_loan_recv_many}},
	[PERF_VIEW] = {{tag_lat_client, tag_lat_server}, {send_many, recv_many}},
};

int perf_job_run(struct perf_side *s)
{
	return s->client ? runs[s->job.op][s->job.mode].client(s)
			 : runs[s->job.op][s->job.mode].server(s);
}

/* As ucx_perftest -w: the peer's memory is mapped, and its pages are touched. Once to have it
 * mapped, once by that mapping. What is put here is not what is checked later. */
static int one_sided_warm_up(struct perf_side *s)
{
	int rc = 0;
	for (uint64_t i = 0; i < 2 * (s->slots + 1) && !rc; i++) {
		uint64_t at = i % (s->slots + 1) * s->pitch;
		if (s->job.op == PERF_PUT)
			rc = perf_posted(
				rpw_put(s->ep, s->out, s->job.size, s->key, at, s->flight));
		else
			rc = perf_posted(rpw_get(s->ep, s->in, s->job.size, s->key, at, s->flight));
		rc = rc ? rc : perf_finish(s, s->flight);
	}
	return rc ? rc : flush(s);
}

/* Every slot is in use once: which of them are, the library chooses, so it takes a job to fill
 * them, and to have the receiver's pages. */
static int loans_warm_up(struct perf_side *s)
{
	uint64_t asked = s->job.n;
	s->job.n = 4 * s->job.window;
	int rc = perf_job_run(s);
	s->job.n = asked;
	return rc;
}

int perf_warm_up(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	if (j->mode != PERF_BW)
		return 0;
	if (j->op == PERF_LOAN && !j->touch && !j->verify)
		return loans_warm_up(s);
	return s->client && perf_one_sided(j) ? one_sided_warm_up(s) : 0;
}

void perf_job_check(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	const char *memory = s->memory ? rpw_memory_address(s->memory) : NULL;
	if (j->op == PERF_LOAN)
		perf_loans_check(s);
	if (j->op == PERF_TAG && (j->mode == PERF_LAT || !s->client))
		perf_check_few(s, s->in, !s->client);
	if (j->op == PERF_GET && s->client)
		perf_check_few(s, s->in, false);
	if (j->op != PERF_PUT || (j->mode == PERF_BW && s->client))
		return;
	perf_check_few(s, memory, !s->client);
	/* Puts alone are not seen to arrive: the client asks for no more than a window of them when
	 * each is to be checked. */
	for (uint64_t i = 0; i < j->n && j->verify && j->mode == PERF_BW; i++)
		perf_check(s, memory + perf_slot(s, i) * s->pitch, i + 1, true, 8);
}
