#!/usr/bin/python3
"""Real devices beside the drop-in: in a guest whose kernel drives an RDMA device (rxe), programs with the drop-in preloaded use that device for its addresses, through
the kernel's own rdma_cm, and meet programs that know nothing of ropeway; or do not see it, if ROPEWAY_DEVICES hides it.

  beside.py [--lib SO] [-v]

One line a case, then 'N passed, N failed, N skipped'. Exit status 77 when there can be no guest here.
"""
import argparse
import os
import pathlib
import re
import sys
import time

from guest import Guest, Unavailable, prepare

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = os.environ.get("ROPEWAY_BUILD", str(ROOT / "build"))
ADDRESS = "10.9.0.1"

# name, server, client, what the client's (or the server's) output must say. {b} build folder, {p} port.
PAIRS = [
    ("rping -V", "rping -s -C 3 -V -v -p {p}", "rping -c -a {a} -C 3 -V -v -p {p}", "rdma-ping-2"),
    ("ucmatose", "ucmatose", "ucmatose -s {a}", "test complete"),
    ("udaddy", "udaddy -b {a}", "udaddy -s {a}", "test complete"),
    ("mckey", "mckey -m 239.7.7.7 -b {a}", "mckey -m 239.7.7.7 -b {a} -s", "joined dgid: ::ffff:239.7.7.7"),
    ("rdma_server", "rdma_server -s {a} -p {p}", "rdma_client -s {a} -p {p}", "end 0"),
    ("ib_send_bw -R", "ib_send_bw -R -n 50 -p {p}", "ib_send_bw -R -n 50 {a} -p {p}", "BW average"),
]
# The educational programs are linked with the drop-in: the same binaries, on the kernel's device.
LINKED = [
    ("rdma-server write", "{b}/rdma-server write {p}", "{b}/rdma-client write {a} {p}", "disconnected"),
    ("rdma-server read", "{b}/rdma-server read {p}", "{b}/rdma-client read {a} {p}", "disconnected"),
    ("rdma-send-recv-server", "{b}/rdma-send-recv-server {p}", "{b}/rdma-send-recv-client {a} {p}", "disconnected"),
]

# NETLINK_RDMA: what the command says without the drop-in comes first, line for line, then lines of ours alone that match. None: nothing of ours.
LISTS = [
    ("rdma dev", r"100\d+: rpw_\w+: node_type ca (protocol roce )?fw \S+ node_guid [0-9a-f:]{19} sys_image_guid [0-9a-f:]{19}"),
    ("rdma -d dev", r"100\d+: rpw_\w+: node_type ca .*|    caps: <.*>"),
    ("rdma link", r"link rpw_\w+/1 state (ACTIVE|DOWN) physical_state (LINK_UP|DISABLED) netdev \w+"),
    ("rdma dev show rxe0", None),
    ("rdma link show rxe0/1", None),
    ("rdma system", None),
    ("rdma res", r"100\d+: rpw_\w+: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0"),
    ("rdma res show qp", None),
    ("rdma statistic", r"link rpw_\w+/1.*|    \w+ \d+"),
]
# Through the drop-in to the kernel, and what is there afterwards.
CHANGES = [
    ("rdma link add rxe1 type rxe netdev lo", 0, "rxe1"),
    ("rdma link del rxe1", 0, None),
    ("rdma dev set rpw_lo name other", 1, None),
]

