/* SPDX-License-Identifier: BSD-3-Clause */
/* locks_test.c - threads that each have a QP, two of them with a CQ in common, READ from a process
 * that sleeps, without each other's locks (device/hca.h), while other threads make, change and
 * destroy what they all look at: regions, QPs, the very QPs that READ. And SENDs of several threads
 * into one SRQ and one CQ. Under ThreadSanitizer this is what looks for races between a QP's lock
 * and the HCA's. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"
#include "peers.h"

enum { QPS = 5, WITH_CQ_OF_THEIR_OWN = 2, CHANGED = 4, ROUNDS = 400, WAIT_MS = 60000 };
enum { HALF = PAIR_BUF / 2, LEN_MAX = 20000, SEED = 100, CHANGES = 150 };

/* ---- the other process: memory, and sleep ---- */

struct world {
	struct pair p;
	struct side s[QPS];
	struct info peer[QPS];
	int sock;
	pid_t pid;
};

static void meet(struct world *w)
{
	struct info me[QPS];
	struct end e = {.sock = w->sock};
	char ready = 1;
	for (int i = 0; i < QPS; i++)
		me[i] = (struct info){
			w->s[i].qp->qp_num, w->s[i].psn, w->s[i].mr->rkey, (uintptr_t)w->s[i].buf};
	say(&e, me, sizeof(me));
	hear(&e, w->peer, sizeof(w->peer));
	for (int i = 0; i < QPS; i++)
		side_connect_to(&w->p, &w->s[i], w->peer[i].qpn, w->peer[i].psn);
	say(&e, &ready, 1);
	hear(&e, &ready, 1);
}

