/* SPDX-License-Identifier: BSD-3-Clause */
/* mcast.c - multicast groups of the device. A group is an IP group on an interface: the process is
 * a member as long as a QP is attached, or an rdma_cm id has joined. It begins with the first and
 * ends with the last of them; while no QP is attached its socket takes nothing.
 *
 * A datagram that comes is checked once (its QPN, opcode and ICRC) and then given to each QP that
 * is attached, which checks P_Key and Q_Key itself as for any other (IB 9.6.1.3, 9.6.1.4). What
 * this host sends comes back to it, to the sending QP as well if it is attached, as with kernel rxe
 * and NICs, unless that QP was created with IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.
 */
#include "device/mcast.h"

#include <stdlib.h>

#include "device/gsi.h"
#include "device/ports.h"

enum {
	/* as for ports: after so many polls in vain it is looked at every 16th time */
	QUIET_POLLS = 64,
	QUIET_EVERY = 16,
};

struct group {
	struct rpwi_list link;
	struct rpwi_addr addr;
	int ifindex;
	unsigned joins; /* of rdma_cm ids */
	struct rpwi_mcast *io;
	struct dqp **qps;
	unsigned nqps, room;
};

static struct rpwi_list groups = {&groups, &groups};
static unsigned ngroups, attached; /* attached: QPs, each once for each of its groups */
static struct {
	unsigned quiet; /* in vain, in a row */
	unsigned late;  /* not made, while it is quiet, but each QUIET_EVERY-th */
} polls;
static struct {
	uint64_t datagrams, copies, own, wrong_qpn, by_unicast, bad;
} n;

/* ---- groups ---- */

static struct group *group_find(const struct rpwi_addr *a, int ifindex)
{
	for (struct rpwi_list *l = groups.next; l != &groups; l = l->next) {
		struct group *g = RPWI_CONTAINER_OF(l, struct group, link);
		if (g->ifindex == ifindex && rpwi_addr_eq(&g->addr, a))
			return g;
	}
	return NULL;
}

