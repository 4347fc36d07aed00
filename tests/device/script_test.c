/* SPDX-License-Identifier: BSD-3-Clause */
/* script_test.c - fault scripts at work: every ibv_wc_status and ibv_event_type is reached, by its
 * cause where the device has one; calls fail as told; completions are late; the port goes down.
 *
 * Each case is a process of its own, since a process has one script. It says what it found on
 * stderr and ends with 0 or 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"

enum { LEN = 64, SENDS = 3, RECVS = 4, BUF = 4096, QKEY = 0x11111111 };

/* ---- one process for each case ---- */

static const char *now_doing = "";
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s: %s (errno %d)\n", __FILE__, __LINE__, \
				now_doing, #x, errno); \
			_exit(1); \
		} \
	} while (0)

static void load(const char *script)
{
	char path[64];
	int fd = memfd_create("script", 0);
	CHECK(fd >= 0);
	CHECK(write(fd, script, strlen(script)) == (ssize_t)strlen(script));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(!setenv("ROPEWAY_FAULT", path, 1));
}

/* True when `fn` has found all as it should be. */
static bool in_child(
	const char *name, const char *script, void (*fn)(const void *arg), const void *arg)
{
	int status;
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		now_doing = name;
		alarm(60);
		load(script);
		fn(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status)
		print_error("%s: wait status 0x%x, with the script:\n%s\n", name, status, script);
	return !status;
}

/* ---- two QPs of one process, connected ---- */

struct two {
	enum ibv_qp_type type;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_srq *srq; /* of the second */
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_ah *ah;
	uint8_t *buf;
};

static struct ibv_context *open_lo(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;
	CHECK(list);
	for (int i = 0; i < n && !c; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return c;
}

static void two_make(struct two *t, enum ibv_qp_type type, bool srq, int cqe)
{
	enum {
		ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND
	};
	*t = (struct two){.type = type};
	CHECK(t->ctx = open_lo());
	fcntl(t->ctx->async_fd, F_SETFL, O_NONBLOCK);
	CHECK(t->pd = ibv_alloc_pd(t->ctx));
	CHECK(t->buf = aligned_alloc(4096, 2 * BUF));
	CHECK(t->mr = ibv_reg_mr(t->pd, t->buf, 2 * BUF, ALL));
	if (srq) {
		struct ibv_srq_init_attr a = {.attr = {.max_wr = 16, .max_sge = 1}};
		CHECK(t->srq = ibv_create_srq(t->pd, &a));
	}
	for (int i = 0; i < 2; i++) {
		CHECK(t->cq[i] = ibv_create_cq(t->ctx, cqe, NULL, NULL, 0));
		struct ibv_qp_init_attr a = {.send_cq = t->cq[i],
			.recv_cq = t->cq[i],
			.srq = i ? t->srq : NULL,
			.qp_type = type,
			.sq_sig_all = 1,
			.cap = {.max_send_wr = 16,
				.max_recv_wr = 16,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = 64}};
		CHECK(t->qp[i] = ibv_create_qp(t->pd, &a));
		struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
			.port_num = 1,
			.qkey = QKEY,
			.qp_access_flags = ALL & ~IBV_ACCESS_MW_BIND};
		CHECK(!ibv_modify_qp(t->qp[i], &init,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				(type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	}
}

/* timeout 8 is 1 ms: a silence ends soon. */
static void two_connect(struct two *t, int i, bool to_rts, uint8_t rd_atomic)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = t->qp[!i]->qp_num,
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
	bool rc = t->type == IBV_QPT_RC, ud = t->type == IBV_QPT_UD;
	CHECK(!ibv_query_gid(t->ctx, 1, 1, &a.ah_attr.grh.dgid));
	if (ud && !t->ah)
		CHECK(t->ah = ibv_create_ah(t->pd, &a.ah_attr));
	CHECK(!ibv_modify_qp(t->qp[i], &a,
		IBV_QP_STATE |
			(ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	if (!to_rts)
		return;
	struct ibv_qp_attr s = {.qp_state = IBV_QPS_RTS,
		.sq_psn = 100,
		.timeout = 8,
		.retry_cnt = 1,
		.rnr_retry = 1,
		.max_rd_atomic = rd_atomic};
	CHECK(!ibv_modify_qp(t->qp[i], &s,
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0)));
}

static void receives(struct two *t, int n)
{
	for (int k = 0; k < n; k++) {
		struct ibv_sge sge = {(uintptr_t)t->buf + BUF, 256, t->mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)k, .sg_list = &sge, .num_sge = 1};
		CHECK(!(t->srq ? ibv_post_srq_recv(t->srq, &wr, &bad)
			       : ibv_post_recv(t->qp[1], &wr, &bad)));
	}
}

static void two_up(struct two *t, enum ibv_qp_type type, bool srq)
{
	two_make(t, type, srq, 64);
	two_connect(t, 0, true, 4);
	two_connect(t, 1, true, 4);
	receives(t, RECVS);
}

static int post(struct two *t, enum ibv_wr_opcode op, uint64_t id)
{
	struct ibv_sge sge = {
		(uintptr_t)t->buf, op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LEN, t->mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1};
	if (t->type == IBV_QPT_UD) {
		wr.wr.ud.ah = t->ah;
		wr.wr.ud.remote_qpn = t->qp[1]->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	} else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)t->buf + BUF;
		wr.wr.atomic.rkey = t->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else if (op != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)t->buf + BUF;
		wr.wr.rdma.rkey = t->mr->rkey;
	}
	return ibv_post_send(t->qp[0], &wr, &bad);
}

/* The next completion of a side; asserts that it comes. */
static struct ibv_wc next(struct two *t, int side)
{
	struct ibv_wc wc;
	CHECK(pair_poll(t->cq[side], &wc, 20000));
	return wc;
}

static bool got_event(struct two *t, enum ibv_event_type type, int ms)
{
	struct ibv_async_event ev;
	for (; ms >= 0; ms--) {
		while (!ibv_get_async_event(t->ctx, &ev)) {
			bool it = ev.event_type == type;
			ibv_ack_async_event(&ev);
			if (it)
				return true;
		}
		usleep(1000);
	}
	return false;
}
enum { SOON = 20000 };

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
	two_up(&t, c->type, c->srq);
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
		bad += !in_child(causes[i].script, causes[i].script, cause_run, &causes[i]);
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
	two_up(&t, IBV_QPT_RC, false);
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
	assert_true(in_child("no READs", "# nothing\n", no_reads, NULL));
	assert_true(in_child("bind", "send 2: status MW_BIND_ERR", bind_fails, NULL));
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
	two_up(&t, f->type, f->srq);
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
				bad += !in_child(name, script, forged_run, &f);
			}
	assert_int_equal(bad, 0);
	assert_int_equal(n, 23 * 9);
}

