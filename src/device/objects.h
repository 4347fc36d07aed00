/* SPDX-License-Identifier: BSD-3-Clause */
/* objects.h - the objects of verbs, and what they share: peers and ports. Private to device/. */
#ifndef ROPEWAY_DEVICE_OBJECTS_H
#define ROPEWAY_DEVICE_OBJECTS_H

#include "base/heap.h"
#include "cm/cm.h"
#include "device/device.h"
#include "device/live.h"
#include "device/qplock.h"
#include "io/io.h"
#include "like/like.h"
#include "like/own.h"
#include "rc/rc.h"

enum {
	DEV_VENDOR_ID = 0x726f70, /* "rop" */
	DEV_VENDOR_PART_ID = 1,
	DEV_HW_VER = 1,
	DEV_KEYS_MAX = 1 << 22, /* of all devices together; half of the table stays empty */
	DEV_PORTS_MAX = 64,
};

/* A device as listed: one for the life of the process; `net` is refreshed when addresses change. */
struct dev {
	union {
		struct ibv_device ibv;
		uint8_t room[1024]; /* programs that know verbs_device read past ibv_device */
	};
	struct rpwi_netdev net;
	int index;
	unsigned place;            /* in the list */
	bool present;              /* it may still be hidden from programs: net.hidden */
	unsigned live[LIVE_KINDS]; /* so many objects (live.c) */
	struct dev *next;
};
static inline struct dev *to_dev(const struct ibv_device *d) { return (struct dev *)(uintptr_t)d; }

struct event_node {
	struct rpwi_list link;
	struct ibv_async_event ev;
};

struct dctx {
	struct verbs_context v; /* v.context is last but one: see to_dctx */
	struct dev *dev;
	struct rpwi_list link; /* hca_here.contexts: changed under both locks, read under either */
	struct rpwi_list events;
	uint32_t group; /* with those that were imported from it, or it from them (context.c) */
	int hold_fd;    /* keeps the loopback interface's device shown (io.h), or -1 */
	struct rpwi_counters *tally; /* its device's (tally.h); never NULL */
	uint32_t place;              /* where it was opened (check/made.h) */
};
static inline struct dctx *to_dctx(const struct ibv_context *c)
{
	return RPWI_CONTAINER_OF((struct ibv_context *)(uintptr_t)c, struct dctx, v.context);
}

struct dpd {
	struct ibv_pd ibv;
	struct dpd *parent; /* of a parent domain or an imported PD, else NULL */
	bool imported;
	uint32_t id; /* unique in this process; 0 where there is a parent */
	unsigned refs;
	/* pd.c */
	uint32_t group;   /* contexts that may import it: dctx.group */
	unsigned imports; /* of it, that are not yet given back */
	bool dead;        /* deallocated, but its imports are still there */
	struct live live;
};
static inline struct dpd *to_dpd(const struct ibv_pd *p)
{
	struct dpd *d = (struct dpd *)(uintptr_t)p;
	return d->parent ? d->parent : d;
}

/* What a key leads to: a memory region or a memory window. The key is index << 8 | tag. */
struct dkey {
	uint32_t key;
	bool is_mw, is_null, valid; /* is_null: no memory, see ibv_alloc_null_mr(3) */
	int access;
	struct dpd *pd;
	uint64_t iova, length;
	uint8_t *addr;   /* where iova lies in this process */
	uint32_t refs;   /* MWs bound to this MR; QPs bound to this MW */
	uint32_t qpn;    /* type 2 MW: the QP it is bound to */
	struct dkey *mr; /* MW: the MR under it */
};
struct dmr {
	struct ibv_mr ibv;
	struct dkey k;
	void *map; /* of a dma-buf, ours; else NULL */
	size_t map_len;
	bool imported; /* from another context of the group: the key is not its own (pd.c) */
	struct live live;
};
/* verbs.h reads the context of a window that is freed twice before the device can look: there the C
 * library writes nothing. */
struct dmw {
	struct live live;
	struct ibv_mw ibv;
	struct dkey k;
};

struct dchannel {
	struct ibv_comp_channel ibv; /* fd is an eventfd, readable while events wait */
	struct rpwi_list cqs;        /* CQs with events, in order */
	unsigned refs;
	struct live live;
};

/* When it came to be: CLOCK_MONOTONIC and CLOCK_REALTIME. */
struct cq_stamp {
	uint64_t raw_ns, wall_ns;
};

enum { NOTIFY_NONE, NOTIFY_SOLICITED, NOTIFY_ALL };
struct dcq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	_Atomic uint32_t spin; /* who is in the ring: hca_here.generation, or 0 */
	uint32_t mask, cap;
	_Atomic uint32_t head, tail; /* free-running; tail - head wait */
	struct ibv_wc *ring;
	int notify;
	/* ibv_modify_cq: an event waits for so many completions, or so long after the first of
	 * them; either 0, or a count of 1: for none */
	uint16_t event_count, event_period_us;
	uint16_t unsaid;                     /* completions that an event waits with */
	uint64_t say_at_ns;                  /* 0: none waits */
	unsigned pending_events, events_got; /* events queued now; events handed out */
	struct rpwi_list link;               /* in its channel */
	unsigned refs;                       /* QPs */
	bool overflowed, is_ex, ignore_overrun;
	struct ibv_wc cur; /* start_poll..end_poll */
	/* beside the ring, where time stamps were asked for; of the completion popped last */
	struct cq_stamp *stamps, cur_stamp;
	bool stamps_wall;
	uint32_t ordinal; /* the n-th of the process: for fault scripts, as below */
	/* completions that device/fault.c keeps, and when the last of them is due */
	unsigned kept;
	uint64_t kept_until_ns;
	struct live live;
};
static inline struct dcq *to_dcq(const struct ibv_cq *c) { return (struct dcq *)(uintptr_t)c; }

