/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_far.c - keys between two processes, of which the checker is in one alone: the one that
 * is refused, or the one that refuses. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* Told to the other process, both ways. */
struct word {
	uint32_t qpn, rkey, len, status;
	uint64_t addr;
};

static void say(int fd, const struct word *w)
{
	expect(write(fd, w, sizeof(*w)) == sizeof(*w), "a word to the other process");
}

static struct word hear(int fd)
{
	struct word w;
	expect(read(fd, &w, sizeof(w)) == sizeof(w), "a word of the other process");
	return w;
}

/* A WRITE to that memory; how it ends. */
static enum ibv_wc_status write_to(struct pair *p, const struct word *to)
{
	struct ibv_mr mr = {.rkey = to->rkey};
	struct half there = {.buf = (uint8_t *)(uintptr_t)to->addr, .mr = &mr};
	struct ibv_wc wc;
	expect(!write_at(&p->a, 1, 0, to->len, &there, 0, IBV_SEND_SIGNALED), "a WRITE");
	return poll_one(p->a.cq, &wc);
}

/* The process without the checker: its buffer is for the other, then it is told where to write. */
static void other_side(int fd)
{
	struct pair p = {0};
	pair_begin(&p, &(struct wish){0});
	say(fd, &(struct word){.qpn = p.a.qp->qp_num,
			.rkey = p.a.mr->rkey,
			.addr = (uintptr_t)p.a.buf,
			.len = BUFFER});
	pair_connect_to(&p, &p.a, hear(fd).qpn);
	say(fd, &(struct word){.status = 0});
	struct word to = hear(fd);
	if (to.len)
		to.status = write_to(&p, &to);
	say(fd, &to);
	hear(fd);
	pair_close(&p);
	exit(0);
}

struct far {
	struct pair p;
	int fd;
	pid_t child;
	struct word there;
};

/* Connected with a process of its own, which is this program again. */
static struct far far_open(const char *name, bool bad)
{
	struct far f = {.fd = -1};
	const char *mine = getenv("PLANTED_FAR");
	int pair[2];
	char number[16];
	if (mine)
		other_side((int)strtol(mine, NULL, 10));
	expect(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "sockets");
	f.child = fork();
	if (!f.child) {
		char *const argv[] = {"planted", (char *)name, bad ? "bad" : "good", NULL};
		snprintf(number, sizeof(number), "%d", pair[1]);
		setenv("PLANTED_FAR", number, 1);
		setenv("ROPEWAY_CHECK", "0", 1);
		execv("/proc/self/exe", argv);
		_exit(3);
	}
	close(pair[1]);
	f.fd = pair[0];
	pair_begin(&f.p, &(struct wish){0});
	f.there = hear(f.fd);
	say(f.fd, &(struct word){.qpn = f.p.a.qp->qp_num});
	pair_connect_to(&f.p, &f.p.a, f.there.qpn);
	hear(f.fd);
	return f;
}

static void far_close(struct far *f)
{
	say(f->fd, &(struct word){0});
	expect(waitpid(f->child, NULL, 0) == f->child, "the other process to end");
	pair_close(&f->p);
}

/* The other process writes there, and says how it ended. */
static void far_writes(struct far *f, uint64_t addr, uint32_t rkey, bool bad)
{
	say(f->fd, &(struct word){.addr = addr, .rkey = rkey, .len = 64});
	expect(hear(f->fd).status == (bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS),
		"another status there");
}

/* ---- the checker is where it is refused ---- */

static void asks(struct far *f, struct word to, bool bad)
{
	struct word good = f->there;
	good.len = to.len = 64;
	say(f->fd, &(struct word){0});
	hear(f->fd);
	/* the first go by UDP: the lane is there soon */
	for (int i = 0; i < 10; i++) {
		expect(write_to(&f->p, &good) == IBV_WC_SUCCESS, "a good WRITE");
		wait_ms(20);
	}
	expect(write_to(&f->p, &to) == (bad ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS),
		"another status");
	far_close(f);
}

static void asks_bounds(bool bad)
{
	struct far f = far_open("key-bounds-asks", bad);
	struct word to = f.there;
	to.addr += BUFFER - (bad ? 60 : 64);
	asks(&f, to, bad);
}

static void asks_unknown(bool bad)
{
	struct far f = far_open("key-unknown-asks", bad);
	struct word to = f.there;
	/* one that is in no other's place */
	to.rkey ^= bad ? 0x5500 : 0;
	asks(&f, to, bad);
}

/* ---- the checker is where it refuses ---- */

static void answers_bounds(bool bad)
{
	struct far f = far_open("key-bounds-answers", bad);
	far_writes(&f, (uintptr_t)f.p.a.buf + BUFFER - (bad ? 1 : 64), f.p.a.mr->rkey, bad);
	far_close(&f);
}

static void answers_stale(bool bad)
{
	struct far f = far_open("key-stale-answers", bad);
	struct ibv_mr *mr = ibv_reg_mr(f.p.pd, f.p.a.buf, 4096, ALL);
	expect(mr, "a region");
	uint32_t rkey = mr->rkey;
	if (bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	far_writes(&f, (uintptr_t)f.p.a.buf, rkey, bad);
	if (!bad)
		expect(!ibv_dereg_mr(mr), "the region to go");
	far_close(&f);
}

const struct planted planted_far[] = {
	{"key-bounds", "key-bounds-asks", asks_bounds},
	{"key-unknown", "key-unknown-asks", asks_unknown},
	{"key-bounds", "key-bounds-answers", answers_bounds},
	{"key-stale", "key-stale-answers", answers_stale},
	{0},
};
