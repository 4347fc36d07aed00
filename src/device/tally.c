/* SPDX-License-Identifier: BSD-3-Clause */
/* tally.c - see tally.h. */
#include "device/tally.h"

#include <unistd.h>

/* Where devices count now. */
enum { PARTS_MAX = 16 }; /* more than there are places for devices */
static struct rpwi_counters *part[PARTS_MAX];
static unsigned nparts;
static struct rpwi_counters nowhere; /* what is not this process's any more */

/* See tally_one. */
static bool is_copy(pid_t forked_from) { return forked_from && forked_from == getppid(); }

void tally_begin(const struct hca *h)
{
	rpwi_counters_begin(h->slots[0], rpwi_steer_inode(h->steer));
}

static struct rpwi_counters *of(const char *device)
{
	struct rpwi_counters *c = rpwi_counters_of(device);
	for (unsigned i = 0; i < nparts; i++)
		if (part[i] == c)
			return c;
	if (nparts < PARTS_MAX)
		part[nparts++] = c;
	return c;
}

void tally_sum(struct rpwi_qp_stats *sum)
{
	const struct hca *h = &hca_here;
	for (unsigned i = 0; i < nparts; i++)
		rpwi_counts_add_since(sum, &part[i]->n, &part[i]->before);
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++) {
			const struct dqp *q = h->qps[i][j];
			if (!q || !q->row)
				continue;
			qp_hold(q);
			rpwi_counts_add_since(sum, &q->row->n, &q->row->before);
		}
}

void tally_end(struct hca *h)
{
	tally_sum(&h->gone);
	nparts = 0;
	if (is_copy(h->forked_from))
		rpwi_counters_forget(); /* its parent goes on */
	else
		rpwi_counters_end();
}

void tally_left_to_parent(struct hca *h)
{
	for (struct rpwi_list *l = h->contexts.next; l != &h->contexts; l = l->next)
		RPWI_CONTAINER_OF(l, struct dctx, link)->tally = &nowhere;
	tally_sum(&h->gone);
	for (unsigned i = 0; i < h->nslots; i++)
		for (unsigned j = 0; h->qps[i] && j < RPWI_SLOT_QPNS; j++) {
			struct dqp *q = h->qps[i][j];
			if (!q)
				continue;
			q->row = NULL;
			q->t.n = &nowhere.n;
			q->t.state_to = NULL;
		}
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
	q->row = rpwi_counters_qp_begin(q->ctx->dev->net.name, q->t.qpn, (uint8_t)q->t.type);
	q->t.n = q->row ? &q->row->n : &q->ctx->tally->n;
	if (q->row)
		q->t.state_to = &q->row->state;
	atomic_fetch_add(&q->ctx->tally->res.qps, 1);
}

void tally_qp_connects(struct dqp *q)
{
	bool has = q->t.type != IBV_QPT_UD && q->t.state != IBV_QPS_RESET &&
		   q->t.state != IBV_QPS_INIT;
	if (q->row)
		rpwi_counters_qp_peer(
			q->row, q->t.attr.ah_attr.grh.dgid.raw, has ? q->t.attr.dest_qp_num : 0);
}

void tally_qp_gone(struct dqp *q)
{
	tally_one(&q->ctx->v.context, qps, -1);
	if (q->row && !is_copy(hca_here.forked_from))
		rpwi_counters_qp_end(q->ctx->tally, q->row);
	q->row = NULL;
	q->t.n = &nowhere.n;
	q->t.state_to = NULL;
}

void tally_is_forked(void) { rpwi_counters_is_forked(); }

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
	if (d < 0 && is_copy(forked_from))
		return;
	atomic_fetch_add_explicit(count, (uint64_t)(int64_t)d, memory_order_relaxed);
}
