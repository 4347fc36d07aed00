/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - `ropeway plugin bench`: how fast a plugin is between two processes on two cores, called
 * as NCCL calls it: on each comm up to 8 sends under way (NCCL_STEPS) and as many receives posted
 * ahead, requests tested in the order in which they were posted, one thread for all comms, which
 * yields when nothing moved. Plugins beside each other are measured in turn, size by size, round by
 * round.
 *
 * What is timed is the receiver: from the moment when both sides have met until its last message is
 * there; of a connection, listen, and accept from when the other side has the handle. Contents are
 * verified before the first round and after the last, outside of what is timed. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/perf/perf.h"
#include "cli/perf/hist.h"
#include "cli/plugin/plugin.h"
#include "ncclnet/check/pair.h"

#define BENCH_NAME "ropeway plugin bench"

enum {
	UNDER_WAY = 8,
	COMMS_MAX = 16,
	BUFFERS_MAX = 128,
	PLUGINS_MAX = 4,
	ROUNDS_MAX = 100,
	JOB_TIMEOUT_MS = 20000,
	IDLE_LOOKS = 64,
	LAT_TRIPS_MOST = 200000,
	VERIFY_EACH = 24,
	CONNECTS = 9 /* of each round */
};
#define SIZE_MOST (256ull << 20)

struct options {
	/* path: the operand, then those */
	const char *path[PLUGINS_MAX], *against[PLUGINS_MAX - 1];
	int abi;
	struct cli_sizes sizes, trips; /* rates of these; latencies of those */
	unsigned plugins, comms, under_way, buffers, rounds;
	double seconds;
	int device;
	bool both, json;
};

enum kind { OPEN, STREAM, TRIPS, CONNECT };
struct job {
	enum kind kind;
	bool verify;
	uint64_t size, n; /* n: messages of each comm */
};
struct result {
	bool ok;
	double seconds; /* of the whole stream; half a round trip; until there is a comm */
	double closing; /* of a comm */
	char text[400];
	char name[64], device[64];
	int abi, devices;
};

/* ---- a side ---- */

struct slot {
	void *request;
	char *at;
};
struct bench_comm { /* one comm, in one direction */
	struct link link;
	bool sends;
	char *memory;
	void *mhandle;
	uint64_t posted, done, salt;
	struct slot slot[UNDER_WAY];
};
struct bench_side {
	struct side *s;
	const struct options *o;
	unsigned index; /* which plugin */
	struct bench_comm comm[COMMS_MAX], back;
	size_t bytes;
	struct perf_hist *hist;
};

/* From one buffer to the next, as `ropeway perf` has them: a page of its own, and room between, so
 * that buffers of 4 MiB do not fall on each other in a cache. */
static size_t pitch(uint64_t size) { return size <= 64 ? 64 : (size + 4159) & ~4095ull; }

static bool comm_open(struct bench_side *b, struct bench_comm *l, int receiver, uint64_t salt)
{
	struct side *s = b->s;
	if (!link_open(s, &l->link, b->o->device, receiver))
		return false;
	l->sends = s->role != receiver;
	l->salt = salt;
	l->memory =
		mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (l->memory == MAP_FAILED)
		return side_fail(s, "no memory for buffers of %zu bytes", b->bytes);
	/* as `ropeway perf` has them; where the kernel gives any */
	madvise(l->memory, b->bytes, MADV_HUGEPAGE);
	memset(l->memory, 0x5a, b->bytes);
	void *comm = l->sends ? l->link.send : l->link.recv;
	int rc = SIDE_CALL(s, "regMr",
		ncclnet_reg(s->n, comm, l->memory, b->bytes, NCCL_PTR_HOST, &l->mhandle));
	return !rc || side_fail(s, "regMr of %zu bytes of host memory gives %d (%s)", b->bytes, rc,
			      ncclnet_result_name(rc));
}

