/* SPDX-License-Identifier: BSD-3-Clause */
/* alone.c - a program linked with the drop-in where no libibverbs can be loaded: software devices
 * only, and our own tables. */
#include "check.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

int main(void)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n >= 1);
	for (int i = 0; i < n; i++)
		CHECK(!strncmp(ibv_get_device_name(list[i]), "rpw_", 4));
	if (list)
		ibv_free_device_list(list);
	CHECK(ibv_fork_init() == 0);
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	CHECK(!strcmp(ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR), "RNR retry counter exceeded"));
	CHECK(!strcmp(ibv_wc_status_str((enum ibv_wc_status)12345), "unknown"));
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"));
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_UNKNOWN), "unknown"));
	CHECK(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	CHECK(!strcmp(ibv_event_type_str(IBV_EVENT_GID_CHANGE), "GID table change"));
	for (int r = 0; r <= IBV_RATE_600_GBPS; r++) {
		int mbps = ibv_rate_to_mbps((enum ibv_rate)r),
		    mult = ibv_rate_to_mult((enum ibv_rate)r);
		CHECK(mbps < 0 || mbps_to_ibv_rate(mbps) == (enum ibv_rate)r, "rate %d", r);
		CHECK(mult < 0 || mult_to_ibv_rate(mult) == (enum ibv_rate)r, "rate %d", r);
	}
	CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 &&
		ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
	CHECK(ibv_rate_to_mbps(IBV_RATE_MAX) == -1 && mbps_to_ibv_rate(1) == IBV_RATE_MAX &&
		mult_to_ibv_rate(0) == IBV_RATE_MAX);
	errno = 0;
	CHECK(!ibv_import_device(0) && errno == EOPNOTSUPP);
	CHECK_DONE();
}
