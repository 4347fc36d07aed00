/* SPDX-License-Identifier: BSD-3-Clause */
/* script_test.c - fault scripts: every ibv_event_type is reached; calls fail as told; completions
 * are late; the port goes down, the device dies; and only the process that is meant is harmed. */
#include "lib/test.h"
#include "scripted.h"

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
		{"at 300 ms cq 2: event CQ_ERR", IBV_EVENT_CQ_ERR},
		{"send 1: event QP_FATAL", IBV_EVENT_QP_FATAL},
		{"at 300 ms qp 1: event QP_REQ_ERR", IBV_EVENT_QP_REQ_ERR},
		{"at 300 ms qp 2: event QP_ACCESS_ERR", IBV_EVENT_QP_ACCESS_ERR},
		{"send 1 qp 1: event COMM_EST", IBV_EVENT_COMM_EST},
		{"send 1: event SQ_DRAINED", IBV_EVENT_SQ_DRAINED},
		{"at 300 ms qp 1: event PATH_MIG", IBV_EVENT_PATH_MIG},
		{"completion send 1: event PATH_MIG_ERR", IBV_EVENT_PATH_MIG_ERR},
		{"at 300 ms: device fatal", IBV_EVENT_DEVICE_FATAL},
		{"at 300 ms: event DEVICE_FATAL", IBV_EVENT_DEVICE_FATAL},
		{"at 300 ms: event PORT_ACTIVE", IBV_EVENT_PORT_ACTIVE},
		{"create_qp 2: event PORT_ERR", IBV_EVENT_PORT_ERR},
		{"at 300 ms: event LID_CHANGE", IBV_EVENT_LID_CHANGE},
		{"at 300 ms: event PKEY_CHANGE", IBV_EVENT_PKEY_CHANGE},
		{"at 300 ms: event SM_CHANGE", IBV_EVENT_SM_CHANGE},
		{"at 300 ms srq 1: event SRQ_ERR", IBV_EVENT_SRQ_ERR},
		{"send 1 srq 1: event SRQ_LIMIT_REACHED", IBV_EVENT_SRQ_LIMIT_REACHED},
		{"at 300 ms qp 2: event QP_LAST_WQE_REACHED", IBV_EVENT_QP_LAST_WQE_REACHED},
		{"at 300 ms qp 2: qp error", IBV_EVENT_QP_LAST_WQE_REACHED}, /* the cause */
		{"at 300 ms: event CLIENT_REREGISTER", IBV_EVENT_CLIENT_REREGISTER},
		{"at 300 ms: gid change", IBV_EVENT_GID_CHANGE},
	};
	unsigned bad = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		bad += !scripted(rows[i].script, rows[i].script, event_run, &rows[i].type);
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
	assert_true(scripted("real events", "# nothing\n", real_events, NULL));
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
	assert_true(scripted("dead device", "completion send 1: device fatal", dead_device, NULL));
	assert_true(scripted("port down", "send 2: port down 300 ms", port_down, NULL));
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
	/* a dma-buf that the device cannot take, as a GPU's: the script's word comes first */
	CHECK(!ibv_reg_dmabuf_mr(t.pd, 0, 64, 0, -1, 0) && errno == EBADF);
	CHECK(!ibv_reg_dmabuf_mr(t.pd, 0, 64, 0, -1, 0) && errno == EOPNOTSUPP);
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
	assert_true(scripted("calls",
		"open_device 1: ENODEV\nalloc_pd 2: ENOMEM\nibv_reg_mr 2: ENOMEM\n"
		"reg_mr 4: EBADF\n"
		"alloc_mw: ENOSPC\ncreate_comp_channel 1: EMFILE\ncreate_cq 3: EINVAL\n"
		"resize_cq 1: ENOMEM\nreq_notify_cq 1: EIO\ncreate_srq 2..: ENOMEM\n"
		"modify_srq 1: EBUSY\ncreate_qp 3: ENOSPC\ncreate_qp 5: ENOSPC\n"
		"create_ah 2: EHOSTUNREACH\npost_send 1: ENOMEM\npost_recv 1: ENOMEM\n"
		"post_srq_recv 5: EIO\nmodify_qp ERR 1: EINVAL\n",
		calls_run, NULL));
	assert_true(scripted("a slow call", "reg_mr 2: take 50 ms", slow_call, NULL));
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
	assert_true(scripted("late",
		"completion send 2: late 200 ms\ncompletion send 4: late 250 ms", late_run, NULL));
	/* bytes 192 to 255 are the fourth one's */
	assert_true(scripted(
		"at byte 192", "qp 1 at byte 192: status REM_ACCESS_ERR", at_byte_run, NULL));
	assert_true(scripted(
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
	assert_true(scripted("another program",
		"process other\nreg_mr: ENOMEM\nsend: forge FATAL_ERR", nothing_happens, NULL));
	setenv("OMPI_COMM_WORLD_RANK", "3", 1);
	assert_true(scripted(
		"another rank", "process rank 2\nopen_device: EPERM", nothing_happens, NULL));
	assert_true(
		scripted("this rank", "process rank 3\nopen_device: EPERM", fails_at_once, NULL));
	unsetenv("OMPI_COMM_WORLD_RANK");
	assert_true(scripted(
		"all", "process other\nprocess all\nopen_device: EPERM", fails_at_once, NULL));
	assert_true(scripted("this program", "process device_script_test\nopen_device: EPERM",
		fails_at_once, NULL));
	assert_true(scripted("a bad script", "reg_mr ENOMEM", bad_script, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_event_comes),
		cmocka_unit_test(events_have_their_causes),
		cmocka_unit_test(the_device_and_its_port_fail),
		cmocka_unit_test(calls_fail),
		cmocka_unit_test(completions_are_late),
		cmocka_unit_test(only_the_process_that_is_meant),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
