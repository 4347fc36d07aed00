/* main.c - the `ropeway` command: finds the subcommand and hands over to it. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct subcommand {
	const char *name, *full_name;
	int (*run)(int argc, char **argv);
	const char *summary; /* NULL: not for people */
} subcommands[] = {
	{"demo", "ropeway demo", rpwi_cli_demo, "move a file between two processes by RDMA, and show each step"},
	{"devices", "ropeway devices", rpwi_cli_devices, "list RDMA devices, software and real, and which GID index to use"},
	{"doctor", "ropeway doctor", rpwi_cli_doctor, "diagnose this host or the path to a peer, with remedies"},
	{"explain", "ropeway explain", rpwi_cli_explain, "show captures as a ladder, and explain each packet and state"},
	{"perf", "ropeway perf", rpwi_cli_perf, "measure messages and remote memory, beside UCX if wanted"},
	{"plugin", "ropeway plugin", rpwi_cli_plugin, "check a network plugin of NCCL, or measure it beside others"},
	{"recv", "ropeway recv", rpwi_cli_recv, "receive files and directories of `ropeway send`"},
	{"run", "ropeway run", rpwi_cli_run, "run an unmodified verbs program on the software device"},
	{"send", "ropeway send", rpwi_cli_send, "send files and directories to a `ropeway recv`"},
	{"demo-peer", "ropeway demo-peer", rpwi_cli_demo_peer, NULL},
};

static void print_help(FILE *to)
{
	fputs("ropeway: a software RoCEv2 device. Verbs programs run on it unmodified, without\n"
	      "a NIC or root.\n\n"
	      "Usage: ropeway COMMAND [OPTIONS]\n"
	      "       ropeway [COMMAND] --help | --version\n\n"
	      "Commands:\n",
		to);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(subcommands); i++)
		if (subcommands[i].summary)
			fprintf(to, "  %-9s %s\n", subcommands[i].name, subcommands[i].summary);
	fputs("\n`ropeway COMMAND --help` says more about one of them; so does ropeway(1).\n"
	      "Start here:  ropeway demo\n"
	      "Then:        ropeway run -- ibv_rc_pingpong -g 1\n",
		to);
}

int rpwi_cli_fail(int status, const char *command, const char *fmt, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", command, rpwi_cli_printable(line, line, sizeof(line)));
	return status;
}

int rpwi_cli_usage(const char *command)
{
	fprintf(stderr, "Try '%s --help'.\n", command);
	return CLI_USAGE;
}

/* A full disk or a closed pipe must not look like success. */
static int finish(int status)
{
	if ((fflush(stdout) || ferror(stdout)) && status == CLI_OK)
		return rpwi_cli_fail(CLI_FAILED, "ropeway", "cannot write to standard output: %m");
	return status;
}

static bool is_for_people(const char *name)
{
	for (size_t i = 0; i < RPWI_ARRAY_LEN(subcommands); i++)
		if (!strcmp(name, subcommands[i].name))
			return subcommands[i].summary;
	return false;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : NULL;

	if (!name) {
		print_help(stderr);
		return CLI_USAGE;
	}
	if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
		print_help(stdout);
		return finish(CLI_OK);
	}
	if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version") ||
		(argc == 3 && !strcmp(argv[2], "--version") && is_for_people(name))) {
		puts("ropeway " ROPEWAY_VERSION);
		return finish(CLI_OK);
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(subcommands); i++) {
		if (strcmp(name, subcommands[i].name) != 0)
			continue;
		argv[1] = (char *)subcommands[i].full_name;
		return finish(subcommands[i].run(argc - 1, argv + 1));
	}
	fprintf(stderr, "ropeway: unknown %s '%s'\n", name[0] == '-' ? "option" : "command", name);
	return rpwi_cli_usage("ropeway");
}
