/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_plane.c - devices: opening them, what their ports offer, buffers, and the completion
 * queue's size. */
#include "tran/verbs/verbs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SOFTWARE_VENDOR_ID = 0x726f70 }; /* "rop": src/device */

/* ---- what a port offers ---- */

/* Width and speed of an active port, in the units of the specification (PortInfo), in Mbit/s. */
static uint32_t port_mbps(const struct ibv_port_attr *a)
{
	static const struct {
		uint8_t code;
		uint32_t mbps;
	} lanes[] = {{1, 2500}, {2, 5000}, {4, 10000}, {8, 10000}, {16, 14000}, {32, 25000},
		{64, 50000}, {128, 100000}},
	  widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
	uint32_t lane = 0, width = 1;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(lanes); i++)
		lane = lanes[i].code == a->active_speed ? lanes[i].mbps : lane;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(widths); i++)
		width = widths[i].code == a->active_width ? widths[i].mbps : width;
	return lane * width;
}

/* libibverbs before 34 has no call for it. */
static bool sysfs_gid_type(const char *device, unsigned port, unsigned index, uint8_t *type)
{
	char path[160], text[32] = "";
	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/%u/gid_attrs/types/%u", device,
		port, index);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	*type = got > 0 && !strncmp(text, "RoCE v2", 7) ? VERBS_GID_ROCE_V2 : VERBS_GID_ROCE_V1;
	return got > 0;
}

static uint8_t type_of(const struct ibv_gid_entry *e)
{
	if (e->gid_type == IBV_GID_TYPE_ROCE_V2)
		return VERBS_GID_ROCE_V2;
	return e->gid_type == IBV_GID_TYPE_ROCE_V1 ? VERBS_GID_ROCE_V1 : VERBS_GID_IB;
}

static bool gid_query(const struct verbs_plane *p, const struct verbs_port *port, unsigned index,
	struct verbs_gid *g)
{
	static const uint8_t zero[16];
	union ibv_gid gid;
	struct ibv_gid_entry e;
	*g = (struct verbs_gid){.index = (uint8_t)index};
	if (p->v->_ibv_query_gid_ex &&
		!p->v->_ibv_query_gid_ex(p->ctx, port->port, index, &e, 0, sizeof(e))) {
		memcpy(g->raw, e.gid.raw, 16);
		g->type = type_of(&e);
		return memcmp(g->raw, zero, 16) != 0;
	}
	if (p->v->_ibv_query_gid_ex || p->v->ibv_query_gid(p->ctx, port->port, (int)index, &gid) ||
		!memcmp(gid.raw, zero, 16))
		return false;
	memcpy(g->raw, gid.raw, 16);
	return !port->ethernet || sysfs_gid_type(p->name, port->port, index, &g->type);
}

static unsigned mask_bits(const uint8_t *mask, unsigned bytes)
{
	unsigned bits = 0;
	for (unsigned i = 0; i < bytes; i++)
		bits += (unsigned)__builtin_popcount(mask[i]);
	return bits;
}

/* The subnet of a GID is that of the interface that has its address. */
static uint8_t gid_prefix(const struct ifaddrs *all, const uint8_t *gid)
{
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || !i->ifa_netmask)
			continue;
		if (i->ifa_addr->sa_family == AF_INET && rpwi_verbs_gid_is_ipv4(gid) &&
			!memcmp(&((struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr, gid + 12,
				4))
			return (uint8_t)(96 +
					 mask_bits((const uint8_t *)&((struct sockaddr_in *)(void *)
									      i->ifa_netmask)
							   ->sin_addr,
						 4));
		if (i->ifa_addr->sa_family == AF_INET6 &&
			!memcmp(&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr, gid, 16))
			return (uint8_t)mask_bits(
				(const uint8_t *)&((struct sockaddr_in6 *)(void *)i->ifa_netmask)
					->sin6_addr,
				16);
	}
	return 0;
}

/* An address that a device of the other kind, listed before this one, has: where the drop-in shows
 * its devices beside real ones, the kernel holds UDP port 4791 of those addresses. */
