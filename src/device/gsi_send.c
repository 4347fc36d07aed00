/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_send.c - packets of QP 1 go out: the local addresses and ports that they go from. */
#include "device/devices.h"
#include "device/fault.h"
#include "device/gsi.h"
#include "device/gsi_priv.h"
#include "device/path.h"
#include "device/ports.h"
#include "device/tally.h"

/* A local address from which MADs go. */
struct gport {
	struct rpwi_addr addr;
	struct dport *port; /* NULL: free */
	unsigned refs;
	/* opened to answer a request that was handed over to us; stays until the engine goes */
	bool on_demand;
};

static struct {
	struct gport port[DEV_PORTS_MAX];
	uint32_t psn;
	struct rpwi_txb txb;
} gsi;

void gsi_send_begin(uint32_t psn) { gsi.psn = psn; }

/* ---- addresses ---- */

static bool same_addr(const struct rpwi_addr *a, const struct rpwi_addr *b)
{
	return rpwi_addr_eq(a, b) && (!a->scope || !b->scope || a->scope == b->scope);
}

void rpwi_gsi_gid(const struct rpwi_addr *a, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (a->family == 4) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, a->bytes, 4);
	} else {
		memcpy(gid, a->bytes, 16);
	}
}

struct rpwi_addr rpwi_gsi_addr(const uint8_t gid[16])
{
	struct rpwi_addr a;
	union ibv_gid raw;
	memcpy(raw.raw, gid, sizeof(raw.raw));
	gid_to_addr(&raw, 0, &a);
	return a;
}

/* A GID that is `a` itself is better than one that is carried by it (the made-up link-local one of
 * lo). */
const struct dev *gsi_dev_of(const struct rpwi_addr *a, unsigned *index)
{
	const struct dev *carrier = NULL;
	uint8_t raw[16];
	rpwi_gsi_gid(a, raw);
	for (const struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count; i++) {
			const struct rpwi_gid *g = &d->net.gid[i];
			if (!g->usable || !same_addr(&g->addr, a))
				continue;
			if (!memcmp(g->raw, raw, 16)) {
				*index = i;
				return d;
			}
			if (!carrier) {
				carrier = d;
				*index = i;
			}
		}
	return carrier;
}

bool gsi_is_own(const struct rpwi_addr *a)
{
	unsigned index;
	return (a->family == 4 && a->bytes[0] == 127) || gsi_dev_of(a, &index);
}

/* The made-up link-local GID of lo is carried by another address: see io.h. */
static struct rpwi_addr carrier_of(const struct rpwi_addr *a)
{
	if (a->family == 6)
		for (const struct dev *d = dev_first(); d; d = d->next)
			for (unsigned i = 0; d->present && i < d->net.gid_count; i++)
				if (d->net.gid[i].addr.family &&
					!memcmp(d->net.gid[i].raw, a->bytes, 16) &&
					(!a->scope || (int)a->scope == d->net.ifindex))
					return d->net.gid[i].addr;
	return *a;
}

/* ---- ports ---- */

static struct gport *port_find(const struct rpwi_addr *a)
{
	for (unsigned i = 0; i < DEV_PORTS_MAX; i++)
		if (gsi.port[i].port && same_addr(&gsi.port[i].addr, a))
			return &gsi.port[i];
	return NULL;
}

static struct gport *port_new(const struct rpwi_addr *a, char *why, size_t why_len, int *err)
{
	struct gport *p = gsi.port;
	while (p < gsi.port + DEV_PORTS_MAX && p->port)
		p++;
	if (p == gsi.port + DEV_PORTS_MAX) {
		*err = -ENOSPC;
		snprintf(
			why, why_len, "more than %d local addresses in use at once", DEV_PORTS_MAX);
		return NULL;
	}
	struct dport *d = port_get(a, false, why, why_len, err);
	if (!d)
		return NULL;
	*p = (struct gport){.addr = *a, .port = d};
	return p;
}

int rpwi_gsi_port_get(const struct rpwi_addr *local, char *why, size_t why_len)
{
	struct rpwi_addr a = carrier_of(local);
	struct gport *p = port_find(&a);
	int err = -ENETDOWN;
	if (!hca_here.steer) {
		snprintf(why, why_len, "no device is open");
		return err;
	}
	if (!p)
		p = port_new(&a, why, why_len, &err);
	if (!p)
		return err;
	p->refs++;
	return 0;
}

void gsi_send_ports_sweep(bool all)
{
	for (unsigned i = 0; i < DEV_PORTS_MAX; i++) {
		struct gport *p = &gsi.port[i];
		if (!p->port || (!all && (p->refs || p->on_demand)))
			continue;
		port_put(p->port);
		p->port = NULL;
	}
}

/* An unused one stays open: a program that connects again and again would otherwise leave and join
 * the port group each time, and all members learn their places anew. */
