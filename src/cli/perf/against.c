/* SPDX-License-Identifier: BSD-3-Clause */
/* against.c - the programs that others measure with, beside ours: ucx_perftest and fi_pingpong, on
 * the same two cores, in turn with ours, so that what the machine does to one it does to the other.
 *
 * Of each peer the figure is the median over the rounds; of several peers, versions and settings
 * the best one counts. */
#include "cli/perf/perf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

enum {
	ROUNDS_MAX = 1000,
	PROGRAM_DEADLINE_MS = 40000,
	LISTEN_MS = 10000,
	OUTPUT_MAX = 16384,
	ARGS_MAX = 24,
	PLACES_MAX = 8, /* where peers are looked for: PATH, and --peers */
	TWICE_FAILED = 2
};

enum figure { FIGURE_LAT, FIGURE_RATE, FIGURE_BW };
static const struct {
	const char *unit, *better;
	double scale; /* from seconds, messages a second, bytes a second */
} figures[] = {[FIGURE_LAT] = {"us", "lower", 1e6},
	[FIGURE_RATE] = {"M/s", "higher", 1e-6},
	[FIGURE_BW] = {"MB/s", "higher", 1e-6}};

struct row {
	const char *name, *transport, *ucx_test;
	enum perf_op op;
	enum figure figure;
	uint64_t size;
	double goal;
	const char *bare; /* the machine itself, measured in the same rounds; ... */
	double bare_goal; /* ... 0: only shown */
};
static const struct row rows[] = {
	{"shm_lat_8", "shm", "tag_lat", PERF_TAG, FIGURE_LAT, 8, 1.1, "bare_cache_line", 0},
	{"shm_rate_8", "shm", "tag_bw", PERF_TAG, FIGURE_RATE, 8, 1, NULL, 0},
	{"shm_bw_64k", "shm", "tag_bw", PERF_TAG, FIGURE_BW, 65536, 1, NULL, 0},
	{"shm_bw_8m", "shm", "tag_bw", PERF_TAG, FIGURE_BW, 8388608, 1, NULL, 0},
	{"shm_put_8m", "shm", "ucp_put_bw", PERF_PUT, FIGURE_BW, 8388608, 1.0, NULL, 0},
	{"tcp_lat_8", "tcp", "tag_lat", PERF_TAG, FIGURE_LAT, 8, 0.95, "bare_tcp_8", 1.1},
	{"tcp_lat_4k", "tcp", "tag_lat", PERF_TAG, FIGURE_LAT, 4096, 0.95, "bare_tcp_4k", 1.1},
	{"tcp_rate_8", "tcp", "tag_bw", PERF_TAG, FIGURE_RATE, 8, 5, NULL, 0},
	{"tcp_bw_64k", "tcp", "tag_bw", PERF_TAG, FIGURE_BW, 65536, 1.5, NULL, 0},
	{"tcp_bw_8m", "tcp", "tag_bw", PERF_TAG, FIGURE_BW, 8388608, 1.1, NULL, 0},
	{"tcp_put_8m", "tcp", "ucp_put_bw", PERF_PUT, FIGURE_BW, 8388608, 10, NULL, 0},
};

/* Peers and their settings. libfabric's fi_pingpong has a figure for latency only: a mean, since it
 * prints no other; its TCP endpoints of kind msg know no tags. */
