/* SPDX-License-Identifier: BSD-3-Clause */
/* hand.c - options of rdma_server and rdma_client, and the text of their messages. */
#include "hand.h"

enum { SERVER = 1 << ROLE_SERVER, CLIENT = 1 << ROLE_CLIENT, BOTH = SERVER | CLIENT };

static const struct program programs[] = {
	[ROLE_SERVER] = {SERVER, "rdma_server", "[device] [port] [gid_index]",
		"Wait for one rdma_client, receive its messages by RDMA and answer each, "
		"explaining every step."},
	[ROLE_CLIENT] = {CLIENT, "rdma_client", "<server_ip> [device] [port] [gid_index]",
		"Send messages by RDMA to an rdma_server and receive its answers, explaining every "
		"step."},
};

void hand_options(struct options *opt, enum role role, int argc, char **argv)
{
	const struct flag flags[] = {
		{CLIENT, 0, "server_ip", "the server's address", .text = &opt->address,
			.required = true},
		{BOTH, 0, "device",
			"an RDMA device (ibv_devices lists them); - or nothing: the first one",
			.text = &opt->device},
		{BOTH, 0, "port", "TCP port on which both sides tell each other their addresses",
			.number = &opt->tcp_port, .min = 1, .max = 65535},
		{BOTH, 0, "gid_index", "GID index: which of the device's GIDs to use",
			.number = &opt->gid_index, .max = 65535},
		{BOTH, 's', "size", "bytes in each buffer", .number = &opt->buffer_bytes, .min = 1,
			.max = BUFFER_BYTES_MAX},
		{CLIENT, 'l', "length", "bytes in each message (a whole buffer)",
			.number = &opt->message_bytes, .min = 1, .max = BUFFER_BYTES_MAX},
		{BOTH, 'n', "qps", "queue pairs, the same on both sides", .number = &opt->qps,
			.min = 1, .max = QPS_MAX},
		{BOTH, 'm', "mtu",
			"a power of 2; the smaller of both sides is used (what the port allows)",
			.number = &opt->mtu_bytes, .min = 256, .max = 4096},
		{SERVER, 'b', "bind", "listen on this address alone (all)", .text = &opt->address},
		{BOTH, 'v', "verbose", "print the status of each completion", .yes = &opt->verbose},
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
		die("an MTU of %u does not exist in RDMA: choose 256, 512, 1024, 2048 or 4096",
			opt->mtu_bytes);
	if (role == ROLE_CLIENT && !opt->message_bytes)
		opt->message_bytes = opt->buffer_bytes;
	if (opt->message_bytes > opt->buffer_bytes)
		die("a message of %u bytes does not fit into a buffer of %u: use -s %u",
			opt->message_bytes, opt->buffer_bytes, opt->message_bytes);
}

/* The message that `role` sends on a QP. It depends on the QPN and the PSN, both drawn anew for
 * each run, so neither an old message nor one of another QP can be taken for it. */
static void compose(const struct rdma *r, enum role role, unsigned qp, char *text)
{
	static const char letters[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
	const struct cm_con_data_t *sender = role == r->opt.role ? &r->local : &r->remote;
	uint64_t state = (uint64_t)sender->qp[qp].psn << 32 | sender->qp[qp].qpn << 1 | role;
	char greeting[80];
	size_t n;

	for (size_t i = 0; i < r->opt.message_bytes; i++)
		text[i] = letters[mix(&state) & 63];
	n = (size_t)snprintf(greeting, sizeof(greeting), "Hello from %s, QP %u of %u! ",
		programs[role].name, qp + 1, sender->qps);
	if (n + 16 <= r->opt.message_bytes)
		memcpy(text, greeting, n);
}

void message_write(struct rdma *r, unsigned qp) { compose(r, r->opt.role, qp, r->send_buffer[qp]); }

void message_check(const struct rdma *r, struct completion c)
{
	const char *got = r->receive_buffer[c.qp];
	int bytes = (int)r->opt.message_bytes, shown = bytes < 48 ? bytes : 48, i = 0;
	char *expected = malloc(bytes);

	if (!expected)
		err(1, "there is no memory for a second copy of a message: ask for less with -s");
	compose(r, !r->opt.role, c.qp, expected);
	while (i < bytes && i < c.bytes && got[i] == expected[i])
		i++;
	if (i < bytes || bytes != c.bytes)
		die("QP %u received %u bytes instead of %u, the first wrong one at %u: the network "
		    "or the device changed them; run it again with a capture "
		    "(ROPEWAY_PCAP=file.pcapng)",
			c.qp + 1, c.bytes, bytes, i);
	free(expected);
	printf("    QP %u received %u bytes, each one as it should be: \"%.*s%s\"\n", c.qp + 1,
		bytes, shown, got, shown < bytes ? "..." : "");
}
