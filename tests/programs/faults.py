#!/usr/bin/python3
"""Programs of other people under fault scripts: perftest, UCX and the NCCL plugin. What they say and how they end is what the fault should make of it, and every line of the script has happened.

Usage: faults.py [--build DIR] [--only REGEX] [-v]. The script is the client's; the server runs without. The last line is 'N passed, N failed, N skipped'.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import ucx_perftest  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
os.environ["ROPEWAY_DEVICES"] = "lo"  # named below: MTU 4096 on every machine
LIMIT = 100  # seconds; the longest takes 14

GOOD, ABORT = 0, -signal.SIGABRT
WRITE = "ib_write_bw -d rpw_lo -F -n 1000 -s 4096 -p {p}"
SEND = "ib_send_bw -d rpw_lo -F -n 1000 -s 4096 -p {p}"
READ = "ib_read_lat -d rpw_lo -F -n 500 -s 64 -p {p}"
UCX = ucx_perftest.command() + " {a} -p {p} -t tag_lat -n 20000 -s 4096"
UCX_ENV = {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "rpw_lo:1", "UCX_HANDLE_ERRORS": "none", "UCX_RC_VERBS_TIMEOUT": "20ms", "UCX_RC_VERBS_RETRY_COUNT": "3"}
NCCL = "{b}/test_connection {role} {bind} --port {p} --plugin {b}/libnccl-net-ropeway.so --max-size 1M --timeout {t}"
NCCL_ENV = {"ROPEWAY_TRANSPORT": "verbs"}


@dataclasses.dataclass
class Case:
    script: str
    command: str
    ends: tuple          # exit statuses that are right
    says: str            # a pattern that the client's output has to match
    env: dict = dataclasses.field(default_factory=dict)
    timeout: int = 20    # of test_connection, a step

    @property
    def name(self):
        return f"{self.command.split()[0].split('/')[-1]}: {self.script.strip().replace(chr(10), '; ')}"


def perftest(command, script, says, ends=(1,)):
    return Case(script, command, ends, says)


def ucx(script, says, ends):
    return Case(script, UCX, ends, says, UCX_ENV)


def nccl(script, says, ends=(GOOD,), timeout=20):
    return Case(script, NCCL, ends, says, NCCL_ENV, timeout)


DONE = r"4096\s+1000\s+\d"
CASES = [
    # A program that looks at what its calls give says so, and ends.
    perftest(WRITE, "open_device 1: ENODEV", "", (1,)),
    perftest(WRITE, "alloc_pd 1: ENOMEM", "Couldn't allocate PD"),
    perftest(WRITE, "reg_mr 1: ENOMEM", "Couldn't allocate MR"),
    perftest(WRITE, "create_cq 1: ENOMEM", "Couldn't create CQ"),
    perftest(WRITE, "create_qp 1: ENOSPC", "Unable to create QP"),
    perftest(WRITE, "modify_qp INIT 1: EINVAL", "Failed to modify QP to INIT"),
    perftest(WRITE, "modify_qp RTR 1: EINVAL", r"Failed to modify QP \d+ to RTR"),
    perftest(WRITE, "modify_qp RTS 1: EINVAL", "Failed to modify QP to RTS"),
    perftest(WRITE, "post_send 50: ENOMEM", "Couldn't post send"),
    perftest(SEND + " -e", "create_comp_channel 1: EMFILE", "Couldn't create completion channel"),
    perftest(SEND + " -e", "req_notify_cq 1: EIO", "Couldn't request CQ notification"),
    # Completions in error: perftest prints the number of the status (IBV_WC_REM_ACCESS_ERR is 10).
    perftest(WRITE, "send 100: status REM_ACCESS_ERR", "Failed status 10"),
    perftest(WRITE, "qp 1 at byte 10^6: status REM_ACCESS_ERR", "Failed status 10"),
    perftest(WRITE, "send 100: status LOC_PROT_ERR", "Failed status 4"),
    perftest(READ, "send 30: forge RNR_RETRY_EXC_ERR", "Failed status 13", (17,)),
    perftest(READ, "send 30: forge FATAL_ERR", "Failed status 19", (17,)),
    perftest(WRITE, "packet sent WRITE_ONLY 100: badkey", "Failed status 10"),
    perftest(WRITE, "packet sent 100: qp fatal", "Failed status 5"),
    perftest(WRITE, "packet sent 100: device fatal", "Failed status 5|Couldn't post send"),
    # What a transport puts right is not seen.
    perftest(WRITE, "seed 3\npacket sent chance 0.01: drop", DONE, (GOOD,)),
    perftest(WRITE, "packet sent every 100: dup\npacket sent every 70: reorder\npacket sent every 110: corrupt", DONE, (GOOD,)),
    perftest(WRITE, "packet sent 100: port down 100 ms", DONE, (GOOD,)),
    perftest(WRITE, "packet sent 200: peer silent 100 ms", DONE, (GOOD,)),
    perftest(WRITE, "completion send 3: late 200 ms", DONE, (GOOD,)),
    # rdma_cm
    perftest(WRITE + " -R", "rdma_resolve_addr 1..: EHOSTUNREACH", ""),
    perftest(WRITE + " -R", "cm REQ 1: lose\ncm RTU 1: lose", DONE, (GOOD,)),
    perftest(WRITE + " -R", "cm REQ 1..: reject CONSUMER_DEFINED", "unexpected CM event|Unable to perform rdma_client"),
    ucx("reg_mr 1: ENOMEM", r"ibv_reg_mr\(.*failed: Cannot allocate memory", (255,)),
    ucx("create_srq 1: ENOMEM", r"ibv_create_srq\(\) failed: Cannot allocate memory", (255,)),
    ucx("modify_qp RTS 1: EINVAL", "Failed to modify UD QP to RTS: Invalid argument", (255,)),
    ucx("seed 3\npacket sent chance 0.002: drop\npacket received chance 0.002: drop", r"Final:\s+20000", (GOOD,)),
    ucx("completion every 1000: late 20 ms", r"Final:\s+20000", (GOOD,)),
    # UCX aborts where the job has no error handling.
    ucx("send 300: status RETRY_EXC_ERR", "transport retry counter exceeded", (ABORT, 128 + signal.SIGABRT)),
    ucx("send 300: forge REM_OP_ERR", "Remote operation|remote operation", (ABORT, 128 + signal.SIGABRT)),
    # The messaging library under the plugin takes another path, makes it anew, or says why not; every byte is right all the same.
    nccl("seed 3\npacket sent chance 0.01: drop", "PASSED"),
    nccl("reg_mr 2: ENOMEM", "PASSED"),
    # the only device of its interface (its files say so) and verbs alone: there is no other path, and the plugin says why.
    nccl("create_qp 1: ENOMEM", "rpw_\\w+ gives no queue pair .*Cannot allocate memory", (1,)),
    nccl("send 40: status REM_ACCESS_ERR", "PASSED"),
    nccl("send 40: forge LOC_QP_OP_ERR", "PASSED"),
    nccl("packet sent 60: peer silent 300 ms", "PASSED"),
    nccl("completion every 50: late 30 ms", "PASSED"),
    # It looks for the lost path for as long as its patience lasts (10 s), then both sides say so.
    nccl("send 60: device fatal", "FAILED in step 7 .*(remote error|gave up)", (1,), 60),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port):
    """A TCP socket of this host, or a service of rdma_cm (an abstract name)."""
    wanted = f":{port:04X}"
    for table in "/proc/net/tcp", "/proc/net/tcp6":
        for line in open(table).read().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return bool(re.search(rf"/service/[0-9a-f]*{port:04x}/", open("/proc/net/unix").read()))


def run(case, build, verbose):
    """None, or what was wrong."""
    port, base = free_port(), dict(os.environ, **case.env)
    words = {"p": port, "b": shlex.quote(str(build)), "t": case.timeout}
    with tempfile.TemporaryDirectory() as folder:
        script, folder = pathlib.Path(folder) / "faults.txt", pathlib.Path(folder)
        script.write_text(case.script + "\n")
        server = shlex.split(case.command.format(a="", role="server", bind="--bind 127.0.0.1", **words))
        client = shlex.split(case.command.format(a="127.0.0.1", role="client", bind="127.0.0.1", **words))
        if server == client:
            client.append("127.0.0.1")
        with open(folder / "server", "wb") as log:
            s = subprocess.Popen([build / "ropeway", "run", "--", *server], stdout=log, stderr=log, env=base, stdin=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 20
            while not listens(port) and s.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(0.1)
            got = subprocess.run([build / "ropeway", "run", "--fault", script, "--stats", "--", *client], capture_output=True, text=True, errors="replace", env=base, timeout=LIMIT, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as e:
            return f"no end after {LIMIT} s\n{e.stdout}\n{e.stderr}"
        finally:
            if s.poll() is None:
                s.terminate()
                try:
                    s.wait(5)
                except subprocess.TimeoutExpired:
                    s.kill()
                    s.wait()
        out = got.stdout + got.stderr
        wrong = []
        if got.returncode not in case.ends:
            wrong.append(f"exit status {got.returncode}, not {case.ends}")
        if not re.search(case.says, out):
            wrong.append(f"does not say {case.says!r}")
        if not any(e in (ABORT, 128 + signal.SIGABRT) for e in case.ends):  # who aborts prints no statistics
            lines = len([l for l in case.script.splitlines() if not l.startswith("seed")])
            happened = len(re.findall(r"fault script, line \d+: .*: happened [1-9]", out))
            if happened != lines:
                wrong.append(f"{happened} of {lines} lines of the script happened")
        return "; ".join(wrong) + "\n" + out if wrong else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    build, passed, failed, skipped = pathlib.Path(options.build).resolve(), 0, 0, 0
    for case in CASES:
        if not re.search(options.only, case.name):
            continue
        program = case.command.split()[0].format(b=build, p=0, a="", role="", bind="", t=0)
        if not shutil.which(program):
            print(f"SKIPPED {case.name}: {program} is not there", flush=True)
            skipped += 1
            continue
        began = time.monotonic()
        wrong = run(case, build, options.verbose)
        print(f"{'not ok' if wrong else 'ok':6} {time.monotonic() - began:5.1f} s  {case.name}", flush=True)
        if wrong:
            print(wrong if options.verbose else wrong[:2500], flush=True)
        passed, failed = passed + (not wrong), failed + bool(wrong)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed + skipped else 0


if __name__ == "__main__":
    sys.exit(main())
