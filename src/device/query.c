/* SPDX-License-Identifier: BSD-3-Clause */
/* query.c - what the device says of itself. */
#include <endian.h>

#include "device/devices.h"
#include "device/resource.h"
#include "fault/fault.h"

enum ibv_mtu dev_mtu_most(void)
{
	return (enum ibv_mtu)(__builtin_ctzll(rpwi_like_most(RPWI_LIKE_MAX_MTU)) - 7);
}

enum ibv_mtu dev_mtu(const struct dev *d)
{
	/* Room for IPv6, UDP, BTH, RETH, ImmDt and ICRC, as kernel rxe reckons it: 80 bytes. */
	uint32_t room = d->net.mtu > 80 ? d->net.mtu - 80 : 0;
	enum ibv_mtu m = IBV_MTU_256, most = dev_mtu_most();
	while (m < most && room >= 128u << (m + 1))
		m++;
	return m;
}

uint64_t rpwi_dev_get_guid(const struct ibv_device *dev)
{
	uint8_t g[8];
	rpwi_netdev_guid(&to_dev(dev)->net, g);
	uint64_t v;
	memcpy(&v, g, 8);
	return v;
}

uint64_t rpwi_dev_caps(void) { return (uint32_t)rpwi_like_most(RPWI_LIKE_DEVICE_CAP_FLAGS); }

static void limits(struct ibv_device_attr *a, const uint64_t *has)
{
	a->device_cap_flags = (uint32_t)has[RPWI_LIKE_DEVICE_CAP_FLAGS];
	a->atomic_cap = (enum ibv_atomic_cap)has[RPWI_LIKE_ATOMIC_CAP];
	a->max_mr_size = has[RPWI_LIKE_MAX_MR_SIZE];
	a->max_qp = (int)has[RPWI_LIKE_MAX_QP];
	a->max_qp_wr = (int)has[RPWI_LIKE_MAX_QP_WR];
	a->max_sge = (int)has[RPWI_LIKE_MAX_SGE];
	a->max_sge_rd = (int)has[RPWI_LIKE_MAX_SGE_RD];
	a->max_cq = (int)has[RPWI_LIKE_MAX_CQ];
	a->max_cqe = (int)has[RPWI_LIKE_MAX_CQE];
	a->max_mr = (int)has[RPWI_LIKE_MAX_MR];
	a->max_pd = (int)has[RPWI_LIKE_MAX_PD];
	a->max_mw = (int)has[RPWI_LIKE_MAX_MW];
	a->max_ah = (int)has[RPWI_LIKE_MAX_AH];
	a->max_qp_rd_atom = (int)has[RPWI_LIKE_MAX_QP_RD_ATOM];
	a->max_qp_init_rd_atom = (int)has[RPWI_LIKE_MAX_QP_INIT_RD_ATOM];
	a->max_res_rd_atom = (int)has[RPWI_LIKE_MAX_RES_RD_ATOM];
	a->max_srq = (int)has[RPWI_LIKE_MAX_SRQ];
	a->max_srq_wr = (int)has[RPWI_LIKE_MAX_SRQ_WR];
	a->max_srq_sge = (int)has[RPWI_LIKE_MAX_SRQ_SGE];
	a->max_pkeys = (uint16_t)has[RPWI_LIKE_MAX_PKEYS];
	a->max_mcast_grp = (int)has[RPWI_LIKE_MAX_MCAST_GRP];
	a->max_mcast_qp_attach = (int)has[RPWI_LIKE_MAX_MCAST_QP_ATTACH];
	a->max_total_mcast_qp_attach = (int)has[RPWI_LIKE_MAX_TOTAL_MCAST_QP_ATTACH];
}

int rpwi_dev_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	struct dctx *x = to_dctx(c);
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "%s", ROPEWAY_VERSION);
	a->node_guid = rpwi_dev_get_guid(&x->dev->ibv);
	a->sys_image_guid = a->node_guid;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = DEV_VENDOR_ID;
	a->vendor_part_id = DEV_VENDOR_PART_ID;
	a->hw_ver = DEV_HW_VER;
	limits(a, rpwi_like()->has);
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
	return 0;
}

int dev_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *a, size_t size)
{
	if (in && in->comp_mask)
		return EINVAL;
	/* every rdma-core that has the call knows so much of the struct */
	if (size < offsetof(struct ibv_device_attr_ex, completion_timestamp_mask))
		return EINVAL;
	memset(a, 0, size);
	rpwi_dev_query_device(c, &a->orig_attr);
	const struct rpwi_like *l = rpwi_like();
	bool stamps = l->has[RPWI_LIKE_OPTIONAL] & RPWI_LIKE_TIMESTAMPS,
	     moderates = l->has[RPWI_LIKE_OPTIONAL] & RPWI_LIKE_MODERATION;
	if (stamps && size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex)) {
		a->completion_timestamp_mask = UINT64_MAX;
		/* kHz: completion time stamps are CLOCK_MONOTONIC ns */
		a->hca_core_clock = 1000000;
	}
	if (size >= offsetof(struct ibv_device_attr_ex, tso_caps))
		a->device_cap_flags_ex = l->has[RPWI_LIKE_DEVICE_CAP_FLAGS];
	a->odp_caps.general_caps = l->has[RPWI_LIKE_ODP_GENERAL];
	if (a->odp_caps.general_caps & IBV_ODP_SUPPORT) {
		a->odp_caps.per_transport_caps.rc_odp_caps = (uint32_t)l->has[RPWI_LIKE_ODP_RC];
		a->odp_caps.per_transport_caps.uc_odp_caps = (uint32_t)l->has[RPWI_LIKE_ODP_UC];
		a->odp_caps.per_transport_caps.ud_odp_caps = (uint32_t)l->has[RPWI_LIKE_ODP_UD];
	}
	if (moderates && size >= offsetof(struct ibv_device_attr_ex, pci_atomic_caps))
		a->cq_mod_caps = (struct ibv_cq_moderation_caps){UINT16_MAX, UINT16_MAX};
	if (size >= sizeof(*a))
		a->phys_port_cnt_ex = 1;
	return 0;
}

