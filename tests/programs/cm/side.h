/* SPDX-License-Identifier: BSD-3-Clause */
/* side.h - one of the two processes of a case: what it says, how it meets the other one, and the
 * calls of rdma_cm that most cases share.
 *
 * Only the public librdmacm and libibverbs API is used, so the same program runs on kernel rxe
 * (whose account is the reference), on a NIC and on the software device. What a side says is
 * compared with that reference line by line: so it names events, statuses and errno values, never
 * addresses, numbers of QPs or times.
 */
#ifndef TESTS_PROGRAMS_CM_SIDE_H
#define TESTS_PROGRAMS_CM_SIDE_H

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/pattern.h"

enum { MESSAGE_BYTES = 4096, EVENT_WAIT_MS = 60000, PDATA_MAX = 255 };

/* A connection of one side: its id, and memory for one message each way. */
struct conn {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t *buf; /* MESSAGE_BYTES to send, as many to receive */
	uint64_t seed_out, seed_in;
};

/* What was in an event, copied before it was acknowledged. */
struct event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id, *listen_id;
	struct rdma_conn_param conn;
	struct rdma_ud_param ud;
	uint8_t pdata[PDATA_MAX];
	uint8_t pdata_len;
};

struct side {
	bool is_server;
	struct sockaddr_storage address; /* of the server, port 0 */
	struct rdma_event_channel *channel;
	int other; /* a socket to the other side: only for meeting it */
	bool mute; /* events are not told */
};

struct cm_case {
	const char *name, *what;
	void (*server)(struct side *s);
	void (*client)(struct side *s);
	bool not_on_rxe; /* has no reference: its account is in own.txt */
};
extern const struct cm_case cm_cases[];

/* Tell the account. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void say_result(const char *call, int rc); /* 0 or the name of errno */
const char *errno_name(int code);
/* A failure of the test itself: no case goes on after it. */
void give_up(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define MUST(call) must((call), #call, __func__, __LINE__)
int must(int rc, const char *what, const char *function, int line);

/* Meeting the other side. A number goes along; a side that has ended makes hear() give -1. */
void tell(struct side *s, int value);
int hear(struct side *s);
void wait_for_death(struct side *s);
void die(void); /* SIGKILL */

struct sockaddr *server_address(struct side *s, int port);

/* The next event within `ms`: told, copied, acknowledged. False: "no event" is told. */
bool next_event_within(struct side *s, struct rdma_event_channel *channel, struct event *e, int ms);
struct event next_event(struct side *s);
/* The same, but one that must be of this type for the case to make sense. */
struct event expect_event(struct side *s, enum rdma_cm_event_type type);

/* Server: an id that listens on the server's address; its port is told to the client. */
struct rdma_cm_id *listen_at_and_tell(struct side *s, int port, int backlog);
struct rdma_cm_id *listen_and_tell(struct side *s, int backlog); /* at any port */
/* Client: an id with address and route resolved towards the port that the server told, silently. */
struct rdma_cm_id *resolved_id(struct side *s, int port, enum rdma_port_space ps);
/* Memory and QP for a connection's id. `number` makes its patterns unlike those of others. */
void conn_open(struct side *s, struct conn *c, struct rdma_cm_id *id, unsigned number);
void conn_close(struct conn *c); /* QP, memory and id */
void conn_post_receive(struct conn *c);
/* Client sends, server verifies and answers, client verifies. Tells nothing when all is well;
 * otherwise what differed. */
void exchange(struct side *s, struct conn *c);
/* Whole handshakes. They tell their events unless s->mute. */
void connect_as_client(struct side *s, struct conn *c, int port, unsigned number);
void connect_as_server(struct side *s, struct conn *c, unsigned number);
/* Wait for DISCONNECTED, answer it, close. */
void see_disconnect(struct side *s, struct conn *c);

unsigned open_descriptors(void);

#endif
