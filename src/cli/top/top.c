/* SPDX-License-Identifier: BSD-3-Clause */
/* top.c - `ropeway top`: what devices, processes and QPs do now; see top.h. */
#include "cli/top/top.h"

#include "cli/options.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const struct cli_option option[] = {
	{"view", 'v', CLI_CHOICE, "WHAT",
		"what a row is: device, process or qp. On the screen, keys change it. "
		"A page for Prometheus has all down to it (default: process)",
		.words = top_level_name, CLI_INTO(struct top_options, view)},
	{"once", 0, CLI_FLAG, NULL,
		"look twice, print the rates between, and end; so does any output that is no "
		"terminal. With --file, write one page and end",
		CLI_INTO(struct top_options, once)},
	{"json", 'j', CLI_FLAG, NULL,
		"like --once, as an object: `seconds` between the two looks, and `devices`, "
		"`processes` and `qps`, each with what it has counted and its rates",
		CLI_INTO(struct top_options, json)},
	{"interval", 'n', CLI_REAL, "SECONDS",
		"the time between two looks (default: 1; with --file 15)", .unit = "seconds",
		.least = 0.1, .most = 3600, CLI_INTO(struct top_options, interval_s)},
	{"listen", 'l', CLI_ADDRESS, "ADDRESS:PORT",
		"answer GET /metrics by HTTP with a page for Prometheus, until a signal; port 0 is "
		"any that is free. Only a loopback address",
		CLI_INTO(struct top_options, listen)},
	{"allow-remote", 0, CLI_FLAG, NULL,
		"with --listen: any address. Whoever reaches the port reads names and numbers of "
		"your processes; there is no key",
		CLI_INTO(struct top_options, allow_remote)},
	{"file", 'f', CLI_FILE, "PATH",
		"write that page into a file, again and again, for node_exporter's textfile "
		"collector, which wants a name that ends with .prom. It is replaced whole, and "
		"removed at the end",
		CLI_INTO(struct top_options, file)},
	{},
};
static const struct cli_command command = {
	.name = TOP_NAME,
	.usage = "[--view WHAT] [--interval SECONDS]\n"
		 "[--once | --json] [--view WHAT] [--interval SECONDS]\n"
		 "--listen 127.0.0.1:PORT | --file PATH.prom [--view WHAT]",
	.about = "Shows what software devices, your processes on them and their QPs do now: "
		 "work requests, receives and bytes a second, retries, RNR NAKs, errors. The "
		 "processes notice nothing.",
	.option = option,
	.after = "Keys: 1 devices, 2 processes, 3 QPs; sort by m messages, b bytes, t retries, n "
		 "RNR NAKs, e errors, i name; r reverses; space pauses; + and - change the "
		 "interval; ? help; q quit.",
};

static int print(const struct top_options *o, enum top_level level)
{
	struct top_look first = {0}, second = {0};
	const struct timespec every = {.tv_sec = (time_t)o->interval_s,
		.tv_nsec = (long)((o->interval_s - (double)(time_t)o->interval_s) * RPWI_NS_PER_S)};
	rpwi_counters_hold();
	int rc = top_look(&first, NULL);
	if (!rc) {
		nanosleep(&every, NULL);
		rc = top_look(&second, &first);
	}
	int status = CLI_FAILED;
	if (rc)
		rpwi_cli_fail(CLI_FAILED, TOP_NAME, "cannot read the counters: %s", strerror(-rc));
	else
		status = o->json ? top_print_json(&second) : top_print(&second, level);
	top_free(&first);
	top_free(&second);
	return status;
}

static bool is_terminal(void)
{
	const char *term = getenv("TERM");
	return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term &&
	       strcmp(term, "dumb") != 0;
}

static int check(const struct top_options *o)
{
	if (o->listen && o->file)
		return rpwi_cli_usage(TOP_NAME, "--listen and --file exclude each other");
	if ((o->listen || o->file) && o->json)
		return rpwi_cli_usage(TOP_NAME, "--json excludes --listen and --file");
	if (o->listen && o->once)
		return rpwi_cli_usage(TOP_NAME, "--once excludes --listen");
	if (o->allow_remote && !o->listen)
		return rpwi_cli_usage(TOP_NAME, "--allow-remote is for --listen");
	return CLI_OK;
}

int rpwi_cli_top(int argc, char **argv)
{
	struct top_options o = {.view = top_level_name[TOP_PROCESSES]};
	enum top_level level = TOP_DEVICES;
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	status = check(&o);
	if (status)
		return status;
	while (o.view != top_level_name[level])
		level++;
	if (!(o.interval_s > 0))
		o.interval_s = o.file ? 15 : 1;
	if (o.listen)
		return top_listen(&o, level);
	if (o.file)
		return top_file(&o, level);
	if (o.once || o.json || !is_terminal())
		return print(&o, level);
	return top_screen(level, o.interval_s);
}
