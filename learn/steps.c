/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - the data path: the verbs calls, in the order in which a program makes them. */
#include "hand.h"

enum { WATCH_EVERY_MS = 20 };

/* ---- steps 2 to 5: the objects ---- */

static void register_memory(struct rdma *r)
{
	size_t bytes = (size_t)r->opt.buffer_bytes * r->opt.qps;

	printf("Step 3: register memory (MR). From now on the device may use these buffers by "
	       "itself, without the kernel.\n");
	/* Devices map whole pages, so buffers of their own pages register best. */
	r->send_buffer[0] = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	r->receive_buffer[0] = aligned_alloc(4096, (bytes + 4095) & ~4095ul);
	must(r->send_buffer[0] && r->receive_buffer[0], "aligned_alloc");
	for (unsigned i = 1; i < r->opt.qps; i++) {
		r->send_buffer[i] = r->send_buffer[i - 1] + r->opt.buffer_bytes;
		r->receive_buffer[i] = r->receive_buffer[i - 1] + r->opt.buffer_bytes;
	}
	/* Reading for a send is always allowed; to place what arrives, the device must be allowed
	 * to write. The peer gets no right (no IBV_ACCESS_REMOTE_...): with SEND, the receiver
	 * itself decides where data goes. */
	r->send_mr = ibv_reg_mr(r->pd, r->send_buffer[0], bytes, 0);
	must(r->send_mr, "ibv_reg_mr");
	r->receive_mr = ibv_reg_mr(r->pd, r->receive_buffer[0], bytes, IBV_ACCESS_LOCAL_WRITE);
	must(r->receive_mr, "ibv_reg_mr");
	printf("    %zu bytes to send from (lkey 0x%x), and as many to receive into (lkey 0x%x)\n",
		bytes, r->send_mr->lkey, r->receive_mr->lkey);
}

static void create_qps(struct rdma *r)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		/* RC, reliable connection: like TCP, nothing is lost or out of order; unlike TCP,
		 * messages stay messages. */
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1, /* a completion for each send */
	};

	printf("Step 5: create %u queue pair(s) (QP): a queue for sends and one for receives. A "
	       "new QP is in state RESET.\n",
		r->opt.qps);
	for (unsigned i = 0; i < r->opt.qps; i++) {
		struct ibv_qp_init_attr a = attr; /* the call writes into it */
		r->qp[i] = ibv_create_qp(r->pd, &a);
		must(r->qp[i], "ibv_create_qp");
	}
}

void init_rdma_resources(struct rdma *r)
{
	look_at_device(r);
	printf("Step 2: allocate a protection domain (PD). Memory and queue pairs work together "
	       "only within one PD.\n");
	r->pd = ibv_alloc_pd(r->context);
	must(r->pd, "ibv_alloc_pd");
	register_memory(r);
	printf("Step 4: create a completion queue (CQ). The device puts a note there whenever it "
	       "has finished something.\n");
	/* Room for one send and one receive of each QP: a CQ that overflows is lost. */
	r->cq = ibv_create_cq(r->context, (int)r->opt.qps * 2, NULL, NULL, 0);
	must(r->cq, "ibv_create_cq");
	create_qps(r);
}

/* ---- steps 6 and 7: INIT, and a receive on each QP before the peer may send ---- */

static void modify(
	struct rdma *r, unsigned qp, struct ibv_qp_attr *attr, int mask, const char *state)
{
	if (!succeeded(ibv_modify_qp(r->qp[qp], attr, mask)))
		die("QP %u cannot go to state %s (%s): check that the GID index suits the way to "
		    "the peer (same IP version, same network) and that both sides use devices of "
		    "one kind",
			qp + 1, state, strerror(errno));
}

void modify_qp_to_init(struct rdma *r)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT,
		.qp_access_flags = 0, /* the peer may only SEND */
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

	printf("Step 6: RESET -> INIT: the QP learns its port and what a peer may do. Now receives "
	       "can be posted, but nothing arrives yet.\n");
	for (unsigned i = 0; i < r->opt.qps; i++)
		modify(r, i, &attr, mask, "INIT");
}

static uint64_t work_id(enum work work, unsigned qp) { return (uint64_t)work << 32 | qp; }

static void post_receive(struct rdma *r, unsigned qp)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->receive_buffer[qp],
		.length = r->opt.buffer_bytes,
		.lkey = r->receive_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = work_id(WORK_RECEIVE, qp), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	must(succeeded(ibv_post_recv(r->qp[qp], &wr, &bad)), "ibv_post_recv");
}

void post_receives(struct rdma *r)
{
	printf("Step 7: post a receive on each QP: a message that finds none would be turned away "
	       "(RNR, receiver not ready).\n");
	for (unsigned i = 0; i < r->opt.qps; i++)
		post_receive(r, i);
}

/* ---- step 8: who is there? ---- */

void con_data_describe(struct rdma *r)
{
	r->local = (struct cm_con_data_t){
		.mtu_bytes = mtu_bytes(r->mtu),
		.qps = r->opt.qps,
		.buffer_bytes = r->opt.buffer_bytes,
		.message_bytes = r->opt.message_bytes,
		.link_layer = r->port.link_layer,
		.lid = r->port.lid,
		.gid = r->gid,
	};
	for (unsigned i = 0; i < r->opt.qps; i++) {
		r->local.qp[i].qpn = r->qp[i]->qp_num;
		/* PSNs begin anywhere, so that packets of an earlier connection do not fit into
		 * this one. */
		r->local.qp[i].psn = random_number() & 0xffffff;
	}
}

