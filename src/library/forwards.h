/* SPDX-License-Identifier: BSD-3-Clause */
/* forwards.h - what the versioned library exports and does not answer itself, for forward.S, which
 * makes the entry points, and forward.c, which says where they lead. No C: the assembler reads it.
 *
 * X(name, version, what it returns where there is no distribution's library to hand it on to):
 * ERRNO EOPNOTSUPP, MINUS -1 with errno set, NONE NULL or 0 with errno set, NOTHING 0.
 *
 * The names and versions are those of rdma-core 44 and 56.
 */
#ifndef ROPEWAY_LIBRARY_FORWARDS_H
#define ROPEWAY_LIBRARY_FORWARDS_H

/* Ranges of memory that a fork shall not copy: nothing is pinned here. Then the calls of drivers,
 * in the node for them. */
#define RPWI_FORWARDS(X) \
	X(ibv_dofork_range, "IBVERBS_1.1", NOTHING) \
	X(ibv_dontfork_range, "IBVERBS_1.1", NOTHING) \
	X(__ioctl_final_num_attrs, "IBVERBS_PRIVATE_34", NOTHING) \
	X(__verbs_log, "IBVERBS_PRIVATE_34", NOTHING) \
	X(_verbs_init_and_alloc_context, "IBVERBS_PRIVATE_34", NONE) \
	X(execute_ioctl, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_advise_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_alloc_dm, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_alloc_mw, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_alloc_pd, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_attach_mcast, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_close_xrcd, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_ah, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_counters, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_cq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_cq_ex2, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_cq_ex, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_flow, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_flow_action_esp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_qp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_qp_ex2, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_qp_ex, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_rwq_ind_table, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_srq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_srq_ex, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_create_wq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_dealloc_mw, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_dealloc_pd, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_dereg_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_ah, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_counters, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_cq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_flow, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_flow_action, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_qp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_rwq_ind_table, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_srq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_destroy_wq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_detach_mcast, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_free_dm, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_get_context, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_cq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_flow_action_esp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_qp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_qp_ex, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_srq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_modify_wq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_open_qp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_open_xrcd, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_poll_cq, "IBVERBS_PRIVATE_34", MINUS) \
	X(ibv_cmd_post_recv, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_post_send, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_post_srq_recv, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_context, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_device_any, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_port, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_qp, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_query_srq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_read_counters, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_reg_dm_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_reg_dmabuf_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_reg_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_req_notify_cq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_rereg_mr, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_cmd_resize_cq, "IBVERBS_PRIVATE_34", ERRNO) \
	X(ibv_read_ibdev_sysfs_file, "IBVERBS_PRIVATE_34", MINUS) \
	X(verbs_init_cq, "IBVERBS_PRIVATE_34", NOTHING) \
	X(verbs_register_driver_34, "IBVERBS_PRIVATE_34", NOTHING) \
	X(verbs_set_ops, "IBVERBS_PRIVATE_34", NOTHING) \
	X(verbs_uninit_context, "IBVERBS_PRIVATE_34", NOTHING)

/* The calls before libibverbs 1.1 of 2007, whose structs were others. No link editor chooses them
 * any more. */
#define RPWI_OLD_FORWARDS(X) \
	X(ibv_ack_async_event, "IBVERBS_1.0", ERRNO) \
	X(ibv_ack_cq_events, "IBVERBS_1.0", ERRNO) \
	X(ibv_alloc_pd, "IBVERBS_1.0", NONE) \
	X(ibv_attach_mcast, "IBVERBS_1.0", ERRNO) \
	X(ibv_close_device, "IBVERBS_1.0", MINUS) \
	X(ibv_create_ah, "IBVERBS_1.0", NONE) \
	X(ibv_create_cq, "IBVERBS_1.0", NONE) \
	X(ibv_create_qp, "IBVERBS_1.0", NONE) \
	X(ibv_create_srq, "IBVERBS_1.0", NONE) \
	X(ibv_dealloc_pd, "IBVERBS_1.0", ERRNO) \
	X(ibv_dereg_mr, "IBVERBS_1.0", ERRNO) \
	X(ibv_destroy_ah, "IBVERBS_1.0", ERRNO) \
	X(ibv_destroy_cq, "IBVERBS_1.0", ERRNO) \
	X(ibv_destroy_qp, "IBVERBS_1.0", ERRNO) \
	X(ibv_destroy_srq, "IBVERBS_1.0", ERRNO) \
	X(ibv_detach_mcast, "IBVERBS_1.0", ERRNO) \
	X(ibv_free_device_list, "IBVERBS_1.0", ERRNO) \
	X(ibv_get_async_event, "IBVERBS_1.0", MINUS) \
	X(ibv_get_cq_event, "IBVERBS_1.0", MINUS) \
	X(ibv_get_device_guid, "IBVERBS_1.0", NONE) \
	X(ibv_get_device_list, "IBVERBS_1.0", NONE) \
	X(ibv_get_device_name, "IBVERBS_1.0", NONE) \
	X(ibv_modify_qp, "IBVERBS_1.0", ERRNO) \
	X(ibv_modify_srq, "IBVERBS_1.0", ERRNO) \
	X(ibv_open_device, "IBVERBS_1.0", NONE) \
	X(ibv_query_device, "IBVERBS_1.0", ERRNO) \
	X(ibv_query_gid, "IBVERBS_1.0", MINUS) \
	X(ibv_query_pkey, "IBVERBS_1.0", MINUS) \
	X(ibv_query_port, "IBVERBS_1.0", ERRNO) \
	X(ibv_query_qp, "IBVERBS_1.0", ERRNO) \
	X(ibv_query_srq, "IBVERBS_1.0", ERRNO) \
	X(ibv_reg_mr, "IBVERBS_1.0", NONE) \
	X(ibv_resize_cq, "IBVERBS_1.0", ERRNO) \
	X(ibv_register_driver, "IBVERBS_1.1", NOTHING)

#endif
