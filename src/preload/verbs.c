/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.c - every call on an object of a context: to the software device if the context is its own,
 * else to the real library. */
#include "device/refused.h"
#include "preload/preload.h"

#include "check/check.h"
#include "check/forked.h"
#include "check/freed.h"
#include "explain/trace.h"
#include "base/lock.h"

#include <stdlib.h>
#include <unistd.h>

static inline bool ours(const struct ibv_context *c) { return c && rpwi_dev_owns_context(c); }
#define CONTEXT_OF(object) ((object) ? (object)->context : NULL)
/* An object is ours if its context is. Where no context but ours was ever opened it is ours, or a
 * program's mistake, which may be freed memory: the device looks it up before it reads it
 * (device/live.h). */
#define OURS(object) ((object) && (rpwi_real_opened ? ours((object)->context) : !rpwi_fork_broken))

/* A call that the device answers with `says` if the context, or the object, is its own. */
#define CALL_ON(context, result, name, params, args, says) \
	RPWI_EXPORT result name params \
	{ \
		RPWI_CHECK_HERE(); \
		return ours(context) ? says : rpwi_others(context)->name args; \
	}
#define CALL_OF(object, result, name, params, args, says) \
	RPWI_EXPORT result name params \
	{ \
		RPWI_CHECK_HERE(); \
		return OURS(object) ? says : rpwi_others(CONTEXT_OF(object))->name args; \
	}

/* The account (ROPEWAY_EXPLAIN) begins before the first call. */
__attribute__((constructor)) static void begin_account(void)
{
	if (rpwi_handed_on())
		return;
	rpwi_explain_init();
	rpwi_check_init();
	rpwi_check_on = rpwi_check_on && !rpwi_check_sites_init();
	if (!rpwi_check_on)
		return;
	check_freed_init();
	check_forked_init();
}

/* ---- queries ---- */

CALL_ON(context, int, ibv_query_device,
	(struct ibv_context * context, struct ibv_device_attr *device_attr), (context, device_attr),
	rpwi_dev_told(rpwi_dev_query_device(context, device_attr)))

/* The struct of libibverbs before 1.1.16 or so: ibv_port_attr up to `flags`. The exported call must
 * not write beyond it, whatever it was compiled with; programs of today get the whole from the
 * inline ibv_query_port, through the context's table. */
struct _compat_ibv_port_attr {
	uint8_t bytes[offsetof(struct ibv_port_attr, flags) +
		      sizeof(((struct ibv_port_attr *)0)->flags)];
};
_Static_assert(
	sizeof(struct _compat_ibv_port_attr) == 48, "rdma-core's struct _compat_ibv_port_attr");

RPWI_EXPORT int ibv_query_port(
	struct ibv_context *context, uint8_t port_num, struct _compat_ibv_port_attr *port_attr)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->ibv_query_port(context, port_num, port_attr);
	struct ibv_port_attr all = {0};
	int rc = rpwi_dev_told(rpwi_dev_query_port(context, port_num, &all));
	if (!rc)
		memcpy(port_attr, &all, sizeof(*port_attr));
	return rc;
}

/* Since rdma-core 60: in units of 100 Mb/s. */
CALL_ON(context, int, ibv_query_port_speed,
	(struct ibv_context * context, uint32_t port_num, uint64_t *port_speed),
	(context, port_num, port_speed),
	rpwi_dev_told(rpwi_dev_query_port_speed(context, port_num, port_speed)))

CALL_ON(context, int, ibv_query_gid,
	(struct ibv_context * context, uint8_t port_num, int index, union ibv_gid *gid),
	(context, port_num, index, gid), rpwi_dev_query_gid(context, port_num, index, gid))

/* The program's ibv_gid_entry may be shorter or longer than ours; fields are only ever added at its
 * end. */
static void copy_gid_entry(
	struct ibv_gid_entry *to, const struct ibv_gid_entry *from, size_t to_size)
{
	memset(to, 0, to_size);
	memcpy(to, from, RPWI_MIN(to_size, sizeof(*from)));
}

