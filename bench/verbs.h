/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.h - what the plain verbs programs share: a device, its memory, RC QPs, and a socket pair by
 * which two processes tell each other where they are. */
#ifndef ROPEWAY_BENCH_VERBS_H
#define ROPEWAY_BENCH_VERBS_H

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include "bench.h"

struct device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *mem;
	union ibv_gid gid;
	int gid_index;
};

/* name NULL: the first one. Its memory may be read and written from afar. */
static inline void device_open(struct device *d, const char *name, unsigned gid_index, size_t bytes)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && !d->ctx; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			d->ctx = ibv_open_device(list[i]);
	if (!d->ctx) {
		fprintf(stderr, "%s: no device %s; ibv_devices lists what there is\n",
			program_invocation_short_name, name ? name : "at all");
		exit(1);
	}
	ibv_free_device_list(list);
	d->gid_index = (int)gid_index;
	d->pd = ibv_alloc_pd(d->ctx);
	if (!d->pd || ibv_query_gid(d->ctx, 1, d->gid_index, &d->gid))
		die("opening the device");
	d->mem = memory(bytes, MAP_PRIVATE);
	d->mr = ibv_reg_mr(d->pd, d->mem, bytes,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!d->mr)
		die("ibv_reg_mr");
}

/* In INIT. */
static inline struct ibv_qp *qp_make(const struct device *d, struct ibv_cq *cq, unsigned depth)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1}};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	struct ibv_qp *q = cq ? ibv_create_qp(d->pd, &init) : NULL;

	if (!q)
		die("ibv_create_qp");
	errno = ibv_modify_qp(
		q, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (errno)
		die("to INIT");
	return q;
}

static inline void qp_connect(const struct device *d, struct ibv_qp *q, const union ibv_gid *gid,
	uint32_t qpn, enum ibv_mtu mtu, uint8_t reads)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = qpn,
		.max_dest_rd_atomic = reads,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = *gid,
				.sgid_index = (uint8_t)d->gid_index,
				.hop_limit = 64}}};

	errno = ibv_modify_qp(q, &attr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (errno)
		die("to RTR");
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = reads};
	errno = ibv_modify_qp(q, &attr,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	if (errno)
		die("to RTS");
}

/* ---- both are one binary on one host: no byte order ---- */

static inline void talk_open(int fd[2])
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		die("socketpair");
}

static inline void tell(int fd, const void *data, size_t len)
{
	if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("telling the other side");
}

static inline void hear(int fd, void *data, size_t len)
{
	if (recv(fd, data, len, MSG_WAITALL) == (ssize_t)len)
		return;
	fprintf(stderr, "%s: the other side left\n", program_invocation_short_name);
	exit(1);
}

#endif
