#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Scapy 2.8.0, scapy.contrib.roce, 28 November 2026.
#
# InfiniBand fills a payload up to a multiple of 4 bytes and says in the BTH how many bytes it has added (9.2.3).
# Scapy does neither, unless the program does it by hand: a SEND ONLY of 5 bytes is built with a pad count of 0 and 5
# bytes of payload. And an AETH is dissected behind an ACKNOWLEDGE alone: in a READ RESPONSE and an ATOMIC
# ACKNOWLEDGE its 4 bytes are a part of the payload. Seen:
#
#   SEND_ONLY of 5 bytes: pad count 0, 5 bytes behind the BTH
#   ACKNOWLEDGE: BTH AETH Raw
#   RDMA_READ_RESPONSE_ONLY: BTH Raw
#   ATOMIC_ACKNOWLEDGE: BTH Raw
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip -q install scapy==2.8.0
cat >probe.py <<'END'
from scapy.all import IP, UDP, Raw
from scapy.contrib.roce import BTH, opcode


def packet(name, payload):
    built = IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=50000, dport=4791) / BTH(opcode=opcode("RC", name)[0], dqpn=5, psn=1) / Raw(payload)
    return IP(bytes(built))


send = packet("SEND_ONLY", b"12345")
print(f"SEND_ONLY of 5 bytes: pad count {send[BTH].padcount}, {len(bytes(send[UDP])) - 8 - 12 - 4} bytes behind the BTH")
for name in ("ACKNOWLEDGE", "RDMA_READ_RESPONSE_ONLY", "ATOMIC_ACKNOWLEDGE"):
    print(f"{name}:", *(layer.__name__ for layer in packet(name, bytes(32)).layers()[2:]))
END
said=$(venv/bin/python -W ignore probe.py)
echo "$said"
[ "$said" = "SEND_ONLY of 5 bytes: pad count 0, 5 bytes behind the BTH
ACKNOWLEDGE: BTH AETH Raw
RDMA_READ_RESPONSE_ONLY: BTH Raw
ATOMIC_ACKNOWLEDGE: BTH Raw" ]
