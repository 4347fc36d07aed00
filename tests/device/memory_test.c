/* SPDX-License-Identifier: BSD-3-Clause */
/* memory_test.c - what packets may and may not do to a process's memory: through the drop-in, as a
 * program sees it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

static void write_and_read_move_every_byte(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	static const uint32_t sizes[] = {1, 7, 8, 1023, 1024, 1025, 4096, 65536, 65537, 1 << 20};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		IN_CASE("bytes", sizes[i]);
		pattern_fill(p.a.buf, sizes[i], i + 1);
		memset(p.b.buf, 0, PAIR_BUF);
		assert_int_equal(pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, sizes[i], (uintptr_t)p.b.buf,
					 p.b.mr->rkey),
			0);
		assert_true(pair_poll(p.a.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, 0x5e4d);
		assert_true(pattern_holds(p.b.buf, sizes[i], i + 1));
		memset(p.a.buf, 0, PAIR_BUF);
		assert_int_equal(pair_send(&p.a, IBV_WR_RDMA_READ, 0, sizes[i], (uintptr_t)p.b.buf,
					 p.b.mr->rkey),
			0);
		assert_true(pair_poll(p.a.cq, &wc, 5000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.opcode, IBV_WC_RDMA_READ);
		assert_true(pattern_holds(p.a.buf, sizes[i], i + 1));
	}
	pair_free(&p);
}

static void send_fills_the_posted_buffer(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	pair_recv(&p.b, 4096, 100000, 77);
	pattern_fill(p.a.buf, 70001, 9);
	assert_int_equal(pair_send(&p.a, IBV_WR_SEND, 0, 70001, 0, 0), 0);
	assert_true(pair_poll(p.b.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_int_equal(wc.wr_id, 77);
	assert_int_equal(wc.byte_len, 70001);
	assert_true(pattern_holds(p.b.buf + 4096, 70001, 9));
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	pair_free(&p);
}

static void atomics_return_the_old_value(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	uint64_t v = 0x1122334455667788, old;
	pair_make(&p, 14, 7, 7);
	struct ibv_device_attr attr;
	assert_int_equal(ibv_query_device(p.ctx, &attr), 0);
	assert_int_equal(attr.atomic_cap, IBV_ATOMIC_HCA); /* UCX looks for nothing else */
	memcpy(p.b.buf + 64, &v, 8);
	struct ibv_sge sge = {.addr = (uintptr_t)p.a.buf, .length = 8, .lkey = p.a.mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &sge, .num_sge = 1};
	wr.wr.atomic.remote_addr = (uintptr_t)p.b.buf + 64;
	wr.wr.atomic.rkey = p.b.mr->rkey;
	wr.wr.atomic.compare_add = 5;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	memcpy(&old, p.a.buf, 8);
	assert_true(old == v);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = v + 5;
	wr.wr.atomic.swap = 42;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	memcpy(&old, p.b.buf + 64, 8);
	assert_true(old == 42);
	pair_free(&p);
}

/* A bad rkey, bounds or access: the request fails with the remote's verdict, no byte changes. */
static void refused(uint64_t raddr_off, int64_t raddr_delta, uint32_t rkey_xor, int access,
	enum ibv_wr_opcode op)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	pattern_fill(p.b.buf, PAIR_BUF, 3);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, p.b.buf + 8192, 8192, access);
	assert_non_null(mr);
	assert_int_equal(
		pair_send(&p.a, op, 0, 4096, (uintptr_t)p.b.buf + raddr_off + (uint64_t)raddr_delta,
			mr->rkey ^ rkey_xor),
		0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	assert_true(pattern_holds(p.b.buf, PAIR_BUF, 3));
	struct ibv_async_event ev;
	assert_int_equal(ibv_get_async_event(p.ctx, &ev), 0);
	while (ev.event_type == IBV_EVENT_COMM_EST) {
		ibv_ack_async_event(&ev);
		assert_int_equal(ibv_get_async_event(p.ctx, &ev), 0);
	}
	assert_int_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
	assert_ptr_equal(ev.element.qp, p.b.qp);
	ibv_ack_async_event(&ev);
	/* And the next one is flushed. */
	assert_int_equal(
		pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.buf, p.b.mr->rkey), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
	ibv_dereg_mr(mr);
	pair_free(&p);
}

