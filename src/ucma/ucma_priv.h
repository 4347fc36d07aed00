/* SPDX-License-Identifier: BSD-3-Clause */
/* ucma_priv.h - what the files of ucma/ share. All of it is under the HCA's lock (rpwi_gsi_lock),
 * but where a comment says otherwise. */
#ifndef ROPEWAY_UCMA_PRIV_H
#define ROPEWAY_UCMA_PRIV_H

#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "device/gsi.h"
#include "io/io.h"
#include "ucma/ucma.h"

/* enum rdma_cm_event_type of <rdma/rdma_cma.h>: that header and the kernel's cannot be read
 * together. */
enum cm_event {
	EV_ADDR_RESOLVED,
	EV_ADDR_ERROR,
	EV_ROUTE_RESOLVED,
	EV_ROUTE_ERROR,
	EV_CONNECT_REQUEST,
	EV_CONNECT_RESPONSE,
	EV_CONNECT_ERROR,
	EV_UNREACHABLE,
	EV_REJECTED,
	EV_ESTABLISHED,
	EV_DISCONNECTED,
	EV_DEVICE_REMOVAL,
	EV_MULTICAST_JOIN,
	EV_MULTICAST_ERROR,
	EV_ADDR_CHANGE,
	EV_TIMEWAIT_EXIT,
	EV_ADDRINFO_RESOLVED,
	EV_ADDRINFO_ERROR,
	EV_USER,     /* the program wrote it itself (rdma_write_cm_event) */
	EV_INTERNAL, /* or librdmacm did, for itself */
	EV_COUNT,
};

/* What an id has done so far (the kernel's enum rdma_cm_state). What became of its connection is
 * conn.state. */
enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_ADDR_QUERY, /* the host is being looked for (resolve.c) */
	ID_ADDR_RESOLVED,
	ID_ROUTE_RESOLVED,
	ID_CONNECT,
	ID_DISCONNECT,
	ID_LISTEN,
	ID_STATE_COUNT,
};

enum {
	UDP_QKEY = 0x01234567,
	/* of a path with packet lifetime 16, which rdma_cm assumes on RoCE */
	ACK_TIMEOUT_DEFAULT = 17,
	BACKLOG_MAX = 1024,
	SIDR_TIMEOUT_MS = 4096,
	LISTENER_PORTS_MAX = 64,
	IDS_MAX = 1 << 16, /* librdmacm can index no more */
};

struct endpoint {
	struct rpwi_addr addr; /* family 0: not set; all zero bytes: any */
	uint16_t port;
};

/* A descriptor, and what it was when it was ours: a number that was closed behind our back may be
 * another file's by now. */
struct channel_fd {
	int fd;
	uint64_t id[2];
};

struct channel {
	struct channel_fd fd, signal; /* the program's end, ours */
	/* the program's end once more: for whoever waits while the program closes fd */
	struct channel_fd wait;
	pid_t pid;
	struct rpwi_list ids, events;
	bool signalled;
	unsigned users; /* the descriptor, and threads inside a command; under users_lock */
	bool closed;
	struct channel *next_ended;
	int real_fd; /* the kernel's channel behind this one, or -1 */
	/* NULL before an id of it needs the engine; then a reference on it is held */
	struct rpwi_cm *cm;
};

struct id {
	struct rpwi_list link; /* in its channel's */
	struct channel *ch;
	uint32_t handle;
	uint64_t uid;
	enum id_state state;
	uint16_t ps;
	uint8_t qp_type;
	struct endpoint src, dst;
	struct rpwi_gsi_local dev; /* valid when dev.device */
	struct rpwi_addr port;     /* whose UDP port it keeps open; family 0: none */
	struct claim *claim;
	struct rpwi_list claim_link;
	uint32_t events_reported;
	struct rpwi_list mcasts; /* groups that it has joined (multicast.c) */
	struct rpwi_list asking; /* among those in ID_ADDR_QUERY */
	struct rpwi_neighbor neighbor;
	uint64_t ask_until_ns, ask_again_ns, ask_step_ns;
	uint32_t resolve_ms; /* as the program says it to rdma_resolve_addr */

