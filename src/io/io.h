/* SPDX-License-Identifier: BSD-3-Clause */
/* io.h - the network as the device sees it: interfaces and GIDs, UDP port 4791 shared by all
 * processes of the host, captures, fault injection. Everything that makes a system call for packets
 * is here; nothing here knows a QP.
 *
 * Threads: the caller serializes all rpwi_steer_* and rpwi_port_* calls of its process with one
 * lock. Nothing blocks, but a send for a few ms while the socket is full, and opening a port that
 * another user holds (half a second, to ask). Another process's questions are answered inside
 * rpwi_steer_recv and rpwi_port_recv: the owner of an open port must call both when their
 * descriptors are readable (rpwi_steer_recv until it returns 0 before it sleeps: it may hold what
 * is no longer in the socket), and rpwi_port_timer when its deadline has come.
 */
#ifndef ROPEWAY_IO_H
#define ROPEWAY_IO_H

#include <sys/types.h>
#include <sys/uio.h>

#include "io/lane_ring.h"
#include "wire/icrc.h"
#include "wire/packet.h"

/* ---- netdev.c: what devices there are (rtnetlink) ---- */
enum { RPWI_GIDS_MAX = 16 };
struct rpwi_gid {
	uint8_t raw[16]; /* as ibv_gid */
	/* the address that carries it: the same, but ::1 for the made-up link-local GID of lo */
	struct rpwi_addr addr;
	bool usable; /* the address is really there now (tentative or made-up ones are not) */
};
enum rpwi_hidden {
	RPWI_NOT_HIDDEN,
	RPWI_HIDDEN_LOOPBACK,  /* the loopback interface's, beside others */
	RPWI_HIDDEN_BY_CHOICE, /* ROPEWAY_DEVICES names others */
};
struct rpwi_netdev {
	/* device name: rpw_<ifname>, a second IPv4 address of the interface rpw_<ifname>_1 */
	char name[32];
	char ifname[16];
	int ifindex;
	uint32_t mtu; /* the interface's, bytes */
	bool up, loopback;
	bool no_carrier;     /* why it is not up, though the administrator has it up */
	uint32_t speed_mbps; /* 0 unknown */
	uint8_t mac[6];
	/* 0 link-local, 1 the IPv4-mapped one (absent where there is no IPv4: then IPv6 follows),
	 * then IPv6. A profile may put them elsewhere, with empty places (family 0) between */
	struct rpwi_gid gid[RPWI_GIDS_MAX];
	unsigned gid_count;
	enum rpwi_hidden hidden; /* programs do not see it */
	bool for_want;           /* shown because no other device is active */
};
/* One entry for each IPv4 address, and for each interface with IPv6 alone; default route's
 * interface first, loopback last, then those that programs do not see. *list is malloc'ed. How
 * many programs see, or -errno; *all (may be NULL): how many there are. */
int rpwi_netdev_list(struct rpwi_netdev **list, unsigned *all);
/* The same in memory that is mapped, *bytes of it, for signal handlers; unmap it. */
int rpwi_netdev_map(struct rpwi_netdev **list, size_t *bytes, unsigned *all);
void rpwi_netdev_unmap(struct rpwi_netdev *list, size_t bytes);
/* The device's GUID, network order; the N of its uverbsN, which is its index. */
void rpwi_netdev_guid(const struct rpwi_netdev *d, uint8_t guid[8]);
/* down.c: of one that is not up: why, and what to do */
void rpwi_netdev_why_down(const struct rpwi_netdev *d, char *why, size_t why_len);
unsigned rpwi_netdev_uverbs(const struct rpwi_netdev *d);
/* A non-blocking descriptor that becomes readable when an address or link changes; drain with
 * rpwi_netdev_watch_read (true: something changed). fd or -errno. */
