#!/usr/bin/python3
"""Who learns what, and after how long, of a process that has ended: every cause, in every kind of program, on this host and between two network namespaces that a pair of virtual interfaces joins.

  ends_test.py --build BUILD [CASE ...]

Prints a table. Exit status 77 when there can be no network namespaces here.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from preload import preloadable  # noqa: E402

TAG = f"rpwe{os.getpid()}"
HERE, THERE = f"{TAG}a", f"{TAG}b"
ADDRESS = {HERE: "10.77.1.1", THERE: "10.77.1.2"}
LIMIT_S = 20  # ten times what is promised
PORT = iter(range(9000, 60000))


def sh(command, check=True):
    return subprocess.run(command, shell=True, check=check, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def build_hosts():
    for name in (HERE, THERE):
        sh(f"ip netns add {name}")
        sh(f"ip netns exec {name} sysctl -qw net.ipv6.conf.default.accept_dad=0")
        sh(f"ip -n {name} link set lo up")
    sh(f"ip link add {TAG}v netns {HERE} type veth peer name {TAG}w netns {THERE}")
    for name, link in ((HERE, f"{TAG}v"), (THERE, f"{TAG}w")):
        sh(f"ip -n {name} addr add {ADDRESS[name]}/24 dev {link}")
        sh(f"ip -n {name} link set {link} up")


def remove_hosts():
    for name in (HERE, THERE):
        for pid in sh(f"ip netns pids {name}", check=False).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass
        sh(f"ip netns del {name}", check=False)


class Program:
    """A program in a host, its lines with the time at which each came."""

    def __init__(self, host, argv, env=None):
        # No `ip` stays between: it replaces itself.
        self.process = subprocess.Popen(["ip", "netns", "exec", host, *map(str, argv)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env={**os.environ, **(env or {})})
        self.lines, self.changed = [], threading.Condition()
        self.ended_at = None
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self.changed.notify_all()
        self.process.wait()
        with self.changed:
            self.ended_at = time.monotonic()
            self.changed.notify_all()

    def wait_line(self, pattern, limit=LIMIT_S):
        """The first line that matches: (time, match), or None."""
        until = time.monotonic() + limit
        with self.changed:
            while True:
                for at, line in self.lines:
                    m = re.search(pattern, line)
                    if m:
                        return at, m
                left = until - time.monotonic()
                if self.ended_at or left <= 0:
                    return None
                self.changed.wait(left)

    def wait_end(self, limit=LIMIT_S):
        until = time.monotonic() + limit
        with self.changed:
            while not self.ended_at and time.monotonic() < until:
                self.changed.wait(until - time.monotonic())
        return self.ended_at

    def kill(self, sig=signal.SIGKILL):
        if self.process.poll() is None:
            self.process.send_signal(sig)

    def said(self):
        return "; ".join(line for _, line in self.lines)


class Row(Exception):
    pass


def row(what, where, learned, seconds, ok):
    print(f"{'pass' if ok else 'FAIL'} {what:<46} {where:<14} {learned:<52} {'' if seconds is None else f'{seconds:6.2f} s'}", flush=True)
    return ok


# ---- plain verbs ----

SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}
OWN = {"exit()": "exit", "_exit()": "_exit", "abort()": "abort", "SIGSEGV": "segv", "exec": "exec"}


def plain_pair(build, where, how, what, env=None):
    env = {"LD_PRELOAD": str(preloadable(build / "libropeway-verbs.so")), **(env or {})}
    server = THERE if where == "two hosts" else HERE
    port, peer = next(PORT), build / "tests/ends/rc_peer"
    dies = Program(server, [peer, "serve", ADDRESS[server], port, "dies", how], env)
    lives = Program(HERE, [peer, f"connect={ADDRESS[server]}", ADDRESS[HERE], port, "survives", what], env)
    ready = dies.wait_line(r"ready (\d+)")
    if not ready:
        raise Row(f"did not begin: {dies.said()} / {lives.said()}")
    return dies, lives, int(ready[1].group(1))


def plain_learned(lives, since):
    lives.wait_end()
    at = [t for t, line in lives.lines if line.startswith(("event ", "completion "))]
    words = [re.sub(r" \d+$", "", line) for _, line in lives.lines if line.startswith(("event ", "completion "))]
    return (max(at) - since if at else None), ", ".join(words)


def plain_one(build, where, cause, what, env=None):
    how = OWN.get(cause, {"SIGKILL with a forked child": "fork"}.get(cause, "wait"))
    dies, lives, pid = plain_pair(build, where, how, what, env)
    if how in ("wait", "fork"):
        time.sleep(0.6)
        since = time.monotonic()
        os.kill(pid, SIGNALS.get(cause, signal.SIGKILL))
    else:
        since = dies.wait_line("ready")[0] + 0.3  # as rc_peer has it
    seconds, words = plain_learned(lives, since)
    dies.kill()
    return row(f"plain verbs, {what}: {cause}", where, words or lives.said(), seconds, bool(words) and lives.said().endswith("heard"))


def plain(build):
    for where in ("same host", "two hosts"):
        for what in ("idle", "posted", "sent", "sending"):
            yield plain_one(build, where, "SIGKILL", what)
        for cause in [*OWN, "SIGTERM", "Ctrl-C", "SIGKILL with a forked child"]:
            yield plain_one(build, where, cause, "posted")


def lives_on(build):
    """What is no end: a process that is stopped, and a daemon, whose parent has ended."""
    for where in ("same host", "two hosts"):
        for what, how in (("SIGSTOP, 6 s", "wait"), ("daemon(), 6 s", "daemon")):
            dies, lives, pid = plain_pair(build, where, how, "posted")
            if how == "wait":
                os.kill(pid, signal.SIGSTOP)
            learned = lives.wait_line("^(event|completion)", 6)
            ok = not learned and not lives.ended_at
            yield row(f"plain verbs, posted: {what}", where, "nothing: it lives" if ok else lives.said(), None, ok)
            os.kill(pid, signal.SIGKILL) if how == "wait" else None
            sh(f"pkill -KILL -f 'rc_peer serve .*dies {how}'", check=False)
            lives.kill()


def no_helper(build):
    """By asking alone: another ropeway of that host answers for it."""
    env = {"ROPEWAY_HELPER": "0"}
    dies, lives, pid = plain_pair(build, "two hosts", "wait", "posted", env)
    other, stays, _ = plain_pair(build, "two hosts", "wait", "posted", env)
    time.sleep(1)
    since = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    seconds, words = plain_learned(lives, since)
    yield row("plain verbs, posted: SIGKILL, ROPEWAY_HELPER=0", "two hosts", words or lives.said(), seconds, bool(words))
    yield row("  and the other connection between the two hosts", "two hosts", "nothing: it lives", None, not stays.wait_line("^(event|completion)", 3))
    since = time.monotonic()
    other.kill()
    seconds, words = plain_learned(stays, since)
    yield row("  and when the last process of that host ends", "two hosts", words or stays.said(), seconds, bool(words))
    stays.kill()
    dies.kill()


def many(build):
    """64 at once."""
    pairs = [plain_pair(build, "two hosts", "wait", "posted") for _ in range(64)]
    time.sleep(1)
    since = time.monotonic()
    for _, _, pid in pairs:
        os.kill(pid, signal.SIGKILL)
    learned = [plain_learned(lives, since) for _, lives, _ in pairs]
    times = [s for s, words in learned if words]
    yield row("plain verbs, posted: SIGKILL of 64 at once", "two hosts", f"{len(times)} of 64 learned it, the last after", max(times, default=0), len(times) == 64)


# ---- rdma_cm ----

def rping_pair(build, where):
    server = THERE if where == "two hosts" else HERE
    run = [build / "ropeway", "run", "--"]
    port = next(PORT)
    serves = Program(server, [*run, "rping", "-s", "-v", "-a", ADDRESS[server], "-p", port])
    time.sleep(0.3)
    asks = Program(HERE, [*run, "rping", "-c", "-v", "-a", ADDRESS[server], "-p", port])
    if not asks.wait_line("ping data"):
        raise Row(f"rping did not begin: {serves.said()[-200:]} / {asks.said()[-200:]}")
    return serves, asks


def cm(build):
    for where in ("same host", "two hosts"):
        for cause, sig in SIGNALS.items():
            for whose in ("server", "client"):
                serves, asks = rping_pair(build, where)
                dies, lives = (serves, asks) if whose == "server" else (asks, serves)
                time.sleep(0.3)
                since = time.monotonic()
                dies.kill(sig)
                lives.wait_end(LIMIT_S)
                told = [t for t, line in lives.lines if "DISCONNECT" in line]
                yield row(f"rping, {whose}: {cause}", where, "DISCONNECTED" if told else f"nothing ({lives.said()[-60:]})", told[0] - since if told else None, bool(told))
                lives.kill()


def rejected(build):
    """The last process of a host has ended: who connects is told so while the helper is there."""
    serves, asks = rping_pair(build, "two hosts")
    serves.kill()
    asks.wait_end()
    since = time.monotonic()
    again = Program(HERE, [build / "ropeway", "run", "--", "rping", "-c", "-v", "-a", ADDRESS[THERE], "-p", next(PORT)])
    again.wait_end()
    yield row("rping to a host whose last process was killed", "two hosts", "REJECTED" if "REJECTED" in again.said() else again.said()[-60:], time.monotonic() - since,
              "REJECTED" in again.said())


# ---- messages ----

def messages(build):
    for where in ("same host", "two hosts"):
        for transport in ("shm", "tcp", "verbs") if where == "same host" else ("tcp", "verbs"):
            for cause, sig in (("SIGKILL", signal.SIGKILL), ("SIGTERM", signal.SIGTERM)):
                server = THERE if where == "two hosts" else HERE
                address = f"{ADDRESS[server]}:{next(PORT)}"
                env = {"ROPEWAY_TRANSPORT": transport, "ROPEWAY_VERBS_LIB": str(build / "libropeway-verbs.so")}
                dies = Program(server, [build / "tests/ends/msg_peer", "serve", address], env)
                dies.wait_line("ready")
                lives = Program(HERE, [build / "tests/ends/msg_peer", "wait", address], env)
                if not lives.wait_line(f"path {transport}"):
                    raise Row(f"no connection over {transport}: {dies.said()} / {lives.said()}")
                time.sleep(0.3)
                since = time.monotonic()
                dies.kill(sig)
                learned = lives.wait_line(r"learned (\S+)")
                yield row(f"messages over {transport}: {cause}", where, learned[1].group(1) if learned else lives.said(), learned[0] - since if learned else None,
                          bool(learned) and learned[1].group(1) == "RPW_ERR_PEER_GONE")
                lives.kill()


# ---- the whole host ----

def everything(build):
    """The end of a container, or a cgroup: every process of it at once, the helper as well."""
    dies, lives, _ = plain_pair(build, "two hosts", "wait", "posted")
    serves, asks = rping_pair(build, "two hosts")
    time.sleep(1.5)
    since = time.monotonic()
    sh(f"kill -KILL {' '.join(sh(f'ip netns pids {THERE}').split())}")
    seconds, words = plain_learned(lives, since)
    yield row("plain verbs, posted: all processes there, its helper", "two hosts", words or lives.said(), seconds, bool(words))
    at = asks.wait_end()
    yield row("rping, server: all processes there, its helper", "two hosts", "DISCONNECTED" if at else "nothing", at and at - since, bool(at))
    dies.kill()
    serves.kill()


def lose(on):
    """The other host's frames go nowhere, and ours to it; as if its power had failed, behind a switch."""
    for name, link, other in ((HERE, f"{TAG}v", THERE), (THERE, f"{TAG}w", HERE)):
        if on:
            sh(f"ip -n {name} neigh replace {ADDRESS[other]} lladdr 02:00:00:00:00:99 dev {link} nud permanent")
        else:
            sh(f"ip -n {name} neigh del {ADDRESS[other]} dev {link}")


