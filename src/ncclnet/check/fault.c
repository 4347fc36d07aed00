/* SPDX-License-Identifier: BSD-3-Clause */
/* fault.c - several connections and threads at once, and failures: a peer that is killed, a close
 * with work under way, loading again. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "ncclnet/check/conform_priv.h"

enum { COMMS = 4, LARGE = 4 << 20, BUSY = 4, CONTEXTS = 3 };

static const size_t sizes[] = {100, 4096, 65536, 9, 300000};
static const size_t large[] = {LARGE};

static struct stream stream_of(struct end *e, unsigned n, unsigned window, uint64_t salt)
{
	return (struct stream){.e = e,
		.n = n,
		.window = window,
		.sizes = sizes,
		.sizes_n = RPWI_ARRAY_LEN(sizes),
		.salt = salt};
}

static struct stream busy_stream(struct end *e, uint64_t salt)
{
	return (struct stream){
		.e = e, .n = BUSY, .window = BUSY, .sizes = large, .sizes_n = 1, .salt = salt};
}

/* ---- at once ---- */

static bool open_comms(struct conform *c, struct end *e, struct stream *t, unsigned messages)
{
	for (unsigned i = 0; i < COMMS; i++) {
		t[i] = stream_of(&e[i], messages, 8, 100 + i);
		if (!end_open(c->s, &e[i], (int)i & 1, stream_bytes(&t[i])))
			return false;
	}
	return true;
}

static void close_comms(struct conform *c, struct end *e)
{
	for (unsigned i = 0; i < COMMS; i++)
		end_close(c->s, &e[i]);
}

void case_comms(struct conform *c)
{
	struct end e[COMMS];
	struct stream t[COMMS];
	if (open_comms(c, e, t, 40) && streams_run(c->s, t, COMMS) && side_meet(c->s))
		close_comms(c, e);
}

struct worker {
	struct side s;
	struct stream *t;
	unsigned n;
	pthread_t thread;
	_Atomic bool stop;
	struct end *e;
	bool ok;
	unsigned rounds;
};

static void worker_make(struct worker *w, const struct conform *c, unsigned thread)
{
	memset(w, 0, sizeof(*w));
	w->s = side_thread(c->s, thread);
}

static void *run_streams(void *arg)
{
	struct worker *w = arg;
	w->ok = streams_run(&w->s, w->t, w->n);
	return NULL;
}

static bool join(struct conform *c, struct worker *w)
{
	pthread_join(w->thread, NULL);
	return w->ok || conform_fail(c, "in another thread: %s", w->s.text);
}

/* Each thread has two connections, one in each direction. */
void case_threads(struct conform *c)
{
	struct end e[COMMS];
	struct stream t[COMMS];
	struct worker w[2];
	if (!open_comms(c, e, t, 80))
		return;
	for (unsigned i = 0; i < 2; i++) {
		worker_make(&w[i], c, 1 + i);
		w[i].t = &t[2 * i];
		w[i].n = 2;
		if (pthread_create(&w[i].thread, NULL, run_streams, &w[i])) {
			conform_fail(c, "no thread can be started");
			return;
		}
	}
	bool ok = join(c, &w[0]);
	ok = join(c, &w[1]) && ok;
	if (ok && side_meet(c->s))
		close_comms(c, e);
}

static void *register_much(void *arg)
{
	struct worker *w = arg;
	w->ok = true;
	while (w->ok && !atomic_load(&w->stop)) {
		void *mhandle = NULL;
		char *memory = malloc(100000);
		int rc = memory ? end_reg(&w->s, w->e, memory, 100000, &mhandle) : 0;
		if (!rc && memory)
			rc = end_dereg(&w->s, w->e, mhandle);
		w->ok = side_result(&w->s, rc, "regMr or deregMr");
		free(memory);
		w->rounds++;
		usleep(100);
	}
	return NULL;
}

void case_reg_thread(struct conform *c)
{
	struct end e;
	struct stream t = stream_of(&e, 300, 8, 120);
	struct worker w;
	if (!end_open(c->s, &e, 0, stream_bytes(&t)))
		return;
	worker_make(&w, c, 1);
	w.e = &e;
	if (pthread_create(&w.thread, NULL, register_much, &w)) {
		conform_fail(c, "no thread can be started");
		return;
	}
	bool ok = streams_run(c->s, &t, 1);
	atomic_store(&w.stop, true);
	ok = join(c, &w) && ok;
	if (ok && side_meet(c->s))
		end_close(c->s, &e);
}

/* ---- what does not go well ---- */