int rpwi_netdev_watch_open(void);
/* Likewise when anything changes that rpwi_netdev_route or rpwi_neighbor_begin may answer by. */
int rpwi_netdev_ways_open(void);
bool rpwi_netdev_watch_read(int fd);
/* The kernel's own decision about the way to an address. */
struct rpwi_route {
	bool local;  /* it is one of this host's own */
	bool direct; /* no router lies between, as far as this host knows */
	int ifindex;
	uint32_t hops; /* 0: the route has no hop limit of its own */
};
struct rpwi_route rpwi_netdev_route(const struct rpwi_addr *a);
/* The hop limit of packets that are sent there without one: the route's, else the system's
 * (net.ipv4.ip_default_ttl, net.ipv6.conf.*.hop_limit), which is read. */
uint8_t rpwi_netdev_hops(const struct rpwi_addr *a, const struct rpwi_route *r);

/* ---- neighbor.c: is there a host at an address of the own subnet? ---- */
struct rpwi_neighbor {
	struct rpwi_addr src, dst;
	int ifindex;
	uint64_t begun_ns, asked_ns;
};
/* Makes the kernel look for the host at dst, to which the route is r. False: nobody has to wait,
 * since it is known, this host's own, behind a router, or on an interface without address
 * resolution. A question to the kernel at most; no wait. */
bool rpwi_neighbor_begin(struct rpwi_neighbor *n, const struct rpwi_addr *src,
	const struct rpwi_addr *dst, const struct rpwi_route *r, uint64_t now_ns);
/* Is it not found yet? A question to the kernel; no wait. */
bool rpwi_neighbor_missing(struct rpwi_neighbor *n, uint64_t now_ns);
/* Both, and waits for it: 0, or -ETIMEDOUT. Call it without locks. */
int rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns);

/* ---- offer.c: which devices programs see ---- */
/* Fills in `hidden` and `for_want` of all. */
void rpwi_netdev_offer(struct rpwi_netdev *devs, unsigned n);
/* Does ROPEWAY_DEVICES name one that is not among them? The first such word. */
bool rpwi_netdev_unknown(const struct rpwi_netdev *devs, unsigned n, char *name, size_t room);
/* Of a hidden one: why, and how it is seen */
void rpwi_netdev_why_hidden(const struct rpwi_netdev *d, char *why, size_t why_len);
/* While the descriptor is open, this user's processes see the loopback interface's device beside
 * any other; for one that is shown for want of others and in use. Descriptor or -errno. */
int rpwi_loopback_hold(void);

/* ---- steer.c: which process gets a packet. A process owns one or more slots; a QPN is slot << 12
 * | index, slot 1..4094. Slots are claimed for the whole network namespace by abstract Unix names,
 * at which their owners listen; connections to them, whose owners are checked (SO_PEERCRED: see
 * who.c), carry packets that the kernel delivered to the wrong member of the SO_REUSEPORT group.
 * ---- */
enum { RPWI_SLOT_SHIFT = 12, RPWI_SLOT_QPNS = 1 << 12, RPWI_SLOT_MAX = 4094 };
struct rpwi_steer;
/* one a process, shared by all its devices; claims the first slot */
int rpwi_steer_open(struct rpwi_steer **out);
void rpwi_steer_close(struct rpwi_steer *s);
unsigned rpwi_steer_slots(const struct rpwi_steer *s, uint16_t *slots, unsigned max);
int rpwi_steer_claim(struct rpwi_steer *s, uint16_t *slot); /* one more slot; -ENOSPC */
/* Of the socket that has the first slot's name (/proc/net/unix); 0: not known. */
uint64_t rpwi_steer_inode(const struct rpwi_steer *s);
/* holder.c: does /proc show that the process has the socket? */
bool rpwi_holder_has_socket(const char *pid, unsigned long inode);
/* after -ENOSPC of rpwi_steer_open: their owners */
void rpwi_steer_explain_full(char *why, size_t why_len);
bool rpwi_steer_owns(const struct rpwi_steer *s, uint32_t qpn);
/* In the child of a fork, before anything else of io: closes the child's copies of all sockets
 * (they are the parent's), and makes every open steer and port of this process a dead shell:
 * sending gives -ENETDOWN, receiving nothing; close them as usual, and open anew. The device calls
 * it from its pthread_atfork child handler; its prepare handler must hold the lock over io. */
