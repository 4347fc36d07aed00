/* SPDX-License-Identifier: BSD-3-Clause */
/* conn.c - one connection: its transitions (IB 12.9.7), the repetition of unanswered messages
 * (12.9.8), and the verbs-like calls.
 *
 * All that happens to a connection is an input; the table below says for each state which inputs it
 * has a use for, and what follows. What an input needs to be believed (whose message it is) has
 * been checked before: rx.c.
 *
 * Repetition. A message that wants an answer (REQ, REP, DREQ, SIDR_REQ) is repeated until it is
 * given up, (retries + 1) response time-outs after it was first sent: the time that the
 * specification gives it. Its first repetitions come early, after 0.25, 0.5, 1 and 2 s, because a
 * response time-out of 4.3 s is long for a program that only lost a datagram; those are not
 * charged. An MRA puts the next repetition off by its service time-out, and the end, once, by as
 * much; but a few tries remain at the end, since it may be the answer that was lost. A peer that
 * has our MRA is patient, and would find out late, or, with our REP, never, that our last word was
 * lost: so an RTU or REJ that follows one is repeated a few times unasked.
 */
#include "cm/internal.h"

enum {
	WINDOW = 64,
	ASK_AGAIN_NS = 50 * 1000000,
	EARLY_NS = 250 * 1000000,
	LAST_TRIES = 4,
};
static const uint64_t unasked_ns = 8 * RPWI_NS_PER_S;

/* ---- The transitions ---- */

enum wait { /* what becomes of the connection's timer */
	WAIT_KEEP,
	WAIT_NOTHING,
	WAIT_ANSWER,  /* repeat the message just sent until it is answered */
	WAIT_SERVICE, /* an MRA: the peer has the message, and asks for time */
	WAIT_UNASKED, /* if the peer is patient: repeat the message just sent a few times */
	WAIT_TIMEWAIT,
};
enum { SEND_AGAIN = 0x80 }; /* not an attribute: the message that was sent last */

struct action {
	bool used, duplicate;
	uint8_t next; /* state */
	uint8_t send; /* attribute; 0 nothing */
	uint8_t wait;
	uint8_t event; /* 1 + enum rpwi_cm_event_type; 0 none */
	uint8_t linger;
	/* of a REJ that the engine decides on, and of the event that reports it */
	uint16_t reason;
};
/* clang-format off */
#define EV(name) .event = 1 + RPWI_CM_EV_##name
#define SEND(name) .send = RPWI_CM_##name
#define WAIT(what) .wait = WAIT_##what
#define REASON(name) .reason = RPWI_REJ_##name
#define LINGER(name) .linger = CM_LINGER_##name
#define TO(state, ...) {.used = true, .next = RPWI_CM_##state, ##__VA_ARGS__}
#define STAY(state, ...) {.used = true, .duplicate = true, .next = RPWI_CM_##state, ##__VA_ARGS__}

/* Sent REQ; the same before and after an MRA. A REJ for a stale connection sends to TIMEWAIT:
 * packets of the old one may be under way to this QP (12.9.8.3.1). */
#define AWAITING_REP \
	[CM_IN_MRA] = TO(REP_WAIT, WAIT(SERVICE)), \
	[CM_IN_REP] = TO(REP_RCVD, WAIT(NOTHING), EV(REP)), \
	[CM_IN_REP_STALE] = TO(IDLE, SEND(REJ), REASON(STALE_CONN), EV(REJ)), \
	[CM_IN_REJ] = TO(IDLE, EV(REJ)), \
	[CM_IN_REJ_STALE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(REJ)), \
	[CM_IN_REJECT] = TO(IDLE, SEND(REJ)), \
	[CM_IN_TIMEOUT] = TO(IDLE, SEND(REJ), REASON(TIMEOUT), EV(REQ_ERROR)), \
	[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE)), \
	[CM_IN_DESTROY] = TO(IDLE, SEND(REJ), REASON(TIMEOUT))
/* Sent REP; the same before and after an MRA. Where the passive side forgets, it remembers the
 * request for a while: a late copy of it must not become a second one. */
