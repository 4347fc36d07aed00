/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.c - `ropeway plugin trace`: the environment under which NCCL loads the tracer in the place
 * of a plugin, or a program run in it. The tracer itself is ncclnet/trace. */
#include "cli/plugin/plugin.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/options.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "ncclnet/host/rma.h"

#define TRACE_NAME "ropeway plugin trace"
#define TRACER "libnccl-net-ropeway-trace.so"

struct options {
	const char *check; /* ROPEWAY_CHECK, or NULL */
	bool quiet;
};
static const struct cli_option option[] = {
	{"check", 0, CLI_TEXT, "SPEC",
		"check the caller and the plugin: rules 501 to 510 of docs/check.md; SPEC as in "
		"`ropeway run --check`",
		.bare = "1", CLI_INTO(struct options, check)},
	{"quiet", 'q', CLI_FLAG, NULL, "no line for each call", CLI_INTO(struct options, quiet)},
	{},
};
static const struct cli_command command = {
	.name = TRACE_NAME,
	.usage = "[OPTIONS] FILE.so [--] [PROGRAM [ARGUMENTS...]]",
	.about = "Puts a library in front of the plugin FILE.so that passes every call on, of the "
		 "network API's versions 5 to 12 and of one-sided operations (RMA v13 to v16, GIN "
		 "v11 to v13), and prints a line for each. With --check it also "
		 "checks both sides: that one version is used throughout, that handles arrive as "
		 "they were given, that registrations are used with the comm they were made for. "
		 "Runs PROGRAM so; without one, prints the environment, for `env $(...)`.",
	.option = option,
	.after =
		"The exit status is PROGRAM's. For exit status 86 on findings: ropeway run --check "
		"-- ropeway plugin trace --check FILE.so PROGRAM.",
	.operands_least = 1,
	.operands_most = 0,
	.operand = CLI_OPERAND_FILE,
	.missing = "expected the plugin to trace, as in ./libnccl-net-ropeway.so",
	.ends_at_operand = true,
};

struct setting {
	const char *name, *value;
};

static int settings(const struct options *o, const char *plugin, char tracer[PATH_MAX],
	char own[PATH_MAX], struct setting out[4], unsigned *n)
{
	static const char *const places[] = {"", "/" ROPEWAY_LIBDIR_FROM_BINDIR};
	char why[400], other[400];
	struct ncclnet *net;
	struct ncclnet_rma one_sided;
	if (rpwi_cli_find(places, TRACER, tracer))
		return rpwi_cli_fail(CLI_FAILED, TRACE_NAME,
			TRACER " is neither beside this command nor in its library folder; "
			       "install it (Debian: the package ropeway-nccl)");
	/* now, and not in somebody else's program */
	bool is_net = !ncclnet_load(plugin, 0, &net, why, sizeof(why));
	if (!is_net && ncclnet_rma_load(plugin, NULL, &one_sided, other, sizeof(other)))
		return rpwi_cli_fail(CLI_FAILED, TRACE_NAME, "%s", why);
	if (is_net)
		ncclnet_unload(net);
	if (!realpath(plugin, own))
		snprintf(own, PATH_MAX, "%s", plugin); /* dlopen finds it */
	out[(*n)++] = (struct setting){is_net ? "NCCL_NET_PLUGIN" : "NCCL_RMA_PLUGIN", tracer};
	out[(*n)++] = (struct setting){"ROPEWAY_TRACE_PLUGIN", own};
	if (!o->quiet)
		out[(*n)++] = (struct setting){"ROPEWAY_TRACE", "1"};
	/* within `ropeway run --check` there is a report already */
	if (o->check && !getenv("ROPEWAY_CHECK"))
		out[(*n)++] = (struct setting){"ROPEWAY_CHECK", o->check};
	return CLI_OK;
}

int rpwi_plugin_trace(int argc, char **argv)
{
	struct options o = {0};
	char tracer[PATH_MAX], own[PATH_MAX], why[RPWI_WHY_LEN];
	struct setting set[4];
	struct rpwi_check_options read;
	unsigned n = 0;
	int status = cli_options_parse(&command, &o, &argc, &argv);
	if (status != CLI_GO_ON)
		return status;
	if (o.check && rpwi_check_options_read(o.check, &read, why, sizeof(why)))
		return cli_options_invalid(&command, "check", o.check, why);
	status = settings(&o, argv[0], tracer, own, set, &n);
	if (status)
		return status;
	char **program = argv + 1 + (argv[1] && !strcmp(argv[1], "--"));
	for (unsigned i = 0; i < n; i++)
		if (*program)
			setenv(set[i].name, set[i].value, 1);
		else
			printf("%s=%s\n", set[i].name, set[i].value);
	if (!*program)
		return CLI_OK;
	execvp(*program, program);
	int err = errno;
	return rpwi_cli_fail(err == ENOENT ? 127 : 126, TRACE_NAME, "cannot run %s: %s", *program,
		strerror(err));
}
