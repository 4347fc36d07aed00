/* SPDX-License-Identifier: BSD-3-Clause */
/* hca.h - the objects of the software HCA and the lock they live under. Private to device/.
 *
 * One process has one `struct hca` (the name `hca_here`), whatever number of devices and contexts
 * it opens: one service thread, one set of ports, one QPN space.
 *
 * The lock rule: the HCA's lock (RPWI_LOCK_HCA, base/lock.h) is held over everything that touches
 * transport state (QPs, RQs, MRs, peers, ports, timers). The program's data path takes it in
 * post_send, post_recv and in poll_cq when it makes progress there (try-lock: if somebody else is
 * making progress, poll_cq only looks at its CQ).
 *
 * Once several threads post (qplock.h, which stays), each QP has a lock beside that, one of
 * RPWI_QPS_LOCKS, and what needs nothing but the QP takes it alone: receives are posted so, and
 * READs out of the peer's memory are done so (rpwi_qp_read_alone). Who has the HCA's lock takes it
 * before it touches a QP's queues (qp_hold), and keeps it until it gives that one back. What is
 * read with any QP's lock and seldom changed (keys, lanes and who is at their other ends) is
 * changed with all of them (qplock_take_all). So nobody waits for the HCA's lock who has a QP's
 * alone.
 *
 * A CQ's ring has a spin lock of its own (producer: under the HCA's lock or a QP's, and without it
 * where there is but one of them and no event; consumers: the program), taken after those, never
 * before them. A completion channel's and a context's event
 * lists are under RPWI_LOCK_EVENTS, innermost of all.
 *
 * The error rule: functions give 0 or -errno, here as in rc/, cm/ and io/. What a verb is called by
 * gives what the verb does (errno, or NULL or -1 with errno set), and turns it round itself.
 */
#ifndef ROPEWAY_DEVICE_HCA_H
#define ROPEWAY_DEVICE_HCA_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/heap.h"
#include "base/lock.h"
#include "cm/cm.h"
#include "device/device.h"
#include "device/live.h"
#include "device/qplock.h"
#include "io/io.h"
#include "rc/rc.h"

enum {
	DEV_VENDOR_ID = 0x726f70, /* "rop" */
	DEV_VENDOR_PART_ID = 1,
	DEV_HW_VER = 1,
	DEV_QP_MAX = 65536, /* of all kinds: of one device; a process has 262,080 numbers */
	DEV_PD_MAX = 65536,
	DEV_CQ_MAX = 65536,
	DEV_SRQ_MAX = 65536,
	DEV_AH_MAX = 1 << 20,
	DEV_QP_WR_MAX = RPWI_QP_WR_MAX,
	DEV_CQE_MAX = 1 << 22,
	DEV_MR_MAX = 1 << 20,
	DEV_MW_MAX = 1 << 20,
	DEV_KEYS_MAX = 1 << 22, /* of all devices together; half of the table stays empty */
	DEV_SRQ_WR_MAX = 32768,
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

struct wr_build; /* the ibv_wr_* calls' list: qp.c */

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
	uint64_t heard_ns;        /* a packet for it came last; 0: none yet */
	uint64_t told_ns;         /* its connection was told to be over; 0: it has none */
	bool peer_gone;           /* the process at the other end is known to have ended */
	struct ledger_qp *ledger; /* what is left behind of it (ledger.c), or NULL */
	uint32_t ordinal;
	struct live live;
	enum rpwi_lock lock;   /* of RPWI_LOCK_QPS and those behind it */
	struct {               /* how its packets go (qp_path.h) */
		uint32_t turn; /* hca_here.path_turn when it was chosen; 0: for this time alone */
		struct rpwi_lane *lane;
		const struct qp_path_ops *ops;
	} path;
};
static inline struct dqp *to_dqp(const struct ibv_qp *q) { return (struct dqp *)(uintptr_t)q; }
static inline struct dqp *dqp_of(struct rpwi_qp *t) { return RPWI_CONTAINER_OF(t, struct dqp, t); }

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
	/* of its QPNs; of a peer that is no ropeway 4,096 of them, whosever they are */
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

struct hca_counters {
	uint64_t icrc_errors, decode_errors, no_qp, handed_over, rx_batches, rx_packets, tx_batches;
	uint64_t inline_polls, inline_empty, service_wakeups, cq_overflows, pace_stalls;
	uint64_t mads, mads_handed_over, mads_dropped, mads_unsent, mads_for_gone, qp0;
	uint64_t path[RPWI_PATH_KINDS], path_held, icmp_unbelieved;
};