static bool open_all(struct bench_side *b, struct result *r)
{
	struct side *s = b->s;
	struct ncclnet_properties p;
	char path[512];
	int abi;
	if (ncclnet_parse(b->o->path[b->index], path, sizeof(path), &abi, s->text, sizeof(s->text)))
		return false;
	if (!side_load(s, path, abi ? abi : b->o->abi) || !side_init(s, s->n, &s->ctx))
		return false;
	r->abi = s->n->abi;
	snprintf(r->name, sizeof(r->name), "%s", ncclnet_name(s->n));
	int rc = SIDE_CALL(s, "devices", ncclnet_devices(s->n, &r->devices));
	if (rc || b->o->device >= r->devices)
		return side_fail(s,
			"devices gives %d (%s), and %d devices: device %d is not among them", rc,
			ncclnet_result_name(rc), r->devices, b->o->device);
	rc = SIDE_CALL(s, "getProperties", ncclnet_properties(s->n, b->o->device, &p));
	if (rc)
		return side_fail(s, "getProperties gives %d (%s)", rc, ncclnet_result_name(rc));
	snprintf(r->device, sizeof(r->device), "%s", p.name ? p.name : "");
	for (unsigned i = 0; i < b->o->comms; i++)
		if (!comm_open(b, &b->comm[i], b->o->both && i % 2, i))
			return false;
	return comm_open(b, &b->back, 1, COMMS_MAX);
}

/* Which pattern: no two messages of a run have the same. */
static uint64_t pattern(const struct bench_comm *l, uint64_t size, uint64_t message)
{
	return (size << 32) + (l->salt << 24) + message;
}

/* Posts the next message of a comm: 1, or 0 if the plugin wants to be called again; negative: an
 * error. */
static inline int post(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	struct side *s = b->s;
	struct slot *slot = &l->slot[l->posted % UNDER_WAY];
	void *data = l->memory + l->posted % b->o->buffers * pitch(j->size);
	size_t size = j->size;
	int tag = 0, rc;
	slot->at = data;
	if (j->verify && l->sends)
		pair_fill(data, size, pattern(l, size, l->posted));
	if (l->sends)
		rc = SIDE_CALL(s, "isend",
			ncclnet_isend(
				s->n, l->link.send, data, size, tag, l->mhandle, &slot->request));
	else
		rc = SIDE_CALL(s, "irecv",
			ncclnet_irecv(s->n, l->link.recv, 1, &data, &size, &tag, &l->mhandle,
				&slot->request));
	if (RPWI_UNLIKELY(rc)) {
		side_fail(s, "%s of %zu bytes gives %d (%s)", l->sends ? "isend" : "irecv", size,
			rc, ncclnet_result_name(rc));
		return -1;
	}
	l->posted += slot->request != NULL;
	return slot->request != NULL;
}

/* Tests the oldest: 1 when it is done. */
static inline int finish(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	struct side *s = b->s;
	struct slot *slot = &l->slot[l->done % UNDER_WAY];
	int done = 0, sizes[NCCL_NET_GROUP_MAX] = {0};
	int rc = SIDE_CALL(s, "test", ncclnet_test(s->n, slot->request, &done, sizes));
	if (RPWI_UNLIKELY(rc)) {
		side_fail(s, "test of %s of %" PRIu64 " bytes gives %d (%s)",
			l->sends ? "a send" : "a receive", j->size, rc, ncclnet_result_name(rc));
		return -1;
	}
	if (!done)
		return 0;
	/* 0: left alone, as NCCL puts it there; some plugins do (fastsocket). */
	if (RPWI_UNLIKELY(!l->sends && sizes[0] && (uint64_t)sizes[0] != j->size)) {
		side_fail(
			s, "a receive has %d bytes where %" PRIu64 " were sent", sizes[0], j->size);
		return -1;
	}
	if (j->verify && !l->sends) {
		size_t at = pair_wrong(slot->at, j->size, pattern(l, j->size, l->done));
		if (at != j->size) {
			side_fail(s,
				"message %" PRIu64 " of %" PRIu64
				" bytes is wrong from byte %zu on",
				l->done, j->size, at);
			return -1;
		}
	}
	l->done++;
	return 1;
}

/* One look at a comm, as NCCL's progress makes it, which posts up to message `last`. Negative: an
 * error; else whether anything moved. */
