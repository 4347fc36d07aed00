/* SPDX-License-Identifier: BSD-3-Clause */
/* bench.c - `ropeway plugin bench`: how fast a plugin is between two processes on two cores, called
 * as NCCL calls it: on each comm up to 8 sends under way (NCCL_STEPS) and as many receives posted
 * ahead, requests tested in the order in which they were posted, one thread for all comms, which
 * yields when nothing moved. Plugins beside each other are measured in turn, size by size, round by
 * round.
 *
 * The receiver is timed: from the moment when both sides have met until its last message is
 * there; of a connection, listen, and accept from when the other side has the handle. Contents are
 * verified before the first round and after the last, outside of the timed part. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/perf/hist.h"
#include "cli/perf/perf.h"
#include "cli/plugin/plugin.h"
#include "cli/plugin/bench.h"
#include "ncclnet/drive/rma.h"

#define BENCH_NAME "ropeway plugin bench"

enum { LAT_TRIPS_MOST = 200000 };
#define SIZE_MOST (256ull << 20)
/* Of buffers of one-sided operations, for all contexts of a side. */
#define RMA_BYTES_MOST (64ull << 20)

static const char *const ops[RMA_BENCH_OPS + 1] = {"put", "signal", "get"};

/* ---- what was found ---- */

/* A line of the table: a measurement, of every plugin. */
struct row {
	enum kind kind;
	uint64_t size;
	unsigned contexts; /* of one-sided operations; of ALLTOALL 1; 0: comms */
};
enum { ROWS_MAX = (2 * RMA_BENCH_OPS + 1) * CLI_SIZES_MAX + 2 };
static bool is_rate(enum kind kind) { return kind >= STREAM && kind <= ALLTOALL; }
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

/* All sides of plugin k do a job. `out`: what side `role` found. */
static bool ask(struct bench *b, unsigned k, const struct job *j, int role, struct result *out)
{
	struct plugin *p = &b->plugin[k];
	for (int i = 0; i < p->pair.sides; i++)
		if (pair_ask(&p->pair, i, j, sizeof(*j)))
			return false;
	for (int heard = 0; heard < p->pair.sides; heard++) {
		struct result r = {0};
		int who = 0, rc = pair_answer(&p->pair, &who, &r, sizeof(r), JOB_TIMEOUT_MS * 2,
				     JOB_TIMEOUT_MS);
		if (rc != sizeof(r) || !r.ok) {
			complain(&b->o, p, k, rc, who, r.text);
			return false;
		}
		if (who == role)
			*out = r;
	}
	return true;
}

static bool measure(
	struct bench *b, unsigned k, const struct row *row, uint64_t n, struct result *r)
{
	struct job j = {.kind = row->kind, .contexts = row->contexts, .size = row->size, .n = n};
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

/* How many move at once: comms, or contexts. */
static unsigned lanes(const struct bench *b, unsigned row)
{
	return b->row[row].contexts ? b->row[row].contexts : b->o.comms;
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
			if (is_rate(b->row[i].kind))
				f->of[round] = (double)(f->n * lanes(b, i)) / r.seconds;
			if (b->row[i].kind == CONNECT)
				f[1].of[round] = r.closing;
		}
	return true;
}

static void add_rows(
	struct bench *b, enum kind kind, unsigned contexts, const uint64_t *size, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		b->row[b->rows++] = (struct row){kind, size[i], contexts};
}

static bool start(struct bench *b, unsigned k, size_t bytes)
{
	struct bench_start side = {.o = &b->o, .index = k, .bytes = bytes}; /* copied by the fork */
	struct result *opened = &b->plugin[k].opened;
	int sides = b->o.ranks ? (int)b->o.ranks : 2, core[PAIR_SIDES_MAX];
	pair_body *body = b->o.table ? bench_rma_body : bench_net_body;
	for (int i = 0; i < sides; i++)
		core[i] = b->core[1] >= 0 ? b->core[i % 2] : -1;
	int rc = pair_start(&b->plugin[k].pair, sides, b->o.ranks ? bench_all_body : body, &side,
		JOB_TIMEOUT_MS, core);
	b->plugin[k].started = !rc;
	if (rc)
		rpwi_cli_fail(CLI_FAILED, BENCH_NAME, "cannot start %d processes: %s", sides,
			strerror(-rc));
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
		v[i] = is_rate(b->row[row].kind) ? first[i] / other[i] : other[i] / first[i];
	return rpwi_perf_median(v, b->done);
}

