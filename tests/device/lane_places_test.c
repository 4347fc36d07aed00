/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_places_test.c - SENDs that the receiver fetches from the sender's memory, at once to where
 * its receives are (rpwi_places_next): of any length, into receives of several pieces, too early
 * for their receive, with short ones in between. Each byte is what was sent, and none beside the
 * message has changed. TEST_ROUNDS: how many. */
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { DEPTH = 8, LEN_MAX = 200000, AREA = 1 << 18, SGES = 3, BEFORE = 0x5a };

static uint32_t chance(struct rng *r, uint32_t n) { return (uint32_t)rng_below(r, n); }

/* Both sides know what message `i` is. */
struct message {
	uint32_t len, nsge, at[SGES], size[SGES];
};

static struct message message_of(uint64_t i)
{
	struct rng state = {i};
	struct message m = {
		.len = chance(&state, 3) ? 1 + chance(&state, LEN_MAX) : 1 + chance(&state, 64),
		.nsge = 1 + chance(&state, SGES)};
	uint32_t room = m.len + (chance(&state, 2) ? 0 : chance(&state, 5000)), at = 0;
	for (uint32_t k = 0; k < m.nsge; k++) {
		m.at[k] = at + chance(&state, 100);
		m.size[k] = k + 1 < m.nsge ? chance(&state, room + 1) : room;
		room -= m.size[k];
		at = m.at[k] + m.size[k];
	}
	return m;
}

static uint64_t messages(void) { return test_rounds(1500); }

static void sender(int sock)
{
	struct end e;
	struct ibv_wc wc;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&e, sock);
	uint8_t *buf = malloc((size_t)DEPTH * LEN_MAX);
	struct ibv_mr *mr = ibv_reg_mr(e.p.pd, buf, (size_t)DEPTH * LEN_MAX, 0);
	for (uint64_t i = 0; i < messages() + DEPTH; i++) {
		if (i >= DEPTH && (!pair_poll(e.s.cq, &wc, 20000) || wc.status))
			_exit(1);
		if (i >= messages())
			continue;
		uint8_t *from = buf + i % DEPTH * LEN_MAX;
		struct message m = message_of(i);
		pattern_fill(from, m.len, i);
		struct ibv_sge sge = {(uintptr_t)from, m.len, mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge,
					   .num_sge = 1,
					   .opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		if (ibv_post_send(e.s.qp, &wr, &bad))
			_exit(2);
	}
	_exit(0);
}

static void receive(struct end *e, struct ibv_mr *mr, uint8_t *area, uint64_t i)
{
	struct message m = message_of(i);
	struct ibv_sge sge[SGES];
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = sge, .num_sge = (int)m.nsge}, *bad;
	memset(area, BEFORE, AREA);
	for (uint32_t k = 0; k < m.nsge; k++)
		sge[k] = (struct ibv_sge){(uintptr_t)area + m.at[k], m.size[k], mr->lkey};
	assert_int_equal(ibv_post_recv(e->s.qp, &wr, &bad), 0);
}

/* It takes the message out, so that what is left is what was there before. */
static void is_message(uint8_t *area, uint64_t i)
{
	static uint8_t got[LEN_MAX];
	struct message m = message_of(i);
	uint32_t done = 0;
	for (uint32_t k = 0; k < m.nsge; k++) {
		uint32_t n = m.size[k] < m.len - done ? m.size[k] : m.len - done;
		memcpy(got + done, area + m.at[k], n);
		memset(area + m.at[k], BEFORE, n);
		done += n;
	}
	assert_int_equal(done, m.len);
	assert_true(pattern_holds(got, m.len, i));
	for (size_t at = 0; at < AREA; at++)
		assert_int_equal(area[at], BEFORE);
}

static void each_byte_is_where_it_belongs(void **unused)
{
	struct end e;
	struct ibv_wc wc;
	int sock, status;
	(void)unused;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		sender(sock);
	end_make(&e, sock);
	uint8_t *areas = malloc((size_t)DEPTH * AREA);
	struct ibv_mr *mr = ibv_reg_mr(e.p.pd, areas, (size_t)DEPTH * AREA, IBV_ACCESS_LOCAL_WRITE);
	uint64_t posted = 0;
	for (uint64_t i = 0; i < messages(); i++) {
		/* now and then the sender is ahead, and its SENDs find no receive */
		if (posted == i || i % 7)
			for (; posted < messages() && posted < i + DEPTH; posted++)
				receive(&e, mr, areas + posted % DEPTH * AREA, posted);
		assert_true(pair_poll(e.s.cq, &wc, 20000));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.byte_len, message_of(i).len);
		is_message(areas + i % DEPTH * AREA, i);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	end_free(&e);
	free(areas);
}

int main(void)
{
	/* by reference wherever that may be, whatever is measured to be shorter */
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_byte_is_where_it_belongs)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
