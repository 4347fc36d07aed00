/* SPDX-License-Identifier: BSD-3-Clause */
/* wire_pair.h - two QPs and a wire between them in memory, on which each test drops, repeats and
 * reorders what it wants. Time is a number. */
#ifndef TESTS_RC_WIRE_PAIR_H
#define TESTS_RC_WIRE_PAIR_H

#include "lib/pattern.h"
#include "lib/test.h"

#include <errno.h>

#include "rc/rc.h"

enum {
	MEM = 1 << 20,
	WCS = 4096,
	EVENTS = 64,
	WIRE = 8192,
	KEY = 0x100,
	KEY_BAD = 0xbad,
	QPN0 = 0x11,
	QPN1 = 0x22,
	MTU = 1024,
	PSN0 = 0xffffe0,
	PSN1 = 0x000123
};

struct side {
	struct rpwi_qp qp;
	struct rpwi_rq rq;
	struct rpwi_cc cc;
	struct rpwi_flow rx_flow;
	uint8_t *mem;
	int key_access;             /* of KEY, which covers mem */
	uint64_t hole_at, hole_len; /* addresses that are not mapped */
	uint32_t inv_key;           /* last invalidated */
	bool inv_remote;
	struct rpwi_bind bound; /* last */
	bool rejected;          /* it is known that the other side takes nothing */
	int inv_rc, bind_rc, binds, atomic_writes;
	struct ibv_wc wc[WCS];
	unsigned nwc, nrecv, nsolicited;
	bool wc_recv[WCS];
	enum ibv_event_type event[EVENTS];
	unsigned nevent;
};

struct wpkt {
	int to;
	size_t len;
	uint8_t raw[RPWI_PACKET_MAX];
};

extern struct side S[2];
extern struct wpkt *wire;
extern unsigned wire_n;
extern uint64_t now;
extern struct rpwi_txb *txb;
extern int (*fate)(const struct wpkt *w, const struct rpwi_pkt *p); /* 0 deliver, 1 drop, 2 twice */
extern unsigned victims; /* that `doom` has still to drop */

/* ---- making a pair ---- */

struct config {
	enum ibv_qp_type type;
	uint32_t send_wr, recv_wr, sge, inl, rd, cwnd;
	bool sig_all, srq;
	int timeout, retry, rnr_retry, rnr_timer, access;
};
#pragma GCC diagnostic ignored "-Woverride-init" /* of the defaults, on purpose */
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#endif
#define CONFIG(...) \
	(struct config) \
	{ \
		.type = IBV_QPT_RC, .send_wr = 64, .recv_wr = 64, .sge = 4, .inl = 256, .rd = 4, \
		.cwnd = 64, .timeout = 14, .retry = 7, .rnr_retry = 3, .rnr_timer = 12, \
		.access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
			  IBV_ACCESS_REMOTE_ATOMIC, \
		__VA_ARGS__ \
	}

int wire_pair_setup(void **state); /* of a group of tests */
int wire_pair_teardown(void **state);
void pair(struct config c);
void unpair(void);
/* The steps of `pair`, for one side. */
void make(int i, const struct config *c);
int to_init(int i, const struct config *c);
int to_rtr(int i, const struct config *c);
int to_rts(int i, const struct config *c);
void fill(struct side *s, uint32_t salt);
struct rpwi_av av_between(int me);

/* ---- posting ---- */

enum { AT = 0x1000, RAT = 0x80000 }; /* where in memory tests put things */
#define SIG IBV_SEND_SIGNALED

int post(int i, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len, uint32_t roff,
	unsigned flags);
int post_atomic(int i, bool cas, uint64_t id, uint32_t off, uint32_t roff, uint64_t compare_add,
	uint64_t swap);
void post_recv_key(int i, uint64_t id, uint32_t off, uint32_t len, uint32_t key);
void post_recv(int i, uint64_t id, uint32_t off, uint32_t len);

/* ---- the wire ---- */

void put_on_wire(int to, const struct rpwi_txb *b, unsigned k);
unsigned emit_held(int i, bool hold_ack); /* everything that side i may send now, onto the wire */
unsigned emit(int i);
struct rpwi_pkt decoded(const struct wpkt *w);
void rx(int to, const struct rpwi_pkt *p);
void deliver(const struct wpkt *w);
void take_off(unsigned k);
void flush_wire(void); /* what is on it, in order, each packet as `fate` says */
void settle(void);     /* until both are quiet; time stands still */
bool tick(void);       /* the earliest deadline passes; false when there is none */
void settle_timed(void);

/* From now on the wire loses so many packets of this kind and PSN (UINT32_MAX: any). */
void doom(unsigned op, uint32_t psn, unsigned times);
int drop_victim(const struct wpkt *w, const struct rpwi_pkt *p);
uint32_t psn_of(uint32_t first, uint32_t n);

/* Requests that no ropeway sends. */
struct rpwi_pkt forged(unsigned op, uint32_t psn, const uint8_t *payload, uint32_t len);

/* ---- what must have happened ---- */

void expect_wc(int i, unsigned k, uint64_t id, enum ibv_wc_status status, enum ibv_wc_opcode op);
void same(uint32_t off0, uint32_t off1, uint32_t len);

#endif
