/* SPDX-License-Identifier: BSD-3-Clause */
/* datagram.c - UD and UC: what arrives, and what does not. */
#include "probe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRH = 40, QKEY = 0x11111111 };

static int post_datagram(
	struct side *a, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t len, bool imm)
{
	struct ibv_sge sge = {.addr = (uintptr_t)a->buf, .length = len, .lkey = a->mr->lkey};
	struct ibv_send_wr wr = {.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(0xabcdef01)};

	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	return post_wr(a, &wr);
}

static void make_ud(struct side *a, struct side *b)
{
	struct how how = {.type = IBV_QPT_UD};

	make_pair(a, b, &how);
}

/* a: the length; b: with immediate data. */
static void ask_ud(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;

	make_ud(&a, &b);
	pattern_fill(a.buf, (size_t)q->a, 11);
	MUST(!post_receive(&b, 0, 4096));
	say_rc("post", post_datagram(&a, make_ah(), b.qp->qp_num, QKEY, (uint32_t)q->a, q->b));
	say_completion("SEND", a.cq, false);
	if (!poll_for(b.cq, &wc, 1000)) {
		say("not delivered");
		return;
	}
	say_wc(&wc);
	say("src_qp %s", wc.src_qp == a.qp->qp_num ? "right" : "wrong");
	if (!pattern_holds(b.buf + GRH, (size_t)q->a, 11))
		wrong_bytes("a datagram");
}

static void ask_grh(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;
	char hex[2 * GRH + 1];

	(void)q;
	make_ud(&a, &b);
	memset(b.buf, 0xee, 100);
	MUST(!post_receive(&b, 0, 100));
	MUST(!post_datagram(&a, make_ah(), b.qp->qp_num, QKEY, 8, false));
	if (!poll_for(b.cq, &wc, 1000)) {
		say("not delivered");
		return;
	}
	for (int i = 0; i < GRH; i++)
		snprintf(hex + (size_t)2 * (size_t)i, 3, "%02x", b.buf[i]);
	say("first 20 bytes %s",
		memcmp(hex, "0000000000000000000000000000000000000000", 40) ? "not zero" : "zero");
	say("version and TOS %.4s, total length %.4s, TTL and protocol %.4s", hex + 40, hex + 44,
		hex + 56);
	say("fragment bits %.4s", hex + 52);
	say("identification %s", memcmp(hex + 48, "0000", 4) ? "set" : "0");
	say("checksum %s", memcmp(hex + 60, "0000", 4) ? "set" : "0");
	say("addresses %s",
		!memcmp(b.buf + 32, &host.sin_addr, 4) && !memcmp(b.buf + 36, &host.sin_addr, 4)
			? "right"
			: "wrong");
}

/* ibv_init_ah_from_wc of a datagram with a class and hop limit of its own. */
static void ask_ah_from_wc(const struct question *q)
{
	struct ibv_ah_attr attr = {.is_global = 1,
		.port_num = 1,
		.sl = 5,
		.grh = {.dgid = gid, .hop_limit = 33, .traffic_class = 0x28}};
	struct ibv_wc wc;
	struct side a, b;
	struct ibv_ah *ah;

	(void)q;
	make_ud(&a, &b);
	attr.grh.dgid = gid;
	attr.grh.sgid_index = (uint8_t)gid_index;
	MUST(ah = ibv_create_ah(pd, &attr));
	MUST(!post_receive(&b, 0, 100));
	MUST(!post_datagram(&a, ah, b.qp->qp_num, QKEY, 8, false));
	if (!poll_for(b.cq, &wc, 1000)) {
		say("not delivered");
		return;
	}
	memset(&attr, 0xee, sizeof(attr));
	say_rc("ibv_init_ah_from_wc",
		ibv_init_ah_from_wc(ctx, 1, &wc, (struct ibv_grh *)b.buf, &attr));
	say("is_global %u, hop_limit %u, traffic_class %#x, flow_label %u, sl %u, dlid %u, "
	    "sgid_index %s, dgid %s",
		attr.is_global, attr.grh.hop_limit, attr.grh.traffic_class, attr.grh.flow_label,
		attr.sl, attr.dlid, attr.grh.sgid_index == gid_index ? "right" : "wrong",
		memcmp(&attr.grh.dgid, &gid, 16) ? "wrong" : "right");
	say_made("ibv_create_ah_from_wc",
		ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)b.buf, 1));
}

/* a: the Q_Key sent (the sender's own is QKEY); b: the receiver's QPN is another. */
static void ask_qkey(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;

	make_ud(&a, &b);
	MUST(!post_receive(&b, 0, 100));
	say_rc("post", post_datagram(&a, make_ah(), q->b ? (uint32_t)q->b : b.qp->qp_num,
			       (uint32_t)q->a, 8, false));
	say_completion("SEND", a.cq, false);
	say("%s", poll_for(b.cq, &wc, 500) ? "delivered" : "not delivered");
	say("QPs %s and %s", state_word(state_of(a.qp)), state_word(state_of(b.qp)));
}

