/* endpoint.c - endpoints: made, posted on, failed, closed. How they get a path is connect.c; what goes over it path.c. */
#include "msg/msg.h"
#include "msg/stage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t next_id(void)
{
	static _Atomic uint64_t id; /* only to tell endpoints apart in a table; contexts share nothing else */
	return ++id;
}

rpw_endpoint *ep_new(rpw_context *c)
{
	rpw_endpoint *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return NULL;
	struct rpwi_list *lists[] = {
		&ep->active_list, &ep->fetching, &ep->settling, &ep->unexpected, &ep->objects, &ep->ams, &ep->receives, &ep->object_receives, &ep->work};
	link_init(&ep->link, &c->links);
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	ep->c = c;
	ep->id = next_id() * (CLASSES_MAX * 2); /* the class of a receive goes into the low bits: tag.c */
	ep->tran = -1;
	ep->message_tag = msg_random();
	ep->control_tag = msg_random();
	ep->deadline_ns = ep->until_ns = RPWI_NEVER;
	rpwi_list_add_tail(&c->endpoints, &ep->all);
	return ep;
}

void ep_refresh(rpw_endpoint *ep)
{
	ep->link.fast = ep->state == EP_UP && !ep->path_broken && !ep->link.breakable && !ep->link.resending && rpwi_list_empty(&ep->link.queue) &&
			rpwi_list_empty(&ep->link.replies) && !ep->c->debug && rpwi_list_empty(&ep->c->gpus);
}

/* ---- the end of what is under way ---- */

static void request_end(rpw_request *r, int status)
{
	if (r->where == AT_QUEUE || r->where == AT_FETCH || r->where == AT_SETTLE)
		rpwi_list_del(&r->link);
	req_complete(r, status);
}

static void fetch_end(rpw_request *r, int status)
{
	rpwi_list_del(&r->link);
	r->where = AT_NONE;
	r->worst = status;
	r->peer_lost = true;
	rndv_fetched(r);
}

void ep_end_requests(rpw_endpoint *ep, int status)
{
	link_end(&ep->link);
	while (!rpwi_list_empty(&ep->active_list))
		request_end(RPWI_CONTAINER_OF(ep->active_list.next, rpw_request, active), status);
	while (!rpwi_list_empty(&ep->fetching))
		fetch_end(RPWI_CONTAINER_OF(ep->fetching.next, rpw_request, link), status);
	while (!rpwi_list_empty(&ep->receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->receives.next, rpw_request, active);
		tag_unpost(r);
		req_complete(r, status);
	}
	while (!rpwi_list_empty(&ep->object_receives)) {
		rpw_request *r = RPWI_CONTAINER_OF(ep->object_receives.next, rpw_request, active);
		object_unpost(r);
		req_complete(r, status);
	}
}

/* Messages that came whole can still be received; those that would have to be fetched cannot. */
static void early_end(rpw_endpoint *ep, bool all)
{
	for (struct rpwi_list *n = ep->unexpected.next, *next; n != &ep->unexpected; n = next) {
		next = n->next;
		struct unexpected *u = RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint);
		if (all || u->rts)
			tag_early_free(u, false);
	}
	for (struct rpwi_list *n = ep->objects.next, *next; n != &ep->objects; n = next) {
		next = n->next;
		object_early_free(RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint));
	}
	for (struct rpwi_list *n = ep->ams.next, *next; n != &ep->ams; n = next) {
		next = n->next;
		am_early_free(RPWI_CONTAINER_OF(n, struct unexpected, in_endpoint));
	}
}

static void control_close(rpw_endpoint *ep)
{
	if (!ep->boot)
		return;
	boot_close(ep->boot);
	ep->boot = NULL;
}

static void state_leave(rpw_endpoint *ep)
{
	rpw_context *c = ep->c;
	if (ep->state == EP_BOOT || ep->state == EP_CHOOSING)
		c->connecting--;
	if (!ep->active && !ep->accepted)
		c->arriving--;
	ep->state = EP_FAILED;
	ep->link.ended = true;
	link_close(&ep->link);
	ep->deadline_ns = RPWI_NEVER;
}

static void end(rpw_endpoint *ep, int status, const char *why)
{
	char *text = strdup(why && *why ? why : "no reason was recorded"); /* `why` may be what ep_say_why replaces */
	bool talked = ep->state != EP_BOOT;
	state_leave(ep);
	ep->status = status;
	if (ep->boot && talked && !ep->gone_heard)
		connect_bye(ep, text && status != RPW_ERR_CANCELED ? text : ""); /* that it was this side's will goes without saying */
	connect_path_close(ep);
	control_close(ep);
	rpwi_fail(status, "%s", text ? text : "");
	if (text)
		ep_say_why(ep, text);
	free(text);
	rpw_request *connecting = ep->connecting;
	ep->connecting = NULL;
	if (connecting)
		req_complete(connecting, status);
	ep_end_requests(ep, status);
	early_end(ep, false);
}

