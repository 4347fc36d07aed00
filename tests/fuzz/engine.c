/* SPDX-License-Identifier: BSD-3-Clause */
/* engine.c - one QP driven by the input of a fuzz target: packets of whatever kind, posts, time,
 * state changes.
 *
 * Checked all along: registered memory is exactly as large as it is said to be (ASan sees the
 * rest); memory without remote write access keeps its bytes; batches are within their bounds and
 * readable; each request completes once, in order; each receive at most once, in order; and in ERR
 * nothing is left uncompleted.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>

enum { REGION_LEN = 9000, REGIONS = 4, STEPS_MAX = 4000, TX_CALLS_MAX = 64, SGES_MAX = 3 };

struct region {
	uint8_t *bytes;
	bool gone;
}; /* gone: unmapped under the registration */

static struct fuzz_run {
	struct fuzz_input in;
	struct rpwi_qp qp;
	struct rpwi_rq rq;
	struct rpwi_cc cc;
	struct rpwi_av av, other_av;
	struct rpwi_txb txb;
	struct region region[REGIONS];
	uint64_t now_ns, sends_posted, sends_done, recvs_posted, recvs_done;
	enum fuzz_side side;
} run;

static uint8_t scratch[RPWI_TXB_SCRATCH];

static uint32_t u32(struct fuzz_input *in)
{
	uint32_t hi = fuzz_u16(in);
	return hi << 16 | fuzz_u16(in);
}

/* ---- Memory: region i has lkey 0x100 + i, rkey 0x200 + i and begins at address (i + 1) << 32.
 * ---- */

static const int region_access[REGIONS] = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
						   IBV_ACCESS_REMOTE_READ |
						   IBV_ACCESS_REMOTE_ATOMIC,
	IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, 0};

static uint64_t region_base(unsigned i) { return (uint64_t)(i + 1) << 32; }

/* What region i holds at first. */
static const uint8_t *initial(unsigned i)
{
	static uint8_t bytes[REGIONS][REGION_LEN];
	static bool made;
	for (unsigned r = 0; !made && r < REGIONS; r++)
		for (unsigned k = 0; k < REGION_LEN; k++)
			bytes[r][k] = (uint8_t)(k * 5 + r + (k >> 8));
	made = true;
	return bytes[i];
}

static struct region *find(
	uint32_t key, uint64_t addr, uint64_t len, int access, bool remote, uint64_t *off)
{
	unsigned i = key - (remote ? 0x200u : 0x100u);
	if (i >= REGIONS || addr < region_base(i) || len > REGION_LEN ||
		addr - region_base(i) > REGION_LEN - len || (region_access[i] & access) != access)
		return NULL;
	*off = addr - region_base(i);
	return &run.region[i];
}

static int mem_check(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, uint64_t len, int access, bool remote)
{
	uint64_t off;
	return (remote && !len) || find(key, addr, len, access, remote, &off) ? 0 : -EACCES;
}

static int mem_write(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, const void *src, uint32_t len, bool remote)
{
	uint64_t off;
	struct region *r = find(key, addr, len,
		remote ? IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE, remote, &off);
	if (!r || r->gone)
		return !len ? 0 : r ? -EFAULT : -EACCES;
	if (remote && qp->state != IBV_QPS_RTR && qp->state != IBV_QPS_RTS &&
		qp->state != IBV_QPS_SQD && qp->state != IBV_QPS_SQE)
		fuzz_broken("a remote write in a state that receives nothing");
	memcpy(r->bytes + off, src, len);
	return 0;
}

static int mem_receive(
	struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, const void *src, uint32_t len)
{
	return mem_write(qp, lkey, addr, src, len, false);
}

static int mem_read(
	struct rpwi_qp *qp, uint32_t key, uint64_t addr, void *dst, uint32_t len, bool remote)
{
	uint64_t off;
	struct region *r = find(key, addr, len, remote ? IBV_ACCESS_REMOTE_READ : 0, remote, &off);
	if (!r || r->gone)
		return !len ? 0 : r ? -EFAULT : -EACCES;
	memcpy(dst, r->bytes + off, len);
	return 0;
}

