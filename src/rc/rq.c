/* SPDX-License-Identifier: BSD-3-Clause */
/* rq.c - receive queues, a QP's own or shared: a bounded ring of receive WQEs and their SGEs. Knows
 * no QP. */
#include "rc/rc.h"

#include <stdlib.h>

static uint32_t round_up_pow2(uint32_t n)
{
	uint32_t p = 1;
	while (p < n)
		p <<= 1;
	return p;
}

/* The ring and its SGEs for `wr_max` entries; slot i owns sges[i * sge_max ..]. */
static int alloc_ring(struct rpwi_rq *rq, uint32_t wr_max)
{
	uint32_t slots = round_up_pow2(wr_max);
	struct rpwi_rwqe *ring = calloc(slots, sizeof(*ring));
	struct ibv_sge *sges = calloc((size_t)slots * RPWI_MAX(rq->sge_max, 1), sizeof(*sges));

	if (!ring || !sges) {
		free(ring);
		free(sges);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < slots; i++)
		ring[i].sge = sges + (size_t)i * rq->sge_max;
	rq->ring = ring;
	rq->sges = sges;
	rq->mask = slots - 1;
	rq->wr_max = wr_max;
	return 0;
}

int rpwi_rq_init(struct rpwi_rq *rq, uint32_t wr_max, uint32_t sge_max, bool shared)
{
	memset(rq, 0, sizeof(*rq));
	if (wr_max > RPWI_QP_WR_MAX || sge_max > RPWI_SGE_MAX)
		return -EINVAL;
	rq->sge_max = sge_max;
	rq->shared = shared;
	return alloc_ring(rq, wr_max);
}

void rpwi_rq_fini(struct rpwi_rq *rq)
{
	free(rq->ring);
	free(rq->sges);
	rq->ring = NULL;
	rq->sges = NULL;
	rq->head = rq->tail = rq->wr_max = 0;
}

int rpwi_rq_resize(struct rpwi_rq *rq, uint32_t wr_max)
{
	struct rpwi_rq old = *rq;
	uint32_t count = rpwi_rq_count(rq);

	if (wr_max > RPWI_QP_WR_MAX || wr_max < count)
		return -EINVAL;
	if (alloc_ring(rq, wr_max))
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const struct rpwi_rwqe *from = &old.ring[(old.head + i) & old.mask];
		struct rpwi_rwqe *to = &rq->ring[i];
		struct ibv_sge *sge = to->sge;

		*to = *from;
		to->sge = sge;
		memcpy(sge, from->sge, from->nsge * sizeof(*sge));
	}
	rq->head = 0;
	rq->tail = count;
	free(old.ring);
	free(old.sges);
	return 0;
}

int rpwi_rq_post(struct rpwi_rq *rq, const struct ibv_recv_wr *wr)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > rq->sge_max)
		return -EINVAL;
	if (rpwi_rq_count(rq) >= rq->wr_max)
		return -ENOMEM;

	struct rpwi_rwqe *w = &rq->ring[rq->tail & rq->mask];
	uint64_t len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		len += wr->sg_list[i].length;
	}
	w->wr_id = wr->wr_id;
	w->nsge = (uint16_t)wr->num_sge;
	w->doom = 0;
	w->len = (uint32_t)RPWI_MIN(len, UINT32_MAX); /* no message is longer than 2^31 */
	rq->tail++;
	return 0;
}

void rpwi_rq_doom(struct rpwi_rq *rq, uint8_t status)
{
	rq->ring[(rq->tail - 1) & rq->mask].doom = status;
}
