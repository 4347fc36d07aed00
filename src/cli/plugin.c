/* plugin.c - `ropeway plugin`: which of its two halves, and what both read of options. */
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

static const struct half {
	const char *name, *full_name;
	int (*run)(int argc, char **argv);
	int (*usage)(void);
} halves[] = {
	{"check", PLUGIN_NAME " check", rpwi_plugin_check, rpwi_plugin_check_usage},
	{"bench", PLUGIN_NAME " bench", rpwi_plugin_bench, rpwi_plugin_bench_usage},
};

int rpwi_cli_plugin(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;
	if (name && (!strcmp(name, "--help") || !strcmp(name, "-h"))) {
		for (size_t i = 0; i < RPWI_ARRAY_LEN(halves); i++) {
			if (i)
				putchar('\n');
			halves[i].usage();
		}
		return CLI_OK;
	}
	for (size_t i = 0; name && i < RPWI_ARRAY_LEN(halves); i++) {
		if (strcmp(name, halves[i].name) != 0)
			continue;
		argv[1] = (char *)halves[i].full_name;
		return halves[i].run(argc - 1, argv + 1);
	}
	if (name)
		rpwi_cli_fail(CLI_USAGE, PLUGIN_NAME, "unknown %s '%s': check or bench is expected", name[0] == '-' ? "option" : "command", name);
	else
		rpwi_cli_fail(CLI_USAGE, PLUGIN_NAME, "check or bench is expected, and a plugin");
	return rpwi_cli_usage(PLUGIN_NAME);
}
