/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_fuzz.c - endpoints of tran_verbs in the hands of their peer, on a device of this file's
 * own: no packets, no threads. The input says what the device brings: frames, raw or with some
 * sense (credits, greetings, offers of RMA QPs that could be right), on queue pairs of frames and
 * on RMA QPs; completions, good or bad; handles that are true, changed in a place, or raw;
 * descriptions of memory likewise; and what the program does meanwhile. Checked all along: what is
 * posted lies in live registrations with the right for it; queues are not overrun; each operation
 * is told once, and its buffer not touched after (ASan); frames within bounds and readable; queue
 * pairs, registrations and receives within what the endpoints account for.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tran/verbs/verbs_priv.h"

enum {
	COMMANDS_MAX = 400,
	EPS_MAX = 4,
	OPS_MAX = 64,
	LOCAL_MAX = 20000,
	QPS_MAX = 2 * EPS_MAX + 8,
	MRS_MAX = 512,
	SENDS_MAX = 64,
	CQ_MAX = 1 << 14,
	REGION = 4096
};
enum { DEVICE_QPN_FIRST = 0x100, LINGERERS_MAX = 64 };

/* ---- the device ---- */

struct fake_send {
	uint64_t wr_id, addr;
	uint32_t len, lkey;
	bool signalled, reads;
};
struct fake_qp {
	struct ibv_qp ibv;
	bool live, broken;
	unsigned depth, head, tail;
	struct fake_send send[SENDS_MAX];
};
struct fake_mr {
	struct ibv_mr ibv;
	int access;
	bool live;
};
static struct fake {
	/* never used twice: a number that is known from before is nobody's */
	struct fake_qp qp[QPS_MAX * LINGERERS_MAX];
	struct fake_mr mr[MRS_MAX];
	unsigned qps, mrs, qps_live, mrs_live, srq_wr, received, posted;
	struct ibv_recv_wr recv[VERBS_SRQ_MAX];
	struct ibv_sge recv_sge[VERBS_SRQ_MAX];
	struct ibv_wc wc[CQ_MAX];
	unsigned wc_head, wc_tail, cqe;
	bool refuse; /* takes nothing, gives nothing */
} dev;
static struct ibv_device device = {.name = "fuzz0"};
static struct ibv_context context;
static struct ibv_comp_channel channel;
static struct ibv_pd pd;
static struct ibv_cq cq;
static struct ibv_srq srq;

/* ---- the run ---- */

struct end {
	struct tran_ep *ep;
	bool started, ready, failed;
	uint8_t handle[TRAN_HANDLE_MAX];
	size_t handle_len;
};
struct op {
	bool posted;
	struct end *end;
	uint8_t *local;
	uint64_t before;
};
static struct fuzz_run {
	struct fuzz_input in;
	struct tran *t;
	struct end end[EPS_MAX];
	struct op op[OPS_MAX];
	uint8_t *region;
	struct tran_mem *mem;
} run;

static uint32_t fuzz_u32(void) { return (uint32_t)fuzz_u16(&run.in) << 16 | fuzz_u16(&run.in); }

static void cq_add(const struct ibv_wc *wc)
{
	if (dev.wc_tail - dev.wc_head >= dev.cqe)
		fuzz_broken("the completion queue overran");
	dev.wc[dev.wc_tail++ % CQ_MAX] = *wc;
}

static void local_check(uint64_t addr, uint64_t len, uint32_t lkey, bool write)
{
	const struct fake_mr *m = lkey >> 8 < dev.mrs ? &dev.mr[lkey >> 8] : NULL;
	uint64_t at = m ? addr - (uintptr_t)m->ibv.addr : 0;
	if (!m || !m->live || m->ibv.lkey != lkey || at > m->ibv.length || len > m->ibv.length - at)
		fuzz_broken("a work request outside of what is registered");
	if (write && !(m->access & IBV_ACCESS_LOCAL_WRITE))
		fuzz_broken("a receive or a READ into what is registered for reading");
}

static void send_end(struct fake_qp *q, enum ibv_wc_status status)
{
	const struct fake_send *s = &q->send[q->head++ % SENDS_MAX];
	if (s->reads && s->len && status == IBV_WC_SUCCESS) {
		local_check(s->addr, s->len, s->lkey, true);
		memset((void *)(uintptr_t)s->addr, 0x5a, s->len);
	}
	if (s->signalled || status != IBV_WC_SUCCESS)
		cq_add(&(struct ibv_wc){.wr_id = s->wr_id,
			.status = status,
			.opcode = IBV_WC_SEND,
			.qp_num = q->ibv.qp_num});
}

