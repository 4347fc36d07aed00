/* SPDX-License-Identifier: BSD-3-Clause */
/* cm.h - the InfiniBand communication manager: connections (REQ, MRA, REJ, REP, RTU, DREQ, DREP)
 * and service look-ups (SIDR), sans-I/O.
 *
 * A connection here makes no system call, reads no clock and allocates nothing: its memory is the
 * caller's, MADs and time come in as arguments, MADs and events go out through struct rpwi_cm_ops,
 * the next deadline is asked for. So it runs alike under the device and in the simulator.
 *
 * What it does beyond the messages: duplicates are answered as IB 12.9.8 says (REP again for a REQ,
 * RTU for a REP, DREP for a DREQ, also for a connection that is gone); a side whose program takes
 * its time answers a duplicate with MRA; every wait has a time-out and a bounded number of retries;
 * a QP number of the peer that is still in TIMEWAIT or connected is a stale connection (REJ 10).
 *
 * Threads: nothing locks; the caller holds its lock over every call with the same struct rpwi_cm.
 * An ops callback may call rpwi_cm_* for the connection that it is about, except that it must not
 * destroy it from inside `send`. Sources: IB spec vol. 1 chapter 12 (12.9.7 state diagrams and
 * tables), Linux Documentation/infiniband.
 */
#ifndef ROPEWAY_CM_H
#define ROPEWAY_CM_H

#include "base/heap.h"
#include "wire/mad.h"

struct rpwi_cm;
struct rpwi_cm_conn;

/* One enum for both sides, one transition function (cm_step in conn.c), one name table. */
enum rpwi_cm_state {
	RPWI_CM_IDLE,
	RPWI_CM_REQ_SENT,
	RPWI_CM_REP_WAIT, /* active: the peer has sent an MRA for our REQ */
	RPWI_CM_REQ_RCVD, /* passive: the program has to accept or reject */
	RPWI_CM_REP_SENT,
	RPWI_CM_RTU_WAIT, /* passive: the peer has sent an MRA for our REP */
	RPWI_CM_REP_RCVD, /* active: the program has to establish or reject */
	RPWI_CM_ESTABLISHED,
	RPWI_CM_DREQ_SENT,
	RPWI_CM_DREQ_RCVD,
	RPWI_CM_TIMEWAIT,
	RPWI_CM_SIDR_REQ_SENT,
	RPWI_CM_SIDR_REQ_RCVD,
	RPWI_CM_STATE_COUNT,
};
extern const char *const rpwi_cm_state_name[RPWI_CM_STATE_COUNT];

enum rpwi_cm_event_type {
	/* the peer accepted; its parameters are in conn->remote; now rpwi_cm_establish or
	 * rpwi_cm_reject */
	RPWI_CM_EV_REP,
	RPWI_CM_EV_ESTABLISHED, /* passive: RTU, or rpwi_cm_comm_established */
	RPWI_CM_EV_REJ,         /* reason, and the peer's private data */
	RPWI_CM_EV_REQ_ERROR,   /* no answer to REQ in max_cm_retries + 1 tries: unreachable */
	RPWI_CM_EV_REP_ERROR,   /* no answer to REP; TIMEWAIT begins */
	RPWI_CM_EV_DREQ,        /* the peer disconnects; rpwi_cm_disconnect answers with DREP */
	/* answer to our DREQ, or the peer's DREQ has crossed it; TIMEWAIT begins. Also without a
	 * rpwi_cm_disconnect: the engine itself disconnects what is stale */
	RPWI_CM_EV_DREP,
	RPWI_CM_EV_DREQ_ERROR, /* no answer to our DREQ; TIMEWAIT begins */
	/* rpwi_cm_peer_gone: the peer's process has ended without a word; or an established
	 * connection was rejected: its peer has given up on it */
	RPWI_CM_EV_PEER_GONE,
	RPWI_CM_EV_TIMEWAIT_EXIT,
	RPWI_CM_EV_SIDR_REP,       /* status, qpn, qkey in `sidr` */
	RPWI_CM_EV_SIDR_REQ_ERROR, /* no answer */
};
struct rpwi_cm_event {
	enum rpwi_cm_event_type type;
	uint16_t reason; /* REJ */
	struct {
		uint8_t status;
		uint32_t qpn, qkey;
	} sidr;
	const uint8_t *pdata; /* valid during the callback */
	uint8_t pdata_len;
};

