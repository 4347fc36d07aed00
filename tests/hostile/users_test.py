#!/usr/bin/python3
"""Two users of one host against each other: the victim runs unmodified verbs programs, the attacker does what any local user can. Nothing of the victim's may reach the attacker, be changed by him,
or fail in silence.

  users_test.py [--build DIR] [CASE...]

Root only (it becomes both users), in a network namespace of its own. Exit status 0: nothing found; 1: something was; 77: it cannot run here, with the reason.
"""
import argparse
import ctypes
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

VICTIM, ATTACKER = 60001, 60002
INSIDE = "ROPEWAY_HOSTILE_NAMESPACE"
WAIT_S = 20
ROCE = 4791
TCP_SPACE = 0x0106


def names():
    """The abstract names of this namespace that are ropeway's."""
    return {line.split()[-1][1:] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:] if "@ropeway/" in line}


def until(what, seconds=WAIT_S):
    """Waits for it; how long is never judged, only whether it comes."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def service(port):
    return f"{TCP_SPACE << 16 | port:x}"


def service_names(port, where):
    """All that a service of the victim has been called, then and now."""
    return [f"ropeway/service/{service(port)}/{where}", f"ropeway/{VICTIM}/service/{service(port)}/{where}", f"ropeway/shared/service/{service(port)}/{where}"]


# ---- the attacker ----

class Attacker:
    """A process of the other user that runs `work(say)`; what it says comes back as lines."""

    def __init__(self, work):
        r, w = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(r)
            try:
                os.setgroups([])
                os.setresgid(ATTACKER, ATTACKER, ATTACKER)
                os.setresuid(ATTACKER, ATTACKER, ATTACKER)
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)
                work(lambda text: os.write(w, f"{text}\n".encode()))
            except BaseException as e:  # the test has to hear of it
                os.write(w, f"broken {e!r}\n".encode())
            os._exit(0)
        os.close(w)
        self.out, self.text = r, ""

    def hear(self, word, seconds=WAIT_S):
        end = time.monotonic() + seconds
        while f"{word}" not in self.text and time.monotonic() < end:
            if select.select([self.out], [], [], 0.1)[0]:
                got = os.read(self.out, 65536).decode()
                if not got:
                    break
                self.text += got
        return word in self.text

    def end(self):
        """What it got of the victim, in bytes."""
        while select.select([self.out], [], [], 0)[0]:
            got = os.read(self.out, 65536).decode()
            if not got:
                break
            self.text += got
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.out)
        if "broken" in self.text:
            raise RuntimeError("the attack did not run: " + self.text)
        return sum(int(n) for n in re.findall(r"got (\d+)", self.text))


def take_names(wanted, say, again=False):
    """Binds each name as a datagram socket and as a listener, again and again if asked for, and takes whatever comes."""
    ep, have = select.epoll(), {}
    missing = [(name, kind) for name in wanted for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)]

    def try_all():
        left = []
        for name, kind in missing:
            s = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
            try:
                s.bind("\0" + name)
            except OSError:
                s.close()
                left.append((name, kind))
                continue
            if kind == socket.SOCK_SEQPACKET:
                s.listen(64)
            have[s.fileno()] = s
            ep.register(s.fileno(), select.EPOLLIN)
        return left

    missing = try_all()
    say("ready")
    while True:
        if again and missing:
            missing = try_all()
        for fd, _ in ep.poll(0.001 if again and missing else 0.05):
            s = have[fd]
            try:
                if s.type & 0xf == socket.SOCK_SEQPACKET and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    c, _ = s.accept()
                    c.setblocking(False)
                    have[c.fileno()] = c
                    ep.register(c.fileno(), select.EPOLLIN)
                    continue
                data = s.recv(1 << 18)
            except OSError:
                data = b""
            if data:
                say(f"got {len(data)}")
            elif s.type & 0xf == socket.SOCK_SEQPACKET:
                ep.unregister(fd)
                have.pop(fd).close()


# ---- the victim ----

class Victim:
    def __init__(self, build):
        self.build, self.running = build, []

    def start(self, *command, user=VICTIM, **env):
        environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "ROPEWAY_LOG": "warn"}
        environ.update(env)
        p = subprocess.Popen([str(self.build / "ropeway"), *command], user=user, group=user, extra_groups=[], env=environ, cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(p)
        return p

    def run(self, *command, seconds=WAIT_S, **more):
        p = self.start(*command, **more)
        try:
            out, _ = p.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            p.kill()
            return -1, "nothing until it was killed: " + p.communicate()[0]
        return p.returncode, out

    def listens(self, port, *where, **more):
        others = set(names())  # of an attacker, too
        p = self.start("run", "--", "rping", "-s", "-P", "-p", str(port), *where, **more)
        until(lambda: any(f"/service/{service(port)}/" in n for n in set(names()) - others) or p.poll() is not None)
        return p

    def ping(self, port, **more):
        return self.run("run", "--", "rping", "-c", "-a", "127.0.0.1", "-p", str(port), "-C", "3", "-V", **more)

    def end(self):
        for p in self.running:
            if p.poll() is None:
                p.kill()
                p.communicate()
        self.running = []
        until(lambda: not names())


# ---- the attacks ----

def service_theft(v):
    """A listener on all addresses, and a stranger who binds the more special name of its service."""
    v.listens(7801)
    a = Attacker(lambda say: take_names(service_names(7801, "127.0.0.1"), say))
    a.hear("ready")
    served = [v.ping(7801) for _ in range(6)]
    got = a.end()
    yield "each connection is the listener's own", [s for s in served if s[0]]
    yield "the attacker got nothing", got


def service_squatted(v):
    """Its names are taken before it begins."""
    a = Attacker(lambda say: take_names([n for w in ("*", "127.0.0.1") for n in service_names(7802, w)], say))
    a.hear("ready")
    status, out = v.run("run", "--", "rping", "-s", "-p", "7802")
    v.listens(7803)
    status2, _ = v.ping(7802)
    ok, out3 = v.ping(7803)
    got = a.end()
    yield "the listener fails and says by whom", [] if status and f"user {ATTACKER}" in out else out
    yield "nobody is connected to the squatter", [] if status2 else "connected"
    yield "other services live", [] if ok == 0 else out3
    yield "the attacker got nothing", got


def full_queue(v):
    """The stranger holds the name of the service on all addresses, with a queue that is full: nobody gets a connection there that says whose it is."""

    def work(say):
        held = []
        for name in service_names(7811, "*"):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.bind("\0" + name)
            s.listen(0)
            held.append(s)
            for _ in range(8):
                c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
                held.append(c)
                try:
                    c.connect("\0" + name)
                except BlockingIOError:
                    say("full")
                    break
        say("ready")
        time.sleep(100)

    a = Attacker(work)
    yield "the test itself ran", [] if a.hear("ready") and "full" in a.text else a.text
    server = v.listens(7811, "-a", "127.0.0.1")
    ok, out = v.ping(7811)
    yield "the service on one address is ours all the same", [] if ok == 0 else out + (server.communicate()[0] if server.poll() is not None else "")
    status, said = v.run("run", "--", "rping", "-s", "-p", "7811")
    yield "that on all addresses fails and says by whom", [] if status and f"user {ATTACKER}" in said else said
    a.end()


def orphaned_slot(v):
    """A process is killed, and a stranger takes its slot's name while its peer still sends."""
    server = v.start("run", "--", "ib_write_bw", "-d", "rpw_lo", "-x", "1", "-F", "-D", "20", "-p", "7804")
    until(lambda: any(n.startswith("ropeway/slot/") for n in names()))
    slots = [n for n in names() if n.startswith("ropeway/slot/")]
    client = v.start("run", "--", "ib_write_bw", "-d", "rpw_lo", "-x", "1", "-F", "-D", "20", "-p", "7804", "127.0.0.1")
    until(lambda: len([n for n in names() if n.startswith("ropeway/slot/")]) > len(slots))
    a = Attacker(lambda say: take_names(slots, say, again=True))
    a.hear("ready")
    time.sleep(1)
    alive = client.poll() is None and server.poll() is None
    server.kill()
    time.sleep(3)
    client.kill()
    got = a.end()
    yield "the test itself ran", [] if alive else client.communicate()[0]
    yield "the attacker got nothing", got


