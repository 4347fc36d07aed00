#!/usr/bin/python3
"""A peer that speaks the CM by hand, over a plain UDP socket: it answers requests as no well-behaved server would.

  raw_peer.py INTERFACE ADDRESS/LEN MODE [REASON...]

Runs in a network namespace of its own, whose INTERFACE it gives the address. Prints "ready", then a line for each new request.
  reject    the first request gets REJ with the first REASON, the next the next, and so on
  silent    nothing is answered
  strange   before the REJ come: the same with another reason to a communication ID that is not theirs, from another address, cut short, with a wrong ICRC, of a
            class version that is none, and a reply of no sense
"""
import os
import select
import socket
import struct
import subprocess
import sys
import zlib

PORT = 4791
REQ, REJ = 0x10, 0x12


def udp_socket(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: such datagrams have IP ID 0 and DF, which the ICRC covers
    s.bind((address, PORT))
    return s


def packet(source, to, mad, spoil=False):
    """BTH and DETH of a UD SEND ONLY to QP 1 and the MAD, with the ICRC for these addresses."""
    bth = struct.pack(">BBHII", 0x64, 0x40, 0xffff, 0x00000001, 0)
    body = struct.pack(">II", 0x80010000, 1) + mad
    length = 8 + len(bth) + len(body) + 4
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0xff, 20 + length, 0, 0x4000, 0xff, 17, 0xffff, socket.inet_aton(source), socket.inet_aton(to[0]))
    udp = struct.pack(">HHHH", PORT, to[1], length, 0xffff)
    crc = zlib.crc32(b"\xff" * 8 + ip + udp + bth[:4] + b"\xff" + bth[5:] + body)
    return bth + body + struct.pack("<I", crc ^ (0x5a5a5a5a if spoil else 0))


def mad(attribute, tid, local_id, remote_id, rest, version=2):
    head = struct.pack(">BBBBHHQHHI", 1, 7, version, 3, 0, 0, tid, attribute, 0, 0)
    return (head + struct.pack(">II", local_id, remote_id) + rest).ljust(256, b"\0")


def rej(tid, to_id, reason, private=b"", **more):
    return mad(REJ, tid, 0, to_id, struct.pack(">BBH", 0, 0, reason) + bytes(72) + private, **more)


def strange(sock, forger, address, other, to, tid, to_id):
    for sent_by, what, spoil in ((sock, rej(tid, to_id ^ 0x1, 1), False), (forger, rej(tid, to_id, 2), False), (sock, rej(tid, to_id, 3)[:200], False),
                                 (sock, rej(tid, to_id, 5), True), (sock, rej(tid, to_id, 7, version=9), False),
                                 (sock, mad(0x7777, tid, 1, to_id, b""), False)):
        source = other if sent_by is forger else address
        sent_by.sendto(packet(source, to, what, spoil), to)


def main():
    interface, network, mode, *reasons = sys.argv[1:]
    address = network.split("/")[0]
    other = address.rsplit(".", 1)[0] + ".9"  # where a forger sits
    sys.stdin.readline()  # the interface has come
    for words in (["addr", "add", network, "dev", interface], ["addr", "add", f"{other}/24", "dev", interface], ["link", "set", "lo", "up"],
                  ["link", "set", interface, "up"]):
        subprocess.run(["ip", *words], check=True)
    sock, forger = udp_socket(address), udp_socket(other)
    print("ready", flush=True)
    answers = {}
    while True:
        if sys.stdin in select.select([sock, sys.stdin], [], [])[0] and not os.read(0, 1):
            return
        data, sender = sock.recvfrom(4096)
        to = (sender[0], PORT)  # a RoCE packet goes to that port, whatever port its cause came from
        if len(data) < 20 + 256 or data[0] != 0x64:
            continue
        got = data[20:]
        tid, attribute = struct.unpack(">QH", got[8:18])
        (their_id,) = struct.unpack(">I", got[24:28])
        if attribute != REQ:
            continue
        if (to, their_id) not in answers:
            answers[to, their_id] = int(reasons[min(len(answers), len(reasons) - 1)]) if reasons else None
            print(f"request {len(answers)}", flush=True)
        if mode == "strange":
            strange(sock, forger, address, other, to, tid, their_id)
        if mode != "silent":
            sock.sendto(packet(address, to, rej(tid, their_id, answers[to, their_id], b"as a raw peer says")), to)


if __name__ == "__main__":
    main()