struct dsrq {
	struct ibv_srq ibv;
	struct rpwi_rq rq;
	unsigned refs;
	uint32_t ordinal;
	uint32_t events_got;
	struct rpwi_list qps;
	struct live live;
};

/* What ibv_wr_start begins: build.c. */
struct wr_build {
	struct wr_piece *first, *last;
	struct ibv_send_wr *cur; /* the last one; NULL: none yet */
	unsigned n;
	int err; /* nothing of it will be posted */
};

struct dqp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	struct rpwi_qp t;
	struct rpwi_rq rq;
	struct dcq *scq, *rcq;
	struct dsrq *srq;
	struct dpd *pd;
	struct dctx *ctx;
	struct ibv_qp_cap cap;
	bool sq_sig_all;
	bool has_wr_ops;
	pthread_mutex_t build_lock;
	struct wr_build build;           /* between wr_start and wr_complete */
	const struct ibv_send_wr *batch; /* that is posted whole or not at all (build.c) */
	struct rpwi_list tx_link;        /* hca_here.tx_list, or its peer's blocked list */
	struct rpwi_list held_link;      /* hca_here.held: an ACK waits for the next post or poll */
	struct rpwi_list srq_link;
	/* its deadline may lie before the QP's own, which has moved later since */
	struct rpwi_heap_node timer;
	struct dport *ports[RPWI_GIDS_MAX];
	unsigned nports;     /* what it keeps open */
	uint64_t board_word; /* what the board says of it (board.c) */
	struct dpeer *peer;
	uint32_t events_got;
	bool waits;         /* is in its peer's blocked list */
	uint32_t turn_pkts; /* sent in its turn so far */
	uint8_t gathers;    /* is in tx_list for send_gather, until so many posts wait; or 0 */
	bool blocks_own;    /* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB */
	unsigned groups;    /* that it is attached to (mcast.c) */
	unsigned windows;   /* of type 2, bound to it */
	struct rpwi_list rx_link;
	uint64_t heard_ns;            /* a packet for it came last; 0: none yet */
	uint64_t told_ns;             /* its connection was told to be over; 0: it has none */
	bool peer_gone;               /* the process at the other end has no device any more */
	struct ledger_qp *ledger;     /* what is left behind of it (ledger.c), or NULL */
	struct rpwi_counters_qp *row; /* where it counts (tally.h), or NULL */
	uint32_t ordinal;
	struct live live;
	enum rpwi_lock lock;   /* of RPWI_LOCK_QPS and those behind it */
	struct {               /* how its packets go (qp_path.h) */
		uint32_t turn; /* hca_here.path_turn when it was chosen; 0: for this time alone */
		struct rpwi_lane *lane;
		const struct qp_path_ops *ops;
	} path;
	struct dcounter *counters[RPWI_COUNTED]; /* by bit of rpwi_counted, or NULL */
	struct dslots *slots;                    /* slots.c, or NULL */
};
static inline struct dqp *to_dqp(const struct ibv_qp *q) { return (struct dqp *)(uintptr_t)q; }
static inline struct dqp *dqp_of(struct rpwi_qp *t) { return RPWI_CONTAINER_OF(t, struct dqp, t); }

/* A completion counter (comp_cntr.c). */
struct dcounter {
	struct rpwi_comp_cntr ibv;
	struct live live;
	unsigned refs; /* QPs' kinds that it counts */
	bool of_bytes;
	_Atomic uint64_t count, errors;
};

struct dah {
	struct ibv_ah ibv;
	struct rpwi_av av;
	struct dport *port;
	struct dpeer *peer;
	struct live live;
};

/* A process at a peer's address: the congestion window of all QPs towards it, and those that wait
 * for it, in turn. */
struct dpeer {
	struct rpwi_cc cc;
	struct rpwi_addr addr;
	/* of its QPNs; of another peer 4,096 of them, whosever they are */
	uint32_t slot;
	unsigned refs;
	bool sends_batches;   /* and they arrive whole: see ack_may_follow in send.c */
	bool is_ropeway;      /* it has answered as one: alive.h */
	uint32_t acks_before; /* ACKs sent with requests while that was not known */
	struct rpwi_list blocked;
	struct rpwi_list wait_link; /* hca_here.waited: perhaps some are blocked */
	struct rpwi_list link;      /* hca_here.peers */
};

struct dport {
	struct rpwi_port *io;
	struct rpwi_addr addr;
	unsigned refs;
	/* empty polls in a row: a quiet port is polled less often when there are several */
	unsigned quiet;
	/* not 0: nobody uses it, and the one reference left is that of ports_tend, which closes it
	 * then */
	uint64_t close_ns;
};

#endif
