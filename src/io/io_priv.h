/* SPDX-License-Identifier: BSD-3-Clause */
/* io_priv.h - what the files of io/ share. Nobody above includes it.
 *
 * Threads: as io.h says, one caller at a time over a process's steer and ports; so nothing here
 * locks.
 */
#ifndef ROPEWAY_IO_PRIV_H
#define ROPEWAY_IO_PRIV_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "io/io.h"
#include "near/memory.h"
#include "near/name.h"
#include "near/process.h"
#include "near/rights.h"

enum {
	IO_RCVBUF_BYTES = 8 << 20, /* what a receiving socket asks for */
	IO_SLOTS_MAX = 64,         /* of one process: 262,144 QPNs */
	IO_GRO_BYTES_MAX = 65536,  /* the most one receive can bring */
	IO_PROBE_SLOT = 4095,      /* no QP has it: probes of the port group go there */
	/* from here to RPWI_SLOT_MAX: of processes that take their packets from a stranger's hands
	 * (ROPEWAY_SHARE_PORT) */
	IO_SHARED_SLOT_MIN = 3583,
	IO_TTL_UNKNOWN = 64, /* a received TTL that nobody asked the kernel for */
};

static inline bool rpwi_slot_is_shared(uint16_t slot) { return slot >= IO_SHARED_SLOT_MIN; }
static inline uint16_t rpwi_slot_of(uint32_t qpn)
{
	return (uint16_t)((qpn & RPWI_QPN_MASK) >> RPWI_SLOT_SHIFT);
}

/* ---- sockaddr.c ---- */
union io_sockaddr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};
socklen_t rpwi_sockaddr_make(union io_sockaddr *sa, const struct rpwi_addr *a, uint16_t port);
/* False when it is of another family, or too short. */
bool rpwi_sockaddr_read(
	const union io_sockaddr *sa, socklen_t len, struct rpwi_addr *a, uint16_t *port);
enum { IO_ADDR_TEXT = 64 };
const char *rpwi_addr_text(const struct rpwi_addr *a, char text[IO_ADDR_TEXT]);

/* ---- udp.c: sockets that receive on port 4791 ---- */
int rpwi_udp_set(int fd, int level, int name, int value); /* an option: 0 or -errno */
/* Not bound yet: non-blocking, with GRO and a large buffer. A descriptor or -errno. */
int rpwi_udp_rx_socket(bool v6);
void rpwi_udp_want_ttl(int fd, bool v6, bool want);
/* One datagram or GRO batch for `dst` into buf[IO_GRO_BYTES_MAX]: 1 with *rx filled, 0: nothing
 * there, or -errno. */
int rpwi_udp_recv(int fd, uint8_t *buf, const struct rpwi_addr *dst, struct rpwi_rx *rx);

/* ---- holder.c: the holder of (address, 4791), as /proc/net/udp tells ---- */
struct io_holder {
	unsigned sockets; /* bound to just this address */
	bool wildcard;    /* some socket is bound to all addresses */
	uid_t uid;
	unsigned long inode;
};
/* 0 (sockets may be 0), or -errno where /proc does not tell. */
int rpwi_holder_find(const struct rpwi_addr *a, struct io_holder *h);
/* A ropeway process of that user in this network namespace, and who it is. */
bool rpwi_holder_find_user(uid_t uid, struct rpwi_who *who);
/* One sentence on who holds it and what to do. */
void rpwi_holder_explain(const struct rpwi_addr *a, char *why, size_t why_len);

/* ---- dest.c: what names stand for ---- */
/* Who is meant: the owner of a slot; or (slot 0) the claimant of a service ID on an address, family
 * 0: on all. Services are each user's own, but shared ones. */
struct io_dest {
	uint16_t slot;
	bool shared;
	uint64_t service_id;
	struct rpwi_addr addr;
};
bool rpwi_dest_eq(const struct io_dest *a, const struct io_dest *b);
const char *rpwi_dest_name(const struct io_dest *d, char name[RPWI_NAME_MAX]);

