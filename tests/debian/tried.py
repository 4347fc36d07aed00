#!/usr/bin/python3
"""tried.py NAME: a program that cannot work on this device, or not yet. It has to say what rows.py tells as the cause: where it says something else, the row is to be written anew."""
import re
import sys

import place

# The command on host a, and what it says.
TRIED = {
    "ibsrpdm": ("ibsrpdm -c", r"Unsupported link layer Ethernet"),
    "ib_acme": ("ib_acme -f i -s 10.77.0.1 -d 10.77.0.2 -v", r"unable to contact service"),
    "opainfo": ("opainfo", r"No HFIs found"),
    "opasaquery": ("opasaquery -o node", r"No hfi names found"),
    "opa_osd_dump": ("opa_osd_dump", r"Unable to open shared memory table"),
    "dpdk": ("dpdk-testpmd --no-huge -m 64 --no-pci --log-level=8 -- --total-num-mbufs=2048", r"No probed ethernet devices"),
    "torch": (["/usr/bin/python3", "-c", "import torch.distributed as d; print('backends', d.is_gloo_available() if hasattr(d, 'is_gloo_available') else '', d.is_nccl_available(), d.is_mpi_available()); "
               "d.init_process_group('gloo', init_method='tcp://10.77.0.1:29500', rank=0, world_size=1); import os; "
               "print('verbs descriptors', sum('infiniband' in os.readlink(f'/proc/self/fd/{f}') for f in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{f}')))"],
              r"verbs descriptors 0"),
}


def body(a, b):
    command, cause = TRIED[sys.argv[1]]
    place.needs(command.split()[0] if isinstance(command, str) else command[0])
    program = a.start(command, env={"USE_LIBUV": "0"})  # Debian 13's torch asks for it, and is built without
    program.wait(60)
    place.check(re.search(cause, program.text()), f"`{command}` does not say '{cause}' any more: has it begun to work?\n{program.tail()}")
    place.compared(f"it says '{cause}'")


place.main(body)
