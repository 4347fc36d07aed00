#!/usr/bin/python3
"""Two receives in flight with one wr_id, through pyverbs. Its argument: a device."""
import sys

import pyverbs.cq
import pyverbs.device
import pyverbs.enums as e
import pyverbs.mr
import pyverbs.pd
import pyverbs.qp
import pyverbs.wr

context = pyverbs.device.Context(name=sys.argv[1])
pd = pyverbs.pd.PD(context)
cq = pyverbs.cq.CQ(context, 16)
mr = pyverbs.mr.MR(pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)
cap = pyverbs.qp.QPCap(max_recv_wr=4, max_send_wr=1)
qp = pyverbs.qp.QP(pd, pyverbs.qp.QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), pyverbs.qp.QPAttr(qp_state=e.IBV_QPS_INIT, port_num=1))
for offset in (0, 2048):
    qp.post_recv(pyverbs.wr.RecvWR(wr_id=7, num_sge=1, sg=[pyverbs.wr.SGE(mr.buf + offset, 2048, mr.lkey)]))
print("posted", flush=True)
