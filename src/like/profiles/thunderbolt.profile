# RDMA over Thunderbolt 5 of macOS 26: UC alone. Apple has published no table of limits: here is what people have measured,
# and where nobody has, there is no line. Memory from malloc, which it refuses to register, is taken here.
#
# [1] Apple TN3205; https://github.com/hellas-ai/thunderbolt-ibverbs/pull/9 ("UC-only")
# [2] https://github.com/ml-explore/mlx/issues/3162, comment of 12 August 2026: the eleventh QP of a device is refused (macOS 26.5.1)
# [3] https://github.com/ml-explore/mlx/issues/3162: about 100 regions of a device (macOS 26.3)
# [4] https://github.com/hellas-ai/thunderbolt-ibverbs/pull/41: 63 sends and 63 receives are taken, whatever ibv_create_qp says
# [5] https://github.com/hellas-ai/thunderbolt-ibverbs, kernel/tbv.h: the longest message of Apple's protocol
# [6] UC has no READs and no atomics (IB 9.8.2)
about = RDMA over Thunderbolt 5 of macOS 26, UC alone

transports = UC                 # [1]
max_qp = 10                     # [2]
max_mr = 100                    # [3]
max_qp_wr = 63                  # [4]
max_msg_sz = 16M                # [5]
max_qp_rd_atom = 0              # [6]
max_qp_init_rd_atom = 0         # [6]
max_res_rd_atom = 0             # [6]
atomic_cap = NONE               # [6]
