"""Starting what is measured: each process on a core of its own, each run with a deadline, nothing left behind, and no process ended but our own."""
import ctypes
import json
import os
import re
import signal
import subprocess
import time

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
LISTEN = "0A"  # the state column of /proc/net/tcp


class RunFailed(Exception):
    """A program that was to be measured did not give a figure; the text says which and why."""


def listening(port, pid):
    """Is somebody listening on this TCP port? Read, not tried: a try would be the connection that the server waits for.
    The table is the one of the server's own network namespace."""
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}") as f:
                rows = [line.split() for line in f][1:]
        except OSError:
            continue
        if any(row[1].endswith(f":{port:04X}") and row[3] == LISTEN for row in rows):
            return True
    return False


def favour():
    """Most of each core for this process, though others want it too. Schedulers that group processes by session take the session's nice value."""
    os.nice(-20)
    try:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")
    except OSError:
        pass


class Runner:
    """Runs programs on two cores. `prefix` goes before each command (ip netns exec ...), `preload` is a library or None, `env` is added to the environment,
    `server_prefix` goes before the servers' commands instead, where they have another network namespace."""

    def __init__(self, cores, build, preload=None, prefix=(), deadline_s=60, verbose=False, priority=False, env=None, server_prefix=None):
        self.cores, self.build, self.preload, self.prefix, self.env = cores, build, preload, list(prefix), env or {}
        self.server_prefix = self.prefix if server_prefix is None else list(server_prefix)
        self.deadline_s, self.verbose, self.priority = deadline_s, verbose, priority
        self.port = 21000 + os.getpid() % 2700 * 4  # below those that the kernel gives to who connects

    def next_port(self):
        """Another port each time: the last one may still be in TIME_WAIT."""
        self.port = 21000 + (self.port - 20999) % 11000
        return self.port

    def start(self, command, core, preload=True, prefix=None):
        prefix = self.prefix if prefix is None else prefix
        env = dict(os.environ, LC_ALL="C", **self.env)
        if self.preload and preload:
            env["LD_PRELOAD"] = self.preload
        if self.verbose:
            print("$", " ".join(prefix + command), flush=True)

        def settle():
            os.setsid()
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nothing that spins may outlive this program, however it ends
            if core is not None:
                os.sched_setaffinity(0, {core})
            if self.priority:
                favour()

        # errors to the same pipe: perftest prints its reasons to either
        return subprocess.Popen(prefix + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env=env, preexec_fn=settle)

    @staticmethod
    def end(process):
        """A process and its children: start() gave it a session of its own. Only what we started is ever signalled."""
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        if process.stdout:
            process.stdout.close()

    def finish(self, process, deadline_s=None):
        try:
            text, _ = process.communicate(timeout=deadline_s or self.deadline_s)
        except subprocess.TimeoutExpired:
            self.end(process)
            text, _ = process.communicate() if process.stdout and not process.stdout.closed else ("", None)
            raise RunFailed(f"no end after {deadline_s or self.deadline_s} s; so far: {tail(text)}") from None
        if self.verbose:
            print(text, flush=True)
        if process.returncode:
            raise RunFailed(f"{program_of(process.args)} ended with {process.returncode}: {tail(text)}")
        return text

    def alone(self, program, *args, preload=False, pinned=None):
        """A program of bench/ that pins its own processes; its JSON."""
        process = self.start([os.path.join(self.build, "bench", program), *map(str, args)], pinned, preload)
        try:
            return json.loads(self.finish(process).strip().splitlines()[-1])
        except ValueError as e:
            raise RunFailed(f"{program} printed no figure") from e
        finally:
            self.end(process)

    def pair(self, server_command, client_command, port, preload=True):
        """Server on the second core, client on the first once the server listens. What the client printed."""
        server = self.start(server_command, self.cores[1], preload, self.server_prefix)
        client = None
        try:
            self.wait_listening(server, port)
            client = self.start(client_command, self.cores[0], preload)
            text = self.finish(client)
            self.finish(server, 10)
            return text
        except RunFailed as e:
            said = server.stdout.read() if server.poll() not in (None, 0) and not server.stdout.closed else ""
            raise (RunFailed(f"{e}; the server: {tail(said)}") if said.strip() else e) from None
        finally:
            for process in (client, server):
                if process:
                    self.end(process)

    def wait_listening(self, server, port, timeout_s=30):
        until = time.monotonic() + timeout_s
        while not listening(port, server.pid):
            if server.poll() is not None:
                raise RunFailed(f"the server ended at once: {tail(server.stdout.read())}")
            if time.monotonic() > until:
                raise RunFailed(f"the server did not listen within {timeout_s} s")
            time.sleep(0.02)

    # ---- the programs ----
    def perftest(self, program, device, mtu, size, iterations, address="127.0.0.1", extra=()):
        """The figures in the last line of the client's table, by column."""
        port = self.next_port()
        command = [program, "-d", device, "-x", "1", "-m", str(mtu), "-s", str(size), "-n", str(iterations), "-p", str(port), "-F", *extra]
        return perftest_table(self.pair(command, command + [address], port))

    def perftest_bandwidth(self, *args, **more):
        # perftest's MB is 2^20 bytes (-h says so under --report_gbits). -N: no peak figure, which costs a clock reading a message.
        return self.perftest(*args, extra=("-N",), **more)["BW average"]

    def perftest_rate(self, *args, **more):
        """Messages a second: at 8 bytes the bandwidth has too few digits."""
        return self.perftest(*args, extra=("-N",), **more)["MsgRate"] * 1e6

    def ropeway(self, *command, seconds, deadline_s=None, environment=()):
        """`ropeway ... --json`, which pins its own two processes to the same cores."""
        words = [*(["env", *environment] if environment else []), os.path.join(self.build, "ropeway"), *map(str, command), "--duration", str(seconds), "--json"]
        process = self.start(words, None, preload=False)
        try:
            return json.loads(self.finish(process, deadline_s))
        except ValueError as e:
            raise RunFailed(f"ropeway {command[0]} printed no figures") from e
        finally:
            self.end(process)

    def perf(self, transport, size, mode, seconds, operation="tag"):
        return self.ropeway("perf", "--ops", operation, "--transport", transport, "--sizes", size, "--measure", mode, "--no-bare", seconds=seconds)["rows"][0]

    def shm_rate(self, size, seconds):
        """Messages a second of the messaging library over shared memory."""
        return self.perf("shm", size, "bw", seconds)["messages_per_second"]

    def line_ns(self):
        return self.alone("line", "-c", ",".join(map(str, self.cores)))["half_trip_ns"]

    def perftest_latency(self, *args, **more):
        return self.perftest(*args, **more)["t_typical"]

    def iperf3(self, seconds, address="127.0.0.1"):
        port = self.next_port()
        text = self.pair(["iperf3", "-s", "-1", "-p", str(port), "-B", address],
                         ["iperf3", "-c", address, "-p", str(port), "-t", str(max(1, round(seconds))), "-J", "-C", "reno"], port, preload=False)
        try:
            return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 8 / 2**20
        except (ValueError, KeyError) as e:
            raise RunFailed(f"iperf3 printed no figure: {tail(text)}") from e


