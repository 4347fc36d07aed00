/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_priv.h - what the files of the verbs transport share.
 *
 * A context (struct verbs) has one plane for each device that it uses: protection domain,
 * completion queue, shared receive queue, buffers. An endpoint has one RC queue pair for frames;
 * until both sides' handles are known it has one on each plane, since the handle must name it. With
 * its first operation on remote memory it gets a second one (verbs_rma_qp.c): large transfers do
 * not hold up frames, a closing endpoint can end them and still deliver its last frames, and an
 * access that the peer's device refuses breaks only the RMA QP, which is then made anew.
 *
 * Frames are SENDs into the shared receive queue. Each side grants the other credits, one for each
 * frame: so a frame finds a receive. The last credit is kept for frames that bring credits back, so
 * two sides that wait for each other cannot both be out of them.
 */
#ifndef ROPEWAY_TRAN_VERBS_PRIV_H
#define ROPEWAY_TRAN_VERBS_PRIV_H

#include <errno.h>

#include "base/error.h"
#include "ropeway.h"
#include "tran/tran.h"
#include "tran/verbs/verbs_path.h"
#include "tran/verbs/verbs_table.h"

enum {
	VERBS_SLOT_BYTES = 8704, /* of a buffer: frame header, head, body */
	VERBS_HEADER_BYTES = 8,
	VERBS_FRAME_MAX = VERBS_SLOT_BYTES - VERBS_HEADER_BYTES - TRAN_HEAD_MAX,
	/* asked for; a device may give less. More would make each idle queue pair larger */
	VERBS_INLINE_MAX = 64,
	VERBS_SQ_DEPTH = 16, /* an endpoint's share of memory, so small */
	/* of frames that hold no buffer one in so many asks for a completion */
	VERBS_SQ_SIGNAL = 8,
	VERBS_WINDOW_IDLE = 16, /* credits of an endpoint at first, */
	VERBS_WINDOW_MAX = 64,  /* and of one that is busy */
	/* Receives: one for each two endpoints, these, and what busy ones add. A queue that is
	 * shared goes through all its buffers in turn, so each costs its first page. Idle endpoints
	 * hold more credits than there are receives for them: should they all speak at once, the
	 * device asks those to repeat that find none (RNR), for ever. */
	VERBS_RX_RESERVE = 64,
	VERBS_RX_SHARE = 2,
	VERBS_RX_BATCH = 16,     /* so many are posted again at once; far fewer than the reserve */
	VERBS_RX_BUSY_MAX = 512, /* receives that all busy endpoints of a plane add */
	VERBS_SRQ_MAX = 16384,
	VERBS_TX_SLOTS_MAX = 1024,
	VERBS_CHUNK_SLOTS = 32,
	VERBS_CQ_MIN = 1024,
	VERBS_POLL_BATCH = 16,
	/* up to here a transfer goes through a buffer of ours: a copy costs less than a
	 * registration */
	VERBS_COPY_MAX = 4096,
	VERBS_OPS_MAX = 65536, /* remote-memory operations that wait, for each endpoint */
	VERBS_OPS_KEPT = 256,  /* of those that are done, for later ones */
	VERBS_RD_ATOMIC = 16,
	VERBS_PUT_PIECE = 1 << 30,
	/* READs have no flow control but this: what all answer at once overruns a socket or a
	 * switch, */
	VERBS_GET_PIECE = 256 << 10,
	VERBS_READING_MAX = 512 << 10, /* and two pieces keep the peer's device busy */
	VERBS_LINGER_MS = 3000,        /* what a closed endpoint still has to send */
	/* of progress in vain, between two looks at the processes of this host */
	VERBS_PEERS_LOOK = 1024,
	VERBS_WAYS_MAX = 32,
	/* an endpoint that waits for a frame of full width asks the device what it knows */
	VERBS_LOOK_MS = 50,
};

/* What is known of the way to a host (verbs_way.c). */
struct verbs_way {
	uint8_t host[16]; /* tran_facts.host_id */
	uint8_t mtu_max;  /* enum ibv_mtu */
	bool again;       /* learned since the last time that somebody asked */
	uint64_t until_ns;
};

