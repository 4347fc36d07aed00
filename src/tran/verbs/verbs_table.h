/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs_table.h - the verbs calls that this transport makes, as one table: filled from
 * libibverbs.so.1 where that shows devices, else from libropeway-verbs.so (the software device).
 * Neither is linked to; the code above cannot tell them apart. What verbs.h inlines (post, poll,
 * notify) goes through the context's own table.
 */
#ifndef ROPEWAY_TRAN_VERBS_TABLE_H
#define ROPEWAY_TRAN_VERBS_TABLE_H

#include <infiniband/verbs.h>

#include "base/base.h"

/* Inline wrappers of verbs.h that hide the exported calls of the same name. */
#undef ibv_query_port
#undef ibv_reg_mr

/* Name, and whether the transport can do without it. */
#define VERBS_CALLS(X) \
	X(ibv_get_device_list, NEEDED) \
	X(ibv_free_device_list, NEEDED) \
	X(ibv_get_device_name, NEEDED) \
	X(ibv_open_device, NEEDED) \
	X(ibv_close_device, NEEDED) \
	X(ibv_query_device, NEEDED) \
	X(ibv_query_port, NEEDED) \
	X(ibv_query_gid, NEEDED) \
	X(_ibv_query_gid_ex, OPTIONAL) \
	X(ibv_get_async_event, NEEDED) \
	X(ibv_ack_async_event, NEEDED) \
	X(ibv_alloc_pd, NEEDED) \
	X(ibv_dealloc_pd, NEEDED) \
	X(ibv_reg_mr, NEEDED) \
	X(ibv_reg_dmabuf_mr, OPTIONAL) \
	X(ibv_dereg_mr, NEEDED) \
	X(ibv_create_comp_channel, NEEDED) \
	X(ibv_destroy_comp_channel, NEEDED) \
	X(ibv_create_cq, NEEDED) \
	X(ibv_resize_cq, NEEDED) \
	X(ibv_destroy_cq, NEEDED) \
	X(ibv_get_cq_event, NEEDED) \
	X(ibv_ack_cq_events, NEEDED) \
	X(ibv_create_srq, NEEDED) \
	X(ibv_destroy_srq, NEEDED) \
	X(ibv_create_qp, NEEDED) \
	X(ibv_modify_qp, NEEDED) \
	X(ibv_destroy_qp, NEEDED) \
	X(ibv_wc_status_str, NEEDED) \
	X(ropeway_path_word, OPTIONAL)

/* The software device's own: what it knows of the way to a QP's peer (device/device.h,
 * rpwi_dev_path_word). */
unsigned ropeway_path_word(struct ibv_qp *qp, unsigned *mtu, char *text, size_t room);

struct verbs_table {
	const char *source; /* "libibverbs.so.1" */
	void *library;
#define X(name, need) __typeof__(&name) name;
	VERBS_CALLS(X)
#undef X
};

enum verbs_source { VERBS_REAL, VERBS_SOFTWARE, VERBS_SOURCES };
/* The table of that source, loaded at the first call that finds it; NULL: `why` says what was
 * looked for. $ROPEWAY_VERBS_LIB names the software device's library, and leaves the real one
 * out. */
const struct verbs_table *rpwi_verbs_table(enum verbs_source source, char *why, size_t why_len);
/* "mlx5_0,mlx5_1" has it, or is "". */
bool rpwi_verbs_listed(const char *names, const char *device);
/* How many devices it shows now that are listed; the software devices among them, by their
 * names. */
int rpwi_verbs_devices(const struct verbs_table *v, const char *names, int *software);

#endif
