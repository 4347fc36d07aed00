/* SPDX-License-Identifier: BSD-3-Clause */
/* regions_test.c - memory regions that change, that are on demand, and that have no memory.
 * Through the drop-in, as a program sees it. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/utsname.h>

#include "lib/test.h"
#include "pair.h"

enum { RW = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static int rereg_errno(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len,
	int access, int want)
{
	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, flags, pd, addr, len, access), want);
	return errno;
}

static void a_region_is_changed_in_each_way(void **state)
{
	enum {
		T = IBV_REREG_MR_CHANGE_TRANSLATION,
		PD = IBV_REREG_MR_CHANGE_PD,
		A = IBV_REREG_MR_CHANGE_ACCESS
	};
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_pd *other = ibv_alloc_pd(p.ctx);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, p.b.buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	uint32_t key = mr->rkey;
	uint8_t *b = p.b.buf;
	/* What is refused changes nothing. */
	assert_int_equal(rereg_errno(mr, 8, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT), EINVAL);
	assert_int_equal(rereg_errno(mr, T, NULL, NULL, 64, 0, IBV_REREG_MR_ERR_INPUT), EINVAL);
	assert_int_equal(rereg_errno(mr, T, NULL, b, 0, 0, IBV_REREG_MR_ERR_INPUT), EINVAL);
	assert_int_equal(rereg_errno(mr, PD, other, NULL, 0, RW, IBV_REREG_MR_ERR_INPUT), EINVAL);
	assert_int_equal(rereg_errno(mr, 0, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_CMD), EINVAL);
	assert_int_equal(rereg_errno(mr, PD, NULL, NULL, 0, 0, IBV_REREG_MR_ERR_CMD), EINVAL);
	assert_int_equal(
		rereg_errno(mr, A, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE, IBV_REREG_MR_ERR_CMD),
		EINVAL);
	assert_int_equal(
		rereg_errno(mr, A, NULL, NULL, 0, 1 << 10, IBV_REREG_MR_ERR_CMD), EOPNOTSUPP);
	assert_int_equal(rereg_errno(mr, T, NULL, b, SIZE_MAX, 0, IBV_REREG_MR_ERR_CMD), EINVAL);
	assert_true(mr->rkey == key && mr->pd == p.pd && mr->addr == b && mr->length == 4096);
	/* Rights: the key stays, and lets more in. */
	assert_int_equal(ibv_rereg_mr(mr, A, NULL, NULL, 0, RW), 0);
	assert_int_equal(mr->rkey, key);
	assert_int_equal(pair_write_to(&p, 1, 4096, (uintptr_t)b, key), IBV_WC_SUCCESS);
	assert_true(pattern_holds(b, 4096, 1));
	/* Memory: the old key reaches none, the new one what lies elsewhere. */
	assert_int_equal(ibv_rereg_mr(mr, T, NULL, b + 65536, 8192, 0), 0);
	assert_int_not_equal(mr->rkey, key);
	assert_true(mr->addr == b + 65536 && mr->length == 8192);
	assert_int_equal(
		pair_write_to(&p, 2, 8192, (uintptr_t)b + 65536, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(b + 65536, 8192, 2));
	assert_true(pattern_holds(b, 4096, 1));
	/* All at once; in the other PD nobody of ours may. */
	assert_int_equal(ibv_rereg_mr(mr, T | PD | A, other, b, 64, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_ptr_equal(mr->pd, other);
	assert_int_equal(ibv_dealloc_pd(other), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, A, NULL, NULL, 0, RW), 0);
	assert_int_equal(pair_write_to(&p, 3, 8, (uintptr_t)b, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_true(pattern_holds(b, 4096, 1));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(other), 0);
	pair_free(&p);
}

static void all_of_memory_is_one_region_on_demand(void **state)
{
	struct pair p;
	pair_make(&p, 14, 7, 7);
	struct ibv_device_attr_ex attr;
	assert_int_equal(ibv_query_device_ex(p.ctx, NULL, &attr), 0);
	assert_int_equal(attr.odp_caps.general_caps, IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT);
	assert_true(attr.device_cap_flags_ex & 1ull << 40); /* ATOMIC WRITE */
	struct ibv_mr *mr = ibv_reg_mr(p.pd, NULL, SIZE_MAX, RW | IBV_ACCESS_ON_DEMAND);
	assert_non_null(mr);
	/* Memory that was mapped after the registration, and taken away again. */
	uint8_t *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(pair_write_to(&p, 1, 65536, (uintptr_t)m, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(m, 65536, 1));
	/* As the local side, too. */
	struct ibv_sge sge = {.addr = (uintptr_t)m, .length = 65536, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}};
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	assert_true(pattern_holds(p.b.buf, 65536, 1));
	/* What is mapped to be read alone is not written; what is not mapped is an error. */
	assert_int_equal(mprotect(m, 65536, PROT_READ), 0);
	assert_int_equal(pair_write_to(&p, 2, 8, (uintptr_t)m, mr->rkey), IBV_WC_REM_ACCESS_ERR);
	assert_true(pattern_holds(m, 65536, 1));
	munmap(m, 65536);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	errno = 0;
	assert_null(ibv_reg_mr(p.pd, NULL, SIZE_MAX, RW));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(p.pd, p.b.buf, SIZE_MAX, RW | IBV_ACCESS_ON_DEMAND));
	assert_int_equal(errno, EINVAL);
	pair_free(&p);
}

static bool kernel_tells_rights(void)
{
	struct utsname u;
	unsigned major, minor;
	assert_int_equal(uname(&u), 0);
	assert_int_equal(sscanf(u.release, "%u.%u", &major, &minor), 2);
	return major > 6 || (major == 6 && minor >= 11);
}

/* As a kernel that pins it (ib_umem_get) refuses it; on demand nothing is looked at. */
static void what_no_kernel_registers_is_refused(void **state)
{
	enum { PAGE = 4096, L = IBV_ACCESS_LOCAL_WRITE, RR = IBV_ACCESS_REMOTE_READ };
	struct pair p;
	pair_make(&p, 14, 7, 7);
	int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *holed = mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	uint8_t *ro = mmap(NULL, PAGE, PROT_READ, flags, -1, 0);
	uint8_t *none = mmap(NULL, PAGE, PROT_NONE, flags, -1, 0);
	uint8_t *mixed = mmap(NULL, 9 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	munmap(holed + 2 * PAGE, PAGE);
	assert_int_equal(mprotect(mixed + 4 * PAGE, PAGE, PROT_READ), 0);
	const struct {
		void *addr;
		size_t len;
		int access, want; /* 0: registered */
	} rows[] = {
		{NULL, PAGE, L, EFAULT},
		{(void *)PAGE, PAGE, L, EFAULT},
		{holed, 5 * PAGE, L, EFAULT},
		{holed, 2 * PAGE + 1, L, EFAULT},
		{holed, 2 * PAGE, L, 0},
		{holed + 3 * PAGE, PAGE, L, 0},
		{holed + 2 * PAGE - 1, 1, L, 0},
		{holed + 2 * PAGE, PAGE, L, EFAULT},
		{ro, PAGE, L, EFAULT},
		{ro, PAGE, L | IBV_ACCESS_REMOTE_WRITE, EFAULT},
		{ro, PAGE, IBV_ACCESS_MW_BIND, EFAULT},
		{ro, PAGE, RR, 0},
		{ro, PAGE, 0, 0},
		{none, PAGE, L, EFAULT},
		{none, PAGE, RR, EFAULT},
		{mixed, 9 * PAGE, L,
			EFAULT}, /* though its first and its last page can be written */
		{mixed, 9 * PAGE, RR, 0},
		{mixed, 4 * PAGE, L, 0},
		{(void *)0xffff800000000000ul, PAGE, L, EFAULT},
		{(void *)-(uintptr_t)PAGE, 2 * PAGE, L, EINVAL},
		{holed, (size_t)1 << 50, L, EFAULT},
		{holed, 0, L, EINVAL},
		{holed, 2 * PAGE, IBV_ACCESS_REMOTE_WRITE, EINVAL},
		{holed, 2 * PAGE, IBV_ACCESS_REMOTE_ATOMIC, EINVAL},
		{holed, 5 * PAGE, L | IBV_ACCESS_ON_DEMAND, 0},
		{none, PAGE, L | IBV_ACCESS_ON_DEMAND, 0},
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		IN_CASE("row", i);
		bool by_rights = rows[i].addr == (void *)ro || rows[i].addr == (void *)none ||
				 rows[i].addr == (void *)mixed;
		if (by_rights && rows[i].want && !kernel_tells_rights())
			continue; /* gaps alone: mapped.h */
		errno = 0;
		struct ibv_mr *mr = ibv_reg_mr(p.pd, rows[i].addr, rows[i].len, rows[i].access);
		if ((rows[i].want != 0) != !mr || (!mr && errno != rows[i].want))
			fail_msg("row %zu: %s, errno %d", i, mr ? "registered" : "refused", errno);
		if (mr)
			assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	struct ibv_mr *mr = ibv_reg_mr(p.pd, holed, 2 * PAGE, L);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, holed, 5 * PAGE, 0),
		IBV_REREG_MR_ERR_CMD);
	assert_int_equal(errno, EFAULT);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(holed, 5 * PAGE);
	munmap(ro, PAGE);
	munmap(none, PAGE);
	munmap(mixed, 9 * PAGE);
	pair_free(&p);
}

static unsigned resident(uint8_t *at, size_t len)
{
	unsigned char in[256];
	unsigned n = 0;
	assert_int_equal(mincore(at, len, in), 0);
	for (size_t i = 0; i < len / 4096; i++)
		n += in[i] & 1;
	return n;
}

static void registering_brings_no_page_in(void **state)
{
	enum { LEN = 64 * 4096 };
	struct pair p;
	pair_make(&p, 14, 7, 7);
	uint8_t *m = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, LEN, RW);
	assert_non_null(mr);
	assert_int_equal(resident(m, LEN), 0);
	assert_int_equal(pair_write_to(&p, 1, LEN, (uintptr_t)m, mr->rkey), IBV_WC_SUCCESS);
	assert_true(pattern_holds(m, LEN, 1));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(m, LEN);
	pair_free(&p);
}

