/* The communication manager: one engine, and a peer that is this test's own hand. Every state with everything that can happen to it, then each rule by itself. Time is a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>

#include "cm/cm.h"

enum { SENT_MAX = 64, EVENTS_MAX = 64, POOL = 4096, PREFIX = 0x0ab };
#define SECOND RPWI_NS_PER_S

static struct rpwi_cm *cm;
static uint64_t now;
static struct rpwi_cm_conn pool[POOL]; /* what `request` gives out */
static unsigned pool_used;
static struct rpwi_cm_conn mine;     /* what the test connects with */
static struct rpwi_cm_conn *passive; /* the last that came */
static struct rpwi_cm_msg sent[SENT_MAX];
static struct rpwi_cm_path sent_path[SENT_MAX];
static unsigned nsent, sent_total;
static struct {
	struct rpwi_cm_conn *conn;
	struct rpwi_cm_event ev;
	uint8_t pdata[256];
	enum rpwi_cm_state state; /* of the connection, inside the callback */
} event[EVENTS_MAX];
static unsigned nevent, nincoming, nmoved;
static uint16_t refuse; /* what `request` says; 0: accept */
static bool destroy_in_event, reply_in_incoming;
static uint32_t random_next;
static const uint64_t *due_first; /* when set: conn->user points to when its event is due */

static const uint8_t our_guid[8] = "OURGUID", their_guid[8] = "THRGUID";
static const struct rpwi_addr our_addr = {.family = 4, .bytes = {10, 0, 0, 1}}, their_addr = {.family = 4, .bytes = {10, 0, 0, 2}};
static const uint64_t service = RPWI_SERVICE_ID(6, 7471);
static const struct rpwi_cm_param our_param = {.qpn = 0x0a0b0c,
	.starting_psn = 0x111111,
	.responder_resources = 3,
	.initiator_depth = 4,
	.retry_count = 6,
	.rnr_retry_count = 5,
	.ack_timeout = 18,
	.srq = true};

/* ---- surroundings of the engine ---- */

static void op_send(void *user, const struct rpwi_cm_path *path, const uint8_t *mad)
{
	sent_total++;
	if (nsent == SENT_MAX)
		return;
	assert_int_equal(rpwi_cm_decode(mad, RPWI_MAD_LEN, &sent[nsent]), 0);
	sent_path[nsent++] = *path;
}

static struct rpwi_cm_conn *op_request(void *user, const struct rpwi_cm_path *path, const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	assert_int_equal(sidr, m->attr == RPWI_CM_SIDR_REQ);
	*reason = refuse;
	if (refuse || pool_used == POOL)
		return NULL;
	pool[pool_used].user = &pool_used;
	return &pool[pool_used++];
}

static void op_incoming(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	assert_ptr_equal(c->user, &pool_used);
	assert_int_equal(c->state, c->sidr ? RPWI_CM_SIDR_REQ_RCVD : RPWI_CM_REQ_RCVD);
	nincoming++;
	passive = c;
	if (reply_in_incoming)
		assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, "in", 2, now), 0);
}

static void op_event(void *user, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	if (due_first)
		assert_true(now == *(const uint64_t *)c->user);
	if (nevent < EVENTS_MAX) {
		event[nevent].conn = c;
		event[nevent].ev = *ev;
		event[nevent].state = c->state;
		if (ev->pdata)
			memcpy(event[nevent].pdata, ev->pdata, ev->pdata_len);
		nevent++;
	}
	if (destroy_in_event) {
		rpwi_cm_destroy(c, now);
		memset(c, 0xdd, sizeof(*c)); /* the storage is the caller's again: the engine must not look */
	}
}

static uint32_t op_random(void *user) { return random_next = random_next * 1664525 + 1013904223; }
static void op_moved(void *user, struct rpwi_cm_conn *c, enum rpwi_cm_state from, enum rpwi_cm_state to)
{
	assert_int_equal(c->state, to);
	assert_int_not_equal(from, to);
	nmoved++;
}
static const struct rpwi_cm_ops ops = {op_send, op_request, op_incoming, op_event, op_random, op_moved};

static int begin(void **state)
{
	now = 1000 * SECOND;
	random_next = 12345;
	pool_used = nsent = sent_total = nevent = nincoming = nmoved = refuse = 0;
	destroy_in_event = reply_in_incoming = false;
	passive = NULL;
	assert_int_equal(rpwi_cm_new(&cm, &ops, NULL, PREFIX), 0);
	memset(&mine, 0x33, sizeof(mine));
	rpwi_cm_conn_init(cm, &mine, &mine);
	return 0;
}

static void destroy(struct rpwi_cm_conn *c, void *arg) { rpwi_cm_destroy(c, now); }

static int end(void **state)
{
	rpwi_cm_each(cm, destroy, NULL);
	rpwi_cm_free(cm);
	return 0;
}

static void again(void)
{
	end(NULL);
	begin(NULL);
}

/* ---- the peer ---- */

enum { THEIR_ID = 0x77000123, THEIR_QPN = 0x0d0e0f };
#define THEIR_TID 0xfeed0000beefull

static void rx_from(const struct rpwi_addr *from, const struct rpwi_cm_msg *m)
{
	uint8_t mad[RPWI_MAD_LEN];
	struct rpwi_cm_path path = {.local = our_addr, .remote = *from, .mtu = 5};
	rpwi_cm_encode(m, mad);
	rpwi_cm_rx(cm, &path, mad, sizeof(mad), now);
}
static void rx(const struct rpwi_cm_msg *m) { rx_from(&their_addr, m); }

static struct rpwi_cm_msg a_req(uint32_t id, uint32_t qpn)
{
	struct rpwi_cm_msg m = {.attr = RPWI_CM_REQ, .tid = THEIR_TID + id, .local_comm_id = id, .pdata_len = 7, .pdata = "hello!"};
	m.req.service_id = service;
	memcpy(m.req.ca_guid, their_guid, 8);
	m.req.qpn = qpn;
	m.req.starting_psn = 0x222222;
	m.req.responder_resources = 7;
	m.req.initiator_depth = 8;
	m.req.retry_count = 7;
	m.req.rnr_retry_count = 2;
	m.req.path_mtu = 3;
	m.req.local_cm_response_timeout = m.req.remote_cm_response_timeout = 20;
	m.req.max_cm_retries = 15;
	m.req.primary.local_ack_timeout = 17;
	m.req.primary.traffic_class = 0x20;
	m.req.primary.hop_limit = 33;
	m.req.primary.flow_label = 0x54321;
	return m;
}

/* A message of the peer within the connection c. */
static struct rpwi_cm_msg within(const struct rpwi_cm_conn *c, uint16_t attr)
{
	struct rpwi_cm_msg m = {.attr = attr, .tid = THEIR_TID + THEIR_ID, .local_comm_id = THEIR_ID, .remote_comm_id = c->local_id};
	switch (attr) {
	case RPWI_CM_REQ:
		return a_req(THEIR_ID, THEIR_QPN);
	case RPWI_CM_REP:
		m.rep.qpn = THEIR_QPN;
		m.rep.starting_psn = 0x333333;
		m.rep.responder_resources = 2;
		m.rep.initiator_depth = 1;
		m.rep.rnr_retry_count = 3;
		m.rep.srq = true;
		memcpy(m.rep.ca_guid, their_guid, 8);
		break;
	case RPWI_CM_MRA:
		m.mra.msg_mraed = c->passive;
		m.mra.service_timeout = 22;
		break;
	case RPWI_CM_REJ:
		m.rej.reason = RPWI_REJ_CONSUMER_DEFINED;
		m.rej.msg_rejected = c->passive;
		break;
	case RPWI_CM_DREQ:
		m.dreq.remote_qpn = our_param.qpn;
		break;
	case RPWI_CM_SIDR_REP:
		m.local_comm_id = c->local_id;
		m.remote_comm_id = 0;
		m.sidr_rep.qpn = 0x99;
		m.sidr_rep.qkey = 0x1234567;
		break;
	default:
		break;
	}
	return m;
}
static void rx_attr(const struct rpwi_cm_conn *c, uint16_t attr)
{
	struct rpwi_cm_msg m = within(c, attr);
	rx(&m);
}

static int connect_with(struct rpwi_cm_conn *c, uint32_t qpn)
{
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr, .mtu = 3, .hop_limit = 64, .local_gid = "ourgid", .remote_gid = "theirgid"};
	struct rpwi_cm_param p = our_param;
	p.qpn = qpn;
	return rpwi_cm_connect(c, &path, service, our_guid, &p, "req", 4, now);
}
static int sidr_ask(struct rpwi_cm_conn *c, unsigned timeout_ms, unsigned retries)
{
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr};
	return rpwi_cm_sidr_request(c, &path, service, "ask", 4, timeout_ms, retries, now);
}
static void rx_sidr_req(uint32_t id)
{
	struct rpwi_cm_msg m = {.attr = RPWI_CM_SIDR_REQ, .tid = THEIR_TID + id, .local_comm_id = id, .pdata_len = 4, .pdata = "who"};
	m.sidr_req.service_id = service;
	rx(&m);
}