def program_of(command):
    """Behind what starts it: ip netns exec NAME, unshare and its options."""
    words = list(map(str, command))
    while words[:3] == ["ip", "netns", "exec"]:
        words = words[4:]
    if words[:1] == ["unshare"]:
        words = words[1:]
        while words[0].startswith("-"):
            words = words[1:]
    return os.path.basename(words[0])


def perftest_table(text):
    """{column: figure}. The head is '#bytes #iterations BW peak[MiB/sec] ...' and the figures are the first line of numbers below it."""
    head = None
    for line in text.splitlines():
        if line.strip().startswith("#bytes"):
            head = [name.strip() for name in re.split(r"\[[^\]]*\]|\s{2,}", line.strip()) if name.strip()]
            head = [part for name in head for part in (name.split() if name.startswith("#") or name.startswith("99") else [name])]
        elif head and re.match(r"\s*\d+\s+\d+\s", line):
            return dict(zip(head, map(float, line.split())))
    raise RunFailed(f"perftest printed no figure: {tail(text)}")


def tail(text, lines=3):
    """What a program said about its end: the lines that sound like an error (they may stand before buffered output), else its last."""
    said = [line.strip() for line in text.splitlines() if line.strip() and not set(line.strip()) <= {"-"}]
    errors = [line for line in said if re.search(r"fail|error|couldn't|cannot|unable|invalid|ropeway:", line, re.IGNORECASE)]
    return " | ".join((errors or said)[-lines:]) or "nothing printed"
