#!/usr/bin/python3
"""fabtests.py [msg|rxm|rxd]...: libfabric's own tests over the providers verbs, verbs;ofi_rxm and verbs;ofi_rxd, those with a switch for it comparing the data (-v).

Debian has no package of them: $ROPEWAY_FABTESTS is a folder into which those of libfabric's version are installed (its bin has fi_msg); without it nothing is run, and that is said.
"""
import os
import pathlib
import re
import subprocess
import sys

import place

MSG = """fi_msg -e msg|fi_msg_epoll|fi_cm_data|fi_cq_data -e msg|fi_bw -e msg -v|fi_msg_pingpong -v|fi_msg_pingpong -v -S 65536|fi_msg_bw -v|fi_resmgmt_test -e msg
fi_multi_mr -e msg -V|fi_unexpected_msg -e msg -S 1024|fi_rma_bw -e msg -o write -v|fi_rma_bw -e msg -o read -v|fi_rma_bw -e msg -o writedata -v|fi_shared_ctx -e msg|fi_recv_cancel -e msg -V"""
RDM = """fi_rdm|fi_av_xfer -e rdm|fi_cq_data -e rdm|fi_bw -e rdm -v|fi_bw -e rdm -v -T 1|fi_multi_mr -e rdm -V|fi_multi_ep -e rdm
fi_rdm_multi_client -C 5|fi_rdm_tagged_peek|fi_rdm_shared_av|fi_recv_cancel -e rdm -V|fi_unexpected_msg -e rdm -S 1024|fi_multi_recv -e rdm|fi_rdm_pingpong -v|fi_rdm_tagged_pingpong -v
fi_rdm_tagged_bw -v|fi_rdm_cntr_pingpong|fi_rma_bw -e rdm -o write -v|fi_rma_bw -e rdm -o read -v|fi_rma_bw -e rdm -o writedata -v|fi_rdm_rma_event|fi_rdm_rma_trigger|fi_rdm_atomic -I 5 -o all
fi_resmgmt_test -e rdm|fi_rdm_deferred_wq|fi_scalable_ep|fi_shared_ctx"""
PROVIDERS = {"msg": ("verbs", MSG), "rxm": ("verbs;ofi_rxm", RDM), "rxd": ("verbs;ofi_rxd", RDM)}
# fabtests end with the errno: what the provider says it does not have. FI_ENODATA, ENOSYS, EOPNOTSUPP
NOT_SUPPORTED = (61, 38, 95, 194, 195, 216, 217, 255 - 60)
LIMIT_S = 45
# What fails, and on what it depends: the reason.
KNOWN = {}


def installed():
    """The folder of the tests."""
    folder = os.environ.get("ROPEWAY_FABTESTS", "")
    if not os.path.exists(f"{folder}/bin/fi_msg"):
        print(f"SKIPPED: fabtests is in no package, and ROPEWAY_FABTESTS ({folder or 'not set'}) names no folder with bin/fi_msg")
        sys.exit(77)
    return pathlib.Path(folder) / "bin"


def one(a, b, folder, provider, test):
    """The worse exit status of the two (the server's, if it says that its provider has no such thing), and what they said."""
    words = test.split()
    command = [f"{folder}/{words[0]}", *words[1:], "-p", provider]
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "FI_LOG_LEVEL": "warn"}
    server = a.start([*command, "-s", a.ip], env=env)
    try:
        a.wait_tcp(47592, server, 3)  # the tests' out-of-band port; fi_msg and others have none
    except place.Failed:
        pass
    client = b.start([*command, "-s", b.ip, a.ip], env=env)
    try:
        rc = client.wait(LIMIT_S)
        if not rc or (server.ended() and server.process.returncode in NOT_SUPPORTED):
            rc = server.wait(10)
    except place.Failed:
        rc = 124
    said = f"client:\n{client.tail(8)}\nserver:\n{server.tail(8)}"
    server.kill()
    return rc, said


def body(a, b):
    folder = installed()
    wrong = []
    for name in sys.argv[1:] or PROVIDERS:
        provider, tests = PROVIDERS[name]
        right, without = 0, []
        for test in re.split(r"[|\n]", tests):
            if not (folder / test.split()[0]).exists():
                without.append(f"{test}: not in this version")
                continue
            rc, said = one(a, b, folder, provider, test)
            print(f"  {name}: {test}: {rc}", flush=True)
            if not rc:
                right += 1
            elif rc in NOT_SUPPORTED:
                without.append(test)
            else:
                wrong.append(f"{provider}: {test} ended with {rc}\n{said}")
        place.compared(f"{provider}: {right} passed, {len(without)} not had by the provider ({', '.join(without)})")
    place.check(not wrong, f"{len(wrong)} failed\n" + "\n".join(wrong))


place.main(body)