static const void *mem_map(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len)
{
	uint64_t off;
	struct region *r = find(lkey, addr, len, 0, false, &off);
	return r && !r->gone ? r->bytes + off : NULL;
}

static int mem_atomic(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, bool cmp_swap,
	uint64_t compare, uint64_t swap_add, uint64_t *orig)
{
	uint64_t off;
	struct region *r = find(rkey, addr, 8, IBV_ACCESS_REMOTE_ATOMIC, true, &off);
	if (!r || r->gone)
		return r ? -EFAULT : -EACCES;
	if (addr % 8)
		fuzz_broken("an atomic that is not aligned");
	memcpy(orig, r->bytes + off, 8);
	uint64_t v = !cmp_swap ? *orig + swap_add : *orig == compare ? swap_add : *orig;
	memcpy(r->bytes + off, &v, 8);
	return 0;
}

static int mem_atomic_write(struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, const void *value)
{
	uint64_t off;
	struct region *r = find(rkey, addr, 8, IBV_ACCESS_REMOTE_WRITE, true, &off);
	if (!r || r->gone)
		return r ? -EFAULT : -EACCES;
	if (addr % 8)
		fuzz_broken("an ATOMIC WRITE that is not aligned");
	memcpy(r->bytes + off, value, 8);
	return 0;
}

static int invalidate(struct rpwi_qp *qp, uint32_t key, bool remote)
{
	return key % 3 ? 0 : -EINVAL;
}
static int bind_mw(struct rpwi_qp *qp, const struct rpwi_bind *b)
{
	return b->new_key % 2 ? 0 : -EINVAL;
}

/* Completions in the order of posting, each once. */
static void complete(struct rpwi_qp *qp, bool recv, const struct ibv_wc *wc, bool solicited)
{
	uint64_t *done = recv ? &run.recvs_done : &run.sends_done,
		 posted = recv ? run.recvs_posted : run.sends_posted;
	if (wc->qp_num != qp->qpn)
		fuzz_broken("a completion of another QP");
	if (*done >= posted || wc->wr_id != *done)
		fuzz_broken(recv ? "a receive completes out of order or twice"
				 : "a request completes out of order or twice");
	if (recv && wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV &&
		qp->type != IBV_QPT_UD && wc->byte_len > SGES_MAX * REGION_LEN)
		fuzz_broken("more received than there was room for");
	++*done;
}

static void event(struct rpwi_qp *qp, enum ibv_event_type type) {}

/* All READs go by packets. */
static void *no_sink(struct rpwi_qp *qp, uint32_t lkey, uint64_t addr, uint32_t len, bool remote)
{
	return NULL;
}

static const uint8_t *no_peer_read(
	struct rpwi_qp *qp, uint32_t rkey, uint64_t addr, uint32_t len, void *into)
{
	return NULL;
}

static const struct rpwi_qp_ops ops = {
	.mem_sink = no_sink,
	.peer_read = no_peer_read,
	.mem_check = mem_check,
	.mem_write = mem_write,
	.mem_receive = mem_receive,
	.mem_read = mem_read,
	.mem_map = mem_map,
	.mem_atomic = mem_atomic,
	.mem_atomic_write = mem_atomic_write,
	.invalidate = invalidate,
	.bind_mw = bind_mw,
	.complete = complete,
	.event = event,
};

/* ---- What goes out ---- */

