/* SPDX-License-Identifier: BSD-3-Clause */
/* completion.h - `ropeway completion`: one file for each shell, and what they share. */
#ifndef ROPEWAY_CLI_COMPLETION_H
#define ROPEWAY_CLI_COMPLETION_H

#include "cli/options.h"

/* To standard output. */
void rpwi_completion_bash(const struct cli_command *c, const struct cli_subcommand *of);
void rpwi_completion_zsh(const struct cli_command *c, const struct cli_subcommand *of);
void rpwi_completion_fish(const struct cli_command *c, const struct cli_subcommand *of);

/* ---- visit.c ---- */
/* Calls fn for a command, and for each below it that people may know. */
void rpwi_completion_visit(const struct cli_command *c, const struct cli_subcommand *of,
	void (*fn)(const struct cli_command *c, const struct cli_subcommand *of));
/* Calls fn for each row of the table, and for what every command has. */
void rpwi_completion_options(const struct cli_command *c,
	void (*fn)(const struct cli_command *c, const struct cli_option *o));
/* Its value may be the name of a file. */
bool rpwi_completion_is_file(const struct cli_option *o);
/* With `between` between them. */
void rpwi_completion_words(const char *const *words, char between);
/* The beginning of what help says of an option, short enough for a list: how much of it. */
size_t rpwi_completion_about(const char *help);
/* May it be given more than once? */
bool rpwi_completion_repeats(const struct cli_option *o);
/* How files with packets are called, behind the last dot: up to a NULL. */
extern const char *const rpwi_completion_captures[];

#endif
