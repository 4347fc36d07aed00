/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - memory regions and windows. */
#include "probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- what is refused ---- */

enum {
	LENGTH_0,
	NULL_LENGTH_0,
	PROT_NOTHING,
	GAP,
	READ_ONLY,
	UNMAPPED,
	KERNEL,
	HUGE_LENGTH,
	WRAPS,
	FILE_READ_ONLY,
	FILE_PRIVATE,
	USUAL
};

static uint8_t *file_pages(int flags)
{
	int fd = memfd_create("probe", 0), again;
	char path[64];
	uint8_t *at;

	MUST(fd >= 0 && !ftruncate(fd, PAGE));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	MUST((again = open(path, O_RDONLY)) >= 0);
	at = mmap(NULL, PAGE, PROT_READ, flags, again, 0);
	MUST(at != MAP_FAILED);
	return at;
}

/* a: of which memory; b: access. */
static void ask_reg(const struct question *q)
{
	uint8_t *at = pages((size_t)4 * PAGE);
	size_t length = PAGE;

	open_device();
	switch (q->a) {
	case LENGTH_0:
		length = 0;
		break;
	case NULL_LENGTH_0:
		at = NULL;
		length = 0;
		break;
	case PROT_NOTHING:
		MUST(!mprotect(at, PAGE, PROT_NONE));
		break;
	case GAP:
		MUST(!munmap(at + PAGE, PAGE));
		length = (size_t)3 * PAGE;
		break;
	case READ_ONLY:
		MUST(!mprotect(at, PAGE, PROT_READ));
		break;
	case UNMAPPED:
		MUST(!munmap(at, (size_t)4 * PAGE));
		break;
	case KERNEL:
		at = (uint8_t *)0xffff800000000000U;
		break;
	case HUGE_LENGTH:
		length = (size_t)1 << 50;
		break;
	case WRAPS:
		length = (size_t)0 - PAGE;
		break;
	case FILE_READ_ONLY:
		at = file_pages(MAP_SHARED);
		break;
	case FILE_PRIVATE:
		at = file_pages(MAP_PRIVATE);
		break;
	default:
		break;
	}
	say_made("ibv_reg_mr", ibv_reg_mr(pd, at, length, (int)q->b));
}

static void ask_iova(const struct question *q)
{
	uint8_t *at = pages((size_t)4 * PAGE);

	open_device();
	say_made("ibv_reg_mr_iova",
		ibv_reg_mr_iova(pd, at, PAGE, (uint64_t)q->a, IBV_ACCESS_LOCAL_WRITE));
}

static void ask_keys(const struct question *q)
{
	uint8_t *at = pages(PAGE);
	struct ibv_mr *a, *b;

	(void)q;
	open_device();
	MUST(a = ibv_reg_mr(pd, at, PAGE, ALL_ACCESS));
	MUST(b = ibv_reg_mr(pd, at, PAGE, IBV_ACCESS_LOCAL_WRITE));
	say("lkey and rkey %s", a->lkey == a->rkey ? "are equal" : "differ");
	say("without remote access the rkey is %s", b->rkey == b->lkey ? "the lkey"
						    : b->rkey          ? "another"
								       : "0");
	say("two of one memory: %s", a->lkey == b->lkey ? "one key" : "two keys");
}

static void ask_key_again(const struct question *q)
{
	uint8_t *at = pages(PAGE);
	struct ibv_mr *a, *b;
	uint32_t key;

	(void)q;
	open_device();
	MUST(a = ibv_reg_mr(pd, at, PAGE, ALL_ACCESS));
	key = a->rkey;
	MUST(!ibv_dereg_mr(a));
	MUST(b = ibv_reg_mr(pd, at, PAGE, ALL_ACCESS));
	say("a key that was freed comes back at once: %s", b->rkey == key ? "yes" : "no");
}

/* ---- use ---- */

/* What is written through a region with an I/O address of its own arrives where it should. */
static void ask_iova_use(const struct question *q)
{
	struct side a, b;
	struct ibv_mr *mr;

	(void)q;
	make_pair(&a, &b, NULL);
	mr = ibv_reg_mr_iova(pd, b.buf, PAGE, 0x10000, ALL_ACCESS);
	if (!mr) {
		say_made("ibv_reg_mr_iova", mr);
		return;
	}
	pattern_fill(a.buf, 64, 1);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, 0x10000 + 100, mr->rkey));
	say_completion("WRITE", a.cq, false);
	if (!pattern_holds(b.buf + 100, 64, 1))
		wrong_bytes("a region with an address of its own");
}