static void check_batch(const struct rpwi_txb *b)
{
	static uint8_t sink[RPWI_MTU_MAX];
	if (b->npkt > b->pkt_max || b->niov > RPWI_TXB_IOVS || b->scratch_used > RPWI_TXB_SCRATCH ||
		(b->npkt && !b->av))
		fuzz_broken("a batch out of bounds");
	for (unsigned i = 0; i < b->npkt; i++) {
		const struct rpwi_txpkt *t = &b->pkt[i];
		size_t sum = 0;
		if (t->hdr_len < RPWI_BTH_LEN || t->hdr_len > RPWI_HDR_MAX || t->pad > 3 ||
			(unsigned)t->iov_first + t->iov_count > b->niov)
			fuzz_broken("a packet out of bounds");
		for (unsigned k = t->iov_first; k < (unsigned)t->iov_first + t->iov_count;
			sum += b->iov[k].len, k++)
			memcpy(sink, b->iov[k].base, RPWI_MIN(b->iov[k].len, sizeof(sink)));
		if (sum != t->payload_len || sum > RPWI_MTU_MAX || (sum + t->pad) % 4)
			fuzz_broken("a packet whose parts do not add up");
	}
}

static void transmit(void)
{
	unsigned how = fuzz_u8(&run.in);
	bool hold = how & 1;
	for (int n = 0; n < TX_CALLS_MAX && rpwi_qp_tx_ready(&run.qp, hold, run.now_ns); n++) {
		rpwi_txb_reset(&run.txb);
		run.txb.by_datagrams = how & 2;
		run.txb.may_split = how & 4;
		rpwi_qp_tx(&run.qp, &run.txb, hold, run.now_ns);
		check_batch(&run.txb);
		if (run.txb.npkt && fuzz_u8(&run.in) == 0xee)
			rpwi_qp_tx_fault(&run.qp, &run.txb, 0, run.now_ns);
		else
			rpwi_qp_tx_done(&run.qp);
	}
}

/* ---- What comes in ---- */

static void receive(const uint8_t *bytes, size_t len, const struct rpwi_flow *flow)
{
	struct rpwi_pkt p;
	struct rpwi_rxmeta meta = {.flow = flow, .ttl = 64, .tos = 2};
	uint8_t *copy = malloc(len); /* so that a read behind the packet is seen */
	memcpy(copy, bytes, len);
	if (!rpwi_pkt_decode(copy, len, &p) && p.dqpn == run.qp.qpn)
		rpwi_qp_rx(&run.qp, &p, &meta, run.now_ns);
	free(copy);
}

static struct rpwi_flow flow_from(const struct rpwi_av *av)
{
	return (struct rpwi_flow){
		.src = av->flow.dst, .dst = av->flow.src, .sport = 0xd000, .dport = RPWI_UDP_PORT};
}

static uint32_t pick_rkey(uint8_t choice)
{
	return choice < 0xf0   ? 0x200u + choice % REGIONS
	       : choice < 0xf8 ? 0x100u + choice % REGIONS
			       : choice;
}

static uint8_t pick_opcode(struct fuzz_input *in)
{
	uint8_t b = fuzz_u8(in), svc = run.qp.type == IBV_QPT_UD   ? RPWI_SVC_UD
				       : run.qp.type == IBV_QPT_UC ? RPWI_SVC_UC
								   : RPWI_SVC_RC;
	if (b >= 0xe0) /* of another service */
		svc = (uint8_t)(b << 3 & RPWI_SVC_MASK);
	if (run.side == FUZZ_REQUESTER && b < 0xc0) {
		static const uint8_t responses[] = {RPWI_OP_ACK, RPWI_OP_READ_RESP_FIRST,
			RPWI_OP_READ_RESP_MIDDLE, RPWI_OP_READ_RESP_LAST, RPWI_OP_READ_RESP_ONLY,
			RPWI_OP_ATOMIC_ACK};
		return (uint8_t)(svc | responses[b % sizeof(responses)]);
	}
	return (uint8_t)(svc | b % RPWI_OP_COUNT);
}

static uint32_t pick_len(struct fuzz_input *in)
{
	uint8_t b = fuzz_u8(in);
	if (b < 0x80)
		return run.qp.mtu;
	return b < 0xc0 ? b - 0x80u : b < 0xf0 ? fuzz_u16(in) % (RPWI_MTU_MAX + 1) : 0;
}

