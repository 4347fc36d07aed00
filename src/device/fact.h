/* SPDX-License-Identifier: BSD-3-Clause */
/* fact.h - what happens to connections, told to all that want to know: the account
 * (explain/trace.h) counts it, and the checker (check/happened.h) writes it into its report. Cold
 * places only; what the data path counts is the account's alone (rpwi_explain_fact). */
#ifndef ROPEWAY_DEVICE_FACT_H
#define ROPEWAY_DEVICE_FACT_H

#include "check/check.h"
#include "explain/trace.h"

/* how: in the place of the usual words for it, or NULL. The HCA's lock is held. */
void rpwi_fact_tell(enum rpwi_explain_fact fact, uint32_t qpn, uint64_t n, const char *how);
#define rpwi_fact(fact, qpn, n, how) \
	do { \
		if (RPWI_UNLIKELY(rpwi_explain_on || rpwi_check_on)) \
			rpwi_fact_tell(fact, qpn, n, how); \
	} while (0)

#endif