void rpwi_io_atfork_child(void);
/* A child of a fork goes on with what it inherited, its parent has ended: the slots are this
 * process's, for those who ask the kernel whose they are. */
void rpwi_steer_inherit(struct rpwi_steer *s);
/* readable when packets were handed over, or a member asks something */
int rpwi_steer_fd(const struct rpwi_steer *s);

/* Service IDs of the communication manager, claimed for our user's processes of the network
 * namespace: a claim on one address and one on all (family 0) exclude each other, whichever of
 * these processes has them. 0, -EADDRINUSE, -EADDRNOTAVAIL (claimed on all addresses, or on one,
 * where the other is asked for), or another -errno. The kernel releases what a process leaves
 * behind. */
int rpwi_steer_claim_service(
	struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr);
void rpwi_steer_unclaim_service(
	struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *addr);
/* by either kind of claim */
bool rpwi_steer_owns_service(
	const struct rpwi_steer *s, uint64_t service_id, const struct rpwi_addr *local);
/* Does a process of this network namespace have that slot now, whoever's it is? And: one to which
 * its packets may be handed? Asked of the kernel: one system call where a connection to it stands.
 * A process of ours that has ended is gone, whichever process takes its name. */
bool rpwi_steer_slot_exists(struct rpwi_steer *s, uint16_t slot);
bool rpwi_steer_slot_reachable(struct rpwi_steer *s, uint16_t slot);

/* Same-host pacing for what has no acknowledgements (UC, UD). Every process publishes how much it
 * has drained; a sender asks for room before it sends. Returns how many of `pkts` packets of
 * `bytes` bytes altogether may go to the process that owns `qpn` now (at least all of them if that
 * process is not on this host or publishes nothing); they are charged at the next rpwi_port_send,
 * which must be the one that was asked for. Never blocks. */
unsigned rpwi_steer_room(struct rpwi_steer *s, uint32_t qpn, unsigned pkts, size_t bytes);
/* Of the packets and bytes just granted, so many will not be sent after all; must be told when that
 * is all of them. */
void rpwi_steer_unused(struct rpwi_steer *s, unsigned pkts);

/* ---- port.c: one local address on UDP port 4791. ---- */
struct rpwi_port;
/* Open (or reference, if this process has it open) the port for a local address. -EADDRINUSE when
 * something holds it that is not of our user: `why` (RPWI_WHY_LEN bytes) then says who, and what to
 * do. With ROPEWAY_SHARE_PORT another user's ropeway is fine: it hands our packets over. lanes_do:
 * then it still opens, for peers that a lane reaches; what would go by UDP is not sent, until the
 * port is free. */
int rpwi_port_open(struct rpwi_steer *s, const struct rpwi_addr *local, bool lanes_do,
	struct rpwi_port **out, char *why, size_t why_len);
bool rpwi_port_is_mute(const struct rpwi_port *p); /* opened so, and it is not free yet */
void rpwi_port_close(struct rpwi_port *p);
/* receiving socket, to poll for input; -1 while another user's process receives for us (ask again
 * after rpwi_port_timer) */
int rpwi_port_fd(const struct rpwi_port *p);
/* Send a batch: ICRCs added, equal sizes grouped for GSO, faults injected, captured. Packets that
 * the kernel refuses are counted and lost, as on a wire; never blocks for more than a few ms. 0, or
 * -errno of the last refusal (-EFAULT: payload memory is not mapped: that packet and those after it
 * were not sent, *sent says how many were). -EREMOTEIO: sent; rpwi_port_icmp has word of earlier
 * ones. */
int rpwi_port_send(struct rpwi_port *p, const struct rpwi_txb *b, unsigned *sent);
/* The same of one packet for the owner of a slot on this host, straight to that process: in the
 * queue of another member of the port group it would be lost if that member ends. By UDP where that
 * cannot be, and where faults are injected. */