/* A packet made of fields near to what the QP expects. */
static void structured_packet(const struct rpwi_flow *flow)
{
	struct fuzz_input *in = &run.in;
	static uint8_t buf[RPWI_PACKET_MAX];
	struct rpwi_pkt p = {
		.opcode = pick_opcode(in), .pkey = RPWI_PKEY_DEFAULT, .dqpn = run.qp.qpn};
	uint8_t flags = fuzz_u8(in), what = fuzz_u8(in);
	uint32_t base = run.side == FUZZ_RESPONDER ? run.qp.epsn
			: flags & 1                ? run.qp.una
						   : run.qp.nxt;
	if (!strcmp(rpwi_opcode_name(p.opcode), "?"))
		return;
	p.psn = (base + (uint32_t)(int8_t)fuzz_u8(in)) & RPWI_PSN_MASK;
	p.ackreq = flags & 2;
	p.solicited = flags & 4;
	p.payload_len = rpwi_op_has(rpwi_pkt_op(&p), RPWI_F_PAYLOAD) ? pick_len(in) : 0;
	p.pad = (uint8_t)(-p.payload_len & 3);
	p.rkey = pick_rkey(what);
	p.va = region_base(p.rkey % REGIONS) + (flags & 8 ? fuzz_u16(in) : 0) +
	       (flags & 16 ? ~0ull - 4000 : 0);
	p.dma_len = flags & 32 ? fuzz_u16(in) : flags & 64 ? u32(in) : p.payload_len;
	p.inv_rkey = what;
	p.syndrome = flags & 128 ? fuzz_u8(in) : 0x1f;
	p.msn = what;
	p.qkey = flags & 1 ? 0x1234 : what;
	p.sqpn = 0x77;
	p.swap_add = 0x0101010101010101ull * what;
	p.compare = what & 1 ? 0 : p.swap_add;
	p.imm_be = what;
	size_t h = rpwi_pkt_encode(&p, buf);
	for (uint32_t i = 0; i < p.payload_len; i++)
		buf[h + i] = (uint8_t)(what + i * 3 + (i >> 8));
	memset(buf + h + p.payload_len, 0, p.pad + RPWI_ICRC_LEN);
	receive(buf, h + p.payload_len + p.pad + RPWI_ICRC_LEN, flow);
}

/* The input's own bytes, but for the QPN. */
static void raw_packet(const struct rpwi_flow *flow)
{
	uint8_t buf[256];
	size_t n = RPWI_BTH_LEN + (size_t)(fuzz_u8(&run.in) & 0xfc) % 200 + RPWI_ICRC_LEN;
	for (size_t i = 0; i < n; i++)
		buf[i] = fuzz_u8(&run.in);
	rpwi_put_be24(buf + 5, run.qp.qpn);
	receive(buf, n, flow);
}

/* ---- Posting ---- */

static unsigned make_sges(struct ibv_sge *sge)
{
	struct fuzz_input *in = &run.in;
	uint8_t b = fuzz_u8(in);
	unsigned n = b % (SGES_MAX + 1);
	for (unsigned i = 0; i < n; i++) {
		unsigned r = b >> 6 == 3 ? b % REGIONS : 2;
		uint32_t len = fuzz_u16(in) % (REGION_LEN + 50);
		sge[i] = (struct ibv_sge){
			.addr = region_base(r) + (len < REGION_LEN ? (REGION_LEN - len) % 256 : 0),
			.length = len,
			.lkey = 0x100u + r};
	}
	return n;
}

static void post_recv(void)
{
	struct ibv_sge sge[SGES_MAX];
	struct ibv_recv_wr wr = {.wr_id = run.recvs_posted, .sg_list = sge};
	wr.num_sge = (int)make_sges(sge);
	if (run.qp.state == IBV_QPS_RESET || rpwi_rq_post(&run.rq, &wr))
		return;
	run.recvs_posted++;
	rpwi_qp_recv_posted(&run.qp);
}

