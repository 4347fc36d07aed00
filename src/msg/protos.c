/* SPDX-License-Identifier: BSD-3-Clause */
/* protos.c - the table of operations: what each kind does at each turn of its life. The only file
 * that knows them all; those below find it in their context (proto_of). */
#include "msg/connect.h"
#include "msg/ids.h"
#include "msg/loan.h"
#include "msg/messages.h"
#include "msg/objects.h"
#include "msg/pipeline.h"
#include "msg/rma.h"
#include "msg/rndv.h"

#include <stdlib.h>

void proto_ends(rpw_request *r)
{
	link_forget(&r->keep);
	if (r->rndv)
		rndv_end(r);
	if (r->rtr_mem)
		rndv_rtr_drop(r);
	if (r->direct)
		direct_drop(r);
	if (r->number)
		ids_del(&r->c->numbers, r->number);
	if (r->xfer && r->xfer != &r->one)
		free(r->xfer);
	free(r->rts);
	if (r->pipeline)
		pipeline_request_ends(r);
	if (r->asked)
		pipeline_answered(r);
	if (r->serves)
		pipeline_served(r);
	if (r->lent)
		loan_free(r->lent);
	r->lent = NULL;
	if (r->kind == REQ_FLUSH && r->flush.ends)
		connect_shutdown_over(r->ep);
	r->number = 0;
	r->xfer = NULL;
	r->rts = NULL;
}

const struct proto protos[] = {
	[REQ_CONNECT] = {.name = "connecting", .cancel = connect_cancel},
	[REQ_SEND] = {.name = "a send", .begin = tag_send_begin, .message = true},
	[REQ_OBJECT] = {.name = "a send of an object", .begin = object_send_begin, .message = true},
	[REQ_AM] = {.name = "an active message", .begin = am_send_begin, .message = true},
	[REQ_RECV] = {.name = "a receive", .unpost = tag_unpost, .receive = true},
	[REQ_RECV_VIEW] = {.name = "a receive of a view",
		.unpost = tag_unpost,
		.fetched = view_fetched,
		.receive = true},
	[REQ_RECV_OBJECT] = {.name = "a receive of an object",
		.unpost = object_unpost,
		.fetched = object_fetched,
		.receive = true},
	[REQ_RECV_AM] = {.name = "an active message", .fetched = am_fetched, .receive = true},
	[REQ_RMA] = {.name = "a transfer", .begin = rma_begin},
	[REQ_ATOMIC] = {.name = "an atomic", .begin = rma_atomic_begin},
	[REQ_FLUSH] = {.name = "a flush",
		.begin = rma_flush_begin,
		.path_gone = flush_path_gone,
		.waits_for_older = true},
	[REQ_FENCE] = {.name = "a fence", .begin = rma_fence_begin, .path_gone = flush_path_gone},
	[REQ_CHUNK] = {.name = "a part of an operation", .begin = pipeline_chunk_begin},
	[REQ_RECV_CHUNK] = {.name = "a part of an operation"},
	[REQ_SERVE_PUT] = {.name = "a part of an operation"},
	[REQ_SERVE_GET] = {.name = "a part of an operation", .begin = pipeline_got_begin},
};
