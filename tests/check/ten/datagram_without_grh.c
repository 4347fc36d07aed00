/* SPDX-License-Identifier: BSD-3-Clause */
/* datagram_without_grh.c
 *
 * Public report: gpudirect/libgdsync issue #43 (2018). A user saw "size + 40" in the receive of a
 * UD example, took the 40 for a mistake and posted receives of the message's size. The program
 * then waited in an endless loop. It took the user nine days to find the reason.
 *
 * The bug: a UD receive begins with 40 bytes of GRH, also when the message came without one. A
 * receive of the message's own size is too short for it, so the device drops the message or
 * completes the receive with an error. The sender sees success. */
#include "plain.h"

enum { BYTES = 64, DEPTH = 4, GRH = FIXED ? 40 : 0, QKEY = 0x11111111 };

static void ud_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = QKEY, .sq_psn = 300};

	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		die("INIT");
	a.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE))
		die("RTR");
	a.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN))
		die("RTS");
}

static void send_to(struct ibv_qp *from, struct ibv_mr *mr, struct ibv_ah *ah, uint32_t qpn)
{
	struct ibv_sge s = {(uintptr_t)mr->addr, BYTES, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &s,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.ud = {.ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY}},
			   *bad;

	if (ibv_post_send(from, &wr, &bad))
		die("ibv_post_send");
}

int main(void)
{
	struct device d = {0};
	struct ibv_wc wc;

	alarm(HANG_S);
	device_open(&d);
	struct ibv_cq *sent = cq_make(&d, DEPTH, NULL), *received = cq_make(&d, DEPTH, NULL);
	struct ibv_qp *from = qp_make(&d, IBV_QPT_UD, sent, sent, DEPTH);
	struct ibv_qp *to = qp_make(&d, IBV_QPT_UD, received, received, DEPTH);
	struct ibv_mr *mr = registered(&d, (size_t)2 * BYTES + GRH);
	ud_to_rts(from);
	ud_to_rts(to);
	post_receive(to, mr, BYTES, BYTES + GRH);

	struct ibv_ah_attr at = {.is_global = 1,
		.port_num = PORT,
		.grh = {.dgid = d.gid, .sgid_index = GID, .hop_limit = 64}};
	struct ibv_ah *ah = ibv_create_ah(d.pd, &at);
	if (!ah)
		die("ibv_create_ah");
	snprintf(mr->addr, BYTES, "a datagram");
	send_to(from, mr, ah, to->qp_num);
	succeeded(sent, "the send");
	if (completion(received, &wc))
		printf("the receive: %s\n", ibv_wc_status_str(wc.status));
	else
		printf("the receive never completed\n");

	if (ibv_destroy_ah(ah) || ibv_destroy_qp(from) || ibv_destroy_qp(to) ||
		ibv_destroy_cq(sent) || ibv_destroy_cq(received))
		die("the end");
	unregister(mr);
	device_close(&d);
	return 0;
}
