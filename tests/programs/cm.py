#!/usr/bin/python3
"""Programs on librdmacm and what stands on it, unmodified, on the software device: two processes on one host through `ropeway run`, and two such pairs at a time.

  cm.py [--build DIR] [--only REGEX] [--list] [--jobs N] [--mixed]
        Stock programs (table PROGRAMS below), raw peers (cm/raw_peer.py), then the cases of tests/programs/cm: what rdma_cm does, event by event, held against kernel rxe's account
        of the same cases (cm/rxe.txt; where ropeway's own is right as well, cm/own.txt has it with the reason). --mixed: of the programs those whose sides are started one by one; one
        side sends by UDP alone, the server and the client in turn.
  cm.py --no-lib ...              the same on a device of this machine's: kernel rxe in the guest, as a test of this table
  cm.py --measure-rxe             boots the guest, runs the cases of tests/programs/cm there and writes cm/rxe.txt

One line a case, then 'N passed, N failed, N skipped'. Runs in a network namespace of its own. Never judges a speed.
"""
import argparse
import concurrent.futures
import contextlib
import dataclasses
import difflib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ucx_perftest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INTEROP = ROOT / "tests" / "interop"
SECOND = "10.78.0.2"  # another address of this host, for programs whose port cannot be chosen
IB, TCP, UDP = 0x013F, 0x0106, 0x0111  # port spaces of rdma_cm


@dataclasses.dataclass
class Program:
    """{a} the server's address, {p} its port, {d} the device, {m} the folder of what mpicc compiled, {t} a folder of this pair's own."""
    name: str
    server: str
    client: str
    says: str = ""          # a pattern that the client's output has to match
    server_says: str = ""
    clients: int = 1        # one after another
    stays: bool = False     # the server does not end by itself: it is told to (SIGINT)
    twice: bool = True      # run as two pairs at a time as well
    port: int = 0           # cannot be chosen
    listens: int = TCP      # the port space in which it listens, 0 for a plain TCP socket
    family: int = 4
    needs: str = ""         # a program that has to be there, if it is not the first word
    env: dict = dataclasses.field(default_factory=dict)
    fails: bool = False     # the client has to end with an error, in time
    own_race: str = ""      # what the program says when it has lost a race of its own: it runs again, RACE_TRIES times in all


# rping's event thread reads a channel that main closes: with bad luck it sees EBADF after everything was done, and ends the program with 255.
RPING_RACE = r"rdma_get_cm_event: Bad file descriptor"
RACE_TRIES = 3


def perftest(name, more, **kw):
    return Program(f"{name} -R {more}", f"{name} -R -F -p {{p}} {more}", f"{name} -R -F -p {{p}} {more} {{a}}", **kw)


def rping(more, **kw):
    return Program(f"rping {more}", f"rping -s -a {{a}} -p {{p}} {more}", f"rping -c -a {{a}} -p {{p}} {more}", own_race=RPING_RACE, **kw)


def sockets(name, more, **kw):
    return Program(f"{name} {more}", f"{name} -b {{a}} -p {{p}} {more}", f"{name} -s {{a}} -p {{p}} {more}", **kw)


UCX_PERFTEST = ucx_perftest.command()


