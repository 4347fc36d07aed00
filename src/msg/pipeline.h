/* SPDX-License-Identifier: BSD-3-Clause */
/* pipeline.h - memory of GPUs in messages and transfers: what pipeline.c, pipeline_ask.c and
 * pipeline_serve.c do for the other files of msg/. */
#ifndef ROPEWAY_MSG_PIPELINE_H
#define ROPEWAY_MSG_PIPELINE_H

#include "msg/cuda.h"
#include "msg/messages.h"
#include "msg/objects.h"

/* The GPU that has (the first byte of) this memory, as registered; NULL: none. For contexts that
 * never met a GPU this and the next two are the test of an empty list. */
struct gpu *pipeline_gpu_find(rpw_context *c, const void *p, size_t len);
static inline struct gpu *pipeline_gpu_of(rpw_context *c, const void *p, size_t len)
{
	return RPWI_UNLIKELY(!rpwi_list_empty(&c->gpus)) ? pipeline_gpu_find(c, p, len) : NULL;
}
/* Where a request's buffer is: r->gpu. 0 or a status. */
int pipeline_local_find(rpw_request *r);
static inline int pipeline_local(rpw_request *r)
{
	return RPWI_UNLIKELY(!rpwi_list_empty(&r->c->gpus)) ? pipeline_local_find(r) : 0;
}
/* The same of a message to be sent; if it is small, and not direct, it is copied to host memory at
 * once. */
int pipeline_outgoing_find(rpw_request *r);
static inline int pipeline_outgoing(rpw_request *r)
{
	return RPWI_UNLIKELY(!rpwi_list_empty(&r->c->gpus)) ? pipeline_outgoing_find(r) : 0;
}
/* Nobody is called any more: an ended one still comes home. */
void pipeline_end(rpw_context *c);
void pipeline_gpus_free(rpw_context *c);

/* r->rts is to be fetched, and cannot be as it is described. */
void pipeline_fetch(rpw_request *r, rpw_endpoint *ep, size_t room);
/* Does this put, get or batch need what is here? Then begin it. */
bool pipeline_wants(rpw_request *r);
int pipeline_rma_begin(rpw_request *r);
int pipeline_chunk_begin(rpw_request *r);
int pipeline_got_begin(rpw_request *r);

/* What comes. */
void pipeline_pulled(rpw_endpoint *ep, uint64_t number);
void pipeline_chunk(rpw_endpoint *ep, uint64_t number, struct rts *rts);
void pipeline_stopped(rpw_endpoint *ep, uint64_t number, int status);
void pipeline_put_arrived(rpw_endpoint *ep, const void *extra, size_t extra_len, struct rts *rts);
void pipeline_get_arrived(rpw_endpoint *ep, uint64_t number, const void *body, size_t len);
void pipeline_got(rpw_endpoint *ep, uint64_t number, struct rts *rts);

/* Progress: of copies in the context; of messages that waited for room on the endpoint. */
int pipeline_progress(rpw_context *c);
bool pipeline_copying(const rpw_context *c);
void pipeline_work(rpw_endpoint *ep);

/* Ends: of a request that is a pipeline's, that asked a peer, that serves one; of an endpoint; of
 * registered memory. */
void pipeline_request_ends(rpw_request *r);
void pipeline_answered(rpw_request *r);
void pipeline_served(rpw_request *r);
bool pipeline_asks(const rpw_endpoint *ep);
void pipeline_path_gone(rpw_endpoint *ep);
void pipeline_endpoint_gone(rpw_endpoint *ep);
void pipeline_memory_gone(rpw_memory *m);

/* ---- direct.c: messages not staged, since the path's transport reaches them by itself ---- */

/* All of this memory of a GPU, by that transport. */
bool direct_memory(rpw_memory *m, int tran);
/* Will r's buffer go directly, as things are now? */
bool direct_sends(const rpw_request *r);
/* r's buffer, for the peer to fetch; *out is the caller's to delete. */
bool direct_offer(rpw_request *r, struct tran_mem **out);
/* Can r->rts be fetched into the GPU that r's buffer is in? */
bool direct_fetch(rpw_request *r, rpw_endpoint *ep);
/* The peer's memory is in a GPU, which it could give us on an earlier path only. */
static inline bool direct_lost(const rpw_request *r)
{
	return r->rts && r->rts->pieces == 1 && !r->rts->piece[0].desc.len;
}
/* Can this put or get go as it is? */
bool direct_rma(rpw_request *r);
void direct_path_gone(rpw_request *r);
void direct_drop(rpw_request *r);
/* A transfer into r's buffer is done: its status, when the GPU sees the bytes. */
int direct_landed(rpw_request *r, int status);
/* What peers have put into GPUs by themselves is there. 0 or a status. */
int direct_flush(rpw_context *c);

#endif
