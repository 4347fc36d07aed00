/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_wire.c - handles and greetings: functions too rare to be inline. */
#include "tran/tcp/tcp_wire.h"

#include <stdio.h>

static const uint8_t handle_magic[4] = {'R', 'P', 'T', 'H'},
		     greeting_magic[4] = {'R', 'P', 'T', 'G'};

size_t tcp_put_handle(uint8_t *p, const struct tcp_handle *h)
{
	memcpy(p, handle_magic, 4);
	rpwi_put_be16(p + 4, TCP_VERSION);
	rpwi_put_be16(p + 6, 0);
	rpwi_put_be16(p + 8, h->port);
	rpwi_put_be32(p + 10, h->number);
	memcpy(p + 14, h->nonce, TCP_NONCE_LEN);
	rpwi_put_be16(p + 30, (uint16_t)h->count);
	uint8_t *at = p + TCP_HANDLE_FIXED;
	for (unsigned i = 0; i < h->count; i++, at += TCP_ADDRESS_LEN) {
		at[0] = h->address[i].family;
		memcpy(at + 1, h->address[i].bytes, 16);
	}
	return (size_t)(at - p);
}

int tcp_get_handle(const uint8_t *p, size_t len, struct tcp_handle *h, char *why, size_t why_len)
{
	if (len < TCP_HANDLE_FIXED || memcmp(p, handle_magic, 4)) {
		snprintf(why, why_len,
			"the peer's handle of %zu bytes is not one of the tcp transport", len);
		return -1;
	}
	if (rpwi_get_be16(p + 4) != TCP_VERSION) {
		snprintf(why, why_len, "the peer's tcp transport speaks version %u, this one %u",
			rpwi_get_be16(p + 4), (unsigned)TCP_VERSION);
		return -1;
	}
	*h = (struct tcp_handle){.port = rpwi_get_be16(p + 8),
		.number = rpwi_get_be32(p + 10),
		.count = rpwi_get_be16(p + 30)};
	memcpy(h->nonce, p + 14, TCP_NONCE_LEN);
	if (h->count > TCP_ADDRESSES_MAX ||
		len != TCP_HANDLE_FIXED + (size_t)h->count * TCP_ADDRESS_LEN) {
		snprintf(why, why_len, "the peer's tcp handle names %u addresses in %zu bytes",
			h->count, len);
		return -1;
	}
	const uint8_t *at = p + TCP_HANDLE_FIXED;
	for (unsigned i = 0; i < h->count; i++, at += TCP_ADDRESS_LEN) {
		if (at[0] != 4 && at[0] != 6) {
			snprintf(why, why_len, "the peer's tcp handle has an address of family %u",
				at[0]);
			return -1;
		}
		h->address[i].family = at[0];
		memcpy(h->address[i].bytes, at + 1, 16);
	}
	return 0;
}

void tcp_put_greeting(uint8_t *p, const struct tcp_greeting *g)
{
	memcpy(p, greeting_magic, 4);
	rpwi_put_be16(p + 4, TCP_VERSION);
	rpwi_put_be16(p + 6, g->stream);
	rpwi_put_be32(p + 8, g->number);
	memcpy(p + 12, g->nonce, TCP_NONCE_LEN);
}

int tcp_get_greeting(const uint8_t *p, struct tcp_greeting *g)
{
	if (memcmp(p, greeting_magic, 4) || rpwi_get_be16(p + 4) != TCP_VERSION)
		return -1;
	*g = (struct tcp_greeting){.stream = rpwi_get_be16(p + 6), .number = rpwi_get_be32(p + 8)};
	memcpy(g->nonce, p + 12, TCP_NONCE_LEN);
	return g->stream < TCP_STREAMS_MAX ? 0 : -1;
}