/* A range of many mappings, of which only the first are looked at one by one: gaps are found all
 * the same. */
static void many_mappings(void **state)
{
	enum { PAGES = 400, PAGE = 4096 };
	struct pair p;
	pair_make(&p, 14, 7, 7);
	uint8_t *m = mmap(
		NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < PAGES; i += 2)
		assert_int_equal(
			mprotect(m + i * PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, PAGES * PAGE, RW);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(m + 300 * PAGE, PAGE);
	assert_null(ibv_reg_mr(p.pd, m, PAGES * PAGE, RW));
	assert_int_equal(errno, EFAULT);
	munmap(m, PAGES * PAGE);
	pair_free(&p);
}

static void advice_brings_pages_in(void **state)
{
	enum { LEN = 64 * 4096, FLUSH = IBV_ADVISE_MR_FLAG_FLUSH };
	struct pair p;
	pair_make(&p, 14, 7, 7);
	uint8_t *m = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, LEN, access),
		      *pinned = ibv_reg_mr(p.pd, p.b.buf, LEN, RW),
		      *ro = ibv_reg_mr(p.pd, m, LEN, IBV_ACCESS_ON_DEMAND);
	struct ibv_sge sge[2] = {{(uintptr_t)m, 10 * 4096, mr->lkey},
		{(uintptr_t)m + 32 * 4096 + 5, 4096, mr->lkey}};
	enum ibv_advise_mr_advice r = IBV_ADVISE_MR_ADVICE_PREFETCH,
				  w = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
				  n = IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
	assert_int_equal(resident(m, LEN), 0);
	assert_int_equal(ibv_advise_mr(p.pd, n, FLUSH, sge, 2), 0);
	assert_int_equal(ibv_advise_mr(p.pd, w, 0, sge, 2), 0); /* may bring in, or not */
	assert_int_equal(ibv_advise_mr(p.pd, w, FLUSH, sge, 2), 0);
	assert_int_equal(resident(m, LEN), 12); /* the second touches two */
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 2), 0);
	/* Errors, as kernel rxe has them. */
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 0), EINVAL);
	assert_int_equal(ibv_advise_mr(p.pd, r, 2, sge, 1), EINVAL);
	assert_int_equal(
		ibv_advise_mr(p.pd, (enum ibv_advise_mr_advice)9, FLUSH, sge, 1), EOPNOTSUPP);
	sge[0].lkey ^= 0x1000;
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 1), EINVAL);
	sge[0].lkey = pinned->lkey;
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 1), EINVAL);
	sge[0].lkey = ro->lkey;
	assert_int_equal(ibv_advise_mr(p.pd, w, FLUSH, sge, 1), EPERM);
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 1), 0);
	sge[0] = (struct ibv_sge){(uintptr_t)m + LEN - 4095, 4096, mr->lkey};
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 1), EFAULT);
	sge[0] = (struct ibv_sge){(uintptr_t)m, LEN, mr->lkey};
	munmap(m, 4096);
	assert_int_equal(ibv_advise_mr(p.pd, r, FLUSH, sge, 1), EFAULT);
	assert_int_equal(ibv_advise_mr(p.pd, r, 0, sge, 1), 0);
	assert_int_equal(ibv_dereg_mr(mr) | ibv_dereg_mr(pinned) | ibv_dereg_mr(ro), 0);
	munmap(m, LEN);
	pair_free(&p);
}

