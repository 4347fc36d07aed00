/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp_mem.c - registered memory: a slot and a random key, which a peer must name. It never reads nor writes what is registered. Nothing is pinned; the kernel copies in and out when a
 * transfer comes. It takes no lock: a transport is used by one thread at a time.
 */
#include "tran/tcp/tcp_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

int tcp_mem_add(struct tran *tran, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct tcp *t = tcp_of(tran);
	if (tran_slots_room(&t->mem))
		return -ENOMEM;
	struct tcp_mem *m = calloc(1, sizeof *m);
	if (!m)
		return -ENOMEM;
	m->base = (struct tran_mem){.addr = addr, .len = len, .access = access};
	m->slot = tran_slots_take(&t->mem, m);
	m->key = tcp_random(t);
	tcp_put_desc(&m->base.desc, &(struct tcp_key){.slot = m->slot, .key = m->key, .len = len});
	*out = &m->base;
	return 0;
}

void tcp_mem_del(struct tran *tran, struct tran_mem *base)
{
	struct tcp *t = tcp_of(tran);
	struct tcp_mem *m = (struct tcp_mem *)base;
	/* Transfers of it that are under way go on without it, and fail. */
	for (struct rpwi_list *l = t->bundles.next; m->users && l != &t->bundles; l = l->next) {
		struct tcp_bundle *b = RPWI_CONTAINER_OF(l, struct tcp_bundle, link);
		for (unsigned k = 0; k < TCP_STREAMS_MAX; k++)
			if (b->stream[k])
				tcp_stream_forget_mem(b->stream[k], m);
	}
	assert(!m->users);
	tran_slots_give(&t->mem, m->slot);
	free(m);
}

struct tcp_mem *tcp_mem_find(
	struct tcp *t, const struct tcp_target *at, size_t len, unsigned access)
{
	struct tcp_mem *m = tran_slots_find(&t->mem, at->slot);
	if (!m || m->key != at->key || (m->base.access & access) != access)
		return NULL;
	return at->offset <= m->base.len && len <= m->base.len - at->offset ? m : NULL;
}
