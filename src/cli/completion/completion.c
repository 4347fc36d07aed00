/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.c - `ropeway completion bash|zsh`: what a shell offers after the command, made from
 * the tables of options, so that it cannot differ from them. The build runs it; so may a user. */
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <string.h>

static const struct cli_command command = {
	.name = "ropeway completion",
	.usage = "bash\nzsh",
	.about = "Prints what the shell needs to complete words after `ropeway`, made from the "
		 "tables of options. Packages and `make install` install it.",
	.operands_least = 1,
	.operands_most = 1,
	.missing = "the shell is expected: bash or zsh",
};

int rpwi_cli_completion(
	const struct cli_command *c, const struct cli_subcommand *of, int argc, char **argv)
{
	int status = cli_options_parse(&command, NULL, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (!strcmp(argv[0], "bash"))
		rpwi_completion_bash(c, of);
	else if (!strcmp(argv[0], "zsh"))
		rpwi_completion_zsh(c, of);
	else
		return rpwi_cli_usage(command.name, "unknown shell '%s': bash or zsh", argv[0]);
	return CLI_OK;
}
