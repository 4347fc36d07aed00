/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - puts, gets, atomics, flush and fence: begun, and as they come. */
#ifndef ROPEWAY_MSG_RMA_H
#define ROPEWAY_MSG_RMA_H

#include "msg/objects.h"

int rma_begin(rpw_request *r);
int rma_access_check(rpw_endpoint *ep, const rpw_rkey *key, uint64_t offset, size_t len,
	unsigned need, const char *what);
int rma_atomic_begin(rpw_request *r);
void rma_atomic_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void rma_atomic_done(rpw_endpoint *ep, uint64_t number, int status, const void *body, size_t len);
int rma_flush_begin(rpw_request *r);
int rma_fence_begin(rpw_request *r);
void rma_flush_look(rpw_endpoint *ep);
/* the peer has closed; so many of our frames had come */
void rma_flush_bye(rpw_endpoint *ep, uint64_t received);
void flush_path_gone(rpw_request *r);

#endif
