/* SPDX-License-Identifier: BSD-3-Clause */
/* perf.c - `ropeway perf`: options, which jobs are run, and how what they found is shown. Both
 * sides of a job are client.c and serve.c; peers and curves are beside.py. */
#include "cli/perf/perf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/options.h"

#define PORT_DEFAULT "13370"

enum { WINDOW_SMALL = 64, WINDOW_BYTES = 64 << 20, WINDOW_LEAST = 4 };

struct options {
	const char *address, *serve, *transport, *plot, *against, *only, *peers;
	struct cli_sizes sizes;
	uint64_t iterations, window, buffers;
	unsigned rounds;
	bool op[PERF_OPS], mode[PERF_MODES], json, verify, malloc, touch, bare, serves;
	double seconds;
	int core;
};

/* ---- options ---- */

static const char *const modes[] = {[PERF_LAT] = "lat", [PERF_BW] = "bw", NULL};
static const char *const transports[] = {"shm", "verbs", "tcp", NULL};
static const char *const peers[] = {"ucx", NULL};

static const struct cli_option option[] = {
	{"ops", 'o', CLI_CHOICES, "LIST", "what to measure: tag, put, get, am, loan, view, or all",
		.words = rpwi_perf_op_name, .preset = "tag", CLI_INTO(struct options, op)},
	{"sizes", 's', CLI_SIZES, "LIST",
		"message sizes: 8,4096,1M, or a range 8..8M by powers of 4 (default 8,4096,64K,8M; "
		"with --against 8..8M)",
		.most = PERF_SIZE_MOST, CLI_INTO(struct options, sizes)},
	{"measure", 'm', CLI_CHOICES, "LIST", "lat, bw (default both; bw includes the rate)",
		.words = modes, CLI_INTO(struct options, mode)},
	{"transport", 't', CLI_CHOICE, "NAME", "shm, verbs or tcp (default: chosen by the library)",
		.words = transports, CLI_INTO(struct options, transport)},
	{"duration", 'd', CLI_REAL, "SECONDS", "time for each figure", .unit = "seconds",
		.least = 0.0001, .most = 3600, .preset = "0.5", CLI_INTO(struct options, seconds)},
	{"iterations", 'n', CLI_NUMBER, "N", "messages for each figure, instead of a duration",
		.least = 1, .most = UINT32_MAX, CLI_INTO(struct options, iterations)},
	{"window", 'w', CLI_NUMBER, "N", "sends in flight (default 64, fewer of large messages)",
		.least = 1, .most = PERF_WINDOW_MOST, CLI_INTO(struct options, window)},
	{"buffers", 0, CLI_NUMBER, "N", "buffers used in turn on each side; of loans: views kept",
		.least = 1, .most = PERF_BUFFERS_MOST, .preset = "1",
		CLI_INTO(struct options, buffers)},
	{"verify", 'v', CLI_FLAG, NULL, "check every byte, not only a few of each figure",
		CLI_INTO(struct options, verify)},
	{"malloc", 0, CLI_FLAG, NULL,
		"send from malloc'ed memory, not the library's (rpw_memory_allocate); put to it, "
		"get from it",
		CLI_INTO(struct options, malloc)},
	{"touch", 0, CLI_FLAG, NULL,
		"tag, view, loan: write each byte before it is sent, read it when it came",
		CLI_INTO(struct options, touch)},
	{"core", 'c', CLI_NUMBER, "N", "run on core N (default: two cores, if without HOST)",
		.most = 4095, CLI_INTO(struct options, core)},
	{"json", 'j', CLI_FLAG, NULL, "print JSON", CLI_INTO(struct options, json)},
	{"plot", 'p', CLI_FILE, "FILE.svg", "draw the curves", CLI_INTO(struct options, plot)},
	{"serve", 0, CLI_FLAG, NULL, "answer clients at ADDRESS:PORT (default :" PORT_DEFAULT ")",
		CLI_INTO(struct options, serves)},
	{"against", 0, CLI_CHOICE, "ucx", "measure ucx_perftest and fi_pingpong in turn",
		.words = peers, CLI_INTO(struct options, against)},
	{"peers", 0, CLI_TEXT, "DIRS",
		"with --against: more of them, in bin and lib of each of DIR:DIR...",
		CLI_INTO(struct options, peers)},
	{"rounds", 0, CLI_NUMBER, "N", "rounds of --against", .least = 1, .most = 1000,
		.preset = "5", CLI_INTO(struct options, rounds)},
	{"only", 0, CLI_TEXT, "TEXT", "with --against: only rows whose name contains TEXT",
		CLI_INTO(struct options, only)},
	{"no-bare", 0, CLI_UNSET, NULL, "do not measure the bare machine",
		CLI_INTO(struct options, bare)},
	{},
};
static const struct cli_command command = {
	.name = PERF_NAME,
	.usage =
		"[OPTIONS]\n--serve [ADDRESS:PORT]\nHOST[:PORT] [OPTIONS]\n--against ucx [OPTIONS]",
	.about = "Measures latency (half a round trip; for a get a whole one), bandwidth and "
		 "message rate of messages and remote memory: between two processes on this "
		 "host; between this one and a `ropeway perf --serve` at HOST; or in turn with "
		 "ucx_perftest and fi_pingpong.",
	.option = option,
	.operands_most = 1,
	.operand = CLI_OPERAND_HOST,
};

