/* SPDX-License-Identifier: BSD-3-Clause */
/* side.c - one process of the soak: sessions (a context, endpoints to all others), each of some
 * rounds. A round is random operations until enough were posted, then draining until nothing is on
 * its way, then checks of everything that can only be known then. Stages are announced in the
 * arena; a side that is killed or closes is not waited for. */
#include "soak.h"
#include "state.h"

#include <dirent.h>
#include <malloc.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

struct side me;
struct totals *totals;

/* bytes that the allocator's accounts may differ by between two sessions */
enum { IN_USE_SLACK = 256 * 1024 };

void wrong(const char *fmt, ...)
{
	char text[600];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "soak: side %u, session %u, round %u: %s\n", me.id, me.session, me.round,
		text);
	for (unsigned i = 0; i < config.sides; i++) {
		const struct public *s = &arena->side[i];
		const struct peer *p = &me.peer[i];
		fprintf(stderr, "soak:   side %u: session %u, round %u, stage %u%s%s%s\n", i,
			(unsigned)(s->stage / STAGES >> 32), (unsigned)(s->stage / STAGES),
			(unsigned)(s->stage % STAGES), s->dying ? ", killed" : "",
			s->closed > me.session ? ", closing" : "", p->lost ? ", lost" : "");
		for (int k = 0; p->in && k < KINDS; k++)
			for (unsigned m = 0; m < p->in->messages[k]; m++)
				if (p->in->message[k][m].state == STATE_POSTED ||
					(p->in->message[k][m].state == STATE_OK && !p->came[k][m]))
					fprintf(stderr,
						"soak:     kind %d, %u of %u: %u bytes, state %u, "
						"%s%s\n",
						k, m, (unsigned)p->in->messages[k],
						p->in->message[k][m].len,
						p->in->message[k][m].state,
						p->came[k][m] ? "came" : "did not come",
						p->in->message[k][m].cancel_asked
							? ", to be canceled"
							: "");
	}
	for (const struct op *o = me.op; o < me.op + OPS_MAX; o++)
		if (o->used && (o->kind != OP_RECV || o->all || o->cancel_asked))
			fprintf(stderr,
				"soak:     under way: kind %d, index %u, side %d%s%s%s, since %.1f "
				"s\n",
				(int)o->kind, o->index, o->p ? (int)o->p->id : -1,
				o->orphan ? ", orphan" : "", o->cancel_asked ? ", canceled" : "",
				o->with_callback && !o->calls ? ", with callback" : "",
				(double)(now_ns() - o->began_ns) / 1e9);
	if (me.c)
		state_dump(me.c, me.id);
	fflush(stderr);
	arena->failed = true;
	if (getenv("SOAK_ABORT"))
		abort();
	_exit(1);
}

uint64_t rnd(uint64_t below) { return rng_below(&me.rng, below); }
bool chance(unsigned one_in) { return !rnd(one_in); }

uint64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

uint64_t way_key(unsigned from, unsigned to, unsigned what, uint64_t index)
{
	return rng_mix2(
		rng_mix2(rng_mix2(config.seed, config.life), (uint64_t)me.session << 32 | me.round),
		(uint64_t)from << 60 | (uint64_t)to << 56 | (uint64_t)what << 48 | index);
}

/* Log-uniform, from 0; most of them up to 64 KiB. */
size_t size_of(uint64_t key)
{
	uint64_t k = rng_mix(key);
	size_t most = k & 3 ? 64 << 10 : config.len_max;
	unsigned bits = 0;
	while (most >> bits > 1)
		bits++;
	unsigned shift = (unsigned)((k >> 8) % (bits + 2));
	size_t top = (size_t)1 << (shift ? shift - 1 : 0);
	size_t len = shift ? top + (k >> 16) % top : 0;
	/* Often the edges of what is treated alike. */
	if ((k >> 60) == 0)
		len = top - (k >> 59 & 1);
	return len < config.len_max ? len : config.len_max;
}

/* ---- progress ---- */

static void doze(void)
{
	int rc = rpw_context_arm(me.c);
	if (rc < 0)
		wrong("rpw_context_arm: %s", rpw_last_error());
	if (rc == RPW_IN_PROGRESS)
		return;
	struct pollfd p = {rpw_context_fd(me.c), POLLIN, 0};
	int ms = chance(10) ? 200 : (int)rnd(5) + 1;
	uint64_t began = now_ns();
	/* Whoever is stopped meanwhile is no evidence. */
	if (!poll(&p, 1, ms) && ms == 200 && now_ns() - began < 250000000 &&
		rpw_context_progress(me.c))
		atomic_fetch_add(&totals->late_wakes, 1);
}

