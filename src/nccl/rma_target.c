/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_target.c - what peers' messages do here. Everything that they say is checked against what is
 * registered. A message that is refused is not done in part either, and its sender gets the
 * reason. */
#include "nccl/rma.h"

static const char *const refusals[RMA_REFUSALS] = {
	[RMA_NO_MEMORY] = "no such memory is registered (any more)",
	[RMA_BEYOND] = "it reaches beyond what is registered",
	[RMA_NOT_HOST] = "the memory is a GPU's",
	[RMA_NOT_ALIGNED] = "a signal's address is not a multiple of 8",
};

/* Where it belongs; NULL: *why not. */
static char *place(struct rma_comm *c, uint32_t id, uint64_t offset, uint64_t len,
	enum rma_refusal *why, uint64_t *size)
{
	struct rma_memory *m = rma_memory_by_id(c, id);
	*why = RMA_NO_MEMORY;
	if (!m)
		return NULL;
	*size = m->size;
	*why = RMA_BEYOND;
	if (offset > m->size || len > m->size - offset)
		return NULL;
	*why = RMA_NOT_HOST;
	return m->type == NCCL_PTR_HOST ? m->data + offset : NULL;
}

static const char *last_said(unsigned said)
{
	return said < RMA_REFUSALS_SAID ? "" : " (others after it are not told)";
}

static void refuse(struct rma_peer *p, struct rma_refused_head *h)
{
	uint64_t offset = h->signal ? h->put.signal_off : h->put.to_off;
	if (p->refusals >= RMA_REFUSALS_SAID)
		return;
	p->refusals++;
	plugin_warn("rank %d (%s) puts %llu bytes%s at offset %llu of memory 0x%x, of which %llu "
		    "bytes are registered here: refused: %s%s",
		p->rank, p->name, (unsigned long long)(h->signal ? 8 : h->len),
		h->signal ? " of a signal" : "", (unsigned long long)offset,
		h->signal ? h->put.signal : h->put.to, (unsigned long long)h->size,
		refusals[h->why], last_said(p->refusals));
	rpw_am_send(p->ep, RMA_REFUSED, h, sizeof(*h), NULL, 0, NULL);
}

void rma_put_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm)
{
	struct rma_comm *c = comm;
	struct rma_peer *p = rpw_endpoint_user(ep);
	struct rma_refused_head h = {.len = len};
	enum rma_refusal why = RMA_NO_MEMORY;
	char *to = NULL, *signal = NULL;
	if (!p || c->shut)
		return;
	if (header_len == sizeof(h.put))
		memcpy(&h.put, header, sizeof(h.put)); /* the peer may still write where it lies */
	if (h.put.to || len)
		to = place(c, h.put.to, h.put.to_off, len, &why, &h.size);
	bool good = to || !(h.put.to || len);
	if (good && h.put.signal) {
		signal = place(c, h.put.signal, h.put.signal_off, 8, &why, &h.size);
		if (signal && (uintptr_t)signal % 8) {
			why = RMA_NOT_ALIGNED;
			signal = NULL;
		}
		h.signal = !signal;
	}
	if (!good || h.signal) {
		h.why = (uint32_t)why;
		refuse(p, &h);
		return;
	}
	if (len)
		memcpy(to, data, len);
	if (signal) /* release: who sees it sees what was written before */
		__atomic_fetch_add((uint64_t *)(void *)signal, h.put.value, __ATOMIC_RELEASE);
}

void rma_refused_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm)
{
	struct rma_comm *c = comm;
	struct rma_peer *p = rpw_endpoint_user(ep);
	struct rma_refused_head h = {.why = RMA_REFUSALS};
	if (header_len == sizeof(h))
		memcpy(&h, header, sizeof(h));
	if (!p || h.why >= RMA_REFUSALS)
		return;
	c->failed = true;
	if (p->refusals_heard >= RMA_REFUSALS_SAID)
		return;
	p->refusals_heard++;
	plugin_warn("rank %d (%s) refused %llu bytes%s at offset %llu: %s; there %llu bytes are "
		    "registered: was the memory deregistered before all ranks had finished?%s",
		p->rank, p->name, (unsigned long long)(h.signal ? 8 : h.len),
		h.signal ? " of a signal" : "",
		(unsigned long long)(h.signal ? h.put.signal_off : h.put.to_off), refusals[h.why],
		(unsigned long long)h.size, last_said(p->refusals_heard));
}
