/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_defer.c - connection requests for a service that nobody listens on, kept for a moment before
 * they are refused.
 *
 * Programs count on connecting being slow. perftest's server, for one, closes its listener once its
 * first client is there, and only then opens the one for the second connection that the client
 * begins at the same time; on a kernel some work queues lie between, here microseconds. So a
 * request waits HOLD_NS for its listener, and is refused then.
 */
#include "device/gsi_priv.h"

enum {
	HELD_MAX = 32, /* beyond that requests are refused at once */
	HOLD_NS = 100000000,
	LOOK_AGAIN_NS = 2000000,
	HELD_LEN = RPWI_HDR_MAX + RPWI_MAD_LEN + RPWI_ICRC_LEN,
};

static struct held {
	uint64_t until_ns; /* 0: free */
	struct rpwi_rx rx;
	uint8_t seg[HELD_LEN];
} held[HELD_MAX];
static uint64_t look_ns = RPWI_NEVER;

static bool is_request_for(const struct rpwi_pkt *pkt, uint64_t *service_id)
{
	uint16_t attr;
	uint32_t id;
	return pkt->dqpn == RPWI_GSI_QPN && gsi_well_formed(pkt) &&
	       rpwi_cm_peek(pkt->payload, pkt->payload_len, &attr, &id, service_id) &&
	       (attr == RPWI_CM_REQ || attr == RPWI_CM_SIDR_REQ);
}

/* A sender that asks again replaces what it asked before. */
static struct held *place_for(const struct rpwi_rx *rx, const struct rpwi_pkt *pkt)
{
	struct held *free_one = NULL;
	for (unsigned i = 0; i < HELD_MAX; i++) {
		struct rpwi_pkt was;
		if (!held[i].until_ns)
			free_one = free_one ? free_one : &held[i];
		else if (rpwi_addr_eq(&held[i].rx.flow.src, &rx->flow.src) &&
			 !rpwi_pkt_decode(held[i].seg, held[i].rx.len, &was) &&
			 !memcmp(was.payload, pkt->payload, RPWI_MAD_LEN))
			return &held[i];
	}
	return free_one;
}

bool gsi_defer(const struct rpwi_rx *rx, const uint8_t *seg, size_t len, const struct rpwi_pkt *pkt,
	uint64_t now_ns)
{
	uint64_t service_id;
	if (len > HELD_LEN || !is_request_for(pkt, &service_id) ||
		rpwi_steer_owns_service(hca_here.steer, service_id, &rx->flow.dst))
		return false;
	struct held *h = place_for(rx, pkt);
	if (!h)
		return false;
	h->rx = *rx;
	h->rx.len = h->rx.seg_len = len;
	h->rx.data = h->seg;
	memcpy(h->seg, seg, len);
	if (!h->until_ns)
		h->until_ns = now_ns + HOLD_NS;
	look_ns = RPWI_MIN(look_ns, now_ns + LOOK_AGAIN_NS);
	return true;
}

static struct dport *port_of(const struct rpwi_addr *a)
{
	struct hca *h = &hca_here;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_addr_eq(&h->port[i].addr, a))
			return &h->port[i];
	return NULL;
}

/* True when somebody has it now. */
static bool try_again(struct held *h, uint64_t now_ns)
{
	struct rpwi_pkt pkt;
	uint64_t service_id;
	struct dport *port = port_of(&h->rx.flow.dst);
	if (rpwi_pkt_decode(h->seg, h->rx.len, &pkt) || !is_request_for(&pkt, &service_id))
		return true;
	if (port && gsi_pass_on(port, &h->rx, h->seg, h->rx.len, &pkt)) {
		rpwi_port_timer(port->io, now_ns); /* gone before this place is used again */
		return true;
	}
	if (now_ns < h->until_ns &&
		!rpwi_steer_owns_service(hca_here.steer, service_id, &h->rx.flow.dst))
		return false;
	gsi_rx(&h->rx, &pkt, now_ns);
	return true;
}

uint64_t gsi_defer_deadline(void) { return look_ns; }

void gsi_defer_timer(uint64_t now_ns)
{
	if (now_ns < look_ns)
		return;
	look_ns = RPWI_NEVER;
	for (unsigned i = 0; i < HELD_MAX; i++) {
		if (!held[i].until_ns)
			continue;
		if (try_again(&held[i], now_ns))
			held[i].until_ns = 0;
		else
			look_ns = now_ns + LOOK_AGAIN_NS;
	}
}

void gsi_defer_forget(void)
{
	for (unsigned i = 0; i < HELD_MAX; i++)
		held[i].until_ns = 0;
	look_ns = RPWI_NEVER;
}
