/* SPDX-License-Identifier: BSD-3-Clause */
/* own.h - what the device has room for: the bound of every profile (keys.c). The transport's own
 * are rc/rc.h's. */
#ifndef ROPEWAY_LIKE_OWN_H
#define ROPEWAY_LIKE_OWN_H

#include "rc/rc.h"

enum {
	DEV_QP_MAX = 65536, /* of all kinds: of one device; a process has 262,080 numbers */
	DEV_PD_MAX = 65536,
	DEV_CQ_MAX = 65536,
	DEV_SRQ_MAX = 65536,
	DEV_AH_MAX = 1 << 20,
	DEV_COUNTER_MAX = 65536,
	DEV_QP_WR_MAX = RPWI_QP_WR_MAX,
	DEV_CQE_MAX = 1 << 22,
	DEV_MR_MAX = 1 << 20,
	DEV_MW_MAX = 1 << 20,
	DEV_SRQ_WR_MAX = 32768,
	DEV_RES_RD_ATOM_MAX = RPWI_RD_ATOMIC_MAX * 1024,
	DEV_MCAST_GROUPS_MAX = 256, /* of the process: a descriptor each */
	DEV_MCAST_QPS_MAX = 256,    /* attached to one group */
	DEV_GIDS_MAX = 16,
};

#endif
