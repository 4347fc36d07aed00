/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.c - meets every limit of the first device, and prints what came of it, a line for each: at
 * the limit, and one beyond. like_test.py runs it under profiles and without.
 *
 *   calls            each call
 *   calls wire LIKE  two processes: this one has the whole device, and asks the other one, which is
 *                    under that profile, for what the profile's device does not do
 *   calls slots      a send queue of 8, posted to without a poll, and after one
 *   calls reads      32 READs of 64 KiB, between two QPs of this process, verified
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUF = 8 << 20, ATOMIC_WRITE = 15, KEPT = 1024 };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_device_attr_ex dev;
static struct ibv_port_attr port;
static uint8_t *buf;
static struct ibv_mr *mr;
static uint8_t gid_index;
static union ibv_gid gid;

static void need(bool good, const char *what)
{
	if (good)
		return;
	printf("calls: %s failed: %s\n", what, strerror(errno));
	exit(1);
}

static const char *name(int error)
{
	const char *n = error ? strerrorname_np(error) : "0";
	return n ? n : "?";
}
static int of(const void *object) { return object ? 0 : errno; }

static void say2(const char *what, long long limit, int at, int beyond)
{
	printf("%s %lld: %s %s\n", what, limit, name(at), name(beyond));
}
static void say1(const char *what, int error) { printf("%s: %s\n", what, name(error)); }

/* ---- the pieces ---- */

static void begin(void)
{
	struct ibv_gid_entry e[64];
	struct ibv_device **list = ibv_get_device_list(NULL);
	need(list && list[0], "ibv_get_device_list");
	ctx = ibv_open_device(list[0]);
	need(ctx, "ibv_open_device");
	ibv_free_device_list(list);
	need(!ibv_query_device_ex(ctx, NULL, &dev), "ibv_query_device_ex");
	need(!ibv_query_port(ctx, 1, &port), "ibv_query_port");
	ssize_t n = ibv_query_gid_table(ctx, e, 64, 0);
	for (ssize_t i = 0; i < n; i++)
		if (e[i].gid.raw[10] == 0xff && e[i].gid.raw[11] == 0xff) {
			gid_index = (uint8_t)e[i].gid_index;
			gid = e[i].gid;
		}
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	buf = mmap(NULL, BUF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	need(pd && cq && buf != MAP_FAILED, "the objects");
	mr = ibv_reg_mr(pd, buf, BUF,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	need(mr, "ibv_reg_mr");
}

static struct ibv_qp *qp_of(enum ibv_qp_type type, uint32_t wr, uint32_t sge, uint32_t inl)
{
	struct ibv_qp_init_attr a = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.cap = {wr, wr, sge, sge, inl},
		.sq_sig_all = 1};
	return ibv_create_qp(pd, &a);
}

/* The first of the three that there is. */
static struct ibv_qp *any_qp(uint32_t wr, uint32_t sge, uint32_t inl)
{
	struct ibv_qp *qp = NULL;
	for (int type = IBV_QPT_RC; type <= IBV_QPT_UD && !qp; type++)
		if (!(qp = qp_of((enum ibv_qp_type)type, wr, sge, inl)) && errno != EOPNOTSUPP)
			break;
	return qp;
}

static int gone(struct ibv_qp *qp)
{
	int rc = of(qp);
	if (qp)
		ibv_destroy_qp(qp);
	return rc;
}

static int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC};
	return ibv_modify_qp(
		qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct ibv_qp *qp, uint32_t qpn, const union ibv_gid *dgid, int mtu, int rd)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)mtu,
		.dest_qp_num = qpn,
		.rq_psn = 100,
		.max_dest_rd_atomic = (uint8_t)rd,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = *dgid, .sgid_index = gid_index, .hop_limit = 1}}};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &a, mask);
}

static int to_rts(struct ibv_qp *qp, int rd)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_RTS,
		.sq_psn = 100,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = (uint8_t)rd};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	return ibv_modify_qp(qp, &a, mask);
}