RPWI_EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
	uint32_t gid_index, struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->_ibv_query_gid_ex(
			context, port_num, gid_index, entry, flags, entry_size);
	if (!entry)
		return rpwi_dev_told(EFAULT);
	struct ibv_gid_entry e = {0};
	int rc = rpwi_dev_told(rpwi_dev_query_gid_ex(context, port_num, gid_index, &e, flags));
	if (!rc)
		copy_gid_entry(entry, &e, entry_size);
	return rc;
}

enum { GID_TABLE_MAX = 256 };

RPWI_EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
	size_t max_entries, uint32_t flags, size_t entry_size)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->_ibv_query_gid_table(
			context, entries, max_entries, flags, entry_size);
	if (!entries)
		return -rpwi_dev_told(max_entries ? EFAULT : EINVAL);
	if (entry_size == sizeof(*entries))
		return rpwi_dev_query_gid_table(context, entries, max_entries, flags);
	struct ibv_gid_entry e[GID_TABLE_MAX];
	ssize_t n = rpwi_dev_query_gid_table(
		context, e, RPWI_MIN(max_entries, (size_t)GID_TABLE_MAX), flags);
	for (ssize_t i = 0; i < n; i++)
		copy_gid_entry((struct ibv_gid_entry *)((char *)entries + (size_t)i * entry_size),
			&e[i], entry_size);
	return n;
}

RPWI_EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
	unsigned int index, enum ibv_gid_type_sysfs *type)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->ibv_query_gid_type(context, port_num, index, type);
	struct ibv_gid_entry e = {0};
	int rc = rpwi_dev_query_gid_ex(context, port_num, index, &e, 0);
	if (rc && rc != ENODATA)
		return -1;
	/* An empty entry is reported as the real library does: without an error, as version 1. */
	*type = !rc && e.gid_type == IBV_GID_TYPE_ROCE_V2 ? IBV_GID_TYPE_SYSFS_ROCE_V2
							  : IBV_GID_TYPE_SYSFS_IB_ROCE_V1;
	return 0;
}

CALL_ON(context, int, ibv_query_pkey,
	(struct ibv_context * context, uint8_t port_num, int index, __be16 *pkey),
	(context, port_num, index, pkey), rpwi_dev_query_pkey(context, port_num, index, pkey))

RPWI_EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->ibv_get_pkey_index(context, port_num, pkey);
	__be16 have;
	for (int i = 0; !rpwi_dev_query_pkey(context, port_num, i, &have); i++)
		if (have == pkey)
			return i;
	return -1;
}

/* ---- async events ---- */

RPWI_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	RPWI_CHECK_HERE();
	if (ours(context)) {
		int rc = rpwi_dev_get_async_event(context, event);
		if (!rc)
			rpwi_explain(
				RPWI_EXPLAIN_ASYNC, "%s", ibv_event_type_str(event->event_type));
		return rc;
	}
	return rpwi_others(context)->ibv_get_async_event(context, event);
}

/* Of the object that an event names; NULL for the events of a port or a device, which name none and
 * whose acknowledgement counts nothing. */
static const struct ibv_context *event_context(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		return event->element.cq->context;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return event->element.qp->context;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return event->element.srq->context;
	case IBV_EVENT_WQ_FATAL:
		return event->element.wq->context;
	default:
		return NULL;
	}
}

RPWI_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	RPWI_CHECK_HERE();
	const struct ibv_context *c = event ? event_context(event) : NULL;
	if (!c)
		return;
	if (ours(c))
		rpwi_dev_ack_async_event(event);
	else
		rpwi_others(c)->ibv_ack_async_event(event);
}

/* ---- PD and MR ---- */

RPWI_EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	RPWI_CHECK_HERE();
	if (!ours(context))
		return rpwi_others(context)->ibv_alloc_pd(context);
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_alloc_pd");
	return rpwi_dev_alloc_pd(context);
}

CALL_OF(pd, int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd), rpwi_dev_told(rpwi_dev_dealloc_pd(pd)))

CALL_ON(context, struct ibv_pd *, ibv_import_pd, (struct ibv_context * context, uint32_t pd_handle),
	(context, pd_handle), rpwi_dev_import_pd(context, pd_handle))

CALL_OF(pd, void, ibv_unimport_pd, (struct ibv_pd * pd), (pd), rpwi_dev_unimport_pd(pd))

/* Access flags of the optional range are hints that a device may ignore, and a software device has
 * no use for any. */
