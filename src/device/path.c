/* SPDX-License-Identifier: BSD-3-Clause */
/* path.c - see path.h. Knowledge of the way to a peer address outlives its QPs: so it is told once,
 * and whoever tries again (the messaging library) can ask (rpwi_dev_path_word). The rest of a
 * message of ICMP that the kernel has not looked at is: the QPN and PSN that it quotes must be of a
 * packet that a QP of this process may have sent.
 */
#include "device/path.h"

#include "device/alive.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>

#include "explain/trace.h"
#include "wire/icrc.h"

enum {
	NOTES_MAX = 64,       /* peers; the one that was heard of longest ago makes room */
	PATH_SOLVED_MAX = 32, /* bad ICRCs, a second */
	PATH_HEARD_MAX = 64,  /* messages of ICMP, a second */
	FRESH_S = 30,         /* so long what was seen explains what fails; */
	WELL_MS = 1000,       /* since a packet of the peer came unharmed: there is no NAT */
	FRESH_END_S = 10,     /* what may be a peer's end, until it is there again */
	PSN_SLACK = 1 << 16,
	BIG_BYTES = 256, /* a packet with more may be too big; the smallest MTU has no less */
	/* IPv4, UDP, BTH, RETH, immediate data, ICRC: what a packet has beside its MTU; IPv6 has
	 * 20 more */
	HEADERS_V4 = 20 + 8 + 12 + 16 + 4 + 4,
	HEADERS_V6 = HEADERS_V4 + 20,
};

/* What an ICRC fitted last. */
struct guess {
	struct rpwi_addr src, dst;
	uint16_t sport;
	uint32_t psn;
	size_t len;
};

static struct note {
	struct rpwi_addr peer;
	uint64_t used_ns, seen_ns[RPWI_PATH_KINDS];
	uint32_t told; /* kinds, a bit each */
	bool told_silent;
	uint32_t mtu;   /* TOO_BIG: bytes of an IP packet that pass; 0 not known */
	uint32_t bytes; /* SIZE_LOST: of the payloads that did not come through */
	/* who says it; no family: this host itself */
	struct rpwi_addr by[RPWI_PATH_KINDS];
	struct rpwi_addr nat; /* where its packets come from instead */
	uint16_t nat_port, own_port;
	struct guess guess[2]; /* of a source, of a destination */
} notes[NOTES_MAX];

static char held[RPWI_WHY_LEN];
static uint64_t held_ns;

static const char *text_of(const struct rpwi_addr *a, char out[INET6_ADDRSTRLEN])
{
	if (!a->family ||
		!inet_ntop(a->family == 4 ? AF_INET : AF_INET6, a->bytes, out, INET6_ADDRSTRLEN))
		snprintf(out, INET6_ADDRSTRLEN, "?");
	return out;
}

static struct note *note_find(const struct rpwi_addr *peer)
{
	for (struct note *n = notes; n < notes + NOTES_MAX; n++)
		if (n->used_ns && rpwi_addr_eq(&n->peer, peer))
			return n;
	return NULL;
}

static struct note *note_get(const struct rpwi_addr *peer, uint64_t now_ns)
{
	struct note *n = note_find(peer), *oldest = notes;
	for (struct note *k = notes; !n && k < notes + NOTES_MAX; k++)
		if (k->used_ns < oldest->used_ns)
			oldest = k;
	if (!n) {
		n = oldest;
		*n = (struct note){.peer = *peer};
	}
	n->used_ns = now_ns;
	return n;
}

static bool fresh(const struct note *n, enum rpwi_path_kind k, uint64_t now_ns)
{
	bool end = k == RPWI_PATH_NO_PORT || k == RPWI_PATH_NO_HOST;
	return n->seen_ns[k] &&
	       now_ns - n->seen_ns[k] < (end ? FRESH_END_S : FRESH_S) * RPWI_NS_PER_S;
}

struct each_second {
	uint64_t second;
	unsigned n;
};
static struct {
	struct each_second heard, solved;
} limits;

