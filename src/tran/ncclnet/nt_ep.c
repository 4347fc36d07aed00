/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_ep.c - endpoints: made, started, up, failing, leaving.
 *
 * Both sides do the same: each listens twice, connects to the peer's two, and accepts two. What
 * travels between them is in the handle of nt_wire.h, with the plugin's name and version, which
 * must be the same.
 *
 * Leaving: the comm for bulk data is closed at once, so that no plugin touches the program's memory
 * any more. Frames that were taken still go out, and a goodbye behind it; the comm for frames is
 * closed when the peer has said goodbye, too, since a plugin may lose what lies in a connection
 * that is closed under its peer's hands.
 */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* 64 KiB: over a plugin with one TCP stream a message takes 11.8 us as a frame, 40 as bulk data */
enum { EAGER_MAX = NT_FRAME_MAX };

int nt_ep_make(struct tran *tran, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct nt *t = nt_of(tran);
	struct nt_ep *ep = calloc(1, sizeof *ep);
	struct nt_handle h = {.abi = (unsigned)t->load->n->abi, .bytes = t->load->n->handle_bytes};
	char why[300];
	if (!ep)
		return tran_no_memory(tran, "an endpoint");
	int err = nt_setup_new(t->load, &h, &ep->setup, why, sizeof why);
	if (err) {
		free(ep);
		return rpwi_fail(
			err == -ENOMEM ? RPW_ERR_NO_MEMORY : RPW_ERR_SYSTEM, "ncclnet: %s", why);
	}
	memcpy(h.name, t->load->name, sizeof h.name);
	*handle_len = nt_put_handle(handle, &h);
	ep->base = (struct tran_ep){.tran = tran,
		.user = user,
		.limits = {.frame_max = NT_FRAME_MAX,
			.eager_max = EAGER_MAX,
			.bulk_min = NT_HERE_MAX + 1,
			.bulk_max = t->load->chunk_max}};
	snprintf(ep->base.path, sizeof ep->base.path, "plugin %s, API v%d, device %d %s",
		t->load->name, t->load->n->abi, t->load->dev, t->load->device);
	snprintf(ep->peer, sizeof ep->peer, "%.63s",
		control->peer->address[0] ? control->peer->address : "the peer");
	struct rpwi_list *lists[] = {&ep->link, &ep->failing, &ep->bulks, &ep->announcing,
		&ep->expected, &ep->to_send, &ep->to_receive, &ep->refused};
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(lists); i++)
		rpwi_list_init(lists[i]);
	rpwi_list_add_tail(&t->eps, &ep->link);
	ep->deadline_ns = RPWI_NEVER;
	*out = &ep->base;
	return 0;
}

/* The classic failure of mixed versions ends here, with both sides' names. */
static bool same_plugin(struct nt_ep *ep, const struct nt_handle *h)
{
	const struct nt_load *l = nt_of_ep(ep)->load;
	if (h->abi == (unsigned)l->n->abi && !strcmp(h->name, l->name) &&
		h->bytes == l->n->handle_bytes)
		return true;
	nt_ep_fail(ep, RPW_ERR_REFUSED,
		"the peer hosts network plugin %s with API v%u, this side %s with v%d: name the "
		"same plugin and version on both sides, as in "
		"ncclnet:%.100s@v%d",
		h->name, h->abi, l->name, l->n->abi, l->n->path, l->n->abi);
	return false;
}

int nt_ep_start(struct tran_ep *tran_ep, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	struct nt_handle h;
	char why[200];
	if (ep->state != NT_MADE)
		return rpwi_fail(RPW_ERR_INVALID, "ncclnet: the endpoint was started before");
	ep->state = NT_STARTING;
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	if (nt_get_handle(handle, len, &h, why, sizeof why)) {
		nt_ep_fail(ep, RPW_ERR_PROTOCOL, "%s", why);
		return 0;
	}
	if (!same_plugin(ep, &h))
		return 0;
	int err = nt_setup_start(ep->setup, &h, ep->deadline_ns);
	if (err)
		nt_ep_fail(ep, RPW_ERR_SYSTEM, "no thread to connect in: %s", strerror(-err));
	return 0;
}

static void up(struct nt_ep *ep, struct nt_comm c[4])
{
	const struct nt_load *load = nt_of_ep(ep)->load;
	nt_queue_open(&ep->out, load, &c[0], true);
	nt_queue_open(&ep->bulk_out, load, &c[1], true);
	nt_queue_open(&ep->in, load, &c[2], false);
	nt_queue_open(&ep->bulk_in, load, &c[3], false);
	ep->has_comms = true;
	nt_setup_drop(ep->setup);
	ep->setup = NULL;
	int err = nt_frame_open(ep);
	if (err) {
		nt_ep_fail(ep, RPW_ERR_SYSTEM,
			"plugin %s v%d: the buffers for frames cannot be registered or used: %s",
			load->name, load->n->abi, strerror(-err));
		return;
	}
	ep->state = NT_UP;
	ep->was_up = true;
	ep->deadline_ns = RPWI_NEVER;
	rpwi_debug("ncclnet: endpoint to %s: %s", ep->peer, ep->base.path);
	ep->base.tran->up->ready(ep->base.user, NULL);
}

