/* SPDX-License-Identifier: BSD-3-Clause */
/* calls.h - every libibverbs call that the drop-in answers, once. real.c fills a table of the real
 * library's functions from it, resolve.c finds ours by name.
 *
 * The second word says what a call that the real library lacks returns: ERRNO a positive errno,
 * MINUS -1 with errno set, NONE NULL (or 0) with errno set.
 */
#ifndef ROPEWAY_PRELOAD_CALLS_H
#define ROPEWAY_PRELOAD_CALLS_H

/* The latest versions that have no call which we do not know: IBVERBS_1.18, RDMACM_1.5. */
enum { RPWI_IBVERBS_KNOWN = 18, RPWI_RDMACM_KNOWN = 5 };

#define RPWI_CALLS(X) \
	/* devices.c */ \
	X(ibv_get_device_list, NONE) \
	X(ibv_free_device_list, ERRNO) \
	X(ibv_get_device_name, NONE) \
	X(ibv_get_device_guid, NONE) \
	X(ibv_get_device_index, MINUS) \
	X(ibv_open_device, NONE) \
	X(verbs_open_device, NONE) \
	X(ibv_close_device, MINUS) \
	X(ibv_import_device, NONE) \
	X(ibv_fork_init, ERRNO) \
	X(ibv_is_fork_initialized, ERRNO) \
	X(ibv_get_sysfs_path, NONE) \
	X(ibv_read_sysfs_file, MINUS) \
	/* verbs.c */ \
	X(ibv_query_device, ERRNO) \
	X(ibv_query_port, ERRNO) \
	X(ibv_query_port_speed, ERRNO) \
	X(ibv_query_gid, MINUS) \
	X(_ibv_query_gid_ex, ERRNO) \
	X(_ibv_query_gid_table, MINUS) \
	X(ibv_query_gid_type, MINUS) \
	X(ibv_query_pkey, MINUS) \
	X(ibv_get_pkey_index, MINUS) \
	X(ibv_get_async_event, MINUS) \
	X(ibv_ack_async_event, ERRNO) \
	X(ibv_alloc_pd, NONE) \
	X(ibv_dealloc_pd, ERRNO) \
	X(ibv_import_pd, NONE) \
	X(ibv_unimport_pd, ERRNO) \
	X(ibv_reg_mr, NONE) \
	X(ibv_reg_mr_iova, NONE) \
	X(ibv_reg_mr_iova2, NONE) \
	X(ibv_reg_mr_ex, NONE) \
	X(ibv_reg_dmabuf_mr, NONE) \
	X(ibv_rereg_mr, MINUS) \
	X(ibv_dereg_mr, ERRNO) \
	X(ibv_import_mr, NONE) \
	X(ibv_unimport_mr, ERRNO) \
	X(ibv_import_dm, NONE) \
	X(ibv_unimport_dm, ERRNO) \
	X(ibv_create_comp_channel, NONE) \
	X(ibv_destroy_comp_channel, ERRNO) \
	X(ibv_create_cq, NONE) \
	X(ibv_resize_cq, ERRNO) \
	X(ibv_destroy_cq, ERRNO) \
	X(ibv_get_cq_event, MINUS) \
	X(ibv_ack_cq_events, ERRNO) \
	X(ibv_create_srq, NONE) \
	X(ibv_modify_srq, ERRNO) \
	X(ibv_query_srq, ERRNO) \
	X(ibv_destroy_srq, ERRNO) \
	X(ibv_create_qp, NONE) \
	X(ibv_qp_to_qp_ex, NONE) \
	X(ibv_modify_qp, ERRNO) \
	X(ibv_query_qp, ERRNO) \
	X(ibv_query_qp_data_in_order, NONE) \
	X(ibv_query_ece, ERRNO) \
	X(ibv_set_ece, ERRNO) \
	X(ibv_destroy_qp, ERRNO) \
	X(ibv_create_ah, NONE) \
	X(ibv_create_ah_from_wc, NONE) \
	X(ibv_init_ah_from_wc, MINUS) \
	X(ibv_destroy_ah, ERRNO) \
	X(ibv_resolve_eth_l2_from_gid, MINUS) \
	X(ibv_attach_mcast, ERRNO) \
	X(ibv_detach_mcast, ERRNO) \
	/* verbs.c; of rdma-core 59 to 65 */ \
	X(ibv_alloc_dmah, NONE) \
	X(ibv_dealloc_dmah, ERRNO) \
	X(ibv_dm_export_dmabuf_fd, MINUS) \
	X(_ibv_query_comp_cntr_caps, ERRNO) \
	X(ibv_create_comp_cntr, NONE) \
	X(ibv_destroy_comp_cntr, ERRNO) \
	X(ibv_set_comp_cntr, ERRNO) \
	X(ibv_set_err_comp_cntr, ERRNO) \
	X(ibv_inc_comp_cntr, ERRNO) \
	X(ibv_inc_err_comp_cntr, ERRNO) \
	X(ibv_read_comp_cntr, ERRNO) \
	X(ibv_read_err_comp_cntr, ERRNO) \
	X(ibv_qp_attach_comp_cntr, ERRNO) \
	/* newer.c */ \
	X(ibv_alloc_buf, NONE) \
	X(ibv_free_buf, ERRNO) \
	X(ibv_export_buf_dmabuf_fd, MINUS) \
	X(ibv_reg_buf_mr, NONE) \
	/* names.c: they take no object; for programs linked with the drop-in alone */ \
	X(ibv_node_type_str, NONE) \
	X(ibv_port_state_str, NONE) \
	X(ibv_event_type_str, NONE) \
	X(ibv_wc_status_str, NONE) \
	X(ibv_rate_to_mult, MINUS) \
	X(mult_to_ibv_rate, NONE) \
	X(ibv_rate_to_mbps, MINUS) \
	X(mbps_to_ibv_rate, NONE)

#endif
