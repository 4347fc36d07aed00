#!/usr/bin/python3
"""The same fault script and the same seed give the same capture; another seed gives another.

Usage: script_capture_test.py ROPEWAY SCRIPT_PAIR. A sender and a receiver, each with a capture of its own. What must differ from run to run is made equal before two captures are compared, and nothing else: the time of
each packet, the UDP source port (it comes from the process ID), QPNs (random: numbered as they appear, under the bits that a script has flipped), the TTL (an RC receiver learns it of packets that come by a lane, which is made beside the first ones), and the ICRC, which covers all of these: only whether it is right counts.
A packet that is held for the next one goes alone after 5 ms of silence: a run on a busy machine in which the sender was silent for so long says nothing of the seed, and is made again.
Of RC the sender's requests alone are compared: how many of the receiver's packets one ACK covers, and whether a probe asks after a silence, is a matter of time.
"""
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

ROPEWAY, PAIR = sys.argv[1:3]
ACK, SEND_ONLY = 0x11, 0x04

SCRIPTS = {
    "drop": "seed {seed}\npacket sent chance 0.1: drop\n",
    "dup and drop by count": "seed {seed}\npacket sent every 7: dup\npacket sent 20..25: drop\npacket sent chance 0.02: drop\n",
    "corrupt": "seed {seed}\npacket sent chance 0.2: corrupt\n",
    "reorder": "seed {seed}\npacket sent chance 0.15: reorder\n",
    "at a byte": "seed {seed}\npacket sent at byte 10^4: drop\npacket sent chance 0.05: dup\n",
}
# A lost FIRST is told of by the packet behind it; a lost LAST or ONLY would be by a timer.
RC_SCRIPT = "seed {seed}\npacket sent SEND_FIRST chance 0.3: drop\npacket sent SEND_ONLY 3: dup\nsend 60: status LOC_PROT_ERR\n"


HOLD_NS, RUNS = 5_000_000, 10  # src/io/tx.c; runs until one is steady


def packets(path):
    """(time in ns, IP header, UDP header and payload) of each packet of a pcapng file, DLT_RAW."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if kind == 6:
            high, low, captured = struct.unpack_from("<III", data, at + 12)
            yield high << 32 | low, data[at + 28:at + 28 + captured]
        at += length


def icrc_is_right(ip):
    """IB annex A17.3.3: what a router may change counts as ones."""
    masked = bytearray(b"\xff" * 8 + ip[:-4])
    masked[8 + 1] = masked[8 + 8] = 0xff                     # TOS, TTL
    masked[8 + 10:8 + 12] = b"\xff\xff"                      # checksum
    masked[8 + 26:8 + 28] = b"\xff\xff"                      # UDP checksum
    masked[8 + 32] = 0xff                                    # resv8a
    return zlib.crc32(bytes(masked)) == struct.unpack("<I", ip[-4:])[0]


def normalized(path, requests_only):
    numbers, out = {}, []
    for _, ip in packets(path):
        bth, right = ip[28:-4], icrc_is_right(ip)
        opcode, qpn, psn = bth[0] & 0x1f, int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big")
        probe = opcode == SEND_ONLY and len(bth) == 12
        if requests_only and (opcode == ACK or probe):
            continue
        rest = bytearray(bth[12:])
        if bth[0] >> 5 == 3:  # UD: the sender's QPN in the DETH
            rest[5:8] = b"\0\0\0"
        out.append((ip[0:8] + ip[9:10], bth[0:5], numbers.setdefault(qpn, len(numbers)), bth[8], psn, bytes(rest), right))
    return out


def was_steady(path):
    times = [time for time, _ in packets(path)]
    return all(b - a < HOLD_NS for a, b in zip(times, times[1:-1]))  # nothing can overtake the last one


def run(script, service, count=80):
    """Normalized captures of sender and receiver, and what the program printed."""
    for _ in range(RUNS):
        steady, got = run_once(script, service, count)
        if steady:
            return got
    raise AssertionError(f"in {RUNS} runs the sender was silent for more than {HOLD_NS} ns each time")


def run_once(script, service, count):
    """Whether it says something of the seed, and what run() returns."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "faults").write_text(script)
        got = subprocess.run([ROPEWAY, "run", "--fault", folder / "faults", "--pcap", folder / "%p.pcapng", "--", PAIR, service, str(count)],
                             capture_output=True, text=True, timeout=120)
        assert got.returncode == 0, got
        sender, receiver = re.search(r"sender (\d+) receiver (\d+)", got.stdout).groups()
        rc = service == "rc"
        steady = "reorder" not in script or was_steady(folder / f"{sender}.pcapng")
        return steady, (normalized(folder / f"{sender}.pcapng", rc), normalized(folder / f"{receiver}.pcapng", rc), got.stdout.splitlines()[0])


class Captures(unittest.TestCase):
    def twice(self, script, service, least):
        first, second, other = run(script.format(seed=7), service), run(script.format(seed=7), service), run(script.format(seed=8), service)
        self.assertGreater(len(first[0]), least)
        self.assertEqual(first, second)
        self.assertNotEqual(first[0], other[0], "the seed does not matter")
        return first

    def test_uc_and_ud(self):
        for service in "uc", "ud":
            for name, script in SCRIPTS.items():
                with self.subTest(service, name=name):
                    sent, received, said = self.twice(script, service, 50)
                    self.assertEqual(said, "80 sent, status 0")
                    if name != "corrupt":
                        self.assertEqual(sent, received)
                    else:  # what is corrupt is seen on the wire, and not taken
                        self.assertIn(False, [p[-1] for p in sent])
                        self.assertEqual([p for p in sent if p[-1]], received)

    def test_without_a_script_nothing_is_harmed(self):
        sent, received, _ = run("# nothing\n", "uc")
        self.assertEqual(sent, received)
        psns = [p[4] for p in sent]
        self.assertEqual(psns, list(range(psns[0], psns[0] + len(psns))))

    def test_rc(self):
        sent, _, said = self.twice(RC_SCRIPT, "rc", 80)
        self.assertEqual(said, "60 sent, status 4")
        psns = [p[4] for p in sent]
        self.assertGreater(len(psns), len(set(psns)), "nothing was sent again")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
