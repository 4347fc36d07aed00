#!/usr/bin/python3
"""Interoperability with kernel rxe: stock verbs programs, one side in the QEMU guest on rxe, the other here on the software device.

  interop.py [--only TEXT] [--lib SO] [--peer ropeway|rxe] [--list] [-v]          with ROPEWAY_GUEST_SUITE=trixie: the kernel of that Debian release

One line a case, then 'N passed, N failed, N skipped'. --peer rxe puts a second guest in ropeway's place: it tests this harness. Exit status 77
when there can be no guest here. Needs root, or user namespaces.

What checks the bytes: verbs_verify compares a pattern that differs in every message, rping -V its text, rdma_client and rdma-client what the server sends or writes. perftest,
ucmatose, udaddy and mckey check nothing but their completions, and the pattern of `ibv_*_pingpong -c` is the same in every byte.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys
import threading
import time

from guest import Guest, Unavailable, die_with_parent, prepare
from netns import HOST_IP4, HOST_IP6, add_bridge, add_tap, enter_namespace

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = os.environ.get("ROPEWAY_BUILD", str(ROOT / "build"))

@dataclasses.dataclass
class Case:
    """{d} device, {g} GID index, {p} port, {a} the server's IPv4 address (where the GIDs are told by hand), {A} its address of the case's family, {o} the side's own IPv4
    address, {b} build folder, {k} -a where no order of completions is promised."""
    name: str
    server: str
    client: str              # "+ X": the server's command and X
    size: str = ""           # goes after both commands
    size_loss: str = None    # the same where packets are lost; None where the program has no retries (UD)
    listens: int = 0         # the port space of rdma_cm in which it listens, 0 for a TCP socket
    port: int = 0            # it cannot be chosen
    says: str = ""           # what the client has to say
    ready: str = ""          # of a server that listens to nothing: what it says when it is ready
    serves_on: bool = False  # the server ends when it is told to
    families: tuple = ("IPv4", "IPv6")
    leaves_unheard: bool = False  # its client ends without waiting for the answer to its DREQ: see GOODBYE_TRIES
    leaves_unsent: bool = False  # its client ends with the completions of datagrams that nobody acknowledges: see UNSENT
    leaves_at_once: bool = False  # each side ends with its last completion, though its last ACK may be lost: see GOODBYE_TRIES


TCP, UDP = 0x106, 0x111
PERFTEST = "{prog} -d {d} -x {g} -p {p} -F"
CASES = [
    Case("ibv_rc_pingpong -c", "ibv_rc_pingpong -d {d} -g {g} -p {p} -c", "+ {a}", "-n 300", "-n 50", leaves_at_once=True),
    Case("ib_send_bw", PERFTEST.replace("{prog}", "ib_send_bw"), "+ {a}", "-n 200 -s 65536", "-n 40 -s 16384"),
    Case("ib_write_bw", PERFTEST.replace("{prog}", "ib_write_bw"), "+ {a}", "-n 200 -s 65536", "-n 40 -s 16384"),
    Case("ib_read_bw", PERFTEST.replace("{prog}", "ib_read_bw"), "+ {a}", "-n 200 -s 65536", "-n 40 -s 16384"),
    Case("ib_atomic_lat", PERFTEST.replace("{prog}", "ib_atomic_lat"), "+ {a}", "-n 300", "-n 50"),
    Case("ibv_ud_pingpong -c", "ibv_ud_pingpong -d {d} -g {g} -p {p} -c", "+ {a}", "-n 300 -s 1024"),
    Case("rdma_server", "{b}/rdma_server {d} {p} {g}", "{b}/rdma_client {a} {d} {p} {g}", "", ""),
    Case("verbs_verify", "{b}/tests/interop/verbs_verify -d {d} -g {g} -p {p}", "+ {a}", "", "-n 1"),
    # The order of completions; where packets are lost or repeated nothing is promised. From Linux 6.4 on rxe completes from a work queue, in either order, also with another rxe: counted only.
    # That of Linux 7.2 may also send its ACK behind the reply, and then it is this side that has the completions in that order.
    Case("ackord", "{b}/tests/interop/ackord -d {d} -g {g} -p {p} {k}", "{b}/tests/interop/ackord -d {d} -g {g} -p {p} {k} {a}", "-n 500", None),
    # Connected by rdma_cm.
    Case("rping -V", "rping -s -a {A} -p {p} -V", "rping -c -a {A} -p {p} -V", "-C 100 -S 4000", "-C 30 -S 4000", TCP, leaves_unheard=True),
    Case("ucmatose", "ucmatose -f {f} -b {A} -p {p}", "ucmatose -f {f} -s {A} -p {p}", "-c 10 -C 10", "-c 2 -C 5", TCP, says="return status 0"),
    Case("udaddy", "udaddy -f {f} -b {A}", "udaddy -f {f} -s {A}", "-c 4 -C 10 -S 900", None, UDP, 7174, says="return status 0"),
    # A group of both; the kernel's rdma_cm has no IPv6 groups on RoCE v2.
    Case("mckey", "stdbuf -oL mckey -m 239.7.7.7 -b {o}", "mckey -m 239.7.7.7 -b {o} -s", "-C 20 -S 1000", None, says="return status 0", ready="joined dgid: ::ffff:239.7.7.7", leaves_unsent=True,
         families=("IPv4",)),
    # This perftest (4.5) asks for IPv4 addresses only where it connects by rdma_cm.
    Case("ib_send_bw -R", "ib_send_bw -R -F -p {p}", "+ {A}", "-n 200 -s 65536", "-n 40 -s 16384", TCP, families=("IPv4",)),
    *[Case(f"rdma-server {mode}", f"{{b}}/rdma-server -w 40 -n 1 {mode} {{p}}", f"{{b}}/rdma-client -w 40 {mode} {{A}} {{p}}", "", "", TCP, says="remote buffer: ")
      for mode in ("write", "read")],
    # The messaging library: boot over TCP, frames and rendezvous over this side's device, every byte checked.
    *[Case(f"ropeway perf {op}", "{b}/ropeway perf --serve {a}:{p} -t verbs", f"{{b}}/ropeway perf {{a}}:{{p}} -t verbs -o {op} -s 0,8,5000,300000 -n 20 -w 4 -v --json --no-bare",
           says='"path": "{d}, GID {g} ::ffff:', serves_on=True, families=("IPv4",)) for op in ("tag", "put", "get")],
]
# A kernel client that ends takes its connection with it, also when its DREQ was lost: nobody repeats it (cm_destroy_id, IB_CM_DREQ_SENT), and a server that only listens waits on, whoever
# it is. That is no failure of this side; with 2% loss it happens to one run in fifty, so then the case runs again.
# A program that destroys its QP with its last completion leaves nobody who repeats its last ACK: where that one is lost, the other's last request ends with "retry counter exceeded", with
# any two devices. So a case whose one side ended well and whose other side has that error runs again, too.
GOODBYE_TRIES = 3
# A capture beside rxe of Linux 6.12: of the 20 datagrams of mckey that had completed 0 to 8 were on the wire before it left, so that a receiver, of rxe's as well, may wait for ever.
UNSENT = "rxe of Linux 6.12 completes datagrams of which some are never on the wire where the program leaves at once"
# What a program prints when the bytes were wrong though it exits with 0.
BAD_WORDS = ("invalid data", "Data validation failed", "mismatch")


class HostProcess:
    """Like guest.Command, on this machine."""

    def __init__(self, command, env):
        self.text = ""
        self.process = subprocess.Popen(["/bin/sh", "-c", "exec " + command], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, preexec_fn=die_with_parent)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for chunk in iter(lambda: self.process.stdout.read1(4096), b""):
            self.text += chunk.decode(errors="replace")

    def wait(self, timeout_s):
        try:
            rc = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            rc = 124
        self.reader.join(2)
        return rc

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.wait(5)


class HostPeer:
    """ropeway: programs here, with the drop-in preloaded."""

    def __init__(self, lib):
        self.ip4, self.ip6, self.what, self.in_order, self.acks_first = HOST_IP4, HOST_IP6, "ropeway", True, True
        self.env = dict(os.environ, LD_PRELOAD=lib, LC_ALL="C.UTF-8")
        self.device, self.gid = find_gids(self)

    def start(self, command):
        return HostProcess(command, self.env)

    def run(self, command, timeout_s=60):
        process = self.start(command)
        return process.wait(timeout_s), process.text

    def is_listening(self, space, port):
        if space:  # the claim on the service ID is an abstract socket
            time.sleep(0.1)
            return f"/service/{0x1000000 | space << 16 | port:x}/" in pathlib.Path("/proc/net/unix").read_text()
        return subprocess.run(["/bin/sh", "-c", listening(port)]).returncode == 0


class GuestPeer:
    """Kernel rxe: programs in the guest."""

    def __init__(self, number, verbose):
        self.number, self.verbose, self.what = number, verbose, "rxe"
        self.tap = add_tap(number)
        self.boot()

    def boot(self):
        self.guest = Guest(tap=self.tap, number=self.number, verbose=self.verbose)
        self.ip4, self.ip6 = self.guest.ip4, self.guest.ip6
        linux = tuple(map(int, self.guest.check("uname -r").split(".")[:2]))
        self.in_order, self.acks_first = linux < (6, 4), linux < (7, 0)
        self.device, self.gid = find_gids(self)

    def reboot_if_dead(self):
        if self.guest.dead:
            self.guest.close()
            self.boot()

    def start(self, command):
        return self.guest.start("exec " + command)

    def run(self, command, timeout_s=60):
        """(exit status, what it printed)"""
        return self.guest.run(command, timeout_s)

    def is_listening(self, space, port):
        if space:
            return any("LISTEN" in line and re.search(rf"src-addr \S+:{port}\b", line) for line in self.guest.run("sleep 0.2; rdma resource show cm_id", 60)[1].splitlines())
        return self.guest.run(listening(port), 60)[0] == 0

    def loss(self, percent):
        self.guest.run("tc qdisc del dev eth0 root 2>/dev/null; " + (f"tc qdisc add dev eth0 root netem loss {percent}%" if percent else "true"))


def listening(port):
    """A shell command that waits a second for something to listen on the TCP port."""
    return f"for i in 1 2 3 4 5 6 7 8 9 10; do grep -qi ':{port:04X} 0*:0000 0A' /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1"


def wait_listening(peer, process, space, port, ready="", timeout_s=30):
    """False when the process ended, or never listened (ready: never said that)."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and not process.ended():
        if ready in process.text if ready else peer.is_listening(space, port):
            return True
        if ready:
            time.sleep(0.05)
    return False