void ep_fail(rpw_endpoint *ep, int status, const char *why)
{
	if (ep->state == EP_FAILED)
		return;
	bool known = ep->active || ep->accepted;
	/* Who has the key and gets no path: somebody between the two may be the reason, and no callback tells of it. */
	if (!known && boot_has_key(ep->c->boot) && ep->listener && status != RPW_ERR_PEER_GONE)
		rpwi_warn("%s connected, and its endpoint could not be made: %s", ep->peer ? ep->peer : "a peer", why && *why ? why : rpw_status_name(status));
	end(ep, status, why);
	if (!known) {
		ep_free(ep);
		return;
	}
	/* Whoever hears of the end has heard of everything else. */
	if (ep->closed_fn)
		msg_deliver_callbacks(ep->c);
	if (ep->closed_fn) {
		rpw_closed_fn fn = ep->closed_fn;
		ep->closed_fn = NULL;
		fn(ep, status, ep->closed_arg);
	}
}

void ep_free(rpw_endpoint *ep)
{
	if (ep->state != EP_FAILED) {
		if (!ep->path_broken)
			link_ack_now(&ep->link); /* what came last, came: its sender shall know */
		end(ep, RPW_ERR_CANCELED, "the endpoint was closed by this side");
	}
	early_end(ep, true);
	link_fini(&ep->link);
	stage_endpoint_gone(ep);
	if (ep->todo)
		rpwi_list_del(&ep->work);
	rpwi_list_del(&ep->all);
	free(ep->why);
	free(ep->reasons);
	free(ep->peer);
	free(ep->path_text);
	free(ep->fail_text);
	free(ep);
}

void rpw_endpoint_close(rpw_endpoint *ep)
{
	if (!ep)
		return;
	if (!msg_is_ours(ep->c))
		return; /* it goes with its context */
	ep->closed_fn = NULL;
	if (!ep->c->in_progress) {
		ep_free(ep);
		return;
	}
	ep->c->closes = true;
	msg_todo(ep, TODO_CLOSE);
}

/* ---- what is known of it ---- */

int rpw_endpoint_info(rpw_endpoint *ep, rpw_endpoint_information *info)
{
	if (!ep || !info)
		return msg_wrong("rpw_endpoint_info", ep ? "the rpw_endpoint_information to fill is NULL" : "the endpoint is NULL");
	if (info->size < sizeof(size_t))
		return rpwi_fail(RPW_ERR_INVALID, "rpw_endpoint_information.size is %zu: set it to sizeof(rpw_endpoint_information)", info->size);
	bool has = ep->tran >= 0;
	rpw_endpoint_information now = {
		.size = info->size,
		.transport = has ? ep->link.ops->name : "",
		.path = ep->path_text ? ep->path_text : "",
		.why = ep->state == EP_FAILED && ep->fail_text ? ep->fail_text
		       : ep->why                               ? ep->why
							       : "",
		.peer = ep->peer ? ep->peer : "",
		.message_tag = ep->message_tag,
		.control_tag = ep->control_tag,
		.peer_message_tag = ep->peer_message_tag,
		.peer_control_tag = ep->peer_control_tag,
		.connected = ep->state == EP_UP,
		.status = ep->state == EP_FAILED ? ep->status : RPW_OK,
		.eager_bytes_max = ep->eager_max,
		.protection = !has || !ep->link.te                                           ? RPW_PROTECTION_NONE
			      : ep->link.ops->caps & TRAN_GUARDED                            ? RPW_PROTECTION_KERNEL
			      : ep->link.ops->caps & TRAN_SEALS && boot_has_key(ep->c->boot) ? RPW_PROTECTION_TLS
											     : RPW_PROTECTION_NONE,
	};
	memcpy(info, &now, RPWI_MIN(info->size, sizeof(now)));
	return RPW_OK;
}

void rpw_endpoint_set_user(rpw_endpoint *ep, void *user)
{
	if (ep)
		ep->user = user;
}
void *rpw_endpoint_user(const rpw_endpoint *ep) { return ep ? ep->user : NULL; }

void rpw_endpoint_on_close(rpw_endpoint *ep, rpw_closed_fn fn, void *arg)
{
	if (!ep)
		return;
	bool late = ep->state == EP_FAILED;
	ep->closed_fn = late ? NULL : fn;
	ep->closed_arg = arg;
	if (late && fn) {
		bool outer = msg_callback_begin(ep->c);
		fn(ep, ep->status, arg);
		ep->c->in_progress = outer;
	}
}
