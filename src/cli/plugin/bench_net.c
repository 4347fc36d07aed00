/* SPDX-License-Identifier: BSD-3-Clause */
/* bench_net.c - the two processes of `ropeway plugin bench` with a network plugin. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/perf/hist.h"
#include "cli/perf/perf.h"
#include "cli/plugin/bench.h"

enum { VERIFY_EACH = 24, CONNECTS = 9 /* of each round */ };

struct bench_comm { /* one comm, in one direction */
	struct end end;
	uint64_t posted, done, salt;
	void *request[UNDER_WAY];
};
struct bench_side {
	struct side *s;
	const struct options *o;
	unsigned index;
	struct bench_comm comm[COMMS_MAX], back;
	size_t bytes;
	struct perf_hist *hist;
};

static bool comm_open(struct bench_side *b, struct bench_comm *l, int receiver, uint64_t salt)
{
	l->salt = salt;
	if (!end_open(b->s, &l->end, receiver, b->bytes))
		return false;
	memset(l->end.memory, 0x5a, b->bytes);
	return true;
}

bool bench_net_load(struct side *s, const struct options *o, unsigned index, struct result *r)
{
	char path[512];
	int abi;
	if (ncclnet_parse(o->path[index], path, sizeof(path), &abi, s->text, sizeof(s->text)))
		return false;
	if (!side_load(s, path, abi ? abi : o->abi) || !side_init(s, s->n, &s->ctx))
		return false;
	r->abi = s->n->abi;
	snprintf(r->table, sizeof(r->table), "v%d", s->n->abi);
	snprintf(r->name, sizeof(r->name), "%s", ncclnet_name(s->n));
	int rc = SIDE_CALL(s, "devices", ncclnet_devices(s->n, &r->devices));
	if (!side_result(s, rc, "devices"))
		return false;
	if (s->device >= r->devices)
		return side_fail(s, "devices gives %d devices: device %d is not among them",
			r->devices, s->device);
	if (!side_properties(s))
		return false;
	s->p.force_flush = 0; /* for a GPU's memory only */
	snprintf(r->device, sizeof(r->device), "%s", s->p.name ? s->p.name : "");
	return true;
}

static bool open_all(struct bench_side *b, const struct job *j, struct result *r)
{
	if (!bench_net_load(b->s, b->o, b->index, r))
		return false;
	for (unsigned i = 0; i < b->o->comms; i++)
		if (!comm_open(b, &b->comm[i], b->o->both && i % 2, i))
			return false;
	return comm_open(b, &b->back, 1, COMMS_MAX);
}

/* Every byte of some messages of each comm. */
static bool verify(struct bench_side *b, const struct job *j, struct result *r)
{
	struct stream t[COMMS_MAX];
	const size_t size = j->size;
	for (unsigned i = 0; i < b->o->comms; i++)
		t[i] = (struct stream){.e = &b->comm[i].end,
			.n = VERIFY_EACH,
			.window = UNDER_WAY,
			.sizes = &size,
			.sizes_n = 1,
			.salt = (size << 8) + i};
	return side_meet_spinning(b->s) && streams_run(b->s, t, b->o->comms) &&
	       side_meet_spinning(b->s);
}

/* Posts the next message of a comm: 1, or 0 if the plugin wants to be called again; negative: an
 * error. */
static inline int post(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	void **request = &l->request[l->posted % UNDER_WAY];
	void *data = l->end.memory + l->posted % b->o->buffers * bench_pitch(j->size);
	int rc = end_post(b->s, &l->end, data, j->size, 0, request);
	if (RPWI_UNLIKELY(rc)) {
		side_result(b->s, rc, "%s of %" PRIu64 " bytes", end_call(&l->end), j->size);
		return -1;
	}
	l->posted += *request != NULL;
	return *request != NULL;
}

/* Tests the oldest: 1 when it is done. */
static inline int finish(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	struct side *s = b->s;
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0};
	int rc = end_test(s, l->request[l->done % UNDER_WAY], &done, sizes);
	if (RPWI_UNLIKELY(rc)) {
		side_result(s, rc, "test of %s of %" PRIu64 " bytes",
			l->end.sends ? "a send" : "a receive", j->size);
		return -1;
	}
	l->done += done != 0;
	return done != 0;
}

/* One look at a comm, as NCCL's progress makes it, which posts up to message `last`. Negative: an
 * error; else whether anything moved. */
static inline int advance(
	struct bench_side *b, struct bench_comm *l, const struct job *j, uint64_t last)
{
	int moved = 0, rc = 0;
	if (l->posted < last && l->posted - l->done < (l->end.sends ? b->o->under_way : UNDER_WAY))
		moved = rc = post(b, l, j);
	if (rc >= 0 && l->done < l->posted)
		rc = finish(b, l, j);
	return rc < 0 ? rc : moved | rc;
}

static inline bool pause_looking(struct side *s, unsigned *looks)
{
	if (++*looks % IDLE_LOOKS)
		return true;
	sched_yield();
	if (*looks % 65536)
		return true;
	return rpwi_now_ns() < s->until || side_fail(s, "not done after %u ms", s->timeout_ms);
}

