/* SPDX-License-Identifier: BSD-3-Clause */
/* posts.c - a program of verbs alone, C or C++: two receives with one wr_id, for a CQ that has room
 * for one. Its argument: a device. A child does the same with a second one. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[4096];

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

__attribute__((noinline)) static int post(struct ibv_qp *qp, struct ibv_mr *mr, unsigned at)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr, *bad;
	memset(&wr, 0, sizeof(wr));
	sge.addr = (uintptr_t)buffer + at;
	sge.length = 64;
	sge.lkey = mr->lkey;
	wr.wr_id = 7;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	return ibv_post_recv(qp, &wr, &bad); /* line of post */
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	memset(&init, 0, sizeof(init));
	memset(&attr, 0, sizeof(attr));
	init.send_cq = init.recv_cq = cq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	init.cap.max_recv_wr = 8;
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	must(!!qp, "ibv_create_qp");
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	must(!ibv_modify_qp(qp, &attr,
		     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"ibv_modify_qp");
	return qp;
}

static void use(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	must(!!context, "ibv_open_device");
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	must(pd && cq && mr, "a PD, a CQ and an MR");
	struct ibv_qp *qp = make_qp(pd, cq);
	must(!post(qp, mr, 0), "ibv_post_recv");
	must(!post(qp, mr, 64), "ibv_post_recv");
	must(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dereg_mr(mr) &&
			!ibv_dealloc_pd(pd) && !ibv_close_device(context),
		"what was made");
}

int main(int argc, char **argv)
{
	int n = 0, status = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1])) {
			pid_t child = argc > 2 ? fork() : -1;
			if (child > 0)
				waitpid(child, &status, 0);
			use(list[i]);
			printf("posted\n");
			return status ? 1 : 0;
		}
	return 2;
}
