/* SPDX-License-Identifier: BSD-3-Clause */
/* gsi_fake.c - see gsi_fake.h. The functions of io/io.h that the device calls. */
#include "gsi_fake.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "device/hca.h"
#include "io/counters.h"
#include "io/helper.h"

struct gsi_fake fake;
bool rpwi_tap_enabled;

struct rpwi_port {
	struct rpwi_addr addr;
};
static struct rpwi_steer {
	char none;
} the_steer;

static const struct rpwi_addr lo4 = {.family = 4, .bytes = {127, 0, 0, 1}},
			      lo6 = {.family = 6, .bytes = {[15] = 1}},
			      eth4 = {.family = 4, .bytes = {10, 0, 0, 1}},
			      eth6 = {.family = 6, .bytes = {0xfe, 0x80, [15] = 1}, .scope = 2};

/* ---- the helper: none ---- */

bool rpwi_helper_is_off(void) { return false; } /* the ledger is kept all the same */
int rpwi_helper_connect(void) { return -EPERM; }
int rpwi_helper_start(void) { return -ENOENT; }
int rpwi_helper_hello(int fd, int ledger) { return -EPIPE; }
int rpwi_helper_nudge(int fd) { return -EPIPE; }
int rpwi_helper_hear(int fd, uint16_t *slot) { return -EPIPE; }

/* ---- interfaces ---- */

static struct rpwi_gid gid_of(const struct rpwi_addr *a)
{
	struct rpwi_gid g = {.addr = *a, .usable = true};
	if (a->family == 4) {
		g.raw[10] = g.raw[11] = 0xff;
		memcpy(g.raw + 12, a->bytes, 4);
	} else {
		memcpy(g.raw, a->bytes, 16);
	}
	return g;
}

void rpwi_netdev_guid(const struct rpwi_netdev *d, uint8_t guid[8]) { memcpy(guid, d->mac, 6); }
unsigned rpwi_netdev_uverbs(const struct rpwi_netdev *d) { return (unsigned)d->ifindex; }
bool rpwi_netdev_unknown(const struct rpwi_netdev *devs, unsigned n, char *name, size_t room)
{
	return false;
}
int rpwi_loopback_hold(void) { return -1; }
int rpwi_neighbor_wait(const struct rpwi_addr *src, const struct rpwi_addr *dst,
	const struct rpwi_route *r, uint64_t longest_ns)
{
	return 0;
}
int rpwi_netdev_list(struct rpwi_netdev **list, unsigned *all)
{
	struct rpwi_netdev *d = calloc(2, sizeof(*d));
	if (!d)
		return -ENOMEM;
	/* The link-local GID of lo is made up, and carried by ::1. */
	d[0] = (struct rpwi_netdev){.name = "rpw_lo",
		.ifname = "lo",
		.ifindex = 1,
		.mtu = 65536,
		.up = true,
		.loopback = true,
		.gid_count = 3};
	d[0].gid[0] = gid_of(&lo6);
	memcpy(d[0].gid[0].raw, (const uint8_t[16]){0xfe, 0x80, [15] = 9}, 16);
	d[0].gid[1] = gid_of(&lo4);
	d[0].gid[2] = gid_of(&lo6);
	d[1] = (struct rpwi_netdev){.name = "rpw_eth0",
		.ifname = "eth0",
		.ifindex = 2,
		.mtu = 1500,
		.up = true,
		.gid_count = 2};
	d[1].gid[0] = gid_of(&eth6);
	d[1].gid[1] = gid_of(&eth4);
	d[1].gid[1].usable = !fake.address_gone;
	*list = d;
	*all = 2;
	return 2;
}

