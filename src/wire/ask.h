/* SPDX-License-Identifier: BSD-3-Clause */
/* ask.h - "which of these processes of your host are still there?": one management datagram, and
 * its answer. Encode and decode, no state.
 *
 * A process is known by its slot, the upper 12 bits of its QPNs. The datagram is a UD SEND ONLY
 * with the Q_Key of QP 1 and one MAD of 256 bytes, of a vendor class with an OUI (IB 16.5, classes
 * 0x30 to 0x4f), so that who does not know it drops it. The question goes to QP 1, or, once it is
 * known, to the slot of that host's helper; the answer to the asker's slot: a QPN with index 0,
 * which no QP of a ropeway has.
 */
#ifndef ROPEWAY_WIRE_ASK_H
#define ROPEWAY_WIRE_ASK_H

#include "wire/mad.h"

enum { RPWI_ASK_SLOTS = 96 };

struct rpwi_ask {
	bool answer;
	uint64_t tid;         /* random; the answer has the question's */
	uint16_t from_slot;   /* of the question: where the answer goes */
	uint16_t helper_slot; /* of the answer: the helper of the host's, 0: none known */
	bool by_helper;       /* of the answer: it is itself the helper's */
	uint16_t n;           /* slots asked about */
	uint16_t slot[RPWI_ASK_SLOTS];
	uint8_t there[RPWI_ASK_SLOTS / 8]; /* of the answer: a bit for each */
};

/* Writes RPWI_MAD_LEN bytes. */
void rpwi_ask_encode(const struct rpwi_ask *a, uint8_t *mad);
/* 0; -EPROTONOSUPPORT: something else; -EBADMSG: a field out of its range. */
int rpwi_ask_decode(const uint8_t *mad, size_t len, struct rpwi_ask *out);

#endif