/* What one option cannot know of another. */
static int check(struct options *o, const char *operand)
{
	if (o->against && (operand || o->serves))
		return rpwi_cli_usage(PERF_NAME,
			"unexpected argument '%s': --against runs both sides here",
			operand ? operand : "--serve");
	if (!o->serves)
		o->address = operand;
	else
		o->serve = operand ? operand : ":" PORT_DEFAULT;
	if (!o->sizes.n)
		cli_options_set(&command, "sizes", o->against ? "8..8M" : "8,4096,64K,8M", o);
	return CLI_GO_ON;
}

/* ---- showing ---- */

const char *rpwi_perf_show_seconds(double s, char out[16])
{
	if (s < 100e-6)
		snprintf(out, 16, "%.2f us", s * 1e6);
	else if (s < 10e-3)
		snprintf(out, 16, "%.0f us", s * 1e6);
	else
		snprintf(out, 16, "%.1f ms", s * 1e3);
	return out;
}

const char *rpwi_perf_show_rate(double v, const char *unit, char out[24])
{
	static const struct {
		double at;
		const char *prefix;
	} scale[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {0, ""}};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(scale); i++)
		if (v >= scale[i].at) {
			snprintf(out, 24, "%.2f %s%s", scale[i].at > 0 ? v / scale[i].at : v,
				scale[i].prefix, unit);
			break;
		}
	return out;
}

/* 80 columns: the other percentiles are in JSON and in the curves. */
#define TABLE_HEAD "\n%-4s %9s %10s %10s %10s %12s %11s %7s\n"
enum { TEXT_AT = 7 }; /* of what stands above the table */

static void put_fact(const char *name, const char *text)
{
	printf("%-*s", TEXT_AT, name);
	cli_help_text(stdout, text, TEXT_AT, TEXT_AT, CLI_HELP_COLUMNS);
}

static void print_head(rpw_endpoint *ep, const struct perf_bare *bare,
	const struct perf_distance *distance, const int core[2])
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	char a[16], b[16];
	rpw_endpoint_info(ep, &info);
	char path[640];
	snprintf(path, sizeof(path), "%s: %s", info.transport, info.path);
	put_fact("path", path);
	put_fact("why", info.why);
	put_fact("peer", info.peer);
	if (core[1] >= 0)
		printf("cores  %d and %d\n", core[0], core[1]);
	if (distance->half_trip_s > 0)
		printf("line   %.0f ns: half a round trip of a cache line between cores %d and "
		       "%d\n",
			distance->half_trip_s * 1e9, distance->core[0], distance->core[1]);
	if (bare->tcp_8_s > 0)
		printf("bare   TCP that both sides poll %s, of 4 KiB %s\n",
			rpwi_perf_show_seconds(bare->tcp_8_s, a),
			rpwi_perf_show_seconds(bare->tcp_4k_s, b));
	printf(TABLE_HEAD, "op", "bytes", "latency", "99%", "most", "bandwidth", "rate", "checked");
	fflush(stdout);
}