static int post(struct ibv_qp *qp, int op, uint32_t len, int nsge, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge[32];
	struct ibv_send_wr *bad,
		wr = {.opcode = (enum ibv_wr_opcode)op, .sg_list = sge, .num_sge = nsge};
	for (int i = 0; i < nsge; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)buf, i ? 0 : len, mr->lkey};
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = raddr;
		wr.wr.rdma.rkey = rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static const char *done(void)
{
	struct ibv_wc wc;
	for (int ms = 0; ms < 10000; ms++) {
		int n = ibv_poll_cq(cq, 1, &wc);
		need(n >= 0, "ibv_poll_cq");
		if (n)
			return ibv_wc_status_str(wc.status);
		usleep(1000);
	}
	return "no completion";
}

/* ---- calls ---- */

/* As many as there may be, and the error of the next one. */
#define COUNT(what, most, type, make, end) \
	do { \
		type *made[KEPT + 1]; \
		int n = 0; \
		if ((most) > KEPT) \
			break; \
		while (n <= KEPT && (made[n] = (make))) \
			n++; \
		printf("%s %d: %s after %d\n", what, (int)(most), name(errno), n); \
		while (n--) \
			end(made[n]); \
	} while (0)

static struct ibv_ah *ah_of(int index)
{
	struct ibv_ah_attr a = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = gid, .sgid_index = (uint8_t)index, .hop_limit = 1}};
	return ibv_create_ah(pd, &a);
}

static struct ibv_srq *srq_of(uint32_t wr, uint32_t sge)
{
	struct ibv_srq_init_attr a = {.attr = {wr, sge, 0}};
	return ibv_create_srq(pd, &a);
}

static void counts(void)
{
	const struct ibv_device_attr *a = &dev.orig_attr;
	COUNT("max_qp", a->max_qp, struct ibv_qp, any_qp(1, 1, 0), ibv_destroy_qp);
	COUNT("max_cq", a->max_cq, struct ibv_cq, ibv_create_cq(ctx, 1, NULL, NULL, 0),
		ibv_destroy_cq);
	COUNT("max_mr", a->max_mr, struct ibv_mr, ibv_reg_mr(pd, buf, 1, 0), ibv_dereg_mr);
	COUNT("max_pd", a->max_pd, struct ibv_pd, ibv_alloc_pd(ctx), ibv_dealloc_pd);
	COUNT("max_ah", a->max_ah, struct ibv_ah, ah_of(gid_index), ibv_destroy_ah);
	COUNT("max_mw", a->max_mw, struct ibv_mw, ibv_alloc_mw(pd, IBV_MW_TYPE_1), ibv_dealloc_mw);
	COUNT("max_srq", a->max_srq, struct ibv_srq, srq_of(1, 1), ibv_destroy_srq);
}

static int cq_gone(struct ibv_cq *made)
{
	int rc = of(made);
	if (made)
		ibv_destroy_cq(made);
	return rc;
}

static int srq_gone(struct ibv_srq *made)
{
	int rc = of(made);
	if (made)
		ibv_destroy_srq(made);
	return rc;
}

static int reg_gone(size_t len)
{
	void *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	need(at != MAP_FAILED, "mmap");
	struct ibv_mr *made = ibv_reg_mr(pd, at, len, IBV_ACCESS_LOCAL_WRITE);
	int rc = of(made);
	if (made)
		ibv_dereg_mr(made);
	munmap(at, len);
	return rc;
}