def find_gids(peer):
    """The device that has the peer's IPv4 address, and the GID index of each of its addresses, as ibv_devinfo tells them."""
    rc, text = peer.run("ibv_devinfo -v")
    device, found = None, {}
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if words[:1] == ["hca_id:"]:
            device = words[1]
        elif words[:1] == ["GID["] and "RoCE v1" not in line:
            found.setdefault(words[2].removeprefix("::ffff:"), (device, int(words[1].rstrip("]:"))))
    if peer.ip4 not in found:
        raise RuntimeError(f"{peer.what}: no device with the address {peer.ip4}; ibv_devinfo -v ended with {rc}:\n{text}")
    device = found[peer.ip4][0]
    return device, {family: found[a][1] for family, a in (("IPv4", peer.ip4), ("IPv6", peer.ip6)) if a in found and found[a][0] == device}


def all_cases():
    """(label, case, family, guest is server, with loss)"""
    for with_loss in (False, True):
        for case in CASES:
            if with_loss and case.size_loss is None:
                continue
            for family in case.families:
                for guest_serves in (True, False):
                    label = f"{case.name:20} {family} {'rxe server, ' if guest_serves else 'rxe client, '}{'2% loss' if with_loss else 'no loss'}"
                    yield label, case, family, guest_serves, with_loss


