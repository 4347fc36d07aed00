/* SPDX-License-Identifier: BSD-3-Clause */
/* merge.c - several captures as one: clocks that differ are brought together, the same packet in
 * two files becomes one arrow, and events are put in the order of causes.
 *
 * Stamps alone give no order: clocks of two hosts differ, and a capture may stamp a packet only
 * after the call that sent it, when its receiver has stamped it already. What holds is the order
 * within one file, and that a packet is sent before it is received. So the files are merged along
 * these two. A stamp that contradicts the order is moved back to the earliest one that it has to
 * precede, and says so (moved_ns): it can only have been taken too late. */
#include "cli/explain/explain.h"

#include <errno.h>
#include <stdlib.h>

enum { HEADS = 1 << 16, STEPS = 256 };
/* half a year: clocks that differ by more are not brought together */
static const int64_t DELAY_MAX_NS = 1ll << 54;
static const uint64_t WINDOW_NS = 2 * RPWI_NS_PER_S;

static int by_time(const void *a, const void *b)
{
	const struct ex_pkt *x = a, *y = b;
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static bool is_same(const struct ex_pkt *a, const struct ex_pkt *b)
{
	return a->key == b->key && a->file != b->file && a->p.opcode == b->p.opcode &&
	       a->p.psn == b->p.psn && a->p.dqpn == b->p.dqpn;
}

/* ---- clocks ---- */

static int by_key(const void *a, const void *b)
{
	const struct ex_pkt *x = *(const struct ex_pkt *const *)a,
			    *y = *(const struct ex_pkt *const *)b;
	return x->key != y->key ? (x->key < y->key ? -1 : 1) : by_time(x, y);
}

struct delays {
	bool known[EX_FILES_MAX][EX_FILES_MAX];
	/* from the stamp in the sender's file to that in the receiver's */
	int64_t least[EX_FILES_MAX][EX_FILES_MAX];
};

/* Of packets that are in two files once each, and whose directions say who sent them. */
static int measure(const struct ex_model *m, struct delays *d)
{
	const struct ex_pkt **sorted = calloc(m->pkts, sizeof(const struct ex_pkt *));
	if (!sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->pkts; i++)
		sorted[i] = &m->pkt[i];
	qsort(sorted, m->pkts, sizeof(const struct ex_pkt *), by_key);
	for (uint32_t i = 0, n; i < m->pkts; i += n) {
		for (n = 1; i + n < m->pkts && sorted[i + n]->key == sorted[i]->key; n++)
			;
		if (n != 2 || !is_same(sorted[i], sorted[i + 1]))
			continue;
		bool second_sent =
			sorted[i]->direction == EX_IN && sorted[i + 1]->direction == EX_OUT;
		if (!second_sent &&
			!(sorted[i]->direction == EX_OUT && sorted[i + 1]->direction == EX_IN))
			continue;
		const struct ex_pkt *sent = sorted[i + second_sent],
				    *got = sorted[i + !second_sent];
		int64_t delay = (int64_t)(got->time_ns - sent->time_ns),
			*least = &d->least[sent->file][got->file];
		if (delay > DELAY_MAX_NS || delay < -DELAY_MAX_NS)
			continue;
		if (!d->known[sent->file][got->file] || delay < *least)
			*least = delay;
		d->known[sent->file][got->file] = true;
	}
	free(sorted);
	return 0;
}

/* By how much the clock of file g has to go forward, so that nothing between it and the files
 * before it arrives before it was sent; 0 where that is so, or cannot be. As NTP does, the two ways
 * are taken to last equally long. */
static int64_t shift_of(const struct delays *d, const int64_t *shift, unsigned g)
{
	bool to = false, from = false;
	int64_t to_g = 0, from_g = 0;
	for (unsigned f = 0; f < g; f++) {
		if (d->known[f][g]) {
			int64_t delay = d->least[f][g] - shift[f];
			to_g = to ? RPWI_MIN(to_g, delay) : delay;
			to = true;
		}
		if (d->known[g][f]) {
			int64_t delay = d->least[g][f] + shift[f];
			from_g = from ? RPWI_MIN(from_g, delay) : delay;
			from = true;
		}
	}
	if ((!to || to_g >= 0) && (!from || from_g >= 0))
		return 0;
	if (!to || !from)
		return to ? -to_g : from_g;
	int64_t middle = from_g / 2 - to_g / 2, violated = -to_g - from_g;
	/* else stamps were taken late, and no clock is to blame */
	return llabs(middle) > violated ? middle : 0;
}

static int align_clocks(struct ex_model *m)
{
	struct delays d = {0};
	if (measure(m, &d))
		return -ENOMEM;
	for (unsigned g = 1; g < m->files; g++)
		m->file_shift_ns[g] = shift_of(&d, m->file_shift_ns, g);
	for (uint32_t i = 0; i < m->pkts; i++)
		m->pkt[i].time_ns += (uint64_t)m->file_shift_ns[m->pkt[i].file];
	return 0;
}

/* ---- two captures of one packet ---- */

static bool can_be_one(const struct ex_pkt *a, const struct ex_pkt *b)
{
	return is_same(a, b) && !a->seen_ns && b->time_ns - a->time_ns < WINDOW_NS &&
	       (a->direction == EX_UNKNOWN || a->direction != b->direction);
}

static void make_one(struct ex_pkt *k, struct ex_pkt *other)
{
	bool swapped = k->direction == EX_IN && other->direction == EX_OUT;
	k->seen_ns = swapped ? k->time_ns : other->time_ns;
	k->seen_file = swapped ? k->file : other->file;
	k->seen_number = swapped ? k->number : other->number;
	if (swapped) {
		k->time_ns = other->time_ns;
		k->number = other->number;
		k->file = other->file;
		k->direction = other->direction;
	}
	rpwi_explain_pkt_free(other);
}

/* Packets are in time. The oldest one that fits is taken: copies arrive in the order in which they
 * were sent. */
static int unite(struct ex_model *m)
{
	uint32_t *head = calloc(HEADS, sizeof(*head)), *next = calloc(m->pkts, sizeof(*next)),
		 kept = 0;
	if (!head || !next) {
		free(head);
		free(next);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < m->pkts; i++) {
		struct ex_pkt *k = &m->pkt[i], *found = NULL;
		unsigned steps = 0;
		for (uint32_t at = head[k->key % HEADS]; at && steps < STEPS;
			at = next[at - 1], steps++)
			if (can_be_one(&m->pkt[at - 1], k))
				found = &m->pkt[at - 1];
		if (found) {
			make_one(found, k);
			continue;
		}
		uint32_t to = kept++;
		m->pkt[to] = *k;
		next[to] = head[k->key % HEADS];
		head[k->key % HEADS] = to + 1;
	}
	m->pkts = kept;
	free(head);
	free(next);
	return 0;
}

/* ---- the order of causes ---- */

/* A packet in one file: where it was sent (or is alone), or where it was received. */
struct event {
	uint64_t time_ns;
	uint32_t number, pkt;
	uint8_t file;
	bool receipt;
};

static int by_file(const void *a, const void *b)
{
	const struct event *x = a, *y = b;
	if (x->file != y->file)
		return x->file < y->file ? -1 : 1;
	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

struct queue {
	const struct event *at, *end;
};

/* The next packet: of the files' next ones the earliest that waits for nothing. Where each waits
 * for another (a capture tells an impossible story) the earliest goes. */
static const struct event *next_event(struct queue *queue, unsigned files, const bool *done)
{
	const struct event *ready = NULL, *waiting = NULL;
	unsigned from = 0;
	for (unsigned f = 0; f < files; f++) {
		struct queue *q = &queue[f];
		while (q->at < q->end && done[q->at->pkt])
			q->at++;
		if (q->at == q->end)
			continue;
		if (q->at->receipt) {
			if (!waiting || q->at->time_ns < waiting->time_ns)
				waiting = q->at;
		} else if (!ready || q->at->time_ns < ready->time_ns) {
			ready = q->at;
			from = f;
		}
	}
	if (ready)
		queue[from].at++;
	return ready ? ready : waiting;
}

static void list_events(const struct ex_model *m, struct event *event, struct queue *queue)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < m->pkts; i++) {
		const struct ex_pkt *k = &m->pkt[i];
		event[n++] = (struct event){
			.time_ns = k->time_ns, .number = k->number, .pkt = i, .file = k->file};
		if (k->seen_ns)
			event[n++] = (struct event){.time_ns = k->seen_ns,
				.number = k->seen_number,
				.pkt = i,
				.file = k->seen_file,
				.receipt = true};
	}
	qsort(event, n, sizeof(*event), by_file);
	for (uint32_t i = 0; i < n; i++) {
		struct queue *q = &queue[event[i].file];
		if (!q->at)
			q->at = &event[i];
		q->end = &event[i + 1];
	}
}