/* ---- buffers (verbs_plane.c) ---- */
struct verbs_slot {
	uint8_t *buf;
	uint32_t lkey;
	struct verbs_slot *next;
};
struct verbs_chunk {
	struct verbs_chunk *next;
	void *mem;
	struct ibv_mr *mr;
	struct verbs_slot slot[VERBS_CHUNK_SLOTS];
};
struct verbs_pool {
	struct verbs_chunk *chunks;
	struct verbs_slot *free;
	unsigned slots, free_count;
};

struct verbs;
struct verbs_ep;
struct verbs_op;
struct verbs_sq;

struct verbs_plane {
	struct verbs *t;
	const struct verbs_table *v;
	unsigned index;
	char name[VERBS_NAME_BYTES];
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct verbs_port port[VERBS_DEV_PORTS_MAX]; /* QPN and PSN are an endpoint's */
	unsigned ports;
	bool atomics, software;
	uint8_t rd_in, rd_out; /* READs and atomics at a time, as responder and requester */
	unsigned srq_max;
	unsigned inline_max; /* what its QPs gave; UINT_MAX before the first */

	unsigned qps; /* made: each may fill its share of the CQ */
	unsigned cq_size;
	unsigned eps; /* started */
	unsigned rx_posted, rx_busy;
	struct verbs_pool rx, tx;
	struct verbs_slot *repost;
	struct ibv_wc *wc; /* polled; from wc_at on not yet handled */
	int wc_size, wc_count, wc_at;
	bool armed; /* a completion will make the channel readable */
	/* QPN -> queue: open addressing, a power of two, at most half full */
	struct verbs_sq **map;
	uint32_t map_mask, map_used;
};

struct verbs {
	struct tran base;
	struct tran_facts own;
	uint32_t nonce; /* so that a description of memory is not taken for another process's */
	bool opened;
	struct verbs_plane *plane[VERBS_PLANES_MAX];
	unsigned planes;
	int epoll_fd;
	struct rpwi_list all;       /* endpoints that have a queue pair started */
	struct rpwi_list starting;  /* endpoints that are not ready yet */
	struct rpwi_list lingering; /* closed ones that still send */
	struct rpwi_list peers;
	unsigned idle_rounds;
	bool look_at_peers;
	struct rpwi_list todo; /* endpoints with something to post or to tell */
	struct rpwi_list mems;
	struct verbs_op *free_ops;
	unsigned free_op_count;
	struct verbs_way way[VERBS_WAYS_MAX];
};

/* ---- endpoints ---- */
enum verbs_ep_state {
	VERBS_EP_MADE,
	VERBS_EP_STARTING,
	VERBS_EP_UP,
	VERBS_EP_FAILED,
	VERBS_EP_CLOSING
};

enum verbs_sqe_kind { VERBS_SQE_PLAIN, VERBS_SQE_SLOT, VERBS_SQE_OP };
struct verbs_sqe {
	void *p; /* slot or operation */
	enum verbs_sqe_kind kind;
	uint32_t reading; /* bytes that it asks the peer's device for */
};

/* A queue pair, and the WQEs posted on it: wr_id counts. */
struct verbs_sq {
	struct verbs_ep *ep;
	struct ibv_qp *qp;
	bool mapped; /* its plane knows it */
	uint32_t head, tail, unsignalled;
	struct verbs_sqe sqe[VERBS_SQ_DEPTH];
};

/* For operations on remote memory. Its epoch goes up each time that it is made; the two sides tell
 * each other by frames. */
enum verbs_rma_qp_state {
	VERBS_RMA_QP_NONE,
	VERBS_RMA_QP_OFFERED,
	VERBS_RMA_QP_CONNECTED,
	VERBS_RMA_QP_UP
};
struct verbs_rma_qp {
	struct verbs_sq sq;
	enum verbs_rma_qp_state state;
	bool say; /* our state is to be told */
	uint32_t epoch, psn;
	uint32_t reading; /* bytes asked for and not here yet */
};

/* A process of this host that endpoints lead to; its end is noticed without asking it. */
struct verbs_peer {
	struct rpwi_list link;
	uint32_t pid;
	int fd;
	unsigned refs;
	bool ended;
};

