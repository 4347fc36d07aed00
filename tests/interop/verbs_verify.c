/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_verify.c - moves bytes between two processes by every RC operation and compares each one.
 * Pure verbs: the same binary runs on kernel rxe, on a NIC and, preloaded, on the software device.
 *
 *   verbs_verify -d DEVICE -g GID_INDEX -p TCP_PORT [-n ROUNDS] [SERVER_ADDRESS]
 *
 * Every message carries a pattern of its own (a hash of step, size and position), so a byte that
 * stayed from an earlier message, or that landed elsewhere, is seen; the bytes before and behind
 * each target are checked too. Exit status 0 only if all of it was right on this side.
 */
#include <endian.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/pattern.h"

enum {
	SIZE_MAX_BYTES = 256 * 1024,
	GUARD_BYTES = 4096,
	BURST = 16,
	BURST_BYTES = 5000,
	WAIT_S = 40
};
enum op {
	OP_SEND,
	OP_SEND_IMM,
	OP_WRITE,
	OP_WRITE_IMM,
	OP_READ,
	OP_CAS,
	OP_FADD,
	OP_SEND_BURST,
	OP_WRITE_BURST,
	OP_READ_BURST,
	OP_ATOMIC_WRITE,
	OP_COUNT
};
static const char *const op_name[OP_COUNT] = {
	"SEND",
	"SEND_IMM",
	"WRITE",
	"WRITE_IMM",
	"READ",
	"CAS",
	"FETCH_ADD",
	"SEND burst",
	"WRITE burst",
	"READ burst",
	"ATOMIC WRITE",
};
static const uint32_t sizes[] = {0, 1, 3, 64, 1023, 1024, 1025, 4096, 4097, 65537, SIZE_MAX_BYTES};

/* What each side tells the other, in network order. */
struct hello {
	uint32_t qpn, psn, rkey_in, rkey_out;
	uint64_t addr_in, addr_out;
	uint8_t gid[16];
	uint32_t atomic_writes; /* is ATOMIC WRITE there? */
};

struct side {
	int tcp;
	bool client;
	int gid_index;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	bool atomic_writes; /* on this side, then on both */
	struct ibv_mr *mr_in, *mr_out;
	uint8_t *mem_in, *mem_out; /* with guards around */
	uint8_t *in, *out;
	struct hello peer;
	uint64_t checked_bytes;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	vfprintf(stdout, fmt, ap);
	va_end(ap);
	fputc('\n', stdout);
	fflush(stdout);
	exit(1);
}

static void pattern_check(
	struct side *s, const uint8_t *p, size_t n, uint64_t seed, const char *what)
{
	size_t at = pattern_wrong(p, n, seed);
	if (at < n)
		die("%s of %zu bytes: mismatch at byte %zu, which is %02x", what, n, at, p[at]);
	s->checked_bytes += n;
}

enum { SEED_GUARD = 0x6a, SEED_STALE = 0x57 };

/* Before a step: the whole target gets a pattern that no message has. */
static void target_reset(struct side *s)
{
	pattern_fill(s->mem_in, SIZE_MAX_BYTES + 2 * GUARD_BYTES, SEED_STALE);
}

static void target_check_outside(struct side *s, size_t n, const char *what)
{
	size_t total = SIZE_MAX_BYTES + 2 * GUARD_BYTES;
	size_t before = pattern_wrong(s->mem_in, GUARD_BYTES, SEED_STALE);
	size_t behind = GUARD_BYTES + n +
			pattern_wrong_from(s->mem_in + GUARD_BYTES + n, total - GUARD_BYTES - n,
				SEED_STALE, GUARD_BYTES + n);
	if (before < GUARD_BYTES || behind < total)
		die("%s of %zu bytes: mismatch outside the target, at offset %zd", what, n,
			(ssize_t)(before < GUARD_BYTES ? before : behind) - GUARD_BYTES);
}

static void tcp_move(int fd, void *p, size_t n, bool out)
{
	for (size_t done = 0; done < n;) {
		ssize_t r = out ? write(fd, (char *)p + done, n - done)
				: read(fd, (char *)p + done, n - done);
		if (r <= 0)
			die("the other side left");
		done += (size_t)r;
	}
}

