/* SPDX-License-Identifier: BSD-3-Clause */
/* query.c - what the device says of itself. */
#include <endian.h>

#include "device/devices.h"
#include "device/mcast.h"
#include "device/resource.h"
#include "fault/fault.h"

enum ibv_mtu dev_mtu(const struct dev *d)
{
	/* Room for IPv6, UDP, BTH, RETH, ImmDt and ICRC, as kernel rxe reckons it: 80 bytes. */
	uint32_t room = d->net.mtu > 80 ? d->net.mtu - 80 : 0;
	enum ibv_mtu m = IBV_MTU_256;
	while (m < IBV_MTU_4096 && room >= 128u << (m + 1))
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

uint64_t rpwi_dev_caps(void)
{
	return IBV_DEVICE_BAD_PKEY_CNTR | IBV_DEVICE_BAD_QKEY_CNTR | IBV_DEVICE_SRQ_RESIZE |
	       IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID |
	       IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_MEM_WINDOW |
	       IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
}

int rpwi_dev_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	struct dctx *x = to_dctx(c);
	memset(a, 0, sizeof(*a));
	snprintf(a->fw_ver, sizeof(a->fw_ver), "%s", ROPEWAY_VERSION);
	a->node_guid = rpwi_dev_get_guid(&x->dev->ibv);
	a->sys_image_guid = a->node_guid;
	a->max_mr_size = UINT64_MAX >> 1;
	a->page_size_cap = 0xfffff000;
	a->vendor_id = DEV_VENDOR_ID;
	a->vendor_part_id = DEV_VENDOR_PART_ID;
	a->hw_ver = DEV_HW_VER;
	a->max_qp = DEV_QP_MAX;
	a->max_qp_wr = DEV_QP_WR_MAX;
	a->device_cap_flags = (unsigned)rpwi_dev_caps();
	a->max_sge = RPWI_SGE_MAX;
	a->max_sge_rd = RPWI_SGE_MAX;
	a->max_cq = DEV_CQ_MAX;
	a->max_cqe = DEV_CQE_MAX;
	a->max_mr = DEV_MR_MAX;
	a->max_pd = DEV_PD_MAX;
	a->max_qp_rd_atom = RPWI_RD_ATOMIC_MAX;
	a->max_qp_init_rd_atom = RPWI_RD_ATOMIC_MAX;
	a->max_res_rd_atom = RPWI_RD_ATOMIC_MAX * 1024;
	/* the program's own atomics are as atomic, but UCX takes no other word, and rxe says this
	 * one */
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->max_mw = DEV_MW_MAX;
	a->max_ah = DEV_AH_MAX;
	a->max_srq = DEV_SRQ_MAX;
	a->max_srq_wr = DEV_SRQ_WR_MAX;
	a->max_srq_sge = RPWI_SGE_MAX;
	a->max_pkeys = 1;
	a->max_mcast_grp = MCAST_GROUPS_MAX;
	a->max_mcast_qp_attach = MCAST_QPS_MAX;
	a->max_total_mcast_qp_attach = MCAST_GROUPS_MAX * MCAST_QPS_MAX;
	a->local_ca_ack_delay = 15;
	a->phys_port_cnt = 1;
	return 0;
}

/* By number: newer than the headers of rdma-core 44. */
#define CAP_ATOMIC_WRITE (1ull << 40) /* IB_UVERBS_DEVICE_ATOMIC_WRITE */
enum { ODP_ATOMIC_WRITE = 1 << 7 };   /* IBV_ODP_SUPPORT_ATOMIC_WRITE */

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
	if (size >= offsetof(struct ibv_device_attr_ex, device_cap_flags_ex)) {
		a->completion_timestamp_mask = UINT64_MAX;
		/* kHz: completion time stamps are CLOCK_MONOTONIC ns */
		a->hca_core_clock = 1000000;
	}
	if (size >= offsetof(struct ibv_device_attr_ex, tso_caps))
		a->device_cap_flags_ex = (uint64_t)a->orig_attr.device_cap_flags | CAP_ATOMIC_WRITE;
	/* No region is pinned: all can what "on demand" asks for, and any address of the process
	 * may become one's. */
	a->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	a->odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
						     IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ |
						     IBV_ODP_SUPPORT_ATOMIC |
						     IBV_ODP_SUPPORT_SRQ_RECV | ODP_ATOMIC_WRITE;
	a->odp_caps.per_transport_caps.uc_odp_caps =
		IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE;
	a->odp_caps.per_transport_caps.ud_odp_caps =
		IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
	if (size >= offsetof(struct ibv_device_attr_ex, pci_atomic_caps))
		a->cq_mod_caps = (struct ibv_cq_moderation_caps){UINT16_MAX, UINT16_MAX};
	if (size >= sizeof(*a))
		a->phys_port_cnt_ex = 1;
	return 0;
}

int dev_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v)
{
	uint32_t want = v->comp_mask;
	v->comp_mask = 0;
	if (want & IBV_VALUES_MASK_RAW_CLOCK) {
		clock_gettime(CLOCK_MONOTONIC, &v->raw_clock);
		v->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return want & ~(uint32_t)IBV_VALUES_MASK_RAW_CLOCK ? EINVAL : 0;
}

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
	a->max_mtu = IBV_MTU_4096;
	a->active_mtu = dev_mtu(d);
	a->gid_tbl_len = RPWI_GIDS_MAX;
	a->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
	a->max_msg_sz = 1u << 31;
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
	if (port != 1 || index < 0 || index >= RPWI_GIDS_MAX)
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
	if (port != 1 || flags || index >= RPWI_GIDS_MAX)
		return EINVAL;
	if (index >= d->net.gid_count)
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
	unsigned n = d->net.gid_count;
	if (max < n)
		return -EINVAL;
	for (uint32_t i = 0; i < n; i++)
		gid_entry(d, i, &entries[i]);
	return (ssize_t)n;
}

int rpwi_dev_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	if (port != 1 || index)
		return rpwi_minus(EINVAL);
	*pkey = htobe16(RPWI_PKEY_DEFAULT);
	return 0;
}