/* Until a request of this stream is an error: true. Requests that can still be posted are. */
static bool ends_in_error(struct conform *c, struct stream *t, uint64_t until)
{
	struct side *s = c->s;
	while (rpwi_now_ns() < until) {
		int done = 0, got[NCCL_NET_GROUP_MAX], rc;
		void *request = NULL;
		if (t->done < t->posted)
			rc = end_test(s, t->request[t->done % t->window], &done, got);
		else
			rc = end_post(s, t->e, t->e->memory, LARGE, 7, &request);
		if (rc)
			return true;
		t->done += done != 0;
		if (request)
			t->request[t->posted++ % t->window] = request;
		if (!request && !done)
			usleep(200);
	}
	return false;
}

void case_killed(struct conform *c)
{
	struct side *s = c->s;
	struct end in, out;
	struct stream t[2] = {busy_stream(&in, 130), busy_stream(&out, 131)};
	if (!end_open(c->s, &in, 0, stream_bytes(&t[0])) ||
		!end_open(c->s, &out, 1, stream_bytes(&t[1])))
		return;
	unsigned looks = 0;
	/* Role 1 sends nothing and has receives posted; role 0 has both under way. */
	do {
		if ((s->role == 0 && stream_post(c->s, &t[0]) < 0) || stream_post(c->s, &t[1]) < 0)
			return;
	} while ((s->role == 0 ? t[0].posted : 1) + t[1].posted == 0 && s->idle(s, &looks));
	if (!side_meet(s))
		return;
	if (s->role == 1)
		kill(getpid(), SIGKILL);
	uint64_t until = rpwi_now_ns() + s->timeout_ms * RPWI_NS_PER_MS;
	for (unsigned i = 0; i < 2; i++)
		if (!ends_in_error(c, &t[i], until))
			conform_fail(c,
				"the peer was killed with %s under way, and %u ms later there is "
				"no error",
				i ? "sends" : "receives", s->timeout_ms);
	/* To be over in time is all that is asked of these. */
	end_close(c->s, &in);
	end_close(c->s, &out);
}

void case_close_busy(struct conform *c)
{
	struct side *s = c->s;
	struct end in, out;
	struct stream t[2] = {busy_stream(&in, 140), busy_stream(&out, 141)};
	struct stream after = stream_of(NULL, 8, 4, 142);
	if (!end_open(c->s, &in, 0, stream_bytes(&t[0])) ||
		!end_open(c->s, &out, 1, stream_bytes(&t[1])))
		return;
	/* Receives that nobody sends to on one connection, sends that nobody receives on the
	 * other. */
	if (s->role == 0 && (stream_post(c->s, &t[0]) < 0 || stream_post(c->s, &t[1]) < 0))
		return;
	if (!side_meet(s))
		return;
	end_close(c->s, &in);
	end_close(c->s, &out);
	/* And a comm opened then works. */
	if (side_meet(s))
		conform_stream(c, &after, 0);
}

void case_finalize(struct conform *c)
{
	struct side *s = c->s;
	void *first = s->ctx, *ctx[CONTEXTS] = {NULL};
	struct stream t = stream_of(NULL, 8, 4, 150);
	for (unsigned i = 0; i < CONTEXTS; i++)
		if (!side_init(s, s->n, &ctx[i]))
			return;
	for (unsigned i = 0; i < CONTEXTS; i++) {
		/* The last one works while the others are gone. */
		s->ctx = ctx[i];
		t.posted = t.done = 0;
		t.salt = 150 + i;
		if (i == CONTEXTS - 1 && !conform_stream(c, &t, 0))
			return;
		side_result(
			s, SIDE_CALL(s, "finalize", ncclnet_finalize(s->n, ctx[i])), "finalize");
	}
	s->ctx = first;
}

void case_reload(struct conform *c)
{
	struct side *s = c->s;
	struct stream t = stream_of(NULL, 8, 4, 160);
	struct ncclnet *old = s->n;
	if (!conform_stream(c, &t, 0))
		return;
	if (old->abi >= 11)
		SIDE_CALL(s, "finalize", ncclnet_finalize(old, s->ctx));
	SIDE_CALL(s, "dlclose", dlclose(old->library));
	void *still = dlopen(c->o->path, RTLD_NOW | RTLD_NOLOAD);
	conform_note(c, still ? "it stays in memory" : "it goes, and comes anew");
	s->n = NULL;
	if (!side_load(s, c->o->path, old->abi))
		return;
	ncclnet_unload(old);
	t = stream_of(NULL, 8, 4, 161);
	if (side_init(s, s->n, &s->ctx))
		conform_stream(c, &t, 0);
}
