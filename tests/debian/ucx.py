#!/usr/bin/python3
"""UCX: ucx_perftest of every test over rc_verbs and ud_verbs, with atomics by the device; io_demo, which compares what it reads and writes."""
import pathlib
import re
import signal
import sys

import place

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ucx_perftest  # noqa: E402

PERFTEST = ucx_perftest.command()
# UCX_TLS and UCX_NET_DEVICES are here so that each transport runs on one device; without them UCX chooses (plain.py).

ZCOPY = "-D zcopy -s 3000"  # else the largest message is what fits into a work request
UCT = ([("rc_verbs", f"{test} -s 8") for test in "am_lat put_lat put_bw am_bw add_lat add_mr fadd cswap".split()] + [("rc_verbs", f"{test} {ZCOPY}") for test in ("put_bw", "get", "am_bw")]
       + [("ud_verbs", f"{test} -s 8") for test in ("am_lat", "am_bw")] + [("ud_verbs", f"am_bw {ZCOPY}")])
UCP = "tag_lat tag_bw tag_sync_lat ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap stream_bw stream_lat ucp_am_lat ucp_am_bw".split()


def one(a, b, port, words, env):
    server = a.start(f"{PERFTEST} -p {port} {words}", env=env)
    a.wait_tcp(port, server)
    text = b.run(f"{PERFTEST} {a.ip} -p {port} {words}", limit_s=40, env=env)
    server.done(20)
    place.check(re.search(r"Final:\s+\d", text), f"ucx_perftest {words} has no figure: {text}")


def body(a, b):
    place.needs("ucx_perftest", "io_demo")
    port = 13400
    for transport, test in UCT:
        port += 1
        one(a, b, port, f"-d {place.DEVICE}:1 -x {transport} -t {test} -n 300 -w 10", {})
    place.compared(f"{len(UCT)} runs of uct tests over rc_verbs and ud_verbs, ended with a figure")
    for tls in ("rc_v", "ud_v"):
        env = {"UCX_TLS": f"{tls},self", "UCX_NET_DEVICES": f"{place.DEVICE}:1"}
        for test in UCP:
            port += 1
            size = 8 if re.search("add|swap", test) else 20000
            one(a, b, port, f"-t {test} -s {size} -n 200 -w 10", env)
    place.compared(f"{2 * len(UCP)} runs of ucp tests over rc_v and ud_v, ended with a figure")
    for tls in ("rc_v", "ud_v"):
        port += 1
        env = {"UCX_TLS": f"{tls},self", "UCX_NET_DEVICES": f"{place.DEVICE}:1", "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"}
        server = a.start(f"io_demo -p {port} -q -d 1:200000", env=env)
        a.wait_rdma(port, server)
        text = b.run(f"io_demo -q -i 300 -d 1:200000 -o read,write {a.ip}:{port}", limit_s=60, env=env)
        place.check("exit with status 'OK'" in text and not re.search("(?i)corrupt|mismatch|validat", text + server.text()), f"io_demo {tls}: {text}\n{server.tail()}")
        server.stop(signal.SIGINT)
        place.compared(f"io_demo over {tls}: 300 rounds of reads and writes of up to 200,000 bytes, each compared by it (-q)")


place.main(body)