static int without_optional(unsigned int access)
{
	return (int)(access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE);
}

/* With the key that counts then: ", only for us: lkey 0x101"; or ": refused, ...". */
static const char *outcome(int access, const struct ibv_mr *mr, char out[96])
{
	const char *may = NULL;
	if (access & IBV_ACCESS_REMOTE_WRITE)
		may = "write";
	else if (access & IBV_ACCESS_REMOTE_READ)
		may = "read";
	else if (access & IBV_ACCESS_REMOTE_ATOMIC)
		may = "change it by atomics";
	if (!mr)
		snprintf(out, 96, ": refused, %s", strerror(errno));
	else if (may)
		snprintf(out, 96, ", the peer may %s: rkey 0x%x", may, mr->rkey);
	else
		snprintf(out, 96, ", only for us: lkey 0x%x", mr->lkey);
	return out;
}

static struct ibv_mr *reg_mr(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	struct ibv_mr *mr = rpwi_dev_reg_mr(pd, addr, length, iova, access);
	char text[96];
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_reg_mr %s, %zu bytes%s", RPWI_AT(addr), length,
		outcome(access, mr, text));
	return mr;
}

CALL_OF(pd, struct ibv_mr *, ibv_reg_mr,
	(struct ibv_pd * pd, void *addr, size_t length, int access), (pd, addr, length, access),
	reg_mr(pd, addr, length, (uintptr_t)addr, without_optional((unsigned)access)))

CALL_OF(pd, struct ibv_mr *, ibv_reg_mr_iova,
	(struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, int access),
	(pd, addr, length, iova, access),
	reg_mr(pd, addr, length, iova, without_optional((unsigned)access)))

CALL_OF(pd, struct ibv_mr *, ibv_reg_mr_iova2,
	(struct ibv_pd * pd, void *addr, size_t length, uint64_t iova, unsigned int access),
	(pd, addr, length, iova, access), reg_mr(pd, addr, length, iova, without_optional(access)))

RPWI_EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))
			->ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	access = without_optional((unsigned)access);
	struct ibv_mr *mr = rpwi_dev_reg_dmabuf_mr(pd, offset, length, iova, fd, access);
	char text[96];
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_reg_dmabuf_mr %d, %zu bytes at %llu%s", fd, length,
		(unsigned long long)offset, outcome(access, mr, text));
	return mr;
}

CALL_OF(mr, int, ibv_rereg_mr,
	(struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access),
	(mr, flags, pd, addr, length, access),
	rpwi_dev_rereg_mr(mr, flags, pd, addr, length, access))

RPWI_EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	RPWI_CHECK_HERE();
	if (!OURS(mr))
		return rpwi_others(CONTEXT_OF(mr))->ibv_dereg_mr(mr);
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_dereg_mr");
	return rpwi_dev_told(rpwi_dev_dereg_mr(mr));
}

/* ---- what rdma-core 59 to 65 does for every device, old and new alike ---- */

/* What a program of later headers calls an ibv_buf, and never looks into. */
struct ibv_buf {
	const void *ours;
	struct ibv_pd *pd;
	uint8_t *addr;
	size_t size;
};
static const char is_ours;

static const struct rpwi_real *of_buf(const struct ibv_buf *buf)
{
	return buf ? rpwi_real() : rpwi_invalid();
}
static bool is_buf(const struct ibv_buf *buf) { return buf && buf->ours == &is_ours; }

RPWI_EXPORT void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_alloc_buf(pd, size, buf);
	struct ibv_buf *b = calloc(1, sizeof(*b));
	void *at;
	if (!b || posix_memalign(&at, (size_t)sysconf(_SC_PAGESIZE), size)) {
		free(b);
		return rpwi_none(ENOMEM);
	}
	*b = (struct ibv_buf){.ours = &is_ours, .pd = pd, .addr = at, .size = size};
	*buf = b;
	return at;
}

RPWI_EXPORT void ibv_free_buf(struct ibv_buf *buf)
{
	RPWI_CHECK_HERE();
	if (!is_buf(buf)) {
		of_buf(buf)->ibv_free_buf(buf);
		return;
	}
	free(buf->addr);
	free(buf);
}

