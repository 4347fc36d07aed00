#!/usr/bin/python3
"""What `ropeway explain` counts in captures with losses, held against the packets as tshark decodes them: conversations made here, of all opcodes of RC, by a requester and a responder that lose packets on the
wire and in the capture, go back, and ask again for the rest of a READ.

Usage: explain_counts_test.py BUILD_DIR Counts. TEST_SEED repeats a run.
"""
import collections
import os
import random
import shutil
import struct
import subprocess
import sys

import explain
from explain import Case
from explain_test import roce

MTU = 256
CONVERSATIONS = 200  # a page shows no more
SEND, WRITE, READ_REQUEST, READ_RESPONSE, ACK, ATOMIC_ACK, SWAP, ADD = 0, 6, 12, 13, 17, 18, 19, 20
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = range(6)  # from SEND and WRITE
SEND_LAST_INV, SEND_ONLY_INV = 22, 23
RESPONSE = {"FIRST": 13, "MIDDLE": 14, "LAST": 15, "ONLY": 16}
ENDS = {SEND + LAST, SEND + LAST_IMM, SEND + ONLY, SEND + ONLY_IMM, SEND_LAST_INV, SEND_ONLY_INV, WRITE + LAST, WRITE + LAST_IMM, WRITE + ONLY, WRITE + ONLY_IMM, SWAP, ADD, READ_REQUEST}
SEQUENCE_NAK = 0x60
# Bytes between the BTH and the payload, by opcode (IB 9.2).
MORE = collections.defaultdict(int, {SEND + LAST_IMM: 4, SEND + ONLY_IMM: 4, SEND_LAST_INV: 4, SEND_ONLY_INV: 4, WRITE + FIRST: 16, WRITE + LAST_IMM: 4, WRITE + ONLY: 16, WRITE + ONLY_IMM: 20,
                                     READ_REQUEST: 16, SWAP: 28, ADD: 28, 13: 4, 15: 4, 16: 4, ACK: 4, ATOMIC_ACK: 12})


