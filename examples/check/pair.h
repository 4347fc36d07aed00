/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.h - two connected QPs of one process, for the programs of this folder and the planted ones
 * of tests/check. Plain verbs, which knows nothing of ropeway. */
#ifndef ROPEWAY_EXAMPLES_CHECK_PAIR_H
#define ROPEWAY_EXAMPLES_CHECK_PAIR_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum { BUFFER = 1 << 20 };

struct half {
	struct ibv_comp_channel *channel; /* of its CQ */
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	uint8_t *buf;
	struct ibv_mr *mr; /* of all of it, every right */
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	union ibv_gid gid;
	struct half a, b;
};

/* What may be asked for; zeros are the defaults. */
struct wish {
	uint32_t sends, recvs, inlines, sges, cqe; /* 16, 16, 0, 1, 64 */
	enum ibv_qp_type type;                     /* RC */
	bool some_signaled;                        /* sq_sig_all 0 */
	struct ibv_srq *srq;
	/* attributes of RTR and RTS that are not the default, of `a`; 0: as they are. One more than
	 * the value, where 0 is a value: */
	int timeout_1, retry_1, rnr_retry_1, min_rnr_1, rd_atomic_1, dest_rd_atomic_1, mtu;
	uint32_t psn_xor, dest_qpn_xor; /* of what `a` is told of `b` */
};

struct pair pair_open(const struct wish *w); /* connected, both in RTS; ends the program if not */
void pair_close(struct pair *p);
/* In parts: */
void pair_device(struct pair *p);                      /* its PD; of pair_begin, too */
void pair_begin(struct pair *p, const struct wish *w); /* both in INIT */
void pair_connect(struct pair *p, const struct wish *w);
void pair_connect_to(struct pair *p, struct half *h, uint32_t qpn); /* another process's */
void pair_drop(struct pair *p); /* both QPs, and what they have */
void pair_end(struct pair *p);  /* the rest */

/* One of them, `a` or `b`. */
void half_open(struct pair *p, struct half *h, const struct wish *w);
void half_connect(struct pair *p, struct half *h, uint32_t qpn, bool is_a, const struct wish *x);

/* Return what verbs do. `off`: in the half's buffer. */
int send_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, unsigned flags);
int recv_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len);
int write_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, struct half *to, size_t at,
	unsigned flags);
int read_at(struct half *h, uint64_t wr_id, size_t off, uint32_t len, struct half *to, size_t at);
/* Polls until a completion comes; ends the program after 10 s without one. Its status. */
enum ibv_wc_status poll_one(struct ibv_cq *cq, struct ibv_wc *wc);
/* Expects one that is good. */
void poll_good(struct ibv_cq *cq);
void expect(bool good, const char *what); /* else the program ends with 3 */
void wait_ms(unsigned ms);

#endif
