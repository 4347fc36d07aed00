#!/usr/bin/python3
"""What lies between two hosts: routers, links of another MTU, black holes, NATs, firewalls, a port that is held. What each side says, what `ropeway doctor` says, and whether the messaging library
moves its bytes. In network namespaces of its own; root only; nft for NATs, firewalls and black holes.

  paths_test.py BUILD [--long] [--table] [CASE...]

Without --long the core: a case of each kind. --table prints the lines of each side. How long something takes is printed, never judged. Exit status 77: it cannot run here.
"""
import concurrent.futures
import pathlib
import re
import shutil
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from network import A, A6, B, B6, OUTSIDE, R1, NotHere, Network, Side, pattern  # noqa: E402

BUILD = pathlib.Path(".")
AT_ONCE = 4
LIMIT_S = 60  # ten times and more of what anything takes here
FILE_BYTES = 5_000_003


# ---- what is done over a path ----

def verbs(net, mtu=4096, stats=True, explain=None, to=B, gid=1):
    """rdma_server on b, rdma_client on a, plain verbs: (a, b), each (status, output, seconds)."""
    env = {"ROPEWAY_STATS": "1"} if stats else {}
    b = Side(net, "b", BUILD / "rdma_server", "-", 18515, gid, env=env)
    listening(net, "b", 18515)
    a = Side(net, "a", BUILD / "rdma_client", "-m", mtu, to, "-", 18515, gid, env=env | ({"ROPEWAY_EXPLAIN": explain} if explain else {}))
    told = a.end(LIMIT_S)
    return told, b.end(LIMIT_S if told[0] == 0 else 10)


def listening(net, name, port):
    end = time.monotonic() + 10
    while f":{port} " not in net.sh(name, "ss -Hltn || cat /proc/net/tcp") and time.monotonic() < end:
        time.sleep(0.05)


def messages(net, transports=None, size=FILE_BYTES, to=B):
    """`ropeway send` from a to b: (did every byte arrive, a, b)."""
    env = {"ROPEWAY_TRANSPORT": transports} if transports else {}
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        data = pattern(at / "f", size)
        (at / "in").mkdir()
        b = Side(net, "b", BUILD / "ropeway", "recv", "--once", "-l", "[::]:7471" if ":" in to else ":7471", at / "in", env=env)
        b.hear("listening")
        a = Side(net, "a", BUILD / "ropeway", "send", at / "f", f"[{to}]:7471" if ":" in to else f"{to}:7471", env=env)
        told = a.end(LIMIT_S)
        answer = b.end(LIMIT_S if told[0] == 0 else 1)
        got = at / "in" / "f"
        return got.exists() and got.read_bytes() == data, told, answer


def doctor(net):
    b = Side(net, "b", BUILD / "ropeway", "doctor", "--serve", "--once", "-l", ":7478")
    b.hear("listening")
    told = Side(net, "a", BUILD / "ropeway", "doctor", B).end(2 * LIMIT_S)
    b.end(1)
    return told


# ---- the cases: what is wrong, and what has to be said of it ----

class Case:
    """tcp: what messaging does by itself is looked at without --long, too (TCP gives a black hole up after 25 s). a, b: what has to be in the lines of a verbs program's two sides; None: it works. counted: (side, row of --stats). doctor: of a line that begins with FAIL, or None for no FAIL.
    verbs: does messaging that may use nothing else move its bytes? mtu: which it then says."""

    def __init__(self, name, make, a=None, b=None, works=False, counted=None, told=(), moves=True, mtu=None, core=True, tcp=True, mtu_asked=4096):
        self.__dict__.update(locals())


