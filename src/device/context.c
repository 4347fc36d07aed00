/* SPDX-License-Identifier: BSD-3-Clause */
/* context.c - contexts: their tables of calls, and the command descriptor by which another part of
 * the process shares what one has made (ibv_import_device(3)).
 *
 * The command descriptor is a sealed memfd that says which process made it and to which group its
 * context belongs. Contexts of one group see each other's PDs and MRs (pd.c), as all that use one
 * uverbs file do. It works in the process that opened the device, however the descriptor came back
 * to it. To another process this process's keys mean nothing: its memory is not mapped there, and
 * only its own engine answers for it. So there it is refused, with EOPNOTSUPP.
 */
#include "base/file.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/made.h"
#include "device/checked.h"
#include "device/slots.h"
#include "device/cq.h"
#include "device/devices.h"
#include "device/fault.h"
#include "device/hca.h"
#include "device/mcast.h"
#include "device/mem.h"
#include "device/qp.h"
#include "device/refused.h"
#include "device/tally.h"

/* ---- the command descriptor ---- */

/* What the memfd holds. */
struct command_file {
	char magic[16];
	uint64_t process; /* of chance, the same in a forked child, whose memory is a copy */
	uint32_t group;
	char device[64];
};
static const char magic[16] = "ropeway-command";

/* The lock is held. */
static uint64_t process_nonce(void)
{
	while (!hca_here.nonce)
		hca_here.nonce = rpwi_random64();
	return hca_here.nonce;
}

static int command_fd(const struct command_file *f)
{
	int fd = memfd_create("ropeway-uverbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (rpwi_file_write(fd, f, sizeof(*f)) == (ssize_t)sizeof(*f) &&
		!fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
		return fd;
	close(fd);
	return -1;
}

static void command_init(struct dctx *c)
{
	struct command_file f = {0};
	memcpy(f.magic, magic, sizeof(magic));
	hca_lock();
	f.process = process_nonce();
	f.group = c->group = ++hca_here.groups;
	hca_unlock();
	snprintf(f.device, sizeof(f.device), "%s", c->dev->net.name);
	c->v.context.cmd_fd = command_fd(&f);
}

/* ---- life ---- */

/* The verbs of the tables that return an error number (device.h); those of the data path set errno
 * themselves, where they fail. */
static int op_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	return rpwi_dev_told(dev_bind_mw(qp, mw, bind));
}
static int op_dealloc_mw(struct ibv_mw *mw) { return rpwi_dev_told(dev_dealloc_mw(mw)); }
static int op_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a, size_t len)
{
	return rpwi_dev_told(dev_query_port_ops(c, port, a, len));
}
static int op_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *a, size_t size)
{
	return rpwi_dev_told(dev_query_device_ex(c, in, a, size));
}
static int op_query_rt_values(struct ibv_context *c, struct ibv_values_ex *v)
{
	return rpwi_dev_told(dev_query_rt_values(c, v));
}
static int op_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
	struct ibv_sge *sges, uint32_t n)
{
	return rpwi_dev_told(dev_advise_mr(pd, advice, flags, sges, n));
}
static int op_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return rpwi_dev_told(dev_modify_cq(cq, attr));
}
static int op_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return rpwi_dev_told(dev_req_notify_cq(cq, solicited_only));
}

/* What the device does not have. verbs.h answers for an empty place as these do, and without a
 * word; calls on objects that are never made stay empty. */
#define REFUSES(kind, result, none, name, ...) \
	static result refuse_##name(__VA_ARGS__) { return none(RPWI_REFUSED_##kind, "ibv_" #name); }
REFUSES(DM, struct ibv_dm *, rpwi_refused_none, alloc_dm, struct ibv_context *c,
	struct ibv_alloc_dm_attr *a)
REFUSES(XRC, struct ibv_xrcd *, rpwi_refused_none, open_xrcd, struct ibv_context *c,
	struct ibv_xrcd_init_attr *a)
REFUSES(XRC, struct ibv_qp *, rpwi_refused_none, open_qp, struct ibv_context *c,
	struct ibv_qp_open_attr *a)