static bool gid_taken(const struct verbs_plane *p, const uint8_t *gid)
{
	for (unsigned i = 0; i < p->t->planes; i++) {
		const struct verbs_plane *q = p->t->plane[i];
		for (unsigned n = 0; q->software != p->software && n < q->ports; n++)
			for (unsigned g = 0; g < q->port[n].gids; g++)
				if (!memcmp(q->port[n].gid[g].raw, gid, 16))
					return true;
	}
	return false;
}

/* Where the table has more than an offer takes: an entry that a better one replaces. Of RoCE v1
 * nobody has need who has v2. */
static bool gid_spare(const struct verbs_gid *g)
{
	return g->type == VERBS_GID_ROCE_V1 || rpwi_verbs_gid_is_link_local(g->raw);
}

static struct verbs_gid *gid_place(struct verbs_port *port, const struct verbs_gid *g)
{
	if (port->gids < VERBS_GIDS_MAX)
		return &port->gid[port->gids++];
	for (unsigned i = VERBS_GIDS_MAX; i-- && !gid_spare(g);)
		if (gid_spare(&port->gid[i]))
			return &port->gid[i];
	return NULL;
}

static void gids_query(const struct verbs_plane *p, struct verbs_port *port, int table_len)
{
	struct ifaddrs *all = NULL;
	bool taken = false;
	if (getifaddrs(&all))
		all = NULL;
	for (unsigned i = 0; i < (unsigned)RPWI_MIN(table_len, 256); i++) {
		struct verbs_gid g, *place;
		if (!gid_query(p, port, i, &g))
			continue;
		if (gid_taken(p, g.raw)) {
			taken = true;
			continue;
		}
		g.prefix = port->ethernet ? gid_prefix(all, g.raw) : 64;
		place = gid_place(port, &g);
		if (place)
			*place = g;
	}
	if (all)
		freeifaddrs(all);
	if (taken && port->gids == 1 && rpwi_verbs_gid_is_link_local(port->gid[0].raw))
		port->gids = 0; /* of the same interface */
}

static bool port_query(struct verbs_plane *p, uint8_t number, struct verbs_port *port)
{
	struct ibv_port_attr a;
	memset(&a, 0, sizeof(a));
	if (p->v->ibv_query_port(p->ctx, number, (struct _compat_ibv_port_attr *)&a) ||
		a.state != IBV_PORT_ACTIVE)
		return false;
	*port = (struct verbs_port){.dev = (uint8_t)p->index,
		.port = number,
		.mtu = (uint8_t)a.active_mtu,
		.rd_in = p->rd_in,
		.ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET,
		.atomics = p->atomics,
		.software = p->software,
		.lid = a.lid,
		.mbps = port_mbps(&a)};
	memcpy(port->name, p->name, sizeof(port->name));
	gids_query(p, port, a.gid_tbl_len);
	return port->gids > 0;
}

static bool device_query(struct verbs_plane *p)
{
	struct ibv_device_attr a;
	memset(&a, 0, sizeof(a));
	if (p->v->ibv_query_device(p->ctx, &a) || a.max_srq < 1 || a.max_qp_wr < VERBS_SQ_DEPTH)
		return false;
	p->software = a.vendor_id == SOFTWARE_VENDOR_ID;
	p->atomics = a.atomic_cap != IBV_ATOMIC_NONE;
	p->rd_in = (uint8_t)RPWI_MAX(RPWI_MIN(a.max_qp_rd_atom, (int)VERBS_RD_ATOMIC), 1);
	p->rd_out = (uint8_t)RPWI_MAX(RPWI_MIN(a.max_qp_init_rd_atom, (int)VERBS_RD_ATOMIC), 1);
	p->srq_max = (unsigned)RPWI_MAX(RPWI_MIN(a.max_srq_wr, (int)VERBS_SRQ_MAX), 1);
	for (unsigned i = 1; i <= a.phys_port_cnt && p->ports < VERBS_DEV_PORTS_MAX; i++)
		if (port_query(p, (uint8_t)i, &p->port[p->ports]))
			p->ports++;
	return p->ports > 0;
}

/* ---- opening and closing ---- */

