/* SPDX-License-Identifier: BSD-3-Clause */
/* absent_test.c - a peer's address at which no host is: RTR and ibv_create_ah end with ETIMEDOUT
 * after about a second, rdma_resolve_addr with ADDR_ERROR when the program's time is over, and
 * nobody else waits meanwhile. In a network namespace with one interface, whose other end answers
 * nothing; hosts appear as entries of the neighbor table. Deadlines are tested at ten times their
 * value. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "lib/test.h"
#include "pair.h"

enum { THREADS = 20, LIMIT_MS = 10000 };
static struct ibv_context *ctx; /* the interface's device */

static bool run(const char *cmd) { return system(cmd) == 0; }

static double now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void enter(void)
{
	if (unshare(CLONE_NEWNET) ||
		!run("ip link set lo up && ip link add d0 type veth peer name p0 && ip link set p0 "
		     "addrgenmode none up && ip link set d0 addrgenmode none up && ip addr add "
		     "10.66.0.1/24 dev d0 && ip addr add fd66::1/64 dev d0 nodad && ip route add "
		     "10.99.0.0/16 via 10.66.0.254")) {
		fprintf(stderr,
			"SKIPPED: no network namespace with a veth pair can be made here\n");
		exit(77);
	}
}

static struct ibv_ah_attr vector_to(const char *ip)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1};
	char mapped[64];
	bool v6 = strchr(ip, ':');
	snprintf(mapped, sizeof(mapped), v6 ? "%s" : "::ffff:%s", ip);
	a.grh.sgid_index = v6 ? 2 : 1;
	a.grh.hop_limit = 64;
	assert_int_equal(inet_pton(AF_INET6, mapped, &a.grh.dgid), 1);
	return a;
}

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	assert_non_null(qp);
	assert_int_equal(
		ibv_modify_qp(qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	return qp;
}

static int to_rtr(struct ibv_qp *qp, const char *ip)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x123456,
		.ah_attr = vector_to(ip)};
	return ibv_modify_qp(qp, &a,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

static enum ibv_qp_state state_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	assert_int_equal(ibv_query_qp(qp, &a, IBV_QP_STATE, &init), 0);
	return a.qp_state;
}

