/* SPDX-License-Identifier: BSD-3-Clause */
/* cm_program.c - what the programs on both ends of each connection do, by a plan drawn from the
 * seed, and the check of everything that they are told.
 *
 * Checked: a request reaches a listener once; private data arrives as it was given; each side
 * learns the other's QPN and PSN; an accepted connection is established once on each side, or not
 * at all where one side went back on it; every end that its own program has not ended is told so,
 * once, by one event; nothing is said after a destroy; nothing is said that cannot be (at the
 * losses simulated nobody is unreachable); and at the end nothing is left anywhere.
 */
#include "cm_sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct cms_tally cms_tally;

enum kind {
	NORMAL,
	SIDR,
	NO_LISTENER,
	REJECTED,
	ACTIVE_REJECTS,
	PASSIVE_DESTROYS,
	ACTIVE_GIVES_UP,
	PASSIVE_GIVES_UP,
	KINDS
};
static const unsigned kind_weight[KINDS] = {55, 12, 5, 8, 5, 5, 6, 4};
enum ending {
	ACTIVE_DISCONNECTS,
	PASSIVE_DISCONNECTS,
	BOTH_DISCONNECT,
	ACTIVE_DESTROYS,
	PASSIVE_ENDS,
	ACTIVE_GONE,
	PASSIVE_GONE,
	ENDINGS
};
enum action {
	ACT_CONNECT,
	ACT_ACCEPT,
	ACT_REJECT,
	ACT_ESTABLISH,
	ACT_DISCONNECT,
	ACT_ANSWER,
	ACT_GONE,
	ACT_COMM_ESTABLISHED,
	ACT_DESTROY
};
/* when a program destroys what has ended */
enum after { AT_ONCE, LATER, AT_TIMEWAIT_EXIT, AFTERS };

static struct plan {
	enum kind kind;
	enum ending ending;
	unsigned host[2];
	uint64_t start_ns, accept_delay_ns, establish_delay_ns, give_up_ns, life_ns,
		answer_delay_ns;
	enum after after[2];
	uint16_t reason;
	bool comm_established, destroys_for_answer;
	uint8_t ack_timeout;
} * plans;

static struct end {
	struct rpwi_cm_conn conn;
	bool used, destroyed, self_ended, accepted, gave_up_peer;
	unsigned established, told_end, exits, sidr_answers;
	uint16_t refused; /* by this end's program, with this reason */
} * ends;

static struct plan *plan_of(unsigned e) { return &plans[e / 2]; }
static struct end *other(unsigned e) { return &ends[e ^ 1]; }
static bool is_passive(unsigned e) { return e & 1; }
static unsigned host_of_end(unsigned e) { return plan_of(e)->host[e & 1]; }
static unsigned end_of(const struct rpwi_cm_conn *c) { return (unsigned)(uintptr_t)c->user; }

/* ---- Private data: the end's number, then bytes that only this end sends in this message. ---- */

static void pattern(unsigned e, uint16_t attr, uint8_t *out, size_t len)
{
	struct rng r = {cms_config.seed ^ (uint64_t)e << 20 ^ (uint64_t)attr << 50};
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)rng_next(&r);
	memcpy(out, &e, sizeof(e));
}

static void check_pattern(unsigned from, uint16_t attr, const uint8_t *got, size_t len, size_t room)
{
	uint8_t want[256];
	pattern(from, attr, want, room);
	if (len != room || memcmp(got, want, room))
		cms_fail("end %u: its %s's private data has changed on the way", from,
			rpwi_cm_attr_name(attr));
}

/* ---- Parameters, each end's its own. ---- */

static void guid_of(unsigned host, uint8_t guid[8])
{
	memset(guid, 0, 8);
	guid[0] = 0x52;
	guid[7] = (uint8_t)host;
}

static struct rpwi_cm_param param_of(unsigned e)
{
	return (struct rpwi_cm_param){.qpn = 2 + e,
		.starting_psn = (e * 2654435761u) & 0xffffff,
		.responder_resources = (uint8_t)(e % 17),
		.initiator_depth = (uint8_t)(e % 13),
		.retry_count = 7,
		.rnr_retry_count = (uint8_t)(e % 8),
		.ack_timeout = plan_of(e)->ack_timeout,
		.srq = e % 3 == 0};
}

static void check_param(const struct rpwi_cm_conn *c, unsigned of)
{
	struct rpwi_cm_param want = param_of(of);
	const struct rpwi_cm_param *got = &c->remote;
	if (got->qpn != want.qpn || got->starting_psn != want.starting_psn ||
		got->responder_resources != want.responder_resources ||
		got->initiator_depth != want.initiator_depth ||
		got->rnr_retry_count != want.rnr_retry_count || got->srq != want.srq)
		cms_fail("end %u is not described as it described itself", of);
}

