/* SPDX-License-Identifier: BSD-3-Clause */
/* scatter.c - what a READ or an atomic brings goes into the memory of its WQE. */
#include "rc/internal.h"

int rpwi_cpl_scatter(struct rpwi_qp *qp, const struct rpwi_swqe *w, uint32_t off,
	const uint8_t *data, uint32_t len)
{
	for (uint32_t i = 0; i < w->nsge && len; i++) {
		const struct ibv_sge *s = &w->sge[i];

		if (off >= s->length) {
			off -= s->length;
			continue;
		}
		uint32_t n = RPWI_MIN(len, s->length - off);
		int rc = qp->ops->mem_write(qp, s->lkey, s->addr + off, data, n, false);

		if (rc)
			return rc;
		data += n;
		len -= n;
		off = 0;
	}
	return len ? -EACCES : 0;
}
