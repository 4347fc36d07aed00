/* SPDX-License-Identifier: BSD-3-Clause */
/* tally_test.c - what lives on a device, as any process may ask: of this process, of a forked child
 * that destroys its copies, of a daemon whose parent has ended, of one that was killed. */
#include "../io/ns.h"

#include <signal.h>

#include "device/device.h"
#include "io/counters.h"

static struct rpwi_resources living(void)
{
	struct rpwi_qp_stats s;
	struct rpwi_resources r;
	assert_int_equal(rpwi_counters_sum("rpw_lo", &s, &r), 0);
	return r;
}

static void assert_living(
	unsigned contexts, unsigned pds, unsigned mrs, unsigned cqs, unsigned srqs, unsigned qps)
{
	struct rpwi_resources r = living();
	assert_int_equal(r.contexts, contexts);
	assert_int_equal(r.pds, pds);
	assert_int_equal(r.mrs, mrs);
	assert_int_equal(r.cqs, cqs);
	assert_int_equal(r.srqs, srqs);
	assert_int_equal(r.qps, qps);
}

struct all {
	struct ibv_context *c;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	char memory[64];
};

static struct ibv_context *open_lo(void)
{
	int n;
	setenv("ROPEWAY_DEVICES", "lo", 1); /* whatever else this machine has: MTU 4096 */
	struct ibv_device **list = rpwi_dev_get_list(&n);
	struct ibv_context *c = NULL;
	for (int i = 0; list && i < n && !c; i++)
		if (!strcmp(list[i]->name, "rpw_lo"))
			c = rpwi_dev_open_device(list[i]);
	free(list);
	return c;
}

static void make(struct all *a)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 1, .max_sge = 1}};
	a->pd = rpwi_dev_alloc_pd(a->c);
	assert_non_null(a->pd);
	a->mr = rpwi_dev_reg_mr(a->pd, a->memory, sizeof(a->memory), (uintptr_t)a->memory, 0);
	a->cq = rpwi_dev_create_cq(a->c, 4, NULL, NULL, 0);
	a->srq = rpwi_dev_create_srq(a->pd, &srq);
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
		.send_cq = a->cq,
		.recv_cq = a->cq,
		.srq = a->srq,
		.cap = {.max_send_wr = 1, .max_send_sge = 1}};
	assert_non_null(a->mr);
	assert_non_null(a->cq);
	assert_non_null(a->srq);
	a->qp = rpwi_dev_create_qp(a->pd, &qp);
	assert_non_null(a->qp);
}

static int unmake(struct all *a)
{
	return rpwi_dev_destroy_qp(a->qp) || rpwi_dev_destroy_srq(a->srq) ||
	       rpwi_dev_destroy_cq(a->cq) || rpwi_dev_dereg_mr(a->mr) || rpwi_dev_dealloc_pd(a->pd);
}

static void objects(void **state)
{
	struct all a, b;
	assert_living(0, 0, 0, 0, 0, 0);
	a.c = open_lo();
	assert_non_null(a.c);
	assert_living(1, 0, 0, 0, 0, 0);
	make(&a);
	assert_living(1, 1, 1, 1, 1, 1);
	b.c = a.c;
	make(&b);
	assert_living(1, 2, 2, 2, 2, 2);
	assert_int_equal(unmake(&a), 0);
	assert_living(1, 1, 1, 1, 1, 1);
	assert_int_equal(rpwi_dev_destroy_qp(b.qp), 0);
	assert_living(1, 1, 1, 1, 1, 0);
	/* what is refused changes nothing */
	assert_int_equal(rpwi_dev_dealloc_pd(b.pd), EBUSY);
	assert_living(1, 1, 1, 1, 1, 0);
	assert_int_equal(rpwi_dev_destroy_srq(b.srq) || rpwi_dev_destroy_cq(b.cq) ||
				 rpwi_dev_dereg_mr(b.mr) || rpwi_dev_dealloc_pd(b.pd) ||
				 rpwi_dev_close_device(b.c),
		0);
	assert_living(0, 0, 0, 0, 0, 0);
}