int rpwi_port_send_to_slot(
	struct rpwi_port *p, const struct rpwi_txb *b, uint16_t slot, unsigned *sent);
/* One datagram, or one GRO batch. seg_len is the size of each segment but the last (len, for one
 * datagram). */
struct rpwi_rx {
	struct rpwi_flow flow; /* src the peer, dst ours */
	uint8_t ttl, tos;
	uint8_t *data;
	size_t len;
	size_t seg_len; /* data is in the port's buffer, good until the next call */
	int32_t ip_id;  /* ID of the first segment when known, else -1 */
};
/* 1 with *rx filled, 0 nothing there, or -errno. What other processes handed over comes from
 * rpwi_steer_recv, for any address of this process; those are not handed over again. Received
 * packets are captured by the caller (once the ICRC check has told their ID), sent ones here. */
int rpwi_port_recv(struct rpwi_port *p, struct rpwi_rx *rx);
int rpwi_steer_recv(struct rpwi_steer *s, struct rpwi_rx *rx);
/* A packet in our socket for a QPN that is not ours: give it to its owner; counts, and has the
 * steering program renewed when that keeps happening. */
void rpwi_port_hand_over(struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg,
	size_t len, uint32_t qpn);
/* The same for a request for a service that is not ours, to its claimant. False, and nothing done,
 * when nobody has claimed it on that address. */
bool rpwi_port_hand_over_service(struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg,
	size_t len, uint64_t service_id);
/* Bytes (as SO_RCVBUF counts them, truesize) that a receiving socket gets on this machine: 425984
 * where rmem_max is the default. Cached. */
size_t rpwi_rcvbuf_bytes(void);
/* The port's own timers: injected delays, learning its place in the port group, packets that wait
 * to be handed over. Call rpwi_port_timer when the deadline has come. */
uint64_t rpwi_port_deadline(const struct rpwi_port *p);
/* A peer at that address has been silent for a while: if it is in the port group, that may have to
 * be learned anew. */
void rpwi_port_no_answer(struct rpwi_port *p, const struct rpwi_addr *peer, uint64_t now_ns);
void rpwi_port_timer(struct rpwi_port *p, uint64_t now_ns);
/* Fill rx->ttl and rx->tos from the packets (else 64 and 0): it costs a little for each receive,
 * and only a UD receive's GRH shows it. */
void rpwi_port_want_ttl(struct rpwi_port *p, bool want);
/* For tests and stats. */
struct rpwi_port_stats {
	uint64_t tx_datagrams, tx_syscalls, rx_datagrams, rx_syscalls, tx_refused, handed_over,
		hand_over_lost, taken_over, resteered, rx_overflow, icmp_lost;
};
void rpwi_port_stats(const struct rpwi_port *p, struct rpwi_port_stats *out);

/* ---- mcast.c: the multicast groups that this process is a member of ---- */
struct rpwi_mcast; /* a group on an interface */
/* Be a member (IGMP, MLD), and get what is sent to the group on UDP port 4791 of that interface:
 * this process's own copies, whoever else of this host gets some. Once for each group and
 * interface. `user` comes back from rpwi_mcast_recv. 0 or -errno, and why (RPWI_WHY_LEN bytes). */
int rpwi_mcast_join(const struct rpwi_addr *group, int ifindex, void *user, struct rpwi_mcast **out,
	char *why, size_t why_len);
void rpwi_mcast_leave(struct rpwi_mcast *m);
/* A member that takes nothing, or does again. Packets in the socket are still received. */
void rpwi_mcast_deaf(struct rpwi_mcast *m, bool deaf);
int rpwi_mcast_fd(void); /* readable when any group has something; -1: no groups */
/* As rpwi_port_recv, from the group that `user` was given with. */
int rpwi_mcast_recv(struct rpwi_rx *rx, void **user);
/* In the child of a fork, as rpwi_io_atfork_child: the memberships are the parent's. */
void rpwi_mcast_forget(void);
uint64_t rpwi_mcast_overflow(void); /* datagrams lost in full sockets so far */