struct peer {
	const char *transport, *label;
	bool is_fabric;
	const char *env[3], *provider, *endpoint, *messages;
};
static const struct peer peers[] = {
	{.transport = "shm", .label = "UCX posix,sysv,cma", .env = {"UCX_TLS=posix,sysv,cma,self"}},
	{.transport = "shm", .label = "UCX posix,sysv", .env = {"UCX_TLS=posix,sysv,self"}},
	{.transport = "shm",
		.label = "libfabric shm",
		.is_fabric = true,
		.provider = "shm",
		.endpoint = "rdm",
		.messages = "tagged"},
	{.transport = "tcp", .label = "UCX tcp", .env = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}},
	{.transport = "tcp",
		.label = "UCX tcp, no rendezvous",
		.env = {"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo", "UCX_RNDV_THRESH=inf"}},
	{.transport = "tcp",
		.label = "libfabric tcp rdm",
		.is_fabric = true,
		.provider = "tcp",
		.endpoint = "rdm",
		.messages = "tagged"},
	{.transport = "tcp",
		.label = "libfabric tcp msg",
		.is_fabric = true,
		.provider = "tcp",
		.endpoint = "msg",
		.messages = "msg"},
};

/* A peer as it is installed somewhere. */
struct contender {
	const struct peer *peer;
	const char *prefix; /* its bin, lib, lib/ucx; NULL: as PATH finds it */
	char label[64];
};
static struct contender contenders[PLACES_MAX * RPWI_ARRAY_LEN(peers)];
static unsigned contenders_n;

static bool has_program(const char *prefix, const struct peer *p)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/bin/%s", prefix,
		p->is_fabric ? "fi_pingpong" : "ucx_perftest");
	return !access(path, X_OK);
}

/* Those of one place. Of a prefix, those that it has: their number. */
static unsigned contenders_add(const char *prefix)
{
	unsigned before = contenders_n;
	const char *name = prefix ? strrchr(prefix, '/') : NULL;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(peers); i++) {
		if (prefix && !has_program(prefix, &peers[i]))
			continue;
		struct contender *c = &contenders[contenders_n++];
		*c = (struct contender){.peer = &peers[i], .prefix = prefix};
		snprintf(c->label, sizeof(c->label), "%s%s%s%s", peers[i].label, prefix ? " (" : "",
			name     ? name + 1
			: prefix ? prefix
				 : "",
			prefix ? ")" : "");
	}
	return contenders_n - before;
}

/* `prefixes` is a list as in PATH, and is cut up. */
static int contenders_find(char *prefixes)
{
	unsigned places = 1;
	contenders_n = 0;
	contenders_add(NULL);
	for (char *rest = prefixes, *prefix; (prefix = strsep(&rest, ":"));) {
		size_t len = strlen(prefix);
		while (len > 1 && prefix[len - 1] == '/')
			prefix[--len] = '\0';
		if (++places > PLACES_MAX)
			return rpwi_cli_usage(
				PERF_NAME, "--peers: more than %u installations", PLACES_MAX - 1);
		if (!contenders_add(prefix))
			return rpwi_cli_usage(PERF_NAME,
				"--peers: '%s' has neither bin/ucx_perftest nor bin/fi_pingpong",
				prefix);
	}
	return CLI_GO_ON;
}

/* ---- running a program ---- */

/* In the child: its own libraries and no other's. */
static void prefer(const char *prefix)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/lib", prefix);
	setenv("LD_LIBRARY_PATH", path, 1);
	snprintf(path, sizeof(path), "%s/lib/ucx", prefix);
	setenv("UCX_MODULE_DIR", path, 1);
	unsetenv("FI_PROVIDER_PATH");
}

/* In the child: what it has as its input, a terminal at which nobody types. Without a terminal
 * ucx_perftest is a rank of MPI's where it was built with MPI, as Debian 13's. The other end stays
 * open with the program. */
