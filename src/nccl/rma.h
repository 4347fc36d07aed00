/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.h - one-sided operations for NCCL: one core for all versions of the RMA and GIN tables;
 * rma_shim.c puts a table of each in front of it. docs/nccl/rma.md tells how they work.
 *
 * A coll comm has a comm context (comm_context.c) and an endpoint of the messaging library for each
 * rank, itself too. Everything of it is touched with the comm context's lock held: by NCCL's
 * threads, or by the progress thread, which serves what peers do while nobody calls. */
#ifndef ROPEWAY_NCCL_RMA_H
#define ROPEWAY_NCCL_RMA_H

#include "base/slots.h"
#include "nccl/plugin.h"
#include "ncclnet/abi/rma.h"

enum {
	RMA_RANKS_MAX = 1024,
	RMA_CONTEXTS_MAX = 64, /* of one createContext */
	RMA_MEMORIES_MAX = (1 << 20) - 1,
	/* a peer that has our registration n may send its own n + 1; but one that cannot register
	 * says so, and waits for nobody */
	RMA_REGS_AHEAD = 256,
	/* payloads up to this go in one message with their signal; longer ones by rpw_put_notify.
	 * Over TCP that is a question, bulk data and an answer; a message is one frame */
	RMA_SMALL = 4096,
	RMA_SMALL_TCP = 64 * 1024,
	RMA_CLOSE_MS = PLUGIN_CLOSE_MS,
	RMA_DEREG_MS = 2000,
	/* then a peer's puts are refused in silence: each answer and each line costs this side */
	RMA_REFUSALS_SAID = 16,
};

/* ---- the wire: active messages, beside those of listen.c; little-endian ---- */

enum { RMA_JOINED = PLUGIN_REFUSED + 1, RMA_REG, RMA_PUT, RMA_REFUSED };
/* Behind the hello: the rank that connects. `from` is the nonce of that rank's own handle, which
 * only ranks that have all handles know. */
struct rma_join {
	int32_t rank, ranks;
	uint8_t from[PLUGIN_NONCE_BYTES];
};
/* A rank's part of a collective registration; the body is its remote key. result: enum nccl_result,
 * when it could not register. */
struct rma_reg_head {
	uint64_t number, size;
	uint32_t id, type, flags;
	int32_t result;
};
/* The body goes to `to`, then the value is added to the signal. Ids of the receiver's; 0: none. */
struct rma_put_head {
	uint32_t to, signal;
	uint64_t to_off, signal_off, value;
};
_Static_assert(sizeof(struct rma_put_head) == 32,
	"with 8 bytes of payload and the library's head one cell of shared memory");
/* A put that the receiver did not do, and why: enum rma_refusal. */
struct rma_refused_head {
	struct rma_put_head put;
	uint64_t len, size;
	uint32_t why, signal;
};
enum rma_refusal { RMA_NO_MEMORY, RMA_BEYOND, RMA_NOT_HOST, RMA_NOT_ALIGNED, RMA_REFUSALS };

/* ---- objects ---- */

struct rma_comm;
struct rma_peer {
	struct rma_comm *comm;
	int rank;
	rpw_endpoint *ep;
	bool up;
	bool gone;    /* its endpoint has ended, ... */
	int status;   /* ... so: enum rpw_status */
	size_t small; /* payloads up to this fit into a message */
	/* requests with messages under way, the oldest first, each with the stamp of its first; and
	 * requests whose signal in a GPU waits for those up to `after`. Of all contexts */
	struct rpwi_list messages, waiting;
	uint64_t stamp;        /* of the newest */
	struct rpwi_list regs; /* of struct rma_reg: came before they were waited for */
	unsigned regs_count;
	/* puts that were refused here, and there; RMA_REFUSALS_SAID of each are told */
	unsigned refusals, refusals_heard;
	bool breached; /* it sent something that is nothing, and that was told */
	char name[160];
	char why[320];
};

/* What `mhandle` names. */
struct rma_there {
	rpw_rkey *key; /* NULL: 0 bytes */
	uint64_t size;
	uint32_t id;
	int type;
};
struct rma_memory {
	struct rma_comm *comm;
	uint32_t slot, id;
	char *data;
	size_t size;
	int type;
	uint64_t flags;
	rpw_memory *m;            /* NULL: 0 bytes */
	unsigned users;           /* operations under way */
	struct rma_there there[]; /* by rank */
};

/* One context index and one peer: order exists only here. */
struct rma_sequence {
	struct rpwi_list puts; /* those that later signals may have to wait for, oldest first */
	struct rpwi_list gets; /* gets and flushes */
	bool looking, again;
};
struct rma_context {
	uint64_t magic;
	int abi;
	struct rpwi_list all;
	struct rma_comm *comm;
	int count, traffic_class;
	struct rma_sequence sequence[]; /* count * ranks */
};

