/* SPDX-License-Identifier: BSD-3-Clause */
/* refused.c - see refused.h. */
#include "device/refused.h"

#include <stdatomic.h>

const struct rpwi_refused_row rpwi_refused_rows[RPWI_REFUSED_KINDS] = {
#define X(kind, lacks, instead, exported, inlined) \
	[RPWI_REFUSED_##kind] = {lacks, instead, exported, inlined},
	RPWI_REFUSED_CALLS(X)
#undef X
};

static atomic_bool told[RPWI_REFUSED_KINDS];

int rpwi_refused_told(enum rpwi_refused kind, const char *call)
{
	const struct rpwi_refused_row *r = &rpwi_refused_rows[kind];
	if (rpwi_log_on(RPWI_LOG_INFO) && !atomic_exchange(&told[kind], true))
		rpwi_info("%s is refused: the software device has no %s; %s", call, r->lacks,
			r->instead);
	return errno = EOPNOTSUPP;
}