RPWI_EXPORT int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf)
{
	RPWI_CHECK_HERE();
	if (!is_buf(buf))
		return of_buf(buf)->ibv_export_buf_dmabuf_fd(buf);
	errno = ENODATA; /* it is no dma-buf */
	return -1;
}

enum {
	WITH_IOVA = 1,
	WITH_ADDR = 2,
	WITH_FD = 4,
	WITH_FD_OFFSET = 8,
	WITH_DMAH = 16,
	WITH_BUF = 32
};

/* struct ibv_mr_init_attr of 65. What comp_mask does not name may not be there. */
struct how {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct ibv_buf *buf;
};

static struct ibv_mr *refused(int error) { return rpwi_none(error); }

static bool is_within(const struct ibv_buf *b, const struct ibv_pd *pd, const struct how *how)
{
	size_t off = (size_t)((uint8_t *)how->addr - b->addr);
	return b->pd == pd && (uint8_t *)how->addr >= b->addr && off <= b->size &&
	       how->length <= b->size - off;
}

RPWI_EXPORT struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_reg_mr_ex(pd, attr);
	const struct how *how = (const void *)attr;
	uint64_t with = how->comp_mask;
	if (with & WITH_DMAH)
		return rpwi_refused_none(RPWI_REFUSED_DMAH, "ibv_reg_mr_ex");
	if (with & ~(uint64_t)(WITH_IOVA | WITH_ADDR | WITH_FD | WITH_FD_OFFSET | WITH_BUF))
		return refused(EOPNOTSUPP);
	if (with & WITH_BUF) {
		if (!(with & WITH_ADDR) || (with & (WITH_FD | WITH_FD_OFFSET)) ||
			!is_buf(how->buf) || !is_within(how->buf, pd, how))
			return refused(EINVAL);
		with &= ~(uint64_t)WITH_BUF;
	}
	if (with & WITH_FD) {
		if (with != (WITH_FD | WITH_FD_OFFSET | WITH_IOVA))
			return refused(EINVAL);
		return ibv_reg_dmabuf_mr(
			pd, how->fd_offset, how->length, how->iova, how->fd, how->access);
	}
	if (!(with & WITH_ADDR) || (with & WITH_FD_OFFSET))
		return refused(EINVAL);
	uint64_t iova = with & WITH_IOVA ? how->iova : (uintptr_t)how->addr;
	return ibv_reg_mr_iova2(pd, how->addr, how->length, iova, (unsigned)how->access);
}

RPWI_EXPORT struct ibv_mr *ibv_reg_buf_mr(
	struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_reg_buf_mr(pd, buf, addr, length, access);
	struct how how = {.length = length,
		.access = access,
		.comp_mask = WITH_ADDR | WITH_BUF,
		.addr = addr,
		.buf = buf};
	return ibv_reg_mr_ex(pd, (void *)&how);
}

CALL_OF(pd, struct ibv_mr *, ibv_import_mr, (struct ibv_pd * pd, uint32_t mr_handle),
	(pd, mr_handle), rpwi_dev_import_mr(pd, mr_handle))

CALL_OF(mr, void, ibv_unimport_mr, (struct ibv_mr * mr), (mr), rpwi_dev_unimport_mr(mr))

CALL_ON(context, struct ibv_dm *, ibv_import_dm, (struct ibv_context * context, uint32_t dm_handle),
	(context, dm_handle), rpwi_refused_none(RPWI_REFUSED_DM, "ibv_import_dm"))

RPWI_EXPORT void ibv_unimport_dm(struct ibv_dm *dm)
{
	RPWI_CHECK_HERE();
	if (!ours(CONTEXT_OF(dm)))
		rpwi_others(CONTEXT_OF(dm))->ibv_unimport_dm(dm);
}

CALL_ON(CONTEXT_OF(dm), int, ibv_dm_export_dmabuf_fd, (struct ibv_dm * dm), (dm),
	rpwi_minus(rpwi_refused_told(RPWI_REFUSED_DM, "ibv_dm_export_dmabuf_fd")))
CALL_ON(context, struct ibv_dmah *, ibv_alloc_dmah,
	(struct ibv_context * context, struct ibv_dmah_init_attr *attr), (context, attr),
	rpwi_refused_none(RPWI_REFUSED_DMAH, "ibv_alloc_dmah"))