#define AWAITING_RTU(state) \
	[CM_IN_REQ_AGAIN] = STAY(state, .send = SEND_AGAIN), \
	[CM_IN_MRA] = TO(RTU_WAIT, WAIT(SERVICE)), \
	[CM_IN_RTU] = TO(ESTABLISHED, WAIT(NOTHING), EV(ESTABLISHED)), \
	[CM_IN_COMM_ESTABLISHED] = TO(ESTABLISHED, WAIT(NOTHING), EV(ESTABLISHED)), \
	[CM_IN_REJ] = TO(IDLE, EV(REJ), LINGER(DEAF)), \
	[CM_IN_REJ_STALE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(REJ)), \
	[CM_IN_REJECT] = TO(TIMEWAIT, SEND(REJ), WAIT(TIMEWAIT)), \
	[CM_IN_TIMEOUT] = TO(TIMEWAIT, SEND(REJ), REASON(TIMEOUT), WAIT(TIMEWAIT), EV(REP_ERROR)), \
	[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE), LINGER(DEAF)), \
	[CM_IN_DESTROY] = TO(IDLE, SEND(REJ), REASON(CONSUMER_DEFINED), LINGER(ANSWER))

static const struct action actions[RPWI_CM_STATE_COUNT][CM_INPUTS] = {
	[RPWI_CM_IDLE] = {
		[CM_IN_CONNECT] = TO(REQ_SENT, SEND(REQ), WAIT(ANSWER)),
		[CM_IN_SIDR_REQUEST] = TO(SIDR_REQ_SENT, SEND(SIDR_REQ), WAIT(ANSWER)),
		[CM_IN_REQ_NEW] = TO(REQ_RCVD),
		[CM_IN_SIDR_REQ_NEW] = TO(SIDR_REQ_RCVD),
		[CM_IN_DESTROY] = TO(IDLE),
	},
	[RPWI_CM_REQ_SENT] = {AWAITING_REP},
	[RPWI_CM_REP_WAIT] = {AWAITING_REP},
	[RPWI_CM_REQ_RCVD] = {
		/* The MRA is lazy: a program that answers at once costs no third message (12.9.8.6
		 * allows it). */
		[CM_IN_REQ_AGAIN] = STAY(REQ_RCVD, SEND(MRA)),
		[CM_IN_ACCEPT] = TO(REP_SENT, SEND(REP), WAIT(ANSWER)),
		[CM_IN_REJECT] = TO(IDLE, SEND(REJ), LINGER(ANSWER)),
		[CM_IN_REJ] = TO(IDLE, EV(REJ), LINGER(DEAF)),
		[CM_IN_REJ_STALE] = TO(IDLE, EV(REJ), LINGER(DEAF)),
		[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE), LINGER(DEAF)),
		[CM_IN_DESTROY] = TO(IDLE, SEND(REJ), REASON(CONSUMER_DEFINED), LINGER(ANSWER)),
	},
	[RPWI_CM_REP_SENT] = {AWAITING_RTU(REP_SENT)},
	[RPWI_CM_RTU_WAIT] = {AWAITING_RTU(RTU_WAIT)},
	[RPWI_CM_REP_RCVD] = {
		[CM_IN_REP] = STAY(REP_RCVD, SEND(MRA)),
		[CM_IN_ESTABLISH] = TO(ESTABLISHED, SEND(RTU), WAIT(UNASKED)),
		[CM_IN_REJECT] = TO(IDLE, SEND(REJ), LINGER(ANSWER)),
		[CM_IN_REJ] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(REJ)),
		[CM_IN_REJ_STALE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(REJ)),
		[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE)),
		[CM_IN_DESTROY] = TO(IDLE, SEND(REJ), REASON(CONSUMER_DEFINED), LINGER(ANSWER)),
	},
	[RPWI_CM_ESTABLISHED] = {
		[CM_IN_REQ_AGAIN] = STAY(ESTABLISHED),
		[CM_IN_REP] = STAY(ESTABLISHED, .send = SEND_AGAIN),
		[CM_IN_RTU] = STAY(ESTABLISHED),
		[CM_IN_DISCONNECT] = TO(DREQ_SENT, SEND(DREQ), WAIT(ANSWER)),
		[CM_IN_STALE] = TO(DREQ_SENT, SEND(DREQ), WAIT(ANSWER)),
		[CM_IN_DREQ] = TO(DREQ_RCVD, WAIT(NOTHING), EV(DREQ)),
		/* The passive side has given up waiting for an RTU, or has been destroyed before
		 * one came. */
		[CM_IN_REJ] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(PEER_GONE)),
		[CM_IN_REJ_STALE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(PEER_GONE)),
		[CM_IN_GONE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(PEER_GONE)),
		[CM_IN_DESTROY] = TO(IDLE, SEND(DREQ), LINGER(DREQ)),
	},
	[RPWI_CM_DREQ_SENT] = {
		[CM_IN_REQ_AGAIN] = STAY(DREQ_SENT),
		[CM_IN_REP] = STAY(DREQ_SENT),
		[CM_IN_RTU] = STAY(DREQ_SENT),
		[CM_IN_DREP] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(DREP)),
		/* Both at once (12.9.7.2): each answers the other's, and that is that. */
		[CM_IN_DREQ] = TO(TIMEWAIT, SEND(DREP), WAIT(TIMEWAIT), EV(DREP)),
		[CM_IN_REJ] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(DREP)),
		[CM_IN_REJ_STALE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(DREP)),
		[CM_IN_TIMEOUT] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(DREQ_ERROR)),
		[CM_IN_GONE] = TO(TIMEWAIT, WAIT(TIMEWAIT), EV(PEER_GONE)),
		[CM_IN_DESTROY] = TO(IDLE, LINGER(DREQ)),
	},
	[RPWI_CM_DREQ_RCVD] = {
		[CM_IN_REQ_AGAIN] = STAY(DREQ_RCVD),
		[CM_IN_REP] = STAY(DREQ_RCVD),
		[CM_IN_RTU] = STAY(DREQ_RCVD),
		[CM_IN_DREQ] = STAY(DREQ_RCVD),
		[CM_IN_DISCONNECT] = TO(TIMEWAIT, SEND(DREP), WAIT(TIMEWAIT)),
		[CM_IN_GONE] = TO(TIMEWAIT, WAIT(TIMEWAIT)),
		[CM_IN_DESTROY] = TO(IDLE, SEND(DREP), LINGER(QUIET)),
	},
	[RPWI_CM_TIMEWAIT] = {
		/* As Linux does: who still asks for this connection is told that it is over. */
		[CM_IN_REQ_AGAIN] = STAY(TIMEWAIT, SEND(REJ), REASON(STALE_CONN)),
		[CM_IN_REP] = STAY(TIMEWAIT),
		[CM_IN_RTU] = STAY(TIMEWAIT),
		[CM_IN_DREQ] = STAY(TIMEWAIT, SEND(DREP)),
		[CM_IN_DREP] = STAY(TIMEWAIT),
		[CM_IN_REJ] = STAY(TIMEWAIT),
		[CM_IN_REJ_STALE] = STAY(TIMEWAIT),
		[CM_IN_TIMEOUT] = TO(IDLE, EV(TIMEWAIT_EXIT)),
		[CM_IN_DESTROY] = TO(IDLE, LINGER(QUIET)),
	},
	[RPWI_CM_SIDR_REQ_SENT] = {
		[CM_IN_SIDR_REP] = TO(IDLE, EV(SIDR_REP)),
		[CM_IN_TIMEOUT] = TO(IDLE, EV(SIDR_REQ_ERROR)),
		[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE)),
		[CM_IN_DESTROY] = TO(IDLE),
	},
	[RPWI_CM_SIDR_REQ_RCVD] = {
		[CM_IN_SIDR_REQ_AGAIN] = STAY(SIDR_REQ_RCVD),
		[CM_IN_SIDR_REPLY] = TO(IDLE, SEND(SIDR_REP), LINGER(ANSWER)),
		[CM_IN_GONE] = TO(IDLE, EV(PEER_GONE), LINGER(DEAF)),
		[CM_IN_DESTROY] = TO(IDLE, SEND(SIDR_REP), LINGER(ANSWER)),
	},
};
/* clang-format on */