/* ---- Plans ---- */

static uint64_t service_of(unsigned i) { return RPWI_SERVICE_ID(6, i % 0xffff); }

/* Mostly at once, sometimes soon, now and then late. */
static uint64_t hesitation(struct rng *r, uint64_t late_max_ns)
{
	uint64_t dice = rng_below(r, 20);
	if (dice < 14)
		return 0;
	return rng_below(r, dice < 18 ? 300 * RPWI_NS_PER_MS : late_max_ns);
}

static enum kind draw_kind(struct rng *r)
{
	uint64_t dice = rng_below(r, 100);
	for (unsigned k = 0; k < KINDS; k++) {
		if (dice < kind_weight[k])
			return (enum kind)k;
		dice -= kind_weight[k];
	}
	return NORMAL;
}

static void draw(struct plan *p, struct rng *r)
{
	p->kind = draw_kind(r);
	p->ending = (enum ending)rng_below(r, ENDINGS);
	p->host[0] = (unsigned)rng_below(r, cms_config.hosts);
	p->host[1] = (unsigned)rng_below(r, cms_config.hosts);
	p->start_ns = rng_below(r, cms_config.spread_ns);
	p->accept_delay_ns = hesitation(r, 80 * RPWI_NS_PER_S);
	p->establish_delay_ns = hesitation(r, 20 * RPWI_NS_PER_S);
	p->give_up_ns = rng_below(r, rng_chance(r, 0.5) ? 20 * RPWI_NS_PER_MS : 3 * RPWI_NS_PER_S);
	p->life_ns = rng_below(r, 3 * RPWI_NS_PER_S);
	p->answer_delay_ns = hesitation(r, 10 * RPWI_NS_PER_S);
	p->after[0] = (enum after)rng_below(r, AFTERS);
	p->after[1] = (enum after)rng_below(r, AFTERS);
	do
		p->reason = (uint16_t)rng_between(r, 1, 35);
	while (p->reason == RPWI_REJ_STALE_CONN); /* which means something else to the engine */
	p->comm_established = rng_chance(r, 0.1);
	p->destroys_for_answer = rng_chance(r, 0.2);
	p->ack_timeout = (uint8_t)rng_between(r, 16, 19);
}

void cms_programs_begin(void)
{
	struct rng r = {cms_config.seed * 7 + 5};
	plans = calloc(cms_config.conns, sizeof(*plans));
	ends = calloc(2 * (size_t)cms_config.conns, sizeof(*ends));
	memset(&cms_tally, 0, sizeof(cms_tally));
	for (unsigned i = 0; i < cms_config.conns; i++) {
		draw(&plans[i], &r);
		cms_at(plans[i].start_ns, 2 * i, ACT_CONNECT);
	}
}

/* ---- What a program does ---- */

static void destroy(unsigned e)
{
	struct end *n = &ends[e];
	if (n->destroyed)
		return;
	n->destroyed = true;
	cms_trace("end %u destroys in %s", e, rpwi_cm_state_name[n->conn.state]);
	rpwi_cm_destroy(&n->conn, cms_now);
	memset(&n->conn, 0xdd, sizeof(n->conn)); /* the engine must not look again */
}

/* It has ended: when its storage is taken back is up to the program. */
static void ended(unsigned e)
{
	struct plan *p = plan_of(e);
	if (p->after[e & 1] == AT_ONCE)
		destroy(e);
	else if (p->after[e & 1] == LATER || ends[e].conn.state != RPWI_CM_TIMEWAIT)
		cms_at(cms_now + 1 + p->life_ns, e, ACT_DESTROY);
}

/* Both sides know of the connection's end by a plan; which of them does what. */
static void plan_the_end(unsigned e)
{
	static const int first[ENDINGS] = {[ACTIVE_DISCONNECTS] = ACT_DISCONNECT,
		[BOTH_DISCONNECT] = ACT_DISCONNECT,
		[ACTIVE_DESTROYS] = ACT_DESTROY,
		[ACTIVE_GONE] = ACT_GONE,
		[PASSIVE_GONE] = ACT_DESTROY,
		[PASSIVE_DISCONNECTS] = -1,
		[PASSIVE_ENDS] = -1};
	static const int second[ENDINGS] = {[PASSIVE_DISCONNECTS] = ACT_DISCONNECT,
		[BOTH_DISCONNECT] = ACT_DISCONNECT,
		[PASSIVE_ENDS] = ACT_DESTROY,
		[PASSIVE_GONE] = ACT_GONE,
		[ACTIVE_GONE] = ACT_DESTROY,
		[ACTIVE_DISCONNECTS] = -1,
		[ACTIVE_DESTROYS] = -1};
	struct plan *p = plan_of(e);
	int what = is_passive(e) ? second[p->ending] : first[p->ending];
	if (what >= 0)
		cms_at(cms_now + p->life_ns, e, what);
}