def port_held(v):
    """The stranger's ropeway had the port first."""
    holder = v.listens(7805, "-a", "127.0.0.1", user=ATTACKER)
    _, devices = v.run("devices")
    opened, info = v.run("run", "--", "ibv_devinfo", "-d", "rpw_lo")
    server = v.start("run", "--", "rping", "-s", "-P", "-p", "7806", "-a", "127.0.0.1")
    time.sleep(1)
    status, out = v.ping(7806)
    server.kill()
    said = server.communicate()[0]
    wanted = ["held by another user's ropeway", f"user {ATTACKER}", "unshare -rn", "ROPEWAY_SHARE_PORT=1"]
    yield "nothing of ours goes through his process", [] if status else "it does: " + out
    yield "devices says who and what to do", [w for w in wanted if w not in devices]
    yield "so does what failed", [w for w in wanted if w not in said]
    yield "the device opens", [] if opened == 0 and "PORT_ACTIVE" in info else info
    server = v.start("run", "--stats", "--", "ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", "7809", "-n", "100", "-c")
    until(lambda: sum(n.startswith("ropeway/slot/") for n in names()) > 1)
    time.sleep(0.3)
    status, out = v.run("run", "--stats", "--", "ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", "7809", "-n", "100", "-c", "127.0.0.1")
    by_memory = re.search(r"sent through memory +(\d+)", out)
    yield "a connection to a process of ours needs no port", [] if status == 0 and by_memory and int(by_memory[1]) >= 100 else out + server.communicate()[0]
    server = v.start("run", "--", "ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", "7807", "-n", "100", ROPEWAY_SHARE_PORT="1")
    until(lambda: sum(n.startswith("ropeway/slot/") for n in names()) > 1)
    time.sleep(0.3)
    status, out = v.run("run", "--", "ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", "7807", "-n", "100", "127.0.0.1", ROPEWAY_SHARE_PORT="1")
    yield "but who says so lives on it", out if status else []
    holder.kill()


