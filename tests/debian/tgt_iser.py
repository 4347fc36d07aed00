#!/usr/bin/python3
"""tgtd's iSER target and libiscsi: the CRC-32 of the whole LUN as read over iser://, what is written by blocks, and 50 logins."""
import pathlib
import time
import zlib

import place

MIB = 16
LOGINS = 50
NAME = "iqn.2026-11.test:iser"


def admin(host, words):
    return host.run(f"tgtadm --lld iser {words}", ropeway=False)


def body(a, b):
    place.needs("tgtd", "tgtadm", "iscsi-inq", "cc")
    disk = pathlib.Path(a.folder) / "disk"
    data = place.pattern(MIB << 20, "lun")
    disk.write_bytes(data)
    reader = place.compiled("lun_hash.c", b.folder, "-liscsi")
    server = a.start("tgtd -f")
    a.wait_rdma(3260, server)
    end = time.monotonic() + 20
    while a.start("tgtadm --lld iser --mode sys --op show", ropeway=False).wait(20):
        place.check(time.monotonic() < end, f"tgtadm finds no iser driver\n{server.tail()}")
    admin(a, f"--mode target --op new --tid 1 --targetname {NAME}")
    admin(a, f"--mode logicalunit --op new --tid 1 --lun 1 --backing-store {disk}")
    admin(a, "--mode target --op bind --tid 1 -I ALL")
    admin(a, "--mode target --op bind --tid 1 -Q iqn.2026-11.test:initiator")
    url = f"iser://{a.ip}:3260/{NAME}/1"
    said = b.run([reader, url, "iqn.2026-11.test:initiator"], limit_s=120)
    read = said.split()[-1]
    place.check(read == f"{zlib.crc32(data):08x}", f"the LUN reads as {read}")
    place.compared(f"the CRC-32 of the whole LUN, {MIB} MiB")
    for number in range(LOGINS):
        b.run(f"iscsi-inq -i iqn.2026-11.test:initiator {url}", limit_s=30, says="Vendor:IET")
    place.compared(f"{LOGINS} logins, one after another, each with an INQUIRY")
    place.check(not server.ended(), f"tgtd ended\n{server.tail()}")


place.main(body)
