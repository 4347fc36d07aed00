/* SPDX-License-Identifier: BSD-3-Clause */
/* multicast.c - the groups that an rdma_cm id has joined (rdma_join_multicast(3)).
 *
 * On RoCE there is no subnet administrator to ask: the group's GID is made of its address, the
 * Q_Key is the id's, and a full member is one of IGMP or MLD (device/mcast.c). The event waits in
 * the channel before the call returns. To attach the QP is librdmacm's part. As the kernel has it,
 * but that it refuses IPv6 groups on RoCE v2 (ENOTSUPP), and takes an address that is no group's.
 */
#include "ucma/ucma_priv.h"

#include <stdlib.h>

enum {
	MCASTS_MAX = 1 << 14,
	FULL_MEMBER = RDMA_MC_JOIN_FLAG_FULLMEMBER,
	SEND_ONLY = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
	HOP_LIMIT = 64, /* the kernel's IPV6_DEFAULT_HOPLIMIT */
};

static struct {
	struct mcast *at[MCASTS_MAX]; /* by handle */
	uint32_t hint;
	uint64_t serials;
} mcasts;

struct mcast *multicast_new(struct id *id, uint64_t uid)
{
	struct mcast *m = calloc(1, sizeof(*m));
	for (uint32_t i = 0; m && i < MCASTS_MAX; i++) {
		uint32_t h = (mcasts.hint + i) % MCASTS_MAX;
		if (mcasts.at[h])
			continue;
		mcasts.hint = h + 1;
		mcasts.at[h] = m;
		m->handle = h;
		m->id = id;
		m->uid = uid;
		m->serial = ++mcasts.serials << 16 | h;
		rpwi_list_init(&m->link);
		rpwi_list_add_tail(&id->mcasts, &m->link);
		return m;
	}
	free(m);
	return NULL;
}

void multicast_free(struct mcast *m)
{
	if (m->is_member)
		rpwi_gsi_mcast_leave(&m->group, m->ifindex);
	mcasts.at[m->handle] = NULL;
	rpwi_list_del(&m->link);
	free(m);
}

void multicast_event(const struct mcast *m, struct rdma_ucm_event_resp *resp)
{
	struct rdma_ucm_ud_param *ud = &resp->param.ud;
	resp->uid = m->uid;
	resp->id = m->handle;
	ud->qp_num = RPWI_MCAST_QPN;
	ud->qkey = m->id->qkey;
	ud->ah_attr.is_global = 1;
	ud->ah_attr.port_num = 1;
	rpwi_gsi_gid(&m->group, ud->ah_attr.grh.dgid);
	ud->ah_attr.grh.sgid_index = (uint8_t)m->id->dev.gid_index;
	ud->ah_attr.grh.hop_limit = HOP_LIMIT;
	ud->ah_attr.grh.traffic_class = m->id->tos;
}

/* 0 or -errno; the states are the kernel's. */
static int check(const struct id *id, const struct endpoint *group, unsigned flags)
{
	char text[64];
	if (flags != FULL_MEMBER && flags != SEND_ONLY)
		return -EINVAL;
	if (!id->dev.device || (id->state != ID_BOUND && id->state != ID_ADDR_RESOLVED) ||
		id->qp_type != IBV_QPT_UD)
		return -EINVAL;
	if (!rpwi_addr_is_mcast(&group->addr)) {
		rpwi_warn("rdma_join_multicast: %s is not a multicast address",
			endpoint_text(group, text));
		return -EINVAL;
	}
	/* the sender's GID and the group's are of one kind */
	if (group->addr.family != id->src.addr.family) {
		rpwi_warn("rdma_join_multicast: the group is IPv%u, but the id is bound to an "
			  "IPv%u address",
			group->addr.family, id->src.addr.family);
		return -EINVAL;
	}
	return 0;
}

int multicast_join(struct id *id, const struct endpoint *group, unsigned flags, uint64_t uid,
	struct mcast **out)
{
	int rc = check(id, group, flags);
	struct mcast *m = *out = rc ? NULL : multicast_new(id, uid);
	if (!m)
		return rc ? rc : -ENOMEM;
	m->group = group->addr;
	m->group.scope = group->addr.family == 6 ? (uint32_t)id->dev.ifindex : 0;
	m->ifindex = id->dev.ifindex;
	if (flags == FULL_MEMBER)
		rc = rpwi_gsi_mcast_join(&m->group, m->ifindex);
	if (rc) {
		multicast_free(m);
		return rc;
	}
	m->is_member = flags == FULL_MEMBER;
	return 0;
}

struct mcast *multicast_find(const struct channel *ch, uint32_t handle, int *err)
{
	struct mcast *m = handle < MCASTS_MAX ? mcasts.at[handle] : NULL;
	*err = m ? -EINVAL : -ENOENT;
	if (!m || m->id->ch != ch)
		return NULL;
	*err = 0;
	return m;
}

struct mcast *multicast_of_serial(const struct channel *ch, uint64_t serial)
{
	struct mcast *m = mcasts.at[serial % MCASTS_MAX];
	return m && m->serial == serial && m->id->ch == ch ? m : NULL;
}

void multicast_id_end(struct id *id)
{
	while (!rpwi_list_empty(&id->mcasts))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it does not see rpwi_list_del */
		multicast_free(RPWI_CONTAINER_OF(id->mcasts.next, struct mcast, link));
}
