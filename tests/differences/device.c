/* SPDX-License-Identifier: BSD-3-Clause */
/* device.c - what a device says of itself: attributes, port, GIDs, optional calls. */
#include "probe.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* A member of a struct by offset and size; signed int, since the kernel's "none" is -1 in some. */
static unsigned long long member(const void *of, long offset, long size)
{
	unsigned long long value = 0;

	memcpy(&value, (const char *)of + offset, (size_t)size);
	return value;
}

static void ask_attr(const struct question *q)
{
	struct ibv_device_attr attr;

	open_device();
	MUST(!ibv_query_device(ctx, &attr));
	say(q->b == 8 ? "%#llx" : "%llu", member(&attr, q->a, q->b));
}

static void ask_attr_ex(const struct question *q)
{
	struct ibv_device_attr_ex attr = {0};

	open_device();
	MUST(!ibv_query_device_ex(ctx, NULL, &attr));
	say("%#llx", member(&attr, q->a, q->b));
}

static void ask_flags(const struct question *q)
{
	struct ibv_device_attr attr;

	(void)q;
	open_device();
	MUST(!ibv_query_device(ctx, &attr));
	say("%#x", attr.device_cap_flags);
}

static void ask_flags_ex(const struct question *q)
{
	struct ibv_device_attr_ex attr = {0};

	(void)q;
	open_device();
	MUST(!ibv_query_device_ex(ctx, NULL, &attr));
	say("%#llx", (unsigned long long)attr.device_cap_flags_ex >> 32 << 32);
}

static void ask_odp(const struct question *q)
{
	struct ibv_device_attr_ex attr = {0};

	(void)q;
	open_device();
	MUST(!ibv_query_device_ex(ctx, NULL, &attr));
	say("general %#llx, RC %#x, UC %#x, UD %#x", (unsigned long long)attr.odp_caps.general_caps,
		attr.odp_caps.per_transport_caps.rc_odp_caps,
		attr.odp_caps.per_transport_caps.uc_odp_caps,
		attr.odp_caps.per_transport_caps.ud_odp_caps);
}

static void ask_atomic_cap(const struct question *q)
{
	struct ibv_device_attr attr;

	(void)q;
	open_device();
	MUST(!ibv_query_device(ctx, &attr));
	say("%s", attr.atomic_cap == IBV_ATOMIC_HCA    ? "HCA"
		  : attr.atomic_cap == IBV_ATOMIC_NONE ? "none"
						       : "global");
}

static void ask_names(const struct question *q)
{
	struct ibv_device_attr attr;
	const struct ibv_device *d;

	(void)q;
	open_device();
	MUST(!ibv_query_device(ctx, &attr));
	d = ctx->device;
	say("node type %s, transport %d, vendor %#x, part %u, hw_ver %u",
		ibv_node_type_str(d->node_type), d->transport_type, attr.vendor_id,
		attr.vendor_part_id, attr.hw_ver);
}

static void ask_guid(const struct question *q)
{
	struct ibv_device_attr attr;

	(void)q;
	open_device();
	MUST(!ibv_query_device(ctx, &attr));
	say("node GUID %s, the system image's %s, ibv_get_device_guid %s",
		attr.node_guid ? "set" : "0",
		attr.sys_image_guid == attr.node_guid ? "the same" : "another",
		ibv_get_device_guid(ctx->device) == attr.node_guid ? "the same" : "another");
}

static void ask_vectors(const struct question *q)
{
	(void)q;
	open_device();
	say("num_comp_vectors %s", ctx->num_comp_vectors > 0 ? "1 or more" : "0");
}

static void ask_clock(const struct question *q)
{
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};

	(void)q;
	open_device();
	say_rc("ibv_query_rt_values_ex", ibv_query_rt_values_ex(ctx, &v));
}

/* ---- the port ---- */

static void ask_port(const struct question *q)
{
	struct ibv_port_attr attr = {0};

	open_device();
	MUST(!ibv_query_port(ctx, 1, &attr));
	say("%llu", member(&attr, q->a, q->b));
}

static void ask_port_flags(const struct question *q)
{
	struct ibv_port_attr attr = {0};

	(void)q;
	open_device();
	MUST(!ibv_query_port(ctx, 1, &attr));
	say("%#x, port_cap_flags2 %#x, flags %#x", attr.port_cap_flags, attr.port_cap_flags2,
		attr.flags);
}

static void ask_port_number(const struct question *q)
{
	struct ibv_port_attr attr;

	open_device();
	say_rc("ibv_query_port", ibv_query_port(ctx, (uint8_t)q->a, &attr));
}

