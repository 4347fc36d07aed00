/* SPDX-License-Identifier: BSD-3-Clause */
/* newer_test.c - calls of rdma-core that are newer than the headers here: declared as those of 65
 * have them. That they do not crash in 65's own library is tests/newest. */
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { LEN = 8192, RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

struct ibv_buf;
struct ibv_mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(
	struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);

/* What calls that the drop-in does not know read first. */
static void the_private_part_is_the_librarys(void **state)
{
	for (int i = 0; i < 200; i++) {
		struct ibv_context *c = pair_open_loopback();
		struct verbs_context *v =
			(void *)((char *)c - offsetof(struct verbs_context, context));
		assert_non_null(v->priv);
		assert_int_equal(v->sz, sizeof(*v));
		assert_int_equal(ibv_close_device(c), 0);
	}
}

static void refused(struct ibv_pd *pd, struct ibv_mr_init_attr attr, int error)
{
	errno = 0;
	assert_null(ibv_reg_mr_ex(pd, &attr));
	assert_int_equal(errno, error);
}

static void memory_is_registered_as_by_the_old_calls(void **state)
{
	struct pair p;
	struct ibv_buf *buf = NULL;
	pair_make(&p, 14, 7, 7);
	uint8_t *at = ibv_alloc_buf(p.pd, LEN, &buf);
	assert_non_null(at);
	assert_non_null(buf);
	assert_int_equal((uintptr_t)at % 4096, 0);
	assert_int_equal(ibv_export_buf_dmabuf_fd(buf), -1);
	assert_int_equal(errno, ENODATA);
	struct ibv_mr_init_attr a = {.length = LEN, .access = RW, .comp_mask = ADDR, .addr = at};
	struct ibv_mr *mr = ibv_reg_mr_ex(p.pd, &a);
	assert_non_null(mr);
	assert_true(mr->addr == at && mr->length == LEN && mr->pd == p.pd);
	assert_int_equal(pair_write_to(&p, 4, LEN, (uintptr_t)at, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(at, LEN, 4));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	a.comp_mask = ADDR | IOVA;
	a.iova = 0x5000;
	mr = ibv_reg_mr_ex(p.pd, &a);
	assert_non_null(mr);
	assert_int_equal(pair_write_to(&p, 5, LEN, 0x5000, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(at, LEN, 5));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_buf_mr(p.pd, buf, at + 64, LEN - 64, RW);
	assert_non_null(mr);
	assert_int_equal(
		pair_write_to(&p, 6, LEN - 64, (uintptr_t)at + 64, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(at + 64, LEN - 64, 6));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_null(ibv_reg_buf_mr(p.pd, buf, at + 64, LEN, RW));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_buf_mr(p.pd, buf, at - 1, 64, RW));
	struct ibv_pd *other = ibv_alloc_pd(p.ctx);
	assert_null(ibv_reg_buf_mr(other, buf, at, 64, RW));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	a = (struct ibv_mr_init_attr){
		.length = LEN, .access = RW, .addr = at, .buf = buf, .fd = -1};
	static const struct {
		uint64_t mask;
		int error;
	} rows[] = {{0, EINVAL}, {IOVA, EINVAL}, {BUF, EINVAL}, {ADDR | FD_OFFSET, EINVAL},
		{FD, EINVAL}, {FD | FD_OFFSET | IOVA | ADDR, EINVAL}, {ADDR | BUF | FD, EINVAL},
		{FD | FD_OFFSET | IOVA, EOPNOTSUPP}, {ADDR | DMAH, EOPNOTSUPP},
		{ADDR | 64, EOPNOTSUPP}, {1ull << 63, EOPNOTSUPP}};
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		a.comp_mask = rows[i].mask;
		refused(p.pd, a, rows[i].error);
	}
	ibv_free_buf(buf);
	pair_free(&p);
}

/* ---- an event that the program writes itself (rdma-core 60, Linux 6.18) ---- */

struct write_event {
	struct rdma_ucm_cmd_hdr hdr;
	uint32_t id, reserved, event, status;
	uint32_t arg[2];
	uint8_t more[256];
};
enum { WRITE_CM_EVENT = 24, USER = 18, INTERNAL = 19 };

static int ch; /* the descriptor of an event channel, as librdmacm opens it */

static ssize_t write_event(uint32_t id, uint32_t event)
{
	struct write_event w = {.hdr = {.cmd = WRITE_CM_EVENT, .in = sizeof(w) - sizeof(w.hdr)},
		.id = id,
		.event = event,
		.status = 7,
		.arg = {0x11223344, 0x55667788}};
	return write(ch, &w, sizeof(w)) == sizeof(w) ? 0 : -errno;
}

static void take(struct rdma_ucm_event_resp *got)
{
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_get_event get;
	} g = {{RDMA_USER_CM_CMD_GET_EVENT, sizeof(g.get), sizeof(*got)},
		{.response = (uintptr_t)got}};
	assert_int_equal(write(ch, &g, sizeof(g)), sizeof(g));
}

static void a_program_writes_events_to_itself(void **state)
{
	struct rdma_ucm_create_id_resp id;
	struct rdma_ucm_event_resp got;
	struct {
		struct rdma_ucm_cmd_hdr hdr;
		struct rdma_ucm_create_id create;
	} c = {{RDMA_USER_CM_CMD_CREATE_ID, sizeof(c.create), sizeof(id)},
		{.uid = 77, .response = (uintptr_t)&id, .ps = RDMA_PS_TCP}};
	ch = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	assert_true(ch >= 0);
	assert_int_equal(write(ch, &c, sizeof(c)), sizeof(c));
	assert_int_equal(write_event(id.id, USER), 0);
	assert_int_equal(write_event(id.id, INTERNAL), 0);
	assert_int_equal(write_event(id.id, 9 /* ESTABLISHED */), -EINVAL);
	assert_int_equal(write_event(id.id + 1000, USER), -ENOENT);
	for (uint32_t event = USER; event <= INTERNAL; event++) {
		static const uint32_t arg[2] = {0x11223344, 0x55667788};
		take(&got);
		assert_true(got.event == event && got.status == 7);
		assert_true(got.id == id.id && got.uid == 77);
		assert_memory_equal(&got.param, arg, sizeof(arg));
	}
	assert_int_equal(close(ch), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_private_part_is_the_librarys),
		cmocka_unit_test(memory_is_registered_as_by_the_old_calls),
		cmocka_unit_test(a_program_writes_events_to_itself),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
