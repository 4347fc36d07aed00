/* SPDX-License-Identifier: BSD-3-Clause */
/* say.c - what one side tells the other over the control path (wire.h: SAY_*). */
#include "msg/connect.h"
#include "msg/objects.h"

#include <stdio.h>
#include <zlib.h>

static int say(rpw_endpoint *ep, enum boot_type type, uint8_t *m, size_t n)
{
	uint32_t crc = (uint32_t)crc32(0, m, (uInt)n);
	memcpy(m + n, &crc, 4);
	return boot_send(ep->boot, type, m, n + 4);
}

static int say_flagged(rpw_endpoint *ep, enum boot_type type, unsigned flags, const char *text)
{
	uint8_t m[BOOT_MESSAGE_MAX];
	size_t n = strnlen(text, 1000);
	struct say_word w = {.version = SAY_VERSION,
		.attempt = ep->next.attempt,
		.text_len = (uint16_t)n,
		.flags = (uint16_t)flags,
		.sent = ep->link.tx_count,
		.received = ep->link.rx_count};
	memcpy(m, &w, sizeof(w));
	memcpy(m + sizeof(w), text, n);
	return say(ep, type, m, sizeof(w) + n);
}

int say_word(rpw_endpoint *ep, enum boot_type type, const char *text)
{
	return say_flagged(ep, type, 0, text);
}

void say_broken(rpw_endpoint *ep, bool again, const char *why)
{
	say_flagged(ep, SAY_BROKEN, again ? SAY_AGAIN : 0, why);
}

void say_bye(rpw_endpoint *ep, const char *why)
{
	say_flagged(ep, SAY_BYE, ep->shut || ep->orderly ? SAY_ORDERLY : 0, why);
}

int say_path(rpw_endpoint *ep, enum boot_type type, int status, const char *name, const char *text,
	const uint8_t *handle, size_t handle_len)
{
	uint8_t m[BOOT_MESSAGE_MAX];
	size_t n = strnlen(text, 1000);
	struct say_path p = {.version = SAY_VERSION,
		.attempt = ep->next.attempt,
		.status = status,
		.message_tag = ep->message_tag,
		.control_tag = ep->control_tag,
		.domain = ep->c->domain,
		.received = ep->link.rx_count,
		.credit = ep->link.rx_limit,
		.text_len = (uint16_t)n,
		.handle_len = (uint16_t)handle_len};
	snprintf(p.transport, sizeof(p.transport), "%s", name);
	memcpy(m, &p, sizeof(p));
	memcpy(m + sizeof(p), text, n);
	if (handle_len)
		memcpy(m + sizeof(p) + n, handle, handle_len);
	ep->link.rx_told = ep->link.rx_limit;
	return say(ep, type, m, sizeof(p) + n + handle_len);
}