	/* the connection */
	bool has_conn;
	struct rpwi_cm_conn conn;
	uint8_t retry_count, rnr_retry_count;
	uint8_t responder_resources, initiator_depth; /* of our QP: what it answers, what it asks */
	uint32_t qkey, seq_num;

	/* the kernel's id for it: none, beside ours (a listener on all addresses), or instead of
	 * ours */
	enum { REAL_NONE, REAL_BESIDE, REAL_ONLY } real;
	uint32_t real_handle;
	uint64_t serial; /* what the kernel knows it by: handles come again */
	/* of RESOLVE_ADDR, in case the kernel has no device for it */
	struct endpoint want_src, want_dst;

	/* options */
	uint8_t tos, ack_timeout;
	bool reuseaddr, afonly;

	/* a listener */
	struct rpwi_list listen_link;
	int backlog;
	struct rpwi_addr *ports; /* of all local addresses, when it listens on any */
	unsigned nports;
	/* a connection that its listener's program has not taken yet */
	struct id *listener;
};

/* A group that an id has joined. */
struct mcast {
	struct rpwi_list link; /* in its id's */
	struct id *id;
	uint32_t handle;
	uint64_t uid;
	struct rpwi_addr group;
	int ifindex;
	bool is_member;
	/* of an id that is the kernel's: its number there, and what its event is known by */
	bool is_real;
	uint32_t real_handle;
	uint64_t serial;
	uint32_t events_reported;
};

struct event {
	struct rpwi_list link;
	struct id *id; /* whom destroying takes it away from: a CONNECT_REQUEST is its listener's */
	struct id *child;
	struct mcast *mcast; /* MULTICAST_JOIN: the group that it is of */
	struct rdma_ucm_event_resp resp;
};

/* channel.c */
struct channel *channel_of(int fd);     /* by its number; takes no lock */
struct channel *channel_intact(int fd); /* NULL, too, when the number is another file's by now */
/* Queue an event for id; NULL when there is no memory (counted, logged). The caller fills
 * resp.param afterwards: the lock is held. */
struct event *event_new(struct id *id, enum cm_event type, int status);
void events_of_id_drop(struct id *id); /* destroys the connections of requests that nobody took */
void events_of_mcast_drop(struct channel *ch, const struct mcast *m);
void events_move(struct id *id, struct channel *from, struct channel *to);
void channel_signal(struct channel *ch); /* after its list of events changed */
/* takes the lock itself; 0 or -errno */
int channel_get_event(struct channel *ch, struct rdma_ucm_event_resp *out);
int channel_engine(struct channel *ch); /* make sure of ch->cm */
extern const char *const cm_event_name[EV_COUNT];

/* command.c */
ssize_t command(struct channel *ch, const void *buf, size_t len); /* takes the lock itself */

/* id.c */
/* NULL: no memory, or too many */
struct id *id_new(struct channel *ch, uint16_t ps, uint8_t qp_type, uint64_t uid);
/* NULL: -ENOENT, or -EINVAL: another channel's */
struct id *id_find(struct channel *ch, uint32_t handle, int *err);
void id_free(struct id *id); /* with all that it holds */
int id_use_port(struct id *id, const struct rpwi_addr *local);
int id_bind(struct id *id, const struct endpoint *e);
int id_resolve_addr(struct id *id, const struct endpoint *src, const struct endpoint *dst);
int id_resolve_route(struct id *id);
int id_connect(struct id *id, const struct rdma_ucm_conn_param *p);
int id_accept(struct id *id, const struct rdma_ucm_conn_param *p); /* p NULL: RTU */
int id_reject(struct id *id, uint8_t reason, const void *pdata, size_t len);
int id_disconnect(struct id *id);
int id_notify(struct id *id, unsigned event);
int id_set_option(struct id *id, unsigned level, unsigned name, const void *value, size_t len);
void id_query_route(const struct id *id, struct rdma_ucm_query_route_resp *r);
int id_init_qp_attr(const struct id *id, unsigned state, struct ib_uverbs_qp_attr *a);
void id_ah_attr(const struct id *id, struct ib_uverbs_ah_attr *a);
uint64_t id_service(const struct id *id, uint16_t port);
void cm_event(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_event *ev);