/* The one there is, or a new one, deaf. 0 or -errno. */
static int group_get(const struct rpwi_addr *a, int ifindex, struct group **out)
{
	char why[RPWI_WHY_LEN] = "";
	struct group *g = *out = group_find(a, ifindex);
	if (g)
		return 0;
	uint64_t most = rpwi_like_most(RPWI_LIKE_MAX_MCAST_GRP);
	if (!most)
		return -EOPNOTSUPP;
	if (ngroups >= most) {
		rpwi_warn("more than %u multicast groups in one process", (unsigned)most);
		return -ENOMEM;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	int rc = rpwi_mcast_join(a, ifindex, g, &g->io, why, sizeof(why));
	if (rc) {
		rpwi_warn("a multicast group cannot be joined: %s", *why ? why : strerror(-rc));
		free(g);
		return rc;
	}
	rpwi_mcast_deaf(g->io, true);
	g->addr = *a;
	g->ifindex = ifindex;
	rpwi_list_add_tail(&groups, &g->link);
	ngroups++;
	*out = g;
	return 0;
}

static void group_free(struct group *g)
{
	rpwi_list_del(&g->link);
	ngroups--;
	attached -= g->nqps;
	free(g->qps);
	free(g);
}

static void group_end_if_unused(struct group *g)
{
	if (g->nqps || g->joins)
		return;
	rpwi_mcast_leave(g->io);
	group_free(g);
}

/* ---- attaching ---- */

static bool read_gid(const struct dqp *q, const union ibv_gid *gid, struct rpwi_addr *a)
{
	gid_to_addr(gid, q->ctx->dev->net.ifindex, a);
	return q->t.type == IBV_QPT_UD && rpwi_addr_is_mcast(a);
}

static unsigned index_of(const struct group *g, const struct dqp *q)
{
	unsigned i = 0;
	while (i < g->nqps && g->qps[i] != q)
		i++;
	return i;
}

/* 0 or -errno; ENOMEM is what kernel rxe says of too many. */
static int add(struct group *g, struct dqp *q)
{
	if (index_of(g, q) < g->nqps)
		return 0; /* as the kernel has it */
	if (g->nqps >= rpwi_like_most(RPWI_LIKE_MAX_MCAST_QP_ATTACH) ||
		attached >= rpwi_like_most(RPWI_LIKE_MAX_TOTAL_MCAST_QP_ATTACH))
		return -ENOMEM;
	if (g->nqps == g->room) {
		unsigned room = g->room ? 2 * g->room : 4;
		struct dqp **qps = realloc(g->qps, room * sizeof(struct dqp *));
		if (!qps)
			return -ENOMEM;
		g->qps = qps;
		g->room = room;
	}
	if (!g->nqps)
		rpwi_mcast_deaf(g->io, false);
	g->qps[g->nqps++] = q;
	q->groups++;
	attached++;
	return 0;
}

static void remove_at(struct group *g, unsigned i)
{
	g->qps[i]->groups--;
	attached--;
	g->qps[i] = g->qps[--g->nqps];
	if (!g->nqps && g->joins)
		rpwi_mcast_deaf(g->io, true);
}

int mcast_attach(struct dqp *q, const union ibv_gid *gid)
{
	struct rpwi_addr a;
	struct group *g;
	int rc = read_gid(q, gid, &a) ? group_get(&a, q->ctx->dev->net.ifindex, &g) : -EINVAL;
	if (rc)
		return rc;
	rc = add(g, q);
	group_end_if_unused(g);
	return rc;
}

int mcast_detach(struct dqp *q, const union ibv_gid *gid)
{
	struct rpwi_addr a;
	struct group *g = read_gid(q, gid, &a) ? group_find(&a, q->ctx->dev->net.ifindex) : NULL;
	unsigned i = g ? index_of(g, q) : 0;
	if (!g || i == g->nqps)
		return -EINVAL;
	remove_at(g, i);
	group_end_if_unused(g);
	return 0;
}

int rpwi_gsi_mcast_join(const struct rpwi_addr *addr, int ifindex)
{
	struct group *g;
	int rc = group_get(addr, ifindex, &g);
	if (!rc)
		g->joins++;
	return rc;
}

void rpwi_gsi_mcast_leave(const struct rpwi_addr *addr, int ifindex)
{
	struct group *g = group_find(addr, ifindex);
	if (!g || !g->joins) /* joined by the process that this one was forked from */
		return;
	g->joins--;
	group_end_if_unused(g);
}

/* ---- receiving ---- */

/* Sent from here? What we send goes from a port that is open. */
static bool is_from_here(const struct hca *h, const struct rpwi_addr *src)
{
	for (unsigned i = 0; i < h->nports; i++)
		if (h->port[i].refs && rpwi_addr_eq(&h->port[i].addr, src))
			return true;
	return false;
}

static bool is_datagram(const struct rpwi_pkt *pkt)
{
	unsigned op = rpwi_pkt_op(pkt);
	return rpwi_pkt_svc(pkt) == RPWI_SVC_UD &&
	       (op == RPWI_OP_SEND_ONLY || op == RPWI_OP_SEND_ONLY_IMM);
}

void mcast_broken(const struct group *g)
{
	n.datagrams++;
	if (g->nqps)
		g->qps[0]->t.n->rx_broken++;
}

bool mcast_takes(const struct rpwi_pkt *pkt)
{
	n.datagrams++;
	/* to a group address only with this QPN, and the other way round (IB 9.4.1, 10.5.2) */
	if (RPWI_UNLIKELY(pkt->dqpn != RPWI_MCAST_QPN)) {
		n.wrong_qpn++;
		return false;
	}
	n.bad += !is_datagram(pkt);
	return is_datagram(pkt);
}

struct dqp *mcast_next_qp(const struct group *g, unsigned *at, const struct rpwi_pkt *pkt,
	const struct rpwi_addr *src)
{
	while (*at < g->nqps) {
		struct dqp *q = g->qps[(*at)++];
		if (!q->blocks_own || pkt->sqpn != q->t.qpn || !is_from_here(&hca_here, src)) {
			n.copies++;
			return q;
		}
		n.own++;
	}
	return NULL;
}

bool mcast_due(bool all)
{
	if (RPWI_LIKELY(!ngroups))
		return false;
	return all || polls.quiet < QUIET_POLLS || !(++polls.late % QUIET_EVERY);
}

struct group *mcast_recv(struct rpwi_rx *rx)
{
	void *user;
	if (rpwi_mcast_recv(rx, &user) <= 0) {
		polls.quiet += polls.quiet < QUIET_POLLS;
		return NULL;
	}
	polls.quiet = 0;
	return user;
}

void mcast_by_unicast(void) { n.by_unicast++; }

/* ---- ends ---- */

static void detach_all(const struct dctx *c)
{
	for (struct rpwi_list *l = groups.next, *next; l != &groups; l = next) {
		struct group *g = RPWI_CONTAINER_OF(l, struct group, link);
		next = l->next;
		for (unsigned i = g->nqps; i > 0; i--)
			if (!c || g->qps[i - 1]->ctx == c)
				remove_at(g, i - 1);
		if (!c)
			g->joins = 0;
		group_end_if_unused(g);
	}
}

void mcast_context_gone(const struct dctx *c) { detach_all(c); }
void mcast_hca_gone(void) { detach_all(NULL); }

/* The copies of QPs are nobody's. */
void mcast_left_to_parent(void)
{
	rpwi_mcast_forget();
	while (!rpwi_list_empty(&groups))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see rpwi_list_del */
		group_free(RPWI_CONTAINER_OF(groups.next, struct group, link));
}

void mcast_stats_print(FILE *to)
{
	const struct {
		const char *name;
		uint64_t v;
	} rows[] = {
		{"groups now", ngroups},
		{"datagrams received", n.datagrams},
		{"copies to QPs", n.copies},
		{"own ones not given back", n.own},
		{"for another QP, dropped", n.wrong_qpn},
		{"no datagrams, dropped", n.bad},
		{"by unicast, dropped", n.by_unicast},
		{"lost in a full socket", rpwi_mcast_overflow()},
	};
	if (!n.datagrams && !ngroups && !n.by_unicast)
		return;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(rows); i++)
		fprintf(to, "  multicast: %-21s %llu\n", rows[i].name,
			(unsigned long long)rows[i].v);
}