static int nobody_types(void)
{
	const char *name = NULL;
	int fd = -1, typist = posix_openpt(O_RDWR | O_NOCTTY);
	if (typist >= 0 && !grantpt(typist) && !unlockpt(typist))
		name = ptsname(typist);
	if (name)
		fd = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	return fd >= 0 ? fd : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

struct program {
	pid_t pid;
	int out;
};

static bool program_start(
	struct program *p, const char *const *argv, const struct contender *c, int core)
{
	const struct peer *peer = c->peer;
	char path[PATH_MAX];
	int out[2];
	pid_t parent = getpid();
	*p = (struct program){.pid = -1, .out = -1};
	if (pipe2(out, O_CLOEXEC))
		return false;
	fflush(NULL);
	p->pid = fork();
	if (!p->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(127);
		rpwi_perf_pin(core);
		for (unsigned i = 0; i < RPWI_ARRAY_LEN(peer->env) && peer->env[i]; i++)
			putenv((char *)peer->env[i]);
		putenv((char *)"LC_ALL=C");
		putenv((char *)"UCX_WARN_UNUSED_ENV_VARS=n");
		dup2(nobody_types(), 0);
		dup2(out[1], 1);
		dup2(out[1], 2);
		rpwi_cli_file_limit_as_before();
		if (c->prefix) {
			prefer(c->prefix);
			snprintf(path, sizeof(path), "%s/bin/%s", c->prefix, argv[0]);
			execv(path, (char *const *)argv);
		} else {
			execvp(argv[0], (char *const *)argv);
		}
		_exit(127);
	}
	close(out[1]);
	p->out = out[0];
	return p->pid > 0;
}

/* All that it says until it closes its output or the deadline has come. Its exit status, or -1. */
static int program_end(struct program *p, char *text, size_t room, unsigned timeout_ms)
{
	uint64_t until = rpwi_now_ns() + timeout_ms * 1000000ull;
	size_t len = 0;
	int status = -1;
	text[0] = '\0';
	if (p->pid <= 0)
		return -1;
	while (rpwi_now_ns() < until) {
		struct pollfd f = {.fd = p->out, .events = POLLIN};
		if (poll(&f, 1, 100) <= 0)
			continue;
		ssize_t n = read(p->out, text + len, room - 1 - len);
		if (n <= 0)
			break;
		len = RPWI_MIN(len + (size_t)n, room - 2); /* what is beyond is overwritten */
		text[len] = '\0';
	}
	close(p->out);
	if (rpwi_now_ns() >= until)
		kill(p->pid, SIGKILL);
	waitpid(p->pid, &status, 0);
	p->pid = -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void program_kill(struct program *p)
{
	if (p->pid <= 0)
		return;
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->out);
	p->pid = -1;
}

static unsigned free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (bind(fd, (struct sockaddr *)&a, len) ||
			       getsockname(fd, (struct sockaddr *)&a, &len)))
		a.sin_port = 0;
	if (fd >= 0)
		close(fd);
	return ntohs(a.sin_port);
}

/* Does anybody listen there? Read, since a try would be the connection that the server waits
 * for. */
static bool listens(unsigned port)
{
	static const char *const files[] = {"/proc/net/tcp", "/proc/net/tcp6"};
	bool found = false;
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(files); i++) {
		FILE *f = fopen(files[i], "re");
		char line[512];
		unsigned at, state;
		while (f && fgets(line, sizeof(line), f))
			found |= sscanf(line, "%*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x", &at,
					 &state) == 2 &&
				 at == port && state == 0x0a;
		if (f)
			fclose(f);
	}
	return found;
}

static bool wait_listening(const struct program *p, unsigned port)
{
	for (unsigned i = 0; i < LISTEN_MS / 20; i++) {
		if (listens(port))
			return true;
		siginfo_t info = {0};
		if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
			info.si_pid)
			return false;
		usleep(20000);
	}
	return false;
}

/* ---- what they say ---- */

/* ucx_perftest -v: a head, then
 * "iterations,percentile,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr" (us, MiB/s,
 * messages/s). */