/* Ours are never made. It begins with its context. */
RPWI_EXPORT int ibv_dealloc_dmah(struct ibv_dmah *dmah)
{
	RPWI_CHECK_HERE();
	const struct ibv_context *context = dmah ? *(struct ibv_context **)dmah : NULL;
	return ours(context) ? rpwi_dev_told(EINVAL) : rpwi_others(context)->ibv_dealloc_dmah(dmah);
}

/* ---- CQ and channels ---- */

CALL_ON(context, struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * context),
	(context), rpwi_dev_create_comp_channel(context))

CALL_OF(channel, int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel), (channel),
	rpwi_dev_told(rpwi_dev_destroy_comp_channel(channel)))

RPWI_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
	struct ibv_comp_channel *channel, int comp_vector)
{
	RPWI_CHECK_HERE();
	if (ours(context)) {
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_create_cq for %d completions%s", cqe,
			channel ? ", with a channel" : "");
		return rpwi_dev_create_cq(context, cqe, cq_context, channel, comp_vector);
	}
	return rpwi_others(context)->ibv_create_cq(context, cqe, cq_context, channel, comp_vector);
}

CALL_OF(cq, int, ibv_resize_cq, (struct ibv_cq * cq, int cqe), (cq, cqe),
	rpwi_dev_told(rpwi_dev_resize_cq(cq, cqe)))

CALL_OF(cq, int, ibv_destroy_cq, (struct ibv_cq * cq), (cq), rpwi_dev_told(rpwi_dev_destroy_cq(cq)))

RPWI_EXPORT int ibv_get_cq_event(
	struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	RPWI_CHECK_HERE();
	if (ours(CONTEXT_OF(channel))) {
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_get_cq_event: waits on the channel");
		return rpwi_dev_get_cq_event(channel, cq, cq_context);
	}
	return rpwi_others(CONTEXT_OF(channel))->ibv_get_cq_event(channel, cq, cq_context);
}

CALL_ON(CONTEXT_OF(cq), void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int nevents),
	(cq, nevents), rpwi_dev_ack_cq_events(cq, nevents))

/* ---- SRQ ---- */

RPWI_EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_create_srq(pd, attr);
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_create_srq for %u receives", attr->attr.max_wr);
	return rpwi_dev_create_srq(pd, attr);
}

CALL_OF(srq, int, ibv_modify_srq, (struct ibv_srq * srq, struct ibv_srq_attr *attr, int mask),
	(srq, attr, mask), rpwi_dev_told(rpwi_dev_modify_srq(srq, attr, mask)))

CALL_OF(srq, int, ibv_query_srq, (struct ibv_srq * srq, struct ibv_srq_attr *attr), (srq, attr),
	rpwi_dev_told(rpwi_dev_query_srq(srq, attr)))

CALL_OF(srq, int, ibv_destroy_srq, (struct ibv_srq * srq), (srq),
	rpwi_dev_told(rpwi_dev_destroy_srq(srq)))

/* ---- QP ---- */

RPWI_EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	RPWI_CHECK_HERE();
	static const char *const types[] = {
		[IBV_QPT_RC] = "RC", [IBV_QPT_UC] = "UC", [IBV_QPT_UD] = "UD"};
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_create_qp(pd, attr);
	struct ibv_qp *qp = rpwi_dev_create_qp(pd, attr);
	if (qp)
		rpwi_explain(RPWI_EXPLAIN_CALL,
			"ibv_create_qp %s: QP 0x%06x, room for %u send%s and %u receive%s",
			types[attr->qp_type], qp->qp_num, attr->cap.max_send_wr,
			rpwi_plural(attr->cap.max_send_wr), attr->cap.max_recv_wr,
			rpwi_plural(attr->cap.max_recv_wr));
	else
		rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_create_qp: refused, %s", strerror(errno));
	return qp;
}

CALL_ON(CONTEXT_OF(qp), struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp * qp), (qp),
	rpwi_dev_qp_to_qp_ex(qp))

CALL_OF(qp, int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask),
	(qp, attr, mask), rpwi_dev_told(rpwi_dev_modify_qp(qp, attr, mask)))