static inline int advance(
	struct bench_side *b, struct bench_comm *l, const struct job *j, uint64_t last)
{
	int moved = 0, rc = 0;
	if (l->posted < last && l->posted - l->done < (l->sends ? b->o->under_way : UNDER_WAY))
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
	return rpwi_now_ns() < s->until ||
	       side_fail(s, "nothing moved until the deadline of %u ms", s->timeout_ms);
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

/* The next message of a comm, there and done: receives are posted ahead, what is sent is not. */
static bool one(struct bench_side *b, struct bench_comm *l, const struct job *j)
{
	unsigned looks = 0;
	for (uint64_t want = l->done + 1; l->done < want;) {
		int rc = advance(b, l, j, l->sends ? want : j->n);
		if (rc < 0 || (!rc && !pause_looking(b->s, &looks)))
			return false;
	}
	return true;
}

/* Receives are posted before what they answer is sent. */
static bool trips(struct bench_side *b, const struct job *j, struct result *r)
{
	struct bench_comm *in = b->s->role ? &b->back : &b->comm[0],
			  *out = b->s->role ? &b->comm[0] : &b->back;
	in->posted = in->done = out->posted = out->done = 0;
	memset(b->hist, 0, sizeof(*b->hist));
	if (!side_meet_spinning(b->s))
		return false;
	for (uint64_t i = 0; i < j->n; i++) {
		uint64_t begin = rpwi_now_ns();
		if (b->s->role ? !one(b, out, j) || !one(b, in, j)
			       : !one(b, in, j) || !one(b, out, j))
			return false;
		perf_hist_add(
			b->hist, (uint32_t)RPWI_MIN(rpwi_now_ns() - begin, (uint64_t)UINT32_MAX));
	}
	r->seconds = perf_hist_at(b->hist, 0.5) / 2e9;
	return side_meet_spinning(b->s);
}

/* The middle of a few. */
static bool connects(struct bench_side *b, struct result *r)
{
	struct side *s = b->s;
	double open[CONNECTS], closing[CONNECTS];
	for (unsigned i = 0; i < CONNECTS; i++) {
		struct link l = {.device = &l.device_memory};
		uint64_t begin = rpwi_now_ns();
		if (!s->role && !link_listen(s, &l, b->o->device))
			return false;
		uint64_t listen_ns = rpwi_now_ns() - begin;
		if (s->role ? !side_take(s, l.handle, s->n->handle_bytes)
			    : !side_give(s, l.handle, s->n->handle_bytes))
			return false;
		if (s->role)
			link_guard(s, &l);
		if (!side_meet_spinning(s))
			return false;
		begin = rpwi_now_ns();
		if (s->role ? !link_connect(s, &l, b->o->device) : !link_accept(s, &l))
			return false;
		open[i] = (double)(rpwi_now_ns() - begin + listen_ns) / 1e9;
		if (!side_meet_spinning(s))
			return false;
		begin = rpwi_now_ns();
		if (s->role)
			SIDE_CALL(s, "closeSend", ncclnet_close_send(s->n, l.send));
		else
			SIDE_CALL(s, "closeRecv", ncclnet_close_recv(s->n, l.recv));
		closing[i] = (double)(rpwi_now_ns() - begin) / 1e9;
		l.send = l.recv = NULL;
		link_close(s, &l);
	}
	r->seconds = rpwi_perf_median(open, CONNECTS);
	r->closing = rpwi_perf_median(closing, CONNECTS);
	return true;
}

static void side_body(struct side *s, void *arg)
{
	struct bench_side *b = arg;
	struct job j;
	b->s = s;
	b->hist = calloc(1, sizeof(*b->hist));
	while (b->hist && side_asked(s, &j, sizeof(j)) == sizeof(j)) {
		struct result r = {0};
		side_step(s);
		r.ok = j.kind == OPEN     ? open_all(b, &r)
		       : j.kind == STREAM ? stream(b, &j, &r)
		       : j.kind == TRIPS  ? trips(b, &j, &r)
					  : connects(b, &r);
		memcpy(r.text, s->text, sizeof(r.text));
		if (!side_tell(s, &r, sizeof(r)) || !r.ok)
			break;
	}
	/* Orderly where it went well, so that a plugin is not measured while the one before it
	 * dies. */
	for (unsigned i = 0; i < b->o->comms && !s->why; i++)
		link_close(s, &b->comm[i].link);
	if (!s->why)
		link_close(s, &b->back.link);
}

/* ---- what was found ---- */

struct figures {
	double of[ROUNDS_MAX]; /* messages a second; seconds */
	uint64_t n;            /* messages of each comm that take about the time asked for */
};
struct plugin {
	struct pair pair;
	bool started;
	struct result opened;
	struct figures rate[CLI_SIZES_MAX], latency[CLI_SIZES_MAX], connect, closing;
};

/* Says what went wrong: what a side says, or what became of it. A side that has ended matters more
 * than the other one, which noticed. */
static void complain(const struct options *o, struct plugin *p, unsigned index, int rc, int who,
	const char *text)
{
	struct result other;
	int other_who = who,
	    other_rc =
		    rc > 0 ? pair_answer(&p->pair, &other_who, &other, sizeof(other), 300, 300) : 0;
	size_t path = strlen(o->path[index]);
	if (other_rc == -ETIMEDOUT || (other_rc == -EPIPE && p->pair.status[other_who])) {
		rc = other_rc;
		who = other_who;
	}
	const char *said = p->pair.shared->said[who], *call = pair_call(&p->pair, who);
	if (rc > 0 && !strncmp(text, o->path[index], path))
		text += path + (text[path] == ':') + 1;
	rpwi_cli_fail(CLI_FAILED, BENCH_NAME, "%s: %s%s%s%s%s", o->path[index],
		rc > 0         ? text
		: rc == -EPIPE ? "the plugin crashed in "
			       : "the plugin hangs in ",
		rc > 0 ? ""
		: call ? call
		       : "none of its calls",
		*said ? " (it says: " : "", said, *said ? ")" : "");
}

/* Both sides do a job. `out`: what side `role` found. */
static bool ask(const struct options *o, struct plugin *p, unsigned index, const struct job *j,
	int role, struct result *out)
{
	bool heard[2] = {false, false};
	if (pair_ask(&p->pair, 0, j, sizeof(*j)) || pair_ask(&p->pair, 1, j, sizeof(*j)))
		return false;
	while (!heard[0] || !heard[1]) {
		struct result r = {0};
		int who = 0, rc = pair_answer(&p->pair, &who, &r, sizeof(r), JOB_TIMEOUT_MS * 2,
				     JOB_TIMEOUT_MS);
		if (rc != sizeof(r) || !r.ok) {
			complain(o, p, index, rc, who, r.text);
			return false;
		}
		heard[who] = true;
		if (who == role)
			*out = r;
	}
	return true;
}

static bool measure(
	const struct options *o, struct plugin *p, unsigned index, struct job *j, double *seconds)
{
	struct result r = {0};
	bool ok = ask(o, p, index, j, j->kind == TRIPS ? 1 : 0, &r);
	*seconds = r.seconds > 0 ? r.seconds : 1e-9;
	return ok;
}

/* How many messages take as long as was asked for: tried with few, then with more. */
static bool calibrate(
	const struct options *o, struct plugin *p, unsigned index, uint64_t size, struct figures *f)
{
	struct job j = {.kind = STREAM, .size = size, .n = 16};
	double seconds;
	for (;;) {
		if (!measure(o, p, index, &j, &seconds))
			return false;
		if (seconds > o->seconds / 8 || j.n > 10000000)
			break;
		j.n *= 4;
	}
	f->n = RPWI_MAX((uint64_t)(o->seconds / seconds * (double)j.n), (uint64_t)4 * UNDER_WAY);
	return true;
}

static bool verify(const struct options *o, struct plugin *p, unsigned index)
{
	double seconds;
	for (unsigned i = 0; i < o->sizes.n; i++) {
		struct job j = {
			.kind = STREAM, .verify = true, .size = o->sizes.size[i], .n = VERIFY_EACH};
		if (!measure(o, p, index, &j, &seconds))
			return false;
	}
	return true;
}

static bool round_of(const struct options *o, struct plugin *plugin, unsigned round)
{
	double seconds;
	for (unsigned i = 0; i < o->sizes.n + o->trips.n; i++)
		for (unsigned k = 0; k < o->plugins; k++) {
			struct plugin *p = &plugin[k];
			bool trip = i >= o->sizes.n;
			unsigned at = trip ? i - o->sizes.n : i;
			struct figures *f = trip ? &p->latency[at] : &p->rate[at];
			struct job j = {.kind = trip ? TRIPS : STREAM,
				.size = trip ? o->trips.size[at] : o->sizes.size[at],
				.n = f->n};
			if (!measure(o, p, k, &j, &seconds))
				return false;
			f->of[round] = trip ? seconds : (double)(j.n * o->comms) / seconds;
		}
	for (unsigned k = 0; k < o->plugins; k++) {
		struct job j = {.kind = CONNECT};
		struct result r;
		if (!ask(o, &plugin[k], k, &j, 0, &r))
			return false;
		plugin[k].connect.of[round] = r.seconds;
		plugin[k].closing.of[round] = r.closing;
	}
	return true;
}

static bool trips_calibrate(
	const struct options *o, struct plugin *p, unsigned index, uint64_t size, struct figures *f)
{
	struct job j = {.kind = TRIPS, .size = size, .n = 200};
	double half;
	if (!measure(o, p, index, &j, &half))
		return false;
	f->n = RPWI_MAX(RPWI_MIN((uint64_t)(o->seconds / half / 2), (uint64_t)LAT_TRIPS_MOST),
		(uint64_t)100);
	return true;
}

static bool run_all(const struct options *o, struct plugin *plugin, const int core[2])
{
	struct job open_them = {.kind = OPEN};
	for (unsigned k = 0; k < o->plugins; k++) {
		static struct bench_side body[PLUGINS_MAX]; /* copied by the forks */
		struct bench_side *b = &body[k];
		uint64_t most = 8;
		for (unsigned i = 0; i < o->sizes.n; i++)
			most = RPWI_MAX(most, o->sizes.size[i]);
		for (unsigned i = 0; i < o->trips.n; i++)
			most = RPWI_MAX(most, o->trips.size[i]);
		*b = (struct bench_side){
			.o = o, .index = k, .bytes = (pitch(most) * o->buffers + 4095) & ~4095ull};
		int rc = pair_start(
			&plugin[k].pair, side_body, b, JOB_TIMEOUT_MS, core[1] >= 0 ? core : NULL);
		if (rc)
			return rpwi_cli_fail(CLI_FAILED, BENCH_NAME,
				       "cannot start two processes: %s", strerror(-rc)),
			       false;
		plugin[k].started = true;
		if (!ask(o, &plugin[k], k, &open_them, 0, &plugin[k].opened) ||
			!verify(o, &plugin[k], k))
			return false;
		for (unsigned i = 0; i < o->trips.n; i++)
			if (!trips_calibrate(
				    o, &plugin[k], k, o->trips.size[i], &plugin[k].latency[i]))
				return false;
		for (unsigned i = 0; i < o->sizes.n; i++)
			if (!calibrate(o, &plugin[k], k, o->sizes.size[i], &plugin[k].rate[i]))
				return false;
	}
	for (unsigned round = 0; round < o->rounds; round++)
		if (!round_of(o, plugin, round))
			return false;
	for (unsigned k = 0; k < o->plugins; k++)
		if (!verify(o, &plugin[k], k))
			return false;
	return true;
}

/* ---- showing ---- */

static double middle(const struct figures *f, unsigned rounds)
{
	double v[ROUNDS_MAX];
	memcpy(v, f->of, sizeof(v));
	return rpwi_perf_median(v, rounds);
}

/* Of each round, then the median: what the machine did to one it did to the other. More than 1: the
 * first plugin is better. */
static double ratio(const struct figures *first, const struct figures *other, unsigned rounds,
	bool less_is_better)
{
	double v[ROUNDS_MAX];
	for (unsigned i = 0; i < rounds; i++)
		v[i] = less_is_better ? other->of[i] / first->of[i] : first->of[i] / other->of[i];
	return rpwi_perf_median(v, rounds);
}

static const struct figures *figures_at(const struct plugin *p, size_t which)
{
	return (const struct figures *)((const char *)p + which);
}

/* Of each plugin its figure, then the first one's ratios to the others. `which`: where the figures
 * are in struct plugin. */
static void print_line(const struct options *o, const struct plugin *plugin, const char *what,
	uint64_t size, size_t which, bool trip)
{
	printf("%-10s", what);
	for (unsigned k = 0; k < o->plugins; k++) {
		double v = middle(figures_at(&plugin[k], which), o->rounds);
		char rate[24] = "", bytes[24];
		if (trip)
			rpwi_perf_show_seconds(v, bytes);
		else {
			rpwi_perf_show_rate(v, "/s", rate);
			rpwi_perf_show_rate(v * (double)size, "B/s", bytes);
		}
		printf("  %11s %11s", rate, bytes);
	}
	for (unsigned k = 1; k < o->plugins; k++)
		printf("  %6.2f", ratio(figures_at(&plugin[0], which),
					  figures_at(&plugin[k], which), o->rounds, trip));
	putchar('\n');
}

static void print_size(const struct options *o, const struct plugin *plugin, uint64_t size,
	size_t which, bool trip)
{
	char label[CLI_SIZE_LEN];
	print_line(o, plugin, size ? rpwi_cli_size(size, label) : "0 bytes", size, which, trip);
}

static void print_table(const struct options *o, const struct plugin *plugin, const int core[2])
{
	for (unsigned k = 0; k < o->plugins; k++)
		printf("%c  %s: %s v%d, device %d (%s) of %d\n", 'A' + (int)k, o->path[k],
			plugin[k].opened.name, plugin[k].opened.abi, o->device,
			plugin[k].opened.device, plugin[k].opened.devices);
	printf("%u comm%s%s, %u send%s under way on each; ", o->comms, o->comms == 1 ? "" : "s",
		o->both ? ", every other one back" : "", o->under_way,
		o->under_way == 1 ? "" : "s");
	if (core[1] >= 0)
		printf("cores %d and %d; ", core[0], core[1]);
	printf("median of %u round%s\n\n%-10s", o->rounds, o->rounds == 1 ? "" : "s", "size");
	for (unsigned k = 0; k < o->plugins; k++)
		printf("  %9s %c %11s", "messages", o->plugins > 1 ? 'A' + (int)k : ' ', "bytes");
	for (unsigned k = 1; k < o->plugins; k++)
		printf("  %4s/%c", "A", 'A' + (int)k);
	putchar('\n');
	for (unsigned i = 0; i < o->sizes.n; i++)
		print_size(o, plugin, o->sizes.size[i], offsetof(struct plugin, rate[i]), false);
	puts("\nlatency: half a round trip");
	for (unsigned i = 0; i < o->trips.n; i++)
		print_size(o, plugin, o->trips.size[i], offsetof(struct plugin, latency[i]), true);
	puts("\na connection: listen and accept, while the other side polls connect; close");
	print_line(o, plugin, "connect", 0, offsetof(struct plugin, connect), true);
	print_line(o, plugin, "close", 0, offsetof(struct plugin, closing), true);
	puts("\nContents verified before the first and after the last round.");
}

static json_t *rounds_json(const struct figures *f, unsigned rounds)
{
	json_t *list = json_array();
	for (unsigned i = 0; i < rounds; i++)
		json_array_append_new(list, json_real(f->of[i]));
	return list;
}

static json_t *times_json(
	const struct options *o, const struct figures *first, const struct figures *f)
{
	return json_pack("{s:f, s:f, s:o}", "us", middle(f, o->rounds) * 1e6, "first_to_this",
		ratio(first, f, o->rounds, true), "rounds", rounds_json(f, o->rounds));
}

static json_t *plugin_json(const struct options *o, const struct plugin *all, unsigned k)
{
	const struct plugin *p = &all[k];
	json_t *rows = json_array(), *latency = json_array();
	for (unsigned i = 0; i < o->sizes.n; i++) {
		double rate = middle(&p->rate[i], o->rounds);
		json_array_append_new(rows,
			json_pack("{s:I, s:f, s:f, s:f, s:o}", "size", (json_int_t)o->sizes.size[i],
				"messages_per_second", rate, "bytes_per_second",
				rate * (double)o->sizes.size[i], "first_to_this",
				ratio(&all[0].rate[i], &p->rate[i], o->rounds, false), "rounds",
				rounds_json(&p->rate[i], o->rounds)));
	}
	for (unsigned i = 0; i < o->trips.n; i++)
		json_array_append_new(latency,
			json_pack("{s:I, s:f, s:f, s:o}", "size", (json_int_t)o->trips.size[i],
				"us", middle(&p->latency[i], o->rounds) * 1e6, "first_to_this",
				ratio(&all[0].latency[i], &p->latency[i], o->rounds, true),
				"rounds", rounds_json(&p->latency[i], o->rounds)));
	return json_pack("{s:s, s:s, s:i, s:s, s:i, s:o, s:o, s:o, s:o}", "path", o->path[k],
		"name", p->opened.name, "abi", p->opened.abi, "device", p->opened.device, "devices",
		p->opened.devices, "rows", rows, "latency", latency, "connect",
		times_json(o, &all[0].connect, &p->connect), "close",
		times_json(o, &all[0].closing, &p->closing));
}

static void print_json(const struct options *o, const struct plugin *plugin, const int core[2])
{
	json_t *list = json_array();
	for (unsigned k = 0; k < o->plugins; k++)
		json_array_append_new(list, plugin_json(o, plugin, k));
	json_t *j = json_pack("{s:[i,i], s:i, s:i, s:b, s:i, s:o}", "cores", core[0], core[1],
		"comms", (int)o->comms, "under_way", (int)o->under_way, "both", o->both, "rounds",
		(int)o->rounds, "plugins", list);
	json_dumpf(j, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(j);
}

/* ---- options ---- */

static const struct cli_option option[] = {
	{"abi", 0, CLI_NUMBER, "vN",
		"version of the plugin API (default: the highest; FILE.so@vN sets it for one "
		"plugin)",
		.prefix = "v", .least = NCCL_NET_V_FIRST, .most = NCCL_NET_V_LAST,
		CLI_INTO(struct options, abi)},
	{"against", 0, CLI_FILE, "FILE.so", "another plugin, measured in turn (up to three)",
		CLI_INTO(struct options, against)},
	{"sizes", 0, CLI_SIZES, "LIST", "message sizes: 8,4096,1M or a range 8..4M by powers of 4",
		.most = SIZE_MOST, .preset = "8,512,4K,32K,64K,512K,4M",
		CLI_INTO(struct options, sizes)},
	{"latency-sizes", 0, CLI_SIZES, "LIST", "message sizes of the latencies", .most = SIZE_MOST,
		.preset = "8", CLI_INTO(struct options, trips)},
	{"comms", 0, CLI_NUMBER, "N", "connections used at once, in one direction", .least = 1,
		.most = COMMS_MAX, .preset = "1", CLI_INTO(struct options, comms)},
	{"both", 0, CLI_FLAG, NULL,
		"every other connection the other way: each side sends and receives, as in an "
		"all_reduce",
		CLI_INTO(struct options, both)},
	{"under-way", 0, CLI_NUMBER, "N",
		"sends under way on each connection; NCCL has fewer than 8 where a GPU does not "
		"keep up",
		.least = 1, .most = UNDER_WAY, .preset = "8", CLI_INTO(struct options, under_way)},
	{"buffers", 0, CLI_NUMBER, "N", "buffers used in turn, for each connection and side",
		.least = UNDER_WAY, .most = BUFFERS_MAX, .preset = "8",
		CLI_INTO(struct options, buffers)},
	{"rounds", 0, CLI_NUMBER, "N",
		"rounds, of which the median is shown (default 3; with --against 5)", .least = 1,
		.most = ROUNDS_MAX, CLI_INTO(struct options, rounds)},
	{"duration", 0, CLI_REAL, "SECONDS", "time for each figure of each round",
		.unit = "seconds", .least = 0.001, .most = 10, .preset = "0.3",
		CLI_INTO(struct options, seconds)},
	{"device", 0, CLI_NUMBER, "N", "which device of the plugin", .most = PLUGIN_DEVICE_MOST,
		.preset = "0", CLI_INTO(struct options, device)},
	{"json", 0, CLI_FLAG, NULL,
		"print JSON: the rows of each plugin, and the ratio of the first plugin to it "
		"(above 1: the first is better)",
		CLI_INTO(struct options, json)},
	{},
};
static const struct cli_command command = {
	.name = BENCH_NAME,
	.usage = "FILE.so [OPTIONS]",
	.about = "Messages and bytes a second, latency, and the time that a connection takes, of a "
		 "NCCL network plugin between two processes on two cores of this host, called as "
		 "NCCL calls it.",
	.option = option,
	.operands_least = 1,
	.operands_most = 1,
	.operand = CLI_OPERAND_FILE,
	.missing = "expected the plugin to measure, as in libnccl-net-ropeway.so",
};

int rpwi_plugin_bench(int argc, char **argv)
{
	static struct plugin plugin[PLUGINS_MAX];
	static struct options o;
	int core[2] = {-1, -1};
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	o.path[o.plugins++] = argv[0];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(o.against) && o.against[i]; i++)
		o.path[o.plugins++] = o.against[i];
	if (!o.rounds)
		o.rounds = o.plugins > 1 ? 5 : 3;
	rpwi_perf_cores(core);
	bool ok = run_all(&o, plugin, core);
	if (ok && o.json)
		print_json(&o, plugin, core);
	else if (ok)
		print_table(&o, plugin, core);
	for (unsigned k = 0; k < o.plugins; k++)
		if (plugin[k].started)
			pair_end(&plugin[k].pair);
	return ok ? CLI_OK : CLI_FAILED;
}
