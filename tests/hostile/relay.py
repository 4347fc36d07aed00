"""A man in the middle: a program that connects to an address of his, 127.*, reaches 127.0.0.1 through him, by its control connection and by every data stream, and he does with the bytes what he likes.

The sender connects its data streams to the address that its control connection went to, and the port is in a handle that he cannot read; but he sees on which ports the receiver listens, and listens
on the same ones before he lets the receiver's next word through.
"""
import contextlib
import os
import pathlib
import random
import socket
import struct
import threading

THERE = "127.0.0.1"
CONTROL, DATA = "control", "data"
UP, DOWN = 0, 1  # from the sender; from the receiver
ALERT_BYTES = 24  # a sealed alert: head 5, level and description 2, type 1, tag 16
HANDSHAKE, SEALED = 0x16, 0x17
RCVBUF = 1 << 16  # so that a stream that he delays fills, and the sender takes another


def listening_ports(pid):
    """Those of THERE that the process listens on."""
    inodes = set()
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(fd))
    address = f"{struct.unpack('<I', socket.inet_aton(THERE))[0]:08X}"
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return {int(r[1][9:], 16) for r in rows if r[1][:8] == address and r[3] == "0A" and f"socket:[{r[9]}]" in inodes}


class Connection:
    """One that he relays: `sock` towards the sender and the receiver, and what either has said so far."""

    def __init__(self, relay, kind, number, sock):
        self.relay, self.kind, self.number, self.sock = relay, kind, number, list(sock)
        self.said = [bytearray(), bytearray()]
        self.pumps = [threading.Thread(target=self.pump, args=(way,), daemon=True) for way in (UP, DOWN)]
        self.sealed, self.passed = [0, 0], [0, 0]  # records that are sealed, and bytes, that `meddle` has seen

    def put(self, way, data):
        """To where what goes this way arrives."""
        with contextlib.suppress(OSError):
            self.sock[1 - way].sendall(data)

    def cut(self):
        for s in self.sock:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def pump(self, way):
        left = b""
        source = self.sock[way]
        while True:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            self.relay.follow()
            self.said[way] += data
            units, left = split(left + data)
            for unit in units:
                out = self.relay.meddle(self, way, unit)
                self.sealed[way] += unit[0] == SEALED
                self.passed[way] += len(unit)
                self.put(way, out)
        with contextlib.suppress(OSError):
            self.sock[1 - way].shutdown(socket.SHUT_WR)


def split(data):
    """Whole TLS records and what is left of one; bytes that are no TLS go as they come."""
    units = []
    while data:
        if not (0x14 <= data[0] <= 0x17 and data[1:2] in (b"", b"\3")):
            return units + [data], b""
        end = 5 + int.from_bytes(data[3:5], "big")
        if len(data) < max(end, 5):
            break
        units.append(data[:end])
        data = data[end:]
    return units, data


class Relay:
    """`meddle(connection, way, unit)` says what goes on instead of a unit."""

    def __init__(self, receiver, to_port, meddle=lambda connection, way, unit: unit):
        self.receiver, self.to_port, self.meddle = receiver, to_port, meddle
        self.connections, self.listeners, self.lock = [], {}, threading.Lock()
        self.closed = False
        self.here = f"127.{random.randrange(1, 255)}.{random.randrange(256)}.{random.randrange(1, 255)}"  # where no port is taken yet
        self.port = self.listen(CONTROL, 0, to_port)

    def listen(self, kind, port, to_port):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RCVBUF)
        s.bind((self.here, port))
        s.listen(16)
        self.listeners[to_port] = s
        threading.Thread(target=self.serve, args=(kind, s, to_port), daemon=True).start()
        return s.getsockname()[1]

    def follow(self):
        with self.lock:
            for port in () if self.closed else listening_ports(self.receiver) - set(self.listeners):
                self.listen(DATA, port, port)

    def serve(self, kind, listener, to_port):
        while True:
            try:
                sender, _ = listener.accept()
            except OSError:
                return
            receiver = socket.socket()
            try:
                receiver.connect((THERE, to_port))
            except OSError:
                sender.close()
                continue
            for s in (sender, receiver):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                c = Connection(self, kind, sum(x.kind == kind for x in self.connections), (sender, receiver))
                self.connections.append(c)
            for way in (UP, DOWN):
                c.pumps[way].start()

    def find(self, kind, number):
        return next((c for c in self.connections if (c.kind, c.number) == (kind, number)), None)

    def passed(self, kind, way):
        return sum(c.passed[way] for c in self.connections if c.kind == kind)

    def seen(self, what):
        """Where that was to be read."""
        return [(c.kind, c.number, way) for c in self.connections for way in (UP, DOWN) if what in c.said[way]]

    def close(self):
        """What a sender that has gone said last still arrives."""
        with self.lock:
            self.closed = True
            for s in self.listeners.values():
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
                s.close()
        for c in self.connections:
            c.pumps[UP].join(5)
            for s in c.sock:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
                s.close()