def power(build):
    programs = {"rping": rping_pair(build, "two hosts")[1]}
    for transport in ("tcp", "verbs"):
        address = f"{ADDRESS[THERE]}:{next(PORT)}"
        env = {"ROPEWAY_TRANSPORT": transport, "ROPEWAY_VERBS_LIB": str(build / "libropeway-verbs.so")}
        Program(THERE, [build / "tests/ends/msg_peer", "serve", address], env).wait_line("ready")
        programs[f"messages over {transport}"] = Program(HERE, [build / "tests/ends/msg_peer", "wait", address], env)
        programs[f"messages over {transport}"].wait_line(f"path {transport}")
    time.sleep(2.5)  # the helpers have answered
    since = time.monotonic()
    lose(True)
    for name, lives in programs.items():
        if name == "rping":  # it says so where it does not show, and ends
            at = lives.wait_end(40)
            yield row(f"{name}: power failure of the other host", "two hosts", "DISCONNECTED" if at else "nothing", at and at - since, bool(at))
            continue
        learned = lives.wait_line(r"learned (?!RPW_ERR_EXPIRED)(\S+)", 40)
        yield row(f"{name}: power failure of the other host", "two hosts", learned[1].group(0) if learned else lives.said()[-400:], learned[0] - since if learned else None, bool(learned))
    lose(False)
    for host in (HERE, THERE):
        for pid in sh(f"ip netns pids {host}").split():
            if "helper" not in sh(f"cat /proc/{pid}/comm", check=False):
                sh(f"kill -KILL {pid}", check=False)


