/* SPDX-License-Identifier: BSD-3-Clause */
/* newer.h - calls of rdma-core that are newer than this build's headers. */
#ifndef ROPEWAY_PRELOAD_NEWER_H
#define ROPEWAY_PRELOAD_NEWER_H

#include <infiniband/verbs.h>

/* Has the distribution's libibverbs fill the private part of a context of ours, so that its calls
 * which the drop-in does not know fail with EOPNOTSUPP (most with errno, see their manual pages).
 * 0; -1 with errno and a warning: it cannot. rpwi_newer_end, before the context is closed. */
int rpwi_newer_begin(struct ibv_context *c);
void rpwi_newer_end(struct ibv_context *c);

#endif