# Words of ROPEWAY_DEVICES that hide rxe0: what is asked, and what each line of the answer must be. None: it has to fail.
HIDES = ("software", "^rxe0")
OURS = r"100\d+: rpw_\w+: .*"
HIDDEN = [
    ("rdma dev", OURS),
    ("rdma link", r"link rpw_\w+/1 .*"),
    ("rdma res", OURS),
    ("rdma res show cm_id", ""),
    ("rdma dev show rxe0", None),
    ("rdma link show rxe0/1", None),
    ("ibv_devices", r" +(device|------|rpw_\w+)\s.*"),
    ("ibv_devinfo -d rxe0", None),
    ("ls /sys/class/infiniband", r"rpw_\w+"),
    ("ls /sys/class/infiniband_verbs", r"abi_version|uverbs10\d+"),
    ("ls /sys/devices/virtual/infiniband /sys/devices/virtual/infiniband_verbs", r"/sys/devices/virtual/infiniband(_verbs)?:|"),
    ("ls /dev/infiniband", r"rdma_cm|uverbs10\d+"),
    ("cat /sys/class/infiniband/rxe0/node_guid", None),
    ("cat /sys/devices/virtual/infiniband/rxe0/node_guid", None),
    ("cat /sys/class/infiniband_verbs/uverbs0/ibdev", None),
    ("head -c 0 /dev/infiniband/uverbs0", None),
]


def run_hidden(guest, lib, words, command, line):
    r = guest.start(f"env LD_PRELOAD={lib} ROPEWAY_DEVICES={words} {command}")
    rc = r.wait(20)
    text = [t.rstrip() for t in r.text.splitlines()]
    if line is None:
        return "" if rc else f"it is there\n{r.text}"
    return "" if not rc and all(re.fullmatch(line, t) for t in text) else f"ended with {rc}, or has a line of another's\n{r.text}"


def run_hidden_cm(guest, lib, words, port):
    """Its address is one of ours then, whose UDP port the kernel's rxe has here."""
    said = ""
    for command in (f"rping -s -a {ADDRESS} -p {port} -C 1", f"rping -c -a {ADDRESS} -p {port} -C 1"):
        r = guest.start(f"env LD_PRELOAD={lib} ROPEWAY_DEVICES={words} {command}")
        if not r.wait(20):
            return f"{command}: it works: on the kernel's device\n{r.text}"
        said += r.text
    return "" if f"UDP port 4791 of {ADDRESS} is held by the kernel's rdma_rxe" in said else said


def run_hidden_request(guest, lib, port):
    """A listener on all addresses is on the kernel's devices, too: who comes by the hidden one is turned away, and the program sees nothing of it."""
    server = guest.start(f"env LD_PRELOAD={lib} ROPEWAY_DEVICES=^rxe0 rping -s -v -p {port}")
    time.sleep(2.5)
    client = guest.start(f"rping -c -a {ADDRESS} -p {port} -C 1")
    rc, ended = client.wait(20), server.rc
    server.kill()
    return "" if rc and ended is None and "REJECTED" in client.text else f"client {rc}: {client.text}\nserver {ended}: {server.text}"


def run_one_of_two(guest, lib):
    """What hides one leaves the other."""
    guest.check("rdma link add rxe1 type rxe netdev lo")
    r = guest.start(f"env LD_PRELOAD={lib} ROPEWAY_DEVICES=^rxe1 sh -c 'rdma dev; rdma dev show rxe0; rdma link; ls /sys/class/infiniband; ibv_devinfo -d rxe0'")
    rc = r.wait(20)
    guest.check("rdma link del rxe1")
    return "" if not rc and "rxe1" not in r.text and r.text.count("rxe0") == 5 else f"ended with {rc}\n{r.text}"


def hidden_cases(guest, lib):
    for words in HIDES:
        for command, line in HIDDEN:
            yield f"{words}: {command}", (lambda w=words, c=command, t=line: run_hidden(guest, lib, w, c, t))
        yield f"{words}: rdma_cm", (lambda w=words: run_hidden_cm(guest, lib, w, 17300))
    yield "^rxe0: a connection request", lambda: run_hidden_request(guest, lib, 17301)
    yield "^rxe1 beside rxe0", lambda: run_one_of_two(guest, lib)