int rpwi_netdev_watch_open(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
bool rpwi_netdev_watch_read(int fd) { return false; }
int rpwi_netdev_ways_open(void) { return -EMFILE; }
struct rpwi_route rpwi_netdev_route(const struct rpwi_addr *a)
{
	return (struct rpwi_route){.local = fake_is_local(a)};
}
uint8_t rpwi_netdev_hops(const struct rpwi_addr *a, const struct rpwi_route *r) { return 64; }
void rpwi_netdev_why_down(const struct rpwi_netdev *d, char *why, size_t why_len) { why[0] = 0; }
bool fake_is_local(const struct rpwi_addr *a)
{
	return (a->family == 4 && a->bytes[0] == 127) || rpwi_addr_eq(a, &lo6) ||
	       rpwi_addr_eq(a, &eth6) || (rpwi_addr_eq(a, &eth4) && !fake.address_gone);
}

/* ---- who else there is ---- */

static uint8_t bit_of_slot(unsigned slot)
{
	return slot > FAKE_SLOT && slot <= FAKE_SLOT + FAKE_OTHERS
		       ? (uint8_t)(1u << (slot - FAKE_SLOT - 1))
		       : 0;
}
static uint8_t bit_of_service(uint64_t id)
{
	return id - fake_service < FAKE_SERVICES ? (uint8_t)(1u << (id - fake_service)) : 0;
}

int rpwi_steer_open(struct rpwi_steer **out)
{
	*out = &the_steer;
	return 0;
}
void rpwi_steer_close(struct rpwi_steer *s) {}
unsigned rpwi_steer_slots(const struct rpwi_steer *s, uint16_t *slots, unsigned max)
{
	*slots = FAKE_SLOT;
	return 1;
}
int rpwi_steer_claim(struct rpwi_steer *s, uint16_t *slot) { return -ENOSPC; }
void rpwi_steer_explain_full(char *why, size_t why_len) {}
void rpwi_steer_inherit(struct rpwi_steer *s) {}
bool rpwi_steer_owns(const struct rpwi_steer *s, uint32_t qpn)
{
	return qpn >> RPWI_SLOT_SHIFT == FAKE_SLOT;
}
void rpwi_io_atfork_child(void) {}
int rpwi_steer_fd(const struct rpwi_steer *s) { return -1; }
uint64_t rpwi_steer_inode(const struct rpwi_steer *s) { return 0; }

int rpwi_steer_claim_service(struct rpwi_steer *s, uint64_t id, const struct rpwi_addr *addr)
{
	uint8_t bit = bit_of_service(id),
		*mine = addr->family ? &fake.claimed_here : &fake.claimed_all;
	if ((fake.claimed_here | fake.claimed_all | fake.services_elsewhere) & bit)
		return -EADDRINUSE;
	*mine |= bit;
	return 0;
}
void rpwi_steer_unclaim_service(struct rpwi_steer *s, uint64_t id, const struct rpwi_addr *addr)
{
	*(addr->family ? &fake.claimed_here : &fake.claimed_all) &= (uint8_t)~bit_of_service(id);
}
bool rpwi_steer_owns_service(const struct rpwi_steer *s, uint64_t id, const struct rpwi_addr *local)
{
	return (fake.claimed_all | (rpwi_addr_eq(local, &lo4) ? fake.claimed_here : 0)) &
	       bit_of_service(id);
}
bool rpwi_steer_slot_exists(struct rpwi_steer *s, uint16_t slot)
{
	return fake.slots_exist & bit_of_slot(slot);
}
bool rpwi_steer_slot_reachable(struct rpwi_steer *s, uint16_t slot)
{
	return fake.slots_exist & fake.slots_reachable & bit_of_slot(slot);
}
unsigned rpwi_steer_room(struct rpwi_steer *s, uint32_t qpn, unsigned pkts, size_t bytes)
{
	return pkts;
}
void rpwi_steer_unused(struct rpwi_steer *s, unsigned pkts) {}

/* ---- ports ---- */

bool rpwi_lane_reaches(struct rpwi_lanes *ls, uint32_t qpn) { return false; }
bool rpwi_lane_is_awaited(const struct rpwi_lanes *ls, uint32_t qpn) { return false; }
bool rpwi_port_is_mute(const struct rpwi_port *p) { return false; }
int rpwi_port_open(struct rpwi_steer *s, const struct rpwi_addr *local, bool lanes_do,
	struct rpwi_port **out, char *why, size_t why_len)
{
	if (fake.port_taken || !fake_is_local(local)) {
		snprintf(why, why_len, "it is taken, or no address of ours");
		return -EADDRINUSE;
	}
	*out = malloc(sizeof(**out));
	**out = (struct rpwi_port){*local};
	if (++fake.ports_open > FAKE_PORTS_MAX)
		fuzz_broken("more ports than there may be");
	return 0;
}
void rpwi_port_close(struct rpwi_port *p)
{
	fake.ports_open--;
	free(p);
}
int rpwi_port_fd(const struct rpwi_port *p) { return -1; }

int rpwi_port_send_to_slot(
	struct rpwi_port *p, const struct rpwi_txb *b, uint16_t slot, unsigned *sent)
{
	return rpwi_port_send(p, b, sent);
}
int rpwi_port_send(struct rpwi_port *p, const struct rpwi_txb *b, unsigned *sent)
{
	uint8_t bytes[RPWI_HDR_MAX + RPWI_MTU_MAX + 4];
	*sent = b->npkt;
	for (unsigned i = 0; i < b->npkt; i++) {
		const struct rpwi_txpkt *t = &b->pkt[i];
		size_t n = t->hdr_len;
		memcpy(bytes, t->hdr, n);
		for (unsigned k = 0; k < t->iov_count; k++) {
			const struct rpwi_iov *v = &b->iov[t->iov_first + k];
			if (v->len > sizeof(bytes) - n)
				fuzz_broken("a packet that is too long");
			memcpy(bytes + n, v->base, v->len);
			n += v->len;
		}
		fake_sent(b->av, &p->addr, bytes, n);
	}
	return fake.send_fails ? -ENETUNREACH : 0;
}

static int take(struct fake_batch *b, struct rpwi_rx *rx)
{
	free(fake.read);
	fake.read = b->data;
	if (!b->data)
		return 0;
	*rx = (struct rpwi_rx){.flow = b->flow,
		.ttl = 64,
		.data = b->data,
		.len = b->len,
		.seg_len = b->seg_len,
		.ip_id = -1};
	b->data = NULL;
	return 1;
}

int rpwi_port_recv(struct rpwi_port *p, struct rpwi_rx *rx)
{
	return rpwi_addr_eq(&p->addr, &fake.to_port.flow.dst) ? take(&fake.to_port, rx) : 0;
}
int rpwi_steer_recv(struct rpwi_steer *s, struct rpwi_rx *rx) { return take(&fake.handed, rx); }
void rpwi_port_hand_over(
	struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg, size_t len, uint32_t qpn)
{
	fake_handed_over(seg, len, qpn);
}
bool rpwi_port_hand_over_service(
	struct rpwi_port *p, const struct rpwi_rx *rx, const uint8_t *seg, size_t len, uint64_t id)
{
	if (!(fake.services_elsewhere & bit_of_service(id)))
		return false;
	fake_handed_over_service(seg, len, id);
	return true;
}
size_t rpwi_rcvbuf_bytes(void) { return 425984; }
uint64_t rpwi_port_deadline(const struct rpwi_port *p) { return RPWI_NEVER; }
void rpwi_port_timer(struct rpwi_port *p, uint64_t now_ns) {}
void rpwi_port_no_answer(struct rpwi_port *p, const struct rpwi_addr *peer, uint64_t now_ns) {}
bool rpwi_port_icmp(struct rpwi_port *p, struct rpwi_icmp *out) { return false; }
int rpwi_port_tx_fd(const struct rpwi_port *p) { return -1; }
void rpwi_port_hear_icmp(struct rpwi_port *p) {}
uint32_t rpwi_path_mtu(const struct rpwi_addr *local, const struct rpwi_addr *dst) { return 0; }
void rpwi_port_want_ttl(struct rpwi_port *p, bool want) {}
void rpwi_port_stats(const struct rpwi_port *p, struct rpwi_port_stats *out)
{
	*out = (struct rpwi_port_stats){0};
}

/* ---- no multicast groups ---- */

int rpwi_mcast_join(const struct rpwi_addr *group, int ifindex, void *user, struct rpwi_mcast **out,
	char *why, size_t why_len)
{
	return -EPERM;
}
void rpwi_mcast_leave(struct rpwi_mcast *m) {}
void rpwi_mcast_forget(void) {}
void rpwi_mcast_deaf(struct rpwi_mcast *m, bool deaf) {}
int rpwi_mcast_fd(void) { return -1; }
int rpwi_mcast_recv(struct rpwi_rx *rx, void **user) { return 0; }
uint64_t rpwi_mcast_overflow(void) { return 0; }

/* ---- captures: none ---- */

int rpwi_tap_init(void) { return 0; }
void rpwi_tap_flush(void) {}
void rpwi_tap(const struct rpwi_flow *flow, uint16_t ip_id, uint8_t ttl, uint8_t tos,
	uint64_t sent_ns, const struct rpwi_iov *parts, unsigned nparts)
{
}

/* ---- the service thread: the target makes progress itself ---- */

int __wrap_service_start(void);
int __wrap_service_start(void)
{
	hca_here.service_running = true;
	return 0;
}
void __wrap_service_stop(void);
void __wrap_service_stop(void) { hca_here.service_running = false; }
int __wrap_rpwi_guard_install(void);
int __wrap_rpwi_guard_install(void) { return 0; }

/* ---- no lanes ---- */

struct rpwi_lanes *rpwi_steer_lanes(const struct rpwi_steer *s) { return NULL; }
struct rpwi_lane *rpwi_lane_to(struct rpwi_lanes *ls, uint32_t qpn) { return NULL; }
unsigned rpwi_lane_room(struct rpwi_lane *l, unsigned pkts, uint32_t bytes) { return 0; }
int rpwi_port_send_short(struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_av *av,
	const struct rpwi_short *s)
{
	return -ENETDOWN;
}
int rpwi_port_send_by_lane(
	struct rpwi_port *p, struct rpwi_lane *l, const struct rpwi_txb *b, unsigned *sent)
{
	return -ENETDOWN;
}
void rpwi_lanes_linger(const struct rpwi_lanes *ls, unsigned looks) {}
bool rpwi_lanes_recv(struct rpwi_lanes *ls, struct lane_packet *p) { return false; }
void rpwi_lanes_leave(struct rpwi_lanes *ls) {}
struct rpwi_lane *rpwi_lane_up(const struct rpwi_lanes *ls, uint32_t qpn) { return NULL; }
void rpwi_lanes_on_change(struct rpwi_lanes *ls, void (*about_to)(void)) {}
void rpwi_lanes_place_by(struct rpwi_lanes *ls, lane_place_fn *place) {}
void rpwi_lanes_nth(
	struct rpwi_lanes *ls, const struct lane_packet *p, unsigned n, struct lane_packet *out)
{
	*out = *p;
}
void rpwi_lane_packet_ack(const struct lane_packet *p, struct rpwi_pkt *ack)
{
	rpwi_pkt_clear(ack);
}
bool rpwi_lanes_mid_run(const struct rpwi_lanes *ls) { return false; }
bool rpwi_lanes_any_new(const struct rpwi_lanes *ls) { return false; }
void rpwi_lanes_sockets_empty(struct rpwi_lanes *ls) {}
int rpwi_lanes_fd(const struct rpwi_lanes *ls) { return -1; }
bool rpwi_lanes_arm(struct rpwi_lanes *ls) { return true; }
void rpwi_lanes_wake_self(const struct rpwi_lanes *ls) {}
void rpwi_lanes_stats(const struct rpwi_lanes *ls, struct rpwi_lane_stats *out)
{
	*out = (struct rpwi_lane_stats){0};
}
bool rpwi_port_is_watched(const struct rpwi_port *p) { return true; }

void rpwi_lanes_show_board(struct rpwi_lanes *ls, int fd) {}
struct rpwi_lane_peer *rpwi_lane_peer(struct rpwi_lane *l) { return NULL; }
bool rpwi_lane_peer_is_there(const struct rpwi_lane_peer *p) { return false; }
bool rpwi_lane_peer_readv(const struct rpwi_lane_peer *p, struct iovec *to, unsigned nto,
	struct iovec *from, unsigned nfrom, size_t bytes)
{
	return false;
}
bool rpwi_lane_take_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t una, uint32_t *from)
{
	return false;
}
void rpwi_lane_give_over(struct rpwi_lane *l, uint32_t dqpn, uint32_t upto) {}
pid_t rpwi_lanes_over(const struct rpwi_lanes *ls) { return 0; }
void rpwi_lanes_revoke_qp(struct rpwi_lanes *ls, uint32_t dqpn) {}
void rpwi_lanes_revoke_memory(struct rpwi_lanes *ls, const void *addr, size_t len) {}

/* ---- counters: of this process alone ---- */

static struct rpwi_counters counted;
void rpwi_counters_begin(uint16_t slot, uint64_t socket_inode) {}
struct rpwi_counters *rpwi_counters_of(const char *device) { return &counted; }
void rpwi_counters_end(void) {}
void rpwi_counters_forget(void) {}
void rpwi_counters_is_forked(void) {}
struct rpwi_counters_qp *rpwi_counters_qp_begin(const char *device, uint32_t qpn, uint8_t type)
{
	return NULL;
}
void rpwi_counters_qp_peer(struct rpwi_counters_qp *row, const uint8_t gid[16], uint32_t qpn) {}
void rpwi_counters_qp_end(struct rpwi_counters *of, struct rpwi_counters_qp *row) {}
