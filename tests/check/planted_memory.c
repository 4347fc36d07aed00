/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_memory.c - mistakes with memory: its owners, its keys, its end, and forks. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED
#endif

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

static struct ibv_mr *region(struct ibv_pd *pd, void *at, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, len, access);
	expect(mr, "a region");
	return mr;
}

/* The half's requests are of other memory from now on; what it had. */
struct other {
	struct ibv_mr *mr;
	uint8_t *buf;
};
static struct other give(struct half *h, struct ibv_mr *mr, void *buf)
{
	struct other was = {h->mr, h->buf};
	h->mr = mr;
	h->buf = buf;
	return was;
}
static void take_back(struct half *h, struct other was)
{
	h->mr = was.mr;
	h->buf = was.buf;
}

static void poll_bad(struct ibv_cq *cq, enum ibv_wc_status status)
{
	struct ibv_wc wc;
	expect(poll_one(cq, &wc) == status, "another status");
}

/* ---- owners ---- */

static void two_receives(size_t second)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.b, 1, 0, 64) && !recv_at(&p.b, 2, second, 64), "two receives");
	for (uint64_t i = 0; i < 2; i++) {
		expect(!send_at(&p.a, i, 0, 64, IBV_SEND_SIGNALED), "a send");
		poll_good(p.a.cq);
		poll_good(p.b.cq);
	}
	pair_close(&p);
}

static void buffer_reposted(bool bad) { two_receives(bad ? 48 : 64); }
static void buffer_shared(bool bad) { two_receives(bad ? 0 : 64); }

/* The same with large targets of READs. */
static void reads_overlap(bool bad)
{
	enum { LEN = 200000 };
	struct pair p = pair_open(&(struct wish){0});
	expect(!read_at(&p.a, 1, 0, LEN, &p.b, 0), "a READ");
	expect(!read_at(&p.a, 2, bad ? LEN - 8 : LEN, LEN, &p.b, 0), "a READ");
	poll_good(p.a.cq);
	poll_good(p.a.cq);
	/* polled: they may be used again */
	expect(!read_at(&p.a, 3, 8, LEN, &p.b, 0), "a READ");
	poll_good(p.a.cq);
	pair_close(&p);
}

static void send_from_receive(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.a, 1, 4096, 4096) && !recv_at(&p.b, 1, 0, 64), "receives");
	expect(!send_at(&p.a, 1, bad ? 5000 : 0, 64, IBV_SEND_SIGNALED), "a send");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* The answer comes into the buffer of the question, whose completion is polled after it: no change
 * by the program. Without the mistake each has its own. */
static void answer_in_place(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	expect(!recv_at(&p.a, 1, 0, 64) && !recv_at(&p.b, 1, 0, 64), "receives");
	memset(p.a.buf, 1, BUFFER);
	memset(p.b.buf, 2, BUFFER);
	expect(!send_at(&p.a, 1, bad ? 0 : 64, 64, IBV_SEND_SIGNALED), "a question");
	poll_good(p.b.cq);
	expect(!send_at(&p.b, 2, 64, 64, IBV_SEND_SIGNALED), "an answer");
	poll_good(p.b.cq);
	poll_good(p.a.cq);
	poll_good(p.a.cq);
	pair_close(&p);
}

/* The same, and the acknowledgement of the question comes behind the answer: planted_test.py delays
 * it. The peer had the question, so its bytes were whole. */
static void answer_unacked(bool bad)
{
	struct pair p = pair_open(&(struct wish){.timeout_1 = 1 + 20});
	expect(!recv_at(&p.a, 1, 0, 64) && !recv_at(&p.b, 1, 0, 64), "receives");
	memset(p.a.buf, 1, BUFFER);
	memset(p.b.buf, 2, BUFFER);
	expect(!send_at(&p.a, 1, bad ? 0 : 64, 64, IBV_SEND_SIGNALED), "a question");
	poll_good(p.b.cq);
	expect(!send_at(&p.b, 2, 64, 64, IBV_SEND_SIGNALED), "an answer");
	struct ibv_wc wc;
	expect(poll_one(p.a.cq, &wc) == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV,
		"the answer first");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	pair_close(&p);
}

/* ---- regions that go ---- */

