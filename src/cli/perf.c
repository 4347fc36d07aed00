/* perf.c - `ropeway perf`: options, which jobs are run, and how what they found is shown. Both sides of a job are perf_run.c; peers are perf_against.c. */
#include "cli/perf.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

#define PORT_DEFAULT "13370"

enum { ROWS_MAX = PERF_OPS * PERF_SIZES_MAX, WINDOW_SMALL = 64, WINDOW_BYTES = 64 << 20, WINDOW_LEAST = 4 };

struct options {
	const char *address, *serve, *transport, *plot, *against, *only;
	struct perf_sizes sizes;
	uint64_t iterations, window, buffers;
	unsigned rounds;
	bool op[PERF_OPS], mode[PERF_MODES], json, verify, bare, sizes_given;
	double seconds;
	int core;
};

/* ---- options ---- */

static int usage(FILE *to)
{
	fputs("Usage: " PERF_NAME " [OPTIONS]               two processes of this host\n"
	      "       " PERF_NAME " --serve [ADDR:PORT]     answer clients (port " PORT_DEFAULT ")\n"
	      "       " PERF_NAME " HOST[:PORT] [OPTIONS]   measure against such a server\n"
	      "       " PERF_NAME " --against ucx [OPTIONS] beside ucx_perftest and fi_pingpong\n\n"
	      "Latency (half a round trip; of a get a whole one), bandwidth and message rate of\n"
	      "messages and remote memory.\n\n"
	      "  -o, --ops LIST          of tag, put, get, am, or all (default tag)\n"
	      "  -s, --sizes LIST        8,4096,1M or a range 8..8M, by powers of 4 (default\n"
	      "                          8,4096,64K,8M)\n"
	      "  -m, --measure LIST      of lat, bw (default both; rate comes with bw)\n"
	      "  -t, --transport NAME    shm, verbs or tcp (default: the library chooses)\n"
	      "  -d, --duration SECONDS  for each figure (default 0.5)\n"
	      "  -n, --iterations N      so many messages instead\n"
	      "  -w, --window N          sends under way at once (default 64, fewer large ones)\n"
	      "      --buffers N         buffers in turn on each side (default 1)\n"
	      "  -v, --verify            check every byte, not only a few of each figure\n"
	      "  -c, --core N            run on this core (alone: two cores are chosen)\n"
	      "  -j, --json              print JSON\n"
	      "  -p, --plot FILE.svg     draw the curves\n"
	      "      --against ucx       rows of the peers' programs beside ours, interleaved\n"
	      "      --rounds N          of --against (default 5)\n"
	      "      --only TEXT         of --against: rows whose name has this in it\n"
	      "      --no-bare           do not measure the bare machine beside it\n",
		to);
	return to == stdout ? CLI_OK : CLI_USAGE;
}

static int parse_one_size(const char *text, uint64_t *out)
{
	if (!strcmp(text, "0")) {
		*out = 0;
		return 0;
	}
	return rpwi_cli_parse_size(text, out) || *out > PERF_SIZE_MOST ? -EINVAL : 0;
}

static int add_size(struct perf_sizes *s, uint64_t size)
{
	if (s->n == PERF_SIZES_MAX)
		return -EINVAL;
	s->size[s->n++] = size;
	return 0;
}

static int add_range(struct perf_sizes *s, const char *from, const char *to)
{
	uint64_t a, b;
	int rc = parse_one_size(from, &a) || parse_one_size(to, &b) || a > b || !a ? -EINVAL : 0;
	for (uint64_t size = rc ? 0 : a; !rc; size *= 4) {
		rc = add_size(s, RPWI_MIN(size, b));
		if (size >= b)
			break;
	}
	return rc;
}

int rpwi_perf_parse_sizes(const char *list, struct perf_sizes *s)
{
	char *copy = strdup(list), *at = copy, *word;
	int rc = copy ? 0 : -ENOMEM;
	s->n = 0;
	while (!rc && (word = strsep(&at, ","))) {
		char *dots = strstr(word, "..");
		uint64_t size;
		if (dots) {
			*dots = '\0';
			rc = add_range(s, word, dots + 2);
		} else
			rc = parse_one_size(word, &size) ?: add_size(s, size);
	}
	free(copy);
	return rc;
}

/* Sets the named ones of `names`, all for "all". */
static int parse_names(const char *list, const char *const *names, unsigned n, bool *set)
{
	char *copy = strdup(list), *at = copy, *word;
	int rc = copy ? 0 : -ENOMEM;
	memset(set, 0, n * sizeof(*set));
	while (!rc && (word = strsep(&at, ","))) {
		bool known = false;
		for (unsigned i = 0; i < n; i++)
			if (!strcmp(word, names[i]) || !strcmp(word, "all"))
				set[i] = known = true;
		rc = known ? 0 : -EINVAL;
	}
	free(copy);
	return rc;
}