/* Both sides are at the same step, and everything before it is done. */
static void meet(struct side *s, uint64_t step)
{
	uint64_t mine = htobe64(step), theirs;
	tcp_move(s->tcp, &mine, sizeof(mine), true);
	tcp_move(s->tcp, &theirs, sizeof(theirs), false);
	if (mine != theirs)
		die("the sides are at different steps: mismatch");
}

static int tcp_open(const char *server, const char *port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				.ai_family = AF_INET,
				.ai_flags = server ? 0 : AI_PASSIVE},
			*a;
	if (getaddrinfo(server, port, &hints, &a))
		die("no such address: %s", server);
	int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol), one = 1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (server) {
		if (connect(fd, a->ai_addr, a->ai_addrlen))
			die("connect to %s: %m", server);
	} else {
		int l = fd;
		if (bind(l, a->ai_addr, a->ai_addrlen) || listen(l, 1) ||
			(fd = accept(l, NULL, NULL)) < 0)
			die("listen on port %s: %m", port);
		close(l);
	}
	freeaddrinfo(a);
	return fd;
}

static struct ibv_mr *memory(struct side *s, uint8_t **mem, uint8_t **p)
{
	*mem = aligned_alloc(4096, SIZE_MAX_BYTES + 2 * GUARD_BYTES);
	if (!*mem)
		die("no memory");
	pattern_fill(*mem, SIZE_MAX_BYTES + 2 * GUARD_BYTES, SEED_GUARD);
	*p = *mem + GUARD_BYTES;
	struct ibv_mr *mr = ibv_reg_mr(s->pd, *p, SIZE_MAX_BYTES,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC);
	if (!mr)
		die("ibv_reg_mr: %m");
	return mr;
}

#ifdef HAVE_ATOMIC_WRITE
/* rxe's library makes the QP without asking its kernel, which knows ATOMIC WRITE from 6.2 on. */
static bool device_writes_atomically(struct ibv_context *ctx)
{
	struct ibv_device_attr_ex attr;
	return !ibv_query_device_ex(ctx, NULL, &attr) &&
	       (attr.device_cap_flags_ex & 1ull << 40); /* IB_UVERBS_DEVICE_ATOMIC_WRITE */
}
#endif

/* The QP, with ATOMIC WRITE where the headers (rdma-core 45) and the device have it. */
static void create_qp(struct side *s, struct ibv_qp_init_attr *init)
{
#ifdef HAVE_ATOMIC_WRITE
	struct ibv_qp_init_attr_ex ex = {.send_cq = init->send_cq,
		.recv_cq = init->recv_cq,
		.cap = init->cap,
		.qp_type = init->qp_type,
		.pd = s->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE};
	if (device_writes_atomically(s->ctx))
		s->qp = ibv_create_qp_ex(s->ctx, &ex);
	s->atomic_writes = s->qp;
#endif
	if (!s->qp)
		s->qp = ibv_create_qp(s->pd, init);
	if (!s->qp)
		die("ibv_create_qp: %m");
}

static void open_device(struct side *s, const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	for (int i = 0; i < n && !s->ctx; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			s->ctx = ibv_open_device(list[i]);
	if (!s->ctx)
		die("cannot open device %s", name ? name : "(any)");
	ibv_free_device_list(list);
	s->pd = ibv_alloc_pd(s->ctx);
	s->cq = ibv_create_cq(s->ctx, 2 * BURST + 2, NULL, NULL, 0);
	if (!s->pd || !s->cq)
		die("no PD or CQ: %m");
	s->mr_in = memory(s, &s->mem_in, &s->in);
	s->mr_out = memory(s, &s->mem_out, &s->out);
	struct ibv_qp_init_attr init = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = BURST,
			.max_recv_wr = BURST,
			.max_send_sge = 2,
			.max_recv_sge = 2},
	};
	create_qp(s, &init);
}

static void modify(struct side *s, struct ibv_qp_attr *attr, int mask, const char *what)
{
	int rc = ibv_modify_qp(s->qp, attr, mask);
	if (rc)
		die("to %s: %s", what, strerror(rc));
}

