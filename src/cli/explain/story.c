/* SPDX-License-Identifier: BSD-3-Clause */
/* story.c - what happened in each conversation: which packets were lost, which sent again and why,
 * what state each side was in, how it ended. Walks the rows of a talk once, in time. It knows only
 * what the capture shows; where that leaves two readings open, the mark says "maybe". */
#include "cli/explain/explain.h"

#include <errno.h>
#include <stdlib.h>

enum {
	SLOTS = 1 << 16,    /* PSNs remembered, by their low bits */
	SWEEP_MAX = 4096,   /* packets behind a gap that are marked */
	JUMP_MAX = 1 << 20, /* a PSN that far off is another beginning, not a gap */
	FOLD_MIN = 12,      /* rows without news that are worth folding */
	FOLD_HEAD = 5,
	FOLD_TAIL = 3,
	READ_CHUNK_UNKNOWN = 256,
	READS_MAX = 128, /* remembered of a side, for READs that are asked for again in part */
};

const char *const rpwi_explain_mark_name[EX_MARKS] = {"again", "lost", "maybe_lost", "out_of_order",
	"nak", "rnr", "refused", "bad_icrc", "malformed", "timeout", "gap"};
const char *const rpwi_explain_cm_name[EX_CM_STATES] = {"", "REQ_SENT", "REQ_RCVD", "REP_SENT",
	"REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "REJECTED"};
const char *const rpwi_explain_qp_name[EX_QP_STATES] = {"", "INIT", "RTR", "RTS", "ERR"};

/* Requests of one side and the answers to them. */
struct way {
	bool begun, loose; /* loose: after a READ whose length in packets is not known */
	uint32_t next, una;
	bool acked;
	enum { HEARD_NOTHING, HEARD_SEQ, HEARD_RNR } heard;
	const char *burst; /* why the packets now being sent again are */
	/* repeats: times that the oldest unacknowledged one was sent again since anything was
	 * heard */
	uint32_t burst_next, repeats;
	bool resp_begun;
	uint32_t resp_next; /* READ responses towards this side */
	struct {
		uint32_t psn, n;
	} read[READS_MAX]; /* the last READs, in turn */
	unsigned reads;
};

struct walk {
	struct ex_model *m;
	struct ex_talk *t;
	uint32_t id;
	struct way way[2];
	struct ex_state now[2];
	bool both_seen[2];       /* the receiver's own capture shows what this side sent */
	uint64_t from[2], to[2]; /* while the capture of a side ran, as far as its packets show */
	/* by PSN: row's packet + 1, of requests and of READ responses */
	uint32_t *slot[2], *response[2];
	uint32_t *row; /* the new rows, with gaps */
	uint32_t rows, rows_room;
	uint32_t cm_last[2][16]; /* by attribute: packet + 1 of the last such message of a side */
	bool rtu, req, rep, over, rdma, fatal;
};

static struct ex_pkt *pkt(struct walk *w, uint32_t i) { return &w->m->pkt[i]; }

static int add_row(struct walk *w, uint32_t i)
{
	if (w->rows == w->rows_room) {
		uint32_t room = w->rows_room ? w->rows_room * 2 : 64;
		uint32_t *more = realloc(w->row, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		w->row = more;
		w->rows_room = room;
	}
	w->row[w->rows++] = i;
	return 0;
}

/* PSNs from..to of `side`'s that the capture does not have, in front of packet `at`. */
static int add_gap(
	struct walk *w, uint32_t at, uint8_t side, uint32_t from, uint32_t to, const char *why)
{
	struct ex_pkt *g = rpwi_explain_add(w->m);
	if (!g)
		return -ENOMEM;
	const struct ex_pkt *k = pkt(w, at);
	g->time_ns = k->time_ns;
	g->flow = k->flow;
	g->side = side;
	g->talk = w->id;
	g->marks = EX_GAP;
	g->p.opcode = k->p.opcode;
	g->p.psn = from;
	g->gap_to = to;
	g->why = why;
	g->state[0] = w->now[0];
	g->state[1] = w->now[1];
	if (!strcmp(why, "gap"))
		w->t->end[side].lost += (uint64_t)((to - from) & RPWI_PSN_MASK) + 1;
	return add_row(w, (uint32_t)(g - w->m->pkt));
}

/* ---- what packets were before ---- */

static struct ex_pkt *seen_as(struct walk *w, const uint32_t *slots, uint32_t psn)
{
	uint32_t i = slots[psn % SLOTS];
	struct ex_pkt *k = i ? pkt(w, i - 1) : NULL;
	return k && k->p.psn == psn ? k : NULL;
}

static struct ex_pkt *sent_as(struct walk *w, unsigned side, uint32_t psn)
{
	return seen_as(w, w->slot[side], psn);
}

static void mark_lost(struct ex_pkt *k, enum ex_mark mark)
{
	if (k && !(k->marks & (EX_LOST | EX_MAYBE_LOST | EX_OUT_OF_ORDER | EX_REFUSED)))
		k->marks |= (uint16_t)mark;
}

/* Everything behind a missing or refused packet was dropped by the receiver (IB 9.7.5.1.2: it takes
 * packets in order only). */
static void mark_behind(struct walk *w, unsigned side, uint32_t psn)
{
	for (uint32_t n = 1;
		n < SWEEP_MAX && rpwi_psn_diff(rpwi_psn_add(psn, n), w->way[side].next) < 0; n++)
		mark_lost(sent_as(w, side, rpwi_psn_add(psn, n)), EX_OUT_OF_ORDER);
}

/* ---- requests ---- */

static uint32_t psns_of(const struct walk *w, const struct ex_pkt *k, bool *loose)
{
	if (!rpwi_op_has(rpwi_pkt_op(&k->p), RPWI_F_READ) || !k->p.dma_len)
		return 1;
	*loose = !w->t->mtu && k->p.dma_len > READ_CHUNK_UNKNOWN;
	uint32_t mtu = w->t->mtu ? w->t->mtu : READ_CHUNK_UNKNOWN;
	return RPWI_MIN((k->p.dma_len - 1) / mtu + 1, 1u << 23);
}

/* A part of a READ that was asked for before? The answer to its beginning came. */
static bool is_rest_of_read(const struct way *y, uint32_t psn)
{
	for (unsigned i = 0; i < RPWI_MIN(y->reads, READS_MAX); i++) {
		uint32_t within = (psn - y->read[i].psn) & RPWI_PSN_MASK;
		if (within && within < y->read[i].n)
			return true;
	}
	return false;
}

/* A message and its bytes count once, when they are first seen: that may be a repetition, where the
 * capture lacks what it repeats. */
static void count(struct walk *w, struct ex_pkt *k, bool seen, bool ends_message)
{
	struct ex_end *e = &w->t->end[k->side];
	if (seen)
		e->bytes -= k->p.payload_len;
	else if (ends_message)
		e->messages++;
}

static void sent_again(struct walk *w, struct ex_pkt *k, struct way *y)
{
	bool goes_on = y->burst && k->p.psn == y->burst_next && y->heard == HEARD_NOTHING;
	k->marks |= EX_AGAIN;
	w->t->end[k->side].resent++;
	if (goes_on) {
		k->why = y->burst;
		return;
	}
	struct ex_pkt *was = sent_as(w, k->side, k->p.psn);
	if (y->heard == HEARD_SEQ) {
		y->burst = "again_nak";
	} else if (y->heard == HEARD_RNR) {
		y->burst = "again_rnr";
	} else {
		y->burst = "again_timeout";
		k->marks |= EX_TIMEOUT;
		mark_lost(was, EX_MAYBE_LOST);
		y->repeats++;
	}
	k->why = y->burst;
	y->heard = HEARD_NOTHING;
}

static int on_request(struct walk *w, uint32_t i)
{
	struct ex_pkt *k = pkt(w, i);
	struct way *y = &w->way[k->side];
	unsigned op = rpwi_pkt_op(&k->p);
	uint8_t side = k->side;
	uint32_t psn = k->p.psn;
	bool loose = false, first = !y->begun;
	uint32_t n = psns_of(w, k, &loose);
	w->rdma |= side == 0 && rpwi_op_has(op, RPWI_F_WRITE | RPWI_F_READ | RPWI_F_ATOMIC);
	if (first) {
		y->begun = true;
		y->next = w->t->has_psn[side] ? w->t->first_psn[side] : psn;
		y->una = y->next;
		y->loose = false;
	}
	int32_t ahead = rpwi_psn_diff(psn, y->next);
	if (k->comment && ahead) {
		if (add_gap(w, i, side, y->next, rpwi_psn_add(psn, UINT32_MAX), "left_out"))
			return -ENOMEM;
		ahead = 0;
		y->next = psn;
	} else if (ahead > 0 && ahead < JUMP_MAX && !y->loose) {
		if (add_gap(w, i, side, y->next, rpwi_psn_add(psn, UINT32_MAX), "gap"))
			return -ENOMEM;
	} else if (ahead > JUMP_MAX || ahead < -JUMP_MAX) {
		ahead = 0;
		y->next = psn;
	}
	k = pkt(w, i);
	bool is_read = rpwi_op_has(op, RPWI_F_READ);
	bool seen = ahead < 0 && (sent_as(w, side, psn) || (is_read && is_rest_of_read(y, psn)));
	count(w, k, seen, k->foreign || rpwi_op_has(op, RPWI_F_LAST));
	if (is_read && !seen) {
		y->read[y->reads % READS_MAX].psn = psn;
		y->read[y->reads++ % READS_MAX].n = n;
	}
	if (ahead < 0) {
		sent_again(w, k, y);
	} else {
		/* On its way when the NAK was sent, or before that reached its sender. */
		if (y->heard != HEARD_NOTHING)
			k->marks |= EX_OUT_OF_ORDER;
		y->next = rpwi_psn_add(psn, n);
		y->loose = loose;
		y->burst = NULL;
	}
	y->burst_next = rpwi_psn_add(psn, n);
	w->slot[side][psn % SLOTS] = i + 1;
	return 0;
}

/* ---- responses ---- */

static void heard(struct way *y, uint32_t psn)
{
	if (!y->acked || rpwi_psn_diff(psn, y->una) >= 0)
		y->una = rpwi_psn_add(psn, 1);
	y->acked = true;
	y->repeats = 0;
}

static void on_nak(struct walk *w, struct ex_pkt *k, struct way *y, unsigned asker)
{
	static const struct {
		unsigned code;
		enum ex_diagnosis diagnosis;
	} fatal[] = {{RPWI_NAK_INV_REQ, EX_DIAG_REM_INV}, {RPWI_NAK_REM_ACCESS, EX_DIAG_REM_ACCESS},
		{RPWI_NAK_REM_OP, EX_DIAG_REM_OP}};
	unsigned code = k->p.syndrome & 0x1f;
	k->marks |= EX_NAK;
	w->t->end[k->side].naks++;
	if (code == RPWI_NAK_PSN_SEQ) {
		y->heard = HEARD_SEQ;
		y->burst = NULL;
		mark_lost(sent_as(w, asker, k->p.psn), EX_LOST);
		mark_behind(w, asker, k->p.psn);
		return;
	}
	for (size_t i = 0; i < RPWI_ARRAY_LEN(fatal); i++)
		if (fatal[i].code == code)
			w->t->diagnoses |= (1u << fatal[i].diagnosis);
	mark_lost(sent_as(w, asker, k->p.psn), EX_REFUSED);
	w->fatal = true;
	w->t->outcome = "nak";
	w->t->outcome_side = k->side;
	w->t->outcome_number = code;
	/* Such a NAK ends the connection on both sides (IB 9.7.5.2.4 to 9.7.5.2.7, and 9.9.2 for
	 * the requester). */
	w->now[0].qp = w->now[1].qp = EX_QP_ERR;
}

static int on_response(struct walk *w, uint32_t i)
{
	struct ex_pkt *k = pkt(w, i);
	unsigned op = rpwi_pkt_op(&k->p), asker = 1 - k->side;
	struct way *y = &w->way[asker];
	uint8_t side = k->side;
	uint32_t psn = k->p.psn;
	if (rpwi_op_has(op, RPWI_F_AETH)) {
		enum rpwi_aeth_kind kind = rpwi_aeth_kind(k->p.syndrome);
		heard(y, kind == RPWI_AETH_ACK ? psn : rpwi_psn_add(psn, UINT32_MAX));
		if (kind == RPWI_AETH_RNR_NAK) {
			k->marks |= EX_RNR;
			w->t->end[side].rnrs++;
			y->heard = HEARD_RNR;
			y->burst = NULL;
			mark_lost(sent_as(w, asker, psn), EX_REFUSED);
			mark_behind(w, asker, psn);
			return 0;
		}
		if (kind == RPWI_AETH_NAK) {
			on_nak(w, k, y, asker);
			return 0;
		}
	}
	if (!rpwi_op_has(op, RPWI_F_READRESP))
		return 0;
	int32_t ahead = y->resp_begun ? rpwi_psn_diff(psn, y->resp_next) : 0;
	if (ahead < -JUMP_MAX)
		ahead = 0;
	count(w, k, ahead < 0 && seen_as(w, w->response[side], psn), rpwi_op_has(op, RPWI_F_LAST));
	w->response[side][psn % SLOTS] = i + 1;
	if (ahead < 0) {
		k->marks |= EX_AGAIN;
		k->why = "again_response";
		w->t->end[side].resent++;
		return 0;
	}
	if (ahead > 0 && ahead < JUMP_MAX && !rpwi_op_has(op, RPWI_F_FIRST) &&
		add_gap(w, i, side, y->resp_next, rpwi_psn_add(psn, UINT32_MAX), "gap"))
		return -ENOMEM;
	y->resp_begun = true;
	y->resp_next = rpwi_psn_add(psn, 1);
	return 0;
}

/* ---- the connection manager ---- */

static void states_of_cm(struct walk *w, unsigned side, const struct rpwi_cm_msg *m)
{
	struct ex_state *me = &w->now[side], *peer = &w->now[1 - side];
	switch (m->attr) {
	case RPWI_CM_REQ:
		me->cm = EX_CM_REQ_SENT;
		peer->cm = EX_CM_REQ_RCVD;
		me->qp = EX_QP_INIT;
		break;
	/* a server moves its QP to RTS before it accepts; the client's is in RTR once it has the
	 * server's QPN and PSN (IB 12.9.7.1) */
	case RPWI_CM_REP:
		me->cm = EX_CM_REP_SENT;
		peer->cm = EX_CM_REP_RCVD;
		me->qp = EX_QP_RTS;
		peer->qp = EX_QP_RTR;
		break;
	case RPWI_CM_RTU:
		me->cm = peer->cm = EX_CM_ESTABLISHED;
		me->qp = EX_QP_RTS;
		break;
	case RPWI_CM_REJ:
		me->cm = peer->cm = EX_CM_REJECTED;
		me->qp = peer->qp = EX_QP_NONE;
		break;
	case RPWI_CM_DREQ:
		me->cm = EX_CM_DREQ_SENT;
		peer->cm = EX_CM_DREQ_RCVD;
		me->qp = EX_QP_ERR;
		break;
	case RPWI_CM_DREP:
		me->cm = peer->cm = EX_CM_TIMEWAIT;
		me->qp = peer->qp = EX_QP_ERR;
		break;
	default:
		break;
	}
}

static void outcome_of_cm(struct walk *w, unsigned side, const struct rpwi_cm_msg *m)
{
	w->req |= m->attr == RPWI_CM_REQ;
	w->rep |= m->attr == RPWI_CM_REP;
	w->rtu |= m->attr == RPWI_CM_RTU;
	if (w->over)
		return;
	if (m->attr == RPWI_CM_REJ) {
		w->t->outcome = "rejected";
		w->t->outcome_number = m->rej.reason;
		if (m->rej.reason == RPWI_REJ_INVALID_SERVICE_ID)
			w->t->diagnoses |= 1u << EX_DIAG_NO_LISTENER;
	} else if (m->attr == RPWI_CM_DREQ) {
		w->t->outcome = "disconnected";
	} else if (m->attr == RPWI_CM_SIDR_REP) {
		w->t->outcome = "sidr";
		w->t->outcome_number = m->sidr_rep.status;
	} else {
		return;
	}
	w->t->outcome_side = (uint8_t)side;
	w->over = true;
}

static void on_cm(struct walk *w, uint32_t i)
{
	struct ex_pkt *k = pkt(w, i);
	struct rpwi_cm_msg m;
	if (!rpwi_explain_cm(k, &m)) {
		k->marks |= EX_MALFORMED;
		return;
	}
	uint32_t *last = &w->cm_last[k->side][m.attr & 15];
	if (*last) {
		k->marks |= EX_AGAIN;
		bool answers = m.attr == RPWI_CM_REP || m.attr == RPWI_CM_RTU ||
			       m.attr == RPWI_CM_DREP || m.attr == RPWI_CM_MRA ||
			       m.attr == RPWI_CM_SIDR_REP;
		k->why = answers ? "again_cm_answer" : "again_cm";
		w->t->cm_retries++;
		w->t->end[k->side].resent++;
		if (!answers)
			mark_lost(pkt(w, *last - 1), EX_MAYBE_LOST);
	}
	*last = i + 1;
	/* A duplicate does not lead back to a state that was left (IB 12.9.8). */
	if (!(k->marks & EX_AGAIN))
		states_of_cm(w, k->side, &m);
	outcome_of_cm(w, k->side, &m);
}

/* ---- one conversation ---- */

static void states_of_data(struct walk *w, const struct ex_pkt *k)
{
	struct ex_state *me = &w->now[k->side], *peer = &w->now[1 - k->side];
	bool request = ex_is_request(k);
	if (me->qp == EX_QP_ERR || w->fatal || me->cm > EX_CM_ESTABLISHED)
		return;
	if (request || me->qp == EX_QP_NONE)
		me->qp = RPWI_MAX(me->qp, request ? EX_QP_RTS : EX_QP_RTR);
	if (peer->qp == EX_QP_NONE && !w->t->has_cm)
		peer->qp = EX_QP_RTR;
}

static int on_packet(struct walk *w, uint32_t i)
{
	struct ex_pkt *k = pkt(w, i);
	struct ex_end *e = &w->t->end[k->side];
	int rc = 0;
	e->packets++;
	e->bytes += k->p.payload_len;
	if (w->both_seen[k->side] && !k->seen_ns && k->direction != EX_IN &&
		k->time_ns > w->from[1 - k->side] && k->time_ns < w->to[1 - k->side])
		k->marks |= EX_LOST;
	if (k->foreign == EX_FLUSH) {
		rc = on_request(w, i);
		states_of_data(w, pkt(w, i));
	} else if (k->undecoded) {
		k->marks |= k->foreign ? 0 : EX_MALFORMED;
	} else if (ex_is_cm(k)) {
		e->bytes -= k->p.payload_len;
		on_cm(w, i);
	} else if (rpwi_pkt_svc(&k->p) == RPWI_SVC_RC) {
		rc = rpwi_op_is_request(rpwi_pkt_op(&k->p)) ? on_request(w, i) : on_response(w, i);
		states_of_data(w, pkt(w, i));
	} else {
		if (rpwi_op_has(rpwi_pkt_op(&k->p), RPWI_F_LAST))
			e->messages++;
		states_of_data(w, k);
	}
	k = pkt(w, i);
	k->state[0] = w->now[0];
	k->state[1] = w->now[1];
	return rc ? rc : add_row(w, i);
}

/* The path MTU, where no REQ told it: the payload of a packet that is not the last one (IB 9.2.7:
 * those are full). */
static uint32_t mtu_seen(const struct ex_model *m, const struct ex_talk *t)
{
	uint32_t mtu = 0;
	for (uint32_t n = 0; n < t->rows; n++) {
		const struct ex_pkt *k = &m->pkt[t->row[n]];
		unsigned op = rpwi_pkt_op(&k->p);
		if (!k->undecoded && rpwi_op_has(op, RPWI_F_PAYLOAD) &&
			!rpwi_op_has(op, RPWI_F_LAST))
			mtu = RPWI_MAX(mtu, k->p.payload_len);
	}
	return mtu;
}

static void conclude(struct walk *w)
{
	struct ex_talk *t = w->t;
	for (unsigned side = 0; side < 2; side++) {
		struct way *y = &w->way[side];
		if (!t->outcome && y->begun && y->repeats >= 2 && y->una != y->next) {
			t->outcome = "silent";
			t->outcome_side = (uint8_t)side;
			t->diagnoses |= 1u << EX_DIAG_GAVE_UP;
		}
	}
	if (!t->outcome && w->req && !w->rep) {
		t->outcome = "no_answer";
		t->diagnoses |= 1u << EX_DIAG_UNREACHABLE;
	} else if (!t->outcome) {
		t->outcome = w->rep && !w->rtu ? "not_confirmed" : "open";
	}
	if (w->rtu && w->over && !t->end[1].messages && !w->rdma)
		t->diagnoses |= 1u << EX_DIAG_SERVER_SILENT;
	if (t->end[0].resent + t->end[1].resent > t->cm_retries)
		t->diagnoses |= 1u << EX_DIAG_RESENT;
	if (t->end[0].rnrs + t->end[1].rnrs)
		t->diagnoses |= 1u << EX_DIAG_RNR;
	if ((!t->end[0].packets || !t->end[1].packets) && t->kind == EX_RC)
		t->diagnoses |= 1u << EX_DIAG_ONE_SIDED;
}

/* ---- folds ---- */

static bool is_plain(const struct ex_model *m, const struct ex_talk *t, uint32_t n)
{
	const struct ex_pkt *k = &m->pkt[t->row[n]], *before = n ? &m->pkt[t->row[n - 1]] : NULL;
	return !k->marks && !ex_is_cm(k) && !k->comment && before &&
	       !memcmp(k->state, before->state, sizeof(k->state));
}

static int fold_add(struct ex_talk *t, uint32_t from, uint32_t to)
{
	if (!(t->folds & (t->folds + 1)) || !t->fold) { /* room for the next power of two */
		struct ex_fold *more = realloc(t->fold, (size_t)(t->folds + 1) * 2 * sizeof(*more));
		if (!more)
			return -ENOMEM;
		t->fold = more;
	}
	t->fold[t->folds++] = (struct ex_fold){from, to};
	return 0;
}

static int make_folds(const struct ex_model *m, struct ex_talk *t)
{
	for (uint32_t from = 0; from < t->rows;) {
		uint32_t to = from;
		while (to < t->rows && is_plain(m, t, to))
			to++;
		if (to - from >= FOLD_MIN && fold_add(t, from + FOLD_HEAD, to - 1 - FOLD_TAIL))
			return -ENOMEM;
		from = to + 1;
	}
	return 0;
}

/* ---- all of them ---- */

/* A packet was seen where `side` is, at that time. */
static void ran_at(struct walk *w, unsigned side, uint64_t time_ns)
{
	if (!time_ns)
		return;
	if (!w->from[side] || time_ns < w->from[side])
		w->from[side] = time_ns;
	w->to[side] = RPWI_MAX(w->to[side], time_ns);
}

static int tell(struct walk *w)
{
	struct ex_talk *t = w->t;
	if (!t->mtu)
		t->mtu = mtu_seen(w->m, t);
	for (uint32_t n = 0; n < t->rows; n++) {
		const struct ex_pkt *k = pkt(w, t->row[n]);
		w->both_seen[k->side] |= k->seen_ns != 0;
		ran_at(w, k->side, k->direction == EX_IN ? 0 : k->time_ns);
		ran_at(w, 1 - k->side, k->seen_ns);
	}
	for (uint32_t n = 0; n < t->rows; n++) {
		int rc = on_packet(w, t->row[n]);
		if (rc)
			return rc;
	}
	conclude(w);
	free(t->row);
	t->row = w->row;
	t->rows = w->rows;
	t->rows_room = w->rows_room;
	w->row = NULL;
	return make_folds(w->m, t);
}

/* The slots are cleared by what was written into them: there are many small conversations. */
static void slots_clear(struct walk *w, const struct ex_talk *t)
{
	for (uint32_t n = 0; n < t->rows; n++) {
		uint32_t at = w->m->pkt[t->row[n]].p.psn % SLOTS;
		w->slot[0][at] = w->slot[1][at] = w->response[0][at] = w->response[1][at] = 0;
	}
}

int rpwi_explain_story(struct ex_model *m)
{
	uint32_t *slots = calloc((size_t)SLOTS * 4, sizeof(*slots));
	int rc = slots ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < m->talks && !rc; i++) {
		struct walk w = {.m = m,
			.t = &m->talk[i],
			.id = i,
			.slot = {slots, slots + SLOTS},
			.response = {slots + 2 * SLOTS, slots + 3 * SLOTS}};
		rc = tell(&w);
		free(w.row);
		slots_clear(&w, &m->talk[i]);
	}
	free(slots);
	return rc;
}