static double ucx_figure(const char *text, enum figure figure)
{
	double v[8];
	for (const char *line = text; line;
		line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (sscanf(line, "%lf,%lf,%lf,%lf,%lf,%lf,%lf,%lf", &v[0], &v[1], &v[2], &v[3],
			    &v[4], &v[5], &v[6], &v[7]) == 8)
			return figure == FIGURE_LAT    ? v[1] / 1e6
			       : figure == FIGURE_RATE ? v[7]
						       : v[5] * 1048576;
	return 0;
}

/* fi_pingpong: "bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec"; the last but one is half
 * a round trip. */
static double fabric_figure(const char *text)
{
	for (const char *line = text; line;
		line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		double time, mb, us;
		if (sscanf(line, "%*s %*s %*s %*s %lfs %lf %lf", &time, &mb, &us) == 3 && us > 0)
			return us / 1e6;
	}
	return 0;
}

/* How many messages take about so long, guessed from what such machines do; the figure does not
 * depend on it. */
static uint64_t messages_for(const struct row *r, double seconds)
{
	bool tcp = r->transport[0] == 't';
	double each_s = r->figure == FIGURE_LAT ? (tcp ? 12e-6 : 0.5e-6) : tcp ? 5e-6 : 0.1e-6;
	each_s += (double)r->size / (tcp ? 3e9 : 10e9) +
		  (tcp && r->op == PERF_PUT ? (double)r->size / 1e9 : 0);
	uint64_t n = (uint64_t)(seconds / each_s);
	return n < 10 ? 10 : n;
}

static double peer_once(
	const struct contender *c, const struct row *r, double seconds, const int core[2])
{
	const struct peer *p = c->peer;
	static char text[OUTPUT_MAX], said[OUTPUT_MAX];
	const char *argv[ARGS_MAX];
	char port[16], size[24], n[24], warm[24];
	struct program server, client;
	unsigned at = 0, number = free_port();
	uint64_t messages = messages_for(r, seconds);
	snprintf(port, sizeof(port), "%u", number);
	snprintf(size, sizeof(size), "%" PRIu64, r->size);
	snprintf(n, sizeof(n), "%" PRIu64, messages);
	snprintf(warm, sizeof(warm), "%" PRIu64, messages / 10 + 1);
	/* The server's: the same with the port that it listens on. */
	const char *const fabric[] = {"fi_pingpong", "-p", p->provider, "-e", p->endpoint, "-m",
		p->messages, "-I", n, "-S", size, "-B", port, NULL};
	const char *const ucx[] = {"ucx_perftest", "-p", port, NULL};
	if (!program_start(&server, p->is_fabric ? fabric : ucx, c, core[1]) ||
		!wait_listening(&server, number)) {
		program_kill(&server);
		return 0;
	}
	if (p->is_fabric) {
		for (; fabric[at]; at++)
			argv[at] = strcmp(fabric[at], "-B") ? fabric[at] : "-P";
		argv[at++] = "127.0.0.1";
	} else {
		const char *const more[] = {"ucx_perftest", "127.0.0.1", "-p", port, "-t",
			r->ucx_test, "-s", size, "-n", n, "-w", warm, "-f", "-v"};
		for (; at < RPWI_ARRAY_LEN(more); at++)
			argv[at] = more[at];
	}
	argv[at] = NULL;
	program_start(&client, argv, c, core[0]);
	int rc = program_end(&client, text, sizeof(text), PROGRAM_DEADLINE_MS);
	if (rc)
		program_kill(&server);
	else
		program_end(&server, said, sizeof(said), 5000);
	return rc ? 0 : p->is_fabric ? fabric_figure(text) : ucx_figure(text, r->figure);
}

static double ours_once(const struct row *r, double seconds, const int core[2])
{
	struct perf_row got = {.op = r->op, .size = r->size};
	struct perf_job job = {.op = r->op,
		.mode = r->figure == FIGURE_LAT ? PERF_LAT : PERF_BW,
		.size = r->size,
		.window = r->size > 1 << 20 ? 8 : 64,
		.buffers = 1,
		.seed = rpwi_now_ns()};
	struct perf_side *s;
	char address[32];
	unsigned port;
	double figure = 0;
	pid_t server = rpwi_perf_spawn(r->transport, core[1], &port);
	if (server < 0)
		return 0;
	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	rpwi_perf_pin(core[0]);
	if (!rpwi_perf_connect(address, r->transport, &s)) {
		if (!rpwi_perf_measure(s, &job, seconds, &got))
			figure = r->figure == FIGURE_LAT    ? got.latency.p50
				 : r->figure == FIGURE_RATE ? got.messages_s
							    : got.messages_s * (double)r->size;
		rpwi_perf_close(s);
	}
	rpwi_perf_reap(server);
	return figure;
}

/* ---- the rounds ---- */

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double rpwi_perf_median(double *v, unsigned n)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), ascending);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct found {
	double ours, peer, bare;
	const char *peer_name;
};

