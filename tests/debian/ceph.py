#!/usr/bin/python3
"""Ceph with ms_type async+rdma: a monitor and three OSDs (memstore) on two hosts, objects put and got. The OSD's own counters say that it went by RDMA."""
import json
import os
import pathlib
import time
import uuid

import place

OBJECTS = 8


def conf(a, folder):
    return f"""[global]
fsid = {uuid.uuid4()}
ms_type = async+rdma
ms_async_rdma_device_name = {place.DEVICE}
ms_async_rdma_receive_buffers = 2048
ms_async_rdma_receive_queue_len = 256
ms_async_rdma_buffer_size = 16384
ms_async_rdma_send_buffers = 512
ms_bind_msgr2 = false
mon_host = v1:{a.ip}:6789
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
auth_supported = none
osd_objectstore = memstore
memstore_device_bytes = 268435456
osd_pool_default_size = 3
osd_pool_default_min_size = 2
osd_pool_default_pg_num = 8
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_data = {folder}/mon
osd_data = {folder}/osd$id
osd_class_dir = /usr/lib/x86_64-linux-gnu/rados-classes
run_dir = {folder}
admin_socket = {folder}/$name.asok
log_file = {folder}/$name.log
pid_file =
keyring = {folder}/keyring
"""


def again(host, words, tries=6):
    """A client's command, more than once where it ends with EPERM.

    A client of Ceph 16 first asks for the monitor's map, and then connects anew with a map of its own, whose fsid is 0 (debug_monc = 10 shows both). If it sends its first command before
    the monitor's map comes again, the command has the fsid 0, and the monitor answers EPERM, `wrong fsid`. It is so over TCP, too.
    """
    for left in reversed(range(tries)):
        client = host.start(words)
        rc = client.wait(40)
        if not rc:
            return client.text()
        place.check(left and "EPERM" in client.text(), f"`{words}` ended with {rc}\n{client.tail()}")
        print(f"again, since `{words}` ended with EPERM", flush=True)


def body(a, b):
    place.needs("ceph-mon", "ceph-osd", "rados", "monmaptool")
    folder = pathlib.Path(a.folder)
    path = folder / "ceph.conf"
    path.write_text(conf(a, a.folder))
    fsid = path.read_text().split("fsid = ")[1].split()[0]

    def plain(words, limit_s=40):
        return a.run(words, limit_s=limit_s, ropeway=False)

    plain(f"monmaptool --create --clobber --fsid {fsid} --addv a [v1:{a.ip}:6789] {folder}/monmap")
    (folder / "keyring").write_text("[mon.]\n\tkey = AQBDm+RjAAAAABAA5cD6/d3LdW4k9vWhwd5K3A==\n\tcaps mon = \"allow *\"\n")
    plain(f"ceph-mon -c {path} --mkfs -i a --monmap {folder}/monmap --mon-data {folder}/mon --keyring {folder}/keyring --ms_type async+posix")
    mon = a.start(f"ceph-mon -c {path} -f -i a --mon-data {folder}/mon --public-addr {a.ip}:6789")
    try:
        a.wait_tcp(6789, mon, 30)
    except place.Failed:
        print("\n".join(line for line in mon.text().splitlines() if "nfiniband" in line or "RDMA" in line or "ssert" in line))
        raise
    again(a, f"ceph -c {path} --connect-timeout 20 -s")
    osds = []
    for number in range(3):
        host = (a, b)[number % 2]
        ident = str(uuid.uuid4())
        again(a, f"ceph -c {path} osd new {ident} {number}")
        os.mkdir(folder / f"osd{number}")
        host.run(f"ceph-osd -c {path} -i {number} --mkfs --osd-uuid {ident} --no-mon-config --ms_type async+posix", ropeway=False, limit_s=60)
        # Without --no-mon-config an OSD is a client as above, and EPERM ends it.
        osds.append(host.start(f"ceph-osd -c {path} -f --no-mon-config -i {number} --public-addr {host.ip} --cluster-addr {host.ip}"))
    end = time.monotonic() + 120
    while "3 up" not in again(a, f"ceph -c {path} osd stat"):
        place.check(time.monotonic() < end, "the OSDs are not up\n" + "\n".join(osd.tail(8) for osd in osds))
        time.sleep(1)
    again(a, f"ceph -c {path} osd pool create p 8")
    for number in range(OBJECTS):
        data = place.pattern((1 << number) * 20000, number)
        (folder / "in").write_bytes(data)
        again(b, f"rados -c {path} -p p put object{number} {folder}/in")
        again(a, f"rados -c {path} -p p get object{number} {folder}/out")
        place.check((folder / "out").read_bytes() == data, f"object {number} is not what was put")
    counters = json.loads(plain(f"ceph --admin-daemon {folder}/osd.1.asok perf dump"))
    sent = sum(values.get("tx_bytes", 0) for name, values in counters.items() if "RDMAWorker" in name)
    place.check(sent > 1 << 20, f"the OSD says that it sent {sent} bytes by RDMA")
    place.compared(f"{OBJECTS} objects of 20,000 to 2,560,000 bytes, put by one host and got by the other, 3 copies each; an OSD has sent {sent} bytes by RDMA")


place.main(body)