def ucx(test, more="", **kw):
    return Program(f"ucx_perftest rc_v {test} {more}".strip(), f"{UCX_PERFTEST} -p {{p}} -t {test} {more}", f"{UCX_PERFTEST} {{a}} -p {{p}} -t {test} {more}", listens=0,
                   env={"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "{d}:1"}, says=r"Final:\s+\d", **kw)


UCX_RDMACM = {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "{d}:1", "UCX_SOCKADDR_TLS_PRIORITY": "rdmacm"}


def mpi(name, more, env, arguments=""):
    # Not bound to cores, and waiting without sched_yield: since Linux 6.18 who yields to a spinning process of the same core gives a whole slice away each time, so one of two pairs got
    # a thousandth of the processor, and its queue pairs ran out of retries. Each pair has a folder for its session: all mpirun of one user share a folder in TMPDIR, and
    # the first to end removes it while the next one makes its own in it ("orte_session_dir failed").
    command = f"mpirun --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 -n 2 {more} {{m}}/mpi_pattern {arguments}"
    return Program(f"Open MPI, {name}", "", command, says=r"all \d+ messages as sent",
                   env={"OMPI_MCA_btl_base_warn_component_unused": "0", "TMPDIR": "{t}", **env}, needs="mpicc")


PROGRAMS = [
    rping("-C 20 -V"),
    rping("-C 3 -V -v", says="rdma-ping-2: CDEF", server_says="rdma-ping-2: CDEF", twice=False),
    *[rping(f"-C 10 -V -S {size}", twice=False) for size in (23, 1024, 4097, 65535)],
    rping("-C 5 -V -q", twice=False),
    Program("rping -P, four clients", "rping -s -P -a {a} -p {p} -V", "rping -c -a {a} -p {p} -C 10 -V", clients=4, stays=True),
    rping("-C 10 -V ", family=6),
    Program("rping on every address", "rping -s -a 0.0.0.0 -p {p} -C 5 -V", "rping -c -a {a} -p {p} -C 5 -V", twice=False),
    sockets("ucmatose", "-C 10", says="return status 0"),
    sockets("ucmatose", "-c 100 -C 10 -S 1000", says="return status 0"),
    sockets("ucmatose", "-c 1000 -C 1", says="return status 0"),
    sockets("ucmatose", "-m -t 8", says="return status 0", twice=False),
    sockets("ucmatose", "-f ipv6 -C 10", says="return status 0", family=6, twice=False),
    Program("udaddy", "udaddy -b {a} -C 10", "udaddy -s {a} -C 10", says="return status 0", port=7174, listens=UDP),
    Program("udaddy -c 20", "udaddy -b {a} -c 20 -S 1000", "udaddy -s {a} -c 20 -S 1000", says="return status 0", port=7174, listens=UDP, twice=False),
    Program("rdma_server", "rdma_server -s {a} -p {p}", "rdma_client -s {a} -p {p}", says="end 0", server_says="end 0"),
    Program("rdma_xserver -c r", "rdma_xserver -p {p} -c r", "rdma_xclient -s {a} -p {p} -c r", says="end 0", server_says="end 0"),
    # cmtime's server serves for ever.
    Program("cmtime -c 1000", "cmtime -b {a} -p {p}", "cmtime -s {a} -p {p} -c 1000", says=r"destroy\s+:", stays=True),
    perftest("ib_send_bw", "-n 200"),
    perftest("ib_write_bw", "-n 200"),
    perftest("ib_read_lat", "-n 200"),
    perftest("ib_send_lat", "-n 200"),
    perftest("ib_write_bw", "-q 4 -n 100", twice=False),
    perftest("ib_send_bw", "-c UD -s 1024 -n 200"),
    Program("ib_send_bw -z", "ib_send_bw -z -d {d} -x 1 -F -p {p} -n 100", "ib_send_bw -z -d {d} -x 1 -F -p {p} -n 100 {a}", twice=False),
    sockets("rstream", "-T v -S 65536 -C 20 -I 5", says="custom"),
    # Not -T a: rstream takes POLLIN with POLLHUP for an error, which is what it gets when the last data and the disconnect are there together.
    sockets("rstream", "-T v -T n -S 4096 -C 50 -I 5", says="custom", twice=False),
    sockets("rstream", "-T v -T f -S 4096 -C 50 -I 5", says="custom", twice=False, listens=0),
    sockets("rstream", "-T v -T r -S 4096 -C 50 -I 5", says="custom", twice=False),
    sockets("riostream", "-T v -S 65536 -C 20 -I 5", says="custom"),
    sockets("riostream", "-T v -T n -S 4096 -C 50 -I 5", says="custom", twice=False),
    Program("mckey", "", "mckey -m 239.7.7.7 -b {a} -s", says="return status 0", twice=False),
    ucx("tag_bw", "-n 500 -w 10 -s 4096"),
    ucx("tag_lat", "-n 500 -w 10 -s 100000", twice=False),
    ucx("ucp_put_lat", "-n 500 -w 10 -s 64", twice=False),
    ucx("ucp_get", "-n 500 -w 10 -s 64000", twice=False),
    ucx("ucp_am_lat", "-n 500 -w 10", twice=False),
    ucx("am_lat", "-n 500 -w 10 -d {d}:1 -x rc_verbs", twice=False),
    ucx("ucp_fadd", "-n 500 -w 10 -s 8", twice=False),
    Program("ucx_info -d shows rdmacm", "", "ucx_info -d", says="Connection manager: rdmacm", twice=False),
    # io_demo connects by address, which is the connection manager's part of UCX; -q compares what is read and written.
    Program("io_demo over rdmacm", "io_demo -p {p} -q -d 1:100000", "io_demo -q -i 200 -d 1:100000 -o read,write {a}:{p}", env=UCX_RDMACM, stays=True),
    *[Program(f"fi_pingpong verbs {size}", f"fi_pingpong -p verbs -e msg -c -I 30 -S {size} -B {{p}}", f"fi_pingpong -p verbs -e msg -c -I 30 -S {size} -P {{p}} {{a}}",
              listens=0, twice=size == "65536", says=r"bytes\s+#sent") for size in ("64", "65536", "all")],
    Program("fi_pingpong verbs;ofi_rxm", "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 30 -S 4096 -B {p}", "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 30 -S 4096 -P {p} {a}",
            listens=0, twice=False, says=r"bytes\s+#sent"),
    mpi("UCX rc_v", "--mca pml ucx --mca osc ucx", {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "{d}:1"}),
    mpi("libfabric verbs", "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm", {}, "--two-sided"),
]
# What a program prints when bytes were wrong though it ends with 0.
BAD_WORDS = re.compile(r"data verification failed|data mismatch|Data validation failed|ropeway: error|corrupt", re.IGNORECASE)


class Failed(Exception):
    pass


class Place:
    """Where programs run: the namespace's addresses, the prefix that puts the device under a program, and how one sees that a port is listened on."""

    def __init__(self, args):
        self.build, self.lib = args.build, not args.no_lib
        self.addresses = {4: (args.address, SECOND), 6: (args.address6, args.address6)}
        self.device, self.mixed = args.device, args.mixed
        self.prefix = [f"{args.build}/ropeway", "run", "--"] if self.lib else []
        self.ports = iter(range(20000 + os.getpid() % 10000, 60000))
        self.lock = threading.Lock()
        self.mpi = None

    def compiled(self, compiler):
        """The folder with mpi_pattern, compiled when it is asked for first: Open MPI is no package that building needs."""
        with self.lock:
            if compiler == "mpicc" and not self.mpi:
                self.mpi = tempfile.TemporaryDirectory(prefix="ropeway-mpi.")
                done = subprocess.run(["mpicc", "-O2", f"-I{HERE.parent}", "-o", f"{self.mpi.name}/mpi_pattern", str(HERE / "cm" / "mpi_pattern.c")], capture_output=True, text=True)
                if done.returncode:
                    raise Failed(f"mpicc: {done.stderr}")
            return self.mpi.name if self.mpi else ""

    def wire(self, role, port):
        """Ports are given out in turn, so sides take turns."""
        return {"ROPEWAY_WIRE": "udp" if role == ("server", "client")[port % 2] else "auto"} if self.mixed else {}

    def next_port(self):
        with self.lock:
            return next(self.ports)

    def is_listening(self, space, port):
        if not space:
            return any(re.search(rf":{port:04X} 0+:0000 0A", pathlib.Path(f"/proc/net/{table}").read_text(), re.IGNORECASE) for table in ("tcp", "tcp6"))
        if self.lib:  # the claim on the service ID: one name for each address
            service = 0x1000000 | space << 16 | port
            return f"/service/{service:x}/" in pathlib.Path("/proc/net/unix").read_text()
        shown = subprocess.run(["rdma", "resource", "show", "cm_id"], capture_output=True, text=True).stdout
        return any("LISTEN" in line and re.search(rf"src-addr \S+:{port}\b", line) for line in shown.splitlines())


class Process:
    def __init__(self, place, command, env, out):
        self.out, self.command = out, command
        self.file = open(out, "w+")
        words = command.split()
        # A shell that started us in the background has SIGINT ignored, and a server is told by it to end.
        preexec = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.process = subprocess.Popen(place.prefix + words, preexec_fn=preexec, stdin=subprocess.DEVNULL, stdout=self.file, stderr=subprocess.STDOUT, start_new_session=True,
                                        env=dict(os.environ, LC_ALL="C.UTF-8", **env), cwd=os.path.dirname(out))

    def wait(self, timeout_s):
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return 124

    def interrupt(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def ended(self):
        return self.process.poll() is not None

    def text(self):
        return pathlib.Path(self.out).read_text(errors="replace")


def wait_listening(place, server, space, port, timeout_s=20):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if place.is_listening(space, port):
            return
        if server.ended():
            raise Failed("the server ended before it listened")
        time.sleep(0.02)
    raise Failed("the server never listened")


def run_pair(place, program, number, folder, limit_s):
    """One server and its clients. Raises Failed, with what both said."""
    port = program.port or place.next_port()
    address = place.addresses[program.family][number if program.port else 0]
    words = {"a": address, "p": port, "m": place.compiled(program.needs), "d": place.device, "t": f"{folder}/tmp{number}"}
    os.makedirs(words["t"], exist_ok=True)
    env = {name: value.format(**words) for name, value in program.env.items()}
    processes = []

    def start(role, command):
        process = Process(place, command.format(**words), env | place.wire(role, port), f"{folder}/{role}{number}.{len(processes)}")
        processes.append((role, process))
        return process

    try:
        server = start("server", program.server) if program.server else None
        if server:
            wait_listening(place, server, program.listens, port)
        for _ in range(program.clients):
            client = start("client", program.client)
            rc = client.wait(limit_s)
            if program.fails:
                if rc in (0, 124) or rc < 0:
                    raise Failed(f"the client ended with {rc}, an error was to be expected")
            elif rc:
                raise Failed(f"the client ended with {rc}")
            if not re.search(program.says, client.text()):
                raise Failed(f"the client did not say '{program.says}'")
        if server:
            if program.stays:
                if server.ended():
                    raise Failed(f"the server has ended, with {server.wait(1)}")
                server.interrupt()
            rc = server.wait(10)
            if rc and not (program.stays and rc != 124):
                raise Failed(f"the server ended with {rc}")
            if not re.search(program.server_says, server.text()):
                raise Failed(f"the server did not say '{program.server_says}'")
        for role, process in processes:
            bad = BAD_WORDS.search(process.text())
            if bad:
                raise Failed(f"the {role} said '{bad.group()}'")
    except Failed as e:
        for _, process in processes:
            process.kill()
        said = [f"  {role}: {line}" for role, process in processes for line in process.text().splitlines()[-15:]]
        raise Failed("\n".join([str(e), *said])) from None
    finally:
        for _, process in processes:
            process.kill()
            process.file.close()


def run_pair_again(place, program, number, folder, limit_s):
    """run_pair; once more where the program says that it lost a race of its own."""
    for left in reversed(range(RACE_TRIES)):
        try:
            return run_pair(place, program, number, folder, limit_s)
        except Failed as e:
            if not (left and program.own_race and re.search(program.own_race, str(e))):
                raise
            print(f"     {program.name}: a race within the program itself: once more ({str(e).splitlines()[0]})", flush=True)


def run_program(place, program, pairs, limit_s):
    with tempfile.TemporaryDirectory(prefix="ropeway-cm.") as folder, concurrent.futures.ThreadPoolExecutor(pairs) as pool:
        running = [pool.submit(run_pair_again, place, program, number, folder, limit_s) for number in range(pairs)]
        wrong = [e for e in (r.exception() for r in running) if e]
    for e in wrong:
        if not isinstance(e, Failed):
            raise e
    if wrong:
        raise Failed("\n".join(f"{f'pair {i + 1}: ' if pairs > 1 else ''}{e}" for i, e in enumerate(wrong)))


def program_tests(args):
    for program in PROGRAMS:
        if args.mixed and not program.server:
            continue
        for pairs in (1, 2) if program.twice else (1,):
            yield f"{program.name}{', two at a time' if pairs > 1 else ''}", lambda place, program=program, pairs=pairs: run_program(place, program, pairs, args.limit)


# ---- a peer that speaks by hand (cm/raw_peer.py), in a namespace of its own behind cm0 ----

class RawPeer:
    """`index` tells those apart that run at one time: each has an interface pair of its own."""

    def __init__(self, index, mode, *reasons):
        ours, theirs, net = f"raw{index}", f"peer{index}", f"10.79.{index}"
        self.address = f"{net}.3"
        self.process = subprocess.Popen(["unshare", "-n", "/usr/bin/python3", "-B", str(HERE / "cm" / "raw_peer.py"), theirs, f"{self.address}/24", mode, *map(str, reasons)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while not os.path.exists(f"/proc/{self.process.pid}/ns/net") or os.stat(f"/proc/{self.process.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            time.sleep(0.01)
        for words in (["link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", str(self.process.pid)], ["addr", "add", f"{net}.2/24", "dev", ours],
                      ["link", "set", ours, "up"]):
            subprocess.run(["ip", *words], check=True)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ready\n":
            raise Failed("the raw peer did not come up")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def ask_raw_peer(place, peer, limit_s):
    """The event that a stock client's request ends with: "REJECTED, error 28"."""
    command = ["timeout", "-k", "1", str(limit_s), *place.prefix, "rping", "-c", "-a", peer.address, "-C", "1"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    events = re.findall(r"cma event RDMA_CM_EVENT_(\w+, error -?\d+)", done.stdout + done.stderr)
    return events[0] if events else f"no event; it ended with {done.returncode}: {done.stdout}{done.stderr}"


REASONS = range(1, 36)


def every_reason(place):
    with RawPeer(1, "reject", *REASONS) as peer:
        got = {reason: ask_raw_peer(place, peer, 20) for reason in REASONS}
    wrong = {reason: said for reason, said in got.items() if said != f"REJECTED, error {reason}"}
    if wrong:
        raise Failed("\n".join(f"reason {reason}: {said}" for reason, said in wrong.items()))


def strange_answers(place):
    with RawPeer(2, "strange", 12) as peer:
        said = ask_raw_peer(place, peer, 20)
    if said != "REJECTED, error 12":
        raise Failed(f"among strays and forgeries the peer's own REJ has reason 12; the client said: {said}")


def no_answer(place):
    """What rdma_cm asks with: 16 tries, 4.3 s each."""
    with RawPeer(3, "silent") as peer:
        said = ask_raw_peer(place, peer, 150)
        requests = peer.process.stdout.readline()
    if said != "UNREACHABLE, error -110" or requests != "request 1\n":
        raise Failed(f"the client said: {said}; the peer: {requests}")


RAW_TESTS = [("raw peer: no answer", no_answer), ("raw peer: REJ of every reason", every_reason), ("raw peer: stray, forged and truncated answers", strange_answers)]


def missing(program):
    name = program.needs or (program.client or program.server).split()[0]
    return None if shutil.which(name) else name


# ---- the cases of tests/programs/cm ----

def read_accounts(path):
    """{case: [line]} of a file with "[case]" lines. '#' begins a comment."""
    found, current = {}, None
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("#") or not line.strip():
            continue
        if re.fullmatch(r"\[\w+\]", line):
            current = found.setdefault(line[1:-1], [])
        elif current is not None:
            current.append(line)
    return found


def list_cases(args):
    """[(name, whether kernel rxe has a reference for it)]"""
    shown = subprocess.run([f"{args.build}/tests/programs/cm/cm_cases", "--list"], capture_output=True, text=True, check=True).stdout
    return [(line.split("|")[0], line.split("|")[1] == "rxe") for line in shown.splitlines()]


def account(place, address, case, limit_s):
    command = [*place.prefix, f"{place.build}/tests/programs/cm/cm_cases", "-a", address, "-t", str(limit_s), case]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return (done.stdout + done.stderr).splitlines()


def compare_account(place, address, case, want, limit_s):
    """Once more where it differs: what nobody acknowledges (a REJ that takes a request back) may be lost with the socket of a process that ends just then."""
    for again in (False, True):
        said = account(place, address, case, limit_s)
        got = [line for line in said if "ropeway: " not in line]
        if got == want:
            return
        if not again:
            print(f"  run again: {case}, which told another story: {' / '.join(line for line in got if line not in want)}", flush=True)
    if got != want:
        raise Failed("\n".join(list(difflib.unified_diff(want, got, "kernel rxe", "ropeway", lineterm="", n=2)) + [line for line in said if "ropeway: " in line]))


def case_tests(args):
    want = read_accounts(HERE / "cm" / "rxe.txt")
    want.update(read_accounts(HERE / "cm" / "own.txt") if not args.no_lib else {})
    for family, address in (("IPv4", args.address), ("IPv6", args.address6)):
        for case, on_rxe in list_cases(args):
            if family == "IPv6" and case not in ("client_closes", "wildcard", "own_qp", "ud", "no_listener", "parameters"):
                continue
            if args.no_lib and not on_rxe:
                continue
            yield f"event by event: {case} {family}", lambda place, address=address, case=case: compare_account(place, address, case, want.get(case, []), args.limit)


def run_one(place, name, test):
    began = time.monotonic()
    try:
        test(place)
        wrong = None
    except Failed as e:
        wrong = str(e)
    return name, wrong, time.monotonic() - began


def tell(name, wrong, took):
    print(f"{'FAIL' if wrong else 'pass'} {name} ({took:.1f} s)", flush=True)
    if wrong:
        print("\n".join("    " + line for line in wrong.splitlines()), flush=True)


def run_all(args):
    place = Place(args)
    skipped = 0
    for program in PROGRAMS:
        if missing(program):
            print(f"SKIPPED {program.name}: no {missing(program)} here")
            skipped += 1 + program.twice
    programs = [(name, test) for name, test in program_tests(args) if re.search(args.only, name) and not any(missing(p) and name.startswith(p.name) for p in PROGRAMS)]
    cases = [(name, test) for name, test in case_tests(args) if re.search(args.only, name) and not args.mixed]
    raw = [(name, test) for name, test in RAW_TESTS if re.search(args.only, name) and not args.no_lib and not args.mixed]
    if args.list:
        print("\n".join(name for name, _ in programs + cases + raw))
        return 0
    passed = failed = 0
    # Cases and raw peers wait more than they work (the one that never answers for more than a minute, so it begins first); programs keep both cores busy.
    with contextlib.ExitStack() as pools:
        running = []
        for tests, jobs in ((raw, len(RAW_TESTS)), (programs, 1)):
            pool = pools.enter_context(concurrent.futures.ThreadPoolExecutor(jobs))
            running.append([pool.submit(run_one, place, name, test) for name, test in tests])
        for batch in (running[1], None, running[0]):
            if batch is None:
                pool = pools.enter_context(concurrent.futures.ThreadPoolExecutor(args.jobs))
                batch = [pool.submit(run_one, place, name, test) for name, test in cases]
            for done in batch:
                name, wrong, took = done.result()
                failed, passed = failed + bool(wrong), passed + (not wrong)
                tell(name, wrong, took)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def measure_rxe(args):
    """In the guest, on a dummy interface: both processes on one host, as here."""
    sys.path.insert(0, str(INTEROP))
    from guest import Guest
    guest = Guest(cpus=2, memory_mb=1024)
    guest.check("ip link add cm0 type dummy && ip addr add 10.78.0.1/24 dev cm0 && ip -6 addr add fd78::1/64 dev cm0 nodad && ip link set cm0 up && "
                "rdma link add rxe_cm type rxe netdev cm0")
    kernel = guest.check("uname -r").strip()
    lines = [f"# What the two sides of each case saw on kernel rxe: Linux {kernel}, librdmacm of Debian 12. Written by tests/programs/cm.py --measure-rxe."]
    for case, on_rxe in list_cases(args):
        if not on_rxe:
            continue
        _, text = guest.run(f"{args.build}/tests/programs/cm/cm_cases -a 10.78.0.1 {case}", 200)
        print(f"[{case}]\n{text}", end="", flush=True)
        lines += ["", f"[{case}]", *text.splitlines()]
    guest.close()
    (HERE / "cm" / "rxe.txt").write_text("\n".join(lines) + "\n")
    return 1 if any("TIME OUT" in line or "GAVE UP" in line for line in lines) else 0


def enter_namespace():
    sys.path.insert(0, str(INTEROP))
    import netns
    netns.enter_namespace()
    # The other end of cm0 is there only so that cm0 has a carrier.
    for words in (["link", "set", "lo", "up"], ["link", "add", "cm0", "type", "veth", "peer", "name", "cm1"], ["addr", "add", SECOND + "/24", "dev", "cm0"],
                  ["-6", "addr", "add", "fd78::2/64", "dev", "cm0", "nodad"],  # without a global one getaddrinfo knows no ::1 (AI_ADDRCONFIG)
                  ["link", "set", "cm0", "up"], ["link", "set", "cm1", "up"]):
        netns.ip(*words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.environ.get("ROPEWAY_BUILD", str(ROOT / "build")))
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--no-lib", action="store_true")
    parser.add_argument("--mixed", action="store_true")
    parser.add_argument("--measure-rxe", action="store_true")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--address6", default="::1")
    parser.add_argument("--device", default="rpw_lo")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--limit", type=int, default=40, help="seconds for one program, and for a silence within a case")
    args = parser.parse_args()
    args.build = os.path.abspath(args.build)
    if args.device == "rpw_lo":
        os.environ.setdefault("ROPEWAY_DEVICES", "all")  # beside cm0 it is hidden, and 127.0.0.1 is then bound to no device, as on a kernel's
    if not os.path.exists(f"{args.build}/tests/programs/cm/cm_cases") or not (args.no_lib or os.path.exists(f"{args.build}/ropeway")):
        print(f"{args.build}/tests/programs/cm/cm_cases or {args.build}/ropeway is not there: run script/setup")
        return 1
    if args.measure_rxe:
        return measure_rxe(args)
    if not args.no_lib and not args.list:
        try:
            enter_namespace()
        except PermissionError as e:
            print(f"SKIPPED: {e}")
            print(f"0 passed, 0 failed, {len(list(program_tests(args)) + list(case_tests(args)))} skipped")
            return 77
    return run_all(args)


if __name__ == "__main__":
    sys.exit(main())
