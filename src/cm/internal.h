/* SPDX-License-Identifier: BSD-3-Clause */
/* internal.h - what the files of cm/ share.
 *
 * cm.c      the engine: new, free, deadline and timer; communication IDs
 * table.c   who is known: hash tables over (communication ID, address) and (QPN, CA GUID, address)
 *           of the peer; the timers
 * conn.c    one connection: its transitions, repetition, the verbs-like calls
 * msg.c     what each message says
 * rx.c      received messages: whose they are, and what they are to it
 * linger.c  what outlives a connection
 */
#ifndef ROPEWAY_CM_INTERNAL_H
#define ROPEWAY_CM_INTERNAL_H

#include "cm/cm.h"

enum {
	CM_ID_INDEX_BITS = 16,
	CM_ID_GEN_BITS = 4,
	CM_ID_LOCAL_BITS = CM_ID_INDEX_BITS + CM_ID_GEN_BITS, /* below the prefix */
	CM_IDS = 1 << CM_ID_INDEX_BITS, /* index 0 is never given, so no ID is 0 */
	CM_BUCKETS = 8192,
	CM_LINGERS_MAX = 8192,
};
_Static_assert((int)RPWI_CM_CONNS_MAX <= (int)CM_IDS, "each connection has an ID");
_Static_assert(CM_ID_LOCAL_BITS == 20, "the prefix has 12 bits");

/* ---- linger.c: a record that stays when its connection has gone, bounded in number (the oldest
 * goes first) and in time. ---- */
enum cm_linger_kind {
	CM_LINGER_NONE,
	CM_LINGER_QUIET, /* TIMEWAIT: a DREQ gets its DREP, a REQ is stale */
	/* likewise, and our DREQ is repeated a few times until it is answered: the peer must not go
	 * on for ever because one datagram was lost */
	CM_LINGER_DREQ,
	/* we have answered for good (REJ, SIDR_REP): a peer that asks again gets that answer again,
	 * not a second connection */
	CM_LINGER_ANSWER,
	/* the peer itself has given the request up: a late copy of it must not become a second
	 * one */
	CM_LINGER_DEAF,
};
struct cm_linger {
	struct rpwi_cm_node node;
	struct rpwi_list link; /* oldest first; or the free ones */
	enum cm_linger_kind kind;
	struct rpwi_cm_path path;
	uint64_t tid, timewait_ns, interval_ns, expires_ns;
	unsigned tries_left;
	uint8_t mad[RPWI_MAD_LEN];
};

struct rpwi_cm {
	const struct rpwi_cm_ops *ops;
	void *user;
	uint16_t prefix;
	uint32_t salt; /* of the hashes: peers choose the keys */
	struct rpwi_cm_stats stats;
	struct rpwi_list conns; /* with a communication ID */

	/* Communication IDs: prefix, index, generation. First every index once; then the ring gives
	 * them again, the one that was freed longest ago first. */
	struct rpwi_cm_node **node; /* by index */
	uint8_t *gen;
	uint32_t never_used; /* of those in the ring, at its head */
	uint16_t *free_ring;
	uint32_t free_head, free_count;

	struct rpwi_list *by_id, *by_qp;
	/* each node has one at most: it never outgrows the number of IDs */
	struct rpwi_heap timers;

	struct cm_linger *linger;
	uint32_t lingers_made; /* of the array, so far */
	struct rpwi_list lingers, lingers_free;

	/* Messages that want an answer and were sent once. Beyond a number of them others wait for
	 * their turn: a socket of the default size holds some 500 datagrams, and a program that
	 * connects a thousand times at once would lose what it sends, and what it is answered. */
	uint32_t in_window;
	struct rpwi_list window_waiting;
};

/* ids.c */
/* False: none is left (rpwi_cm_id_left makes room). */
bool rpwi_cm_id_new(struct rpwi_cm *cm, struct rpwi_cm_node *n);
void rpwi_cm_id_free(struct rpwi_cm *cm, struct rpwi_cm_node *n);
void rpwi_cm_id_move(struct rpwi_cm *cm, struct rpwi_cm_node *from, struct rpwi_cm_node *to);
struct rpwi_cm_node *rpwi_cm_id_find(const struct rpwi_cm *cm, uint32_t id);
static inline bool rpwi_cm_id_is_ours(const struct rpwi_cm *cm, uint32_t id)
{
	return id >> CM_ID_LOCAL_BITS == cm->prefix;
}
void rpwi_cm_send(struct rpwi_cm *cm, const struct rpwi_cm_path *path, const uint8_t *mad);
void rpwi_cm_send_msg(
	struct rpwi_cm *cm, const struct rpwi_cm_path *path, const struct rpwi_cm_msg *m);

/* table.c */
void rpwi_cm_node_init(struct rpwi_cm_node *n);
/* by what the node says of the peer */
void rpwi_cm_know_id(struct rpwi_cm *cm, struct rpwi_cm_node *n);
void rpwi_cm_know_qp(struct rpwi_cm *cm, struct rpwi_cm_node *n);
void rpwi_cm_forget(struct rpwi_cm_node *n);
struct rpwi_cm_node *rpwi_cm_find_id(
	const struct rpwi_cm *cm, uint32_t remote_id, const struct rpwi_addr *remote, bool sidr);
struct rpwi_cm_node *rpwi_cm_find_qp(const struct rpwi_cm *cm, uint32_t remote_qpn,
	const uint8_t guid[8], const struct rpwi_addr *remote);
