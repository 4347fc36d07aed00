#!/usr/bin/python3
"""plain.py ucx|libfabric|openmpi|mpich: the program as it is installed, between two hosts with two interfaces each, and no variable set: none of UCX, none of ropeway.

It gets the peer's address and, where it would not take the device by itself, the transport's name. It must do what it does in the other rows, whose variables choose one device.
"""
import re
import signal
import sys

import place

# ucx_perftest compares nothing; io_demo does.
UCX = [("tag_lat", 8, 500), ("tag_bw", 1 << 20, 60), ("ucp_put_bw", 1 << 20, 60), ("ucp_get", 1 << 20, 60), ("stream_bw", 1 << 20, 60)]
LIBFABRIC = ["-e rdm", "-e msg -p verbs", "-e rdm -p verbs;ofi_rxm"]
# By itself Open MPI takes UCX and libfabric for the devices of its own lists alone, and TCP here.
OPENMPI = ["", "--mca pml ucx --mca osc ucx", "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"]


def ucx(a, b):
    import ucx_perftest
    place.needs("ucx_perftest", "io_demo")
    perftest = ucx_perftest.command()
    for port, (test, size, count) in enumerate(UCX, 13600):
        server = a.start(f"{perftest} -p {port} -t {test} -s {size} -n {count} -w 5")
        a.wait_tcp(port, server)
        text = b.run(f"{perftest} {a.ip} -p {port} -t {test} -s {size} -n {count} -w 5", limit_s=40, says=r"Final:\s+\d")
        server.done(20)
    place.compared(f"ucx_perftest {', '.join(test for test, _, _ in UCX)}: a figure from each")
    server = a.start("io_demo -p 13650 -q -d 1:2000000")
    a.wait_tcp(13650, server)
    text = b.run(f"io_demo -q -i 300 -d 1:2000000 -o read,write {a.ip}:13650", limit_s=60, says="exit with status 'OK'")
    place.check(not re.search("(?i)corrupt|mismatch|validat", text + server.text()), f"io_demo: {text}\n{server.tail()}")
    server.process.send_signal(signal.SIGKILL)
    place.compared("io_demo: 300 rounds of reads and writes of up to 2,000,000 bytes, each compared by it (-q)")


def libfabric(a, b):
    place.needs("fi_pingpong")
    for port, words in enumerate(LIBFABRIC, 13700):
        server = a.start(f"fi_pingpong -c -I 30 {words} -B {port}")
        a.wait_tcp(port, server)
        b.run(f"fi_pingpong -c -I 30 {words} -P {port} {a.ip}", limit_s=60, says=r"1m\s+30")
        server.done(20)
    place.compared(f"fi_pingpong -c with {', '.join(LIBFABRIC)}: up to 1 MiB, compared by it")


def mpi(which, a, b):
    place.needs(f"mpicc.{which}", f"mpirun.{which}")
    program = place.compiled("../programs/cm/mpi_pattern.c", a.folder, compiler=f"mpicc.{which}")
    shell = place.remote_shell(a, b)
    for words in OPENMPI if which == "openmpi" else [""]:
        if which == "openmpi":
            # Open MPI 5 starts its ranks by PRRTE, which has a name of its own for the remote shell.
            command = f"mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none --mca plm_rsh_agent {shell} -n 2 --host {a.ip}:1,{b.ip}:1 {words}"
            env = {"PRTE_MCA_plm_ssh_agent": str(shell)}
        else:
            command, env = f"mpirun.mpich -launcher ssh -launcher-exec {shell} -hosts {a.ip},{b.ip} -n 2", {}
        # Open MPI 4 has no windows by TCP, ropeway or not, nor by mtl ofi; those of Open MPI 5 wait forever between two hosts, by UCX's TCP and without ropeway, too.
        windows = which == "mpich" or "ucx" in words and ") 4." in a.run("mpirun.openmpi --version", ropeway=False)
        text = a.run(f"{command} {program}{'' if windows else ' --two-sided'}", limit_s=90, says=r"all \d+ messages as sent", env=env, launcher=True)
        place.compared(f"{which} {words}: {text.strip().splitlines()[-1]}")


def body(a, b):
    which = sys.argv[1]
    if which in ("openmpi", "mpich"):
        mpi(which, a, b)
    else:
        {"ucx": ucx, "libfabric": libfabric}[which](a, b)


sys.path.insert(0, str(place.HERE.parent))
place.main(body, interfaces=2)