static int parse_number(const char *text, uint64_t most, uint64_t *out)
{
	char *end;
	errno = 0;
	*out = strtoull(text, &end, 10);
	return text[0] < '0' || text[0] > '9' || errno || *end || *out > most ? -EINVAL : 0;
}

static const char *const mode_name[PERF_MODES] = {[PERF_LAT] = "lat", [PERF_BW] = "bw"};
enum { OPT_SERVE = 256, OPT_AGAINST, OPT_ROUNDS, OPT_ONLY, OPT_NO_BARE, OPT_BUFFERS };

static int parse_value(struct options *o, int opt, const char *v)
{
	uint64_t n = 0;
	char *end;
	int rc = 0;
	switch (opt) {
	case 'o':
		return parse_names(v, rpwi_perf_op_name, PERF_OPS, o->op);
	case 'm':
		return parse_names(v, mode_name, PERF_MODES, o->mode);
	case 's':
		o->sizes_given = true;
		return rpwi_perf_parse_sizes(v, &o->sizes);
	case 't':
		o->transport = v;
		return strcmp(v, "shm") && strcmp(v, "tcp") && strcmp(v, "verbs") ? -EINVAL : 0;
	case 'd':
		o->seconds = strtod(v, &end);
		return *end || !(o->seconds > 0 && o->seconds <= 3600) ? -EINVAL : 0;
	case 'n':
		rc = parse_number(v, UINT32_MAX, &o->iterations);
		return rc || !o->iterations ? -EINVAL : 0;
	case 'w':
		rc = parse_number(v, PERF_WINDOW_MOST, &o->window);
		return rc || !o->window ? -EINVAL : 0;
	case OPT_BUFFERS:
		rc = parse_number(v, PERF_BUFFERS_MOST, &o->buffers);
		return rc || !o->buffers ? -EINVAL : 0;
	case 'c':
		rc = parse_number(v, 4095, &n);
		o->core = (int)n;
		return rc;
	case OPT_ROUNDS:
		rc = parse_number(v, 1000, &n);
		o->rounds = (unsigned)n;
		return rc || !n ? -EINVAL : 0;
	case OPT_AGAINST:
		o->against = v;
		return strcmp(v, "ucx") ? -EINVAL : 0;
	}
	return -EINVAL;
}

static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{"ops", required_argument, NULL, 'o'},
		{"sizes", required_argument, NULL, 's'},
		{"measure", required_argument, NULL, 'm'},
		{"transport", required_argument, NULL, 't'},
		{"duration", required_argument, NULL, 'd'},
		{"iterations", required_argument, NULL, 'n'},
		{"window", required_argument, NULL, 'w'},
		{"buffers", required_argument, NULL, OPT_BUFFERS},
		{"verify", no_argument, NULL, 'v'},
		{"core", required_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},
		{"plot", required_argument, NULL, 'p'},
		{"serve", no_argument, NULL, OPT_SERVE},
		{"against", required_argument, NULL, OPT_AGAINST},
		{"rounds", required_argument, NULL, OPT_ROUNDS},
		{"only", required_argument, NULL, OPT_ONLY},
		{"no-bare", no_argument, NULL, OPT_NO_BARE},
		{"help", no_argument, NULL, 'h'},
		{},
	};
	bool serve = false;
	int opt, at;
	while (at = -1, (opt = getopt_long(argc, argv, "o:s:m:t:d:n:w:vc:jp:h", longs, &at)) >= 0) {
		if (opt == '?')
			return rpwi_cli_usage(PERF_NAME);
		if (opt == 'h')
			return usage(stdout), -1;
		if (opt == 'v')
			o->verify = true;
		else if (opt == 'j')
			o->json = true;
		else if (opt == 'p')
			o->plot = optarg;
		else if (opt == OPT_SERVE)
			serve = true;
		else if (opt == OPT_ONLY)
			o->only = optarg;
		else if (opt == OPT_NO_BARE)
			o->bare = false;
		else if (parse_value(o, opt, optarg)) {
			rpwi_cli_fail(
				CLI_USAGE, PERF_NAME, "'%s' is no value for %s", optarg, argv[optind - 1] == optarg ? argv[optind - 2] : argv[optind - 1]);
			return rpwi_cli_usage(PERF_NAME);
		}
	}
	const char *operand = optind < argc ? argv[optind++] : NULL;
	if (optind < argc || (o->against && (operand || serve))) {
		rpwi_cli_fail(CLI_USAGE, PERF_NAME, "'%s' is one too many", optind < argc ? argv[optind] : operand ? operand : "--serve");
		return rpwi_cli_usage(PERF_NAME);
	}
	o->serve = serve ? operand ? operand : ":" PORT_DEFAULT : NULL;
	o->address = serve ? NULL : operand;
	return CLI_OK;
}