static void connect_qp(struct side *s)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	if (ibv_query_port(s->ctx, 1, &port) || ibv_query_gid(s->ctx, 1, s->gid_index, &gid))
		die("query of the port or GID %d: %m", s->gid_index);
	uint32_t psn =
		(uint32_t)rng_mix((uint64_t)getpid() << 32 ^ (uint64_t)time(NULL)) & 0xffffff;
	struct hello mine = {htobe32(s->qp->qp_num), htobe32(psn), htobe32(s->mr_in->rkey),
		htobe32(s->mr_out->rkey), htobe64((uintptr_t)s->in), htobe64((uintptr_t)s->out),
		{0}, s->atomic_writes};
	memcpy(mine.gid, gid.raw, 16);
	tcp_move(s->tcp, &mine, sizeof(mine), true);
	tcp_move(s->tcp, &s->peer, sizeof(s->peer), false);
	s->atomic_writes = s->atomic_writes && s->peer.atomic_writes;
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC};
	modify(s, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		"INIT");
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = be32toh(s->peer.qpn),
		.rq_psn = be32toh(s->peer.psn),
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.hop_limit = 64, .sgid_index = (uint8_t)s->gid_index}}};
	memcpy(rtr.ah_attr.grh.dgid.raw, s->peer.gid, 16);
	modify(s, &rtr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		"RTR");
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = psn,
		.max_rd_atomic = 4};
	modify(s, &rts,
		IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		"RTS");
}

static struct ibv_wc wait_wc(struct side *s, const char *what)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + WAIT_S;
	int n;
	while ((n = ibv_poll_cq(s->cq, 1, &wc)) == 0)
		if (time(NULL) > end)
			die("%s: no completion within %d s", what, WAIT_S);
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		die("%s: %s", what, n < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(wc.status));
	return wc;
}