/* The one transition function: where an input leads, and by which row of the table. */
static enum rpwi_cm_state cm_step(
	enum rpwi_cm_state from, enum cm_input in, const struct action **act)
{
	const struct action *a = &actions[from][in];
	*act = a->used ? a : NULL;
	return a->used ? (enum rpwi_cm_state)a->next : from;
}

/* ---- The window ---- */

/* May it go out now? If not it waits for others to be answered, until its first repetition at the
 * latest. */
static bool window_enter(struct rpwi_cm_conn *c)
{
	if (c->cm->in_window >= WINDOW) {
		rpwi_list_add_tail(&c->cm->window_waiting, &c->window_link);
		return false;
	}
	c->in_window = true;
	c->cm->in_window++;
	return true;
}

static void window_leave(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	struct rpwi_cm *cm = c->cm;
	rpwi_list_del(&c->window_link);
	if (!c->in_window)
		return;
	c->in_window = false;
	cm->in_window--;
	if (rpwi_list_empty(&cm->window_waiting))
		return;
	struct rpwi_cm_conn *next =
		RPWI_CONTAINER_OF(cm->window_waiting.next, struct rpwi_cm_conn, window_link);
	rpwi_list_del(&next->window_link);
	window_enter(next);
	rpwi_cm_timer_set(cm, &next->node, RPWI_MIN(now_ns + next->interval_ns, next->give_up_ns));
	rpwi_cm_send(cm, &next->path, next->mad);
}

