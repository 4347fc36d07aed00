/* SPDX-License-Identifier: BSD-3-Clause */
/* scripted.c - see scripted.h. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "lib/test.h"
#include "scripted.h"

/* ---- one process for each case ---- */

const char *scripted_now = "";

static void load(const char *script)
{
	char path[64];
	int fd = memfd_create("script", 0);
	CHECK(fd >= 0);
	CHECK(write(fd, script, strlen(script)) == (ssize_t)strlen(script));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(!setenv("ROPEWAY_FAULT", path, 1));
}

bool scripted(const char *name, const char *script, void (*fn)(const void *arg), const void *arg)
{
	int status;
	fflush(NULL);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		scripted_now = name;
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

struct ibv_context *open_lo(void)
{
	int n;
	setenv("ROPEWAY_DEVICES", "lo", 1); /* whatever else this machine has: MTU 4096 */
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *c = NULL;
	CHECK(list);
	for (int i = 0; i < n && !c; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_lo"))
			c = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return c;
}

void two_make(struct two *t, enum ibv_qp_type type, bool srq, int cqe)
{
	enum {
		ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND
	};
	*t = (struct two){.type = type, .timeout = SOON_TIMEOUT, .retries = SOON_RETRIES};
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

void two_connect(struct two *t, int i, bool to_rts, uint8_t rd_atomic)
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
		.timeout = t->timeout,
		.retry_cnt = t->retries,
		.rnr_retry = 1,
		.max_rd_atomic = rd_atomic};
	CHECK(!ibv_modify_qp(t->qp[i], &s,
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0)));
}

void receives(struct two *t, int n)
{
	for (int k = 0; k < n; k++) {
		struct ibv_sge sge = {(uintptr_t)t->buf + BUF, 256, t->mr->lkey};
		struct ibv_recv_wr *bad, wr = {.wr_id = (uint64_t)k, .sg_list = &sge, .num_sge = 1};
		CHECK(!(t->srq ? ibv_post_srq_recv(t->srq, &wr, &bad)
			       : ibv_post_recv(t->qp[1], &wr, &bad)));
	}
}

void two_up_with(struct two *t, enum ibv_qp_type type, bool srq, uint8_t timeout, uint8_t retries)
{
	two_make(t, type, srq, 64);
	t->timeout = timeout;
	t->retries = retries;
	two_connect(t, 0, true, 4);
	two_connect(t, 1, true, 4);
	receives(t, RECVS);
}

void two_up(struct two *t, enum ibv_qp_type type, bool srq)
{
	two_up_with(t, type, srq, SOON_TIMEOUT, SOON_RETRIES);
}

int post(struct two *t, enum ibv_wr_opcode op, uint64_t id)
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

struct ibv_wc next(struct two *t, int side)
{
	struct ibv_wc wc;
	CHECK(pair_poll(t->cq[side], &wc, 20000));
	return wc;
}

bool got_event(struct two *t, enum ibv_event_type type, int ms)
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