enum { RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
static void a_wrong_rkey_is_refused(void **state) { refused(8192, 0, 0x55, RW, IBV_WR_RDMA_WRITE); }
static void bytes_before_the_region_are_refused(void **state)
{
	refused(8192, -1, 0, RW, IBV_WR_RDMA_WRITE);
}
static void bytes_after_the_region_are_refused(void **state)
{
	refused(8192, 4097, 0, RW, IBV_WR_RDMA_WRITE);
}
static void a_write_without_the_right_is_refused(void **state)
{
	refused(8192, 0, 0, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE);
}
static void a_read_without_the_right_is_refused(void **state)
{
	refused(8192, 0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ);
}

static void unmapped_target(enum ibv_wr_opcode op)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	uint8_t *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, 65536, RW);
	assert_int_equal(munmap(m + 32768, 32768), 0);
	assert_int_equal(pair_send(&p.a, op, 0, 65536, (uintptr_t)m, mr->rkey), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_REM_ACCESS_ERR);
	ibv_dereg_mr(mr);
	munmap(m, 32768);
	pair_free(&p);
}
static void a_write_to_unmapped_memory_is_a_protection_error(void **state)
{
	unmapped_target(IBV_WR_RDMA_WRITE);
}
static void a_read_of_unmapped_memory_is_a_protection_error(void **state)
{
	unmapped_target(IBV_WR_RDMA_READ);
}

/* A thread that blocks every signal, as a daemon's do: since before its first call, or later, in
 * each way that the C library has. And one that opens its mask again. */
enum { BY_PTHREAD_SIGMASK, BY_SIGPROCMASK, BY_SIGHOLD, BY_SIGSETMASK, WAYS };
static void block(int way)
{
	sigset_t all;
	sigfillset(&all);
	switch (way) {
	case BY_PTHREAD_SIGMASK:
		pthread_sigmask(SIG_SETMASK, &all, NULL);
		break;
	case BY_SIGPROCMASK:
		sigprocmask(SIG_BLOCK, &all, NULL);
		break;
	case BY_SIGHOLD:
		sighold(SIGSEGV);
		break;
	default:
		sigsetmask(-1);
	}
}

static void *blocking_thread(void *arg)
{
	const int *way = arg;
	sigset_t none;
	sigemptyset(&none);
	if (*way >= 0)
		block(*way);
	unmapped_target(IBV_WR_RDMA_WRITE);
	for (int other = 0; other < WAYS; other++) {
		pthread_sigmask(SIG_SETMASK, &none, NULL);
		unmapped_target(IBV_WR_RDMA_READ);
		block(other);
		unmapped_target(IBV_WR_RDMA_WRITE);
	}
	return arg;
}

static void unmapped_memory_is_an_error_where_all_signals_are_blocked(void **state)
{
	for (int way = -1; way < WAYS; way++) {
		pthread_t t;
		void *done;
		assert_int_equal(pthread_create(&t, NULL, blocking_thread, &way), 0);
		assert_int_equal(pthread_join(t, &done), 0);
		assert_ptr_equal(done, &way);
	}
}

static void sending_unmapped_memory_is_a_local_protection_error(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	uint8_t *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, 65536, RW);
	pattern_fill(m, 65536, 4);
	assert_int_equal(munmap(m + 16384, 16384), 0);
	struct ibv_sge sge = {.addr = (uintptr_t)m, .length = 65536, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
	wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf;
	wr.wr.rdma.rkey = p.b.mr->rkey;
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_LOC_PROT_ERR);
	ibv_dereg_mr(mr);
	munmap(m, 65536);
	pair_free(&p);
}

/* A receive posted late: RNR NAKs, then it arrives. Never posted: the retries of the attribute,
 * then the error. */
/* A dma-buf is what can be mapped; the peer reaches it by the address that was chosen for it, also
 * when the descriptor is closed. */
static void a_dma_buf_is_reached_by_its_descriptor(void **state)
{
	enum { BUF = 256 << 10, OFFSET = 4096 + 24, LEN = BUF - 3 * 4096 };
	const uint64_t iova = 0x7000000018;
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	int fd = memfd_create("dma-buf", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, BUF), 0);
	uint8_t *seen = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pattern_fill(seen, BUF, 1);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(p.pd, OFFSET, LEN, iova, fd, RW);
	assert_non_null(mr);
	close(fd);
	assert_int_equal(mr->length, LEN);
	pattern_fill(p.a.buf, LEN, 2);
	assert_int_equal(pair_send(&p.a, IBV_WR_RDMA_WRITE, 0, LEN, iova, mr->rkey), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	memset(p.a.buf, 0, LEN);
	assert_int_equal(pair_send(&p.a, IBV_WR_RDMA_READ, 0, LEN - 9, iova + 9, mr->rkey), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_memory_equal(p.a.buf, seen + OFFSET + 9, LEN - 9);
	assert_true(pattern_holds(seen + OFFSET, LEN, 2));
	pattern_fill(p.a.buf, BUF, 1);
	assert_memory_equal(seen, p.a.buf, OFFSET);
	assert_memory_equal(seen + OFFSET + LEN, p.a.buf + OFFSET + LEN, BUF - OFFSET - LEN);
	/* As the local side, too. */
	struct ibv_sge sge = {.addr = iova, .length = LEN, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}};
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf, LEN, 2));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(seen, BUF);
	pair_free(&p);
}

