/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_acks_test.c - an ACK that is due when a chain is posted of which one request goes by
 * reference: the ACK arrives before them all, the lane stays, and each request of the peer
 * completes before the answer to it. */
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { ROUNDS = 200, BIG = 32768, RECVS = 32 };

static void recv_again(struct end *e) { pair_recv(&e->s, 0, 64, 1); }

/* The next completion; a receive is posted again. */
static bool is_recv(struct end *e)
{
	struct ibv_wc wc;
	assert_true(pair_poll(e->s.cq, &wc, 10000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	bool recv = wc.opcode & IBV_WC_RECV;
	if (recv)
		recv_again(e);
	return recv;
}

/* Short WRITEs, one of a whole reference, then the SEND that answers: `second` bytes are in the
 * second one, which the ACK may ride with or not. */
static void answer(struct end *e, uint32_t second)
{
	uint64_t at = (uintptr_t)e->s.buf;
	struct ibv_sge sge[4] = {{at + 8192, 8, e->s.mr->lkey}, {at + 9000, second, e->s.mr->lkey},
		{at + BIG, BIG, e->s.mr->lkey}, {at + 9400, 4, e->s.mr->lkey}};
	struct ibv_send_wr wr[4], *bad;
	for (unsigned i = 0; i < 4; i++) {
		wr[i] = (struct ibv_send_wr){.wr_id = i,
			.next = i < 3 ? &wr[i + 1] : NULL,
			.sg_list = &sge[i],
			.num_sge = 1,
			.opcode = i < 3 ? IBV_WR_RDMA_WRITE : IBV_WR_SEND,
			.send_flags = i == 1 && second <= 128 ? IBV_SEND_INLINE : 0};
		wr[i].wr.rdma.remote_addr = e->peer.addr + (sge[i].addr - at);
		wr[i].wr.rdma.rkey = e->peer.rkey;
	}
	assert_int_equal(ibv_post_send(e->s.qp, wr, &bad), 0);
}

static void responder(int sock, uint32_t second)
{
	struct end e;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&e, sock);
	for (unsigned i = 0; i < RECVS; i++)
		recv_again(&e);
	char c = 0;
	say(&e, &c, 1);
	hear(&e, &c, 1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		while (!is_recv(&e))
			;
		pattern_fill(e.s.buf + BIG, BIG, r);
		answer(&e, second);
	}
	hear(&e, &c, 1);
	_exit(0);
}

/* Whoever closes a lane says so. */
static FILE *listen_to_errors(int *stderr_fd)
{
	FILE *said = tmpfile();
	assert_non_null(said);
	*stderr_fd = dup(2);
	dup2(fileno(said), 2);
	return said;
}

static void nothing_was_said(FILE *said, int stderr_fd)
{
	char line[200] = "";
	dup2(stderr_fd, 2);
	close(stderr_fd);
	rewind(said);
	if (fgets(line, sizeof(line), said))
		fail_msg("%s", line);
	fclose(said);
}

static void rounds(uint32_t second)
{
	int stderr_fd;
	FILE *said = listen_to_errors(&stderr_fd);
	struct end e;
	int sock, status;
	char c = 0;
	unsigned after = 0;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		responder(sock, second);
	end_make(&e, sock);
	for (unsigned i = 0; i < RECVS; i++)
		recv_again(&e);
	say(&e, &c, 1);
	hear(&e, &c, 1);
	for (unsigned r = 0; r < ROUNDS; r++) {
		IN_CASE("round", r);
		assert_int_equal(pair_send(&e.s, IBV_WR_SEND, 8192, 8, 0, 0), 0);
		bool sent = false, got = false;
		while (!sent || !got) {
			bool recv = is_recv(&e);
			after += recv && !sent;
			got |= recv;
			sent |= !recv;
		}
		assert_true(pattern_holds(e.s.buf + BIG, BIG, r));
	}
	/* Once in a while the ACK goes by itself before the answer, and is late; as a rule not. */
	assert_true(after < ROUNDS / 10);
	say(&e, &c, 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	end_free(&e);
	nothing_was_said(said, stderr_fd);
}

static void an_ack_comes_before_a_short_answer(void **unused)
{
	(void)unused;
	rounds(16);
}

static void an_ack_comes_before_an_answer_in_the_bulk_area(void **unused)
{
	(void)unused;
	rounds(200);
}

int main(void)
{
	/* by reference wherever that may be, whatever is measured to be shorter */
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_ack_comes_before_a_short_answer),
		cmocka_unit_test(an_ack_comes_before_an_answer_in_the_bulk_area),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