CASES = [
    Case("routers", lambda n: None, works=True, mtu=4096, told=["ok    routers  .*2 lie between .*a hop limit of 3 or more", "path by verbs .* by a router"]),
    Case("MTU 1500 between", lambda n: n.mtu(9000, 1500), a=[f"too big for the path, says {R1}; up to 1500 bytes pass: use a path MTU of 1024", "status 12"], counted=("a", "too big for the path"),
         mtu=1024, told=["FAIL  MTU  .*up to 1500 they do", "path MTU of at most 1024"]),
    Case("MTU 1280 between", lambda n: n.mtu(9000, 1280), a=["up to 1280 bytes pass: use a path MTU of 1024"], mtu=1024, told=["FAIL  MTU  .*up to 1280 they do"], core=False),
    Case("MTU 4200 between", lambda n: n.mtu(9000, 4200), works=True, mtu=4096, told=["warn  MTU  .*up to 4200 they do"], core=False),
    Case("MTU 1280 everywhere", lambda n: n.mtu(1280, 1280), works=True, mtu_asked=1024, mtu=1024, told=["ok    MTU  .*1280 bytes arrive"], core=False),
    Case("black hole 1500", lambda n: (n.mtu(9000, 1500), n.black_hole()), a=["no answer came from 10.77.5.2|small packets to 10.77.5.2 come through, but those of 4096 bytes do not"], mtu=1024, tcp=False,
         told=["FAIL  MTU  .*up to 1500 they do"]),
    Case("black hole 1280", lambda n: (n.mtu(9000, 1280), n.black_hole()), a=["no answer came|small packets"], mtu=1024, told=["FAIL  MTU  .*up to 1280 they do"], core=False),
    Case("masquerade", lambda n: n.masquerade(), mtu_asked=1024, a=["no answer came from 10.77.5.2", "a NAT"], b=[f"NAT on the path to {A}: packets come from {OUTSIDE} port (\\d+) with the ICRC of {A} port \\1,"],
         counted=("b", "changed by a NAT"), moves=False, told=[f"FAIL  NAT  .*{OUTSIDE}, which is not an address of this host", "remedy: as for NAT"]),
    Case("masquerade, other ports", lambda n: n.masquerade(":2000-2999"), mtu_asked=1024, a=["no answer came"], b=[f"packets come from {OUTSIDE} port 2\\d\\d\\d with the ICRC of {A} port"],
         counted=("b", "changed by a NAT"), moves=False, told=["FAIL  NAT  "], core=False),
    Case("ports changed", lambda n: n.change_ports(), mtu_asked=1024, a=["no answer came"], b=[f"packets come from {A} port 2\\d\\d\\d with the ICRC of {A} port"], counted=("b", "changed by a NAT"),
         moves=False, told=[f"FAIL  NAT  .*a datagram from {A} port \\d+ arrives as one from {A} port 2\\d\\d\\d"]),
    Case("firewall drops", lambda n: n.firewall("drop"), mtu_asked=1024, a=["no answer came from 10.77.5.2, not even a refusal"], moves=False,
         told=["FAIL  UDP port 4791  .*gets no answer", "let UDP port 4791 in"]),
    Case("firewall rejects", lambda n: n.firewall("reject"), mtu_asked=1024, a=[f"{R1} rejects packets to UDP port 4791 of {B}"], counted=("a", "port unreachable"), moves=False,
         told=[f"FAIL  UDP port 4791  .*is refused by {R1}", f"pass at {R1}"]),
    Case("firewall prohibits", lambda n: n.firewall("reject with icmp type admin-prohibited"), mtu_asked=1024, a=[f"are rejected by a firewall at {R1}"], counted=("a", "rejected by a firewall"),
         moves=False, told=[f"is refused by {R1}"], core=False),
]


class Wrong(Exception):
    pass


def need(what, patterns, text):
    for p in patterns or ():
        if not re.search(p, text):
            raise Wrong(f"{what}: nothing like '{p}' in:\n{text}")


def lines(out):
    return [line for line in out.splitlines() if line.startswith("ropeway")]