static void sizes(void)
{
	const struct ibv_device_attr *a = &dev.orig_attr;
	uint32_t wr = (uint32_t)a->max_qp_wr, sge = (uint32_t)a->max_sge, inl = 0;
	say2("max_qp_wr", wr, gone(any_qp(wr, 1, 0)), gone(any_qp(wr + 1, 1, 0)));
	say2("max_sge", sge, gone(any_qp(1, sge, 0)), gone(any_qp(1, sge + 1, 0)));
	while (inl < 4096 && !gone(any_qp(1, 1, inl + 1)))
		inl++;
	say2("max_inline_data", inl, gone(any_qp(1, 1, inl)), gone(any_qp(1, 1, inl + 1)));
	say2("max_cqe", a->max_cqe, cq_gone(ibv_create_cq(ctx, a->max_cqe, NULL, NULL, 0)),
		cq_gone(ibv_create_cq(ctx, a->max_cqe + 1, NULL, NULL, 0)));
	struct ibv_cq *own = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	need(own, "ibv_create_cq");
	say2("ibv_resize_cq", a->max_cqe, ibv_resize_cq(own, a->max_cqe),
		ibv_resize_cq(own, a->max_cqe + 1));
	printf("cqe: %s\n", own->cqe <= a->max_cqe ? "no more than that" : "more than that");
	ibv_destroy_cq(own);
	if (a->max_mr_size <= 1ull << 40)
		say2("max_mr_size", (long long)a->max_mr_size, reg_gone(a->max_mr_size),
			reg_gone(a->max_mr_size + 1));
	if (a->max_srq) {
		uint32_t w = (uint32_t)a->max_srq_wr, s = (uint32_t)a->max_srq_sge;
		say2("max_srq_wr", w, srq_gone(srq_of(w, 1)), srq_gone(srq_of(w + 1, 1)));
		say2("max_srq_sge", s, srq_gone(srq_of(1, s)), srq_gone(srq_of(1, s + 1)));
	}
}

static void connection(void)
{
	const struct ibv_device_attr *a = &dev.orig_attr;
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, 16, (uint32_t)a->max_sge, 0);
	if (!qp) {
		say1("RC", errno);
		return;
	}
	int mtu = port.max_mtu, in = a->max_qp_rd_atom, out = a->max_qp_init_rd_atom;
	to_init(qp);
	if (mtu < IBV_MTU_4096)
		say1("RTR beyond max_mtu", to_rtr(qp, qp->qp_num, &gid, mtu + 1, in));
	say1("RTR beyond max_qp_rd_atom", to_rtr(qp, qp->qp_num, &gid, mtu, in + 1));
	say1("RTR at both", to_rtr(qp, qp->qp_num, &gid, mtu, in));
	say1("RTS beyond max_qp_init_rd_atom", to_rts(qp, out + 1));
	say1("RTS at it", to_rts(qp, out));
	say1("FETCH_ADD", post(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 1, (uintptr_t)buf, mr->rkey));
	say1("ATOMIC_WRITE", post(qp, ATOMIC_WRITE, 8, 1, (uintptr_t)buf, mr->rkey));
	struct ibv_send_wr *bad, inv = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mr->rkey};
	struct ibv_qp *other = qp_of(IBV_QPT_RC, 16, 1, 0);
	need(other && !to_init(other) && !to_rtr(other, other->qp_num, &gid, mtu, in) &&
			!to_rts(other, out),
		"another QP");
	say1("LOCAL_INV", ibv_post_send(other, &inv, &bad));
	gone(other);
	if (a->max_sge_rd < a->max_sge)
		say1("READ beyond max_sge_rd",
			post(qp, IBV_WR_RDMA_READ, 8, a->max_sge_rd + 1, (uintptr_t)buf, mr->rkey));
	say1("READ at max_sge_rd",
		post(qp, IBV_WR_RDMA_READ, 8, a->max_sge_rd, (uintptr_t)buf, mr->rkey));
	if (port.max_msg_sz < 1u << 31)
		say1("WRITE beyond max_msg_sz", post(qp, IBV_WR_RDMA_WRITE, port.max_msg_sz + 1, 1,
							(uintptr_t)buf, mr->rkey));
	say1("SEND of 8928", post(qp, IBV_WR_SEND, 8928, 1, 0, 0));
	say1("SEND of 8929", post(qp, IBV_WR_SEND, 8929, 1, 0, 0));
	gone(qp);
}