static void qp_break(struct fake_qp *q)
{
	q->broken = true;
	q->ibv.state = IBV_QPS_ERR;
	while (q->head != q->tail)
		send_end(q, IBV_WC_WR_FLUSH_ERR);
}

static int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = RPWI_CONTAINER_OF(ibv, struct fake_qp, ibv);
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (!q->live || wr->num_sge > 1 || q->tail - q->head >= q->depth)
			fuzz_broken("posted on no queue pair, or beyond its depth");
		if (dev.refuse)
			return ENOMEM;
		struct fake_send s = {.wr_id = wr->wr_id,
			.signalled = wr->send_flags & IBV_SEND_SIGNALED,
			.reads = wr->opcode == IBV_WR_RDMA_READ ||
				 wr->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP};
		if (wr->num_sge) {
			s.addr = wr->sg_list->addr;
			s.len = wr->sg_list->length;
			s.lkey = wr->sg_list->lkey;
		}
		const volatile uint8_t *p = (const volatile uint8_t *)(uintptr_t)s.addr;
		for (uint32_t i = 0; i<s.len; i += s.len> 64 ? 61 : 1)
			(void)p[i]; /* it is there */
		if (s.len && !(wr->send_flags & IBV_SEND_INLINE))
			local_check(s.addr, s.len, s.lkey, s.reads);
		q->send[q->tail++ % SENDS_MAX] = s;
		if (q->broken)
			send_end(q, IBV_WC_WR_FLUSH_ERR);
	}
	return 0;
}

static int fake_post_srq_recv(struct ibv_srq *s, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		*bad = wr;
		if (dev.posted - dev.received >= dev.srq_wr)
			fuzz_broken("more receives than the queue has places");
		if (dev.refuse)
			return ENOMEM;
		local_check(wr->sg_list->addr, wr->sg_list->length, wr->sg_list->lkey, true);
		dev.recv[dev.posted % VERBS_SRQ_MAX] = *wr;
		dev.recv_sge[dev.posted++ % VERBS_SRQ_MAX] = *wr->sg_list;
	}
	return 0;
}

static int fake_poll_cq(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	int got = 0;
	while (got < n && dev.wc_head != dev.wc_tail)
		wc[got++] = dev.wc[dev.wc_head++ % CQ_MAX];
	return got;
}

static int fake_req_notify_cq(struct ibv_cq *c, int solicited_only) { return 0; }

static struct ibv_device **fake_list(int *n)
{
	static struct ibv_device *list[] = {&device, NULL};
	*n = 1;
	return list;
}
static void fake_list_free(struct ibv_device **list) {}
static const char *fake_name(struct ibv_device *d) { return d->name; }
static struct ibv_context *fake_open(struct ibv_device *d)
{
	if (!context.async_fd)
		context.async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (!channel.fd)
		channel.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	context.device = d;
	context.ops = (struct ibv_context_ops){.poll_cq = fake_poll_cq,
		.req_notify_cq = fake_req_notify_cq,
		.post_srq_recv = fake_post_srq_recv,
		.post_send = fake_post_send};
	return &context;
}
static int fake_close(struct ibv_context *c) { return 0; }
static int fake_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	*a = (struct ibv_device_attr){.max_qp_wr = SENDS_MAX,
		.max_srq = 4,
		.max_srq_wr = VERBS_SRQ_MAX,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.atomic_cap = IBV_ATOMIC_HCA,
		.phys_port_cnt = 1};
	return 0;
}
static int fake_query_port(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	*(struct ibv_port_attr *)(void *)attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
		.active_mtu = IBV_MTU_4096,
		.link_layer = IBV_LINK_LAYER_INFINIBAND,
		.gid_tbl_len = 1};
	return 0;
}
static int fake_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	*gid = (union ibv_gid){.raw = {0x20, 1, 13, 0xb8, [15] = 1}};
	return index ? -1 : 0;
}
static int fake_no_event(struct ibv_context *c, struct ibv_async_event *e) { return -1; }
static void fake_ack_event(struct ibv_async_event *e) {}
static struct ibv_pd *fake_alloc_pd(struct ibv_context *c)
{
	pd.context = c;
	return &pd;
}
static int fake_dealloc_pd(struct ibv_pd *p) { return 0; }

