/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_apart.c - mistakes between two processes: this one has the QP that is wrong, and tells
 * the other one by a byte each what to do. PLANTED_PEER=alone: that one is without the checker. */
#include "planted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct apart {
	struct pair p; /* its `a`; the other process has `b` */
	struct half far;
	int sock;
	pid_t pid;
};
struct info {
	uint32_t qpn, rkey;
	uint64_t addr;
};

static struct ibv_mr far_mr;

static void give(int sock, const void *what, size_t n)
{
	expect(write(sock, what, n) == (ssize_t)n, "a peer that hears");
}
static void take(int sock, void *what, size_t n)
{
	expect(recv(sock, what, n, MSG_WAITALL) == (ssize_t)n, "a peer that answers");
}

/* Both call it with a QP in INIT: then it is in RTS, and so is the other. */
static void meet(struct pair *p, struct half *h, const struct wish *w, int sock, struct half *far)
{
	struct info i = {h->qp->qp_num, h->mr->rkey, (uintptr_t)h->buf};
	char c = 0;
	give(sock, &i, sizeof(i));
	take(sock, &i, sizeof(i));
	far_mr.rkey = i.rkey;
	far->mr = &far_mr;
	far->buf = (uint8_t *)(uintptr_t)i.addr;
	half_connect(p, h, i.qpn, h == &p->a, w);
	give(sock, &c, 1);
	take(sock, &c, 1);
}

static struct apart begin(const struct wish *w)
{
	struct apart x = {0};
	int sv[2];
	char fd[16];
	expect(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "a pair of sockets");
	snprintf(fd, sizeof(fd), "%d", sv[1]);
	x.pid = fork();
	if (!x.pid) {
		const char *kind = getenv("PLANTED_PEER");
		close(sv[0]);
		if (kind && !strcmp(kind, "alone"))
			unsetenv("ROPEWAY_CHECK");
		execl("/proc/self/exe", "planted", "peer", fd, NULL);
		_exit(4);
	}
	close(sv[1]);
	x.sock = sv[0];
	pair_device(&x.p);
	half_open(&x.p, &x.p.a, w);
	meet(&x.p, &x.p.a, w, x.sock, &x.far);
	return x;
}

/* The other one does as it is told; what its completion said. */
static enum ibv_wc_status tell(struct apart *x, char what)
{
	char status = 0;
	give(x->sock, &what, 1);
	take(x->sock, &status, 1);
	return (enum ibv_wc_status)status;
}

static void end(struct apart *x)
{
	int status;
	tell(x, 'q');
	expect(waitpid(x->pid, &status, 0) == x->pid && !status, "a peer that ends well");
	pair_drop(&x->p);
	pair_end(&x->p);
}

/* s: a SEND of 4,096 bytes is posted; r: a READ of 64 bytes is; p: its completion; q: the end. */
void apart_peer(int sock)
{
	static const struct wish plain;
	struct pair p = {0};
	struct half far = {0};
	struct ibv_wc wc;
	char what = 0, status;
	pair_device(&p);
	half_open(&p, &p.b, &plain);
	meet(&p, &p.b, &plain, sock, &far);
	while (what != 'q') {
		status = 0;
		take(sock, &what, 1);
		if (what == 's')
			expect(!send_at(&p.b, 1, 0, 4096, IBV_SEND_SIGNALED), "a send");
		if (what == 'r')
			expect(!read_at(&p.b, 1, 0, 64, &far, 0), "a READ");
		if (what == 'p')
			status = (char)poll_one(p.b.cq, &wc);
		give(sock, &status, 1);
	}
	pair_drop(&p);
	pair_end(&p);
}

/* It sends one message to a QP with these attributes. */
static void sends_to(const struct wish *w, enum ibv_wc_status ends)
{
	struct apart x = begin(w);
	expect(!recv_at(&x.p.a, 1, 0, 4096), "a receive");
	tell(&x, 's');
	expect(tell(&x, 'p') == ends, "a send that ends as it has to");
	end(&x);
}

static void psn_mismatch(bool bad)
{
	sends_to(&(struct wish){.psn_xor = bad ? 0x10 : 0},
		bad ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
}

static void psn_ahead(bool bad)
{
	sends_to(&(struct wish){.psn_xor = bad ? 0x1001 : 0},
		bad ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
}

static void mtu_mismatch(bool bad)
{
	sends_to(&(struct wish){.mtu = bad ? IBV_MTU_512 : 0},
		bad ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS);
}

static void recv_late(bool bad)
{
	struct apart x = begin(&(struct wish){.min_rnr_1 = 1 + 20});
	if (!bad)
		expect(!recv_at(&x.p.a, 1, 0, 4096), "a receive");
	tell(&x, 's');
	wait_ms(1);
	if (bad)
		expect(!recv_at(&x.p.a, 1, 0, 4096), "a receive");
	poll_good(x.p.a.cq);
	expect(tell(&x, 'p') == IBV_WC_SUCCESS, "a good send");
	end(&x);
}

static void rd_atomic(bool bad)
{
	struct apart x = begin(&(struct wish){.dest_rd_atomic_1 = bad ? 1 : 0});
	tell(&x, 'r');
	expect(tell(&x, 'p') == (bad ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_SUCCESS),
		"a READ that ends as it has to");
	end(&x);
}

const struct planted planted_apart[] = {
	{"psn-mismatch", "psn-mismatch-apart", psn_mismatch},
	{"psn-mismatch", "psn-ahead-apart", psn_ahead},
	{"mtu-mismatch", "mtu-mismatch-apart", mtu_mismatch},
	{"recv-late", "recv-late-apart", recv_late},
	{"rd-atomic", "rd-atomic-apart", rd_atomic},
	{0},
};