static void ask_zero_based(const struct question *q)
{
	struct side a, b;
	struct ibv_mr *mr;

	(void)q;
	make_pair(&a, &b, NULL);
	mr = ibv_reg_mr(pd, b.buf, PAGE, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	if (!mr) {
		say_made("ibv_reg_mr", mr);
		return;
	}
	pattern_fill(a.buf, 64, 1);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, 100, mr->rkey));
	say_completion("WRITE to offset 100", a.cq, false);
	say("bytes %s", pattern_holds(b.buf + 100, 64, 1) ? "arrived" : "did not arrive");
}

static void ask_dereg_posted(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!post_receive(&b, 0, 64));
	say_rc("ibv_dereg_mr", ibv_dereg_mr(b.mr));
	MUST(!post(&a, IBV_WR_SEND, 0, 16, 0, 0));
	say_completion("SEND", a.cq, false);
	say_completion("receive", b.cq, false);
}

static void ask_dereg_written(const struct question *q)
{
	struct side a, b;
	uint32_t rkey;

	(void)q;
	make_pair(&a, &b, NULL);
	rkey = b.mr->rkey;
	MUST(!ibv_dereg_mr(b.mr));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, rkey));
	say_completion("WRITE", a.cq, false);
}

static void ask_unmapped_use(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_pair(&a, &b, NULL);
	MUST(!munmap(b.buf, BUF));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, b.mr->rkey));
	say_completion("WRITE", a.cq, false);
}

/* ---- ibv_rereg_mr ---- */

static void ask_rereg(const struct question *q)
{
	struct ibv_pd *other;
	struct ibv_mr *mr;

	open_device();
	MUST(other = ibv_alloc_pd(ctx));
	MUST(mr = ibv_reg_mr(pd, pages(PAGE), PAGE, IBV_ACCESS_LOCAL_WRITE));
	say_rc("ibv_rereg_mr", ibv_rereg_mr(mr, (int)q->a, other, pages(PAGE), PAGE, (int)q->b));
}

/* ---- windows ---- */

static struct ibv_mw *window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	MUST(mw);
	return mw;
}

static void ask_mw(const struct question *q)
{
	open_device();
	say_made("ibv_alloc_mw", ibv_alloc_mw(pd, (enum ibv_mw_type)q->a));
}

/* A pair whose side b has a region that windows may be bound to. */
static struct ibv_mr *bindable(struct side *a, struct side *b)
{
	struct ibv_mr *mr;

	make_pair(a, b, NULL);
	MUST(mr = ibv_reg_mr(pd, b->buf, BUF, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND));
	return mr;
}

static int bind_2(struct side *b, struct ibv_mw *mw, struct ibv_mr *mr, uint32_t rkey,
	size_t offset, size_t length, int access)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {.mw = mw,
			.rkey = rkey,
			.bind_info = {.mr = mr,
				.addr = (uintptr_t)b->buf + offset,
				.length = length,
				.mw_access_flags = (unsigned)access}}};

	return post_wr(b, &wr);
}

static void ask_bind_1(const struct question *q)
{
	struct side a, b;
	struct ibv_mr *mr = bindable(&a, &b);
	struct ibv_mw_bind bind = {.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {.mr = mr,
			.addr = (uintptr_t)b.buf,
			.length = (uint64_t)q->a,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
	struct ibv_mw *mw = window(IBV_MW_TYPE_1);

	say_rc("ibv_bind_mw", ibv_bind_mw(b.qp, mw, &bind));
	say_completion("bind", b.cq, true);
	if (!q->a)
		return;
	pattern_fill(a.buf, 64, 3);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, mw->rkey));
	say_completion("WRITE through it", a.cq, false);
	say("bytes %s", pattern_holds(b.buf, 64, 3) ? "arrived" : "did not arrive");
}

enum {
	PLAIN,
	NO_MW_BIND,
	BEYOND,
	WRONG_TYPE,
	SAME_KEY,
	OTHER_INDEX,
	ATOMIC,
	ZERO,
	TWICE,
	ZERO_BASED
};