static void ask_ud_long(const struct question *q)
{
	struct ibv_port_attr port;
	struct ibv_wc wc;
	struct side a, b;
	int rc;

	make_ud(&a, &b);
	MUST(!ibv_query_port(ctx, 1, &port));
	MUST(!post_receive(&b, 0, 8192));
	rc = post_datagram(&a, make_ah(), b.qp->qp_num, QKEY,
		(128U << port.active_mtu) + (uint32_t)q->a, false);
	say_rc("post", rc);
	if (!rc)
		say_completion("SEND", a.cq, false);
	say("%s", poll_for(b.cq, &wc, 500) ? status_word(wc.status) : "not delivered");
	say("sender %s", state_word(state_of(a.qp)));
}

static void ask_ud_short(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;

	make_ud(&a, &b);
	MUST(!post_receive(&b, 0, (uint32_t)q->a));
	MUST(!post_receive(&b, PAGE, 200));
	MUST(!post_datagram(&a, make_ah(), b.qp->qp_num, QKEY, 64, false));
	say_completion("SEND", a.cq, false);
	say("receive: %s", poll_for(b.cq, &wc, 500) ? status_word(wc.status) : "no completion");
	say("receiver %s", state_word(state_of(b.qp)));
	say_events("events", 200);
	say_rc("the next", post_datagram(&a, make_ah(), b.qp->qp_num, QKEY, 64, false));
	say("%s", poll_for(b.cq, &wc, 500) ? status_word(wc.status) : "not delivered");
}

static void ask_ud_no_receive(const struct question *q)
{
	struct ibv_wc wc;
	struct side a, b;

	(void)q;
	make_ud(&a, &b);
	MUST(!post_datagram(&a, make_ah(), b.qp->qp_num, QKEY, 64, false));
	say_completion("SEND", a.cq, false);
	sleep_ms(200);
	MUST(!post_receive(&b, 0, 200));
	say("a receive posted later: %s", poll_for(b.cq, &wc, 500) ? "gets it" : "waits");
}

static void ask_ud_no_ah(const struct question *q)
{
	struct side a, b;

	(void)q;
	make_ud(&a, &b);
	say_rc("post", post_datagram(&a, NULL, b.qp->qp_num, QKEY, 8, false));
}

/* Whether the device has sent the datagram by then is a matter of chance, so many are asked. */
static void ask_ud_destroyed_ah(const struct question *q)
{
	enum { ROUNDS = 100 };
	struct side a, b;
	struct ibv_wc wc;

	(void)q;
	make_ud(&a, &b);
	for (int i = 0; i < ROUNDS; i++) {
		struct ibv_ah *ah = make_ah();
		int rc;

		MUST(!post_receive(&b, 0, 200));
		MUST(!post_datagram(&a, ah, b.qp->qp_num, QKEY, 8, false));
		rc = ibv_destroy_ah(ah);
		if (rc) {
			say_rc("ibv_destroy_ah", rc);
			return;
		}
		if (!poll_for(a.cq, &wc, 3000) || wc.status != IBV_WC_SUCCESS ||
			!poll_for(b.cq, &wc, 1000)) {
			say("some of %d are not sent: %s", ROUNDS, status_word(wc.status));
			return;
		}
	}
	say("all of %d arrive", ROUNDS);
}

static void ask_ud_group(const struct question *q)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	union ibv_gid group = {.raw = {[10] = 0xff, 0xff, 239, 7, 7, 9}};
	struct ibv_wc wc;
	struct side a, b;
	struct ibv_ah *ah;

	(void)q;
	make_ud(&a, &b);
	attr.grh = (struct ibv_global_route){
		.dgid = group, .sgid_index = (uint8_t)gid_index, .hop_limit = 1};
	MUST(!ibv_attach_mcast(b.qp, &group, 0));
	ah = ibv_create_ah(pd, &attr);
	if (!ah) {
		say_made("ibv_create_ah", ah);
		return;
	}
	pattern_fill(a.buf, 64, 12);
	MUST(!post_receive(&b, 0, 200));
	say_rc("post", post_datagram(&a, ah, 0xffffff, QKEY, 64, false));
	say_completion("SEND", a.cq, false);
	if (!poll_for(b.cq, &wc, 1000)) {
		say("not delivered");
		return;
	}
	say_wc(&wc);
	if (!pattern_holds(b.buf + GRH, 64, 12))
		wrong_bytes("a datagram to a group");
}

/* ---- UC ---- */