def last_ack_lost(*ends):
    """One side (rc, text) is done, the other one's last request was never acknowledged."""
    (good, _), (bad, text) = sorted(ends, key=lambda end: end[0])
    return good == 0 and bad not in (0, 124) and "transport retry counter exceeded" in text


def run_case(guest, other, case, family, guest_serves, with_loss, port, timeout_s):
    """None, or what went wrong; and whether all that can be wrong is a lost goodbye."""
    server, client = (guest, other) if guest_serves else (other, guest)
    port = case.port or port
    if family not in server.gid or family not in client.gid:
        return f"no {family} GID: rxe {guest.gid}, {other.what} {other.gid}", False

    def command(peer, text):
        words = {"d": peer.device, "g": peer.gid[family], "p": port, "a": server.ip4, "A": server.ip6 if family == "IPv6" else server.ip4, "b": shlex.quote(BUILD), "o": peer.ip4,
                 "k": "" if peer.in_order and client.acks_first and server.acks_first else "-a",
                 "f": "ipv6" if family == "IPv6" else "ip"}
        return text.format(**words) + " " + (case.size_loss if with_loss else case.size)

    says = case.says.replace("{d}", client.device).replace("{g}", str(client.gid[family]))
    client_command = case.server + case.client[1:] if case.client.startswith("+") else case.client
    serving = server.start(command(server, case.server))
    try:
        if not wait_listening(server, serving, case.listens, port, case.ready):
            serving.kill()
            return f"the server ({server.what}) does not listen:\n{serving.text}", False
        running = client.start(command(client, client_command))
        client_rc = running.wait(timeout_s)
        may_be_lost = case.leaves_unheard and with_loss and client.what == "rxe" and client_rc == 0
        serves_on = case.serves_on and not serving.ended()
        server_rc = 0 if serves_on else serving.wait(10 if may_be_lost else timeout_s if client_rc == 0 else 3)
    finally:
        serving.kill()
    text = f"client ({client.what}) ended with {client_rc}:\n{running.text}\nserver ({server.what}) ended with {server_rc}:\n{serving.text}"
    if client_rc or server_rc or says not in running.text or any(word in text for word in BAD_WORDS):
        return text, may_be_lost and server_rc == 124 or with_loss and case.leaves_at_once and last_ack_lost((client_rc, running.text), (server_rc, serving.text))
    return None, False