static void post_send(void)
{
	struct fuzz_input *in = &run.in;
	struct ibv_sge sge[SGES_MAX];
	uint8_t b = fuzz_u8(in), what = fuzz_u8(in);
	static uint8_t inline_data[64];
	struct ibv_send_wr wr = {.wr_id = run.sends_posted,
		.sg_list = sge,
		.opcode = (enum ibv_wr_opcode)(b % 16),
		.send_flags = what & (IBV_SEND_FENCE | IBV_SEND_SOLICITED)};
	wr.num_sge = (int)make_sges(sge);
	if (what & 1) {
		wr.send_flags |= IBV_SEND_INLINE;
		wr.num_sge = 1;
		sge[0] = (struct ibv_sge){.addr = (uintptr_t)inline_data, .length = what % 65u};
	}
	wr.imm_data = what;
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = region_base(0) + (what & 0xf8);
		wr.wr.atomic.rkey = 0x200;
	} else if (run.qp.type == IBV_QPT_UD) {
		wr.wr.ud.remote_qpn = 0x77;
		wr.wr.ud.remote_qkey = 0x1234;
	} else {
		wr.wr.rdma.remote_addr = region_base(0) + what;
		wr.wr.rdma.rkey = 0x200;
	}
	uint64_t before = run.sends_posted++; /* in ERR it completes within the call */
	if (rpwi_qp_post_send(&run.qp, &wr,
		    run.qp.type == IBV_QPT_UD ? what & 2 ? &run.other_av : &run.av : NULL)) {
		if (run.sends_done > before)
			fuzz_broken("refused, but complete");
		run.sends_posted = before;
	}
}

/* ---- States ---- */

static int modify(enum ibv_qp_state to)
{
	struct ibv_qp_attr a = {.qp_state = to,
		.port_num = 1,
		.qkey = 0x1234,
		.dest_qp_num = 0x77,
		.timeout = 8,
		.retry_cnt = 3,
		.rnr_retry = 2,
		.max_rd_atomic = 4,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.rq_psn = 0xfffff0,
		.sq_psn = 0xffffe0,
		.path_mtu = run.qp.attr.path_mtu ? run.qp.attr.path_mtu : IBV_MTU_1024,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.ah_attr = {.is_global = 1, .port_num = 1}};
	bool rc = run.qp.type == IBV_QPT_RC, ud = run.qp.type == IBV_QPT_UD;
	int mask = IBV_QP_STATE;
	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (to == IBV_QPS_RTR && !ud)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	if (to == IBV_QPS_RTS && run.qp.state == IBV_QPS_RTR)
		mask |= IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
								IBV_QP_MAX_QP_RD_ATOMIC
					    : 0);
	return rpwi_qp_modify(&run.qp, &a, mask, mask & IBV_QP_AV ? &run.av : NULL, run.now_ns);
}

static void forget_posted(void)
{
	run.sends_done = run.sends_posted; /* RESET drops without completions */
	run.recvs_done = run.recvs_posted;
}

static void change_state(void)
{
	static const enum ibv_qp_state to[] = {
		IBV_QPS_ERR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR};
	uint8_t b = fuzz_u8(&run.in);
	enum ibv_qp_state want = to[b % RPWI_ARRAY_LEN(to)];
	if (!modify(want) && want == IBV_QPS_RESET) {
		forget_posted();
		if (b & 0x80 && !modify(IBV_QPS_INIT) && !modify(IBV_QPS_RTR))
			modify(IBV_QPS_RTS);
	}
}

static void advance_time(void)
{
	uint8_t b = fuzz_u8(&run.in);
	run.now_ns += b < 0x80 ? (uint64_t)b << 8 : (uint64_t)b << 16;
	if (rpwi_qp_deadline(&run.qp) <= run.now_ns)
		rpwi_qp_timer(&run.qp, run.now_ns);
}

/* ---- One run ---- */