static void regions(void)
{
	struct ibv_mr *m;
	say1("ON_DEMAND",
		of(m = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND)));
	if (m)
		ibv_dereg_mr(m);
	say1("implicit", of(m = ibv_reg_mr(pd, NULL, SIZE_MAX,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND)));
	if (m)
		ibv_dereg_mr(m);
	say1("ZERO_BASED",
		of(m = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED)));
	if (m)
		ibv_dereg_mr(m);
	say1("ibv_alloc_null_mr", of(m = ibv_alloc_null_mr(pd)));
	if (m)
		ibv_dereg_mr(m);
	m = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	need(m, "ibv_reg_mr");
	errno = 0;
	int rc = ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0);
	say1("ibv_rereg_mr", rc ? errno : 0);
	ibv_dereg_mr(m);
}

static void extras(void)
{
	say1("RC", gone(qp_of(IBV_QPT_RC, 1, 1, 0)));
	say1("UC", gone(qp_of(IBV_QPT_UC, 1, 1, 0)));
	struct ibv_qp *ud = qp_of(IBV_QPT_UD, 1, 1, 0);
	say1("UD", of(ud));
	union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
	if (ud)
		say1("ibv_attach_mcast", ibv_attach_mcast(ud, &group, 0));
	if (ud)
		ibv_detach_mcast(ud, &group, 0);
	if (ud)
		ibv_destroy_qp(ud);
	struct ibv_mw *mw;
	say1("window of type 1", of(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1)));
	if (mw)
		ibv_dealloc_mw(mw);
	say1("window of type 2", of(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2)));
	if (mw)
		ibv_dealloc_mw(mw);
	struct ibv_srq *srq = srq_of(4, 1);
	if (srq)
		say1("SRQ resized",
			ibv_modify_srq(srq, &(struct ibv_srq_attr){.max_wr = 8}, IBV_SRQ_MAX_WR));
	if (srq)
		ibv_destroy_srq(srq);
	struct ibv_td_init_attr ta = {0};
	struct ibv_td *td = ibv_alloc_td(ctx, &ta);
	say1("ibv_alloc_td", of(td));
	if (td)
		ibv_dealloc_td(td);
	say1("ibv_modify_cq",
		ibv_modify_cq(cq, &(struct ibv_modify_cq_attr){
					  .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {1, 0}}));
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	say1("ibv_query_rt_values_ex", ibv_query_rt_values_ex(ctx, &v));
	struct ibv_cq_init_attr_ex ca = {.cqe = 4, .wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(ctx, &ca);
	say1("CQ with time stamps", of(ex));
	if (ex)
		ibv_destroy_cq(ibv_cq_ex_to_cq(ex));
	struct ibv_qp_init_attr_ex qa = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {1, 1, 1, 1, 0},
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD};
	say1("ibv_create_qp_ex with atomics", gone(ibv_create_qp_ex(ctx, &qa)));
}

static void gids(void)
{
	char path[128];
	struct ibv_gid_entry e;
	printf("gids:");
	for (int i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid_ex(ctx, 1, (uint32_t)i, &e, 0))
			printf(" %d", i);
	printf("\ngid files:");
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gids/%d",
			ibv_get_device_name(ctx->device), i);
		if (!access(path, R_OK))
			printf(i ? "" : " from 0");
		else {
			printf(" below %d\n", i);
			break;
		}
	}
	struct ibv_ah *ah = ah_of(gid_index);
	say1("address handle with the GID of the address", of(ah));
	if (ah)
		ibv_destroy_ah(ah);
	if (gid_index > 1) {
		ah = ah_of(0);
		say1("address handle with GID 0", of(ah));
	}
}