# In the guest rmem_max is the kernel's default, and nobody has no privilege: what ropeway alone must manage there.
ALONE = "guest alone: nobody, rmem_max 212992: "
ALONE_PROGRAMS = r"^ib_(send|write|read)_bw (-n|-c U. -[sn])|^ib_send_bw -c UD -b|^ibv_.*pingpong -c$"


def run_alone(guest, lib):
    """(label, None or what went wrong) of programs on ropeway's loopback device within the guest, in a network namespace where rxe does not hold the port."""
    guest.loss(0)
    rc, text = guest.run(f"cat /proc/sys/net/core/rmem_max; exec {ROOT}/tests/programs/perftest.sh --lib {shlex.quote(lib)} --unprivileged --only '{ALONE_PROGRAMS}'", 900)
    found, lines = [], text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("pass "):
            found.append((ALONE + line[5:], None))
        elif line.startswith("FAIL "):
            said = "\n".join(lines[i + 1:i + 40])
            found.append((ALONE + line[5:], said))
    if not found or lines[0] != "212992":
        found.append((ALONE + "perftest.sh", f"it ended with {rc}:\n{text[-3000:]}"))
    return found


def run_port_held(guest, lib):
    """Where rxe holds port 4791, a program on the software device that needs the port must end with a line that says so; a connection between two of our own processes needs none."""
    one = f"timeout 20 env LD_PRELOAD={shlex.quote(lib)} ibv_{{}}_pingpong -d rpw_eth0 -g 1 -n 1"
    for kind, needs in (("ud", True), ("rc", False)):
        pingpong = one.format(kind)
        rc, text = guest.run(f"{pingpong} & sleep 2; {pingpong} 127.0.0.1; rc=$?; kill %1; exit $rc", 60)
        right = rc not in (0, 124) and "4791" in text and "rxe" in text if needs else rc == 0
        if not right:
            break
    return "rxe holds port 4791: the software device says so", None if right else f"it ended with {rc}:\n{text}"