static void set_up(void)
{
	struct fuzz_input *in = &run.in;
	uint8_t type = fuzz_u8(in), mtu = fuzz_u8(in), depth = fuzz_u8(in);
	for (unsigned i = 0; i < REGIONS; i++) {
		run.region[i] = (struct region){.bytes = malloc(REGION_LEN)};
		memcpy(run.region[i].bytes, initial(i), REGION_LEN);
	}
	rpwi_cc_init(&run.cc, 16, 1u + depth);
	run.av.flow = (struct rpwi_flow){.src = {.family = 4, .bytes = {10, 0, 0, 1}},
		.dst = {.family = 4, .bytes = {10, 0, 0, 2}},
		.sport = 0xc001,
		.dport = RPWI_UDP_PORT};
	run.av.cc = &run.cc;
	run.other_av = run.av;
	run.other_av.flow.dst.bytes[3] = 3;
	struct rpwi_qp_init init = {.ops = &ops,
		.type = type < 0xc0   ? IBV_QPT_RC
			: type < 0xe0 ? IBV_QPT_UC
				      : IBV_QPT_UD,
		.qpn = 0x1234,
		.sq_sig_all = true,
		.rq = &run.rq};
	init.cap = (struct ibv_qp_cap){.max_send_wr = 1u + depth % 16,
		.max_recv_wr = 1u + depth / 16,
		.max_send_sge = SGES_MAX,
		.max_recv_sge = SGES_MAX,
		.max_inline_data = 64};
	if (rpwi_rq_init(&run.rq, init.cap.max_recv_wr, SGES_MAX, false) ||
		rpwi_qp_init(&run.qp, &init))
		fuzz_broken("set-up");
	run.qp.attr.path_mtu = (enum ibv_mtu)(IBV_MTU_256 + mtu % 5);
	if (modify(IBV_QPS_INIT) || modify(IBV_QPS_RTR) || (mtu < 0xe0 && modify(IBV_QPS_RTS)))
		fuzz_broken("a state change that has to be possible");
}

static void one_command(void)
{
	struct rpwi_flow from_peer = flow_from(&run.av), from_other = flow_from(&run.other_av);
	uint8_t c = fuzz_u8(&run.in);
	run.now_ns += 100;
	switch (c % 16) {
	case 8:
		raw_packet(&from_peer);
		break;
	case 9:
		post_recv();
		break;
	case 10:
	case 7:
		post_send();
		break;
	case 11:
		advance_time();
		break;
	case 12:
	case 6:
		transmit();
		break;
	case 13:
		change_state();
		break;
	case 14:
		structured_packet(&from_other);
		break;
	case 15:
		run.region[c >> 4 & 3].gone = c >> 6 & 1;
		break;
	default:
		structured_packet(&from_peer);
		break;
	}
}

static void check_at_end(void)
{
	if (run.qp.state != IBV_QPS_RESET && run.qp.state != IBV_QPS_INIT) {
		modify(IBV_QPS_ERR);
		/* answers that are still owed, batches that are not confirmed */
		for (int i = 0; i < 3; i++)
			transmit();
		if (run.sends_done != run.sends_posted || run.recvs_done != run.recvs_posted)
			fuzz_broken("something posted never completes");
	}
	modify(IBV_QPS_RESET);
	if (run.cc.inflight)
		fuzz_broken("packets in flight of a QP that is reset");
	for (unsigned i = 0; i < REGIONS; i++)
		if (!(region_access[i] & IBV_ACCESS_LOCAL_WRITE) &&
			memcmp(run.region[i].bytes, initial(i), REGION_LEN))
			fuzz_broken("memory that nobody may write was written");
}

void fuzz_engine_run(const uint8_t *data, size_t len, enum fuzz_side side)
{
	memset(&run, 0, sizeof(run));
	run.in = (struct fuzz_input){data, len};
	run.side = side;
	run.now_ns = 1000;
	run.txb.scratch = scratch;
	rpwi_txb_reset(&run.txb);
	set_up();
	for (int steps = 0; run.in.left && steps < STEPS_MAX; steps++)
		one_command();
	check_at_end();
	rpwi_qp_fini(&run.qp);
	rpwi_rq_fini(&run.rq);
	for (unsigned i = 0; i < REGIONS; i++)
		free(run.region[i].bytes);
}
