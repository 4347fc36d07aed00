/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_ep.c - endpoints: how they begin, how they end and why. */
#include "tran/verbs/verbs_priv.h"

#include <stdlib.h>

enum {
	/* measured on the software device: at 8 KiB fetching still takes a quarter longer, */
	EAGER_MAX = VERBS_FRAME_MAX,
	LOOKS_MAX = 6,
	PUT_MIN = 512 << 10, /* at 256 KiB putting a twentieth; at 1 MiB it takes an eighth less */
};

/* ---- making ---- */

static void made_free(struct verbs_ep *ep)
{
	for (unsigned i = 0; i < ep->t->planes; i++)
		if (ep->made[i])
			rpwi_verbs_qp_free(ep->t->plane[i], ep->made[i]);
	memset(ep->made, 0, sizeof(ep->made));
}

static void offer_fill(const struct verbs_ep *ep, struct verbs_offer *o)
{
	const struct verbs *t = ep->t;
	memset(o, 0, sizeof(*o));
	o->window = VERBS_WINDOW_IDLE;
	o->nonce = t->nonce;
	memcpy(o->sees, ep->own_sees, 16);
	for (unsigned i = 0; i < t->planes; i++)
		for (unsigned n = 0;
			ep->made[i] && n < t->plane[i]->ports && o->ports < VERBS_PORTS_MAX; n++) {
			struct verbs_port *port = &o->port[o->ports++];
			*port = t->plane[i]->port[n];
			port->qpn = ep->made[i]->qp_num;
			port->psn = ep->psn[i];
			port->mtu = RPWI_MIN(port->mtu, ep->mtu_max);
			port->wide = true;
		}
}

int rpwi_verbs_ep_make(struct tran *base, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len)
{
	struct verbs *t = verbs_of(base);
	const struct tran_facts *peer = control->peer;
	struct verbs_offer offer;
	unsigned made = 0;
	int rc = t->planes ? 0 : rpwi_verbs_planes_open(t);
	if (rc)
		return rc;
	struct verbs_ep *ep = calloc(1, sizeof(*ep));
	if (!ep)
		return tran_no_memory(base, "an endpoint");
	ep->base = (struct tran_ep){.tran = base,
		.user = user,
		.limits = {
			.frame_max = VERBS_FRAME_MAX, .eager_max = EAGER_MAX, .put_min = PUT_MIN}};
	ep->t = t;
	ep->active = control->active;
	ep->same_host = !memcmp(t->own.host_id, peer->host_id, sizeof(peer->host_id));
	ep->peer_pid = peer->pid;
	memcpy(ep->host, peer->host_id, sizeof(ep->host));
	ep->mtu_max = rpwi_verbs_way_mtu(t, ep->host);
	rpwi_verbs_gid_of_address(peer->address, ep->own_sees);
	ep->sq.ep = ep;
	rpwi_list_init(&ep->in_all);
	rpwi_list_init(&ep->in_starting);
	rpwi_list_init(&ep->in_todo);
	rpwi_list_init(&ep->ops);
	rpwi_list_init(&ep->inflight);
	for (unsigned i = 0; i < t->planes; i++) {
		ep->made[i] = rpwi_verbs_qp_new(t->plane[i]);
		ep->psn[i] = rpwi_verbs_psn();
		made += ep->made[i] != NULL;
	}
	if (!made) {
		free(ep);
		return rpwi_last_error()->status; /* of the last queue pair */
	}
	offer_fill(ep, &offer);
	*handle_len = rpwi_verbs_offer_write(&offer, handle, TRAN_HANDLE_MAX);
	*out = &ep->base;
	return 0;
}

/* ---- starting ---- */

static int no_pair(const struct verbs_offer *own, const struct verbs_offer *peer)
{
	char a[VERBS_GID_TEXT] = "none", b[VERBS_GID_TEXT] = "none";
	if (own->port[0].gids)
		rpwi_verbs_gid_text(own->port[0].gid[0].raw, a, sizeof(a));
	if (peer->port[0].gids)
		rpwi_verbs_gid_text(peer->port[0].gid[0].raw, b, sizeof(b));
	return rpwi_fail(RPW_ERR_UNREACHABLE,
		"no device here reaches one of the peer's: ours begin with %s (GID %s), the peer's "
		"with %s (GID %s); both need RoCE v2 GIDs of one IP version, "
		"or one InfiniBand subnet",
		own->port[0].name, a, peer->port[0].name, b);
}

