/* SPDX-License-Identifier: BSD-3-Clause */
/* qpn.c - QPNs: slot << 12 | index. All free ones are used before one comes again: a late packet of
 * an old peer finds nobody. The first is drawn, and a QPN does not tell the one after it. */
#include <stdlib.h>

#include "base/hash.h"
#include "device/hca.h"
#include "device/qp.h"

/* The n-th index of the process's own order: each once in RPWI_SLOT_QPNS. Four rounds of Feistel
 * over two halves, which is a permutation whatever the keys. */
static uint32_t shuffled(uint32_t n)
{
	enum { HALF = RPWI_SLOT_SHIFT / 2, ROUNDS = 4 };
	const uint32_t mask = (1u << HALF) - 1;
	_Static_assert(RPWI_SLOT_QPNS == 1 << 2 * HALF, "two halves");
	struct hca *h = &hca_here;
	if (!h->qpn_key)
		h->qpn_key = rpwi_random64() | 1;
	uint32_t left = n >> HALF & mask, right = n & mask;
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t next = left ^ (uint32_t)(rpwi_mix(h->qpn_key + i, right) >> 32 & mask);
		left = right;
		right = next;
	}
	return left << HALF | right;
}

int qpn_alloc(struct dqp *q, uint32_t *qpn)
{
	struct hca *h = &hca_here;
	for (;;) {
		uint32_t total = h->nslots * RPWI_SLOT_QPNS;
		for (uint32_t n = 0; n < total; n++) {
			uint32_t at = (h->next_idx + n) % total, i = at / RPWI_SLOT_QPNS,
				 j = shuffled(at % RPWI_SLOT_QPNS);
			if (!h->qps[i] &&
				!(h->qps[i] = calloc(RPWI_SLOT_QPNS, sizeof(struct dqp *))))
				return -ENOMEM;
			if (h->qps[i][j] || !j) /* index 0: see wire/ask.h */
				continue;
			h->qps[i][j] = q;
			h->next_idx = at + 1;
			*qpn = (uint32_t)h->slots[i] << RPWI_SLOT_SHIFT | j;
			return 0;
		}
		uint16_t slot;
		if (h->nslots == RPWI_ARRAY_LEN(h->slots))
			return -ENOSPC;
		int rc = rpwi_steer_claim(h->steer, &slot);
		if (rc)
			return rc;
		h->slots[h->nslots++] = slot;
	}
}

void qpn_free(uint32_t qpn)
{
	struct hca *h = &hca_here;
	for (unsigned i = 0; i < h->nslots; i++)
		if (h->slots[i] == qpn >> RPWI_SLOT_SHIFT && h->qps[i])
			h->qps[i][qpn & (RPWI_SLOT_QPNS - 1)] = NULL;
}
