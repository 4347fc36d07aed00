/* SPDX-License-Identifier: BSD-3-Clause */
/* ah.c - from verbs address attributes to an address vector that can be sent to. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "check/order.h"
#include "device/hca.h"
#include "device/mem.h"
#include "device/path.h"
#include "device/ports.h"
#include "device/way.h"
#include "fault/fault.h"

static const uint8_t v4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* The made-up link-local GID of lo is carried by another address: see io.h. */
static void translate_own_gid(const struct dev *d, const union ibv_gid *gid, struct rpwi_addr *a)
{
	for (unsigned i = 0; i < d->net.gid_count; i++)
		if (d->net.gid[i].addr.family && !memcmp(d->net.gid[i].raw, gid->raw, 16))
			*a = d->net.gid[i].addr;
}

int ah_find_host(struct dctx *c, const struct ibv_ah_attr *attr)
{
	RPWI_WHOLE;
	const uint64_t longest_ns = RPWI_NS_PER_S;
	struct rpwi_addr src = {0}, dst = {0};
	struct way way = {0};
	char text[INET6_ADDRSTRLEN];
	hca_lock();
	const struct dev *d = c->dev;
	unsigned gi = attr->grh.sgid_index;
	bool asks = attr->port_num == 1 && attr->is_global && gi < d->net.gid_count &&
		    d->net.gid[gi].usable;
	if (asks) {
		src = d->net.gid[gi].addr;
		gid_to_addr(&attr->grh.dgid, d->net.ifindex, &dst);
		translate_own_gid(d, &attr->grh.dgid, &dst);
		asks = src.family == dst.family && !rpwi_addr_is_mcast(&dst);
	}
	if (asks) {
		way = *way_to(&dst);
		asks = !way.found;
	}
	hca_unlock();
	if (!asks)
		return 0;
	int rc = rpwi_neighbor_wait(&src, &dst, &way.route, longest_ns);
	if (rc) {
		gid_text(attr->grh.dgid.raw, text);
		rpwi_warn("%s: no host of this subnet answers at %s", c->dev->net.name, text);
		return rc;
	}
	hca_lock();
	way_found(&dst, way.turn);
	hca_unlock();
	return 0;
}

/* This side's part of the vector. 0 or -EINVAL. */
static int own_side_check(const struct dev *d, const struct ibv_ah_attr *attr)
{
	char text[INET6_ADDRSTRLEN];
	if (attr->port_num != 1) {
		rpwi_warn("%s: port %u was requested, but there is only port 1", d->net.name,
			attr->port_num);
		return -EINVAL;
	}
	if (!attr->is_global) {
		rpwi_warn("%s: an address without a GID (LID %u) cannot be reached over RoCE: "
			  "exchange GIDs (with the pingpong programs: -g 1)",
			d->net.name, attr->dlid);
		return -EINVAL;
	}
	unsigned gi = attr->grh.sgid_index;
	if (gi >= d->net.gid_count || !d->net.gid[gi].addr.family) {
		if (RPWI_UNLIKELY(rpwi_check_on))
			check_gid_refused(gi, "is empty, and the call fails");
		rpwi_warn("%s: GID index %u is empty: the last of the table is %u, and `ropeway "
			  "devices` lists them",
			d->net.name, gi, d->net.gid_count ? d->net.gid_count - 1 : 0);
		return -EINVAL;
	}
	if (!d->net.gid[gi].usable) {
		gid_text(d->net.gid[gi].raw, text);
		rpwi_warn("%s: GID %u (%s) cannot be used now: %s has no such address, or Linux "
			  "still checks that no other host has it (for two seconds after the "
			  "interface came up): wait, or choose another of `ropeway devices`",
			d->net.name, gi, text, d->net.ifname);
		return -EINVAL;
	}
	return 0;
}

/* All of the vector but what av_reach fills in. 0 or -EINVAL. */
static int av_make(const struct dev *d, const struct ibv_ah_attr *attr, struct rpwi_av *av)
{
	char text[INET6_ADDRSTRLEN], text2[INET6_ADDRSTRLEN];
	unsigned gi = attr->grh.sgid_index;
	int err = own_side_check(d, attr);
	if (err)
		return err;
	const struct rpwi_gid *own = &d->net.gid[gi];
	*av = (struct rpwi_av){.hop_limit = attr->grh.hop_limit,
		.tclass = attr->grh.traffic_class,
		.sl = attr->sl,
		.sgid_index = (uint8_t)gi,
		.flow_label = attr->grh.flow_label};
	av->flow.src = own->addr;
	gid_to_addr(&attr->grh.dgid, d->net.ifindex, &av->flow.dst);
	translate_own_gid(d, &attr->grh.dgid, &av->flow.dst);
	av->flow.dport = RPWI_UDP_PORT;
	if (av->flow.src.family != av->flow.dst.family) {
		gid_text(own->raw, text);
		gid_text(attr->grh.dgid.raw, text2);
		if (RPWI_UNLIKELY(rpwi_check_on))
			check_gid_refused(gi, "is of another IP version than the peer's GID, and "
					      "the call fails");
		rpwi_warn("%s: own GID %u (%s) and the peer's (%s) are of different IP versions: "
			  "choose the same GID index kind on both sides",
			d->net.name, gi, text, text2);
		return -EINVAL;
	}
	/* Members of a group on this host get it by UDP as all others do, and do not pace it. */
	bool to_group = rpwi_addr_is_mcast(&av->flow.dst);
	const struct way *way = to_group ? NULL : way_to(&av->flow.dst);
	av->loopback_zone = way && way->route.local;
	if (!av->hop_limit)
		av->hop_limit =
			way ? way->hops : rpwi_netdev_hops(&av->flow.dst, &(struct rpwi_route){0});
	return 0;
}

