/* SPDX-License-Identifier: BSD-3-Clause */
/* lend.c - the jobs of loaned messages. Each loan has been filled before the clock runs, and the
 * library hands the same memory out again: so only the number of a message is written into it while
 * the job runs, and is checked of each. A receiver keeps as many views as there are --buffers; of
 * those that are left at the end every byte is checked. With `touch` the whole message is written
 * before it is sent, and read before it counts as received.
 *
 * Views of ordinary messages are given back as they come; those with a pattern of their own are
 * checked before. */
#include "cli/perf/side.h"

static rpw_view *view_of(struct perf_side *s, uint64_t i) { return &s->view[i % perf_views(s)]; }

/* ---- what came ---- */

static void number_check(struct perf_side *s, uint64_t i)
{
	const struct perf_job *j = &s->job;
	const rpw_view *v = view_of(s, i);
	uint64_t number;
	if (j->verify)
		perf_check(s, v->data, i + 1, !s->client, 8);
	bool wrong = v->length != j->size;
	if (!wrong && !j->verify && j->size >= sizeof(number)) {
		memcpy(&number, v->data, sizeof(number));
		wrong = number != i;
	}
	s->wrong += wrong;
}

void perf_loans_check(struct perf_side *s)
{
	const struct perf_job *j = &s->job;
	for (uint64_t i = 0; i < RPWI_MIN(perf_views(s), j->n) && !j->verify && !j->touch; i++) {
		const rpw_view *v = &s->view[i];
		if (!v->data || v->length != j->size)
			continue;
		/* the first word is the message's number */
		perf_check_from(s, v->data, PERF_PATTERN, !s->client, 8, j->size >= 8 ? 8 : 0);
	}
}

/* ---- while the clock runs ---- */

static int loan_next(struct perf_side *s, uint64_t i, rpw_loaned *l)
{
	const struct perf_job *j = &s->job;
	int rc = rpw_loan(s->ep, j->size, 0, PERF_DEADLINE_MS, l);
	if (rc)
		return rc;
	if (j->verify)
		perf_fill(j, l->data, i + 1, s->client);
	else
		perf_fill_once(s, l->data);
	return 0;
}

static int loan_send(struct perf_side *s, uint64_t i, rpw_loaned *l, rpw_request **f)
{
	const struct perf_job *j = &s->job;
	if (j->touch)
		memset(l->data, (int)i, j->size);
	if (!j->verify && j->size >= sizeof(i))
		memcpy(l->data, &i, sizeof(i));
	return perf_posted(rpw_send_loan(s->ep, l, j->size, s->client ? TAG_DATA : TAG_REPLY, f));
}

int perf_view_post(struct perf_side *s, uint64_t i, rpw_request **f)
{
	rpw_view *v = view_of(s, i);
	if (v->data)
		rpw_view_release(v);
	return perf_posted(
		rpw_recv_view(s->c, s->ep, s->client ? TAG_REPLY : TAG_DATA, ~0ull, v, f));
}

void perf_read(struct perf_side *s, const void *data, uint64_t bytes)
{
	const unsigned char *p = data;
	uint64_t sum = 0, word;
	for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
		memcpy(&word, p + at, 8);
		sum += word;
	}
	s->sum += sum;
}

void perf_view_came(struct perf_side *s, uint64_t i)
{
	rpw_view *v = view_of(s, i);
	uint64_t slot = perf_slot(s, i), pattern = s->job.verify ? i + 1 : slot;
	if (s->job.touch)
		perf_read(s, v->data, v->length);
	if (v->length != s->job.size)
		s->wrong++;
	else if (slot && slot <= s->slots)
		perf_check(s, v->data, pattern, !s->client, 8);
	rpw_view_release(v);
}

static int view_wait(struct perf_side *s, uint64_t i)
{
	int rc = perf_finish(s, s->flight_in);
	if (!rc && s->job.touch)
		perf_read(s, view_of(s, i)->data, view_of(s, i)->length);
	return rc;
}

/* From rpw_send_loan to the return of the view: the next loan is taken, and the last view is given
 * back, while the message is the other side's. */
int perf_loan_lat(struct perf_side *s)
{
	uint64_t last;
	rpw_loaned l = RPW_LOANED_INIT;
	int rc = perf_view_post(s, 0, s->flight_in);
	rc = rc ? rc : loan_next(s, 0, &l);
	for (uint64_t i = 0; i < s->job.n && !rc; i++) {
		last = rpwi_perf_ticks();
		if (!s->client)
			rc = view_wait(s, i);
		rc = rc ? rc : loan_send(s, i, &l, s->flight);
		if (s->client) {
			rc = rc ? rc : view_wait(s, i);
			perf_tick(s, i, &last);
		}
		rc = rc ? rc : perf_finish(s, s->flight);
		if (!rc)
			number_check(s, i);
		if (!rc && i + 1 < s->job.n) {
			rc = loan_next(s, i + 1, &l);
			rc = rc ? rc : perf_view_post(s, i + 1, s->flight_in);
		}
	}
	return rc;
}

/* A send is complete at once, so the receiver says when it has a window of them: two of them are
 * the most that is under way. */
int perf_loan_send_many(struct perf_side *s)
{
	char ack;
	int rc = 0;
	for (uint64_t i = 0, at = 0; i < s->job.n + s->job.window && !rc; i++) {
		rpw_loaned l = RPW_LOANED_INIT;
		rc = perf_finish(s, &s->flight[at]);
		if (!rc && !at && i >= 2 * s->job.window && i < s->job.n)
			rc = perf_recv(s, &ack, 1, TAG_REPLY);
		if (!rc && i < s->job.n)
			rc = loan_next(s, i, &l);
		if (!rc && i < s->job.n)
			rc = loan_send(s, i, &l, &s->flight[at]);
		at = at + 1 == s->job.window ? 0 : at + 1;
	}
	return rc ? rc : perf_recv(s, &ack, 1, TAG_ACK);
}

int perf_loan_recv_many(struct perf_side *s)
{
	int rc = 0;
	for (uint64_t i = 0, at = 0; i < s->job.n && !rc; i++) {
		rc = perf_view_post(s, i, s->flight_in);
		rc = rc ? rc : view_wait(s, i);
		if (!rc)
			number_check(s, i);
		/* the windows that the sender waits for: it does not for the last two */
		at = at + 1 == s->job.window ? 0 : at + 1;
		if (!rc && !at && i + s->job.window + 1 < s->job.n)
			rc = perf_send(s, "w", 1, TAG_REPLY);
	}
	return rc ? rc : perf_send(s, "a", 1, TAG_ACK);
}
