/* SPDX-License-Identifier: BSD-3-Clause */
/* write_unseen.c
 *
 * Public report: w180112/RDMA-example issue #3 (2023), its first point. A client writes two
 * numbers into the server's memory; the server adds them and answers. Nothing tells the server
 * that the write is complete, so it adds whatever the memory has. The sum was wrong for some users
 * and right on the author's machine.
 *
 * The bug: the client announces its RDMA WRITE over a socket when it has posted it. A post is no
 * completion: the server may read, overwrite and send the memory before the data comes. */
#include <sys/wait.h>

#include "plain.h"

enum { NUMBERS = 2, ANSWER = 64, BYTES = 128 };

struct end {
	struct device device;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint32_t *numbers;
	struct where peer;
};

static void end_open(struct end *e, int fd, uint32_t psn)
{
	device_open(&e->device);
	e->cq = cq_make(&e->device, 16, NULL);
	e->qp = qp_make(&e->device, IBV_QPT_RC, e->cq, e->cq, 4);
	e->mr = registered(&e->device, BYTES);
	e->numbers = e->mr->addr;
	rc_to_init(e->qp);
	const struct where mine = {.gid = e->device.gid,
		.qpn = e->qp->qp_num,
		.psn = psn,
		.rkey = e->mr->rkey,
		.address = (uintptr_t)e->mr->addr};
	e->peer = swap(fd, mine);
	rc_to_rts(e->qp, psn, &e->peer);
	token_send(fd);
	token_wait(fd);
}

static void end_close(struct end *e)
{
	if (ibv_destroy_qp(e->qp) || ibv_destroy_cq(e->cq))
		die("the end");
	unregister(e->mr);
	device_close(&e->device);
}

static void client(int fd)
{
	struct end e = {0};

	end_open(&e, fd, 100);
	post_receive(e.qp, e.mr, ANSWER, sizeof(uint32_t));
	e.numbers[0] = htonl(40);
	e.numbers[1] = htonl(2);
	if (post_bytes(e.qp, IBV_WR_RDMA_WRITE, e.mr, 0, NUMBERS * sizeof(uint32_t), &e.peer))
		die("ibv_post_send");
	if (FIXED)
		succeeded(e.cq, "the write");
	token_send(fd);
	if (!FIXED)
		succeeded(e.cq, "the write");
	succeeded(e.cq, "the answer");
	const uint32_t sum = ntohl(e.numbers[ANSWER / sizeof(uint32_t)]);
	printf("client: 40 + 2 = %u%s\n", sum, sum == 42 ? "" : ", which is wrong");
	token_wait(fd);
	end_close(&e);
}

static void server(int fd)
{
	struct end e = {0};

	end_open(&e, fd, 200);
	token_wait(fd);
	e.numbers[0] = htonl(ntohl(e.numbers[0]) + ntohl(e.numbers[1]));
	if (post_bytes(e.qp, IBV_WR_SEND, e.mr, 0, sizeof(uint32_t), NULL))
		die("ibv_post_send");
	succeeded(e.cq, "the answer's send");
	token_send(fd);
	end_close(&e);
}

int main(void)
{
	int fds[2], status = 0;

	alarm(HANG_S);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
		die("socketpair");
	const pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		alarm(HANG_S);
		close(fds[0]);
		client(fds[1]);
		exit(0);
	}
	close(fds[1]);
	server(fds[0]);
	return waitpid(child, &status, 0) != child || status ? 1 : 0;
}