def run(net, case, table, long):
    net.plain()
    case.make(net)
    a, b = verbs(net, case.mtu_asked)
    rows = [f"verbs: a {a[0]}, {a[2]:.1f} s; b {b[0]}"]
    if (a[0] == 0) != case.works:
        raise Wrong(f"the verbs program ended with {a[0]}:\n{a[1]}\n{b[1]}")
    need("a", case.a, a[1])
    need("b", case.b, b[1])
    if case.counted:
        side, row = case.counted
        need("--stats of " + side, [re.escape(row) + r" +[1-9]"], (a if side == "a" else b)[1])
    told = doctor(net)
    rows.append(f"doctor: {told[0]}, {told[2]:.1f} s")
    need("doctor", case.told, told[1])
    if not case.told or not any(t.startswith("FAIL") for t in case.told):
        if case.works and "FAIL" in told[1]:
            raise Wrong("doctor fails what works:\n" + told[1])
    moved, s, r = messages(net, "verbs")
    rows.append(f"messaging over verbs: {'moved' if moved else 'refused'}, {s[2]:.1f} s")
    if moved != case.moves or s[0] is None:
        raise Wrong(f"messaging over verbs: moved {moved}, status {s[0]}\n{s[1]}\n{r[1]}")
    if case.mtu and case.mtu < 4096 and case.mtu_asked == 4096:
        need("messaging", [f"the next path takes {case.mtu} at most|does not pass|do not pass"], s[1] + r[1])
    if not moved:
        need("messaging", [r"ropeway send: .*(NAT|UDP port 4791|no answer)"], s[1])
    if not (case.tcp or long):
        return f"{case.name}: " + "; ".join(rows)
    moved, auto, r = messages(net)
    rows.append(f"messaging as it chooses: {'moved' if moved else 'REFUSED'}, {auto[2]:.1f} s")
    if not moved:
        raise Wrong(f"messaging: nothing moved, status {auto[0]}\n{auto[1]}\n{r[1]}")
    said = [f"{case.name}: " + "; ".join(rows)]
    if table:
        for who, text in ("verbs a", a[1]), ("verbs b", b[1]), ("messaging a", s[1]), ("messaging b", r[1]):
            said += [f"    {who}: {line}" for line in lines(text)]
        said += ["    doctor: " + line for line in told[1].splitlines() if line.startswith(("FAIL", "warn")) and " place " not in line]
    return "\n".join(said)


# ---- by itself ----

def port_held(net):
    """Another program has the port on b: who, and what to do, is said by the verbs program, in messaging's error, by the doctor."""
    net.plain()
    holder = Side(net, "b", sys.executable, "-c", f"import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ns.bind(('{B}',4791))\nprint('held',flush=True)\ntime.sleep(300)")
    holder.hear("held")
    try:
        _, b = verbs(net, 1024)
        need("b", [rf"UDP port 4791 of {B} is held by python3.*\(pid {holder.p.pid}\)", r"UDP port held by another +[1-9]"], b[1])
        told = doctor(net)
        need("doctor", [rf"another program at {B} has it", rf"held by python3.*pid {holder.p.pid}"], told[1])
        moved, s, r = messages(net, "verbs")
        need("messaging", [rf"UDP port 4791 of {B} is held by python3"], s[1])
        if moved:
            raise Wrong("messaging over verbs moved its bytes past a held port")
        moved, auto, _ = messages(net)
        if not moved:
            raise Wrong("messaging did not go by TCP:\n" + auto[1])
    finally:
        holder.end(0)
    return f"port held: doctor {told[2]:.1f} s; messaging over verbs: refused, {s[2]:.1f} s; as it chooses: moved, {auto[2]:.1f} s"


