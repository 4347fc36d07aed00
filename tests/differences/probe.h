/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.h - questions to an RDMA device, and what the functions that ask them share.
 *
 * A question is a function that runs in a process of its own and says its answer: one line, the
 * same in every run of one device (no addresses, QPNs, keys; of times only their class). It may
 * end as it likes: its process takes everything with it.
 */
#ifndef TESTS_DIFFERENCES_PROBE_H
#define TESTS_DIFFERENCES_PROBE_H

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/pattern.h"

struct question {
	const char *name; /* subject.what */
	const char *what; /* the page's words for it */
	void (*ask)(const struct question *q);
	/* what a table of like questions varies */
	long a, b;
};

/* Each ends with an entry without a name. */
extern const struct question device_questions[], object_questions[], memory_questions[],
	state_questions[], post_questions[], data_questions[], fault_questions[],
	datagram_questions[], cm_questions[];

/* ---- the answer ---- */

/* Adds to the answer. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* `name: ` and what the call returned: 0 or the name of the errno value. */
void say_rc(const char *name, int rc);
/* What a call that returns an object returned: "made", or errno's name. */
void say_made(const char *name, const void *object);
const char *errno_word(int rc); /* of 0, of a positive errno value, or -1: errno */
const char *status_word(enum ibv_wc_status status);
const char *opcode_word(enum ibv_wc_opcode opcode);
const char *state_word(enum ibv_qp_state state);
const char *event_word(enum ibv_event_type type);
/* Ends the question: the set-up is not what it asks about. */
void give_up(const char *what, const char *file, int line) __attribute__((noreturn));
#define MUST(condition) \
	do { \
		if (!(condition)) \
			give_up(#condition, __FILE__, __LINE__); \
	} while (0)
/* The bytes are not what was sent: the answer begins with it, and a run fails. */
void wrong_bytes(const char *where);

/* ---- the device ---- */

extern struct sockaddr_in host;   /* our address */
extern struct sockaddr_in absent; /* nobody's, in the same subnet */
extern struct ibv_context *ctx;   /* the device that has our address */
extern struct ibv_pd *pd;
extern int gid_index;
extern union ibv_gid gid; /* of our address */

/* ctx and the GID; pd. Each is made at first. */
void open_device(void);

double now(void);
void sleep_ms(int ms);
/* A completion within `ms`. */
bool poll_for(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
/* Every asynchronous event until nothing came for `ms`: said, acknowledged. */
void say_events(const char *name, int ms);

/* ---- memory ---- */

enum {
	PAGE = 4096,
	BUF = 64 * 1024,
	ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC
};

uint8_t *pages(size_t bytes);

/* ---- queue pairs ---- */

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t *buf; /* BUF bytes */
};

/* How the two are made; 0 is the usual. */
struct how {
	enum ibv_qp_type type;  /* RC */
	int access;             /* of the QPs; ALL_ACCESS; -1: none */
	int mr_access;          /* of the regions; ALL_ACCESS; -1: LOCAL_WRITE */
	int timeout;            /* 14; -1: 0 */
	int retry_cnt;          /* 7; -1: 0 */
	int rnr_retry;          /* 7; -1: 0 */
	int min_rnr_timer;      /* 1 */
	int rd_atomic;          /* 4; -1: 0 */
	int cqe;                /* 64 */
	bool unsignaled, srq;   /* sq_sig_all is the usual */
	enum ibv_qp_state stop; /* both are left in this state; RTS */
};

struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type);
struct ibv_cq *make_cq(int cqe);
void make_side(struct side *s, const struct how *how);
/* To INIT, RTR, RTS; the peer's QPN counts for connected ones. */
int to_init(struct ibv_qp *qp, int access);
int to_rtr(struct ibv_qp *qp, uint32_t peer, const struct how *how);
int to_rts(struct ibv_qp *qp, const struct how *how);
void climb(struct ibv_qp *qp, uint32_t peer, enum ibv_qp_state state);
int to_state(struct ibv_qp *qp, enum ibv_qp_state state);
/* The attributes and mask that a QP of the type needs for the step to a state. */
int step(enum ibv_qp_type type, enum ibv_qp_state to, uint32_t peer, struct ibv_qp_attr *attr);
void make_pair(struct side *a, struct side *b, const struct how *how);
enum ibv_qp_state state_of(struct ibv_qp *qp);

/* ---- posting ---- */

struct ibv_send_wr;
/* len 0: no element. */
int post(struct side *s, enum ibv_wr_opcode opcode, size_t offset, uint32_t len,
	uint64_t remote_addr, uint32_t rkey);
/* The same with everything that a caller wants to say itself. */
int post_wr(struct side *s, struct ibv_send_wr *wr);
int post_receive(struct side *s, size_t offset, uint32_t len);
/* The next completion's status; opcode, length and flags where it is a success and `whole`. */
void say_completion(const char *name, struct ibv_cq *cq, bool whole);
void say_wc(const struct ibv_wc *wc);
struct ibv_ah *make_ah(void);

#endif