static bool stream(struct bench_side *b, const struct job *j, struct result *r)
{
	unsigned looks = 0;
	for (unsigned i = 0; i < b->o->comms; i++)
		b->comm[i].posted = b->comm[i].done = 0;
	if (!side_meet_spinning(b->s))
		return false;
	uint64_t begin = rpwi_now_ns();
	for (unsigned left = b->o->comms; left;) {
		int moved = 0;
		left = 0;
		for (unsigned i = 0; i < b->o->comms; i++) {
			int rc = advance(b, &b->comm[i], j, j->n);
			if (rc < 0)
				return false;
			moved |= rc;
			left += b->comm[i].done < j->n;
		}
		if (!moved && !pause_looking(b->s, &looks))
			return false;
	}
	r->seconds = (double)(rpwi_now_ns() - begin) / 1e9;
	return side_meet_spinning(b->s);
}

/* The next message of a comm, there and done: receives are posted ahead, sends are not. */
static bool one(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	unsigned looks = 0;
	for (uint64_t want = l->done + 1; l->done < want;) {
		int rc = advance(b, l, j, l->end.sends ? want : j->n);
		if (rc < 0 || (!rc && !pause_looking(b->s, &looks)))
			return false;
	}
	return true;
}

/* Receives are posted before what they answer is sent. */
static bool trips(struct bench_side *b, const struct job *j, struct result *r)
{
	struct bench_comm *there = &b->comm[0], *back = &b->back;
	there->posted = there->done = back->posted = back->done = 0;
	memset(b->hist, 0, sizeof(*b->hist));
	if (!side_meet_spinning(b->s))
		return false;
	for (uint64_t i = 0; i < j->n; i++) {
		uint64_t begin = rpwi_now_ns();
		if (!one(b, there, j) || !one(b, back, j))
			return false;
		perf_hist_add(
			b->hist, (uint32_t)RPWI_MIN(rpwi_now_ns() - begin, (uint64_t)UINT32_MAX));
	}
	r->seconds = perf_hist_at(b->hist, 0.5) / 2e9;
	return side_meet_spinning(b->s);
}

/* One connection, and its end. */
static bool connect_once(struct side *s, double *open_s, double *close_s)
{
	struct link l = {.device = &l.device_memory};
	uint64_t begin = rpwi_now_ns();
	if (!s->role && !link_listen(s, &l))
		return false;
	uint64_t listen_ns = rpwi_now_ns() - begin;
	if (!(s->role ? link_take(s, &l) : side_give(s, l.handle, s->n->handle_bytes)) ||
		!side_meet_spinning(s))
		return false;
	begin = rpwi_now_ns();
	if (s->role ? !link_connect(s, &l) : !link_accept(s, &l))
		return false;
	*open_s = (double)(rpwi_now_ns() - begin + listen_ns) / 1e9;
	if (!side_meet_spinning(s))
		return false;
	struct link comm = {.send = l.send, .recv = l.recv};
	begin = rpwi_now_ns();
	link_close(s, &comm);
	*close_s = (double)(rpwi_now_ns() - begin) / 1e9;
	l.send = l.recv = NULL;
	link_close(s, &l);
	return true;
}

/* The middle of a few. */
static bool connects(struct bench_side *b, const struct job *j, struct result *r)
{
	double open[CONNECTS], closing[CONNECTS];
	for (unsigned i = 0; i < CONNECTS; i++)
		if (!connect_once(b->s, &open[i], &closing[i]))
			return false;
	r->seconds = rpwi_perf_median(open, CONNECTS);
	r->closing = rpwi_perf_median(closing, CONNECTS);
	return true;
}

static bool (*const jobs[])(struct bench_side *b, const struct job *j, struct result *r) = {
	[OPEN] = open_all,
	[VERIFY] = verify,
	[STREAM] = stream,
	[TRIPS] = trips,
	[CONNECT] = connects};

static bool run(void *b, const struct job *j, struct result *r) { return jobs[j->kind](b, j, r); }

void bench_jobs(struct side *s, const struct bench_start *start, bench_job *job, void *arg)
{
	struct result r = {.ok = true};
	struct job j;
	s->device = start->o->device;
	while (r.ok && side_asked(s, &j, sizeof(j)) == sizeof(j)) {
		r = (struct result){0};
		side_step(s);
		r.ok = job(arg, &j, &r);
		memcpy(r.text, s->text, sizeof(r.text));
		if (!side_tell(s, &r, sizeof(r)))
			return;
	}
	if (!r.ok)
		side_asked(s, &j, sizeof(j));
}

void bench_net_body(struct side *s, void *arg)
{
	const struct bench_start *start = arg;
	struct bench_side *b = calloc(1, sizeof(*b));
	if (!b)
		return;
	*b = (struct bench_side){
		.s = s, .o = start->o, .index = start->index, .bytes = start->bytes};
	b->hist = calloc(1, sizeof(*b->hist));
	if (b->hist)
		bench_jobs(s, start, run, b);
	/* Orderly where it went well, so that a plugin is not measured while the one before it
	 * dies. */
	for (unsigned i = 0; i < b->o->comms && !s->why; i++)
		link_close(s, &b->comm[i].end.link);
	if (!s->why)
		link_close(s, &b->back.end.link);
	free(b->hist);
	free(b);
}