struct verbs_ep {
	struct tran_ep base;
	struct verbs *t;
	struct verbs_plane *p; /* the chosen one; NULL before ep_start */
	struct verbs_rma_qp *rma_qp;
	struct verbs_peer *peer;
	struct ibv_qp *made[VERBS_PLANES_MAX];
	uint32_t psn[VERBS_PLANES_MAX];
	enum verbs_ep_state state;
	bool active, same_host, want_room, bye_said, bye_heard;
	uint32_t peer_pid;
	uint8_t own_sees[16];
	struct verbs_port remote; /* and remote_gid: the peer's side of the choice */
	uint8_t remote_gid[16];
	uint32_t peer_nonce;
	uint64_t deadline_ns, look_ns;
	unsigned looks;
	uint8_t own_port, own_gid_index, mtu, mtu_max;
	uint8_t host[16];
	/* Before it is up, each side sends one frame that fills a packet: what the path does not
	 * let pass must not be found out with somebody's message. greeted: the peer's short one
	 * came. */
	bool wide_due, greeted, wide_said;
	bool rma_done; /* an operation on remote memory was */
	struct rpwi_list in_all, in_starting /* or lingering */, in_todo;

	struct verbs_sq sq; /* of frames */

	/* Credits: counters that run free. Ours to send: peer_granted - sent. The peer's: granted -
	 * received. */
	uint32_t sent, peer_granted, received, granted, window, received_data;

	struct rpwi_list ops;      /* not wholly posted, in order */
	struct rpwi_list inflight; /* wholly posted */
	unsigned op_count;
	/* puts and atomics asked for; as many are known to have taken effect */
	uint64_t changes, flushed;
};

static inline struct verbs *verbs_of(struct tran *t)
{
	return RPWI_CONTAINER_OF(t, struct verbs, base);
}
static inline struct verbs_ep *verbs_ep_of(struct tran_ep *e)
{
	return RPWI_CONTAINER_OF(e, struct verbs_ep, base);
}
static inline unsigned verbs_sq_room(const struct verbs_sq *q)
{
	return VERBS_SQ_DEPTH - (q->tail - q->head);
}
/* Posts with the next place of the shadow queue. 0, RPWI_LATER or an error. */
static inline int verbs_post(
	struct verbs_sq *q, struct ibv_send_wr *wr, enum verbs_sqe_kind kind, void *what)
{
	struct ibv_send_wr *bad;
	if (!verbs_sq_room(q))
		return RPWI_LATER;
	if (kind != VERBS_SQE_PLAIN || q->unsignalled + 1 >= VERBS_SQ_SIGNAL)
		wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr_id = (uint64_t)q->tail << 1 | 1;
	int rc = ibv_post_send(q->qp, wr, &bad);
	if (RPWI_UNLIKELY(rc)) {
		return rpwi_fail(RPW_ERR_SYSTEM, "verbs: %s takes no work request: %s",
			q->ep->base.path, strerror(rc > 0 ? rc : errno));
	}
	q->sqe[q->tail++ % VERBS_SQ_DEPTH] = (struct verbs_sqe){.p = what, .kind = kind};
	q->unsignalled = wr->send_flags & IBV_SEND_SIGNALED ? 0 : q->unsignalled + 1;
	return 0;
}

static inline void verbs_todo(struct verbs_ep *ep)
{
	if (rpwi_list_empty(&ep->in_todo))
		rpwi_list_add_tail(&ep->t->todo, &ep->in_todo);
}

/* ---- verbs_plane.c ---- */
static inline unsigned verbs_rx_of(const struct verbs_plane *p, unsigned eps)
{
	return eps / VERBS_RX_SHARE + VERBS_RX_RESERVE + p->rx_busy;
}
/* Opens the devices, once. 0 or an error. */
int rpwi_verbs_planes_open(struct verbs *t);
void rpwi_verbs_planes_close(struct verbs *t);
struct verbs_slot *rpwi_verbs_slot_get(
	struct verbs_plane *p, struct verbs_pool *pool, unsigned slots_max);