static void move_late_stamps(struct ex_model *m)
{
	uint64_t limit = UINT64_MAX;
	for (uint32_t i = m->pkts; i--;) {
		struct ex_pkt *k = &m->pkt[i];
		limit = RPWI_MIN(limit, RPWI_MIN(k->time_ns, k->seen_ns ? k->seen_ns : UINT64_MAX));
		if (k->time_ns > limit) {
			k->moved_ns = k->time_ns - limit;
			k->time_ns = limit;
			m->moved++;
		}
	}
}

static int order(struct ex_model *m)
{
	struct event *event = calloc((size_t)m->pkts * 2, sizeof(*event));
	bool *done = calloc(m->pkts, sizeof(*done));
	struct ex_pkt *ordered = calloc(m->pkts, sizeof(*ordered));
	struct queue queue[EX_FILES_MAX] = {{NULL, NULL}};
	int rc = event && done && ordered ? 0 : -ENOMEM;
	if (!rc) {
		const struct event *e;
		uint32_t n = 0;
		list_events(m, event, queue);
		while ((e = next_event(queue, m->files, done))) {
			done[e->pkt] = true;
			ordered[n++] = m->pkt[e->pkt];
		}
		memcpy(m->pkt, ordered, m->pkts * sizeof(*ordered));
		move_late_stamps(m);
	}
	free(event);
	free(done);
	free(ordered);
	return rc;
}

int rpwi_explain_merge(struct ex_model *m)
{
	int rc = m->files > 1 ? align_clocks(m) : 0;
	if (rc)
		return rc;
	qsort(m->pkt, m->pkts, sizeof(*m->pkt), by_time);
	if (m->files > 1) {
		rc = unite(m);
		rc = rc ? rc : order(m);
	}
	m->start_ns = m->pkt[0].time_ns;
	return rc;
}