static void ask_uc(const struct question *q)
{
	struct how how = {.type = IBV_QPT_UC};
	bool is_write = q->a == IBV_WR_RDMA_WRITE || q->a == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct ibv_wc wc;
	struct side a, b;

	make_pair(&a, &b, &how);
	pattern_fill(a.buf, (size_t)q->b, 13);
	MUST(!post_receive(&b, 0, 8192));
	MUST(!post(&a, (enum ibv_wr_opcode)q->a, 0, (uint32_t)q->b, (uintptr_t)b.buf + PAGE,
		b.mr->rkey));
	say_completion("requester", a.cq, true);
	sleep_ms(100);
	if (q->a != IBV_WR_RDMA_WRITE && poll_for(b.cq, &wc, 1000))
		say_wc(&wc);
	if (!pattern_holds(b.buf + (is_write ? PAGE : 0), (size_t)q->b, 13))
		wrong_bytes("UC");
}

static void ask_uc_short(const struct question *q)
{
	struct how how = {.type = IBV_QPT_UC};
	struct ibv_wc wc;
	struct side a, b;

	make_pair(&a, &b, &how);
	if (q->a >= 0)
		MUST(!post_receive(&b, 0, (uint32_t)q->a));
	MUST(!post(&a, IBV_WR_SEND, 0, 64, 0, 0));
	say_completion("requester", a.cq, false);
	say("receive: %s", poll_for(b.cq, &wc, 500) ? status_word(wc.status) : "no completion");
	say("responder %s", state_word(state_of(b.qp)));
	say_events("events", 200);
}

static void ask_uc_access(const struct question *q)
{
	struct how how = {.type = IBV_QPT_UC, .access = q->a ? -1 : 0};
	struct ibv_wc wc;
	struct side a, b;

	make_pair(&a, &b, &how);
	MUST(!post_receive(&b, 0, 64));
	MUST(!post(&a, IBV_WR_RDMA_WRITE, 0, 64, (uintptr_t)b.buf, q->a ? b.mr->rkey : 0x77777700));
	say_completion("requester", a.cq, false);
	say("responder: %s", poll_for(b.cq, &wc, 500) ? status_word(wc.status) : "no completion");
	say("QPs %s and %s", state_word(state_of(a.qp)), state_word(state_of(b.qp)));
	say_events("events", 200);
}

const struct question datagram_questions[] = {{"ud.0", "a datagram of 0 bytes", ask_ud, 0, 0},
	{"ud.64", "a datagram of 64 bytes", ask_ud, 64, 0},
	{"ud.imm", "a datagram with immediate data", ask_ud, 64, 1},
	{"ud.1024", "a datagram of the path MTU", ask_ud, 1024, 0},
	{"ud.grh", "the GRH before a datagram", ask_grh, 0, 0},
	{"ud.ah_from_wc", "the address handle of an answer", ask_ah_from_wc, 0, 0},
	{"ud.qkey_wrong", "another Q_Key", ask_qkey, 0x22222222, 0},
	{"ud.qkey_high", "a Q_Key with its highest bit (the sender's own then counts)", ask_qkey,
		0x80000001, 0},
	{"ud.no_qp", "a datagram to a QPN that is none", ask_qkey, QKEY, 0xfffff0},
	{"ud.too_long", "a datagram one byte longer than the path MTU", ask_ud_long, 1, 0},
	{"ud.too_short", "a datagram longer than the receive", ask_ud_short, 64, 0},
	{"ud.too_short_grh", "a datagram into a receive shorter than the GRH", ask_ud_short, 16, 0},
	{"ud.no_receive", "a datagram without a receive", ask_ud_no_receive, 0, 0},
	{"ud.no_ah", "a datagram without an address handle", ask_ud_no_ah, 0, 0},
	{"ud.ah_destroyed", "an address handle destroyed after the post", ask_ud_destroyed_ah, 0,
		0},
	{"ud.group", "a datagram to a group", ask_ud_group, 0, 0},
	{"uc.send", "SEND, UC", ask_uc, IBV_WR_SEND, 5000},
	{"uc.send_imm", "SEND_WITH_IMM, UC", ask_uc, IBV_WR_SEND_WITH_IMM, 64},
	{"uc.write", "WRITE, UC", ask_uc, IBV_WR_RDMA_WRITE, 3000},
	{"uc.write_imm", "WRITE_WITH_IMM, UC", ask_uc, IBV_WR_RDMA_WRITE_WITH_IMM, 3000},
	{"uc.too_short", "SEND longer than the receive, UC", ask_uc_short, 16, 0},
	{"uc.no_receive", "SEND without a receive, UC", ask_uc_short, -1, 0},
	{"uc.key", "WRITE with a key that is none, UC", ask_uc_access, 0, 0},
	{"uc.access", "WRITE to a QP without the right, UC", ask_uc_access, 1, 0}, {0}};
