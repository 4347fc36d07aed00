/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.c - `ropeway plugin`: which of its two halves. */
#include "cli/plugin/plugin.h"

#include "cli/cli.h"
#include "cli/options.h"

static const struct cli_subcommand halves[] = {
	{"check", "ropeway plugin check", rpwi_plugin_check,
		"check what NCCL expects of a plugin, property by property"},
	{"bench", "ropeway plugin bench", rpwi_plugin_bench,
		"measure a plugin, alone or in turn with others"},
	{},
};

static void list(FILE *to) { cli_commands_list(halves, to); }

static const struct cli_command command = {
	.name = "ropeway plugin",
	.usage = "check FILE.so [OPTIONS]\nbench FILE.so [OPTIONS]",
	.about = "Tries a network plugin of NCCL between two processes of this host.",
	.list = list,
	.after = "`ropeway plugin check --help` and `ropeway plugin bench --help` say more.",
	.ends_at_operand = true,
};

int rpwi_cli_plugin(int argc, char **argv)
{
	return cli_commands_run(&command, halves, argc, argv);
}