static void ask_gid_type(const struct question *q)
{
	struct ibv_gid_entry entry;
	int rc;

	open_device();
	rc = ibv_query_gid_ex(ctx, 1, (uint32_t)q->a, &entry, 0);
	if (rc)
		say_rc("ibv_query_gid_ex", rc);
	else
		say("%s, %s", entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1",
			entry.gid.raw[0] == 0xfe ? "link-local" : "not link-local");
}

static void ask_gid(const struct question *q)
{
	union ibv_gid g;
	static const union ibv_gid zero;

	open_device();
	memset(&g, 0xee, sizeof(g));
	say_rc("ibv_query_gid", ibv_query_gid(ctx, 1, (int)q->a, &g));
	say("%s", !memcmp(&g, &zero, sizeof(g)) ? "zeros"
		  : g.raw[15] == 0xee           ? "not written"
						: "a GID");
}

static void ask_pkey(const struct question *q)
{
	__be16 pkey = 0;
	int rc;

	open_device();
	rc = ibv_query_pkey(ctx, 1, (int)q->a, &pkey);
	say("%s, %#x", errno_word(rc), ntohs(pkey));
}

static void ask_pkey_index(const struct question *q)
{
	open_device();
	say("index %d", ibv_get_pkey_index(ctx, 1, htons((uint16_t)q->a)));
}

/* ---- calls that a device may lack ---- */

static void ask_xrcd(const struct question *q)
{
	struct ibv_xrcd_init_attr a = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1};

	(void)q;
	open_device();
	say_made("ibv_open_xrcd", ibv_open_xrcd(ctx, &a));
}

static void ask_dm(const struct question *q)
{
	struct ibv_alloc_dm_attr a = {.length = 4096};

	(void)q;
	open_device();
	say_made("ibv_alloc_dm", ibv_alloc_dm(ctx, &a));
}

static void ask_td(const struct question *q)
{
	struct ibv_td_init_attr a = {0};

	(void)q;
	open_device();
	say_made("ibv_alloc_td", ibv_alloc_td(ctx, &a));
}

static void ask_parent(const struct question *q)
{
	struct ibv_parent_domain_init_attr a = {0};

	(void)q;
	open_device();
	a.pd = pd;
	say_made("ibv_alloc_parent_domain", ibv_alloc_parent_domain(ctx, &a));
}

static void ask_counters(const struct question *q)
{
	struct ibv_counters_init_attr a = {0};

	(void)q;
	open_device();
	say_made("ibv_create_counters", ibv_create_counters(ctx, &a));
}

static void ask_wq(const struct question *q)
{
	struct ibv_wq_init_attr a = {.wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1};

	(void)q;
	open_device();
	a.pd = pd;
	a.cq = make_cq(8);
	say_made("ibv_create_wq", ibv_create_wq(ctx, &a));
}

static void ask_flow(const struct question *q)
{
	struct ibv_flow_attr a = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(a), .port = 1};

	(void)q;
	open_device();
	say_made("ibv_create_flow", ibv_create_flow(make_qp(make_cq(8), IBV_QPT_UD), &a));
}

static void ask_null_mr(const struct question *q)
{
	(void)q;
	open_device();
	say_made("ibv_alloc_null_mr", ibv_alloc_null_mr(pd));
}

static void ask_dmabuf(const struct question *q)
{
	(void)q;
	open_device();
	say_made("ibv_reg_dmabuf_mr", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE));
}

static void ask_moderation(const struct question *q)
{
	struct ibv_modify_cq_attr a = {
		.attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = {.cq_count = 4, .cq_period = 4}};

	(void)q;
	open_device();
	say_rc("ibv_modify_cq", ibv_modify_cq(make_cq(8), &a));
}

static void ask_import(const struct question *q)
{
	(void)q;
	open_device();
	say_made("ibv_import_device", ibv_import_device(ctx->cmd_fd));
}

static void ask_set_ece(const struct question *q)
{
	struct ibv_ece ece = {0};

	(void)q;
	open_device();
	say_rc("ibv_query_ece", ibv_query_ece(make_qp(make_cq(8), IBV_QPT_RC), &ece));
	say_rc("ibv_set_ece", ibv_set_ece(make_qp(make_cq(8), IBV_QPT_RC), &ece));
}

#define ATTR(m) \
	{ \
		"device." #m, "attribute " #m, ask_attr, offsetof(struct ibv_device_attr, m), \
			sizeof(((struct ibv_device_attr *)0)->m) \
	}
#define ATTR_EX(m) \
	{ \
		"device.ex." #m, "attribute " #m, ask_attr_ex, \
			offsetof(struct ibv_device_attr_ex, m), \
			sizeof(((struct ibv_device_attr_ex *)0)->m) \
	}
