/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the options of every command, as one table for each: what an option takes, within
 * which bounds, where its value goes, and what help says of it.
 *
 * options.c goes through the arguments by getopt_long; options_value.c reads a value of each kind,
 * and says what was expected; options_help.c makes the help. Every command has -h, --help and -V,
 * --version besides its table.
 */
#ifndef ROPEWAY_CLI_OPTIONS_H
#define ROPEWAY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_kind {     /* and the type of the target */
	CLI_FLAG,   /* bool: true; takes no value */
	CLI_UNSET,  /* bool or pointer: false or NULL; takes no value */
	CLI_NUMBER, /* int, unsigned, size_t or uint64_t: from least to most */
	CLI_REAL,   /* double: from least to most */
	CLI_SIZE,   /* size_t or uint64_t: bytes from least to most, with a suffix K, M, G or T */
	CLI_SIZES,  /* struct cli_sizes: a list of them, or ranges */
	CLI_TEXT,   /* const char *, or const char *[] where the option may be repeated */
	CLI_FILE,   /* const char *: a name, which is not empty; or const char *[] */
	/* const char *: HOST:PORT, [IPV6]:PORT or :PORT, as rpw_listener_create takes it */
	CLI_ADDRESS,
	CLI_CHOICE,  /* const char *: one of words, and that very pointer */
	CLI_CHOICES, /* bool[]: a list of words, or "all" */
};

/* What a shell offers for a value besides its words and files. */
enum cli_offer {
	CLI_OFFER_NONE,
	CLI_OFFER_DEVICE,   /* the name of one */
	CLI_OFFER_DEVICES,  /* a list of the words and of names of devices */
	CLI_OFFER_SETTINGS, /* a list of the words, each with "=" and a value */
};

enum { CLI_OPTIONS_MAX = 24, CLI_SIZES_MAX = 64 };

struct cli_sizes {
	uint64_t size[CLI_SIZES_MAX];
	unsigned n;
};

struct cli_option {
	const char *name; /* "size" for --size; NULL after the last one of a table */
	char letter;      /* or 0 */
	enum cli_kind kind;
	const char *value; /* what help calls its value: "FILE" */
	const char *help;  /* what it does, which help breaks into lines */
	/* its value where it is not given, as a user would write it. NULL: what the target has
	 * already */
	const char *preset;
	/* the value that it has where it is given without one; NULL: it needs one */
	const char *bare;
	const char *unit;         /* of a number: "seconds" */
	const char *prefix;       /* what a number may begin with: "v" */
	const char *const *words; /* up to a NULL; of a text: what completion offers */
	enum cli_offer offer;
	double least, most; /* most 0: no bound but the type's */
	size_t at, width;   /* where the value goes in the command's own struct; CLI_INTO */
};
#define CLI_STRING(number) CLI_STRING_OF(number)
#define CLI_STRING_OF(text) #text
#define CLI_INTO(type, member) .at = offsetof(type, member), .width = sizeof(((type *)0)->member)

/* What a shell offers where an operand is expected. */
enum cli_operand {
	CLI_OPERAND_NONE, /* there is none, or nobody can know */
	CLI_OPERAND_FILE,
	CLI_OPERAND_CAPTURE, /* files called *.pcapng and the like; others where there is none */
	CLI_OPERAND_FOLDER,
	CLI_OPERAND_WORDS, /* `operand_words` */
	CLI_OPERAND_HOST,
	CLI_OPERAND_PROGRAM, /* and then what that program takes */
};

struct cli_command {
	const char *name;  /* "ropeway demo" */
	const char *usage; /* what follows the name: "[OPTIONS] FILE...", one line for each form */
	const char *about; /* paragraphs */
	const struct cli_option *option; /* NULL: none of its own */
	void (*list)(FILE *to); /* prints what help has between `about` and the options, or NULL */
	const char *after;      /* paragraphs below the options, or NULL */
	unsigned operands_least, operands_most;
	enum cli_operand operand;
	const char *const *operand_words; /* up to a NULL */
	const char *missing;              /* said where there are fewer: "no program given" */
	bool ends_at_operand; /* what follows the first one belongs to another command */
};

struct cli_subcommand;
/* ---- completion/completion.c ---- */
/* Prints the completion of a command with subcommands for the shell argv[1], made from their
 * tables. An exit status. */
int rpwi_cli_completion(
	const struct cli_command *c, const struct cli_subcommand *of, int argc, char **argv);

/* ---- options.c ---- */
/* Where it is not NULL, a command does nothing but show its table, and what it has below it, and
 * ends with CLI_OK. One thread. */
struct cli_visitor {
	/* of: its subcommands, or NULL */
	void (*visit)(const struct cli_command *c, const struct cli_subcommand *of);
};
extern const struct cli_visitor *cli_options_visitor;
bool cli_options_takes_value(const struct cli_option *o);
enum { CLI_GO_ON = -1 };
/* Fills `into`, the command's own struct, and leaves the operands in argv. CLI_GO_ON; or the exit
 * status with which the command ends: help or a version was printed, or on stderr what is wrong. */
int cli_options_parse(const struct cli_command *c, void *into, int *argc, char ***argv);
/* As if --NAME=TEXT were given: for a preset that depends on other options. */
void cli_options_set(const struct cli_command *c, const char *name, const char *text, void *into);
/* What the kind of an option cannot know to be wrong: "invalid value 'x' for --name: why". Returns
 * CLI_USAGE. */
int cli_options_invalid(
	const struct cli_command *c, const char *name, const char *value, const char *why);

/* ---- options_value.c ---- */
/* 0, or -EINVAL and the target as it was. */
int cli_value_take(const struct cli_option *o, const char *text, void *into);
/* "a number from 1 to 64". Returns `out`. */
enum { CLI_EXPECTED_LEN = 160 };
const char *cli_value_expected(const struct cli_option *o, char out[CLI_EXPECTED_LEN]);

/* ---- options_help.c ---- */
/* What every command has. */
enum { CLI_HELP, CLI_VERSION, CLI_COMMON };
extern const struct cli_option cli_options_common[CLI_COMMON];
void cli_options_help(const struct cli_command *c, FILE *to);
enum { CLI_HELP_COLUMNS = 80 };
/* From column `at` on, where the cursor is already; further lines begin at `column`, and none is
 * longer than `columns`, unless a word is. */
void cli_help_text(FILE *to, const char *text, unsigned at, unsigned column, unsigned columns);
/* "  left   text", the text from a column on and broken at 80. */
void cli_help_row(FILE *to, const char *left, unsigned column, const char *text);

/* ---- commands.c ---- */
struct cli_subcommand {
	const char *name; /* NULL after the last one of a table */
	const char *full_name;
	int (*run)(int argc, char **argv);
	const char *summary; /* NULL: not for people */
};
/* `ropeway`, `ropeway plugin`: hands over to the one that the first operand names. An exit
 * status. */
int cli_commands_run(
	const struct cli_command *c, const struct cli_subcommand *of, int argc, char **argv);
void cli_commands_list(const struct cli_subcommand *of, FILE *to);

#endif