static void pool_free(const struct verbs_table *v, struct verbs_pool *pool)
{
	struct verbs_chunk *next;
	for (struct verbs_chunk *c = pool->chunks; c; c = next) {
		next = c->next;
		v->ibv_dereg_mr(c->mr);
		munmap(c->mem, (size_t)VERBS_CHUNK_SLOTS * VERBS_SLOT_BYTES);
		free(c);
	}
}

static void plane_free(struct verbs_plane *p)
{
	const struct verbs_table *v = p->v;
	if (p->srq)
		v->ibv_destroy_srq(p->srq);
	if (p->cq)
		v->ibv_destroy_cq(p->cq);
	if (p->channel)
		v->ibv_destroy_comp_channel(p->channel);
	pool_free(v, &p->rx);
	pool_free(v, &p->tx);
	if (p->pd)
		v->ibv_dealloc_pd(p->pd);
	if (p->ctx)
		v->ibv_close_device(p->ctx);
	free(p->map);
	free(p->wc);
	free(p);
}

static bool non_blocking(int fd) { return !fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

static bool plane_objects(struct verbs_plane *p)
{
	const struct verbs_table *v = p->v;
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = p->index};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = p->srq_max, .max_sge = 1}};
	if (!(p->wc = calloc(VERBS_POLL_BATCH, sizeof(*p->wc))))
		return false;
	p->wc_size = VERBS_POLL_BATCH;
	if (!(p->pd = v->ibv_alloc_pd(p->ctx)) ||
		!(p->channel = v->ibv_create_comp_channel(p->ctx)))
		return false;
	p->cq_size = VERBS_CQ_MIN;
	if (!(p->cq = v->ibv_create_cq(p->ctx, VERBS_CQ_MIN, p, p->channel, 0)) ||
		!(p->srq = v->ibv_create_srq(p->pd, &srq)))
		return false;
	return non_blocking(p->channel->fd) && non_blocking(p->ctx->async_fd) &&
	       !epoll_ctl(p->t->epoll_fd, EPOLL_CTL_ADD, p->channel->fd, &ev);
}

static struct verbs_plane *plane_new(
	struct verbs *t, const struct verbs_table *v, struct ibv_device *d, unsigned index)
{
	struct verbs_plane *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->t = t;
	p->v = v;
	p->index = index;
	p->inline_max = UINT_MAX;
	snprintf(p->name, sizeof(p->name), "%s", v->ibv_get_device_name(d));
	errno = 0;
	p->ctx = v->ibv_open_device(d);
	if (!p->ctx) {
		rpwi_fail(RPW_ERR_SYSTEM, "verbs: device %s cannot be opened: %s", p->name,
			strerror(errno));
	} else if (!device_query(p)) {
		rpwi_fail(RPW_ERR_SYSTEM,
			"verbs: device %s has no active port with a GID of its own: bring its "
			"interface up and give it an address",
			p->name);
	} else if (!plane_objects(p)) {
		rpwi_fail(RPW_ERR_SYSTEM,
			"verbs: device %s gives no queues: %s (with ENOMEM: raise the limit of "
			"locked memory, ulimit -l)",
			p->name, strerror(errno));
	} else {
		return p;
	}
	rpwi_debug("%s", rpwi_last_error()->text);
	plane_free(p);
	return NULL;
}

static void planes_of(struct verbs *t, const struct verbs_table *v)
{
	int n = 0;
	struct ibv_device **list = v->ibv_get_device_list(&n);
	for (int i = 0; list && i < n && t->planes < VERBS_PLANES_MAX; i++) {
		bool wanted =
			rpwi_verbs_listed(t->own.rdma_devices, v->ibv_get_device_name(list[i]));
		struct verbs_plane *p = wanted ? plane_new(t, v, list[i], t->planes) : NULL;
		if (p)
			t->plane[t->planes++] = p;
	}
	if (list)
		v->ibv_free_device_list(list);
}

