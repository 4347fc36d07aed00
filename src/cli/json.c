/* SPDX-License-Identifier: BSD-3-Clause */
/* json.c - the object that a command with --json prints. */
#include "cli/cli.h"

#include <jansson.h>
#include <stdio.h>

int rpwi_cli_json(const char *command, struct json_t *root, size_t flags)
{
	int err = root ? json_dumpf(root, stdout, flags) : -1;

	putchar('\n');
	json_decref(root);
	return err ? rpwi_cli_fail(CLI_FAILED, command, "cannot write JSON") : CLI_OK;
}