/* Bring a new connection into a state, on the side asked for; what led there is forgotten. */
static struct rpwi_cm_conn *bring(enum rpwi_cm_state to, bool from_passive)
{
	struct rpwi_cm_conn *c = &mine;
	if (to == RPWI_CM_SIDR_REQ_SENT) {
		assert_int_equal(sidr_ask(c, 1000, 3), 0);
	} else if (to == RPWI_CM_SIDR_REQ_RCVD) {
		rx_sidr_req(THEIR_ID);
		c = passive;
	} else if (to != RPWI_CM_IDLE && from_passive) {
		rx_attr(c, RPWI_CM_REQ);
		c = passive;
		if (to != RPWI_CM_REQ_RCVD)
			assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, "rep", 4, now), 0);
		if (to == RPWI_CM_RTU_WAIT)
			rx_attr(c, RPWI_CM_MRA);
		if (to != RPWI_CM_REQ_RCVD && to != RPWI_CM_REP_SENT && to != RPWI_CM_RTU_WAIT)
			rx_attr(c, RPWI_CM_RTU);
	} else if (to != RPWI_CM_IDLE) {
		assert_int_equal(connect_with(c, our_param.qpn), 0);
		if (to == RPWI_CM_REP_WAIT)
			rx_attr(c, RPWI_CM_MRA);
		else if (to != RPWI_CM_REQ_SENT)
			rx_attr(c, RPWI_CM_REP);
		if (c->state == RPWI_CM_REP_RCVD && to != RPWI_CM_REP_RCVD)
			assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	}
	if (to == RPWI_CM_DREQ_SENT || to == RPWI_CM_TIMEWAIT)
		assert_int_equal(rpwi_cm_disconnect(c, now), 0);
	if (to == RPWI_CM_TIMEWAIT)
		rx_attr(c, RPWI_CM_DREP);
	if (to == RPWI_CM_DREQ_RCVD)
		rx_attr(c, RPWI_CM_DREQ);
	assert_int_equal(c->state, to);
	nsent = nevent = 0;
	return c;
}

static void run_until(uint64_t end_ns)
{
	while (rpwi_cm_deadline(cm) <= end_ns) {
		uint64_t at = rpwi_cm_deadline(cm);
		assert_true(at >= now);
		now = at;
		rpwi_cm_timer(cm, now);
		assert_true(rpwi_cm_deadline(cm) > now);
	}
	now = end_ns;
}

/* ---- every state with everything ---- */

enum { ACTIVE, PASSIVE, SIDES };
enum input { /* above the attributes */
	IN_ACCEPT = 0x40,
	IN_ESTABLISH,
	IN_COMM_ESTABLISHED,
	IN_REJECT,
	IN_DISCONNECT,
	IN_SIDR_REPLY,
	IN_CONNECT,
	IN_SIDR_ASK,
	IN_GONE,
	IN_DESTROY,
	IN_REJ_STALE,
	INPUTS,
};
enum { NO = 0, NONE = -1 };
/* What must follow; where there is no line, nothing: EINVAL for a call, and a message is stray. */
struct expected {
	enum rpwi_cm_state state;
	int side; /* SIDES: either */
	int input;
	enum rpwi_cm_state next;
	int send;  /* attribute or NO */
	int event; /* or NONE */
};
/* clang-format off */
#define S(x) RPWI_CM_##x
#define E(x) RPWI_CM_EV_##x
static const struct expected expected[] = {
	{S(IDLE), SIDES, IN_CONNECT, S(REQ_SENT), S(REQ), NONE},
	{S(IDLE), SIDES, IN_SIDR_ASK, S(SIDR_REQ_SENT), S(SIDR_REQ), NONE},
	{S(IDLE), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(REQ_SENT), ACTIVE, S(MRA), S(REP_WAIT), NO, NONE},
	{S(REQ_SENT), ACTIVE, S(REP), S(REP_RCVD), NO, E(REP)},
	{S(REQ_SENT), ACTIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REQ_SENT), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REQ_SENT), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REQ_SENT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REQ_SENT), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REP_WAIT), ACTIVE, S(MRA), S(REP_WAIT), NO, NONE},
	{S(REP_WAIT), ACTIVE, S(REP), S(REP_RCVD), NO, E(REP)},
	{S(REP_WAIT), ACTIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REP_WAIT), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_WAIT), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REP_WAIT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_WAIT), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REQ_RCVD), PASSIVE, S(REQ), S(REQ_RCVD), S(MRA), NONE},
	{S(REQ_RCVD), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REQ_RCVD), PASSIVE, IN_REJ_STALE, S(IDLE), NO, E(REJ)},
	{S(REQ_RCVD), PASSIVE, IN_ACCEPT, S(REP_SENT), S(REP), NONE},
	{S(REQ_RCVD), PASSIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REQ_RCVD), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REQ_RCVD), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(REP_SENT), PASSIVE, S(REQ), S(REP_SENT), S(REP), NONE},
	{S(REP_SENT), PASSIVE, S(MRA), S(RTU_WAIT), NO, NONE},
	{S(REP_SENT), PASSIVE, S(RTU), S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(REP_SENT), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(REP_SENT), PASSIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_SENT), PASSIVE, IN_COMM_ESTABLISHED, S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(REP_SENT), PASSIVE, IN_REJECT, S(TIMEWAIT), S(REJ), NONE},
	{S(REP_SENT), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_SENT), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},
	/* a DREQ is looked at by itself: two events */
	{S(REP_SENT), PASSIVE, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},

	{S(RTU_WAIT), PASSIVE, S(REQ), S(RTU_WAIT), S(REP), NONE},
	{S(RTU_WAIT), PASSIVE, S(MRA), S(RTU_WAIT), NO, NONE},
	{S(RTU_WAIT), PASSIVE, S(RTU), S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(RTU_WAIT), PASSIVE, S(REJ), S(IDLE), NO, E(REJ)},
	{S(RTU_WAIT), PASSIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(RTU_WAIT), PASSIVE, IN_COMM_ESTABLISHED, S(ESTABLISHED), NO, E(ESTABLISHED)},
	{S(RTU_WAIT), PASSIVE, IN_REJECT, S(TIMEWAIT), S(REJ), NONE},
	{S(RTU_WAIT), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(RTU_WAIT), PASSIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},
	{S(RTU_WAIT), PASSIVE, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},

	{S(REP_RCVD), ACTIVE, S(REP), S(REP_RCVD), S(MRA), NONE},
	{S(REP_RCVD), ACTIVE, S(REJ), S(TIMEWAIT), NO, E(REJ)},
	{S(REP_RCVD), ACTIVE, IN_REJ_STALE, S(TIMEWAIT), NO, E(REJ)},
	{S(REP_RCVD), ACTIVE, IN_ESTABLISH, S(ESTABLISHED), S(RTU), NONE},
	{S(REP_RCVD), ACTIVE, IN_REJECT, S(IDLE), S(REJ), NONE},
	{S(REP_RCVD), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(REP_RCVD), ACTIVE, IN_DESTROY, S(IDLE), S(REJ), NONE},

	{S(ESTABLISHED), PASSIVE, S(REQ), S(ESTABLISHED), NO, NONE},
	{S(ESTABLISHED), ACTIVE, S(REP), S(ESTABLISHED), S(RTU), NONE},
	{S(ESTABLISHED), PASSIVE, S(RTU), S(ESTABLISHED), NO, NONE},
	{S(ESTABLISHED), SIDES, S(DREQ), S(DREQ_RCVD), NO, E(DREQ)},
	{S(ESTABLISHED), SIDES, S(REJ), S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_DISCONNECT, S(DREQ_SENT), S(DREQ), NONE},
	{S(ESTABLISHED), SIDES, IN_GONE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(ESTABLISHED), SIDES, IN_DESTROY, S(IDLE), S(DREQ), NONE},

	{S(DREQ_SENT), PASSIVE, S(REQ), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), ACTIVE, S(REP), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), PASSIVE, S(RTU), S(DREQ_SENT), NO, NONE},
	{S(DREQ_SENT), SIDES, S(DREQ), S(TIMEWAIT), S(DREP), E(DREP)},
	{S(DREQ_SENT), SIDES, S(DREP), S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, S(REJ), S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, E(DREP)},
	{S(DREQ_SENT), SIDES, IN_GONE, S(TIMEWAIT), NO, E(PEER_GONE)},
	{S(DREQ_SENT), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(DREQ_RCVD), PASSIVE, S(REQ), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), ACTIVE, S(REP), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), PASSIVE, S(RTU), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), SIDES, S(DREQ), S(DREQ_RCVD), NO, NONE},
	{S(DREQ_RCVD), SIDES, IN_DISCONNECT, S(TIMEWAIT), S(DREP), NONE},
	{S(DREQ_RCVD), SIDES, IN_GONE, S(TIMEWAIT), NO, NONE},
	{S(DREQ_RCVD), SIDES, IN_DESTROY, S(IDLE), S(DREP), NONE},

	{S(TIMEWAIT), PASSIVE, S(REQ), S(TIMEWAIT), S(REJ), NONE},
	{S(TIMEWAIT), ACTIVE, S(REP), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), PASSIVE, S(RTU), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, S(DREQ), S(TIMEWAIT), S(DREP), NONE},
	{S(TIMEWAIT), SIDES, S(DREP), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, S(REJ), S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, IN_REJ_STALE, S(TIMEWAIT), NO, NONE},
	{S(TIMEWAIT), SIDES, IN_DESTROY, S(IDLE), NO, NONE},

	{S(SIDR_REQ_SENT), ACTIVE, S(SIDR_REP), S(IDLE), NO, E(SIDR_REP)},
	{S(SIDR_REQ_SENT), ACTIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(SIDR_REQ_SENT), ACTIVE, IN_DESTROY, S(IDLE), NO, NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, S(SIDR_REQ), S(SIDR_REQ_RCVD), NO, NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_SIDR_REPLY, S(IDLE), S(SIDR_REP), NONE},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_GONE, S(IDLE), NO, E(PEER_GONE)},
	{S(SIDR_REQ_RCVD), PASSIVE, IN_DESTROY, S(IDLE), S(SIDR_REP), NONE},
};
/* clang-format on */

