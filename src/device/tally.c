/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.c - see tally.h. */
#include "device/tally.h"

/* Where a device counts now, and what stood there when it began: a place is taken over with the
 * numbers of who had it before. */
struct part {
	struct rpwi_counters *in;
	struct rpwi_qp_stats before;
};
enum { PARTS_MAX = 16 }; /* more than there are places for devices */
static struct part part[PARTS_MAX];
static unsigned nparts;
static struct rpwi_counters nowhere; /* what is not this process's any more */

void tally_begin(void) { rpwi_counters_begin(hca_here.slots[0], rpwi_steer_inode(hca_here.steer)); }

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

void tally_end(void)
{
	tally_sum(&hca_here.gone);
	nparts = 0;
	rpwi_counters_end();
}

void tally_left_to_parent(void)
{
	struct hca *h = &hca_here;
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
	tally_resource(&c->tally->res.contexts, 1);
}

void tally_qp(struct dqp *q)
{
	q->t.n = &q->ctx->tally->n;
	tally_resource(&q->ctx->tally->res.qps, 1);
}

struct rpwi_qp_stats *tally_at(const struct rpwi_addr *local)
{
	for (struct dev *d = dev_first(); d; d = d->next)
		for (unsigned i = 0; d->present && i < d->net.gid_count; i++)
			if (rpwi_addr_eq(&d->net.gid[i].addr, local))
				return &of(d->net.name)->n;
	return &nowhere.n;
}
