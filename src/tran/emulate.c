/* SPDX-License-Identifier: BSD-3-Clause */
/* emulate.c - remote memory over frames and bulk data: what the transport tells. What it owes, and
 * the bytes, are in emulate.h; the files below this one are in emulate_priv.h. */
#include "tran/emulate.h"

#include <stdlib.h>

#include "tran/emulate_priv.h"

void emulate_frame(
	struct tran_ep *ep, const void *head, size_t head_len, const void *body, size_t body_len)
{
	uint8_t kind = *(const uint8_t *)head;
	struct ask a;
	struct done d;
	if (kind < EMULATED_DONE && head_len == sizeof(a)) {
		memcpy(&a, head, sizeof(a));
		emulate_asked(ep, &a, body, body_len);
	} else if (kind == EMULATED_DONE && head_len == sizeof(d)) {
		memcpy(&d, head, sizeof(d));
		emulate_answered(ep, &d, body, body_len);
	} else
		emulate_breach(ep, "a frame about memory that does not add up");
}

void emulate_moved(struct tran_ep *ep, void *cookie, int status)
{
	struct emulated_ep *e = ep->emulated;
	struct chunk *c = cookie;
	if (c >= e->chunk && c < e->chunk + EMULATED_WINDOW)
		emulate_chunk_moved(e, c, status);
	else
		emulate_served(e, cookie, status);
}

void emulate_room(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	if (e && emulate_serve_room(e))
		emulate_pump(e);
}

void emulate_ep_close(struct tran_ep *ep)
{
	struct emulated_ep *e = ep->emulated;
	ep->closed = true;
	if (!e)
		return;
	emulate_ask_close(e);
	for (unsigned i = 0; i < RPWI_ARRAY_LEN(e->serve); i++)
		rpwi_list_del(&e->serve[i].moving);
	free(e);
	ep->emulated = NULL;
}