static void attributes(void)
{
	const struct ibv_device_attr *a = &dev.orig_attr;
	printf("flags: 0x%x 0x%llx\natomic_cap: %d\n", a->device_cap_flags,
		(unsigned long long)dev.device_cap_flags_ex >> 32, (int)a->atomic_cap);
	printf("odp: 0x%llx 0x%x 0x%x 0x%x\n", (unsigned long long)dev.odp_caps.general_caps,
		dev.odp_caps.per_transport_caps.rc_odp_caps,
		dev.odp_caps.per_transport_caps.uc_odp_caps,
		dev.odp_caps.per_transport_caps.ud_odp_caps);
	printf("port: max_mtu %d active_mtu %d max_msg_sz %u gid_tbl_len %d\n", port.max_mtu,
		port.active_mtu, port.max_msg_sz, port.gid_tbl_len);
	printf("rest: rd %d %d %d mcast %d %d %d stamps %d moderation %d\n", a->max_qp_rd_atom,
		a->max_qp_init_rd_atom, a->max_res_rd_atom, a->max_mcast_grp,
		a->max_mcast_qp_attach, a->max_total_mcast_qp_attach,
		dev.completion_timestamp_mask != 0, dev.cq_mod_caps.max_cq_count);
}

/* ---- between two processes ---- */

struct info {
	uint32_t qpn, rkey;
	uint64_t addr;
	union ibv_gid gid;
};

static void swap(int sock, const void *mine, void *theirs, size_t n)
{
	need(write(sock, mine, n) == (ssize_t)n, "write");
	need(recv(sock, theirs, n, MSG_WAITALL) == (ssize_t)n, "recv");
}

static struct ibv_qp *connected(int sock, struct info *peer, int rd)
{
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, 16, 1, 0);
	need(qp, "ibv_create_qp");
	struct info me = {qp->qp_num, mr->rkey, (uintptr_t)buf, gid};
	swap(sock, &me, peer, sizeof(me));
	need(!to_init(qp) && !to_rtr(qp, peer->qpn, &peer->gid, IBV_MTU_1024, rd) &&
			!to_rts(qp, rd),
		"ibv_modify_qp");
	char ready = 1;
	swap(sock, &ready, &ready, 1);
	return qp;
}

static const struct {
	const char *what;
	int op;
	uint32_t len;
} asked[] = {{"FETCH_ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, 8}, {"ATOMIC_WRITE", ATOMIC_WRITE, 8},
	{"WRITE of 1 MiB", IBV_WR_RDMA_WRITE, 1 << 20},
	{"READ of 1 MiB", IBV_WR_RDMA_READ, 1 << 20},
	{"WRITE of 64 KiB", IBV_WR_RDMA_WRITE, 1 << 16},
	{"READ of 64 KiB", IBV_WR_RDMA_READ, 1 << 16}};
enum { ASKED = sizeof(asked) / sizeof(asked[0]) };

static int wire(const char *like)
{
	int sv[2], status;
	char over = 1;
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv), "socketpair");
	pid_t child = fork();
	need(child >= 0, "fork");
	int sock = sv[!child];
	close(sv[!!child]); /* so that the other's end is seen */
	if (!child)
		setenv("ROPEWAY_LIKE", like, 1);
	begin();
	for (int i = 0; i < ASKED; i++) {
		struct info peer;
		memset(buf, child ? 7 : 0, 1 << 20);
		struct ibv_qp *qp = connected(sock, &peer, 1);
		swap(sock, &over, &over, 1);
		if (child) {
			need(!post(qp, asked[i].op, asked[i].len, 1, peer.addr, peer.rkey), "post");
			printf("%s: %s", asked[i].what, done());
		}
		swap(sock, &over, &over, 1);
		/* TSan sees what the peer did as this device's thread's, and so wants a lock of the
		 * device's between. */
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		need(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
		uint8_t first = buf[0], theirs = 0;
		swap(sock, &first, &theirs, 1);
		if (child)
			printf(", memory %s\n", theirs == 0 ? "as it was" : "changed");
		gone(qp);
	}
	if (!child)
		_exit(0);
	need(waitpid(child, &status, 0) == child && !status, "the other process");
	return 0;
}

/* ---- slots of a send queue ---- */

/* Loopback, without sq_sig_all. */
static struct ibv_qp *to_itself(void)
{
	struct ibv_qp_init_attr a = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	need(qp && !to_init(qp) && !to_rtr(qp, qp->qp_num, &gid, IBV_MTU_1024, 1) && !to_rts(qp, 1),
		"the QP");
	return qp;
}