static void turn(bool idle)
{
	atomic_fetch_add(&arena->side[me.id].heartbeat, 1);
	if (arena->failed) {
		if (me.c)
			state_dump(me.c, me.id); /* the cause may be here */
		_exit(2);
	}
	if (me.c) {
		if (idle && chance(4))
			doze();
		if (rpw_context_progress(me.c) == 0 && idle)
			sched_yield();
	} else
		usleep(1000);
	for (struct op *o = me.op; o < me.op + OPS_MAX && me.ops; o++)
		if (o->used)
			op_look(o);
}

static bool disturbed(void)
{
	bool d = me.closing;
	for (unsigned i = 0; i < config.sides; i++) {
		d |= arena->side[i].dying || arena->side[i].closed > me.session;
		for (unsigned k = 0; k < config.sides; k++)
			d |= arena->cut[i][k];
	}
	return d;
}

static uint64_t round_number(void) { return (uint64_t)me.session << 32 | me.round; }
bool current(const struct peer *p) { return p->in->when == round_number(); }
static uint64_t stage_number(enum stage stage) { return round_number() * STAGES + stage; }
static void stage_say(enum stage stage) { arena->side[me.id].stage = stage_number(stage); }
static bool others_reached(enum stage stage)
{
	EACH_PEER(p)
	if (arena->side[p->id].stage < stage_number(stage) && !excused(p))
		return false;
	return true;
}

/* Until it is so; how long it may take is what an operation may take. */
#define UNTIL_FOR(deadlines, condition, what) \
	for (uint64_t until = now_ns() + (deadlines)*config.deadline_s * 1000000000ull; \
		!(condition);) { \
		turn(true); \
		if (now_ns() > until) \
			wrong("waited too long for %s", what); \
	}
#define UNTIL(condition, what) UNTIL_FOR(2, condition, what)

static void stage_meet(enum stage stage)
{
	stage_say(stage);
	/* who waits for something else says sooner, and better, what is missing */
	UNTIL_FOR(4, others_reached(stage), "the other sides to come this far")
}

/* ---- endpoints ---- */

static void lose(struct peer *p)
{
	p->lost = true;
	arena->side[me.id].left[p->id] = me.session + 1;
}

static void closed(rpw_endpoint *ep, int status, void *arg)
{
	struct peer *p = arg;
	if (!excused(p))
		wrong("the endpoint to side %u ended with %s: %s", p->id, rpw_status_name(status),
			rpw_last_error());
	if (p->lost)
		wrong("the endpoint to side %u ended twice", p->id);
	lose(p);
	atomic_fetch_add(&totals->endings, 1);
}

static void endpoint_is(struct peer *p, rpw_endpoint *ep)
{
	p->ep = ep;
	rpw_endpoint_set_user(ep, p);
	rpw_endpoint_on_close(ep, closed, p);
}

static void accepted(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(ep, &info);
	EACH_PEER(p)
	if (arena->side[p->id].tag_to[me.id] == info.peer_message_tag) {
		if (p->ep)
			wrong("side %u connected twice", p->id);
		if (p->lost)
			rpw_endpoint_destroy(ep); /* too late: it was not waited for */
		else
			endpoint_is(p, ep);
		return;
	}
	wrong("somebody connected whose message tag none of the sides has");
}

static void connect_to(struct peer *p)
{
	UNTIL(arena->side[p->id].stage >= stage_number(STAGE_LISTEN) || excused(p), "a listener")
	if (excused(p)) {
		lose(p);
		return;
	}
	char address[64];
	snprintf(address, sizeof(address), "127.0.0.1:%d", (int)arena->side[p->id].port);
	rpw_request *r = NULL;
	rpw_endpoint *ep = NULL;
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_options o = {
		.size = sizeof(o), .timeout_ms = config.mode == MODE_KILLS ? 2000 : 20000};
	if (rpw_endpoint_create(me.c, address, &o, &ep, &r) != RPW_IN_PROGRESS)
		wrong("rpw_endpoint_create: %s", rpw_last_error());
	rpw_endpoint_info(ep, &info);
	arena->side[me.id].tag_to[p->id] = info.message_tag;
	endpoint_is(p, ep);
	UNTIL(rpw_request_test(r, NULL) != RPW_IN_PROGRESS, "a connection")
	if (rpw_request_test(r, NULL) && !excused(p))
		wrong("the connection to side %u failed: %s", p->id, rpw_last_error());
	rpw_request_destroy(r);
}