static struct ibv_mr *fake_reg_mr(struct ibv_pd *p, void *addr, size_t len, int access)
{
	if (dev.refuse || dev.mrs == MRS_MAX) {
		errno = ENOMEM;
		return NULL;
	}
	struct fake_mr *m = &dev.mr[dev.mrs];
	*m = (struct fake_mr){.live = true,
		.access = access,
		.ibv = {.context = &context,
			.pd = p,
			.addr = addr,
			.length = len,
			.lkey = dev.mrs << 8 | 7,
			.rkey = dev.mrs << 8 | 7}};
	dev.mrs++;
	dev.mrs_live++;
	return &m->ibv;
}
static int fake_dereg_mr(struct ibv_mr *ibv)
{
	struct fake_mr *m = RPWI_CONTAINER_OF(ibv, struct fake_mr, ibv);
	if (!m->live)
		fuzz_broken("a registration was given back twice");
	m->live = false;
	dev.mrs_live--;
	return 0;
}
static struct ibv_comp_channel *fake_channel(struct ibv_context *c) { return &channel; }
static int fake_channel_free(struct ibv_comp_channel *c) { return 0; }
static struct ibv_cq *fake_create_cq(
	struct ibv_context *c, int cqe, void *user, struct ibv_comp_channel *ch, int vector)
{
	cq.context = c;
	dev.cqe = (unsigned)cqe;
	return &cq;
}
static int fake_resize_cq(struct ibv_cq *c, int cqe)
{
	if (cqe > CQ_MAX)
		return ENOMEM;
	dev.cqe = (unsigned)cqe;
	return 0;
}
static int fake_destroy_cq(struct ibv_cq *c) { return 0; }
static int fake_get_cq_event(struct ibv_comp_channel *c, struct ibv_cq **which, void **user)
{
	return -1;
}
static void fake_ack_cq_events(struct ibv_cq *c, unsigned n) {}
static struct ibv_srq *fake_create_srq(struct ibv_pd *p, struct ibv_srq_init_attr *a)
{
	srq.context = &context;
	dev.srq_wr = a->attr.max_wr;
	return &srq;
}
static int fake_destroy_srq(struct ibv_srq *s) { return 0; }
static struct ibv_qp *fake_create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *a)
{
	if (dev.refuse || dev.qps == RPWI_ARRAY_LEN(dev.qp)) {
		errno = ENOMEM;
		return NULL;
	}
	struct fake_qp *q = &dev.qp[dev.qps];
	*q = (struct fake_qp){.live = true,
		.depth = a->cap.max_send_wr,
		.ibv = {.context = &context, .pd = p, .qp_num = DEVICE_QPN_FIRST + dev.qps}};
	dev.qps++;
	dev.qps_live++;
	return &q->ibv;
}
static int fake_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask)
{
	struct fake_qp *q = RPWI_CONTAINER_OF(ibv, struct fake_qp, ibv);
	if (!q->live)
		fuzz_broken("a queue pair that is gone changes its state");
	if (dev.refuse && a->qp_state != IBV_QPS_ERR)
		return EINVAL;
	if (a->qp_state == IBV_QPS_ERR)
		qp_break(q);
	else
		ibv->state = a->qp_state;
	return 0;
}
static int fake_destroy_qp(struct ibv_qp *ibv)
{
	struct fake_qp *q = RPWI_CONTAINER_OF(ibv, struct fake_qp, ibv);
	if (!q->live)
		fuzz_broken("a queue pair was destroyed twice");
	q->live = false;
	dev.qps_live--;
	unsigned to = dev.wc_head;
	for (unsigned i = dev.wc_head; i != dev.wc_tail; i++)
		if (dev.wc[i % CQ_MAX].qp_num != ibv->qp_num)
			dev.wc[to++ % CQ_MAX] = dev.wc[i % CQ_MAX];
	dev.wc_tail = to;
	return 0;
}
static const char *fake_status(enum ibv_wc_status s) { return "a status"; }

