#!/usr/bin/python3
"""What the software device puts on the wire, judged by others: tshark dissects every packet, and two independent ICRCs agree with ours.

  wire.py [--build BUILD] [--keep FOLDER]

Runs stock programs and verbs_verify on loopback with ROPEWAY_PCAP, over IPv4 and, where the device has such a GID, IPv6. The ICRC is computed here anew
from the captured bytes (zlib's CRC-32, IPv4 and IPv6), and by Scapy (IPv4). Ends with 'N passed, N failed, N skipped'.
"""
import argparse
import collections
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "interop"), str(ROOT / "tests" / "lib")]
from preload import preloadable  # noqa: E402
from guest import die_with_parent  # noqa: E402
from netns import enter_namespace, ip  # noqa: E402

# tshark's guesses at what a payload may be: our payloads are patterns, in which it sees broken RPCs.
GUESSES = ["smc", "smb_direct", "rpcordma", "nvme-rdma", "lnet", "iser", "ethertype", "infiniband.eoib", "infiniband_sdp", "fcoib"]
SCAPY_PACKETS_MAX = 300  # Scapy takes a few ms for each
PORT = 18700
PERF = "-d {d} -x {g} -p {p} -F "
PROGRAMS = [
    "{b}/tests/interop/verbs_verify -d {d} -g {g} -p {p} -n 1",
    "ibv_uc_pingpong -d {d} -g {g} -p {p} -n 20",
    "ibv_uc_pingpong -d {d} -g {g} -p {p} -n 20 -s 200",
    "ibv_ud_pingpong -d {d} -g {g} -p {p} -n 20 -s 1024",
    "ibv_srq_pingpong -d {d} -g {g} -p {p} -n 20",
    "ib_write_bw -n 20 -s 10000 " + PERF,
    "ib_read_lat -n 20 -s 10000 " + PERF,
    "ib_atomic_bw -n 20 " + PERF,
    "ib_send_lat -c UC -n 20 -s 10000 " + PERF,
]
# What these programs together must have sent: BTH opcodes of RC, UC and UD.
OPCODES_EXPECTED = {0x00: "RC SEND first", 0x02: "RC SEND last", 0x04: "RC SEND only", 0x05: "RC SEND only imm", 0x06: "RC WRITE first", 0x0a: "RC WRITE only",
                    0x0c: "RC READ request", 0x0d: "RC READ response first", 0x10: "RC READ response only", 0x11: "RC ACK", 0x12: "RC atomic ACK",
                    0x13: "RC compare and swap", 0x14: "RC fetch and add", 0x20: "UC SEND first", 0x24: "UC SEND only", 0x64: "UD SEND only"}