static void a_region_without_memory_reads_as_zeros_and_drops_writes(void **state)
{
	enum { LEN = PAIR_BUF };
	struct pair p;
	struct ibv_wc wc;
	pair_make_mtu(&p, IBV_MTU_4096);
	struct ibv_mr *null = ibv_alloc_null_mr(p.pd);
	assert_non_null(null);
	pattern_fill(p.b.buf, LEN, 1);
	struct ibv_sge sge[3] = {{(uintptr_t)p.a.buf, 100, p.a.mr->lkey},
		{0, LEN - 200, null->lkey}, {(uintptr_t)p.a.buf + 100, 100, p.a.mr->lkey}};
	struct ibv_send_wr *bad, wr = {.sg_list = sge,
					 .num_sge = 3,
					 .opcode = IBV_WR_RDMA_READ,
					 .wr.rdma = {(uintptr_t)p.b.buf, p.b.mr->rkey}};
	memset(p.a.buf, 0, 200);
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	assert_memory_equal(p.a.buf, p.b.buf, 100);
	assert_memory_equal(p.a.buf + 100, p.b.buf + LEN - 100, 100);
	wr.opcode = IBV_WR_RDMA_WRITE;
	pattern_fill(p.a.buf, 200, 2);
	assert_int_equal(ibv_post_send(p.a.qp, &wr, &bad), 0);
	assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	assert_memory_equal(p.b.buf, p.a.buf, 100);
	assert_memory_equal(p.b.buf + LEN - 100, p.a.buf + 100, 100);
	for (size_t i = 100; i < LEN - 100; i++)
		assert_int_equal(p.b.buf[i], 0);
	/* A receive into it: the length is told. */
	struct ibv_sge into = {0x1234, 70000, null->lkey};
	struct ibv_recv_wr *bad_recv, recv = {.sg_list = &into, .num_sge = 1};
	assert_int_equal(ibv_post_recv(p.b.qp, &recv, &bad_recv), 0);
	assert_int_equal(pair_send(&p.a, IBV_WR_SEND, 0, 65537, 0, 0), 0);
	assert_true(pair_poll(p.b.cq, &wc, 5000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 65537);
	assert_int_equal(side_done(&p.a), IBV_WC_SUCCESS);
	/* It is nobody's to reach from outside, nor to change. */
	assert_int_equal(rereg_errno(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RW,
				 IBV_REREG_MR_ERR_INPUT),
		EINVAL);
	assert_int_equal(pair_write_to(&p, 1, 8, 0, null->lkey), IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(null), 0);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_region_is_changed_in_each_way),
		cmocka_unit_test(all_of_memory_is_one_region_on_demand),
		cmocka_unit_test(what_no_kernel_registers_is_refused),
		cmocka_unit_test(registering_brings_no_page_in),
		cmocka_unit_test(many_mappings),
		cmocka_unit_test(advice_brings_pages_in),
		cmocka_unit_test(a_region_without_memory_reads_as_zeros_and_drops_writes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