def same_user_elsewhere(v):
    """One network namespace, and otherwise apart, as containers and pods with the host's network are: shared memory all the same, and whether one may read the other is the kernel's affair."""
    apart = {"a PID namespace": ["unshare", "-r", "-p", "-f", "--kill-child"], "a mount namespace": ["unshare", "-r", "-m"], "a user namespace": ["unshare", "-r"]}
    for name, there in apart.items():
        for both in (False, True):
            port = str(random.randrange(7900, 8900))
            program = ["ibv_rc_pingpong", "-d", "rpw_lo", "-g", "1", "-p", port, "-n", "200", "-s", "70000", "-c"]
            server = v.start("run", "--stats", "--", *(there if both else []), *program)
            until(lambda: sum(n.startswith("ropeway/slot/") for n in names()) > 0)
            time.sleep(0.3)
            status, out = v.run("run", "--stats", "--", *there, *program, "127.0.0.1")
            sent = [int(n) for n in re.findall(r"sent through memory +(\d+)", out)]
            said = server.communicate()[0]
            yield f"{name}, {'both in one of their own' if both else 'one of two'}", [] if status == 0 and sent and max(sent) >= 200 else out + said


def slots_taken(v):
    """All slots of the host, by one process."""
    a = Attacker(lambda say: take_names([f"ropeway/slot/{n}" for n in range(1, 4095)], say))
    a.hear("ready")
    _, out = v.run("devices")
    status, said = v.run("run", "--", "rping", "-s", "-p", "7808")
    got = a.end()
    wanted = ["slots", f"process {a.pid}", f"user {ATTACKER}"]
    yield "devices says what is exhausted and by whom", [w for w in wanted if w not in out]
    yield "so does what failed", [w for w in wanted if w not in said] if status else "it did not fail"
    yield "the attacker got nothing", got
    status, out = v.run("devices")
    yield "afterwards all is well", [] if "CANNOT" not in out else out


