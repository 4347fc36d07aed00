#!/usr/bin/python3
"""mpi.py mpich|openmpi PATH...: mpi_pattern (tests/programs/cm), which compares every byte of what it sends, collects, puts and gets, on one host, then between two.

PATH: ucx-rc, ucx-ud; of Open MPI also ofi (libfabric's verbs;ofi_rxm). The launcher's remote shell is a script that enters the other host.
"""
import sys

import place

# So that each transport runs on one device; plain.py sets nothing.
UCX = {f"ucx-{kind}": {"UCX_TLS": f"{kind}_v,self", "UCX_NET_DEVICES": f"{place.DEVICE}:1"} for kind in ("rc", "ud")}
OFI = {"ofi": {}}
OPENMPI = {"ucx-rc": "--mca pml ucx --mca osc ucx", "ucx-ud": "--mca pml ucx --mca osc ucx", "ofi": "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm"}


def body(a, b):
    which, paths = sys.argv[1], sys.argv[2:]
    place.needs(f"mpicc.{which}", f"mpirun.{which}")
    program = place.compiled("../programs/cm/mpi_pattern.c", a.folder, compiler=f"mpicc.{which}")
    shell = place.remote_shell(a, b)
    # The windows of Open MPI 5 wait forever between two hosts, over UCX's TCP (UCX_TLS=tcp,self) and without ropeway, too.
    windows = which != "openmpi" or ") 4." in a.run("mpirun.openmpi --version", ropeway=False)
    for path in paths:
        for hosts in (f"{a.ip},{a.ip}", f"{a.ip},{b.ip}"):
            env = {**UCX, **OFI}[path]
            # Open MPI 5 starts its ranks by PRRTE, which has names of its own for these.
            launcher = {"PRTE_MCA_plm_ssh_agent": str(shell), "PRTE_MCA_prte_if_include": place.INTERFACE}
            if which == "openmpi":
                slots = f"{a.ip}:2" if hosts.endswith(a.ip) else f"{a.ip}:1,{b.ip}:1"
                words = (f"mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 --mca plm_rsh_agent {shell} --mca oob_tcp_if_include {place.INTERFACE} "
                         f"--mca btl ^openib -n 2 --host {slots} {''.join(f'-x {name} ' for name in env)}{OPENMPI[path]}")
            else:
                words = f"mpirun.mpich -launcher ssh -launcher-exec {shell} -hosts {hosts} -iface {place.INTERFACE} -n 2"
            text = a.run(f"{words} {program}{' --two-sided' if path == 'ofi' or not windows and b.ip in hosts else ''}", limit_s=60, says=r"all \d+ messages as sent", env={**env, **launcher})
            place.compared(f"{which} {path}, ranks at {hosts}: {text.strip().splitlines()[-1]}")


place.main(body)