def pcapng_packets(path):
    """The packets of a pcapng file: raw IP. Own reader, so that a slip in our writer is not read by the same eyes."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if length < 12 or length % 4 or at + length > len(data) or struct.unpack_from("<I", data, at + length - 4)[0] != length:
            raise ValueError(f"{path.name}: block at {at} is not well formed")
        if kind == 6:
            captured, original = struct.unpack_from("<II", data, at + 20)
            if captured != original:
                raise ValueError(f"{path.name}: a packet was cut")
            yield data[at + 28:at + 28 + captured]
        at += length
    if at != len(data):
        raise ValueError(f"{path.name}: {len(data) - at} bytes are left over")


def icrc(packet):
    """(computed, carried) of a raw IP packet; IB annex A17.3.3."""
    masked = bytearray(packet)
    if packet[0] >> 4 == 4:
        udp = (packet[0] & 15) * 4
        masked[1] = masked[8] = 0xff
        masked[10:12] = b"\xff\xff"
    else:
        udp = 40
        masked[0:4] = bytes([packet[0] | 0x0f, 0xff, 0xff, 0xff])
        masked[7] = 0xff
    masked[udp + 6:udp + 8] = b"\xff\xff"
    masked[udp + 8 + 4] = 0xff
    return zlib.crc32(bytes(masked[:-4]), zlib.crc32(b"\xff" * 8)), struct.unpack("<I", packet[-4:])[0]


def opcode(packet):
    return packet[((packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40) + 8]


def well_formed(packet):
    """None, or what is wrong with the IP and UDP headers."""
    if packet[0] >> 4 == 4:
        header = (packet[0] & 15) * 4
        total = struct.unpack_from(">H", packet, 2)[0]
        words = struct.unpack(f">{header // 2}H", packet[:header])
        check = sum(words)
        check = (check & 0xffff) + (check >> 16)
        if (check & 0xffff) + (check >> 16) != 0xffff:
            return "IPv4 header checksum"
    else:
        header, total = 40, 40 + struct.unpack_from(">H", packet, 4)[0]
    if total != len(packet):
        return f"IP length {total}, captured {len(packet)}"
    if struct.unpack_from(">H", packet, header + 4)[0] != len(packet) - header:
        return "UDP length"
    if struct.unpack_from(">H", packet, header + 2)[0] != 4791:
        return "destination port"
    return None


def listening(port):
    return any(f":{port:04X} " in line and line.split()[3] == "0A" for name in ("tcp", "tcp6") for line in open(f"/proc/net/{name}"))


def run_pair(command, env, port, build, device, gid, client_env=None):
    """None, or what went wrong."""
    line = shlex.split(command.format(d=device, g=gid, p=port, b=shlex.quote(str(build))))
    server = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=die_with_parent)
    for _ in range(500):
        if listening(port) or server.poll() is not None:
            break
        time.sleep(0.02)
    try:
        client = subprocess.run(line + ["127.0.0.1"], env=client_env or env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        text, _ = server.communicate(timeout=20)
    except subprocess.TimeoutExpired as e:
        server.kill()
        return f"no end: {e}\n{server.communicate()[0]}"
    return None if client.returncode == 0 and server.returncode == 0 else f"client ended with {client.returncode}:\n{client.stdout}\nserver ended with {server.returncode}:\n{text}"


def gids(env):
    """(device, index, family) of an IPv4 and an IPv6 GID of the loopback device."""
    text = subprocess.run(["ibv_devinfo", "-v", "-d", "rpw_lo"], env=env, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        words = line.replace(",", " ").split()
        if words[:1] == ["GID["]:
            index, gid = int(words[1].rstrip("]:")), words[2]
            found.setdefault("IPv4" if gid.startswith("::ffff:") else "IPv6", index)
    return [("rpw_lo", index, family) for family, index in sorted(found.items())]


def check_split(folder, name, env, port, build, device, gid, tally):
    """WRITEs of several packets, of which one side alone takes a capture: their sender shows them as they were posted, and sends WRITE ONLYs where it does not
    capture, so that all packets of a datagram have one length."""
    plain = dict(env, ROPEWAY_WIRE="udp")
    for side, split in ("client", False), ("server", True):
        path = folder / f"{name}.split.{side}.pcapng"
        capture = dict(plain, ROPEWAY_PCAP=str(path))
        command = "ib_write_bw -n 200 -t 4 -s 20000 -m 4096 " + PERF
        port += 1
        wrong = run_pair(command, plain if side == "client" else capture, port, build, device, gid, capture if side == "client" else plain)
        if not wrong:
            seen = collections.Counter(map(opcode, pcapng_packets(path)))
            if bool(seen[0x0a]) != split or not seen[0x06]:
                wrong = f"WRITE ONLY {seen[0x0a]}, WRITE first {seen[0x06]}"
        tally.say(f"{name} WRITEs of 5 packets in the {side}'s capture are {'WRITE ONLYs, once one was taken' if split else 'as posted'}", wrong)


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def say(self, what, wrong):
        print(f"{'FAIL' if wrong else 'pass'} {what}" + (f": {wrong}" if wrong else ""), flush=True)
        self.failed, self.passed = self.failed + bool(wrong), self.passed + (not wrong)


def check_captures(folder, tally):
    files = sorted(folder.glob("*.pcapng"))
    packets = []
    try:
        for path in files:
            packets += pcapng_packets(path)
        tally.say(f"{len(files)} captures, {len(packets)} packets: well-formed pcapng", None if packets else "nothing was captured")
    except ValueError as e:
        tally.say("well-formed pcapng", str(e))
    wrong = [(i, why) for i, why in enumerate(map(well_formed, packets)) if why]
    tally.say("IP and UDP headers are right", f"{len(wrong)} are not; packet {wrong[0][0]}: {wrong[0][1]}" if wrong else None)
    bad = [p for p in packets if len(set(icrc(p))) != 1]
    tally.say("ICRC computed anew agrees", f"{len(bad)} do not; one of opcode {opcode(bad[0]):#x}: {icrc(bad[0])}" if bad else None)
    seen = collections.Counter(map(opcode, packets))
    absent = [name for code, name in OPCODES_EXPECTED.items() if code not in seen]
    tally.say(f"{len(seen)} opcodes are among them", f"absent: {absent}" if absent else None)
    check_scapy(packets, tally)
    check_tshark(files, len(packets), tally)


def check_scapy(packets, tally):
    try:
        import logging
        logging.getLogger("scapy").setLevel(logging.ERROR)
        from scapy.contrib.roce import BTH
        from scapy.layers.inet import IP
    except ImportError:
        print("SKIPPED: Scapy's ICRC: no python3-scapy here")
        tally.skipped += 1
        return
    four = [p for p in packets if p[0] >> 4 == 4]
    four = four[::max(1, len(four) // SCAPY_PACKETS_MAX)]
    wrong = 0
    for packet in four:
        bth = IP(packet)[BTH]
        wrong += bth.compute_icrc(None) != packet[-4:]
    tally.say(f"Scapy's ICRC agrees for {len(four)} IPv4 packets", f"{wrong} do not" if wrong else None if four else "no IPv4 packet")


def check_tshark(files, count, tally):
    if not shutil.which("tshark"):
        print("SKIPPED: tshark is not here")
        tally.skipped += 1
        return
    dissected, malformed, first = 0, 0, ""
    quiet = [word for guess in GUESSES for word in ("--disable-protocol", guess)]
    for path in files:
        out = subprocess.run(["tshark", "-r", str(path), *quiet, "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed"],
                             capture_output=True, text=True)
        for number, line in enumerate(out.stdout.splitlines(), 1):
            code, bad = (line.split("\t") + [""])[:2]
            dissected += bool(code)
            if bad:
                malformed += 1
                first = first or f"{path.name} packet {number}: opcode {code} {bad}"
    tally.say(f"tshark dissects {count} packets, none malformed", f"{dissected} dissected, {malformed} malformed {first}" if dissected != count or malformed else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--keep", help="leave the captures in this folder")
    args = parser.parse_args()
    try:
        enter_namespace()
    except PermissionError as e:
        print(f"SKIPPED: {e}\n0 passed, 0 failed, 1 skipped")
        return 77
    ip("link", "set", "lo", "up")
    env = dict(os.environ, LD_PRELOAD=str(preloadable(pathlib.Path(args.build).resolve() / "libropeway-verbs.so")))
    tally = Tally()
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(args.keep or tmp)
        folder.mkdir(exist_ok=True)
        port = PORT
        for device, gid, family in gids(env):
            for number, command in enumerate(PROGRAMS):
                port += 1
                wrong = run_pair(command, dict(env, ROPEWAY_PCAP=f"{folder}/{family}.{number}.%p.pcapng"), port, args.build, device, gid)
                tally.say(f"{family} {command.split()[0].split('/')[-1]}", wrong)
            check_split(folder, family, env, port, args.build, device, gid, tally)
            port += 2
        if not tally.passed + tally.failed:
            tally.say("the loopback device has GIDs", "none found")
        check_captures(folder, tally)
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    sys.exit(main())