def run_ends(guest, other):
    """(label, None or what went wrong): what programs on rxe learn of a ropeway process that is killed. The helper tells them, by messages that any device knows."""
    port = 18500

    def rping(side, role, address):
        return side.start(f"rping -{role} -v -a {address} -p {port}")

    for role in ("server", "client"):
        port += 1
        serves, asks = (other, guest) if role == "server" else (guest, other)
        server = rping(serves, "s", serves.ip4)
        wait_listening(serves, server, TCP, port)
        client = rping(asks, "c", serves.ip4)
        dies, lives = (server, client) if role == "server" else (client, server)
        begun = time.monotonic()
        while "ping data" not in lives.text and time.monotonic() - begun < 20:
            time.sleep(0.05)
        time.sleep(0.3)
        dies.kill()
        since = time.monotonic()
        while "DISCONNECT" not in lives.text and time.monotonic() - since < 20:
            time.sleep(0.05)
        told = "DISCONNECT" in lives.text
        yield f"ends: rping {role} here is killed: rxe learns DISCONNECTED ({time.monotonic() - since:.1f} s)", None if told else lives.text[-1000:] or "it said nothing"
        lives.kill()
    # Of rxe's QP what is posted is flushed; it raises no asynchronous event (Linux 6.1, rxe_resp.c), so one with nothing posted notices nothing until it posts.
    port += 1
    peer = f"{shlex.quote(BUILD)}/tests/ends/rc_peer"
    dies = other.start(f"{peer} serve {other.ip4} {port} dies wait")
    lives = guest.start(f"{peer} connect={other.ip4} {guest.ip4} {port} survives posted")
    begun = time.monotonic()
    while "ready" not in dies.text and time.monotonic() - begun < 20:
        time.sleep(0.05)
    time.sleep(1)
    dies.kill()
    lives.wait(25)
    heard = re.search(r"^completion (.*) (\d+)$", lives.text, re.M)
    yield f"ends: a plain RC QP here is killed: rxe has \"{heard[1] if heard else 'nothing'}\" ({int(heard[2]) / 1000 if heard else 0:.1f} s)", None if heard else lives.text + dies.text or "they said nothing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains all of these words")
    parser.add_argument("--lib", default=f"{BUILD}/libropeway-verbs.so")
    parser.add_argument("--peer", default="ropeway", choices=["ropeway", "rxe"])
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one case")
    parser.add_argument("-v", action="store_true", help="show the guest's console and what each program prints")
    args = parser.parse_args()
    cases = [c for c in all_cases() if all(word in c[0] for word in args.only.split())]
    if args.list:
        print("\n".join(c[0] for c in cases))
        return 0
    if args.peer == "ropeway" and not os.path.exists(args.lib):
        print(f"{args.lib} is not there: run script/setup")
        return 1
    try:
        prepare()
        enter_namespace()
        add_bridge()
        guest = GuestPeer(0, args.v)
    except (Unavailable, PermissionError) as e:
        print(f"SKIPPED: interop with kernel rxe: {e}")
        print(f"0 passed, 0 failed, {len(cases)} skipped")
        return 77
    other = HostPeer(args.lib) if args.peer == "ropeway" else GuestPeer(1, args.v)
    return run_all(cases, guest, other, args)


def run_all(cases, guest, other, args):
    passed = failed = skipped = 0
    losing = False

    def tell(label, wrong):
        nonlocal passed, failed
        failed, passed = failed + bool(wrong), passed + (not wrong)
        print(f"{'FAIL' if wrong else 'pass'} {label}", flush=True)
        if wrong:
            print("\n".join("    " + line for line in wrong.splitlines()[-60:]), flush=True)

    for i, (label, case, family, guest_serves, with_loss) in enumerate(cases):
        guest.reboot_if_dead()
        if with_loss != losing:
            guest.loss(2 if with_loss else 0)
            losing = with_loss
        if case.leaves_unsent and not (other if guest_serves else guest).in_order:
            print(f"SKIPPED {label}: {UNSENT}", flush=True)
            skipped += 1
            continue
        started = time.monotonic()
        for _ in range(GOODBYE_TRIES):
            wrong, goodbye_lost = run_case(guest, other, case, family, guest_serves, with_loss, 18600 + i, args.timeout)
            if not goodbye_lost:
                break
            print(f"     {label}: one side is done and its goodbye seems lost: once more", flush=True)
        tell(f"{label} ({time.monotonic() - started:.1f} s)", wrong)
    if args.peer == "ropeway" and all(word in "ends: rping rc_peer" for word in args.only.split()):
        guest.reboot_if_dead()
        guest.loss(0)
        for label, wrong in run_ends(guest, other):
            tell(label, wrong)
    if args.peer == "ropeway" and all(word in ALONE for word in args.only.split()):
        guest.reboot_if_dead()
        tell(*run_port_held(guest, args.lib))
        for label, wrong in run_alone(guest, args.lib):
            tell(label, wrong)
    guest.guest.close()
    if args.peer == "rxe":
        other.guest.close()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