static void ask_bind_2(const struct question *q)
{
	struct side a, b;
	struct ibv_mr *mr = bindable(&a, &b);
	struct ibv_mw *mw = window(q->a == WRONG_TYPE ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
	uint32_t rkey = q->a == SAME_KEY ? mw->rkey : ibv_inc_rkey(mw->rkey);
	int access = q->a == ATOMIC ? IBV_ACCESS_REMOTE_ATOMIC : IBV_ACCESS_REMOTE_WRITE;

	if (q->a == OTHER_INDEX)
		rkey += 0x100;
	if (q->a == ZERO_BASED)
		access |= IBV_ACCESS_ZERO_BASED;
	say_rc("post", bind_2(&b, mw, q->a == NO_MW_BIND ? b.mr : mr, rkey,
			       q->a == BEYOND ? BUF - 32 : 0, q->a == ZERO ? 0 : 128, access));
	say_completion("bind", b.cq, false);
	if (q->a == TWICE) {
		say_rc("again", bind_2(&b, mw, mr, ibv_inc_rkey(rkey), 0, 128, access));
		say_completion("bind", b.cq, false);
	}
	say("QP %s", state_word(state_of(b.qp)));
	if (q->a != PLAIN && q->a != ATOMIC && q->a != ZERO_BASED && q->a != SAME_KEY)
		return;
	pattern_fill(a.buf, 64, 3);
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, q->a == ZERO_BASED ? 32 : (uintptr_t)b.buf + 32,
		rkey));
	say_completion("WRITE through it", a.cq, false);
	if (pattern_holds(b.buf + 32, 64, 3) != (state_of(a.qp) == IBV_QPS_RTS))
		wrong_bytes("a window");
}

enum { BEYOND_WINDOW, READ_OF_WRITABLE, AFTER_INVALIDATE, OTHER_QP, REGION_GONE, PEER_INVALIDATES };

static void ask_window_use(const struct question *q)
{
	static const struct how usual;
	struct side a, b, c, d;
	struct ibv_mr *mr = bindable(&a, &b);
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t rkey = ibv_inc_rkey(mw->rkey);
	struct side *from = &a;

	MUST(!bind_2(&b, mw, mr, rkey, 0, 128, IBV_ACCESS_REMOTE_WRITE));
	say_completion("bind", b.cq, false);
	if (q->a == AFTER_INVALIDATE) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV,
			.send_flags = IBV_SEND_SIGNALED,
			.invalidate_rkey = rkey};

		say_rc("LOCAL_INV", post_wr(&b, &wr));
		say_completion("its completion", b.cq, true);
	}
	if (q->a == PEER_INVALIDATES) {
		struct ibv_sge sge = {.addr = (uintptr_t)a.buf, .length = 16, .lkey = a.mr->lkey};
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV,
			.sg_list = &sge,
			.num_sge = 1,
			.invalidate_rkey = rkey};
		struct ibv_wc wc;

		MUST(!post_receive(&b, PAGE, 64));
		say_rc("SEND_WITH_INV", post_wr(&a, &wr));
		say_completion("its completion", a.cq, true);
		if (poll_for(b.cq, &wc, 2000))
			say("receive: %s, flags %#x, rkey %s", status_word(wc.status), wc.wc_flags,
				wc.invalidated_rkey == rkey ? "the window's" : "another");
	}
	if (q->a == REGION_GONE) {
		say_rc("ibv_dereg_mr", ibv_dereg_mr(mr));
		return;
	}
	if (q->a == OTHER_QP) {
		make_side(&c, &usual);
		make_side(&d, &usual);
		climb(c.qp, d.qp->qp_num, IBV_QPS_RTS);
		climb(d.qp, c.qp->qp_num, IBV_QPS_RTS);
		from = &c;
	}
	MUST(!post(from, q->a == READ_OF_WRITABLE ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0, 64,
		(uintptr_t)b.buf + (q->a == BEYOND_WINDOW ? 100 : 0), rkey));
	say_completion("access", from->cq, false);
}

static void ask_dealloc(const struct question *q)
{
	struct side a, b;
	struct ibv_mr *mr = bindable(&a, &b);
	struct ibv_mw *mw = window(IBV_MW_TYPE_2);
	uint32_t rkey = ibv_inc_rkey(mw->rkey);

	(void)q;
	MUST(!bind_2(&b, mw, mr, rkey, 0, 128, IBV_ACCESS_REMOTE_WRITE));
	say_completion("bind", b.cq, false);
	say_rc("ibv_dealloc_mw", ibv_dealloc_mw(mw));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, rkey));
	say_completion("WRITE", a.cq, false);
	say_rc("ibv_dereg_mr", ibv_dereg_mr(mr));
}