CALL_OF(qp, int, ibv_query_qp,
	(struct ibv_qp * qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
	(qp, attr, mask, init), rpwi_dev_told(rpwi_dev_query_qp(qp, attr, mask, init)))

/* 0: no promise. A retransmitted packet may be placed again behind later ones. */
CALL_ON(CONTEXT_OF(qp), int, ibv_query_qp_data_in_order,
	(struct ibv_qp * qp, enum ibv_wr_opcode op, uint32_t flags), (qp, op, flags), 0)

/* Enhanced connection establishment is between NICs of one vendor. EOPNOTSUPP is what kernel rxe's
 * users get, and what programs (librdmacm, NCCL) go on from. To succeed with zeros would break
 * rdma_set_local_ece, which wants a vendor; with a vendor of our own, the peer's ibv_set_ece: mlx5
 * refuses others with EINVAL. */
CALL_ON(CONTEXT_OF(qp), int, ibv_query_ece, (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece),
	rpwi_refused_told(RPWI_REFUSED_ECE, "ibv_query_ece"))

CALL_ON(CONTEXT_OF(qp), int, ibv_set_ece, (struct ibv_qp * qp, struct ibv_ece *ece), (qp, ece),
	rpwi_refused_told(RPWI_REFUSED_ECE, "ibv_set_ece"))

/* No verb: the messaging library's transport asks (tran/verbs/verbs_table.h, which says how). */
unsigned ropeway_path_word(struct ibv_qp *qp, unsigned *mtu, char *text, size_t room);
RPWI_EXPORT unsigned ropeway_path_word(struct ibv_qp *qp, unsigned *mtu, char *text, size_t room)
{
	RPWI_CHECK_HERE();
	__typeof__(&ropeway_path_word) first = rpwi_first_symbol("ropeway_path_word");
	*mtu = 0;
	if (room)
		*text = 0;
	if (first)
		return first(qp, mtu, text, room);
	return ours(CONTEXT_OF(qp)) ? rpwi_dev_path_word(qp, mtu, text, room) : 0;
}

RPWI_EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	RPWI_CHECK_HERE();
	if (!OURS(qp))
		return rpwi_others(CONTEXT_OF(qp))->ibv_destroy_qp(qp);
	return rpwi_dev_told(rpwi_dev_destroy_qp(qp));
}

/* ---- AH and multicast ---- */

RPWI_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	RPWI_CHECK_HERE();
	if (!OURS(pd))
		return rpwi_others(CONTEXT_OF(pd))->ibv_create_ah(pd, attr);
	rpwi_explain(RPWI_EXPLAIN_CALL, "ibv_create_ah");
	return rpwi_dev_create_ah(pd, attr);
}

CALL_ON(context, int, ibv_init_ah_from_wc,
	(struct ibv_context * context, uint8_t port_num, struct ibv_wc *wc, struct ibv_grh *grh,
		struct ibv_ah_attr *attr),
	(context, port_num, wc, grh, attr),
	rpwi_dev_init_ah_from_wc(context, port_num, wc, grh, attr))

RPWI_EXPORT struct ibv_ah *ibv_create_ah_from_wc(
	struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port_num)
{
	RPWI_CHECK_HERE();
	if (!ours(CONTEXT_OF(pd)))
		return rpwi_others(CONTEXT_OF(pd))->ibv_create_ah_from_wc(pd, wc, grh, port_num);
	struct ibv_ah_attr attr = {0};
	int rc = rpwi_dev_init_ah_from_wc(pd->context, port_num, wc, grh, &attr);
	return rc ? NULL : rpwi_dev_create_ah(pd, &attr);
}

CALL_OF(ah, int, ibv_destroy_ah, (struct ibv_ah * ah), (ah), rpwi_dev_told(rpwi_dev_destroy_ah(ah)))

/* For drivers that build Ethernet headers. Here the kernel does, and nobody above it knows the
 * neighbor's address. */
CALL_ON(context, int, ibv_resolve_eth_l2_from_gid,
	(struct ibv_context * context, struct ibv_ah_attr *attr, uint8_t eth_mac[ETHERNET_LL_SIZE],
		uint16_t *vid),
	(context, attr, eth_mac, vid),
	-rpwi_refused_told(RPWI_REFUSED_ETHERNET, "ibv_resolve_eth_l2_from_gid"))