static const struct expected *expected_of(enum rpwi_cm_state state, int side, int input)
{
	const struct expected *found = NULL;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(expected); i++)
		if (expected[i].state == state && (expected[i].side == SIDES || expected[i].side == side) && expected[i].input == input) {
			assert_null(found);
			found = &expected[i];
		}
	return found;
}

/* A call's result; 0 for what gives none. */
static int feed(struct rpwi_cm_conn *c, int input)
{
	struct rpwi_cm_msg m;
	switch (input) {
	case IN_ACCEPT:
		return rpwi_cm_accept(c, our_guid, &our_param, "x", 1, now);
	case IN_ESTABLISH:
		return rpwi_cm_establish(c, "x", 1, now);
	case IN_COMM_ESTABLISHED:
		return rpwi_cm_comm_established(c, now);
	case IN_REJECT:
		return rpwi_cm_reject(c, RPWI_REJ_CONSUMER_DEFINED, NULL, 0, "x", 1, now);
	case IN_DISCONNECT:
		return rpwi_cm_disconnect(c, now);
	case IN_SIDR_REPLY:
		return rpwi_cm_sidr_reply(c, 0, 1, 2, "x", 1, now);
	case IN_CONNECT:
		return connect_with(c, 0x4711);
	case IN_SIDR_ASK:
		return sidr_ask(c, 1000, 2);
	case IN_GONE:
		rpwi_cm_peer_gone(c, now);
		return 0;
	case IN_DESTROY:
		rpwi_cm_destroy(c, now);
		return 0;
	case IN_REJ_STALE:
		m = within(c, RPWI_CM_REJ);
		m.rej.reason = RPWI_REJ_STALE_CONN;
		rx(&m);
		return 0;
	case RPWI_CM_SIDR_REQ:
		rx_sidr_req(THEIR_ID);
		return 0;
	default:
		rx_attr(c, (uint16_t)input);
		return 0;
	}
}

static void check_one(enum rpwi_cm_state state, int side, int input)
{
	const struct expected *e = expected_of(state, side, input);
	/* For the active side a REQ from this peer is a new connection; nothing to do with this one. */
	if (!e && ((input == RPWI_CM_REQ && side == ACTIVE) || input == RPWI_CM_SIDR_REQ || (input == RPWI_CM_REQ && state >= RPWI_CM_SIDR_REQ_SENT) ||
			  state == RPWI_CM_IDLE))
		return;
	again();
	struct rpwi_cm_conn *c = bring(state, side == PASSIVE);
	const struct rpwi_cm_stats *st = rpwi_cm_stats(cm);
	uint64_t stray_before = st->stray;
	unsigned moved_before = nmoved, incoming_before = nincoming;
	int rc = feed(c, input);
	bool is_call = input >= IN_ACCEPT, is_message = input < IN_ACCEPT || input == IN_REJ_STALE;
	char what[64];
	snprintf(what, sizeof(what), "%s %s + %s/%d", side == PASSIVE ? "passive" : "active", rpwi_cm_state_name[state], rpwi_cm_attr_name((unsigned)input),
		input);

	enum rpwi_cm_state next = e ? e->next : state;
	int send = e ? e->send : NO, ev = e ? e->event : NONE;
	unsigned events = ev == NONE ? 0 : e->input == RPWI_CM_DREQ && state != RPWI_CM_ESTABLISHED && state != RPWI_CM_DREQ_SENT ? 2 : 1;
	bool right = c->state == next && nsent == (send != NO) && nevent == events && (send == NO || sent[0].attr == send) &&
		     (ev == NONE || (int)event[events - 1].ev.type == ev) && nincoming == incoming_before &&
		     (next == state ? nmoved == moved_before : nmoved == moved_before + (events ? events : 1));
	right = right && rc == (!e && is_call && !is_message && input != IN_GONE && input != IN_DESTROY ? EINVAL : 0);
	right = right && st->stray == stray_before + (!e && is_message);
	if (!right)
		fail_msg("%s: now %s, rc %d, sent %u (%s), events %u (%d), stray +%u", what, rpwi_cm_state_name[c->state], rc, nsent,
			nsent ? rpwi_cm_attr_name(sent[0].attr) : "-", nevent, nevent ? (int)event[0].ev.type : -1, (unsigned)(st->stray - stray_before));
}

static void every_state_with_everything(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		int side;
	} places[] = {
		{S(IDLE), ACTIVE},
		{S(REQ_SENT), ACTIVE},
		{S(REP_WAIT), ACTIVE},
		{S(REQ_RCVD), PASSIVE},
		{S(REP_SENT), PASSIVE},
		{S(RTU_WAIT), PASSIVE},
		{S(REP_RCVD), ACTIVE},
		{S(ESTABLISHED), ACTIVE},
		{S(ESTABLISHED), PASSIVE},
		{S(DREQ_SENT), ACTIVE},
		{S(DREQ_SENT), PASSIVE},
		{S(DREQ_RCVD), ACTIVE},
		{S(DREQ_RCVD), PASSIVE},
		{S(TIMEWAIT), ACTIVE},
		{S(TIMEWAIT), PASSIVE},
		{S(SIDR_REQ_SENT), ACTIVE},
		{S(SIDR_REQ_RCVD), PASSIVE},
	};
	for (size_t p = 0; p < RPWI_ARRAY_LEN(places); p++) {
		for (int input = RPWI_CM_REQ; input <= RPWI_CM_APR; input++)
			check_one(places[p].state, places[p].side, input);
		for (int input = IN_ACCEPT; input < INPUTS; input++)
			check_one(places[p].state, places[p].side, input);
	}
}

/* Each state but IDLE has a way out by itself, or waits for its program. */
static void every_wait_ends(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		int event;
		enum rpwi_cm_state next;
		int last; /* message sent last */
	} cases[] = {
		{S(REQ_SENT), false, E(REQ_ERROR), S(IDLE), S(REJ)},
		{S(REP_WAIT), false, E(REQ_ERROR), S(IDLE), S(REJ)},
		{S(REP_SENT), true, E(REP_ERROR), S(TIMEWAIT), S(REJ)},
		{S(RTU_WAIT), true, E(REP_ERROR), S(TIMEWAIT), S(REJ)},
		{S(DREQ_SENT), false, E(DREQ_ERROR), S(TIMEWAIT), S(DREQ)},
		{S(DREQ_SENT), true, E(DREQ_ERROR), S(TIMEWAIT), S(DREQ)},
		{S(TIMEWAIT), false, E(TIMEWAIT_EXIT), S(IDLE), NO},
		{S(TIMEWAIT), true, E(TIMEWAIT_EXIT), S(IDLE), NO},
		{S(SIDR_REQ_SENT), false, E(SIDR_REQ_ERROR), S(IDLE), S(SIDR_REQ)},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		run_until(now + 300 * SECOND);
		assert_true(nevent >= 1);
		assert_int_equal(event[0].ev.type, cases[i].event);
		assert_int_equal(event[0].state, cases[i].next);
		/* Where TIMEWAIT follows, its end is told as well, and then nothing is left. */
		assert_int_equal(nevent, cases[i].next == RPWI_CM_TIMEWAIT ? 2 : 1);
		if (nevent == 2)
			assert_int_equal(event[1].ev.type, RPWI_CM_EV_TIMEWAIT_EXIT);
		assert_int_equal(c->state, RPWI_CM_IDLE);
		if (cases[i].last)
			assert_int_equal(sent[nsent - 1].attr, cases[i].last);
		else
			assert_int_equal(nsent, 0);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	}
}

/* ---- what the messages say ---- */

static void active_side(void **state)
{
	assert_int_equal(connect_with(&mine, our_param.qpn), 0);
	assert_int_equal(nsent, 1);
	struct rpwi_cm_msg req = sent[0];
	assert_true(rpwi_addr_eq(&sent_path[0].remote, &their_addr) && rpwi_addr_eq(&sent_path[0].local, &our_addr));
	assert_int_equal(req.local_comm_id, mine.local_id);
	assert_int_equal(req.local_comm_id >> 20, PREFIX);
	assert_true(req.req.service_id == service);
	assert_memory_equal(req.req.ca_guid, our_guid, 8);
	assert_int_equal(req.req.qpn, our_param.qpn);
	assert_int_equal(req.req.starting_psn, our_param.starting_psn);
	assert_int_equal(req.req.responder_resources, 3);
	assert_int_equal(req.req.initiator_depth, 4);
	assert_int_equal(req.req.retry_count, 6);
	assert_int_equal(req.req.rnr_retry_count, 5);
	assert_int_equal(req.req.path_mtu, 3);
	assert_int_equal(req.req.pkey, 0xffff);
	assert_int_equal(req.req.max_cm_retries, 15);
	assert_int_equal(req.req.remote_cm_response_timeout, 20);
	assert_int_equal(req.req.local_cm_response_timeout, 20);
	assert_int_equal(req.req.primary.local_ack_timeout, 18);
	assert_int_equal(req.req.primary.hop_limit, 64);
	assert_memory_equal(req.req.primary.local_gid, "ourgid", 7);
	assert_memory_equal(req.req.primary.remote_gid, "theirgid", 9);
	assert_true(req.req.srq);
	assert_memory_equal(req.pdata, "req", 4);

	struct rpwi_cm_msg rep = within(&mine, RPWI_CM_REP);
	rep.tid = req.tid;
	rep.pdata_len = 6;
	memcpy(rep.pdata, "reply", 6);
	rx(&rep);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REP);
	assert_memory_equal(event[0].pdata, "reply", 6);
	assert_int_equal(event[0].ev.pdata_len, RPWI_REP_PDATA);
	assert_int_equal(mine.remote.qpn, THEIR_QPN);
	assert_int_equal(mine.remote.starting_psn, 0x333333);
	assert_int_equal(mine.remote.responder_resources, 2);
	assert_int_equal(mine.remote.initiator_depth, 1);
	assert_int_equal(mine.remote.rnr_retry_count, 3);
	assert_true(mine.remote.srq);
	assert_int_equal(mine.remote_id, THEIR_ID);
	assert_memory_equal(mine.remote_ca_guid, their_guid, 8);

	assert_int_equal(rpwi_cm_establish(&mine, "ready", 6, now), 0);
	assert_int_equal(sent[1].attr, RPWI_CM_RTU);
	assert_true(sent[1].tid == req.tid);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_memory_equal(sent[1].pdata, "ready", 6);
	rx(&rep); /* the RTU was lost: again, with its private data */
	assert_int_equal(sent[2].attr, RPWI_CM_RTU);
	assert_memory_equal(sent[2].pdata, "ready", 6);
	assert_int_equal(nevent, 1);

	assert_int_equal(rpwi_cm_disconnect(&mine, now), 0);
	assert_int_equal(sent[3].attr, RPWI_CM_DREQ);
	assert_int_equal(sent[3].dreq.remote_qpn, THEIR_QPN);
	assert_int_equal(sent[3].local_comm_id, mine.local_id);
	assert_int_equal(sent[3].remote_comm_id, THEIR_ID);
	assert_true(sent[3].tid != req.tid);
}