struct hca {
	unsigned opens;
	/* another in each forked child: what its parent's threads held is free there */
	uint32_t generation;
	struct rpwi_list contexts;
	struct rpwi_steer *steer;
	struct rpwi_lanes *lanes; /* the steer's */
	uint32_t path_turn;       /* another when a lane has come or gone; never 0 */
	int steer_fd, watch_fd, wake_fd;

	/* QPNs */
	uint16_t slots[64];
	unsigned nslots;
	struct dqp **qps[64]; /* RPWI_SLOT_QPNS each */
	uint32_t next_idx;

	/* keys */
	struct dkey **keys;
	uint32_t keys_cap, keys_used; /* keys_cap: a power of two, at least twice keys_used */

	struct dport port[DEV_PORTS_MAX];
	unsigned nports;
	struct rpwi_list peers, waited;
	struct rpwi_list tx_list, held, touched;
	/* all of tx_list waits for room in lanes, whose readers wake us */
	bool all_stuck;
	struct rpwi_heap timers; /* of struct dqp */
	/* sent by UDP in this round of progress, about, while one is `awaited` */
	uint32_t round_bytes;
	/* the QP whose lone message went last by UDP, if it has no answer yet, and how many rounds
	 * of progress it may still be waited for */
	struct dqp *awaited;
	unsigned awaited_rounds;
	struct rpwi_txb txb;

	/* service thread */
	pthread_t service;
	_Atomic bool service_running;
	_Atomic unsigned idle_ports; /* that wait to be closed by it */
	/* the last user is on its way out, without the lock while it waits for the thread */
	bool closing;
	/* this process is a child that has not yet shown whether it goes on with what it inherited;
	 * else 0 */
	pid_t forked_from;
	_Atomic bool stop;
	/* counts up while the program polls in vain: then progress is its own */
	_Atomic uint32_t empty_polls;
	_Atomic uint32_t any_polls;
	_Atomic int commands;      /* of the CM, that have the lock or wait for it */
	_Atomic int waiters;       /* threads that make progress inside get_cq_event */
	uint64_t emptied;          /* rounds that found nothing, in the lanes and in all sockets */
	_Atomic int lane_sleepers; /* threads that packets in memory do not wake by themselves */
	_Atomic bool held_any;
	_Atomic uint64_t say_at_ns; /* the first event of a CQ that waits is due; 0: none does */
	_Atomic unsigned gathered;  /* posts that wait in tx_list for more of their kind */
	_Atomic uint32_t gathers;   /* counts up with each of those */
	/* so many posts more do not wait; how often it came to that, less what was forgiven for
	 * so many batches that were full */
	uint32_t gather_pause, gather_pauses, gather_full;
	_Atomic bool service_sleeps; /* in ppoll on the sockets */
	uint64_t service_wake_ns;    /* when it will wake by itself */
	_Atomic uint64_t stream_ns;  /* when a batch of a stream last came in */

	struct { /* of progress (progress.c) */
		unsigned n;
		unsigned by_lanes; /* so many more look at sockets seldom: packets came by lanes */
		bool more_handed;  /* other processes handed something over in the last one */
	} rounds;
	/* so many objects of each kind were made: their numbers in fault scripts, and of PDs */
	uint32_t made[LIVE_KINDS];
	uint32_t groups;          /* of contexts (context.c), likewise */
	uint64_t nonce;           /* the process's, for those who import from it; 0: none yet */
	uint64_t qpn_key;         /* of the order of QPNs (qpn.c); 0: none yet */
	uint64_t list_renewed_ns; /* the list of devices was read by a command of the CM */
	uint8_t *zeros;           /* what regions without memory read (mr.c) */
	struct hca_counters n;
	struct rpwi_qp_stats gone;         /* what is in no tally any more */
	struct rpwi_port_stats ports_gone; /* and of closed ports */
	struct rpwi_lane_stats lanes_gone; /* and of lanes, when the HCA was last closed */
};
extern struct hca hca_here;

/* Of verbs off the data path: the thread is not canceled before it is given back (base/lock.h). */
static inline void hca_lock(void)
{
	rpwi_lock(RPWI_LOCK_HCA);
	rpwi_shield();
}
static inline void hca_unlock(void)
{
	uint64_t held = rpwi_locks_mine.held & (RPWI_LOCKS_QPS | RPWI_LOCK_SHIELD);
	if (RPWI_UNLIKELY(held))
		qplock_release(held & RPWI_LOCKS_QPS);
	rpwi_unlock(RPWI_LOCK_HCA);
}
/* Not either where a handler interrupted what this thread does with a QP. */
static inline bool hca_try(void)
{
	return !(rpwi_locks_mine.wanted & RPWI_LOCKS_QPS) && rpwi_lock_try(RPWI_LOCK_HCA);
}

