# The limits of an Amazon EFA, whose transport (SRD) is no verb of libibverbs, and is not here: RC, UC and UD stay.
# Its max_qp_rd_atom is 0, since SRD counts READs otherwise, and its table of GIDs has one entry, in a format of its own:
# both are left out.
#
# [1] https://github.com/openucx/ucx: efa_ibv_dev_attr, efa_ib_port_attr and efa_dev_attr, recorded for its tests
# [2] https://github.com/ofiwg/libfabric/pull/12858: at most 32 bytes in a regular send queue entry
about = the limits of an Amazon EFA, with this device's transports

max_qp = 256                    # [1]
max_cq = 512                    # [1]
max_mr = 262144                 # [1]
max_pd = 256                    # [1]
max_mw = 0                      # [1]
max_ah = 1024                   # [1]
max_srq = 0                     # [1]
max_qp_wr = 4096                # [1]
max_sge = 2                     # [1]
max_sge_rd = 1                  # [1]
max_inline_data = 32            # [1] [2]
max_cqe = 32768                 # [1]
max_mr_size = 103079215104      # [1] 96 GiB
max_srq_wr = 0                  # [1]
max_srq_sge = 0                 # [1]
max_mcast_grp = 0               # [1]
max_mcast_qp_attach = 0         # [1]
max_total_mcast_qp_attach = 0   # [1]
max_pkeys = 1                   # [1]
max_mtu = 4096                  # [1]
max_msg_sz = 1073741824         # [1] max_rdma_size: of READ and WRITE
max_send_sz = 8928              # [1] max_msg_sz of its port: of SEND
atomic_cap = NONE               # [1]
device_cap_flags = NONE         # [1]
