"""The tree of the newest rdma-core, and what its calls (59 to 65) answer that have no older sibling: on ropeway, and on rxe of Linux 6.1 and 7.2. calls.c asks."""
PACKAGES = "ibverbs-utils rdmacm-utils perftest libibverbs-dev librdmacm-dev python3-pyverbs rdma-core gcc libc6-dev iproute2 libisal2".split()
SAME = {"ibv_reg_mr_ex": "made", "ibv_alloc_buf": "made", "ibv_reg_buf_mr": "made", "ibv_export_buf_dmabuf_fd": "No data available",
        "ibv_alloc_dmah": "EOPNOTSUPP", "ibv_alloc_dm": "EOPNOTSUPP"}
OURS = {**SAME, "ibv_query_port_speed": "made", "ibv_query_comp_cntr_caps": "made", "ibv_create_comp_cntr": "made"}
RXE = {**SAME, "ibv_query_port_speed": "EOPNOTSUPP", "ibv_query_comp_cntr_caps": "EOPNOTSUPP", "ibv_create_comp_cntr": "EOPNOTSUPP"}
