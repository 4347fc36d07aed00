/* SPDX-License-Identifier: BSD-3-Clause */
/* nt_mem.c - registered memory: a slot and a random key, which a peer must name. With the plugin it is registered when a message of bulk data first needs it, with the comm of that message; what is released is
 * deregistered everywhere.
 *
 * A plugin cannot be told to stop, so memory that it is reading or writing is waited for, at most NT_RELEASE_MS; then the endpoint is broken, which ends it.
 */
#include "tran/ncclnet/nt_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int nt_mem_add(struct tran *tran, void *addr, size_t len, unsigned access, struct tran_mem **out)
{
	struct nt *t = nt_of(tran);
	if (tran_slots_room(&t->mem))
		return -ENOMEM;
	struct nt_mem *m = calloc(1, sizeof *m);
	if (!m)
		return -ENOMEM;
	m->base = (struct tran_mem){.addr = addr, .len = len, .access = access};
	rpwi_list_init(&m->regs);
	m->slot = tran_slots_take(&t->mem, m);
	m->key = nt_random();
	nt_put_desc(&m->base.desc, &(struct nt_key){.slot = m->slot, .key = m->key, .len = len});
	*out = &m->base;
	return 0;
}

static void push_all(struct nt *t)
{
	for (struct rpwi_list *l = t->eps.next; l != &t->eps; l = l->next) {
		struct nt_ep *ep = RPWI_CONTAINER_OF(l, struct nt_ep, link);
		nt_bulk_push(ep);
		if (ep->bulk_out.error || ep->bulk_in.error) { /* nothing comes of it any more */
			nt_ep_lost(ep, ep->bulk_out.error ? &ep->bulk_out : &ep->bulk_in);
			nt_bulk_close(ep);
		}
	}
}

static bool uses(const struct nt_lane *l, const struct nt_mem *m)
{
	for (uint32_t n = l->finished; n != l->posted; n++)
		if (l->ring[n % NT_REQUESTS].bulk.mem == m)
			return true;
	return false;
}

static bool queued(const struct nt_queue *q, const struct nt_mem *m)
{
	for (unsigned i = 0; i < q->count; i++)
		if (q->at[(q->first + i) % RPWI_ARRAY_LEN(q->at)].mem == m)
			return true;
	return false;
}

static void wait_for_plugin(struct nt *t, struct nt_mem *m)
{
	uint64_t until_ns = rpwi_now_ns() + NT_RELEASE_MS * RPWI_NS_PER_MS;
	for (unsigned rounds = 0; m->users; rounds++) {
		push_all(t);
		if (!m->users || rpwi_now_ns() >= until_ns)
			break;
		if (rounds > 100)
			usleep(20);
	}
	for (struct rpwi_list *l = t->eps.next; m->users && l != &t->eps; l = l->next) {
		struct nt_ep *ep = RPWI_CONTAINER_OF(l, struct nt_ep, link);
		if (!uses(&ep->bulk_out, m) && !uses(&ep->bulk_in, m) && !queued(&ep->to_send, m))
			continue;
		nt_ep_fail(ep, RPW_ERR_UNREACHABLE,
			"memory was released while plugin %s v%d still %s it for the peer, which "
			"did not %s within %d ms",
			t->load->name, t->load->n->abi, uses(&ep->bulk_in, m) ? "wrote to" : "read",
			uses(&ep->bulk_in, m) ? "send" : "take it", NT_RELEASE_MS);
		nt_bulk_close(ep);
	}
	assert(!m->users);
}

void nt_mem_del(struct tran *tran, struct tran_mem *base)
{
	struct nt *t = nt_of(tran);
	struct nt_mem *m = (struct nt_mem *)base;
	tran_slots_hide(&t->mem, m->slot); /* nothing more begins */
	for (struct rpwi_list *l = t->eps.next; m->users && l != &t->eps; l = l->next)
		nt_bulk_forget(RPWI_CONTAINER_OF(l, struct nt_ep, link), m);
	if (m->users)
		wait_for_plugin(t, m);
	while (!rpwi_list_empty(&m->regs))
		nt_lane_deregister(
			RPWI_CONTAINER_OF(rpwi_list_pop(&m->regs), struct nt_reg, of_mem));
	tran_slots_give(&t->mem, m->slot);
	free(m);
}

struct nt_mem *nt_mem_find(struct nt *t, const struct nt_target *at, size_t len, unsigned access)
{
	struct nt_mem *m = tran_slots_find(&t->mem, at->slot);
	if (!m || m->key != at->key || (m->base.access & access) != access)
		return NULL;
	return at->offset <= m->base.len && len <= m->base.len - at->offset ? m : NULL;
}
