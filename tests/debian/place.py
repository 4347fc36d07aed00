"""Two hosts for one script of tests/debian: network namespaces joined by a veth pair, in each of them one software device of the same name. Where nothing is told to the programs
(`interfaces=2`), by two pairs, each on a subnet of its own, and the hosts share neither PIDs nor IPC nor a name: UCX and Open MPI take what shares those for one host.

A script runs as root in a mount and PID namespace that run.py made for it, so nothing that it starts or mounts outlives it. It ends with 0 if what it compared was right (`compared`
says what), 77 with a line SKIPPED, else with 1. A `known` fault of a program that has to stay as it is told ends with 3.
"""
import contextlib
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = pathlib.Path(os.environ.get("ROPEWAY_BUILD") or ROOT / "build")
INTERFACE, SECOND = "rp0", "rp1"
DEVICE = f"rpw_{INTERFACE}"
MTU = 4200
IB, TCP = 0x013F, 0x0106  # port spaces of rdma_cm


class Failed(Exception):
    pass


class Process:
    """A program on one host. `text()` is what it has said so far, on both outputs."""

    def __init__(self, host, words, env, ropeway, stdin, cwd, launcher):
        self.words = words
        self.out = tempfile.NamedTemporaryFile(prefix="said.", dir=host.folder, delete=False)
        prefix = host.entering(launcher) + ([f"{BUILD}/ropeway", "run", "--"] if ropeway else [])
        self.process = subprocess.Popen(prefix + words, stdin=stdin or subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT, cwd=cwd or host.folder, start_new_session=True,
                                        env=dict(os.environ, LC_ALL="C.UTF-8", HOME=host.folder, **env))
        self.pid = self.process.pid

    def text(self):
        return pathlib.Path(self.out.name).read_text(errors="replace")

    def ended(self):
        return self.process.poll() is not None

    def wait(self, limit_s):
        """The exit status; Failed when it has not ended by then."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"`{' '.join(self.words)}` had not ended after {limit_s} s\n{self.tail()}") from None

    def done(self, limit_s=60, says=""):
        """It has to end with 0 in time, and to have said the pattern. Its text."""
        rc = self.wait(limit_s)
        if rc:
            raise Failed(f"`{' '.join(self.words)}` ended with {rc}\n{self.tail()}")
        if not re.search(says, self.text()):
            raise Failed(f"`{' '.join(self.words)}` did not say '{says}'\n{self.tail()}")
        return self.text()

    def says(self, pattern, limit_s=20):
        """Wait until it has said the pattern: the match."""
        end = time.monotonic() + limit_s
        while True:
            found = re.search(pattern, self.text())
            if found:
                return found
            if self.ended() or time.monotonic() > end:
                raise Failed(f"`{' '.join(self.words)}` {'ended' if self.ended() else 'runs'} and did not say '{pattern}'\n{self.tail()}")
            time.sleep(0.02)

    def tail(self, lines=25):
        return "\n".join("  | " + line for line in self.text().splitlines()[-lines:])

    def stop(self, how=signal.SIGTERM, limit_s=10):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)
        return self.wait(limit_s)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()


class Holder:
    """The first process of a host's own PIDs: all others of them end with it."""

    def __init__(self, process):
        self.process = process

    def ended(self):
        return self.process.poll() is not None

    def kill(self):
        self.process.kill()
        self.process.wait()


class Host:
    def __init__(self, name, number, folder):
        self.name, self.folder = name, folder
        self.ip, self.device = f"10.77.0.{number}", DEVICE
        self.processes = []
        self.init = None  # what holds its PIDs, IPC and name, where it has its own

    def start(self, command, env=None, ropeway=True, stdin=None, cwd=None, launcher=False):
        """Start a program: a list of words, or a line that is split at blanks; {a}-like braces are not touched. A launcher sees the PIDs outside, so that it can enter the other host."""
        words = command.split() if isinstance(command, str) else [str(word) for word in command]
        self.processes.append(Process(self, words, env or {}, ropeway, stdin, cwd, launcher))
        return self.processes[-1]

    def entering(self, launcher=False):
        """The words before a command that runs on this host."""
        if not self.init:
            return ["ip", "netns", "exec", self.name]
        if launcher:
            return ["ip", "netns", "exec", self.name, "nsenter", "-t", self.init, "-u", "--"]
        return ["nsenter", "-t", self.init, "-n", "-p", "-i", "-u", "-m", "-r", "-w", "--"]

    def set_apart(self):
        """PIDs, IPC and a name of its own."""
        outer = subprocess.Popen(["ip", "netns", "exec", self.name, "unshare", "--pid", "--ipc", "--uts", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                                  f"hostname {self.name} && mount --bind {self.folder}/hosts /etc/hosts && : >{self.folder}/up && exec sleep infinity"], stdin=subprocess.DEVNULL)
        self.processes.append(Holder(outer))
        end = time.monotonic() + 20
        while not pathlib.Path(f"{self.folder}/up").exists():
            if outer.poll() is not None or time.monotonic() > end:
                raise Failed(f"{self.name} has no namespaces of its own")
            time.sleep(0.02)
        self.init = pathlib.Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]

    def run(self, command, limit_s=60, says="", **kw):
        return self.start(command, **kw).done(limit_s, says)

    def net(self, table):
        """/proc/net of this host, as text."""
        return subprocess.run(["ip", "netns", "exec", self.name, "cat", f"/proc/net/{table}"], capture_output=True, text=True, check=True).stdout

    def wait_tcp(self, port, process=None, limit_s=20):
        self._wait(lambda: any(re.search(rf":{port:04X} 0+:0000 0A", self.net(table), re.IGNORECASE) for table in ("tcp", "tcp6")), f"TCP port {port}", process, limit_s)

    def wait_rdma(self, port, process=None, space=TCP, limit_s=20):
        """Until somebody listens on that port of rdma_cm: the claim on the service ID is a name in the host's /proc/net/unix."""
        self._wait(lambda: f"/service/{0x1000000 | space << 16 | port:x}/" in self.net("unix"), f"port {port} of rdma_cm", process, limit_s)

    def _wait(self, there, what, process, limit_s):
        end = time.monotonic() + limit_s
        while not there():
            if process and process.ended() and process.process.returncode:
                raise Failed(f"`{' '.join(process.words)}` ended with {process.process.returncode} before it listened on {what}\n{process.tail()}")
            if time.monotonic() > end:
                raise Failed(f"nobody listens on {what} after {limit_s} s" + (f"\n{process.tail()}" if process else ""))
            time.sleep(0.02)