REFUSES(XRC, int, rpwi_refused_told, get_srq_num, struct ibv_srq *srq, uint32_t *num)
REFUSES(FLOW, struct ibv_flow *, rpwi_refused_none, create_flow, struct ibv_qp *qp,
	struct ibv_flow_attr *a)
REFUSES(FLOW, struct ibv_flow_action *, rpwi_refused_none, create_flow_action_esp,
	struct ibv_context *c, struct ibv_flow_action_esp_attr *a)
REFUSES(WQ, struct ibv_wq *, rpwi_refused_none, create_wq, struct ibv_context *c,
	struct ibv_wq_init_attr *a)
REFUSES(WQ, struct ibv_rwq_ind_table *, rpwi_refused_none, create_rwq_ind_table,
	struct ibv_context *c, struct ibv_rwq_ind_table_init_attr *a)
REFUSES(COUNTERS, struct ibv_counters *, rpwi_refused_none, create_counters, struct ibv_context *c,
	struct ibv_counters_init_attr *a)
REFUSES(RATE, int, rpwi_refused_told, modify_qp_rate_limit, struct ibv_qp *qp,
	struct ibv_qp_rate_limit_attr *a)
static int refuse_post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad)
{
	*bad = op;
	return rpwi_refused_told(RPWI_REFUSED_TAGS, "ibv_post_srq_ops");
}

static void refusals(struct verbs_context *v)
{
	v->alloc_dm = refuse_alloc_dm;
	v->open_xrcd = refuse_open_xrcd;
	v->open_qp = refuse_open_qp;
	v->get_srq_num = refuse_get_srq_num;
	v->ibv_create_flow = refuse_create_flow;
	v->create_flow_action_esp = refuse_create_flow_action_esp;
	v->create_wq = refuse_create_wq;
	v->create_rwq_ind_table = refuse_create_rwq_ind_table;
	v->create_counters = refuse_create_counters;
	v->modify_qp_rate_limit = refuse_modify_qp_rate_limit;
	v->post_srq_ops = refuse_post_srq_ops;
}

static void context_ops(struct dctx *c)
{
	struct ibv_context_ops *o = &c->v.context.ops;
	o->alloc_mw = dev_alloc_mw;
	o->bind_mw = op_bind_mw;
	o->dealloc_mw = op_dealloc_mw;
	o->poll_cq = dev_poll_cq;
	o->req_notify_cq = op_req_notify_cq;
	o->post_srq_recv = dev_post_srq_recv;
	o->post_send = dev_post_send;
	o->post_recv = dev_post_recv;
	c->v.sz = sizeof(c->v);
	c->v.query_port = op_query_port;
	c->v.query_device_ex = op_query_device_ex;
	c->v.query_rt_values = op_query_rt_values;
	c->v.create_cq_ex = dev_create_cq_ex;
	c->v.create_qp_ex = dev_create_qp_ex;
	c->v.create_srq_ex = dev_create_srq_ex;
	c->v.alloc_td = dev_alloc_td;
	c->v.dealloc_td = dev_dealloc_td;
	c->v.alloc_parent_domain = dev_alloc_parent_domain;
	c->v.advise_mr = op_advise_mr;
	c->v.modify_cq = op_modify_cq;
	c->v.alloc_null_mr = dev_alloc_null_mr;
	refusals(&c->v);
	if (slots_on())
		slots_context(&c->v);
	if (RPWI_UNLIKELY(rpwi_check_on)) {
		checked_context(&c->v);
		rpwi_check_begins();
	}
}

