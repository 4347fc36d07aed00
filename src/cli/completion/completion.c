/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.c - `ropeway completion bash|zsh|fish`: what a shell offers after the command, made
 * from the tables of options, so that it cannot differ from them. The build runs it; so may a user.
 * `ropeway completion devices` is for these scripts: names of devices. */
#include "base/number.h"
#include "cli/completion/completion.h"

#include "cli/cli.h"

#include <string.h>

/* One for each name. */
static void (*const shells[])(const struct cli_command *c, const struct cli_subcommand *of) = {
	rpwi_completion_bash, rpwi_completion_zsh, rpwi_completion_fish};
static const char *const shell_names[] = {"bash", "zsh", "fish", NULL};

static const struct cli_command command = {
	.name = "ropeway completion",
	.usage = "bash\nzsh\nfish",
	.about = "Prints what the shell needs to complete words after `ropeway`, made from the "
		 "tables of options. Packages and `make install` install it.",
	.operands_least = 1,
	.operands_most = 1,
	.operand = CLI_OPERAND_WORDS,
	.operand_words = shell_names,
	.missing = "expected the shell: bash, zsh or fish",
};

int rpwi_cli_completion(
	const struct cli_command *c, const struct cli_subcommand *of, int argc, char **argv)
{
	int status = cli_options_parse(&command, NULL, &argc, &argv);

	if (status != CLI_GO_ON)
		return status;
	if (!strcmp(argv[0], "devices"))
		return rpwi_cli_device_names();
	for (size_t i = 0; shell_names[i]; i++)
		if (!strcmp(argv[0], shell_names[i])) {
			shells[i](c, of);
			return CLI_OK;
		}
	const char *near = rpwi_word_near(argv[0], shell_names);
	if (near)
		return rpwi_cli_usage(command.name,
			"unknown shell '%s': did you mean '%s'? Expected bash, zsh or fish",
			argv[0], near);
	return rpwi_cli_usage(
		command.name, "unknown shell '%s': expected bash, zsh or fish", argv[0]);
}
