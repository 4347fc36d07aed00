/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.c - see tally.h. */
#include "device/tally.h"

#include <unistd.h>

/* Where a device counts now, and what stood there when it began: a place is taken over with the
 * numbers of its former holder. */
struct part {
	struct rpwi_counters *in;
	struct rpwi_qp_stats before;
};
enum { PARTS_MAX = 16 }; /* more than there are places for devices */
static struct part part[PARTS_MAX];
static unsigned nparts;
static struct rpwi_counters nowhere; /* what is not this process's any more */

void tally_begin(const struct hca *h)
{
	rpwi_counters_begin(h->slots[0], rpwi_steer_inode(h->steer));
}

static struct rpwi_counters *of(const char *device)
{
	struct rpwi_counters *c = rpwi_counters_of(device);
	for (unsigned i = 0; i < nparts; i++)
		if (part[i].in == c)
			return c;
	if (nparts < PARTS_MAX)
		part[nparts++] = (struct part){c, c->n};
	return c;
}

void tally_sum(struct rpwi_qp_stats *sum)
{
	for (unsigned i = 0; i < nparts; i++) {
		const uint64_t *now = (const uint64_t *)(const void *)&part[i].in->n;
		const uint64_t *was = (const uint64_t *)(const void *)&part[i].before;
		uint64_t *to = (uint64_t *)(void *)sum;
		for (size_t k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
			to[k] += now[k] - was[k];
	}
}

void tally_end(struct hca *h)
{
	tally_sum(&h->gone);
	nparts = 0;
	rpwi_counters_end();
}

void tally_left_to_parent(struct hca *h)
{
	for (struct rpwi_list *l = h->contexts.next; l != &h->contexts; l = l->next)
		RPWI_CONTAINER_OF(l, struct dctx, link)->tally = &nowhere;
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++)
			if (h->qps[i][j])
				h->qps[i][j]->t.n = &nowhere.n;
	tally_sum(&h->gone);
	nparts = 0;
	rpwi_counters_forget();
}

void tally_context(struct dctx *c)
{
	c->tally = of(c->dev->net.name);
	atomic_fetch_add(&c->tally->res.contexts, 1);
}

void tally_qp(struct dqp *q)
{
	q->t.n = &q->ctx->tally->n;
	atomic_fetch_add(&q->ctx->tally->res.qps, 1);
}

struct rpwi_qp_stats *tally_at(const struct dev *devices, const struct rpwi_addr *local)
{
	for (const struct dev *d = devices; d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count; i++)
			if (rpwi_addr_eq(&d->net.gid[i].addr, local))
				return &of(d->net.name)->n;
	return &nowhere.n;
}

void tally_resource(_Atomic uint64_t *count, int d, pid_t forked_from)
{
	if (d < 0 && forked_from && forked_from == getppid())
		return;
	atomic_fetch_add_explicit(count, (uint64_t)(int64_t)d, memory_order_relaxed);
}
