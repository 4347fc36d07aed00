/* SPDX-License-Identifier: BSD-3-Clause */
/* steps.c - the data path: the verbs calls, in the order in which a program makes them.
 * 数据通道：按程序调用的顺序排列的 verbs 调用。
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "steps.h"

enum {
	PORT = 1, /* ports of a device count from 1 / 设备的端口从 1 开始编号 */
	/* for a list of devices or GIDs in an error line / 错误行中设备或 GID 列表的长度 */
	LIST_CHARS = 1024,
	WATCH_EVERY_MS = 20,
};

static const char *gid_text(const union ibv_gid *gid)
{
	static char text[2][INET6_ADDRSTRLEN];
	static unsigned turn;

	turn = !turn;
	return inet_ntop(AF_INET6, gid->raw, text[turn], INET6_ADDRSTRLEN);
}

static unsigned mtu_bytes(enum ibv_mtu mtu)
{
	/* IBV_MTU_256 is 1, IBV_MTU_4096 is 5 / IBV_MTU_256 为 1，IBV_MTU_4096 为 5 */
	return 128u << mtu;
}

static enum ibv_mtu mtu_from_bytes(unsigned bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && mtu_bytes(mtu) < bytes)
		mtu++;
	return mtu;
}

static void list_add(char *list, const char *word)
{
	size_t used = strlen(list);

	snprintf(list + used, LIST_CHARS - used, "%s%s", used ? ", " : "", word);
}

/* ---- step 1: the device / 第 1 步：设备 ---- */

static int no_device(void)
{
	return fail(_("this machine has no RDMA device: start this program with \"ropeway run -- "
		      "%s\", which brings one in software, or as "
		      "root make the kernel's (modprobe rdma_rxe; rdma link add rxe0 type rxe "
		      "netdev eth0)"),
		program_invocation_name);
}

static int device_missing(const char *name, struct ibv_device **list, int count)
{
	char names[LIST_CHARS] = "";

	for (int i = 0; i < count; i++)
		list_add(names, ibv_get_device_name(list[i]));
	if (name[strspn(name, "0123456789")] == '\0')
		return fail(_("there is no device \"%s\", only: %s (the device comes before the "
			      "port; write - for the first one)"),
			name, names);
	return fail(
		_("there is no device \"%s\", only: %s (name one of them, or - for the first one)"),
		name, names);
}

static int open_device(struct rdma *r, const struct options *opt)
{
	int count = 0, rc = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_device *device = NULL;

	for (int i = 0; list && i < count && !device; i++)
		if (!opt->device || !strcmp(opt->device, ibv_get_device_name(list[i])))
			device = list[i];
	if (!list || count == 0) {
		rc = no_device();
	} else if (opt->device && !device) {
		rc = device_missing(opt->device, list, count);
	} else {
		say_step(_("open the device %s and look at its port. All later calls go through "
			   "the opened device."),
			ibv_get_device_name(device));
		errno = 0;
		r->context = ibv_open_device(device);
		if (!r->context)
			rc = fail(_("cannot open device %s (%s): see \"ropeway devices\" for the "
				    "reason, or name another device"),
				ibv_get_device_name(device), strerror(errno));
	}
	/* The list may go once a device of it is open, not earlier. / 设备打开之后才能释放列表。 */
	if (list)
		ibv_free_device_list(list);
	return rc;
}

