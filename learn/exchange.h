/* SPDX-License-Identifier: BSD-3-Clause */
/* exchange.h - the control path: a TCP connection on which rdma_server and rdma_client tell each
 * other where their queue pairs are.
 *
 * RDMA cannot begin by itself: to send to a queue pair one must know its number (QPN), the address
 * of its port (LID on InfiniBand, GID on RoCE) and the number of the first packet (PSN). So they
 * travel over something that already works.
 *
 * On the wire, all numbers in network byte order (big-endian):
 *
 *      0        4         6       8        12
 *      | magic  | version | kind  | length | body of `length` bytes ...
 *
 *   body of HELLO:
 *      0     4     8        12        16           17    18    20      36
 *      | mtu | QPs | buffer | message | link layer | 0   | LID | GID   | QPN, PSN | QPN, PSN | ...
 *                                                                      one pair for each QP
 *   READY, DONE and SORRY have no body.
 *
 * Any failure here ends the program, with a line that says what to do.
 */
#ifndef LEARN_EXCHANGE_H
#define LEARN_EXCHANGE_H

#include <infiniband/verbs.h>

#include "common.h"

enum {
	QPS_MAX = 16,
	BUFFER_BYTES_MAX = 1 << 30,
	WAIT_MS = 5000, /* nobody waits longer than this for a peer */
};

enum role { ROLE_SERVER, ROLE_CLIENT };

struct options {
	enum role role;
	/* client: the server to call; server: where to listen, NULL for everywhere */
	const char *address;
	const char *device; /* NULL: the first one */
	unsigned tcp_port;
	unsigned gid_index;
	unsigned buffer_bytes; /* of each send buffer and each receive buffer */
	/* client: of each message; 0 on the server, which answers with as many */
	unsigned message_bytes;
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

enum kind {
	KIND_HELLO = 1, /* a struct cm_con_data_t */
	KIND_READY = 2, /* the server has receives posted: send now */
	KIND_DONE = 3,  /* I have all that I wait for: you may leave */
	KIND_SORRY = 4, /* I failed and am about to leave; my own line says why */
};

struct exchange {
	int fd;        /* -1: not connected */
	char peer[96]; /* "127.0.0.1 port 18515", for messages */
	const char *peer_program;
};

void exchange_accept(struct exchange *x, const struct options *opt);
void exchange_connect(struct exchange *x, const struct options *opt);
/* Each side sends its data and gets the other's; the client speaks first. */
void sock_sync_data(struct exchange *x, const struct options *opt,
	const struct cm_con_data_t *local, struct cm_con_data_t *remote);
void exchange_tell(struct exchange *x, enum kind kind);
void exchange_await(struct exchange *x, enum kind kind);
/* Without waiting: is the peer still there, and content? */
void exchange_watch(struct exchange *x);
/* Hang up. With a status other than 0, tell the peer first. For on_exit(3), so that a program that
 * dies anywhere says so. Takes an exchange that was never connected, too. */
void exchange_close(int status, void *exchange);

/* All zero: no address there. */
bool gid_empty(const union ibv_gid *gid);

#endif
