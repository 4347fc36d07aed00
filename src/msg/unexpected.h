/* SPDX-License-Identifier: BSD-3-Clause */
/* unexpected.h - messages that came before their receive. */
#ifndef ROPEWAY_MSG_UNEXPECTED_H
#define ROPEWAY_MSG_UNEXPECTED_H

#include "msg/objects.h"

struct unexpected *unexpected_new(rpw_endpoint *ep, size_t body_len);
struct unexpected *unexpected_offered(rpw_endpoint *ep, struct rts *rts, uint32_t units);
void unexpected_release(struct unexpected *u);
void unexpected_add(rpw_endpoint *ep, struct unexpected *u, uint64_t tag);
/* the oldest, or NULL; it stays */
struct unexpected *unexpected_for(rpw_context *c, rpw_endpoint *ep, uint64_t tag, uint64_t mask);
void unexpected_indexes_free(rpw_context *c);
void unexpected_free(struct unexpected *u, bool credit);
void unexpected_keep(struct unexpected *u); /* a tagged one, whose memory is a view's now */

#endif