static void show_con_data(const char *name, const struct cm_con_data_t *s)
{
	char text[GID_CHARS];

	for (unsigned i = 0; i < s->qps; i++)
		printf("    %s LID 0x%04x  QPN 0x%06x  PSN 0x%06x  GID %s\n", name, s->lid,
			s->qp[i].qpn, s->qp[i].psn, gid_text(&s->gid, text));
}

void con_data_show(const struct rdma *r)
{
	show_con_data("local: ", &r->local);
	show_con_data("remote:", &r->remote);
	printf("    MTU %u here, %u there: the smaller counts\n", r->local.mtu_bytes,
		r->remote.mtu_bytes);
}

/* ---- steps 9 and 10: RTR, RTS ---- */

void modify_qp_to_rtr(struct rdma *r)
{
	const struct cm_con_data_t *local = &r->local, *remote = &r->remote;
	uint32_t mtu = local->mtu_bytes < remote->mtu_bytes ? local->mtu_bytes : remote->mtu_bytes;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_from_bytes(mtu),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
		.ah_attr =
			{
				.dlid = (uint16_t)remote->lid,
				.port_num = PORT,
				/* The global header carries the GIDs; RoCE always has it (on RoCE
				 * v2 it is the IP header). */
				.is_global = r->ethernet,
				.grh = {.dgid = remote->gid,
					.sgid_index = (uint8_t)r->opt.gid_index,
					/* RoCE puts the route's in its place. */
					.hop_limit = 64},
			},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	printf("Step 9: INIT -> RTR (ready to receive): the QP learns its peer: address, QPN, "
	       "first PSN, MTU %u. It receives from now on.\n",
		mtu);
	for (unsigned i = 0; i < r->opt.qps; i++) {
		attr.dest_qp_num = remote->qp[i].qpn;
		attr.rq_psn = remote->qp[i].psn;
		modify(r, i, &attr, mask, "RTR");
	}
}

void modify_qp_to_rts(struct rdma *r)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.timeout =
			14, /* 4.096 us * 2^14 = 67 ms until an unanswered packet is sent again */
		.retry_cnt = 7, /* so many times */
		.rnr_retry = 7, /* wait for a receive without limit; the 5 s of polling end it */
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	printf("Step 10: RTR -> RTS (ready to send): the QP learns its own first PSN, and how long "
	       "and how often to try again. Now it may send, too.\n");
	for (unsigned i = 0; i < r->opt.qps; i++) {
		attr.sq_psn = r->local.qp[i].psn;
		modify(r, i, &attr, mask, "RTS");
	}
}

/* ---- steps 12 and 13: messages ---- */

void post_send(struct rdma *r, unsigned qp)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)r->send_buffer[qp],
		.length = r->opt.message_bytes,
		.lkey = r->send_mr->lkey,
	};
	struct ibv_send_wr wr = {.wr_id = work_id(WORK_SEND, qp),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;

	/* This only hands the work over; the buffer belongs to the device until the completion
	 * comes. */
	must(succeeded(ibv_post_send(r->qp[qp], &wr, &bad)), "ibv_post_send");
}

static const char *advice_for(enum ibv_wc_status status)
{
	if (status == IBV_WC_RETRY_EXC_ERR)
		return "the peer acknowledged nothing: check that it still runs, that the GIDs "
		       "reach each other, and that UDP port 4791 is not blocked";
	return "look at what the other side printed, then start both again";
}

struct completion poll_completion(struct rdma *r)
{
	uint64_t start = now_ms(), watched = start, now;
	struct completion c;
	struct ibv_wc wc;
	int n;

	/* Polling never sleeps: on a NIC this is how latencies of a microsecond come about. */
	while ((n = ibv_poll_cq(r->cq, 1, &wc)) == 0) {
		now = now_ms();
		if (now - start >= WAIT_MS)
			die("nothing was completed for %d s: check that the GIDs of both sides "
			    "reach each other, that UDP port 4791 is not blocked, and use a "
			    "smaller -s if the network is too slow for the message",
				WAIT_MS / 1000);
		if (now - watched < WATCH_EVERY_MS)
			continue;
		watched = now;
		exchange_watch(r);
	}
	must(n > 0, "ibv_poll_cq");
	if (r->opt.verbose)
		printf("wc->status = %d (%s)\n", wc.status, ibv_wc_status_str(wc.status));
	c = (struct completion){(enum work)(wc.wr_id >> 32), (unsigned)wc.wr_id, wc.byte_len};
	if (wc.status != IBV_WC_SUCCESS)
		die("the %s on QP %u failed (%s): %s", c.work == WORK_SEND ? "send" : "receive",
			c.qp + 1, ibv_wc_status_str(wc.status), advice_for(wc.status));
	return c;
}

/* ---- the end ---- */

/* In reverse order: nothing may be closed while something still uses it. */
void close_rdma_resources(struct rdma *r)
{
	for (unsigned i = 0; i < r->opt.qps; i++)
		ibv_destroy_qp(r->qp[i]);
	ibv_destroy_cq(r->cq);
	ibv_dereg_mr(r->receive_mr);
	ibv_dereg_mr(r->send_mr);
	free(r->receive_buffer[0]);
	free(r->send_buffer[0]);
	ibv_dealloc_pd(r->pd);
	ibv_close_device(r->context);
}