static void passive_side(void **state)
{
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 1);
	assert_true(passive->passive);
	assert_int_equal(passive->local_id >> 20, PREFIX);
	assert_int_equal(passive->remote_id, THEIR_ID);
	assert_true(passive->service_id == service);
	assert_int_equal(passive->remote.qpn, THEIR_QPN);
	assert_int_equal(passive->remote.starting_psn, 0x222222);
	assert_int_equal(passive->remote.responder_resources, 7);
	assert_int_equal(passive->remote.initiator_depth, 8);
	assert_int_equal(passive->remote.retry_count, 7);
	assert_int_equal(passive->remote.rnr_retry_count, 2);
	assert_int_equal(passive->remote.ack_timeout, 17);
	assert_int_equal(passive->path.mtu, 3);
	assert_int_equal(passive->path.traffic_class, 0x20);
	assert_int_equal(passive->path.hop_limit, 33);
	assert_int_equal(passive->path.flow_label, 0x54321);
	assert_true(rpwi_addr_eq(&passive->path.remote, &their_addr) && rpwi_addr_eq(&passive->path.local, &our_addr));
	assert_int_equal(nsent, 0);

	assert_int_equal(rpwi_cm_accept(passive, our_guid, &our_param, "yes", 4, now), 0);
	assert_int_equal(sent[0].attr, RPWI_CM_REP);
	assert_true(sent[0].tid == req.tid);
	assert_int_equal(sent[0].local_comm_id, passive->local_id);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_int_equal(sent[0].rep.qpn, our_param.qpn);
	assert_int_equal(sent[0].rep.starting_psn, our_param.starting_psn);
	assert_int_equal(sent[0].rep.responder_resources, 3);
	assert_int_equal(sent[0].rep.initiator_depth, 4);
	assert_int_equal(sent[0].rep.rnr_retry_count, 5);
	assert_true(sent[0].rep.srq);
	assert_memory_equal(sent[0].rep.ca_guid, our_guid, 8);
	assert_memory_equal(sent[0].pdata, "yes", 4);

	struct rpwi_cm_msg rtu = within(passive, RPWI_CM_RTU);
	rtu.pdata_len = 3;
	memcpy(rtu.pdata, "go", 3);
	rx(&rtu);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_ESTABLISHED);
	assert_memory_equal(event[0].pdata, "go", 3);

	struct rpwi_cm_msg dreq = within(passive, RPWI_CM_DREQ);
	dreq.tid = 0x4242;
	rx(&dreq);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_DREQ);
	assert_int_equal(rpwi_cm_disconnect(passive, now), 0);
	assert_int_equal(sent[1].attr, RPWI_CM_DREP);
	assert_true(sent[1].tid == 0x4242);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_int_equal(nevent, 2);
}

static void every_reason_arrives(void **state)
{
	for (uint16_t reason = 1; reason <= 40; reason++) {
		again();
		bring(RPWI_CM_REQ_SENT, false);
		struct rpwi_cm_msg rej = within(&mine, RPWI_CM_REJ);
		rej.local_comm_id = 0; /* a peer that has made no connection for it */
		rej.rej.reason = reason;
		rej.pdata_len = 5;
		memcpy(rej.pdata, "no no", 5);
		rx(&rej);
		assert_int_equal(nevent, 1);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
		assert_int_equal(event[0].ev.reason, reason);
		assert_int_equal(event[0].ev.pdata_len, RPWI_REJ_PDATA);
		assert_memory_equal(event[0].pdata, "no no", 5);
		assert_int_equal(mine.state, reason == RPWI_REJ_STALE_CONN ? RPWI_CM_TIMEWAIT : RPWI_CM_IDLE);
		/* and from our program to the peer's */
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
		assert_int_equal(rpwi_cm_reject(c, reason, "ari", 4, "sorry", 6, now), 0);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, reason);
		assert_int_equal(sent[0].rej.msg_rejected, 0);
		assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
		assert_memory_equal(sent[0].pdata, "sorry", 6);
		assert_memory_equal(sent[0].rej.ari, "ari", 4);
	}
}

static void the_engine_refuses_by_itself(void **state)
{
	static const uint16_t reasons[] = {RPWI_REJ_INVALID_SERVICE_ID, RPWI_REJ_NO_RESOURCES, RPWI_REJ_CONSUMER_DEFINED};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(reasons); i++) {
		refuse = reasons[i];
		nsent = 0;
		rx_attr(&mine, RPWI_CM_REQ);
		assert_int_equal(nsent, 1);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, reasons[i]);
		assert_int_equal(sent[0].rej.msg_rejected, 0);
		assert_int_equal(sent[0].local_comm_id, 0);
		assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
		assert_true(sent[0].tid == THEIR_TID + THEIR_ID);
		assert_true(rpwi_addr_eq(&sent_path[0].remote, &their_addr));
	}
	assert_int_equal(rpwi_cm_stats(cm)->no_service, 1);
	refuse = 1;
	nsent = 0;
	rx_sidr_req(55);
	assert_int_equal(sent[0].attr, RPWI_CM_SIDR_REP);
	assert_int_equal(sent[0].sidr_rep.status, 1);
	assert_int_equal(sent[0].local_comm_id, 55);
	assert_true(sent[0].sidr_rep.service_id == service);
	assert_int_equal(rpwi_cm_stats(cm)->no_service, 2);

	refuse = 0;
	nsent = 0;
	struct rpwi_cm_msg m = a_req(1, 2);
	m.req.transport = 2;
	rx(&m);
	m.req.transport = 0;
	m.req.path_mtu = 0;
	rx(&m);
	m.req.path_mtu = 6;
	rx(&m);
	assert_int_equal(nsent, 3);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_INVALID_TRANSPORT_TYPE);
	assert_int_equal(sent[1].rej.reason, RPWI_REJ_INVALID_MTU);
	assert_int_equal(sent[2].rej.reason, RPWI_REJ_INVALID_MTU);
	assert_int_equal(nincoming, 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
}

static void private_data_has_bounds(void **state)
{
	static const uint8_t big[256];
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr, .mtu = 3};
	assert_int_equal(rpwi_cm_connect(&mine, &path, service, our_guid, &our_param, big, RPWI_REQ_PDATA + 1, now), EINVAL);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
	assert_int_equal(rpwi_cm_connect(&mine, &path, service, our_guid, &our_param, big, RPWI_REQ_PDATA, now), 0);
	rx_attr(&mine, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(&mine, big, RPWI_RTU_PDATA + 1, now), EINVAL);
	assert_int_equal(rpwi_cm_reject(&mine, 28, big, 0, big, RPWI_REJ_PDATA + 1, now), EINVAL);
	assert_int_equal(rpwi_cm_reject(&mine, 28, big, 73, big, 0, now), EINVAL);
	assert_int_equal(mine.state, RPWI_CM_REP_RCVD);
	assert_int_equal(rpwi_cm_establish(&mine, big, RPWI_RTU_PDATA, now), 0);
	again();
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, big, RPWI_REP_PDATA + 1, now), EINVAL);
	assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, big, RPWI_REP_PDATA, now), 0);
	again();
	c = bring(RPWI_CM_SIDR_REQ_RCVD, true);
	assert_int_equal(rpwi_cm_sidr_reply(c, 0, 1, 2, big, RPWI_SIDR_REP_PDATA + 1, now), EINVAL);
	assert_int_equal(rpwi_cm_sidr_request(&mine, &path, service, big, RPWI_SIDR_REQ_PDATA + 1, 10, 1, now), EINVAL);
	assert_int_equal(rpwi_cm_sidr_request(&mine, &path, service, big, RPWI_SIDR_REQ_PDATA, 10, 1, now), 0);
}

/* ---- repetition ---- */