/* ---- ending ---- */

void nt_ep_report(struct nt *t)
{
	while (!rpwi_list_empty(&t->failing)) {
		struct nt_ep *ep =
			RPWI_CONTAINER_OF(rpwi_list_pop(&t->failing), struct nt_ep, failing);
		(ep->was_up ? t->base.up->failed : t->base.up->ready)(ep->base.user, &ep->error);
	}
}

static void ep_free(struct nt_ep *ep)
{
	struct nt *t = nt_of_ep(ep);
	if (t->cursor == &ep->link)
		t->cursor = ep->link.next;
	rpwi_list_del(&ep->link);
	rpwi_list_del(&ep->failing);
	rpwi_error_drop(&ep->error);
	nt_setup_drop(ep->setup);
	if (ep->has_comms)
		nt_frame_close(ep);
	free(ep);
}

/* There is something to say yet, and a way to say it. */
static bool has_to_leave(const struct nt_ep *ep)
{
	if (!ep->has_comms || !ep->was_up || ep->out.error || ep->in.error)
		return false;
	return ep->state == NT_UP || (ep->leave_heard && !(ep->leave_placed && nt_frame_idle(ep)));
}

void nt_ep_close(struct tran_ep *tran_ep)
{
	struct nt_ep *ep = (struct nt_ep *)tran_ep;
	struct nt *t = nt_of_ep(ep);
	nt_bulk_close(ep);
	nt_bulk_forget(ep);
	emulate_ep_close(tran_ep);
	ep->corked = false;
	if (!has_to_leave(ep)) {
		ep_free(ep);
		return;
	}
	if (t->cursor == &ep->link)
		t->cursor = ep->link.next;
	rpwi_list_del(&ep->failing);
	rpwi_list_del(&ep->link);
	rpwi_list_add_tail(&t->leaving, &ep->link);
	ep->state = NT_LEAVING;
	ep->deadline_ns = rpwi_now_ns() + NT_LINGER_MS * RPWI_NS_PER_MS;
	nt_frame_goodbye(ep);
}

bool nt_ep_leave_progress(struct nt_ep *ep, uint64_t now_ns)
{
	nt_batch_progress(ep);
	if (ep->leave_owed)
		nt_frame_goodbye(ep);
	nt_frame_flush(ep);
	bool gone = ep->in.error || ep->out.error || now_ns >= ep->deadline_ns ||
		    (ep->leave_placed && ep->leave_heard && nt_frame_idle(ep));
	if (gone)
		ep_free(ep);
	return gone;
}

/* ---- progress ---- */

static unsigned starting(struct nt_ep *ep)
{
	struct nt_comm c[4];
	char why[300];
	int rc = nt_setup_look(ep->setup, c, why, sizeof why);
	if (!rc)
		return 0;
	if (rc > 0)
		up(ep, c);
	else
		nt_ep_fail(ep, rc, "%s", why);
	return 1;
}

static void look_for_loss(struct nt_ep *ep)
{
	if (ep->in.error) {
		nt_ep_lost(ep, &ep->in);
		nt_ep_fail(ep, RPW_ERR_UNREACHABLE, "%s", ep->lost_why);
	} else if (ep->out.error)
		nt_ep_lost(ep, &ep->out);
	if (ep->deadline_ns != RPWI_NEVER && rpwi_now_ns() >= ep->deadline_ns)
		nt_ep_fail(ep, RPW_ERR_UNREACHABLE, "%s", ep->lost_why);
}

static unsigned working(struct nt_ep *ep)
{
	unsigned n = nt_batch_progress(ep);
	if (ep->state == NT_UP)
		n += nt_bulk_progress(ep);
	if (ep->state != NT_UP)
		return n;
	if (ep->want_room && ep->fill - ep->done < NT_REQUESTS) {
		ep->want_room = false;
		n++;
		emulate_room(&ep->base);
		if (ep->state == NT_UP)
			ep->base.tran->up->room(ep->base.user);
	}
	nt_frame_flush(ep);
	if (RPWI_UNLIKELY(ep->in.error || ep->out.error || ep->deadline_ns != RPWI_NEVER))
		look_for_loss(ep);
	return n;
}

unsigned nt_ep_progress(struct nt_ep *ep)
{
	switch (ep->state) {
	case NT_STARTING:
		return starting(ep);
	case NT_UP:
		return working(ep);
	case NT_EP_FAILED:
		if (ep->leave_heard) { /* our goodbye, which the peer waits for */
			nt_batch_progress(ep);
			if (ep->leave_owed)
				nt_frame_goodbye(ep);
			nt_frame_flush(ep);
		}
		return 0;
	default:
		return 0;
	}
}
