/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two connected RC QPs of one process on the loopback device: what the device tests start
 * from. */
#ifndef TESTS_DEVICE_PAIR_H
#define TESTS_DEVICE_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/pattern.h"

enum { PAIR_BUF = 1 << 20 };

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
	uint32_t psn;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct side a, b;
	uint8_t timeout, retry_cnt, rnr_retry;
	enum ibv_mtu mtu;                 /* 0: 1024 */
	struct ibv_comp_channel *channel; /* of the CQs of sides made from now on, or NULL */
};

/* The pieces, for tests of two processes. */
void side_make(struct pair *p, struct side *s, uint32_t psn);
void side_connect_to(struct pair *p, struct side *s, uint32_t qpn, uint32_t psn);
void side_free(struct side *s);
struct ibv_context *pair_open_loopback(void);
/* Asserts on any failure. timeout etc. are the RTS attributes of both sides; RTS is reached. */
void pair_make(struct pair *p, uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry);
void pair_make_mtu(struct pair *p, enum ibv_mtu mtu);
void pair_free(struct pair *p);
/* One completion within `ms`, or false. */
bool pair_poll(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
int pair_send(struct side *s, enum ibv_wr_opcode op, uint64_t local_off, uint32_t len,
	uint64_t raddr, uint32_t rkey);
/* The status of the next completion, within 5 s. */
enum ibv_wc_status side_done(struct side *s);
/* side a writes `len` bytes of the pattern there: with what status? */
enum ibv_wc_status pair_write_to(
	struct pair *p, uint64_t seed, uint32_t len, uint64_t addr, uint32_t rkey);
void pair_recv(struct side *s, uint64_t off, uint32_t len, uint64_t wr_id);

#endif