void rpwi_cm_timer_set(struct rpwi_cm *cm, struct rpwi_cm_node *n, uint64_t deadline_ns);
void rpwi_cm_timer_clear(struct rpwi_cm *cm, struct rpwi_cm_node *n);

/* conn.c: what happens to a connection. */
enum cm_input {
	/* the program */
	CM_IN_CONNECT,
	CM_IN_ACCEPT,
	CM_IN_ESTABLISH,
	CM_IN_COMM_ESTABLISHED,
	CM_IN_REJECT,
	CM_IN_DISCONNECT,
	CM_IN_DESTROY,
	CM_IN_SIDR_REQUEST,
	CM_IN_SIDR_REPLY,
	/* the peer; those for a connection that is there already are duplicates */
	CM_IN_REQ_NEW,
	CM_IN_REQ_AGAIN,
	CM_IN_MRA,
	CM_IN_REJ,
	CM_IN_REJ_STALE,
	CM_IN_REP,
	CM_IN_REP_STALE, /* a REP that names a QP which is another connection's */
	CM_IN_RTU,
	CM_IN_DREQ,
	CM_IN_DREP,
	CM_IN_SIDR_REQ_NEW,
	CM_IN_SIDR_REQ_AGAIN,
	CM_IN_SIDR_REP,
	/* time, and news from elsewhere */
	CM_IN_TIMEOUT,
	/* the peer uses this connection's QP or ID for another one: it has lost this one */
	CM_IN_STALE,
	CM_IN_GONE,
	CM_INPUTS,
};
/* What comes along with an input; each uses its own few. */
struct cm_args {
	const struct rpwi_cm_msg *m; /* a received one */
	const void *pdata, *ari;
	size_t pdata_len, ari_len;
	uint16_t reason;
	uint8_t status; /* SIDR_REP */
	uint32_t qpn, qkey;
};
/* False: the state has no use for it, nothing has happened. After true the connection may be gone:
 * an event's callback may destroy it. */
bool rpwi_cm_conn_input(
	struct rpwi_cm_conn *c, enum cm_input in, const struct cm_args *a, uint64_t now_ns);
/* A REJ that is not final, since the program knows that there was a listener a moment ago. */
bool rpwi_cm_conn_asks_again(struct rpwi_cm_conn *c, uint16_t reason, uint64_t now_ns);
void rpwi_cm_conn_timer(struct rpwi_cm_conn *c, uint64_t now_ns);
/* A REQ or SIDR_REQ that begins this connection; a REP that is the first for it. */
void rpwi_cm_conn_requested(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, uint64_t now_ns);
void rpwi_cm_conn_replied(struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m, uint64_t now_ns);

/* msg.c */
/* of the response time-out that a peer may ask for: 0.27 s to 17 s */
enum { CM_RESPONSE_SHIFT_MIN = 16, CM_RESPONSE_SHIFT_MAX = 22 };
/* IB 12.7: 4.096 us * 2^n */
static inline uint64_t rpwi_cm_wait_ns(unsigned exponent) { return 4096ull << exponent; }
void rpwi_cm_build(const struct rpwi_cm_conn *c, uint16_t attr, const struct cm_args *a,
	struct rpwi_cm_msg *m);
/* Answers without a connection, from the request that they answer. */
void rpwi_cm_build_rej(
	const struct rpwi_cm_msg *to, uint16_t reason, uint8_t rejected, struct rpwi_cm_msg *m);
void rpwi_cm_build_drep(const struct rpwi_cm_msg *to, struct rpwi_cm_msg *m);
void rpwi_cm_build_sidr_rep(const struct rpwi_cm_msg *to, uint8_t status, struct rpwi_cm_msg *m);
/* IB 12.6.7.1; MRA's first two likewise */
enum { CM_REJECTED_REQ, CM_REJECTED_REP, CM_REJECTED_OTHER };
enum { CM_SIDR_VALID, CM_SIDR_NO_SERVICE, CM_SIDR_REJECTED, CM_SIDR_STATUS_MAX = 5 };

/* linger.c */
bool rpwi_cm_id_left(struct rpwi_cm *cm); /* there is one, or room has been made for one */
uint64_t rpwi_cm_timewait_ns(const struct rpwi_cm_conn *c);
/* takes over the connection's ID and its places in the tables */
void rpwi_cm_linger_new(struct rpwi_cm_conn *c, enum cm_linger_kind kind, uint64_t now_ns);
void rpwi_cm_linger_drop(struct rpwi_cm *cm, struct cm_linger *l);
bool rpwi_cm_linger_drop_oldest(struct rpwi_cm *cm);
void rpwi_cm_linger_timer(struct rpwi_cm *cm, struct cm_linger *l, uint64_t now_ns);
void rpwi_cm_linger_rx(
	struct rpwi_cm *cm, struct cm_linger *l, const struct rpwi_cm_msg *m, uint64_t now_ns);

static inline struct rpwi_cm_conn *rpwi_cm_node_conn(struct rpwi_cm_node *n)
{
	return RPWI_CONTAINER_OF(n, struct rpwi_cm_conn, node);
}
static inline struct cm_linger *rpwi_cm_node_linger(struct rpwi_cm_node *n)
{
	return RPWI_CONTAINER_OF(n, struct cm_linger, node);
}

#endif