/* So many in a second; then no more until the next. */
static bool may(struct each_second *e, unsigned most, uint64_t now_ns)
{
	if (now_ns / RPWI_NS_PER_S != e->second)
		*e = (struct each_second){.second = now_ns / RPWI_NS_PER_S};
	return e->n++ < most;
}

/* The largest MTU of RoCE whose packets fit; 0: none. */
static unsigned roce_mtu(const struct note *n)
{
	unsigned headers = n->peer.family == 6 ? HEADERS_V6 : HEADERS_V4, m = RPWI_MTU_MAX;
	while (m >= BIG_BYTES && m + headers > n->mtu)
		m /= 2;
	return m >= BIG_BYTES ? m : 0;
}

/* ---- in words: the fault, and its remedy ---- */

static void say_too_big(const struct note *n, const char *peer, const char *by, char *out, size_t z)
{
	char what[80] = "", use[80] = "a smaller one";
	if (n->mtu)
		snprintf(what, sizeof(what), "; up to %u bytes pass", n->mtu);
	if (n->mtu && roce_mtu(n))
		snprintf(use, sizeof(use), "%u or less", roce_mtu(n));
	snprintf(out, z,
		"packets to %s are too big for the path, says %s%s: use a path MTU of %s "
		"(ibv_qp_attr"
		".path_mtu; -m of most programs), or give all links between the two the same MTU",
		peer, by, what, use);
}

static void say_nat(const struct note *n, const char *peer, char *out, size_t z)
{
	char from[INET6_ADDRSTRLEN];
	snprintf(out, z,
		"there is a NAT on the path to %s: packets come from %s port %u with the ICRC of "
		"%s port %u, and are dropped. RoCE cannot pass a NAT: give the two hosts addresses "
		"that reach each other untranslated (a route, a tunnel), or use TCP",
		peer, text_of(&n->nat, from), n->nat_port, peer, n->own_port);
}

static void say(const struct note *n, enum rpwi_path_kind k, char *out, size_t z)
{
	char peer[INET6_ADDRSTRLEN], by_text[INET6_ADDRSTRLEN];
	bool local = !n->by[k].family;
	const char *by = local ? "this host" : text_of(&n->by[k], by_text);
	text_of(&n->peer, peer);
	switch (k) {
	case RPWI_PATH_TOO_BIG:
		say_too_big(n, peer, by, out, z);
		break;
	case RPWI_PATH_HOPS:
		snprintf(out, z,
			"packets to %s get as far as %s, where their hop limit is used up: look "
			"for a loop in the routes, or for a small limit (a connection's is its "
			"route's: ip route get; a datagram's that of its address handle)",
			peer, by);
		break;
	case RPWI_PATH_NO_PORT:
		if (rpwi_addr_eq(&n->by[k], &n->peer))
			snprintf(out, z,
				"no process has UDP port 4791 of %s: the peer's program has ended, "
				"or was not started, or a firewall there rejects the port",
				peer);
		else
			snprintf(out, z,
				"%s rejects packets to UDP port 4791 of %s: let the port pass "
				"there "
				"(`nft list ruleset`; security groups of a cloud)",
				by, peer);
		break;
	case RPWI_PATH_NO_HOST:
		snprintf(out, z,
			local ? "%s has no route to %s: `ip route get %s`"
			      : "%s says that %s is not reached: is that host up, and is the "
				"route to it right (`ip route get %s`)?",
			by, peer, peer);
		break;
	case RPWI_PATH_FORBIDDEN:
		snprintf(out, z,
			"packets to UDP port 4791 of %s are rejected by a firewall at %s: let the "
			"port "
			"pass (`nft list ruleset` there; security groups of a cloud)",
			peer, by);
		break;
	case RPWI_PATH_NAT:
		say_nat(n, peer, out, z);
		break;
	default:
		snprintf(out, z,
			"small packets to %s come through, but those of %u bytes do not: a link on "
			"the path has a smaller MTU, and no ICMP message reports it. Use a smaller "
			"path MTU (ibv_qp_attr.path_mtu; -m of most programs); `ropeway doctor` "
			"measures it",
			peer, n->bytes);
	}
}