static void mr_in_use(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	struct ibv_mr *mr = region(p.pd, p.a.buf, 4096, ALL);
	struct other was = give(&p.a, mr, p.a.buf);
	/* without a receive it waits */
	expect(bad || !recv_at(&p.b, 1, 0, 4096), "a receive");
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	if (bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	expect(!bad || !recv_at(&p.b, 1, 0, 4096), "a receive");
	if (bad) {
		struct ibv_wc wc;
		poll_one(p.a.cq, &wc);
	} else {
		poll_good(p.a.cq);
		expect(!ibv_dereg_mr(mr), "the region to go");
	}
	take_back(&p.a, was);
	pair_close(&p);
}

static void mr_in_use_recv(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr *mr = region(p.pd, p.b.buf, 4096, ALL);
	struct other was = give(&p.b, mr, p.b.buf);
	expect(!recv_at(&p.b, 1, 0, 4096), "a receive");
	if (bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	if (bad) {
		poll_bad(p.b.cq, IBV_WC_LOC_PROT_ERR);
		poll_bad(p.a.cq, IBV_WC_REM_OP_ERR);
	} else {
		poll_good(p.a.cq);
		poll_good(p.b.cq);
		expect(!ibv_dereg_mr(mr), "the region to go");
	}
	take_back(&p.b, was);
	pair_close(&p);
}

/* ---- memory that goes ---- */

__attribute__((unused)) static void memory_freed(bool bad)
{
	struct pair p = pair_open(&(struct wish){.rnr_retry_1 = 1 + 7});
	void *buf = malloc(4096);
	expect(buf, "memory");
	memset(buf, 1, 4096);
	struct ibv_mr *mr = region(p.pd, buf, 4096, ALL);
	struct other was = give(&p.a, mr, buf);
	/* without a receive it waits */
	expect(bad || !recv_at(&p.b, 1, 0, 4096), "a receive");
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	if (bad)
		free(buf);
	expect(!bad || !recv_at(&p.b, 1, 0, 4096), "a receive");
	poll_good(p.a.cq);
	poll_good(p.b.cq);
	take_back(&p.a, was);
	expect(!ibv_dereg_mr(mr), "the region to go");
	if (!bad)
		free(buf);
	pair_close(&p);
}

static void freed_recv(bool bad, size_t len)
{
	struct pair p = pair_open(&(struct wish){0});
	uint8_t *buf = malloc(len);
	expect(buf, "memory");
	memset(buf, 1, len);
	struct ibv_mr *mr = region(p.pd, buf, len, ALL);
	struct other was = give(&p.b, mr, buf);
	expect(!recv_at(&p.b, 1, len / 2, 4096), "a receive");
	if (bad)
		free(buf);
	expect(!send_at(&p.a, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
	struct ibv_wc wc;
	poll_one(p.a.cq, &wc);
	poll_one(p.b.cq, &wc);
	take_back(&p.b, was);
	expect(!ibv_dereg_mr(mr), "the region to go");
	if (!bad)
		free(buf);
	pair_close(&p);
}

__attribute__((unused)) static void memory_freed_recv(bool bad) { freed_recv(bad, 8192); }
/* Large memory, which free gives back to the kernel. */
__attribute__((unused)) static void memory_unmapped_recv(bool bad) { freed_recv(bad, 1 << 20); }

/* Nothing is in flight when it goes, and other pages are there when its region is used again. */
static void remapped(bool bad, bool by_peer)
{
	enum { LEN = 1 << 16 };
	struct pair p = pair_open(&(struct wish){0});
	int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
	uint8_t *buf = mmap(NULL, LEN, prot, flags, -1, 0);
	expect(buf != MAP_FAILED, "memory");
	struct ibv_mr *mr = region(p.pd, buf, LEN, ALL);
	if (bad) {
		expect(!munmap(buf, LEN), "the memory to go");
		expect(mmap(buf, LEN, prot, flags | MAP_FIXED, -1, 0) == buf, "other memory");
	}
	struct half *h = by_peer ? &p.b : &p.a;
	struct other was = give(h, mr, buf);
	expect(!write_at(&p.a, 1, 0, 64, &p.b, 0, IBV_SEND_SIGNALED), "a WRITE");
	poll_good(p.a.cq);
	take_back(h, was);
	expect(!ibv_dereg_mr(mr) && !munmap(buf, LEN), "the region to go");
	pair_close(&p);
}

static void memory_unmapped(bool bad) { remapped(bad, false); }
static void memory_unmapped_peer(bool bad) { remapped(bad, true); }

/* ---- keys ---- */

/* A WRITE of 64 bytes, by regions that somebody else has; the status it gets. */
struct keys {
	struct ibv_mr here, there;
	size_t off;
	enum ibv_wc_status status;
};
static void write_by(struct pair *p, struct keys *k)
{
	struct other here = give(&p->a, &k->here, p->a.buf),
		     there = give(&p->b, &k->there, p->b.buf);
	expect(!write_at(&p->a, 1, k->off, 64, &p->b, k->off, IBV_SEND_SIGNALED), "a WRITE");
	poll_bad(p->a.cq, k->status);
	take_back(&p->a, here);
	take_back(&p->b, there);
}

static void write_local(struct pair *p, const struct ibv_mr *mr, size_t off, bool bad)
{
	struct keys k = {*mr, *p->b.mr, off, bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS};
	write_by(p, &k);
}

static void write_remote(struct pair *p, const struct ibv_mr *mr, size_t off, bool bad)
{
	struct keys k = {*p->a.mr, *mr, off, bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS};
	write_by(p, &k);
}

static void stale(bool bad, bool remote)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr *mr = region(p.pd, remote ? p.b.buf : p.a.buf, 4096, ALL), copy = *mr;
	if (bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	(remote ? write_remote : write_local)(&p, &copy, 0, bad);
	if (!bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	pair_close(&p);
}

static void key_stale(bool bad) { stale(bad, false); }
static void key_stale_peer(bool bad) { stale(bad, true); }

static void unknown(bool bad, bool remote)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr copy = remote ? *p.b.mr : *p.a.mr;
	if (bad)
		copy.lkey = copy.rkey = __builtin_bswap32(copy.rkey);
	(remote ? write_remote : write_local)(&p, &copy, 0, bad);
	pair_close(&p);
}

static void key_unknown(bool bad) { unknown(bad, false); }
static void key_unknown_peer(bool bad) { unknown(bad, true); }

static void key_access_peer(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr *mr = region(p.pd, p.b.buf, 4096, bad ? IBV_ACCESS_REMOTE_READ : ALL);
	write_remote(&p, mr, 0, bad);
	expect(!ibv_dereg_mr(mr), "the region to go");
	pair_close(&p);
}

/* The region permits it, and the QP does not. */
static void qp_access(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
		.qp_access_flags = IBV_ACCESS_REMOTE_READ | (bad ? 0 : IBV_ACCESS_REMOTE_WRITE)};
	struct ibv_wc wc;
	expect(!ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), "other flags");
	expect(!write_at(&p.a, 1, 0, 64, &p.b, 0, IBV_SEND_SIGNALED), "a WRITE");
	expect(poll_one(p.a.cq, &wc) == (bad ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS),
		"another status");
	pair_close(&p);
}

static void key_access(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr *mr = region(p.pd, p.a.buf, 4096, bad ? 0 : ALL);
	struct other was = give(&p.a, mr, p.a.buf);
	expect(!read_at(&p.a, 1, 0, 64, &p.b, 0), "a READ");
	poll_bad(p.a.cq, bad ? IBV_WC_LOC_PROT_ERR : IBV_WC_SUCCESS);
	take_back(&p.a, was);
	expect(!ibv_dereg_mr(mr), "the region to go");
	pair_close(&p);
}

static void bounds(bool bad, bool remote)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mr *mr = region(p.pd, remote ? p.b.buf : p.a.buf, 4096, ALL);
	(remote ? write_remote : write_local)(&p, mr, bad ? 4096 - 63 : 4096 - 64, bad);
	expect(!ibv_dereg_mr(mr), "the region to go");
	pair_close(&p);
}

static void key_bounds(bool bad) { bounds(bad, false); }
static void key_bounds_peer(bool bad) { bounds(bad, true); }

static void other_pd(bool bad, bool remote)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_pd *pd = ibv_alloc_pd(p.ctx);
	expect(pd, "a PD");
	struct ibv_mr *mr = region(bad ? pd : p.pd, remote ? p.b.buf : p.a.buf, 4096, ALL);
	(remote ? write_remote : write_local)(&p, mr, 0, bad);
	expect(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "the region to go");
	pair_close(&p);
}

