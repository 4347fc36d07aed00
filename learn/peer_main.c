/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_main.c - options of the four programs, and their main(). / 四个程序的命令行选项和
 * main()。 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

#ifndef ROPEWAY_VERSION
#define ROPEWAY_VERSION "unversioned"
#endif

static const struct option long_options[] = {
	{"wait", required_argument, NULL, 'w'},
	{"bind", required_argument, NULL, 'b'},
	{"count", required_argument, NULL, 'n'},
	{"silent", no_argument, NULL, 's'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

/* The letters that a program takes. The leading ':' keeps getopt quiet: errors are explained here.
 * / 各程序接受的选项字母。 */
static const char *letters(bool server, bool texts)
{
	return !server ? ":w:vhV" : texts ? ":w:b:n:svhV" : ":w:b:n:vhV";
}

static void print_help(bool server, bool texts)
{
	if (server && texts)
		printf("%s", _("Usage: rdma-send-recv-server [options] [port]\nSend a greeting to "
			       "each client, and print what it sends.\n"));
	else if (server)
		printf("%s", _("Usage: rdma-server [options] <write|read> [port]\n"
			       "With each client: write to the other's memory, or read from it, by "
			       "RDMA.\n"));
	else if (texts)
		printf("%s", _("Usage: rdma-send-recv-client [options] <server address> "
			       "[port]\nSend a text to the server, and print its greeting.\n"));
	else
		printf("%s", _("Usage: rdma-client [options] <write|read> <server address> [port]\n"
			       "Write to the server's memory, or read from it, by RDMA, while the "
			       "server does the same.\n"));
	printf(_("\n"
		 "  port              port of rdma_cm (%d)\n"
		 "\n"
		 "  -w, --wait N      seconds that any wait may take, 1 to %d (%d)\n"),
		PEER_PORT_DEFAULT, PEER_WAIT_S_MAX, PEER_WAIT_S_DEFAULT);
	if (server)
		printf("%s", _("  -b, --bind ADDR   listen on this address alone (all)\n"
			       "  -n, --count N     end after N clients (never); port 0: any that "
			       "is free\n"));
	if (server && texts)
		printf("%s", _("  -s, --silent      never send the greeting, to see what becomes "
			       "of a client that waits for it\n"));
	printf("%s", _("  -v, --verbose     print the status of each completion\n"));
	printf("%s", _("  -h, --help        this text\n"
		       "  -V, --version     the version\n"));
}

static int parse_number(
	const char *what, const char *text, unsigned min, unsigned max, unsigned *out)
{
	char *end;
	unsigned long value;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno || value < min || value > max)
		return fail(
			_("%s is \"%s\", but must be a number from %u to %u (--help says more)"),
			what, text, min, max);
	*out = (unsigned)value;
	return 0;
}

static const char *option_text(char **argv)
{
	static char text[3] = "-";

	text[1] = (char)optopt;
	return optopt ? text : argv[optind - 1]; /* 0: an unknown long one / 0 表示未知的长选项 */
}

static int take_option(struct peer_options *opt, int c, char **argv)
{
	switch (c) {
	case 'w':
		return parse_number(
			_("the longest wait (-w)"), optarg, 1, PEER_WAIT_S_MAX, &opt->wait_s);
	case 'b':
		opt->address = optarg;
		return 0;
	case 'n':
		return parse_number(
			_("the number of clients (-n)"), optarg, 1, 1000000, &opt->count);
	case 's':
		opt->silent = true;
		return 0;
	case 'v':
		opt->verbose = true;
		return 0;
	case ':':
		return fail(_("option %s needs a value after it (--help lists the options)"),
			option_text(argv));
	default:
		return fail(
			_("there is no option %s (--help lists the options)"), option_text(argv));
	}
}

static int take_mode(struct peer_options *opt, const char *word)
{
	if (word && !strcmp(word, "write"))
		opt->mode = MODE_WRITE;
	else if (word && !strcmp(word, "read"))
		opt->mode = MODE_READ;
	else
		return fail(_("the first argument must be \"write\" or \"read\", the same on both "
			      "sides (--help shows the order)"));
	return 0;
}

/* argv ends with NULL, so a word that is missing is NULL. / argv 以 NULL 结尾，缺少的参数即为
 * NULL。 */
static int take_words(struct peer_options *opt, char **word)
{
	if (opt->mode != MODE_TEXT && take_mode(opt, *word++))
		return -1;
	if (!opt->server) {
		if (!*word)
			return fail(_("the server's address is missing (--help shows the order)"));
		opt->address = *word++;
	}
	if (*word && parse_number(_("the port"), *word, opt->server ? 0 : 1, 65535, &opt->port))
		return -1;
	if (*word && word[1])
		return fail(_("\"%s\" is one argument too many (--help shows the order)"), word[1]);
	return 0;
}

/* Is this letter of long_options one that the program takes? The table is the same for all four. /
 * 长选项表由四个程序共用。 */
static bool is_taken(const char *taken, int c) { return strchr(taken, c) != NULL; }

static int parse(struct peer_options *opt, bool texts, int argc, char **argv)
{
	const char *taken = letters(opt->server, texts);
	int c;

	while ((c = getopt_long(argc, argv, taken, long_options, NULL)) != -1) {
		if (c == 'h') {
			print_help(opt->server, texts);
			return 1;
		}
		if (c == 'V') {
			printf("%s (ropeway) %s\n", opt->program, ROPEWAY_VERSION);
			return 1;
		}
		if (c != '?' && c != ':' && !is_taken(taken, c)) {
			optopt = c;
			c = '?';
		}
		if (take_option(opt, c, argv))
			return -1;
	}
	return take_words(opt, argv + optind);
}

int peer_main(const char *program, bool server, bool texts, int argc, char **argv)
{
	struct peer_options opt = {
		.program = program,
		.mode = texts ? MODE_TEXT : MODE_WRITE,
		.server = server,
		.port = PEER_PORT_DEFAULT,
		.wait_s = PEER_WAIT_S_DEFAULT,
	};
	struct loop loop;
	int rc;

	language_start(program);
	rc = parse(&opt, texts, argc, argv);
	if (rc)
		return rc < 0;
	rc = loop_start(&loop, &opt);
	if (!rc)
		rc = loop_run(&loop);
	loop_stop(&loop);
	return rc != 0;
}