static const struct {
	bool warns; /* as soon as it is seen; else in the line of what fails by it */
	enum rpwi_explain_fact fact;
} kinds[RPWI_PATH_KINDS] = {
	[RPWI_PATH_TOO_BIG] = {true, RPWI_FACT_TOO_BIG},
	[RPWI_PATH_HOPS] = {true, RPWI_FACT_HOPS},
	/* what a peer's end looks like, too */
	[RPWI_PATH_NO_PORT] = {false, RPWI_FACT_NO_PORT},
	[RPWI_PATH_NO_HOST] = {false, RPWI_FACT_NO_HOST},
	[RPWI_PATH_FORBIDDEN] = {true, RPWI_FACT_FORBIDDEN},
	[RPWI_PATH_NAT] = {true, RPWI_FACT_NAT},
	[RPWI_PATH_SIZE_LOST] = {false, RPWI_FACT_SIZE_LOST},
};

/* Count it, and report it if that has not been done. */
static void seen(
	struct hca *h, struct note *n, enum rpwi_path_kind k, uint32_t qpn, uint64_t now_ns)
{
	char text[RPWI_WHY_LEN];
	h->n.path[k]++;
	n->seen_ns[k] = now_ns;
	rpwi_explain_fact(kinds[k].fact, qpn, 1);
	if (n->told >> k & 1)
		return;
	n->told |= 1u << k;
	say(n, k, text, sizeof(text));
	rpwi_explain(RPWI_EXPLAIN_NOTE, "%s", text);
	if (kinds[k].warns)
		rpwi_warn("%s", text);
	else
		rpwi_info("%s", text);
}

/* ---- ICMP ---- */

/* May this QP have sent a packet that begins so? */
static bool may_have_sent(const struct dqp *q, const struct rpwi_addr *dst, const uint8_t *bth)
{
	uint32_t qpn = rpwi_get_be32(bth + 4) & RPWI_QPN_MASK,
		 psn = rpwi_get_be32(bth + 8) & RPWI_PSN_MASK;
	if (q->t.type == IBV_QPT_UD || q->t.state < IBV_QPS_RTR || q->t.attr.dest_qp_num != qpn ||
		!rpwi_addr_eq(&q->t.av.flow.dst, dst))
		return false;
	if (rpwi_op_is_response(bth[0] & 0x1f))
		return RPWI_MAX(rpwi_psn_diff(psn, q->t.epsn), -rpwi_psn_diff(psn, q->t.epsn)) <=
		       PSN_SLACK;
	int32_t behind = rpwi_psn_diff(psn, q->t.psn_max);
	return behind < 0 && rpwi_psn_diff(psn, q->t.una) >= -PSN_SLACK;
}

static const struct dqp *sender_of(
	const struct hca *h, const struct rpwi_addr *dst, const uint8_t *bth)
{
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j]) {
				qp_hold(h->qps[i][j]);
				if (may_have_sent(h->qps[i][j], dst, bth))
					return h->qps[i][j];
			}
	return NULL;
}

static bool is_peer(const struct hca *h, const struct rpwi_addr *dst)
{
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next)
		if (rpwi_addr_eq(&RPWI_CONTAINER_OF(l, struct dpeer, link)->addr, dst))
			return true;
	return false;
}

/* Datagrams (UD, and QP 1's) have no peer, and a quote may be too short to name one: then it has to
 * be about an address that is a QP's peer, or an address handle's; or about QP 1. */
static bool believed(const struct hca *h, const struct rpwi_icmp *m, const struct dqp **q)
{
	bool quotes = m->quoted >= RPWI_BTH_LEN;
	unsigned service = quotes ? m->quote[0] & RPWI_SVC_MASK : RPWI_SVC_UD;
	*q = NULL;
	if (service == RPWI_SVC_UD)
		return is_peer(h, &m->dst) ||
		       (quotes && rpwi_pkt_peek_qpn(m->quote, RPWI_BTH_LEN) == RPWI_GSI_QPN);
	*q = sender_of(h, &m->dst, m->quote);
	return *q;
}