/* Of one message; of an exchange all that one rank sends. */
static double bytes_of(const struct bench *b, const struct row *w)
{
	return (double)w->size * (w->kind == ALLTOALL ? b->o.ranks - 1 : 1);
}

/* Of each plugin its figure, then the first one's ratios to the others. */
static void print_row(const struct bench *b, unsigned row, FILE *to)
{
	static const char *const heads[] = {[STREAM] = "\nput",
		[SIGNAL] = "\nput and signal",
		[GET] = "\nget",
		[ALLTOALL] = "\nalltoall",
		[TRIPS] = "\nlatency: half a round trip",
		[CONNECT] = ("\na connection: listen and accept, while the other side polls "
			     "connect; close")};
	const struct row *w = &b->row[row];
	char label[CLI_SIZE_LEN] = "0 bytes";
	const struct row *before = row ? w - 1 : NULL;
	if (b->o.ranks && !before)
		fprintf(to, "%s, %u ranks, each to %u others\n", heads[w->kind], b->o.ranks,
			b->o.ranks - 1);
	else if (b->o.table && !b->o.ranks &&
		 (!before || before->kind != w->kind || before->contexts != w->contexts))
		fprintf(to, "%s, %u context%s\n", heads[w->kind], w->contexts,
			rpwi_cli_plural(w->contexts));
	else if (!b->o.table && before && before->kind != w->kind && w->kind != CLOSE)
		fprintf(to, "%s\n", heads[w->kind]);
	if (w->size)
		rpwi_cli_size(w->size, label);
	else if (w->kind >= CONNECT)
		snprintf(label, sizeof(label), "%s", w->kind == CONNECT ? "connect" : "close");
	fprintf(to, "%-10s", label);
	for (unsigned k = 0; k < b->o.plugins; k++) {
		double v = middle(b, k, row);
		char rate[24] = "", bytes[24];
		if (is_rate(w->kind)) {
			rpwi_perf_show_rate(v, "/s", rate);
			rpwi_perf_show_rate(v * bytes_of(b, w), "B/s", bytes);
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
		fprintf(to, "%c  %s: %s %s, device %d (%s) of %d\n", 'A' + (int)k, o->path[k],
			r->name, r->table, o->device, r->device, r->devices);
	}
	if (o->table && !o->ranks)
		fprintf(to, "%u in flight on each context; ", o->under_way);
	else if (!o->ranks)
		fprintf(to, "%u comm%s%s, %u send%s under way on each; ", o->comms,
			rpwi_cli_plural(o->comms), o->both ? ", every other one back" : "",
			o->under_way, rpwi_cli_plural(o->under_way));
	if (b->core[1] >= 0)
		fprintf(to, "cores %d and %d; ", b->core[0], b->core[1]);
	fprintf(to, "median of %u round%s\n\n%-10s", b->done, rpwi_cli_plural(b->done), "size");
	for (unsigned k = 0; k < o->plugins; k++)
		fprintf(to, "  %9s %c %11s", o->table || o->ranks ? "rate" : "messages",
			o->plugins > 1 ? 'A' + (int)k : ' ', "bytes");
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

static void add_all_rows(struct bench *b)
{
	const struct options *o = &b->o;
	if (o->ranks) {
		add_rows(b, ALLTOALL, 1, o->sizes.size, o->sizes.n);
		return;
	}
	for (unsigned i = 0; o->table && i < 2 * RMA_BENCH_OPS; i++)
		if (o->op[i / 2])
			add_rows(b, STREAM + i / 2, i % 2 ? RMA_BENCH_CONTEXTS : 1, o->sizes.size,
				o->sizes.n);
	if (!o->table)
		add_rows(b, STREAM, 0, o->sizes.size, o->sizes.n);
	add_rows(b, TRIPS, 1, o->trips.size, o->trips.n);
}

static bool run_all(struct bench *b)
{
	uint64_t most = 8;
	round_done(b);
	add_all_rows(b);
	for (unsigned i = 0; i < b->rows; i++)
		most = RPWI_MAX(most, b->row[i].size);
	if (!b->o.table && !b->o.ranks) {
		add_rows(b, CONNECT, 0, &(uint64_t){0}, 1);
		add_rows(b, CLOSE, 0, &(uint64_t){0}, 1);
	}
	size_t bytes = bench_pitch(most) * (b->o.table ? RMA_BENCH_CONTEXTS : b->o.buffers);
	if (b->o.ranks)
		bytes = bench_pitch(most);
	else if (b->o.table)
		bytes = RPWI_MAX(bytes, (size_t)RMA_BYTES_MOST);
	for (unsigned k = 0; k < b->o.plugins; k++) {
		if (!start(b, k, (bytes + 4095) & ~4095ull))
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
	if ((b->o.table || b->o.ranks) && w->kind < TRIPS) {
		json_object_set_new(j, "kind",
			json_string(w->kind == ALLTOALL ? "alltoall" : ops[w->kind - STREAM]));
		json_object_set_new(j, "contexts", json_integer(w->contexts));
	}
	if (!is_rate(w->kind))
		json_object_set_new(j, "us", json_real(v * 1e6));
	else {
		json_object_set_new(
			j, w->contexts ? "per_second" : "messages_per_second", json_real(v));
		json_object_set_new(j, "bytes_per_second", json_real(v * bytes_of(b, w)));
	}
	return j;
}

static json_t *plugin_json(const struct bench *b, unsigned k)
{
	const struct result *r = &b->plugin[k].opened;
	json_t *rows = json_array(), *latency = json_array();
	for (unsigned i = 0; i < b->rows; i++)
		if (b->row[i].kind <= TRIPS)
			json_array_append_new(
				is_rate(b->row[i].kind) ? rows : latency, row_json(b, k, i));
	json_t *j = json_pack("{s:s, s:s, s:i, s:s, s:i, s:o, s:o}", "path", b->o.path[k], "name",
		r->name, "abi", r->abi, "device", r->device, "devices", r->devices, "rows", rows,
		"latency", latency);
	if (b->o.table)
		json_object_set_new(j, "table", json_string(r->table));
	if (b->o.table || b->o.ranks)
		return j;
	json_object_set_new(j, "connect", row_json(b, k, b->rows - 2));
	json_object_set_new(j, "close", row_json(b, k, b->rows - 1));
	return j;
}

static int print_json(const struct bench *b)
{
	json_t *list = json_array();
	for (unsigned k = 0; k < b->o.plugins; k++)
		json_array_append_new(list, plugin_json(b, k));
	json_t *j = json_pack("{s:[i,i], s:i, s:i, s:i, s:b, s:i, s:o}", "cores", b->core[0],
		b->core[1], "ranks", b->o.ranks ? (int)b->o.ranks : 2, "comms", (int)b->o.comms,
		"under_way", (int)b->o.under_way, "both", b->o.both, "rounds", (int)b->o.rounds,
		"plugins", list);
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
	{"rma", 0, CLI_TEXT, "TABLE",
		"measure one-sided operations, between two ranks, with 1 and 4 contexts; TABLE as "
		"in `ropeway plugin check`",
		.bare = "", CLI_INTO(struct options, table)},
	{"ops", 0, CLI_CHOICES, "LIST", "with --rma: put, signal (a put with one), get, or all",
		.words = ops, .preset = "all", CLI_INTO(struct options, op)},
	{"alltoall", 0, CLI_NUMBER, "RANKS",
		"measure, instead of all else, exchanges between so many ranks, in which each "
		"sends a block to every other one; with --rma by puts",
		.least = 2, .most = PAIR_SIDES_MAX, CLI_INTO(struct options, ranks)},
	{"sizes", 0, CLI_SIZES, "LIST",
		"message sizes: 8,4096,1M or a range 8..4M by powers of 4 (default "
		"8,512,4K,32K,64K,512K,4M; with --rma 8,64,512,4K,64K,1M,16M; with --alltoall 64K)",
		.most = SIZE_MOST, CLI_INTO(struct options, sizes)},
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

static const struct cli_sizes net_sizes = {{8, 512, 4096, 32768, 65536, 524288, 4 << 20}, 7},
			      rma_sizes = {{8, 64, 512, 4096, 65536, 1 << 20, 16 << 20}, 7},
			      block_sizes = {{65536}, 1};

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
	if (o->table && (o->abi || o->both || o->comms > 1)) {
		free(b);
		return rpwi_cli_usage(
			BENCH_NAME, "--abi, --comms and --both are of network plugins");
	}
	if (o->ranks && (o->both || o->comms > 1)) {
		free(b);
		return rpwi_cli_usage(BENCH_NAME, "--comms and --both are not of --alltoall");
	}
	o->path[o->plugins++] = argv[0];
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(o->against) && o->against[i]; i++)
		o->path[o->plugins++] = o->against[i];
	if (!o->rounds)
		o->rounds = o->plugins > 1 ? 5 : 3;
	if (!o->sizes.n)
		o->sizes = o->ranks ? block_sizes : o->table ? rma_sizes : net_sizes;
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
