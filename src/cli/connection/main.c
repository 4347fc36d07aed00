/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - `test_connection server|client`: options, the steps one after another, deadlines. */
#include "cli/connection/connection.h"

#include "cli/cli.h"
#include "cli/options.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NAME "test_connection"
#define OWN_PLUGIN "libnccl-net-ropeway.so"

static const struct step {
	const char *what;
	int (*run)(struct connection *c);
} message_steps[] =
	{
		{"initialize and count the devices", step_initialize},
		{"listen", step_listen},
		{"find the other side and exchange handles", step_exchange},
		{"connect and accept", step_connect},
		{"register memory", step_register},
		{"\"Hello from TCPX client!\", and an answer", step_hello},
		{"messages of all sizes, both ways", step_sizes},
		{"deregister and close", step_close},
		{NULL, NULL},
},
  one_sided_steps[] = {
	  {"initialize and count the devices", one_sided_initialize},
	  {"listen", one_sided_listen},
	  {"find the other side and exchange handles", step_exchange},
	  {"connect both ranks", one_sided_connect},
	  {"register memory, both ranks", one_sided_register},
	  {"a put with a signal, both ways", one_sided_put},
	  {"deregister and close", one_sided_close},
	  {NULL, NULL},
};

static const struct step *steps_of(const struct connection *c)
{
	return c->o.table ? one_sided_steps : message_steps;
}

/* ---- deadlines ---- */

/* A plugin's call that does not return is nobody's to interrupt. What polls has ended a second
 * before. */
