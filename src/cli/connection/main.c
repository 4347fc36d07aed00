/* main.c - `test_connection server|client`: options, the steps one after another, deadlines. */
#include "cli/connection/connection.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "test_connection"
#define OWN_PLUGIN "libnccl-net-ropeway.so"

static const struct {
	const char *what;
	int (*run)(struct connection *c);
} steps[] = {
	{"initialise and count the devices", step_initialise},
	{"listen", step_listen},
	{"find the other side and exchange handles", step_exchange},
	{"connect and accept", step_connect},
	{"register memory", step_register},
	{"\"Hello from TCPX client!\", and an answer", step_hello},
	{"messages of all sizes, both ways", step_sizes},
	{"deregister and close", step_close},
};

/* ---- what steps say ---- */

int connection_fail(struct connection *c, const char *fmt, ...)
{
	va_list ap;
	if (c->failed)
		return -1;
	c->failed = true;
	va_start(ap, fmt);
	vsnprintf(c->why, sizeof(c->why), fmt, ap);
	va_end(ap);
	return -1;
}

static void say(const struct connection *c, const char *end, const char *fmt, va_list ap)
{
	char text[600];
	vsnprintf(text, sizeof(text), fmt, ap);
	printf("  %d  %s%s\n", c->step, text, end);
}

void connection_say(const struct connection *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say(c, "", fmt, ap);
	va_end(ap);
}

int connection_call(const struct connection *c, int rc, const char *fmt, ...)
{
	char end[64];
	va_list ap;
	snprintf(end, sizeof(end), ", rc %d (%s)", rc, ncclnet_result_name(rc));
	va_start(ap, fmt);
	say(c, end, fmt, ap);
	va_end(ap);
	return rc ? -1 : 0;
}

/* ---- deadlines ---- */

void connection_deadline(struct connection *c, unsigned timeout_ms, const char *doing)
{
	atomic_store(&c->doing, doing);
	atomic_store(&c->deadline_ns, rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS);
}

int connection_wait(struct connection *c, unsigned *idle)
{
	enum { SPINS = 200, NAP_US = 100 };
	if (++*idle <= SPINS && *idle % 64)
		return 0;
	if (talk_poll(c))
		return -1;
	if (rpwi_now_ns() >= atomic_load(&c->deadline_ns))
		return connection_fail(c, "%s: not over within %u s (--timeout); the peer %s is still there: what does it wait for?", atomic_load(&c->doing),
			c->o.timeout_ms / 1000, c->talk.text);
	if (*idle > SPINS)
		usleep(NAP_US);
	return 0;
}

/* A plugin's call that does not return is nobody's to interrupt. What polls has ended a second before. */
static void *watch(void *arg)
{
	struct connection *c = arg;
	for (;; usleep(100 * 1000)) {
		if (rpwi_now_ns() < atomic_load(&c->deadline_ns) || rpwi_now_ns() - atomic_load(&c->deadline_ns) < RPWI_NS_PER_S)
			continue;
		fprintf(stderr,
			NAME ": FAILED in step %d (%s): a call of the plugin has not returned. Is the other side alive, and can it be reached from here?\n",
			c->step, atomic_load(&c->doing));
		_exit(CONNECTION_FAILED);
	}
	return NULL;
}

/* ---- the run ---- */

static bool is_set(const char *name)
{
	const char *value = getenv(name);
	return value && *value && strcmp(value, "0") != 0;
}

static int run_steps(struct connection *c)
{
	const int n = RPWI_ARRAY_LEN(steps);
	printf("%s: plugin %s (\"%s\"), API v%d (NCCL %s)%s\n", connection_side(c), c->net->path, ncclnet_name(c->net), c->net->abi,
		ncclnet_releases(c->net->abi), c->o.abi ? ", as --abi says" : "");
	for (int i = 0; i < n; i++) {
		c->step = i + 1;
		printf("step %d of %d: %s\n", c->step, n, steps[i].what);
		connection_deadline(c, c->o.timeout_ms, steps[i].what);
		int rc = steps[i].run(c);
		printf("step %d: %s (rc %d)\n", c->step, rc ? "FAILED" : "ok", rc);
		if (rc)
			return rc;
	}
	return 0;
}