static const struct verbs_table table = {.source = "fuzz",
	.ibv_get_device_list = fake_list,
	.ibv_free_device_list = fake_list_free,
	.ibv_get_device_name = fake_name,
	.ibv_open_device = fake_open,
	.ibv_close_device = fake_close,
	.ibv_query_device = fake_query_device,
	.ibv_query_port = fake_query_port,
	.ibv_query_gid = fake_query_gid,
	.ibv_get_async_event = fake_no_event,
	.ibv_ack_async_event = fake_ack_event,
	.ibv_alloc_pd = fake_alloc_pd,
	.ibv_dealloc_pd = fake_dealloc_pd,
	.ibv_reg_mr = fake_reg_mr,
	.ibv_dereg_mr = fake_dereg_mr,
	.ibv_create_comp_channel = fake_channel,
	.ibv_destroy_comp_channel = fake_channel_free,
	.ibv_create_cq = fake_create_cq,
	.ibv_resize_cq = fake_resize_cq,
	.ibv_destroy_cq = fake_destroy_cq,
	.ibv_get_cq_event = fake_get_cq_event,
	.ibv_ack_cq_events = fake_ack_cq_events,
	.ibv_create_srq = fake_create_srq,
	.ibv_destroy_srq = fake_destroy_srq,
	.ibv_create_qp = fake_create_qp,
	.ibv_modify_qp = fake_modify_qp,
	.ibv_destroy_qp = fake_destroy_qp,
	.ibv_wc_status_str = fake_status};

/* In the place of verbs_table.c. */
const struct verbs_table *rpwi_verbs_table(enum verbs_source source, char *why, size_t why_len)
{
	return &table;
}
bool rpwi_verbs_listed(const char *names, const char *name) { return true; }
int rpwi_verbs_devices(const struct verbs_table *v, const char *names, int *software)
{
	*software = 0;
	return 1;
}

/* ---- up-calls ---- */

static void close_end(struct end *e);

static void on_ready(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	struct end *e = user;
	if (!e->started || e->ready || e->failed)
		fuzz_broken("ready twice, or before it was started");
	e->ready = status == 0;
	e->failed = status < 0;
}

static bool on_frame(
	void *user, const void *head, size_t head_len, const void *body, size_t body_len)
{
	struct end *e = user;
	if (!e->ready || e->failed || !e->ep)
		fuzz_broken("a frame after the end, or before the beginning");
	if (head_len > TRAN_HEAD_MAX || head_len + body_len > VERBS_SLOT_BYTES)
		fuzz_broken("a frame beyond its limits");
	fuzz_readable(head, head_len, 1);
	fuzz_readable(body, body_len, 61);
	uint8_t what = fuzz_u8(&run.in);
	if (what < 32 && body_len <= VERBS_FRAME_MAX)
		tran_verbs.send(e->ep, head, head_len, &(struct iovec){(void *)body, body_len}, 1,
			body_len);
	else if (what < 40 && &run.end[what % EPS_MAX] != e)
		close_end(&run.end[what % EPS_MAX]);
	return true;
}

static void on_room(void *user)
{
	if (!((struct end *)user)->ready || ((struct end *)user)->failed)
		fuzz_broken("room after the end");
}

static void on_done(void *user, void *cookie, const struct rpwi_error *err)
{
	struct op *op = cookie;
	if (!op->posted || op->end != user || op->end->failed)
		fuzz_broken("an operation was told twice, or after the end");
	op->posted = false;
	free(op->local);
	op->local = NULL;
}

static void on_failed(void *user, const struct rpwi_error *err)
{
	int status = err ? err->status : 0;
	const char *why = err ? err->text : "";
	struct end *e = user;
	if (!e->ready || e->failed || status >= 0 || !why[0])
		fuzz_broken("failed twice, or without a reason");
	e->failed = true;
}
static const struct tran_up up = {on_ready, on_frame, NULL, on_room, on_done, on_failed, NULL};

/* ---- the program ---- */

static struct verbs *verbs_now(void) { return verbs_of(run.t); }

static void close_end(struct end *e)
{
	if (!e->ep)
		return;
	tran_verbs.ep_close(e->ep);
	for (unsigned i = 0; i < OPS_MAX; i++)
		if (run.op[i].posted && run.op[i].end == e) {
			free(run.op[i].local); /* nobody may touch it from now on */
			run.op[i] = (struct op){0};
		}
	memset(e, 0, sizeof(*e));
}

