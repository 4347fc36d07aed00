/* SPDX-License-Identifier: BSD-3-Clause */
/* world.h - two devices and their objects, for the tests of netlink/ and its fuzz target. */
#ifndef TESTS_NETLINK_WORLD_H
#define TESTS_NETLINK_WORLD_H

#include "netlink/netlink.h"

#include <netinet/in.h>
#include <rdma/rdma_netlink.h>

/* As many objects of each kind as the first device has; the other has none. */
static unsigned world_objects = 3;
static struct rpwi_netdev world_nets[] = {
	{.name = "rpw_eth0",
		.ifname = "eth0",
		.ifindex = 2,
		.mtu = 1500,
		.up = true,
		.mac = {2, 0, 0, 0, 0, 5},
		.gid_count = 2},
	{.name = "rpw_lo",
		.ifname = "lo",
		.ifindex = 1,
		.mtu = 65536,
		.loopback = true,
		.gid_count = 2},
};

static int world_resources(
	const char *device, enum rpwi_resource_kind kind, rpwi_resource_visit *visit, void *arg)
{
	for (unsigned i = 0; i < world_objects && !strcmp(device, "rpw_eth0"); i++) {
		struct rpwi_resource r = {.kind = kind,
			.id = 100 + i,
			.pid = 4242,
			.pd = 7,
			.ctx = 9,
			.users = i,
			.cqe = 64,
			.lkey = 0x11,
			.rkey = 0x22,
			.length = 4096,
			.type = 2,
			.state = 3,
			.connects = true,
			.remote_qpn = 5,
			.sq_psn = 6,
			.rq_psn = 8,
			.qpn = 100,
			.port_space = 0x106};
		const struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = 0x1234};
		memcpy(&r.src, &a, sizeof(a));
		memcpy(&r.dst, &a, sizeof(a));
		if (!visit(arg, &r))
			break;
	}
	return 0;
}

static bool world_counter(
	const struct rpwi_netdev *d, unsigned i, const char **name, uint64_t *value)
{
	*name = i ? "rcvd_pkts" : "sent_pkts";
	*value = (uint64_t)d->ifindex << 32 | i;
	return i < 2;
}

static const struct rpwi_nl_world world = {.nets = world_nets,
	.n = RPWI_ARRAY_LEN(world_nets),
	.caps = 0x1234,
	.firmware = "1.2.3",
	.rdma_cm = 0xabcd,
	.port = 77,
	.explains = true,
	.resources = world_resources,
	.counter = world_counter};

enum { ETH0 = 1002, LO = 1000001 };

/* A datagram is whole messages, each with attributes that fill it. Nested ones are those of the
 * types that nldev nests. NULL, or what is wrong. */
static bool nests(unsigned type)
{
	switch (type) {
	case RDMA_NLDEV_ATTR_RES_SUMMARY:
	case RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY:
	case RDMA_NLDEV_ATTR_RES_QP:
	case RDMA_NLDEV_ATTR_RES_QP_ENTRY:
	case RDMA_NLDEV_ATTR_RES_CM_ID:
	case RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY:
	case RDMA_NLDEV_ATTR_RES_CQ:
	case RDMA_NLDEV_ATTR_RES_CQ_ENTRY:
	case RDMA_NLDEV_ATTR_RES_MR:
	case RDMA_NLDEV_ATTR_RES_MR_ENTRY:
	case RDMA_NLDEV_ATTR_RES_PD:
	case RDMA_NLDEV_ATTR_RES_PD_ENTRY:
	case RDMA_NLDEV_ATTR_RES_CTX:
	case RDMA_NLDEV_ATTR_RES_CTX_ENTRY:
	case RDMA_NLDEV_ATTR_RES_SRQ:
	case RDMA_NLDEV_ATTR_RES_SRQ_ENTRY:
	case RDMA_NLDEV_ATTR_STAT_HWCOUNTERS:
	case RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY:
		return true;
	default:
		return false;
	}
}

static const char *attributes_wrong(const char *at, size_t len)
{
	while (len) {
		struct nlattr a;
		if (len < sizeof(a))
			return "an attribute without a head";
		memcpy(&a, at, sizeof(a));
		size_t step = NLA_ALIGN(a.nla_len);
		if (a.nla_len < NLA_HDRLEN || step > len)
			return "an attribute beyond its message";
		const char *why = nests(a.nla_type) ? attributes_wrong(at + NLA_HDRLEN,
							      a.nla_len - (size_t)NLA_HDRLEN)
						    : NULL;
		if (why)
			return why;
		at += step;
		len -= step;
	}
	return NULL;
}

static const char *datagram_wrong(const void *data, size_t len)
{
	const char *at = data;
	if (!len || len > RPWI_NL_DATAGRAM)
		return "a datagram of a wrong size";
	while (len) {
		const struct nlmsghdr *h = rpwi_nl_message(at, len);
		if (!h || NLMSG_ALIGN(h->nlmsg_len) != h->nlmsg_len)
			return "a message that is none";
		if (h->nlmsg_pid != world.port)
			return "a message to somebody else";
		size_t fixed = h->nlmsg_type == NLMSG_ERROR  ? sizeof(struct nlmsgerr)
			       : h->nlmsg_type == NLMSG_DONE ? sizeof(int)
							     : 0;
		if (h->nlmsg_len < NLMSG_HDRLEN + fixed)
			return "a message that is too short";
		const char *why = attributes_wrong(
			at + NLMSG_HDRLEN + fixed, h->nlmsg_len - NLMSG_HDRLEN - fixed);
		if (why)
			return why;
		at += h->nlmsg_len;
		len -= h->nlmsg_len;
	}
	return NULL;
}

#endif
