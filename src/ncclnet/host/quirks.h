/* SPDX-License-Identifier: BSD-3-Clause */
/* quirks.h - what network plugins do beside what their API says, how it is seen, and what ropeway's
 * side does about it. src/tran/ncclnet lives with all of them; `ropeway plugin check` lists those
 * that it sees. */
#ifndef ROPEWAY_NCCLNET_QUIRKS_H
#define ROPEWAY_NCCLNET_QUIRKS_H

enum ncclnet_quirk_id {
	NCCLNET_BLOCKS,
	NCCLNET_SMALL_HANDLE,
	NCCLNET_STATE_IN_HANDLE,
	NCCLNET_STALE_COMM,
	NCCLNET_DEVICE_HANDLE,
	NCCLNET_DEVICE_TYPE,
	NCCLNET_NO_HOST_MEMORY,
	NCCLNET_NULL_MHANDLE,
	NCCLNET_FEW_REQUESTS,
	NCCLNET_NOT_NOW,
	NCCLNET_FIFO_TEST,
	NCCLNET_NO_SIZES,
	NCCLNET_CONSUMED,
	NCCLNET_FLUSH,
	NCCLNET_ONE_INIT,
	NCCLNET_STRANGERS,
	NCCLNET_QUIRKS,
};

struct ncclnet_quirk {
	const char *name, *seen_by, *done; /* sentences' parts, for people */
};
extern const struct ncclnet_quirk ncclnet_quirks[NCCLNET_QUIRKS];

enum {
	/* What NCCL itself has under way on a comm at most up to 2.18 (v4 to v6), so every plugin
	 * takes it: NCCL_NET_MAX_REQUESTS was 8 before it was 32. */
	NCCLNET_REQUESTS_SAFE = 8,
};

#endif