/* So many WRITEs as one list, the last one signaled or not; how many were taken. */
static int writes(struct ibv_qp *qp, int n, bool signals)
{
	struct ibv_sge sge = {(uintptr_t)buf, 64, mr->lkey};
	struct ibv_send_wr wr[16] = {0}, *bad = NULL;
	for (int i = 0; i < n; i++) {
		wr[i] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_WRITE,
			.sg_list = &sge,
			.num_sge = 1,
			.send_flags = signals && i == n - 1 ? IBV_SEND_SIGNALED : 0,
			.next = i + 1 < n ? &wr[i + 1] : NULL};
		wr[i].wr.rdma.remote_addr = (uintptr_t)buf + 4096;
		wr[i].wr.rdma.rkey = mr->rkey;
	}
	int rc = ibv_post_send(qp, wr, &bad);
	need(!rc || rc == ENOMEM, "ibv_post_send");
	need(!rc || wr[n - 1].next == NULL, "a list as it was");
	usleep(50000);
	return rc ? (int)(bad - wr) : n;
}

static int slots(void)
{
	begin();
	struct ibv_qp *qp = to_itself();
	printf("in parts: %d of 4", writes(qp, 4, false));
	printf(", %d of 3 with a completion\n", writes(qp, 3, true));
	printf("not polled: %d of 4\n", writes(qp, 4, false));
	need(!strcmp(done(), "success"), "the completion");
	printf("polled: %d of 10\n", writes(qp, 10, false));
	printf("nothing signaled: %d of 1\n", writes(qp, 1, true));
	gone(qp);
	return 0;
}

/* ---- READs ---- */

static int reads(void)
{
	enum { N = 32, LEN = 65536 };
	begin();
	int out = dev.orig_attr.max_qp_init_rd_atom, in = dev.orig_attr.max_qp_rd_atom;
	struct ibv_qp *a = qp_of(IBV_QPT_RC, 64, 1, 0), *b = qp_of(IBV_QPT_RC, 64, 1, 0);
	need(a && b && !to_init(a) && !to_init(b) &&
			!to_rtr(a, b->qp_num, &gid, IBV_MTU_1024, in) &&
			!to_rtr(b, a->qp_num, &gid, IBV_MTU_1024, in) && !to_rts(a, out) &&
			!to_rts(b, out),
		"the QPs");
	for (int i = 0; i < N * LEN; i++)
		buf[N * LEN + i] = (uint8_t)(i * 31 >> 3);
	struct ibv_sge sge[N];
	struct ibv_send_wr wr[N] = {0}, *bad;
	for (int i = 0; i < N; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)buf + (size_t)i * LEN, LEN, mr->lkey};
		wr[i] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_READ,
			.sg_list = &sge[i],
			.num_sge = 1,
			.next = i + 1 < N ? &wr[i + 1] : NULL};
		wr[i].wr.rdma.remote_addr = (uintptr_t)buf + (size_t)(N + i) * LEN;
		wr[i].wr.rdma.rkey = mr->rkey;
	}
	need(!ibv_post_send(a, wr, &bad), "ibv_post_send");
	for (int i = 0; i < N; i++) {
		const char *status = done();
		need(!strcmp(status, "success"), status);
	}
	printf("%d READs, at most %d at a time: %s\n", N, out,
		memcmp(buf, buf + N * LEN, N * LEN) ? "WRONG BYTES" : "bytes right");
	gone(a);
	gone(b);
	return 0;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3 && !strcmp(argv[1], "wire"))
		return wire(argv[2]);
	if (argc == 2 && !strcmp(argv[1], "reads"))
		return reads();
	if (argc == 2 && !strcmp(argv[1], "slots"))
		return slots();
	begin();
	attributes();
	sizes();
	connection();
	extras();
	regions();
	gids();
	ibv_dereg_mr(mr);
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	need(pd && cq, "the objects");
	counts();
	return 0;
}
