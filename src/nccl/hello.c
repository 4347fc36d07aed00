/* SPDX-License-Identifier: BSD-3-Clause */
/* hello.c - the words by which an endpoint shows that it comes from the handle of this listener,
 * made by the same version of everything. */
#include "nccl/plugin.h"

#include <stdio.h>

static const uint32_t hello_magic = 0x31776e72; /* "rnw1" */

void plugin_hello_make(struct plugin_hello *h, int abi, const uint8_t *nonce)
{
	memset(h, 0, sizeof(*h));
	h->magic = hello_magic;
	h->abi = abi;
	snprintf(h->version, sizeof(h->version), "%s", ROPEWAY_VERSION);
	memcpy(h->nonce, nonce, sizeof(h->nonce));
}

void plugin_hello_check(
	const void *header, size_t len, int abi, const uint8_t *nonce, char *why, size_t why_len)
{
	struct plugin_hello h;
	*why = 0;
	if (len == sizeof(h))
		memcpy(&h, header, sizeof(h)); /* the peer may still write where it lies */
	if (len != sizeof(h) || h.magic != hello_magic)
		snprintf(why, why_len,
			"this is a listener of ropeway's NCCL plugin, but what came (%zu bytes) is "
			"not a hello of it",
			len);
	else if (strncmp(h.version, ROPEWAY_VERSION, sizeof(h.version)) != 0)
		snprintf(why, why_len,
			"the connecting side has version %.15s of libnccl-net-ropeway.so, the "
			"listening side %s: install the same one on all hosts",
			h.version, ROPEWAY_VERSION);
	else if (h.abi != abi)
		snprintf(why, why_len,
			"the connecting side speaks plugin API %s, the listening side %s: one "
			"version has to be used throughout",
			PLUGIN_API(h.abi), PLUGIN_API(abi));
	else if (memcmp(h.nonce, nonce, sizeof(h.nonce)) != 0)
		snprintf(why, why_len,
			"the handle was not made by this listener: it is of an earlier run, or of "
			"another rank");
}