/* Early at first; never less than the 16 tries of rdma_cm; an end after 16 times 4.3 s. */
static void unanswered_requests(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		uint16_t attr;
	} cases[] = {{S(REQ_SENT), false, S(REQ)}, {S(REP_SENT), true, S(REP)}, {S(DREQ_SENT), false, S(DREQ)}};
	const uint64_t response_ns = 4096ull << 20;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		uint64_t start = now, first;
		first = rpwi_cm_deadline(cm) - start;
		assert_true(first == 250 * RPWI_NS_PER_MS);
		run_until(start + 4 * SECOND);
		assert_int_equal(nsent, 4); /* 0.25, 0.75, 1.75, 3.75 s */
		run_until(start + 16 * response_ns - 1);
		assert_int_equal(nevent, 0);
		assert_int_equal(c->state, cases[i].state);
		assert_in_range(nsent, 15, 20);
		for (unsigned k = 0; k < nsent; k++) {
			assert_int_equal(sent[k].attr, cases[i].attr);
			assert_true(sent[k].tid == sent[0].tid);
		}
		assert_int_equal(rpwi_cm_stats(cm)->retries, nsent);
		run_until(start + 16 * response_ns);
		assert_int_equal(nevent, 1);
		assert_int_equal(rpwi_cm_stats(cm)->timeouts, 1);
	}
}

static void the_peer_sets_the_pace_of_its_answers_within_bounds(void **state)
{
	static const struct {
		uint8_t exponent, retries;
		uint64_t end_ns;
	} cases[] = {{20, 2, 3 * (4096ull << 20)}, {0, 0, 4096ull << 16}, {31, 15, 16 * (4096ull << 22)}, {18, 7, 8 * (4096ull << 18)}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		again();
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		req.req.local_cm_response_timeout = cases[i].exponent;
		req.req.max_cm_retries = cases[i].retries;
		rx(&req);
		assert_int_equal(rpwi_cm_accept(passive, our_guid, &our_param, NULL, 0, now), 0);
		uint64_t start = now;
		run_until(start + cases[i].end_ns - 1);
		assert_int_equal(nevent, 0);
		run_until(start + cases[i].end_ns);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_REP_ERROR);
	}
}

static void an_mra_gives_time_and_not_for_ever(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_SENT, false);
	uint64_t start = now, service_ns = 4096ull << 24;
	struct rpwi_cm_msg mra = within(c, RPWI_CM_MRA);
	mra.mra.service_timeout = 31; /* 2.4 hours: cut to 24 */
	rx(&mra);
	run_until(start + service_ns - 1);
	assert_int_equal(nsent, 0);
	run_until(start + service_ns);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_REQ);
	while (nevent == 0 && now < start + 1000 * SECOND) {
		if (now < start + 100 * SECOND)
			rx(&mra); /* each time anew */
		run_until(now + SECOND);
	}
	assert_in_range(nsent, 5, 20); /* however patient, it asks again before it gives up: the answer may have been lost */
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REQ_ERROR);
	assert_true(now < start + 3 * service_ns);
	again();
	c = bring(RPWI_CM_REQ_SENT, false);
	mra = within(c, RPWI_CM_MRA);
	mra.mra.msg_mraed = 1; /* of a REP, which this side has not sent */
	rx(&mra);
	assert_int_equal(c->state, RPWI_CM_REQ_SENT);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 1);
}

static void a_slow_program_asks_for_time_only_when_asked(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 0);
	rx_attr(c, RPWI_CM_REQ);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].mra.msg_mraed, 0);
	assert_int_equal(sent[0].mra.service_timeout, 24);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_int_equal(rpwi_cm_accept(c, our_guid, &our_param, "late", 5, now), 0);
	rx_attr(c, RPWI_CM_REQ); /* once more, overtaken by the REP */
	assert_int_equal(sent[2].attr, RPWI_CM_REP);
	assert_memory_equal(sent[2].pdata, "late", 5);
	assert_int_equal(nincoming, 1);
	assert_int_equal(rpwi_cm_stats(cm)->duplicates, 2);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(sent[0].attr, RPWI_CM_MRA);
	assert_int_equal(sent[0].mra.msg_mraed, 1);
}

/* After our MRA the peer waits a minute for the answer: a lost one would cost that minute. */
static void an_answer_after_an_mra_is_repeated_unasked(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 7); /* MRA, RTU, and five more */
	assert_true(sent[6].attr == RPWI_CM_RTU && !memcmp(sent[4].pdata, "rtu", 4));
	assert_int_equal(c->state, RPWI_CM_ESTABLISHED);
	assert_int_equal(nevent, 0);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	again();
	c = bring(RPWI_CM_REP_RCVD, false);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(rpwi_cm_establish(c, "rtu", 4, now), 0);
	rx_attr(c, RPWI_CM_DREQ);
	run_until(now + 100 * SECOND);
	assert_int_equal(nsent, 2); /* the peer is there, and is done */
	again();
	c = bring(RPWI_CM_REQ_RCVD, true);
	rx_attr(c, RPWI_CM_REQ);
	assert_int_equal(rpwi_cm_reject(c, 28, NULL, 0, "why", 4, now), 0);
	run_until(now + 60 * SECOND);
	assert_int_equal(nsent, 7); /* MRA, REJ, and five more */
	run_until(now + 10 * SECOND);
	rx_attr(c, RPWI_CM_REQ); /* the peer's next try, when the MRA's time is over */
	assert_int_equal(nsent, 8);
	assert_true(sent[7].attr == RPWI_CM_REJ && !memcmp(sent[7].pdata, "why", 4));
	assert_int_equal(nincoming, 1);
}

/* ---- disconnecting ---- */

static void a_dreq_before_the_rtu_establishes_first(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REP_SENT, true);
	rx_attr(c, RPWI_CM_DREQ);
	assert_int_equal(nevent, 2);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_ESTABLISHED);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_DREQ);
	again();
	bring(RPWI_CM_REP_SENT, true);
	struct rpwi_cm_msg dreq = within(passive, RPWI_CM_DREQ);
	destroy_in_event = true;
	rx(&dreq);
	assert_int_equal(nevent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_DREQ);
}

static void crossing_disconnects(void **state)
{
	for (int side = 0; side < 2; side++) {
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_DREQ_SENT, side);
		struct rpwi_cm_msg dreq = within(c, RPWI_CM_DREQ);
		dreq.tid = 0x777;
		rx(&dreq);
		assert_int_equal(nevent, 1);
		assert_int_equal(event[0].ev.type, RPWI_CM_EV_DREP);
		assert_int_equal(sent[0].attr, RPWI_CM_DREP);
		assert_true(sent[0].tid == 0x777);
		rx_attr(c, RPWI_CM_DREP); /* the answer to ours: nothing more */
		rx(&dreq);                /* their DREQ again: the DREP was lost */
		assert_int_equal(nevent, 1);
		assert_int_equal(nsent, 2);
		assert_int_equal(sent[1].attr, RPWI_CM_DREP);
	}
}

static void a_dreq_for_nobody_is_answered(void **state)
{
	struct rpwi_cm_msg dreq = {.attr = RPWI_CM_DREQ, .tid = 5, .local_comm_id = THEIR_ID, .remote_comm_id = (uint32_t)PREFIX << 20 | 0x33333};
	rx(&dreq);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].attr, RPWI_CM_DREP);
	assert_int_equal(sent[0].local_comm_id, dreq.remote_comm_id);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
	assert_true(sent[0].tid == 5);
	dreq.remote_comm_id = 0x00133333; /* another process's */
	rx(&dreq);
	assert_int_equal(nsent, 1);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 2);
}

static void a_rep_for_nobody_is_rejected(void **state)
{
	struct rpwi_cm_msg rep = {.attr = RPWI_CM_REP, .tid = 5, .local_comm_id = THEIR_ID, .remote_comm_id = (uint32_t)PREFIX << 20 | 0x33333};
	rx(&rep);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_INVALID_COMM_ID);
	assert_int_equal(sent[0].rej.msg_rejected, 1);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID);
}

/* The storage is gone, but the peer still hears of the end, though the first DREQ was lost. */
static void a_destroyed_connection_goes_on_disconnecting(void **state)
{
	for (int answered = 0; answered < 2; answered++) {
		again();
		struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, false), was = *c;
		rpwi_cm_destroy(c, now);
		memset(c, 0xdd, sizeof(*c));
		assert_int_equal(sent[0].attr, RPWI_CM_DREQ);
		run_until(now + SECOND);
		assert_int_equal(nsent, 3);
		assert_true(sent[2].attr == RPWI_CM_DREQ && sent[2].tid == sent[0].tid && sent[2].dreq.remote_qpn == THEIR_QPN);
		if (answered)
			rx_attr(&was, RPWI_CM_DREP);
		run_until(now + 200 * SECOND);
		assert_int_equal(nsent, answered ? 3 : 9);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
		assert_int_equal(nevent, 0);
		rpwi_cm_conn_init(cm, &mine, &mine);
	}
}

static void nobody_hears_of_a_destroyed_connection(void **state)
{
	for (enum rpwi_cm_state s = RPWI_CM_REQ_SENT; s < RPWI_CM_STATE_COUNT; s++)
		for (int side = 0; side < 2; side++) {
			again();
			if ((side == ACTIVE && (s == S(REQ_RCVD) || s == S(REP_SENT) || s == S(RTU_WAIT) || s == S(SIDR_REQ_RCVD))) ||
				(side == PASSIVE && (s == S(REQ_SENT) || s == S(REP_WAIT) || s == S(REP_RCVD) || s == S(SIDR_REQ_SENT))))
				continue;
			struct rpwi_cm_conn *c = bring(s, side), was = *c;
			unsigned incoming_before = nincoming;
			rpwi_cm_destroy(c, now);
			memset(c, 0xdd, sizeof(*c));
			for (uint16_t attr = RPWI_CM_REQ; attr <= RPWI_CM_APR; attr++) {
				bool new_request = (attr == RPWI_CM_REQ && !(side && !was.sidr)) || (attr == RPWI_CM_SIDR_REQ && !(side && was.sidr));
				if (!new_request)
					feed(&was, attr);
			}
			run_until(now + 200 * SECOND);
			assert_int_equal(nevent, 0);
			assert_int_equal(nincoming, incoming_before); /* a late copy of the request is not a second one */
			assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
			rpwi_cm_conn_init(cm, &mine, &mine);
		}
}