def forged_messages(v):
    """He connects to every listener of the victim's and says what its own processes say to each other."""
    v.listens(7809)

    def work(say):
        random.seed(7)
        say("ready")
        socks = []
        while True:
            for name in names():
                for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
                    s = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
                    try:
                        s.connect("\0" + name)
                        for t in range(8):
                            head = struct.pack("=IBBHQII128s", 0x72707769, random.choice((1, 2)), t, random.randrange(70), random.getrandbits(64), random.getrandbits(12), 0, os.urandom(128))
                            s.send(head + os.urandom(random.choice((0, 40, 64, 4000))))
                    except OSError:
                        pass
                    socks.append(s)
            if len(socks) > 500:
                for s in socks:
                    try:
                        if s.recv(1 << 16, socket.MSG_DONTWAIT):
                            say("got 1")
                    except OSError:
                        pass
                    s.close()
                socks = []
                time.sleep(0.01)

    a = Attacker(work)
    a.hear("ready")
    served = [v.ping(7809, seconds=60) for _ in range(5)]
    got = a.end()
    yield "each connection is served", [s for s in served if s[0]]
    yield "nothing is answered", got


def icrc(src, dst, sport, payload):
    """Of a RoCEv2 packet without IP options, ID 0 (IB annex A17.3.3)."""
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0xff, 28 + len(payload) + 4, 0, 0x4000, 0xff, 17, 0xffff, src, dst)
    udp = struct.pack("!HHHH", sport, ROCE, 8 + len(payload) + 4, 0xffff)
    body = bytearray(payload)
    body[4] = 0xff
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + bytes(body)))


def injected_packets(v):
    """RDMA WRITEs with right checksums from the host's own address: slots as /proc tells them, QPNs, PSNs and keys guessed."""
    server = v.listens(7810)

    def work(say):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: DF and ID 0
        s.bind(("127.0.0.1", 0))
        sport, here = s.getsockname()[1], socket.inet_aton("127.0.0.1")
        say("ready")
        for n in range(1 << 30):
            slots = [int(x.split("/")[2]) for x in names() if x.startswith("ropeway/slot/")] if n % 512 == 0 else slots
            for slot in slots:
                bth = struct.pack("!BBHII", 0x0a, 0x40, 0xffff, slot << 12 | random.getrandbits(12), 1 << 31 | random.getrandbits(24))
                reth = struct.pack("!QII", 0x7f0000000000 | random.getrandbits(32), random.choice((0x101 * (n % 65536), random.getrandbits(32))), 64)
                packet = bth + reth + os.urandom(64)
                s.sendto(packet + icrc(here, here, sport, packet), ("127.0.0.1", ROCE))
            if n % 64 == 63:
                time.sleep(0.005)

    a = Attacker(work)
    a.hear("ready")
    served = [v.run("run", "--", "rping", "-c", "-a", "127.0.0.1", "-p", "7810", "-C", "2000", "-V", "-S", "4096", seconds=60) for _ in range(3)]
    a.end()
    yield "no byte of 6,000 pings is another", [s for s in served if s[0]]
    yield "the listener lives", [] if server.poll() is None else server.communicate()[0]


def bent(folder, program):
    """What a program leaves behind that another user starts with every variable which loads code or writes a file pointing into his folder: the names there, and what it said."""
    spool = folder / "spool"
    spool.mkdir()
    os.chown(spool, ATTACKER, ATTACKER)
    names_of = {"ROPEWAY_VERBS_LIB": "verbs.so", "ROPEWAY_CUDA_LIBRARY": "cuda.so", "ROPEWAY_PCAP": "capture", "ROPEWAY_EXPLAIN": "account", "ROPEWAY_TRANSPORT": "plugin.so", "ROPEWAY_KEY_FILE": "key"}
    left, said = [], []
    for variable, name in names_of.items():
        place = spool / name
        if name.endswith(".so"):
            shutil.copy(folder / "canary.so", place)
        value = f"ncclnet:{place}" if variable == "ROPEWAY_TRANSPORT" else str(place)
        p = subprocess.run([program], user=ATTACKER, group=ATTACKER, extra_groups=[], env={variable: value}, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                           timeout=WAIT_S, check=False)
        said.append(p.stdout)
        made = [x.name for x in spool.iterdir() if x != place or not name.endswith(".so")]
        if made or variable == "ROPEWAY_KEY_FILE" and str(place) in p.stdout:
            left.append(variable)
        for x in spool.iterdir():
            x.unlink()
    spool.rmdir()
    return left, "".join(said), list(names_of)