int rpwi_verbs_planes_open(struct verbs *t)
{
	char why[256] = "";
	for (int source = VERBS_REAL; source < VERBS_SOURCES && !t->planes; source++) {
		const struct verbs_table *v =
			rpwi_verbs_table((enum verbs_source)source, why, sizeof(why));
		if (v)
			planes_of(t, v);
		else if (source == VERBS_SOFTWARE)
			return rpwi_fail(RPW_ERR_UNREACHABLE, "verbs: %s", why);
	}
	return t->planes ? 0
			 : rpwi_fail(RPW_ERR_UNREACHABLE,
				   "verbs: none of the devices can be used: %s",
				   rpwi_last_error()->text);
}

void rpwi_verbs_planes_close(struct verbs *t)
{
	for (unsigned i = 0; i < t->planes; i++)
		plane_free(t->plane[i]);
	t->planes = 0;
}

/* ---- buffers ---- */

static bool pool_grow(struct verbs_plane *p, struct verbs_pool *pool)
{
	const size_t bytes = (size_t)VERBS_CHUNK_SLOTS * VERBS_SLOT_BYTES;
	struct verbs_chunk *c = calloc(1, sizeof(*c));
	if (!c)
		return false;
	/* Pages of their own, not touched before they are used: idle endpoints cost address
	 * space. */
	c->mem = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c->mr = c->mem == MAP_FAILED
			? NULL
			: p->v->ibv_reg_mr(p->pd, c->mem, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		rpwi_fail(RPW_ERR_NO_MEMORY,
			"verbs: %zu bytes of buffers cannot be registered with %s: %s; raise the "
			"limit of locked memory (ulimit -l)",
			bytes, p->name, strerror(errno));
		if (c->mem != MAP_FAILED)
			munmap(c->mem, bytes);
		free(c);
		return false;
	}
	for (unsigned i = 0; i < VERBS_CHUNK_SLOTS; i++) {
		c->slot[i].buf = (uint8_t *)c->mem + (size_t)i * VERBS_SLOT_BYTES;
		c->slot[i].lkey = c->mr->lkey;
		verbs_slot_put(pool, &c->slot[i]);
	}
	c->next = pool->chunks;
	pool->chunks = c;
	pool->slots += VERBS_CHUNK_SLOTS;
	return true;
}

struct verbs_slot *rpwi_verbs_slot_get(
	struct verbs_plane *p, struct verbs_pool *pool, unsigned slots_max)
{
	if (!pool->free && (pool->slots >= slots_max || !pool_grow(p, pool)))
		return NULL;
	struct verbs_slot *s = pool->free;
	pool->free = s->next;
	pool->free_count--;
	return s;
}

static unsigned rx_wanted(const struct verbs_plane *p)
{
	return p->eps ? RPWI_MIN(p->srq_max, verbs_rx_of(p, p->eps)) : 0;
}

static struct verbs_slot *rx_next(struct verbs_plane *p)
{
	struct verbs_slot *s = p->repost;
	if (!s)
		return rpwi_verbs_slot_get(p, &p->rx, p->srq_max);
	p->repost = s->next;
	return s;
}

void rpwi_verbs_rx_fill(struct verbs_plane *p)
{
	struct ibv_recv_wr wr[16], *bad;
	struct ibv_sge sge[RPWI_ARRAY_LEN(wr)];
	struct verbs_slot *slot[RPWI_ARRAY_LEN(wr)];
	unsigned wanted = rx_wanted(p);
	while (p->rx_posted < wanted) {
		unsigned n = 0;
		for (; n < RPWI_ARRAY_LEN(wr) && p->rx_posted + n < wanted &&
			(slot[n] = rx_next(p));
			n++) {
			sge[n] = (struct ibv_sge){.addr = (uintptr_t)slot[n]->buf,
				.length = VERBS_SLOT_BYTES,
				.lkey = slot[n]->lkey};
			wr[n] = (struct ibv_recv_wr){
				.wr_id = (uintptr_t)slot[n], .sg_list = &sge[n], .num_sge = 1};
			if (n)
				wr[n - 1].next = &wr[n];
		}
		if (!n)
			break;
		bad = NULL;
		int rc = ibv_post_srq_recv(p->srq, wr, &bad);
		unsigned good = n;
		if (rc)
			good = bad ? (unsigned)(bad - wr) : 0;
		p->rx_posted += good;
		for (unsigned i = good; i < n; i++)
			verbs_slot_put(&p->rx, slot[i]);
		if (rc) {
			rpwi_warn("verbs: %s takes no more receives: %s", p->name, strerror(rc));
			break;
		}
	}
	/* Fewer are wanted than before. */
	while (p->repost && p->rx_posted >= wanted) {
		struct verbs_slot *s = p->repost;
		p->repost = s->next;
		verbs_slot_put(&p->rx, s);
	}
}

