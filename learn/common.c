/* SPDX-License-Identifier: BSD-3-Clause */
/* common.c - options, and the text of the messages. Nothing here knows RDMA.
 * 命令行选项，以及消息的内容。这里与 RDMA 无关。
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

#ifndef ROPEWAY_VERSION
#define ROPEWAY_VERSION "unversioned"
#endif
static const char *const names[] = {[ROLE_SERVER] = "rdma_server", [ROLE_CLIENT] = "rdma_client"};

const char *program_name(enum role role) { return names[role]; }

/* ---- options / 命令行选项 ---- */

static const struct option long_options[] = {
	{"size", required_argument, NULL, 's'},
	{"length", required_argument, NULL, 'l'},
	{"qps", required_argument, NULL, 'n'},
	{"mtu", required_argument, NULL, 'm'},
	{"bind", required_argument, NULL, 'b'},
	{"verbose", no_argument, NULL, 'v'},
	{"help", no_argument, NULL, 'h'},
	{"version", no_argument, NULL, 'V'},
	{NULL, 0, NULL, 0},
};

static void print_help(enum role role)
{
	if (role == ROLE_SERVER)
		printf(_("Usage: rdma_server [options] [device] [port] [gid_index]\n"
			 "Wait for one rdma_client, receive its messages by RDMA and answer each, "
			 "explaining every step.\n"));
	else
		printf(_("Usage: rdma_client [options] <server_ip> [device] [port] [gid_index]\n"
			 "Send messages by RDMA to an rdma_server and receive its answers, "
			 "explaining every step.\n"));
	printf(_("\n"
		 "  device            an RDMA device (ibv_devices lists them); - or nothing: the "
		 "first one\n"
		 "  port              TCP port on which both sides tell each other their addresses "
		 "(%d)\n"
		 "  gid_index         which of the device's GIDs to use (%d)\n"
		 "\n"
		 "  -s, --size N      bytes in each buffer, 1 to %d (%d)\n"
		 "  -n, --qps N       queue pairs, 1 to %d, the same on both sides (1)\n"
		 "  -m, --mtu N       256, 512, 1024, 2048 or 4096; the smaller of both sides is "
		 "used (the port's)\n"),
		TCP_PORT_DEFAULT, GID_INDEX_DEFAULT, BUFFER_BYTES_MAX, BUFFER_BYTES_DEFAULT,
		QPS_MAX);
	if (role == ROLE_SERVER)
		printf(_("  -b, --bind ADDR   listen for TCP on this address alone (all)\n"));
	else
		printf(_("  -l, --length N    bytes in each message, at most the size of a buffer "
			 "(all of it)\n"));
	printf("%s", _("  -v, --verbose     print the status of each completion\n"));
	printf(_("      --help        this text\n"
		 "      --version     the version\n"));
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

static int parse_mtu(const char *text, unsigned *out)
{
	if (parse_number(_("the MTU (-m)"), text, 256, 4096, out))
		return -1;
	if (*out & (*out - 1))
		return fail(_("an MTU of %u does not exist in RDMA: choose 256, 512, 1024, 2048 or "
			      "4096 (-m)"),
			*out);
	return 0;
}

/* The option that getopt stumbled over, as the user knows it. / getopt 无法处理的选项，
 * 按用户熟悉的写法。 */
static const char *option_text(char **argv)
{
	static char text[3] = "-";

	text[1] = (char)optopt;
	return optopt ? text : argv[optind - 1]; /* 0: an unknown long one / 0 表示未知的长选项 */
}

static int take_option(struct options *opt, int c, char **argv)
{
	switch (c) {
	case 's':
		return parse_number(
			_("the buffer size (-s)"), optarg, 1, BUFFER_BYTES_MAX, &opt->buffer_bytes);
	case 'l':
		return parse_number(_("the message length (-l)"), optarg, 1, BUFFER_BYTES_MAX,
			&opt->message_bytes);
	case 'n':
		return parse_number(
			_("the number of queue pairs (-n)"), optarg, 1, QPS_MAX, &opt->qps);
	case 'm':
		return parse_mtu(optarg, &opt->mtu_bytes);
	case 'b':
		opt->bind_address = optarg;
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

static int take_positionals(struct options *opt, int count, char **word)
{
	if (opt->role == ROLE_CLIENT) {
		if (!count)
			return fail(_("the server's address is missing: rdma_client <server_ip> "
				      "[device] [port] [gid_index]"));
		opt->server = *word++;
		count--;
	}
	if (count > 3)
		return fail(_("\"%s\" is one argument too many (--help shows the order)"), word[3]);
	if (count > 0 && *word[0] && strcmp(word[0], "-") != 0)
		opt->device = word[0];
	if (count > 1 && parse_number(_("the TCP port"), word[1], 1, 65535, &opt->tcp_port))
		return -1;
	if (count > 2 && parse_number(_("the GID index"), word[2], 0, 65535, &opt->gid_index))
		return -1;
	return 0;
}

int options_parse(struct options *opt, enum role role, int argc, char **argv)
{
	/* The leading ':' keeps getopt quiet: this program explains errors itself. / 开头的 ':' 让
	 * getopt 不自行报错。 */
	const char *letters = role == ROLE_SERVER ? ":s:n:m:b:vhV" : ":s:l:n:m:vhV";
	int c;

	*opt = (struct options){
		.role = role,
		.tcp_port = TCP_PORT_DEFAULT,
		.gid_index = GID_INDEX_DEFAULT,
		.buffer_bytes = BUFFER_BYTES_DEFAULT,
		.qps = 1,
	};
	while ((c = getopt_long(argc, argv, letters, long_options, NULL)) != -1) {
		if (c == 'h') {
			print_help(role);
			return 1;
		}
		if (c == 'V') {
			printf("%s (ropeway) %s\n", program_name(role), ROPEWAY_VERSION);
			return 1;
		}
		/* getopt_long knows the long names of both programs. / 长选项表由两个程序共用。 */
		if ((c == 'l' && role == ROLE_SERVER) || (c == 'b' && role == ROLE_CLIENT)) {
			optopt = c;
			c = '?';
		}
		if (take_option(opt, c, argv))
			return -1;
	}
	if (take_positionals(opt, argc - optind, argv + optind))
		return -1;
	if (role == ROLE_CLIENT && !opt->message_bytes)
		opt->message_bytes = opt->buffer_bytes;
	if (opt->message_bytes > opt->buffer_bytes)
		return fail(_("a message of %u bytes (-l) does not fit into a buffer of %u: make "
			      "the buffer larger with -s %u"),
			opt->message_bytes, opt->buffer_bytes, opt->message_bytes);
	return 0;
}

/* ---- messages / 消息 ---- */

/* splitmix64: one step of a well-mixed sequence. / 一个混合良好的伪随机序列。 */
static uint64_t mix(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void message_write(char *buffer, size_t bytes, enum role role, unsigned qp, unsigned qps,
	uint32_t qpn, uint32_t psn)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
	uint64_t state = (uint64_t)psn << 32 | qpn << 5 | qp << 1 | role;
	char greeting[80];
	int n;

	for (size_t i = 0; i < bytes;) {
		uint64_t bits = mix(&state);
		for (unsigned k = 0; k < 10 && i < bytes; k++, bits >>= 6)
			buffer[i++] = letters[bits & 63];
	}
	/* Not translated: both sides must write the same bytes. / 不翻译：
	 * 双方必须写出相同的字节。 */
	n = snprintf(greeting, sizeof(greeting), "Hello from %s, QP %u of %u! ", program_name(role),
		qp + 1, qps);
	if (n > 0 && (size_t)n < sizeof(greeting) && (size_t)n + 16 <= bytes)
		memcpy(buffer, greeting, (size_t)n);
}

int message_check(const char *got, const char *expected, size_t bytes, unsigned qp)
{
	int shown = bytes < 48 ? (int)bytes : 48;

	for (size_t i = 0; i < bytes; i++)
		if (got[i] != expected[i])
			return fail(_("QP %u: byte %zu of %zu arrived as 0x%02x instead of 0x%02x: "
				      "the network or the device changed it; "
				      "run it again with a capture (ROPEWAY_PCAP=file.pcapng)"),
				qp + 1, i, bytes, (unsigned char)got[i],
				(unsigned char)expected[i]);
	say(_("QP %u received %zu bytes, each one as it should be: \"%.*s%s\""), qp + 1, bytes,
		shown, expected, bytes > 48 ? "..." : "");
	return 0;
}