/* ---- icmp.c: what routers and hosts say of packets that did not arrive. Anybody may have made
 * such a message: believe it only where what it quotes was sent. ---- */
enum rpwi_icmp_kind {
	RPWI_ICMP_TOO_BIG,   /* IPv4: fragmentation needed; IPv6: packet too big */
	RPWI_ICMP_HOPS,      /* time exceeded: the hop limit was used up on the way */
	RPWI_ICMP_NO_PORT,   /* port unreachable: nobody has UDP port 4791 there */
	RPWI_ICMP_NO_HOST,   /* network, host or protocol unreachable */
	RPWI_ICMP_FORBIDDEN, /* prohibited by somebody's rule */
	RPWI_ICMP_KINDS
};
struct rpwi_icmp {
	enum rpwi_icmp_kind kind;
	bool local;            /* the kernel of this host says it (TOO_BIG alone): no `from` */
	struct rpwi_addr from; /* who says it */
	struct rpwi_addr dst;  /* of the packet that it is about */
	uint32_t mtu;          /* TOO_BIG: bytes of the largest IP packet that passes; may be 0 */
	size_t quoted;         /* bytes of the UDP payload that it quotes, which are in: */
	uint8_t quote[RPWI_BTH_LEN];
};
/* The next one that is known of; false: none. Ask after rpwi_port_send has given an error, and
 * after rpwi_port_hear_icmp. Bounded: messages that come while 16 wait are counted (icmp_lost). */
bool rpwi_port_icmp(struct rpwi_port *p, struct rpwi_icmp *out);
/* To be polled for POLLERR alone (events 0; -1: none): then rpwi_port_hear_icmp. */
int rpwi_port_tx_fd(const struct rpwi_port *p);
void rpwi_port_hear_icmp(struct rpwi_port *p);
/* Bytes of an IP packet that the kernel lets pass from there to there now; 0: it has no route.
 * Takes four system calls. */
uint32_t rpwi_path_mtu(const struct rpwi_addr *local, const struct rpwi_addr *dst);

/* ---- lane.c: packets between two processes of our user in this network namespace, through shared
 * memory. ---- */
/* What ROPEWAY_WIRE asks for: lanes, whose large payloads go as is measured to be shorter; none;
 * all payloads copied into the lane; all fetched by their receiver, where that may be. */
enum rpwi_wire { RPWI_WIRE_AUTO, RPWI_WIRE_UDP, RPWI_WIRE_COPY, RPWI_WIRE_FETCH, RPWI_WIRES };
extern const char *const rpwi_wire_names[RPWI_WIRES + 1]; /* the last is NULL */
/* AUTO, too, for a word that it does not know; `unknown` (may be NULL) then is that word. */
enum rpwi_wire rpwi_wire_wanted(const char **unknown);
struct rpwi_lane;
struct rpwi_lanes;
/* Those of this process; as long as the steer, but NULL in a dead shell. NULL below: none. */
struct rpwi_lanes *rpwi_steer_lanes(const struct rpwi_steer *s);
/* The lane to the process that owns `qpn`, at an address of this host; NULL: by UDP. Asks for one
 * where there may be one. Valid until the next call of io. */
struct rpwi_lane *rpwi_lane_to(struct rpwi_lanes *ls, uint32_t qpn);
/* The same, where there is one and it is up: only looks. */
struct rpwi_lane *rpwi_lane_up(const struct rpwi_lanes *ls, uint32_t qpn);
/* Called before a lane to another process comes, goes, or changes what rpwi_lane_up and
 * rpwi_lane_peer tell: the caller keeps out who looks without its lock. */
