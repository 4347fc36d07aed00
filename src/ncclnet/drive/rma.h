/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - one rank of a run with a loaded plugin of one-sided operations (RMA, GIN), and every call
 * that a run makes of it. As side.h, which it stands on: a call that goes wrong leaves a sentence
 * in the side's text, and every wait ends at the step's deadline.
 *
 * Every wait calls the plugin's progress, as NCCL's proxy thread does; plugins may need it
 * on the side that is written to.
 */
#ifndef ROPEWAY_NCCLNET_DRIVE_RMA_H
#define ROPEWAY_NCCLNET_DRIVE_RMA_H

#include "ncclnet/drive/pair.h"
#include "ncclnet/host/rma.h"

enum { RMA_GUARD = 1 << 16, RMA_CONTEXTS = 2, RMA_HANDLE_ROOM = 2 * NCCL_RMA_HANDLE_BYTES };
_Static_assert((int)RMA_HANDLE_ROOM == (int)PAIR_NOTE, "a handle, and what must stay as it is");

struct rma_side {
	struct side *s;
	struct ncclnet_rma n; /* n.table: NULL before rma_load */
	unsigned exported;    /* bit i: ncclnet_rma_table_name(i) is there */
	int load_result;
	struct ncclnet *net; /* the network plugin of the same file, or NULL; it is up: net_up */
	bool net_up;
	void *instance;
	struct nccl_net_properties_v12 p;
};
/* A coll comm, with its contexts. */
struct rma_comm {
	void *instance, *listen, *coll, *ctx;
	int ranks, rank, contexts;
};
/* Registered memory, with guards on both sides. */
struct rma_mem {
	char *at;
	size_t size;
	void *mhandle;
};

/* ---- which tables there are ---- */
/* "ncclRmaPlugin_v16" of "RMA v16". Returns `out`. */
const char *rma_symbol(const char *name, char *out, size_t room);
/* The table that people call "v16" or "gin13"; NULL: there is none. "": "", the newest. */
const char *rma_table(const char *brief);
bool rma_has_get(const struct rma_side *r);
bool rma_has_weak(const struct rma_side *r);
bool rma_has_options(const struct rma_side *r);
int rma_contexts(const struct rma_side *r, int wanted);

/* ---- false: the side's text says why ---- */
bool rma_load(struct rma_side *r, const char *path, const char *which);
/* As NCCL does, the network plugin of the same file first: one-sided operations may rest on it. */
bool rma_init(struct rma_side *r, nccl_logger log, void **instance);
bool rma_properties(struct rma_side *r);
/* handle: of NCCL_RMA_HANDLE_BYTES. */
bool rma_listen(struct rma_side *r, struct rma_comm *m, void *handle);
bool rma_connect(
	struct rma_side *r, struct rma_comm *m, void **handles, int ranks, int rank, int contexts);
/* Sides 0 to ranks - 1 do so together, by the notes of their pair; the others only meet. */
bool rma_join(struct rma_side *r, struct rma_comm *m, int ranks, int contexts);
/* Closes all that is open of it, after a failure, too. */
bool rma_close(struct rma_side *r, struct rma_comm *m);
/* Collective, all of it. rma_mem_make allocates, fills and registers. */
bool rma_reg(struct rma_side *r, const struct rma_comm *m, void *at, size_t size, uint64_t flags,
	void **mhandle);
bool rma_dereg(struct rma_side *r, const struct rma_comm *m, void *mhandle);
bool rma_mem_make(struct rma_side *r, const struct rma_comm *m, struct rma_mem *w, size_t size);
bool rma_mem_end(struct rma_side *r, const struct rma_comm *m, struct rma_mem *w);
/* The offset from w->at of the first byte of the guards that has changed; 0: none has. */
long rma_mem_hurt(const struct rma_mem *w);

/* A put, a put with signal, or a get. *request is set on success. */
bool rma_put(struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op,
	void **request);
bool rma_get(struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op,
	void **request);
/* NULL in *request: done. */
bool rma_flush(struct rma_side *r, const struct rma_comm *m, int ctx, void *mhandle, uint32_t rank,
	void **request);
int rma_test(struct rma_side *r, const struct rma_comm *m, void *request, int *done);
bool rma_wait(struct rma_side *r, const struct rma_comm *m, void *request);
/* All of it: put and wait, or get, flush and wait. */
bool rma_do_put(
	struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op);
bool rma_do_get(
	struct rma_side *r, const struct rma_comm *m, int ctx, const struct ncclnet_rma_op *op);
/* Progress, once; m may be NULL. */
bool rma_progress(struct rma_side *r, const struct rma_comm *m);
/* Between two looks in vain. */
bool rma_idle(struct rma_side *r, const struct rma_comm *m, unsigned *looks);
/* Until a word of ours is at least that. */
bool rma_await(struct rma_side *r, const struct rma_comm *m, const uint64_t *word, uint64_t value);
/* All sides of the pair come here before any goes on; `m` moves meanwhile. */
bool rma_meet(struct rma_side *r, const struct rma_comm *m);
/* What queryLastError says. */
bool rma_has_failed(struct rma_side *r, const struct rma_comm *m);

#endif
