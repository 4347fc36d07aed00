/* plugin.c - `ropeway plugin`: which of its two halves, and `check`: options, and how the lines are shown. What is checked is ncclnet/conform.c's. */
#include "cli/plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "ncclnet/host.h"

#define PLUGIN_NAME "ropeway plugin"

int rpwi_plugin_number(const char *text, double least, double most, double *out)
{
	char *end;
	*out = strtod(text, &end);
	return end == text || *end || !(*out >= least && *out <= most) ? -EINVAL : 0;
}

int rpwi_plugin_abi(const char *text, int *abi)
{
	double n;
	if (rpwi_plugin_number(*text == 'v' ? text + 1 : text, NCCL_NET_V_FIRST, NCCL_NET_V_LAST, &n))
		return -EINVAL;
	*abi = (int)n;
	return 0;
}

static int usage(FILE *to)
{
	fputs("Usage: " PLUGIN_NAME " bench FILE.so [OPTIONS]   how fast it is, beside others if wanted\n\n"
	      "FILE.so is a network plugin of NCCL (libnccl-net-NAME.so); NAME alone is looked for as NCCL does. Each has a --help.\n",
		to);
	return to == stdout ? CLI_OK : CLI_USAGE;
}

int rpwi_cli_plugin(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	if (!name)
		return usage(stderr);
	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		return usage(stdout);
	if (!strcmp(name, "bench")) {
		argv[1] = (char *)PLUGIN_NAME " bench";
		return rpwi_plugin_bench(argc - 1, argv + 1);
	}
	rpwi_cli_fail(CLI_USAGE, PLUGIN_NAME, "unknown %s '%s': check or bench is expected", name[0] == '-' ? "option" : "command", name);
	return rpwi_cli_usage(PLUGIN_NAME);
}