static void context_open(void)
{
	uint64_t k = way_key(0, 0, 99, 0);
	rpw_context_options o = {.size = sizeof(o),
		.transports = config.transports,
		.unexpected_bytes_max = k & 3 ? 0 : 1 << 20,
		.eager_bytes_max = k & 12 ? 0 : 1 + (k >> 8) % 20000};
	if (rpw_context_create(&o, &me.c) ||
		rpw_listener_create(me.c, "127.0.0.1:0", accepted, NULL, &me.l))
		wrong("a context with a listener: %s", rpw_last_error());
	arena->side[me.id].port = rpw_listener_port(me.l);
	message_handle();
	stage_say(STAGE_LISTEN);
	EACH_PEER(p)
	if (p->id < me.id)
		connect_to(p);
	EACH_PEER(p)
	UNTIL(p->ep || excused(p), "the others to connect")
	EACH_PEER(p)
	if (!p->ep)
		lose(p);
	remote_open();
	stage_meet(STAGE_KEYS);
}

/* ---- a round ---- */

static void cancel(struct op *o)
{
	bool message = o->kind == OP_SEND || o->kind == OP_OBJECT || o->kind == OP_AM;
	if (!o->r || o->cancel_asked || (!message && !op_is_receive(o)))
		return;
	if (message && o->s.len < 16 && o->kind != OP_SEND)
		return; /* too small to be told from the next */
	enum kind kind = o->kind == OP_SEND     ? KIND_TAG
			 : o->kind == OP_OBJECT ? KIND_OBJECT
						: KIND_AM;
	o->cancel_asked = true;
	if (message)
		o->p->out->message[kind][o->index].cancel_asked = true;
	o->began_ns = now_ns();
	if (rpw_request_cancel(o->r))
		wrong("rpw_request_cancel: %s", rpw_last_error());
}

static void operation(void)
{
	struct peer *p = &me.peer[rnd(config.sides)];
	if (p->id == me.id || p->lost || me.ops >= OPS_MAX - OPS_RESERVE)
		return;
	unsigned what = (unsigned)rnd(100);
	if (what < 32)
		message_send(p);
	else if (what < 56)
		message_recv(chance(3) ? NULL : p, false);
	else if (what < 61)
		message_object(p);
	else if (what < 66)
		message_recv_object(p);
	else if (what < 74)
		message_am(p);
	else if (what < 95)
		remote_random(p);
	else if (what < 98)
		message_probe(p);
	else
		remote_flush(p);
}

static void run(void)
{
	unsigned turns = (unsigned)rnd(500) + 20;
	uint64_t until = now_ns() + (20 + rnd(800)) * 1000000;
	while (turns-- && now_ns() < until && !disturbed() && !arena->side[me.id].please_close) {
		for (unsigned burst = chance(8) ? (unsigned)rnd(64) : (unsigned)rnd(5); burst;
			burst--)
			operation();
		if (chance(6)) {
			struct op *o = &me.op[rnd(OPS_MAX)];
			if (o->used)
				cancel(o);
		}
		turn(chance(6));
	}
}

static bool own_left(bool receives)
{
	for (struct op *o = me.op; o < me.op + OPS_MAX; o++)
		if (o->used && !o->orphan && (receives || !op_is_receive(o)))
			return true;
	return false;
}

static unsigned open_receives(const struct peer *p, enum op_kind kind)
{
	unsigned n = 0;
	for (struct op *o = me.op; o < me.op + OPS_MAX; o++)
		n += o->used && o->kind == kind && o->p == p && !o->cancel_asked &&
		     (kind != OP_RECV || o->all);
	return n;
}

static bool still_coming(void)
{
	bool any = own_left(false);
	EACH_PEER(p)
	{
		if (p->lost)
			continue;
		any |= must_end(p) || message_missing(p) || remote_missing(p);
	}
	return any || !others_reached(STAGE_DRAIN);
}

/* Orphans of ours: a flush has told that they are done, or their endpoint's end that they never
 * will be. */
static void orphans_end(void)
{
	for (struct op *o = me.op; o < me.op + OPS_MAX; o++)
		if (o->used && o->orphan) {
			o->orphan = false;
			o->done.status = o->p->lost ? RPW_ERR_PEER_GONE : RPW_OK;
			op_done(o);
		}
}