/* What is sent is kept, for repetition. Where a state answers a duplicate with something else,
 * nothing that was kept before is needed any more. */
static void conn_send(struct rpwi_cm_conn *c, const struct action *act, const struct cm_args *a)
{
	struct rpwi_cm_msg m;
	struct cm_args with = *a;

	if (act->send == SEND_AGAIN) {
		rpwi_cm_send(c->cm, &c->path, c->mad);
		return;
	}
	if (act->reason)
		with.reason = act->reason;
	if (act->send == RPWI_CM_DREQ)
		c->dreq_tid = (uint64_t)c->cm->ops->random(c->cm->user) << 32 | c->local_id;
	c->peer_patient |= act->send == RPWI_CM_MRA || act->send == RPWI_CM_REP;
	rpwi_cm_build(c, act->send, &with, &m);
	rpwi_cm_encode(&m, c->mad);
	if (act->wait != WAIT_ANSWER || window_enter(c))
		rpwi_cm_send(c->cm, &c->path, c->mad);
}

static void repeat_begin(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	c->interval_ns = RPWI_MIN((uint64_t)EARLY_NS, c->timeout_ns);
	c->give_up_ns = now_ns + (c->retries_max + 1) * c->timeout_ns;
	c->mra_seen = false;
	rpwi_cm_timer_set(c->cm, &c->node, RPWI_MIN(now_ns + c->interval_ns, c->give_up_ns));
}

static void repeat_unasked(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	if (!c->peer_patient)
		return;
	c->interval_ns = EARLY_NS;
	c->give_up_ns = now_ns + unasked_ns;
	rpwi_cm_timer_set(c->cm, &c->node, now_ns + c->interval_ns);
}

static void repeat_put_off(struct rpwi_cm_conn *c, unsigned service_timeout, uint64_t now_ns)
{
	uint64_t service_ns =
		rpwi_cm_wait_ns(RPWI_MIN(service_timeout, (unsigned)RPWI_CM_MRA_TIMEOUT));
	if (!c->mra_seen)
		c->give_up_ns += service_ns;
	c->mra_seen = true;
	c->interval_ns = c->timeout_ns;
	uint64_t last_ns = c->give_up_ns - LAST_TRIES * c->timeout_ns,
		 next_ns = RPWI_MIN(now_ns + service_ns, last_ns);
	rpwi_cm_timer_set(c->cm, &c->node,
		RPWI_MIN(RPWI_MAX(next_ns, now_ns + c->timeout_ns), c->give_up_ns));
}