static bool takes_part(const struct peer *p, const struct row *r)
{
	return !strcmp(p->transport, r->transport) && (!p->is_fabric || r->figure == FIGURE_LAT);
}

/* By this process, which ours_once has left on the first core. */
static double bare_once(const struct row *r, const int core[2])
{
	if (!r->bare)
		return 0;
	return r->transport[0] == 't' ? rpwi_perf_bare_tcp(core, r->size)
				      : rpwi_perf_bare_line(core);
}

static void compare(
	const struct row *r, unsigned rounds, double seconds, const int core[2], struct found *out)
{
	static double ours[ROUNDS_MAX], bare[ROUNDS_MAX],
		peer[RPWI_ARRAY_LEN(contenders)][ROUNDS_MAX];
	unsigned n = 0, bare_n = 0, peer_n[RPWI_ARRAY_LEN(contenders)] = {0},
		 failed[RPWI_ARRAY_LEN(contenders)] = {0};
	*out = (struct found){0};
	for (unsigned round = 0; round < rounds; round++) {
		double v = ours_once(r, seconds, core);
		if (v > 0)
			ours[n++] = v;
		v = bare_once(r, core);
		if (v > 0)
			bare[bare_n++] = v;
		for (unsigned i = 0; i < contenders_n; i++) {
			if (!takes_part(contenders[i].peer, r) || failed[i] == TWICE_FAILED)
				continue;
			v = peer_once(&contenders[i], r, seconds, core);
			if (v > 0)
				peer[i][peer_n[i]++] = v;
			else
				failed[i]++;
		}
	}
	out->ours = rpwi_perf_median(ours, n);
	out->bare = rpwi_perf_median(bare, bare_n);
	for (unsigned i = 0; i < contenders_n; i++) {
		double v = rpwi_perf_median(peer[i], peer_n[i]);
		if (v > 0 && (!out->peer_name ||
				     (r->figure == FIGURE_LAT ? v < out->peer : v > out->peer))) {
			out->peer = v;
			out->peer_name = contenders[i].label;
		}
	}
}

/* ---- showing ---- */

static json_t *figure_json(double v) { return v > 0 ? json_real(v) : json_null(); }

static void show(json_t *list, const char *name, enum figure figure, double ours, double peer,
	double goal, const char *peer_name)
{
	double scale = figures[figure].scale, ratio = ours > 0 && peer > 0 ? ours / peer : 0;
	if (list) {
		json_array_append_new(
			list, json_pack("{s:s, s:o, s:o, s:s, s:s, s:o, s:o, s:s}", "name", name,
				      "ours", figure_json(ours * scale), "peer",
				      figure_json(peer * scale), "unit", figures[figure].unit,
				      "better", figures[figure].better, "ratio", figure_json(ratio),
				      "goal", figure_json(goal), "peer_name", peer_name));
		return;
	}
	bool lower = figure == FIGURE_LAT, good = lower ? ratio <= goal : ratio >= goal;
	printf("%-15s %10.2f %10.2f %-5s %6.2f  ", name, ours * scale, peer * scale,
		figures[figure].unit, ratio);
	if (goal > 0)
		printf("%s %-5g %-5s %s\n", lower ? "at most " : "at least", goal,
			ratio <= 0 ? "-"
			: good     ? "pass"
				   : "short",
			peer_name);
	else
		printf("%-20s %s\n", "", peer_name);
	fflush(stdout);
}