static void icmp_said(struct hca *h, const struct rpwi_icmp *m, uint64_t now_ns)
{
	static const enum rpwi_path_kind means[RPWI_ICMP_KINDS] = {
		[RPWI_ICMP_TOO_BIG] = RPWI_PATH_TOO_BIG,
		[RPWI_ICMP_HOPS] = RPWI_PATH_HOPS,
		[RPWI_ICMP_NO_PORT] = RPWI_PATH_NO_PORT,
		[RPWI_ICMP_NO_HOST] = RPWI_PATH_NO_HOST,
		[RPWI_ICMP_FORBIDDEN] = RPWI_PATH_FORBIDDEN,
	};
	const struct dqp *q = NULL;
	if (!may(&limits.heard, PATH_HEARD_MAX, now_ns) || (!m->local && !believed(h, m, &q))) {
		h->n.icmp_unbelieved++;
		return;
	}
	struct note *n = note_get(&m->dst, now_ns);
	enum rpwi_path_kind k = means[m->kind];
	/* What a router said, the kernel says from then on. */
	if (!m->local || !fresh(n, k, now_ns))
		n->by[k] = m->from;
	if (m->kind == RPWI_ICMP_TOO_BIG)
		n->mtu = m->mtu;
	/* its own word, not that of a firewall on the way */
	if (m->kind == RPWI_ICMP_NO_PORT && rpwi_addr_eq(&m->from, &m->dst))
		alive_refused(&m->dst, now_ns);
	seen(h, n, k, q ? q->t.qpn : 0, now_ns);
}

bool path_no_port(const struct dqp *q)
{
	/* Within this host a port is nobody's for a moment, too, when one process closes it and
	 * another is about to open it: there slots and boards tell who is gone. */
	const struct note *n = q->t.av.loopback_zone ? NULL : note_find(&q->t.av.flow.dst);
	return n && n->seen_ns[RPWI_PATH_NO_PORT] > q->t.silent_from_ns &&
	       rpwi_addr_eq(&n->by[RPWI_PATH_NO_PORT], &n->peer);
}

static void port_said(struct hca *h, struct rpwi_port *port, uint64_t now_ns)
{
	struct rpwi_icmp m;
	while (rpwi_port_icmp(port, &m))
		icmp_said(h, &m, now_ns);
}

void path_heard(struct hca *h)
{
	uint64_t now_ns = rpwi_now_ns();
	for (unsigned i = 0; i < h->nports; i++) {
		if (!h->port[i].refs)
			continue;
		rpwi_port_hear_icmp(h->port[i].io);
		port_said(h, h->port[i].io, now_ns);
	}
}

void path_refused(
	struct hca *h, struct rpwi_port *port, const struct rpwi_av *av, uint32_t qpn, int rc)
{
	uint64_t now_ns = rpwi_now_ns();
	port_said(h, port, now_ns);
	enum rpwi_path_kind k;
	if (rc == -EMSGSIZE)
		k = RPWI_PATH_TOO_BIG;
	else if (rc == -ENETUNREACH || rc == -EHOSTUNREACH)
		k = RPWI_PATH_NO_HOST;
	else if (rc == -EPERM || rc == -EACCES)
		k = RPWI_PATH_FORBIDDEN;
	else
		return;
	struct note *n = note_get(&av->flow.dst, now_ns);
	if (n->seen_ns[k] && now_ns - n->seen_ns[k] < RPWI_NS_PER_S)
		return; /* ICMP has just said who */
	if (!fresh(n, k, now_ns))
		n->by[k] = (struct rpwi_addr){0};
	if (k == RPWI_PATH_TOO_BIG)
		n->mtu = rpwi_path_mtu(&av->flow.src, &av->flow.dst);
	seen(h, n, k, qpn, now_ns);
}

/* ---- ICRCs that fit another source ---- */

static bool names_itself(const struct rpwi_pkt *pkt, const struct rpwi_addr *a)
{
	uint8_t gid[16] = {[10] = 0xff, [11] = 0xff};
	memcpy(gid + 12, a->bytes, 4);
	for (size_t i = 0; i + sizeof(gid) <= pkt->payload_len; i++)
		if (!memcmp(pkt->payload + i, gid, sizeof(gid)))
			return true;
	return false;
}

