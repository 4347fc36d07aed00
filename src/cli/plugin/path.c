/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - `ropeway plugin path`: where ropeway's own plugin is, for NCCL_NET_PLUGIN. */
#include "cli/plugin/plugin.h"

#include <stdio.h>

#include "cli/cli.h"
#include "cli/options.h"

#define PATH_NAME "ropeway plugin path"
#define OWN_PLUGIN "libnccl-net-ropeway.so"

static const struct cli_command command = {
	.name = PATH_NAME,
	.usage = "[OPTIONS]",
	.about = "Prints the path of " OWN_PLUGIN ", ropeway's network plugin for NCCL.",
	.after = "For NCCL: NCCL_NET_PLUGIN=$(ropeway plugin path) NCCL_NET=ropeway PROGRAM",
};

int rpwi_plugin_path(int argc, char **argv)
{
	static const char *const places[] = {"", "/" ROPEWAY_LIBDIR_FROM_BINDIR};
	char path[PATH_MAX];
	int status = cli_options_parse(&command, NULL, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (rpwi_cli_find(places, OWN_PLUGIN, path))
		return rpwi_cli_fail(CLI_FAILED, PATH_NAME,
			OWN_PLUGIN " is neither beside this command nor in its library folder; "
				   "install it (Debian: the package ropeway-nccl)");
	puts(path);
	return CLI_OK;
}
