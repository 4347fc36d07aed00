# rxe, Linux's software RDMA device, as of Linux 6.12 (Debian 13).
#
# [1] tests/differences/answers.tsv: asked of rxe in a guest with Linux 6.12.117, by tests/differences/run.py
# [2] drivers/infiniband/sw/rxe/rxe_param.h of Linux 6.1 to 6.12
about = Linux's software device, Linux 6.12

max_qp = 1048560                # [1]
max_cq = 1048576                # [1]
max_mr = 524287                 # [1]
max_pd = 1048576                # [1]
max_mw = 524287                 # [1]
max_ah = 32767                  # [1]
max_srq = 917503                # [1]
max_qp_wr = 1048576             # [1]
max_sge = 32                    # [1]
max_sge_rd = 32                 # [1]
max_inline_data = 512           # [1] 512 bytes are taken, 1024 refused
max_qp_rd_atom = 128            # [1]
max_qp_init_rd_atom = 128       # [1]
max_res_rd_atom = 258048        # [1]
max_cqe = 32767                 # [1]
max_mr_size = 0xffffffffffffffff # [1]
max_srq_wr = 1048576            # [1]
max_srq_sge = 27                # [1]
max_mcast_grp = 8192            # [1]
max_mcast_qp_attach = 56        # [1]
max_total_mcast_qp_attach = 458752 # [2]
max_pkeys = 64                  # [1]
max_mtu = 4096                  # [1]
max_msg_sz = 2147483648         # [1] 8388608 with Linux 6.1
gid_tbl_len = 1024              # [1]
atomic_cap = HCA                # [1]
transports = RC UC UD           # [1]
device_cap_flags = 0x1c001223c76 # [1] both halves of device_cap_flags_ex
odp_general = NONE              # [1] Linux 7.2 has it for RC and UD
odp_rc = NONE                   # [1]
odp_uc = NONE                   # [1]
odp_ud = NONE                   # [1]
optional = NONE                 # [1] each of them gives EOPNOTSUPP
