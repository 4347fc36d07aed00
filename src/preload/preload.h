/* SPDX-License-Identifier: BSD-3-Clause */
/* preload.h - what the files of the drop-in share: the real library's calls, the guard, and how to
 * reach what a hook stands in front of.
 *
 * The drop-in defines libibverbs' calls. An object is ours only if its context is in the device's
 * table (rpwi_dev_owns_context); everything else goes to the real library, which is opened when
 * first needed. Nothing is opened, started or allocated before the program asks for a device.
 */
#ifndef ROPEWAY_PRELOAD_H
#define ROPEWAY_PRELOAD_H

#include "base/base.h"
#include "base/lock.h"
#include "device/device.h"
#include "preload/calls.h"
#include "tree/tree.h"

#include <sys/types.h>

/* Inline wrappers of verbs.h that hide the exported calls of the same name. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* Exported by libibverbs, but declared in headers that Debian does not install, or only in later
 * ones (rdma-core's driver.h; verbs.h of 57 to 65). */
enum ibv_gid_type_sysfs { IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2 };
struct ibv_mr_init_attr;
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num, unsigned int index,
	enum ibv_gid_type_sysfs *type);
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
const char *ibv_get_sysfs_path(void);
struct ibv_context *verbs_open_device(struct ibv_device *device, void *private_data);
int ibv_query_port_speed(struct ibv_context *context, uint32_t port_num, uint64_t *port_speed);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct ibv_mr_init_attr *attr);
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_dmah *ibv_alloc_dmah(struct ibv_context *context, struct ibv_dmah_init_attr *attr);
int ibv_dealloc_dmah(struct ibv_dmah *dmah);
int ibv_dm_export_dmabuf_fd(struct ibv_dm *dm);
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;
int _ibv_query_comp_cntr_caps(
	struct ibv_context *context, struct ibv_comp_cntr_caps *caps, size_t caps_size);
struct ibv_comp_cntr *ibv_create_comp_cntr(
	struct ibv_context *context, struct ibv_comp_cntr_init_attr *attr);
int ibv_destroy_comp_cntr(struct ibv_comp_cntr *cntr);
int ibv_set_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value);
int ibv_set_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t value);
int ibv_inc_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount);
int ibv_inc_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t amount);
int ibv_read_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value);
int ibv_read_err_comp_cntr(struct ibv_comp_cntr *cntr, uint64_t *value);
int ibv_qp_attach_comp_cntr(
	struct ibv_qp *qp, struct ibv_comp_cntr *cntr, struct ibv_qp_attach_comp_cntr_attr *attr);
struct ibv_buf;
void *ibv_alloc_buf(struct ibv_pd *pd, size_t size, struct ibv_buf **buf);
void ibv_free_buf(struct ibv_buf *buf);
int ibv_export_buf_dmabuf_fd(struct ibv_buf *buf);
struct ibv_mr *ibv_reg_buf_mr(
	struct ibv_pd *pd, struct ibv_buf *buf, void *addr, size_t length, int access);

/* ---- real.c ---- */
struct rpwi_real {
	bool found; /* there is a libibverbs.so.1, or another ropeway that answers */
#define X(name, missing) __typeof__(&name) name;
	RPWI_CALLS(X)
#undef X
};
/* The real library's calls, all callable: what it lacks, or all of it where there is none, fails as
 * calls.h says. Opens the library the first time. */
const struct rpwi_real *rpwi_real(void);
/* Calls that only fail: EINVAL, of no object; EIO, in a child with rpwi_fork_broken. */
const struct rpwi_real *rpwi_invalid(void);
const struct rpwi_real *rpwi_refused(void);
/* Who answers for the others: the real library. For NULL, with which it would crash, and in a child
 * that has to refuse: EINVAL or EIO, as the call tells errors. */
static inline const struct rpwi_real *rpwi_others(const void *object)
{
	if (!object)
		return rpwi_invalid();
	return rpwi_fork_broken ? rpwi_refused() : rpwi_real();
}

/* A call of ours that stands for the real one: its place in the table, or -1. Calls nothing outside
 * (a sanitizer runtime may not have started yet). */
int rpwi_call_find(const char *name);
void *rpwi_call_ours(int call);
void *rpwi_call_real(int call);

/* ---- devices.c ---- */
/* There are, or were, contexts in this process that are not ours. */
extern _Atomic bool rpwi_real_opened;

/* ---- find.c ---- */
/* Does another ropeway, which the loader took before this one, answer for this process? */
bool rpwi_handed_on(void);
/* Its call, past every hook; NULL: it has none, or there is no other. */
void *rpwi_first_symbol(const char *name);
/* A handle of the distribution's libibverbs.so.1, or NULL. Opens it the first time. */
void *rpwi_distribution(void);

/* ---- resolve.c ---- */
/* What `name` means to the libraries after this one: glibc's, or a sanitizer runtime's. */
void *rpwi_next(const char *name);
/* Called before librdmacm opens a file: the versioned library makes its hooks reach it
 * (library/reach.c). */
void rpwi_reach(void);

/* ---- signals.c ---- */
/* Called before the first device is opened, and with it the guard installed. */
void rpwi_signals_arm(void);

#endif