void rpwi_gsi_port_put(const struct rpwi_addr *local)
{
	struct rpwi_addr a = carrier_of(local);
	struct gport *p = port_find(&a);
	if (p && p->refs)
		p->refs--;
}

/* Requests for a claim on all addresses come by hand-over for addresses that nobody here has
 * opened. */
static struct gport *port_to_send(const struct rpwi_addr *local)
{
	struct gport *p = port_find(local);
	char why[RPWI_WHY_LEN] = "";
	int err = -EADDRNOTAVAIL;
	if (p)
		return p;
	p = hca_here.steer && gsi_is_own(local) ? port_new(local, why, sizeof(why), &err) : NULL;
	if (p)
		p->on_demand = true;
	else
		rpwi_debug("a CM message cannot be sent: %s", *why ? why : strerror(-err));
	return p;
}

/* One packet of its own. `payload` of it may be NULL. */
static void add_packet(struct rpwi_txb *b, const struct rpwi_pkt *pkt)
{
	struct rpwi_txpkt *t = &b->pkt[b->npkt++];
	t->hdr_len = (uint16_t)rpwi_pkt_encode(pkt, t->hdr);
	t->pad = 0;
	t->payload_len = (uint16_t)pkt->payload_len;
	t->iov_first = (uint16_t)b->niov;
	t->iov_count = pkt->payload_len ? 1 : 0;
	if (pkt->payload_len)
		b->iov[b->niov++] = (struct rpwi_iov){pkt->payload, pkt->payload_len};
}

/* Slot 0: the port group chooses who gets it. */
static void send_packet(const struct rpwi_addr *local, const struct rpwi_addr *remote,
	uint8_t hop_limit, uint8_t tclass, const struct rpwi_pkt *pkt, uint16_t slot)
{
	struct rpwi_av av = {.flow = {.src = carrier_of(local),
				     .dst = carrier_of(remote),
				     .dport = RPWI_UDP_PORT},
		.hop_limit = hop_limit ? hop_limit : GSI_HOP_LIMIT,
		.tclass = tclass};
	unsigned sent;
	struct gport *p = port_to_send(&av.flow.src);
	if (!p) {
		hca_here.n.mads_unsent++;
		return;
	}
	av.loopback_zone = gsi_is_own(&av.flow.dst);
	av.port = p->port->io;
	rpwi_txb_reset(&gsi.txb);
	gsi.txb.av = &av;
	add_packet(&gsi.txb, pkt);
	int rc = slot && av.loopback_zone
			 ? rpwi_port_send_to_slot(p->port->io, &gsi.txb, slot, &sent)
			 : rpwi_port_send(p->port->io, &gsi.txb, &sent);
	if (rc)
		path_refused(&hca_here, p->port->io, &av, 0, rc);
	if (rc && rc != -EREMOTEIO) {
		hca_here.n.mads_unsent++;
		rpwi_debug("a management packet was not sent: %s", strerror(-rc));
	}
}

void gsi_send_packet(const struct rpwi_addr *local, const struct rpwi_addr *remote,
	uint8_t hop_limit, uint8_t tclass, const struct rpwi_pkt *pkt)
{
	send_packet(local, remote, hop_limit, tclass, pkt, 0);
}

static struct rpwi_pkt packet_of(const uint8_t *mad, uint32_t dqpn)
{
	uint32_t psn = gsi.psn;
	gsi.psn = rpwi_psn_add(gsi.psn, 1);
	return (struct rpwi_pkt){.opcode = RPWI_SVC_UD | RPWI_OP_SEND_ONLY,
		.migreq = true,
		.pkey = RPWI_PKEY_DEFAULT,
		.dqpn = dqpn,
		.psn = psn,
		.qkey = RPWI_GSI_QKEY,
		.sqpn = RPWI_GSI_QPN,
		.payload = mad,
		.payload_len = RPWI_MAD_LEN};
}

void gsi_send_mad_to(const struct rpwi_addr *local, const struct rpwi_addr *remote, uint32_t dqpn,
	const uint8_t *mad)
{
	struct rpwi_pkt pkt = packet_of(mad, dqpn);
	gsi_send_packet(local, remote, 0, 0, &pkt);
}

void gsi_send(const struct rpwi_cm_path *path, const uint8_t *mad)
{
	if (RPWI_UNLIKELY(rpwi_plan_on) && fault_cm_tx(path, mad))
		return;
	struct rpwi_pkt pkt = packet_of(mad, RPWI_GSI_QPN);
	send_packet(&path->local, &path->remote, path->hop_limit, path->traffic_class, &pkt,
		gsi_slot_of_receiver(mad));
	struct rpwi_qp_stats *n = tally_at(dev_first(), &path->local);
	n->tx_packets++;
	n->tx_bytes += RPWI_MAD_LEN;
}