#define PORT(m) \
	{ \
		"port." #m, "port attribute " #m, ask_port, offsetof(struct ibv_port_attr, m), \
			sizeof(((struct ibv_port_attr *)0)->m) \
	}

const struct question device_questions[] = {
	{"device.names", "what ibv_query_device says of the vendor and the node", ask_names, 0, 0},
	{"device.guid", "the GUIDs", ask_guid, 0, 0},
	{"device.flags", "attribute device_cap_flags", ask_flags, 0, 0},
	{"device.ex.flags", "the upper half of device_cap_flags_ex", ask_flags_ex, 0, 0},
	{"device.ex.odp", "on-demand paging", ask_odp, 0, 0},
	{"device.atomic_cap", "attribute atomic_cap", ask_atomic_cap, 0, 0},
	{"device.vectors", "completion vectors", ask_vectors, 0, 0},
	{"device.clock", "the device's clock", ask_clock, 0, 0}, ATTR(max_mr_size),
	ATTR(page_size_cap), ATTR(max_qp), ATTR(max_qp_wr), ATTR(max_sge), ATTR(max_sge_rd),
	ATTR(max_cq), ATTR(max_cqe), ATTR(max_mr), ATTR(max_pd), ATTR(max_qp_rd_atom),
	ATTR(max_res_rd_atom), ATTR(max_qp_init_rd_atom), ATTR(max_mw), ATTR(max_srq),
	ATTR(max_srq_wr), ATTR(max_srq_sge), ATTR(max_ah), ATTR(max_mcast_grp),
	ATTR(max_mcast_qp_attach), ATTR(max_pkeys), ATTR(local_ca_ack_delay), ATTR(phys_port_cnt),
	ATTR_EX(completion_timestamp_mask), ATTR_EX(hca_core_clock), ATTR_EX(tso_caps.max_tso),
	ATTR_EX(raw_packet_caps), ATTR_EX(max_dm_size), ATTR_EX(max_wq_type_rq),
	ATTR_EX(xrc_odp_caps), PORT(state), PORT(max_mtu), PORT(active_mtu), PORT(gid_tbl_len),
	PORT(max_msg_sz), PORT(bad_pkey_cntr), PORT(qkey_viol_cntr), PORT(pkey_tbl_len), PORT(lid),
	PORT(sm_lid), PORT(lmc), PORT(max_vl_num), PORT(sm_sl), PORT(subnet_timeout),
	PORT(init_type_reply), PORT(active_width), PORT(active_speed), PORT(phys_state),
	PORT(link_layer),
	{"port.port_cap_flags", "port attribute port_cap_flags", ask_port_flags, 0, 0},
	{"port.zero", "ibv_query_port of port 0", ask_port_number, 0, 0},
	{"port.two", "ibv_query_port of a port that the device does not have", ask_port_number, 2,
		0},
	{"port.gid_0", "GID 0", ask_gid_type, 0, 0}, {"port.gid_1", "GID 1", ask_gid_type, 1, 0},
	{"port.gid_empty", "a GID index that is empty", ask_gid, 10, 0},
	{"port.gid_beyond", "a GID index beyond the table", ask_gid, 5000, 0},
	{"port.gid_ex_empty", "ibv_query_gid_ex of an index that is empty", ask_gid_type, 10, 0},
	{"port.pkey_0", "P_Key 0", ask_pkey, 0, 0},
	{"port.pkey_1", "P_Key 1, beyond the table", ask_pkey, 1, 0},
	{"port.pkey_index", "the index of P_Key 0xffff", ask_pkey_index, 0xffff, 0},
	{"port.pkey_index_none", "the index of a P_Key that is not there", ask_pkey_index, 0x1234,
		0},
	{"lacks.xrcd", "XRC domains", ask_xrcd, 0, 0}, {"lacks.dm", "device memory", ask_dm, 0, 0},
	{"lacks.td", "thread domains", ask_td, 0, 0},
	{"lacks.parent_domain", "parent domains", ask_parent, 0, 0},
	{"lacks.counters", "counters", ask_counters, 0, 0},
	{"lacks.wq", "work queues of their own", ask_wq, 0, 0},
	{"lacks.flow", "flow steering", ask_flow, 0, 0},
	{"lacks.null_mr", "null memory regions", ask_null_mr, 0, 0},
	{"lacks.dmabuf", "ibv_reg_dmabuf_mr of a descriptor that is no dma-buf", ask_dmabuf, 0, 0},
	{"lacks.moderation", "moderation of completion events", ask_moderation, 0, 0},
	{"lacks.import", "importing a device's context", ask_import, 0, 0},
	{"lacks.ece", "enhanced connection establishment", ask_set_ece, 0, 0}, {0}};
