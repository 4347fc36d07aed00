/* SPDX-License-Identifier: BSD-3-Clause */
/* plain.h - what the ten programs share: a device, QPs and the way to connect them, as any small
 * verbs program has them. The bugs are in the programs; this file has none.
 *
 * A program that hangs is part of the test: SIGALRM ends it, as a person's Ctrl-C would.
 * Compiled with -DFIXED=1, each program is what its authors meant, and must have no finding. */
#ifndef TESTS_CHECK_TEN_PLAIN_H
#define TESTS_CHECK_TEN_PLAIN_H

#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef FIXED
#define FIXED 0
#endif

enum { PORT = 1, GID = 1, HANG_S = 8, TRANSFER_S = 6 };

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* What one side tells the other before they connect. */
struct where {
	union ibv_gid gid;
	uint32_t qpn, psn, rkey;
	uint64_t address;
};

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
};

static inline _Noreturn void die(const char *what)
{
	perror(what);
	exit(1);
}

static inline void device_open(struct device *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	/* What a program says before it hangs is worth reading. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	d->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!d->context)
		die("no device could be opened");
	ibv_free_device_list(list);
	d->pd = ibv_alloc_pd(d->context);
	if (!d->pd || ibv_query_gid(d->context, PORT, GID, &d->gid))
		die("preparing the device");
}

static inline void device_close(struct device *d)
{
	if (ibv_dealloc_pd(d->pd) || ibv_close_device(d->context))
		die("closing the device");
}

static inline struct ibv_mr *registered(struct device *d, size_t bytes)
{
	char *memory = aligned_alloc(4096, (bytes + 4095) & ~4095UL);
	struct ibv_mr *mr = memory ? ibv_reg_mr(d->pd, memory, bytes, ALL_ACCESS) : NULL;

	if (!mr)
		die("memory");
	memset(memory, 0, bytes);
	return mr;
}

static inline void unregister(struct ibv_mr *mr)
{
	void *memory = mr->addr;

	if (ibv_dereg_mr(mr))
		die("ibv_dereg_mr");
	free(memory);
}

static inline struct ibv_cq *cq_make(
	struct device *d, int entries, struct ibv_comp_channel *channel)
{
	struct ibv_cq *cq = ibv_create_cq(d->context, entries, NULL, channel, 0);

	if (!cq)
		die("ibv_create_cq");
	return cq;
}

static inline struct ibv_qp *qp_make(struct device *d, enum ibv_qp_type type, struct ibv_cq *send,
	struct ibv_cq *recv, unsigned depth)
{
	struct ibv_qp_init_attr init = {.send_cq = send,
		.recv_cq = recv,
		.qp_type = type,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = depth,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(d->pd, &init);

	if (!qp)
		die("ibv_create_qp");
	return qp;
}

static inline void rc_to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	if (ibv_modify_qp(
		    qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("INIT");
}

static inline void rc_to_rts(struct ibv_qp *qp, uint32_t psn, const struct where *peer)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = PORT,
			.grh = {.dgid = peer->gid, .sgid_index = GID, .hop_limit = 64}}};

	if (ibv_modify_qp(qp, &a,
		    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("RTR");
	a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.sq_psn = psn,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4};
	if (ibv_modify_qp(qp, &a,
		    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
		die("RTS");
}

/* Both QPs are this process's own. */
static inline void rc_connect_two(struct device *d, struct ibv_qp *a, struct ibv_qp *b)
{
	const struct where at_a = {.gid = d->gid, .qpn = a->qp_num, .psn = 100};
	const struct where at_b = {.gid = d->gid, .qpn = b->qp_num, .psn = 200};

	rc_to_init(a);
	rc_to_init(b);
	rc_to_rts(a, at_a.psn, &at_b);
	rc_to_rts(b, at_b.psn, &at_a);
}

/* Over a socket, where each side says its own and hears the other's. */
static inline struct where swap(int fd, struct where mine)
{
	struct where theirs;

	if (send(fd, &mine, sizeof mine, 0) != sizeof mine ||
		recv(fd, &theirs, sizeof theirs, MSG_WAITALL) != sizeof theirs)
		die("the exchange");
	return theirs;
}

static inline void token_send(int fd)
{
	if (send(fd, "", 1, 0) != 1)
		die("the socket");
}

static inline void token_wait(int fd)
{
	char c;

	if (recv(fd, &c, 1, 0) != 1)
		die("the peer is gone");
}

/* A completion of any status; false after TRANSFER_S without one. */
static inline bool completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	const time_t end = time(NULL) + TRANSFER_S;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)) && time(NULL) < end)
		;
	if (n < 0)
		die("ibv_poll_cq");
	return n > 0;
}

static inline void succeeded(struct ibv_cq *cq, const char *what)
{
	struct ibv_wc wc;

	if (!completion(cq, &wc)) {
		fprintf(stderr, "%s: no completion\n", what);
		exit(1);
	}
	if (wc.status) {
		fprintf(stderr, "%s: %s\n", what, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static inline void post_receive(
	struct ibv_qp *qp, const struct ibv_mr *mr, size_t at, uint32_t bytes)
{
	struct ibv_sge s = {(uintptr_t)mr->addr + at, bytes, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = at, .sg_list = &s, .num_sge = 1}, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		die("ibv_post_recv");
}

/* 0 or the error of ibv_post_send. */
static inline int post_bytes(struct ibv_qp *qp, enum ibv_wr_opcode opcode, const struct ibv_mr *mr,
	size_t at, uint32_t bytes, const struct where *far)
{
	struct ibv_sge s = {(uintptr_t)mr->addr + at, bytes, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = at,
				   .sg_list = &s,
				   .num_sge = 1,
				   .opcode = opcode,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;

	if (far) {
		wr.wr.rdma.remote_addr = far->address;
		wr.wr.rdma.rkey = far->rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

#endif
