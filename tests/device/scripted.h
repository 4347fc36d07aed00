/* SPDX-License-Identifier: BSD-3-Clause */
/* scripted.h - a case under a fault script: a process of its own, since a process has one script,
 * with two connected QPs. What is wrong it says on stderr, and ends with 1. */
#ifndef TESTS_DEVICE_SCRIPTED_H
#define TESTS_DEVICE_SCRIPTED_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "pair.h"

enum { LEN = 64, RECVS = 4, BUF = 4096, QKEY = 0x11111111 };
enum { SOON = 20000 }; /* ms */
/* 1 ms, and one retry: a silence ends soon. So does a silence that a busy machine makes when it
 * stops this process for 8 ms; what shall not end by that asks for more. */
enum { SOON_TIMEOUT = 8, SOON_RETRIES = 1 };

extern const char *scripted_now; /* the case's name */
#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s: %s (errno %d)\n", __FILE__, __LINE__, \
				scripted_now, #x, errno); \
			_exit(1); \
		} \
	} while (0)

/* True when `fn` has found all as it should be, under that script. */
bool scripted(const char *name, const char *script, void (*fn)(const void *arg), const void *arg);

/* Two QPs of one process on the loopback device. */
struct two {
	enum ibv_qp_type type;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_srq *srq; /* of the second */
	uint8_t timeout, retries;
	struct ibv_cq *cq[2];
	struct ibv_qp *qp[2];
	struct ibv_ah *ah;
	uint8_t *buf;
};
struct ibv_context *open_lo(void);
void two_make(struct two *t, enum ibv_qp_type type, bool srq, int cqe);
void two_connect(struct two *t, int i, bool to_rts, uint8_t rd_atomic);
void receives(struct two *t, int n); /* posted to the second, or its SRQ */
/* made and connected, with RECVS receives */
void two_up(struct two *t, enum ibv_qp_type type, bool srq);
void two_up_with(struct two *t, enum ibv_qp_type type, bool srq, uint8_t timeout, uint8_t retries);
/* by the first: LEN bytes (an atomic 8); what ibv_post_send gives */
int post(struct two *t, enum ibv_wr_opcode op, uint64_t id);
struct ibv_wc next(struct two *t, int side); /* the next completion; it has to come */
bool got_event(struct two *t, enum ibv_event_type type, int ms); /* others are passed over */

#endif
