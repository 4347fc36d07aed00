/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_reference.h - what the tables of rma_reference.c call; rma_reference_table.c has them. */
#ifndef ROPEWAY_TESTS_RMA_REFERENCE_H
#define ROPEWAY_TESTS_RMA_REFERENCE_H

#include "ncclnet/abi/rma.h"

struct rma_ref_op {
	void *from, *to, *signal;
	uint64_t from_at, to_at, size, signal_at, value;
	uint32_t rank, op, options;
	bool gets, signals;
};

bool rma_is_mutant(const char *name);
int rma_ref_init(void **instance);
int rma_ref_finalize(void);
int rma_ref_listen(int version, void *handle, void **out);
int rma_ref_close_listen(void *listener);
int rma_ref_connect(int version, void **handles, int ranks, int rank, void **out);
int rma_ref_close(void *coll);
int rma_ref_reg(void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle);
int rma_ref_dereg(void *coll, void *mhandle);
int rma_ref_progress(void *coll);
int rma_ref_post(void *coll, const struct rma_ref_op *op, void **request);
int rma_ref_test(void *coll, void *request, int *done);
int rma_ref_query(void *coll, bool *failed);

#endif