static void world_open(struct world *w, int sock)
{
	w->sock = sock;
	w->p = (struct pair){.timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
	w->p.ctx = pair_open_loopback();
	w->p.pd = ibv_alloc_pd(w->p.ctx);
	for (int i = 0; i < QPS; i++)
		side_make(&w->p, &w->s[i], 1000);
}

static void sleeper(int sock)
{
	static struct world w;
	char end;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	world_open(&w, sock);
	for (uint64_t i = 0; i < QPS; i++)
		pattern_fill(w.s[i].buf, HALF, SEED + i);
	meet(&w);
	_exit(read(sock, &end, 1) != 0);
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
}

/* Another QP in its place, with CQs and a SRQ of others'. */
static void side_share(
	struct pair *p, struct side *s, struct ibv_cq *scq, struct ibv_cq *rcq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {.send_cq = scq,
		.recv_cq = rcq,
		.srq = srq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 64, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	assert_int_equal(ibv_destroy_qp(s->qp), 0);
	s->qp = ibv_create_qp(p->pd, &init);
	assert_non_null(s->qp);
	to_init(s->qp);
}

static void world_make(struct world *w)
{
	int sv[2];
	struct ibv_wc wc;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	w->pid = fork();
	if (!w->pid) {
		close(sv[0]);
		sleeper(sv[1]);
	}
	close(sv[1]);
	world_open(w, sv[0]);
	for (int i = WITH_CQ_OF_THEIR_OWN; i < CHANGED; i++)
		side_share(&w->p, &w->s[i], w->s[WITH_CQ_OF_THEIR_OWN].cq, w->s[i].cq, NULL);
	meet(w);
	/* the lane is made while packets go by UDP */
	for (int i = 0; i < 40; i++) {
		assert_int_equal(pair_send(&w->s[0], IBV_WR_RDMA_READ, 0, 8, w->peer[0].addr,
					 w->peer[0].rkey),
			0);
		assert_true(pair_poll(w->s[0].cq, &wc, WAIT_MS));
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		usleep(1000);
	}
}

static void world_end(struct world *w)
{
	int status;
	close(w->sock);
	assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
	assert_int_equal(status, 0);
	for (int i = QPS - 1; i >= 0; i--)
		if (i < WITH_CQ_OF_THEIR_OWN || i >= CHANGED)
			side_free(&w->s[i]);
	for (int i = CHANGED - 1; i >= WITH_CQ_OF_THEIR_OWN; i--)
		assert_int_equal(ibv_destroy_qp(w->s[i].qp), 0);
	for (int i = CHANGED - 1; i >= WITH_CQ_OF_THEIR_OWN; i--) {
		assert_int_equal(ibv_destroy_cq(w->s[i].cq), 0);
		assert_int_equal(ibv_dereg_mr(w->s[i].mr), 0);
		free(w->s[i].buf);
	}
	assert_int_equal(ibv_dealloc_pd(w->p.pd), 0);
	assert_int_equal(ibv_close_device(w->p.ctx), 0);
}

/* ---- threads that READ ---- */

static struct world w;
static _Atomic unsigned done[QPS], running;
static _Atomic int bad; /* the line that found something wrong; 0: none has */
static void wrong_if(bool wrong, int line)
{
	int none = 0;
	if (wrong)
		atomic_compare_exchange_strong(&bad, &none, line);
}

static void take(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);
	wrong_if(n < 0, __LINE__);
	for (int k = 0; k < n; k++) {
		wrong_if(wc[k].status, __LINE__);
		for (int i = 0; i < QPS; i++)
			done[i] += wc[k].qp_num == w.s[i].qp->qp_num;
	}
}

static struct ibv_cq *cq_of(uint64_t i)
{
	return w.s[i < WITH_CQ_OF_THEIR_OWN ? i : WITH_CQ_OF_THEIR_OWN].cq;
}

static void do_it(uint64_t i, enum ibv_wr_opcode op, uint64_t at, uint32_t len, uint64_t there)
{
	unsigned before = done[i];
	wrong_if(pair_send(&w.s[i], op, at, len, w.peer[i].addr + there, w.peer[i].rkey), __LINE__);
	while (done[i] == before && !bad)
		take(cq_of(i));
}

/* Now and then a WRITE first, which goes by packets, and what it wrote is READ. */
static void *read_much(void *arg)
{
	uint64_t i = (uintptr_t)arg;
	struct rng rng = {i};
	uint8_t *buf = w.s[i].buf, *whole = malloc(HALF);
	pattern_fill(whole, HALF, SEED + i);
	for (uint64_t round = 0; round < ROUNDS && !bad; round++) {
		uint64_t random = rng_next(&rng);
		uint32_t len = round % 8 ? (uint32_t)(random >> 40) % 256 + 1 : LEN_MAX;
		uint64_t at = (random >> 33) % (HALF - LEN_MAX) & ~7ull;
		if (round % 16 == 5) {
			pattern_fill(buf + HALF, len, random);
			do_it(i, IBV_WR_RDMA_WRITE, HALF, len, HALF + at);
			do_it(i, IBV_WR_RDMA_READ, 0, len, HALF + at);
			wrong_if(!pattern_holds(buf, len, random), __LINE__);
			continue;
		}
		memset(buf + at, 0, len);
		do_it(i, IBV_WR_RDMA_READ, at, len, at);
		wrong_if(memcmp(buf + at, whole + at, len), __LINE__);
	}
	free(whole);
	running--;
	return NULL;
}

/* ---- those that change what all look at ---- */

static void *change_regions(void *arg)
{
	uint8_t *mem = malloc(64 * 64);
	struct ibv_mr *mr[64] = {0};
	for (unsigned n = 0; running; n++) {
		struct ibv_mr **at = &mr[n * 7 % 64];
		if (*at)
			wrong_if(ibv_dereg_mr(*at), __LINE__);
		*at = ibv_reg_mr(w.p.pd, mem + n % 64 * 64, 64, IBV_ACCESS_LOCAL_WRITE);
		wrong_if(!*at, __LINE__);
	}
	for (int i = 0; i < 64; i++)
		if (mr[i])
			wrong_if(ibv_dereg_mr(mr[i]), __LINE__);
	free(mem);
	return NULL;
}

static void *change_qps(void *arg)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	for (unsigned n = 0; running; n++) {
		struct side other = {0};
		side_make(&w.p, &other, 5);
		side_connect_to(&w.p, &other, other.qp->qp_num, 5); /* to itself */
		pair_recv(&other, 0, 64, n);
		side_free(&other);
		for (int i = 0; i < CHANGED; i++) {
			wrong_if(ibv_query_qp(w.s[i].qp, &a, IBV_QP_STATE, &init) ||
					 a.qp_state != IBV_QPS_RTS,
				__LINE__);
			a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .min_rnr_timer = n % 16};
			wrong_if(ibv_modify_qp(w.s[i].qp, &a, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
				__LINE__);
		}
	}
	return NULL;
}