def version6(net):
    """By IPv6: packet too big, hop limit exceeded."""
    net.plain()
    net.six()
    a, b = verbs(net, to=B6, gid=2)
    if a[0] or b[0]:
        raise Wrong(f"IPv6 by two routers:\n{a[1]}\n{b[1]}")
    net.short_of_hops("ip6 hoplimit")
    a, _ = verbs(net, to=B6, gid=2)
    need("a", ["get as far as fd07::1, where their hop limit is used up", r"hop limit used up +[1-9]"], a[1])
    net.rules("a", "")
    net.mtu(9000, 1500)
    a, _ = verbs(net, to=B6, gid=2)
    need("a", ["too big for the path, says fd07::1; up to 1500 bytes pass: use a path MTU of 1024"], a[1])
    moved, s, r = messages(net, "verbs", to=B6)
    if not moved:
        raise Wrong(f"messaging over verbs by IPv6:\n{s[1]}\n{r[1]}")
    return f"IPv6, MTU 1500 and hop limit 1: messaging over verbs: moved, {s[2]:.1f} s; known as {A6}"


def hops(net):
    """Their hop limit is used up: of the packets, not of what a program says, which a connection does not use. The route's is what they have."""
    net.plain()
    net.sh("a", f"ip route replace {B} via {R1} hoplimit 9")
    a, b = verbs(net)
    if a[0] or b[0]:
        raise Wrong(f"with a route of hop limit 9:\n{a[1]}\n{b[1]}")
    net.short_of_hops("ip ttl")
    a, b = verbs(net)
    need("a", [f"get as far as {R1}, where their hop limit is used up", "status 12", r"hop limit used up +[1-9]"], a[1])
    return f"hop limit used up: status 12 after {a[2]:.1f} s"


def connected(net):
    """rdma_cm: a request that comes through a NAT names its own address, and is told of at the first."""
    if not shutil.which("rping"):
        return "rdma_cm by a NAT # SKIP no rping"
    net.masquerade()
    run = [BUILD / "ropeway", "run", "--stats", "--"]
    b = Side(net, "b", *run, "timeout", 8, "rping", "-s", "-a", B, "-C", 3)
    time.sleep(1)
    a = Side(net, "a", *run, "timeout", 6, "rping", "-c", "-a", B, "-C", 3)
    a.end(LIMIT_S)
    told = b.end(LIMIT_S)
    need("b", [f"NAT on the path to {A}: packets come from {OUTSIDE}"], told[1])
    return f"rdma_cm by a NAT: the server tells, {told[2]:.1f} s"


def accounts(net):
    """`ropeway run --explain` tells of a path, too: at once, and at the end."""
    net.plain()
    net.mtu(9000, 1500)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "account"
        verbs(net, 4096, explain=str(file))
        need("the account", ["packets to 10.77.5.2 are too big for the path, says", "=> packets were too big for a link on the path"], re.sub(r"\s+", " ", file.read_text()))
    return "the account of a program"


def shrinks(net):
    """The path becomes narrower while bytes move: messaging goes on with a smaller MTU."""
    net.plain()
    env = {"ROPEWAY_TRANSPORT": "verbs"}
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        data = pattern(at / "f", 400_000_001)
        (at / "in").mkdir()
        b = Side(net, "b", BUILD / "ropeway", "recv", "--once", "-l", ":7471", at / "in", env=env)
        b.hear("listening")
        a = Side(net, "a", BUILD / "ropeway", "send", at / "f", f"{B}:7471", env=env)
        time.sleep(0.3)
        net.mtu(9000, 1500)
        told = a.end(LIMIT_S)
        b.end(LIMIT_S)
        got = at / "in" / "f"
        if told[0] or not got.exists() or got.read_bytes() != data:
            raise Wrong(f"the file did not arrive (status {told[0]}):\n{told[1]}")
    return f"narrower on the way: moved, {told[2]:.1f} s"