static void conn_wait(
	struct rpwi_cm_conn *c, const struct action *act, const struct cm_args *a, uint64_t now_ns)
{
	switch (act->wait) {
	case WAIT_NOTHING:
		rpwi_cm_timer_clear(c->cm, &c->node);
		break;
	case WAIT_ANSWER:
		repeat_begin(c, now_ns);
		break;
	case WAIT_SERVICE:
		assert(a->m);
		repeat_put_off(c, a->m->mra.service_timeout, now_ns);
		break;
	case WAIT_UNASKED:
		repeat_unasked(c, now_ns);
		break;
	case WAIT_TIMEWAIT:
		rpwi_cm_timer_set(c->cm, &c->node, now_ns + rpwi_cm_timewait_ns(c));
		break;
	default:
		break;
	}
}

/* Out of the engine's tables; the fields for everybody stay as they were, for whoever writes an
 * account of it. */
static void conn_release(struct rpwi_cm_conn *c, enum cm_linger_kind linger, uint64_t now_ns)
{
	if (!c->node.local_id)
		return;
	window_leave(c, now_ns);
	if (linger != CM_LINGER_NONE)
		rpwi_cm_linger_new(c, linger, now_ns);
	rpwi_cm_timer_clear(c->cm, &c->node);
	rpwi_cm_forget(&c->node);
	rpwi_list_del(&c->link);
	if (c->node.local_id)
		rpwi_cm_id_free(c->cm, &c->node);
}

static void conn_event(struct rpwi_cm_conn *c, const struct action *act, const struct cm_args *a)
{
	struct rpwi_cm_event ev = {
		.type = (enum rpwi_cm_event_type)(act->event - 1), .reason = act->reason};
	if (a->m && !act->reason) {
		ev.pdata = a->m->pdata;
		ev.pdata_len = a->m->pdata_len;
		if (a->m->attr == RPWI_CM_REJ)
			ev.reason = a->m->rej.reason;
	}
	if (ev.type == RPWI_CM_EV_SIDR_REP) {
		assert(a->m);
		ev.sidr.status = a->m->sidr_rep.status;
		ev.sidr.qpn = a->m->sidr_rep.qpn;
		ev.sidr.qkey = a->m->sidr_rep.qkey;
	}
	c->cm->ops->event(c->cm->user, c, &ev);
}

bool rpwi_cm_conn_input(
	struct rpwi_cm_conn *c, enum cm_input in, const struct cm_args *a, uint64_t now_ns)
{
	const struct action *act;
	struct rpwi_cm *cm = c->cm;
	enum rpwi_cm_state from = c->state, next = cm_step(from, in, &act);

	if (!act)
		return false;
	cm->stats.duplicates += act->duplicate;
	if (act->wait != WAIT_KEEP)
		window_leave(c, now_ns);
	if (act->send)
		conn_send(c, act, a);
	conn_wait(c, act, a, now_ns);
	c->state = next;
	if (next == RPWI_CM_IDLE)
		conn_release(c, (enum cm_linger_kind)act->linger, now_ns);
	if (next != from && cm->ops->moved)
		cm->ops->moved(cm->user, c, from, next);
	if (act->event)
		conn_event(c, act, a);
	return true;
}

bool rpwi_cm_conn_asks_again(struct rpwi_cm_conn *c, uint16_t reason, uint64_t now_ns)
{
	bool asking = c->state == RPWI_CM_REQ_SENT || c->state == RPWI_CM_REP_WAIT ||
		      c->state == RPWI_CM_SIDR_REQ_SENT;
	if (!asking || reason != RPWI_REJ_INVALID_SERVICE_ID || now_ns >= c->patient_until_ns)
		return false;
	c->interval_ns = RPWI_MIN(c->interval_ns, (uint64_t)EARLY_NS);
	rpwi_cm_timer_set(c->cm, &c->node, now_ns + ASK_AGAIN_NS);
	return true;
}