/* The HCA's lock is held: from now on until it is given back, the QP's too. Again and again. */
static inline void qp_hold(const struct dqp *q)
{
	if (RPWI_UNLIKELY(qplock_is_split()))
		qplock_take(q->lock);
}

/* May something be made in it? 0 or -errno. The lock is held. */
static inline int pd_usable(const struct ibv_pd *pd)
{
	if (!live_is(LIVE_PD, pd))
		return -ENOENT;
	return to_dpd(pd)->dead ? -EINVAL : 0;
}

/* NULL and errno, in a child that has to refuse (base/lock.h). */
static inline void *dev_refuse(const char *call)
{
	errno = rpwi_fork_refuse(call);
	return NULL;
}

/* hca.c; the lock is held */
int hca_get(void); /* first open: steer, service thread. 0 or -errno */
void hca_put(void);
void hca_lane_stats_add(struct rpwi_lane_stats *sum);

/* happen.c */
extern const struct fault_ops hca_fault_ops; /* fault.h */

/* events.c */
void dev_event(struct dctx *c, const struct ibv_async_event *ev);
/* an object goes away: its events that nobody took go too */
void dev_events_forget(struct dctx *c, const void *object);

/* devices.c */
/* Reads the list of devices anew: how many programs see, or -errno. *out, if asked for, is those.
 * RPWI_LOCK_DEVICES is held, and the HCA's, under which devices' addresses are read. */
int dev_list_read(struct ibv_device ***out);
void dev_list_renew(void);   /* the same. No lock is held */
struct dev *dev_first(void); /* all that were ever seen, in that order. The lock is held */

/* refresh.c */
void dev_refresh(void); /* addresses changed: read the list anew, raise events. No lock is held */

/* ports.c; the lock is held. lanes_do: as rpwi_port_open */
struct dport *port_get(
	const struct rpwi_addr *a, bool lanes_do, char *why, size_t why_len, int *err);
void port_put(struct dport *p);
/* Closes ports that nobody has used for a while, or all of those; `before` sees each once more. Of
 * the service thread, or when there is none. */
void ports_tend(bool all, void (*before)(struct dport *p));
uint64_t ports_deadline(void);
/* receive.c: what lies in the socket of a port that is about to close for other processes of this
 * host goes to them. */
void receive_for_others(struct dport *p);
void port_stats_add(const struct rpwi_port *io, struct rpwi_port_stats *sum);
/* dqpn: any QPN of that process */
struct dpeer *peer_get(const struct rpwi_addr *a, uint32_t dqpn, unsigned mtu_bytes);
void peer_put(struct dpeer *p);

/* send.c; the lock is held */
/* Send what it may now, keep its timer right. */
void send_kick(struct dqp *qp, bool hold_ack, uint64_t now_ns);
/* The same, after a post. */
void send_posted(struct dqp *qp, uint64_t now_ns);
/* After a post: true if what was posted may wait for more, to go in one batch with it. It goes when
 * an ACK comes or a poll finds its CQ empty, with the service thread's next tick while the program
 * polls, and when a timer of its peer's QPs is due, 10 ms at most, where an ACK is lost. */
bool send_gather(struct dqp *qp);
void send_forget(struct dqp *qp);
void send_unlist(struct dqp *qp);   /* it waits for nothing any more */
void send_waiting(uint64_t now_ns); /* those that wait for a window, as far as there is room */
void send_held(uint64_t now_ns);    /* ACKs that wait for company */

/* receive.c */
lane_place_fn receive_place;
void receive_forget(const struct dqp *q); /* it goes; the lock is held */

/* progress.c, service.c; the lock is held */
bool progress_run(bool all_ports); /* one round: receive, send, timers. True if anything came. */
/* a thread that only waits (poll.c) is there: the service thread leaves the sockets to it */
void service_wait_begin(void);
void service_wait_end(void);
int service_start(void);
void service_stop(void);
/* For calls of the data path: a child that goes on after a fork has no service thread yet. */
static inline void hca_lock_serving(void)
{
	rpwi_lock(RPWI_LOCK_HCA);
	if (RPWI_UNLIKELY(!hca_here.service_running))
		service_start();
}
void service_wake(void); /* here.c */
struct dqp *qp_lookup(uint32_t qpn);
void service_atfork_child(void);