CALL_OF(qp, int, ibv_attach_mcast, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid),
	(qp, gid, lid), rpwi_dev_told(rpwi_dev_attach_mcast(qp, gid, lid)))

CALL_OF(qp, int, ibv_detach_mcast, (struct ibv_qp * qp, const union ibv_gid *gid, uint16_t lid),
	(qp, gid, lid), rpwi_dev_told(rpwi_dev_detach_mcast(qp, gid, lid)))

/* ---- completion counters (rdma-core 65). The structs are those of its verbs.h, by names of ours;
 * a counter begins with its context, as every object does. ---- */

struct counter_init { /* ibv_comp_cntr_init_attr */
	uint32_t comp_mask, type, flags;
};
struct counter_attach { /* ibv_qp_attach_comp_cntr_attr */
	uint32_t comp_mask, op_mask;
};
enum { COUNTS_BYTES = 1 };

static inline struct rpwi_comp_cntr *counter(struct ibv_comp_cntr *c) { return (void *)c; }

RPWI_EXPORT int _ibv_query_comp_cntr_caps(
	struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size)
{
	RPWI_CHECK_HERE();
	struct rpwi_comp_cntr_caps all;
	if (!ours(context))
		return rpwi_others(context)->_ibv_query_comp_cntr_caps(context, caps, caps_size);
	int rc = rpwi_dev_told(rpwi_dev_query_comp_cntr_caps(context, &all));
	/* the program's may be longer or shorter than ours; fields are added at its end */
	memset(caps, 0, caps_size);
	memcpy(caps, &all, RPWI_MIN(caps_size, sizeof(all)));
	return rc;
}

RPWI_EXPORT struct ibv_comp_cntr *ibv_create_comp_cntr(
	struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr)
{
	RPWI_CHECK_HERE();
	const struct counter_init *a = (const void *)attr;
	if (!ours(context))
		return rpwi_others(context)->ibv_create_comp_cntr(context, attr);
	if (!a || a->comp_mask || a->flags)
		return rpwi_none(EINVAL);
	if (a->type > COUNTS_BYTES)
		return rpwi_none(EOPNOTSUPP);
	return (void *)rpwi_dev_create_comp_cntr(context, a->type == COUNTS_BYTES);
}

#define CALL_OF_COUNTER(name, params, args, says) \
	CALL_OF(counter(cntr), int, name, params, args, rpwi_dev_told(says))

CALL_OF_COUNTER(ibv_destroy_comp_cntr, (struct ibv_comp_cntr * cntr), (cntr),
	rpwi_dev_destroy_comp_cntr(counter(cntr)))
CALL_OF_COUNTER(ibv_set_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t value), (cntr, value),
	rpwi_dev_set_comp_cntr(counter(cntr), false, value))
CALL_OF_COUNTER(ibv_set_err_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t value), (cntr, value),
	rpwi_dev_set_comp_cntr(counter(cntr), true, value))
CALL_OF_COUNTER(ibv_inc_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t amount), (cntr, amount),
	rpwi_dev_inc_comp_cntr(counter(cntr), false, amount))
CALL_OF_COUNTER(ibv_inc_err_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t amount),
	(cntr, amount), rpwi_dev_inc_comp_cntr(counter(cntr), true, amount))
CALL_OF_COUNTER(ibv_read_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t *value), (cntr, value),
	rpwi_dev_read_comp_cntr(counter(cntr), false, value))
CALL_OF_COUNTER(ibv_read_err_comp_cntr, (struct ibv_comp_cntr * cntr, uint64_t *value),
	(cntr, value), rpwi_dev_read_comp_cntr(counter(cntr), true, value))

RPWI_EXPORT int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *cntr, struct ibv_qp_attach_comp_cntr_attr *attr)
{
	RPWI_CHECK_HERE();
	const struct counter_attach *a = (const void *)attr;
	if (!OURS(qp))
		return rpwi_others(CONTEXT_OF(qp))->ibv_qp_attach_comp_cntr(qp, cntr, attr);
	if (!cntr || !a || a->comp_mask)
		return rpwi_dev_told(EINVAL);
	return rpwi_dev_told(rpwi_dev_qp_attach_comp_cntr(qp, counter(cntr), a->op_mask));
}