static bool is_ethernet(const struct rdma *r)
{
	return r->port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

static const char *device_name(const struct rdma *r)
{
	return ibv_get_device_name(r->context->device);
}

static int query_port(struct rdma *r, const struct options *opt)
{
	int error = ibv_query_port(r->context, PORT, &r->port);

	if (error)
		return fail(_("cannot query port %d of %s (%s): name another device"), PORT,
			device_name(r), strerror(error));
	if (r->port.state != IBV_PORT_ACTIVE)
		return fail(_("port %d of %s is not active but %s: bring its network interface up "
			      "(ip link set ... up) or connect its cable"),
			PORT, device_name(r), ibv_port_state_str(r->port.state));
	r->mtu = r->port.active_mtu;
	if (opt->mtu_bytes > mtu_bytes(r->mtu))
		return fail(_("an MTU of %u is more than the %u that port %d of %s allows: choose "
			      "at most that (-m)"),
			opt->mtu_bytes, mtu_bytes(r->mtu), PORT, device_name(r));
	if (opt->mtu_bytes)
		r->mtu = mtu_from_bytes(opt->mtu_bytes);
	if (opt->buffer_bytes > r->port.max_msg_sz)
		return fail(
			_("%s carries messages of at most %u bytes: choose a smaller size (-s)"),
			device_name(r), r->port.max_msg_sz);
	say(_("port %d is active, MTU %u bytes, link layer %s, LID 0x%04x"), PORT,
		mtu_bytes(r->mtu), is_ethernet(r) ? "Ethernet (RoCE)" : "InfiniBand", r->port.lid);
	return 0;
}

static int gid_wrong(struct rdma *r, unsigned index)
{
	char usable[LIST_CHARS] = "";
	char entry[INET6_ADDRSTRLEN + 24];
	union ibv_gid gid;

	for (int i = 0; i < r->port.gid_tbl_len; i++) {
		if (ibv_query_gid(r->context, PORT, i, &gid) || gid_empty(&gid))
			continue;
		snprintf(entry, sizeof(entry), "%d (%s)", i, gid_text(&gid));
		list_add(usable, entry);
	}
	if (!*usable)
		return fail(_("%s has no GID at all: give its network interface an IP address, or "
			      "name another device"),
			device_name(r));
	if (index >= (unsigned)r->port.gid_tbl_len)
		return fail(_("GID index %u does not exist, %s has 0 to %d: choose one that is in "
			      "use: %s"),
			index, device_name(r), r->port.gid_tbl_len - 1, usable);
	return fail(_("GID index %u of %s is empty: choose one that is in use: %s"), index,
		device_name(r), usable);
}

static int query_gid(struct rdma *r, const struct options *opt)
{
	bool found = opt->gid_index < (unsigned)r->port.gid_tbl_len &&
		     !ibv_query_gid(r->context, PORT, (int)opt->gid_index, &r->gid) &&
		     !gid_empty(&r->gid);

	if (found) {
		say(_("GID %u is %s: on RoCE, the address of this side"), opt->gid_index,
			gid_text(&r->gid));
		return 0;
	}
	/* InfiniBand finds its way by LID; only RoCE cannot do without a GID. / InfiniBand 靠 LID
	 * 寻址；只有 RoCE 离不开 GID。 */
	if (is_ethernet(r))
		return gid_wrong(r, opt->gid_index);
	memset(&r->gid, 0, sizeof(r->gid));
	return 0;
}

static int choose_device(struct rdma *r, const struct options *opt)
{
	if (open_device(r, opt) || query_port(r, opt))
		return -1;
	return query_gid(r, opt);
}

/* ---- steps 2 to 5: the objects / 第 2 至 5 步：各种对象 ---- */

static int cannot(const char *what, int error)
{
	return fail(_("cannot %s (%s): ask for less with -s and -n, or raise the limit of locked "
		      "memory (ulimit -l)"),
		what, strerror(error));
}

static int allocate_pd(struct rdma *r)
{
	say_step(_("allocate a protection domain (PD). Memory and queue pairs work together only "
		   "within one PD."));
	r->pd = ibv_alloc_pd(r->context);
	return r->pd ? 0 : cannot(_("allocate a protection domain"), errno);
}

static char *page_aligned(size_t bytes)
{
	void *p = NULL;

	/* Devices map whole pages, so buffers of their own pages register best. /
	 * 设备按整页映射内存，缓冲区独占整页最合适。 */
	if (posix_memalign(&p, 4096, bytes))
		return NULL;
	return memset(p, 0, bytes);
}

static int register_memory(struct rdma *r, const struct options *opt)
{
	size_t bytes = (size_t)opt->buffer_bytes * opt->qps;

	say_step(_("register memory (MR). From now on the device may use these buffers by itself, "
		   "without the kernel."));
	r->buffer_bytes = opt->buffer_bytes;
	r->send_buffer = page_aligned(bytes);
	r->receive_buffer = page_aligned(bytes);
	r->expected = malloc(opt->buffer_bytes);
	if (!r->send_buffer || !r->receive_buffer || !r->expected)
		return cannot(_("get memory for the buffers"), ENOMEM);
	/* Reading for a send is always allowed; to place what arrives, the device must be allowed
	 * to write. The peer gets no right (no IBV_ACCESS_REMOTE_...): with SEND, the receiver
	 * itself decides where data goes. 发送时读取内存总是允许的；要放置收到的数据，
	 * 设备须有写权限。不给对端任何权限：SEND 的数据放在哪里由接收方决定。 */
	r->send_mr = ibv_reg_mr(r->pd, r->send_buffer, bytes, 0);
	if (r->send_mr)
		r->receive_mr = ibv_reg_mr(r->pd, r->receive_buffer, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!r->receive_mr)
		return cannot(_("register memory"), errno);
	say(_("%zu bytes to send from (lkey 0x%x), and as many to receive into (lkey 0x%x)"), bytes,
		r->send_mr->lkey, r->receive_mr->lkey);
	return 0;
}

static int create_cq(struct rdma *r, const struct options *opt)
{
	say_step(_("create a completion queue (CQ). The device puts a note there whenever it has "
		   "finished something."));
	/* Room for one send and one receive of each QP: a CQ that overflows is lost. / 容纳每个 QP
	 * 的一次发送和一次接收：CQ 溢出就不能再用。 */
	r->cq = ibv_create_cq(r->context, (int)opt->qps * 2, NULL, NULL, 0);
	return r->cq ? 0 : cannot(_("create a completion queue"), errno);
}

static int create_qps(struct rdma *r, const struct options *opt)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		/* RC, reliable connection: like TCP, nothing is lost or out of order; unlike TCP,
		 * messages stay messages. RC 可靠连接：像 TCP 一样不丢失、不乱序；
		 * 不同的是消息保持边界。 */
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1, /* a completion for each send / 每次发送都产生完成事件 */
	};

	say_step(_("create %u queue pair(s) (QP): a queue for sends and one for receives. A new QP "
		   "is in state RESET."),
		opt->qps);
	for (; r->qps < opt->qps; r->qps++) {
		struct ibv_qp_init_attr a = attr; /* the call writes into it / 调用会修改它 */
		r->qp[r->qps] = ibv_create_qp(r->pd, &a);
		if (!r->qp[r->qps])
			return cannot(_("create a queue pair"), errno);
	}
	return 0;
}

