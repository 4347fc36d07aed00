#!/usr/bin/python3
"""qperf -cm 1: every RDMA test of it that goes through rdma_cm, each with a limit, since a peer whose end is not missed hangs it for a minute."""
import re

import place

TESTS = ("rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr "
         "ver_rc_compare_swap ver_rc_fetch_add").split()

TRIES = 5


def body(a, b):
    place.needs("qperf")
    server = a.start("qperf")
    a.wait_tcp(19765, server)
    for test in TESTS:
        for left in reversed(range(TRIES)):
            client = b.start(f"qperf -t 1 -cm 1 {a.ip} {test}")
            if not client.wait(30):
                break
            # Its server tells the port before it listens there: on a busy machine the client comes too early, and is rejected, as by a kernel.
            place.check(left and "Event rejected" in client.text(), f"qperf -cm 1 {test} ended badly\n{client.tail()}")
            print(f"qperf -cm 1 {test}: the client came before the server listened; again")
        text = client.text()
        figures = re.findall(r"^\s+(\w+)\s+=\s+([\d.,]+) ([\w/]+)", text, re.MULTILINE)
        place.check(figures and all(float(value.replace(",", "")) > 0 for _, value, _ in figures), f"qperf -cm 1 {test} has no figure: {text}")
        place.check(not server.ended(), f"the server ended\n{server.tail()}")
    place.compared(f"{len(TESTS)} tests, each with figures above 0, the server alive after each; the four with atomics compare values themselves")


place.main(body)
