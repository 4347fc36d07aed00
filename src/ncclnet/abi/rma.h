/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - the tables of NCCL's interface for one-sided operations: `ncclRmaPlugin_v<N>`, and
 * `ncclGinPlugin_v<N>` of NCCL 2.28 to 2.30. rma_table.h has their members. Facts of the interface
 * in our own words; tests/nccl/layout_test.py holds them against the debug information of NCCL's
 * published libraries.
 *
 * A coll comm joins n ranks. Registration is collective, and what it gives names the memory of
 * every rank; offsets count from each rank's own base. `from` of a get, and `to` of a put, are the
 * peer's.
 *
 * nccl_rma_v13 and nccl_gin_v13 are one table under two names. From v14 on a GIN table has no data
 * operations: it is for NICs that a GPU drives, so there is none here.
 */
#ifndef ROPEWAY_NCCLNET_ABI_RMA_H
#define ROPEWAY_NCCLNET_ABI_RMA_H

#include <stdbool.h>

#include "ncclnet/abi/tables.h"

enum {
	NCCL_GIN_V_FIRST = 11,
	NCCL_GIN_V_LAST = 13,
	NCCL_RMA_V_FIRST = 13,
	NCCL_RMA_V_LAST = 16,
	NCCL_RMA_HANDLE_BYTES = NCCL_NET_HANDLE_BYTES,
};
enum nccl_rma_signal { NCCL_RMA_SIGNAL_INCREMENT = 1, NCCL_RMA_SIGNAL_ADD = 2 };
/* Of registrations. FORCE_ORDER: usable for signals. */
enum nccl_rma_flags { NCCL_RMA_FORCE_ORDER = 1, NCCL_RMA_SIGNAL_NEVER_RESET = 2 };
/* v15 on, of operations. MORE: further requests follow, so a doorbell may wait for them. */
enum nccl_rma_options { NCCL_RMA_MORE = 1 };

struct nccl_gin_config_v13 {
	int signals, counters, contexts, queue_depth, traffic_class;
};
_Static_assert(sizeof(struct nccl_gin_config_v13) == 20, "as in NCCL's library");
struct nccl_rma_config {
	int contexts, traffic_class, rank_stride;
};
_Static_assert(sizeof(struct nccl_rma_config) == 12, "as in NCCL's library");
struct nccl_rma_properties {
	/* any signal from any peer makes all puts visible that the communicator has received */
	bool flushes_all_puts_on_any_signal;
};
_Static_assert(sizeof(struct nccl_rma_properties) == 1, "as in NCCL's library");

/* NCCL 2.28. */
#define RMA_V 11
#define RMA_TABLE nccl_gin_v11
#define RMA_TABLE_BYTES 152
#include "ncclnet/abi/rma_table.h"

/* NCCL 2.29. Connections: each of them is what v13 calls a context. */
#define RMA_V 12
#define RMA_TABLE nccl_gin_v12
#define RMA_TABLE_BYTES 152
#include "ncclnet/abi/rma_table.h"

/* NCCL 2.30. Contexts, gets, flushes. */
#define RMA_V 13
#define RMA_TABLE nccl_gin_v13
#define RMA_TABLE_BYTES 168
#include "ncclnet/abi/rma_table.h"
#define nccl_rma_v13 nccl_gin_v13

/* NCCL 2.30.7. Weak signals; no device handles. */
#define RMA_V 14
#define RMA_TABLE nccl_rma_v14
#define RMA_TABLE_BYTES 168
#include "ncclnet/abi/rma_table.h"

/* NCCL 2.31. Options of operations. */
#define RMA_V 15
#define RMA_TABLE nccl_rma_v15
#define RMA_TABLE_BYTES 168
#include "ncclnet/abi/rma_table.h"

/* NCCL 2.32. getRmaProperties. */
#define RMA_V 16
#define RMA_TABLE nccl_rma_v16
#define RMA_TABLE_BYTES 176
#include "ncclnet/abi/rma_table.h"

_Static_assert(offsetof(struct nccl_gin_v11, iput) == 104, "where NCCL has it");
_Static_assert(offsetof(struct nccl_gin_v12, test) == 120, "where NCCL has it");
_Static_assert(offsetof(struct nccl_gin_v13, iget) == 120, "where NCCL has it");
_Static_assert(offsetof(struct nccl_gin_v13, test) == 136, "where NCCL has it");
_Static_assert(offsetof(struct nccl_rma_v14, iput) == 104, "where NCCL has it");
_Static_assert(offsetof(struct nccl_rma_v15, queryLastError) == 152, "where NCCL has it");
_Static_assert(offsetof(struct nccl_rma_v16, getRmaProperties) == 24, "where NCCL has it");
_Static_assert(offsetof(struct nccl_rma_v16, iputSignal) == 120, "where NCCL has it");
_Static_assert(offsetof(struct nccl_rma_v16, finalize) == 168, "where NCCL has it");

#endif
