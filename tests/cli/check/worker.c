/* SPDX-License-Identifier: BSD-3-Clause */
/* worker.c - writes blocks into the memory of a peer (a second queue pair of this process), whose
 * key it has got wrong, and never looks at a status. Its argument: a device. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, BLOCKS = 4 };

static char blocks[BLOCKS][BLOCK];

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	if (!qp)
		abort();
	return qp;
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 6,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = *gid, .sgid_index = 1, .hop_limit = 64}}};
	int rc = ibv_modify_qp(
		qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	rc |= ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	rc |= ibv_modify_qp(qp, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (rc)
		abort();
}

__attribute__((noinline)) static void write_block(
	struct ibv_qp *qp, const struct ibv_mr *from, uint32_t rkey, unsigned n)
{
	struct ibv_sge sge = {(uintptr_t)blocks[n], BLOCK, from->lkey};
	struct ibv_send_wr wr = {.wr_id = n,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)blocks[0], rkey}};
	struct ibv_send_wr *bad;
	if (ibv_post_send(qp, &wr, &bad))
		abort();
}

__attribute__((noinline)) static void wait_for_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc)) {
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	while (*list && argc > 1 && strcmp(ibv_get_device_name(*list), argv[1]) != 0)
		list++;
	struct ibv_context *context = *list ? ibv_open_device(*list) : NULL;
	union ibv_gid gid;
	if (!context || ibv_query_gid(context, 1, 1, &gid))
		return 2;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(
		pd, blocks, sizeof(blocks), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp *qp = make_qp(pd, cq), *peer = make_qp(pd, cq);
	connect_to(qp, peer, &gid);
	connect_to(peer, qp, &gid);
	for (unsigned n = 0; n < BLOCKS; n++) {
		write_block(qp, mr, mr->rkey ^ 0x5500, n);
		wait_for_one(cq);
	}
	printf("%u blocks written\n", BLOCKS);
	return ibv_destroy_qp(qp) || ibv_destroy_qp(peer) || ibv_destroy_cq(cq) ||
	       ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) || ibv_close_device(context);
}
