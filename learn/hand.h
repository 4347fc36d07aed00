/* SPDX-License-Identifier: BSD-3-Clause */
/* hand.h - what rdma_server and rdma_client share: one struct, and one function for each step.
 *
 *     device.c    step 1: the device, its port, its GID
 *     steps.c     the data path:     device -> PD -> MR -> CQ -> QP: RESET -> INIT -> RTR -> RTS
 *                                    -> post, poll -> everything closed, in reverse order
 *     exchange.c  the control path:  a TCP connection on which both tell where their QPs are
 *     hand.c      options, and the text of the messages
 *
 * Any failure ends the program, with a line that says what to do.
 */
#ifndef LEARN_HAND_H
#define LEARN_HAND_H

#include <infiniband/verbs.h>

#include "common.h"

enum {
	PORT = 1, /* ports of a device count from 1 */
	GID_CHARS = 48,
	QPS_MAX = 16,
	BUFFER_BYTES_MAX = 1 << 30,
	WAIT_MS = 5000, /* nobody waits longer than this for a peer */
};

enum role { ROLE_SERVER, ROLE_CLIENT };

struct options {
	enum role role;
	/* client: the server to call; server: where to listen, NULL for everywhere */
	const char *address;
	const char *device; /* NULL: the first one, until it is open */
	unsigned tcp_port;
	unsigned gid_index;
	unsigned buffer_bytes;  /* of each send buffer and each receive buffer */
	unsigned message_bytes; /* the client's choice; the server learns it */
	unsigned qps;
	unsigned mtu_bytes; /* 0: what the port allows */
	bool verbose;       /* print the status of each completion */
};

/* What one side tells the other. */
struct cm_con_data_t {
	uint32_t mtu_bytes;
	uint32_t qps;
	uint32_t buffer_bytes;
	uint32_t message_bytes; /* 0 from the server */
	uint32_t link_layer;    /* IBV_LINK_LAYER_... */
	uint32_t lid;
	union ibv_gid gid;
	struct {
		uint32_t qpn, psn;
	} qp[QPS_MAX];
};

struct rdma {
	struct options opt;
	int tcp;       /* the connection to the peer; -1: none */
	char peer[96]; /* "127.0.0.1 port 18515", for messages */
	const char *peer_program;
	struct cm_con_data_t local, remote; /* what each side tells the other */
	struct ibv_context *context;        /* the opened device */
	struct ibv_port_attr port;
	bool ethernet;
	union ibv_gid gid;
	enum ibv_mtu mtu;                                     /* this side's */
	struct ibv_pd *pd;                                    /* protection domain */
	char *send_buffer[QPS_MAX], *receive_buffer[QPS_MAX]; /* of each QP, in one block each */
	struct ibv_mr *send_mr, *receive_mr;                  /* memory regions */
	struct ibv_cq *cq;                                    /* completion queue */
	struct ibv_qp *qp[QPS_MAX];                           /* queue pairs */
};

/* What a completion is for; it comes back in wr_id. */
enum work { WORK_RECEIVE, WORK_SEND };

struct completion {
	enum work work;
	unsigned qp;
	uint32_t bytes; /* of a receive */
};

/* ---- device.c ---- */

void look_at_device(struct rdma *r);
void must(bool done, const char *call);
const char *gid_text(const union ibv_gid *gid, char text[GID_CHARS]);
unsigned mtu_bytes(enum ibv_mtu mtu);
enum ibv_mtu mtu_from_bytes(unsigned bytes);

/* ---- steps.c ---- */

/* Steps 1 to 5: device, PD, MR, CQ, QPs in RESET. */
void init_rdma_resources(struct rdma *r);
void modify_qp_to_init(struct rdma *r);
void post_receives(struct rdma *r); /* one on each QP */
/* Fill in r->local; print both, once r->remote is there. */
void con_data_describe(struct rdma *r);
void con_data_show(const struct rdma *r);
void modify_qp_to_rtr(struct rdma *r);
void modify_qp_to_rts(struct rdma *r);
/* Send the message in the QP's send buffer. */
void post_send(struct rdma *r, unsigned qp);
/* Poll until one operation is complete, 5 s at most, and look now and then whether the peer is
 * still there. */
struct completion poll_completion(struct rdma *r);
void close_rdma_resources(struct rdma *r);

/* ---- exchange.c ---- */

enum kind {
	KIND_HELLO = 1, /* a struct cm_con_data_t */
	KIND_READY = 2, /* the server has receives posted: send now */
	KIND_DONE = 3,  /* I have all that I wait for: you may leave */
	KIND_SORRY = 4, /* I failed and am about to leave; my own line says why */
};

void exchange_accept(struct rdma *r);
void exchange_connect(struct rdma *r);
/* Each side sends its data and gets the other's; the client speaks first. */
void sock_sync_data(struct rdma *r);
void exchange_tell(struct rdma *r, enum kind kind);
void exchange_await(struct rdma *r, enum kind kind);
/* Without waiting: is the peer still there, and content? */
void exchange_watch(struct rdma *r);
/* Hang up. With a status other than 0, tell the peer first. For on_exit(3), so that a program that
 * dies anywhere says so. */
void exchange_close(int status, void *rdma);
/* All zero: no address there. */
bool gid_empty(const union ibv_gid *gid);

/* ---- hand.c ---- */

void hand_options(struct options *opt, enum role role, int argc, char **argv);
/* Write this side's message into the send buffer of a QP. */
void message_write(struct rdma *r, unsigned qp);
/* Is the receive that is complete what the peer has sent there? Prints its beginning. */
void message_check(const struct rdma *r, struct completion c);

#endif