static void make_end(struct end *e)
{
	struct tran_facts peer = {.transports = "verbs", .hostname = "there"};
	if (!e->ep && tran_verbs.ep_make(run.t,
			      &(struct tran_control){.peer = &peer, .active = fuzz_u8(&run.in) & 1},
			      e, &e->ep, e->handle, &e->handle_len))
		e->ep = NULL;
}

/* The peer's handle: one of ours, with a field or a bit changed. */
static void start_end(struct end *e)
{
	static uint8_t handle[TRAN_HANDLE_MAX + 64];
	struct verbs_offer o;
	uint8_t how = fuzz_u8(&run.in), which = fuzz_u8(&run.in), value = fuzz_u8(&run.in);
	size_t len = e->handle_len;
	if (!e->ep || e->started)
		return;
	memcpy(handle, e->handle, len);
	if (how >= 64 && !rpwi_verbs_offer_read(&o, handle, len)) {
		struct verbs_port *port = &o.port[0];
		uint8_t *field[] = {&port->dev, &port->port, &port->mtu, &port->rd_in,
			&port->gid[0].type, &port->gid[0].index, &port->gid[0].prefix,
			&port->gid[0].raw[15], (uint8_t *)&o.window, (uint8_t *)&port->qpn,
			(uint8_t *)&port->psn, (uint8_t *)&port->lid, (uint8_t *)port->name};
		*field[which % RPWI_ARRAY_LEN(field)] = value;
		if (how >= 250)
			o.port[o.ports++] = *port;
		len = rpwi_verbs_offer_write(&o, handle, sizeof(handle));
	}
	if (how >= 64 && how < 80)
		handle[(which | value << 8) % len] ^= (uint8_t)(1u << (how & 7));
	if (how >= 80 && how < 84)
		len = which % len;
	uint8_t *exact = malloc(len ? len : 1);
	memcpy(exact, handle, len);
	e->started = true;
	if (tran_verbs.ep_start(e->ep, exact, len, how & 1 ? 3600000 : 0))
		e->failed = true;
	free(exact);
}

static void post(struct end *e)
{
	uint8_t what = fuzz_u8(&run.in), where = fuzz_u8(&run.in);
	unsigned slot = 0;
	while (slot < OPS_MAX && run.op[slot].posted)
		slot++;
	if (!e->ep || !e->started || !run.mem || slot == OPS_MAX)
		return;
	struct op *op = &run.op[slot];
	struct tran_desc d = run.mem->desc;
	if (what & 0x08)
		d.bytes[where % (sizeof(d.bytes))] ^= what;
	/* With a check sum that is right: version and number of keys as they were, or not. */
	if ((what & 0x18) == 0x18 && d.len >= 28) {
		uint32_t sum = rpwi_verbs_check(d.bytes, 24) ^
			       rpwi_verbs_check(d.bytes + 28, d.len - 28u) * 3;
		rpwi_put_le32(d.bytes + 24, sum);
	}
	size_t len = what & 0x40 ? where * 70u : where;
	*op = (struct op){.posted = true, .end = e, .local = calloc(1, len + 1)};
	int rc;
	if (what % 8 == 0)
		rc = tran_verbs.rma->flush(e->ep, op);
	else if (what % 8 == 1)
		rc = tran_verbs.rma->atomic(e->ep, what & 0x80 ? TRAN_FETCH_ADD : TRAN_COMPARE_SWAP,
			&d, where, 1, 2, &op->before, op);
	else
		rc = tran_verbs.rma->transfer(
			e->ep, what & 0x80, &d, what & 0x20 ? 7 : 0, op->local, len, NULL, op);
	if (rc && op->posted) {
		free(op->local);
		*op = (struct op){0};
	}
}

static void mem_change(void)
{
	if (run.mem)
		tran_verbs.mem->del(run.t, run.mem);
	run.mem = NULL;
	if (fuzz_u8(&run.in) & 1 &&
		tran_verbs.mem->add(run.t, run.region, REGION, 1 + fuzz_u8(&run.in) % 7, &run.mem))
		run.mem = NULL;
}

static void say(struct end *e)
{
	static const uint8_t text[VERBS_FRAME_MAX];
	size_t head = fuzz_u8(&run.in), body = fuzz_u16(&run.in) % (sizeof(text) + 8);
	if (e->ep)
		tran_verbs.send(e->ep, text, head,
			&(struct iovec){(void *)text, RPWI_MIN(body, sizeof(text))}, 1,
			body > sizeof(text) ? VERBS_FRAME_MAX + 1 : body);
}

