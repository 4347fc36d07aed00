/* SPDX-License-Identifier: BSD-3-Clause */
/* hand.c - options of rdma_server and rdma_client, and the text of their messages. */
#include "hand.h"

enum { SERVER = 1 << ROLE_SERVER, CLIENT = 1 << ROLE_CLIENT, BOTH = SERVER | CLIENT };

static const struct program programs[] = {
	[ROLE_SERVER] = {SERVER, "rdma_server", N_("[device] [port] [gid_index]"),
		N_("Wait for one rdma_client, receive its messages by RDMA and answer each, "
		   "explaining every step.\n")},
	[ROLE_CLIENT] = {CLIENT, "rdma_client", N_("<server_ip> [device] [port] [gid_index]"),
		N_("Send messages by RDMA to an rdma_server and receive its answers, explaining "
		   "every step.\n")},
};

void hand_options(struct options *opt, enum role role, int argc, char **argv)
{
	const struct flag flags[] = {
		{CLIENT, 0, "server_ip", .help = N_("address of the server"), .text = &opt->address,
			.missing = N_("the server's address is missing")},
		{BOTH, 0, "device", .text = &opt->device,
			.help = N_("an RDMA device (ibv_devices lists them); - or nothing: the "
				   "first one")},
		{BOTH, 0, "port", .number = &opt->tcp_port, .min = 1, .max = 65535,
			.help = N_("TCP port on which both sides tell each other their addresses")},
		{BOTH, 0, "gid_index", .number = &opt->gid_index, .max = 65535,
			.help = N_("GID index: which of the device's GIDs to use")},
		{BOTH, 's', "size", "N", N_("bytes in each buffer"), .number = &opt->buffer_bytes,
			.min = 1, .max = BUFFER_BYTES_MAX},
		{CLIENT, 'l', "length", "N",
			N_("bytes in each message, at most the size of a buffer (all of it)"),
			.number = &opt->message_bytes, .min = 1, .max = BUFFER_BYTES_MAX},
		{BOTH, 'n', "qps", "N", N_("queue pairs, the same on both sides"),
			.number = &opt->qps, .min = 1, .max = QPS_MAX},
		{BOTH, 'm', "mtu", "N",
			N_("256, 512, 1024, 2048 or 4096; the smaller of both sides is used (the "
			   "port's)"),
			.number = &opt->mtu_bytes, .min = 256, .max = 4096},
		{SERVER, 'b', "bind", "ADDR", N_("listen on this address alone (all)"),
			.text = &opt->address},
		{BOTH, 'v', "verbose", .help = N_("print the status of each completion"),
			.yes = &opt->verbose},
		{0},
	};

	*opt = (struct options){
		.role = role,
		.tcp_port = 18515,
		/* on RoCE, usually the GID made from the IPv4 address */
		.gid_index = 1,
		.buffer_bytes = 4096,
		.qps = 1,
	};
	options_parse(&programs[role], flags, argc, argv);
	if (opt->device && (!*opt->device || !strcmp(opt->device, "-")))
		opt->device = NULL;
	if (opt->mtu_bytes & (opt->mtu_bytes - 1))
		die("an MTU of %u does not exist in RDMA: choose 256, 512, 1024, 2048 or 4096 (-m)",
			opt->mtu_bytes);
	if (role == ROLE_CLIENT && !opt->message_bytes)
		opt->message_bytes = opt->buffer_bytes;
	if (opt->message_bytes > opt->buffer_bytes)
		die("a message of %u bytes (-l) does not fit into a buffer of %u: make the buffer "
		    "larger with -s %u",
			opt->message_bytes, opt->buffer_bytes, opt->message_bytes);
}

void message_write(
	char *buffer, size_t bytes, enum role role, unsigned qp, const struct cm_con_data_t *sender)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
	uint64_t state =
		(uint64_t)sender->qp[qp].psn << 32 | sender->qp[qp].qpn << 5 | qp << 1 | role;
	uint64_t bits = 0;
	char greeting[80];
	size_t n;

	for (size_t i = 0; i < bytes; i++, bits >>= 6) {
		if (i % 10 == 0)
			bits = mix(&state);
		buffer[i] = letters[bits & 63];
	}
	/* Not translated: both sides must write the same bytes. */
	n = (size_t)snprintf(greeting, sizeof(greeting), "Hello from %s, QP %u of %u! ",
		programs[role].name, qp + 1, sender->qps);
	if (n + 16 <= bytes)
		memcpy(buffer, greeting, n);
}

void message_check(const char *got, struct completion c, enum role role, size_t bytes,
	const struct cm_con_data_t *sender)
{
	char *expected = malloc(bytes);

	if (!expected)
		die("there is no memory for %zu bytes: ask for less with -s", bytes);
	if (c.bytes != bytes)
		die("QP %u received %u bytes instead of %zu: the device is at fault, start both "
		    "again",
			c.qp + 1, c.bytes, bytes);
	message_write(expected, bytes, role, c.qp, sender);
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != expected[i])
			die("QP %u: byte %zu of %zu arrived as 0x%02x instead of 0x%02x: the "
			    "network or the device changed it; run it again with a capture "
			    "(ROPEWAY_PCAP=file.pcapng)",
				c.qp + 1, i, bytes, (unsigned char)got[i],
				(unsigned char)expected[i]);
	free(expected);
	say("QP %u received %zu bytes, each one as it should be: \"%.*s%s\"", c.qp + 1, bytes,
		bytes < 48 ? (int)bytes : 48, got, bytes > 48 ? "..." : "");
}