/* HOST, HOST:PORT, [V6], [V6]:PORT: with the port that --serve takes when none is said. */
static void with_port(const char *address, char *out, size_t room)
{
	const char *close = strrchr(address, ']'), *colon = strrchr(close ? close : address, ':');
	snprintf(out, room, "%s%s", address, colon ? "" : ":" PORT_DEFAULT);
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
			snprintf(out, 24, "%.2f %s%s", scale[i].at > 0 ? v / scale[i].at : v, scale[i].prefix, unit);
			break;
		}
	return out;
}

static void print_head(rpw_endpoint *ep, const struct perf_bare *bare, const int core[2])
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	char a[16], b[16], c[16];
	rpw_endpoint_info(ep, &info);
	printf("path   %s: %s\nwhy    %s\npeer   %s\n", info.transport, info.path, info.why, info.peer);
	if (core[1] >= 0)
		printf("cores  %d and %d\n", core[0], core[1]);
	if (bare->cache_line_s > 0)
		printf("bare   a cache line between these cores %s; TCP that both sides poll %s, of 4 KiB %s\n", rpwi_perf_show_seconds(bare->cache_line_s, a),
			rpwi_perf_show_seconds(bare->tcp_8_s, b), rpwi_perf_show_seconds(bare->tcp_4k_s, c));
	printf("\n%-4s %10s  %10s %10s %10s %10s %10s  %13s %13s  %s\n", "op", "bytes", "latency", "90%", "99%", "99.9%", "most", "bandwidth", "rate",
		"checked");
	fflush(stdout);
}

static void print_row(const struct perf_row *r)
{
	char t[5][16], bw[24], rate[24];
	const double l[] = {r->latency.p50, r->latency.p90, r->latency.p99, r->latency.p999, r->latency.most};
	printf("%-4s %10" PRIu64 " ", rpwi_perf_op_name[r->op], r->size);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(l); i++)
		printf(" %10s", r->has[PERF_LAT] ? rpwi_perf_show_seconds(l[i], t[i]) : "-");
	printf("  %13s %13s  %" PRIu64 "\n", r->has[PERF_BW] ? rpwi_perf_show_rate(r->messages_s * (double)r->size, "B/s", bw) : "-",
		r->has[PERF_BW] ? rpwi_perf_show_rate(r->messages_s, "/s", rate) : "-", r->checked);
	fflush(stdout);
}

static json_t *row_json(const struct perf_row *r)
{
	json_t *j = json_pack("{s:s, s:I, s:I, s:I}", "op", rpwi_perf_op_name[r->op], "size", (json_int_t)r->size, "messages", (json_int_t)r->messages,
		"checked", (json_int_t)r->checked);
	const struct perf_latency *l = &r->latency;
	if (r->has[PERF_LAT])
		json_object_set_new(j, "latency_us",
			json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "min", l->least * 1e6, "p50", l->p50 * 1e6, "p90", l->p90 * 1e6, "p99", l->p99 * 1e6,
				"p99.9", l->p999 * 1e6, "max", l->most * 1e6, "mean", l->mean * 1e6));
	if (r->has[PERF_BW]) {
		json_object_set_new(j, "bytes_per_second", json_real(r->messages_s * (double)r->size));
		json_object_set_new(j, "messages_per_second", json_real(r->messages_s));
	}
	return j;
}

static void print_json(rpw_endpoint *ep, const struct perf_bare *bare, const struct perf_row *rows, unsigned n)
{
	rpw_endpoint_information info = {.size = sizeof(info)};
	json_t *list = json_array();
	rpw_endpoint_info(ep, &info);
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(list, row_json(&rows[i]));
	json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:o}", "transport", info.transport, "path", info.path, "why", info.why, "peer", info.peer, "rows", list);
	if (bare->cache_line_s > 0)
		json_object_set_new(j, "bare_us",
			json_pack("{s:f, s:f, s:f}", "cache_line", bare->cache_line_s * 1e6, "tcp_8", bare->tcp_8_s * 1e6, "tcp_4k", bare->tcp_4k_s * 1e6));
	json_dumpf(j, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(j);
}

