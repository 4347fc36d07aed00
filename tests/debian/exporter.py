#!/usr/bin/python3
"""Prometheus's node_exporter, its promtool and its Python client on what ropeway counts: ibv_rc_pingpong moves exact numbers of messages and bytes; node_exporter reads them in a
device's files (by direct system calls, so under --namespace) and in the file of `ropeway top --file`; promtool and the client read the page of `ropeway top --listen`.
"""
import pathlib
import re
import time

import place

MESSAGES, BYTES = 1000, 1024
ROPEWAY = f"{place.BUILD}/ropeway"
GET = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
PARSE = "import sys; from prometheus_client.parser import text_string_to_metric_families as f; print(sum(len(m.samples) for m in f(sys.stdin.read())), 'samples')"


def body(a, b):
    place.needs("prometheus-node-exporter", "promtool", "ibv_rc_pingpong")
    top = a.start([ROPEWAY, "top", "--listen", "127.0.0.1:9764", "--view", "qp"], ropeway=False)
    top.says("http://127.0.0.1:9764/metrics")
    folder = pathlib.Path(a.folder) / "textfile"
    folder.mkdir()
    exporter = a.start([ROPEWAY, "run", "--namespace", "--", "prometheus-node-exporter", "--collector.disable-defaults", "--collector.infiniband", "--collector.textfile",
                        f"--collector.textfile.directory={folder}", "--web.listen-address=127.0.0.1:9100"], ropeway=False)
    a.wait_tcp(9100, exporter)

    def value(page, name):
        found = re.findall(rf'^{name}\{{[^}}]*device="{a.device}"[^}}]*\}} (\S+)$', page, re.MULTILINE)
        place.check(len(found) == 1, f"{name} of {a.device}: {found}\n{page}")
        return float(found[0])

    def get(url):
        return a.run(["python3", "-c", GET, url], ropeway=False)

    server = a.start(f"ibv_rc_pingpong -d {a.device} -g 1 -n {MESSAGES} -s {BYTES}")
    a.wait_tcp(18515, server)
    b.run(f"ibv_rc_pingpong -d {b.device} -g 1 -n {MESSAGES} -s {BYTES} {a.ip}")
    server.done()
    page = get("http://127.0.0.1:9764/metrics")
    for name, moved in (("sends", MESSAGES), ("receives", MESSAGES), ("transmitted_bytes", MESSAGES * BYTES), ("received_bytes", MESSAGES * BYTES), ("failed", 0)):
        got = value(page, f"ropeway_device_{name}_total")
        place.check(got == moved, f"{name}: {got}, and {moved} were moved")
    said = pathlib.Path(a.folder) / "page"
    said.write_text(page)
    with said.open() as f:
        a.run("promtool check metrics", ropeway=False, stdin=f)
    with said.open() as f:
        samples = a.run(["python3", "-c", PARSE], ropeway=False, stdin=f, says="samples")

    a.run([ROPEWAY, "top", "--once", "--file", f"{folder}/ropeway.prom"], ropeway=False)
    end = time.monotonic() + 10
    while True:  # the keeper looks once a second
        page = get("http://127.0.0.1:9100/metrics")
        got = value(page, "node_infiniband_port_data_transmitted_bytes_total")
        if got == MESSAGES * BYTES:
            break
        place.check(time.monotonic() < end, f"node_exporter has {got} bytes\n{page}")
        time.sleep(0.1)
    place.check(value(page, "node_infiniband_port_data_received_bytes_total") == MESSAGES * BYTES, page)
    place.check(value(page, "ropeway_device_sends_total") == MESSAGES, page)
    place.check(re.search(r"^node_textfile_scrape_error 0$", page, re.MULTILINE), page)
    place.compared(f"{MESSAGES} messages of {BYTES} bytes, in node_exporter's infiniband and textfile collectors and in the page of ropeway top: promtool, and {samples.strip()} by the client")


place.main(body)