static void print_row(const struct perf_row *r)
{
	char t[3][16], bw[24] = "-", rate[24] = "-";
	const double l[] = {r->latency.p50, r->latency.p99, r->latency.most};
	printf("%-4s %9" PRIu64, rpwi_perf_op_name[r->op], r->size);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(l); i++)
		printf(" %10s", r->has[PERF_LAT] ? rpwi_perf_show_seconds(l[i], t[i]) : "-");
	if (r->has[PERF_BW]) {
		rpwi_perf_show_rate(r->messages_s * (double)r->size, "B/s", bw);
		rpwi_perf_show_rate(r->messages_s, "/s", rate);
	}
	printf(" %12s %11s %7" PRIu64 "\n", bw, rate, r->checked);
	fflush(stdout);
}

static json_t *row_json(const struct perf_row *r)
{
	json_t *j = json_pack("{s:s, s:I, s:I, s:I}", "op", rpwi_perf_op_name[r->op], "size",
		(json_int_t)r->size, "messages", (json_int_t)r->messages, "checked",
		(json_int_t)r->checked);
	const struct perf_latency *l = &r->latency;
	if (r->has[PERF_LAT])
		json_object_set_new(j, "latency_us",
			json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "min", l->least * 1e6,
				"p50", l->p50 * 1e6, "p90", l->p90 * 1e6, "p99", l->p99 * 1e6,
				"p99.9", l->p999 * 1e6, "max", l->most * 1e6, "mean",
				l->mean * 1e6));
	if (r->has[PERF_BW]) {
		json_object_set_new(
			j, "bytes_per_second", json_real(r->messages_s * (double)r->size));
		json_object_set_new(j, "messages_per_second", json_real(r->messages_s));
	}
	return j;
}

static int print_json(rpw_endpoint *ep, const struct perf_bare *bare,
	const struct perf_distance *distance, json_t *rows)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(ep, &info);
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:O}", "transport", info.transport, "path",
		info.path, "why", info.why, "peer", info.peer, "rows", rows);
	if (distance->half_trip_s > 0) {
		json_object_set_new(j, "line_ns", json_real(distance->half_trip_s * 1e9));
		json_object_set_new(
			j, "line_cores", json_pack("[i, i]", distance->core[0], distance->core[1]));
	}
	if (bare->tcp_8_s > 0)
		json_object_set_new(j, "bare_us",
			json_pack("{s:f, s:f, s:f}", "cache_line", distance->half_trip_s * 1e6,
				"tcp_8", bare->tcp_8_s * 1e6, "tcp_4k", bare->tcp_4k_s * 1e6));
	return rpwi_cli_json(PERF_NAME, j, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
}

/* ---- running ---- */

static uint64_t window_for(const struct options *o, uint64_t size)
{
	if (o->window)
		return o->window;
	uint64_t n = WINDOW_BYTES / (size ? size : 1);
	return RPWI_MAX(RPWI_MIN(n, (uint64_t)WINDOW_SMALL), (uint64_t)WINDOW_LEAST);
}