static void establish(unsigned e)
{
	uint8_t data[RPWI_RTU_PDATA];
	struct end *n = &ends[e];
	if (n->destroyed || n->conn.state != RPWI_CM_REP_RCVD)
		return;
	pattern(e, RPWI_CM_RTU, data, sizeof(data));
	if (rpwi_cm_establish(&n->conn, data, sizeof(data), cms_now))
		cms_fail("end %u cannot establish", e);
	n->established++;
	cms_tally.established++;
	if (plan_of(e)->comm_established)
		cms_at(cms_now + 1, e ^ 1, ACT_COMM_ESTABLISHED);
	plan_the_end(e);
}

static void refuse(unsigned e)
{
	uint8_t data[RPWI_REJ_PDATA];
	struct end *n = &ends[e];
	if (n->destroyed ||
		(n->conn.state != RPWI_CM_REQ_RCVD && n->conn.state != RPWI_CM_REP_RCVD))
		return;
	pattern(e, RPWI_CM_REJ, data, sizeof(data));
	n->refused = plan_of(e)->reason;
	n->self_ended = true;
	if (rpwi_cm_reject(&n->conn, n->refused, NULL, 0, data, sizeof(data), cms_now))
		cms_fail("end %u cannot reject", e);
	cms_tally.rejected++;
	ended(e);
}

static void accept_it(unsigned e)
{
	uint8_t data[RPWI_REP_PDATA], guid[8];
	struct end *n = &ends[e];
	struct rpwi_cm_param param = param_of(e);
	if (n->destroyed ||
		(n->conn.state != RPWI_CM_REQ_RCVD && n->conn.state != RPWI_CM_SIDR_REQ_RCVD))
		return;
	if (n->conn.sidr) {
		pattern(e, RPWI_CM_SIDR_REP, data, RPWI_SIDR_REP_PDATA);
		n->self_ended = true;
		if (rpwi_cm_sidr_reply(&n->conn, plan_of(e)->reason % 3, 2 + e, 0x1234 + e, data,
			    RPWI_SIDR_REP_PDATA, cms_now))
			cms_fail("end %u cannot answer", e);
		ended(e);
		return;
	}
	pattern(e, RPWI_CM_REP, data, sizeof(data));
	guid_of(host_of_end(e), guid);
	if (rpwi_cm_accept(&n->conn, guid, &param, data, sizeof(data), cms_now))
		cms_fail("end %u cannot accept", e);
	n->accepted = true;
}

static void connect_it(unsigned e)
{
	uint8_t data[RPWI_SIDR_REQ_PDATA], guid[8];
	struct plan *p = plan_of(e);
	struct end *n = &ends[e];
	struct rpwi_cm_path path = {
		.local = cms_addr(p->host[0]), .remote = cms_addr(p->host[1]), .mtu = 3};
	struct rpwi_cm_param param = param_of(e);

	n->used = true;
	rpwi_cm_conn_init(cms_engine(p->host[0]), &n->conn, (void *)(uintptr_t)e);
	guid_of(p->host[0], guid);
	if (p->kind == SIDR) {
		pattern(e, RPWI_CM_SIDR_REQ, data, RPWI_SIDR_REQ_PDATA);
		if (rpwi_cm_sidr_request(&n->conn, &path, service_of(e / 2), data,
			    RPWI_SIDR_REQ_PDATA, 4295, 30, cms_now))
			cms_fail("end %u cannot ask", e);
		return;
	}
	pattern(e, RPWI_CM_REQ, data, RPWI_REQ_PDATA);
	if (rpwi_cm_connect(&n->conn, &path, service_of(e / 2), guid, &param, data, RPWI_REQ_PDATA,
		    cms_now))
		cms_fail("end %u cannot connect", e);
	cms_trace("end %u connects as 0x%08x", e, n->conn.local_id);
	if (p->kind == ACTIVE_GIVES_UP)
		cms_at(cms_now + p->give_up_ns, e, ACT_DESTROY);
}