# ---- what is left ----

def left_behind(host):
    pids = [p for p in sh(f"ip netns pids {host}", check=False).split()]
    alive = []
    for pid in pids:
        try:
            state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            if state != "Z":
                alive.append(f"{pid} {pathlib.Path(f'/proc/{pid}/comm').read_text().strip()}")
        except OSError:
            pass
    names = [line.split()[-1] for line in sh(f"ip netns exec {host} cat /proc/net/unix", check=False).splitlines() if "@ropeway" in line]
    return alive + names


def nothing_left(build):
    time.sleep(5)
    for host in (HERE, THERE):
        left = left_behind(host)
        yield row("5 s later: processes and names", host[-1], ", ".join(left)[:120] if left else "none", None, not left)


CASES = [plain, lives_on, no_helper, many, cm, rejected, messages, everything, power, nothing_left]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build", type=pathlib.Path)
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        print("SKIPPED: no network namespace can be made here (root only)")
        return 77
    for program in ("ip", "rping", "pkill"):
        if not shutil.which(program):
            print(f"SKIPPED: {program} is not installed")
            return 77
    failed = 0
    try:
        build_hosts()
        for case in CASES:
            if args.cases and case.__name__ not in args.cases:
                continue
            began = time.monotonic()
            try:
                failed += sum(not ok for ok in case(args.build.resolve()))
            except Row as e:
                failed += 1
                print(f"FAIL {case.__name__}: {e}")
            print(f"     ({case.__name__}: {time.monotonic() - began:.0f} s)", flush=True)
    finally:
        remove_hosts()
    print(f"{failed} failed" if failed else "all passed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