static inline void verbs_slot_put(struct verbs_pool *pool, struct verbs_slot *s)
{
	s->next = pool->free;
	pool->free = s;
	pool->free_count++;
}
/* Post receives: those that wait to be posted again, and as many new ones as the endpoints need. */
void rpwi_verbs_rx_fill(struct verbs_plane *p);
int rpwi_verbs_cq_reserve(struct verbs_plane *p); /* room for one more QP; 0 or an error */
int rpwi_verbs_map_add(struct verbs_plane *p, struct verbs_sq *q);
void rpwi_verbs_map_del(struct verbs_plane *p, const struct verbs_sq *q);
struct verbs_sq *rpwi_verbs_map_find(const struct verbs_plane *p, uint32_t qpn);
void rpwi_verbs_events_drain(struct verbs_plane *p);

/* ---- verbs_state.c ---- */
void rpwi_verbs_ep_up(struct verbs_ep *ep);
/* Tells msg, once. No up-calls after it. */
void rpwi_verbs_ep_fail(struct verbs_ep *ep, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- verbs_qp.c ---- */
struct ibv_qp *rpwi_verbs_qp_new(struct verbs_plane *p);
void rpwi_verbs_qp_free(struct verbs_plane *p, struct ibv_qp *qp);
uint32_t rpwi_verbs_psn(void);
/* RESET to RTS, towards that QP of the peer. 0 or an error. */
int rpwi_verbs_qp_connect(
	struct verbs_ep *ep, struct ibv_qp *qp, uint32_t psn, uint32_t peer_qpn, uint32_t peer_psn);
/* Bits of the device's answer: packets are too big, or lost for their size. */
enum { VERBS_PATH_WORD_BYTES = 400, VERBS_WORD_OF_SIZE = 1 << 0 | 1 << 6 };
/* *bytes: the largest MTU that passes, 0 not known; *word: a sentence, or "". */
unsigned rpwi_verbs_path_word(const struct verbs_ep *ep, struct ibv_qp *qp, unsigned *bytes,
	char word[VERBS_PATH_WORD_BYTES]);
/* The queue pair goes, with what is posted on it; completions polled of it are forgotten. */
void rpwi_verbs_sq_free(struct verbs_ep *ep, struct verbs_sq *q);

/* ---- verbs_ep.c ---- */
int rpwi_verbs_ep_make(struct tran *t, const struct tran_control *control, void *user,
	struct tran_ep **out, uint8_t *handle, size_t *handle_len);
int rpwi_verbs_ep_start(struct tran_ep *ep, const uint8_t *handle, size_t len, unsigned timeout_ms);
void rpwi_verbs_ep_close(struct tran_ep *ep);
void rpwi_verbs_ep_fail_wc(struct verbs_ep *ep, const struct ibv_wc *wc, const char *what);
/* It waits for frames of full width: do they pass, as far as the device knows? If not, it fails,
 * and the next one has a smaller MTU. late: its time is up. */
void rpwi_verbs_ep_look(struct verbs_ep *ep, bool late);
void rpwi_verbs_ep_free(struct verbs_ep *ep); /* closed: all of it */

/* ---- verbs_peer.c ---- */
/* NULL: it cannot be watched */
struct verbs_peer *rpwi_verbs_peer_get(struct verbs *t, uint32_t pid);
void rpwi_verbs_peer_put(struct verbs *t, struct verbs_peer *peer);
bool rpwi_verbs_peer_ended(struct verbs_peer *peer);

/* ---- verbs_way.c ---- */
/* The largest MTU (enum ibv_mtu) to try with that host. */
uint8_t rpwi_verbs_way_mtu(struct verbs *t, const uint8_t *host);
/* Packets of MTU `from` do not pass: the next endpoints begin with the largest of at most `bytes`
 * (0: one less). False: there is none. Forgotten after ten minutes. */
bool rpwi_verbs_way_narrow(struct verbs *t, const uint8_t *host, uint8_t from, unsigned bytes);
bool rpwi_verbs_way_again(struct tran *t, const struct tran_facts *peer); /* tran_ops.again */

/* ---- verbs_rma_qp.c ---- */
bool rpwi_verbs_rma_qp_ready(struct verbs_ep *ep); /* begins to make it when there is none */
/* What the peer says of its side. */
void rpwi_verbs_rma_qp_came(struct verbs_ep *ep, const uint8_t *body, size_t len);
void rpwi_verbs_rma_qp_body(const struct verbs_ep *ep, uint8_t *out);
/* It is broken; all that was posted is to be posted again. */
void rpwi_verbs_rma_qp_broke(struct verbs_ep *ep,
	struct verbs_op *refused /* or NULL: it ends with RPW_ERR_ACCESS */, bool certain);
void rpwi_verbs_rma_qp_free(struct verbs_ep *ep);
enum { VERBS_RMA_QP_BYTES = 16 };

/* ---- verbs_frame.c ---- */
enum verbs_frame_type {
	VERBS_FRAME_HELLO = 1,
	VERBS_FRAME_DATA,
	VERBS_FRAME_CREDIT,
	VERBS_FRAME_BYE,
	VERBS_FRAME_RMA_QP
};
int rpwi_verbs_send(struct tran_ep *ep, const void *head, size_t head_len, const struct iovec *iov,
	int iovcnt, size_t body_len);
/* The frame that fills a packet, if it has not gone. */
void rpwi_verbs_say_wide(struct verbs_ep *ep);
/* One of our own kinds; false: no room now. */
bool rpwi_verbs_control(struct verbs_ep *ep, enum verbs_frame_type type);
void rpwi_verbs_frame_came(struct verbs_ep *ep, const uint8_t *buf, size_t len);
/* Credits to give back, operations to post, room to report. */
void rpwi_verbs_ep_work(struct verbs_ep *ep);

/* ---- verbs_op.c ---- */
enum verbs_op_kind { VERBS_OP_GET, VERBS_OP_PUT, VERBS_OP_ADD, VERBS_OP_SWAP, VERBS_OP_FLUSH };
struct verbs_op {
	struct rpwi_list link;
	enum verbs_op_kind kind;
	void *cookie;
	uint8_t *local;
	uint64_t remote, len, posted;
	uint32_t rkey, lkey;
	bool gpu;
	struct ibv_mr *mr; /* of this operation only */
	struct verbs_slot *slot;
	unsigned out; /* work requests under way */
	uint64_t operand, compare, *before;
	uint64_t changes; /* of a flush: what it covers */
};
/* The last of those that wait, or NULL. */
struct verbs_op *rpwi_verbs_op_new(struct verbs_ep *ep, enum verbs_op_kind kind, void *cookie);
/* status: of the last error, or 0. */
void rpwi_verbs_op_done(struct verbs_ep *ep, struct verbs_op *op, int status);
/* A work request of it is done. */
void rpwi_verbs_op_retired(struct verbs_ep *ep, struct verbs_op *op, int status);
/* its error is the last one */
void rpwi_verbs_op_refused(
	struct verbs_ep *ep, const struct verbs_op *op, enum ibv_wc_status status);
/* The RMA QP is gone: its WQEs are to be posted again. False: an atomic operation was, of which
 * nobody knows whether it took effect. */
bool rpwi_verbs_ops_again(struct verbs_ep *ep, bool certain);
/* Everything of an endpoint whose RMA QP is gone: no up-calls. */
void rpwi_verbs_ops_drop(struct verbs_ep *ep);
void rpwi_verbs_ops_free(struct verbs *t);

/* ---- verbs_rma.c ---- */
int rpwi_verbs_mem_add(
	struct tran *t, void *addr, size_t len, unsigned access, struct tran_mem **out);
void rpwi_verbs_mem_del(struct tran *t, struct tran_mem *m);
int rpwi_verbs_gpu_add(
	struct tran *t, const struct tran_gpu_memory *what, unsigned access, struct tran_mem **out);
int rpwi_verbs_rma(struct tran_ep *ep, bool is_put, const struct tran_desc *remote, uint64_t offset,
	void *local, size_t len, const struct tran_mem *mem, void *cookie);
int rpwi_verbs_atomic(struct tran_ep *ep, enum tran_atomic op, const struct tran_desc *remote,
	uint64_t offset, uint64_t operand, uint64_t compare, uint64_t *before, void *cookie);
int rpwi_verbs_flush(struct tran_ep *ep, void *cookie);
void rpwi_verbs_ops_pump(struct verbs_ep *ep);

#endif