def privileged_program(v):
    """A program that is set-user-ID uses ropeway, and its starter says by variables what to load and where to write."""
    folder = pathlib.Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            print(f"SKIPPED: privileged_program: {folder} is mounted nosuid")
            return
        for name, mode in (("plain", 0o755), ("privileged", 0o4755)):
            shutil.copy(v.build / "tests/hostile/privileged", folder / name)
            (folder / name).chmod(mode)
        shutil.copy(v.build / "tests/hostile/libcanary.so", folder / "canary.so")
        left, said, variables = bent(folder, folder / "plain")
        yield "the test itself sees every variable at work", [x for x in variables if x not in left] and (left, said)
        left, said, variables = bent(folder, folder / "privileged")
        yield "the program ran with more rights than its starter", said if said.count("secure 1, context 0") != len(variables) else []
        yield "no variable loads code, writes a file or names a key", left and (left, said)
    finally:
        shutil.rmtree(folder)


def doors_of_the_victim():
    """Where its processes listen, as anybody can see: TCP ports on the loopback, and abstract names."""
    ports = []
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        field = line.split()
        if field[3] == "0A" and int(field[7]) == VICTIM:
            ports.append(int(field[1].split(":")[1], 16))
    return ports, names()


def one_sided_ranks(v):
    """Ranks of a communicator that put into each other's memory (NCCL's one-sided plugin). He knocks at every door with the words of the protocol, and tries their memory and descriptors."""
    model = v.build / "tests/nccl/nccl_rma_model"
    if not model.exists():
        yield "skipped: build/tests/nccl/nccl_rma_model is not there", []
        return

    def work(say):
        random.seed(11)
        say("ready")
        knocked = 0
        while True:
            ports, listeners = doors_of_the_victim()
            socks = []
            for port in ports:
                s = socket.socket()
                s.settimeout(0.2)
                try:
                    s.connect(("127.0.0.1", port))
                    s.send(random.choice((b"rpw-nccl", b"rpwb", b"\0\0\0\x40")) + os.urandom(random.choice((0, 60, 200, 4000))))
                    knocked += 1
                except OSError:
                    pass
                socks.append(s)
            for name in listeners:
                for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
                    s = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
                    try:
                        s.connect("\0" + name)
                        s.send(os.urandom(200))
                        # what comes with a descriptor would be memory
                        _, fds, _, _ = socket.recv_fds(s, 4096, 8)
                        if fds:
                            say("got 1")
                    except OSError:
                        pass
                    socks.append(s)
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    if folder.stat().st_uid != VICTIM:
                        continue
                    for fd in (folder / "fd").iterdir():
                        os.close(os.open(fd, os.O_RDWR))
                        say("got 1")
                except OSError:
                    pass
                try:
                    with open(folder / "mem", "rb"):
                        say("got 1")
                except OSError:
                    pass
            for s in socks:
                s.close()
            if knocked and ports:
                say("knocked")
            time.sleep(0.01)

    a = Attacker(work)
    a.hear("ready")
    runs = []
    for transport in ("shm", "tcp", "sealed"):
        p = subprocess.Popen([model, v.build / "libnccl-net-ropeway.so", transport, "four_ranks"], user=VICTIM, group=VICTIM, extra_groups=[], cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "TEST_ROUNDS": "20000", "NCCL_SOCKET_IFNAME": "lo"})
        v.running.append(p)
        out, _ = p.communicate(timeout=120)
        if p.returncode:
            runs.append(f"{transport}: {out[-600:]}")
    heard = a.hear("knocked", 1)
    got = a.end()
    yield "he was at the doors", [] if heard else "he found none"
    yield "each byte of the ranks is right", runs
    yield "he gets no memory and no descriptor", got


