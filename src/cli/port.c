/* SPDX-License-Identifier: BSD-3-Clause */
/* port.c - a port as people read it: its GIDs, which of them to use, its state and MTU. */
#include "cli/cli.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

int rpwi_cli_gid_table(struct ibv_context *ctx, uint8_t port, struct cli_gid gids[CLI_GIDS_MAX])
{
	struct ibv_gid_entry *table = calloc(CLI_GIDS_MAX, sizeof(*table));
	int count = 0;

	if (!table)
		return -ENOMEM;
	ssize_t n = ibv_query_gid_table(ctx, table, CLI_GIDS_MAX, 0);
	for (ssize_t i = 0; i < n; i++) {
		if (table[i].port_num != port)
			continue;
		gids[count++] = (struct cli_gid){
			table[i].gid, table[i].gid_index, table[i].gid_type, table[i].ndev_ifindex};
	}
	free(table);
	return n < 0 ? (int)n : count;
}

bool rpwi_cli_gid_is_ipv4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

/* How well an entry serves: an IPv4 address is what the other side most likely has too. */
static int rank(const struct cli_gid *g)
{
	if (g->type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	if (rpwi_cli_gid_is_ipv4(&g->gid))
		return 4;
	return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)g->gid.raw) ? 2 : 3;
}

int rpwi_cli_gid_pick(const struct cli_gid *gids, int count)
{
	int best = -1;

	for (int i = 0; i < count; i++)
		if (best < 0 || rank(&gids[i]) > rank(&gids[best]))
			best = i;
	return best;
}

const char *rpwi_cli_gid_text(const union ibv_gid *gid, char out[CLI_GID_LEN])
{
	return inet_ntop(AF_INET6, gid->raw, out, CLI_GID_LEN);
}

const char *rpwi_cli_gid_type(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "IB";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	}
	return "unknown";
}

unsigned rpwi_cli_mtu_bytes(enum ibv_mtu mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

const char *rpwi_cli_port_state(enum ibv_port_state state)
{
	static const char *const names[] = {
		[IBV_PORT_NOP] = "UNKNOWN",
		[IBV_PORT_DOWN] = "DOWN",
		[IBV_PORT_INIT] = "INIT",
		[IBV_PORT_ARMED] = "ARMED",
		[IBV_PORT_ACTIVE] = "ACTIVE",
		[IBV_PORT_ACTIVE_DEFER] = "ACTIVE_DEFER",
	};

	return (unsigned)state < RPWI_ARRAY_LEN(names) ? names[state] : "UNKNOWN";
}