/* Where the two sides are. */
struct rpwi_cm_path {
	struct rpwi_addr local, remote;
	uint8_t local_gid[16], remote_gid[16];
	uint8_t mtu; /* enum ibv_mtu: what REQ proposes; of a received REQ, what it proposed */
	uint8_t traffic_class, hop_limit, sl;
	uint32_t flow_label;
};

/* What each side tells the other about its QP. */
struct rpwi_cm_param {
	uint32_t qpn, qkey, starting_psn;
	uint8_t responder_resources, initiator_depth;
	uint8_t retry_count, rnr_retry_count;
	uint8_t ack_timeout; /* local ACK time-out for the QP's attributes, 5 bits */
	bool flow_control, srq;
};

enum { RPWI_CM_NO_ANSWER = 0xffff };
struct rpwi_cm_ops {
	/* Send these 256 bytes to QP 1 at path->remote, from path->local. Loss is the engine's
	 * business. Must not call rpwi_cm_rx. */
	void (*send)(void *user, const struct rpwi_cm_path *path, const uint8_t *mad);
	/* A REQ or SIDR_REQ nobody has seen yet (`sidr` tells which); path->local is where it
	 * arrived. Gives storage for the new connection (the engine initializes it but for
	 * conn->user, sets conn->remote and conn->path, and then calls `incoming`), or NULL with
	 * *reason a REJ reason, or a SIDR status, or RPWI_CM_NO_ANSWER: the peer will ask again. */
	struct rpwi_cm_conn *(*request)(void *user, const struct rpwi_cm_path *path,
		const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason);
	/* The connection that `request` gave is in REQ_RCVD or SIDR_REQ_RCVD; m is the request,
	 * with its private data. */
	void (*incoming)(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_msg *m);
	void (*event)(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_event *ev);
	uint32_t (*random)(void *user);
	/* A connection went from one state to another: for accounts and logs. May be NULL. */
	void (*moved)(void *user, struct rpwi_cm_conn *conn, enum rpwi_cm_state from,
		enum rpwi_cm_state to);
};

/* Private to cm/: what the engine's tables hold of a connection; it may outlive it (linger.c). */
struct rpwi_cm_node {
	/* chains of two hash tables, over the fields below; unlinked, they point to themselves */
	struct rpwi_list by_id, by_qp;
	struct rpwi_heap_node timer;
	uint32_t local_id; /* 0: none */
	uint32_t remote_id, remote_qpn;
	uint8_t remote_ca_guid[8];
	struct rpwi_addr remote;
	bool sidr, lingers;
};

struct rpwi_cm_conn {
	void *user;     /* the caller's */
	uint32_t noted; /* likewise; 0 at first */
	/* For everybody to read. */
	enum rpwi_cm_state state;
	bool passive, sidr;
	uint32_t local_id, remote_id;
	uint64_t service_id;
	struct rpwi_cm_path path;
	struct rpwi_cm_param local, remote;
	uint8_t remote_ca_guid[8];
	/* Set before connecting: until then a rejection because nobody listens (REJ 8) means "not
	 * yet": the request is sent again a little later. 0: it is final. */
	uint64_t patient_until_ns;
	/* Private to cm/. */
	struct rpwi_cm *cm;
	struct rpwi_cm_node node;
	struct rpwi_list link;
	uint64_t tid, dreq_tid;
	uint64_t timeout_ns;              /* how long the peer may take for an answer */
	uint64_t interval_ns, give_up_ns; /* of the repetition that is going on */
	uint16_t retries_max;
	struct rpwi_list window_link; /* waits to be sent for the first time */
	bool in_window;               /* sent, and neither answered nor repeated yet */
	bool mra_seen;
	bool peer_patient; /* it has an MRA or a REP of ours, and will not ask again soon */
	uint8_t local_ca_guid[8];
	uint8_t mad[RPWI_MAD_LEN]; /* the message to be repeated */
};

struct rpwi_cm_stats {
	uint64_t tx[0x20], rx[0x20]; /* by attribute */
	uint64_t retries, duplicates, timeouts;
	uint64_t bad_mads; /* truncated, another class or version, fields out of range */
	/* well-formed, for no connection of ours, or from another address than its peer's, or in a
	 * state that has no use for it */
	uint64_t stray;
	uint64_t no_service; /* requests for a service ID that nobody listens on */
};

enum {
	RPWI_CM_CONNS_MAX = 65536,
	RPWI_CM_RESPONSE_TIMEOUT = 20, /* 4.096 us * 2^20 = 4.3 s, as rdma_cm asks for */
	RPWI_CM_RETRIES = 15,
	RPWI_CM_MRA_TIMEOUT = 24,
};