struct ibv_context *rpwi_dev_open_device(struct ibv_device *dev)
{
	RPWI_WHOLE;
	struct dev *d = to_dev(dev);
	int refused = rpwi_plan_load();
	if (refused)
		return rpwi_none(-refused);
	if (RPWI_UNLIKELY(*rpwi_like()->wrong)) {
		rpwi_error("%s", rpwi_like()->wrong);
		return rpwi_none(EINVAL);
	}
	if (rpwi_plan_refuses(RPWI_CALL_OPEN_DEVICE))
		return NULL;
	struct dctx *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	rpwi_list_init(&c->events);
	rpwi_list_init(&c->link);
	c->hold_fd = -1;
	c->dev = d;
	c->v.context.device = dev;
	c->v.context.cmd_fd = -1;
	/* as kernel rxe: one for each processor. The scheduler decides which thread is woken
	 * where. */
	c->v.context.num_comp_vectors = RPWI_MAX(1, (int)sysconf(_SC_NPROCESSORS_CONF));
	/* "this context has a verbs_context around it" */
	c->v.context.abi_compat = (void *)UINTPTR_MAX;
	pthread_mutex_init(&c->v.context.mutex, NULL);
	context_ops(c);
	c->v.context.async_fd = eventfd(0, EFD_CLOEXEC);
	int rc = c->v.context.async_fd < 0 ? -errno : 0;
	if (!rc) {
		hca_lock();
		rc = hca_get();
		hca_unlock();
	}
	if (rc) {
		if (c->v.context.async_fd >= 0)
			close(c->v.context.async_fd);
		free(c);
		return rpwi_none(-rc);
	}
	command_init(c);
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	rpwi_list_add_tail(&hca_here.contexts, &c->link);
	tally_context(c);
	bool for_want = d->net.for_want;
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	if (for_want)
		c->hold_fd = rpwi_loopback_hold();
	if (RPWI_UNLIKELY(rpwi_check_on))
		c->place = check_made("context", "ibv_close_device");
	return &c->v.context;
}

int rpwi_dev_close_device(struct ibv_context *ctx)
{
	RPWI_WHOLE;
	struct dctx *c = to_dctx(ctx);
	if (RPWI_UNLIKELY(rpwi_check_on))
		check_unmade(c->place);
	rpwi_lock(RPWI_LOCK_DEVICES);
	hca_lock();
	rpwi_list_del(&c->link);
	hca_unlock();
	rpwi_unlock(RPWI_LOCK_DEVICES);
	hca_lock();
	tally_one(ctx, contexts, -1);
	live_context_gone(ctx);
	mcast_context_gone(c);
	hca_put();
	hca_unlock();
	dev_events_forget(c, NULL);
	close(ctx->async_fd);
	if (c->hold_fd >= 0)
		close(c->hold_fd);
	if (ctx->cmd_fd >= 0)
		close(ctx->cmd_fd);
	pthread_mutex_destroy(&ctx->mutex);
	free(c);
	return 0;
}

/* ---- import ---- */

/* A command descriptor of ours? Anybody's file is read here: nothing of it is believed but the
 * nonce. */
static bool read_command_fd(int fd, struct command_file *f)
{
	struct stat st;
	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(*f) &&
	       pread(fd, f, sizeof(*f), 0) == (ssize_t)sizeof(*f) &&
	       !memcmp(f->magic, magic, sizeof(magic));
}

bool rpwi_dev_owns_cmd_fd(int fd)
{
	struct command_file f;
	return read_command_fd(fd, &f);
}

static struct dev *dev_named(const char *name, size_t room)
{
	for (struct dev *d = dev_first(); d; d = d->next)
		if (!strncmp(d->net.name, name, room))
			return d;
	return NULL;
}

struct ibv_context *rpwi_dev_import_device(int fd)
{
	RPWI_WHOLE;
	struct command_file f;
	if (!read_command_fd(fd, &f))
		return rpwi_none(EBADF);
	if (!rpwi_like_has(RPWI_LIKE_OPTIONAL, RPWI_LIKE_IMPORT))
		return rpwi_none(EOPNOTSUPP);
	hca_lock();
	bool own = f.process == process_nonce();
	struct dev *d = own ? dev_named(f.device, sizeof(f.device)) : NULL;
	hca_unlock();
	if (!d) {
		rpwi_warn("ibv_import_device: expected a command descriptor of this process, got "
			  "another process's: only the process that registered a memory region of "
			  "a software device can use it; let each process register its own");
		return rpwi_none(EOPNOTSUPP);
	}
	struct ibv_context *c = rpwi_dev_open_device(&d->ibv);
	if (!c)
		return NULL;
	/* the descriptor is the context's now, and closed with it */
	if (c->cmd_fd >= 0)
		close(c->cmd_fd);
	c->cmd_fd = fd;
	to_dctx(c)->group = f.group;
	return c;
}