void rpwi_cm_conn_timer(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	static const struct cm_args none;

	if (c->state == RPWI_CM_TIMEWAIT) {
		rpwi_cm_conn_input(c, CM_IN_TIMEOUT, &none, now_ns);
		return;
	}
	if (now_ns >= c->give_up_ns) {
		if (c->state == RPWI_CM_ESTABLISHED)
			return; /* RTUs enough; the peer asks if it has none */
		c->cm->stats.timeouts++;
		rpwi_cm_conn_input(c, CM_IN_TIMEOUT, &none, now_ns);
		return;
	}
	window_leave(c, now_ns);
	c->cm->stats.retries++;
	c->interval_ns = RPWI_MIN(2 * c->interval_ns, c->timeout_ns);
	rpwi_cm_timer_set(c->cm, &c->node, RPWI_MIN(now_ns + c->interval_ns, c->give_up_ns));
	rpwi_cm_send(c->cm, &c->path, c->mad);
}

/* ---- The calls ---- */

void rpwi_cm_conn_init(struct rpwi_cm *cm, struct rpwi_cm_conn *c, void *user)
{
	memset(c, 0, sizeof(*c));
	c->cm = cm;
	c->user = user;
	rpwi_list_init(&c->link);
	rpwi_list_init(&c->window_link);
	rpwi_cm_node_init(&c->node);
}

/* Does the state have a use for this call, and does the private data fit? Asked before anything is
 * changed. */
static int call_check(
	const struct rpwi_cm_conn *c, enum cm_input in, size_t pdata_len, size_t pdata_max)
{
	const struct action *act;
	cm_step(c->state, in, &act);
	return act && pdata_len <= pdata_max ? 0 : -EINVAL;
}

static int call(struct rpwi_cm_conn *c, enum cm_input in, const struct cm_args *a, uint64_t now_ns)
{
	return rpwi_cm_conn_input(c, in, a, now_ns) ? 0 : -EINVAL;
}

/* An ID, and a place among the connections. */
static bool conn_begin(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path)
{
	if (!rpwi_cm_id_left(c->cm) || !rpwi_cm_id_new(c->cm, &c->node))
		return false;
	c->local_id = c->node.local_id;
	c->path = *path;
	c->node.remote = path->remote;
	c->node.sidr = c->sidr;
	rpwi_list_add_tail(&c->cm->conns, &c->link);
	return true;
}

static uint64_t new_tid(const struct rpwi_cm_conn *c)
{
	return (uint64_t)c->cm->ops->random(c->cm->user) << 32 | c->local_id;
}

/* A connection that has been used and is IDLE again begins anew: nothing of the old peer may
 * stay. */
static void conn_clear(struct rpwi_cm_conn *c, bool passive, bool sidr)
{
	c->passive = passive;
	c->sidr = sidr;
	c->mra_seen = c->peer_patient = false;
	c->remote_id = c->node.remote_id = 0;
	c->node.remote_qpn = 0;
	memset(&c->remote, 0, sizeof(c->remote));
	memset(c->remote_ca_guid, 0, sizeof(c->remote_ca_guid));
}

int rpwi_cm_connect(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path, uint64_t service_id,
	const uint8_t ca_guid[8], const struct rpwi_cm_param *local, const void *pdata,
	size_t pdata_len, uint64_t now_ns)
{
	if (call_check(c, CM_IN_CONNECT, pdata_len, RPWI_REQ_PDATA))
		return -EINVAL;
	conn_clear(c, false, false);
	if (!conn_begin(c, path))
		return -ENOMEM;
	c->service_id = service_id;
	c->local = *local;
	c->timeout_ns = rpwi_cm_wait_ns(RPWI_CM_RESPONSE_TIMEOUT);
	c->retries_max = RPWI_CM_RETRIES;
	c->tid = new_tid(c);
	memcpy(c->local_ca_guid, ca_guid, 8);
	return call(c, CM_IN_CONNECT, &(struct cm_args){.pdata = pdata, .pdata_len = pdata_len},
		now_ns);
}

