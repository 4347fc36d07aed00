/* SPDX-License-Identifier: BSD-3-Clause */
/* refused.h - what the drop-in tells the command: which calls of the installed rdma-core the
 * software device refuses. */
#ifndef ROPEWAY_PRELOAD_REFUSED_H
#define ROPEWAY_PRELOAD_REFUSED_H

#include <stdbool.h>

struct ropeway_refused {
	const char *lacks, *instead; /* "XRC"; what to use instead of it */
	char calls[400]; /* "ibv_open_xrcd, ibv_open_qp"; what is too long ends with "..." */
};
/* The nth kind, from 0; false where there are no more. Opens libibverbs and librdmacm, and leaves
 * them open. Not from a child of fork. */
bool ropeway_refused(unsigned n, struct ropeway_refused *out);

#endif
