/* SPDX-License-Identifier: BSD-3-Clause */
/* handle.c - the 128 bytes that listen gives and connect takes: made, and refused by name. */
#include "nccl/plugin.h"

#include <ctype.h>
#include <stdio.h>
#include <zlib.h>

static const uint8_t magic[8] = {'r', 'p', 'w', '-', 'n', 'c', 'c', 'l'};

static uint32_t crc_of(const struct plugin_handle *h)
{
	struct plugin_handle bare = *h;
	bare.crc = 0;
	bare.token = 0;
	return (uint32_t)crc32(0, (const uint8_t *)&bare, sizeof(bare));
}

void plugin_handle_make(struct plugin_handle *h, int abi, const uint8_t *nonce, const char *address)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->magic, magic, sizeof(magic));
	h->layout = PLUGIN_HANDLE_LAYOUT;
	h->abi = (uint16_t)abi;
	snprintf(h->version, sizeof(h->version), "%s", ROPEWAY_VERSION);
	memcpy(h->nonce, nonce, sizeof(h->nonce));
	snprintf(h->address, sizeof(h->address), "%s", address);
	h->crc = crc_of(h);
}

/* "72 70 77 2d 6e 63 63 6c (rpw-nccl)" */
static const char *first_bytes(const struct plugin_handle *h, char *text, size_t len)
{
	char letters[9] = "";
	size_t n = 0;
	for (int i = 0; i < 8; i++) {
		n += (size_t)snprintf(text + n, len - n, "%02x ", h->magic[i]);
		letters[i] = isprint(h->magic[i]) ? (char)h->magic[i] : '.';
	}
	snprintf(text + n, len - n, "(%s)", letters);
	return text;
}

static bool all_zero(const struct plugin_handle *h)
{
	static const struct plugin_handle zero;
	return !memcmp(h, &zero, sizeof(zero));
}

int plugin_handle_check(const struct plugin_handle *h, int abi, char *why, size_t why_len)
{
	char first[64];
	if (all_zero(h)) {
		snprintf(why, why_len,
			"the handle is all zero: what the peer's listen filled in did not get "
			"here");
		return NCCL_INVALID_ARGUMENT;
	}
	if (memcmp(h->magic, magic, sizeof(magic))) {
		snprintf(why, why_len,
			"the handle begins with %s: it is of another plugin, or garbled (ropeway's "
			"begin with rpw-nccl); NCCL_NET_PLUGIN has to be the same on "
			"all ranks",
			first_bytes(h, first, sizeof(first)));
		return NCCL_INVALID_ARGUMENT;
	}
	if (h->crc != crc_of(h)) {
		snprintf(why, why_len,
			"the handle is garbled (its checksum is 0x%08x, its bytes give 0x%08x): "
			"all %d bytes that listen filled have to be carried",
			h->crc, crc_of(h), NCCL_NET_HANDLE_BYTES);
		return NCCL_INVALID_ARGUMENT;
	}
	if (h->layout != PLUGIN_HANDLE_LAYOUT ||
		strncmp(h->version, ROPEWAY_VERSION, sizeof(h->version)) != 0) {
		snprintf(why, why_len,
			"the handle was made by version %.15s of libnccl-net-ropeway.so (layout "
			"%u), this is %s (layout %u): install the same one on all hosts",
			h->version, h->layout, ROPEWAY_VERSION, PLUGIN_HANDLE_LAYOUT);
		return NCCL_INVALID_USAGE;
	}
	if (h->abi != abi) {
		snprintf(why, why_len,
			"the handle was made by listen of plugin API %s, and given to connect of "
			"%s: one version has to be used throughout (is the same NCCL "
			"on both hosts?)",
			PLUGIN_API(h->abi), PLUGIN_API(abi));
		return NCCL_INVALID_USAGE;
	}
	return NCCL_SUCCESS;
}
