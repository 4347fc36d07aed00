/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_slot.c - what a management datagram says of processes: the slot in a communication ID, and
 * whether it is one at all. */
#include "device/gsi_priv.h"

enum {
	COMM_ID_SLOT_SHIFT = 20, /* communication ID: 12 bits of slot, then the engine's */
};
_Static_assert(RPWI_SLOT_MAX < 1 << (32 - COMM_ID_SLOT_SHIFT), "a slot fits in a communication ID");

unsigned gsi_slot_of_id(uint32_t comm_id) { return comm_id >> COMM_ID_SLOT_SHIFT; }

/* IB 9.6.1.3 and 13.5.3: to QP 1 goes a UD SEND ONLY with its well-known Q_Key and the default
 * P_Key, and MADs are of one size. */
bool gsi_well_formed(const struct rpwi_pkt *pkt)
{
	return pkt->opcode == (RPWI_SVC_UD | RPWI_OP_SEND_ONLY) && pkt->qkey == RPWI_GSI_QKEY &&
	       (pkt->pkey | 0x8000) == RPWI_PKEY_DEFAULT && pkt->payload_len == RPWI_MAD_LEN;
}

bool gsi_slot_is_request(uint16_t attr) { return attr == RPWI_CM_REQ || attr == RPWI_CM_SIDR_REQ; }

uint16_t gsi_slot_of_receiver(const uint8_t *mad)
{
	uint16_t attr;
	uint32_t id;
	uint64_t service_id;
	if (!hca_here.steer || !rpwi_cm_peek(mad, RPWI_MAD_LEN, &attr, &id, &service_id) ||
		gsi_slot_is_request(attr) || !id)
		return 0;
	unsigned slot = gsi_slot_of_id(id);
	bool own = rpwi_steer_owns(hca_here.steer, slot << RPWI_SLOT_SHIFT);
	return own || slot > RPWI_SLOT_MAX ? 0 : (uint16_t)slot;
}
