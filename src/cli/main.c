/* SPDX-License-Identifier: BSD-3-Clause */
/* main.c - the `ropeway` command: finds the subcommand and hands over to it. */
#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

enum { HELP_WORDS_MAX = 2 };
static int run_help(int argc, char **argv);
static int run_version(int argc, char **argv);
static int run_completion(int argc, char **argv);

static const struct cli_subcommand subcommands[] = {
	{"check", "ropeway check", rpwi_cli_check,
		"show what `ropeway run --check` found, also as SARIF"},
	{"completion", "ropeway completion", run_completion,
		"print what bash, zsh or fish need to complete these commands"},
	{"demo", "ropeway demo", rpwi_cli_demo,
		"move a file between two processes by RDMA, and show each step"},
	{"devices", "ropeway devices", rpwi_cli_devices,
		"list RDMA devices, software and real, and which GID index to use"},
	{"doctor", "ropeway doctor", rpwi_cli_doctor,
		"diagnose this host or the path to a peer, with remedies"},
	{"explain", "ropeway explain", rpwi_cli_explain,
		"show captures as a ladder, and explain each packet and state"},
	{"perf", "ropeway perf", rpwi_cli_perf,
		"measure messages and remote memory, and compare with UCX if wanted"},
	{"plugin", "ropeway plugin", rpwi_cli_plugin,
		"check a network plugin of NCCL, or compare its speed with others"},
	{"recv", "ropeway recv", rpwi_cli_recv, "receive files and directories of `ropeway send`"},
	{"run", "ropeway run", rpwi_cli_run,
		"run an unmodified verbs program on the software device"},
	{"send", "ropeway send", rpwi_cli_send, "send files and directories to a `ropeway recv`"},
	{"top", "ropeway top", rpwi_cli_top,
		"show rates of devices, processes and QPs, also to Prometheus"},
	{"demo-peer", "ropeway demo-peer", rpwi_cli_demo_peer, NULL},
	{"explain-events", "ropeway explain-events", rpwi_cli_explain_events, NULL},
	{"help", "ropeway help", run_help, NULL},
	{"version", "ropeway version", run_version, NULL},
	{},
};

/* A full disk or a closed pipe must not look like success. */
static int finish(int status)
{
	if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
		return rpwi_cli_fail(CLI_FAILED, "ropeway", "cannot write to standard output: %m");
	return status;
}

static void list(FILE *to) { cli_commands_list(subcommands, to); }

static const struct cli_command command = {
	.name = "ropeway",
	.usage = "COMMAND [OPTIONS]\n[COMMAND] --help | --version",
	.about = "ropeway: a software RoCEv2 device. Verbs programs run on it unmodified, without "
		 "a NIC or root.",
	.list = list,
	.after = "`ropeway COMMAND --help` says more about one of them; so does ropeway(1).\nStart "
		 "here: `ropeway demo`; then `ropeway run -- ibv_rc_pingpong "
		 "-g 1`.",
	.ends_at_operand = true,
};

static int run_help(int argc, char **argv)
{
	if (argc < 2 || argv[1][0] == '-') {
		cli_options_help(&command, stdout);
		return CLI_OK;
	}
	/* `help plugin check` is `plugin check --help`. */
	char *words[HELP_WORDS_MAX + 3] = {(char *)command.name};
	int n = 1;
	for (int i = 1; i < argc && i <= HELP_WORDS_MAX; i++)
		words[n++] = argv[i];
	words[n++] = (char *)"--help";
	return cli_commands_run(&command, subcommands, n, words);
}

static int run_version(int argc, char **argv)
{
	puts("ropeway " ROPEWAY_VERSION);
	return CLI_OK;
}

static int run_completion(int argc, char **argv)
{
	return rpwi_cli_completion(&command, subcommands, argc, argv);
}

int main(int argc, char **argv)
{
	rpwi_cli_file_limit_is_error();
	return finish(cli_commands_run(&command, subcommands, argc, argv));
}