int init_rdma_resources(struct rdma *r, const struct options *opt)
{
	r->verbose = opt->verbose;
	if (choose_device(r, opt) || allocate_pd(r) || register_memory(r, opt) || create_cq(r, opt))
		return -1;
	return create_qps(r, opt);
}

/* ---- states of a queue pair / 队列对的状态 ---- */

static int modify(
	struct rdma *r, unsigned qp, struct ibv_qp_attr *attr, int mask, const char *state)
{
	int error = ibv_modify_qp(r->qp[qp], attr, mask);

	/* Returns an errno; some libraries set errno and return -1. / 返回 errno；有些库返回 -1
	 * 并设置 errno。 */
	if (!error)
		return 0;
	return fail(_("QP %u cannot go to state %s (%s): check that the GID index suits the way to "
		      "the peer (same IP version, same network) "
		      "and that both sides use devices of one kind"),
		qp + 1, state, strerror(error > 0 ? error : errno));
}

int modify_qp_to_init(struct rdma *r)
{
	struct ibv_qp_attr attr = {
		/* the peer may only SEND / 对端只能 SEND */
		.qp_state = IBV_QPS_INIT,
		.pkey_index = 0,
		.port_num = PORT,
		.qp_access_flags = 0,
	};

	say_step(_("RESET -> INIT: the QP learns its port and what a peer may do. Now receives can "
		   "be posted, but nothing arrives yet."));
	for (unsigned i = 0; i < r->qps; i++)
		if (modify(r, i, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
			    "INIT"))
			return -1;
	return 0;
}

static uint64_t work_id(enum work work, unsigned qp) { return (uint64_t)work << 32 | qp; }

static int post_receive(struct rdma *r, unsigned qp)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(r->receive_buffer + (size_t)qp * r->buffer_bytes),
		.length = r->buffer_bytes,
		.lkey = r->receive_mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = work_id(WORK_RECEIVE, qp), .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int error = ibv_post_recv(r->qp[qp], &wr, &bad);

	return error ? cannot(_("post a receive"), error > 0 ? error : errno) : 0;
}

