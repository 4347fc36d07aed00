/* SPDX-License-Identifier: BSD-3-Clause */
/* endpoint.c - endpoints: made, posted on, failed, closed. How they get a path is connect.c; frames
 * over it are path.c's. */
#include "msg/endpoint.h"
#include "msg/ids.h"
#include "msg/loan.h"
#include "msg/objects.h"

#include <stdlib.h>

/* Only to tell endpoints apart in a table; contexts share nothing else. */
static struct {
	_Atomic uint64_t last_id;
} process;

rpw_endpoint *ep_new(rpw_context *c)
{
	rpw_endpoint *ep = rpwi_alloc_lines(sizeof(*ep));
	if (!ep)
		return NULL;
	struct rpwi_list *lists[] = {&ep->active_list, &ep->fetching, &ep->settling,
		&ep->unexpected, &ep->objects, &ep->ams, &ep->receives, &ep->object_receives,
		&ep->work};
	link_init(&ep->link, &c->links);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	ep->c = c;
	/* the class of a receive goes into the low bits: tag.c */
	ep->id = ++process.last_id * (CLASSES_MAX * 2);
	ep->tran = -1;
	ep->message_tag = msg_random();
	ep->control_tag = msg_random();
	ep->next.deadline_ns = ep->next.until_ns = RPWI_NEVER;
	rpwi_list_add_tail(&c->endpoints, &ep->all);
	return ep;
}

void ep_refresh(rpw_endpoint *ep)
{
	ep->link.fast = ep->state == EP_UP && !ep->shut && !ep->path_broken &&
			!ep->link.breakable && !ep->link.resending &&
			rpwi_list_empty(&ep->link.queue) && rpwi_list_empty(&ep->link.replies) &&
			!ep->c->debug && rpwi_list_empty(&ep->c->gpus);
}

/* ---- what is known of it ---- */

static unsigned protection_of(const rpw_endpoint *ep)
{
	if (ep->tran < 0 || !ep->link.te)
		return RPW_PROTECTION_NONE;
	if (ep->link.ops->caps & TRAN_GUARDED)
		return RPW_PROTECTION_KERNEL;
	if (ep->link.ops->caps & TRAN_SEALS && boot_has_key(ep->c->boot))
		return RPW_PROTECTION_TLS;
	return RPW_PROTECTION_NONE;
}

int rpw_endpoint_info(rpw_endpoint *ep, rpw_endpoint_information *info)
{
	if (!ep || !info)
		return msg_wrong(
			"rpw_endpoint_info", ep ? "the rpw_endpoint_information to fill is NULL"
						: "the endpoint is NULL");
	if (info->size < sizeof(size_t))
		return rpwi_fail(RPW_ERR_INVALID,
			"rpw_endpoint_information.size is %zu: set it to "
			"sizeof(rpw_endpoint_information)",
			info->size);
	rpw_endpoint_information now = {
		.size = info->size,
		.transport = ep->tran >= 0 ? ep->link.ops->name : "",
		.path = text_or(ep->path_text, ""),
		.why = text_or(ep->why, ""),
		.peer = text_or(ep->peer, ""),
		.message_tag = ep->message_tag,
		.control_tag = ep->control_tag,
		.peer_message_tag = ep->peer_message_tag,
		.peer_control_tag = ep->peer_control_tag,
		.connected = ep->state == EP_UP,
		.eager_bytes_max = ep->eager_max,
		.protection = protection_of(ep),
		.loan_bytes = loan_bytes_out(ep),
		.loan_bytes_max = ep->c->loan_max,
		.view_bytes = ep->view_bytes,
	};
	if (ep->state == EP_FAILED) {
		now.status = ep_end_status(ep);
		now.why = ep_end_text(ep);
	}
	memcpy(info, &now, RPWI_MIN(info->size, sizeof(now)));
	return RPW_OK;
}

void rpw_endpoint_set_user(rpw_endpoint *ep, void *user)
{
	if (ep)
		ep->user = user;
}
void *rpw_endpoint_user(const rpw_endpoint *ep) { return ep ? ep->user : NULL; }

void rpw_endpoint_on_close(rpw_endpoint *ep, rpw_endpoint_closed_fn fn, void *arg)
{
	if (!ep)
		return;
	bool late = ep->state == EP_FAILED;
	ep->closed_fn = late ? NULL : fn;
	ep->closed_arg = arg;
	if (late && fn) {
		bool outer = msg_callback_begin(ep->c);
		fn(ep, ep_end_status(ep), arg);
		ep->c->in_progress = outer;
	}
}