static void *watch(void *arg)
{
	struct connection *c = arg;
	for (;; usleep(100 * 1000)) {
		if (rpwi_now_ns() < atomic_load(&c->deadline_ns) ||
			rpwi_now_ns() - atomic_load(&c->deadline_ns) < RPWI_NS_PER_S)
			continue;
		fprintf(stderr,
			NAME ": FAILED in step %d (%s): a call of the plugin has not returned. Is "
			     "the other side alive, and can it be reached from here?\n",
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
	const struct step *steps = steps_of(c);
	int n = 0;
	while (steps[n].what)
		n++;
	if (c->o.table)
		printf("%s: plugin %s (\"%s\"), %s\n", connection_side(c), c->o.plugin, c->own.name,
			connection_table(c->own.abi));
	else
		printf("%s: plugin %s (\"%s\"), API v%d (NCCL %s)%s\n", connection_side(c),
			c->side.n->path, ncclnet_name(c->side.n), c->side.n->abi,
			ncclnet_releases(c->side.n->abi), c->o.abi ? ", as --abi says" : "");
	for (int i = 0; i < n; i++) {
		c->step = i + 1;
		printf("step %d of %d: %s\n", c->step, n, steps[i].what);
		rpwi_cli_when_stopped(NAME, "stopped in step %d of %d%s", c->step, n,
			i ? "; those above are done" : "");
		connection_deadline(c, c->o.timeout_ms, steps[i].what);
		int rc = steps[i].run(c);
		printf("step %d: %s (rc %d)\n", c->step, rc ? "FAILED" : "ok", rc);
		if (rc)
			return rc;
	}
	return 0;
}

static int load(struct connection *c)
{
	char why[600];
	if (c->o.table) {
		if (!one_sided_load(c))
			return 0;
		fprintf(stderr, NAME ": FAILED: %s\n", c->side.text);
		return -1;
	}
	if (ncclnet_load(c->o.plugin, c->o.abi, &c->side.n, why, sizeof(why))) {
		fprintf(stderr, NAME ": FAILED: %s\n", why);
		return -1;
	}
	c->own = (struct connection_own){.name = ncclnet_name(c->side.n),
		.abi = c->side.n->abi,
		.exported = c->side.n->exported,
		.handle_bytes = c->side.n->handle_bytes,
		.handle = c->in.link.handle};
	return 0;
}

static void passed(const struct connection *c)
{
	char api[24];
	snprintf(api, sizeof(api), "API v%d", c->own.abi);
	printf("PASSED: %s, %s, device %d, %s %s\n", c->own.name,
		c->o.table ? connection_table(c->own.abi) : api, c->o.device,
		connection_is_server(c) ? "with client" : "with server", c->talk.text);
	fflush(stdout);
}

static int run(struct connection *c)
{
	pthread_t watcher;
	int rc = load(c);
	if (rc)
		return CONNECTION_FAILED;
	atomic_store(&c->deadline_ns, RPWI_NEVER);
	rc = pthread_create(&watcher, NULL, watch, c);
	if (rc)
		fprintf(stderr,
			NAME ": no thread can be made (%s): a call that does not return will not "
			     "be ended\n",
			strerror(rc));
	else
		pthread_detach(watcher);
	rc = run_steps(c);
	rpwi_cli_stop_is_late();
	talk_close(c);
	connection_deadline(c, c->o.timeout_ms, "releasing what is open");
	if (c->o.table)
		one_sided_give_back(c);
	else
		steps_give_back(c);
	fflush(stdout);
	if (!rc) {
		passed(c);
		return CONNECTION_PASSED;
	}
	fprintf(stderr, NAME ": FAILED in step %d (%s): %s\n", c->step,
		steps_of(c)[c->step - 1].what, c->why);
	if (!c->o.table && !c->side.n->trace)
		fprintf(stderr, NAME ": UCCL_TCPX_DEBUG=1 shows every call to the plugin%s\n",
			is_set("NCCL_DEBUG") ? "" : ", NCCL_DEBUG=INFO what the plugin says");
	return CONNECTION_FAILED;
}

/* ---- options ---- */

/* Beside the program, in the folder of libraries, or wherever dlopen finds it. */
static const char *own_plugin(char path[PATH_MAX])
{
	static const char *const places[] = {"", "/" ROPEWAY_LIBDIR_FROM_LIBEXEC};
	return rpwi_cli_find(places, OWN_PLUGIN, path) ? OWN_PLUGIN : path;
}

struct options {
	struct connection_options o;
	unsigned timeout_s; /* 0: not given */
};
static const struct cli_option option[] = {
	{"plugin", 0, CLI_FILE, "FILE", "the plugin (default: " OWN_PLUGIN ", ropeway's own)",
		CLI_INTO(struct options, o.plugin)},
	{"abi", 0, CLI_NUMBER, "vN",
		"version of the plugin API, the same on both sides (default: the plugin's highest)",
		.prefix = "v", .least = NCCL_NET_V_FIRST, .most = NCCL_NET_V_LAST,
		CLI_INTO(struct options, o.abi)},
	{"rma", 0, CLI_TEXT, "TABLE",
		"test one-sided operations instead: a put with a signal; the table that the newest "
		"NCCL uses, or TABLE: v13 to v16, gin11 to gin13, the same on both sides",
		.bare = "", CLI_INTO(struct options, o.table)},
	{"device", 0, CLI_NUMBER, "N", "which of the plugin's devices", .most = UINT16_MAX,
		.preset = "0", CLI_INTO(struct options, o.device)},
	{"port", 0, CLI_NUMBER, "N",
		"the server's TCP port; a server takes 0 for any free port, and prints it",
		.most = UINT16_MAX, .preset = "12345", CLI_INTO(struct options, o.port)},
	{"bind", 0, CLI_TEXT, "ADDRESS", "the server's address (default: all addresses)",
		CLI_INTO(struct options, o.bind)},
	{"max-size", 0, CLI_SIZE, "SIZE",
		"the largest message, up to 64M; the smaller of both sides counts",
		.most = CONNECTION_SIZE_MAX, .preset = "64M", CLI_INTO(struct options, o.size_max)},
	{"timeout", 0, CLI_NUMBER, "S",
		"seconds that each step may take (default 30; a server waits 300 for its client)",
		.unit = "seconds", .least = 1, .most = 86400, CLI_INTO(struct options, timeout_s)},
	{},
};
static const struct cli_command command = {
	.name = NAME,
	.usage = "server [OPTIONS]\nclient SERVER [OPTIONS]",
	.about =
		"Tests a network plugin for NCCL between two processes, step by step. Start the "
		"server, then the client on the other machine (or the other way "
		"round: the client retries until the server is there). Each step prints its calls, "
		"what they returned, and the result. Both sides end with "
		"PASSED and status 0, or say what failed and what to try, with status 1.",
	.option = option,
	.after = "UCCL_TCPX_DEBUG=1 or ROPEWAY_LOG=debug shows every call to the plugin, "
		 "NCCL_DEBUG=INFO the plugin's own messages.\n\nOn one machine:\n  "
		 "test_connection server --bind 127.0.0.1 &\n  test_connection client 127.0.0.1",
	.operands_least = 1,
	.operands_most = 2,
	.missing = "expected 'server', or 'client' and the server's address",
};

/* What one argument cannot know of another. */
static int check(const struct connection_options *o, int argc, char **argv)
{
	bool server = !strcmp(argv[0], "server");
	if (!server && strcmp(argv[0], "client") != 0)
		return rpwi_cli_usage(NAME,
			"expected 'server', or 'client' and the server's address, not '%s'",
			argv[0]);
	if (server && argc != 1)
		return rpwi_cli_usage(
			NAME, "a server takes no address; --bind says where it listens");
	if (!server && argc != 2)
		return rpwi_cli_usage(NAME, "a client needs the address of its server");
	if (!server && *o->bind)
		return rpwi_cli_usage(NAME, "--bind is the server's: where it listens");
	if (o->table && o->abi)
		return rpwi_cli_usage(
			NAME, "--abi is of network plugins; --rma=v16 sets the table");
	if (o->table && !rma_table(o->table))
		return cli_options_invalid(
			&command, "rma", o->table, "expected v13 to v16, or gin11 to gin13");
	if (!server && !o->port)
		return rpwi_cli_usage(NAME, "port 0 is for a server: it prints the port that it "
					    "got, and the client needs that one");
	return CLI_GO_ON;
}

int main(int argc, char **argv)
{
	struct connection c = {0};
	char path[PATH_MAX];
	struct options o = {.o.bind = ""};
	setvbuf(stdout, NULL, _IOLBF, 0);
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status == CLI_GO_ON)
		status = check(&o.o, argc, argv);
	if (status != CLI_GO_ON)
		return status;
	c.o = o.o;
	c.o.table = o.o.table ? rma_table(o.o.table) : NULL;
	c.side = (struct side){.idle = connection_wait, .watch = &c.watch, .device = c.o.device};
	c.o.server = argc > 1 ? argv[1] : NULL;
	c.o.timeout_ms = 1000 * (o.timeout_s ? o.timeout_s : CONNECTION_TIMEOUT_S);
	c.o.wait_ms = !o.timeout_s && !c.o.server ? 1000 * CONNECTION_WAIT_S : c.o.timeout_ms;
	c.o.plugin = c.o.plugin ? c.o.plugin : own_plugin(path);
	return run(&c);
}