/* The same guess from another packet: random damage does not do that. */
static bool again(struct guess *last, const struct guess *g, bool any_packet)
{
	bool same = rpwi_addr_eq(&last->src, &g->src) && rpwi_addr_eq(&last->dst, &g->dst) &&
		    last->sport == g->sport;
	bool other = any_packet || last->psn != g->psn || last->len != g->len;
	if (!same)
		*last = *g;
	return same && other;
}

static void nat_seen(struct hca *h, const struct rpwi_flow *came, const struct guess *g,
	const struct dqp *q, uint64_t now_ns)
{
	/* under the address by which this process knows the peer */
	struct note *n = note_get(&g->src, now_ns);
	n->nat = came->src;
	n->nat_port = came->sport;
	n->own_port = g->sport;
	seen(h, n, RPWI_PATH_NAT, q ? q->t.qpn : 0, now_ns);
}

/* With that source address, and this port or another: 2 surely, 1 it may be chance, 0 not. */
static int fits(struct rpwi_flow f, const uint8_t *seg, size_t len, uint16_t ip_id, uint16_t *sport)
{
	uint16_t id = ip_id;
	*sport = f.sport;
	switch (rpwi_icrc_check(&f, seg, len, &id)) {
	case RPWI_ICRC_OK:
		return 2;
	case RPWI_ICRC_OK_ID:
		return 1;
	default:
		return rpwi_icrc_solve_port(&f, seg, len, ip_id, sport);
	}
}

void path_bad_icrc(struct hca *h, const struct dqp *q, const struct rpwi_rx *rx, const uint8_t *seg,
	size_t len, uint16_t ip_id, const struct rpwi_pkt *pkt)
{
	uint64_t now_ns = rpwi_now_ns();
	struct guess g = {.src = rx->flow.src,
		.dst = rx->flow.dst,
		.sport = rx->flow.sport,
		.psn = pkt->psn,
		.len = len};
	struct rpwi_flow f = rx->flow;
	if (!may(&limits.solved, PATH_SOLVED_MAX, now_ns))
		return;
	/* A NAT changes all packets of a peer, damage some of them; and most damage that comes
	 * twice alike, as the guesses below do, is of one bit. */
	if ((q && q->heard_ns && now_ns - q->heard_ns < WELL_MS * RPWI_NS_PER_MS) ||
		rpwi_icrc_is_one_bit(&rx->flow, seg, len, ip_id))
		return;
	struct note *n = note_get(&rx->flow.src, now_ns);
	bool has_peer = q && q->t.type != IBV_QPT_UD && q->t.av.flow.dst.family == f.src.family;
	if (has_peer)
		f.src = g.src = q->t.av.flow.dst;
	int sure = fits(f, seg, len, ip_id, &g.sport);
	if (sure) {
		if (again(&n->guess[0], &g, true) || sure == 2)
			nat_seen(h, &rx->flow, &g, q, now_ns);
		return;
	}
	/* Every packet fits some address: the right one is named by the packet, or comes again. */
	g.sport = rx->flow.sport;
	for (int of_dst = 0; of_dst < 2; of_dst++) {
		g.src = rx->flow.src;
		g.dst = rx->flow.dst;
		if (!rpwi_icrc_solve_addr(
			    &rx->flow, seg, len, ip_id, of_dst, of_dst ? &g.dst : &g.src))
			return;
		bool named = !of_dst && pkt->dqpn == RPWI_GSI_QPN && names_itself(pkt, &g.src);
		if (again(&n->guess[of_dst], &g, false) || named) {
			nat_seen(h, &rx->flow, &g, q, now_ns);
			return;
		}
	}
}

/* ---- what fails by it ---- */

/* The gravest fault that is known and fresh, in that order; RPWI_PATH_KINDS: nothing is. */
static enum rpwi_path_kind cause(const struct note *n, uint64_t now_ns)
{
	static const enum rpwi_path_kind order[] = {RPWI_PATH_NAT, RPWI_PATH_TOO_BIG,
		RPWI_PATH_HOPS, RPWI_PATH_FORBIDDEN, RPWI_PATH_NO_HOST, RPWI_PATH_NO_PORT,
		RPWI_PATH_SIZE_LOST};
	for (size_t i = 0; n && i < RPWI_ARRAY_LEN(order); i++)
		if (fresh(n, order[i], now_ns))
			return order[i];
	return RPWI_PATH_KINDS;
}

