/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - which release of NCCL takes which table of a plugin of one-sided operations. The
 * properties are tried by conform_run (conform.h). */
#ifndef ROPEWAY_NCCLNET_CHECK_RMA_H
#define ROPEWAY_NCCLNET_CHECK_RMA_H

#include "ncclnet/check/conform.h"

struct conform_rma_release {
	const char *name;      /* "2.30.7" */
	const char *tables[6]; /* that it takes, the first that a plugin has; NULL after the last */
	bool net_only;         /* looked for in the network plugin's library alone */
};
/* The oldest first; a NULL name after the last. */
extern const struct conform_rma_release conform_rma_release[];
/* Which of the tables of `exported` (conform_facts) it takes: the index of ncclnet_rma_table_name,
 * or -1. */
int conform_rma_taken(const struct conform_rma_release *release, unsigned exported);

#endif