static void a_callback_may_destroy(void **state)
{
	static const struct {
		enum rpwi_cm_state state;
		bool passive;
		int input; /* or 0: time */
	} cases[] = {
		{S(REQ_SENT), 0, S(REP)},
		{S(REQ_SENT), 0, S(REJ)},
		{S(REQ_SENT), 0, IN_GONE},
		{S(REQ_SENT), 0, 0},
		{S(REQ_RCVD), 1, S(REJ)},
		{S(REP_SENT), 1, S(RTU)},
		{S(REP_SENT), 1, IN_COMM_ESTABLISHED},
		{S(REP_SENT), 1, 0},
		{S(ESTABLISHED), 0, S(DREQ)},
		{S(ESTABLISHED), 1, S(DREQ)},
		{S(ESTABLISHED), 1, IN_GONE},
		{S(DREQ_SENT), 0, S(DREP)},
		{S(DREQ_SENT), 0, S(DREQ)},
		{S(DREQ_SENT), 1, 0},
		{S(TIMEWAIT), 0, 0},
		{S(SIDR_REQ_SENT), 0, S(SIDR_REP)},
		{S(SIDR_REQ_SENT), 0, 0},
		{S(REQ_SENT), 0, IN_REJ_STALE},
	};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		again();
		struct rpwi_cm_conn *c = bring(cases[i].state, cases[i].passive);
		destroy_in_event = true;
		if (cases[i].input)
			feed(c, cases[i].input);
		run_until(now + 200 * SECOND);
		assert_int_equal(nevent, 1);
		assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
		rpwi_cm_conn_init(cm, &mine, &mine);
	}
}

static void a_callback_may_accept(void **state)
{
	reply_in_incoming = true;
	rx_attr(&mine, RPWI_CM_REQ);
	assert_int_equal(passive->state, RPWI_CM_REP_SENT);
	assert_int_equal(sent[0].attr, RPWI_CM_REP);
}

/* ---- whose is it? ---- */

static void only_the_peer_is_believed(void **state)
{
	static const struct rpwi_addr stranger = {.family = 4, .bytes = {10, 0, 0, 3}}, stranger6 = {.family = 6, .bytes = {10, 0, 0, 2}};
	for (int side = 0; side < 2; side++)
		for (uint16_t attr = RPWI_CM_MRA; attr <= RPWI_CM_APR; attr++) {
			again();
			if (attr == RPWI_CM_SIDR_REQ)
				continue;
			struct rpwi_cm_conn *c = bring(side ? RPWI_CM_REP_SENT : attr == RPWI_CM_REP ? RPWI_CM_REQ_SENT : RPWI_CM_ESTABLISHED, side), was;
			struct rpwi_cm_msg m = within(c, attr);
			was = *c;
			rx_from(&stranger, &m);
			rx_from(&stranger6, &m);
			assert_int_equal(rpwi_cm_stats(cm)->stray, 2);
			if (attr != RPWI_CM_REP && attr != RPWI_CM_SIDR_REP) {
				m.local_comm_id ^= 1;
				rx(&m);
				assert_int_equal(rpwi_cm_stats(cm)->stray, 3);
			}
			m = within(c, attr);
			m.remote_comm_id ^= 1u << 19;
			m.local_comm_id ^= attr == RPWI_CM_SIDR_REP;
			rx(&m);
			assert_memory_equal(&was, c, sizeof(was));
			assert_int_equal(nevent, 0);
		}
	again();
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true);
	struct rpwi_cm_msg dreq = within(c, RPWI_CM_DREQ);
	dreq.dreq.remote_qpn ^= 1;
	rx(&dreq);
	assert_int_equal(c->state, RPWI_CM_ESTABLISHED);
	assert_int_equal(rpwi_cm_stats(cm)->stray, 1);
}

static void a_timeout_names_only_its_sender(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	struct rpwi_cm_msg rej = within(c, RPWI_CM_REJ);
	rej.remote_comm_id = 0;
	rej.rej.reason = RPWI_REJ_TIMEOUT;
	rej.rej.msg_rejected = 2;
	rej.rej.ari_len = 8;
	memcpy(rej.rej.ari, our_guid, 8);
	rx(&rej); /* another CA's */
	assert_int_equal(nevent, 0);
	memcpy(rej.rej.ari, their_guid, 8);
	rej.rej.reason = RPWI_REJ_NO_QP;
	rx(&rej); /* not a time-out */
	assert_int_equal(nevent, 0);
	rej.rej.reason = RPWI_REJ_TIMEOUT;
	rx(&rej);
	assert_int_equal(nevent, 1);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_TIMEOUT);
	/* and ours does say who we are */
	again();
	c = bring(RPWI_CM_REQ_SENT, false);
	rpwi_cm_destroy(c, now);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_TIMEOUT);
	assert_int_equal(sent[0].remote_comm_id, 0);
	assert_int_equal(sent[0].rej.ari_len, 8);
	assert_memory_equal(sent[0].rej.ari, our_guid, 8);
}

static void garbage_is_counted(void **state)
{
	uint8_t mad[RPWI_MAD_LEN] = {0};
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr};
	struct rpwi_cm_msg m = a_req(1, 2);
	rpwi_cm_encode(&m, mad);
	for (size_t len = 0; len < sizeof(mad); len++) {
		uint8_t *exact = malloc(len ? len : 1); /* so that ASan sees a read behind it */
		memcpy(exact, mad, len);
		rpwi_cm_rx(cm, &path, exact, len, now);
		free(exact);
	}
	mad[17] = 0x30;
	rpwi_cm_rx(cm, &path, mad, sizeof(mad), now);
	assert_int_equal(rpwi_cm_stats(cm)->bad_mads, 257);
	assert_int_equal(nincoming, 0);
	assert_int_equal(nsent, 0);
}

/* ---- duplicates and stale connections ---- */

static void a_known_request_is_never_a_second_connection(void **state)
{
	for (enum rpwi_cm_state s = RPWI_CM_REQ_RCVD; s <= RPWI_CM_TIMEWAIT; s++) {
		if (s == RPWI_CM_REP_RCVD)
			continue;
		again();
		struct rpwi_cm_conn *c = bring(s, true);
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		for (int i = 0; i < 3; i++)
			rx(&req);
		assert_int_equal(nincoming, 1);
		assert_int_equal(rpwi_cm_stats(cm)->duplicates, 3);
		assert_int_equal(c->state, s);
		/* The same ID in another transaction, and for another QP: the peer has begun a new life. */
		nsent = 0;
		req.tid ^= 0x100;
		req.req.qpn ^= 0x10;
		rx(&req);
		assert_int_equal(nincoming, 1);
		assert_int_equal(sent[0].attr, RPWI_CM_REJ);
		assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
		assert_int_equal(nsent, s == RPWI_CM_ESTABLISHED ? 2 : 1);
		if (s == RPWI_CM_ESTABLISHED)
			assert_int_equal(sent[1].attr, RPWI_CM_DREQ);
	}
}

static void a_reused_qp_is_a_stale_connection(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID + 1, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 1);
	assert_int_equal(nsent, 2);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(sent[0].remote_comm_id, THEIR_ID + 1);
	assert_int_equal(sent[1].attr, RPWI_CM_DREQ);
	assert_int_equal(sent[1].remote_comm_id, THEIR_ID);
	assert_int_equal(c->state, RPWI_CM_DREQ_SENT);
	rx_attr(c, RPWI_CM_DREP); /* the peer knows nothing of it, and says so */
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_DREP);
	assert_ptr_equal(event[0].conn, c);

	/* still so in TIMEWAIT, also when the program has destroyed it; not after it */
	nsent = 0;
	req = a_req(THEIR_ID + 2, THEIR_QPN);
	rx(&req);
	assert_int_equal(nsent, 1);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	rpwi_cm_destroy(c, now);
	rx(&req);
	assert_int_equal(nsent, 2);
	assert_int_equal(nincoming, 1);
	run_until(now + 5 * SECOND);
	rx(&req);
	assert_int_equal(nincoming, 2);

	/* another CA, or another address, may well have a QP of that number */
	req = a_req(THEIR_ID + 3, THEIR_QPN);
	memcpy(req.req.ca_guid, our_guid, 8);
	rx(&req);
	assert_int_equal(nincoming, 3);
	static const struct rpwi_addr other = {.family = 4, .bytes = {10, 0, 0, 9}};
	req = a_req(THEIR_ID + 2, THEIR_QPN);
	rx_from(&other, &req);
	assert_int_equal(nincoming, 4);
}

static void a_rep_with_anothers_qp_is_refused(void **state)
{
	static struct rpwi_cm_conn second;
	bring(RPWI_CM_ESTABLISHED, false);
	rpwi_cm_conn_init(cm, &second, NULL);
	assert_int_equal(connect_with(&second, 0x999), 0);
	struct rpwi_cm_msg rep = within(&second, RPWI_CM_REP);
	rep.local_comm_id = 0x123;
	nsent = 0;
	rx(&rep);
	assert_int_equal(sent[0].attr, RPWI_CM_REJ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(sent[0].rej.msg_rejected, 1);
	assert_int_equal(sent[0].remote_comm_id, 0x123);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_REJ);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_STALE_CONN);
	assert_int_equal(second.state, RPWI_CM_IDLE);
	assert_int_equal(mine.state, RPWI_CM_ESTABLISHED);
}