static void disconnect(unsigned e, bool answer)
{
	struct end *n = &ends[e];
	enum rpwi_cm_state want = answer ? RPWI_CM_DREQ_RCVD : RPWI_CM_ESTABLISHED;
	if (n->destroyed || n->conn.state != want)
		return;
	if (answer && plan_of(e)->destroys_for_answer) {
		destroy(e);
		return;
	}
	if (rpwi_cm_disconnect(&n->conn, cms_now))
		cms_fail("end %u cannot disconnect", e);
	cms_tally.disconnected++;
	if (answer)
		ended(e);
}

void cms_act(unsigned e, int action)
{
	struct end *n = &ends[e];
	switch ((enum action)action) {
	case ACT_CONNECT:
		connect_it(e);
		break;
	case ACT_ACCEPT:
		accept_it(e);
		break;
	case ACT_REJECT:
		refuse(e);
		break;
	case ACT_ESTABLISH:
		establish(e);
		break;
	case ACT_DISCONNECT:
		disconnect(e, false);
		break;
	case ACT_ANSWER:
		disconnect(e, true);
		break;
	case ACT_GONE:
		n->gave_up_peer = true; /* wrongly: the peer finds out */
		if (!n->destroyed)
			rpwi_cm_peer_gone(&n->conn, cms_now);
		break;
	case ACT_COMM_ESTABLISHED:
		if (n->used && !n->destroyed)
			rpwi_cm_comm_established(&n->conn, cms_now);
		break;
	case ACT_DESTROY:
		if (!n->destroyed && !n->told_end)
			n->self_ended = true;
		cms_tally.destroyed += !n->destroyed;
		destroy(e);
		break;
	}
}

/* ---- What a program is told ---- */

struct rpwi_cm_conn *cms_request(unsigned host, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason)
{
	unsigned from;
	memcpy(&from, m->pdata, sizeof(from));
	if (from >= 2 * cms_config.conns || is_passive(from) || plan_of(from)->host[1] != host ||
		sidr != (plan_of(from)->kind == SIDR))
		cms_fail("a request of nobody");
	if (plan_of(from)->kind == NO_LISTENER) {
		*reason = RPWI_REJ_INVALID_SERVICE_ID;
		return NULL;
	}
	struct end *n = other(from);
	if (n->used)
		cms_fail("the request of end %u comes a second time", from);
	n->used = true;
	n->conn.user = (void *)(uintptr_t)(from ^ 1);
	return &n->conn;
}

void cms_incoming(unsigned host, struct rpwi_cm_conn *c, const struct rpwi_cm_msg *m)
{
	unsigned e = end_of(c);
	struct plan *p = plan_of(e);
	cms_trace("end %u is asked as 0x%08x", e, c->local_id);
	check_pattern(e ^ 1, m->attr, m->pdata, m->pdata_len,
		c->sidr ? RPWI_SIDR_REQ_PDATA : RPWI_REQ_PDATA);
	if (c->service_id != service_of(e / 2))
		cms_fail("end %u: another service ID", e);
	if (!c->sidr) {
		check_param(c, e ^ 1);
		if (c->remote.ack_timeout != p->ack_timeout || c->path.mtu != 3)
			cms_fail("end %u: another time-out or MTU", e);
	}
	if (p->kind == PASSIVE_GIVES_UP)
		cms_at(cms_now + p->give_up_ns, e, ACT_DESTROY);
	int act = p->kind == REJECTED           ? ACT_REJECT
		  : p->kind == PASSIVE_DESTROYS ? ACT_DESTROY
						: ACT_ACCEPT;
	if (p->accept_delay_ns)
		cms_at(cms_now + p->accept_delay_ns, e, act);
	else
		cms_act(e, act);
}

static void told_rep(unsigned e, const struct rpwi_cm_event *ev)
{
	struct plan *p = plan_of(e);
	if (is_passive(e) || !other(e)->accepted)
		cms_fail("end %u: a REP that nobody sent", e);
	check_pattern(e ^ 1, RPWI_CM_REP, ev->pdata, ev->pdata_len, RPWI_REP_PDATA);
	check_param(&ends[e].conn, e ^ 1);
	int act = p->kind == ACTIVE_REJECTS ? ACT_REJECT : ACT_ESTABLISH;
	if (p->establish_delay_ns)
		cms_at(cms_now + p->establish_delay_ns, e, act);
	else
		cms_act(e, act);
}

static void told_established(unsigned e, const struct rpwi_cm_event *ev)
{
	if (!is_passive(e) || !ends[e].accepted || ++ends[e].established > 1 ||
		!other(e)->established)
		cms_fail("end %u: established %u times", e, ends[e].established);
	if (ev->pdata)
		check_pattern(e ^ 1, RPWI_CM_RTU, ev->pdata, ev->pdata_len, RPWI_RTU_PDATA);
	plan_the_end(e);
}

