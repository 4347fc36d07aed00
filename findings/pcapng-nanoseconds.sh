#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dpkt 1.9.8, python-pcapng 2.1.1, Scapy 2.8.0, 28 November 2026.
#
# A pcapng file says the resolution of its times: here nanoseconds (if_tsresol 9), as Linux and NICs stamp packets.
# Two of the readers give a float of 64 bits, which for a time of our days has steps of 238 ns; Scapy has a decimal.
# So the difference of two packets that are 100 ns apart comes out as 0 or 238. Of 1764316800.123456789 they make:
#
#   dpkt float 1764316800.123456717
#   python-pcapng float 1764316800.123456955
#   scapy EDecimal 1764316800.123456789
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install dpkt==1.9.8 python-pcapng==2.1.1 scapy==2.8.0
cat >probe.py <<'END'
import struct

import dpkt
import pcapng
from scapy.all import PcapNgReader

NS = 1764316800123456789
PACKET = bytes.fromhex("4500001c0000000040110000c0000201c0000202c350000900080000")


def block(kind, body):
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


with open("one.pcapng", "wb") as f:
    f.write(block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
    f.write(block(1, struct.pack("<HHI", 101, 0, 0) + struct.pack("<HHB3x", 9, 1, 9) + struct.pack("<HH", 0, 0)))
    f.write(block(6, struct.pack("<IIIII", 0, NS >> 32, NS & 0xFFFFFFFF, len(PACKET), len(PACKET)) + PACKET))
(time, _), = dpkt.pcapng.Reader(open("one.pcapng", "rb"))
print("dpkt", type(time).__name__, f"{time:.9f}")
time, = (b.timestamp for b in pcapng.FileScanner(open("one.pcapng", "rb")) if type(b).__name__ == "EnhancedPacket")
print("python-pcapng", type(time).__name__, f"{time:.9f}")
packet, = PcapNgReader("one.pcapng")
print("scapy", type(packet.time).__name__, packet.time)
END
said=$(venv/bin/python -W ignore probe.py)
echo "$said"
[ "$said" = "dpkt float 1764316800.123456717
python-pcapng float 1764316800.123456955
scapy EDecimal 1764316800.123456789" ]
