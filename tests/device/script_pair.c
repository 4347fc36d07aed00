/* SPDX-License-Identifier: BSD-3-Clause */
/* script_pair.c - a program as plain as can be, for captures that are to be the same: it sends
 * messages to its own child, over RC one after the other, each when the one before has completed;
 * over UC and UD as the queue takes them.
 *
 * usage: script_pair rc|uc|ud COUNT. What the sender found: "N sent, status S" on standard output.
 */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MTU = 1024, LEN_MAX = 3 * MTU, SLOTS = 64, PSN = 5000, QKEY = 0x1234, GRH = 40 };

static void need(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(2);
	}
}

static struct {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint32_t peer;
	uint8_t *buf;
	enum ibv_qp_type type;
	int sock;
} me;

static void modify(struct ibv_qp_attr a, int mask)
{
	need(!ibv_modify_qp(me.qp, &a, mask), "ibv_modify_qp");
}

static void connect_all(void)
{
	int n;
	setenv("ROPEWAY_DEVICES", "lo", 1); /* whatever else this machine has: MTU 4096 */
	struct ibv_device **list = ibv_get_device_list(&n);
	need(list, "ibv_get_device_list");
	for (int i = 0; i < n && !me.ctx; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "rpw_lo"))
			me.ctx = ibv_open_device(list[i]);
	need(me.ctx, "ibv_open_device");
	need((me.pd = ibv_alloc_pd(me.ctx)), "ibv_alloc_pd");
	size_t bytes = (size_t)SLOTS * (LEN_MAX + GRH);
	need((me.buf = calloc(1, bytes)), "calloc");
	need((me.mr = ibv_reg_mr(me.pd, me.buf, bytes, IBV_ACCESS_LOCAL_WRITE)), "ibv_reg_mr");
	need((me.cq = ibv_create_cq(me.ctx, 2 * SLOTS, NULL, NULL, 0)), "ibv_create_cq");
	struct ibv_qp_init_attr init = {.send_cq = me.cq,
		.recv_cq = me.cq,
		.qp_type = me.type,
		.sq_sig_all = 1,
		.cap = {SLOTS, SLOTS, 1, 1, 0}};
	need((me.qp = ibv_create_qp(me.pd, &init)), "ibv_create_qp");
	bool rc = me.type == IBV_QPT_RC, ud = me.type == IBV_QPT_UD;
	modify((struct ibv_qp_attr){.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY},
		IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			(ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	need(write(me.sock, &me.qp->qp_num, 4) == 4 && read(me.sock, &me.peer, 4) == 4, "the peer");
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = me.peer,
		.rq_psn = PSN,
		.min_rnr_timer = 1,
		.ah_attr = {
			.is_global = 1, .port_num = 1, .grh = {.sgid_index = 1, .hop_limit = 1}}};
	need(!ibv_query_gid(me.ctx, 1, 1, &a.ah_attr.grh.dgid), "ibv_query_gid");
	modify(a, IBV_QP_STATE |
			  (ud ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
			  (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
	modify((struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		       .sq_psn = PSN,
		       .timeout = 18,
		       .retry_cnt = 7,
		       .rnr_retry = 7},
		IBV_QP_STATE | IBV_QP_SQ_PSN |
			(rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						IBV_QP_MAX_QP_RD_ATOMIC
			    : 0));
	if (ud)
		need((me.ah = ibv_create_ah(me.pd, &a.ah_attr)), "ibv_create_ah");
}

static void receive_one(uint64_t slot)
{
	struct ibv_sge sge = {
		(uintptr_t)me.buf + slot * (LEN_MAX + GRH), LEN_MAX + GRH, me.mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	need(!ibv_post_recv(me.qp, &wr, &bad), "ibv_post_recv");
}

/* Serves until the sender has closed its end. */
static void receiver(void)
{
	struct ibv_wc wc;
	struct pollfd p = {.fd = me.sock, .events = POLLIN};
	connect_all();
	for (uint64_t i = 0; i < SLOTS; i++)
		receive_one(i);
	need(write(me.sock, "r", 1) == 1, "the sender");
	while (!poll(&p, 1, 0))
		while (ibv_poll_cq(me.cq, 1, &wc) == 1)
			if (wc.status == IBV_WC_SUCCESS)
				receive_one(wc.wr_id);
	exit(0); /* with its capture */
}

/* Of n: as long as a message may be, or one packet of UD; 0 bytes never, for probes have none. */
static uint32_t length_of(unsigned n)
{
	unsigned most = me.type == IBV_QPT_UD ? MTU : LEN_MAX;
	return 1 + n * 2654435761u % most;
}

static enum ibv_wc_status sender(unsigned count)
{
	char ready;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	unsigned posted = 0, done = 0, most = me.type == IBV_QPT_RC ? 1 : SLOTS;
	connect_all();
	need(read(me.sock, &ready, 1) == 1, "the receiver");
	for (; done < count && wc.status == IBV_WC_SUCCESS;) {
		for (; posted < count && posted - done < most; posted++) {
			uint8_t *at = me.buf + (size_t)(posted % SLOTS) * (LEN_MAX + GRH);
			struct ibv_sge sge = {(uintptr_t)at, length_of(posted), me.mr->lkey};
			struct ibv_send_wr *bad, wr = {.wr_id = posted,
							 .sg_list = &sge,
							 .num_sge = 1,
							 .opcode = IBV_WR_SEND};
			for (uint32_t i = 0; i < sge.length; i++)
				at[i] = (uint8_t)((i * 31 + posted) ^ i >> 8);
			if (me.ah) {
				wr.wr.ud.ah = me.ah;
				wr.wr.ud.remote_qpn = me.peer;
				wr.wr.ud.remote_qkey = QKEY;
			}
			need(!ibv_post_send(me.qp, &wr, &bad), "ibv_post_send");
		}
		done += ibv_poll_cq(me.cq, 1, &wc) == 1;
	}
	printf("%u sent, status %d\n", done, wc.status);
	return wc.status;
}

int main(int argc, char **argv)
{
	int sv[2], status;
	if (argc != 3)
		return 2;
	me.type = !strcmp(argv[1], "rc")   ? IBV_QPT_RC
		  : !strcmp(argv[1], "uc") ? IBV_QPT_UC
					   : IBV_QPT_UD;
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	pid_t pid = fork();
	me.sock = sv[!pid];
	close(sv[!!pid]);
	alarm(60);
	if (!pid)
		receiver();
	sender((unsigned)atoi(argv[2]));
	usleep(200000); /* what is under way arrives */
	shutdown(me.sock, SHUT_RDWR);
	waitpid(pid, &status, 0);
	printf("sender %d receiver %d\n", (int)getpid(), (int)pid);
	return status != 0;
}
