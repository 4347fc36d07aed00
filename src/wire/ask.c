/* SPDX-License-Identifier: BSD-3-Clause */
/* ask.c - see ask.h. */
#include "wire/ask.h"

#include <string.h>

enum {
	BASE_VERSION = 1,
	CLASS = 0x3a, /* vendor class with an OUI (IB 16.5) */
	CLASS_VERSION = 1,
	GET = 0x01,
	GET_RESP = 0x81, /* IB 13.4.5 */
	ATTR_SLOTS = 0x0010,
	OUI = 0x726f70,
	/* the MAD header is 24 bytes, an RMPP header of zeros 12 (IB figure 208) */
	TID_AT = 8,
	ATTR_AT = 16,
	OUI_AT = 37,
	FROM_AT = 40,
	HELPER_AT = 42,
	FLAGS_AT = 44,
	COUNT_AT = 46,
	SLOTS_AT = 48,
	THERE_AT = SLOTS_AT + 2 * RPWI_ASK_SLOTS,
	BY_HELPER = 1,
	ANSWERED = 2,
	STATUS_AT = 4,
	SLOT_LIMIT = 4095,
};
_Static_assert((int)THERE_AT + RPWI_ASK_SLOTS / 8 <= RPWI_MAD_LEN, "fits in a MAD");

void rpwi_ask_encode(const struct rpwi_ask *a, uint8_t *mad)
{
	memset(mad, 0, RPWI_MAD_LEN);
	mad[0] = BASE_VERSION;
	mad[1] = CLASS;
	mad[2] = CLASS_VERSION;
	mad[3] = a->answer ? GET_RESP : GET;
	rpwi_put_be64(mad + TID_AT, a->tid);
	rpwi_put_be16(mad + ATTR_AT, ATTR_SLOTS);
	rpwi_put_be24(mad + OUI_AT, OUI);
	rpwi_put_be16(mad + FROM_AT, a->from_slot);
	rpwi_put_be16(mad + HELPER_AT, a->helper_slot);
	uint16_t flags = a->by_helper ? BY_HELPER : 0;
	flags |= a->answer ? ANSWERED : 0;
	rpwi_put_be16(mad + FLAGS_AT, flags);
	rpwi_put_be16(mad + COUNT_AT, a->n);
	for (unsigned i = 0; i < a->n && i < RPWI_ASK_SLOTS; i++)
		rpwi_put_be16(mad + SLOTS_AT + 2 * (size_t)i, a->slot[i]);
	memcpy(mad + THERE_AT, a->there, sizeof(a->there));
}

int rpwi_ask_decode(const uint8_t *mad, size_t len, struct rpwi_ask *out)
{
	if (len != RPWI_MAD_LEN || mad[0] != BASE_VERSION || mad[1] != CLASS ||
		mad[2] != CLASS_VERSION || (mad[3] != GET && mad[3] != GET_RESP) ||
		rpwi_get_be16(mad + ATTR_AT) != ATTR_SLOTS || rpwi_get_be24(mad + OUI_AT) != OUI)
		return -EPROTONOSUPPORT;
	/* Who does not know the class may return the question with a status (IB 13.4.7): Linux
	 * does, and it must not be read as "none of them is there". */
	uint16_t flags = rpwi_get_be16(mad + FLAGS_AT);
	if (rpwi_get_be16(mad + STATUS_AT) || !(flags & ANSWERED) != (mad[3] == GET))
		return -EBADMSG;
	*out = (struct rpwi_ask){.answer = mad[3] == GET_RESP,
		.tid = rpwi_get_be64(mad + TID_AT),
		.from_slot = rpwi_get_be16(mad + FROM_AT),
		.helper_slot = rpwi_get_be16(mad + HELPER_AT),
		.by_helper = flags & BY_HELPER,
		.n = rpwi_get_be16(mad + COUNT_AT)};
	if (out->n > RPWI_ASK_SLOTS || out->from_slot >= SLOT_LIMIT ||
		out->helper_slot >= SLOT_LIMIT || (!out->answer && !out->from_slot))
		return -EBADMSG;
	for (unsigned i = 0; i < out->n; i++) {
		out->slot[i] = rpwi_get_be16(mad + SLOTS_AT + 2 * (size_t)i);
		if (out->slot[i] >= SLOT_LIMIT)
			return -EBADMSG;
	}
	memcpy(out->there, mad + THERE_AT, sizeof(out->there));
	return 0;
}
