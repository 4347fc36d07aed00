/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - `ropeway plugin bench`: how fast a plugin is between two processes on two cores, called
 * as NCCL calls it: on each comm up to 8 sends under way (NCCL_STEPS) and as many receives posted
 * ahead, requests tested in the order in which they were posted, one thread for all comms, which
 * yields when nothing moved. Plugins beside each other are measured in turn, size by size, round by
 * round.
 *
 * What is timed is the receiver: from the moment when both sides have met until its last message is
 * there; of a connection, listen, and accept from when the other side has the handle. Contents are
 * verified before the first round and after the last, outside of the timed part. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/perf/perf.h"
#include "cli/perf/hist.h"
#include "cli/plugin/plugin.h"
#include "ncclnet/drive/pair.h"

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

enum kind { OPEN, VERIFY, STREAM, TRIPS, CONNECT, CLOSE };
struct job {
	enum kind kind;
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

struct bench_comm { /* one comm, in one direction */
	struct end end;
	uint64_t posted, done, salt;
	void *request[UNDER_WAY];
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
	l->salt = salt;
	if (!end_open(b->s, &l->end, receiver, b->bytes))
		return false;
	memset(l->end.memory, 0x5a, b->bytes);
	return true;
}

static bool open_all(struct bench_side *b, const struct job *j, struct result *r)
{
	struct side *s = b->s;
	char path[512];
	int abi;
	if (ncclnet_parse(b->o->path[b->index], path, sizeof(path), &abi, s->text, sizeof(s->text)))
		return false;
	if (!side_load(s, path, abi ? abi : b->o->abi) || !side_init(s, s->n, &s->ctx))
		return false;
	r->abi = s->n->abi;
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
	void *data = l->end.memory + l->posted % b->o->buffers * pitch(j->size);
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

static void side_body(struct side *s, void *arg)
{
	struct bench_side *b = arg;
	struct job j;
	b->s = s;
	s->device = b->o->device;
	b->hist = calloc(1, sizeof(*b->hist));
	while (b->hist && side_asked(s, &j, sizeof(j)) == sizeof(j)) {
		struct result r = {0};
		side_step(s);
		r.ok = jobs[j.kind](b, &j, &r);
		memcpy(r.text, s->text, sizeof(r.text));
		if (!side_tell(s, &r, sizeof(r)) || !r.ok)
			break;
	}
	/* Orderly where it went well, so that a plugin is not measured while the one before it
	 * dies. */
	for (unsigned i = 0; i < b->o->comms && !s->why; i++)
		link_close(s, &b->comm[i].end.link);
	if (!s->why)
		link_close(s, &b->back.end.link);
}

/* ---- what was found ---- */

/* A line of the table: a measurement, of every plugin. */
struct row {
	enum kind kind;
	uint64_t size;
};
enum { ROWS_MAX = 2 * CLI_SIZES_MAX + 2 };
struct figures {
	double of[ROUNDS_MAX]; /* messages a second; seconds */
	uint64_t n;            /* messages of each comm that take about the time asked for */
};
struct plugin {
	struct pair pair;
	bool started;
	struct result opened;
	struct figures row[ROWS_MAX];
};
struct bench {
	struct options o;
	int core[2];
	struct row row[ROWS_MAX];
	unsigned rows;
	struct plugin plugin[PLUGINS_MAX];
	unsigned done;     /* rounds */
	char *shown;       /* the table of those, for who stops the rest */
	size_t shown_room; /* of open_memstream */
};

/* Says what went wrong: what a side says, or what became of it. A side that has ended matters more
 * than the other one, which noticed. */
static void complain(const struct options *o, struct plugin *p, unsigned index, int rc, int who,
	const char *text)
{
	struct result other;
	int other_who = who, other_rc = 0;
	if (rc > 0)
		other_rc = pair_answer(&p->pair, &other_who, &other, sizeof(other), 300, 300);
	size_t path = strlen(o->path[index]);
	if (other_rc == -ETIMEDOUT || (other_rc == -EPIPE && p->pair.status[other_who])) {
		rc = other_rc;
		who = other_who;
	}
	const char *said = p->pair.shared->said[who], *call = pair_call(&p->pair, who);
	if (rc > 0 && !strncmp(text, o->path[index], path))
		text += path + (text[path] == ':') + 1;
	if (rc <= 0) {
		text = rc == -EPIPE ? "the plugin crashed in " : "the plugin hangs in ";
		call = call ? call : "none of its calls";
	} else {
		call = "";
	}
	if (*said)
		rpwi_cli_fail(CLI_FAILED, BENCH_NAME, "%s: %s%s (it says: %s)", o->path[index],
			text, call, said);
	else
		rpwi_cli_fail(CLI_FAILED, BENCH_NAME, "%s: %s%s", o->path[index], text, call);
}

/* Both sides of plugin k do a job. `out`: what side `role` found. */
static bool ask(struct bench *b, unsigned k, const struct job *j, int role, struct result *out)
{
	struct plugin *p = &b->plugin[k];
	bool heard[2] = {false, false};
	if (pair_ask(&p->pair, 0, j, sizeof(*j)) || pair_ask(&p->pair, 1, j, sizeof(*j)))
		return false;
	while (!heard[0] || !heard[1]) {
		struct result r = {0};
		int who = 0, rc = pair_answer(&p->pair, &who, &r, sizeof(r), JOB_TIMEOUT_MS * 2,
				     JOB_TIMEOUT_MS);
		if (rc != sizeof(r) || !r.ok) {
			complain(&b->o, p, k, rc, who, r.text);
			return false;
		}
		heard[who] = true;
		if (who == role)
			*out = r;
	}
	return true;
}

static bool measure(
	struct bench *b, unsigned k, const struct row *row, uint64_t n, struct result *r)
{
	struct job j = {.kind = row->kind, .size = row->size, .n = n};
	*r = (struct result){0};
	bool ok = ask(b, k, &j, j.kind == TRIPS, r);
	r->seconds = r->seconds > 0 ? r->seconds : 1e-9;
	return ok;
}

/* How many messages take as long as was asked for: tried with few, then with more. */
static bool calibrate(struct bench *b, unsigned k, unsigned row)
{
	const struct row *w = &b->row[row];
	struct figures *f = &b->plugin[k].row[row];
	struct result r;
	uint64_t n = w->kind == TRIPS ? 200 : 16;
	if (w->kind > TRIPS)
		return true;
	while (measure(b, k, w, n, &r)) {
		if (w->kind == TRIPS) {
			uint64_t fit = (uint64_t)(b->o.seconds / r.seconds / 2);
			f->n = RPWI_MAX(RPWI_MIN(fit, (uint64_t)LAT_TRIPS_MOST), (uint64_t)100);
			return true;
		}
		if (r.seconds > b->o.seconds / 8 || n > 10000000) {
			uint64_t fit = (uint64_t)(b->o.seconds / r.seconds * (double)n);
			f->n = RPWI_MAX(fit, (uint64_t)4 * UNDER_WAY);
			return true;
		}
		n *= 4;
	}
	return false;
}

static bool verify_all(struct bench *b, unsigned k)
{
	struct result r;
	for (unsigned i = 0; i < b->o.sizes.n; i++)
		if (!ask(b, k, &(struct job){.kind = VERIFY, .size = b->o.sizes.size[i]}, 0, &r))
			return false;
	return true;
}

/* Of each row every plugin in turn. What a close takes is found with its connect. */
static bool round_of(struct bench *b, unsigned round)
{
	for (unsigned i = 0; i < b->rows; i++)
		for (unsigned k = 0; k < b->o.plugins && b->row[i].kind != CLOSE; k++) {
			struct figures *f = &b->plugin[k].row[i];
			struct result r;
			if (!measure(b, k, &b->row[i], f->n, &r))
				return false;
			f->of[round] = r.seconds;
			if (b->row[i].kind == STREAM)
				f->of[round] = (double)(f->n * b->o.comms) / r.seconds;
			if (b->row[i].kind == CONNECT)
				f[1].of[round] = r.closing;
		}
	return true;
}

static void add_rows(struct bench *b, enum kind kind, const uint64_t *size, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		b->row[b->rows++] = (struct row){kind, size[i]};
}

static bool start(struct bench *b, unsigned k, size_t bytes)
{
	struct bench_side side = {.o = &b->o, .index = k, .bytes = bytes}; /* copied by the fork */
	struct result *opened = &b->plugin[k].opened;
	int rc = pair_start(&b->plugin[k].pair, 2, side_body, &side, JOB_TIMEOUT_MS,
		b->core[1] >= 0 ? b->core : NULL);
	b->plugin[k].started = !rc;
	if (rc)
		rpwi_cli_fail(
			CLI_FAILED, BENCH_NAME, "cannot start two processes: %s", strerror(-rc));
	return !rc && ask(b, k, &(struct job){.kind = OPEN}, 0, opened) && verify_all(b, k);
}

/* ---- showing ---- */

static double middle(const struct bench *b, unsigned k, unsigned row)
{
	double v[ROUNDS_MAX];
	memcpy(v, b->plugin[k].row[row].of, sizeof(v));
	return rpwi_perf_median(v, b->done);
}

/* Of each round, then the median: what the machine did to one it did to the other. More than 1: the
 * first plugin is better. */
static double ratio(const struct bench *b, unsigned k, unsigned row)
{
	const double *first = b->plugin[0].row[row].of, *other = b->plugin[k].row[row].of;
	double v[ROUNDS_MAX];
	for (unsigned i = 0; i < b->done; i++)
		v[i] = b->row[row].kind == STREAM ? first[i] / other[i] : other[i] / first[i];
	return rpwi_perf_median(v, b->done);
}

/* Of each plugin its figure, then the first one's ratios to the others. */
static void print_row(const struct bench *b, unsigned row, FILE *to)
{
	static const char *const heads[] = {[TRIPS] = "\nlatency: half a round trip",
		[CONNECT] = ("\na connection: listen and accept, while the other side polls "
			     "connect; close")};
	const struct row *w = &b->row[row];
	char label[CLI_SIZE_LEN] = "0 bytes";
	if (row && w->kind != b->row[row - 1].kind && w->kind != CLOSE)
		fprintf(to, "%s\n", heads[w->kind]);
	if (w->size)
		rpwi_cli_size(w->size, label);
	else if (w->kind >= CONNECT)
		snprintf(label, sizeof(label), "%s", w->kind == CONNECT ? "connect" : "close");
	fprintf(to, "%-10s", label);
	for (unsigned k = 0; k < b->o.plugins; k++) {
		double v = middle(b, k, row);
		char rate[24] = "", bytes[24];
		if (w->kind == STREAM) {
			rpwi_perf_show_rate(v, "/s", rate);
			rpwi_perf_show_rate(v * (double)w->size, "B/s", bytes);
		} else
			rpwi_perf_show_seconds(v, bytes);
		fprintf(to, "  %11s %11s", rate, bytes);
	}
	for (unsigned k = 1; k < b->o.plugins; k++)
		fprintf(to, "  %6.2f", ratio(b, k, row));
	fputc('\n', to);
}

static void print_table(const struct bench *b, FILE *to)
{
	const struct options *o = &b->o;
	for (unsigned k = 0; k < o->plugins; k++) {
		const struct result *r = &b->plugin[k].opened;
		fprintf(to, "%c  %s: %s v%d, device %d (%s) of %d\n", 'A' + (int)k, o->path[k],
			r->name, r->abi, o->device, r->device, r->devices);
	}
	fprintf(to, "%u comm%s%s, %u send%s under way on each; ", o->comms,
		rpwi_cli_plural(o->comms), o->both ? ", every other one back" : "", o->under_way,
		rpwi_cli_plural(o->under_way));
	if (b->core[1] >= 0)
		fprintf(to, "cores %d and %d; ", b->core[0], b->core[1]);
	fprintf(to, "median of %u round%s\n\n%-10s", b->done, rpwi_cli_plural(b->done), "size");
	for (unsigned k = 0; k < o->plugins; k++)
		fprintf(to, "  %9s %c %11s", "messages", o->plugins > 1 ? 'A' + (int)k : ' ',
			"bytes");
	for (unsigned k = 1; k < o->plugins; k++)
		fprintf(to, "  %4s/%c", "A", 'A' + (int)k);
	fputc('\n', to);
	for (unsigned i = 0; i < b->rows; i++)
		print_row(b, i, to);
}

/* What there is to show where it is stopped now. */
static void round_done(struct bench *b)
{
	const struct options *o = &b->o;
	char *old = b->shown, *new = NULL;
	if (o->json) {
		rpwi_cli_when_stopped(BENCH_NAME, "stopped: no JSON before all rounds are done");
		return;
	}
	FILE *to = b->done ? open_memstream(&new, &b->shown_room) : NULL;
	if (to) {
		print_table(b, to);
		fclose(to);
	}
	b->shown = new;
	rpwi_cli_when_stopped_print(new);
	free(old);
	if (!new)
		rpwi_cli_when_stopped(
			BENCH_NAME, "stopped in the first round; --duration makes it shorter");
	else
		rpwi_cli_when_stopped(BENCH_NAME, "stopped: the table above is of %u of %u rounds",
			b->done, o->rounds);
}

/* ---- all of it ---- */

static bool run_all(struct bench *b)
{
	uint64_t most = 8;
	round_done(b);
	add_rows(b, STREAM, b->o.sizes.size, b->o.sizes.n);
	add_rows(b, TRIPS, b->o.trips.size, b->o.trips.n);
	for (unsigned i = 0; i < b->rows; i++)
		most = RPWI_MAX(most, b->row[i].size);
	add_rows(b, CONNECT, &(uint64_t){0}, 1);
	add_rows(b, CLOSE, &(uint64_t){0}, 1);
	for (unsigned k = 0; k < b->o.plugins; k++) {
		if (!start(b, k, (pitch(most) * b->o.buffers + 4095) & ~4095ull))
			return false;
		for (unsigned i = 0; i < b->rows; i++)
			if (!calibrate(b, k, i))
				return false;
	}
	for (; b->done < b->o.rounds; b->done++) {
		round_done(b);
		if (!round_of(b, b->done))
			return false;
	}
	for (unsigned k = 0; k < b->o.plugins; k++)
		if (!verify_all(b, k))
			return false;
	return true;
}

/* ---- for programs ---- */

static json_t *row_json(const struct bench *b, unsigned k, unsigned row)
{
	const struct row *w = &b->row[row];
	double v = middle(b, k, row);
	json_t *rounds = json_array(), *j = json_pack("{s:f}", "first_to_this", ratio(b, k, row));
	for (unsigned i = 0; i < b->done; i++)
		json_array_append_new(rounds, json_real(b->plugin[k].row[row].of[i]));
	json_object_set_new(j, "rounds", rounds);
	if (w->kind <= TRIPS)
		json_object_set_new(j, "size", json_integer((json_int_t)w->size));
	if (w->kind != STREAM)
		json_object_set_new(j, "us", json_real(v * 1e6));
	else {
		json_object_set_new(j, "messages_per_second", json_real(v));
		json_object_set_new(j, "bytes_per_second", json_real(v * (double)w->size));
	}
	return j;
}

static json_t *plugin_json(const struct bench *b, unsigned k)
{
	const struct result *r = &b->plugin[k].opened;
	json_t *rows = json_array(), *latency = json_array();
	for (unsigned i = 0; i < b->rows - 2; i++)
		json_array_append_new(b->row[i].kind == STREAM ? rows : latency, row_json(b, k, i));
	return json_pack("{s:s, s:s, s:i, s:s, s:i, s:o, s:o, s:o, s:o}", "path", b->o.path[k],
		"name", r->name, "abi", r->abi, "device", r->device, "devices", r->devices, "rows",
		rows, "latency", latency, "connect", row_json(b, k, b->rows - 2), "close",
		row_json(b, k, b->rows - 1));
}

static int print_json(const struct bench *b)
{
	json_t *list = json_array();
	for (unsigned k = 0; k < b->o.plugins; k++)
		json_array_append_new(list, plugin_json(b, k));
	json_t *j = json_pack("{s:[i,i], s:i, s:i, s:b, s:i, s:o}", "cores", b->core[0], b->core[1],
		"comms", (int)b->o.comms, "under_way", (int)b->o.under_way, "both", b->o.both,
		"rounds", (int)b->o.rounds, "plugins", list);
	return rpwi_cli_json(BENCH_NAME, j, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
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
	struct bench *b = calloc(1, sizeof(*b));
	if (!b)
		return rpwi_cli_fail(CLI_FAILED, BENCH_NAME, "out of memory");
	struct options *o = &b->o;
	int status = cli_options_parse(&command, o, &argc, &argv);
	if (status != CLI_GO_ON) {
		free(b);
		return status;
	}
	o->path[o->plugins++] = argv[0];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(o->against) && o->against[i]; i++)
		o->path[o->plugins++] = o->against[i];
	if (!o->rounds)
		o->rounds = o->plugins > 1 ? 5 : 3;
	rpwi_perf_cores(b->core);
	bool ok = run_all(b);
	rpwi_cli_stop_is_late();
	if (ok && o->json) {
		ok = !print_json(b);
	} else if (ok) {
		print_table(b, stdout);
		puts("\nContents verified before the first and after the last round.");
	}
	free(b->shown);
	for (unsigned k = 0; k < o->plugins; k++)
		if (b->plugin[k].started)
			pair_end(&b->plugin[k].pair);
	free(b);
	return ok ? CLI_OK : CLI_FAILED;
}