/* ---- line.c: connections between processes ---- */
struct io_line {
	struct rpwi_list link;
	uint32_t index; /* its number in the lines */
	enum { IO_LINE_LISTENER, IO_LINE_IN, IO_LINE_OUT } kind;
	int fd;
	struct io_dest name; /* but IN */
	struct io_line *via; /* IN: the listener that it came to */
	struct rpwi_who who; /* at the other end */
	/* OUT, once its owner has been asked for: a pidfd of who.pid, or -1; and since when that
	 * says that it has ended, while a copy of its end is open in a forked child; 0: it lives */
	int pid_fd;
	uint64_t dead_ns;
	/* Its end is told, before it is freed, and it makes room for no other: lane.c. */
	void (*on_end)(struct io_line *l);
	void *user;
};
enum io_owner { IO_OWNER_NOBODY, IO_OWNER_US, IO_OWNER_STRANGER };
struct rpwi_lines;
struct rpwi_lines *rpwi_lines_new(void); /* NULL: no memory, or no descriptor */
void rpwi_lines_free(struct rpwi_lines *ls);
/* readable when one of them is, or somebody connects */
int rpwi_lines_fd(const struct rpwi_lines *ls);
int rpwi_lines_listen(struct rpwi_lines *ls, const struct io_dest *name, struct io_line **out);
void rpwi_lines_unlisten(struct rpwi_lines *ls, struct io_line *listener);
/* one that has something to read, or is cut; each in turn; NULL: none */
struct io_line *rpwi_lines_ready(struct rpwi_lines *ls);
void rpwi_lines_drop(struct rpwi_lines *ls, struct io_line *l);
/* 0; -ECONNREFUSED: nobody has that name; -EPERM: a stranger has; -EAGAIN: full, for now; or
 * another -errno. Never blocks. */
int rpwi_lines_send(struct rpwi_lines *ls, const struct io_dest *to, const struct msghdr *h);
/* The connection to that name that stands now, or NULL. */
struct io_line *rpwi_lines_find(const struct rpwi_lines *ls, const struct io_dest *name);
/* Whose the name is now. The connection that this takes is kept: while it stands, the answer is two
 * system calls. Of a process of ours that has ended the answer is NOBODY, whoever took its name;
 * its forked child is it, if it says so within a second (rpwi_lines_heir). */
void rpwi_lines_heir(struct rpwi_lines *ls); /* all listeners are this process's now */
enum io_owner rpwi_lines_owner(struct rpwi_lines *ls, const struct io_dest *name);

/* ---- steer.c, towards the other files ---- */
enum io_msg_type {
	IO_MSG_PACKETS = 1,
	IO_MSG_PROBE_ANSWER,
	IO_MSG_PAGE_ASK,
	IO_MSG_PAGE_ANSWER,
	IO_MSG_LANE_OFFER,  /* with its memory, what wakes its sender, and its sender's board */
	IO_MSG_LANE_ANSWER, /* with what wakes its receiver, and its receiver's board */
};
/* What goes between ropeway processes of one host, in one message of a connection between them. */
struct io_msg {
	uint32_t magic;
	uint8_t version, type;
	uint16_t nslots; /* PROBE_ANSWER: in slots[] */
	uint64_t cookie; /* the asker's, returned in the answer */
	uint32_t index;  /* PROBE_ANSWER: place in the port group; PAGE_*: the slot asked about */
	uint32_t flags;  /* LANE_ANSWER: IO_LANE_* */
	uint16_t slots[IO_SLOTS_MAX];
};
/* After a message of type PACKETS: records of this, each with its `len` bytes behind it. */
struct io_packet {
	struct rpwi_flow flow;
	uint32_t len, seg_len;
	int32_t ip_id; /* expected ID of the first segment, or -1 */
	uint8_t ttl, tos;
};
enum { IO_MSG_MAGIC = 0x72707769, IO_MSG_VERSION = 3 };
enum { IO_LANE_REFS = 1 }; /* the receiver can read its sender's memory */
struct io_heard {
	struct io_msg msg;
	int fd[RPWI_RIGHTS_MAX]; /* that came along, or -1 */
	size_t len;              /* of the data after the message */
};
/* ---- message.c ---- */
/* 0 or -errno, as rpwi_lines_send. */
int rpwi_message_send(struct rpwi_lines *ls, const struct io_dest *to, struct io_msg *m,
	const struct iovec *data, unsigned parts);