/* What it is sent from, and the process that it is sent to. */
static int av_reach(const struct dev *d, struct rpwi_av *av, uint32_t dqpn, unsigned mtu_bytes,
	struct dport **port, struct dpeer **peer)
{
	char why[RPWI_WHY_LEN] = "";
	int err = 0;
	bool lanes_do = dqpn && av->loopback_zone && rpwi_lane_reaches(hca_here.lanes, dqpn);
	*port = port_get(&av->flow.src, lanes_do, why, sizeof(why), &err);
	if (!*port) {
		rpwi_error("%s: cannot use UDP port 4791: %s", d->net.name, why);
		path_port_held(&hca_here, why);
		return err;
	}
	*peer = peer_get(&av->flow.dst, dqpn, mtu_bytes);
	if (!*peer) {
		port_put(*port);
		*port = NULL;
		return -ENOMEM;
	}
	av->port = (*port)->io;
	av->cc = &(*peer)->cc;
	return 0;
}

int ah_resolve(struct dctx *c, const struct ibv_ah_attr *attr, uint32_t dqpn, unsigned mtu_bytes,
	struct rpwi_av *av, struct dport **port, struct dpeer **peer)
{
	int rc = av_make(c->dev, attr, av);
	return rc ? rc : av_reach(c->dev, av, dqpn, mtu_bytes, port, peer);
}

int ah_reach(struct dah *ah)
{
	rpwi_shield();
	return av_reach(
		to_dctx(ah->ibv.context)->dev, &ah->av, 0, RPWI_MTU_MAX, &ah->port, &ah->peer);
}

struct ibv_ah *rpwi_dev_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (rpwi_plan_refuses(RPWI_CALL_CREATE_AH))
		return NULL;
	hca_lock();
	int rc = pd_usable(pd);
	hca_unlock();
	if (!rc)
		rc = ah_find_host(to_dctx(pd->context), attr);
	struct dah *ah = rc ? NULL : calloc(1, sizeof(*ah));
	if (!ah)
		return rpwi_none(rc ? -rc : ENOMEM);
	ah->ibv.pd = pd;
	hca_lock();
	rc = pd_usable(pd);
	if (rc)
		goto out;
	ah->ibv.context = pd->context;
	rc = av_make(to_dctx(pd->context)->dev, attr, &ah->av);
	if (!rc)
		rc = live_add(&ah->live, LIVE_AH, &ah->ibv, hca_here.made[LIVE_AH] + 1);
	if (rc)
		goto out;
	hca_here.made[LIVE_AH]++;
	to_dpd(pd)->refs++;
out:
	hca_unlock();
	if (!rc)
		return &ah->ibv;
	free(ah);
	return rpwi_none(-rc);
}

int rpwi_dev_destroy_ah(struct ibv_ah *ibv)
{
	struct dah *ah = RPWI_CONTAINER_OF(ibv, struct dah, ibv);
	if (!hca_lock_live(LIVE_AH, ibv))
		return ENOENT;
	live_del(&ah->live);
	port_put(ah->port);
	peer_put(ah->peer);
	to_dpd(ibv->pd)->refs--;
	hca_unlock();
	free(ah);
	return 0;
}

/* The GRH of a UD receive says who sent it and to which of our GIDs. For IPv4 the last 20
 * of the 40 bytes are the IP header (annex A17.4.5.2). Class, hop limit and flow label are
 * the packet's, as libibverbs takes them; the SL is 0, which no packet carries. */
int rpwi_dev_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc,
	struct ibv_grh *grh, struct ibv_ah_attr *attr)
{
	const struct dev *d = to_dctx(c)->dev;
	union ibv_gid src, dst;
	memset(attr, 0, sizeof(*attr));
	if (!(wc->wc_flags & IBV_WC_GRH))
		return rpwi_minus(EINVAL);
	const uint8_t *p = (const uint8_t *)grh;
	if (p[0] >> 4 == 6) {
		uint32_t first = rpwi_get_be32(p);
		memcpy(src.raw, p + 8, 16);
		memcpy(dst.raw, p + 24, 16);
		attr->grh.flow_label = first & 0xfffff;
		attr->grh.traffic_class = (uint8_t)(first >> 20);
		attr->grh.hop_limit = p[7];
	} else {
		attr->grh.traffic_class = p[20 + 1];
		attr->grh.hop_limit = p[20 + 8];
		memcpy(src.raw, v4_mapped, 12);
		memcpy(src.raw + 12, p + 20 + 12, 4);
		memcpy(dst.raw, v4_mapped, 12);
		memcpy(dst.raw + 12, p + 20 + 16, 4);
	}
	for (unsigned i = 0; i < d->net.gid_count; i++) {
		if (!d->net.gid[i].addr.family || memcmp(d->net.gid[i].raw, dst.raw, 16))
			continue;
		attr->is_global = 1;
		attr->port_num = port;
		attr->grh.dgid = src;
		attr->grh.sgid_index = (uint8_t)i;
		return 0;
	}
	return rpwi_minus(ENOENT);
}