static void drain(void)
{
	stage_say(STAGE_DRAIN);
	for (uint64_t until = now_ns() + 2 * config.deadline_s * 1000000000ull; still_coming();) {
		EACH_PEER(p)
		{
			if (p->lost)
				continue;
			if (message_missing(p) && open_receives(p, OP_RECV) < 8)
				message_recv(p, true);
			if (open_receives(p, OP_RECV_OBJECT) < 1)
				message_recv_object(p);
		}
		turn(true);
		if (now_ns() > until) {
			EACH_PEER(p)
			if (!p->lost && (message_missing(p) || remote_missing(p)))
				wrong("a %s of side %u never came",
					message_missing(p) ? "message" : "notification", p->id);
			wrong("waited too long for the end of the round");
		}
	}
	EACH_PEER(p)
	if (!p->lost)
		remote_flush(p);
	UNTIL(!own_left(false), "the last flush")
	/* Lost while the last flush was under way: what it ends has ended by now. */
	EACH_PEER(p)
	if (!p->lost && must_end(p))
		UNTIL(p->lost, "the end of an endpoint")
	orphans_end();
	stage_meet(STAGE_FLUSHED);
	/* Who was killed instead of coming this far has not said how its operations ended. Who
	 * lives may learn later than we do that the endpoints have ended, and puts until then. */
	EACH_PEER(p)
	if (!p->lost && must_end(p))
		UNTIL(p->lost, "the end of an endpoint")
	EACH_PEER(p)
	if (p->lost)
		UNTIL(arena->side[p->id].dying || arena->side[p->id].left[me.id] > me.session,
			"the other end of an endpoint to end")
}

static void receives_end(void)
{
	for (struct op *o = me.op; o < me.op + OPS_MAX; o++)
		if (o->used)
			cancel(o);
	UNTIL(!me.ops, "canceled receives to end")
}

static void check(void)
{
	receives_end();
	EACH_PEER(p)
	{
		message_check(p);
		remote_check(p);
	}
	remote_check_words();
}

static void round_begin(void)
{
	me.rng.state = way_key(me.id, me.id, 98, 0);
	EACH_PEER(p)
	{
		message_round(p);
		remote_round(p);
		p->out->when = round_number();
	}
}

/* ---- the end of a session ---- */

void close_here(void)
{
	if (!me.close_in_callback)
		return;
	me.close_in_callback = false;
	EACH_PEER(p)
	if (p->ep) {
		rpw_endpoint_destroy(p->ep);
		p->ep = NULL;
		lose(p);
	}
}

static void endpoints_close(void)
{
	EACH_PEER(p)
	{
		if (p->ep)
			rpw_endpoint_destroy(p->ep);
		p->ep = NULL;
		lose(p);
	}
}

/* Everything is closed in mid-flight: what is under way ends, at once. True: the context went with
 * it, and its requests. */
static bool close_in_flight(void)
{
	me.closing = true;
	arena->side[me.id].closed = me.session + 1;
	for (unsigned k = 0; k < 8; k++)
		operation();
	if (chance(4)) {
		rpw_context_destroy(me.c);
		me.c = NULL;
		me.memory = NULL;
		EACH_PEER(p) p->ep = NULL;
		remote_close();
		for (struct op *o = me.op; o < me.op + OPS_MAX; o++)
			if (o->used)
				op_free(o);
		return true;
	}
	if (chance(2)) {
		me.close_in_callback = true;
		for (unsigned k = 0; k < 50 && me.close_in_callback; k++)
			turn(true);
		me.close_in_callback = false;
	}
	endpoints_close();
	orphans_end();
	receives_end();
	return false;
}

static void statistics(void)
{
	rpw_statistics s = {.size = sizeof(s)};
	/* A peer that was killed while it connected may still be counted. */
	for (uint64_t until = now_ns() + config.deadline_s * 1000000000ull;
		rpw_context_statistics(me.c, &s) == RPW_OK && s.endpoints && now_ns() < until;)
		turn(true);
	if (s.requests || s.endpoints || s.unexpected_bytes)
		wrong("when all is closed the context still counts %u requests, %u endpoints, %llu "
		      "bytes of messages without a receive",
			s.requests, s.endpoints, (unsigned long long)s.unexpected_bytes);
	atomic_fetch_add(&totals->path_changes, s.path_changes);
	atomic_fetch_add(&totals->waited_for_room, s.waited_for_room);
}