static int run(struct connection *c)
{
	char why[600];
	pthread_t watcher;
	int rc = ncclnet_load(c->o.plugin, c->o.abi, &c->net, why, sizeof(why));
	if (rc) {
		fprintf(stderr, NAME ": FAILED: %s\n", why);
		return CONNECTION_FAILED;
	}
	atomic_store(&c->deadline_ns, RPWI_NEVER);
	rc = pthread_create(&watcher, NULL, watch, c);
	if (rc)
		fprintf(stderr, NAME ": no thread can be made (%s): a call that does not return will not be ended\n", strerror(rc));
	else
		pthread_detach(watcher);
	rc = run_steps(c);
	talk_close(c);
	connection_deadline(c, c->o.timeout_ms, "giving back what is open");
	steps_give_back(c);
	fflush(stdout);
	if (!rc) {
		printf("PASSED: %s, API v%d, device %d, %s %s\n", ncclnet_name(c->net), c->net->abi, c->o.device,
			connection_is_server(c) ? "with client" : "with server", c->talk.text);
		fflush(stdout);
		return CONNECTION_PASSED;
	}
	fprintf(stderr, NAME ": FAILED in step %d (%s): %s\n", c->step, steps[c->step - 1].what, c->why);
	if (!c->net->trace)
		fprintf(stderr, NAME ": UCCL_TCPX_DEBUG=1 shows every call to the plugin%s\n",
			is_set("NCCL_DEBUG") ? "" : ", NCCL_DEBUG=INFO what the plugin says");
	return CONNECTION_FAILED;
}

/* ---- options ---- */

/* Beside the program, where it was built; in the folder of libraries, where both are installed; else wherever dlopen finds it. */
static const char *own_plugin(void)
{
	static const char *const places[] = {"", ROPEWAY_LIBDIR_FROM_BINDIR "/"};
	static char path[4096 + 256];
	char program[4096];
	ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);
	while (len > 0 && program[len - 1] != '/')
		len--;
	for (size_t i = 0; len > 0 && i < RPWI_ARRAY_LEN(places); i++) {
		snprintf(path, sizeof(path), "%.*s%s" OWN_PLUGIN, (int)len, program, places[i]);
		if (!access(path, R_OK))
			return path;
	}
	return OWN_PLUGIN;
}

static void print_help(void)
{
	printf("Usage: test_connection server [options]\n"
	       "       test_connection client SERVER [options]\n"
	       "\n"
	       "Tries a network plugin of NCCL between two processes, step by step: first the\n"
	       "server, then the client on the other machine (or the other way round: the client\n"
	       "tries until the server is there). Each step prints what was called, what came\n"
	       "back and its result. Both sides end with PASSED and status 0, or say what failed\n"
	       "and what to try, with status 1.\n"
	       "\n"
	       "  --plugin FILE      the plugin; without it " OWN_PLUGIN ",\n"
	       "                     ropeway's own\n"
	       "  --abi vN           the version of the plugin API, v4 to v12, the same on both\n"
	       "                     sides; without it the plugin's highest\n"
	       "  --device N         which of the plugin's devices; 0 without it\n"
	       "  --port N           the server's TCP port; 12345 without it. A server takes 0\n"
	       "                     for any free port, and prints it\n"
	       "  --bind ADDRESS     the server's address; all addresses without it\n"
	       "  --max-size SIZE    the largest message (K, M), up to 64M and 64M without it;\n"
	       "                     the smaller of both sides counts\n"
	       "  --timeout S        how long each step may take; 30 without it (a server waits\n"
	       "                     300 for its client)\n"
	       "  -h, --help         this text\n"
	       "\n"
	       "UCCL_TCPX_DEBUG=1 or ROPEWAY_LOG=debug shows every call to the plugin,\n"
	       "NCCL_DEBUG=INFO what the plugin has to say.\n"
	       "\n"
	       "On one machine:\n"
	       "  test_connection server --bind 127.0.0.1 &\n"
	       "  test_connection client 127.0.0.1\n");
}

static int usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int usage(const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, NAME ": ");
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nTry '" NAME " --help'.\n");
	return CONNECTION_USAGE;
}

