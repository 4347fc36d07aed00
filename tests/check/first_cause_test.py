#!/usr/bin/python3
"""What came first when work was flushed, from both ends: rdma_cm programs whose server leaves too early, in one process and in two, and runs that end as they should.

Usage: first_cause_test.py BUILD
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
CHECK = BUILD / "tests" / "check"
PORT = "22931"


def environment(report):
    return dict(os.environ, LD_PRELOAD=str(BUILD / "libropeway-verbs.so.0"), ROPEWAY_CHECK=f"log={report}", ROPEWAY_DEVICES="lo")


def causes(report):
    """The sentence of the block of rule 301, in one line."""
    said = subprocess.run([BUILD / "ropeway", "check", report], check=True, capture_output=True, text=True).stdout
    block = re.search(r"first-cause: .*? found (.*?) (?:first, here|then, here|on a NIC)", " ".join(said.split()))
    return [block.group(1)] if block else []


def planted(kind, report):
    subprocess.run([CHECK / "planted", "first-cause", kind], env=environment(report), check=True, timeout=60)
    return causes(report)


def listens(server):
    """The server says so; until then a client would be rejected."""
    end = time.monotonic() + 30
    while time.monotonic() < end and server.poll() is None:
        line = server.stdout.readline()
        if "listening" in line:
            return
    raise AssertionError("the server does not listen")


def pair(report, server_options, client_options, kill=False, server_is_checked=True):
    env = environment(report)
    servers = env if server_is_checked else {key: value for key, value in env.items() if key != "ROPEWAY_CHECK"}
    server = subprocess.Popen([BUILD / "rdma-send-recv-server", "-n", "1", *server_options, PORT], env=servers, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        listens(server)
        client = subprocess.Popen([BUILD / "rdma-send-recv-client", *client_options, "127.0.0.1", PORT], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if kill:
            for line in client.stdout:
                if "send completed" in line:
                    break
            server.send_signal(signal.SIGKILL)
        client.communicate(timeout=60)
        server.communicate(timeout=60)
    finally:
        server.kill()
        server.wait()
    return causes(report)


CASES = [
    ("a server that never handles ESTABLISHED, in one process", lambda r: planted("bad", r),
     [r"the server, QP 0x\w+ of planted \(pid \d+\) never handled ESTABLISHED and called rdma_disconnect; the client, QP 0x\w+ of planted \(pid \d+\): the RECV with wr_id 8 was flushed by that"]),
    ("the same that answers", lambda r: planted("good", r), []),
    ("a server that is silent", lambda r: pair(r, ["--silent", "--wait", "1"], []),
     [r"the server \(rdma-send-recv-server, pid \d+\) sent nothing and called rdma_disconnect; the client \(rdma-send-recv-client, pid \d+\): the RECV with wr_id \d+ was flushed by that"]),
    ("a client that gives up", lambda r: pair(r, ["--silent"], ["--wait", "1"]),
     [r"the client \(rdma-send-recv-client, pid \d+\) called rdma_disconnect before anything had come from the server \(rdma-send-recv-server, pid \d+\), which had sent nothing; the RECV with wr_id \d+ was flushed by that"]),
    ("a server that is killed", lambda r: pair(r, ["--silent"], [], kill=True),
     [r"the server \(rdma-send-recv-server, pid \d+\) ended without disconnecting; the client \(rdma-send-recv-client, pid \d+\): the RECV with wr_id \d+ was flushed by that"]),
    ("a silent server that is not checked", lambda r: pair(r, ["--silent", "--wait", "1"], [], server_is_checked=False),
     [r"the server \(not checked\) disconnected; the client \(rdma-send-recv-client, pid \d+\): the RECV with wr_id \d+ was flushed by that"]),
    ("both ends do what they should", lambda r: pair(r, [], []), []),
]


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        for i, (name, run, expected) in enumerate(CASES, 1):
            got = run(pathlib.Path(tmp) / f"{i}.jsonl")
            good = len(got) == len(expected) and all(re.fullmatch(e, g) for e, g in zip(expected, got))
            failed += not good
            print(f"{'ok' if good else 'not ok'} {i} - {name}{'' if good else f': got {got}'}")
    print(f"1..{len(CASES)}")
    sys.exit(1 if failed else 0)


main()
