/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_places_test.c - messages that the receiver fetches from the sender's memory, at once to
 * where they belong (rpwi_places_next): SENDs of any length, into receives of several pieces, too
 * early for their receive, with short ones in between; and WRITEs that need no order. Each byte is
 * what was sent, and none beside the message has changed. TEST_ROUNDS: how many. */
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

/* ---- WRITEs ---- */

/* Each message is two WRITEs, of which the second has immediate data and so takes a receive, whose
 * memory stays as it is; every third is followed by a SEND of the same bytes. A WRITE of other
 * bytes, in other packets, comes before and is overwritten. */
enum { REFUSED = 100000 };

static int post(struct end *e, enum ibv_wr_opcode op, uint8_t *from, uint32_t lkey, uint64_t at,
	uint32_t len, uint32_t imm)
{
	struct ibv_sge sge = {(uintptr_t)from, len, lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				   .num_sge = 1,
				   .opcode = op,
				   .send_flags = IBV_SEND_SIGNALED,
				   .imm_data = imm},
			   *bad;
	wr.wr.rdma.remote_addr = e->peer.addr + at;
	wr.wr.rdma.rkey = e->peer.rkey;
	return ibv_post_send(e->s.qp, &wr, &bad);
}

static uint32_t first_of(uint32_t len, uint64_t i) { return len * (uint32_t)(i % 5) / 5; }
static bool has_send(uint64_t i) { return i % 3 == 0; }

static void writer(int sock)
{
	struct end e;
	struct ibv_wc wc;
	char word;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	end_make(&e, sock);
	hear(&e, &e.peer, sizeof(e.peer));
	size_t bytes = (size_t)(DEPTH + 1) * LEN_MAX;
	uint8_t *buf = malloc(bytes), *other = buf + (size_t)DEPTH * LEN_MAX;
	struct ibv_mr *mr = ibv_reg_mr(e.p.pd, buf, bytes, 0);
	pattern_fill(other, LEN_MAX, UINT64_MAX);
	for (uint64_t i = 0; i < messages(); i++) {
		uint8_t *from = buf + i % DEPTH * LEN_MAX;
		struct message m = message_of(i);
		uint64_t at = i % DEPTH * AREA + m.at[0];
		uint32_t half = first_of(m.len, i);
		pattern_fill(from, m.len, i);
		if (i >= DEPTH - 1)
			hear(&e, &word, 1);
		if (post(&e, IBV_WR_RDMA_WRITE, other, mr->lkey, at, m.len - half / 2, 0) ||
			post(&e, IBV_WR_RDMA_WRITE, from, mr->lkey, at, half, 0) ||
			post(&e, IBV_WR_RDMA_WRITE_WITH_IMM, from + half, mr->lkey, at + half,
				m.len - half, (uint32_t)i) ||
			(has_send(i) && post(&e, IBV_WR_SEND, from, mr->lkey, 0, m.len, 0)))
			_exit(2);
		for (int k = 0; k < (has_send(i) ? 4 : 3); k++)
			if (!pair_poll(e.s.cq, &wc, 20000) || wc.status)
				_exit(1);
	}
	for (uint64_t i = 0; i < messages() && i < DEPTH - 1; i++)
		hear(&e, &word, 1);
	/* It begins within the region and ends behind it. */
	if (post(&e, IBV_WR_RDMA_WRITE, buf, mr->lkey, (uint64_t)DEPTH * AREA - REFUSED + 1,
		    REFUSED, 0) ||
		!pair_poll(e.s.cq, &wc, 20000))
		_exit(3);
	_exit(wc.status == IBV_WC_REM_ACCESS_ERR ? 0 : 4);
}

static void receive_into(struct end *e, struct ibv_mr *mr, uint8_t *at)
{
	struct ibv_sge sge = {(uintptr_t)at, LEN_MAX, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	assert_int_equal(ibv_post_recv(e->s.qp, &wr, &bad), 0);
}

static void received(struct end *e, enum ibv_wc_opcode opcode, uint64_t i)
{
	struct ibv_wc wc;
	assert_true(pair_poll(e->s.cq, &wc, 20000));
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, opcode);
	if (opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		assert_int_equal(wc.imm_data, (uint32_t)i);
}

static void is_blank(const uint8_t *at, size_t n, size_t step)
{
	for (size_t k = 0; k < n; k += step)
		assert_int_equal(at[k], BEFORE);
}

static void a_write_that_needs_no_order_is_where_it_belongs(void **unused)
{
	struct end e;
	int sock, status;
	(void)unused;
	pid_t pid = peer_fork(&sock);
	if (!pid)
		writer(sock);
	end_make(&e, sock);
	size_t bytes = (size_t)(DEPTH + 2) * AREA;
	uint8_t *areas = malloc(bytes), *untouched = areas + (size_t)DEPTH * AREA,
		*sent = untouched + AREA;
	memset(areas, BEFORE, bytes);
	struct ibv_mr *mr = ibv_reg_mr(e.p.pd, areas, (size_t)DEPTH * AREA,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_mr *local = ibv_reg_mr(e.p.pd, untouched, 2 * AREA, IBV_ACCESS_LOCAL_WRITE);
	struct info here = {.addr = (uintptr_t)areas, .rkey = mr->rkey};
	say(&e, &here, sizeof(here));
	for (uint64_t i = 0; i < messages(); i++) {
		/* now and then it comes too early */
		if (!(i % 7))
			usleep(100);
		receive_into(&e, local, untouched);
		if (has_send(i))
			receive_into(&e, local, sent);
		received(&e, IBV_WC_RECV_RDMA_WITH_IMM, i);
		struct message m = message_of(i);
		uint8_t *area = areas + i % DEPTH * AREA;
		assert_true(pattern_holds(area + m.at[0], m.len, i));
		memset(area + m.at[0], BEFORE, m.len);
		is_blank(area, AREA, 61);
		if (has_send(i)) {
			received(&e, IBV_WC_RECV, i);
			assert_true(pattern_holds(sent, m.len, i));
			memset(sent, BEFORE, m.len);
		}
		is_blank(untouched, AREA, 61);
		say(&e, "", 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	is_blank(areas, bytes, 1);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(local), 0);
	end_free(&e);
	free(areas);
}

int main(void)
{
	setenv("ROPEWAY_WRITES", "unordered", 1);
	/* by reference wherever that may be, whatever is measured to be shorter */
	setenv("ROPEWAY_WIRE", "fetch", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_byte_is_where_it_belongs),
		cmocka_unit_test(a_write_that_needs_no_order_is_where_it_belongs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