/* A number from lo to hi with nothing behind it but, where `units` are allowed, K or M. */
static bool parse_number(const char *text, long lo, long hi, bool units, long *out)
{
	char *end;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || errno || v > hi)
		return false;
	if (units && *end && strchr("KkMm", *end))
		v *= strchr("Kk", *end++) ? 1024L : 1024L * 1024;
	*out = v;
	return !*end && v >= lo && v <= hi;
}

enum { OPT_PLUGIN = 256, OPT_ABI, OPT_DEVICE, OPT_PORT, OPT_BIND, OPT_SIZE, OPT_TIMEOUT };

/* 0 or an exit status. */
static int take_option(struct connection_options *o, int option)
{
	long v = 0;
	switch (option) {
	case OPT_PLUGIN:
		o->plugin = optarg;
		return 0;
	case OPT_BIND:
		o->bind = optarg;
		return 0;
	case OPT_ABI:
		if (!parse_number(optarg + (*optarg == 'v'), NCCL_NET_V_FIRST, NCCL_NET_V_LAST, false, &v))
			return usage("--abi %s: a version of the plugin API is expected, v%d to v%d", optarg, NCCL_NET_V_FIRST, NCCL_NET_V_LAST);
		o->abi = (int)v;
		return 0;
	case OPT_DEVICE:
		if (!parse_number(optarg, 0, 65535, false, &v))
			return usage("--device %s: the number of a device is expected, 0 for the first", optarg);
		o->device = (int)v;
		return 0;
	case OPT_PORT:
		if (!parse_number(optarg, 0, 65535, false, &v))
			return usage("--port %s: a TCP port is expected, up to 65535", optarg);
		o->port = (int)v;
		return 0;
	case OPT_SIZE:
		if (!parse_number(optarg, 0, CONNECTION_SIZE_MAX, true, &v))
			return usage("--max-size %s: a size up to 64M is expected", optarg);
		o->size_max = (size_t)v;
		return 0;
	case OPT_TIMEOUT:
		if (!parse_number(optarg, 1, 86400, false, &v))
			return usage("--timeout %s: seconds are expected, from 1 up", optarg);
		o->timeout_ms = o->wait_ms = (unsigned)v * 1000;
		return 0;
	default:
		fprintf(stderr, "Try '" NAME " --help'.\n");
		return CONNECTION_USAGE;
	}
}

static int parse(int argc, char **argv, struct connection_options *o)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {"plugin", required_argument, NULL, OPT_PLUGIN},
		{"abi", required_argument, NULL, OPT_ABI}, {"device", required_argument, NULL, OPT_DEVICE}, {"port", required_argument, NULL, OPT_PORT},
		{"bind", required_argument, NULL, OPT_BIND}, {"max-size", required_argument, NULL, OPT_SIZE}, {"timeout", required_argument, NULL, OPT_TIMEOUT},
		{NULL, 0, NULL, 0}};
	int option, rc;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'h') {
			print_help();
			exit(CONNECTION_PASSED);
		}
		rc = take_option(o, option);
		if (rc)
			return rc;
	}
	const char *side = optind < argc ? argv[optind] : "";
	bool server = !strcmp(side, "server");
	if (!server && strcmp(side, "client") != 0)
		return usage("server, or client and where the server is, is expected first%s%s", *side ? ", not " : "", side);
	if (argc - optind != (server ? 1 : 2))
		return usage(server ? "a server takes no address; --bind says where it listens" : "a client needs the address of its server, and nothing else");
	o->server = server ? NULL : argv[optind + 1];
	if (!server && *o->bind)
		return usage("--bind is the server's: where it listens");
	if (!server && !o->port)
		return usage("port 0 is a server's: it then prints which one it got, and the client wants that one");
	o->wait_ms = o->wait_ms ? o->wait_ms : (server ? CONNECTION_WAIT_S : CONNECTION_TIMEOUT_S) * 1000;
	o->plugin = o->plugin ? o->plugin : own_plugin();
	return 0;
}

int main(int argc, char **argv)
{
	static struct connection c;
	c.o = (struct connection_options){.port = CONNECTION_PORT, .timeout_ms = CONNECTION_TIMEOUT_S * 1000, .size_max = CONNECTION_SIZE_MAX, .bind = ""};
	setvbuf(stdout, NULL, _IOLBF, 0);
	int rc = parse(argc, argv, &c.o);
	return rc ? rc : run(&c);
}
