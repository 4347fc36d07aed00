#!/usr/bin/python3
"""Runs inside the guest: takes commands from the host over a virtio port and reports what they print and how they end.

One JSON object a line each way (guest.py is the other end):
  host:  {"id": 7, "run": "shell command"}   {"id": 7, "kill": true}   {"id": 7, "input": "text"}
  guest: {"id": 7, "out": "text"}   {"id": 7, "rc": 0}
"""
import json
import os
import signal
import subprocess
import sys
import threading

PORT = sys.argv[1] if len(sys.argv) > 1 else "/dev/vport0p1"


class Agent:
    def __init__(self, fd):
        self.fd = fd
        self.lock = threading.Lock()
        self.running = {}

    def send(self, **message):
        data = (json.dumps(message) + "\n").encode()
        with self.lock:
            while data:
                data = data[os.write(self.fd, data):]

    def serve(self, ident, command):
        process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        self.running[ident] = process
        for chunk in iter(lambda: process.stdout.read1(4096), b""):
            self.send(id=ident, out=chunk.decode(errors="replace"))
        self.send(id=ident, rc=process.wait())
        self.running.pop(ident, None)

    def handle(self, message):
        ident = message["id"]
        if "run" in message:
            threading.Thread(target=self.serve, args=(ident, message["run"]), daemon=True).start()
        elif "kill" in message and ident in self.running:
            try:
                os.killpg(self.running[ident].pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def main():
    fd = os.open(PORT, os.O_RDWR)
    agent = Agent(fd)
    agent.send(id=0, out="ready")
    pending = b""
    while True:
        chunk = os.read(fd, 65536)
        if not chunk:  # the host has closed its end: nobody is left to serve
            return
        pending += chunk
        *lines, pending = pending.split(b"\n")
        for line in lines:
            agent.handle(json.loads(line))


if __name__ == "__main__":
    main()
