# An NVIDIA (Mellanox) ConnectX-6 Lx with RoCE: what people have published of it, by `ibv_devinfo -v`.
#
# [1] https://github.com/openucx/ucx/issues/10317, a device with vendor_part_id 4127 and link_layer Ethernet
# [2] https://github.com/rapidsai/ucx-py/issues/361, mlx5
# [3] https://github.com/openucx/ucx/issues/10430, mlx5 with link_layer Ethernet
# [4] https://github.com/ofiwg/libfabric/pull/3790: found by ibv_create_qp on a MT4115, 988 of RC and 512 of UD
# [5] Linux, drivers/infiniband/hw/mlx5: mlx5_ib_modify_srq refuses IBV_SRQ_MAX_WR
# [6] rdma-core 65, providers/mlx5
about = ConnectX-6 Lx, RoCE

max_qp = 131072                 # [1]
max_cq = 16777216               # [1]
max_mr = 16777216               # [1]
max_pd = 8388608                # [1]
max_mw = 16777216               # [1]
max_ah = 2147483647             # [1]
max_srq = 8388608               # [1]
max_qp_wr = 32768               # [1]
max_sge = 30                    # [2]
max_sge_rd = 30                 # [2]
max_inline_data = 988           # [4]
max_qp_rd_atom = 16             # [1]
max_qp_init_rd_atom = 16        # [1]
max_res_rd_atom = 2097152       # [1]
max_cqe = 4194303               # [1]
max_mr_size = 0xffffffffffffffff # [1]
max_srq_wr = 32767              # [1]
max_srq_sge = 31                # [1]
max_mcast_grp = 2097152         # [1]
max_mcast_qp_attach = 240       # [1]
max_total_mcast_qp_attach = 503316480 # [1]
max_pkeys = 128                 # [1]
max_mtu = 4096                  # [3]
max_msg_sz = 0x40000000         # [3]
gid_tbl_len = 255               # [1]
gid_first = 1                   # [1] each address is there as RoCE v1 and then as RoCE v2: indexes 1, 3, 5
gid_step = 2                    # [1]
atomic_cap = HCA                # [1]
transports = RC UC UD RAW_PACKET XRC # [1] XRC; [6] all
device_cap_flags = 0x25321c36   # [1] without SRQ_RESIZE, as [5]
odp_general = SUPPORT IMPLICIT  # [1]
odp_rc = SEND RECV WRITE READ SRQ_RECV # https://github.com/openucx/ucx/issues/9727
odp_uc = NONE                   # https://github.com/openucx/ucx/issues/9727
odp_ud = SEND                   # https://github.com/openucx/ucx/issues/9727
optional = domains null_mr rereg_mr moderation timestamps import # [6]
send_slots = POLL               # [6] a completion that is polled moves the tail of the send queue