void rpwi_lanes_on_change(struct rpwi_lanes *ls, void (*about_to)(void));
/* Who is asked about the packets that a lane is about to fetch. Before the first lane comes. */
void rpwi_lanes_place_by(struct rpwi_lanes *ls, lane_place_fn *place);
/* A lane was offered to the process of that QP a moment ago, and may be there soon. */
bool rpwi_lane_is_awaited(const struct rpwi_lanes *ls, uint32_t qpn);
/* Is there one, or is one being made? False: by UDP or not at all. */
bool rpwi_lane_reaches(struct rpwi_lanes *ls, uint32_t qpn);
/* How many of `pkts` packets of up to `bytes` bytes, headers and trailer included, have room now.
 * 0: rpwi_lanes_fd becomes readable when there is some. */
unsigned rpwi_lane_room(struct rpwi_lane *l, unsigned pkts, uint32_t bytes);
/* As rpwi_port_send, for a batch of which rpwi_lane_room has found room for each packet; `p` is the
 * port that it would go by. Without ICRCs, unless it is captured or a fault is injected: then as
 * datagrams. (tx.c) */
int rpwi_port_send_by_lane(
	struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_txb *b, unsigned *sent);
/* The same of one packet of at most LANE_SHORT_BYTES, by a port that is not watched. 0; -EFAULT:
 * its payload is not mapped, and nothing was sent. */
int rpwi_port_send_short(struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_av *av,
	const struct rpwi_short *s);
/* Is what it sends captured, or harmed? Then everything goes as packets. */
bool rpwi_port_is_watched(const struct rpwi_port *p);
/* Until one has come by a lane, or so many looks were in vain. */
void rpwi_lanes_linger(const struct rpwi_lanes *ls, unsigned looks);
/* The next packet that came by a lane; what the last call gave is done with. A payload of kind
 * LANE_BULK is where its sender can still change it: read it once. With a capture all are
 * LANE_DATAGRAM. */
bool rpwi_lanes_recv(struct rpwi_lanes *ls, struct lane_packet *p);
/* Of one that is several, each by itself: the n-th of rpwi_lane_packet_parts. */
void rpwi_lanes_nth(
	struct rpwi_lanes *ls, const struct lane_packet *p, unsigned n, struct lane_packet *out);
/* Packets that come next have been fetched, and perhaps to where they belong: take them before
 * anything else is done. */
bool rpwi_lanes_mid_run(const struct rpwi_lanes *ls);
/* Does a lane wait for that? Then look at all sockets. */
bool rpwi_lanes_any_new(const struct rpwi_lanes *ls);
/* All sockets of this process have just been found empty: packets sent before a lane began have
 * been taken. */
void rpwi_lanes_sockets_empty(struct rpwi_lanes *ls);
/* In the child of a fork by a signal handler that interrupted a call: what that call still does to
 * the lanes, until it returns, is not seen by the parent and its peers, who go on with them. */
void rpwi_lanes_leave(struct rpwi_lanes *ls);
/* Readable when a packet comes after rpwi_lanes_arm, or room that was waited for; -1: no lanes. */
int rpwi_lanes_fd(const struct rpwi_lanes *ls);
/* Before a sleep on that descriptor, and each time that another thread has received while one
 * sleeps. False: something is there already. */
bool rpwi_lanes_arm(struct rpwi_lanes *ls);
void rpwi_lanes_wake_self(const struct rpwi_lanes *ls);

/* What one process shows the others of itself: a board, memory that it writes and they read, which
 * goes along with the answer to each offer. It begins with this; the rest is the device's. */
struct rpwi_board_head {
	uint32_t magic, version;
	uint64_t bytes;
	uint64_t nonce_at; /* where in the process's own memory the nonce lies, too */
	_Atomic uint64_t nonce;
};
void rpwi_lanes_show_board(struct rpwi_lanes *ls, int fd); /* stays the caller's */
/* The process at the other end of a lane that is up. */
struct rpwi_lane_peer {
	const void *board;
	size_t bytes;
	int mem_fd; /* its memory (proc(5): /proc/PID/mem) */
	bool writable;
	pid_t pid;
	_Atomic uint64_t trusted; /* the device's: the nonce that was found there */
};
/* NULL: it shows none, or the kernel does not let us read its memory. */
struct rpwi_lane_peer *rpwi_lane_peer(struct rpwi_lane *l);
/* Is what mem_fd and pid read still the process whose board this is? */
bool rpwi_lane_peer_is_there(const struct rpwi_lane_peer *p);
/* `bytes` of its memory in one call, and its nonce behind them: by number, which is faster than by
 * descriptor, and all that one call reads is of one address space. Both arrays have room for one
 * piece more, the nonce's. False: not all, or it is not that process any more. */
