/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.c - `ropeway plugin`: which of its parts. */
#include "cli/plugin/plugin.h"

#include "cli/cli.h"
#include "cli/options.h"

static const struct cli_subcommand parts[] = {
	{"check", "ropeway plugin check", rpwi_plugin_check,
		"check what NCCL expects of a plugin, property by property"},
	{"bench", "ropeway plugin bench", rpwi_plugin_bench,
		"measure a plugin, alone or in turn with others"},
	{"trace", "ropeway plugin trace", rpwi_plugin_trace,
		"trace and check a plugin inside NCCL, and NCCL's use of it"},
	{"path", "ropeway plugin path", rpwi_plugin_path,
		"print where ropeway's own plugin is, for NCCL_NET_PLUGIN"},
	{},
};

static void list(FILE *to) { cli_commands_list(parts, to); }

static const struct cli_command command = {
	.name = "ropeway plugin",
	.usage = "check FILE.so [OPTIONS]\nbench FILE.so [OPTIONS]\ntrace FILE.so [OPTIONS]\npath",
	.about = "Tries a network plugin of NCCL between two processes of this host, or says where "
		 "ropeway's own is.",
	.list = list,
	.after = "`ropeway plugin check --help` and `ropeway plugin bench --help` say more.",
	.ends_at_operand = true,
};

int rpwi_cli_plugin(int argc, char **argv) { return cli_commands_run(&command, parts, argc, argv); }