/* ---- the completion queue ---- */

int rpwi_verbs_cq_reserve(struct verbs_plane *p)
{
	unsigned need = (p->qps + 1) * VERBS_SQ_DEPTH +
			RPWI_MIN(p->srq_max, p->qps + 1 + VERBS_RX_RESERVE + VERBS_RX_BUSY_MAX);
	unsigned size = p->cq_size;
	while (size < need)
		size *= 2;
	if (size == p->cq_size)
		return 0;
	int rc = p->v->ibv_resize_cq(p->cq, (int)size);
	if (rc)
		return rpwi_fail(RPW_ERR_LIMIT,
			"verbs: %s gives no completion queue of %u entries for %u endpoints: %s",
			p->name, size, p->qps + 1, strerror(rc));
	p->cq_size = size;
	return 0;
}

/* An event that nobody takes stays in the device's queue; all that they tell us is known from
 * completions. */
void rpwi_verbs_events_drain(struct verbs_plane *p)
{
	struct ibv_async_event e;
	for (unsigned i = 0; i < 64 && !p->v->ibv_get_async_event(p->ctx, &e); i++) {
		if (e.event_type == IBV_EVENT_DEVICE_FATAL || e.event_type == IBV_EVENT_CQ_ERR ||
			e.event_type == IBV_EVENT_PORT_ERR)
			rpwi_info("verbs: %s reports event %d", p->name, (int)e.event_type);
		p->v->ibv_ack_async_event(&e);
	}
}

/* ---- QPN -> queue ---- */

static uint32_t map_hash(uint32_t qpn) { return (qpn * 2654435761u) >> 8; }

static void map_put(struct verbs_plane *p, struct verbs_sq *q)
{
	uint32_t i = map_hash(q->qp->qp_num) & p->map_mask;
	while (p->map[i])
		i = (i + 1) & p->map_mask;
	p->map[i] = q;
}

int rpwi_verbs_map_add(struct verbs_plane *p, struct verbs_sq *q)
{
	if (!p->map || p->map_used * 2 >= p->map_mask) {
		struct verbs_sq **old = p->map;
		uint32_t old_size = old ? p->map_mask + 1 : 0;
		uint32_t size = old ? old_size * 2 : 16;
		struct verbs_sq **map = calloc(size, sizeof(struct verbs_sq *));
		if (!map)
			return rpwi_fail(
				RPW_ERR_NO_MEMORY, "verbs: no memory for one more queue pair");
		p->map = map;
		p->map_mask = size - 1;
		for (uint32_t i = 0; i < old_size; i++)
			if (old[i])
				map_put(p, old[i]);
		free(old);
	}
	map_put(p, q);
	p->map_used++;
	q->mapped = true;
	return 0;
}

void rpwi_verbs_map_del(struct verbs_plane *p, const struct verbs_sq *q)
{
	uint32_t i = map_hash(q->qp->qp_num) & p->map_mask;
	while (p->map[i] != q)
		i = (i + 1) & p->map_mask;
	p->map[i] = NULL;
	p->map_used--;
	/* What follows it may have been pushed on by it. */
	for (i = (i + 1) & p->map_mask; p->map[i]; i = (i + 1) & p->map_mask) {
		struct verbs_sq *moved = p->map[i];
		p->map[i] = NULL;
		map_put(p, moved);
	}
}

struct verbs_sq *rpwi_verbs_map_find(const struct verbs_plane *p, uint32_t qpn)
{
	if (!p->map)
		return NULL;
	for (uint32_t i = map_hash(qpn) & p->map_mask; p->map[i]; i = (i + 1) & p->map_mask)
		if (p->map[i]->qp->qp_num == qpn)
			return p->map[i];
	return NULL;
}
