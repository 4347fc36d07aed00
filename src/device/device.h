/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - the software HCA: verbs objects over rc and io.
 *
 * Every call here has the meaning, arguments and return convention of the libibverbs call of the
 * same name (see its man page), for objects of the software device; the drop-in exports them.
 * Data-path calls (poll_cq, req_notify_cq, post_send, post_recv, post_srq_recv, and what verbs.h
 * inlines: query_device_ex, create_qp_ex, create_cq_ex, create_srq_ex, alloc_mw, bind_mw, alloc_td,
 * alloc_parent_domain, query_port, ...) are not here: a context that rpwi_dev_open_device makes
 * carries them in its ibv_context.ops and verbs_context tables, as inline functions of verbs.h
 * expect.
 *
 * Threads: all of it may be called from any thread, as verbs says. No thread and no socket exists
 * before rpwi_dev_open_device.
 */
#ifndef ROPEWAY_DEVICE_H
#define ROPEWAY_DEVICE_H

#include <infiniband/verbs.h>
#include <stdio.h>

#include "base/base.h"

/* An error number that a verb returns is in errno, too: with a kernel's device the command sets it,
 * and programs look there (perror). */
static inline int rpwi_dev_told(int rc)
{
	if (RPWI_UNLIKELY(rc > 0))
		errno = rc;
	return rc;
}

/* ---- devices ---- */
/* The software devices now, in order (default route's first, loopback last): a malloc'ed array of
 * `*num` pointers that live as long as the process. NULL + errno. */
struct ibv_device **rpwi_dev_get_list(int *num);
bool rpwi_dev_owns_device(const struct ibv_device *d);
bool rpwi_dev_owns_context(const struct ibv_context *c);
uint64_t rpwi_dev_get_guid(const struct ibv_device *d); /* network order, as ibv_get_device_guid */
int rpwi_dev_get_index(const struct ibv_device *d);
/* NULL + errno; an error that a person must act on (port 4791 held) is logged once */
struct ibv_context *rpwi_dev_open_device(struct ibv_device *d);
int rpwi_dev_close_device(struct ibv_context *c);

/* For --check: the program disconnects, and the QP's sends are flushed. */
void rpwi_dev_disconnects(struct ibv_qp *qp);

/* ---- queries ---- */
int rpwi_dev_query_device(struct ibv_context *c, struct ibv_device_attr *a);
/* `a` is the full ibv_port_attr; the exported ibv_query_port writes only the older, smaller struct
 * (struct _compat_ibv_port_attr): preload copies that much. */
int rpwi_dev_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *a);
/* In units of 100 Mb/s: the interface's, which may be less than ibv_query_port can say. */
int rpwi_dev_query_port_speed(const struct ibv_context *c, uint32_t port, uint64_t *speed);
int rpwi_dev_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid);
/* type: as ibv_gid_entry.gid_type (IBV_GID_TYPE_ROCE_V2). flags as in the verb. */
int rpwi_dev_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index,
	struct ibv_gid_entry *e, uint32_t flags);
ssize_t rpwi_dev_query_gid_table(
	struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags);
int rpwi_dev_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey);

/* ---- PD, MR ---- */
struct ibv_pd *rpwi_dev_alloc_pd(struct ibv_context *c);
int rpwi_dev_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *rpwi_dev_reg_mr(
	struct ibv_pd *pd, void *addr, size_t len, uint64_t iova, int access);
/* fd: anything that can be mapped; else EOPNOTSUPP. */
struct ibv_mr *rpwi_dev_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd, int access);
/* enum ibv_rereg_mr_err_code */
int rpwi_dev_rereg_mr(
	struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t len, int access);
int rpwi_dev_dereg_mr(struct ibv_mr *mr);

/* ---- completion counters (comp_cntr.c): the calls of rdma-core 65, whose header most systems do
 * not have yet, so its structs are declared here by names of ours ---- */
