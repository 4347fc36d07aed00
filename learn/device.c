/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - step 1: which device, its port and its GID; and errors of the choice. */
#include <arpa/inet.h>

#include "hand.h"

const char *gid_text(const union ibv_gid *gid, char text[GID_CHARS])
{
	return inet_ntop(AF_INET6, gid->raw, text, GID_CHARS);
}

/* IBV_MTU_256 is 1, IBV_MTU_4096 is 5. */
unsigned mtu_bytes(enum ibv_mtu mtu) { return 128u << mtu; }
enum ibv_mtu mtu_from_bytes(unsigned bytes) { return (enum ibv_mtu)(ffs((int)bytes) - 8); }

void must(bool done, const char *call)
{
	if (!done)
		die("%s failed (%s): ask for less with -s and -n, raise the limit of locked memory "
		    "(ulimit -l), or name another device",
			call, strerror(errno));
}

static _Noreturn void device_missing(const char *name, struct ibv_device **list)
{
	fprintf(stderr, "%s: there is no device \"%s\", only:", program_invocation_short_name,
		name);
	for (; *list; list++)
		fprintf(stderr, " %s", ibv_get_device_name(*list));
	fprintf(stderr, " (name one of them, or - for the first; it comes before the port)\n");
	exit(EXIT_FAILURE);
}

static void open_device(struct rdma *r)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **d = list;

	if (!list || !*list)
		die("this machine has no RDMA device: start this program with \"ropeway run -- "
		    "%s\", which brings one in software, or as root make the kernel's (modprobe "
		    "rdma_rxe; rdma link add rxe0 type rxe netdev eth0)",
			program_invocation_name);
	while (r->opt.device && *d && strcmp(r->opt.device, ibv_get_device_name(*d)) != 0)
		d++;
	if (!*d)
		device_missing(r->opt.device, list);
	r->opt.device = ibv_get_device_name(*d);
	printf("Step 1: open the device %s and look at its port. All later calls go through the "
	       "opened device.\n",
		r->opt.device);
	r->context = ibv_open_device(*d);
	must(r->context, "ibv_open_device");
	/* The list may go once a device of it is open, not earlier. */
	ibv_free_device_list(list);
}

static void query_port(struct rdma *r)
{
	must(succeeded(ibv_query_port(r->context, PORT, &r->port)), "ibv_query_port");
	if (r->port.state != IBV_PORT_ACTIVE)
		die("port %d of %s is not active but %s: bring its network interface up (ip link "
		    "set ... up) or connect its cable",
			PORT, r->opt.device, ibv_port_state_str(r->port.state));
	r->ethernet = r->port.link_layer == IBV_LINK_LAYER_ETHERNET;
	r->mtu = r->port.active_mtu;
	if (r->opt.mtu_bytes > mtu_bytes(r->mtu))
		die("an MTU of %u is more than the %u that %s allows: choose less (-m)",
			r->opt.mtu_bytes, mtu_bytes(r->mtu), r->opt.device);
	if (r->opt.mtu_bytes)
		r->mtu = mtu_from_bytes(r->opt.mtu_bytes);
	if (r->opt.buffer_bytes > r->port.max_msg_sz)
		die("%s carries messages of at most %u bytes: choose less (-s)", r->opt.device,
			r->port.max_msg_sz);
	printf("    port %d is active, MTU %u bytes, link layer %s, LID 0x%04x\n", PORT,
		mtu_bytes(r->mtu), r->ethernet ? "Ethernet (RoCE)" : "InfiniBand", r->port.lid);
}

static bool gid_at(const struct rdma *r, int index, union ibv_gid *gid)
{
	return index < r->port.gid_tbl_len && !ibv_query_gid(r->context, PORT, index, gid) &&
	       !gid_empty(gid);
}

static _Noreturn void gid_wrong(const struct rdma *r)
{
	char text[GID_CHARS];
	union ibv_gid gid;

	fprintf(stderr, "%s: GID index %u of %s (it has 0 to %d) is empty, in use:",
		program_invocation_short_name, r->opt.gid_index, r->opt.device,
		r->port.gid_tbl_len - 1);
	for (int i = 0; i < r->port.gid_tbl_len; i++)
		if (gid_at(r, i, &gid))
			fprintf(stderr, " %d (%s),", i, gid_text(&gid, text));
	fprintf(stderr, " or give its network interface an IP address\n");
	exit(EXIT_FAILURE);
}

static void query_gid(struct rdma *r)
{
	char text[GID_CHARS];

	if (gid_at(r, (int)r->opt.gid_index, &r->gid))
		printf("    GID %u is %s: on RoCE, the address of this side\n", r->opt.gid_index,
			gid_text(&r->gid, text));
	else if (r->ethernet)
		gid_wrong(r);
	else /* InfiniBand finds its way by LID; only RoCE cannot do without a GID. */
		memset(&r->gid, 0, sizeof(r->gid));
}

void look_at_device(struct rdma *r)
{
	open_device(r);
	query_port(r);
	query_gid(r);
}