int rpwi_cm_accept(struct rpwi_cm_conn *c, const uint8_t ca_guid[8],
	const struct rpwi_cm_param *local, const void *pdata, size_t pdata_len, uint64_t now_ns)
{
	if (call_check(c, CM_IN_ACCEPT, pdata_len, RPWI_REP_PDATA))
		return -EINVAL;
	c->local = *local;
	memcpy(c->local_ca_guid, ca_guid, 8);
	return call(
		c, CM_IN_ACCEPT, &(struct cm_args){.pdata = pdata, .pdata_len = pdata_len}, now_ns);
}

int rpwi_cm_defer(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	if (c->state != RPWI_CM_REQ_RCVD)
		return -EINVAL;
	return call(c, CM_IN_REQ_AGAIN, &(struct cm_args){0}, now_ns);
}

int rpwi_cm_establish(struct rpwi_cm_conn *c, const void *pdata, size_t pdata_len, uint64_t now_ns)
{
	if (call_check(c, CM_IN_ESTABLISH, pdata_len, RPWI_RTU_PDATA))
		return -EINVAL;
	return call(c, CM_IN_ESTABLISH, &(struct cm_args){.pdata = pdata, .pdata_len = pdata_len},
		now_ns);
}

int rpwi_cm_comm_established(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	return call(c, CM_IN_COMM_ESTABLISHED, &(struct cm_args){0}, now_ns);
}

int rpwi_cm_reject(struct rpwi_cm_conn *c, uint16_t reason, const void *ari, size_t ari_len,
	const void *pdata, size_t pdata_len, uint64_t now_ns)
{
	if (call_check(c, CM_IN_REJECT, pdata_len, RPWI_REJ_PDATA) ||
		ari_len > sizeof(((struct rpwi_cm_msg *)0)->rej.ari))
		return -EINVAL;
	return call(c, CM_IN_REJECT,
		&(struct cm_args){.reason = reason,
			.ari = ari,
			.ari_len = ari_len,
			.pdata = pdata,
			.pdata_len = pdata_len},
		now_ns);
}

int rpwi_cm_disconnect(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	return call(c, CM_IN_DISCONNECT, &(struct cm_args){0}, now_ns);
}

int rpwi_cm_sidr_request(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path,
	uint64_t service_id, const void *pdata, size_t pdata_len, unsigned timeout_ms,
	unsigned retries, uint64_t now_ns)
{
	if (call_check(c, CM_IN_SIDR_REQUEST, pdata_len, RPWI_SIDR_REQ_PDATA))
		return -EINVAL;
	conn_clear(c, false, true);
	if (!conn_begin(c, path))
		return -ENOMEM;
	c->service_id = service_id;
	c->timeout_ns = RPWI_MAX(timeout_ms, 1u) * RPWI_NS_PER_MS;
	c->retries_max = (uint16_t)RPWI_MIN(retries, 0xffffu - 1);
	c->tid = new_tid(c);
	return call(c, CM_IN_SIDR_REQUEST,
		&(struct cm_args){.pdata = pdata, .pdata_len = pdata_len}, now_ns);
}

int rpwi_cm_sidr_reply(struct rpwi_cm_conn *c, uint8_t status, uint32_t qpn, uint32_t qkey,
	const void *pdata, size_t pdata_len, uint64_t now_ns)
{
	if (call_check(c, CM_IN_SIDR_REPLY, pdata_len, RPWI_SIDR_REP_PDATA))
		return -EINVAL;
	return call(c, CM_IN_SIDR_REPLY,
		&(struct cm_args){.status = status,
			.qpn = qpn,
			.qkey = qkey,
			.pdata = pdata,
			.pdata_len = pdata_len},
		now_ns);
}