/* ---- events ---- */

static void event_run(const void *arg)
{
	struct two t;
	two_up(&t, IBV_QPT_RC, true);
	CHECK(!post(&t, IBV_WR_RDMA_WRITE, 1));
	CHECK(got_event(&t, *(const enum ibv_event_type *)arg, SOON));
}

static void every_event_comes(void **state)
{
	static const struct {
		const char *script;
		enum ibv_event_type type;
	} rows[] = {
		{"at 50 ms cq 2: event CQ_ERR", IBV_EVENT_CQ_ERR},
		{"send 1: event QP_FATAL", IBV_EVENT_QP_FATAL},
		{"at 50 ms qp 1: event QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR},
		{"at 50 ms qp 2: event QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR},
		{"send 1 qp 1: event COMM_EST", IBV_EVENT_COMM_EST},
		{"send 1: event SQ_DRAINED", IBV_EVENT_SQ_DRAINED},
		{"at 50 ms qp 1: event PATH_MIG", IBV_EVENT_PATH_MIG},
		{"completion send 1: event PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},
		{"at 50 ms: device fatal", IBV_EVENT_DEVICE_FATAL},
		{"at 50 ms: event DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL},
		{"at 50 ms: event PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},
		{"create_qp 2: event PORT_ERR", IBV_EVENT_PORT_ERR},
		{"at 50 ms: event LID_CHANGE", IBV_EVENT_LID_CHANGE},
		{"at 50 ms: event PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
		{"at 50 ms: event SM_CHANGE", IBV_EVENT_SM_CHANGE},
		{"at 50 ms srq 1: event SRQ_ERR", IBV_EVENT_SRQ_ERR},
		{"send 1 srq 1: event SRQ_LIMIT_REACHED", IBV_EVENT_SRQ_LIMIT_REACHED},
		{"at 50 ms qp 2: event QP_LAST_WQE_REACHED", IBV_EVENT_QP_LAST_WQE_REACHED},
		{"at 50 ms qp 2: qp error", IBV_EVENT_QP_LAST_WQE_REACHED}, /* the cause */
		{"at 50 ms: event CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
		{"at 50 ms: gid change", IBV_EVENT_GID_CHANGE},
	};
	unsigned bad = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		bad += !in_child(rows[i].script, rows[i].script, event_run, &rows[i].type);
	assert_int_equal(bad, 0);
}

static void real_events(const void *arg)
{
	struct two t;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_SQD, .en_sqd_async_notify = 1};
	struct ibv_srq_attr limit = {.srq_limit = RECVS};
	two_make(&t, IBV_QPT_RC, true, 2);
	two_connect(&t, 0, true, 4);
	two_connect(&t, 1, false, 4);
	receives(&t, RECVS);
	CHECK(!ibv_modify_srq(t.srq, &limit, IBV_SRQ_LIMIT));
	CHECK(!post(&t, IBV_WR_SEND, 1));
	CHECK(got_event(&t, IBV_EVENT_SRQ_LIMIT_REACHED, SOON)); /* fewer than the limit are left */
	two_make(&t, IBV_QPT_RC, false, 2);
	two_connect(&t, 0, true, 4);
	two_connect(&t, 1, false, 4);
	receives(&t, RECVS);
	CHECK(!post(&t, IBV_WR_SEND, 1));
	CHECK(got_event(&t, IBV_EVENT_COMM_EST, SOON)); /* in RTR */
	CHECK(next(&t, 0).status == IBV_WC_SUCCESS);
	CHECK(!ibv_modify_qp(t.qp[0], &a, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY));
	CHECK(got_event(&t, IBV_EVENT_SQ_DRAINED, SOON));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(t.qp[0], &a, IBV_QP_STATE));
	for (int k = 0; k < 3; k++) { /* the receiver's CQ has room for two */
		CHECK(!post(&t, IBV_WR_SEND, 1));
		CHECK(next(&t, 0).status == IBV_WC_SUCCESS);
	}
	CHECK(got_event(&t, IBV_EVENT_CQ_ERR, SOON));
}
static void events_have_their_causes(void **state)
{
	assert_true(in_child("real events", "# nothing\n", real_events, NULL));
}

/* After it no call works, and what was posted is flushed. */
static void dead_device(const void *arg)
{
	struct two t;
	struct ibv_port_attr port;
	two_up(&t, IBV_QPT_RC, false);
	CHECK(!post(&t, IBV_WR_RDMA_WRITE, 1));
	CHECK(next(&t, 0).status == IBV_WC_SUCCESS);
	CHECK(got_event(&t, IBV_EVENT_DEVICE_FATAL, SOON));
	for (int k = 0; k < RECVS; k++)
		CHECK(next(&t, 1).status == IBV_WC_WR_FLUSH_ERR);
	CHECK(post(&t, IBV_WR_RDMA_WRITE, 1) == EIO);
	CHECK(!ibv_alloc_pd(t.ctx) && errno == EIO);
	CHECK(!ibv_query_port(t.ctx, 1, &port) && port.state == IBV_PORT_DOWN);
	CHECK(!ibv_destroy_qp(t.qp[0]) && !ibv_destroy_qp(t.qp[1]) && !ibv_dereg_mr(t.mr));
	CHECK(!ibv_destroy_cq(t.cq[0]) && !ibv_destroy_cq(t.cq[1]) && !ibv_dealloc_pd(t.pd));
	CHECK(!ibv_close_device(t.ctx));
}
static void port_down(const void *arg)
{
	struct two t;
	struct ibv_port_attr port;
	struct ibv_async_event ev;
	two_up(&t, IBV_QPT_UC, false);
	CHECK(!ibv_query_port(t.ctx, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(!post(&t, IBV_WR_SEND, 1));
	CHECK(next(&t, 1).status == IBV_WC_SUCCESS);
	CHECK(!post(&t, IBV_WR_SEND, 2)); /* the outage begins before its packet */
	CHECK(next(&t, 0).status == IBV_WC_SUCCESS && next(&t, 0).status == IBV_WC_SUCCESS);
	CHECK(!ibv_query_port(t.ctx, 1, &port) && port.state == IBV_PORT_DOWN);
	CHECK(got_event(&t, IBV_EVENT_PORT_ERR, SOON));
	CHECK(got_event(&t, IBV_EVENT_PORT_ACTIVE, SOON));
	CHECK(!ibv_query_port(t.ctx, 1, &port) && port.state == IBV_PORT_ACTIVE);
	CHECK(!post(&t, IBV_WR_SEND, 3));
	struct ibv_wc wc = next(&t, 1);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 1); /* the second message was lost */
	CHECK(ibv_get_async_event(t.ctx, &ev) && errno == EAGAIN);
}
static void the_device_and_its_port_fail(void **state)
{
	assert_true(in_child("dead device", "completion send 1: device fatal", dead_device, NULL));
	assert_true(in_child("port down", "send 2: port down 300 ms", port_down, NULL));
}

/* ---- calls ---- */

static void calls_run(const void *arg)
{
	struct two t;
	struct ibv_recv_wr *bad, wr = {.wr_id = 1};
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 1, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 1};
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	struct ibv_comp_channel *ch;
	CHECK(!open_lo() && errno == ENODEV);
	two_up(&t, IBV_QPT_UD, true);
	struct ibv_ah_attr ah = {
		.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}};
	struct ibv_qp_init_attr qa = {
		.send_cq = t.cq[0], .recv_cq = t.cq[0], .qp_type = IBV_QPT_RC};
	CHECK(!ibv_query_gid(t.ctx, 1, 1, &ah.grh.dgid));
	CHECK(!ibv_alloc_pd(t.ctx) && errno == ENOMEM);
	CHECK(!ibv_reg_mr(t.pd, t.buf, 64, 0) && errno == ENOMEM);
	CHECK(ibv_reg_mr(t.pd, t.buf, 64, 0));
	CHECK(!ibv_alloc_mw(t.pd, IBV_MW_TYPE_2) && errno == ENOSPC);
	CHECK(!ibv_create_comp_channel(t.ctx) && errno == EMFILE);
	CHECK((ch = ibv_create_comp_channel(t.ctx)));
	CHECK(!ibv_create_cq(t.ctx, 1, NULL, ch, 0) && errno == EINVAL);
	CHECK(ibv_resize_cq(t.cq[0], 128) == ENOMEM && !ibv_resize_cq(t.cq[0], 128));
	CHECK(ibv_req_notify_cq(t.cq[0], 0) == EIO && !ibv_req_notify_cq(t.cq[0], 0));
	CHECK(!ibv_create_srq(t.pd, &sa) && errno == ENOMEM);
	CHECK(ibv_modify_srq(t.srq, &limit, IBV_SRQ_LIMIT) == EBUSY);
	CHECK(!ibv_create_qp(t.pd, &qa) && errno == ENOSPC);
	CHECK(ibv_create_qp(t.pd, &qa));
	CHECK(!ibv_create_qp(t.pd, &qa) && errno == ENOSPC); /* every third */
	CHECK(!ibv_create_ah(t.pd, &ah) && errno == EHOSTUNREACH);
	CHECK(post(&t, IBV_WR_SEND, 1) == ENOMEM && !post(&t, IBV_WR_SEND, 1));
	bad = NULL;
	CHECK(ibv_post_recv(t.qp[0], &wr, &bad) == ENOMEM && bad == &wr);
	CHECK(!ibv_post_recv(t.qp[0], &wr, &bad));
	bad = NULL;
	CHECK(ibv_post_srq_recv(t.srq, &wr, &bad) == EIO && bad == &wr);
	CHECK(ibv_modify_qp(t.qp[0], &err, IBV_QP_STATE) == EINVAL);
	CHECK(!ibv_modify_qp(t.qp[0], &err, IBV_QP_STATE));
}
static void slow_call(const void *arg)
{
	struct timespec a, b;
	struct two t;
	two_make(&t, IBV_QPT_RC, false, 4);
	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK(ibv_reg_mr(t.pd, t.buf, 64, 0)); /* a sleep may be longer, not shorter */
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec >= 50000000);
}
static void calls_fail(void **state)
{
	assert_true(in_child("calls",
		"open_device 1: ENODEV\nalloc_pd 2: ENOMEM\nibv_reg_mr 2: ENOMEM\n"
		"alloc_mw: ENOSPC\ncreate_comp_channel 1: EMFILE\ncreate_cq 3: EINVAL\n"
		"resize_cq 1: ENOMEM\nreq_notify_cq 1: EIO\ncreate_srq 2..: ENOMEM\n"
		"modify_srq 1: EBUSY\ncreate_qp 3: ENOSPC\ncreate_qp 5: ENOSPC\n"
		"create_ah 2: EHOSTUNREACH\npost_send 1: ENOMEM\npost_recv 1: ENOMEM\n"
		"post_srq_recv 5: EIO\nmodify_qp ERR 1: EINVAL\n",
		calls_run, NULL));
	assert_true(in_child("a slow call", "reg_mr 2: take 50 ms", slow_call, NULL));
}

/* ---- completions that are late, places in bytes ---- */

static void late_run(const void *arg)
{
	struct two t;
	struct ibv_wc wc;
	struct timespec a, b;
	two_up(&t, IBV_QPT_RC, false);
	for (uint64_t k = 1; k <= 3; k++)
		CHECK(!post(&t, IBV_WR_SEND, k));
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (uint64_t k = 1; k <= 3; k++) { /* the second one's, and so the third one's behind it */
		wc = next(&t, 0);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == k);
		clock_gettime(CLOCK_MONOTONIC, &b);
		if (k == 2)
			CHECK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >=
				200);
	}
	for (int k = 0; k < 3; k++)
		CHECK(next(&t, 1).status == IBV_WC_SUCCESS);
	CHECK(!post(&t, IBV_WR_SEND, 4)); /* kept when the QP goes: nothing is left behind */
	CHECK(next(&t, 1).status == IBV_WC_SUCCESS);
	CHECK(!ibv_destroy_qp(t.qp[0]));
	usleep(300000);
	CHECK(!ibv_poll_cq(t.cq[0], 1, &wc));
	CHECK(!ibv_destroy_cq(t.cq[0]));
}
static void at_byte_run(const void *arg)
{
	struct two t;
	two_up(&t, IBV_QPT_RC, false);
	for (uint64_t k = 0; k < 6; k++)
		CHECK(!post(&t, IBV_WR_RDMA_WRITE, k));
	for (uint64_t k = 0; k < 6; k++) {
		struct ibv_wc wc = next(&t, 0);
		CHECK(wc.wr_id == k);
		CHECK(wc.status == (k < 3           ? IBV_WC_SUCCESS
					   : k == 3 ? IBV_WC_REM_ACCESS_ERR
						    : IBV_WC_WR_FLUSH_ERR));
	}
}
static void completions_are_late(void **state)
{
	assert_true(in_child("late",
		"completion send 2: late 200 ms\ncompletion send 4: late 250 ms", late_run, NULL));
	/* bytes 192 to 255 are the fourth one's */
	assert_true(in_child(
		"at byte 192", "qp 1 at byte 192: status REM_ACCESS_ERR", at_byte_run, NULL));
	assert_true(in_child(
		"at byte 255", "qp 1 at byte 255: status REM_ACCESS_ERR", at_byte_run, NULL));
}

/* ---- who is meant ---- */

static void nothing_happens(const void *arg)
{
	struct two t;
	two_up(&t, IBV_QPT_RC, false);
	CHECK(!post(&t, IBV_WR_RDMA_WRITE, 1));
	CHECK(next(&t, 0).status == IBV_WC_SUCCESS);
}
static void bad_script(const void *arg) { CHECK(!open_lo() && errno == EINVAL); }
static void fails_at_once(const void *arg) { CHECK(!open_lo() && errno == EPERM); }

static void only_the_process_that_is_meant(void **state)
{
	assert_true(in_child("another program",
		"process other\nreg_mr: ENOMEM\nsend: forge FATAL_ERR", nothing_happens, NULL));
	setenv("OMPI_COMM_WORLD_RANK", "3", 1);
	assert_true(in_child(
		"another rank", "process rank 2\nopen_device: EPERM", nothing_happens, NULL));
	assert_true(
		in_child("this rank", "process rank 3\nopen_device: EPERM", fails_at_once, NULL));
	unsetenv("OMPI_COMM_WORLD_RANK");
	assert_true(in_child(
		"all", "process other\nprocess all\nopen_device: EPERM", fails_at_once, NULL));
	assert_true(in_child("this program", "process device_script_test\nopen_device: EPERM",
		fails_at_once, NULL));
	assert_true(in_child("a bad script", "reg_mr ENOMEM", bad_script, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(statuses_have_their_causes),
		cmocka_unit_test(local_operations_fail),
		cmocka_unit_test(every_status_can_be_forged),
		cmocka_unit_test(every_event_comes),
		cmocka_unit_test(events_have_their_causes),
		cmocka_unit_test(the_device_and_its_port_fail),
		cmocka_unit_test(calls_fail),
		cmocka_unit_test(completions_are_late),
		cmocka_unit_test(only_the_process_that_is_meant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
