/* SPDX-License-Identifier: BSD-3-Clause */
/* planted_race.c - two operations on the same bytes, by two QPs to one target. */
#include "planted.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* The second pair's initiator writes into the first pair's target. */
struct two {
	struct pair p, q;
};

static struct two two_open(void)
{
	struct two t = {pair_open(&(struct wish){0}), pair_open(&(struct wish){0})};
	return t;
}

static void two_close(struct two *t)
{
	pair_close(&t->p);
	pair_close(&t->q);
}

/* The target of the second pair's QP has its own PD: so its region is the one that both reach. */
static struct half shared_by(struct two *t, struct ibv_mr **mr)
{
	struct half h = t->q.b;
	*mr = ibv_reg_mr(t->q.pd, t->p.b.buf, BUFFER,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	expect(*mr, "a region");
	h.buf = t->p.b.buf;
	h.mr = *mr;
	return h;
}

static void writes(bool bad)
{
	struct two t = two_open();
	struct ibv_mr *mr;
	struct half same = shared_by(&t, &mr);
	expect(!write_at(&t.p.a, 1, 0, 4096, &t.p.b, 0, IBV_SEND_SIGNALED), "a WRITE");
	if (!bad)
		poll_good(t.p.a.cq); /* the first has ended before the second begins */
	else
		wait_ms(50);
	expect(!write_at(&t.q.a, 2, 0, 4096, &same, 2048, IBV_SEND_SIGNALED), "another");
	poll_good(t.q.a.cq);
	if (bad)
		poll_good(t.p.a.cq);
	expect(!ibv_dereg_mr(mr), "the region to go");
	two_close(&t);
}

static void read_of_write(bool bad)
{
	struct two t = two_open();
	struct ibv_mr *mr;
	struct half same = shared_by(&t, &mr);
	expect(!write_at(&t.p.a, 1, 0, 64, &t.p.b, 0, IBV_SEND_SIGNALED), "a WRITE");
	if (!bad)
		poll_good(t.p.a.cq);
	else
		wait_ms(50);
	expect(!read_at(&t.q.a, 2, 0, 64, &same, 0), "a READ");
	poll_good(t.q.a.cq);
	if (bad)
		poll_good(t.p.a.cq);
	expect(!ibv_dereg_mr(mr), "the region to go");
	two_close(&t);
}

/* The target's own SEND has the bytes. bad: nobody has seen it arrive. */
static void write_of_send(bool bad)
{
	struct two t = two_open();
	struct ibv_mr *mr;
	struct half same = shared_by(&t, &mr);
	expect(!recv_at(&t.p.a, 1, 4096, 64), "a receive");
	expect(!send_at(&t.p.b, 1, 0, 64, IBV_SEND_SIGNALED), "a SEND");
	if (!bad)
		poll_good(t.p.a.cq); /* it is there: the sender need not have seen that */
	else
		wait_ms(50);
	expect(!write_at(&t.q.a, 2, 0, 64, &same, 32, IBV_SEND_SIGNALED), "a WRITE");
	poll_good(t.q.a.cq);
	if (bad)
		poll_good(t.p.a.cq);
	poll_good(t.p.b.cq);
	expect(!ibv_dereg_mr(mr), "the region to go");
	two_close(&t);
}

/* A message was placed where the WRITE goes. bad: nobody has seen it complete. */
static void write_of_receive(bool bad)
{
	struct two t = two_open();
	struct ibv_mr *mr;
	struct half same = shared_by(&t, &mr);
	expect(!recv_at(&t.p.b, 1, 0, 4096), "a receive");
	expect(!send_at(&t.p.a, 1, 0, 64, IBV_SEND_SIGNALED), "a SEND");
	if (!bad)
		poll_good(t.p.a.cq);
	else
		wait_ms(50);
	expect(!write_at(&t.q.a, 2, 0, 64, &same, 32, IBV_SEND_SIGNALED), "a WRITE");
	poll_good(t.q.a.cq);
	/* behind the message it is free, though the receive had it */
	expect(!write_at(&t.q.a, 3, 0, 64, &same, 2048, IBV_SEND_SIGNALED), "a WRITE");
	poll_good(t.q.a.cq);
	if (bad)
		poll_good(t.p.a.cq);
	poll_good(t.p.b.cq);
	expect(!ibv_dereg_mr(mr), "the region to go");
	two_close(&t);
}

/* ---- three processes: two initiators and their target, which tell each other by messages ---- */

struct card {
	uint32_t qpn, rkey;
	uint64_t addr;
};

static void swap_cards(int in, int out, const struct half *h, struct card *peer)
{
	struct card mine = {h->qp->qp_num, h->mr->rkey, (uintptr_t)h->buf};
	expect(write(out, &mine, sizeof(mine)) == sizeof(mine), "to tell");
	expect(read(in, peer, sizeof(*peer)) == sizeof(*peer), "to be told");
}

/* Receives 1 when it is its turn; then writes, and tells the target that it is done. */
static void initiate(int in, int out, bool early, bool waits)
{
	struct pair p = {0};
	struct card peer;
	pair_begin(&p, &(struct wish){0});
	expect(!recv_at(&p.a, 9, 4096, 64), "a receive");
	swap_cards(in, out, &p.a, &peer);
	pair_connect_to(&p, &p.a, peer.qpn);
	expect(write(out, "r", 1) == 1, "to tell");
	char go;
	expect(read(in, &go, 1) == 1, "to be told");
	if (waits)
		poll_good(p.a.cq); /* the target's message: the other one has ended */
	struct half to = {.buf = (uint8_t *)(uintptr_t)peer.addr};
	struct ibv_mr mr = {.rkey = peer.rkey};
	to.mr = &mr;
	expect(!write_at(&p.a, 1, 0, 64, &to, 0, IBV_SEND_SIGNALED), "a WRITE");
	if (!early)
		poll_good(p.a.cq);
	expect(!send_at(&p.a, 2, 0, 8, IBV_SEND_SIGNALED), "a message");
	if (early)
		poll_good(p.a.cq);
	poll_good(p.a.cq);
	expect(write(out, "d", 1) == 1 && read(in, &go, 1) == 1, "to end together");
	pair_close(&p);
	exit(0);
}

/* bad: the second one is told while the first has not polled its completion yet. */
static void processes(bool bad)
{
	int to[2][2], from[2][2];
	char c;
	struct pair p = {0};
	struct card peer[2];
	pid_t child[2];
	for (int i = 0; i < 2; i++) {
		expect(!pipe(to[i]) && !pipe(from[i]), "pipes");
		child[i] = fork();
		if (!child[i])
			initiate(to[i][0], from[i][1], bad && !i, !bad && i);
	}
	pair_begin(&p, &(struct wish){0});
	struct half *half[] = {&p.a, &p.b};
	struct ibv_mr *both = p.a.mr;
	for (int i = 0; i < 2; i++) {
		expect(!recv_at(half[i], 5, 4096, 64), "a receive");
		struct half card = *half[i];
		card.buf = p.a.buf; /* the same memory for both */
		card.mr = both;
		swap_cards(from[i][0], to[i][1], &card, &peer[i]);
		pair_connect_to(&p, half[i], peer[i].qpn);
		expect(read(from[i][0], &c, 1) == 1, "to be told");
	}
	expect(write(to[0][1], "g", 1) == 1, "to start the first");
	poll_good(p.a.cq); /* its message: its WRITE is done */
	if (!bad) {
		expect(!send_at(&p.b, 3, 0, 8, IBV_SEND_SIGNALED), "to pass it on");
		poll_good(p.b.cq);
	}
	expect(write(to[1][1], "g", 1) == 1, "to start the second");
	poll_good(p.b.cq);
	for (int i = 0; i < 2; i++) {
		int status;
		expect(read(from[i][0], &c, 1) == 1 && write(to[i][1], "e", 1) == 1, "an end");
		expect(waitpid(child[i], &status, 0) == child[i] && !status,
			"a child that went well");
	}
	pair_close(&p);
}

const struct planted planted_race[] = {
	{"race", "race-writes", writes},
	{"race", "race-read", read_of_write},
	{"race", "race-send", write_of_send},
	{"race", "race-receive", write_of_receive},
	{"race", "race-processes", processes},
	{0},
};