/* The pair is chosen: the other planes' queue pairs go. */
static int take(struct verbs_ep *ep, const struct verbs_offer *own, const struct verbs_offer *peer,
	const struct verbs_choice *c)
{
	const struct verbs_port *port = &own->port[c->own_port];
	struct verbs_plane *p = ep->t->plane[port->dev];
	ep->remote = peer->port[c->peer_port];
	memcpy(ep->remote_gid, ep->remote.gid[c->peer_gid].raw, 16);
	ep->peer_nonce = peer->nonce;
	ep->p = p;
	/* a lane's READ comes in no order, a WRITE upwards */
	if (p->software && ep->t->base.polled)
		ep->base.limits.put_min = 1;
	ep->own_port = port->port;
	ep->own_gid_index = port->gid[c->own_gid].index;
	ep->mtu = RPWI_MIN(port->mtu, ep->remote.mtu);
	ep->wide_due = port->wide && ep->remote.wide && c->reach != VERBS_REACH_SAME;
	ep->sq.qp = ep->made[p->index];
	ep->made[p->index] = NULL;
	made_free(ep);
	p->eps++;
	rpwi_list_add_tail(&ep->t->all, &ep->in_all);
	ep->window = ep->granted = VERBS_WINDOW_IDLE;
	ep->peer_granted = peer->window;
	rpwi_verbs_choice_text(own, peer, c, ep->base.path, sizeof(ep->base.path));
	if (rpwi_verbs_map_add(p, &ep->sq))
		return rpwi_last_error()->status;
	rpwi_verbs_rx_fill(p);
	if (ep->same_host)
		ep->peer = rpwi_verbs_peer_get(ep->t, ep->peer_pid);
	return rpwi_verbs_qp_connect(
		ep, ep->sq.qp, ep->psn[p->index], ep->remote.qpn, ep->remote.psn);
}

int rpwi_verbs_ep_start(
	struct tran_ep *base, const uint8_t *handle, size_t len, unsigned timeout_ms)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	struct verbs_offer own, peer;
	struct verbs_choice choice;
	if (ep->state != VERBS_EP_MADE)
		return rpwi_fail(RPW_ERR_INVALID, "verbs: the endpoint was started before");
	int rc = rpwi_verbs_offer_read(&peer, handle, len);
	if (rc)
		return rc;
	offer_fill(ep, &own);
	ep->state = VERBS_EP_STARTING;
	int status = rpwi_verbs_choose(&own, &peer, ep->active, ep->same_host, &choice)
			     ? take(ep, &own, &peer, &choice)
			     : no_pair(&own, &peer);
	if (status) {
		rpwi_verbs_ep_fail(ep, status, "%s", rpwi_last_error()->text);
		return 0;
	}
	ep->deadline_ns = rpwi_now_ns() + timeout_ms * RPWI_NS_PER_MS;
	rpwi_list_add_tail(&ep->t->starting, &ep->in_starting);
	/* The peer may not be there yet: then this one waits to be repeated, and the peer's own,
	 * which finds us, brings the peer's next one at once (a gap: NAK). */
	rpwi_verbs_control(ep, VERBS_FRAME_HELLO);
	return 0;
}

/* ---- the end ---- */

/* What a completion's status means for people; for the peer's side, what it refused. */
static const struct {
	enum ibv_wc_status status;
	int rpw;
	const char *text;
} meanings[] = {
	{IBV_WC_LOC_LEN_ERR, RPW_ERR_PROTOCOL,
		"the peer sent a frame that is longer than the receive's buffer"},
	{IBV_WC_LOC_QP_OP_ERR, RPW_ERR_SYSTEM,
		"the device found a work request of this side inconsistent"},
	{IBV_WC_LOC_PROT_ERR, RPW_ERR_ACCESS,
		"a local buffer is not accessible any more: was it unmapped or released before its "
		"operation was done?"},
	{IBV_WC_WR_FLUSH_ERR, RPW_ERR_SYSTEM, "the queue pair was taken to the error state"},
	{IBV_WC_BAD_RESP_ERR, RPW_ERR_PROTOCOL,
		"the peer's device sent an answer without a request"},
	{IBV_WC_LOC_ACCESS_ERR, RPW_ERR_ACCESS, "the peer asked for memory that is not open to it"},
	{IBV_WC_REM_INV_REQ_ERR, RPW_ERR_PROTOCOL,
		"the peer's device refused a request as invalid"},
	{IBV_WC_REM_ACCESS_ERR, RPW_ERR_ACCESS,
		"the peer's device refused the access: outside of what the peer registered, or the "
		"memory was released"},
	{IBV_WC_REM_OP_ERR, RPW_ERR_ACCESS,
		"the peer's device could not carry it out: was the memory unmapped there?"},
	{IBV_WC_RNR_RETRY_EXC_ERR, RPW_ERR_UNREACHABLE,
		"the peer had no receive for too long: its process makes no progress"},
	{IBV_WC_FATAL_ERR, RPW_ERR_SYSTEM, "the device failed"},
};

/* Frames, or operations on memory, fail for their size: the device says so; or short ones pass and
 * one that fills a packet does not; or all frames do, and no operation ever did. False: that is not
 * it. */