static void refused_dma_buf(
	const struct pair *p, uint64_t offset, size_t len, int fd, int access, int error)
{
	errno = 0;
	assert_null(ibv_reg_dmabuf_mr(p->pd, offset, len, 0x1000, fd, access));
	assert_int_equal(errno, error);
}

/* EBADF for a descriptor that is none, EOPNOTSUPP for a buffer that the processor cannot reach, and
 * for -1, by which programs ask what a device can. */
static void what_is_no_dma_buf_is_refused_by_its_errno(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	int fd = memfd_create("dma-buf", MFD_CLOEXEC),
	    unmappable = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), ends[2];
	assert_int_equal(ftruncate(fd, 65536), 0);
	assert_int_equal(pipe(ends), 0);
	refused_dma_buf(&p, 0, 4096, -1, RW, EOPNOTSUPP);
	refused_dma_buf(&p, 0, 4096, 1 << 20, RW, EBADF);
	refused_dma_buf(&p, 0, 0, fd, RW, EINVAL);
	refused_dma_buf(&p, 0, 65537, fd, RW, EINVAL);
	refused_dma_buf(&p, 65535, 2, fd, RW, EINVAL);
	refused_dma_buf(&p, UINT64_MAX, 2, fd, RW, EINVAL);
	refused_dma_buf(&p, 0, 4096, ends[0], RW, EINVAL);
	refused_dma_buf(&p, 0, 1, unmappable, IBV_ACCESS_REMOTE_READ, EOPNOTSUPP);
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(p.pd, 65535, 1, 0, fd, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_not_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, &p, 8, 0), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	close(fd);
	close(unmappable);
	close(ends[0]);
	close(ends[1]);
	pair_free(&p);
}

static void a_late_receive_is_waited_for(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 7);
	pattern_fill(p.a.buf, 5000, 11);
	assert_int_equal(pair_send(&p.a, IBV_WR_SEND, 0, 5000, 0, 0), 0);
	assert_false(pair_poll(p.a.cq, &wc, 50));
	pair_recv(&p.b, 0, 8192, 1);
	assert_true(pair_poll(p.b.cq, &wc, 5000));
	assert_true(pattern_holds(p.b.buf, 5000, 11));
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	pair_free(&p);
}

static void a_receive_never_posted_ends_the_retries(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 14, 7, 3);
	assert_int_equal(pair_send(&p.a, IBV_WR_SEND, 0, 5000, 0, 0), 0);
	assert_true(pair_poll(p.a.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
	pair_free(&p);
}

static void errors_flush_in_order(void **state)
{
	struct pair p;
	struct ibv_wc wc;
	pair_make(&p, 8, 1, 0);
	for (uint64_t i = 0; i < 5; i++)
		pair_recv(&p.a, 0, 64, 100 + i);
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	assert_int_equal(ibv_modify_qp(p.a.qp, &err, IBV_QP_STATE), 0);
	for (uint64_t i = 0; i < 5; i++) {
		assert_true(pair_poll(p.a.cq, &wc, 1000));
		assert_int_equal(wc.status, IBV_WC_WR_FLUSH_ERR);
		assert_int_equal(wc.wr_id, 100 + i);
	}
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_and_read_move_every_byte),
		cmocka_unit_test(send_fills_the_posted_buffer),
		cmocka_unit_test(atomics_return_the_old_value),
		cmocka_unit_test(a_wrong_rkey_is_refused),
		cmocka_unit_test(bytes_before_the_region_are_refused),
		cmocka_unit_test(bytes_after_the_region_are_refused),
		cmocka_unit_test(a_write_without_the_right_is_refused),
		cmocka_unit_test(a_read_without_the_right_is_refused),
		cmocka_unit_test(a_write_to_unmapped_memory_is_a_protection_error),
		cmocka_unit_test(a_read_of_unmapped_memory_is_a_protection_error),
		cmocka_unit_test(unmapped_memory_is_an_error_where_all_signals_are_blocked),
		cmocka_unit_test(sending_unmapped_memory_is_a_local_protection_error),
		cmocka_unit_test(a_dma_buf_is_reached_by_its_descriptor),
		cmocka_unit_test(what_is_no_dma_buf_is_refused_by_its_errno),
		cmocka_unit_test(a_late_receive_is_waited_for),
		cmocka_unit_test(a_receive_never_posted_ends_the_retries),
		cmocka_unit_test(errors_flush_in_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