int post_receives(struct rdma *r)
{
	say_step(_("post a receive on each QP: a message that finds none would be turned away "
		   "(RNR, receiver not ready)."));
	for (unsigned i = 0; i < r->qps; i++)
		if (post_receive(r, i))
			return -1;
	return 0;
}

/* PSNs begin anywhere, so that packets of an earlier connection do not fit into this one. / PSN
 * 随机起始，旧连接的包就不会混入新连接。 */
static uint32_t random_psn(void)
{
	uint32_t v;

	if (getrandom(&v, sizeof(v), 0) != sizeof(v))
		v = (uint32_t)now_ms() * 2654435761u;
	return v & 0xffffff;
}

void con_data_describe(const struct rdma *r, const struct options *opt, struct cm_con_data_t *local)
{
	*local = (struct cm_con_data_t){
		.mtu_bytes = mtu_bytes(r->mtu),
		.qps = r->qps,
		.buffer_bytes = r->buffer_bytes,
		.message_bytes = opt->message_bytes,
		.link_layer = r->port.link_layer,
		.lid = r->port.lid,
		.gid = r->gid,
	};
	for (unsigned i = 0; i < r->qps; i++) {
		local->qp[i].qpn = r->qp[i]->qp_num;
		local->qp[i].psn = random_psn();
	}
}

static void show_con_data(const char *name, const struct cm_con_data_t *s)
{
	for (unsigned i = 0; i < s->qps; i++)
		say(_("%s LID 0x%04x  QPN 0x%06x  PSN 0x%06x  GID %s"), name, s->lid, s->qp[i].qpn,
			s->qp[i].psn, gid_text(&s->gid));
}

void con_data_show(const struct cm_con_data_t *local, const struct cm_con_data_t *remote)
{
	show_con_data(_("local: "), local);
	show_con_data(_("remote:"), remote);
	say(_("MTU %u here, %u there: the smaller counts"), local->mtu_bytes, remote->mtu_bytes);
}

int modify_qp_to_rtr(struct rdma *r, const struct options *opt, const struct cm_con_data_t *local,
	const struct cm_con_data_t *remote)
{
	uint32_t mtu = local->mtu_bytes < remote->mtu_bytes ? local->mtu_bytes : remote->mtu_bytes;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_from_bytes(mtu),
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12, /* 0.64 ms */
		.ah_attr =
			{
				.dlid = remote->lid,
				.port_num = PORT,
				/* The global header carries the GIDs; RoCE always has it (on RoCE
				 * v2 it is the IP header). 全局路由头携带 GID；RoCE 总是需要它（在
				 * RoCE v2 中就是 IP 头）。 */
				.is_global = is_ethernet(r),
				.grh = {.dgid = remote->gid,
					.sgid_index = (uint8_t)opt->gid_index,
					/* RoCE puts the route's in its place. / RoCE
					 * 会改用路由的值。 */
					.hop_limit = 64},
			},
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	say_step(_("INIT -> RTR (ready to receive): the QP learns its peer: address, QPN, first "
		   "PSN, MTU %u. It receives from now on."),
		mtu);
	for (unsigned i = 0; i < r->qps; i++) {
		attr.dest_qp_num = remote->qp[i].qpn;
		attr.rq_psn = remote->qp[i].psn;
		if (modify(r, i, &attr, mask, "RTR"))
			return -1;
	}
	return 0;
}

int modify_qp_to_rts(struct rdma *r, const struct cm_con_data_t *local)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		/* 4.096 us * 2^14 = 67 ms until an unanswered packet is sent again / 67
		 * 毫秒未答复则重发 */
		.timeout = 14,
		.retry_cnt = 7, /* so many times / 重发次数 */
		/* 7: wait for a receive without limit; the 5 s of polling end it / 7 表示无限等待，
		 * 由 5 秒轮询期限终止 */
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		   IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	say_step(_("RTR -> RTS (ready to send): the QP learns its own first PSN, and how long and "
		   "how often to try again. Now it may send, too."));
	for (unsigned i = 0; i < r->qps; i++) {
		attr.sq_psn = local->qp[i].psn;
		if (modify(r, i, &attr, mask, "RTS"))
			return -1;
	}
	return 0;
}

/* ---- messages / 消息 ---- */