/* ---- the peer and its device ---- */

/* The queue pair of frames, or the RMA QP's; now and then one that nobody knows. */
static struct fake_qp *some_qp(const struct end *e)
{
	uint8_t what = fuzz_u8(&run.in);
	const struct verbs_ep *ep = e->ep ? verbs_ep_of(e->ep) : NULL;
	struct ibv_qp *qp = !ep || what >= 250 ? NULL
			    : what >= 200      ? (ep->rma_qp ? ep->rma_qp->sq.qp : NULL)
					       : ep->sq.qp;
	if (!qp)
		return dev.qps ? &dev.qp[what % dev.qps] : NULL;
	return RPWI_CONTAINER_OF(qp, struct fake_qp, ibv);
}

static void bring(struct fake_qp *q, const uint8_t *bytes, uint32_t len, enum ibv_wc_status status)
{
	if (!q || !q->live || q->broken || q->ibv.state < IBV_QPS_RTR || dev.received == dev.posted)
		return;
	unsigned i = dev.received++ % VERBS_SRQ_MAX;
	const struct ibv_sge *s = &dev.recv_sge[i];
	if (len > s->length)
		status = IBV_WC_LOC_LEN_ERR;
	local_check(s->addr, s->length, s->lkey, true);
	memcpy((void *)(uintptr_t)s->addr, bytes, RPWI_MIN(len, s->length));
	cq_add(&(struct ibv_wc){.wr_id = dev.recv[i].wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = len,
		.qp_num = q->ibv.qp_num});
	if (status != IBV_WC_SUCCESS)
		qp_break(q);
}

static void bring_sense(struct end *e)
{
	static uint8_t bytes[VERBS_SLOT_BYTES + 64];
	const struct verbs_ep *ep = e->ep ? verbs_ep_of(e->ep) : NULL;
	uint8_t type = fuzz_u8(&run.in), credit = fuzz_u8(&run.in);
	struct fake_qp *q = some_qp(e);
	if (!ep)
		return;
	uint32_t len = VERBS_HEADER_BYTES, head = 0;
	bytes[0] = (uint8_t)(VERBS_FRAME_HELLO + type % 6);
	rpwi_put_le32(bytes + 4, credit < 200   ? ep->peer_granted + credit % 32
				 : credit < 240 ? ep->sent + credit
						: fuzz_u32());
	if (bytes[0] == VERBS_FRAME_HELLO) {
		rpwi_put_le32(bytes + len, verbs_now()->nonce);
		rpwi_put_le32(bytes + len + 4, ep->peer_nonce);
		len += 8;
	} else if (bytes[0] == VERBS_FRAME_RMA_QP) {
		uint32_t own = ep->rma_qp ? ep->rma_qp->epoch : 0;
		uint8_t epoch = fuzz_u8(&run.in), connected = fuzz_u8(&run.in);
		rpwi_put_le32(bytes + len, epoch < 128   ? own
					   : epoch < 250 ? own + epoch % 20
							 : fuzz_u32());
		rpwi_put_le32(bytes + len + 4, DEVICE_QPN_FIRST + connected / 2);
		rpwi_put_le32(bytes + len + 8, connected < 250 ? connected : UINT32_MAX);
		rpwi_put_le32(bytes + len + 12, connected & 1);
		len += VERBS_RMA_QP_BYTES;
	} else if (bytes[0] == VERBS_FRAME_DATA) {
		head = fuzz_u8(&run.in);
		len += (type & 0x80 ? fuzz_u16(&run.in) % (VERBS_SLOT_BYTES - 300)
				    : fuzz_u8(&run.in)) +
		       head;
		if (head >= 240)
			head = fuzz_u16(&run.in);
	}
	bytes[2] = (uint8_t)head;
	bytes[3] = (uint8_t)(head >> 8);
	uint16_t change = fuzz_u16(&run.in);
	if (change >= 0xe000)
		bytes[(change >> 3) % RPWI_MIN(len, 32u)] ^= (uint8_t)(1u << (change & 7));
	else if (change >= 0xdf00)
		len = change % 40;
	else if (change >= 0xde00)
		len = VERBS_SLOT_BYTES + (change & 1);
	bring(q, bytes, len, IBV_WC_SUCCESS);
}