def run_list(guest, lib, command, ours):
    plain, both = guest.start(command), guest.start(f"env LD_PRELOAD={lib} {command}")
    if plain.wait(20) or both.wait(20):
        return f"ended with an error\n{plain.text}\n---\n{both.text}"
    first, all_of_them = ([line.rstrip() for line in r.text.splitlines()] for r in (plain, both))
    more = all_of_them[len(first):]
    if all_of_them[:len(first)] != first or bool(more) != bool(ours) or not all(re.fullmatch(ours, line) for line in more):
        return f"not the kernel's lines and then ours\n{plain.text}\n---\n{both.text}"
    return "" if first or command.endswith("qp") else "the kernel said nothing"


def run_change(guest, lib, command, want_rc, there):
    r = guest.start(f"env LD_PRELOAD={lib} {command}")
    rc = r.wait(20)
    shown = guest.check("rdma dev")
    return "" if bool(rc) == bool(want_rc) and ("rxe1" in shown) == bool(there) else f"ended with {rc}: {r.text}\n{shown}"


def netlink_cases(guest, lib):
    for command, ours in LISTS:
        yield command, (lambda c=command, o=ours: run_list(guest, lib, c, o))
    for command, rc, there in CHANGES:
        yield command, (lambda c=command, r=rc, t=there: run_change(guest, lib, c, r, t))


def cases(lib):
    preload = f"env LD_PRELOAD={lib} "
    for name, server, client, want in PAIRS:
        for who, s, c in (("both preloaded", preload, preload), ("server preloaded", preload, ""), ("client preloaded", "", preload)):
            yield f"{name}, {who}", s + server, c + client, want, False
    for name, server, client, want in LINKED:
        yield f"{name}, linked", server, client, want, True


def run_case(guest, server, client, want, serves_on, port, verbose):
    fill = {"a": ADDRESS, "b": BUILD, "p": port}
    s = guest.start(server.format(**fill))
    time.sleep(2.5)
    c = guest.start(client.format(**fill))
    rc = c.wait(40)
    if serves_on:  # it serves until it is told to stop
        s.kill()
        server_rc = 0
    else:
        server_rc = s.wait(20)
    text = f"--- server {server_rc}\n{s.text}\n--- client {rc}\n{c.text}"
    if verbose:
        print(text)
    if rc or server_rc:
        return f"client ended with {rc}, server with {server_rc}\n{text}"
    return "" if want in s.text + c.text else f"'{want}' was not said\n{text}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--lib", default=f"{BUILD}/libropeway-verbs.so")
    ap.add_argument("--only", default="")
    ap.add_argument("-v", action="store_true")
    args = ap.parse_args()
    try:
        prepare()
        guest = Guest()
    except Unavailable as why:
        print(f"SKIPPED: beside a real device: no guest here: {why}")
        print(f"0 passed, 0 failed, {len(list(cases(args.lib))) + len(LISTS) + len(CHANGES) + len(HIDES) * (len(HIDDEN) + 1) + 2} skipped")
        return 77
    passed = failed = 0
    try:
        for command in ("ip link set dummy0 up", f"ip addr add {ADDRESS}/24 dev dummy0", "rdma link add rxe0 type rxe netdev dummy0"):
            guest.check(command)
        time.sleep(1)
        for port, (label, server, client, want, serves_on) in enumerate(cases(args.lib), 17100):
            if args.only not in label:
                continue
            wrong = run_case(guest, server, client, want, serves_on, port, args.v)
            print(f"{'FAIL' if wrong else 'ok  '} beside rxe: {label}" + (f": {wrong}" if wrong else ""), flush=True)
            passed, failed = passed + (not wrong), failed + bool(wrong)
        for label, run in (*netlink_cases(guest, args.lib), *hidden_cases(guest, args.lib)):
            if args.only not in label:
                continue
            wrong = run()
            print(f"{'FAIL' if wrong else 'ok  '} beside rxe: {label}" + (f": {wrong}" if wrong else ""), flush=True)
            passed, failed = passed + (not wrong), failed + bool(wrong)
    finally:
        guest.close()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