int post_send(struct rdma *r, unsigned qp, uint32_t bytes)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(r->send_buffer + (size_t)qp * r->buffer_bytes),
		.length = bytes,
		.lkey = r->send_mr->lkey,
	};
	struct ibv_send_wr wr = {.wr_id = work_id(WORK_SEND, qp),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	/* This only hands the work over; the buffer belongs to the device until the completion
	 * comes. / 这里只是交出任务；完成之前缓冲区归设备使用。 */
	int error = ibv_post_send(r->qp[qp], &wr, &bad);

	return error ? cannot(_("post a send"), error > 0 ? error : errno) : 0;
}

/* What to do about each way in which an operation can fail. / 操作失败的各种方式，以及对策。 */
static const struct {
	enum ibv_wc_status status;
	const char *advice;
} advice[] = {
	{IBV_WC_RETRY_EXC_ERR, N_("the peer acknowledged nothing: check that it still runs, that "
				  "the GIDs reach each other, and that UDP port 4791 is "
				  "not blocked")},
	{IBV_WC_RNR_RETRY_EXC_ERR, N_("the peer had no receive posted: start both again")},
	{IBV_WC_LOC_LEN_ERR,
		N_("the message was longer than the receive buffer: start both with the same -s")},
	{IBV_WC_REM_INV_REQ_ERR,
		N_("the peer could not take the message: start both with the same -s")},
	{IBV_WC_LOC_PROT_ERR, N_("the buffer is not registered as the operation needs it: the "
				 "program or the device is at fault")},
	{IBV_WC_WR_FLUSH_ERR,
		N_("the queue pair failed earlier: look at what the other side printed")},
};

static int work_failed(const struct ibv_wc *wc, unsigned qp, enum work work)
{
	const char *what = N_("look at what the other side printed, then start both again");

	for (size_t i = 0; i < sizeof(advice) / sizeof(advice[0]); i++)
		if (advice[i].status == wc->status)
			what = advice[i].advice;
	if (work == WORK_SEND)
		return fail(_("the send on QP %u failed (%s): %s"), qp + 1,
			ibv_wc_status_str(wc->status), _(what));
	return fail(_("the receive on QP %u failed (%s): %s"), qp + 1,
		ibv_wc_status_str(wc->status), _(what));
}

int poll_completion(struct rdma *r, struct exchange *x, struct completion *c)
{
	uint64_t start = now_ms(), watched = start, now;
	struct ibv_wc wc;
	int n;

	/* Polling never sleeps: on a NIC this is how latencies of a microsecond come about. /
	 * 轮询从不睡眠：网卡上微秒级的延迟由此而来。 */
	while ((n = ibv_poll_cq(r->cq, 1, &wc)) == 0) {
		now = now_ms();
		if (now - start >= WAIT_MS)
			return fail(_("nothing was completed for %d s: check that the GIDs of both "
				      "sides reach each other, that UDP port 4791 is "
				      "not blocked, and use a smaller -s if the network is too "
				      "slow for the message"),
				WAIT_MS / 1000);
		if (now - watched < WATCH_EVERY_MS)
			continue;
		watched = now;
		if (exchange_watch(x))
			return -1;
	}
	if (n < 0)
		return fail(_("the completion queue cannot be read: the device is at fault, start "
			      "both again"));
	if (r->verbose)
		printf("wc->status = %d (%s)\n", wc.status, ibv_wc_status_str(wc.status));
	c->work = (enum work)(wc.wr_id >> 32);
	c->qp = (unsigned)wc.wr_id;
	c->bytes = wc.byte_len;
	return wc.status == IBV_WC_SUCCESS ? 0 : work_failed(&wc, c->qp, c->work);
}

/* ---- the end / 结束 ---- */

void close_rdma_resources(struct rdma *r)
{
	/* In reverse order: nothing may be closed while something still uses it. / 逆序关闭：
	 * 仍被使用的对象不能先关。 */
	for (unsigned i = 0; i < r->qps; i++)
		ibv_destroy_qp(r->qp[i]);
	if (r->cq)
		ibv_destroy_cq(r->cq);
	if (r->receive_mr)
		ibv_dereg_mr(r->receive_mr);
	if (r->send_mr)
		ibv_dereg_mr(r->send_mr);
	free(r->expected);
	free(r->receive_buffer);
	free(r->send_buffer);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->context)
		ibv_close_device(r->context);
	*r = (struct rdma){0};
}
