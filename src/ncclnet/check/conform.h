/* SPDX-License-Identifier: BSD-3-Clause */
/* conform.h - does a plugin do what NCCL expects of one? A list of properties for network plugins,
 * and one for those of one-sided operations (RMA, GIN); each is tried between processes over this
 * host (pair.h), each with a verdict: pass, quirk (NCCL or ropeway live with it; what they do is
 * said) or fail. A plugin that crashes or hangs costs a line; the
 * caller's process never loads it. Knows nothing of terminals.
 */
#ifndef ROPEWAY_NCCLNET_CONFORM_H
#define ROPEWAY_NCCLNET_CONFORM_H

#include "ncclnet/host/host.h"

enum conform_verdict { CONFORM_PASS, CONFORM_SKIP, CONFORM_QUIRK, CONFORM_FAIL, CONFORM_VERDICTS };
extern const char *const conform_verdict_name[CONFORM_VERDICTS];

/* Each case and its outcome. */
struct conform_line {
	const char *id, *what; /* "truncation", "a message longer than its receive is an error" */
	const char *then;      /* what NCCL does where it does not hold, or NULL */
	enum conform_verdict verdict;
	bool nccl_only; /* RCCL does not ask for it */
	char text[600]; /* "": nothing to add */
};

/* The plugin, before anything of it is called. */
struct conform_facts {
	/* bit N: ncclNetPlugin_vN is there; of RMA the table ncclnet_rma_table_name(N) */
	unsigned exported;
	int abi; /* that is checked */
	int rma; /* ... as which table */
};

struct conform_options {
	const char *path;
	int abi; /* 0: the highest */
	int device;
	unsigned timeout_ms; /* of a step */
	size_t size_most;    /* of a message */
	unsigned messages;   /* of each size, in `polled`; 0: few */
	bool rma;
	const char *table; /* "RMA v16"; NULL or "": as the newest NCCL. For rma, as are: */
	int ranks;         /* 2 to PAIR_SIDES_MAX */
	unsigned rounds;   /* of puts and a strong signal */
	const char *only;  /* lines with this in their id; NULL: all */
	void (*facts)(void *arg, const struct conform_facts *f);
	void (*line)(void *arg, const struct conform_line *l);
	void *arg;
};

/* How many lines of each verdict. 0, or negative and `why` if there is no plugin, or none of that
 * version, to check (as ncclnet_load), or no processes. */
int conform_run(const struct conform_options *o, unsigned count[CONFORM_VERDICTS], char *why,
	size_t why_len);

/* The properties, in their order; NULL after the last. */
const char *conform_id(bool rma, unsigned i, const char **what);

#endif
