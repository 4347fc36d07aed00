/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_route.c - whose a management datagram is, of the processes of this host.
 *
 * All but requests carry the receiver's communication ID, whose top 12 bits are the slot of the
 * process that made it. A request names a service ID, and goes to the process that has claimed it.
 * Those of a process that is gone are answered where they land, as it would have answered them.
 */
#include "device/gsi_priv.h"

/* Requests handed over of late: their sender may take one back by a REJ that names no receiver,
 * since it has heard of none (IB 12.6.7.2). A ropeway's says what the request was for
 * (rpwi_cm_peek); another's lands where the request did, unless the group of processes has changed
 * in between. */
enum { PASSED_MAX = 256 };
static struct passed {
	struct rpwi_addr from;
	uint32_t comm_id; /* the sender's */
	uint64_t service_id;
} passed[PASSED_MAX];
static unsigned passed_next;

/* the first field of all of them (IB 12.6) */
static uint32_t sender_id(const uint8_t *mad) { return rpwi_get_be32(mad + RPWI_MAD_HDR_LEN); }

static void passed_add(const struct rpwi_rx *rx, const uint8_t *mad, uint64_t service_id)
{
	passed[passed_next++ % PASSED_MAX] = (struct passed){
		.from = rx->flow.src, .comm_id = sender_id(mad), .service_id = service_id};
}

static const struct passed *passed_find(const struct rpwi_rx *rx, const uint8_t *mad)
{
	for (unsigned i = 0; i < PASSED_MAX; i++)
		if (passed[i].comm_id == sender_id(mad) && passed[i].from.family &&
			rpwi_addr_eq(&passed[i].from, &rx->flow.src))
			return &passed[i];
	return NULL;
}

/* Does the slot of that ID belong to another process that lives? */
static bool is_anothers(uint32_t comm_id)
{
	unsigned slot = gsi_slot_of_id(comm_id);
	return !rpwi_steer_owns(hca_here.steer, slot << RPWI_SLOT_SHIFT) &&
	       rpwi_steer_slot_reachable(hca_here.steer, (uint16_t)slot);
}

bool gsi_pass_on(struct dport *port, const struct rpwi_rx *rx, const uint8_t *seg, size_t len,
	const struct rpwi_pkt *pkt)
{
	struct hca *h = &hca_here;
	const uint8_t *mad = pkt->payload;
	const struct passed *p = NULL;
	uint16_t attr;
	uint32_t id;
	uint64_t service_id;
	if (pkt->dqpn != RPWI_GSI_QPN || !gsi_well_formed(pkt) ||
		!rpwi_cm_peek(mad, pkt->payload_len, &attr, &id, &service_id))
		return false;
	bool taken_back = attr == RPWI_CM_REJ && !id && (service_id || (p = passed_find(rx, mad)));
	if (p)
		service_id = p->service_id;
	if (gsi_slot_is_request(attr) || taken_back) {
		if (rpwi_steer_owns_service(h->steer, service_id, &rx->flow.dst) ||
			!rpwi_port_hand_over_service(port->io, rx, seg, len, service_id))
			return false;
		if (!taken_back)
			passed_add(rx, mad, service_id);
	} else {
		if (!is_anothers(id))
			return false;
		rpwi_port_hand_over(port->io, rx, seg, len, gsi_slot_of_id(id) << RPWI_SLOT_SHIFT);
	}
	h->n.mads_handed_over++;
	return true;
}

/* A process that has ended left its peers with connections, or with handshakes: they are told that
 * there are none (IB 12.9.8.3), or they would ask for a minute. */
bool gsi_answer_for_gone(const struct rpwi_cm_path *path, const uint8_t *mad, size_t len)
{
	enum { REJECTED_REP = 1 };
	struct rpwi_cm_msg m;
	uint8_t out[RPWI_MAD_LEN];
	if (rpwi_cm_decode(mad, len, &m) || (m.attr != RPWI_CM_DREQ && m.attr != RPWI_CM_REP))
		return false;
	if (rpwi_steer_owns(hca_here.steer, gsi_slot_of_id(m.remote_comm_id) << RPWI_SLOT_SHIFT) ||
		is_anothers(m.remote_comm_id))
		return false;
	struct rpwi_cm_msg answer = {.attr = RPWI_CM_DREP,
		.tid = m.tid,
		.local_comm_id = m.remote_comm_id,
		.remote_comm_id = m.local_comm_id};
	if (m.attr == RPWI_CM_REP) {
		answer.attr = RPWI_CM_REJ;
		answer.rej.msg_rejected = REJECTED_REP;
		answer.rej.reason = RPWI_REJ_INVALID_COMM_ID;
	}
	rpwi_cm_encode(&answer, out);
	hca_here.n.mads_for_gone++;
	gsi_send(path, out);
	return true;
}
