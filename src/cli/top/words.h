/* SPDX-License-Identifier: BSD-3-Clause */
/* words.h - how `ropeway top` calls what it shows. */
#ifndef ROPEWAY_CLI_TOP_WORDS_H
#define ROPEWAY_CLI_TOP_WORDS_H

#include "cli/top/top.h"

enum { TOP_CELL = 64 };
const char *top_type(unsigned type);   /* enum ibv_qp_type: "RC" */
const char *top_state(unsigned state); /* enum ibv_qp_state: "RTS" */
const char *top_address(const uint8_t gid[16], char out[TOP_CELL]);

/* A counter as JSON and Prometheus name it. */
struct top_count {
	const char *name; /* "transmitted_bytes" */
	const char *help;
	uint64_t (*of)(const struct rpwi_qp_stats *n);
};
/* NULL: there is none any more. */
const struct top_count *top_count(unsigned i);

#endif
