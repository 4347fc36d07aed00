#!/usr/bin/python3
"""DAPL: dtest and dtestcm of dapl2-utils, with the providers cma (rdma_cm) and scm (sockets). dtest compares what it writes, reads and sends.

Not with ucm: it addresses by LID, and RoCE has none."""
import pathlib
import re
import subprocess
import sys

import place

# name, library, ia_params
PROVIDERS = {"cma": ("libdaplofa.so.2", f"{place.INTERFACE} 0"), "scm": ("libdaploscm.so.2", f"{place.DEVICE} 1")}


def body(a, b):
    place.needs("dtest")
    for host in (a, b):
        # Its services' port, 45248, lies in Linux's range of ephemeral ports, and dtestcm's server takes 1,000 of those before it listens: one time in 28 its own port among them.
        subprocess.run(["ip", "netns", "exec", host.name, "sh", "-c", "echo 50000 60999 >/proc/sys/net/ipv4/ip_local_port_range"], check=True)
        pathlib.Path(f"{host.folder}/dat.conf").write_text("".join(
            f'{name} u2.0 nonthreadsafe default {library} dapl.2.0 "{params}" ""\n' for name, (library, params) in PROVIDERS.items()))
    for name in sys.argv[1:] or PROVIDERS:
        environ = {host: {"DAT_OVERRIDE": f"{host.folder}/dat.conf"} for host in (a, b)}
        for words in ("dtest", "dtest -v -b 65536 -B 20 -w"):
            server = a.start(f"{words} -P {name}", env=environ[a])
            server.says("waiting for client", 20)
            client = b.start(f"{words} -P {name} -h {a.ip}", env=environ[b])
            try:
                text = client.done(40)
            except place.Failed as e:
                raise place.Failed(f"{e}\nthe server:\n{server.tail(40)}") from None
            said = server.done(20)
            for side in (text, said):
                place.check("PASSED" in side.upper() or "DAPL Test Complete" in side, f"{words} -P {name} did not pass:\n{side}")
                place.check(not re.search("FAILED|ERROR", side), f"{words} -P {name}:\n{side}")
        place.compared(f"{name}: dtest, small and 64 KiB")
        server = a.start(f"dtestcm -P {name}", env=environ[a])
        server.says("(?i)waiting", 20)
        b.run(f"dtestcm -P {name} -h {a.ip}", limit_s=60, says=r"ALL \d+ CONNECTED|Connection Test Complete", env=environ[b])
        server.done(40, says=r"ALL \d+ CONNECTED")
        place.compared(f"{name}: dtestcm, 1,000 connections at once")


place.main(body)
