/* SPDX-License-Identifier: BSD-3-Clause */
/* script_status_test.c - fault scripts: every ibv_wc_status is reached on RC, UC and UD, by sends,
 * receives and SRQs; by its cause where the device has one. */
#include "lib/test.h"
#include "scripted.h"

/* PATIENT: 0.5 s, where no silence is wanted. */
enum { SENDS = 3, PATIENT = 17, RETRIES = 7 };

/* ---- statuses by their causes ---- */

#define NONE (-1)
struct cause {
	const char *script;
	enum ibv_qp_type type;
	bool srq;
	enum ibv_wr_opcode op;
	/* of the sender's and the receiver's completions the first that is no success */
	int send, recv;
	int event; /* that comes, or NONE */
};
static const struct cause causes[] = {
	/* a key that is wrong, here or there */
	{"send qp 1 2: status LOC_PROT_ERR", IBV_QPT_RC, 0, IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE,
		NONE},
	{"send qp 1 2: status LOC_PROT_ERR", IBV_QPT_UC, 0, IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR,
		NONE, NONE},
	{"send qp 1 2: status LOC_PROT_ERR", IBV_QPT_UD, 0, IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE,
		NONE},
	{"send qp 1 2: status REM_ACCESS_ERR", IBV_QPT_RC, 0, IBV_WR_RDMA_WRITE,
		IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{"send qp 1 2: status REM_ACCESS_ERR", IBV_QPT_RC, 0, IBV_WR_RDMA_READ,
		IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{"send qp 1 2: status REM_ACCESS_ERR", IBV_QPT_RC, 0, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{"packet sent WRITE_ONLY 2: badkey", IBV_QPT_RC, 0, IBV_WR_RDMA_WRITE,
		IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
	/* a receive without room, or whose key is wrong; the peer hears why */
	{"recv qp 2 2: status LOC_LEN_ERR", IBV_QPT_RC, 0, IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR,
		IBV_WC_LOC_LEN_ERR, NONE},
	{"recv 2: status LOC_LEN_ERR", IBV_QPT_RC, 1, IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR,
		IBV_WC_LOC_LEN_ERR, IBV_EVENT_QP_LAST_WQE_REACHED},
	{"recv qp 2 2: status LOC_LEN_ERR", IBV_QPT_UC, 0, IBV_WR_SEND, NONE, IBV_WC_LOC_LEN_ERR,
		NONE},
	{"recv qp 2 2: status LOC_LEN_ERR", IBV_QPT_UD, 0, IBV_WR_SEND, NONE, IBV_WC_LOC_LEN_ERR,
		NONE},
	{"recv qp 2 2: status LOC_PROT_ERR", IBV_QPT_RC, 0, IBV_WR_SEND, IBV_WC_REM_OP_ERR,
		IBV_WC_LOC_PROT_ERR, NONE},
	{"recv qp 2 2: status LOC_PROT_ERR", IBV_QPT_UD, 0, IBV_WR_SEND, NONE, IBV_WC_LOC_PROT_ERR,
		NONE},
	/* NAKs of the peer */
	{"packet received SEND_ONLY qp 2 2: nak INV_REQ", IBV_QPT_RC, 0, IBV_WR_SEND,
		IBV_WC_REM_INV_REQ_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_REQ_ERR},
	{"packet received SEND_ONLY qp 2 2: nak REM_OP", IBV_QPT_RC, 0, IBV_WR_SEND,
		IBV_WC_REM_OP_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_REQ_ERR},
	{"packet received SEND_ONLY qp 2 2: nak REM_ACCESS", IBV_QPT_RC, 0, IBV_WR_SEND,
		IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR, IBV_EVENT_QP_ACCESS_ERR},
	{"packet received SEND_ONLY qp 2 2..: nak RNR", IBV_QPT_RC, 0, IBV_WR_SEND,
		IBV_WC_RNR_RETRY_EXC_ERR, NONE, NONE},
	/* nobody answers */
	{"send qp 1 2: status RETRY_EXC_ERR", IBV_QPT_RC, 0, IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR,
		NONE, NONE},
	{"send qp 1 2: status RETRY_EXC_ERR", IBV_QPT_RC, 0, IBV_WR_RDMA_READ, IBV_WC_RETRY_EXC_ERR,
		NONE, NONE},
	{"packet sent SEND_ONLY qp 1 2..: drop", IBV_QPT_RC, 0, IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR,
		NONE, NONE},
	{"packet received ACK qp 1 2: peer silent", IBV_QPT_RC, 0, IBV_WR_SEND,
		IBV_WC_RETRY_EXC_ERR, NONE, NONE},
	/* the QP is in error before it */
	{"send qp 1 2: qp error", IBV_QPT_RC, 0, IBV_WR_RDMA_WRITE, IBV_WC_WR_FLUSH_ERR, NONE,
		NONE},
	{"send qp 1 2: status WR_FLUSH_ERR", IBV_QPT_RC, 0, IBV_WR_RDMA_WRITE, IBV_WC_WR_FLUSH_ERR,
		NONE, NONE},
	{"send qp 1 2: qp fatal", IBV_QPT_UC, 0, IBV_WR_SEND, IBV_WC_WR_FLUSH_ERR, NONE,
		IBV_EVENT_QP_FATAL},
};

/* One after the other, each waited for: the first goes well. */
static void cause_run(const void *arg)
{
	const struct cause *c = arg;
	struct two t;
	struct ibv_wc wc;
	int found[2] = {NONE, NONE};
	uint8_t timeout = c->send == IBV_WC_RETRY_EXC_ERR ? SOON_TIMEOUT : PATIENT;
	two_up_with(&t, c->type, c->srq, timeout, RETRIES);
	for (int k = 0; k < SENDS && found[0] == NONE; k++) {
		CHECK(!post(&t, c->op, (uint64_t)k));
		wc = next(&t, 0);
		if (wc.status != IBV_WC_SUCCESS) {
			/* "qp error" may catch the one whose posting it is about, or the next */
			CHECK(k >= 1 || c->send == IBV_WC_WR_FLUSH_ERR);
			found[0] = (int)wc.status;
		}
		if (c->recv != NONE && found[1] == NONE && k >= 1) {
			do
				wc = next(&t, 1);
			while (wc.status == IBV_WC_SUCCESS && k < 1);
			if (wc.status != IBV_WC_SUCCESS)
				found[1] = (int)wc.status;
		}
	}
	while (c->recv != NONE && found[1] == NONE) {
		wc = next(&t, 1);
		if (wc.status != IBV_WC_SUCCESS)
			found[1] = (int)wc.status;
	}
	if (found[0] != c->send || found[1] != c->recv) {
		fprintf(stderr, "%s: sender %d, receiver %d; expected %d, %d\n", c->script,
			found[0], found[1], c->send, c->recv);
		_exit(1);
	}
	if (c->event != NONE)
		CHECK(got_event(&t, (enum ibv_event_type)c->event, SOON));
}

static void statuses_have_their_causes(void **state)
{
	unsigned bad = 0;
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		bad += !scripted(causes[i].script, causes[i].script, cause_run, &causes[i]);
	assert_int_equal(bad, 0);
}

/* READs are not allowed by this QP's own attributes: no script is needed. */
static void no_reads(const void *arg)
{
	struct two t;
	two_make(&t, IBV_QPT_RC, false, 64);
	two_connect(&t, 0, true, 0);
	two_connect(&t, 1, true, 4);
	CHECK(!post(&t, IBV_WR_RDMA_READ, 0));
	CHECK(next(&t, 0).status == IBV_WC_LOC_QP_OP_ERR);
}
static void bind_fails(const void *arg)
{
	struct two t;
	two_up_with(&t, IBV_QPT_RC, false, PATIENT, RETRIES);
	struct ibv_mw *mw = ibv_alloc_mw(t.pd, IBV_MW_TYPE_2);
	CHECK(mw);
	for (int k = 1; k <= 2; k++) {
		struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW};
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = t.mr,
			.addr = (uintptr_t)t.buf,
			.length = BUF,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
		if (k == 2)
			CHECK(!ibv_dealloc_mw(mw) && (mw = ibv_alloc_mw(t.pd, IBV_MW_TYPE_2)));
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		CHECK(!ibv_post_send(t.qp[0], &wr, &bad));
		CHECK(next(&t, 0).status == (k == 1 ? IBV_WC_SUCCESS : IBV_WC_MW_BIND_ERR));
	}
}
static void local_operations_fail(void **state)
{
	assert_true(scripted("no READs", "# nothing\n", no_reads, NULL));
	assert_true(scripted("bind", "send 2: status MW_BIND_ERR", bind_fails, NULL));
}

/* ---- every status, forged ---- */

struct forged {
	enum ibv_qp_type type;
	bool recv, srq;
	enum ibv_wc_status status;
};
static void forged_run(const void *arg)
{
	const struct forged *f = arg;
	struct two t;
	struct ibv_wc wc;
	two_up_with(&t, f->type, f->srq, PATIENT, RETRIES);
	for (int k = 0; k < SENDS; k++)
		CHECK(!post(&t, IBV_WR_SEND, (uint64_t)k));
	for (uint64_t k = 0; k < SENDS; k++) {
		wc = next(&t, f->recv);
		CHECK(wc.wr_id == k);
		if (k < 2)
			CHECK(wc.status == (k ? f->status : IBV_WC_SUCCESS));
		else if (f->srq) /* what is left is for other QPs */
			break;
		else
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
		if (f->srq && k == 1)
			break;
	}
	if (f->recv && f->type == IBV_QPT_RC) { /* its sender hears that it failed there */
		CHECK(next(&t, 0).status == IBV_WC_SUCCESS);
		CHECK(next(&t, 0).status == IBV_WC_REM_OP_ERR);
	}
}

static void every_status_can_be_forged(void **state)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	unsigned bad = 0, n = 0;
	char script[80], name[120];
	for (int s = IBV_WC_LOC_LEN_ERR; s <= IBV_WC_TM_RNDV_INCOMPLETE; s++)
		for (int way = 0; way < 3; way++)
			for (unsigned k = 0; k < 3; k++, n++) {
				static const char *const names[] = {"", "LOC_LEN_ERR",
					"LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR",
					"WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR",
					"LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
					"REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR",
					"LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR",
					"INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR",
					"RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR",
					"TM_RNDV_INCOMPLETE"};
				struct forged f = {
					types[k], way > 0, way == 2, (enum ibv_wc_status)s};
				snprintf(script, sizeof(script), "%s 2: forge %s",
					way == 0   ? "send qp 1"
					: way == 1 ? "recv qp 2"
						   : "recv",
					names[s]);
				snprintf(name, sizeof(name), "%s %s%s", script,
					k == 0   ? "RC"
					: k == 1 ? "UC"
						 : "UD",
					way == 2 ? ", SRQ" : "");
				bad += !scripted(name, script, forged_run, &f);
			}
	assert_int_equal(bad, 0);
	assert_int_equal(n, 23 * 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statuses_have_their_causes),
		cmocka_unit_test(local_operations_fail),
		cmocka_unit_test(every_status_can_be_forged),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
