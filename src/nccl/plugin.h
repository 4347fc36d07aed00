/* SPDX-License-Identifier: BSD-3-Clause */
/* plugin.h - the NCCL network plugin: one core for all versions of the plugin API; shim.c puts
 * a table of each in front of it. DESIGN.md has the rules.
 *
 * Threads: NCCL's proxy thread (isend, irecv, test) and its service thread (regMr, connect, accept,
 * close) come at once, beside the progress thread and the helper threads. What belongs to a comm
 * context is touched with the comm context's lock held. */
#ifndef ROPEWAY_NCCL_PLUGIN_H
#define ROPEWAY_NCCL_PLUGIN_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "ncclnet/abi/net.h"
#include "ropeway.h"

enum {
	PLUGIN_RECVS_MAX = NCCL_NET_GROUP_MAX, /* maxRecvs */
	PLUGIN_REQUESTS = NCCL_NET_MAX_REQUESTS * PLUGIN_RECVS_MAX,
	PLUGIN_DEVICES_MAX = 64, /* real ones and virtual ones */
	PLUGIN_VDEVICE_MAX = 8,
	PLUGIN_COMMS_MAX = 65536,
	PLUGIN_CONNECT_MS = 30000, /* ROPEWAY_NCCL_TIMEOUT_MS */
	/* its peer may not even have the handle yet; ROPEWAY_NCCL_TIMEOUT_MS, where set, is for
	 * both */
	PLUGIN_ACCEPT_MS = 300000,
	PLUGIN_REFUSED_MS = 1000, /* then the listener is gone */
	PLUGIN_CLOSE_MS = 1000,
	PLUGIN_BYTES_MAX_LOG2 = 40, /* 1 TiB */
};

/* ---- log.c: NCCL's logger, what errors are called, and tables ---- */

/* A table is told from another by one number: of the net tables their version, of the others that
 * and these. */
enum { PLUGIN_API_RMA = 100, PLUGIN_API_GIN = 200, PLUGIN_API_LEN = 16 };
static inline bool plugin_api_is_rma(int abi) { return abi >= PLUGIN_API_RMA; }
/* "v12", "RMA v16", "GIN v11" */
const char *plugin_api(int abi, char text[PLUGIN_API_LEN]);
#define PLUGIN_API(abi) plugin_api(abi, (char[PLUGIN_API_LEN]){""})