static void bring_raw(struct end *e)
{
	uint8_t raw[64], n = fuzz_u8(&run.in) % sizeof(raw);
	for (unsigned i = 0; i < n; i++)
		raw[i] = fuzz_u8(&run.in);
	bring(some_qp(e), raw, n, fuzz_u8(&run.in) < 250 ? IBV_WC_SUCCESS : IBV_WC_LOC_QP_OP_ERR);
}

static void complete(struct end *e)
{
	static const enum ibv_wc_status bad[] = {IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,
		IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_RETRY_EXC_ERR,
		IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_BAD_RESP_ERR,
		IBV_WC_GENERAL_ERR};
	struct fake_qp *q = some_qp(e);
	uint8_t n = fuzz_u8(&run.in);
	if (!q || !q->live || q->broken)
		return;
	for (unsigned i = 0; i < n % 17u && q->head != q->tail; i++)
		send_end(q, IBV_WC_SUCCESS);
	if (n >= 240) {
		if (q->head != q->tail)
			send_end(q, bad[n % RPWI_ARRAY_LEN(bad)]);
		qp_break(q);
	}
}

static void bounds_check(void)
{
	unsigned eps = 0, lingering = 0;
	for (unsigned i = 0; i < EPS_MAX; i++)
		eps += run.end[i].ep != NULL;
	for (const struct rpwi_list *l = verbs_now()->lingering.next; l != &verbs_now()->lingering;
		l = l->next)
		lingering++;
	if (dev.qps_live > 2 * (eps + lingering))
		fuzz_broken("more than two queue pairs an endpoint");
	unsigned chunks =
		(VERBS_TX_SLOTS_MAX + VERBS_RX_RESERVE + VERBS_RX_BUSY_MAX + LINGERERS_MAX * 8) /
		VERBS_CHUNK_SLOTS;
	if (dev.mrs_live > chunks + OPS_MAX + 1)
		fuzz_broken("registrations without bound");
}

static void command(void)
{
	uint8_t what = fuzz_u8(&run.in);
	struct end *e = &run.end[what >> 6];
	switch (what & 15) {
	case 0:
		bring_raw(e);
		break;
	case 1 ... 4:
		bring_sense(e);
		break;
	case 5:
	case 6:
		post(e);
		break;
	case 7:
	case 8:
		complete(e);
		break;
	case 9:
		say(e);
		break;
	case 10:
		make_end(e);
		start_end(e);
		break;
	case 11:
		if (what & 0x20)
			mem_change();
		else if (fuzz_u8(&run.in) < 48)
			close_end(e);
		break;
	case 12:
		if (what & 0x20)
			dev.refuse = fuzz_u8(&run.in) < 16;
		else {
			int fd;
			uint64_t deadline_ns = RPWI_NEVER;
			tran_verbs.arm(run.t, &fd, &deadline_ns);
		}
		break;
	default:
		tran_verbs.progress(run.t);
		bounds_check();
	}
}

static void begin(void)
{
	struct tran_facts own = {.transports = "verbs", .hostname = "here"};
	dev.qps = dev.mrs = dev.qps_live = dev.mrs_live = dev.received = dev.posted = dev.wc_head =
		dev.wc_tail = 0; /* their places are filled when they are taken */
	dev.refuse = false;
	run.region = malloc(REGION);
	memset(run.region, 0xa5, REGION);
	if (tran_verbs.open(&up, &own, &run.t))
		abort();
	if (tran_verbs.mem->add(
		    run.t, run.region, REGION, TRAN_READ | TRAN_WRITE | TRAN_ATOMIC, &run.mem))
		abort();
	make_end(&run.end[0]);
	start_end(&run.end[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	begin();
	for (unsigned i = 0; run.in.left && i < COMMANDS_MAX; i++)
		command();
	tran_verbs.progress(run.t);
	for (unsigned i = 0; i < EPS_MAX; i++)
		close_end(&run.end[i]);
	tran_verbs.progress(run.t);
	if (run.mem)
		tran_verbs.mem->del(run.t, run.mem);
	tran_verbs.close(run.t);
	free(run.region);
	if (dev.qps_live || dev.mrs_live)
		fuzz_broken("queue pairs or registrations were not given back");
	return 0;
}