class Listener:
    """What goes over the loopback by TCP, as one hears it who may: {(from, to): bytes}."""

    def __init__(self):
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self.sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)  # SO_RCVBUFFORCE
        self.sock.bind(("lo", 0))
        self.sock.settimeout(0.05)
        self.streams, self.over = {}, False
        self.thread = threading.Thread(target=self.hear, daemon=True)
        self.thread.start()

    def hear(self):
        while True:
            try:
                data, where = self.sock.recvfrom(1 << 17)
            except TimeoutError:
                if self.over:
                    return
                continue
            if where[2] == socket.PACKET_OUTGOING or data[9] != socket.IPPROTO_TCP:
                continue
            tcp = data[(data[0] & 15) * 4:struct.unpack_from("!H", data, 2)[0] or None]
            body = tcp[(tcp[12] >> 4) * 4:]
            if body:
                self.streams.setdefault(struct.unpack_from("!HH", tcp), bytearray()).extend(body)

    def end(self):
        self.over = True
        self.thread.join()
        self.sock.close()
        return self.streams


def one_sided_ranks_on_the_wire(v):
    """Ranks of a communicator whose network he hears. Without a key he reads what they put and get; with one, every stream is TLS from its first byte."""
    program, mark = v.build / "tests/nccl/nccl_rma_strangers_test", b"only for the other rank of this communicator. "
    if not program.exists():
        yield "skipped: build/tests/nccl/nccl_rma_strangers_test is not there", []
        return
    for transport, sealed in (("tcp", False), ("sealed", True)):
        ear = Listener()
        p = subprocess.Popen([program, v.build / "libnccl-net-ropeway.so", transport, "marked_bytes_arrive"], user=VICTIM, group=VICTIM, extra_groups=[], cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "NCCL_SOCKET_IFNAME": "lo"})
        v.running.append(p)
        out, _ = p.communicate(timeout=120)
        streams = ear.end()
        yield f"{transport}: each byte of the ranks is right", out[-600:] if p.returncode else []
        read = [ports for ports, said in streams.items() if mark in said]
        if sealed:
            yield "with a key he reads nothing", read
            yield "with a key each stream begins as TLS", [(ports, bytes(said[:8])) for ports, said in streams.items() if said[:1] != b"\x16"] or ([] if streams else "no stream was heard")
        else:
            yield "the test itself hears what goes in the clear", [] if read else f"{len(streams)} streams without the mark"


CASES = [service_theft, service_squatted, full_queue, orphaned_slot, port_held, same_user_elsewhere, slots_taken, forged_messages, injected_packets, privileged_program, one_sided_ranks, one_sided_ranks_on_the_wire]


def enter(argv):
    """Once more, in a network namespace of its own."""
    if os.geteuid():
        print("SKIPPED: only root can be two other users")
        sys.exit(77)
    for program in ("rping", "ib_write_bw", "ibv_rc_pingpong", "ibv_devinfo", "unshare"):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is not installed")
            sys.exit(77)
    if subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("SKIPPED: no network namespace can be made here")
        sys.exit(77)
    os.environ[INSIDE] = "1"
    os.execvp("unshare", ["unshare", "-n", sys.executable, *argv])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    if INSIDE not in os.environ:
        enter(sys.argv)
    build = args.build.resolve()
    try:
        subprocess.run([build / "ropeway", "--version"], user=VICTIM, group=VICTIM, extra_groups=[], stdout=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"SKIPPED: user {VICTIM} cannot run {build}/ropeway: {e}")
        return 77
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hard = max(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 16384)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = 0
    for case in CASES:
        if args.cases and case.__name__ not in args.cases:
            continue
        v = Victim(build)
        try:
            for what, wrong in case(v):
                print(f"{'FOUND' if wrong else 'ok   '} {case.__name__}: {what}" + (f": {wrong}" if wrong else ""), flush=True)
                found += bool(wrong)
        finally:
            v.end()
    print(f"{found} found" if found else "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