static void session(void)
{
	for (unsigned i = 0; i < config.sides; i++)
		me.peer[i] = (struct peer){
			.id = i, .in = &arena->way[i][me.id], .out = &arena->way[me.id][i]};
	me.round = 0;
	me.closing = me.close_in_callback = false;
	round_begin();
	context_open();
	unsigned rounds = (unsigned)(1 + way_key(0, 0, 97, 0) % 4);
	bool gone = false;
	for (; !gone && me.round < rounds; me.round++) {
		if (me.round)
			round_begin();
		stage_meet(STAGE_RUN);
		run();
		if (arena->side[me.id].please_close) {
			gone = close_in_flight();
			break;
		}
		drain();
		check();
		stage_meet(STAGE_CHECKED);
		atomic_fetch_add(&totals->rounds, 1);
		if (disturbed())
			break;
	}
	arena->side[me.id].closed = me.session + 1;
	endpoints_close();
	if (!gone) {
		statistics();
		remote_close();
		if (chance(2))
			rpw_listener_destroy(me.l);
		rpw_context_destroy(me.c);
	}
	me.c = NULL;
	for (unsigned i = 0; i < config.sides; i++) {
		free(me.peer[i].image);
		free(me.peer[i].expect);
		free(me.peer[i].known);
	}
	if (me.ops || me.under_way)
		wrong("the soak itself has lost count: %u operations, %zu bytes", me.ops,
			me.under_way);
	atomic_fetch_add(&totals->sessions, 1);
}

/* ---- what is left behind ---- */

static unsigned entries(const char *path)
{
	unsigned n = 0;
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Threads and descriptors that end on their own may take a moment. */
static void not_more(const char *path, unsigned before, const char *what)
{
	unsigned now = entries(path);
	for (unsigned ms = 0; now > before && ms < config.deadline_s * 1000;
		ms++, now = entries(path))
		usleep(1000);
	if (now > before)
		wrong("%u %s before the session, %u after it", before, what, now);
}

static size_t bytes_in_use(void)
{
	struct mallinfo2 m = mallinfo2();
	return m.uordblks + m.hblkhd;
}

/* A pair of contexts in this process, so that what is opened once and kept is there before anything
 * is counted. */
static void warm_accept(rpw_listener *l, rpw_endpoint *ep, void *arg)
{
	*(rpw_endpoint **)arg = ep;
}
static void warm_up(void)
{
	rpw_context *a, *b;
	rpw_listener *l;
	rpw_endpoint *ep, *other = NULL;
	rpw_request *r;
	char address[64];
	rpw_context_options o = {.size = sizeof(o), .transports = config.transports};
	if (rpw_context_create(&o, &a) || rpw_context_create(&o, &b) ||
		rpw_listener_create(b, "127.0.0.1:0", warm_accept, &other, &l))
		wrong("warming up: %s", rpw_last_error());
	snprintf(address, sizeof(address), "127.0.0.1:%d", rpw_listener_port(l));
	rpw_endpoint_create(a, address, NULL, &ep, &r);
	for (uint64_t until = now_ns() + config.deadline_s * 1000000000ull;
		(rpw_request_test(r, NULL) == RPW_IN_PROGRESS || !other) && now_ns() < until;) {
		rpw_context_progress(a);
		rpw_context_progress(b);
	}
	if (rpw_request_test(r, NULL))
		wrong("warming up: no connection: %s", rpw_last_error());
	rpw_request_destroy(r);
	rpw_context_destroy(a);
	rpw_context_destroy(b);
}

int side_run(unsigned id)
{
	me.id = id;
	totals = &arena->side[id].totals;
	me.rng.state = config.seed;
	if (config.rings)
		fault_no_vm();
	/* large buffers come and go as mappings: whoever caches registrations meets stale ones */
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	warm_up();
	size_t in_use = 0;
	for (me.session = 0;; me.session++) {
		unsigned descriptors = entries("/proc/self/fd"),
			 threads = entries("/proc/self/task");
		session();
		if (config.mutant == MUTANT_LEAK && !id && dup(0) < 0)
			wrong("dup");
		not_more("/proc/self/fd", descriptors, "descriptors");
		not_more("/proc/self/task", threads, "threads");
		size_t now = bytes_in_use();
		if (me.session == 1)
			in_use = now;
		else if (me.session > 1 && now > in_use + IN_USE_SLACK)
			wrong("%zu bytes allocated after session 1, %zu now: something leaks",
				in_use, now);
		if (config.mode == MODE_KILLS)
			return 0;
		/* All sides do the same number of sessions: side 0 says. */
		if (!id)
			*(arena->stop ? &arena->sessions_end : &arena->sessions) = me.session + 1;
		UNTIL(arena->sessions > me.session || arena->sessions_end, "the word to go on")
		if (arena->sessions_end)
			return 0;
	}
}
