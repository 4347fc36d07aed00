#!/usr/bin/python3
"""stock.py NAME: rdma-core's own programs and perftest between the two hosts; those that compare what arrives (-c, -V, -T v) do."""
import sys

import place

# server, client, what the client says
CASES = {
    "ibverbs-utils": [(f"ibv_{kind}_pingpong -d {{d}} -g 1 -c -n 200 -s 3000 -p {{p}}", f"ibv_{kind}_pingpong -d {{d}} -g 1 -c -n 200 -s 3000 -p {{p}} {{a}}", "200 iters") for kind in ("rc", "uc", "srq")],
    "rdmacm-utils": [("rping -s -a {a} -p {p} -C 100 -V -S 60000", "rping -c -a {a} -p {p} -C 100 -V -S 60000", ""),
                     ("ucmatose -b {a} -p {p} -c 100 -C 10 -S 1000", "ucmatose -s {a} -p {p} -c 100 -C 10 -S 1000", "return status 0"),
                     ("riostream -b {a} -p {p} -T v -S 65536 -C 20 -I 5", "riostream -s {a} -p {p} -T v -S 65536 -C 20 -I 5", "custom"),
                     ("rstream -b {a} -p {p} -T v -S 65536 -C 20 -I 5", "rstream -s {a} -p {p} -T v -S 65536 -C 20 -I 5", "custom")],
    "perftest": [(f"ib_{name} -d {{d}} -F -p {{p}} {more}", f"ib_{name} -d {{d}} -F -p {{p}} {more} {{a}}", r"\n +\d+ +\d+ +\d")
                 for name, more in ((name, more if "-x" in more else f"-x 1 {more}") for name, more in (("send_bw", "-n 500"), ("send_lat", "-n 500"), ("write_bw", "-n 500 -q 4"), ("write_lat", "-n 500"), ("read_bw", "-n 500"), ("read_lat", "-n 500"),
                                    ("atomic_bw", "-n 500"), ("atomic_lat", "-n 500"), ("send_bw", "-c UD -s 1024 -n 500"), ("send_bw", "--odp -n 500"), ("write_bw", "--odp -n 500"),
                                    # the group of -g alone, ff01:..., is one interface's: Linux sends it to nobody else. So few that a socket holds them: groups are not paced.
                                    ("send_bw", "-c UD -g -M 255:14:00:00:00:00:00:00:00:00:00:00:00:00:18:52 -x 0 -s 1024 -n 100")))],
}


def body(a, b):
    name = sys.argv[1]
    for number, (server_words, client_words, says) in enumerate(CASES[name]):
        port = 19000 + number
        words = {"a": a.ip, "p": port, "d": a.device}
        place.needs(server_words.split()[0])
        server = a.start(server_words.format(**words))
        (a.wait_rdma if name == "rdmacm-utils" else a.wait_tcp)(port, server)
        b.run(client_words.format(**words), limit_s=40, says=says)
        rc = server.wait(20)
        place.check(not rc, f"the server ended with {rc}\n{server.tail()}")
    place.compared(f"{len(CASES[name])} programs with their options; both sides ended with 0")


place.main(body)