/* `id_prefix`: the top 12 bits of every local communication ID (the process's slot), so that other
 * processes of this host know whose a message is. The CA GUID goes into REQ and REP. Allocates its
 * tables. 0 or -ENOMEM. */
int rpwi_cm_new(
	struct rpwi_cm **out, const struct rpwi_cm_ops *ops, void *user, uint16_t id_prefix);
/* after a fork: for new connections */
void rpwi_cm_set_prefix(struct rpwi_cm *cm, uint16_t id_prefix);
void rpwi_cm_free(struct rpwi_cm *cm); /* all connections must have been destroyed */
const struct rpwi_cm_stats *rpwi_cm_stats(const struct rpwi_cm *cm);

/* Prepare storage: state IDLE. Give it a communication ID by connecting or by a request. */
void rpwi_cm_conn_init(struct rpwi_cm *cm, struct rpwi_cm_conn *c, void *user);
/* The verbs-like calls give 0, -EINVAL (wrong state, or private data longer than its room) or
 * -ENOMEM (no communication ID left). pdata includes the CMA header where there is one. */
int rpwi_cm_connect(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path, uint64_t service_id,
	const uint8_t ca_guid[8], const struct rpwi_cm_param *local, const void *pdata,
	size_t pdata_len, uint64_t now_ns);
/* REP */
int rpwi_cm_accept(struct rpwi_cm_conn *c, const uint8_t ca_guid[8],
	const struct rpwi_cm_param *local, const void *pdata, size_t pdata_len, uint64_t now_ns);
/* passive, not answered yet: asks the peer for time, so that it does not repeat its request
 * (MRA) */
int rpwi_cm_defer(struct rpwi_cm_conn *c, uint64_t now_ns);
/* RTU */
int rpwi_cm_establish(struct rpwi_cm_conn *c, const void *pdata, size_t pdata_len, uint64_t now_ns);
/* passive: data came before the RTU (IB 12.9.6): as if it had come */
int rpwi_cm_comm_established(struct rpwi_cm_conn *c, uint64_t now_ns);
int rpwi_cm_reject(struct rpwi_cm_conn *c, uint16_t reason, const void *ari, size_t ari_len,
	const void *pdata, size_t pdata_len, uint64_t now_ns);
int rpwi_cm_disconnect(struct rpwi_cm_conn *c, uint64_t now_ns); /* DREQ; after EV_DREQ: DREP */
int rpwi_cm_sidr_request(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path,
	uint64_t service_id, const void *pdata, size_t pdata_len, unsigned timeout_ms,
	unsigned retries, uint64_t now_ns);
int rpwi_cm_sidr_reply(struct rpwi_cm_conn *c, uint8_t status, uint32_t qpn, uint32_t qkey,
	const void *pdata, size_t pdata_len, uint64_t now_ns);
/* The peer's process is known to have ended: a connection that was established goes to TIMEWAIT,
 * one in its handshake to IDLE; EV_PEER_GONE. */
void rpwi_cm_peer_gone(struct rpwi_cm_conn *c, uint64_t now_ns);
/* Forget it, whatever its state; the peer is told, where it has something to be told (REJ 4 for
 * REQ_SENT, REJ 28 where a program had yet to decide, DREQ, DREP). No event afterwards; the storage
 * is the caller's again. State that has to outlive it is kept inside, bounded in number and time
 * (linger.c): the peer's QPN in TIMEWAIT, a DREQ until it is answered, a refusal for who asks
 * again. So the engine may have a deadline while it has no connection; freeing it then is no error,
 * only less sure to be heard. */
void rpwi_cm_destroy(struct rpwi_cm_conn *c, uint64_t now_ns);

/* One MAD that came to QP 1 of path->local from path->remote (GIDs filled in). Hostile until
 * checked. */
void rpwi_cm_rx(struct rpwi_cm *cm, const struct rpwi_cm_path *path, const uint8_t *mad, size_t len,
	uint64_t now_ns);
uint64_t rpwi_cm_deadline(const struct rpwi_cm *cm); /* RPWI_NEVER if none */
void rpwi_cm_timer(struct rpwi_cm *cm, uint64_t now_ns);
/* Every connection that has a communication ID, in no order; fn may destroy the one that it is
 * given. */
void rpwi_cm_each(struct rpwi_cm *cm, void (*fn)(struct rpwi_cm_conn *c, void *arg), void *arg);

#endif
