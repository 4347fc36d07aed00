/* SPDX-License-Identifier: BSD-3-Clause */
/* peers.c - see peers.h. */
#include "peers.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"

void say(const struct end *e, const void *what, size_t n)
{
	assert_int_equal(write(e->sock, what, n), n);
}
void hear(const struct end *e, void *what, size_t n)
{
	assert_int_equal(recv(e->sock, what, n, MSG_WAITALL), n);
}

pid_t peer_fork(int *sock)
{
	int sv[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	*sock = sv[!pid];
	close(sv[!!pid]);
	return pid;
}

void end_make(struct end *e, int sock)
{
	*e = (struct end){.sock = sock, .p = {.timeout = 14, .retry_cnt = 7, .rnr_retry = 7}};
	e->p.ctx = pair_open_loopback();
	e->p.pd = ibv_alloc_pd(e->p.ctx);
	side_make(&e->p, &e->s, 1000);
	struct info me = {e->s.qp->qp_num, e->s.psn, e->s.mr->rkey, (uintptr_t)e->s.buf};
	say(e, &me, sizeof(me));
	hear(e, &e->peer, sizeof(e->peer));
	side_connect_to(&e->p, &e->s, e->peer.qpn, e->peer.psn);
	char ready = 1;
	say(e, &ready, 1);
	hear(e, &ready, 1);
}

void end_free(struct end *e)
{
	side_free(&e->s);
	assert_int_equal(ibv_dealloc_pd(e->p.pd), 0);
	assert_int_equal(ibv_close_device(e->p.ctx), 0);
	close(e->sock);
}

void end_again(struct end *e)
{
	char ready = 1;
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RESET};
	assert_int_equal(ibv_modify_qp(e->s.qp, &a, IBV_QP_STATE), 0);
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	assert_int_equal(
		ibv_modify_qp(e->s.qp, &a,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		0);
	/* what is still under way for the old connection meets neither */
	e->s.psn += 100000;
	e->peer.psn += 100000;
	say(e, &ready, 1);
	hear(e, &ready, 1);
	side_connect_to(&e->p, &e->s, e->peer.qpn, e->peer.psn);
	say(e, &ready, 1);
	hear(e, &ready, 1);
}

void stop(pid_t pid)
{
	int status;
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
}