void rpwi_cm_peer_gone(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	rpwi_cm_conn_input(c, CM_IN_GONE, &(struct cm_args){0}, now_ns);
}

void rpwi_cm_destroy(struct rpwi_cm_conn *c, uint64_t now_ns)
{
	rpwi_cm_conn_input(c, CM_IN_DESTROY, &(struct cm_args){.status = CM_SIDR_REJECTED}, now_ns);
}

/* ---- Of a REQ or SIDR_REQ that has come ---- */

static void param_of_req(const struct rpwi_cm_msg *m, struct rpwi_cm_param *p)
{
	p->qpn = m->req.qpn;
	p->qkey = m->req.qkey;
	p->starting_psn = m->req.starting_psn;
	p->responder_resources = m->req.responder_resources;
	p->initiator_depth = m->req.initiator_depth;
	p->retry_count = m->req.retry_count;
	p->rnr_retry_count = m->req.rnr_retry_count;
	p->ack_timeout = m->req.primary.local_ack_timeout;
	p->flow_control = m->req.flow_control;
	p->srq = m->req.srq;
}

void rpwi_cm_conn_requested(struct rpwi_cm_conn *c, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, uint64_t now_ns)
{
	bool sidr = m->attr == RPWI_CM_SIDR_REQ;
	struct rpwi_cm *cm = c->cm;

	conn_clear(c, true, sidr);
	bool begun = conn_begin(c, path);
	assert(begun); /* rx.c has made sure of an ID before it asked for the storage */
	(void)begun;
	c->service_id = sidr ? m->sidr_req.service_id : m->req.service_id;
	c->remote_id = c->node.remote_id = m->local_comm_id;
	c->tid = m->tid;
	rpwi_cm_know_id(cm, &c->node);
	if (!sidr) {
		unsigned exponent = RPWI_MIN(RPWI_MAX((unsigned)m->req.local_cm_response_timeout,
						     (unsigned)CM_RESPONSE_SHIFT_MIN),
			(unsigned)CM_RESPONSE_SHIFT_MAX);
		param_of_req(m, &c->remote);
		c->timeout_ns = rpwi_cm_wait_ns(exponent);
		c->retries_max = m->req.max_cm_retries;
		c->node.remote_qpn = m->req.qpn;
		memcpy(c->remote_ca_guid, m->req.ca_guid, 8);
		memcpy(c->node.remote_ca_guid, m->req.ca_guid, 8);
		rpwi_cm_know_qp(cm, &c->node);
	}
	rpwi_cm_conn_input(
		c, sidr ? CM_IN_SIDR_REQ_NEW : CM_IN_REQ_NEW, &(struct cm_args){.m = m}, now_ns);
	cm->ops->incoming(cm->user, c, m);
}

/* ---- Of a REP: the peer's half of the connection. ---- */

void rpwi_cm_conn_replied(struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m, uint64_t now_ns)
{
	struct rpwi_cm_param *p = &c->remote;

	p->qpn = m->rep.qpn;
	p->qkey = m->rep.qkey;
	p->starting_psn = m->rep.starting_psn;
	p->responder_resources = m->rep.responder_resources;
	p->initiator_depth = m->rep.initiator_depth;
	/* a REP has neither: what our REQ said holds for both */
	p->retry_count = c->local.retry_count;
	p->ack_timeout = c->local.ack_timeout;
	p->rnr_retry_count = m->rep.rnr_retry_count;
	p->flow_control = m->rep.flow_control;
	p->srq = m->rep.srq;
	c->remote_id = c->node.remote_id = m->local_comm_id;
	c->node.remote_qpn = m->rep.qpn;
	memcpy(c->remote_ca_guid, m->rep.ca_guid, 8);
	memcpy(c->node.remote_ca_guid, m->rep.ca_guid, 8);
	rpwi_cm_know_id(c->cm, &c->node);
	rpwi_cm_know_qp(c->cm, &c->node);
	rpwi_cm_conn_input(c, CM_IN_REP, &(struct cm_args){.m = m}, now_ns);
}