static void post_recv(struct side *s, uint64_t id, size_t offset, uint32_t n)
{
	struct ibv_sge sge = {(uintptr_t)s->in + offset, n, s->mr_in->lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
	if (ibv_post_recv(s->qp, &wr, &bad))
		die("ibv_post_recv: %m");
}

static void post(struct side *s, enum op op, uint64_t id, size_t offset, uint32_t n, uint32_t imm,
	uint64_t compare_add, uint64_t swap)
{
	static const enum ibv_wr_opcode code[OP_COUNT] = {
		[OP_SEND] = IBV_WR_SEND,
		[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[OP_FADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[OP_SEND_BURST] = IBV_WR_SEND,
		[OP_WRITE_BURST] = IBV_WR_RDMA_WRITE,
		[OP_READ_BURST] = IBV_WR_RDMA_READ,
	};
	bool fetches = op == OP_READ || op == OP_READ_BURST || op == OP_CAS || op == OP_FADD;
	struct ibv_sge sge = {(uintptr_t)(fetches ? s->in : s->out) + offset, n,
		fetches ? s->mr_in->lkey : s->mr_out->lkey};
	struct ibv_send_wr wr = {.wr_id = id,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = code[op],
				   .send_flags = IBV_SEND_SIGNALED,
				   .imm_data = htobe32(imm)},
			   *bad;
	if (op == OP_CAS || op == OP_FADD) {
		wr.wr.atomic.remote_addr = be64toh(s->peer.addr_out) + offset;
		wr.wr.atomic.rkey = be32toh(s->peer.rkey_out);
		wr.wr.atomic.compare_add = compare_add;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr =
			(fetches ? be64toh(s->peer.addr_out) : be64toh(s->peer.addr_in)) + offset;
		wr.wr.rdma.rkey = fetches ? be32toh(s->peer.rkey_out) : be32toh(s->peer.rkey_in);
	}
	int rc = ibv_post_send(s->qp, &wr, &bad);
	if (rc)
		die("%s: ibv_post_send: %s", op_name[op], strerror(rc));
}

static void wait_all(struct side *s, unsigned count, enum op op)
{
	for (unsigned i = 0; i < count; i++)
		wait_wc(s, op_name[op]);
}

/* One message of `n` bytes, `acts` here if this side begins the operation. */
static void step_plain(struct side *s, enum op op, uint32_t n, bool acts, uint64_t seed)
{
	bool takes = op == OP_SEND || op == OP_SEND_IMM || op == OP_WRITE_IMM;
	uint32_t imm = (uint32_t)rng_mix(seed);
	if (acts) {
		pattern_fill(s->out, n, seed);
		meet(s, seed);
		post(s, op, seed, 0, n, imm, 0, 0);
		struct ibv_wc wc = wait_wc(s, op_name[op]);
		if (wc.wr_id != seed)
			die("%s: mismatch of the completion's wr_id", op_name[op]);
		meet(s, seed + 1);
		return;
	}
	target_reset(s);
	if (takes)
		post_recv(s, seed, 0, op == OP_WRITE_IMM ? 0 : SIZE_MAX_BYTES);
	meet(s, seed);
	if (takes) {
		struct ibv_wc wc = wait_wc(s, op_name[op]);
		bool has_imm = op != OP_SEND;
		if (wc.wr_id != seed || wc.byte_len != n ||
			!!(wc.wc_flags & IBV_WC_WITH_IMM) != has_imm ||
			(has_imm && be32toh(wc.imm_data) != imm))
			die("%s of %u bytes: mismatch in the completion: byte_len %u, flags %x, "
			    "imm %x",
				op_name[op], n, wc.byte_len, wc.wc_flags, be32toh(wc.imm_data));
	}
	meet(s, seed + 1);
	pattern_check(s, s->in, n, seed, op_name[op]);
	target_check_outside(s, n, op_name[op]);
}

static void step_read(
	struct side *s, enum op op, uint32_t n, unsigned count, bool acts, uint64_t seed)
{
	if (!acts) {
		pattern_fill(s->out, (size_t)n * count, seed);
		meet(s, seed);
		meet(s, seed + 1);
		return;
	}
	target_reset(s);
	meet(s, seed);
	for (unsigned i = 0; i < count; i++)
		post(s, op, i, (size_t)i * n, n, 0, 0, 0);
	wait_all(s, count, op);
	pattern_check(s, s->in, (size_t)n * count, seed, op_name[op]);
	target_check_outside(s, (size_t)n * count, op_name[op]);
	meet(s, seed + 1);
}

static void step_atomic(struct side *s, enum op op, bool acts, uint64_t seed)
{
	uint64_t before = rng_mix(seed), operand = rng_mix(before), swap = rng_mix(operand), value;
	for (int hit = 0; hit < 2; hit++) {
		uint64_t after = op == OP_FADD ? before + operand : hit ? swap : before;
		if (!acts)
			memcpy(s->out + 8, &before, 8);
		meet(s, seed);
		if (acts) {
			post(s, op, seed, 8, 8, 0,
				op == OP_FADD ? operand
				: hit         ? before
					      : operand,
				swap);
			wait_wc(s, op_name[op]);
			memcpy(&value, s->in + 8, 8);
			if (value != before)
				die("%s: mismatch: it returned %" PRIx64
				    ", the memory had %" PRIx64,
					op_name[op], value, before);
		}
		meet(s, seed + 1);
		if (!acts) {
			memcpy(&value, s->out + 8, 8);
			if (value != after)
				die("%s: mismatch: the memory has %" PRIx64
				    ", should have %" PRIx64,
					op_name[op], value, after);
		}
		s->checked_bytes += 8;
		meet(s, seed + 2);
	}
}

#ifdef HAVE_ATOMIC_WRITE
static void post_atomic_write(struct side *s, uint64_t id, uint64_t value)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(s->qp);
	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_atomic_write(qp, be32toh(s->peer.rkey_in), be64toh(s->peer.addr_in), &value);
	int rc = ibv_wr_complete(qp);
	if (rc)
		die("ATOMIC WRITE: ibv_wr_complete: %s", strerror(rc));
}

static void step_atomic_write(struct side *s, bool acts, uint64_t seed)
{
	uint64_t value;
	if (!acts)
		target_reset(s);
	meet(s, seed);
	if (acts) {
		pattern_fill((uint8_t *)&value, sizeof(value), seed);
		post_atomic_write(s, seed, value);
		struct ibv_wc wc = wait_wc(s, "ATOMIC WRITE");
		if (wc.wr_id != seed || wc.opcode != IBV_WC_ATOMIC_WRITE)
			die("ATOMIC WRITE: mismatch in the completion: opcode %d", wc.opcode);
	}
	meet(s, seed + 1);
	if (acts)
		return;
	pattern_check(s, s->in, sizeof(value), seed, "ATOMIC WRITE");
	target_check_outside(s, sizeof(value), "ATOMIC WRITE");
}
#endif

/* Several messages on their way at once, of a size that no MTU divides. */
static void step_burst(struct side *s, enum op op, bool acts, uint64_t seed)
{
	if (acts) {
		pattern_fill(s->out, (size_t)BURST * BURST_BYTES, seed);
		meet(s, seed);
		for (unsigned i = 0; i < BURST; i++)
			post(s, op, i, (size_t)i * BURST_BYTES, BURST_BYTES, 0, 0, 0);
		wait_all(s, BURST, op);
		meet(s, seed + 1);
		return;
	}
	target_reset(s);
	for (unsigned i = 0; op == OP_SEND_BURST && i < BURST; i++)
		post_recv(s, i, (size_t)i * BURST_BYTES, BURST_BYTES);
	meet(s, seed);
	for (unsigned i = 0; op == OP_SEND_BURST && i < BURST; i++)
		if (wait_wc(s, op_name[op]).wr_id != i)
			die("%s: mismatch in the order of completions", op_name[op]);
	meet(s, seed + 1);
	pattern_check(s, s->in, (size_t)BURST * BURST_BYTES, seed, op_name[op]);
	target_check_outside(s, (size_t)BURST * BURST_BYTES, op_name[op]);
}

static void step(struct side *s, enum op op, uint32_t n, bool acts, uint64_t seed)
{
	/* With seeds as they come, the last packet of one message begins like an IPv4 header, which
	 * tshark then takes it for (tests/programs/wire.py). */
	seed += 1ull << 40;
	if (op == OP_READ)
		step_read(s, op, n, 1, acts, seed);
	else if (op == OP_READ_BURST)
		step_read(s, op, BURST_BYTES, BURST, acts, seed);
	else if (op == OP_CAS || op == OP_FADD)
		step_atomic(s, op, acts, seed);
	else if (op == OP_SEND_BURST || op == OP_WRITE_BURST)
		step_burst(s, op, acts, seed);
#ifdef HAVE_ATOMIC_WRITE
	else if (op == OP_ATOMIC_WRITE)
		step_atomic_write(s, acts, seed);
#endif
	else
		step_plain(s, op, n, acts, seed);
}

int main(int argc, char **argv)
{
	struct side s = {.gid_index = 1};
	const char *device = NULL, *port = "18599";
	int rounds = 2, c;
	while ((c = getopt(argc, argv, "d:g:p:n:")) != -1) {
		switch (c) {
		case 'd':
			device = optarg;
			break;
		case 'g':
			s.gid_index = atoi(optarg);
			break;
		case 'p':
			port = optarg;
			break;
		case 'n':
			rounds = atoi(optarg);
			break;
		default:
			die("usage: verbs_verify -d DEVICE -g GID_INDEX -p TCP_PORT [-n ROUNDS] "
			    "[SERVER_ADDRESS]");
		}
	}
	s.client = optind < argc;
	open_device(&s, device);
	s.tcp = tcp_open(s.client ? argv[optind] : NULL, port);
	connect_qp(&s);
	uint64_t seed = 1000;
	unsigned steps = 0;
	for (int r = 0; r < rounds; r++)
		for (int op = 0; op < (s.atomic_writes ? OP_COUNT : OP_ATOMIC_WRITE); op++)
			for (size_t i = 0;
				i < (op <= OP_READ ? sizeof(sizes) / sizeof(sizes[0]) : 1); i++)
				for (int turn = 0; turn < 2; turn++, steps++)
					step(&s, (enum op)op, sizes[i], s.client == !turn,
						seed += 100);
	meet(&s, seed + 50);
	printf("verbs_verify: %u steps, %s ATOMIC WRITE, %" PRIu64 " bytes compared, all right\n",
		steps, s.atomic_writes ? "with" : "without", s.checked_bytes);
	ibv_destroy_qp(s.qp);
	ibv_dereg_mr(s.mr_in);
	ibv_dereg_mr(s.mr_out);
	ibv_destroy_cq(s.cq);
	ibv_dealloc_pd(s.pd);
	ibv_close_device(s.ctx);
	free(s.mem_in);
	free(s.mem_out);
	return 0;
}
