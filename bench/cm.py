"""Connections made and ended in a second: cmtime, which takes 1,000 connections through each step together, on the device and on kernel rxe in one guest."""
import pathlib
import re
import subprocess
import time

from cases import Case, Goal, Group
from processes import RunFailed, tail

TCP = 0x106  # rdma_cm's port space
STEPS = ("create id", "resolve addr", "resolve route", "create qp", "connect", "disconnect", "destroy")
CONNECTIONS = 1000


def is_listening(server, port, preloaded):
    """Of ropeway the claim on the service ID is seen, an abstract socket; of a kernel's device rdma_cm's own list. Neither is a try, which would be a connection."""
    if preloaded:
        try:
            return f"/service/{TCP << 16 | port:x}/" in pathlib.Path(f"/proc/{server.pid}/net/unix").read_text()
        except OSError:
            return False
    shown = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True).stdout
    return any("LISTEN" in line and re.search(rf"src-addr \S+:{port}\b", line) for line in shown.splitlines())


def cmtime(runner, address, connections):
    """{step: milliseconds for all connections}. The server serves for ever: it is ended."""
    port = runner.next_port()
    server = runner.start(["cmtime", "-b", address, "-p", str(port)], runner.cores[1])
    client = None
    try:
        until = time.monotonic() + 30
        while not is_listening(server, port, runner.preload):
            if server.poll() is not None:
                raise RunFailed(f"cmtime's server ended at once: {tail(server.stdout.read())}")
            if time.monotonic() > until:
                raise RunFailed("cmtime's server did not listen within 30 s")
            time.sleep(0.05)
        client = runner.start(["cmtime", "-s", address, "-p", str(port), "-c", str(connections)], runner.cores[0])
        text = runner.finish(client)
    finally:
        for process in (client, server):
            if process:
                runner.end(process)
    found = {name: float(figures.split()[0]) for name, figures in re.findall(r"^(.+?)\s*:\s+(.*)$", text, re.MULTILINE) if name in STEPS}
    if set(found) != set(STEPS):
        raise RunFailed(f"cmtime printed no figures: {tail(text)}")
    return found


def per_second(runner, address, steps, connections):
    return connections / sum(cmtime(runner, address, connections)[step] for step in steps) * 1000


def groups(runner, rxe, rxe_address, quick):
    n = 200 if quick else CONNECTIONS
    made = []
    for name, steps in (("made and ended", STEPS), ("connected", ("connect",))):
        made.append(Group(f"guest, connections {name}", {"kernel rxe": lambda steps=steps: per_second(rxe, rxe_address, steps, n)},
                          [Case(f"connections {name} (cmtime -c {n})", "/s", lambda steps=steps: per_second(runner, "127.0.0.1", steps, n), [Goal("kernel rxe", 1.0)])]))
    return made