/* The region that a READ of another thread is written into goes away. From then on its memory is
 * the program's, whatever becomes of the READ. */
static struct {
	_Atomic unsigned asked, answered;
	_Atomic int status;
	_Atomic uint32_t lkey;
} victim;

static void *read_into_the_victim(void *arg)
{
	struct ibv_wc wc;
	for (unsigned n = 1;; n++) {
		while (victim.asked != n)
			if (!running)
				return NULL;
		struct ibv_sge sge = {
			.addr = (uintptr_t)w.s[CHANGED].buf, .length = 65536, .lkey = victim.lkey};
		struct ibv_send_wr *refused, wr = {.sg_list = &sge,
						     .num_sge = 1,
						     .opcode = IBV_WR_RDMA_READ,
						     .send_flags = IBV_SEND_SIGNALED};
		wr.wr.rdma.remote_addr = w.peer[CHANGED].addr;
		wr.wr.rdma.rkey = w.peer[CHANGED].rkey;
		wrong_if(ibv_post_send(w.s[CHANGED].qp, &wr, &refused), __LINE__);
		wrong_if(!pair_poll(w.s[CHANGED].cq, &wc, WAIT_MS), __LINE__);
		victim.status = (int)wc.status;
		victim.answered = n;
	}
}

static void connect_again(struct side *s)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	assert_int_equal(ibv_modify_qp(s->qp, &a, IBV_QP_STATE), 0);
	to_init(s->qp);
	side_connect_to(&w.p, s, w.peer[CHANGED].qpn, w.peer[CHANGED].psn);
}

static void *take_regions_away(void *arg)
{
	struct side *s = &w.s[CHANGED];
	for (unsigned n = 1; n <= CHANGES && !bad; n++) {
		struct ibv_mr *mr = ibv_reg_mr(w.p.pd, s->buf, 65536, IBV_ACCESS_LOCAL_WRITE);
		victim.lkey = mr->lkey;
		victim.asked = n;
		for (volatile unsigned k = 0; k < n * 37 % 4000; k++)
			;
		wrong_if(ibv_dereg_mr(mr), __LINE__);
		memset(s->buf, 0x5a, 65536);
		while (victim.answered != n && !bad)
			;
		wrong_if(victim.status != IBV_WC_SUCCESS && victim.status != IBV_WC_LOC_PROT_ERR,
			__LINE__);
		for (int k = 0; k < 65536; k++)
			wrong_if(s->buf[k] != 0x5a, __LINE__);
		if (victim.status != IBV_WC_SUCCESS)
			connect_again(s);
	}
	running--;
	return NULL;
}

static void readers_and_those_who_change_things(void **state)
{
	static void *(*const of[])(void *) = {read_much, read_much, read_much, read_much,
		take_regions_away, read_into_the_victim, change_regions, change_qps};
	enum { THREADS = sizeof(of) / sizeof(of[0]) };
	pthread_t t[THREADS];
	world_make(&w);
	running = 5;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, of[i], (void *)i), 0);
#ifndef __SANITIZE_THREAD__
	/* children take copies of it all at any moment, and do nothing with them */
	for (int i = 0; i < 20 && running; i++) {
		int status;
		pid_t pid = fork();
		if (!pid) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
#endif
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(bad, 0);
	world_end(&w);
}

/* ---- one SRQ, one CQ, several who SEND ---- */

enum { SENDERS = 3, SENDS = 300, SEND_LEN = 100, SLOTS = 64 };
static struct {
	struct pair p[SENDERS];
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t mem[SLOTS * SEND_LEN];
	_Atomic unsigned seen[SENDERS * SENDS];
} many;

static void srq_post(uint64_t slot)
{
	struct ibv_sge sge = {.addr = (uintptr_t)many.mem + slot * SEND_LEN,
		.length = SEND_LEN,
		.lkey = many.mr->lkey};
	struct ibv_recv_wr *refused, wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	wrong_if(ibv_post_srq_recv(many.srq, &wr, &refused), __LINE__);
}