static void told_end(unsigned e, const struct rpwi_cm_event *ev)
{
	struct end *n = &ends[e], *peer = other(e);
	if (n->self_ended || n->told_end++)
		cms_fail("end %u: event %d after its end", e, (int)ev->type);
	if (ev->type == RPWI_CM_EV_REJ && peer->refused) {
		if (ev->reason != peer->refused)
			cms_fail("end %u: rejected for %u, not %u", e, ev->reason, peer->refused);
		check_pattern(e ^ 1, RPWI_CM_REJ, ev->pdata, ev->pdata_len, RPWI_REJ_PDATA);
	}
	if (ev->type == RPWI_CM_EV_REJ && !peer->refused && !peer->self_ended &&
		!peer->gave_up_peer && plan_of(e)->kind != NO_LISTENER)
		cms_fail("end %u: rejected (%u) by nobody", e, ev->reason);
	if (ev->type == RPWI_CM_EV_DREQ) {
		if (plan_of(e)->answer_delay_ns)
			cms_at(cms_now + plan_of(e)->answer_delay_ns, e, ACT_ANSWER);
		else
			cms_act(e, ACT_ANSWER);
		return;
	}
	cms_tally.gone += ev->type == RPWI_CM_EV_PEER_GONE;
	ended(e);
}

static void told_sidr(unsigned e, const struct rpwi_cm_event *ev)
{
	struct end *n = &ends[e];
	if (n->told_end++ || ev->sidr.status != plan_of(e)->reason % 3 ||
		ev->sidr.qpn != 2 + (e ^ 1) || ev->sidr.qkey != 0x1234 + (e ^ 1))
		cms_fail("end %u: a wrong answer to its SIDR request", e);
	check_pattern(e ^ 1, RPWI_CM_SIDR_REP, ev->pdata, ev->pdata_len, RPWI_SIDR_REP_PDATA);
	cms_tally.sidr++;
	ended(e);
}

void cms_event(unsigned host, struct rpwi_cm_conn *c, const struct rpwi_cm_event *ev)
{
	unsigned e = end_of(c);
	if (e >= 2 * cms_config.conns || ends[e].destroyed || host_of_end(e) != host)
		cms_fail("event %d for a destroyed connection", (int)ev->type);
	cms_trace("end %u is told %d", e, (int)ev->type);
	switch (ev->type) {
	case RPWI_CM_EV_REP:
		told_rep(e, ev);
		break;
	case RPWI_CM_EV_ESTABLISHED:
		told_established(e, ev);
		break;
	case RPWI_CM_EV_REJ:
	case RPWI_CM_EV_DREQ:
	case RPWI_CM_EV_DREP:
	case RPWI_CM_EV_PEER_GONE:
		told_end(e, ev);
		break;
	case RPWI_CM_EV_TIMEWAIT_EXIT:
		if (ends[e].exits++ || (!ends[e].told_end && !ends[e].self_ended))
			cms_fail("end %u: out of TIMEWAIT %u times", e, ends[e].exits);
		destroy(e);
		break;
	case RPWI_CM_EV_SIDR_REP:
		told_sidr(e, ev);
		break;
	default:
		cms_fail("end %u: event %d: at this loss everybody can be reached", e,
			(int)ev->type);
	}
}

/* ---- The end ---- */

static void check_end(unsigned e)
{
	struct end *n = &ends[e];
	if (!n->used)
		return;
	if (!n->told_end && !n->self_ended)
		cms_fail("end %u was never told of its end; it is in %s", e,
			n->destroyed ? "nothing" : rpwi_cm_state_name[n->conn.state]);
	if (!n->destroyed)
		cms_fail("end %u is still in %s", e, rpwi_cm_state_name[n->conn.state]);
}

void cms_programs_end(void)
{
	for (unsigned i = 0; i < cms_config.conns; i++) {
		struct end *a = &ends[2 * i], *p = &ends[2 * i + 1];
		check_end(2 * i);
		check_end(2 * i + 1);
		/* Nobody went back on it: then both were established. */
		if (plans[i].kind == NORMAL && !a->gave_up_peer &&
			(a->established != 1 || p->established != 1))
			cms_fail("connection %u: established %u and %u times", i, a->established,
				p->established);
		if (p->established && !a->established)
			cms_fail("connection %u is only half established", i);
		if (plans[i].kind == SIDR && !a->told_end)
			cms_fail("SIDR request %u was not answered", i);
	}
	free(plans);
	free(ends);
}