FORGER = """
import random, socket, struct, sys, time
A, B, sport = sys.argv[1], sys.argv[2], int(sys.argv[3])
def check(b):
    s = sum(struct.unpack("!%dH" % (len(b) // 2), b))
    s = (s >> 16) + (s & 65535)
    return ~(s + (s >> 16)) & 65535
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
random.seed(7)
end = time.monotonic() + 1.5
while time.monotonic() < end:
    # time exceeded, port unreachable, prohibited, about a packet of the socket's that no QP has sent
    kind, code = random.choice([(11, 0), (3, 3), (3, 13)])
    bth = struct.pack("!BBHII", 4, 64, 65535, random.randrange(1 << 24), random.randrange(1 << 24))
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 60, 0, 0x4000, 64, 17, 0, socket.inet_aton(A), socket.inet_aton(B))
    body = ip + struct.pack("!HHHH", sport, 4791, 40, 0) + bth
    head = struct.pack("!BBHI", kind, code, 0, 0)
    s.sendto(struct.pack("!BBHI", kind, code, check(head + body), 0) + body, (A, 0))
    time.sleep(0.0005)
"""


def forged(net):
    """Who guesses the source port and forges ICMP about packets that no QP has sent is counted, and stops nothing."""
    net.plain()
    env = {"ROPEWAY_TRANSPORT": "verbs", "ROPEWAY_STATS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        data = pattern(at / "f", 300_000_001)
        (at / "in").mkdir()
        b = Side(net, "b", BUILD / "ropeway", "recv", "--once", "-l", ":7471", at / "in", env=env)
        b.hear("listening")
        a = Side(net, "a", BUILD / "ropeway", "send", at / "f", f"{B}:7471", env=env)
        ports, end = [], time.monotonic() + 10
        while not ports and time.monotonic() < end:  # address:port in hexadecimal (proc(5)); 0xc000 and up are the device's
            found = re.findall(r" 0207A8C0:([0-9A-F]{4}) ", net.sh("a", "cat /proc/net/udp"))
            ports = [int(p, 16) for p in found if int(p, 16) >= 0xc000]
        # The sender's, and perhaps that of the helper.
        forgers = [Side(net, "r1", sys.executable, "-c", FORGER, A, B, port) for port in ports]
        told = a.end(LIMIT_S)
        for forger in forgers:
            forger.end(LIMIT_S)
        b.end(LIMIT_S)
        got = at / "in" / "f"
        if told[0] or not got.exists() or got.read_bytes() != data:
            raise Wrong(f"the file did not arrive (status {told[0]}):\n{told[1]}")
    need("--stats", [r"ICMP not believed +[1-9]", r"hop limit used up +0\n", r"rejected by a firewall +0\n"], told[1])
    return "forged ICMP: moved, " + f"{told[2]:.1f} s, " + re.search(r"ICMP not believed +\d+", told[1])[0]


EXTRA = {"hop limit": hops, "IPv6": version6, "rdma_cm by a NAT": connected, "forged ICMP": forged, "port held": port_held, "account": accounts}
EXTRA_LONG = {"narrower on the way": shrinks}


def main():
    global BUILD
    args = [a for a in sys.argv[1:] if not a.startswith("--")]
    BUILD, only = pathlib.Path(args[0]).resolve(), args[1:]
    long, table = "--long" in sys.argv, "--table" in sys.argv
    jobs = [(c.name, lambda net, c=c: run(net, c, table, long)) for c in CASES if c.core or long] + list((EXTRA | (EXTRA_LONG if long else {})).items())
    jobs = [j for j in jobs if not only or j[0] in only]

    def one(job):
        """What is to be said of it, in a network of its own; it waits for time-outs most of the time."""
        name, work = job
        net = Network()
        try:
            net.rules("r1", "")
            return True, "ok - " + work(net)
        except Wrong as e:
            return False, f"not ok - {name}: {e}"
        finally:
            net.close()

    bad = 0
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for good, text in pool.map(one, jobs):
                bad += not good
                print(text, flush=True)
    except NotHere as why:
        print(f"SKIPPED: {why}")
        return 77
    print(f"{len(jobs) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