bool rpwi_lane_peer_readv(const struct rpwi_lane_peer *p, struct iovec *to, unsigned nto,
	struct iovec *from, unsigned nfrom, size_t bytes);
/* The peer's process is stopped, all of it, and this one may write into its memory, until the other
 * call: the WRITEs to that QP from PSN `una` on that it has not taken are ours to do, from *from on
 * (LANE_NONE in lane_ring.h: there are none). Each packet of them was sent once. False: it runs, or
 * was stopped in the middle, or the kernel does not let us. */
bool rpwi_lane_take_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t una, uint32_t *from);
/* All before PSN `upto` are done; LANE_NONE: none. */
void rpwi_lane_give_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t upto);
/* A process that writes into our memory just now, or did when it was stopped itself: its number. 0:
 * there is none. */
pid_t rpwi_lanes_over(const struct rpwi_lanes *ls);
/* Payloads that are still to be fetched: those to that QP of a peer, and those from that memory,
 * will not be. To be called before the program hears that it may change them, unless it hears so by
 * their acknowledgement. */
void rpwi_lanes_revoke_qp(struct rpwi_lanes *ls, uint32_t dqpn);
void rpwi_lanes_revoke_memory(struct rpwi_lanes *ls, const void *addr, size_t len);
/* As far as one process can tell by itself: does the kernel let processes of this user read each
 * other's memory? False: why holds the reason. */
bool rpwi_lanes_may_fetch(char *why, size_t why_len);
struct rpwi_lane_stats {
	uint64_t tx_packets, tx_refs, rx_packets, rx_lost, wakes, stalls;
};
void rpwi_lanes_stats(const struct rpwi_lanes *ls, struct rpwi_lane_stats *out);

/* ---- pcapng.c: ROPEWAY_PCAP=file (a %p in it is the pid) and ROPEWAY_PCAP_LIMIT=n. True IP
 * headers, UDP, and the ICRC; DLT_RAW. ---- */
extern bool rpwi_tap_enabled; /* read once by rpwi_tap_init */
int rpwi_tap_init(void);      /* idempotent; reads the environment */
/* sent_ns: rpwi_tap_clock_ns from before the call that sent it, lest the receiver's capture has it
 * earlier than the sender's; 0: it was received, now. */
void rpwi_tap(const struct rpwi_flow *flow, uint16_t ip_id, uint8_t ttl, uint8_t tos,
	uint64_t sent_ns, const struct rpwi_iov *parts, unsigned nparts);
uint64_t rpwi_tap_clock_ns(void); /* the wall clock, as in captures */
/* also at exit, and after fork the child writes its own file or nothing */
void rpwi_tap_flush(void);

/* ---- fault.c: ROPEWAY_FAULT=drop=0.01,dup=..,reorder=..,corrupt=..,delay=<ms>,seed=.. ; pure:
 * decides, does not send. ---- */
struct rpwi_fault;
/* -EINVAL: `why` names the fault and the accepted words */
int rpwi_fault_parse(const char *spec, struct rpwi_fault **out, char *why, size_t why_len);
extern const char *const rpwi_fault_names[]; /* of the settings, up to a NULL */
void rpwi_fault_free(struct rpwi_fault *f);
struct rpwi_fault_verdict {
	bool drop, dup, corrupt;
	uint32_t corrupt_bit;
	bool hold; /* send after the next one */
	uint64_t delay_ns;
};
struct rpwi_fault_verdict rpwi_fault_next(struct rpwi_fault *f, size_t packet_len);

#endif
