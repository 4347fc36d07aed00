#!/usr/bin/python3
"""ROPEWAY_LOG=debug prints a line for each send and receive, in the form that people and scripts rely on, and one line (info) for the path and why.

Usage: trace_test.py PROGRAM (which sends and receives something; msg_fake_test).
"""
import os
import re
import subprocess
import sys

LINE = re.compile(r"^\[\d{10}\.\d{6}\] \[[^:\]]+:\d+\] ROPEWAY  DEBUG \[(Send|Recv) #(\d{3,})\] ep: 0x[0-9a-f]+, tag: 0x[0-9a-f]{16}, nbytes: (\d+), via: (\w+)$")

env = dict(os.environ, ROPEWAY_LOG="debug", MSG_TEST="truncation", MSG_TRANSPORT="fake_a")
err = subprocess.run([sys.argv[1]], env=env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, timeout=60, check=True).stderr.decode()
found = [LINE.match(line) for line in err.splitlines() if "ROPEWAY  DEBUG" in line]
assert len(found) == 4 and all(found), err
assert [m.group(1, 2, 3) for m in found if m.group(1) == "Send"] == [("Send", "001", "100"), ("Send", "002", "100000")], err
assert sorted(m.group(1, 2, 3) for m in found if m.group(1) == "Recv") == [("Recv", "001", "100"), ("Recv", "002", "100000")], err
assert {m.group(4) for m in found} == {"fake_a"}, err
chosen = [line for line in err.splitlines() if "connected with" in line]
assert len(chosen) == 2 and all("by fake_a" in line and "because" in line for line in chosen), err
print("ok")