static void ask_invalidate_mr(const struct question *q)
{
	struct side a, b;
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};

	make_pair(&a, &b, NULL);
	wr.invalidate_rkey = q->a ? 0x12345600 : b.mr->rkey;
	say_rc("LOCAL_INV", post_wr(&b, &wr));
	say_completion("its completion", b.cq, false);
	say("QP %s", state_word(state_of(b.qp)));
}

const struct question memory_questions[] = {
	{"mr.length_0", "ibv_reg_mr of 0 bytes", ask_reg, LENGTH_0, IBV_ACCESS_LOCAL_WRITE},
	{"mr.null", "ibv_reg_mr of 0 bytes at NULL", ask_reg, NULL_LENGTH_0,
		IBV_ACCESS_LOCAL_WRITE},
	{"mr.prot_none", "ibv_reg_mr of a page that may not be read", ask_reg, PROT_NOTHING,
		IBV_ACCESS_LOCAL_WRITE},
	{"mr.gap", "ibv_reg_mr with an unmapped page inside", ask_reg, GAP, IBV_ACCESS_LOCAL_WRITE},
	{"mr.read_only", "ibv_reg_mr of a read-only page, LOCAL_WRITE", ask_reg, READ_ONLY,
		IBV_ACCESS_LOCAL_WRITE},
	{"mr.read_only_0", "ibv_reg_mr of a read-only page, no access", ask_reg, READ_ONLY, 0},
	{"mr.read_only_read", "ibv_reg_mr of a read-only page, REMOTE_READ", ask_reg, READ_ONLY,
		IBV_ACCESS_REMOTE_READ},
	{"mr.unmapped", "ibv_reg_mr of unmapped memory", ask_reg, UNMAPPED, IBV_ACCESS_LOCAL_WRITE},
	{"mr.kernel", "ibv_reg_mr of a kernel address", ask_reg, KERNEL, IBV_ACCESS_LOCAL_WRITE},
	{"mr.huge", "ibv_reg_mr of 1 PiB", ask_reg, HUGE_LENGTH, IBV_ACCESS_LOCAL_WRITE},
	{"mr.wraps", "ibv_reg_mr beyond the end of the address space", ask_reg, WRAPS,
		IBV_ACCESS_LOCAL_WRITE},
	{"mr.file_shared", "ibv_reg_mr of a read-only shared file, REMOTE_READ", ask_reg,
		FILE_READ_ONLY, IBV_ACCESS_REMOTE_READ},
	{"mr.file_private", "ibv_reg_mr of a read-only private file, REMOTE_READ", ask_reg,
		FILE_PRIVATE, IBV_ACCESS_REMOTE_READ},
	{"mr.access_0", "ibv_reg_mr, no access", ask_reg, USUAL, 0},
	{"mr.write_alone", "ibv_reg_mr, REMOTE_WRITE without LOCAL_WRITE", ask_reg, USUAL,
		IBV_ACCESS_REMOTE_WRITE},
	{"mr.atomic_alone", "ibv_reg_mr, REMOTE_ATOMIC without LOCAL_WRITE", ask_reg, USUAL,
		IBV_ACCESS_REMOTE_ATOMIC},
	{"mr.mw_bind", "ibv_reg_mr, MW_BIND", ask_reg, USUAL, IBV_ACCESS_MW_BIND},
	{"mr.on_demand", "ibv_reg_mr, ON_DEMAND", ask_reg, USUAL,
		IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE},
	{"mr.hugetlb", "ibv_reg_mr, HUGETLB of small pages", ask_reg, USUAL,
		IBV_ACCESS_HUGETLB | IBV_ACCESS_LOCAL_WRITE},
	{"mr.relaxed", "ibv_reg_mr, RELAXED_ORDERING", ask_reg, USUAL,
		IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE},
	{"mr.flag_optional", "ibv_reg_mr, an optional flag that is none", ask_reg, USUAL,
		1 << 29 | IBV_ACCESS_LOCAL_WRITE},
	{"mr.flag_none", "ibv_reg_mr, a flag that is none", ask_reg, USUAL,
		1 << 18 | IBV_ACCESS_LOCAL_WRITE},
	{"mr.iova_offset", "ibv_reg_mr_iova at an offset in the page", ask_iova, 0x10010, 0},
	{"mr.iova_page", "ibv_reg_mr_iova at the start of a page", ask_iova, 0x10000, 0},
	{"mr.iova_use", "WRITE to an address of ibv_reg_mr_iova", ask_iova_use, 0, 0},
	{"mr.zero_based", "WRITE to a zero-based region", ask_zero_based, 0, 0},
	{"mr.keys", "the keys of a region", ask_keys, 0, 0},
	{"mr.key_again", "the key of the next region", ask_key_again, 0, 0},
	{"mr.dereg_posted", "ibv_dereg_mr with a receive posted", ask_dereg_posted, 0, 0},
	{"mr.dereg_written", "WRITE to a region that is gone", ask_dereg_written, 0, 0},
	{"mr.munmap", "WRITE to memory that was unmapped", ask_unmapped_use, 0, 0},
	{"mr.rereg_access", "ibv_rereg_mr, access", ask_rereg, IBV_REREG_MR_CHANGE_ACCESS,
		ALL_ACCESS},
	{"mr.rereg_pd", "ibv_rereg_mr, PD", ask_rereg, IBV_REREG_MR_CHANGE_PD, 0},
	{"mr.rereg_memory", "ibv_rereg_mr, memory", ask_rereg, IBV_REREG_MR_CHANGE_TRANSLATION, 0},
	{"mr.rereg_nothing", "ibv_rereg_mr of nothing", ask_rereg, 0, 0},
	{"mr.rereg_bad_access", "ibv_rereg_mr to REMOTE_WRITE without LOCAL_WRITE", ask_rereg,
		IBV_REREG_MR_CHANGE_ACCESS, IBV_ACCESS_REMOTE_WRITE},
	{"mw.type_1", "a window of type 1", ask_mw, IBV_MW_TYPE_1, 0},
	{"mw.type_2", "a window of type 2", ask_mw, IBV_MW_TYPE_2, 0},
	{"mw.type_9", "a window of a type that is none", ask_mw, 9, 0},
	{"mw.bind_1", "binding a window of type 1", ask_bind_1, 128, 0},
	{"mw.bind_1_empty", "binding a window of type 1 to 0 bytes", ask_bind_1, 0, 0},
	{"mw.bind_2", "binding a window of type 2", ask_bind_2, PLAIN, 0},
	{"mw.bind_2_region", "binding to a region without MW_BIND", ask_bind_2, NO_MW_BIND, 0},
	{"mw.bind_2_beyond", "binding beyond the region", ask_bind_2, BEYOND, 0},
	{"mw.bind_2_type", "binding a window of type 1 by ibv_post_send", ask_bind_2, WRONG_TYPE,
		0},
	{"mw.bind_2_same_key", "binding with the key it has", ask_bind_2, SAME_KEY, 0},
	{"mw.bind_2_index", "binding with the index of another key", ask_bind_2, OTHER_INDEX, 0},
	{"mw.bind_2_atomic", "WRITE through a window for atomics", ask_bind_2, ATOMIC, 0},
	{"mw.bind_2_empty", "binding a window of type 2 to 0 bytes", ask_bind_2, ZERO, 0},
	{"mw.bind_2_twice", "binding a window of type 2 that is bound", ask_bind_2, TWICE, 0},
	{"mw.bind_2_zero_based", "binding a zero-based window", ask_bind_2, ZERO_BASED, 0},
	{"mw.beyond", "WRITE beyond a window", ask_window_use, BEYOND_WINDOW, 0},
	{"mw.read", "READ through a window for WRITE", ask_window_use, READ_OF_WRITABLE, 0},
	{"mw.invalidated", "WRITE through a window that was invalidated", ask_window_use,
		AFTER_INVALIDATE, 0},
	{"mw.peer_invalidates", "WRITE through a window that SEND_WITH_INV took away",
		ask_window_use, PEER_INVALIDATES, 0},
	{"mw.other_qp", "WRITE through a window of another QP", ask_window_use, OTHER_QP, 0},
	{"mw.region", "ibv_dereg_mr with a window bound", ask_window_use, REGION_GONE, 0},
	{"mw.dealloc", "WRITE through a window that is gone", ask_dealloc, 0, 0},
	{"inv.mr", "LOCAL_INV of the key of ibv_reg_mr", ask_invalidate_mr, 0, 0},
	{"inv.none", "LOCAL_INV of a key that is none", ask_invalidate_mr, 1, 0}, {0}};
