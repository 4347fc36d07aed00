/* SPDX-License-Identifier: BSD-3-Clause */
/* apart_test.c - queue pairs are independent: an 8-byte WRITE to a live process completes soon
 * beside QPs to the same address whose process is killed or stopped, whose peers are destroyed or
 * in ERR, or that move bulk data. Its argument is ROPEWAY_WIRE. */
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum {
	QPS = 64,
	POSTED = 8,
	BULK = 65536,
	WRITES = 300,
	/* ten times what a busy machine with two cores took; before, it was two seconds and more */
	SOON_MS = 500,
};

enum mode { KILLED, STOPPED, LEFT, DESTROYED, IN_ERR, IN_BULK };

struct far {
	struct end e; /* the small one's */
	struct side s[QPS];
	pid_t pid;
};

static void many(struct far *f)
{
	struct info mine[QPS], theirs[QPS];
	for (unsigned i = 0; i < QPS; i++) {
		side_make(&f->e.p, &f->s[i], 0x1000 + i);
		mine[i] = (struct info){
			f->s[i].qp->qp_num, f->s[i].psn, f->s[i].mr->rkey, (uintptr_t)f->s[i].buf};
	}
	say(&f->e, mine, sizeof(mine));
	hear(&f->e, theirs, sizeof(theirs));
	for (unsigned i = 0; i < QPS; i++)
		side_connect_to(&f->e.p, &f->s[i], theirs[i].qpn, theirs[i].psn);
	f->e.peer = theirs[0];
}

static void together(const struct far *f)
{
	char c = 0;
	say(&f->e, &c, 1);
	hear(&f->e, &c, 1);
}

static void ends(struct far *f, enum mode mode)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	for (unsigned i = 0; i < QPS; i++)
		if (mode == DESTROYED)
			assert_int_equal(ibv_destroy_qp(f->s[i].qp), 0);
		else if (mode == IN_ERR)
			assert_int_equal(ibv_modify_qp(f->s[i].qp, &err, IBV_QP_STATE), 0);
}

static void target(int sock, enum mode mode)
{
	static struct far f;
	char c;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	f.e.sock = sock;
	hear(&f.e, &c, 1); /* when its turn has come to be a member of the port group */
	end_make(&f.e, sock);
	many(&f);
	together(&f);
	ends(&f, mode);
	together(&f);
	hear(&f.e, &c, 1);
	_exit(0);
}

/* Before this process has a thread (TSan). */
static void begin(struct far *f, enum mode mode)
{
	int sock;
	f->pid = peer_fork(&sock);
	if (!f->pid)
		target(sock, mode);
	f->e.sock = sock;
}

static void meet(struct far *f)
{
	char c = 0;
	say(&f->e, &c, 1);
	end_make(&f->e, f->e.sock);
	many(f);
	together(f);
}

static int64_t now_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void bulk(struct far *x, unsigned i)
{
	assert_int_equal(
		pair_send(&x->s[i], IBV_WR_RDMA_WRITE, 0, BULK, x->e.peer.addr, x->e.peer.rkey), 0);
}

/* The other completions; of the bulk, as many are posted again. */
static void tend(struct far *x, enum mode mode)
{
	struct ibv_wc wc;
	for (unsigned i = 0; i < QPS; i++)
		if (ibv_poll_cq(x->s[i].cq, 1, &wc) > 0 && mode == IN_BULK) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			bulk(x, i);
		}
}

static void small_writes(struct far *x, struct far *y, enum mode mode)
{
	struct side *s = &y->e.s;
	uint64_t there = y->e.peer.addr;
	for (uint64_t k = 1; k <= WRITES; k++) {
		struct ibv_wc wc;
		int64_t began = now_ms();
		memcpy(s->buf, &k, 8);
		assert_int_equal(pair_send(s, IBV_WR_RDMA_WRITE, 0, 8, there, y->e.peer.rkey), 0);
		while (!ibv_poll_cq(s->cq, 1, &wc)) {
			tend(x, mode);
			assert_true(now_ms() - began < SOON_MS);
		}
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		for (int64_t t = now_ms(); now_ms() == t;)
			tend(x, mode);
	}
}

/* It needs the window that the dead ones to its own process had, one after the other. */
static void a_long_write_to_the_same_process(struct far *x)
{
	struct ibv_wc wc;
	assert_int_equal(
		pair_send(&x->e.s, IBV_WR_RDMA_WRITE, 0, BULK, x->e.peer.addr, x->e.peer.rkey), 0);
	assert_true(pair_poll(x->e.s.cq, &wc, SOON_MS));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void far_end(struct far *f)
{
	int status;
	kill(f->pid, SIGKILL);
	waitpid(f->pid, &status, 0);
	for (unsigned i = 0; i < QPS; i++)
		side_free(&f->s[i]);
	end_free(&f->e);
}

static void beside(enum mode mode)
{
	static struct far x, y, leaves;
	if (mode == LEFT)
		begin(&leaves, IN_BULK);
	begin(&x, mode);
	begin(&y, IN_BULK);
	if (mode == LEFT)
		meet(&leaves);
	meet(&x);
	meet(&y);
	together(&x);
	together(&y);
	if (mode == KILLED)
		kill(x.pid, SIGKILL);
	if (mode == STOPPED || mode == LEFT)
		stop(x.pid);
	/* another member of the port group has its place now, and its old place is nobody's */
	if (mode == LEFT)
		far_end(&leaves);
	for (unsigned i = 0; i < QPS; i++)
		for (unsigned k = 0; k < POSTED; k++)
			bulk(&x, i);
	if (mode == DESTROYED || mode == IN_ERR)
		a_long_write_to_the_same_process(&x);
	small_writes(&x, &y, mode);
	far_end(&x);
	far_end(&y);
}

static void beside_qps_of_a_killed_process(void **unused)
{
	(void)unused;
	beside(KILLED);
}
static void beside_qps_of_a_stopped_process(void **unused)
{
	(void)unused;
	beside(STOPPED);
}
static void beside_qps_of_a_stopped_process_when_a_third_has_ended(void **unused)
{
	(void)unused;
	beside(LEFT);
}
static void beside_qps_whose_peers_are_destroyed(void **unused)
{
	(void)unused;
	beside(DESTROYED);
}
static void beside_qps_whose_peers_are_in_err(void **unused)
{
	(void)unused;
	beside(IN_ERR);
}
static void beside_qps_that_move_bulk_data(void **unused)
{
	(void)unused;
	beside(IN_BULK);
}

/* Others who use port 4791 meanwhile, and end, are not what is looked at. Without root we stay. */
static void away_from_others(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	if (unshare(CLONE_NEWNET))
		return;
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	assert_int_equal(ioctl(fd, SIOCSIFFLAGS, &lo), 0);
	close(fd);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(beside_qps_of_a_killed_process),
		cmocka_unit_test(beside_qps_of_a_stopped_process),
		cmocka_unit_test(beside_qps_of_a_stopped_process_when_a_third_has_ended),
		cmocka_unit_test(beside_qps_whose_peers_are_destroyed),
		cmocka_unit_test(beside_qps_whose_peers_are_in_err),
		cmocka_unit_test(beside_qps_that_move_bulk_data),
	};
	away_from_others();
	setenv("ROPEWAY_WIRE", argc > 1 ? argv[1] : "auto", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