/* Probes, which are small, were answered, and what lay behind una never came (rc/completer.c). */
static void size_lost(struct hca *h, const struct dqp *q, uint64_t now_ns)
{
	const struct rpwi_qp *t = &q->t;
	const struct rpwi_swqe *w = &t->sq[t->sq_head & t->sq_mask];
	if (!t->answers || w->len <= BIG_BYTES)
		return;
	struct note *n = note_get(&t->av.flow.dst, now_ns);
	n->bytes = RPWI_MIN(w->len, t->mtu);
	seen(h, n, RPWI_PATH_SIZE_LOST, t->qpn, now_ns);
}

/* Nobody says anything: what that may mean. Once for each peer. */
static void silent(const struct dqp *q, uint64_t now_ns)
{
	const struct rpwi_qp *t = &q->t;
	struct note *n = note_get(&t->av.flow.dst, now_ns);
	char peer[INET6_ADDRSTRLEN];
	if (n->told_silent)
		return;
	n->told_silent = true;
	unsigned headers = n->peer.family == 6 ? HEADERS_V6 : HEADERS_V4;
	rpwi_warn(
		"QP 0x%06x: retries exceeded (status 12): %s came from %s, not even a refusal: its "
		"host or program is gone or stopped, or a firewall drops UDP port 4791, or a NAT "
		"or a link with an MTU below %u bytes lies between (`ropeway doctor %s` looks)",
		t->qpn, t->acked ? "no answer any more" : "no answer", text_of(&n->peer, peer),
		t->mtu + headers, peer);
}

void path_retries_exceeded(struct hca *h, const struct dqp *q)
{
	uint64_t now_ns = rpwi_now_ns();
	char text[RPWI_WHY_LEN], addr[INET6_ADDRSTRLEN];
	if (q->peer_gone) {
		rpwi_warn("QP 0x%06x: retries exceeded (status 12): the program at the other end "
			  "(QP 0x%06x at %s) has ended or has closed its device",
			q->t.qpn, q->t.attr.dest_qp_num, text_of(&q->t.av.flow.dst, addr));
		return;
	}
	const struct note *n = note_find(&q->t.av.flow.dst);
	enum rpwi_path_kind k = cause(n, now_ns);
	if (k == RPWI_PATH_KINDS || k == RPWI_PATH_NO_PORT) {
		size_lost(h, q, now_ns);
		n = note_find(&q->t.av.flow.dst);
		k = cause(n, now_ns);
	}
	if (k != RPWI_PATH_KINDS) {
		say(n, k, text, sizeof(text));
		rpwi_warn("QP 0x%06x: retries exceeded (status 12): %s", q->t.qpn, text);
	} else if (!q->t.av.loopback_zone) {
		silent(q, now_ns);
	}
}

void path_port_held(struct hca *h, const char *why)
{
	snprintf(held, sizeof(held), "%s", why);
	held_ns = rpwi_now_ns();
	h->n.path_held++;
	rpwi_explain(RPWI_EXPLAIN_NOTE, "%s", why);
}

unsigned rpwi_dev_path_word(struct ibv_qp *ibv, unsigned *mtu, char *text, size_t room)
{
	unsigned all = 0;
	hca_lock();
	uint64_t now_ns = rpwi_now_ns();
	const struct note *n = note_find(&to_dqp(ibv)->t.av.flow.dst);
	*mtu = n && fresh(n, RPWI_PATH_TOO_BIG, now_ns) && n->mtu ? roce_mtu(n) : 0;
	for (int k = 0; n && k < RPWI_PATH_KINDS; k++)
		all |= (unsigned)fresh(n, k, now_ns) << k;
	enum rpwi_path_kind k = cause(n, now_ns);
	if (room)
		*text = 0;
	if (k != RPWI_PATH_KINDS)
		say(n, k, text, room);
	else if (held_ns && now_ns - held_ns < RPWI_NS_PER_S)
		snprintf(text, room, "%s", held);
	hca_unlock();
	return all;
}