/* Runs `then` in a child, and says what it gives. */
static int in_child(int (*then)(void *), void *arg)
{
	int status;
	fflush(NULL);
	pid_t pid = fork();
	if (!pid)
		_exit(then(arg));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static int destroy_copies(void *arg)
{
	struct all *a = arg;
	return unmake(a) || rpwi_dev_close_device(a->c);
}

static int own_context(void *arg)
{
	struct all a = {.c = open_lo()};
	if (!a.c)
		return 1;
	make(&a);
	struct rpwi_resources r = living();
	if (r.contexts != 2 || r.qps != 2 || r.pds != 2)
		return 2;
	/* what it has inherited is its parent's for good */
	if (unmake(arg))
		return 3;
	r = living();
	return r.contexts != 2 || r.qps != 2 || r.mrs != 2 ? 4 : 0;
}

static void forked(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip(); /* it allows no threads after a fork */
#endif
	struct all a = {.c = open_lo()};
	assert_non_null(a.c);
	make(&a);
	assert_int_equal(in_child(destroy_copies, &a), 0);
	assert_living(1, 1, 1, 1, 1, 1);
	assert_int_equal(in_child(own_context, &a), 0);
	assert_living(1, 1, 1, 1, 1, 1);
	assert_int_equal(unmake(&a), 0);
	assert_int_equal(rpwi_dev_close_device(a.c), 0);
	assert_living(0, 0, 0, 0, 0, 0);
}

/* Opens the device, forks and ends; its child makes the rest, says so and waits. */
static int daemonize(void *arg)
{
	const int *fds = arg;
	struct all a = {.c = open_lo()};
	char c;
	if (!a.c)
		return 1;
	pid_t before = getpid();
	if (fork())
		return 0;
	while (getppid() == before)
		usleep(1000);
	make(&a);
	if (write(fds[1], "r", 1) != 1 || read(fds[2], &c, 1) != 1)
		_exit(1);
	unmake(&a);
	if (write(fds[1], "u", 1) != 1 || read(fds[2], &c, 1) != 1)
		_exit(1);
	_exit(0);
}

static void daemon_goes_on(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	int fds[4];
	char c;
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(pipe(fds + 2), 0);
	assert_int_equal(in_child(daemonize, fds), 0);
	close(fds[1]);
	close(fds[2]);
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_living(1, 1, 1, 1, 1, 1);
	assert_int_equal(write(fds[3], "g", 1), 1);
	assert_int_equal(read(fds[0], &c, 1), 1);
	assert_living(1, 0, 0, 0, 0, 0);
	assert_int_equal(write(fds[3], "g", 1), 1);
	assert_int_equal(read(fds[0], &c, 1), 0); /* it has ended */
	close(fds[0]);
	close(fds[3]);
	/* its sockets may be closed after its pipes */
	struct rpwi_resources r = living();
	for (int i = 0; i < 30000 && r.contexts; i++) {
		usleep(1000);
		r = living();
	}
	assert_living(0, 0, 0, 0, 0, 0);
}

static int make_and_die(void *arg)
{
	struct all a = {.c = open_lo()};
	if (!a.c)
		return 1;
	make(&a);
	struct rpwi_resources r = living();
	if (r.qps != 1)
		return 2;
	kill(getpid(), SIGKILL);
	return 3;
}

static void killed(void **state)
{
#ifdef __SANITIZE_THREAD__
	skip();
#endif
	assert_int_equal(in_child(make_and_die, NULL), SIGKILL);
	assert_living(0, 0, 0, 0, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(daemon_goes_on),
		cmocka_unit_test(killed),
		cmocka_unit_test(objects),
		cmocka_unit_test(forked),
	};
	ns_enter();
	if (unshare(CLONE_NEWIPC)) {
		fprintf(stderr, "SKIPPED: no IPC namespace can be made here (%s)\n",
			strerror(errno));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