int dev_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v)
{
	uint32_t want = v->comp_mask;
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_TIMESTAMPS))
		return EOPNOTSUPP;
	v->comp_mask = 0;
	if (want & IBV_VALUES_MASK_RAW_CLOCK) {
		clock_gettime(CLOCK_MONOTONIC, &v->raw_clock);
		v->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return want & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK ? EINVAL : 0;
}

static unsigned gids(void) { return (unsigned)rpwi_like_most(RPWI_LIKE_GID_TBL_LEN); }

enum { PORT_MBPS_MIN = 2500 };

/* Width and speed whose product comes nearest to the interface's speed from below (IB port
 * attributes know no others). */
static void port_speed(uint32_t mbps, struct ibv_port_attr *a)
{
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} table[] = {
		{PORT_MBPS_MIN, 1, 1},
		{10000, 2, 1},
		{14000, 1, 16},
		{25000, 1, 32},
		{40000, 2, 4},
		{50000, 1, 64},
		{56000, 2, 16},
		{100000, 2, 32},
		{200000, 2, 64},
	};
	a->active_width = 1;
	a->active_speed = 1;
	for (size_t i = 0; i < RPWI_ARRAY_LEN(table); i++)
		if (mbps >= table[i].mbps) {
			a->active_width = table[i].width;
			a->active_speed = table[i].speed;
		}
}

int rpwi_dev_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	const struct dev *d = to_dctx(c)->dev;
	if (port != 1)
		return EINVAL;
	memset(a, 0, sizeof(*a));
	a->state = d->present && d->net.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	if (RPWI_UNLIKELY(rpwi_plan_on) && rpwi_plan_port_down(rpwi_now_ns()))
		a->state = IBV_PORT_DOWN;
	a->max_mtu = dev_mtu_most();
	a->active_mtu = dev_mtu(d);
	a->gid_tbl_len = (int)gids();
	a->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	a->max_msg_sz = (uint32_t)rpwi_like_most(RPWI_LIKE_MAX_MSG_SZ);
	a->pkey_tbl_len = 1;
	a->max_vl_num = 1;
	/* LinkUp, Polling: as kernel rxe has it where there is no carrier; Disabled */
	a->phys_state = d->net.no_carrier ? 2 : 3;
	if (a->state == IBV_PORT_ACTIVE)
		a->phys_state = 5;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	a->flags = IBV_QPF_GRH_REQUIRED;
	port_speed(d->net.speed_mbps, a);
	return 0;
}

int rpwi_dev_query_port_speed(const struct ibv_context *c, uint32_t port, uint64_t *speed)
{
	const struct dev *d = to_dctx(c)->dev;
	if (port != 1)
		return EINVAL;
	if (!speed)
		return EFAULT;
	/* where the interface does not know, as ibv_query_port says */
	*speed = RPWI_MAX(d->net.speed_mbps ? d->net.speed_mbps : PORT_MBPS_MIN, 100u) / 100;
	return 0;
}

int dev_query_port_ops(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len)
{
	struct ibv_port_attr full;
	int rc = rpwi_dev_query_port(c, port, &full);
	if (!rc)
		memcpy(a, &full, RPWI_MIN(len, sizeof(full)));
	return rc;
}

int rpwi_dev_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	const struct dev *d = to_dctx(c)->dev;
	if (port != 1 || index < 0 || (unsigned)index >= gids())
		return rpwi_minus(EINVAL);
	memset(gid, 0, sizeof(*gid));
	if ((unsigned)index < d->net.gid_count)
		memcpy(gid->raw, d->net.gid[index].raw, 16);
	return 0;
}

static void gid_entry(const struct dev *d, uint32_t i, struct ibv_gid_entry *e)
{
	memset(e, 0, sizeof(*e));
	memcpy(e->gid.raw, d->net.gid[i].raw, 16);
	e->gid_index = i;
	e->port_num = 1;
	e->gid_type = IBV_GID_TYPE_ROCE_V2;
	e->ndev_ifindex = (uint32_t)d->net.ifindex;
}

int rpwi_dev_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
	struct ibv_gid_entry *e, uint32_t flags)
{
	const struct dev *d = to_dctx(c)->dev;
	if (port != 1 || flags || index >= gids())
		return EINVAL;
	if (index >= d->net.gid_count || !d->net.gid[index].addr.family)
		return ENODATA;
	gid_entry(d, index, e);
	return 0;
}

ssize_t rpwi_dev_query_gid_table(
	struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags)
{
	const struct dev *d = to_dctx(c)->dev;
	if (flags)
		return -EINVAL;
	size_t n = 0;
	for (uint32_t i = 0; i < d->net.gid_count; i++) {
		if (!d->net.gid[i].addr.family) /* an empty place of the table */
			continue;
		if (n == max)
			return -EINVAL;
		gid_entry(d, i, &entries[n++]);
	}
	return (ssize_t)n;
}

int rpwi_dev_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	if (port != 1 || index)
		return rpwi_minus(EINVAL);
	*pkey = htobe16(RPWI_PKEY_DEFAULT);
	return 0;
}
