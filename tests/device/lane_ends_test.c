/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_ends_test.c - QPs that end while SENDs to them are in the lane, by reference: once
 * ibv_destroy_qp, or a modify to RESET, has returned, no byte of the receives that were posted to
 * them changes any more. TEST_ROUNDS: how often. */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { QPS = 4, RECVS = 24, ROOM = 32768, LEN = 20000, OURS = 0xee };

static unsigned rounds(void) { return (unsigned)test_rounds(120); }

struct many {
	struct end e; /* its QP stays, and with it the lane */
	struct side s[QPS];
};

static void many_make(struct many *m)
{
	struct info mine[QPS], theirs[QPS];
	for (unsigned i = 0; i < QPS; i++) {
		side_make(&m->e.p, &m->s[i], 0x100 + i);
		mine[i] = (struct info){.qpn = m->s[i].qp->qp_num, .psn = m->s[i].psn};
	}
	say(&m->e, mine, sizeof(mine));
	hear(&m->e, theirs, sizeof(theirs));
	for (unsigned i = 0; i < QPS; i++)
		side_connect_to(&m->e.p, &m->s[i], theirs[i].qpn, theirs[i].psn);
}

static void together(const struct many *m)
{
	char c = 0;
	say(&m->e, &c, 1);
	hear(&m->e, &c, 1);
}

static void sender(int sock)
{
	struct many m;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&m.e, sock);
	for (unsigned r = 0; r < rounds(); r++) {
		many_make(&m);
		together(&m);
		for (unsigned k = 0; k < RECVS; k++)
			for (unsigned i = 0; i < QPS; i++)
				pair_send(&m.s[i], IBV_WR_SEND, k % 8 * ROOM, LEN, 0, 0);
		together(&m);
		for (unsigned i = 0; i < QPS; i++)
			side_free(&m.s[i]);
	}
	_exit(0);
}

static unsigned long changed(const uint8_t *at, size_t n)
{
	unsigned long bad = 0;
	for (size_t i = 0; i < n; i++)
		bad += at[i] != OURS;
	return bad;
}

static void no_byte_is_placed_for_a_qp_that_has_ended(void **unused)
{
	const size_t area = (size_t)QPS * RECVS * ROOM;
	struct many m;
	struct ibv_wc wc;
	int sock, status;
	(void)unused;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		sender(sock);
	end_make(&m.e, sock);
	uint8_t *buf = mmap(NULL, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(m.e.p.pd, buf, area, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(mr);
	struct rng rng = {test_seed(7)};
	for (unsigned r = 0; r < rounds(); r++) {
		IN_CASE("round", r);
		many_make(&m);
		for (unsigned k = 0; k < RECVS * QPS; k++) {
			struct ibv_sge sge = {(uintptr_t)buf + (size_t)k * ROOM, ROOM, mr->lkey};
			struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
			assert_int_equal(ibv_post_recv(m.s[k % QPS].qp, &wr, &bad), 0);
		}
		together(&m);
		unsigned want = (unsigned)rng_below(&rng, 60);
		for (unsigned n = 0, i = 0; n < want && i < 20000; i++)
			n += pair_poll(m.s[i % QPS].cq, &wc, 0);
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
		for (unsigned i = 0; i < QPS; i++)
			if (r % 2)
				assert_int_equal(ibv_modify_qp(m.s[i].qp, &reset, IBV_QP_STATE), 0);
			else
				assert_int_equal(ibv_destroy_qp(m.s[i].qp), 0);
		memset(buf, OURS, area);
		for (int i = 0; i < 400; i++)
			pair_poll(m.e.s.cq, &wc, 0);
		usleep(2000);
		assert_int_equal(changed(buf, area), 0);
		together(&m);
		for (unsigned i = 0; i < QPS; i++) {
			if (r % 2)
				assert_int_equal(ibv_destroy_qp(m.s[i].qp), 0);
			assert_int_equal(ibv_destroy_cq(m.s[i].cq), 0);
			assert_int_equal(ibv_dereg_mr(m.s[i].mr), 0);
			free(m.s[i].buf);
		}
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(buf, area);
	end_free(&m.e);
}

int main(void)
{
	/* by reference wherever that may be, whatever is measured to be shorter */
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_byte_is_placed_for_a_qp_that_has_ended),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
