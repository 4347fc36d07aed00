/* SPDX-License-Identifier: BSD-3-Clause */
/* refused.h - the calls that the software device refuses: what it lacks, and what a program can use
 * instead. `ropeway devices` and `ropeway doctor` list them (preload/refused.h); the first call of
 * each kind is a line of the log at level info.
 */
#ifndef ROPEWAY_DEVICE_REFUSED_H
#define ROPEWAY_DEVICE_REFUSED_H

#include "base/base.h"

/* kind, what the device lacks, what to use instead, the calls that rdma-core's libraries export,
 * and those that verbs.h makes of a context's table; both with ", " between. */
#define RPWI_REFUSED_CALLS(X) \
	X(DM, "device memory", "use memory of the host (ibv_reg_mr)", \
		"ibv_import_dm, ibv_dm_export_dmabuf_fd", "ibv_alloc_dm") \
	X(DMAH, "DMA handles", "register memory without one (ibv_reg_mr)", "ibv_alloc_dmah", "") \
	X(ECE, "enhanced connection establishment", "connect without it; librdmacm does so", \
		"ibv_query_ece, ibv_set_ece", "") \
	X(ETHERNET, "Ethernet addresses", \
		"give the GID alone to ibv_create_ah; the kernel resolves it", \
		"ibv_resolve_eth_l2_from_gid", "") \
	X(SERVICE, "InfiniBand services", "resolve a host name or an address", \
		"rdma_resolve_addrinfo", "") \
	X(XRC, "XRC", "use RC queue pairs, with an SRQ for many", "", \
		"ibv_open_xrcd, ibv_open_qp, ibv_get_srq_num") \
	X(FLOW, "flow steering", "use UD queue pairs and multicast groups", "", \
		"ibv_create_flow, ibv_create_flow_action_esp") \
	X(WQ, "receive queues without a queue pair", "share receives by an SRQ", "", \
		"ibv_create_wq, ibv_create_rwq_ind_table") \
	X(COUNTERS, "flow counters", "see `ropeway run --stats`, or the counters in /sys", "", \
		"ibv_create_counters") \
	X(RATE, "rate limits of a queue pair", "limit the rate in the program", "", \
		"ibv_modify_qp_rate_limit") \
	X(TAGS, "tag matching", "match tags in the program", "", "ibv_post_srq_ops")

enum rpwi_refused {
#define X(kind, lacks, instead, exported, inlined) RPWI_REFUSED_##kind,
	RPWI_REFUSED_CALLS(X)
#undef X
		RPWI_REFUSED_KINDS
};
struct rpwi_refused_row {
	const char *lacks, *instead, *exported, *inlined;
};
extern const struct rpwi_refused_row rpwi_refused_rows[RPWI_REFUSED_KINDS];

/* EOPNOTSUPP, also in errno. Any thread; the log gets one line a kind and process. */
int rpwi_refused_told(enum rpwi_refused kind, const char *call);
static inline void *rpwi_refused_none(enum rpwi_refused kind, const char *call)
{
	return rpwi_none(rpwi_refused_told(kind, call));
}

#endif