static void a_lost_rejection_is_said_again(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_REQ_RCVD, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	assert_int_equal(rpwi_cm_reject(c, RPWI_REJ_CONSUMER_DEFINED, NULL, 0, "because", 8, now), 0);
	rpwi_cm_destroy(c, now);
	run_until(now + 4 * SECOND);
	rx(&req);
	assert_int_equal(nsent, 2);
	assert_int_equal(sent[1].attr, RPWI_CM_REJ);
	assert_int_equal(sent[1].rej.reason, RPWI_REJ_CONSUMER_DEFINED);
	assert_memory_equal(sent[1].pdata, "because", 8);
	assert_int_equal(nincoming, 1);
	/* The same QP, tried anew at once: it was never connected. */
	req = a_req(THEIR_ID + 1, THEIR_QPN);
	rx(&req);
	assert_int_equal(nincoming, 2);
	/* As long as it is asked it remembers; then, after a while, it forgets. */
	run_until(now + 30 * SECOND);
	req = a_req(THEIR_ID, THEIR_QPN);
	rx(&req);
	run_until(now + 30 * SECOND);
	rx(&req);
	assert_int_equal(nsent, 4);
	assert_int_equal(nincoming, 2);
	run_until(now + 40 * SECOND);
	req = a_req(THEIR_ID, 0x5555);
	rx(&req);
	assert_int_equal(nincoming, 3);
}

/* The peer has given up; a copy of its request that comes later is not another request, and gets no answer. */
static void a_late_copy_of_a_withdrawn_request_is_ignored(void **state)
{
	static const enum rpwi_cm_state states[] = {RPWI_CM_REQ_RCVD, RPWI_CM_REP_SENT, RPWI_CM_RTU_WAIT};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(states); i++)
		for (int gone = 0; gone < 2; gone++) {
			again();
			struct rpwi_cm_conn *c = bring(states[i], true);
			feed(c, gone ? IN_GONE : RPWI_CM_REJ);
			assert_int_equal(c->state, RPWI_CM_IDLE);
			rx_attr(c, RPWI_CM_REQ);
			assert_int_equal(nincoming, 1);
			assert_int_equal(nsent, 0);
			assert_int_equal(nevent, 1);
		}
}

/* A peer that has been started anew may come back with an ID of its former life: what only lingers here does not stand in its way; what is connected does. */
static void an_id_of_a_former_life_is_no_obstacle(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_TIMEWAIT, true);
	struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
	rpwi_cm_destroy(c, now);
	rx(&req); /* of the former life */
	assert_int_equal(nincoming, 1);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_STALE_CONN);
	req.tid ^= 1ull << 40;
	req.req.qpn ^= 0x80;
	rx(&req);
	assert_int_equal(nincoming, 2);
	assert_int_equal(nsent, 1);
}

static void the_past_believes_only_its_peer(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_ESTABLISHED, true), was = *c;
	static const struct rpwi_addr stranger = {.family = 4, .bytes = {10, 0, 0, 3}};
	rpwi_cm_destroy(c, now);
	for (uint16_t attr = RPWI_CM_MRA; attr <= RPWI_CM_DREP; attr++) {
		struct rpwi_cm_msg m = within(&was, attr);
		rx_from(&stranger, &m);
		m.local_comm_id ^= 1;
		rx(&m);
	}
	assert_int_equal(rpwi_cm_stats(cm)->stray, 2 * (RPWI_CM_DREP - RPWI_CM_MRA + 1));
	assert_int_equal(nsent, 1);
	run_until(now + SECOND); /* the DREQ is still repeated */
	assert_int_equal(nsent, 3);
}

/* ---- communication IDs ---- */

static void ids_do_not_come_back_soon(void **state)
{
	enum { TRIES = 200000 }; /* three times round the indices */
	uint32_t *seen = calloc(1 << 20, sizeof(*seen));
	for (unsigned i = 1; i <= TRIES; i++) {
		assert_int_equal(sidr_ask(&mine, 10, 1), 0);
		assert_int_equal(mine.local_id >> 20, PREFIX);
		assert_int_equal(seen[mine.local_id & 0xfffff], 0);
		seen[mine.local_id & 0xfffff] = i;
		rpwi_cm_destroy(&mine, now);
		rpwi_cm_conn_init(cm, &mine, NULL);
	}
	free(seen);
	/* Another process that gets the same prefix begins elsewhere. */
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	uint32_t first = mine.local_id;
	again();
	random_next = 999;
	end(NULL);
	assert_int_equal(rpwi_cm_new(&cm, &ops, NULL, PREFIX), 0);
	rpwi_cm_conn_init(cm, &mine, NULL);
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	assert_int_not_equal(first, mine.local_id);
	rpwi_cm_set_prefix(cm, 0xfed);
	rpwi_cm_destroy(&mine, now);
	assert_int_equal(sidr_ask(&mine, 10, 1), 0);
	assert_int_equal(mine.local_id >> 20, 0xfed);
}

static unsigned counted;
static void count(struct rpwi_cm_conn *c, void *arg) { counted++; }

/* Of IDs in a row, no two are as far apart as the two before: none tells the next. */
static void an_id_does_not_tell_the_next(void **state)
{
	enum { IDS = 64 };
	uint32_t last = 0, last_step = 0;
	unsigned same = 0;
	for (unsigned i = 0; i < IDS; i++) {
		assert_int_equal(sidr_ask(&mine, 10, 1), 0);
		uint32_t step = mine.local_id - last;
		same += step == last_step || step < 32;
		last_step = step;
		last = mine.local_id;
		rpwi_cm_destroy(&mine, now);
		rpwi_cm_conn_init(cm, &mine, NULL);
	}
	assert_in_range(same, 0, 3);
}

static void ids_run_out_and_come_back(void **state)
{
	enum { MANY = 70000 };
	struct rpwi_cm_conn *c = calloc(MANY, sizeof(*c));
	unsigned made = 0;
	for (unsigned i = 0; i < MANY; i++) {
		rpwi_cm_conn_init(cm, &c[i], NULL);
		int rc = connect_with(&c[i], i + 1);
		if (rc) {
			assert_int_equal(rc, ENOMEM);
			assert_int_equal(c[i].state, RPWI_CM_IDLE);
			break;
		}
		made++;
	}
	assert_in_range(made, 60000, RPWI_CM_CONNS_MAX);
	counted = 0;
	rpwi_cm_each(cm, count, NULL);
	assert_int_equal(counted, made);
	/* Nobody else can come in, and hears why. */
	nsent = 0;
	rx_attr(&c[0], RPWI_CM_REQ);
	assert_int_equal(sent[0].rej.reason, RPWI_REJ_NO_RESOURCES);
	run_until(now + 100 * SECOND);
	counted = 0;
	rpwi_cm_each(cm, count, NULL);
	assert_int_equal(counted, 0);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	assert_int_equal(connect_with(&c[0], 1), 0);
	rpwi_cm_destroy(&c[0], now);
	free(c);
}

/* More refusals than are remembered: the oldest is forgotten, nothing grows. */
static void memory_of_the_past_is_bounded(void **state)
{
	for (unsigned i = 0; i < 20000; i++) {
		struct rpwi_cm_msg req = a_req(i + 1, i + 1);
		pool_used = 0;
		rx(&req);
		assert_int_equal(nincoming, i + 1);
		assert_int_equal(rpwi_cm_reject(passive, 28, NULL, 0, &i, sizeof(i), now), 0);
	}
	struct rpwi_cm_msg last = a_req(20000, 20000), first = a_req(1, 1);
	nsent = 0;
	rx(&last);
	assert_int_equal(nincoming, 20000);
	assert_memory_equal(sent[0].pdata, &(unsigned){19999}, sizeof(unsigned));
	rx(&first);
	assert_int_equal(nincoming, 20001);
}

/* ---- SIDR ---- */

