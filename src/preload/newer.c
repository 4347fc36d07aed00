/* SPDX-License-Identifier: BSD-3-Clause */
/* newer.c - what calls that are newer than this build's headers find in a context of ours.
 *
 * A call that the drop-in does not know reaches the distribution's libibverbs, which reads the
 * private part of the context (struct verbs_context: priv). So that library fills it: the function
 * with which its providers begin installs refusals of every call that it knows. Its layout is
 * never looked at.
 */
#include "preload/newer.h"

#include "preload/preload.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Enough for struct verbs_device and struct verbs_context of later versions: the latter has 696
 * bytes in rdma-core 65, 648 in 44. */
enum { ROOM = 16384 };

typedef void *init_fn(struct ibv_device *device, int cmd_fd, size_t alloc_size,
	struct verbs_context *offset, uint32_t driver_id);

/* A verbs_context begins with what is newest and ends with its own size and an ibv_context. */
static struct ibv_context *context_in(uint8_t *at, const struct ibv_device *device)
{
	size_t behind = sizeof(struct verbs_context) - offsetof(struct verbs_context, sz);
	for (size_t n = behind; n <= ROOM; n += sizeof(void *)) {
		struct ibv_context *c = (void *)(at + n - sizeof(*c));
		size_t size;
		memcpy(&size, at + n - behind, sizeof(size));
		if (size == n && c->device == device && c->abi_compat == (void *)UINTPTR_MAX)
			return c;
	}
	return NULL;
}

static struct verbs_context *around(struct ibv_context *c)
{
	return RPWI_CONTAINER_OF(c, struct verbs_context, context);
}

static struct verbs_ex_private *private_of(init_fn *init)
{
	/* it counts references to the device, which are gone with it */
	struct ibv_device *device = calloc(1, ROOM);
	uint8_t *made = device ? init(device, -1, ROOM, NULL, 0) : NULL;
	struct ibv_context *c = made ? context_in(made, device) : NULL;
	struct verbs_ex_private *priv = c ? around(c)->priv : NULL;
	if (c)
		pthread_mutex_destroy(&c->mutex);
	free(made);
	free(device);
	return priv;
}

int rpwi_newer_begin(struct ibv_context *c)
{
	void *library = rpwi_distribution();
	if (!library) /* then nobody reads it */
		return 0;
	init_fn *init = (init_fn *)dlsym(library, "_verbs_init_and_alloc_context");
	dlerror();
	around(c)->priv = init ? private_of(init) : NULL;
	if (around(c)->priv)
		return 0;
	rpwi_warn(
		"ibv_open_device: expected a libibverbs of rdma-core 17 or later, whose providers "
		"begin with _verbs_init_and_alloc_context; the one here %s: use the "
		"distribution's, or 'ropeway run --library'",
		init ? "gives no context by it" : "does not have it");
	return rpwi_minus(EOPNOTSUPP);
}

void rpwi_newer_end(struct ibv_context *c)
{
	free(around(c)->priv);
	around(c)->priv = NULL;
}