class Pair:
    """The two hosts, as `with Pair() as (a, b)`; `number` in 1..2."""

    def __init__(self, interfaces=1, mtus=(MTU, MTU)):
        self.interfaces = list(zip((INTERFACE, SECOND), ("10.77.0", "10.77.1"), mtus))[:interfaces]

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ropeway-debian.")
        self.hosts = []
        for number, name in enumerate(("host-a", "host-b"), 1):
            ip("netns", "add", name)
            if os.path.ismount("/etc/netns"):  # what `ip netns exec` shows as /etc/hosts: libfabric asks for this host's own name
                os.mkdir(f"/etc/netns/{name}")
                pathlib.Path(f"/etc/netns/{name}/hosts").write_text(f"127.0.0.1 localhost\n10.77.0.{number} {os.uname().nodename} {name}\n")
            home = f"{self.folder}/{name}"
            os.mkdir(home)
            pathlib.Path(f"{home}/hosts").write_text(f"127.0.0.1 localhost\n10.77.0.{number} {name}\n")
            self.hosts.append(Host(name, number, home))
        a, b = self.hosts
        for interface, subnet, mtu in self.interfaces:
            ip("link", "add", interface, "netns", a.name, "mtu", str(mtu), "type", "veth", "peer", "name", interface, "netns", b.name, "mtu", str(mtu))
        for number, host in enumerate(self.hosts, 1):
            ip("-n", host.name, "link", "set", "lo", "up")
            for interface, subnet, _ in self.interfaces:
                # Without it the link-local address, GID 0, is tentative for a second or two, and cannot be used, as on any device.
                subprocess.run(["ip", "netns", "exec", host.name, "sh", "-c", f"echo 0 >/proc/sys/net/ipv6/conf/{interface}/accept_dad"], check=False)
                ip("-n", host.name, "link", "set", interface, "up")
                ip("-n", host.name, "addr", "add", f"{subnet}.{number}/24", "dev", interface)
            if len(self.interfaces) > 1:
                host.set_apart()
        return a, b

    def __exit__(self, *_):
        for host in self.hosts:
            for process in host.processes:
                if not process.ended():
                    process.kill()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def ip(*words):
    subprocess.run([shutil.which("ip") or "/sbin/ip", *words], check=True)


def pattern(size, seed):
    """`size` bytes that repeat nowhere: SHAKE of the seed."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def compiled(source, folder, *words, compiler="cc"):
    """The program of a C or C++ file beside the scripts."""
    out = f"{folder}/{pathlib.Path(source).stem}"
    made = subprocess.run([compiler, "-O2", "-Wall", f"-I{HERE.parent}", "-o", out, str(HERE / source), *words], capture_output=True, text=True)
    if made.returncode:
        raise Failed(f"{compiler} {source}: {made.stderr}")
    return out


def needs(*programs):
    """End with 77 when a program is not there."""
    for program in programs:
        if not (pathlib.Path(program).exists() if "/" in program else shutil.which(program)):
            print(f"SKIPPED: {program} is not installed")
            sys.exit(77)


def compared(text):
    """What has been found right, for the log."""
    print(f"right: {text}", flush=True)


def check(condition, text):
    if not condition:
        raise Failed(text)


# The launcher's remote shell, as a script: words before the host are its options.
REMOTE_SHELL = """#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
case $1 in {a.ip} | {a.name}) shift; exec {enter_a} {run} sh -c "$*" ;; *) shift; exec {enter_b} {run} sh -c "$*" ;; esac
"""


def remote_shell(a, b, ropeway=True):
    """Path of a script that runs a command on one of the two hosts as `ssh` would."""
    path = pathlib.Path(a.folder) / "remote-shell"
    path.write_text(REMOTE_SHELL.format(a=a, enter_a=" ".join(a.entering()), enter_b=" ".join(b.entering()), run=f"{BUILD}/ropeway run --" if ropeway else ""))
    path.chmod(0o755)
    return path


def main(body, **pair):
    """Run a script's body(a, b) between two hosts."""
    try:
        with Pair(**pair) as (a, b):
            body(a, b)
    except Failed as e:
        print(f"FAILED: {e}")
        sys.exit(1)