static void key_pd(bool bad) { other_pd(bad, false); }
static void key_pd_peer(bool bad) { other_pd(bad, true); }

/* ---- windows ---- */

static void bind_window(struct pair *p, struct ibv_mw *mw, struct ibv_mr *mr, uint64_t id)
{
	struct ibv_send_wr *bad,
		wr = {.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mr, (uintptr_t)p->a.buf, 64, IBV_ACCESS_REMOTE_READ};
	expect(!ibv_post_send(p->a.qp, &wr, &bad), "a bind");
}

static void mw_left(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = region(p.pd, p.a.buf, 4096, ALL | IBV_ACCESS_MW_BIND);
	expect(mw, "a window");
	bind_window(&p, mw, mr, 1);
	poll_good(p.a.cq);
	if (!bad) {
		struct ibv_send_wr *wrong, wr = {.wr_id = 2,
						   .opcode = IBV_WR_LOCAL_INV,
						   .send_flags = IBV_SEND_SIGNALED,
						   .invalidate_rkey = mw->rkey};
		expect(!ibv_post_send(p.a.qp, &wr, &wrong), "an invalidation");
		poll_good(p.a.cq);
	}
	bind_window(&p, mw, mr, 3);
	poll_bad(p.a.cq, bad ? IBV_WC_MW_BIND_ERR : IBV_WC_SUCCESS);
	expect(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr), "the window to go");
	pair_close(&p);
}