/* listen.c */
int id_listen(struct id *id, int backlog);
void listen_end(struct id *id);
/* 0, or -EADDRINUSE and others; port 0: any free one, into id->src, or -EADDRNOTAVAIL */
int listen_claim_take(struct id *id, uint16_t port);
void listen_claim_drop(struct id *id);
struct rpwi_cm_conn *cm_request(void *user, const struct rpwi_cm_path *path,
	const struct rpwi_cm_msg *m, bool sidr, uint16_t *reason);
void cm_incoming(void *user, struct rpwi_cm_conn *conn, const struct rpwi_cm_msg *m);
void cm_addresses_changed(void *user);
uint16_t listen_port_ephemeral(void);

/* multicast.c */
/* -EINVAL: state, address or flags (RDMA_MC_JOIN_FLAG_*); or another -errno */
int multicast_join(struct id *id, const struct endpoint *group, unsigned flags, uint64_t uid,
	struct mcast **out);
struct mcast *multicast_new(struct id *id, uint64_t uid); /* NULL: no memory, or too many */
struct mcast *multicast_of_serial(const struct channel *ch, uint64_t serial); /* NULL: none */
/* what its event says */
void multicast_event(const struct mcast *m, struct rdma_ucm_event_resp *resp);
/* NULL: -ENOENT, or -EINVAL: another channel's */
struct mcast *multicast_find(const struct channel *ch, uint32_t handle, int *err);
void multicast_free(struct mcast *m); /* after its events were dropped */
void multicast_id_end(struct id *id);

/* real.c: -ENODEV from any of them means "not the kernel's business" */
int real_bind(struct id *id, const struct endpoint *e);
void real_bind_beside(struct id *id);
void real_listen_beside(struct id *id, uint32_t backlog);
int real_resolve_addr(struct id *id, const struct endpoint *src, const struct endpoint *dst);
int real_command(struct id *id, uint32_t number, const void *in, size_t in_len, int id_at,
	void *out, size_t out_len, int response_at);
/* JOIN_IP_MCAST or JOIN_MCAST, and LEAVE_MCAST, of an id that is the kernel's. 0 or -errno */
int real_join(struct id *id, uint32_t number, const void *in, size_t in_len, int id_at,
	struct rdma_ucm_create_id_resp *out, int response_at);
int real_leave(const struct mcast *m);
int real_migrate(struct id *id, struct channel *from, struct channel *to);
void real_end(struct id *id);
void real_close(struct channel *ch);

/* resolve.c: looks for the host at dst; `then` (one for all ids) is called with 0 or -ETIMEDOUT, at
 * once or later. The id may go meanwhile. */
void resolve_begin(struct id *id, void (*then)(struct id *id, int status));
uint64_t resolve_deadline(void *user);
void resolve_timer(void *user, uint64_t now_ns);

/* addr.c */
/* 0; -EAFNOSUPPORT; -EINVAL too short */
int endpoint_read(const void *sockaddr, size_t room, struct endpoint *e);
void endpoint_write(const struct endpoint *e, struct sockaddr_in6 *out);
bool addr_is_any(const struct rpwi_addr *a);
bool addr_is_loopback(const struct rpwi_addr *a);
/* The local address from which the kernel would send to dst. src: one that the program chose, or
 * any. 0 or -errno (ENETUNREACH and so on). Takes no lock. */
int addr_route(const struct rpwi_addr *src, const struct rpwi_addr *dst, struct rpwi_addr *local);
const char *endpoint_text(const struct endpoint *e, char text[64]);

#endif