/* Values of Linux 6.12 with rxe: ETIMEDOUT after about a second. */
static void rtr_and_address_handles_time_out(void **state)
{
	static const char *const absent[] = {"10.66.0.77", "fd66::77"};
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	for (unsigned i = 0; i < 2; i++) {
		struct ibv_qp *qp = new_qp(pd, cq);
		struct ibv_ah_attr to = vector_to(absent[i]);
		double began = now_ms();
		assert_int_equal(to_rtr(qp, absent[i]), ETIMEDOUT);
		assert_true(now_ms() - began > 900 && now_ms() - began < LIMIT_MS);
		assert_int_equal(state_of(qp), IBV_QPS_INIT);
		errno = 0;
		assert_null(ibv_create_ah(pd, &to));
		assert_int_equal(errno, ETIMEDOUT);
		/* and the QP is as good as before */
		assert_int_equal(to_rtr(qp, i ? "fd66::1" : "10.66.0.1"), 0);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* A router answers for what lies behind it; who is known needs no answer. */
static void nobody_waits_without_need(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	assert_true(run("ip neigh replace 10.66.0.9 lladdr 02:00:00:00:00:09 dev d0"));
	static const char *const there[] = {"10.66.0.9", "10.99.1.1", "10.66.0.1", "127.0.0.1"};
	for (unsigned i = 0; i < sizeof(there) / sizeof(*there); i++) {
		IN_CASE("row", i);
		struct ibv_qp *qp = new_qp(pd, cq);
		assert_int_equal(to_rtr(qp, there[i]), 0);
		assert_int_equal(ibv_destroy_qp(qp), 0);
	}
	assert_true(run("ip link set d0 arp off"));
	struct ibv_qp *qp = new_qp(pd, cq);
	assert_int_equal(to_rtr(qp, "10.66.0.78"), 0);
	assert_true(run("ip link set d0 arp on"));
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void *appear(void *arg)
{
	usleep(300 * 1000);
	assert_true(run("ip neigh replace 10.66.0.88 lladdr 02:00:00:00:00:88 dev d0"));
	return NULL;
}

static void a_host_that_appears_is_found(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct ibv_qp *qp = new_qp(pd, cq);
	pthread_t t;
	double began = now_ms();
	assert_int_equal(pthread_create(&t, NULL, appear, NULL), 0);
	assert_int_equal(to_rtr(qp, "10.66.0.88"), 0);
	assert_true(now_ms() - began > 250);
	pthread_join(t, NULL);
	assert_int_equal(ibv_destroy_qp(qp), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

struct waiting {
	struct ibv_qp *qp;
	char ip[32];
	int rc;
};

static void *wait_for_host(void *arg)
{
	struct waiting *w = arg;
	w->rc = to_rtr(w->qp, w->ip);
	return NULL;
}

/* Many wait, side by side, and a pair of other QPs goes on: were a lock held, each of its
 * operations would take a second. */
static void who_waits_keeps_nobody_waiting(void **state)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 8, NULL, NULL, 0);
	struct waiting w[THREADS];
	pthread_t t[THREADS];
	struct pair p;
	pair_make(&p, 14, 7, 7);
	double began = now_ms(), longest = 0;
	for (int i = 0; i < THREADS; i++) {
		w[i].qp = new_qp(pd, cq);
		snprintf(w[i].ip, sizeof(w[i].ip), "10.66.0.%d", 100 + i);
		assert_int_equal(pthread_create(&t[i], NULL, wait_for_host, &w[i]), 0);
	}
	int done = 0;
	while (now_ms() - began < 800) {
		double from = now_ms();
		assert_int_equal(
			pair_write_to(&p, (uint64_t)done, 8, (uintptr_t)p.b.buf, p.b.mr->rkey),
			IBV_WC_SUCCESS);
		assert_true(pattern_holds(p.b.buf, 8, (uint64_t)done));
		struct ibv_qp *other = new_qp(p.pd, cq);
		assert_int_equal(ibv_destroy_qp(other), 0);
		longest = now_ms() - from > longest ? now_ms() - from : longest;
		done++;
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(w[i].rc, ETIMEDOUT);
		assert_int_equal(ibv_destroy_qp(w[i].qp), 0);
	}
	assert_true(now_ms() - began < LIMIT_MS);
	assert_true(done > 20 && longest < 700);
	pair_free(&p);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void resolve(struct rdma_event_channel *c, struct rdma_cm_id **id, const char *ip, int ms)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7471)};
	assert_int_equal(inet_pton(AF_INET, ip, &a.sin_addr), 1);
	assert_int_equal(rdma_create_id(c, id, NULL, RDMA_PS_TCP), 0);
	double began = now_ms();
	assert_int_equal(rdma_resolve_addr(*id, NULL, (struct sockaddr *)&a, ms), 0);
	assert_true(now_ms() - began < 300); /* it does not wait */
}

static void expect(struct rdma_event_channel *c, enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event *e;
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	assert_int_equal(poll(&p, 1, LIMIT_MS), 1);
	assert_int_equal(rdma_get_cm_event(c, &e), 0);
	assert_int_equal(e->event, type);
	assert_int_equal(e->status, status);
	rdma_ack_cm_event(e);
}

static void rdma_cm_waits_as_long_as_the_program_says(void **state)
{
	setenv("ROPEWAY_DEVICES", "all", 1); /* the pair has taken rpw_lo alone */
	struct rdma_event_channel *c = rdma_create_event_channel();
	struct rdma_cm_id *id[3];
	assert_non_null(c);
	double began = now_ms();
	resolve(c, &id[0], "10.66.0.77", 400);
	resolve(c, &id[1], "10.66.0.79", 60000);
	resolve(c, &id[2], "10.66.0.1", 400);
	expect(c, RDMA_CM_EVENT_ADDR_RESOLVED, 0); /* of the third, at once */
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(7471)};
	inet_pton(AF_INET, "10.66.0.77", &a.sin_addr);
	assert_int_equal(rdma_resolve_addr(id[0], NULL, (struct sockaddr *)&a, 400), -1);
	assert_int_equal(errno, EINVAL); /* it is under way */
	expect(c, RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT);
	assert_true(now_ms() - began > 380);
	/* again, and then it is there */
	assert_int_equal(rdma_resolve_addr(id[0], NULL, (struct sockaddr *)&a, 60000), 0);
	assert_true(run("ip neigh replace 10.66.0.77 lladdr 02:00:00:00:00:77 dev d0"));
	expect(c, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	/* one that waits is destroyed: no event comes for it */
	assert_int_equal(rdma_destroy_id(id[1]), 0);
	assert_int_equal(rdma_destroy_id(id[0]), 0);
	assert_int_equal(rdma_destroy_id(id[2]), 0);
	rdma_destroy_event_channel(c);
	assert_true(run("ip neigh del 10.66.0.77 dev d0"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rtr_and_address_handles_time_out),
		cmocka_unit_test(nobody_waits_without_need),
		cmocka_unit_test(a_host_that_appears_is_found),
		cmocka_unit_test(who_waits_keeps_nobody_waiting),
		cmocka_unit_test(rdma_cm_waits_as_long_as_the_program_says),
	};
	enter();
	setenv("ROPEWAY_DEVICES", "d0", 1);
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i] && !ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_d0"))
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	return !ctx || cmocka_run_group_tests(tests, NULL, NULL);
}