class Side:
    """A requester and the responder that it talks to; what is put on the wire goes through `put(from_requester, opcode, psn, body)`, which says whether it arrives."""

    def __init__(self, rng, put):
        self.rng, self.put = rng, put
        self.psn = rng.choice((rng.randrange(1 << 24), (1 << 24) - rng.randrange(1, 40)))  # often over the wrap
        self.requests = [request for _ in range(rng.randrange(3, 16)) for request in self.message()]  # (PSN, opcode, body, PSNs)
        self.expected, self.naked = self.requests[0][0], False

    def message(self):
        kind = self.rng.choice(("send", "write", "read", "atomic"))
        psn = self.psn
        if kind == "atomic":
            self.psn += 1
            return [(psn, self.rng.choice((SWAP, ADD)), struct.pack(">QIQQ", 64, 7, 1, 2), 1)]
        size = self.rng.choice((0, 4, MTU, MTU + 4, self.rng.randrange(4, 20 * MTU, 4)))
        count = max(1, -(-size // MTU))
        reth = struct.pack(">QII", 4096, 7, size)
        self.psn += count
        if kind == "read":
            return [(psn, READ_REQUEST, reth, count)]
        ending = self.rng.choice(("", "imm", "inv") if kind == "send" else ("", "imm"))
        return [self.piece(kind, ending, reth, psn + n, n == 0, n == count - 1, bytes(min(MTU, size - n * MTU))) for n in range(count)]

    @staticmethod
    def piece(kind, ending, reth, psn, first, last, payload):
        base = SEND if kind == "send" else WRITE
        if first and last:
            opcode = SEND_ONLY_INV if ending == "inv" else base + (ONLY_IMM if ending else ONLY)
        elif last:
            opcode = SEND_LAST_INV if ending == "inv" else base + (LAST_IMM if ending else LAST)
        else:
            opcode = base + (FIRST if first else MIDDLE)
        head = (reth if kind == "write" and first else b"") + (b"\0\0\0\1" if last and ending else b"")
        return (psn, opcode, head + payload, 1)

    def respond(self, psn, opcode, body, count):
        """What the responder does with a request that has arrived; the PSNs that the requester knows to be done then."""
        if psn > self.expected:
            if not self.naked:
                self.naked = True
                return self.expected if self.put(False, ACK, self.expected, struct.pack(">I", SEQUENCE_NAK << 24)) else None
            return None
        self.naked = False
        self.expected = max(self.expected, psn + count)
        if opcode == READ_REQUEST:
            return self.read(psn, struct.unpack(">QII", body)[2], count)
        if opcode in (SWAP, ADD):
            return psn + 1 if self.put(False, ATOMIC_ACK, psn, struct.pack(">IQ", 1, 5)) else None
        if opcode in ENDS or self.rng.random() < 0.2:
            return psn + 1 if self.put(False, ACK, psn, struct.pack(">I", 1)) else None
        return None

    def read(self, psn, size, count):
        done = psn
        for n in range(count):
            name = "ONLY" if count == 1 else "FIRST" if n == 0 else "LAST" if n == count - 1 else "MIDDLE"
            aeth = b"" if name == "MIDDLE" else struct.pack(">I", 1)
            if self.put(False, RESPONSE[name], psn + n, aeth + bytes(min(MTU, size - n * MTU))) and done == psn + n:
                done += 1
        return done

    def run(self):
        una, end = self.requests[0][0], self.requests[-1][0] + self.requests[-1][3]
        while una < end:
            for psn, opcode, body, count in [r for r in self.requests if r[0] + r[3] > una][:self.rng.randrange(1, 17)]:
                if psn < una:  # the rest of a READ
                    address, key, size = struct.unpack(">QII", body)
                    skip = una - psn
                    psn, count, body = una, count - skip, struct.pack(">QII", address + skip * MTU, key, size - skip * MTU)
                arrived = self.put(True, opcode, psn, body)
                known = self.respond(psn, opcode, body, count) if arrived else None
                una = max(una, known or 0)
                refused = self.naked and known is not None
                if arrived and (refused or opcode in (READ_REQUEST, SWAP, ADD) and (known or 0) < psn + count):
                    break


def conversation(rng, number):
    """The packets of one, as captured: (from the active side, packet)."""
    net = f"10.{number >> 8}.{number & 255}"  # two QPs of two hosts: no other talk can be theirs
    ends = ((f"{net}.1", 0x1000 + 2 * number), (f"{net}.2", 0x1001 + 2 * number))
    kept, lost, missed = [], rng.choice((0, 0.01, 0.05, 0.2)), rng.choice((0, 0, 0.05, 0.2))

    def putter(active):
        def put(from_requester, opcode, psn, body):
            me, peer = ends if from_requester == active else reversed(ends)
            if rng.random() >= missed:
                kept.append(roce(me[0], peer[0], peer[1], opcode, psn & 0xFFFFFF, body, ack=0x80 if opcode in ENDS else 0))
            return rng.random() >= lost
        return put

    sides = [Side(rng, putter(True))] + ([Side(rng, putter(False))] if rng.random() < 0.5 else [])
    for side in sides:
        side.run()
    return kept


def decoded(capture):
    """By tshark: (source, destination QPN, opcode, PSN, payload, length of a READ) of each packet."""
    fields = ["ip.src", "infiniband.bth.destqp", "infiniband.bth.opcode", "infiniband.bth.psn", "udp.length", "infiniband.bth.padcnt", "infiniband.reth.dmalen"]
    out = subprocess.run(["tshark", "-r", capture, "-T", "fields", *(word for field in fields for word in ("-e", field))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                         timeout=explain.TIMEOUT_S, check=True).stdout
    for line in out.splitlines():
        source, qpn, opcode, psn, length, pad, read = line.split("\t")
        opcode = int(opcode, 0)
        yield source, int(qpn, 0), opcode, int(psn, 0), int(length) - 8 - 12 - 4 - MORE[opcode] - int(pad, 0), int(read or "0", 0)


def counted(capture):
    """(destination QPN) -> [messages, bytes], each once."""
    seen, reads, counts = set(), collections.defaultdict(list), collections.defaultdict(lambda: [0, 0])
    for source, qpn, opcode, psn, payload, length in decoded(capture):
        if opcode in (ACK, ATOMIC_ACK):
            counts[qpn][0] += 0
            continue
        response = opcode in RESPONSE.values()
        key = (qpn, response, psn)
        again = key in seen
        seen.add(key)
        if opcode == READ_REQUEST:
            again = again or any(0 < (psn - begin & 0xFFFFFF) < count for begin, count in reads[qpn])
            reads[qpn].append((psn, max(1, -(-length // MTU))))
        counts[qpn][0] += not again and (opcode in ENDS or opcode in (RESPONSE["LAST"], RESPONSE["ONLY"]))
        counts[qpn][1] += 0 if again else payload
    return counts


class Counts(Case):
    def setUp(self):
        super().setUp()
        if not shutil.which("tshark"):
            self.skipTest("tshark is not installed")

    def test_messages_and_bytes_are_those_of_tshark_each_once(self):
        seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
        print(f"TEST_SEED={seed}", file=sys.stderr)
        rng, opcodes, wrong = random.Random(seed), set(), []
        packets = [packet for number in range(CONVERSATIONS) for packet in conversation(rng, number)]
        capture = self.dir / "lossy.pcap"
        with open(capture, "wb") as f:
            f.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101))
            for at, packet in enumerate(packets):
                opcodes.add(packet[28])
                f.write(struct.pack("<IIII", 1 + at // 1000000, at % 1000000, len(packet), len(packet)) + packet)
        self.assertEqual(opcodes, set(range(24)) - {21}, "all opcodes of RC but the one that is reserved")
        expected = counted(capture)
        talks = self.data(capture)["talks"]
        shown = {}
        for talk in talks:
            for end, peer in zip(talk["about"]["ends"], reversed(talk["about"]["ends"])):
                shown[peer.get("qpn")] = [end["messages"], end["bytes"]]
        for qpn, counts in expected.items():
            if shown.get(qpn) != counts:
                wrong.append((hex(qpn), "shown", shown.get(qpn), "tshark's", counts))
        self.assertEqual(wrong, [], f"TEST_SEED={seed}: [messages, bytes] by destination QPN")


if __name__ == "__main__":
    sys.exit(explain.main(globals()))