static void sidr(void **state)
{
	assert_int_equal(sidr_ask(&mine, 1000, 3), 0);
	assert_int_equal(sent[0].attr, RPWI_CM_SIDR_REQ);
	assert_true(sent[0].sidr_req.service_id == service);
	assert_int_equal(sent[0].sidr_req.pkey, 0xffff);
	assert_memory_equal(sent[0].pdata, "ask", 4);
	struct rpwi_cm_msg rep = within(&mine, RPWI_CM_SIDR_REP);
	rep.sidr_rep.status = 2;
	rep.pdata_len = 5;
	memcpy(rep.pdata, "shy..", 5);
	rx(&rep);
	assert_int_equal(event[0].ev.type, RPWI_CM_EV_SIDR_REP);
	assert_int_equal(event[0].ev.sidr.status, 2);
	assert_int_equal(event[0].ev.sidr.qpn, 0x99);
	assert_int_equal(event[0].ev.sidr.qkey, 0x1234567);
	assert_int_equal(event[0].ev.pdata_len, RPWI_SIDR_REP_PDATA);
	assert_memory_equal(event[0].pdata, "shy..", 5);
	rx(&rep);
	assert_int_equal(nevent, 1);

	/* unanswered: (retries + 1) time-outs */
	uint64_t start = now;
	nsent = 0;
	assert_int_equal(sidr_ask(&mine, 1000, 3), 0);
	run_until(start + 4 * SECOND - 1);
	assert_int_equal(nevent, 1);
	assert_true(nsent >= 4);
	run_until(start + 4 * SECOND);
	assert_int_equal(event[1].ev.type, RPWI_CM_EV_SIDR_REQ_ERROR);

	/* the other side: a lost answer is said again, and the listener is asked once */
	nsent = 0;
	rx_sidr_req(0x321);
	assert_int_equal(nincoming, 1);
	assert_true(passive->sidr && passive->service_id == service);
	assert_int_equal(rpwi_cm_sidr_reply(passive, 0, 0x77, 0x11223344, "here", 5, now), 0);
	rx_sidr_req(0x321);
	assert_int_equal(nincoming, 1);
	assert_int_equal(nsent, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sent[i].attr, RPWI_CM_SIDR_REP);
		assert_int_equal(sent[i].local_comm_id, 0x321);
		assert_int_equal(sent[i].sidr_rep.qpn, 0x77);
		assert_int_equal(sent[i].sidr_rep.qkey, 0x11223344);
		assert_true(sent[i].tid == THEIR_TID + 0x321);
		assert_memory_equal(sent[i].pdata, "here", 5);
	}
	/* A request ID is no communication ID: a REQ of the same number is another thing. */
	struct rpwi_cm_msg req = a_req(0x321, 5);
	rx(&req);
	assert_int_equal(nincoming, 2);
	rx_sidr_req(0x322);
	rpwi_cm_destroy(passive, now);
	assert_int_equal(sent[nsent - 1].attr, RPWI_CM_SIDR_REP);
	assert_int_equal(sent[nsent - 1].sidr_rep.status, 2);
}

static void timewait_follows_the_ack_timeout(void **state)
{
	static const struct {
		uint8_t ack_timeout;
		uint64_t ns;
	} cases[] = {{0, 4 * SECOND}, {1, SECOND / 10}, {18, 4096ull << 18}, {31, 4 * SECOND}};
	for (size_t i = 0; i < RPWI_ARRAY_LEN(cases); i++) {
		again();
		struct rpwi_cm_msg req = a_req(THEIR_ID, THEIR_QPN);
		req.req.primary.local_ack_timeout = cases[i].ack_timeout;
		rx(&req);
		rpwi_cm_accept(passive, our_guid, &our_param, NULL, 0, now);
		rx_attr(passive, RPWI_CM_RTU);
		rx_attr(passive, RPWI_CM_DREQ);
		rpwi_cm_disconnect(passive, now);
		assert_int_equal(passive->state, RPWI_CM_TIMEWAIT);
		assert_true(rpwi_cm_deadline(cm) == now + cases[i].ns);
	}
}

/* An IDLE connection may be used again, and nothing of the old peer is left in it. */
static void storage_may_be_used_again(void **state)
{
	struct rpwi_cm_conn *c = bring(RPWI_CM_TIMEWAIT, false);
	uint32_t old_id = c->local_id;
	run_until(now + 10 * SECOND);
	assert_int_equal(c->state, RPWI_CM_IDLE);
	assert_int_equal(connect_with(c, 0x31), 0);
	assert_int_not_equal(c->local_id, old_id);
	assert_int_equal(c->remote_id, 0);
	assert_int_equal(c->remote.qpn, 0);
	rx_attr(c, RPWI_CM_REP);
	assert_int_equal(c->state, RPWI_CM_REP_RCVD);
}

/* A listener that was there a moment ago may be there again in a moment. */
static void nobody_listens_yet(void **state)
{
	rpwi_cm_conn_init(cm, &mine, NULL);
	mine.patient_until_ns = now + SECOND;
	assert_int_equal(connect_with(&mine, 0x100), 0);
	struct rpwi_cm_msg rej = within(&mine, RPWI_CM_REJ);
	rej.rej.reason = RPWI_REJ_INVALID_SERVICE_ID;
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_REQ_SENT);
	assert_int_equal(nevent, 0);
	run_until(now + 50 * RPWI_NS_PER_MS);
	assert_int_equal(sent_total, 2);
	assert_int_equal(sent[1].attr, RPWI_CM_REQ);
	assert_int_equal(sent[1].tid, sent[0].tid);
	run_until(now + SECOND);
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
	assert_int_equal(event[0].ev.reason, RPWI_REJ_INVALID_SERVICE_ID);
	/* Any other reason is final at once. */
	mine.patient_until_ns = now + SECOND;
	assert_int_equal(connect_with(&mine, 0x100), 0);
	rej = within(&mine, RPWI_CM_REJ);
	rej.rej.reason = RPWI_REJ_CONSUMER_DEFINED;
	rx(&rej);
	assert_int_equal(mine.state, RPWI_CM_IDLE);
}

/* A program that connects a thousand times at once: so many requests go out as a socket can hold, the next with each answer, the rest when their first repetition is due. */
static void a_burst_waits_its_turn(void **state)
{
	enum { BURST = 300, WINDOW = 64 };
	static struct rpwi_cm_conn burst[BURST];
	for (unsigned i = 0; i < BURST; i++) {
		rpwi_cm_conn_init(cm, &burst[i], NULL);
		assert_int_equal(connect_with(&burst[i], 0x100 + i), 0);
	}
	assert_int_equal(sent_total, WINDOW);
	rx_attr(&burst[0], RPWI_CM_REJ);
	assert_int_equal(sent_total, WINDOW + 1);
	rpwi_cm_destroy(&burst[BURST - 1], now); /* never sent: tells only that it has gone */
	rx_attr(&burst[1], RPWI_CM_REP);
	assert_int_equal(burst[1].state, RPWI_CM_REP_RCVD);
	unsigned before = sent_total;
	run_until(now + SECOND / 4);
	assert_int_equal(before, WINDOW + 3);
	/* By then each of them has gone out at least once; those of the window a second time. */
	assert_true(sent_total >= before + BURST - 3 - (WINDOW + 2));
	for (unsigned i = 2; i < BURST - 1; i++)
		assert_int_equal(burst[i].state, RPWI_CM_REQ_SENT);
}

static void many_timers_fire_in_time(void **state)
{
	enum { N = 3000 };
	struct rpwi_cm_conn *c = calloc(N, sizeof(*c));
	uint64_t *due_ns = calloc(N, sizeof(*due_ns));
	for (unsigned i = 0; i < N; i++) {
		unsigned timeout_ms = 1 + (op_random(NULL) >> 8) % 240;
		rpwi_cm_conn_init(cm, &c[i], &due_ns[i]);
		assert_int_equal(sidr_ask(&c[i], timeout_ms, 0), 0);
		due_ns[i] = now + timeout_ms * RPWI_NS_PER_MS;
		unsigned k = (op_random(NULL) >> 8) % (i + 1);
		if (i % 3 == 0 && c[k].state != RPWI_CM_IDLE) {
			rpwi_cm_destroy(&c[k], now);
			due_ns[k] = 0;
		}
	}
	due_first = due_ns;
	run_until(now + SECOND);
	due_first = NULL;
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(c[i].state, RPWI_CM_IDLE);
	assert_true(rpwi_cm_deadline(cm) == RPWI_NEVER);
	assert_true(rpwi_cm_stats(cm)->timeouts > N / 2);
	free(due_ns);
	free(c);
}

static void names(void **state)
{
	for (unsigned i = 0; i < RPWI_CM_STATE_COUNT; i++) {
		assert_non_null(rpwi_cm_state_name[i]);
		for (unsigned k = 0; k < i; k++)
			assert_string_not_equal(rpwi_cm_state_name[i], rpwi_cm_state_name[k]);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_state_with_everything),
		TEST(every_wait_ends),
		TEST(active_side),
		TEST(passive_side),
		TEST(every_reason_arrives),
		TEST(the_engine_refuses_by_itself),
		TEST(private_data_has_bounds),
		TEST(unanswered_requests),
		TEST(the_peer_sets_the_pace_of_its_answers_within_bounds),
		TEST(an_mra_gives_time_and_not_for_ever),
		TEST(a_slow_program_asks_for_time_only_when_asked),
		TEST(an_answer_after_an_mra_is_repeated_unasked),
		TEST(a_dreq_before_the_rtu_establishes_first),
		TEST(crossing_disconnects),
		TEST(a_dreq_for_nobody_is_answered),
		TEST(a_rep_for_nobody_is_rejected),
		TEST(a_destroyed_connection_goes_on_disconnecting),
		TEST(nobody_hears_of_a_destroyed_connection),
		TEST(a_callback_may_destroy),
		TEST(a_callback_may_accept),
		TEST(only_the_peer_is_believed),
		TEST(a_timeout_names_only_its_sender),
		TEST(garbage_is_counted),
		TEST(a_known_request_is_never_a_second_connection),
		TEST(a_reused_qp_is_a_stale_connection),
		TEST(a_rep_with_anothers_qp_is_refused),
		TEST(a_lost_rejection_is_said_again),
		TEST(a_late_copy_of_a_withdrawn_request_is_ignored),
		TEST(an_id_of_a_former_life_is_no_obstacle),
		TEST(the_past_believes_only_its_peer),
		TEST(ids_do_not_come_back_soon),
		TEST(an_id_does_not_tell_the_next),
		TEST(ids_run_out_and_come_back),
		TEST(memory_of_the_past_is_bounded),
		TEST(sidr),
		TEST(timewait_follows_the_ack_timeout),
		TEST(storage_may_be_used_again),
		TEST(nobody_listens_yet),
		TEST(a_burst_waits_its_turn),
		TEST(many_timers_fire_in_time),
		TEST(names),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
