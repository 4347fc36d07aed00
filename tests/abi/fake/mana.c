/* SPDX-License-Identifier: BSD-3-Clause */
/* mana.c - a driver for the distribution's libibverbs: the device mana_0 of a tree that a test
 * makes. It is what hosted CI runners have: it lists itself, opens, answers queries, makes PDs and
 * CQs, and no queue pair. MANA says what making one does instead: works, hangs, crashes.
 *
 * libibverbs-dev has no header for drivers. What is needed of their ABI (IBVERBS_PRIVATE_34) is
 * declared here, as rdma-core 44 to 58 have it: the order of members alone counts.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct match {
	void *data;
	const char *alias;
	uint16_t vendor, device;
	uint8_t kind;
};
enum { MATCH_END, MATCH_ALIAS = 2 };

struct driver {
	const char *name;
	uint32_t abi_least, abi_most;
	const struct match *match;
	const void *static_drivers;
	void *match_device;
	struct verbs_context *(*alloc_context)(
		struct ibv_device *device, int fd, void *private_data);
	void *import_context;
	void *(*alloc_device)(void *sysfs);
	void (*free_device)(void *device);
};

/* A driver's calls, by their place in the table, which is sorted by name. */
enum {
	OP_ALLOC_PD = 5,
	OP_CREATE_CQ = 15,
	OP_CREATE_QP = 19,
	OP_DEALLOC_PD = 26,
	OP_DEREG_MR = 28,
	OP_DESTROY_CQ = 31,
	OP_FREE_CONTEXT = 39,
	OP_QUERY_DEVICE = 58,
	OP_QUERY_PORT = 60,
	OP_REG_MR = 68,
	OP_COUNT = 76,
};

void verbs_register_driver_34(const struct driver *d);
void *_verbs_init_and_alloc_context(struct ibv_device *device, int fd, size_t size,
	struct verbs_context *offset, uint32_t driver_id);
void verbs_set_ops(struct verbs_context *context, void *const ops[OP_COUNT]);
void verbs_uninit_context(struct verbs_context *context);

static struct ibv_pd *alloc_pd(struct ibv_context *c) { return calloc(1, sizeof(struct ibv_pd)); }
static int dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

static struct ibv_cq *create_cq(
	struct ibv_context *c, int cqe, struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));
	if (cq)
		cq->cqe = cqe;
	return cq;
}
static int destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

/* Longer than libibverbs' struct, which begins with it. */
static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access)
{
	return calloc(1, 256);
}
static int dereg_mr(void *mr)
{
	free(mr);
	return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	const char *way = getenv("MANA");
	if (way && !strcmp(way, "crashes"))
		raise(SIGSEGV);
	while (way && !strcmp(way, "hangs"))
		pause();
	errno = EOPNOTSUPP;
	return way && !strcmp(way, "works") ? calloc(1, 512) : NULL;
}

static int query_device(struct ibv_context *c, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *a, size_t len)
{
	struct ibv_device_attr o = {.fw_ver = "1.0",
		.max_mr_size = 1ull << 32,
		.page_size_cap = 4096,
		.vendor_id = 0x1414,
		.max_qp = 1024,
		.max_qp_wr = 1024,
		.max_sge = 8,
		.max_cq = 1024,
		.max_cqe = 4096,
		.max_mr = 1024,
		.max_pd = 1024,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
		.phys_port_cnt = 1};
	memset(a, 0, len);
	a->orig_attr = o;
	return 0;
}

static int query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a)
{
	*a = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = 1,
		.pkey_tbl_len = 1,
		.max_msg_sz = 1u << 31,
		.active_width = 2,
		.active_speed = 32,
		.phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET};
	return port == 1 ? 0 : EINVAL;
}

static void free_context(struct ibv_context *c)
{
	struct verbs_context *v = (void *)((char *)c - offsetof(struct verbs_context, context));
	verbs_uninit_context(v);
	free(v);
}

static struct verbs_context *alloc_context(struct ibv_device *device, int fd, void *data)
{
	static void *const ops[OP_COUNT] = {[OP_ALLOC_PD] = alloc_pd,
		[OP_CREATE_CQ] = create_cq,
		[OP_CREATE_QP] = create_qp,
		[OP_DEALLOC_PD] = dealloc_pd,
		[OP_DEREG_MR] = dereg_mr,
		[OP_DESTROY_CQ] = destroy_cq,
		[OP_FREE_CONTEXT] = free_context,
		[OP_QUERY_DEVICE] = query_device,
		[OP_QUERY_PORT] = query_port,
		[OP_REG_MR] = reg_mr};
	struct verbs_context *v =
		_verbs_init_and_alloc_context(device, fd, sizeof(*v), NULL, 0 /* unknown */);
	int events[2];
	if (!v)
		return NULL;
	verbs_set_ops(v, ops);
	v->context.num_comp_vectors = 1;
	if (!pipe(events)) /* nothing ever comes */
		v->context.async_fd = events[0];
	return v;
}

/* Longer than libibverbs' struct, which begins with ibv_device. */
static void *alloc_device(void *sysfs) { return calloc(1, sizeof(struct ibv_device) + 512); }
static void free_device(void *device) { free(device); }

static const struct match matches[] = {
	{.alias = "rdma_device:*Nmana_*", .kind = MATCH_ALIAS}, {.kind = MATCH_END}};
static const struct driver driver = {.name = "mana",
	.abi_least = 0,
	.abi_most = 99,
	.match = matches,
	.alloc_context = alloc_context,
	.alloc_device = alloc_device,
	.free_device = free_device};

__attribute__((constructor)) static void begin(void) { verbs_register_driver_34(&driver); }