static void show_found(json_t *list, const struct row *r, const struct found *f)
{
	show(list, r->name, r->figure, f->ours, f->peer, r->goal,
		f->peer_name ? f->peer_name
		: list       ? ""
			     : "no peer reported a figure");
	if (r->bare)
		show(list, r->bare, r->figure, f->ours, f->bare, r->bare_goal,
			"the machine itself, polled by both sides");
}

/* ---- the plot: sizes, ours and UCX's ---- */

static int sweep(const struct perf_against *a, const int core[2])
{
	static const char *const transports[] = {"shm", "tcp"};
	static struct perf_series series[PERF_MODES][4];
	struct perf_panel panel[] = {
		{.title = "Latency", .unit = "half a round trip", .series = series[PERF_LAT]},
		{.title = "Bandwidth",
			.unit = "bytes a second",
			.series = series[PERF_BW],
			.is_bytes = true},
	};
	for (unsigned m = 0; m < PERF_MODES; m++)
		for (unsigned t = 0; t < RPWI_ARRAY_LEN(transports); t++) {
			if (a->transport && strcmp(a->transport, transports[t]))
				continue;
			struct perf_series *ours = &series[m][panel[m].n++],
					   *theirs = &series[m][panel[m].n++];
			*ours = (struct perf_series){.colour = t};
			*theirs = (struct perf_series){.colour = t, .dashed = true};
			snprintf(ours->name, sizeof(ours->name), "ropeway %s", transports[t]);
			snprintf(theirs->name, sizeof(theirs->name), "UCX or libfabric %s",
				transports[t]);
			for (unsigned i = 0; i < a->sizes_n; i++) {
				struct row r = {.name = "plot",
					.transport = transports[t],
					.ucx_test = m == PERF_LAT ? "tag_lat" : "tag_bw",
					.op = PERF_TAG,
					.figure = m == PERF_LAT ? FIGURE_LAT : FIGURE_BW,
					.size = a->sizes[i]};
				struct found f;
				compare(&r, 1, a->seconds, core, &f);
				struct perf_series *both[] = {ours, theirs};
				const double v[] = {f.ours, f.peer};
				for (unsigned k = 0; k < 2; k++)
					if (v[k] > 0 && r.size) {
						both[k]->x[both[k]->n] = (double)r.size;
						both[k]->y[both[k]->n++] = v[k];
					}
			}
		}
	int rc = rpwi_perf_plot(
		a->plot, "Tagged messages between two processes of one host", panel, 2);
	return rc ? rpwi_cli_fail(CLI_FAILED, PERF_NAME, "%s: %s", a->plot, strerror(-rc)) : CLI_OK;
}

int rpwi_perf_against(const struct perf_against *a)
{
	int core[2], rc;
	json_t *list = a->json ? json_array() : NULL;
	rc = contenders_find(a->peers);
	if (rc != CLI_GO_ON)
		return rc;
	rc = CLI_OK;
	if (!rpwi_perf_cores(core))
		return rpwi_cli_fail(CLI_FAILED, PERF_NAME,
			"two cores are needed, one for each process; this process may use one");
	if (!list)
		printf("%-15s %10s %10s %-5s %6s  %-14s\n", "what", "ropeway", "peer", "", "ratio",
			"goal");
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(rows); i++) {
		struct found f;
		if ((a->transport && strcmp(a->transport, rows[i].transport)) ||
			(a->only && !strstr(rows[i].name, a->only)))
			continue;
		compare(&rows[i], a->rounds, a->seconds, core, &f);
		rc = f.ours > 0 ? rc : CLI_FAILED;
		show_found(list, &rows[i], &f);
	}
	if (list) {
		json_dumpf(list, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(5));
		putchar('\n');
		json_decref(list);
	}
	return a->plot ? sweep(a, core) ?: rc : rc;
}
