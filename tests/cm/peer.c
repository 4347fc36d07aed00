/* SPDX-License-Identifier: BSD-3-Clause */
/* peer.c - see peer.h: the surroundings of the engine, and the other side of it. */
#include "peer.h"

struct rpwi_cm *cm;
uint64_t now;
enum { POOL = 4096 };
static struct rpwi_cm_conn pool[POOL];
unsigned pool_used;
struct rpwi_cm_conn mine;
struct rpwi_cm_conn *passive;
struct rpwi_cm_msg sent[SENT_MAX];
struct rpwi_cm_path sent_path[SENT_MAX];
unsigned nsent, sent_total;
struct told event[EVENTS_MAX];
unsigned nevent, nincoming, nmoved;
uint16_t refuse;
bool destroy_in_event, reply_in_incoming;
uint32_t random_next;
const uint64_t *due_first;

const uint8_t our_guid[8] = "OURGUID", their_guid[8] = "THRGUID";
const struct rpwi_addr our_addr = {.family = 4, .bytes = {10, 0, 0, 1}},
		       their_addr = {.family = 4, .bytes = {10, 0, 0, 2}};
const uint64_t service = RPWI_SERVICE_ID(6, 7471);
const struct rpwi_cm_param our_param = {.qpn = 0x0a0b0c,
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

static struct rpwi_cm_conn *op_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
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
		/* the storage is the caller's again: the engine must not look */
		memset(c, 0xdd, sizeof(*c));
	}
}

uint32_t op_random(void *user) { return (uint32_t)rng_mix(++random_next); }
static void op_moved(
	void *user, struct rpwi_cm_conn *c, enum rpwi_cm_state from, enum rpwi_cm_state to)
{
	assert_int_equal(c->state, to);
	assert_int_not_equal(from, to);
	nmoved++;
}
const struct rpwi_cm_ops ops = {op_send, op_request, op_incoming, op_event, op_random, op_moved};

int peer_begin(void **state)
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

int peer_end(void **state)
{
	rpwi_cm_each(cm, destroy, NULL);
	rpwi_cm_free(cm);
	return 0;
}

void again(void)
{
	peer_end(NULL);
	peer_begin(NULL);
}

/* ---- the peer ---- */

void rx_from(const struct rpwi_addr *from, const struct rpwi_cm_msg *m)
{
	uint8_t mad[RPWI_MAD_LEN];
	struct rpwi_cm_path path = {.local = our_addr, .remote = *from, .mtu = 5};
	rpwi_cm_encode(m, mad);
	rpwi_cm_rx(cm, &path, mad, sizeof(mad), now);
}
void rx(const struct rpwi_cm_msg *m) { rx_from(&their_addr, m); }

struct rpwi_cm_msg a_req(uint32_t id, uint32_t qpn)
{
	struct rpwi_cm_msg m = {.attr = RPWI_CM_REQ,
		.tid = THEIR_TID + id,
		.local_comm_id = id,
		.pdata_len = 7,
		.pdata = "hello!"};
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

struct rpwi_cm_msg within(const struct rpwi_cm_conn *c, uint16_t attr)
{
	struct rpwi_cm_msg m = {.attr = attr,
		.tid = THEIR_TID + THEIR_ID,
		.local_comm_id = THEIR_ID,
		.remote_comm_id = c->local_id};
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
void rx_attr(const struct rpwi_cm_conn *c, uint16_t attr)
{
	struct rpwi_cm_msg m = within(c, attr);
	rx(&m);
}

int connect_with(struct rpwi_cm_conn *c, uint32_t qpn)
{
	struct rpwi_cm_path path = {.local = our_addr,
		.remote = their_addr,
		.mtu = 3,
		.hop_limit = 64,
		.local_gid = "ourgid",
		.remote_gid = "theirgid"};
	struct rpwi_cm_param p = our_param;
	p.qpn = qpn;
	return rpwi_cm_connect(c, &path, service, our_guid, &p, "req", 4, now);
}
int sidr_ask(struct rpwi_cm_conn *c, unsigned timeout_ms, unsigned retries)
{
	struct rpwi_cm_path path = {.local = our_addr, .remote = their_addr};
	return rpwi_cm_sidr_request(c, &path, service, "ask", 4, timeout_ms, retries, now);
}
void rx_sidr_req(uint32_t id)
{
	struct rpwi_cm_msg m = {.attr = RPWI_CM_SIDR_REQ,
		.tid = THEIR_TID + id,
		.local_comm_id = id,
		.pdata_len = 4,
		.pdata = "who"};
	m.sidr_req.service_id = service;
	rx(&m);
}

struct rpwi_cm_conn *bring(enum rpwi_cm_state to, bool from_passive)
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

void run_until(uint64_t end_ns)
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

int feed(struct rpwi_cm_conn *c, int input)
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