struct rpwi_comp_cntr { /* ibv_comp_cntr */
	struct ibv_context *context;
	uint32_t handle;
};
struct rpwi_comp_cntr_caps { /* ibv_comp_cntr_caps */
	uint64_t max_value;
	uint32_t max_counters, supported_qp_attach_ops;
};
int rpwi_dev_query_comp_cntr_caps(const struct ibv_context *c, struct rpwi_comp_cntr_caps *caps);
/* of_bytes: IBV_COMP_CNTR_TYPE_BYTES */
struct rpwi_comp_cntr *rpwi_dev_create_comp_cntr(struct ibv_context *c, bool of_bytes);
int rpwi_dev_destroy_comp_cntr(struct rpwi_comp_cntr *c);
/* errors: of the count of errors (ibv_set_err_comp_cntr and so on) */
int rpwi_dev_set_comp_cntr(struct rpwi_comp_cntr *c, bool errors, uint64_t value);
int rpwi_dev_inc_comp_cntr(struct rpwi_comp_cntr *c, bool errors, uint64_t amount);
int rpwi_dev_read_comp_cntr(const struct rpwi_comp_cntr *c, bool errors, uint64_t *value);
/* kinds: op_mask of ibv_qp_attach_comp_cntr(3) */
int rpwi_dev_qp_attach_comp_cntr(struct ibv_qp *qp, struct rpwi_comp_cntr *c, uint32_t kinds);

/* ---- sharing by command descriptor (context.c, pd.c) ---- */
bool rpwi_dev_owns_cmd_fd(int fd); /* a context's of a ropeway, this process's or another's */
struct ibv_context *rpwi_dev_import_device(int cmd_fd);
struct ibv_pd *rpwi_dev_import_pd(struct ibv_context *c, uint32_t handle);
void rpwi_dev_unimport_pd(struct ibv_pd *pd);
struct ibv_mr *rpwi_dev_import_mr(struct ibv_pd *pd, uint32_t handle);
void rpwi_dev_unimport_mr(struct ibv_mr *mr);

/* ---- CQ and channels ---- */
struct ibv_comp_channel *rpwi_dev_create_comp_channel(struct ibv_context *c);
int rpwi_dev_destroy_comp_channel(struct ibv_comp_channel *ch);
struct ibv_cq *rpwi_dev_create_cq(struct ibv_context *c, int cqe, void *cq_context,
	struct ibv_comp_channel *ch, int comp_vector);
int rpwi_dev_resize_cq(struct ibv_cq *cq, int cqe);
int rpwi_dev_destroy_cq(struct ibv_cq *cq);
int rpwi_dev_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **cq_context);
void rpwi_dev_ack_cq_events(struct ibv_cq *cq, unsigned nevents);

/* ---- SRQ, QP, AH ---- */
struct ibv_srq *rpwi_dev_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int rpwi_dev_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int rpwi_dev_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int rpwi_dev_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *rpwi_dev_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int rpwi_dev_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int rpwi_dev_query_qp(
	struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int rpwi_dev_destroy_qp(struct ibv_qp *qp);
/* NULL unless made with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
struct ibv_qp_ex *rpwi_dev_qp_to_qp_ex(struct ibv_qp *qp);
struct ibv_ah *rpwi_dev_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int rpwi_dev_destroy_ah(struct ibv_ah *ah);
int rpwi_dev_init_ah_from_wc(struct ibv_context *c, uint8_t port, struct ibv_wc *wc,
	struct ibv_grh *grh, struct ibv_ah_attr *attr);
int rpwi_dev_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int rpwi_dev_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);

/* ---- the way to a QP's peer (path.c) ---- */
enum rpwi_path_kind {
	RPWI_PATH_TOO_BIG,
	RPWI_PATH_HOPS,
	RPWI_PATH_NO_PORT,
	RPWI_PATH_NO_HOST,
	RPWI_PATH_FORBIDDEN,
	RPWI_PATH_NAT,
	RPWI_PATH_SIZE_LOST, /* small packets come through, larger ones do not */
	RPWI_PATH_KINDS
};
/* What is known of the way to the peer of a QP, seen in the last half minute: kinds, a bit each;
 * *mtu the largest MTU of RoCE that passes (256 to 4096; 0: not known); text: a sentence of the
 * gravest, with its remedy, or "". No verb: only who knows this device asks. */
unsigned rpwi_dev_path_word(struct ibv_qp *qp, unsigned *mtu, char *text, size_t room);

/* ---- async events ---- */
int rpwi_dev_get_async_event(struct ibv_context *c, struct ibv_async_event *ev);
void rpwi_dev_ack_async_event(struct ibv_async_event *ev);

/* ---- statistics: packets, retries, NAKs sent and received by kind, RNR, ICRC errors; for `ropeway
 * run --stats` (ROPEWAY_STATS=1), all devices of this process. ---- */
void rpwi_dev_stats_print(FILE *to);

#endif