static bool fail_size(struct verbs_ep *ep, bool in_rma)
{
	char word[VERBS_PATH_WORD_BYTES];
	unsigned bytes, own = 128u << ep->mtu;
	unsigned said = rpwi_verbs_path_word(ep, ep->sq.qp, &bytes, word);
	bool starting = ep->state == VERBS_EP_STARTING && ep->greeted && ep->wide_said;
	bool known = (said & VERBS_WORD_OF_SIZE) && (!bytes || bytes < own);
	if (!known && !starting && !(in_rma && !ep->rma_done && ep->wide_due))
		return false;
	bool smaller = rpwi_verbs_way_narrow(ep->t, ep->host, ep->mtu, known ? bytes : 0);
	if (!known || !bytes)
		*word = 0;
	if (smaller)
		rpwi_warn("verbs: packets with an MTU of %u do not pass to %s%s%s; the next path "
			  "takes %u at most",
			own, ep->remote.name, *word ? ": " : "", word,
			128u << rpwi_verbs_way_mtu(ep->t, ep->host));
	rpwi_verbs_ep_fail(ep, RPW_ERR_UNREACHABLE,
		"packets with an MTU of %u do not pass, shorter ones do%s (%s)", own,
		smaller ? "; a smaller one is tried" : "", ep->base.path);
	return true;
}

void rpwi_verbs_ep_look(struct verbs_ep *ep, bool late)
{
	char word[VERBS_PATH_WORD_BYTES];
	unsigned bytes;
	if (!ep->greeted || !ep->wide_due)
		return;
	rpwi_verbs_say_wide(ep);
	bool size = rpwi_verbs_path_word(ep, ep->sq.qp, &bytes, word) & VERBS_WORD_OF_SIZE;
	/* That a larger size was lost before is a reason not to wait for all retries. */
	if (late || (size && (bytes || ++ep->looks > LOOKS_MAX) && bytes < 128u << ep->mtu))
		fail_size(ep, false);
}

static void fail_retries(struct verbs_ep *ep, const char *what, bool in_rma)
{
	char to[VERBS_GID_TEXT], word[VERBS_PATH_WORD_BYTES];
	unsigned bytes;
	bool ended = ep->peer && rpwi_verbs_peer_ended(ep->peer);
	if (!ended && fail_size(ep, in_rma))
		return;
	rpwi_verbs_path_word(ep, ep->sq.qp, &bytes, word);
	const char *why = "the peer's process ended or is stopped, its interface is down, UDP port "
			  "4791 is blocked on the way, a NAT lies between, or a link whose MTU is "
			  "too small";
	if (*word)
		why = word;
	if (ended)
		why = "the peer's process has ended";
	rpwi_verbs_ep_fail(ep, ended ? RPW_ERR_PEER_GONE : RPW_ERR_UNREACHABLE,
		"%s: %s from QPN 0x%06x (%s) to QPN 0x%06x (%s, GID %s) was not acknowledged", why,
		what, ep->sq.qp->qp_num, ep->base.path, ep->remote.qpn, ep->remote.name,
		rpwi_verbs_gid_text(ep->remote_gid, to, sizeof(to)));
}

void rpwi_verbs_ep_fail_wc(struct verbs_ep *ep, const struct ibv_wc *wc, const char *what)
{
	if (wc->status == IBV_WC_RETRY_EXC_ERR || wc->status == IBV_WC_RESP_TIMEOUT_ERR) {
		fail_retries(ep, what, ep->rma_qp && wc->qp_num != ep->sq.qp->qp_num);
		return;
	}
	const char *text = "see the peer's log";
	int status = RPW_ERR_SYSTEM;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(meanings); i++)
		if (meanings[i].status == wc->status) {
			text = meanings[i].text;
			status = meanings[i].rpw;
		}
	rpwi_verbs_ep_fail(ep, status, "%s on %s failed (%s, vendor 0x%x): %s", what, ep->base.path,
		ep->p->v->ibv_wc_status_str(wc->status), wc->vendor_err, text);
}

void rpwi_verbs_ep_free(struct verbs_ep *ep)
{
	struct verbs_plane *p = ep->p;
	rpwi_list_del(&ep->in_all);
	rpwi_list_del(&ep->in_starting);
	rpwi_list_del(&ep->in_todo);
	made_free(ep);
	if (p) {
		rpwi_verbs_rma_qp_free(ep);
		rpwi_verbs_ops_drop(ep);
		rpwi_verbs_peer_put(ep->t, ep->peer);
		rpwi_verbs_sq_free(ep, &ep->sq);
		p->eps--;
		p->rx_busy -= ep->window - VERBS_WINDOW_IDLE;
		rpwi_verbs_events_drain(p);
	}
	free(ep);
}

void rpwi_verbs_ep_close(struct tran_ep *base)
{
	struct verbs_ep *ep = verbs_ep_of(base);
	if (ep->state == VERBS_EP_STARTING)
		rpwi_verbs_control(ep, VERBS_FRAME_BYE);
	if (ep->state != VERBS_EP_UP) {
		rpwi_verbs_ep_free(ep);
		return;
	}
	/* Operations on memory end now. Frames that were taken are still delivered, and then the
	 * good-bye. */
	ep->state = VERBS_EP_CLOSING;
	rpwi_list_del(&ep->in_todo);
	rpwi_verbs_rma_qp_free(ep);
	rpwi_verbs_ops_drop(ep);
	ep->bye_said = rpwi_verbs_control(ep, VERBS_FRAME_BYE);
	ep->deadline_ns = rpwi_now_ns() + VERBS_LINGER_MS * RPWI_NS_PER_MS;
	rpwi_list_add_tail(&ep->t->lingering, &ep->in_starting);
}