static int plot(const struct options *o, rpw_endpoint *ep, const struct perf_row *rows, unsigned n)
{
	static struct perf_series series[PERF_MODES][PERF_OPS];
	struct perf_panel panel[] = {
		{.title = "Latency", .unit = "half a round trip; of a get a whole one", .series = series[PERF_LAT]},
		{.title = "Bandwidth", .unit = "bytes a second", .series = series[PERF_BW], .is_bytes = true},
	};
	rpw_endpoint_information info = {.size = sizeof(info)};
	char title[96];
	rpw_endpoint_info(ep, &info);
	snprintf(title, sizeof(title), "ropeway perf over %s", info.transport);
	for (unsigned m = 0; m < PERF_MODES; m++)
		for (unsigned op = 0; op < PERF_OPS; op++) {
			struct perf_series *s = &series[m][panel[m].n];
			snprintf(s->name, sizeof(s->name), "%s", rpwi_perf_op_name[op]);
			s->colour = op;
			for (unsigned i = 0; i < n; i++) {
				if (rows[i].op != op || !rows[i].has[m] || !rows[i].size || s->n == PERF_SIZES_MAX)
					continue;
				s->x[s->n] = (double)rows[i].size;
				s->y[s->n++] = m == PERF_LAT ? rows[i].latency.p50 : rows[i].messages_s * (double)rows[i].size;
			}
			panel[m].n += s->n > 0;
		}
	int rc = rpwi_perf_plot(o->plot, title, panel, 2);
	return rc ? rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s: %s", o->plot, strerror(-rc)) : CLI_OK;
}

/* ---- running ---- */

static uint64_t window_for(const struct options *o, uint64_t size)
{
	if (o->window)
		return o->window;
	uint64_t n = WINDOW_BYTES / (size ? size : 1);
	return n > WINDOW_SMALL ? WINDOW_SMALL : n < WINDOW_LEAST ? WINDOW_LEAST : n;
}

/* 0, or the status of the first job that failed: after that the two sides are out of step. */
static int measure_all(const struct options *o, struct perf_side *s, struct perf_row *rows, unsigned *n)
{
	int rc = 0;
	for (unsigned op = 0; op < PERF_OPS; op++)
		for (unsigned i = 0; i < o->sizes.n && o->op[op] && !rc; i++) {
			struct perf_row *r = &rows[(*n)++];
			*r = (struct perf_row){.op = (enum perf_op)op, .size = o->sizes.size[i]};
			uint64_t checked = 0;
			for (unsigned m = 0; m < PERF_MODES && !rc; m++) {
				struct perf_job job = {.op = r->op,
					.mode = (enum perf_mode)m,
					.size = r->size,
					.n = o->iterations,
					.window = window_for(o, r->size),
					.buffers = o->buffers ? o->buffers : 1,
					.seed = rpwi_now_ns(),
					.verify = o->verify};
				if (!o->mode[m])
					continue;
				rc = rpwi_perf_measure(s, &job, o->seconds, r);
				checked += r->checked;
				r->checked = checked;
			}
			if (!o->json)
				print_row(r);
		}
	return rc;
}

static int run(const struct options *o)
{
	static struct perf_row rows[ROWS_MAX];
	struct perf_bare bare = {0};
	struct perf_side *s = NULL;
	int core[2] = {-1, -1};
	char address[300];
	unsigned n = 0, port = 0;
	pid_t server = 0;
	if (!o->address) {
		if (rpwi_perf_cores(core) && o->bare)
			rpwi_perf_bare(core, &bare);
		server = rpwi_perf_spawn(o->transport, core[1], &port);
		if (server < 0)
			return rpwi_cli_fail(CLI_FAILED, PERF_NAME, "the server process did not start");
		snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	} else
		with_port(o->address, address, sizeof(address));
	rpwi_perf_pin(o->core >= 0 ? o->core : core[0]);
	int rc = rpwi_perf_connect(address, o->transport, &s);
	if (!rc && !o->json)
		print_head(rpwi_perf_endpoint(s), &bare, core);
	rc = rc ? rc : measure_all(o, s, rows, &n);
	if (s && o->json)
		print_json(rpwi_perf_endpoint(s), &bare, rows, n);
	if (s && !rc && o->plot)
		rc = plot(o, rpwi_perf_endpoint(s), rows, n);
	rpwi_perf_close(s);
	if (server > 0)
		rpwi_perf_reap(server);
	return rc ? CLI_FAILED : CLI_OK;
}

int rpwi_cli_perf(int argc, char **argv)
{
	struct options o = {.op = {[PERF_TAG] = true}, .mode = {true, true}, .seconds = 0.5, .core = -1, .rounds = 5, .bare = true};
	rpwi_perf_parse_sizes("8,4096,64K,8M", &o.sizes);
	int rc = parse(&o, argc, argv);
	if (rc)
		return rc < 0 ? CLI_OK : rc;
	if (o.serve) {
		rpwi_perf_pin(o.core);
		return rpwi_perf_serve(o.serve, o.transport, false, -1);
	}
	if (!o.against)
		return run(&o);
	if (!o.sizes_given)
		rpwi_perf_parse_sizes("8..8M", &o.sizes);
	struct perf_against a = {.rounds = o.rounds,
		.seconds = o.seconds,
		.transport = o.transport,
		.only = o.only,
		.sizes = o.sizes.size,
		.sizes_n = o.sizes.n,
		.json = o.json,
		.plot = o.plot};
	return rpwi_perf_against(&a);
}