/* The peer reads by the key that it was given before the window went. */
static void key_stale_window(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = region(p.pd, p.a.buf, 4096, ALL | IBV_ACCESS_MW_BIND), copy = *mr;
	expect(mw, "a window");
	bind_window(&p, mw, mr, 1);
	poll_good(p.a.cq);
	copy.rkey = mw->rkey;
	if (bad)
		expect(!ibv_dealloc_mw(mw), "the window to go");
	struct other was = give(&p.a, &copy, p.a.buf);
	expect(!read_at(&p.b, 2, 0, 64, &p.a, 0), "a READ");
	poll_bad(p.b.cq, bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS);
	take_back(&p.a, was);
	if (!bad)
		expect(!ibv_dealloc_mw(mw), "the window to go");
	expect(!ibv_dereg_mr(mr), "the region to go");
	pair_close(&p);
}

static void mw_left_region(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2);
	struct ibv_mr *mr = region(p.pd, p.a.buf, 4096, ALL | IBV_ACCESS_MW_BIND);
	expect(mw, "a window");
	bind_window(&p, mw, mr, 1);
	poll_good(p.a.cq);
	if (bad)
		expect(ibv_dereg_mr(mr), "the region to stay");
	expect(!ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr), "the window to go");
	pair_close(&p);
}

/* ---- forks ---- */

/* In the place of the C library's. */
__attribute__((visibility("default"))) int uname(struct utsname *u)
{
	int rc = (int)syscall(SYS_uname, u);
	if (!rc && getenv("PLANTED_KERNEL"))
		snprintf(u->release, sizeof(u->release), "%s", getenv("PLANTED_KERNEL"));
	return rc;
}

/* The checker asks for the kernel when it starts: so this program starts again. */
static void on_old_kernel(const char *name, bool bad)
{
	if (getenv("PLANTED_KERNEL"))
		return;
	setenv("PLANTED_KERNEL", "5.11.22-planted", 1);
	char *const argv[] = {"planted", (char *)name, bad ? "bad" : "good", NULL};
	execv("/proc/self/exe", argv);
	expect(false, "another program");
}

static void fork_registered(bool bad)
{
	on_old_kernel("fork-registered", bad);
	if (!bad)
		expect(!ibv_fork_init(), "fork to be prepared");
	struct pair p = pair_open(&(struct wish){0});
	pid_t child = fork();
	if (!child)
		_exit(0);
	expect(child > 0 && waitpid(child, NULL, 0) == child, "a child");
	pair_close(&p);
}

static void child_uses(bool bad)
{
	struct pair p = pair_open(&(struct wish){0});
	pid_t child = fork();
	if (!child) {
		if (bad)
			recv_at(&p.b, 1, 0, 64);
		_exit(0);
	}
	expect(child > 0 && waitpid(child, NULL, 0) == child, "a child");
	pair_close(&p);
}

const struct planted planted_memory[] = {
	{"buffer-reposted", NULL, buffer_reposted},
	{"buffer-reposted", "reads-overlap", reads_overlap},
	{"buffer-shared", NULL, buffer_shared},
	{"buffer-shared", "send-from-receive", send_from_receive},
	{"buffer-shared", "answer-in-place", answer_in_place},
	{"buffer-shared", "answer-unacked", answer_unacked},
	{"mr-in-use", NULL, mr_in_use},
	{"mr-in-use", "mr-in-use-recv", mr_in_use_recv},
#ifndef SANITIZED /* it has a free of its own, and finds the same */
	{"memory-freed", NULL, memory_freed},
	{"memory-freed", "memory-freed-recv", memory_freed_recv},
	{"memory-freed", "memory-unmapped-recv", memory_unmapped_recv},
#endif
	{"memory-freed", "memory-unmapped", memory_unmapped},
	{"memory-freed", "memory-unmapped-peer", memory_unmapped_peer},
	{"key-stale", NULL, key_stale},
	{"key-stale", "key-stale-peer", key_stale_peer},
	{"key-stale", "key-stale-window", key_stale_window},
	{"key-unknown", NULL, key_unknown},
	{"key-unknown", "key-unknown-peer", key_unknown_peer},
	{"key-access", NULL, key_access},
	{"key-access", "key-access-peer", key_access_peer},
	{"qp-access", NULL, qp_access},
	{"key-bounds", NULL, key_bounds},
	{"key-bounds", "key-bounds-peer", key_bounds_peer},
	{"key-pd", NULL, key_pd},
	{"key-pd", "key-pd-peer", key_pd_peer},
	{"mw-left", NULL, mw_left},
	{"mw-left", "mw-left-region", mw_left_region},
	{"fork-registered", NULL, fork_registered},
	{"child-uses", NULL, child_uses},
	{0},
};