void plugin_log_to(nccl_logger log);
void plugin_log(int level, const char *where, int line, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
#define plugin_info(...) plugin_log(NCCL_LOG_INFO, __func__, __LINE__, __VA_ARGS__)
#define plugin_warn(...) plugin_log(NCCL_LOG_WARN, __func__, __LINE__, __VA_ARGS__)
/* The result for NCCL of an enum rpw_status, and what people are to look at. */
int plugin_result(int status);
const char *plugin_advice(int status);

/* ---- devices.c ---- */

struct plugin_device {
	char name[96];    /* of the interface; those of a virtual device with + between them */
	char address[64]; /* numeric */
	bool v6, loopback;
	char *pci_path; /* or NULL */
	uint64_t guid;
	int speed;      /* Mbit/s */
	char rdma[256]; /* "mlx5_0,mlx5_1": those that verbs uses on it; "" all there are */
	bool no_rdma;   /* NCCL_IB_DISABLE, or NCCL_IB_HCA names none that is there */
	struct nccl_net_vdevice_v12 parts;
};
/* Found once, and then as they are for as long as the process lives. Number, or 0. */
int plugin_devices(void);
const struct plugin_device *plugin_device(int dev); /* NULL: no such one */

/* ---- support.c ---- */

/* What contexts of that device may use: as the environment has it, else `automatic`, less what is
 * none of its. Written to `list`, or static. */
const char *plugin_transports(
	const struct plugin_device *d, const char *automatic, char *list, size_t len);
/* enum nccl_ptr bits: the kinds of memory that comms of this device take. */
int plugin_ptr_support(const struct plugin_device *d);
/* Why memory of GPUs is not among them; after plugin_ptr_support. */
const char *plugin_gpu_missing(const struct plugin_device *d);

/* ---- handle.c ---- */

enum { PLUGIN_NONCE_BYTES = 16, PLUGIN_HANDLE_LAYOUT = 1 };
/* What listen gives and connect takes; carried by NCCL as opaque bytes. All but `token` are under
 * the CRC. */
struct plugin_handle {
	uint8_t magic[8];
	uint32_t crc; /* of the whole, this and `token` as zero */
	uint16_t layout, abi;
	char version[16];
	uint8_t nonce[PLUGIN_NONCE_BYTES];
	char address[64]; /* "192.0.2.2:4711" or "[2001:db8::2]:4711" */
	uint8_t reserved[8];
	uint64_t token; /* connect's own: which connect under way this is */
};
_Static_assert(sizeof(struct plugin_handle) == NCCL_NET_HANDLE_BYTES, "NCCL carries 128 bytes");
void plugin_handle_make(
	struct plugin_handle *h, int abi, const uint8_t *nonce, const char *address);
/* 0, or enum nccl_result with a sentence. */
int plugin_handle_check(const struct plugin_handle *h, int abi, char *why, size_t why_len);

/* ---- comm_context.c: a context and its lock; the progress thread ---- */

/* What a comm context still has to do after its comm was closed: the progress thread sees to it. */
struct comm_tail {
	struct rpwi_list link;
	uint64_t until_ns;
	/* With the comm context's lock held, progressed: true once nothing is left to do, and the
	 * tail is gone; at until_ns at the latest. */
	bool (*over)(struct comm_tail *t, uint64_t now_ns);
};

struct comm_context {
	pthread_mutex_t lock;
	rpw_context *c;
	unsigned users; /* comms and connects; the last one takes it away */
	uint64_t uses;  /* by others than the progress thread */
	/* how often it was seen that all sends that are complete have left this process */
	uint64_t gone;
	bool passive;
	/* its coll comm, or NULL: one at a time, since its handlers are the context's */
	_Atomic(const void *) coll;
	bool armed; /* nothing to do: the progress thread sleeps on its descriptor */
	/* the progress thread is to take it over at once, not when it has been quiet for a while */
	bool now;
	/* The progress thread's. */
	struct rpwi_list all;
	uint64_t id, seen, quiet_ns; /* the uses at the last look; until when it counts as in use */
	bool fired, tailed_off;
	struct rpwi_list tails; /* each of them is a user, too */
	/* The helper threads' (helpers.c). */
	struct rpwi_list helped;
	bool listed; /* or was to be, and there are none */
	_Atomic bool is_helped;
	_Atomic bool wanted;        /* somebody is about to post: no helper goes in */
	_Atomic bool owes;          /* a helper has moved it, and not to the end */
	_Atomic unsigned long_ones; /* requests of PLUGIN_LONG_BYTES and more under way */
};
/* enum rpw_status; one user. passive: peers reach into this side's memory, whether anybody here
 * calls or not: the progress thread takes it over as soon as nobody does. */
int comm_context_new(const struct plugin_device *d, bool passive, struct comm_context **out);
void comm_context_enter(struct comm_context *l);
bool comm_context_try(struct comm_context *l);
/* For isend and irecv. False: a helper thread is in it; they say so to NCCL, which calls again. */
bool comm_context_enter_to_post(struct comm_context *l);
static inline void comm_context_leave(struct comm_context *l) { pthread_mutex_unlock(&l->lock); }
/* Leaves it to the progress thread from now on: nobody is going to poll. */
void comm_context_leave_to_progress(struct comm_context *l);
/* Leaves one that is new, and is polled mostly: the progress thread hears of it. */
void comm_context_leave_begun(struct comm_context *l);
/* Is that the coll comm of one that lives? It is not followed. Without a comm context's lock. */
bool comm_context_has(const void *coll);
/* Gives a user's share back; not with the lock held. */
void comm_context_drop(struct comm_context *l);
/* Leaves with a tail, which takes over the caller's share. */
void comm_context_leave_tail(struct comm_context *l, struct comm_tail *t);
/* Until no comm context has a tail, PLUGIN_CLOSE_MS at the longest. */
void comm_context_settle(void);

/* ---- helpers.c: helper threads ---- */

enum { PLUGIN_LONG_BYTES = 128 * 1024 };
/* With the comm context's lock held: one more message of PLUGIN_LONG_BYTES is under way. */
void helpers_take(struct comm_context *l);
static inline void helpers_took(struct comm_context *l)
{
	atomic_fetch_sub_explicit(&l->long_ones, 1, memory_order_relaxed);
}
/* It is about to be freed: no helper is in it any more. */
void helpers_leave(struct comm_context *l);
/* Something moved. */
void helpers_wake(void);
/* No comm context is left. */
void helpers_stop(void);

/* ---- comms ---- */

enum plugin_kind { PLUGIN_LISTEN, PLUGIN_SEND, PLUGIN_RECV };
enum plugin_state { REQUEST_FREE, REQUEST_BUSY, REQUEST_DONE };

struct plugin_comm;
struct plugin_request {
	struct plugin_comm *comm;
	_Atomic uint8_t state;
	uint8_t n, left; /* receives of the group; those that are not done */
	bool is_long, was_busy;
	int result;
	/* of a send that was complete at once: the comm context's `gone` from which it is done; 0:
	 * now */
	uint64_t gone_after;
	rpw_request *r[PLUGIN_RECVS_MAX];
	size_t room[PLUGIN_RECVS_MAX]; /* of the buffers */
	int tags[PLUGIN_RECVS_MAX], sizes[PLUGIN_RECVS_MAX];
};

struct plugin_comm {
	uint64_t magic;
	int abi; /* of the table it was made by: no other may use it */
	enum plugin_kind kind;
	struct comm_context *cc;
	const struct plugin_device *device;
	rpw_endpoint *ep;
	bool warned; /* of its end, once */
	/* its path may hold bytes of sends that are complete: all do but shm, which is never
	 * exchanged for another */
	bool may_hold;
	char peer[160];
	struct rpwi_list memories;
	/* Free requests, a bit each: taken with the comm context's lock held, given back without
	 * it. */
	_Atomic uint64_t unused[PLUGIN_REQUESTS / 64];
	struct plugin_listener *listener; /* of a listen comm, which has no requests */
	struct comm_tail tail;            /* closed: the peer's word is waited for */
	rpw_request *flush;
	struct plugin_request request[];
};

struct plugin_comm *plugin_comm_new(
	enum plugin_kind kind, int abi, struct comm_context *cc, const struct plugin_device *d);
static inline bool plugin_request_busy(const struct plugin_request *q)
{
	return atomic_load_explicit(&q->state, memory_order_acquire) == REQUEST_BUSY;
}
/* Its operations go on without it, and it is free. With the comm context's lock held. */
void plugin_request_abandon(struct plugin_request *q);
void plugin_comm_free(struct plugin_comm *c);
/* 0, or enum nccl_result and a line: not ours, of another kind, of another version's table. kind
 * -1: send or receive. */
int plugin_comm_check(const void *comm, int kind, int abi, const char *call);
/* Gives what the endpoint's end, or `status` where it has not ended, is for NCCL; a line the first
 * time. With the comm context's lock held. */
int plugin_comm_failed(struct plugin_comm *c, int status, const char *doing);
/* For people: who, how and why; once it is connected. */
void plugin_comm_say(struct plugin_comm *c, const char *what);

/* ---- hello.c: how an endpoint becomes a comm. The connecting side says HELLO, the other WELCOME
 * or REFUSED with a sentence; active messages, whose header is this ---- */

enum { PLUGIN_HELLO = 1, PLUGIN_WELCOME, PLUGIN_REFUSED, PLUGIN_HELLO_MORE_MAX = 64 };
struct plugin_hello {
	uint32_t magic;
	int32_t abi;
	char version[16];
	uint8_t nonce[PLUGIN_NONCE_BYTES];
};
void plugin_hello_make(struct plugin_hello *h, int abi, const uint8_t *nonce);
/* "" or why it is refused. */
void plugin_hello_check(
	const void *header, size_t len, int abi, const uint8_t *nonce, char *why, size_t why_len);

/* ---- what the shims call; each gives enum nccl_result. Outputs are written always ---- */

struct plugin_ctx; /* v11 on */
int plugin_init(int abi, nccl_logger log, struct plugin_ctx **ctx /* or NULL */);
int plugin_finalize(int abi, struct plugin_ctx *ctx);
int plugin_no_device(int dev); /* says so */
int plugin_listen(int abi, int dev, void *handle, void **listen_comm);
int plugin_connect(int abi, int dev, void *handle, void **send_comm);
int plugin_accept(int abi, void *listen_comm, void **recv_comm);
int plugin_reg(int abi, void *comm, void *data, size_t size, int type, void **mhandle);
int plugin_reg_dmabuf(int abi, void *comm, void *data, size_t size, int type, uint64_t offset,
	int fd, void **mhandle);
int plugin_dereg(int abi, void *comm, void *mhandle);
int plugin_isend(
	int abi, void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
int plugin_irecv(int abi, void *comm, int n, void **data, const size_t *sizes, const int *tags,
	void **mhandles, void **request);
int plugin_iflush(
	int abi, void *comm, int n, void **data, const int *sizes, void **mhandles, void **request);
int plugin_test(int abi, void *request, int *done, int *sizes);
int plugin_close(int abi, void *comm, enum plugin_kind kind);
int plugin_join(int *dev, int n, const int *devs);

/* ROPEWAY_NCCL_TIMEOUT_MS, or `otherwise`. */
unsigned plugin_timeout_ms(unsigned otherwise);
/* What an instance of a table is. */
struct plugin_ctx *plugin_ctx_new(int abi); /* NULL with a line */
/* Is NCCL using the net plugin of this library? */
bool plugin_net_in_use(void);
/* The oldest endpoint that came to a listen comm and said hello, and what it said beside; NULL:
 * none. With the comm context's lock held; the caller's from now on. */
rpw_endpoint *plugin_listen_take(
	struct plugin_comm *lc, uint8_t more[PLUGIN_HELLO_MORE_MAX], size_t *more_len);
const uint8_t *plugin_listen_nonce(const struct plugin_comm *lc);
/* What the line about a peer that did not come says at its end: that others came and were refused;
 * "": none did. With the comm context's lock held. */
const char *plugin_listen_refused(struct plugin_comm *lc, char *text, size_t len);
/* Parts of plugin_close. */
void plugin_listen_close(struct plugin_comm *c);
void plugin_memories_free(struct plugin_comm *c);

#endif