/* with descriptors, which stay the caller's */
int rpwi_message_send_fds(struct rpwi_lines *ls, const struct io_dest *to, struct io_msg *m,
	const int *fds, unsigned nfds);
/* on the line that a question came by: 0 or -errno */
int rpwi_message_answer(const struct io_line *l, struct io_msg *m, const int *fds, unsigned nfds);
/* 1, 0 nothing there, -EBADMSG for what is not ours, -EPIPE at its end, or another -errno; data
 * goes to buf */
int rpwi_message_hear(int fd, struct io_heard *got, uint8_t *buf, size_t room);

struct io_port_list {
	struct rpwi_port *first;
};
extern struct io_port_list rpwi_ports; /* of this process */
bool rpwi_ports_receive(void);         /* does one of them hold its UDP port? */
/* 0 or -errno, as rpwi_lines_send. */
int rpwi_steer_tell(struct rpwi_steer *s, const struct io_dest *to, struct io_msg *m,
	const struct iovec *data, unsigned parts);
/* Answer what others ask; packets that come meanwhile wait for rpwi_steer_recv. */
void rpwi_steer_serve(struct rpwi_steer *s);
struct rpwi_handover *rpwi_steer_handover(struct rpwi_steer *s);
/* NULL in a dead shell (rpwi_io_atfork_child) */
struct rpwi_lines *rpwi_steer_lines(struct rpwi_steer *s);
void rpwi_steer_forget(void); /* the open one: in a fork's child */
struct rpwi_pace *rpwi_steer_pace(struct rpwi_steer *s);

/* ---- lane.c, towards steer.c and tx.c ---- */
struct rpwi_lanes *rpwi_lanes_new(struct rpwi_lines *lines); /* NULL: no memory */
void rpwi_lanes_free(struct rpwi_lanes *ls);                 /* after the lines */
void rpwi_lanes_own(struct rpwi_lanes *ls, uint16_t slot);   /* a slot of this process */
/* What came with the message; those that are taken are -1 afterwards. */
void rpwi_lanes_offered(struct rpwi_lanes *ls, struct io_line *line, const struct io_msg *m,
	int fds[RPWI_RIGHTS_MAX]);
void rpwi_lanes_answered(struct rpwi_lanes *ls, struct io_line *line, const struct io_msg *m,
	int fds[RPWI_RIGHTS_MAX]);
/* A batch, from that source port, without ICRCs. 0; -EFAULT as rpwi_port_send; -ENOSPC: no room. */
int rpwi_lane_fill(struct rpwi_lane *l, uint16_t sport, const struct rpwi_txb *b, unsigned *sent);
int rpwi_lane_short(
	struct rpwi_lane *l, uint16_t sport, const struct rpwi_av *av, const struct rpwi_short *s);
/* One with its ICRC, as injected faults left it. 0, or -ENOSPC: no room. */
int rpwi_lane_datagram(struct rpwi_lane *l, const struct rpwi_flow *flow, uint8_t ttl, uint8_t tos,
	const void *data, size_t len);

/* ---- claim.c: the services of this process ---- */
struct rpwi_claims;
struct rpwi_claims *rpwi_claims_new(struct rpwi_lines *ls); /* NULL: no memory */
void rpwi_claims_free(struct rpwi_claims *c);               /* the lines stay */
int rpwi_claims_add(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr);
void rpwi_claims_del(struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr);
bool rpwi_claims_cover(
	const struct rpwi_claims *c, uint64_t service_id, const struct rpwi_addr *addr);

/* ---- handover.c ---- */
struct rpwi_handover;
struct rpwi_handover *rpwi_handover_new(void);
void rpwi_handover_free(struct rpwi_handover *h);
void rpwi_handover_forget(struct rpwi_handover *h);
void rpwi_handover_pass(struct rpwi_handover *h, struct rpwi_steer *s, const struct io_dest *to,
	const struct io_packet *pkt, const void *data);
/* The same, but nothing waits: 0, or -errno and it is the caller's still */
int rpwi_handover_now(struct rpwi_handover *h, struct rpwi_steer *s, const struct io_dest *to,
	const struct io_packet *pkt, const void *data);