enum rma_kind { RMA_OP_PUT, RMA_OP_GET, RMA_OP_FLUSH };
struct rma_request {
	uint64_t magic;
	struct rma_comm *comm;
	struct rma_request *next_free;
	struct rpwi_list in_sequence;
	struct rma_sequence *sequence;
	struct rma_peer *peer;
	uint8_t state, kind; /* enum plugin_state, enum rma_kind */
	bool strong, gpu_signal;
	/* payload that moves in no order towards messages; a signal that waits for its turn */
	bool data_out, signal_owed;
	/* of a signal in a GPU: under way; its payload went as a message */
	bool adds, by_message;
	uint8_t messages_out;
	int result;
	rpw_request *data, *signal;
	struct rma_memory *used[3];
	const struct rma_there *signal_there;
	uint64_t signal_off, value, before;
	/* in the lists of its peer. after: 0, its signal has not had to wait for messages */
	struct rpwi_list in_messages, in_waiting;
	uint64_t stamp, after;
};

struct rma_comm {
	uint64_t magic;
	int abi;
	struct comm_context *cc;
	const struct plugin_device *device;
	int ranks, rank;
	bool failed, failed_said;
	bool shut;
	struct rma_context *own; /* of v11 and v12, whose operations name no context */
	struct rpwi_list contexts;
	unsigned contexts_count;
	struct rpwi_slots memories;
	uint64_t regs;        /* collective registrations so far */
	uint64_t reg_awaited; /* the one that is under way */
	struct rma_request *free_requests;
	struct rma_chunk *chunks;
	unsigned requests, requests_out;
	struct rma_peer peer[]; /* by rank; behind them our own end of the endpoint to ourselves */
};

/* ---- rma_check.c ---- */

static const uint64_t rma_coll_magic = 0x6c6c6f632d777072;    /* "rpw-coll" */
static const uint64_t rma_context_magic = 0x636d72612d777072; /* "rpw-armc" */
/* Of v11 and v12 operations name a coll comm instead. */
static inline bool rma_names_no_context(int abi)
{
	return abi >= PLUGIN_API_GIN && abi < PLUGIN_API_GIN + 13;
}
/* 0, or enum nccl_result with a line. */
int rma_comm_check(const void *coll, int abi, const char *call);
/* `ctx` is a context, or of v11 and v12 a coll comm; -1 for an index: any. */
int rma_context_check(void *ctx, int abi, int index, const char *call, struct rma_context **out);
/* The peer's end, or `status`, for NCCL; a line the first time, and queryLastError says so. */
int rma_peer_failed(struct rma_peer *p, int status, const char *doing);

/* ---- rma_comm.c: connect, close, contexts ---- */

int rma_connect(
	int abi, void **handles, int ranks, int rank, int contexts, void *listen_comm, void **coll);
int rma_close(int abi, void *coll);
int rma_context_create(int abi, void *coll, int contexts, int traffic_class, void **ctx);
int rma_context_destroy(int abi, void *ctx);
int rma_query(int abi, void *ctx, bool *failed);
int rma_progress(int abi, void *ctx);

/* ---- rma_join.c: how the endpoints of a coll comm come to be ---- */

/* With the deadline of ROPEWAY_NCCL_TIMEOUT_MS; 0, or enum nccl_result with a line. */
int rma_join_all(struct rma_comm *c, struct plugin_comm *lc, const struct plugin_handle *handles);

/* ---- rma_choice.c: is this library to be NCCL's choice, and what its devices are ---- */

int rma_init(int abi, nccl_logger log, void **instance);
int rma_devices(int abi, int *ndev);
int rma_ptr_support(void);

/* ---- rma_memory.c ---- */

int rma_reg(int abi, void *coll, void *data, size_t size, int type, uint64_t flags, void **mhandle);
/* Refuses, on all ranks. */
int rma_reg_dmabuf(int abi, void *coll, void **mhandle);
int rma_dereg(int abi, void *coll, void *mhandle);
struct rma_memory *rma_memory_of(struct rma_comm *c, const void *mhandle);
struct rma_memory *rma_memory_by_id(struct rma_comm *c, uint32_t id);
void rma_reg_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm);
void rma_memories_free(struct rma_comm *c);
void rma_regs_free(struct rma_peer *p);

/* ---- rma_put.c, rma_request.c: operations ---- */

struct rma_op {
	const char *call;
	uint64_t from_off;
	void *from;
	size_t size;
	uint64_t to_off;
	void *to;
	uint32_t rank, options;
	bool signals, strong;
	uint64_t signal_off;
	void *signal;
	uint64_t value;
	uint32_t op;
};
int rma_put(int abi, void *ctx, int index, const struct rma_op *op, void **request);
int rma_get(int abi, void *ctx, int index, const struct rma_op *op, void **request);
int rma_flush(int abi, void *ctx, int index, void *mhandle, uint32_t rank, void **request);
int rma_test(int abi, void *coll, void *request, int *done);

struct rma_request *rma_request_new(
	struct rma_sequence *sequence, struct rma_peer *p, enum rma_kind kind);
void rma_request_use(struct rma_request *q, struct rma_memory *m);
/* Nothing of it is under way any more: it is done, and leaves its sequence. */
void rma_request_finish(struct rma_request *q);
void rma_requests_free(struct rma_comm *c);

/* ---- rma_target.c: what peers' puts do here ---- */

void rma_put_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm);
void rma_refused_arrived(rpw_endpoint *ep, const void *header, size_t header_len, const void *data,
	size_t len, void *comm);

#endif