static void *send_much(void *arg)
{
	uint32_t i = (uint32_t)(uintptr_t)arg;
	struct side *s = &many.p[i].a;
	struct ibv_wc wc;
	for (uint32_t n = 0; n < SENDS && !bad; n++) {
		uint32_t number = i * SENDS + n;
		pattern_fill(s->buf, SEND_LEN, number);
		struct ibv_sge sge = {
			.addr = (uintptr_t)s->buf, .length = SEND_LEN, .lkey = s->mr->lkey};
		struct ibv_send_wr *refused, wr = {.sg_list = &sge,
						     .num_sge = 1,
						     .opcode = IBV_WR_SEND_WITH_IMM,
						     .imm_data = number};
		wrong_if(ibv_post_send(s->qp, &wr, &refused), __LINE__);
		wrong_if(!pair_poll(s->cq, &wc, WAIT_MS) || wc.status, __LINE__);
	}
	running--;
	return NULL;
}

static void *receive_all(void *arg)
{
	struct ibv_wc wc;
	for (unsigned n = 0; n < SENDERS * SENDS && !bad; n++) {
		wrong_if(!pair_poll(many.p[0].b.cq, &wc, WAIT_MS) || wc.status, __LINE__);
		if (bad)
			break;
		wrong_if(wc.imm_data >= SENDERS * SENDS || many.seen[wc.imm_data]++ ||
				 !pattern_holds(
					 many.mem + wc.wr_id * SEND_LEN, SEND_LEN, wc.imm_data),
			__LINE__);
		srq_post(wc.wr_id);
	}
	return NULL;
}

static void senders_share_a_srq_and_a_cq(void **state)
{
	pthread_t t[SENDERS + 1];
	struct pair *p = many.p;
	for (int i = 0; i < SENDERS; i++)
		pair_make(&p[i], 14, 7, 7);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = SLOTS, .max_sge = 1}};
	many.srq = ibv_create_srq(p[0].pd, &init);
	many.mr = ibv_reg_mr(p[0].pd, many.mem, sizeof(many.mem), IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(many.srq);
	assert_non_null(many.mr);
	for (int i = 0; i < SENDERS; i++) {
		struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
		side_share(&p[0], &p[i].b, p[i].b.cq, p[0].b.cq, many.srq);
		assert_int_equal(ibv_modify_qp(p[i].a.qp, &reset, IBV_QP_STATE), 0);
		to_init(p[i].a.qp);
		side_connect_to(&p[i], &p[i].a, p[i].b.qp->qp_num, p[i].b.psn);
		side_connect_to(&p[i], &p[i].b, p[i].a.qp->qp_num, p[i].a.psn);
	}
	for (uint64_t k = 0; k < SLOTS; k++)
		srq_post(k);
	running = SENDERS;
	w.p = p[0]; /* where regions come and go meanwhile */
	pthread_t regions;
	assert_int_equal(pthread_create(&regions, NULL, change_regions, NULL), 0);
	for (uintptr_t i = 0; i <= SENDERS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, i < SENDERS ? send_much : receive_all,
					 (void *)i),
			0);
	for (int i = 0; i <= SENDERS; i++)
		assert_int_equal(pthread_join(t[i], NULL), 0);
	assert_int_equal(pthread_join(regions, NULL), 0);
	assert_int_equal(bad, 0);
	for (unsigned n = 0; n < SENDERS * SENDS; n++)
		assert_int_equal(many.seen[n], 1);
	for (int i = SENDERS - 1; i > 0; i--)
		pair_free(&p[i]);
	assert_int_equal(ibv_destroy_qp(p[0].b.qp), 0);
	assert_int_equal(ibv_destroy_srq(many.srq), 0);
	assert_int_equal(ibv_dereg_mr(many.mr), 0);
	assert_int_equal(ibv_destroy_cq(p[0].b.cq), 0);
	assert_int_equal(ibv_dereg_mr(p[0].b.mr), 0);
	free(p[0].b.buf);
	side_free(&p[0].a);
	assert_int_equal(ibv_dealloc_pd(p[0].pd), 0);
	assert_int_equal(ibv_close_device(p[0].ctx), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readers_and_those_who_change_things),
		cmocka_unit_test(senders_share_a_srq_and_a_cq),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
