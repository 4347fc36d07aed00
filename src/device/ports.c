/* SPDX-License-Identifier: BSD-3-Clause */
/* ports.c - the local addresses that are open, the peers' that are known, and what both share among
 * QPs: a port its sockets, a peer process the window towards it. */
#include <stdlib.h>

#include "device/hca.h"
#include "device/ports.h"

void port_stats_add(const struct rpwi_port *io, struct rpwi_port_stats *sum)
{
	struct rpwi_port_stats s;
	rpwi_port_stats(io, &s);
	sum->rx_overflow += s.rx_overflow;
	sum->tx_refused += s.tx_refused;
	sum->resteered += s.resteered;
	sum->icmp_lost += s.icmp_lost;
	/* Of the process, not of the port. */
	sum->taken_over = s.taken_over;
	sum->hand_over_lost = s.hand_over_lost;
}

/* How long a port stays open that nobody uses any more. The service thread closes it: as long as
 * that thread waits in poll, a socket that another one has closed stays in the kernel's port group,
 * and takes packets that are meant for the socket opened next. */
#define IDLE_NS (20 * RPWI_NS_PER_MS)

static void port_close(struct dport *p)
{
	port_stats_add(p->io, &hca_here.ports_gone);
	rpwi_port_close(p->io);
	p->io = NULL;
	p->refs = 0;
}

static void is_used_again(struct dport *p)
{
	p->close_ns = 0;
	atomic_fetch_sub(&hca_here.idle_ports, 1);
}

/* It is wanted for more than lanes, which may be all that it serves. */
static int port_take(struct dport *p, char *why, size_t why_len)
{
	struct rpwi_port *io;
	if (RPWI_LIKELY(!rpwi_port_is_mute(p->io)))
		return 0;
	int rc = rpwi_port_open(hca_here.steer, &p->addr, false, &io, why, why_len);
	if (!rc)
		rpwi_port_close(io); /* the same one */
	return rc;
}

struct dport *port_get(
	const struct rpwi_addr *a, bool lanes_do, char *why, size_t why_len, int *err)
{
	struct hca *h = &hca_here;
	struct dport *p = NULL;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_addr_eq(&h->port[i].addr, a)) {
			int rc = lanes_do ? 0 : port_take(&h->port[i], why, why_len);
			if (rc) {
				*err = rc;
				return NULL;
			}
			if (h->port[i].close_ns)
				is_used_again(&h->port[i]);
			else
				h->port[i].refs++;
			return &h->port[i];
		}
	for (unsigned i = 0; i < DEV_PORTS_MAX && !p; i++)
		if (!h->port[i].refs)
			p = &h->port[i];
	for (unsigned i = 0; i < DEV_PORTS_MAX && !p; i++)
		if (h->port[i].close_ns) {
			p = &h->port[i];
			is_used_again(p);
			port_close(p);
		}
	if (!p) {
		*err = -ENOSPC;
		snprintf(
			why, why_len, "more than %d local addresses in use at once", DEV_PORTS_MAX);
		return NULL;
	}
	int rc = rpwi_port_open(h->steer, a, lanes_do, &p->io, why, why_len);
	if (rc) {
		*err = rc;
		return NULL;
	}
	p->addr = *a;
	p->refs = 1;
	p->quiet = 0;
	h->nports = RPWI_MAX(h->nports, (unsigned)(p - h->port) + 1);
	service_wake();
	return p;
}

void port_put(struct dport *p)
{
	struct hca *h = &hca_here;
	if (!p || --p->refs)
		return;
	p->refs = 1;
	p->close_ns = rpwi_now_ns() + IDLE_NS;
	atomic_fetch_add(&h->idle_ports, 1);
	/* awake, or with an earlier time to wake at, it finds this by itself */
	if (atomic_load_explicit(&h->service_sleeps, memory_order_relaxed) &&
		p->close_ns < h->service_wake_ns)
		service_wake();
}

void ports_tend(bool all, void (*before)(struct dport *p))
{
	struct hca *h = &hca_here;
	uint64_t now_ns = rpwi_now_ns();
	for (unsigned i = 0; i < h->nports; i++) {
		struct dport *p = &h->port[i];
		if (!p->close_ns || (!all && p->close_ns > now_ns))
			continue;
		is_used_again(p);
		before(p);
		port_close(p);
	}
}

uint64_t ports_deadline(void)
{
	struct hca *h = &hca_here;
	uint64_t at = RPWI_NEVER;
	if (RPWI_LIKELY(!atomic_load_explicit(&h->idle_ports, memory_order_relaxed)))
		return at;
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].close_ns)
			at = RPWI_MIN(at, h->port[i].close_ns);
	return at;
}

struct dpeer *peer_get(const struct rpwi_addr *a, uint32_t dqpn, unsigned mtu_bytes)
{
	struct hca *h = &hca_here;
	uint32_t max = rpwi_cc_window(mtu_bytes, rpwi_rcvbuf_bytes());
	for (struct rpwi_list *l = h->peers.next; l != &h->peers; l = l->next) {
		struct dpeer *p = RPWI_CONTAINER_OF(l, struct dpeer, link);
		if (p->slot == dqpn >> RPWI_SLOT_SHIFT && rpwi_addr_eq(&p->addr, a)) {
			p->refs++;
			rpwi_cc_at_most(&p->cc, max);
			return p;
		}
	}
	struct dpeer *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	rpwi_cc_init(&p->cc, RPWI_MIN(64u, max), max);
	p->addr = *a;
	p->slot = dqpn >> RPWI_SLOT_SHIFT;
	p->refs = 1;
	rpwi_list_init(&p->blocked);
	rpwi_list_init(&p->wait_link);
	rpwi_list_add_tail(&h->peers, &p->link);
	return p;
}

void peer_put(struct dpeer *p)
{
	if (!p || --p->refs)
		return;
	rpwi_list_del(&p->wait_link);
	rpwi_list_del(&p->link);
	free(p);
}