/* 0, or the status of the first job that failed: after that the two sides are out of step. */
static int measure_all(const struct options *o, struct perf_side *s, json_t *rows)
{
	int rc = 0;
	for (unsigned op = 0; op < PERF_OPS; op++)
		for (unsigned i = 0; i < o->sizes.n && o->op[op] && !rc; i++) {
			struct perf_row r = {.op = (enum perf_op)op, .size = o->sizes.size[i]};
			uint64_t checked = 0;
			for (unsigned m = 0; m < PERF_MODES && !rc; m++) {
				struct perf_job job = {.op = r.op,
					.mode = (enum perf_mode)m,
					.size = r.size,
					.n = o->iterations,
					.window = window_for(o, r.size),
					.buffers = o->buffers,
					.seed = rpwi_now_ns(),
					.verify = o->verify,
					.malloc = o->malloc,
					.touch = o->touch};
				if (!o->mode[m])
					continue;
				rc = rpwi_perf_measure(s, &job, o->seconds, &r);
				checked += r.checked;
				r.checked = checked;
			}
			json_array_append_new(rows, row_json(&r));
			if (!o->json)
				print_row(&r);
		}
	return rc;
}

static const char *title_of(struct perf_side *s, char out[96])
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	rpw_endpoint_info(rpwi_perf_endpoint(s), &info);
	snprintf(out, 96, "ropeway perf over %s", info.transport);
	return out;
}

static int run(const struct options *o)
{
	struct perf_bare bare = {0};
	struct perf_distance distance = {.core = {-1, -1}};
	struct perf_side *s = NULL;
	int core[2] = {-1, -1};
	char host[CLI_HOST_LEN], address[CLI_ADDRESS_LEN], title[96];
	unsigned port = 0;
	pid_t server = 0;
	if (!o->address) {
		if (rpwi_perf_cores(core) && o->bare)
			rpwi_perf_bare(core, &bare);
		server = rpwi_perf_spawn(o->transport, core[1], &port);
		if (server < 0)
			return rpwi_cli_fail(
				CLI_FAILED, PERF_NAME, "the server process did not start");
		snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	} else if (rpwi_cli_address(o->address, PORT_DEFAULT, host, address)) {
		return rpwi_cli_usage(
			PERF_NAME, "invalid peer '%s': expected HOST or HOST:PORT", o->address);
	}
	json_t *rows = json_array();
	rpwi_perf_pin(o->core >= 0 ? o->core : core[0]);
	int rc = rpwi_perf_connect(address, o->transport, &s);
	if (!rc && o->bare)
		rc = rpwi_perf_distance(s, &distance);
	if (!rc && !o->json)
		print_head(rpwi_perf_endpoint(s), &bare, &distance, core);
	rpwi_cli_when_stopped(PERF_NAME, "stopped: %s",
		o->json ? "there is no JSON without all figures; --sizes and --duration make a run "
			  "shorter"
			: "the rows above are whole; --sizes and --measure go on with the others");
	rc = rc ? rc : measure_all(o, s, rows);
	rpwi_cli_stop_is_late();
	if (s && o->json && print_json(rpwi_perf_endpoint(s), &bare, &distance, rows))
		rc = CLI_FAILED;
	if (s && !rc && o->plot)
		rc = rpwi_perf_plot(o->plot, title_of(s, title), rows);
	json_decref(rows);
	rpwi_perf_close(s);
	if (server > 0)
		rpwi_perf_reap(server);
	return rc ? CLI_FAILED : CLI_OK;
}

int rpwi_cli_perf(int argc, char **argv)
{
	struct options o = {.mode = {true, true}, .core = -1, .bare = true};
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status == CLI_GO_ON)
		status = check(&o, argv[0]);
	if (status != CLI_GO_ON)
		return status;
	if (o.serve) {
		rpwi_perf_pin(o.core);
		return rpwi_perf_serve(o.serve, o.transport, false, -1);
	}
	if (!o.against)
		return run(&o);
	json_t *sizes = json_array();
	for (unsigned i = 0; i < o.sizes.n; i++)
		json_array_append_new(sizes, json_integer((json_int_t)o.sizes.size[i]));
	return rpwi_perf_against(json_pack("{s:i, s:f, s:s?, s:s?, s:s?, s:s?, s:b, s:o}", "rounds",
		(int)o.rounds, "seconds", o.seconds, "transport", o.transport, "only", o.only,
		"plot", o.plot, "peers", o.peers, "json", o.json, "sizes", sizes));
}
