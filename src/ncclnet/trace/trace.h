/* SPDX-License-Identifier: BSD-3-Clause */
/* trace.h - a plugin that stands in front of another one: passes every call on, and checks both who
 * calls and the plugin.
 *
 * `ropeway plugin trace` prints the environment under which NCCL loads this library, which
 * loads the plugin that ROPEWAY_TRACE_PLUGIN names. It exports the API versions that the plugin
 * has, and no other: NCCL takes the highest, as it would of the plugin. Comms, handles,
 * registrations and requests are the plugin's own values; nothing is wrapped, so what is not
 * checked is not changed.
 *
 * Data path: a call costs a lookup or two in hash tables, under a mutex that is not held over the
 * plugin's call. Bounds: TRACE_OBJECTS objects of all kinds; beyond that nothing new is watched,
 * and the report says so. Threads: any.
 */
#ifndef ROPEWAY_NCCLNET_TRACE_TRACE_H
#define ROPEWAY_NCCLNET_TRACE_TRACE_H

#include <stdbool.h>

#include "ncclnet/abi/rma.h"

enum { TRACE_OBJECTS = 1 << 20, TRACE_V_FIRST = 5 };
/* A table is a number: the version of the network API, or of one-sided operations one of these plus
 * the version. */
enum { TRACE_RMA = 100, TRACE_GIN = 200, TRACE_TABLES = TRACE_GIN + NCCL_GIN_V_LAST + 1 };

enum trace_comm { TRACE_LISTEN, TRACE_SEND, TRACE_RECV, TRACE_COLL };

/* The plugin's tables; NULL: it has none. */
extern const void *trace_tables[TRACE_TABLES];
/* "v12", "RMA v16". Returns `out`. */
const char *trace_table_name(int table, char out[16]);

/* A call of comm `comm` (NULL: of none) through table v, by the caller whose return address is
 * `from`: before it and after it. */
struct trace_call {
	const char *name;
	const void *from;
	void *comm;
	int v;
};
void trace_begin(struct trace_call *c, int v, const char *name, void *comm, const void *from);
/* A line of the trace, if one is wanted; gives `rc` back. */
extern bool trace_lines;
int trace_line(const struct trace_call *c, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
#define trace_end(c, rc, ...) (trace_lines ? trace_line(c, rc, __VA_ARGS__) : (rc))

/* What happened in it: before the plugin is called ... */
void trace_connect_begin(const struct trace_call *c, const void *handle);
void trace_reg_begin(const struct trace_call *c, int type);
void trace_send_begin(
	const struct trace_call *c, const void *data, size_t size, const void *mhandle);
void trace_recv_begin(const struct trace_call *c, int n, void *const *data, const size_t *sizes,
	void *const *mhandles);
void trace_test_begin(const struct trace_call *c, const void *request);
void trace_dereg_begin(const struct trace_call *c, const void *mhandle);
/* ... and after it. */
void trace_device(int v, int dev, int ptr_support, int max_recvs, bool reg_is_global);
void trace_listen_done(const struct trace_call *c, int rc, int dev, const void *handle, void *comm);
void trace_connect_done(
	const struct trace_call *c, int rc, int dev, const void *handle, void *comm);
void trace_accept_done(const struct trace_call *c, int rc, void *comm);
void trace_reg_done(const struct trace_call *c, int rc, const void *data, size_t size, int type,
	const void *mhandle);
void trace_posted(const struct trace_call *c, int rc, const void *request, bool is_recv, int n,
	const size_t *sizes, bool may_be_1);
void trace_test_done(
	const struct trace_call *c, int rc, const void *request, int done, const int *sizes);
/* A comm is closed by the plugin's own call; what is to be returned. */
int trace_close(struct trace_call *c, enum trace_comm kind, int (*plugin)(void *), void *comm);

/* ---- one-sided operations; the rest is as above ---- */
struct trace_op {
	const void *from, *to, *signal;
	uint64_t from_at, to_at;
	size_t size;
	uint32_t rank;
	bool gets; /* `to` is here, else `from` */
};
/* The comm of a context, or `ctx` if it is none. */
void *trace_coll_of(void *ctx);
void trace_coll_begin(
	const struct trace_call *c, void *const *handles, int ranks, int rank, const void *listen);
void trace_coll_done(const struct trace_call *c, int rc, int ranks, const void *listen, void *coll);
void trace_context_done(const struct trace_call *c, int rc, const void *ctx);
void trace_context_end(const struct trace_call *c, const void *ctx);
void trace_op_begin(const struct trace_call *c, const struct trace_op *op);
void trace_op_posted(const struct trace_call *c, int rc, const void *request);

#endif