void rpwi_handover_retry(struct rpwi_handover *h, struct rpwi_steer *s);
uint64_t rpwi_handover_retry_at(const struct rpwi_handover *h);
/* where the records of a message are received */
uint8_t *rpwi_handover_buf(struct rpwi_handover *h, size_t *room);
/* they are there */
void rpwi_handover_arrived(struct rpwi_handover *h, const struct rpwi_who *who, size_t len);
bool rpwi_handover_pending(const struct rpwi_handover *h);
/* one of them; false: no more */
bool rpwi_handover_next(struct rpwi_handover *h, struct rpwi_rx *rx);
uint64_t rpwi_handover_taken(const struct rpwi_handover *h);
uint64_t rpwi_handover_lost(const struct rpwi_handover *h); /* packets */

/* ---- group.c: our place in the SO_REUSEPORT group ---- */
struct rpwi_group;
struct rpwi_group *rpwi_group_new(struct rpwi_port *p, struct rpwi_steer *s); /* NULL: no memory */
void rpwi_group_free(struct rpwi_group *g);
/* learn the places and install the program: begun now, finished by timer */
void rpwi_group_renew(struct rpwi_group *g, uint64_t now_ns);
/* packets landed here that were for others */
void rpwi_group_wrong_member(struct rpwi_group *g, unsigned pkts);
void rpwi_group_no_answer(struct rpwi_group *g, uint64_t now_ns);
/* true: it was one, and is dealt with */
bool rpwi_group_take_probe(struct rpwi_group *g, const struct rpwi_rx *rx);
void rpwi_group_answer(struct rpwi_group *g, const struct io_msg *m);
uint64_t rpwi_group_deadline(const struct rpwi_group *g);
void rpwi_group_timer(struct rpwi_group *g, uint64_t now_ns);
uint64_t rpwi_group_renewals(const struct rpwi_group *g);

/* ---- port.c, towards group.c and steer.c ---- */
/* -1 while another user's process receives for us */
int rpwi_port_rx_fd(const struct rpwi_port *p);
const struct rpwi_addr *rpwi_port_local(const struct rpwi_port *p);
struct rpwi_port *rpwi_port_next(const struct rpwi_port *p);
struct rpwi_group *rpwi_port_group(const struct rpwi_port *p);
int rpwi_port_send_to_self(struct rpwi_port *p, const void *data, size_t len);
void rpwi_port_forget(struct rpwi_port *p); /* in a fork's child: close what is the parent's */

/* ---- pace.c: the page in which a process publishes what it has drained ---- */
struct rpwi_pace;
int rpwi_pace_new(struct rpwi_pace **out);
void rpwi_pace_free(struct rpwi_pace *pc);
int rpwi_pace_fd(const struct rpwi_pace *pc); /* -1: nothing is published */
void rpwi_pace_set_limit(struct rpwi_pace *pc, size_t rcvbuf_bytes);
uint64_t rpwi_pace_snapshot(const struct rpwi_pace *pc); /* before a receive */
void rpwi_pace_progress(struct rpwi_pace *pc);           /* after one that brought something */
/* from the process that holds the port for us */
void rpwi_pace_arrived(struct rpwi_pace *pc, unsigned pkts, size_t bytes);
void rpwi_pace_empty(struct rpwi_pace *pc, uint64_t snapshot);
unsigned rpwi_pace_room(struct rpwi_pace *pc, struct rpwi_steer *s, uint16_t slot, bool own,
	unsigned pkts, size_t bytes);
void rpwi_pace_unused(struct rpwi_pace *pc, unsigned pkts);
bool rpwi_pace_granted(const struct rpwi_pace *pc); /* the send to come has been granted room */
/* for each datagram or GSO batch of it */
void rpwi_pace_charge(struct rpwi_pace *pc, unsigned pkts, size_t bytes);
void rpwi_pace_charged(struct rpwi_pace *pc); /* that was all of it */
void rpwi_pace_answer(struct rpwi_pace *pc, uint16_t slot, uint64_t cookie, int fd); /* takes fd */

#endif