/* qpn.c; the lock is held */
int qpn_alloc(struct dqp *q, uint32_t *qpn);
void qpn_free(uint32_t qpn);

/* qp.c */
extern const struct rpwi_qp_ops device_qp_ops;
void qp_to_error(struct dqp *q, uint64_t now_ns); /* by the device itself; the lock is held */
struct ibv_qp *dev_create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *attr);

/* post.c */
int dev_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int dev_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int dev_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
/* The address that a UD QP's request names; NULL: none, or no UD QP. */
static inline const struct rpwi_av *post_av(const struct dqp *q, const struct ibv_send_wr *wr)
{
	return q->t.type == IBV_QPT_UD && wr->wr.ud.ah
		       ? &RPWI_CONTAINER_OF(wr->wr.ud.ah, struct dah, ibv)->av
		       : NULL;
}

/* build.c */
void build_attach(struct dqp *q);

/* mr.c; the lock is held for all but the verbs, but where a key is looked up a QP's will do; where
 * one is changed, all of them are held */
struct dkey *mr_find(uint32_t key);
int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote);
int mem_write(struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len,
	bool remote);
/* into a receive of the QP's SRQ */
int mem_receive(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len);
int mem_read(struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote);
const void *mem_map(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len);
void *mem_sink(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len);
int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap, uint64_t compare,
	uint64_t swap_add, uint64_t *orig);
int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value);
struct dkey *mr_place(
	uint32_t key);          /* what lies where this key would: of another tag, or another */
int mr_key_add(struct dkey *k); /* a new key of chance. 0 or -ENOMEM */
void mr_key_del(struct dkey *k);

/* mw.c; the lock is held for mem_* and mw_qp_gone */
int mem_invalidate(struct rpwi_qp *qp, uint32_t key, bool remote);
int mem_bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b);
void mw_qp_gone(struct dqp *q);
struct ibv_mr *dev_alloc_null_mr(struct ibv_pd *pd);
struct ibv_mw *dev_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int dev_dealloc_mw(struct ibv_mw *mw);

/* pd.c */
struct ibv_td *dev_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr);
int dev_dealloc_td(struct ibv_td *td);
struct ibv_pd *dev_alloc_parent_domain(
	struct ibv_context *c, struct ibv_parent_domain_init_attr *attr);

/* advise.c */
int dev_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t n);

/* poll.c */
int dev_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int dev_req_notify_cq(struct ibv_cq *cq, int solicited_only);
struct ibv_cq_ex *dev_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr);

/* cq.c */
/* the lock is held, or that of a QP of it */
void cq_push(struct dcq *cq, const struct ibv_wc *wc, bool solicited);
/* Events that wait (ibv_modify_cq): when the first is due, or RPWI_NEVER; and saying those that
 * are, with the HCA's lock held. */
uint64_t cq_event_deadline(void);
void cq_event_timer(uint64_t now_ns);
int dev_modify_cq(struct ibv_cq *ibv, struct ibv_modify_cq_attr *attr);
void cq_purge_qp(struct dcq *cq, uint32_t qpn);

/* srq.c */
int dev_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int dev_get_srq_num(struct ibv_srq *srq, uint32_t *num);
struct ibv_srq *dev_create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *attr);

/* gid.c */
void gid_text(const uint8_t *raw, char *out); /* INET6_ADDRSTRLEN */
/* ifindex: of the device, for addresses that need one */
void gid_to_addr(const union ibv_gid *gid, int ifindex, struct rpwi_addr *a);

/* ah.c: 0, or -ETIMEDOUT: nobody answers at an address of the own subnet, which may take a second.
 * A vector that is wrong in another way is ah_resolve's to refuse. No lock is held. */
int ah_find_host(struct dctx *c, const struct ibv_ah_attr *attr);
/* the lock is held for what follows */
/* Resolve an address vector: 0, or a positive errno (EINVAL: bad port, no GRH, GID index empty or
 * not usable, families differ), with the reason in the log. `dqpn`: of a RC QP at the other end,
 * else 0; one that a lane reaches needs no UDP port, and the peer is the process that has it. On
 * success *port and *peer are referenced for the caller. */
int ah_resolve(struct dctx *c, const struct ibv_ah_attr *attr, uint32_t dqpn, unsigned mtu_bytes,
	struct rpwi_av *av, struct dport **port, struct dpeer **peer);

/* query.c */
int dev_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *a, size_t size);
int dev_query_port_ops(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len);
int dev_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v);
enum ibv_mtu dev_mtu(const struct dev *d);

#endif
